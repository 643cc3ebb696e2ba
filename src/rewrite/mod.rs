//! Writing the rows of a dataset anew, in the order of an epoch, as Parquet files that are read in order ever after.
//!
//! Row `i` of the output is row `order(i)` of the input. It takes two passes. The first reads each row group once and
//! spills its rows to *buckets* of consecutive positions. The second loads one bucket after the other, puts rows to
//! their places and encodes them. The order is known, so buckets are known beforehand, any part can be done again, and
//! any machine can do any part. Where all rows fit in memory they stay there, and nothing is spilled. The files are the
//! same to the byte, however they came to be.
//!
//! ```no_run
//! use std::sync::Arc;
//! use rowdex::Dataset;
//! use rowdex::order::Global;
//! use rowdex::rewrite::Rewrite;
//!
//! # fn main() -> rowdex::Result<()> {
//! let dataset = Dataset::open("train.rdx")?;
//! let order = Arc::new(Global::new(dataset.len(), 42)?);
//! let report = Rewrite::new(&dataset, order, "shuffled/").with_memory(4 << 30).run()?;
//! println!("{} rows in {} files, {:?}", report.rows, report.files, report.index);
//! # Ok(()) }
//! ```
//!
//! `docs/rewriting.md` says when it pays, and what it takes.

mod bucket;
mod columns;
mod decide;
mod encode;
mod output;
mod part;
mod plan;
mod run;
mod shape;
mod spread;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::ThreadPool;
use serde::{Deserialize, Serialize};

use self::columns::OutputColumns;
use self::encode::Encoding;
use self::output::RewriteOutput;
use self::part::Spill;
pub use self::plan::Codec;
use crate::dataset::{Dataset, DatasetBuilder};
use rowdex_base::error::{Error, Result};
use rowdex_base::pool::start;
use rowdex_base::stop::Asked;
use rowdex_io::fs::MoreIdle;
use rowdex_order::{EpochOrder, Order};

/// A part of a rewrite that a process does, from [`Rewrite::run_task`]. Tasks of one kind may run at the same time, on
/// machines that share the output folder and the spill folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RewriteTask {
    /// Spills the rows of some of the input files: task `task` of `tasks`, counted from 0.
    Spill {
        /// Which one.
        task: u64,
        /// Of how many.
        tasks: u64,
    },
    /// Writes some of the output files, once all rows are spilled.
    Write {
        /// Which one.
        task: u64,
        /// Of how many.
        tasks: u64,
    },
    /// Writes the index, once all files are written, and removes what was spilled.
    Index,
}

/// How far a rewrite is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RewriteProgress {
    /// Rows that were read in the first pass, and rows that were written in the second.
    pub rows_done: u64,
    /// Rows to read and to write.
    pub rows: u64,
    /// Bytes that were spilled so far.
    pub bytes_spilled: u64,
    /// Bytes of output files that are in their places.
    pub bytes_written: u64,
}

/// What a rewrite made.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "capi", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RewriteReport {
    /// Rows that were written, or are in files that were there already.
    pub rows: u64,
    /// Output files.
    pub files: u64,
    /// Files that were finished before, by a run that this one resumes.
    pub kept_files: u64,
    /// Bytes of the files that this run wrote.
    pub bytes_written: u64,
    /// Bytes that this run spilled.
    pub bytes_spilled: u64,
    /// The index of the output; `None` from a task that does not write it.
    pub index: Option<PathBuf>,
}

/// How a leaf of a column is encoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ColumnPlan {
    /// Its path in the Parquet schema, with dots.
    path: String,
    /// How its pages are compressed.
    compression: Codec,
    /// Whether its values go to a dictionary, for as long as that stays small.
    dictionary: bool,
    /// Bytes of values after which a page ends.
    page_bytes: u64,
}

