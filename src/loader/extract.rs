//! From a row group to the rows that are due, the way that costs least.

use std::time::{Duration, Instant};

use arrow::array::RecordBatch;

use super::carousel::Lot;
use super::groups::Groups;
use super::pick::{Picker, as_run, chunk_rows};
use super::plan::{PIECES, is_sparse};
use crate::Result;
use crate::dataset::Ahead;
use crate::row_group::RowSink;
use crate::rows::bytes_of;

/// Rows got out of a group, and what that took.
#[derive(Debug)]
pub(crate) struct Extracted {
    pub(crate) lot: Lot,
    /// The group, if it is to stay decoded, and its bytes.
    pub(crate) stays: Option<(RecordBatch, u64)>,
    /// Bytes of the group when decoded, if all of it was.
    pub(crate) decoded_bytes: Option<u64>,
    /// About how many bytes besides the rows were in memory at the worst moment.
    pub(crate) staged_bytes: u64,
    /// Time that was spent picking rows, rather than reading and decoding.
    pub(crate) picking: Duration,
}

impl Extracted {
    /// Rows of other groups: they say nothing of this one.
    pub(crate) fn of_substitutes(lot: Lot) -> Self {
        Self { lot, stays: None, decoded_bytes: None, staged_bytes: 0, picking: Duration::ZERO }
    }
}

/// Gets the rows at these slots, in the order given, of a group that stayed decoded. If it goes on to stay, views may
/// share its values.
pub(crate) fn from_whole(
    whole: RecordBatch,
    bytes: u64,
    slots: Vec<u32>,
    stays: bool,
    groups: &dyn Groups,
) -> Result<Extracted> {
    let began = Instant::now();
    let lot = match (stays, groups.shares_values()) {
        (true, _) if is_wide(&whole, bytes) => Lot::point(&whole, slots)?,
        (true, true) => Lot::refer(&whole, slots)?,
        (true, false) => Lot::extract(&whole, slots, 1)?,
        (false, _) => match as_run(&slots, whole.num_rows()).filter(|_| may_lie(groups)) {
            Some(run) => Lot::run(vec![whole.slice(run.start, run.len())]),
            None => Lot::extract(&whole, slots, PIECES)?,
        },
    };
    let stays = stays.then_some((whole, bytes));
    Ok(Extracted { lot, stays, decoded_bytes: None, staged_bytes: 0, picking: began.elapsed() })
}

/// Reads a group and gets the rows at these slots out of it, in the order given.
///
/// All of the group is decoded if it stays, or if more than every sixteenth row is wanted; in chunks, unless it stays
/// or is no larger than one.
pub(crate) fn from_file(
    groups: &dyn Groups,
    group: u32,
    mut slots: Vec<u32>,
    stays: bool,
    ahead: Option<Ahead>,
) -> Result<Extracted> {
    let size = groups.size(group);
    let wanted = (!stays && is_sparse(slots.len(), size.rows)).then(|| distinct(&mut slots));
    let rows = wanted.as_ref().map_or(size.rows as usize, Vec::len);
    let chunk = chunk_rows(size.rows, size.bytes);
    if stays || rows <= chunk {
        let batch = groups.read_whole(group, wanted.as_deref(), ahead)?;
        let bytes = bytes_of(&batch);
        let extracted = from_whole(batch, bytes, slots, stays, groups)?;
        let decoded_bytes = wanted.is_none().then_some(bytes);
        return Ok(Extracted { decoded_bytes, staged_bytes: bytes, ..extracted });
    }
    let began = Instant::now();
    let picker = Picker::new(&slots, rows, chunk, may_lie(groups));
    let mut picking = Picking { picker, chunk_rows: chunk, took: began.elapsed() };
    groups.read(group, wanted.as_deref(), ahead, &mut picking)?;
    let began = Instant::now();
    let picked = picking.picker.finish(slots.len())?;
    let picking = picking.took + began.elapsed();
    let decoded_bytes = wanted.is_none().then_some(picked.decoded_bytes);
    Ok(Extracted { lot: picked.lot, stays: None, decoded_bytes, staged_bytes: picked.staged_bytes, picking })
}

/// Picks the rows that are due out of each chunk, and measures the time that takes.
struct Picking {
    picker: Picker,
    chunk_rows: usize,
    took: Duration,
}

impl RowSink for Picking {
    fn chunk_rows(&self) -> usize {
        self.chunk_rows
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        let began = Instant::now();
        let taken = self.picker.take(&chunk);
        self.took += began.elapsed();
        taken
    }
}

/// Whether rows may stay in the chunk that they were decoded to. Views that are served would keep all pages of the
/// group in memory for as long as a batch lives.
fn may_lie(groups: &dyn Groups) -> bool {
    groups.chunks_are_own() && !groups.shares_values()
}

/// Whether values are so long that finding each on its own costs little beside copying it.
fn is_wide(batch: &RecordBatch, bytes: u64) -> bool {
    /// Four cache lines, the first of which is waited for.
    const LONG: u64 = 256;
    let values = (batch.num_rows() as u64).saturating_mul(batch.num_columns() as u64);
    bytes >= values.max(1).saturating_mul(LONG)
}

/// The slots in rising order, each once; `slots` then says where each of them is among these.
pub(crate) fn distinct(slots: &mut [u32]) -> Vec<u32> {
    let mut wanted = slots.to_vec();
    wanted.sort_unstable();
    wanted.dedup();
    for slot in slots {
        *slot = wanted.partition_point(|other| other < slot) as u32;
    }
    wanted
}
