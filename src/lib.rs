//! Parquet files as a map-style dataset for distributed training.

pub mod cache;
pub mod dataset;
pub mod error;
pub mod index;
pub mod order;
mod per_process;
mod pool;
pub mod projection;
pub mod row_group;
pub mod sampler;
pub mod source;

pub use cache::Counters;
pub use dataset::{Dataset, DatasetBuilder, MapDataset, Staleness};
pub use error::{Error, ErrorKind, Result};
pub use index::builder::{IndexBuilder, SchemaMode};
pub use index::{Index, Location};
pub use order::{Order, Orders};
pub use sampler::{DistributedSampler, Shard, Tail};
