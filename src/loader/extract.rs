//! From a unit to the rows of it that are due, by the way that costs least.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;

use super::carousel::{DueRows, too_few_rows};
use super::groups::UnitSize;
use super::route::{
    ChunkValues, DecodesAlone, HeldAs, Route, RouteFacts, breaks, chunk_rows, columns_at_once, is_sparse, route,
};
use super::units::{Units, some};
use crate::dataset::{Prefetch, Slots};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_parquet::RowSink;
use rowdex_rows::{self as rows, BatchRow, ChunkBytes, Held, Layout, Picker, Picking, Placer, bytes_of, bytes_of_part};

/// Rows got out of a unit, and what that took.
#[derive(Debug, Default)]
pub(crate) struct Extracted {
    pub(crate) rows: DueRows,
    /// The unit, if it is to stay in memory.
    pub(crate) stays: Option<Held>,
    /// Bytes of the unit when decoded, if all of it was.
    pub(crate) decoded_bytes: Option<u64>,
    /// About how many bytes besides the rows were in memory at the worst moment.
    pub(crate) staged_bytes: u64,
    /// The same of pages, as they were read and decompressed.
    pub(crate) read_bytes: u64,
    /// Time that was spent picking rows, rather than reading and decoding.
    pub(crate) picking: Duration,
    /// Row groups that were decoded.
    pub(crate) decodes: u64,
    /// Bytes that are kept from now on of where long values of the unit lie.
    pub(crate) places_bytes: u64,
}

impl RouteFacts {
    /// What is known when so many rows of a unit are due that is not in memory and does not stay.
    pub(crate) fn of(units: &Units, unit: u32, due: usize) -> Self {
        let form = &units.form;
        let facts = units.unit(unit);
        Self {
            size: facts.size,
            columns: form.decoded.fields().len(),
            held: None,
            stays: false,
            due,
            breaks: due,
            read: facts.size.rows as usize,
            values: match (form.shares_values, form.chunks_are_own) {
                (true, _) => ChunkValues::Shown,
                (_, true) => ChunkValues::Kept,
                _ => ChunkValues::Mapped,
            },
            alone: match facts.decodes_due {
                false => DecodesAlone::No,
                true if units.long_values(unit).are_read_alone => DecodesAlone::Read,
                true => DecodesAlone::Decoded,
            },
            packs: units.layout.is_some(),
        }
    }
}

/// Gets the rows at these slots, in the order given, of a unit that stayed in memory. If it goes on to stay, views may
/// share its values.
pub(crate) fn from_held(units: &Units, unit: u32, whole: Held, slots: Vec<u32>, stays: bool) -> Result<Extracted> {
    let began = Instant::now();
    let elsewhere = units.elsewhere();
    let facts = RouteFacts::of(units, unit, slots.len());
    let size = UnitSize { rows: whole.num_rows() as u64, bytes: whole.bytes(), cost: whole.bytes() };
    // In which order packed rows are due does not matter.
    let (held, breaks) = match whole.in_rows() {
        Some(_) => (Some(HeldAs::Packed), 0),
        None => (Some(HeldAs::Columns), breaks(&slots)),
    };
    let route = route(&RouteFacts { size, held, stays, breaks, ..facts });
    let pieces = match (route, whole.in_rows(), whole.in_columns()) {
        (Route::Point, ..) => vec![whole.at(slots)?],
        (Route::Repack, Some(packed), _) => Held::repacked(packed, &slots, &units.form.decoded)?,
        // Dictionaries count with the unit.
        (Route::Show, _, Some(batch)) => Held::shown(batch, &slots, &elsewhere.and_dictionaries_of(batch))?,
        (Route::Copy, _, Some(batch)) => Held::copied(batch, &slots, 1, &elsewhere.and_dictionaries_of(batch))?,
        (route, _, Some(batch)) => {
            let picker = Picker::new(picking(route, units), &slots, batch.num_rows(), batch.num_rows());
            let mut picker = picker.beside(elsewhere);
            picker.take(batch.clone())?;
            picker.finish(slots.len())?.rows
        }
        (_, _, None) => return Err(Error::new(ErrorKind::Internal, "packed rows on a way for columns")),
    };
    let rows = DueRows::of(pieces);
    Ok(Extracted { rows, stays: stays.then_some(whole), picking: began.elapsed(), ..Extracted::default() })
}

