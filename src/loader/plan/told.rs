//! What a plan is told, and what it says.

use crate::loader::pieces::{PieceList, TokenRange};
use crate::loader::route::is_sparse;

/// What to do next.
#[derive(Debug)]
pub(crate) enum PlanAnswer {
    /// Walk the order further: [`Plan::push`](super::Plan::push) a segment, or say that it
    /// [`ended`](super::Plan::ended).
    Look,
    /// Get rows of a unit.
    Extract(Extract),
    /// Everything that the oldest segment needs was asked for by the extractions so far: how many rows of which unit it
    /// is made of, every unit once.
    Segment(Vec<(u32, u32)>),
    /// There is nothing more to do.
    End,
}

/// What the plan knows of what comes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outlook {
    /// How many segments may wait for the consumer.
    pub(crate) segments_ready: usize,
    /// About how many bytes the batches of a segment take.
    pub(crate) segment_bytes: u64,
    /// What rows will take in memory when all that is planned was done.
    pub(crate) held: u64,
    /// What is known of units, and of the rows that are looked ahead at.
    pub(crate) listing: u64,
    /// About how many bytes the largest row group takes when decoded.
    pub(crate) largest: u64,
}

/// What the plan is to know.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Measurement {
    /// Bytes of rows that are kept, estimated and real.
    Kept(u64, u64),
    /// Bytes of a row group as it is decoded, estimated and real.
    Decoded(u64, u64),
    /// What the rows that are held may take from now on.
    Memory(u64),
    /// So much more of it is for dictionaries that units share.
    Shared(u64),
}

/// Rows of one unit to get and keep.
#[derive(Debug, Default)]
pub(crate) struct Extract {
    pub(crate) unit: u32,
    /// The pieces in the order in which they are due. One that is due twice is there twice.
    pub(crate) due: PieceList,
    /// Whether the unit stays decoded after that.
    pub(crate) keep: bool,
    /// Whether the unit must be decoded for it, not being one that stayed.
    pub(crate) decode: bool,
    /// How many rows the unit has.
    pub(crate) of_rows: u64,
    /// How many bytes the rows take by the sizes that the plan was given, for [`Measurement::Kept`].
    pub(crate) estimate: u64,
    /// About how many bytes the rows really take.
    pub(crate) bytes: u64,
    /// About how many bytes the whole unit takes.
    pub(crate) whole: u64,
}

/// Rows of one unit that follow each other in it and in the order, or some tokens of one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Neighbours {
    pub(crate) unit: u32,
    pub(crate) slot: u32,
    pub(crate) rows: u32,
    /// `None` of whole rows.
    pub(crate) tokens: Option<TokenRange>,
}

impl Extract {
    /// Whether only the wanted rows are to be decoded.
    pub(crate) fn is_sparse(&self) -> bool {
        !self.keep && is_sparse(self.due.len(), self.of_rows)
    }
}
