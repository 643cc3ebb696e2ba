//! What a plan is told, and what it says.

use super::SlotList;
use crate::loader::cuts::Cut;
use crate::loader::route::is_sparse;

/// What to do next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Walk the order further: [`Plan::push`](super::Plan::push) a segment, or [`Plan::end`](super::Plan::end).
    Look,
    /// Get rows of a unit.
    Extract(Extract),
    /// Everything that the oldest segment needs was asked for by the extractions so far.
    Segment(Segment),
    /// There is nothing more to do.
    End,
}

/// Rows of one unit to get and keep.
#[derive(Debug, Default)]
pub(crate) struct Extract {
    pub(crate) unit: u32,
    /// The slots in the order in which they are due. A slot that is due twice is there twice.
    pub(crate) slots: SlotList,
    /// Of which of these a part is due, by their places among them.
    pub(crate) cuts: Vec<(usize, Cut)>,
    /// Whether the unit stays decoded after that.
    pub(crate) keep: bool,
    /// Whether the unit must be decoded for it, not being one that stayed.
    pub(crate) decode: bool,
    /// How many rows the unit has.
    pub(crate) of_rows: u64,
    /// How many bytes the rows take by the sizes that the plan was given, for
    /// [`Plan::measure_kept`](super::Plan::measure_kept).
    pub(crate) estimate: u64,
    /// About how many bytes the rows really take.
    pub(crate) bytes: u64,
    /// About how many bytes the whole unit takes.
    pub(crate) whole: u64,
}

/// One segment whose rows were all asked for.
#[derive(Debug)]
pub(crate) struct Segment {
    /// How many rows of which unit it is made of; every unit once.
    pub(crate) parts: Vec<(u32, u32)>,
}

/// Rows of one unit that follow each other in it and in the order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Neighbours {
    pub(crate) unit: u32,
    pub(crate) slot: u32,
    pub(crate) rows: u32,
}

impl Extract {
    /// Whether only the wanted rows are to be decoded.
    pub(crate) fn is_sparse(&self) -> bool {
        !self.keep && is_sparse(self.slots.len(), self.of_rows)
    }
}
