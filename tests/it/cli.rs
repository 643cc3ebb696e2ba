//! The `rowdex` command, tested as people call it: the real program, its exit status, and what it writes where.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
mod commands;
mod epochs;
mod faults;
mod formats;
mod ids;
mod killed;
mod lengths;
mod orders;
mod packs;
mod place;
mod predict;
mod prove;
mod quality;
mod report;
mod row_choice;
mod same_rows;
mod select;
#[cfg(target_os = "linux")]
mod serve;
mod shuffle;
mod state;
mod tier;
mod where_cmd;
