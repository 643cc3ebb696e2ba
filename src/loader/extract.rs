//! From a row group to the rows that are due, the way that costs least.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;

use super::faults::row_group_of;
use super::groups::Groups;
use super::held::{DueRows, Held, MOST_SHOWN, Whole, is_one_run};
use super::pick::{Picker, as_run, chunk_rows};
use super::plan::{GroupSize, PIECES, is_part, is_sparse};
use crate::dataset::Prefetch;
use rowdex_base::crew;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_parquet::{AHEAD_FROM, RowSink};
use rowdex_rows::{self as rows, ChunkBytes, Layout, Packer, Place, bytes_of, bytes_of_part};

/// Rows got out of a group, and what that took.
#[derive(Debug)]
pub(crate) struct Extracted {
    pub(crate) rows: DueRows,
    /// The group, if it is to stay decoded, and its bytes.
    pub(crate) stays: Option<Whole>,
    /// Bytes of the group when decoded, if all of it was.
    pub(crate) decoded_bytes: Option<u64>,
    /// About how many bytes besides the rows were in memory at the worst moment.
    pub(crate) staged_bytes: u64,
    /// Time that was spent picking rows, rather than reading and decoding.
    pub(crate) picking: Duration,
    /// Row groups that were decoded.
    pub(crate) decodes: u64,
    /// Bytes that are kept from now on of where long values of the group lie.
    pub(crate) places_bytes: u64,
}

impl Extracted {
    /// Rows that were got in some other way, which says nothing of the group.
    pub(crate) fn of_rows(rows: DueRows) -> Self {
        Self {
            rows,
            stays: None,
            decoded_bytes: None,
            staged_bytes: 0,
            picking: Duration::ZERO,
            decodes: 0,
            places_bytes: 0,
        }
    }
}

/// How the rows of a loader are served.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Serving<'a> {
    /// Rows of a batch.
    pub(crate) batch_rows: u64,
    /// How rows are packed, if their columns can be.
    pub(crate) layout: Option<&'a Arc<Layout>>,
}

/// Gets the rows at these slots, in the order given, of a group that stayed decoded. If it goes on to stay, views may
/// share its values.
pub(crate) fn from_whole(
    (whole, bytes): Whole,
    slots: Vec<u32>,
    stays: bool,
    groups: &dyn Groups,
    serving: Serving<'_>,
) -> Result<Extracted> {
    let began = Instant::now();
    let rows = match (&whole, stays) {
        (Held::Packed(_), true) => DueRows::point(whole.clone(), slots)?,
        (Held::Packed(packed), false) => DueRows::repack(packed, &slots, PIECES, &groups.schema())?,
        (Held::Columns(batch), true)
            if has_long_values(bytes, batch.num_rows() as u64, batch.num_columns()) || is_one_run(&slots) =>
        {
            DueRows::point(whole.clone(), slots)?
        }
        (Held::Columns(batch), true) if groups.shares_values() => DueRows::refer(batch, slots)?,
        // Narrow values are found faster in a row group at a time than in all of them for each batch: their pages and
        // their tables are in the core's caches then, which pays for the copy.
        (Held::Columns(batch), true) => DueRows::extract(batch, slots, 1)?,
        (Held::Columns(batch), false) => {
            let run = as_run(&slots, batch.num_rows()).filter(|_| may_lie(groups));
            let run = run.map(|run| vec![batch.slice(run.start, run.len())]);
            match run.filter(|run| rows::show_what_they_keep(run)) {
                Some(run) => DueRows::run(run),
                None => {
                    let size = GroupSize { rows: batch.num_rows() as u64, bytes, cost: bytes };
                    match packing(serving.layout, size, &slots, groups).filter(|layout| layout.is_worth(batch)) {
                        Some(layout) => DueRows::place(layout, batch, &slots, PIECES)?,
                        None => DueRows::extract(batch, slots, PIECES)?,
                    }
                }
            }
        }
    };
    let stays = stays.then_some((whole, bytes));
    Ok(Extracted { stays, picking: began.elapsed(), ..Extracted::of_rows(rows) })
}

