//! What the loader needs of a dataset: sizes, places and decoded rows, row group by row group.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::dataset::{Dataset, JoinedChunks, MixedDataset, Prefetch, RunPart, Slots};
use rowdex_base::error::{Error, Result};
use rowdex_index::Index;
use rowdex_io::source::Link;
use rowdex_parquet::{RowSink, finish};
use rowdex_rows::{compact, uncopied};

pub(super) mod dataset;

/// How large a unit is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UnitSize {
    /// Rows that are served.
    pub(crate) rows: u64,
    /// Bytes of those rows when decoded, as estimated; only their proportion among units must be right.
    pub(crate) bytes: u64,
    /// Bytes that are decoded to get at them: more than `bytes` where rows were left out by the index.
    pub(crate) cost: u64,
}

/// What the index says of a unit, which is decoded at once: a row group, or small neighbours of one file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unit {
    pub(crate) size: UnitSize,
    /// Whether rows are decoded faster if the others are not, where many of them are wanted.
    pub(crate) decodes_due: bool,
    /// Whether all its rows are read for some columns before others: a near file is asked for each of them then.
    pub(crate) reads_columns_apart: bool,
}

/// What the footers say of the long values of a unit that [decodes due rows](Unit::decodes_due) alone.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LongValues {
    /// Whether most of what is read are long values, of which only those that are due are read once it was decoded.
    pub(crate) are_read_alone: bool,
    /// Bytes of memory that are kept, once rows were decoded alone, of where long values lie.
    pub(crate) places_bytes: u64,
}

/// In which form rows come from the files and are served.
#[derive(Debug, Clone)]
pub(crate) struct RowForm {
    /// The types of decoded rows.
    pub(crate) decoded: SchemaRef,
    /// Whether they come from the decoder in others, which are brought to these.
    pub(crate) is_adapted: bool,
    /// The types that are served.
    pub(crate) served: SchemaRef,
    /// Whether strings and binary are served as views, whose values batches share with what is held.
    pub(crate) shares_values: bool,
    /// Whether chunks are memory that was made for them, rather than a part of something larger.
    pub(crate) chunks_are_own: bool,
    /// Whether reading takes so long that row groups should be read ahead.
    pub(crate) is_remote: bool,
}

/// Which rows are read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reads {
    All,
    /// So many, in so many runs of neighbours.
    Some(u64, u64),
    /// So many, each [alone](Unit::decodes_due), of a unit that was decoded before.
    Due(u64),
}

/// What reading costs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct FetchCost {
    pub(crate) bytes: u64,
    /// Of a store, on average; 0 for local files.
    pub(crate) requests: f64,
    /// Requests for the positions of its pages, once.
    pub(crate) positions: u64,
    /// Row groups that are decoded.
    pub(crate) row_groups: u64,
}

impl FetchCost {
    /// What both cost.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            requests: self.requests + other.requests,
            positions: self.positions + other.positions,
            row_groups: self.row_groups + other.row_groups,
        }
    }
}

/// Row groups that can be decoded one by one, whose rows follow each other. [`Units`](super::units::Units) makes of
/// them what the loader works with.
///
/// The loader sees a dataset only through this, so that it can be tested on sources that are slow, count, or fail.
pub(crate) trait Groups: std::fmt::Debug + Send + Sync {
    /// How many row groups there are.
    fn count(&self) -> u32;

    /// A row group as a unit of its own.
    fn unit(&self, row_group: u32) -> Unit;

    /// Whether a row group may be read together with the one before.
    fn follows(&self, row_group: u32) -> bool {
        row_group > 0
    }

    /// What is known of the long values of a row group.
    fn long_values(&self, row_group: u32) -> LongValues {
        let _ = row_group;
        LongValues::default()
    }

    /// Says where an error of a row group happened.
    fn located(&self, error: Error, row_group: u32) -> Error {
        let _ = row_group;
        error
    }

    /// In which form rows come, always the same.
    fn form(&self) -> RowForm;

    /// Brings rows to the types that are served, in memory of their own.
    fn output(&self, batch: &RecordBatch, served: &SchemaRef) -> Result<RecordBatch> {
        compact(finish(batch, served)?).map_err(uncopied)
    }

    /// About what is read to decode rows of a row group, or all rows of several that are read together.
    fn fetch(&self, row_groups: &[u32], reads: Reads) -> FetchCost;

    /// Requests for all files together, before anything is read of their row groups.
    fn opening_requests(&self) -> u64 {
        0
    }

    /// Reads and decodes rows of a row group on the calling thread, and hands them to the sink. What was read ahead is
    /// used. Of rows that are [due](Slots::Due), chunks may have any number up to what the sink asks for.
    fn read(&self, row_group: u32, slots: Slots<'_>, prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<()>;

    /// As [`read`](Self::read), of several row groups one after the other.
    fn read_run(&self, run: Vec<RunPart>, sink: &mut dyn RowSink) -> Result<()> {
        let mut joined = JoinedChunks::new(sink);
        for RunPart { row_group, slots } in run {
            self.read(row_group, slots.as_deref().map_or(Slots::All, Slots::Some), None, &mut joined)?;
        }
        joined.finish()
    }

    /// Starts reading what [`read`](Self::read) will read; `None` where that gains nothing.
    fn prefetch(&self, row_group: u32, slots: Slots<'_>) -> Option<Prefetch> {
        let _ = (row_group, slots);
        None
    }

    /// How fast what is read remotely comes; `None` before anything did.
    fn link(&self) -> Option<Link> {
        None
    }
}

/// What a [`Loader`](super::Loader) can serve: a [`Dataset`], or several as a [`MixedDataset`].
pub trait Loadable {
    /// The datasets, and the columns that they serve.
    #[doc(hidden)]
    fn loaded(&self) -> (&[Dataset], &SchemaRef);
}

impl Loadable for Dataset {
    fn loaded(&self) -> (&[Dataset], &SchemaRef) {
        (std::slice::from_ref(self), self.schema())
    }
}

impl Loadable for MixedDataset {
    fn loaded(&self) -> (&[Dataset], &SchemaRef) {
        (self.datasets(), self.schema())
    }
}

/// Which rows these datasets have: the fingerprints of the indexes, and what they call the columns of the files.
pub(super) fn fingerprint(datasets: &[Dataset]) -> u64 {
    /// By another name the values of a column are others, so renames are part of it here.
    fn served(index: &Index) -> u64 {
        match index.renames().len() {
            0 => index.fingerprint(),
            _ => {
                xxh3_64_with_seed(format!("{:?}", index.renames().collect::<Vec<_>>()).as_bytes(), index.fingerprint())
            }
        }
    }
    match datasets {
        [only] => served(only.index()),
        all => xxh3_64(&all.iter().flat_map(|dataset| served(dataset.index()).to_le_bytes()).collect::<Vec<_>>()),
    }
}
