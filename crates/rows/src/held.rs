//! Rows that wait in memory, however they lie there.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::memory::{Elsewhere, Footprint};
use super::packed::PackedRows;
use super::views::compact;
use super::{take, uncopied};
use rowdex_base::error::{Error, ErrorKind, Result};

/// Bytes of a row that is pointed at.
pub(super) const POINTER: u64 = size_of::<u32>() as u64;

/// Rows in memory, column by column or packed row by row: all of what they lie in, or some of it in an order of their
/// own. The first of them are taken off until none is left; clones share the memory.
///
/// An Arrow slice keeps everything alive that it was cut from, so memory is released by the whole only.
#[derive(Debug, Clone)]
pub struct Held {
    body: Body,
    positions: RowPositions,
    /// How many were taken off, and how many are left.
    first: usize,
    rows: usize,
    bytes: u64,
    labels: Option<RowNumbers>,
}

/// Numbers of rows, as many of each.
#[derive(Debug, Clone)]
struct RowNumbers {
    numbers: Arc<[u64]>,
    each: usize,
}

#[derive(Debug, Clone)]
enum Body {
    Columns(Arc<RecordBatch>),
    Packed(Arc<PackedRows>),
}

impl Body {
    fn rows(&self) -> usize {
        match self {
            Self::Columns(batch) => batch.num_rows(),
            Self::Packed(packed) => packed.num_rows(),
        }
    }
}

/// Where rows are in what they lie in.
#[derive(Debug, Clone)]
enum RowPositions {
    /// One after the other, from this place on.
    Run(usize),
    Slots(Arc<[u32]>),
}

impl Held {
    /// All rows of what counts as so many bytes.
    fn all(body: Body, bytes: u64) -> Self {
        let rows = body.rows();
        Self { body, positions: RowPositions::Run(0), first: 0, rows, bytes, labels: None }
    }

    /// All rows of a batch, of which some may count elsewhere.
    pub fn columns(batch: RecordBatch, elsewhere: &Elsewhere) -> Self {
        let bytes = Footprint::beside(elsewhere).add(&batch);
        Self::all(Body::Columns(Arc::new(batch)), bytes)
    }

    /// All rows of these batches, which are let go of one after the other.
    pub fn in_turn(batches: Vec<RecordBatch>, elsewhere: &Elsewhere) -> Vec<Self> {
        Self::counted(batches, Footprint::beside(elsewhere))
    }

    pub(super) fn counted(batches: Vec<RecordBatch>, mut footprint: Footprint) -> Vec<Self> {
        // A buffer that several share is freed with the last of them.
        let bytes: Vec<u64> = batches.iter().rev().map(|batch| footprint.add(batch)).collect();
        let bodies = batches.into_iter().map(|batch| Body::Columns(Arc::new(batch)));
        bodies.zip(bytes.into_iter().rev()).map(|(body, bytes)| Self::all(body, bytes)).collect()
    }

    /// The same of rows that are packed.
    pub(super) fn packed_in_turn(pieces: Vec<PackedRows>) -> Vec<Self> {
        let mut seen = std::collections::HashSet::new();
        let bytes: Vec<u64> = pieces.iter().rev().map(|packed| packed.bytes_but(&mut seen)).collect();
        let bodies = pieces.into_iter().map(|packed| Body::Packed(Arc::new(packed)));
        bodies.zip(bytes.into_iter().rev()).map(|(body, bytes)| Self::all(body, bytes)).collect()
    }

    /// How many rows.
    #[inline]
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// How many rows there are in what they lie in.
    pub(super) fn of_rows(&self) -> usize {
        self.body.rows()
    }

