//! What a schedule is told, and what it says.

use crate::loader::lookahead::ReadTiming;
use crate::loader::plan::{Extract, Measurement};

/// What an engine is made for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) memory: u64,
    pub(crate) threads: usize,
    /// Batches that may wait for the consumer; `None` leaves it to the plan.
    pub(crate) read_ahead: Option<usize>,
    /// Row groups that may be read ahead at once, where reads take long; `None` leaves it to what is measured.
    pub(crate) read_concurrency: Option<usize>,
    pub(crate) batch_rows: u64,
    pub(crate) seed: u64,
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
