//! What is held of each unit: extractions, in the order in which they are due, and units that stay in memory.

use std::collections::VecDeque;
use std::ops::Range;

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_rows::Held;

/// What one extraction brought: rows in the order in which they are due.
#[derive(Debug, Default)]
pub(crate) struct DueRows {
    pieces: VecDeque<Held>,
    /// Why there are no rows after those of the pieces.
    pub(crate) error: Option<Error>,
    /// Rows that were not claimed.
    left: usize,
}

impl DueRows {
    /// These rows, piece by piece.
    pub(crate) fn of(pieces: impl Into<VecDeque<Held>>) -> Self {
        let pieces = pieces.into();
        Self { left: pieces.iter().map(Held::num_rows).sum(), pieces, error: None }
    }

    /// These rows, and then so many that cannot be had: the error comes up when one of them is claimed.
    pub(crate) fn before(self, error: Error, rows: usize) -> Self {
        Self { error: Some(error), left: self.left + rows, ..self }
    }

    /// The pieces, and why there are no rows after theirs.
    pub(crate) fn into_parts(self) -> (VecDeque<Held>, Option<Error>) {
        (self.pieces, self.error)
    }

    /// Says which row ids these have, because they stand in for others. They are the labels of rows.
    pub(crate) fn with_ids(mut self, mut ids: &[u64]) -> Self {
        for piece in &mut self.pieces {
            let (own, rest) = ids.split_at(piece.num_rows().min(ids.len()));
            (*piece, ids) = (piece.clone().with_labels(own, 1), rest);
        }
        self
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(Held::bytes).sum()
    }
}

/// What is got of a unit has not all rows that were asked for.
pub(crate) fn too_few_rows() -> Error {
    Error::new(ErrorKind::Internal, "fewer rows than were needed of a row group")
}

/// Takes the first rows off, so many, and gives each piece that has some. Returns how many rows are missing.
pub(crate) fn take_rows(pieces: &mut VecDeque<Held>, mut rows: usize, mut give: impl FnMut(Held)) -> usize {
    while rows > 0 {
        let next = match pieces.front_mut() {
            Some(first) if rows < first.num_rows() => Some(first.split_front(rows)),
            _ => pieces.pop_front(),
        };
        let Some(next) = next else { break };
        rows -= next.num_rows();
        give(next);
    }
    rows
}

/// Rows that a segment takes off the carousel, those of each unit in the order in which they are due.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    /// Which of the pieces are of which unit.
    pub(crate) parts: Vec<(u32, Range<u32>)>,
    pub(crate) pieces: Vec<Held>,
    /// Why a unit has no more rows than those.
    pub(crate) errors: Vec<(u32, Error)>,
    /// How many rows the segment has.
    pub(crate) rows: u64,
    /// Bytes that are freed once `pieces` are dropped.
    pub(crate) bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Carousel {
    /// For every unit its due rows, by the number of the extraction.
    queues: Vec<VecDeque<(u64, DueRows)>>,
    whole: Vec<Option<Held>>,
}

impl Carousel {
    pub(crate) fn new(units: usize) -> Self {
        Self { queues: (0..units).map(|_| VecDeque::new()).collect(), whole: vec![None; units] }
    }

    /// The unit, if it stayed in memory.
    pub(crate) fn whole(&self, unit: u32) -> Option<Held> {
        self.whole.get(unit as usize)?.clone()
    }

    /// Keeps a unit in memory, or lets it go.
    pub(crate) fn stay(&mut self, unit: u32, kept: Option<Held>) {
        if let Some(place) = self.whole.get_mut(unit as usize) {
            *place = kept;
        }
    }

    pub(crate) fn insert(&mut self, unit: u32, number: u64, due: DueRows) {
        if let Some(queue) = self.queues.get_mut(unit as usize) {
            let at = queue.partition_point(|(other, _)| *other < number);
            queue.insert(at, (number, due));
        }
    }

    /// Takes the rows of a segment, given as how many of which unit. All extractions that it needs are inserted.
    pub(crate) fn claim(&mut self, parts: &[(u32, u32)]) -> Claimed {
        let mut claimed = Claimed {
            parts: Vec::with_capacity(parts.len()),
            pieces: Vec::with_capacity(parts.len()),
            rows: parts.iter().map(|(_, rows)| u64::from(*rows)).sum(),
            ..Claimed::default()
        };
        for &(unit, rows) in parts {
            let first = claimed.pieces.len() as u32;
            if let Err(error) = self.claim_part(unit, rows as usize, &mut claimed) {
                claimed.errors.push((unit, error));
            }
            claimed.parts.push((unit, first..claimed.pieces.len() as u32));
        }
        claimed
    }

    fn claim_part(&mut self, unit: u32, rows: usize, claimed: &mut Claimed) -> Result<()> {
        let lost = || Error::new(ErrorKind::Internal, format!("rows of unit {unit} are not held"));
        let queue = self.queues.get_mut(unit as usize).ok_or_else(lost)?;
        let (_, due) = queue.front_mut().ok_or_else(lost)?;
        due.left = due.left.saturating_sub(rows);
        let missing = take_rows(&mut due.pieces, rows, |piece| {
            claimed.bytes += piece.bytes();
            claimed.pieces.push(piece);
        });
        let error = (missing > 0).then(|| due.error.clone().unwrap_or_else(lost));
        // Those included that could not be had.
        if due.left == 0 {
            queue.pop_front();
        }
        error.map_or(Ok(()), Err)
    }
}
