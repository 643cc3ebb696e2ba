//! The plan and the order together: what to do next in a run.

use std::collections::VecDeque;

use super::faults::Placed;
use super::plan::{Extract, Next, Plan, Segment};
use super::walk::{Span, Walk};
use crate::{Error, ErrorKind, Result};

/// The plan and the order that it follows.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) plan: Plan,
    walk: Box<dyn Walk>,
    spans: VecDeque<Span>,
    places: Vec<(u32, u32)>,
    error: Option<Error>,
}

/// What comes of a step.
#[derive(Debug)]
pub(crate) enum Planned {
    Walked,
    Extract(Extract),
    Segment(Span, Segment),
    End(Option<Error>),
}

impl Driver {
    pub(crate) fn new(plan: Plan, walk: Box<dyn Walk>) -> Self {
        Self { plan, walk, spans: VecDeque::new(), places: Vec::new(), error: None }
    }

    /// Walks on by at most one segment. `resolve` says which row to serve for one of the order, and where it is.
    pub(crate) fn advance(&mut self, resolve: impl Fn(u64) -> Result<Placed>) -> Planned {
        if self.has_more() {
            self.plan.reopen();
        }
        match self.plan.next() {
            Next::Extract(extract) => Planned::Extract(extract),
            Next::Segment(segment) => match self.spans.pop_front() {
                Some(span) => Planned::Segment(span, segment),
                None => Planned::End(Some(Error::new(ErrorKind::Internal, "a segment that nobody asked for"))),
            },
            Next::End => Planned::End(self.error.take()),
            Next::Look => {
                self.look(resolve);
                Planned::Walked
            }
        }
    }

    /// Whether it has come to the end of what there was, and there is more since.
    pub(crate) fn has_more(&self) -> bool {
        self.plan.is_ended() && self.error.is_none() && self.walk.has_more()
    }

    fn look(&mut self, resolve: impl Fn(u64) -> Result<Placed>) {
        let places = &mut self.places;
        places.clear();
        let mut replaced = Vec::new();
        let span = self.walk.span(self.plan.segment_rows(), &mut |rows| {
            let before = (places.len(), replaced.len());
            for &row in rows {
                match resolve(row) {
                    Ok((same, place)) if same == row => places.push(place),
                    Ok((other, place)) => {
                        replaced.push((places.len(), other));
                        places.push(place);
                    }
                    Err(error) => {
                        places.truncate(before.0);
                        replaced.truncate(before.1);
                        return Err(error);
                    }
                }
            }
            Ok(())
        });
        match span {
            Ok(Some(span)) => {
                self.plan.push(places);
                self.spans.push_back(Span { replaced, ..span });
            }
            Ok(None) => self.plan.end(),
            Err(error) => {
                self.error = Some(error);
                self.plan.end();
            }
        }
    }
}
