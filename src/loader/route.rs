//! By which way the rows of a unit get from pages to where they wait until they are due.

use super::groups::UnitSize;

/// What decides the route of an extraction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouteFacts {
    pub(crate) size: UnitSize,
    pub(crate) columns: usize,
    /// How the unit is in memory already, if it is.
    pub(crate) held: Option<HeldAs>,
    /// Whether it stays in memory afterwards.
    pub(crate) stays: bool,
    /// How many rows are due.
    pub(crate) due: usize,
    /// How many of these do not lie behind the one that is due before.
    pub(crate) breaks: usize,
    /// How many rows are read.
    pub(crate) read: usize,
    pub(crate) values: ChunkValues,
    pub(crate) alone: DecodesAlone,
    /// Whether rows of these types can be packed.
    pub(crate) packs: bool,
}

/// How a unit lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldAs {
    Packed,
    Columns,
}

/// What batches may do with the values of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkValues {
    /// Rows may stay in their chunk, which has memory of its own.
    Kept,
    /// Nothing, because they are a part of something larger.
    Mapped,
    /// Show them as views, which would keep all pages of the unit in memory for as long as a batch lives.
    Shown,
}

/// Whether rows are decoded faster without the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodesAlone {
    No,
    /// Where many of them are due.
    Decoded,
    /// Always, because only their values are read.
    Read,
}

/// A way from pages to rows that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// It stays: packed chunk by chunk as it is decoded.
    StayPacked,
    /// It stays: decoded at once, to buffers of just its size.
    StayInColumns,
    /// It is there and stays: due rows are pointed at.
    Point,
    /// It is there and stays: due rows are copied, and their views show its values.
    Show,
    /// It is there and stays: due rows are copied with their values.
    Copy,
    /// It was there, packed, and goes: due rows are packed anew.
    Repack,
    /// It goes: only due rows are decoded.
    DecodeDue,
    /// It goes: due rows stay in the chunks that they were decoded to.
    KeepChunks,
    /// It goes: each due row is copied from its chunk straight to its place, packed.
    Place,
    /// It goes: due rows are picked out of each chunk.
    Pick,
}

/// The route of an extraction.
pub(crate) fn route(facts: &RouteFacts) -> Route {
    let is_run = facts.breaks == 0 && facts.due > 0 && facts.due >= facts.read.div_ceil(2);
    match (facts.stays, facts.held) {
        (true, Some(HeldAs::Packed)) => Route::Point,
        (true, Some(HeldAs::Columns)) if facts.has_long_values() || facts.breaks == 0 => Route::Point,
        (true, Some(HeldAs::Columns)) if facts.values == ChunkValues::Shown => Route::Show,
        // Narrow values are found faster in a unit at a time than in all of them for each batch: their pages and their
        // tables are in the core's caches then, which pays for the copy.
        (true, Some(HeldAs::Columns)) => Route::Copy,
        (true, None) if facts.is_packed() => Route::StayPacked,
        (true, None) => Route::StayInColumns,
        (false, Some(HeldAs::Packed)) => Route::Repack,
        (false, None) if facts.is_decoded_alone() => Route::DecodeDue,
        (false, _) if is_run && facts.values == ChunkValues::Kept => Route::KeepChunks,
        (false, _) if facts.is_packed() => Route::Place,
        (false, _) => Route::Pick,
    }
}

impl RouteFacts {
    /// The same of some of the columns.
    pub(crate) fn of_columns(&self, columns: Option<usize>) -> Self {
        let Some(columns) = columns else { return *self };
        let bytes = u128::from(self.size.bytes) * columns as u128 / self.columns.max(1) as u128;
        Self { size: UnitSize { bytes: bytes as u64, ..self.size }, columns, ..*self }
    }

    fn has_long_values(&self) -> bool {
        has_long_values(self.size, self.columns)
    }

