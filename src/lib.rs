//! Random access and an exact global shuffle for Parquet files, for distributed training.
//!
//! A build step reads the footers of Parquet files and writes one small index file. From then on every row has a
//! number, its *row id*. A [`Dataset`] serves any rows by their ids as Arrow record batches. A [`DistributedSampler`]
//! says which rows belong to which rank, and in which order. A [`Loader`] serves that order from its own threads. It
//! holds no more than the memory that it is given, an eighth of it, and two row groups.
//!
//! ```
//! use std::sync::Arc;
//! use rowdex::order::Global;
//! use rowdex::{Dataset, DistributedSampler, IndexBuilder, Loader, Shard};
//!
//! # fn main() -> rowdex::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let (data, index) = (folder.path().to_owned(), folder.path().join("train.rdx"));
//! # let column: arrow_array::ArrayRef = Arc::new(arrow_array::Int64Array::from_iter_values(0..1000));
//! # let batch = arrow_array::RecordBatch::try_from_iter([("id", column)]).unwrap();
//! # let file = std::fs::File::create(data.join("a.parquet")).unwrap();
//! # let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
//! # writer.write(&batch).unwrap();
//! # writer.close().unwrap();
//! IndexBuilder::new([data]).build(&index)?; // once, on one machine
//!
//! let dataset = Dataset::open(&index)?; // on every rank
//! let row = dataset.get(7)?; // one row
//! assert_eq!(row.num_rows(), 1);
//! let rows = dataset.take(&[41, 3, 3])?; // several rows, in this order
//! assert_eq!(rows.num_rows(), 3);
//!
//! let (rank, world_size, batch_size) = (1, 3, 64);
//! let order = Arc::new(Global::new(dataset.len(), 42)?); // the seed is the same on all ranks
//! let sampler = DistributedSampler::new(order, Shard::new(rank, world_size)?, batch_size)?;
//! let mut loader = Loader::builder(&dataset, sampler).memory(64 << 20).epochs(2).build()?;
//! let mut steps = 0;
//! while let Some(batch) = loader.next().transpose()? {
//!     steps += 1;
//!     assert_eq!(batch.records.num_rows(), batch.row_ids.len());
//! }
//! assert_eq!(steps, 2 * 6); // 334 rows on every rank, in 6 batches, in each of two epochs
//! # Ok(()) }
//! ```
//!
//! # Contents
//!
//! | question | part |
//! | --- | --- |
//! | Where is a row? | [`Index`], made by [`IndexBuilder`] |
//! | What is in a row? | [`Dataset`], or any other [`MapDataset`](dataset::MapDataset) |
//! | Which row comes at which position of an epoch? | [`order`] |
//! | Which positions belong to my rank? | [`Shard`], [`Tail`](sampler::Tail) and [`DistributedSampler`], in [`sampler`] |
//! | How do I get all batches of an epoch fast? | [`Loader`], in [`loader`] |
//! | How do I get files that are read in order? | [`Rewrite`], in [`rewrite`] |
//! | What did it cost? | [`Counters`](dataset::Counters), [`loader::LoaderStats`] |
//!
//! The documents in the folder `docs` of the repository specify what other programs may rely on: the index format, the
//! orders, the shards and the disk cache.
//!
//! # Words
//!
//! - **Row id**: the number of a row in the index, from 0 to `len - 1`. Files are ordered by name, rows as they are in
//!   their files.
//! - **Order**: for one epoch, a pure function from positions to row ids. **Position**: a place in that order.
//! - **Shard**: the positions that belong to one rank.
//! - **Step**: one batch on every rank.
//! - **Pass**: decoding every row group once.
//! - **Repeated row** (`pad`): a row that is served twice so that all ranks have the same number of rows.
//!
//! # Indexing
//!
//! [`IndexBuilder`] takes files, folders and patterns. It reads footers only, so it indexes thousands of files a
//! second. The index holds the paths, the row counts, the schema and the footers, and no values. It takes 28 bytes for
//! a row group and the compressed footers. It is written under another name and renamed, so the path has either the
//! old index or the new one.
//!
//! ```no_run
//! use rowdex::index::builder::SchemaMode;
//! use rowdex::IndexBuilder;
//!
//! # fn main() -> rowdex::Result<()> {
//! let report = IndexBuilder::new(["data/"])
//!     .with_schema_mode(SchemaMode::Union) // columns that a file lacks are null there
//!     .with_update(true) // rows of unchanged leading files keep their ids
//!     .build("train.rdx")?;
//! println!("{} rows in {} files", report.rows, report.files);
//! # Ok(()) }
//! ```
//!
//! Folders named `key=value` become columns.
//!
//! # Reading rows
//!
//! [`Dataset::get`] reads one row, [`Dataset::take`] any rows in any order. Decoded row groups are kept in a cache of
//! a fixed number of bytes. A `get` that finds nothing in the cache reads the pages of the row where the file says
//! where its pages are, and the row group otherwise.
//!
//! ```no_run
//! use rowdex::{Dataset, Index};
//!
//! # fn main() -> rowdex::Result<()> {
//! let dataset = Dataset::builder(Index::open("train.rdx")?)
//!     .with_columns(["features", "label"]) // only these are read
//!     .with_cache_bytes(1 << 30)
//!     .open()?;
//! let batch = dataset.take(&[5, 1_000_000, 5])?;
//! println!("{:?}", dataset.counters());
//! # Ok(()) }
//! ```
//!
//! For random rows of a dataset that is larger than the cache, use a [`Loader`]. It knows beforehand which rows will
//! be needed; the cache does not, and decodes row groups again and again. Where another program decides which rows are
//! needed, [`Dataset::prefetch`] takes its row ids in advance and serves them as a loader would.
//!
//! # Orders
//!
//! | order | what it does |
//! | --- | --- |
//! | [`order::Global`] | permutes all rows: the default |
//! | [`order::Blocks`] | permutes row groups, and rows within windows of `k` row groups: less random, fewer decodes |
//! | [`order::Sequential`] | the order of the files |
//! | [`order::Torch`] | the order of PyTorch's `DistributedSampler`, number for number |
//! | [`order::Explicit`] | any list of row ids |
//! | [`order::Weighted`], [`order::Balanced`] | rows by weight, or classes equally often |
//! | [`order::Scored`] | rows sorted by a score, in sweeps |
//! | [`order::Mixed`] | several datasets in fixed proportions |
//! | [`order::Staged`] | several datasets by weights that change in the course of a run |
//! | [`order::Resized`], [`order::Subset`] | epochs of a chosen size, or of some of the rows |
//! | [`order::Paired`] | every second epoch is the one before it backwards |
//! | [`order::Packed`] | rows in packs of a number of tokens, by their lengths |
//!
//! An order is a pure function of the number of rows, the seed and the epoch. Nothing is drawn at run time and no rank
//! talks to another one, so every thread, rank and machine agrees. The orders are versioned and frozen: a seed gives
//! the same epoch in every release.
//!
//! # Shards
//!
//! Position `q` of an order belongs to rank `q mod world_size`. What happens when the ranks do not divide the rows is
//! the [`Tail`](sampler::Tail): repeat rows from the beginning of the epoch (`Wrap`, the default), drop the rest
//! (`Drop`), allow a difference of one row (`Uneven`, for evaluation), or refuse (`Error`). With all of them but
//! `Uneven` all ranks have the same number of rows, batches and steps.
//!
//! `Shard::from_env` takes rank and world size from the variables that torchrun, Open MPI, PMI and Slurm set.
//!
//! # Loading
//!
//! A [`Loader`] walks the order ahead of its consumer. When it does not hold the row that is needed next, it decodes
//! the row group of that row and keeps the rows that are needed soon. So the memory decides how often row groups are
//! decoded: with memory for a share `m` of the rows, about `1 / (2m)` times an epoch, and not at all after the first
//! epoch if everything fits. [`LoaderBuilder::estimate`](loader::LoaderBuilder::estimate) gives the number without
//! reading data.
//!
//! ```no_run
//! use std::sync::Arc;
//! use rowdex::loader::Fault;
//! use rowdex::order::Global;
//! use rowdex::{Dataset, DistributedSampler, Loader, Shard};
//!
//! # fn main() -> rowdex::Result<()> {
//! let dataset = Dataset::open("train.rdx")?;
//! let order = Arc::new(Global::new(dataset.len(), 42)?);
//! let sampler = DistributedSampler::new(order, Shard::from_env()?, 256)?;
//! let mut loader = Loader::builder(&dataset, sampler)
//!     .memory(4 << 30) // bytes of decoded rows
//!     .threads(4)
//!     .on_error(Fault::Substitute { seed: 1 }) // a damaged row group does not stop the job
//!     .build()?;
//! if let Ok(checkpoint) = std::fs::read_to_string("checkpoint") {
//!     loader.resume(&checkpoint.parse()?)?; // with any number of ranks
//! }
//! for batch in loader.epoch() {
//!     let batch = batch?;
//!     // ... one step of the training ...
//!     # drop(batch);
//! }
//! std::fs::write("checkpoint", loader.state().to_string()).expect("the checkpoint is written");
//! # Ok(()) }
//! ```
//!
//! # Object stores
//!
//! With the feature `object-store`, URLs (`s3://`, `gs://`, `az://`, `hf://`, `https://`, `http://`, `file://`) work
//! wherever a path does. [`source::StoreOptions`] has their settings; credentials come from the environment. TLS uses
//! the cryptography that the application has installed as the default of `rustls`. If there is none when the first
//! store is opened, rowdex installs `ring` as the default.
//!
//! # Errors
//!
//! Every fallible call returns [`Error`], which names file, row group and column where they are known and says what to
//! do. [`ErrorKind`] distinguishes the kinds. Files are not trusted: a damaged or hostile index or Parquet file returns
//! an error and does not crash, and decoding is refused where it would take more memory than allowed. A panic of the
//! decoder becomes an error as well, which needs the default `panic = "unwind"`.
//!
//! # Threads and processes
//!
//! A [`Dataset`] starts threads when a call first needs several row groups decoded, and ends them when it is dropped. A
//! [`Loader`] has its own threads. There are no global pools. After a fork, the child has the datasets and samplers of
//! its parent, with an empty cache and its own threads.
//!
//! # Features
//!
//! None is a default.
//!
//! | feature | what it adds | what it costs |
//! | --- | --- | --- |
//! | `object-store` | data and indexes by URL | object_store, tokio, reqwest, rustls with ring |
//! | `serde` | typed rows: `MapDataset::get_as` | serde, serde_arrow |
//! | `filter` | conditions in SQL: `Dataset::filter`, `Select::filter` | parts of DataFusion, sqlparser |
//! | `capi` | the functions of `include/rowdex.h` | serde_path_to_error |
//! | `cli` | the command in the library of the Python package | clap, indicatif, CSV and JSON writers |
//! | `full` | all of them | |
//!
//! The command is the package `rowdex-cli` in the folder `cli`.

