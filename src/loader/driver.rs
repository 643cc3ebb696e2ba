//! The plan and the order together: what to do next in a run.

use std::collections::VecDeque;

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
    near: Near,
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
        Self { plan, walk, ranges: VecDeque::new(), runs: Vec::new(), near, error: None }
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
        let (runs, near) = (&mut self.runs, &mut self.near);
        runs.clear();
        let (mut replaced, mut walked) = (Vec::new(), 0);
        let range = self.walk.next_range(self.plan.segment_rows(), &mut |rows| {
            let before = (runs.len(), replaced.len());
            let mut at = 0;
            while let Some(&row) = rows.get(at) {
                let (served, (unit, slot)) = match resolve(near, row) {
                    Ok(placed) => placed,
                    Err(error) => {
                        runs.truncate(before.0);
                        replaced.truncate(before.1);
                        return Err(error);
                    }
                };
                let mut count = 1;
                if served == row {
                    // What was not lost of a unit is followed by more that is not.
                    let most = near.following(row).min((rows.len() - at) as u64);
                    while (count as u64) < most && rows[at + count] == row + count as u64 {
                        count += 1;
                    }
                } else {
                    replaced.push((walked + at, served));
                }
                runs.push(Neighbours { unit, slot, rows: count as u32 });
                at += count;
            }
            walked += rows.len();
            Ok(())
        });
        match range {
            Ok(Some(range)) => {
                self.plan.push(runs);
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