    /// Whether rows are packed: if values are narrow and rows are picked from anywhere. Rows that follow each other are
    /// served as they lie in columns.
    fn is_packed(&self) -> bool {
        /// Rows that follow each other, in the mean.
        const RUN: usize = 8;
        let is_scattered = self.due < 2 || self.breaks * RUN >= self.due;
        self.packs && is_scattered && !self.has_long_values()
    }

    /// Pages are left out where few rows are due, unless even less is read than pages.
    fn is_decoded_alone(&self) -> bool {
        let few = is_sparse(self.due, self.size.rows);
        let most = (self.due as u64).saturating_mul(8) > self.size.rows.saturating_mul(7);
        match self.alone {
            DecodesAlone::No => false,
            DecodesAlone::Decoded => !few && !most,
            DecodesAlone::Read => few || !most,
        }
    }
}

/// Whether the values of so many columns are so long that finding each on its own costs little beside copying it.
pub(crate) fn has_long_values(size: UnitSize, columns: usize) -> bool {
    /// Four cache lines, the first of which is waited for.
    const LONG: u64 = 256;
    size.bytes >= size.rows.saturating_mul(columns as u64).max(1).saturating_mul(LONG)
}

/// Whether to read only the due rows of a unit, rather than all and then pick.
///
/// Skipping between due rows costs the decoder about as much as decoding sixteen rows, so it pays only when fewer than
/// every sixteenth row is due; and then it may leave out whole pages.
pub(crate) fn is_sparse(due: usize, rows: u64) -> bool {
    (due as u64).saturating_mul(16) <= rows
}

/// How many of these rows do not lie behind the one before.
pub(crate) fn breaks(slots: &[u32]) -> usize {
    let next = slots.get(1..).unwrap_or_default();
    slots.iter().zip(next).filter(|(slot, next)| slot.wrapping_add(1) != **next).count()
}

/// How many columns of a unit are decoded before the others, where they can be packed one by one and are many.
///
/// While a row group is decoded, its compressed bytes are in memory, and a page and some hundred bytes more of each
/// column: of hundreds of columns that is more than what they become. A row that is packed in a few turns takes a few
/// more misses of the caches, and the pages that they come from fewer.
pub(crate) fn columns_at_once(route: Route, facts: &RouteFacts) -> Option<usize> {
    /// Decoded bytes of the columns.
    const BYTES: u64 = 2 << 20;
    const LEAST: usize = 32;
    const MOST: usize = 256;
    let by_bytes = u128::from(BYTES) * facts.columns as u128 / u128::from(facts.size.bytes.max(1));
    let columns = usize::try_from(by_bytes).unwrap_or(usize::MAX).clamp(LEAST, MOST);
    (matches!(route, Route::Place | Route::StayPacked) && columns < facts.columns).then(|| {
        // All turns have about as many.
        facts.columns.div_ceil(facts.columns.div_ceil(columns))
    })
}

/// Decoded bytes of a chunk, about: two or three of them fit a core's own cache.
const CHUNK_BYTES: u64 = 1 << 20;
/// A chunk of fewer rows spends its time on calls.
const MIN_CHUNK: u64 = 64;

