//! Which rows of some arrays are copied, and in which order.

use std::ops::Range;

use arrow_array::builder::BooleanBufferBuilder;
use arrow_buffer::BooleanBuffer;

/// A row: which source, and which row of it.
pub type BatchRow = (u32, u32);

/// Rows of several sources, in the order in which they are copied.
///
/// Values of fixed width, of which there are most, are copied with one independent load for each; so the ways of
/// saying which rows are types of their own, and every loop over them is compiled for each.
pub(super) trait Picks: Copy {
    /// Whether every row is given on its own, and none as a part of a span.
    const SINGLE: bool;

    /// How many rows.
    fn count(&self) -> usize;

    /// The rows, each by its source and its place there.
    fn rows(&self) -> impl Iterator<Item = (usize, usize)>;

    /// The same as rows of one source that follow each other.
    fn spans(&self) -> impl ExactSizeIterator<Item = (usize, Range<usize>)>;

    /// The bit of every row. All bits of a source without any are set.
    fn bits_of(&self, sources: &[Option<&BooleanBuffer>]) -> BooleanBuffer {
        if Self::SINGLE {
            let mut rows = self.rows();
            let mut bit = |(source, row): (usize, usize)| sources[source].is_none_or(|bits| bits.value(row));
            return BooleanBuffer::collect_bool(self.count(), |_| rows.next().is_some_and(&mut bit));
        }
        let mut bits = BooleanBufferBuilder::new(self.count());
        for (source, rows) in self.spans() {
            match sources[source] {
                Some(own) => bits.append_buffer(&own.slice(rows.start, rows.len())),
                None => bits.append_n(rows.len(), true),
            }
        }
        bits.finish()
    }
}

impl Picks for &[BatchRow] {
    const SINGLE: bool = true;

    fn count(&self) -> usize {
        self.len()
    }

    fn rows(&self) -> impl Iterator<Item = (usize, usize)> {
        self.iter().map(|&(source, row)| (source as usize, row as usize))
    }

    fn spans(&self) -> impl ExactSizeIterator<Item = (usize, Range<usize>)> {
        self.iter().map(|&(source, row)| (source as usize, row as usize..row as usize + 1))
    }
}

/// Rows of the only source.
impl Picks for &[u32] {
    const SINGLE: bool = true;

    fn count(&self) -> usize {
        self.len()
    }

    fn rows(&self) -> impl Iterator<Item = (usize, usize)> {
        self.iter().map(|&row| (0, row as usize))
    }

    fn spans(&self) -> impl ExactSizeIterator<Item = (usize, Range<usize>)> {
        self.iter().map(|&row| (0, row as usize..row as usize + 1))
    }
}

/// Rows that follow each other, such as the items of lists.
#[derive(Debug, Clone, Default)]
pub(super) struct Spans {
    spans: Vec<(u32, Range<usize>)>,
    rows: usize,
}

impl Spans {
    pub(super) fn with_capacity(spans: usize) -> Self {
        Self { spans: Vec::with_capacity(spans), rows: 0 }
    }

    pub(super) fn push(&mut self, source: usize, rows: Range<usize>) {
        self.rows += rows.len();
        self.spans.push((source as u32, rows));
    }

    /// How many rows there are so far.
    pub(super) fn rows_so_far(&self) -> usize {
        self.rows
    }

    /// The rows at these places, if most of them follow each other.
    fn joined(places: &[BatchRow]) -> Option<Self> {
        /// Rows of a span, in the mean, for which one call that copies them all is faster than a load for each.
        const LONG: usize = 8;
        let mut spans = Self::default();
        let mut last: Option<(u32, Range<usize>)> = None;
        for &(source, row) in places {
            let row = row as usize;
            match &mut last {
                Some((same, rows)) if *same == source && rows.end == row => rows.end += 1,
                _ => {
                    if spans.spans.len() * LONG > places.len() {
                        return None;
                    }
                    let whole = last.replace((source, row..row + 1));
                    whole.into_iter().for_each(|(source, rows)| spans.push(source as usize, rows));
                }
            }
        }
        last.into_iter().for_each(|(source, rows)| spans.push(source as usize, rows));
        Some(spans)
    }
}

/// Several runs of rows, each copied to an array of its own: row by row where they lie anywhere, and as spans where
/// they follow each other.
#[derive(Debug, Default)]
pub(crate) struct PickedRuns<'a> {
    pub(super) single: Vec<&'a [BatchRow]>,
    pub(super) spans: Vec<Spans>,
    /// For each run, whether it is one of spans.
    pub(super) in_spans: Vec<bool>,
}

impl<'a> PickedRuns<'a> {
    /// These runs.
    pub(crate) fn of(runs: impl IntoIterator<Item = &'a [BatchRow]>) -> Self {
        let mut found = Self::default();
        for places in runs {
            let spans = Spans::joined(places);
            found.in_spans.push(spans.is_some());
            match spans {
                Some(spans) => found.spans.push(spans),
                None => found.single.push(places),
            }
        }
        found
    }
}

impl Picks for &Spans {
    const SINGLE: bool = false;

    fn count(&self) -> usize {
        self.rows
    }

    fn rows(&self) -> impl Iterator<Item = (usize, usize)> {
        self.spans.iter().flat_map(|(source, rows)| rows.clone().map(|row| (*source as usize, row)))
    }

    fn spans(&self) -> impl ExactSizeIterator<Item = (usize, Range<usize>)> {
        self.spans.iter().map(|(source, rows)| (*source as usize, rows.clone()))
    }
}