/// Reads a unit and gets the rows at these slots out of it, in the order given, for batches of so many rows.
pub(crate) fn from_file(
    units: &Units,
    batch_rows: u64,
    unit: u32,
    mut places: Vec<u32>,
    stays: bool,
    prefetch: Option<Prefetch>,
) -> Result<Extracted> {
    let wanted = if stays { None } else { wanted(units, unit, &mut places) };
    let facts = RouteFacts::of(units, unit, places.len());
    let facts =
        RouteFacts { stays, breaks: breaks(&places), read: wanted.as_ref().map_or(facts.read, Vec::len), ..facts };
    let route = route(&facts);
    let apart = || units.layout.as_ref().is_some_and(|layout| layout.packs_columns_apart());
    let columns = columns_at_once(route, &facts).filter(|_| apart() && units.unit(unit).reads_columns_apart);
    let chunk = ChunkShape { rows: chunk_rows(route, &facts.of_columns(columns), batch_rows), columns };
    let read = |slots: Slots<'_>, sink: &mut dyn RowSink| units.read(unit, slots, prefetch, sink);
    let slots = some(wanted.as_deref());
    match route {
        Route::DecodeDue => decode_due(units, &facts, chunk, wanted, places, read),
        Route::StayPacked | Route::StayInColumns => {
            let packs = units.layout.clone().filter(|_| route == Route::StayPacked);
            let mut chunks = Collected { packs, ..Collected::in_chunks(chunk, facts.read) };
            let decodes = read(slots, &mut chunks)?;
            let largest = chunks.largest;
            let read_bytes = chunks.pages;
            let whole = chunks.into_held(units)?;
            let decoded_bytes = Some(whole.bytes());
            let staged_bytes = whole.bytes() + largest;
            let extracted = from_held(units, unit, whole, places, true)?;
            Ok(Extracted { decoded_bytes, staged_bytes, read_bytes, decodes, ..extracted })
        }
        route => {
            let due = places.len();
            let picker = Picker::new(picking(route, units), &places, facts.read, chunk.rows).by_columns(chunk.columns);
            drop(places);
            let mut picker = picker.beside(units.elsewhere());
            let decodes = read(slots, &mut picker)?;
            let picked = picker.finish(due)?;
            Ok(Extracted {
                rows: DueRows::of(picked.rows),
                decoded_bytes: wanted.is_none().then_some(picked.decoded_bytes),
                staged_bytes: picked.staged_bytes,
                read_bytes: picked.page_bytes,
                picking: picked.took,
                decodes,
                ..Extracted::default()
            })
        }
    }
}

fn picking(route: Route, units: &Units) -> Picking {
    match (route, &units.layout) {
        (Route::KeepChunks, _) => Picking::Keep,
        (Route::Place, Some(layout)) => Picking::Place(Arc::clone(layout)),
        _ => Picking::Pick,
    }
}

/// What to read for the rows at these slots, by rising slots; `None` for all of the unit.
///
/// Row groups that none of them is in are left out. Of the others all rows are read, if more than every sixteenth is
/// due. `slots` then say where the rows are among those that are read.
pub(crate) fn wanted(units: &Units, unit: u32, slots: &mut [u32]) -> Option<Vec<u32>> {
    if is_sparse(slots.len(), units.size(unit).rows) {
        return Some(distinct(slots));
    }
    let row_groups = units.row_groups(unit);
    if row_groups.len() < 2 {
        return None;
    }
    let number = |slot: u32| (units.row_group_of(unit, slot) - row_groups.start) as usize;
    let mut due = vec![false; row_groups.len()];
    let mut left = row_groups.clone().filter(|row_group| !units.slots_of(*row_group).is_empty()).count();
    for slot in &*slots {
        left -= usize::from(!std::mem::replace(&mut due[number(*slot)], true));
        // Most of the slots are looked up for nothing once all row groups are due.
        if left == 0 {
            return None;
        }
    }
    // The slots that are read, and how many slots before each row group are not.
    let mut read = Vec::new();
    let mut skipped = 0;
    let mut skips = Vec::with_capacity(due.len());
    for (row_group, is_due) in row_groups.clone().zip(due) {
        let own = units.slots_of(row_group);
        skips.push(skipped);
        if is_due {
            read.extend(own);
        } else {
            skipped += own.len() as u32;
        }
    }
    slots.iter_mut().for_each(|slot| *slot -= skips[number(*slot)]);
    Some(read)
}