mod builder;
#[cfg(feature = "capi")]
mod capi;
// In the library of the Python package alone: elsewhere a change of the command compiles nothing but the program.
#[cfg(rowdex_command)]
#[allow(unreachable_patterns, reason = "enums that may grow are known here")]
mod command;
pub mod dataset;
#[cfg(feature = "capi")]
mod describe;
pub mod digest;
pub mod loader;
pub mod rewrite;
pub mod select;

// The command takes the library by this name, wherever it is compiled.
#[cfg(rowdex_command)]
extern crate self as rowdex;

/// What goes wrong, where, and what to do.
pub mod error {
    pub use rowdex_base::error::{Error, ErrorKind, Result};
}

/// Where a row is: the index file, and looking rows up in it.
pub mod index {
    pub use rowdex_index::{
        FileEntry, Index, LengthsOf, Location, Root, RowGroupEntry, RowLengths, RowSet, order_file,
    };

    /// Building an index: which files there are, what their footers say, and whether they fit each other.
    pub mod builder {
        pub use crate::builder::{BuildProgress, BuildReport, FoundIndex, IndexBuilder, LengthsBuilder, SchemaMode};
    }
}

/// Which row comes at which position. [`rowdex_order`] says what each order costs, and what one of your own must keep
/// to.
pub mod order {
    #[doc(inline)]
    pub use rowdex_order::{
        Algorithm, Balanced, Blocks, Contiguous, Cost, Empty, EpochOrder, Explicit, Global, IdSet, JoinedLengths,
        Lengths, MAX_LEN, Measure, Mixed, MixedPart, OnExhausted, Order, Overflow, Pack, PackCounts, Packed,
        PackedEpoch, Paired, Piece, Ramp, Resized, Rotated, Scored, Sequential, Side, Split, StagePlan, Staged, Subset,
        Torch, Weighted,
    };
    // What the command says of orders, and what it checks of them.
    #[doc(hidden)]
    pub use rowdex_order::{
        ExplicitIds, OrderKind, OrderSpec, Outline, Partition, Recipe, RecipeBase, RowLayout, Uses,
    };
}

