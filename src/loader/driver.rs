//! The plan and the order together: what to do next in a run.

use std::collections::VecDeque;
use std::sync::Arc;

use super::packing::ServedPacks;
use super::plan::{Neighbours, PieceRuns, Plan, PlanAnswer};
use super::recovery::ResolvedRow;
use super::row_table::RowFinder;
use super::walk::{BatchRange, Walk};
use rowdex_base::error::{Error, Result};

/// When all row groups stay decoded, looking ahead saves no decode; it only makes extractions longer. Preparing an
/// epoch may take time and memory in proportion to the rows, so then no more than this many are looked at, from the one
/// on that is due.
const EPOCHS_LOOKED_AT: u64 = 2;

/// The plan and the order that it follows.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) plan: Plan,
    walk: Box<dyn Walk>,
    /// The batches of the segments that the plan knows.
    pub(crate) ranges: VecDeque<BatchRange>,
    /// Those of a segment, which allocate nothing from one to the next.
    pieces: PieceRuns,
    near: RowFinder,
    /// If pieces of rows are served.
    packing: Option<Arc<ServedPacks>>,
    /// Why the order ends, if it has to.
    pub(crate) error: Option<Error>,
}

impl Driver {
    /// A driver of rows that `near` finds, or of pieces of them.
    pub(crate) fn new(plan: Plan, walk: Box<dyn Walk>, near: RowFinder, packing: Option<Arc<ServedPacks>>) -> Self {
        let pieces = PieceRuns::default();
        Self { plan, walk, ranges: VecDeque::new(), pieces, near, packing, error: None }
    }

    /// Asks the plan, and walks on by at most one segment if it says so. `resolve` says which row to serve for one of
    /// the order, and where it is.
    pub(crate) fn advance(&mut self, resolve: impl Fn(&mut RowFinder, u64) -> Result<ResolvedRow>) -> PlanAnswer {
        if self.has_more() {
            self.plan.ended = false;
        }
        let answer = self.plan.next(self.may_look());
        if matches!(answer, PlanAnswer::Look) {
            self.look(resolve);
        }
        answer
    }

    fn may_look(&self) -> bool {
        let due = self.ranges.front().filter(|_| self.plan.keeps_all());
        due.is_none_or(|due| self.walk.epoch() - due.epoch < EPOCHS_LOOKED_AT)
    }

    /// Whether it has come to the end of what there was, and there is more since.
    pub(crate) fn has_more(&mut self) -> bool {
        self.plan.ended && self.error.is_none() && self.walk.has_more()
    }

    fn look(&mut self, resolve: impl Fn(&mut RowFinder, u64) -> Result<ResolvedRow>) {
        let pieces = &mut self.pieces;
        let near = &mut self.near;
        pieces.truncate(0);
        let plan = &self.plan;
        let packing = self.packing.as_deref();
        let mut replaced = Vec::new();
        let mut walked = 0;
        // Where rows differ between units, those of a segment may be much larger than others are.
        let mut bytes = 0_u64;
        let most = plan.segment_bytes().saturating_mul(2);
        let range = self.walk.next_range(self.plan.segment_rows(), &mut |batch| {
            let rows = &batch.rows;
            let before = pieces.len();
            let replaced_before = replaced.len();
            let tokens_of = |place| packing?.tokens_of(batch, place);
            let mut at = 0;
            while let Some(&row) = rows.get(at) {
                let (served, (unit, slot)) = match resolve(near, row) {
                    Ok(placed) => placed,
                    Err(error) => {
                        pieces.truncate(before);
                        replaced.truncate(replaced_before);
                        return Err(error);
                    }
                };
                let mut count = 1;
                let tokens = tokens_of(at);
                if tokens.is_none() && served == row {
                    // What was not lost of a unit is followed by more that is not.
                    let most = near.following(row).min((rows.len() - at) as u64);
                    let follows =
                        |count: usize| rows[at + count] == row + count as u64 && tokens_of(at + count).is_none();
                    while (count as u64) < most && follows(count) {
                        count += 1;
                    }
                } else if tokens.is_none() {
                    replaced.push((walked + at, served));
                }
                pieces.push(Neighbours { unit, slot, rows: count as u32 }, tokens);
                bytes = bytes.saturating_add(plan.bytes_of(unit, count as u64));
                at += count;
            }
            walked += rows.len();
            Ok(bytes < most)
        });
        match range {
            Ok(Some(range)) => {
                self.plan.push(&self.pieces);
                self.ranges.push_back(BatchRange { replaced, ..range });
            }
            Ok(None) => self.plan.ended = true,
            Err(error) => {
                self.error = Some(error);
                self.plan.ended = true;
            }
        }
    }
}
