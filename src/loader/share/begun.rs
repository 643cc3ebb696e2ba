//! What a rank tells the reader of its state beside where it stands.

use rowdex_order::sampler::State;

/// How an epoch began that a state is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Begun {
    /// Where this world took it over.
    pub(super) start: u64,
    /// For steps of how many rows its buckets are cut, if that is not this world's number.
    pub(super) step: Option<u64>,
}

impl Begun {
    pub(super) fn of(state: &State) -> Self {
        Self { start: state.run.map_or(0, |run| run.start), step: state.run.and_then(|run| run.step) }
    }

    /// A state as another process has it of a sampler like one that is in this state.
    pub(super) fn in_state(self, of: State, state: &State) -> State {
        let run = of.run.map(|mut run| {
            (run.start, run.step) = (self.start, self.step);
            run
        });
        State { run, ..*state }
    }
}