/// Decodes due rows alone, in the order of `ranks` among those that are `wanted`, or that are slots if nothing is.
fn decode_due(
    units: &Units,
    facts: &RouteFacts,
    chunk: ChunkShape,
    wanted: Option<Vec<u32>>,
    mut ranks: Vec<u32>,
    read: impl FnOnce(Slots<'_>, &mut dyn RowSink) -> Result<u64>,
) -> Result<Extracted> {
    let wanted = wanted.unwrap_or_else(|| distinct(&mut ranks));
    let mut chunks = Collected::in_chunks(chunk, wanted.len());
    read(Slots::Due(&wanted), &mut chunks)?;
    let began = Instant::now();
    let Collected { chunks, own, places_bytes, pages: read_bytes, .. } = chunks;
    let mut places: Vec<BatchRow> = Vec::with_capacity(wanted.len());
    for (number, chunk) in (0..).zip(&chunks) {
        places.extend((0..chunk.num_rows() as u32).map(|row| (number, row)));
    }
    if places.len() != wanted.len() {
        return Err(too_few_rows());
    }
    let elsewhere = units.elsewhere();
    let mut footprint = ChunkBytes::beside(&elsewhere);
    let staged_bytes: u64 = chunks.iter().map(|chunk| footprint.add(chunk)).sum();
    let lie =
        facts.values == ChunkValues::Kept && breaks(&ranks) == 0 && rows::show_what_they_keep(&chunks, &elsewhere);
    let pieces = match lie {
        true => Held::in_turn(chunks, &elsewhere),
        false => {
            let places: Vec<BatchRow> = ranks.iter().filter_map(|rank| places.get(*rank as usize).copied()).collect();
            Held::merged(&chunks, &places, own, &elsewhere)?
        }
    };
    let rows = DueRows::of(pieces);
    let picking = began.elapsed();
    Ok(Extracted { rows, picking, staged_bytes, read_bytes, decodes: 1, places_bytes, ..Extracted::default() })
}

/// What comes of a unit at once.
#[derive(Debug, Clone, Copy, Default)]
struct ChunkShape {
    rows: usize,
    /// How many columns, if rows need not come whole.
    columns: Option<usize>,
}

/// All chunks of a unit.
#[derive(Default)]
struct Collected {
    chunk: ChunkShape,
    /// How many rows there are, and how to pack them, if the first chunk says that it pays.
    rows: usize,
    packs: Option<Arc<Layout>>,
    packer: Option<Placer>,
    /// The chunks, if they are not packed.
    chunks: Vec<RecordBatch>,
    /// Bytes of the largest that was packed.
    largest: u64,
    /// Whether each value that views show has memory of its own.
    own: bool,
    places_bytes: u64,
    /// Bytes of pages that were in memory at once.
    pages: u64,
}

impl Collected {
    fn in_chunks(chunk: ChunkShape, rows: usize) -> Self {
        Self { chunk, rows, ..Self::default() }
    }

    /// The unit in memory of just its size. Columns are copied in which a decoder left much room.
    fn into_held(self, units: &Units) -> Result<Held> {
        let form = &units.form;
        let columns = match (self.packer, self.chunks.as_slice()) {
            (Some(packer), _) => return packer.whole(),
            (None, [only]) if form.chunks_are_own && bytes_of(only) <= bytes_of_part(only) / 16 * 17 => only.clone(),
            _ => rows::join_exactly(&form.decoded, self.chunks)?,
        };
        Ok(Held::columns(columns, &units.elsewhere()))
    }
}

impl RowSink for Collected {
    fn chunk_rows(&self) -> usize {
        self.chunk.rows
    }

    fn columns_at_once(&self) -> Option<usize> {
        self.chunk.columns
    }

    fn begin_columns(&mut self, first: usize) -> Result<()> {
        self.packer.iter_mut().for_each(|packer| packer.begin_columns(first));
        Ok(())
    }

    fn values_are_own(&mut self) {
        self.own = true;
    }

    fn places_are_kept(&mut self, bytes: u64) {
        self.places_bytes = bytes;
    }

    fn pages_took(&mut self, bytes: u64) {
        self.pages = self.pages.max(bytes);
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        if let Some(layout) = self.packs.take()
            && layout.is_worth(&chunk)
        {
            self.packer = Some(Placer::new(layout, self.rows, self.rows));
        }
        match &mut self.packer {
            Some(packer) => {
                self.largest = self.largest.max(bytes_of_part(&chunk));
                packer.push(&chunk)
            }
            None => {
                self.chunks.push(chunk);
                Ok(())
            }
        }
    }
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
