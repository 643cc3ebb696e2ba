//! Parquet files as a map-style dataset for distributed training.
//!
//! A build step reads footers only and writes one small index file. From then on every row has a number, its *row id*: a
//! [`Dataset`] serves any row ids as Arrow record batches through an LRU of decoded row groups, and a [`DistributedSampler`] says which
//! row ids are whose: shuffled over all files, and exactly as many on every rank.
//!
//! ```
//! use std::sync::Arc;
//! use rowdex::order::Global;
//! use rowdex::{Dataset, DistributedSampler, IndexBuilder, Shard};
//!
//! # fn main() -> rowdex::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let (data, index) = (folder.path().to_owned(), folder.path().join("train.rdx"));
//! # let column: arrow::array::ArrayRef = Arc::new(arrow::array::Int64Array::from_iter_values(0..1000));
//! # let batch = arrow::array::RecordBatch::try_from_iter([("id", column)]).unwrap();
//! # let file = std::fs::File::create(data.join("a.parquet")).unwrap();
//! # let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
//! # writer.write(&batch).unwrap();
//! # writer.close().unwrap();
//! IndexBuilder::new([data]).build(&index)?; // once, on one machine
//!
//! let dataset = Dataset::open(&index)?; // on every rank
//! let row = dataset.get(7)?; // one row, wherever it is
//! assert_eq!(row.num_rows(), 1);
//!
//! let (rank, world_size, batch_size) = (1, 3, 64);
//! let order = Arc::new(Global::new(dataset.len(), 42)?); // the seed, the same on all ranks
//! let mut sampler = DistributedSampler::new(order, Shard::new(rank, world_size)?, batch_size)?;
//! for epoch in 0..2 {
//!     for batch in sampler.batches()? { // another order in each epoch, by itself
//!         let batch = batch?;
//!         let rows = dataset.take(&batch.rows)?; // in exactly this order
//!         assert_eq!(rows.num_rows(), batch.rows.len());
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! # Which part does what
//!
//! | question | part |
//! | --- | --- |
//! | Where is a row? | [`Index`], made by [`IndexBuilder`] |
//! | What is in it? | [`Dataset`], or any [`MapDataset`] |
//! | Which row comes at which position of an epoch? | [`Orders`] and [`Order`], in [`order`] |
//! | What comes in the next batch, and fast? | [`Loader`], in [`loader`] |
//! | Which positions are mine? | [`Shard`] with its [`Tail`], and [`DistributedSampler`], in [`sampler`] |
//! | What did it cost? | [`Counters`] |
//!
//! Orders and shards are arithmetic: no rank talks to another, and nothing is drawn at run time, so every rank, thread and machine agrees.
//!
//! # Errors
//!
//! Every fallible call returns [`Error`], which names file, row group and column where they are known and says what to do.
//! Files are not trusted: a damaged or hostile index or Parquet file is an error, not a crash, and decoding is refused beforehand where it would
//! take more memory than allowed.
//!
//! # Threads and processes
//!
//! A [`Dataset`] starts threads of its own when a call first needs several row groups decoded, and ends them when it is dropped; there are no
//! global pools. A forked child gets a cache and threads of its own.

mod bits;
pub mod cache;
#[cfg(all(feature = "capi", unix))]
mod capi;
pub mod dataset;
pub mod error;
pub mod index;
pub mod loader;
pub mod order;
mod per_process;
mod pool;
pub mod projection;
pub mod row_group;
mod rows;
pub mod sampler;
pub mod source;
mod tier;

pub use cache::Counters;
pub use dataset::{Dataset, DatasetBuilder, MapDataset, Staleness};
pub use error::{Error, ErrorKind, Result};
pub use index::builder::{IndexBuilder, SchemaMode};
pub use index::{Index, Location};
pub use loader::{Batch, Loader};
pub use order::{Order, Orders};
pub use sampler::{DistributedSampler, Shard, Tail};
