//! What a schedule is told, and what it says.

use crate::loader::lookahead::ReadTiming;
use crate::loader::plan::Extract;

/// What a schedule has to keep to.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Bytes that may be in memory.
    pub(crate) memory: u64,
    /// How many decode at once.
    pub(crate) threads: usize,
    /// How many extractions are planned before the first of them has begun, those that are read ahead left out.
    pub(crate) extractions_planned: usize,
    /// Batches that may wait for the consumer; `None` leaves it to the plan.
    pub(crate) batches_waiting: Option<usize>,
    /// Row groups that may be read ahead at once.
    pub(crate) reads: usize,
    /// Whether an extraction waits for what is read ahead for it, while other things are done.
    pub(crate) waits_for_reads: bool,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Task {
    /// Tell the plan what was measured, then ask it for its next step: [`Schedule::planned`](super::Schedule::planned)
    /// comes of it.
    Plan(Vec<Measurement>),
    /// Start reading: [`Schedule::read_started`](super::Schedule::read_started).
    Read(Read),
    /// Get rows of a row group: [`Schedule::extracted`](super::Schedule::extracted).
    Extract(Extraction),
    /// Assemble the segment of this number: the oldest that was planned and not begun, or one of which batches are
    /// left. [`Schedule::assembled`](super::Schedule::assembled) comes of it.
    Assemble(u64),
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

/// What the plan came to.
#[derive(Debug)]
pub(crate) enum PlanStep {
    Walked,
    Extract(Extract),
    Segment {
        epoch: u64,
    },
    /// The end of the run; more may come after.
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

/// A read to start ahead of the extraction of the same number.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) number: u64,
    pub(crate) unit: u32,
    /// The slots to read, if not all of the row group.
    pub(crate) slots: Option<Vec<u32>>,
    /// About how many bytes the row group takes when decoded.
    pub(crate) whole: u64,
}

/// An extraction to do now.
#[derive(Debug)]
pub(crate) struct Extraction {
    pub(crate) number: u64,
    pub(crate) extract: Extract,
    /// Whether the row group has stayed decoded.
    pub(crate) stayed: bool,
    /// The memory that is set aside for it.
    pub(super) needs: u64,
    pub(super) found: ReadTiming,
}

/// What came of an extraction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ExtractionOutcome {
    /// Row groups that were decoded for it.
    pub(crate) decodes: u64,
    /// Bytes of the rows that it brought; none if it failed.
    pub(crate) rows: Option<u64>,
    /// Bytes of the row group, if that stays decoded.
    pub(crate) stays: Option<u64>,
    /// Bytes of the row group as it was decoded, estimated and real, if all of it was.
    pub(crate) decoded: Option<(u64, u64)>,
    /// About how many bytes besides the rows were in memory at the worst moment.
    pub(crate) staged: u64,
    /// Bytes that were read of the row group, and of its open pages, at the worst moment.
    pub(crate) read: u64,
    /// Bytes that are kept from now on of where long values of the row group lie.
    pub(crate) places: u64,
    /// Bytes of dictionaries that units share, of all of them.
    pub(crate) shared: u64,
}
