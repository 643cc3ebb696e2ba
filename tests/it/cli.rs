//! The `rowdex` command, tested as people call it: the real program, its exit status, and what it writes where.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
mod commands;
mod epochs;
mod formats;
mod killed;
mod orders;
mod place;