/// Which positions are mine. [`rowdex_order::sampler`] says how rows are shared out, and what a state counts.
pub mod sampler {
    #[doc(inline)]
    pub use rowdex_order::sampler::{
        BatchPlan, DistributedSampler, EpochPlan, PackForecast, PackSpec, ReplicationLayout, Sample, SamplerOptions,
        Shard, State, Tail,
    };
    #[doc(hidden)]
    pub use rowdex_order::sampler::{Launch, Run};
}

/// Where bytes come from: ranged reads of whole files, by path.
pub mod source {
    #[cfg(feature = "object-store")]
    pub use rowdex_io::source::ObjectSource;
    #[doc(hidden)]
    pub use rowdex_io::source::{Done, Link, Pending, Traffic};
    pub use rowdex_io::source::{FileStat, LocalSource, Source, StoreOptions};
}

pub use builder::IndexBuilder;
pub use dataset::Dataset;
pub use loader::{Batch, Loader};
pub use rewrite::Rewrite;
pub use rowdex_base::error::{Error, ErrorKind, Result};
pub use rowdex_index::Index;
pub use rowdex_io::fs::MappedBlocks;
pub use rowdex_order::sampler::{DistributedSampler, Shard};
pub use select::Select;

/// The allocator of a shared library, for what the library itself allocates: its memory is freed by its own functions
/// alone, so no other allocator meets it.
#[cfg(all(feature = "capi", rowdex_library))]
#[global_allocator]
static ALLOCATOR: MappedBlocks = MappedBlocks::new();
