//! The plan and the order together: what to do next in a run.

use std::collections::VecDeque;

use super::plan::{Extract, Next, Plan, Segment};
use super::walk::{Span, Walk};
use crate::{Error, ErrorKind};

/// The plan and the order that it follows.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) plan: Plan,
    walk: Walk,
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
    pub(crate) fn new(plan: Plan, walk: Walk) -> Self {
        Self { plan, walk, spans: VecDeque::new(), places: Vec::new(), error: None }
    }

    /// Walks on by at most one segment.
    pub(crate) fn advance(&mut self, locate: impl Fn(u64) -> Option<(u32, u32)>) -> Planned {
        match self.plan.next() {
            Next::Extract(extract) => Planned::Extract(extract),
            Next::Segment(segment) => match self.spans.pop_front() {
                Some(span) => Planned::Segment(span, segment),
                None => Planned::End(Some(Error::new(ErrorKind::Internal, "a segment that nobody asked for"))),
            },
            Next::End => Planned::End(self.error.take()),
            Next::Look => {
                let places = &mut self.places;
                places.clear();
                let span = self.walk.span(self.plan.segment_rows(), |rows| {
                    let before = places.len();
                    for &row in rows {
                        let Some(place) = locate(row) else {
                            places.truncate(before);
                            return Err(Error::new(ErrorKind::OutOfRange, format!("the order has row id {row}"))
                                .with_hint("make the order for as many rows as the dataset has"));
                        };
                        places.push(place);
                    }
                    Ok(())
                });
                match span {
                    Ok(Some(span)) => {
                        self.plan.push(places);
                        self.spans.push_back(span);
                    }
                    Ok(None) => self.plan.end(),
                    Err(error) => {
                        self.error = Some(error);
                        self.plan.end();
                    }
                }
                Planned::Walked
            }
        }
    }
}
