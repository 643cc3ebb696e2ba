//! The plan and the order together: what to do next in a run.

use std::collections::VecDeque;
use std::sync::Arc;

use super::cuts::Cut;
use super::packing::Packing;
use super::plan::{Extract, Neighbours, Next, Plan, Segment};
use super::recovery::Placed;
use super::row_table::Near;
use super::walk::{BatchRange, Walk};
use rowdex_base::error::{Error, ErrorKind, Result};

/// When all row groups stay decoded, looking ahead saves no decode; it only makes extractions longer. Preparing an
/// epoch may take time and memory in proportion to the rows, so then no more than this many are looked at, from the one
/// on that is due.
const EPOCHS_LOOKED_AT: u64 = 2;

/// The plan and the order that it follows.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) plan: Plan,
    walk: Box<dyn Walk>,
    ranges: VecDeque<BatchRange>,
    runs: Vec<Neighbours>,
    /// Which of the runs are parts of a row.
    cuts: Vec<(usize, Cut)>,
    near: Near,
    /// If pieces of rows are served.
    packing: Option<Arc<Packing>>,
    error: Option<Error>,
}

/// What comes of a step.
#[derive(Debug)]
pub(crate) enum Planned {
    Walked,
    Extract(Extract),
    Segment(BatchRange, Segment),
    End(Option<Error>),
}

impl Driver {
    pub(crate) fn new(plan: Plan, walk: Box<dyn Walk>, near: Near) -> Self {
        let (ranges, runs, cuts) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { plan, walk, ranges, runs, cuts, near, packing: None, error: None }
    }

    /// The same of packs, if these are served.
    pub(crate) fn with_packing(self, packing: Option<&Arc<Packing>>) -> Self {
        Self { packing: packing.cloned(), ..self }
    }

    /// Walks on by at most one segment. `resolve` says which row to serve for one of the order, and where it is.
    pub(crate) fn advance(&mut self, resolve: impl Fn(&mut Near, u64) -> Result<Placed>) -> Planned {
        if self.has_more() {
            self.plan.reopen();
        }
        match self.plan.next(self.may_look()) {
            Next::Extract(extract) => Planned::Extract(extract),
            Next::Segment(segment) => match self.ranges.pop_front() {
                Some(range) => Planned::Segment(range, segment),
                None => Planned::End(Some(Error::new(ErrorKind::Internal, "a segment that nobody asked for"))),
            },
            Next::End => Planned::End(self.error.take()),
            Next::Look => {
                self.look(resolve);
                Planned::Walked
            }
        }
    }

    fn may_look(&self) -> bool {
        let due = self.ranges.front().filter(|_| self.plan.keeps_all());
        due.is_none_or(|due| self.walk.epoch() - due.epoch < EPOCHS_LOOKED_AT)
    }

    /// Whether it has come to the end of what there was, and there is more since.
    pub(crate) fn has_more(&mut self) -> bool {
        self.plan.is_ended() && self.error.is_none() && self.walk.has_more()
    }

    fn look(&mut self, resolve: impl Fn(&mut Near, u64) -> Result<Placed>) {
        let (runs, cuts, near) = (&mut self.runs, &mut self.cuts, &mut self.near);
        runs.clear();
        cuts.clear();
        let (plan, packing) = (&self.plan, self.packing.as_deref());
        let (mut replaced, mut walked) = (Vec::new(), 0);
        // Where rows differ between units, those of a segment may be much larger than others are.
        let (mut bytes, most) = (0_u64, plan.segment_bytes().saturating_mul(2));
        let range = self.walk.next_range(self.plan.segment_rows(), &mut |batch| {
            let (rows, before) = (&batch.rows, (runs.len(), cuts.len(), replaced.len()));
            let cut_of = |place| packing.and_then(|packing| packing.cut_of(batch, place));
            let mut at = 0;
            while let Some(&row) = rows.get(at) {
                let (served, (unit, slot)) = match resolve(near, row) {
                    Ok(placed) => placed,
                    Err(error) => {
                        runs.truncate(before.0);
                        cuts.truncate(before.1);
                        replaced.truncate(before.2);
                        return Err(error);
                    }
                };
                let mut count = 1;
                if let Some(cut) = cut_of(at) {
                    cuts.push((runs.len(), cut));
                } else if served == row {
                    // What was not lost of a unit is followed by more that is not.
                    let most = near.following(row).min((rows.len() - at) as u64);
                    let follows = |count: usize| rows[at + count] == row + count as u64 && cut_of(at + count).is_none();
                    while (count as u64) < most && follows(count) {
                        count += 1;
                    }
                } else {
                    replaced.push((walked + at, served));
                }
                runs.push(Neighbours { unit, slot, rows: count as u32 });
                bytes = bytes.saturating_add(plan.bytes_of(unit, count as u64));
                at += count;
            }
            walked += rows.len();
            Ok(bytes < most)
        });
        match range {
            Ok(Some(range)) => {
                self.plan.push(runs, cuts);
                self.ranges.push_back(BatchRange { replaced, ..range });
            }
            Ok(None) => self.plan.end(),
            Err(error) => {
                self.error = Some(error);
                self.plan.end();
            }
        }
    }
}