/// What to read for the rows at these slots, by rising slots; `None` for all of the group. `lost` cannot be read.
///
/// Row groups that none of them is in are left out, unless all of the group `stays`. Of the others all rows are read,
/// if more than every sixteenth is wanted. `slots` then say where the rows are among those that are read.
pub(crate) fn wanted(
    groups: &dyn Groups,
    group: u32,
    slots: &mut [u32],
    stays: bool,
    lost: &[Range<u32>],
) -> Option<Vec<u32>> {
    if !stays && is_sparse(slots.len(), groups.size(group).rows) {
        return Some(distinct(slots));
    }
    let row_groups = groups.row_groups(group);
    if row_groups.len() < 2 && lost.is_empty() {
        return None;
    }
    // The slots that are read, and how many slots before each of them are not.
    let (mut read, mut skipped, mut skips) = (Vec::new(), 0, Vec::with_capacity(row_groups.len()));
    let first = row_groups.start;
    let mut due = vec![stays; row_groups.len()];
    slots.iter().filter(|_| !stays).for_each(|slot| due[(row_group_of(group, *slot, groups) - first) as usize] = true);
    for row_group in row_groups {
        let own = groups.slots_of(row_group);
        let reads = due[(row_group - first) as usize] && !lost.contains(&own);
        skips.push(skipped);
        if reads || own.is_empty() {
            read.extend(own);
        } else {
            skipped += own.len() as u32;
        }
    }
    if skipped == 0 {
        return None;
    }
    slots.iter_mut().for_each(|slot| *slot -= skips[(row_group_of(group, *slot, groups) - first) as usize]);
    Some(read)
}

/// Reads a group and gets the rows at these slots out of it, in the order given. None of them is `lost`.
///
/// What is read is decoded in chunks, unless it stays or is no larger than one.
pub(crate) fn from_file(
    groups: &dyn Groups,
    group: u32,
    mut slots: Vec<u32>,
    stays: bool,
    lost: &[Range<u32>],
    prefetch: Option<Prefetch>,
    serving: Serving<'_>,
) -> Result<Extracted> {
    let size = groups.size(group);
    if stays && !lost.is_empty() {
        return beside_lost(groups, group, slots, lost, prefetch, serving);
    }
    if !stays && lost.is_empty() && decodes_due(groups, group, slots.len()) {
        return due_from_file(groups, group, slots, prefetch);
    }
    let wanted = wanted(groups, group, &mut slots, stays, lost);
    let rows = wanted.as_ref().map_or(size.rows as usize, Vec::len);
    let run = as_run(&slots, rows).filter(|_| may_lie(groups));
    let chunk = match run.is_some() {
        true => run_chunk_rows(rows, chunk_rows(size.rows, size.bytes), serving.batch_rows),
        false => chunk_rows(size.rows, size.bytes),
    };
    let decodes = groups.decodes(group, wanted.as_deref());
    if stays || rows <= chunk {
        let layout = packing(serving.layout, size, &slots, groups).filter(|_| stays);
        let (whole, bytes, staged_bytes) = match layout {
            Some(layout) => read_packed(groups, group, wanted.as_deref(), prefetch, Arc::clone(layout), rows)?,
            None => {
                let batch = match stays {
                    true => read_to_stay(groups, group, wanted.as_deref(), prefetch)?,
                    false => groups.read_whole(group, wanted.as_deref(), prefetch)?,
                };
                let bytes = bytes_of(&batch);
                (Held::Columns(Arc::new(batch)), bytes, bytes)
            }
        };
        let extracted = from_whole((whole, bytes), slots, stays, groups, serving)?;
        let decoded_bytes = wanted.is_none().then_some(bytes);
        return Ok(Extracted { decoded_bytes, staged_bytes, decodes, ..extracted });
    }
    let began = Instant::now();
    let layout = packing(serving.layout, size, &slots, groups).cloned();
    let picker = Picker::new(&slots, rows, chunk, may_lie(groups), layout);
    let due = slots.len();
    drop(slots);
    let mut picking = Picking { picker, chunk_rows: chunk, took: began.elapsed() };
    groups.read(group, wanted.as_deref(), prefetch, &mut picking)?;
    let began = Instant::now();
    let picked = picking.picker.finish(due)?;
    let picking = picking.took + began.elapsed();
    let decoded_bytes = wanted.is_none().then_some(picked.decoded_bytes);
    let chunks = rows.div_ceil(chunk);
    // The chunk behind the one that is picked from.
    let ahead = crew::current().filter(|_| chunks >= AHEAD_FROM).map_or(0, |_| picked.decoded_bytes / chunks as u64);
    let staged_bytes = picked.staged_bytes + ahead;
    Ok(Extracted { decoded_bytes, staged_bytes, picking, decodes, ..Extracted::of_rows(picked.rows) })
}

/// Rows of a chunk that nothing is picked from, so that it need not be in the core's cache: fewer chunks are faster,
/// and each is let go on its own. Of no more rows than a batch may keep in memory.
fn run_chunk_rows(rows: usize, least: usize, batch_rows: u64) -> usize {
    const CHUNKS: usize = 4;
    let shown = usize::try_from(batch_rows).unwrap_or(usize::MAX).saturating_mul(MOST_SHOWN);
    (rows / CHUNKS).min(shown).max(least)
}

