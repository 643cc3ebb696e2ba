//! Parquet files as a map-style dataset for distributed training.

pub mod error;
pub mod index;
pub mod order;
pub mod projection;
pub mod row_group;
pub mod sampler;
pub mod source;

pub use error::{Error, ErrorKind, Result};