/// What a rewrite will write: every choice that the files depend on.
///
/// It depends on the rows, their order and the options of the output alone: neither on the memory and the threads nor
/// on how the work is divided into tasks. The output folder has it as `_rewrite.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RewritePlan {
    /// A hash over the rows that are written and the footers of their files.
    source: u64,
    /// Rows that are written.
    rows: u64,
    /// What the order is made of, as an outline: `global,seed-42`.
    order: String,
    /// The fingerprint of the order, which covers its seed and the rows that it leaves out.
    order_fingerprint: u64,
    /// How many files there will be.
    files: u64,
    /// Rows of a row group; the last one of a file may have fewer.
    row_group_rows: u64,
    /// Rows that are encoded at once.
    chunk_rows: u64,
    /// How each leaf of the columns is encoded.
    columns: Vec<ColumnPlan>,
    /// What all files of the input say that a leaf or group is beyond its type, by path: `JSON`, `BSON`, `ENUM`,
    /// `UUID`, `INTERVAL`, `TIME_UTC`, `GEOMETRY` or `GEOGRAPHY`, these two perhaps with a colon and the coordinates,
    /// and `VARIANT`, perhaps with a colon and its version.
    logical_types: Vec<(String, String)>,
    /// The name of the column with the row ids of the input, if one is written.
    origin: Option<String>,
    /// Rows of the sample that it was decided on.
    sample_rows: u64,
    /// Bytes that the sample takes in memory.
    sample_bytes: u64,
    /// Bytes that it takes in a file.
    sample_encoded_bytes: u64,
    /// Whether rows that are spilled are compressed: it halves the sample.
    spill_compressed: bool,
}

/// A rewrite at work.
struct Rewriting<'a> {
    rewrite: &'a Rewrite,
    plan: RewritePlan,
    columns: OutputColumns,
    encoding: Encoding,
    order: Arc<dyn EpochOrder>,
    output: RewriteOutput,
    spill: Spill,
    meter: RewriteMeter,
    pool: ThreadPool,
    /// Nobody else writes to the output.
    _lock: Option<File>,
    _idle: MoreIdle,
}

/// Writes the rows of a dataset again, in the order of an epoch.
#[derive(Clone)]
pub struct Rewrite {
    dataset: Dataset,
    orders: Arc<dyn Order>,
    output: PathBuf,
    files: Option<u64>,
    file_bytes: u64,
    row_group_rows: Option<u64>,
    page_bytes: Option<u64>,
    compression: Option<Codec>,
    origin: Option<String>,
    memory: u64,
    threads: usize,
    spill: Option<PathBuf>,
    resume: bool,
    overwrite: bool,
    progress: Option<Arc<dyn Fn(RewriteProgress) + Send + Sync>>,
    asked: Option<Asked>,
}

impl Rewrite {
    /// Writes the rows that epoch 0 of an order has, in that order, to files of a folder and an index next to them; or
    /// to objects below a URL of a store: `s3://bucket/prefix/`, `gs://` or `az://`.
    ///
    /// Which columns are written, where the files are, and how stores are talked to, the dataset says. Its cache is not
    /// used.
    pub fn new(dataset: &Dataset, order: Arc<dyn Order>, output: impl Into<PathBuf>) -> Self {
        Self {
            dataset: dataset.clone(),
            orders: order,
            output: output.into(),
            files: None,
            file_bytes: 512 << 20,
            row_group_rows: None,
            page_bytes: None,
            compression: None,
            origin: None,
            memory: 1 << 30,
            threads: DatasetBuilder::default_threads(),
            spill: None,
            resume: false,
            overwrite: false,
            progress: None,
            asked: None,
        }
    }

    /// About how many bytes of rows to hold. Default: 1 GiB.
    ///
    /// The private memory of the process exceeds it by no more than an eighth, two row groups of the input and of the
    /// output, 32 MiB, and 1 MiB a thread, in a program whose allocator is [`MappedBlocks`](crate::MappedBlocks);
    /// others keep what is freed. `docs/rewriting.md` says what comes on top.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// How many threads decode and encode; 0 counts as 1. Default: one per available core, at most eight.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Writes so many files, with equal numbers of rows or one row more.
    #[must_use]
    pub fn with_files(mut self, files: u64) -> Self {
        self.files = Some(files);
        self
    }

    /// Writes as many files as make each about so large. Default: 512 MiB.
    #[must_use]
    pub fn with_file_bytes(mut self, bytes: u64) -> Self {
        (self.files, self.file_bytes) = (None, bytes);
        self
    }

