//! How far a rewrite is, and what it made.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a rewrite is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// The first of two passes: rows are read in the order of the files, and held or spilled to buckets.
    Read,
    /// The second pass: rows are put to their places, and encoded.
    Write,
}

/// How far a rewrite is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RewriteProgress {
    /// What it is at.
    pub phase: Phase,
    /// Rows that this phase is done with.
    pub rows_done: u64,
    /// Rows of this phase in all.
    pub rows: u64,
    /// Bytes that were spilled so far.
    pub bytes_spilled: u64,
    /// Bytes of output files that are in their places.
    pub bytes_written: u64,
}

/// What a rewrite made.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "capi", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RewriteReport {
    /// Rows that were written, or are in files that were there already.
    pub rows: u64,
    /// Output files.
    pub files: u64,
    /// Files that were finished before, by a run that this one goes on from.
    pub kept_files: u64,
    /// Bytes of the files that this run wrote.
    pub bytes_written: u64,
    /// Bytes that this run spilled.
    pub bytes_spilled: u64,
    /// The index of the output; `None` from a task that does not write it.
    pub index: Option<PathBuf>,
}

/// Counts what is done, on any thread, and tells it.
pub(super) struct RewriteMeter {
    tell: Option<Arc<dyn Fn(RewriteProgress) + Send + Sync>>,
    phase: Phase,
    rows: u64,
    rows_done: AtomicU64,
    pub(super) bytes_spilled: AtomicU64,
    pub(super) bytes_written: AtomicU64,
}

impl RewriteMeter {
    pub(super) fn new(tell: Option<Arc<dyn Fn(RewriteProgress) + Send + Sync>>) -> Self {
        let zero = AtomicU64::default;
        Self { tell, phase: Phase::Read, rows: 0, rows_done: zero(), bytes_spilled: zero(), bytes_written: zero() }
    }

    /// Begins a phase of so many rows.
    pub(super) fn begin(&mut self, phase: Phase, rows: u64) {
        (self.phase, self.rows, self.rows_done) = (phase, rows, AtomicU64::default());
        self.advance(0);
    }

    pub(super) fn advance(&self, rows: u64) {
        let rows_done = self.rows_done.fetch_add(rows, Ordering::Relaxed) + rows;
        if let Some(tell) = &self.tell {
            tell(RewriteProgress {
                phase: self.phase,
                rows_done,
                rows: self.rows,
                bytes_spilled: self.bytes_spilled.load(Ordering::Relaxed),
                bytes_written: self.bytes_written.load(Ordering::Relaxed),
            });
        }
    }
}