/// Whether of a group that does not stay only the rows are decoded that are wanted, which are so many.
pub(crate) fn decodes_due(groups: &dyn Groups, group: u32, wanted: usize) -> bool {
    let rows = groups.size(group).rows;
    // Pages are left out where few rows are wanted, unless even less is read than pages.
    let fits = is_part(wanted, rows) || is_sparse(wanted, rows) && groups.reads_alone(group);
    fits && groups.decodes_due(group)
}

/// Reads a group and decodes the rows at these slots alone.
fn due_from_file(groups: &dyn Groups, group: u32, slots: Vec<u32>, prefetch: Option<Prefetch>) -> Result<Extracted> {
    let size = groups.size(group);
    let mut ranks = slots;
    let wanted = distinct(&mut ranks);
    let mut chunks = Collected { chunk_rows: chunk_rows(size.rows, size.bytes), ..Collected::default() };
    groups.read_due(group, &wanted, prefetch, &mut chunks)?;
    let began = Instant::now();
    let Collected { chunks, own, places_bytes, .. } = chunks;
    let mut places: Vec<Place> = Vec::with_capacity(wanted.len());
    for (number, chunk) in (0..).zip(&chunks) {
        places.extend((0..chunk.num_rows() as u32).map(|row| (number, row)));
    }
    if places.len() != wanted.len() {
        return Err(Error::new(ErrorKind::Internal, "fewer rows than were due of a row group"));
    }
    let mut footprint = ChunkBytes::default();
    let staged_bytes: u64 = chunks.iter().map(|chunk| footprint.add(chunk)).sum();
    let rows = if may_lie(groups) && is_one_run(&ranks) && rows::show_what_they_keep(&chunks) {
        DueRows::run(chunks)
    } else {
        let places: Vec<Place> = ranks.iter().filter_map(|rank| places.get(*rank as usize).copied()).collect();
        DueRows::merge(&chunks, &places, PIECES, own)?
    };
    Ok(Extracted { picking: began.elapsed(), staged_bytes, decodes: 1, places_bytes, ..Extracted::of_rows(rows) })
}

/// A group that stays without the rows that are lost. Each of these has some other row in its place, never due.
fn beside_lost(
    groups: &dyn Groups,
    group: u32,
    slots: Vec<u32>,
    lost: &[Range<u32>],
    prefetch: Option<Prefetch>,
    serving: Serving<'_>,
) -> Result<Extracted> {
    let mut places: Vec<u32> = slots.clone();
    let sound = wanted(groups, group, &mut places, true, lost).unwrap_or_default();
    let batch = groups.read_whole(group, Some(&sound), prefetch)?;
    let mut at = 0;
    let filled = (0..groups.size(group).rows as u32).map(|slot| match sound.get(at as usize) == Some(&slot) {
        true => {
            at += 1;
            at - 1
        }
        false => 0,
    });
    let whole = rows::take(&batch, &filled.collect::<Vec<_>>())?;
    let bytes = bytes_of(&whole);
    let extracted = from_whole((Held::Columns(Arc::new(whole)), bytes), slots, true, groups, serving)?;
    let decodes = groups.decodes(group, Some(&sound));
    Ok(Extracted { staged_bytes: bytes, decodes, ..extracted })
}

/// Reads rows of a group into memory of just their size. They are decoded all at once, straight to where they stay, and
/// columns are copied in which a decoder left much room.
fn read_to_stay(
    groups: &dyn Groups,
    group: u32,
    slots: Option<&[u32]>,
    prefetch: Option<Prefetch>,
) -> Result<RecordBatch> {
    let schema = groups.schema();
    let mut chunks = Collected { chunk_rows: usize::MAX, ..Collected::default() };
    groups.read(group, slots, prefetch, &mut chunks)?;
    match <[RecordBatch; 1]>::try_from(chunks.chunks) {
        Ok([only]) if groups.chunks_are_own() && bytes_of(&only) <= bytes_of_part(&only) / 16 * 17 => Ok(only),
        Ok(only) => rows::join_exactly(&schema, only.into()),
        Err(chunks) => rows::join_exactly(&schema, chunks),
    }
}

