//! What a loader serves, and what it tells of its work.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use serde::{Deserialize, Serialize};

use super::packs::Packs;
use super::recovery::Substituted;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_rows::{Sequences, Sequencing};

/// The rows of one step on one rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The epoch that it is from.
    pub epoch: u64,
    /// Which step of the epoch, from 0. After resuming within an epoch they continue: see [`EpochPlan::first_step`].
    ///
    /// [`EpochPlan::first_step`]: rowdex_order::sampler::EpochPlan::first_step
    pub step: u64,
    /// How many steps the epoch has in all, wherever the run was resumed.
    pub steps: u64,
    /// The rank that it is for.
    pub rank: u32,
    /// The rows, with the dataset's schema. Up to 16 batches that follow each other share their memory if they have no
    /// more than a MiB together, so a batch that is kept may keep as much.
    pub records: RecordBatch,
    /// The row ids, one for each row.
    pub row_ids: Vec<u64>,
    /// For each row its [position](rowdex_order::EpochOrder::occurrence), the same for any number of ranks, where the
    /// order may serve a row more than once; none in all other orders, and of packs.
    pub positions: Vec<u64>,
    /// Which of the rows stand in for others that could not be read, in rising order: see
    /// [`Fault::Substitute`](super::Fault::Substitute).
    pub substituted: Vec<Substituted>,
    /// How many of the rows are repeated: another rank or an earlier step serves them, too. These are always the last
    /// ones.
    pub pads: usize,
    /// Which pieces the rows are, and which packs these are in, if the sampler has packs.
    pub packs: Option<Packs>,
    pub(crate) part: BatchSlice,
}

impl Batch {
    /// Whether this is the last step of its epoch.
    pub fn is_last(&self) -> bool {
        self.steps_left() == 0
    }

    /// How many steps of its epoch come after this one.
    pub fn steps_left(&self) -> u64 {
        self.steps.saturating_sub(self.step).saturating_sub(1)
    }

    /// The tokens of the packs as the arrays that a model takes, with their labels and the [other columns of
    /// items](super::LoaderBuilder::with_columns). Pieces are padded to the [multiple](rowdex_order::Pack::multiple)
    /// that packs were planned with. No token is copied where nothing is added. O(tokens).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the sampler has no packs, if no column has the tokens, or if more tokens are added to each
    /// row than are [reserved](rowdex_order::Pack::extra); `TooLarge` from 2^31 tokens on, `Schema` for one that is
    /// null.
    pub fn sequences(&self, how: &Sequencing) -> Result<Sequences> {
        match &self.packs {
            Some(packs) => packs.sequences(&self.records, how),
            None => Err(Error::new(ErrorKind::InvalidArgument, "sequences of a batch of whole rows")
                .with_hint("use a sampler of packs")),
        }
    }

    /// Which rows are repeated, as a column for [`records`](Self::records).
    pub fn pad_mask(&self) -> BooleanArray {
        let own = self.row_ids.len().saturating_sub(self.pads);
        BooleanArray::new(BooleanBuffer::collect_bool(self.row_ids.len(), |row| row >= own), None)
    }
}

/// Where the rows of a batch lie, if others lie beside them. It says nothing of what the rows are, so it does not count
/// in comparisons.
#[derive(Debug, Clone, Default)]
#[cfg_attr(
    not(any(feature = "capi", target_os = "linux")),
    expect(dead_code, reason = "only foreign callers and ranks of a machine take several batches at a time")
)]
pub(crate) struct BatchSlice(Option<(Arc<RecordBatch>, usize)>);

impl PartialEq for BatchSlice {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl BatchSlice {
    /// The rows of `whole` from `first` on.
    pub(super) fn of(whole: &Arc<RecordBatch>, first: usize) -> Self {
        Self(Some((Arc::clone(whole), first)))
    }

    /// Whether `next` begins behind `rows` rows of this one.
    #[cfg(any(feature = "capi", target_os = "linux"))]
    pub(super) fn goes_on(&self, rows: usize, next: &Self) -> bool {
        let (Some((whole, first)), Some((other, begin))) = (&self.0, &next.0) else { return false };
        Arc::ptr_eq(whole, other) && first + rows == *begin
    }

    /// So many rows from here on, without a copy, if there are so many.
    #[cfg(any(feature = "capi", target_os = "linux"))]
    pub(super) fn rows(&self, rows: usize) -> Option<RecordBatch> {
        let (whole, first) = self.0.as_ref()?;
        (rows <= whole.num_rows().checked_sub(*first)?).then(|| whole.slice(*first, rows))
    }
}

/// What a loader did since it was started, or started again. Times are as on a clock, added up over the threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LoaderStats {
    /// Row groups decoded, whole or in part, or taken from a disk cache, which
    /// [`Dataset::disk_cache_counters`](crate::dataset::Dataset::disk_cache_counters) tells apart.
    pub decodes: u64,
    /// Times that rows of a row group were picked out, from one just decoded or from one that stayed. Small row groups
    /// that are held as one [unit](super::Estimate::units) count once.
    pub extractions: u64,
    /// Rows that stand in for others that could not be read: see [`Fault::Substitute`](super::Fault::Substitute).
    pub substituted: u64,
    /// Rows put into batches; some of them may wait to be asked for.
    pub rows: u64,
    /// Bytes held now: rows on the carousel, row groups that stay, those being decoded, batches that wait, and the
    /// places of long values that are read one by one.
    pub held_bytes: u64,
    /// The most that was ever held.
    pub peak_bytes: u64,
    /// Time that the threads together spent walking the order and deciding what to read.
    pub planning: Duration,
    /// Time that they spent reading and decoding.
    pub decoding: Duration,
    /// Time that they spent picking rows out of what was decoded.
    pub extracting: Duration,
    /// Time that they spent putting batches together.
    pub assembling: Duration,
    /// How many steps the rank that is farthest is ahead of the one that is last, if ranks [share](super::Share) a
    /// reader.
    pub drift: u64,
    /// Bytes of batches that were sent to ranks and not taken yet, if ranks share a reader.
    pub window_bytes: u64,
}