    /// Rows of a row group; the last one of a file may have fewer. Default: such that a row group takes 32 MiB in
    /// memory, and 4 MiB in the file if that is no more than 64 MiB in memory.
    #[must_use]
    pub fn with_row_group_rows(mut self, rows: u64) -> Self {
        self.row_group_rows = Some(rows);
        self
    }

    /// Bytes of values after which a page ends. Default: 128 KiB, and 1 MiB where a value takes 4 KiB or more.
    #[must_use]
    pub fn with_page_bytes(mut self, bytes: u64) -> Self {
        self.page_bytes = Some(bytes);
        self
    }

    /// How all columns are compressed. Default: for each the one that a sample is smallest with, or none where that
    /// saves less than a tenth.
    #[must_use]
    pub fn with_compression(mut self, codec: Codec) -> Self {
        self.compression = Some(codec);
        self
    }

    /// Adds a column of this name that has the row id that each row has in the input. Default: no.
    #[must_use]
    pub fn with_origin(mut self, name: impl Into<String>) -> Self {
        self.origin = Some(name.into());
        self
    }

    /// Spills rows to a folder in this one, which is local. Default: in the output folder. If that is in a store and no
    /// folder is given, what has to spill is refused before anything is written.
    #[must_use]
    pub fn with_spill(mut self, folder: impl Into<PathBuf>) -> Self {
        self.spill = Some(folder.into());
        self
    }

    /// Resumes from what a run of the same plan left in the output folder, if there is any. Default: no.
    #[must_use]
    pub fn with_resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Whether to replace what another rewrite left in the output folder. Default: no.
    #[must_use]
    pub fn with_overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Is called as rows are done with, on the threads that do it.
    #[must_use]
    pub fn with_progress(mut self, progress: impl Fn(RewriteProgress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Is asked, now and then and on any thread, whether to stop. A run that is stopped fails with
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed), leaves nothing half written, and can be
    /// [resumed](Self::with_resume).
    #[must_use]
    pub fn with_stop(mut self, asked: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.asked = Some(Asked::new(asked));
        self
    }

    /// Decides what is written, on a sample of the rows. Reads up to eight row groups, in part.
    fn planned(&self, pool: &ThreadPool) -> Result<RewritePlan> {
        let zero = [
            (self.files, "files"),
            (Some(self.file_bytes), "bytes of a file"),
            (self.row_group_rows, "rows of a row group"),
            (self.page_bytes, "bytes of a page"),
        ];
        if let Some((_, what)) = zero.iter().find(|(value, _)| *value == Some(0)) {
            return Err(Error::invalid(format!("0 {what}")).with_hint("use 1 or more"));
        }
        if let Some(rows) = self.orders.rows().filter(|rows| *rows != self.dataset.len()) {
            let message = format!("the order is over {rows} rows, and the dataset has {}", self.dataset.len());
            return Err(Error::invalid(message).with_hint("make it for the rows of the dataset"));
        }
        decide::decide(self, &self.columns()?, pool)
    }

    fn columns(&self) -> Result<OutputColumns> {
        OutputColumns::new(&self.dataset, self.origin.as_deref())
    }

    fn pool(&self, threads: usize) -> Result<ThreadPool> {
        start(threads, "rowdex-write")
    }
}

impl fmt::Debug for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rewrite").field("output", &self.output).finish_non_exhaustive()
    }
}

/// Counts what is done, on any thread, and tells it.
#[derive(Default)]
struct RewriteMeter {
    tell: Option<Arc<dyn Fn(RewriteProgress) + Send + Sync>>,
    rows: u64,
    rows_done: AtomicU64,
    bytes_spilled: AtomicU64,
    bytes_written: AtomicU64,
}

impl RewriteMeter {
    fn advance(&self, rows: u64) {
        let rows_done = self.rows_done.fetch_add(rows, Ordering::Relaxed) + rows;
        if let Some(tell) = &self.tell {
            tell(RewriteProgress {
                rows_done,
                rows: self.rows,
                bytes_spilled: self.bytes_spilled.load(Ordering::Relaxed),
                bytes_written: self.bytes_written.load(Ordering::Relaxed),
            });
        }
    }
}