    /// Bytes of memory that are freed when the last of the rows are let go.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The rows at these slots of what these lie in, in that order, in columns of this schema, which is that of decoded
    /// rows. They keep nothing else alive.
    ///
    /// # Errors
    /// As [`take`].
    pub fn take(&self, slots: &[u32], schema: &SchemaRef) -> Result<RecordBatch> {
        match &self.body {
            Body::Columns(batch) => compact(take(batch, slots)?).map_err(uncopied),
            Body::Packed(packed) => packed.take(slots, schema),
        }
    }

    /// Points at the rows at these slots, in that order, of what these lie in. Nothing is copied before they are
    /// gathered; what they lie in counts elsewhere.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if there is no such slot.
    pub fn at(&self, slots: Vec<u32>) -> Result<Self> {
        if slots.iter().any(|&slot| slot as usize >= self.of_rows()) {
            return Err(Error::new(ErrorKind::Internal, "fewer rows than a row group has"));
        }
        let rows = slots.len();
        let body = self.body.clone();
        let (positions, bytes) = match slots.first() {
            Some(&start) if slots.is_sorted_by(|a, b| a + 1 == *b) => (RowPositions::Run(start as usize), 0),
            _ => (RowPositions::Slots(slots.into()), POINTER * rows as u64),
        };
        Ok(Self { body, positions, first: 0, rows, bytes, labels: None })
    }

    /// Gives each row so many numbers, whatever they mean.
    #[must_use]
    pub fn with_labels(self, numbers: &[u64], each: usize) -> Self {
        Self { labels: Some(RowNumbers { numbers: numbers.into(), each }), ..self }
    }

    /// Takes the first rows off, so many. They free nothing, as long as there are others.
    pub fn split_front(&mut self, rows: usize) -> Self {
        let rows = rows.min(self.rows);
        let bytes = if rows < self.rows { 0 } else { self.bytes };
        let front = Self { rows, bytes, ..self.clone() };
        self.first += rows;
        self.rows -= rows;
        front
    }

    /// Where in what it lies in a row is.
    #[inline]
    pub fn place(&self, row: usize) -> u32 {
        match &self.positions {
            RowPositions::Slots(slots) => slots.get(self.first + row).copied().unwrap_or(u32::MAX),
            RowPositions::Run(start) => (start + self.first + row) as u32,
        }
    }

    /// Whether the rows lie one after the other.
    pub(super) fn is_contiguous(&self) -> bool {
        matches!(self.positions, RowPositions::Run(_))
    }

    /// Whether they do, and have no labels.
    #[inline]
    pub fn is_run(&self) -> bool {
        self.is_contiguous() && self.labels.is_none()
    }

    /// The numbers of a row.
    #[inline]
    pub fn label(&self, row: usize) -> Option<&[u64]> {
        let RowNumbers { numbers, each } = self.labels.as_ref()?;
        let first = (self.first + row) * each;
        numbers.get(first..first + each)
    }

    /// What the rows lie in, if that is columns.
    pub fn in_columns(&self) -> Option<&RecordBatch> {
        match &self.body {
            Body::Columns(batch) => Some(batch),
            Body::Packed(_) => None,
        }
    }

    /// The same if it is packed.
    pub fn in_rows(&self) -> Option<&PackedRows> {
        match &self.body {
            Body::Columns(_) => None,
            Body::Packed(packed) => Some(packed),
        }
    }

    /// The same rows in columns, if they are packed.
    pub(super) fn unpacked(&self, schema: &SchemaRef) -> Result<Option<Self>> {
        let Body::Packed(packed) = &self.body else { return Ok(None) };
        let slots: Vec<u32> = (0..self.rows).map(|row| self.place(row)).collect();
        let columns = Self::all(Body::Columns(Arc::new(packed.take(&slots, schema)?)), self.bytes);
        let labels = self.labels.as_ref().and_then(|RowNumbers { numbers, each }| {
            let own = numbers.get(self.first * each..(self.first + self.rows) * each)?;
            Some(RowNumbers { numbers: own.into(), each: *each })
        });
        Ok(Some(Self { labels, ..columns }))
    }
}
