//! The `rowdex` command, tested as people call it: the real program, its exit status, and what it writes where.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
mod commands;
mod disk_cache;
mod epochs;
mod estimate;
mod faults;
mod formats;
mod killed;
mod lengths;
mod orders;
mod packs;
mod place;
mod report;
mod rewrite;
mod row_choice;
mod same_rows;
mod select;
#[cfg(target_os = "linux")]
mod serve;
mod shards;
#[cfg(target_os = "linux")]
mod share;
mod state;
mod trace;
