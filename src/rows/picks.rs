//! Which rows of some arrays are copied, and in which order.

use std::ops::Range;

use arrow::buffer::BooleanBuffer;

/// A row: which source, and which row of it.
pub(crate) type Place = (u32, u32);

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

    /// A bit for every row.
    fn bits(&self, mut bit: impl FnMut(usize, usize) -> bool) -> BooleanBuffer {
        let mut rows = self.rows();
        BooleanBuffer::collect_bool(self.count(), |_| rows.next().is_some_and(|(source, row)| bit(source, row)))
    }
}

impl Picks for &[Place] {
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
