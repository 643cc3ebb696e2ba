//! What rowdex has that knows neither files nor rows: errors, a cache by weight, threads, and
//! what a fork must not inherit.

#[cfg(not(unix))]
compile_error!("rowdex runs on Linux, and without readers that processes share on macOS, but not on this system");

pub mod bits;
pub mod cache;
pub mod error;
pub mod fork;
pub mod once;
pub mod per_process;
pub mod pool;
pub mod stop;