/// The layout if the rows of such a group are packed: if its values are narrow and these rows are picked from anywhere
/// in it. Rows that follow each other are served as they lie in columns.
fn packing<'a>(
    layout: Option<&'a Arc<Layout>>,
    size: GroupSize,
    slots: &[u32],
    groups: &dyn Groups,
) -> Option<&'a Arc<Layout>> {
    /// Rows that follow each other, in the mean.
    const RUN: usize = 8;
    if has_long_values(size.bytes, size.rows, groups.schema().fields().len()) {
        return None;
    }
    let breaks = slots.windows(2).filter(|pair| pair[0].checked_add(1) != Some(pair[1])).count();
    if slots.len() > 1 && breaks * RUN < slots.len() {
        return None;
    }
    layout
}

/// Reads rows of a group, which are so many, and packs them chunk by chunk, unless they would take much more memory
/// so. Also tells how many bytes they take, and took at most.
fn read_packed(
    groups: &dyn Groups,
    group: u32,
    slots: Option<&[u32]>,
    prefetch: Option<Prefetch>,
    layout: Arc<Layout>,
    rows: usize,
) -> Result<(Held, u64, u64)> {
    /// A chunk is in memory besides the rows that are packed: the smaller, the less is.
    const PART: usize = 4;
    let size = groups.size(group);
    let chunk_rows = chunk_rows(size.rows, size.bytes).div_ceil(PART);
    let mut packing = Packing { layout, rows, chunk_rows, packer: None, columns: Vec::new(), largest: 0 };
    groups.read(group, slots, prefetch, &mut packing)?;
    let Packing { packer, columns, largest, .. } = packing;
    let (held, bytes) = match packer {
        Some(packer) => {
            let packed = packer.finish();
            let bytes = packed.bytes();
            (Held::Packed(Arc::new(packed)), bytes)
        }
        None => {
            let batch = rows::join_exactly(&groups.schema(), columns)?;
            let bytes = bytes_of(&batch);
            (Held::Columns(Arc::new(batch)), bytes)
        }
    };
    Ok((held, bytes, bytes + largest))
}

/// Packs the rows of each chunk, if the first of them says that it pays.
struct Packing {
    layout: Arc<Layout>,
    rows: usize,
    chunk_rows: usize,
    packer: Option<Packer>,
    /// The chunks, if they are not packed.
    columns: Vec<RecordBatch>,
    largest: u64,
}

impl RowSink for Packing {
    fn chunk_rows(&self) -> usize {
        self.chunk_rows
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        self.largest = self.largest.max(bytes_of_part(&chunk));
        if self.packer.is_none() && self.columns.is_empty() && self.layout.is_worth(&chunk) {
            self.packer = Some(Packer::new(Arc::clone(&self.layout), self.rows));
        }
        match &mut self.packer {
            Some(packer) => packer.push(&chunk),
            None => {
                self.columns.push(chunk);
                Ok(())
            }
        }
    }
}

/// All chunks of a group.
#[derive(Default)]
struct Collected {
    chunk_rows: usize,
    chunks: Vec<RecordBatch>,
    /// Whether each value that views show has memory of its own.
    own: bool,
    places_bytes: u64,
}

impl RowSink for Collected {
    fn chunk_rows(&self) -> usize {
        self.chunk_rows
    }

    fn values_are_own(&mut self) {
        self.own = true;
    }

    fn places_are_kept(&mut self, bytes: u64) {
        self.places_bytes = bytes;
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        self.chunks.push(chunk);
        Ok(())
    }
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
fn has_long_values(bytes: u64, rows: u64, columns: usize) -> bool {
    /// Four cache lines, the first of which is waited for.
    const LONG: u64 = 256;
    let values = rows.saturating_mul(columns as u64);
    bytes >= values.max(1).saturating_mul(LONG)
}

/// The slots in rising order, each once; `slots` then says where each of them is among these.
pub(crate) fn distinct(slots: &mut [u32]) -> Vec<u32> {
    let Some(last) = slots.iter().max() else { return Vec::new() };
    if *last as usize / 64 > slots.len() {
        let mut wanted = slots.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        for slot in slots {
            *slot = wanted.partition_point(|other| other < slot) as u32;
        }
        return wanted;
    }
    // Where they lie close, a table is made faster than an order.
    let mut ranks = vec![u32::MAX; *last as usize + 1];
    slots.iter().for_each(|slot| ranks[*slot as usize] = 0);
    let mut wanted = Vec::with_capacity(slots.len());
    for (slot, rank) in (0..).zip(&mut ranks) {
        if *rank == 0 {
            *rank = wanted.len() as u32;
            wanted.push(slot);
        }
    }
    slots.iter_mut().for_each(|slot| *slot = ranks[*slot as usize]);
    wanted
}
