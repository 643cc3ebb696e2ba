//! What is held of each group: extractions, in the order in which they are due, and groups that stay decoded.

use std::collections::VecDeque;
use std::ops::Range;

use super::held::{DueRows, Slice, Whole};
use rowdex_base::error::{Error, ErrorKind, Result};

/// The slices that have the rows of one group.
#[derive(Debug)]
pub(crate) struct GroupPart {
    pub(crate) group: u32,
    /// Its place among all slices of the segment, and of the first one behind it.
    pub(crate) slices: Range<u32>,
}

/// Rows that a segment takes off the carousel, those of each group in the order in which they are due.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    pub(crate) parts: Vec<GroupPart>,
    pub(crate) slices: Vec<Slice>,
    /// Why a group has no more rows than those.
    pub(crate) errors: Vec<(u32, Error)>,
    /// How many rows the segment has.
    pub(crate) rows: u64,
    /// Bytes that are freed once `slices` is dropped.
    pub(crate) bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Carousel {
    /// For every group its due rows, by the number of the extraction.
    queues: Vec<VecDeque<(u64, DueRows)>>,
    whole: Vec<Option<Whole>>,
}

impl Carousel {
    pub(crate) fn new(groups: usize) -> Self {
        Self { queues: (0..groups).map(|_| VecDeque::new()).collect(), whole: vec![None; groups] }
    }

    /// The group and its bytes, if it stayed decoded.
    pub(crate) fn whole(&self, group: u32) -> Option<Whole> {
        self.whole.get(group as usize)?.clone()
    }

    /// Keeps a decoded group, or lets it go.
    pub(crate) fn stay(&mut self, group: u32, kept: Option<Whole>) {
        if let Some(place) = self.whole.get_mut(group as usize) {
            *place = kept;
        }
    }

    pub(crate) fn insert(&mut self, group: u32, number: u64, due: DueRows) {
        if let Some(queues) = self.queues.get_mut(group as usize) {
            let at = queues.partition_point(|(other, _)| *other < number);
            queues.insert(at, (number, due));
        }
    }

    /// Takes the rows of a segment, given as how many of which group. All extractions that it needs are inserted.
    pub(crate) fn claim(&mut self, parts: &[(u32, u32)]) -> Claimed {
        let mut claimed = Claimed {
            parts: Vec::with_capacity(parts.len()),
            slices: Vec::with_capacity(parts.len()),
            rows: parts.iter().map(|(_, rows)| u64::from(*rows)).sum(),
            ..Claimed::default()
        };
        for &(group, rows) in parts {
            let first = claimed.slices.len() as u32;
            if let Err(error) = self.claim_part(group, rows as usize, &mut claimed) {
                claimed.errors.push((group, error));
            }
            claimed.parts.push(GroupPart { group, slices: first..claimed.slices.len() as u32 });
        }
        claimed
    }

    fn claim_part(&mut self, group: u32, rows: usize, claimed: &mut Claimed) -> Result<()> {
        let lost = || Error::new(ErrorKind::Internal, format!("rows of group {group} are not held"));
        let queue = self.queues.get_mut(group as usize).ok_or_else(lost)?;
        let (_, due) = queue.front_mut().ok_or_else(lost)?;
        let (freed, missing) = due.claim(rows, &mut claimed.slices);
        claimed.bytes += freed;
        let error = (missing > 0).then(|| due.error().cloned().unwrap_or_else(lost));
        if due.is_used_up() {
            queue.pop_front();
        }
        error.map_or(Ok(()), Err)
    }
}