/// How many rows of a unit make a chunk on this route, where a batch has so many.
pub(crate) fn chunk_rows(route: Route, facts: &RouteFacts, batch_rows: u64) -> usize {
    /// Parts of a chunk that rows are packed from to stay: it is in memory besides them, so the smaller, the less is.
    const PARTS: usize = 4;
    /// Chunks of a unit that nothing is picked from, so that they need not be in the core's cache: fewer are faster,
    /// and each is let go on its own.
    const LYING: usize = 4;
    let UnitSize { rows, bytes, .. } = facts.size;
    let chunk = (u128::from(rows) * u128::from(CHUNK_BYTES) / u128::from(bytes.max(1))) as u64;
    let chunk = chunk.clamp(MIN_CHUNK, 1 << 20) as usize;
    match route {
        Route::StayInColumns => usize::MAX,
        Route::StayPacked => chunk.div_ceil(PARTS),
        Route::KeepChunks => {
            // Of no more rows than a batch may keep in memory.
            let shown = usize::try_from(batch_rows).unwrap_or(usize::MAX).saturating_mul(rowdex_rows::MOST_SHOWN);
            (facts.read / LYING).min(shown).max(chunk)
        }
        _ => chunk,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand scattered rows of a unit of a hundred thousand narrow ones, which goes.
    fn goes() -> RouteFacts {
        let size = UnitSize { rows: 100_000, bytes: 2_000_000, cost: 2_000_000 };
        let (values, alone) = (ChunkValues::Kept, DecodesAlone::No);
        let (due, breaks, read) = (20_000, 20_000, 100_000);
        let (held, stays) = (None, false);
        RouteFacts { size, columns: 4, held, stays, due, breaks, read, values, alone, packs: true }
    }

    fn wide(facts: RouteFacts) -> RouteFacts {
        RouteFacts { size: UnitSize { bytes: 100_000 * 4 * 256, ..facts.size }, ..facts }
    }

    #[test]
    fn each_route_is_taken_up_to_its_border() {
        let goes = goes();
        let stays = RouteFacts { stays: true, ..goes };
        let in_columns = RouteFacts { held: Some(HeldAs::Columns), ..stays };
        let packed = RouteFacts { held: Some(HeldAs::Packed), ..stays };
        let unpacked = RouteFacts { packs: false, ..goes };
        let run = RouteFacts { due: 50_000, breaks: 0, ..goes };
        let alone = RouteFacts { alone: DecodesAlone::Decoded, ..wide(unpacked) };
        let read = RouteFacts { alone: DecodesAlone::Read, ..alone };
        let table = [
            // It stays.
            ("narrow", stays, Route::StayPacked),
            ("values of 256 bytes", wide(stays), Route::StayInColumns),
            ("values of 255 bytes", shorter(wide(stays)), Route::StayPacked),
            ("types that are not packed", RouteFacts { packs: false, ..stays }, Route::StayInColumns),
            ("rows in runs of more than eight", RouteFacts { breaks: 2499, ..stays }, Route::StayInColumns),
            ("rows in runs of eight", RouteFacts { breaks: 2500, ..stays }, Route::StayPacked),
            ("one row", RouteFacts { due: 1, breaks: 0, ..stays }, Route::StayPacked),
            // It is there and stays.
            ("packed", packed, Route::Point),
            ("long values", wide(in_columns), Route::Point),
            ("shorter values", shorter(wide(in_columns)), Route::Copy),
            ("rows in order", RouteFacts { breaks: 0, ..in_columns }, Route::Point),
            ("a row out of order", RouteFacts { breaks: 1, ..in_columns }, Route::Copy),
            ("views", RouteFacts { values: ChunkValues::Shown, ..in_columns }, Route::Show),
            ("parts of an entry", RouteFacts { values: ChunkValues::Mapped, ..in_columns }, Route::Copy),
            // It goes.
            ("narrow", goes, Route::Place),
            ("values of 256 bytes", wide(goes), Route::Pick),
            ("types that are not packed", unpacked, Route::Pick),
            ("half of it in order", run, Route::KeepChunks),
            ("less than half in order", RouteFacts { due: 49_999, ..run }, Route::Pick),
            ("half of an odd number", RouteFacts { read: 100_001, ..run }, Route::Pick),
            ("half, with a row out of order", RouteFacts { breaks: 1, ..run }, Route::Pick),
            ("half of it in order, as views", RouteFacts { values: ChunkValues::Shown, ..run }, Route::Pick),
            ("half of it in order, of an entry", RouteFacts { values: ChunkValues::Mapped, ..run }, Route::Pick),
            ("rows in runs of eight", RouteFacts { breaks: 2500, ..goes }, Route::Place),
            ("longer runs", RouteFacts { breaks: 2499, ..goes }, Route::Pick),
            ("no row", RouteFacts { due: 0, breaks: 0, ..goes }, Route::Place),
            ("it was packed", RouteFacts { stays: false, ..packed }, Route::Repack),
            ("it was in columns", RouteFacts { stays: false, ..in_columns }, Route::Place),
            ("it was in columns, in order", RouteFacts { held: Some(HeldAs::Columns), ..run }, Route::KeepChunks),
            // It goes, and due rows are decoded faster alone.
            ("more than a sixteenth", RouteFacts { due: 6251, ..alone }, Route::DecodeDue),
            ("a sixteenth", RouteFacts { due: 6250, ..alone }, Route::Pick),
            ("seven eighths", RouteFacts { due: 87_500, ..alone }, Route::DecodeDue),
            ("more", RouteFacts { due: 87_501, ..alone }, Route::Pick),
            ("a sixteenth, read alone", RouteFacts { due: 6250, ..read }, Route::DecodeDue),
            ("more than seven eighths, read alone", RouteFacts { due: 87_501, ..read }, Route::Pick),
            ("it was there", RouteFacts { held: Some(HeldAs::Columns), ..alone }, Route::Pick),
            ("it stays", RouteFacts { stays: true, ..alone }, Route::StayInColumns),
        ];
        for (what, facts, expected) in table {
            assert_eq!(route(&facts), expected, "{what}: {facts:?}");
        }
    }

    #[test]
    fn of_hundreds_of_columns_some_are_decoded_at_once_and_in_larger_chunks() {
        let wide = |rows: u64, columns: usize, width: u64| {
            let bytes = rows * columns as u64 * width;
            RouteFacts { size: UnitSize { rows, bytes, cost: 0 }, columns, ..goes() }
        };
        let at_once = |rows, columns, width| columns_at_once(Route::Place, &wide(rows, columns, width));
        assert_eq!(at_once(400_000, 10, 6), None);
        assert_eq!(at_once(400_000, 32, 6), None);
        assert_eq!(at_once(400_000, 64, 6), Some(32));
        assert_eq!(at_once(20_000, 200, 2), Some(50));
        assert_eq!(at_once(200, 5000, 4), Some(250));
        assert_eq!(at_once(100, 200, 4), None);
        assert_eq!(columns_at_once(Route::StayPacked, &wide(200, 5000, 4)), Some(250));
        for route in [Route::Pick, Route::KeepChunks, Route::StayInColumns, Route::DecodeDue] {
            assert_eq!(columns_at_once(route, &wide(200, 5000, 4)), None, "{route:?}");
        }
        let facts = wide(20_000, 200, 2);
        assert_eq!(chunk_rows(Route::Place, &facts.of_columns(Some(50)), 1), 10_485);
        assert_eq!(chunk_rows(Route::Place, &facts.of_columns(None), 1), 2621);
    }

    fn shorter(facts: RouteFacts) -> RouteFacts {
        RouteFacts { size: UnitSize { bytes: facts.size.bytes - 1, ..facts.size }, ..facts }
    }

    #[test]
    fn a_chunk_has_about_its_bytes_and_never_too_few_rows() {
        let of =
            |rows, bytes| chunk_rows(Route::Pick, &RouteFacts { size: UnitSize { rows, bytes, cost: 0 }, ..goes() }, 1);
        assert_eq!(of(1000, 100 << 20), 64);
        assert_eq!(of(1 << 20, 1 << 26), 1 << 14);
        assert_eq!(of(1 << 30, 1), 1 << 20);
        assert_eq!(of(0, 0), 64);
        assert_eq!(of(u64::MAX, u64::MAX), 1 << 20);
    }

    #[test]
    fn rows_that_lie_are_in_large_chunks_which_a_batch_may_keep() {
        let lying = |read, batch_rows| chunk_rows(Route::KeepChunks, &RouteFacts { read, ..goes() }, batch_rows);
        assert_eq!(lying(100_000, 1000), 52_428);
        assert_eq!(lying(1 << 20, 1 << 20), 1 << 18);
        assert_eq!(lying(1 << 20, 1000), 64_000);
        assert_eq!(chunk_rows(Route::StayPacked, &goes(), 1), 13_107);
    }
}
