//! Comparing all data files with the index.

use std::sync::{Mutex, PoisonError};

use super::files::in_file;
use super::reader::{AtHand, RowGroupRead};
use super::{Dataset, Slots, Staleness};
use rowdex_base::error::{Error, Result};
use rowdex_base::{pool, stop};
use rowdex_index::FileEntry;
use rowdex_parquet::WholeBatch;

/// How far [`Dataset::verify`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// Files looked at so far.
    pub files_done: u64,
    /// Files in the index.
    pub files: u64,
}

/// What [`Dataset::verify`] found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Files looked at.
    pub files: u64,
    /// Row groups decoded; 0 below [`Staleness::Deep`].
    pub row_groups: u64,
    /// Rows in them.
    pub rows: u64,
    /// What is wrong, one error for each bad file, in the order of the files.
    pub problems: Vec<Error>,
}

impl Dataset {
    /// Checks the index, then every data file at this level, on the dataset's own threads.
    ///
    /// [`Staleness::Off`] looks at the index alone; [`Staleness::Stat`] costs a `stat` for each file;
    /// [`Staleness::Footer`] a read for each file; [`Staleness::Deep`] decodes the chosen columns of every row group
    /// that serves rows. `progress` is called after each file, with one more each time, by one thread at a time. It
    /// must ask nothing of this dataset, whose threads may be waiting for it.
    ///
    /// # Errors
    /// As [`Index::verify`](rowdex_index::Index::verify). What is wrong with data files is in the report, so that one
    /// run finds all of it.
    pub fn verify(&self, level: Staleness, progress: &(dyn Fn(VerifyProgress) + Sync)) -> Result<VerifyReport> {
        let inner = &*self.inner;
        let index = self.index();
        index.verify()?;
        let mut report = VerifyReport { files: 0, row_groups: 0, rows: 0, problems: Vec::new() };
        if level == Staleness::Off {
            return Ok(report);
        }
        let state = inner.state()?;
        let files = index.num_files();
        let done = Mutex::new(0);
        // The problem of a file is no reason to stop.
        let check = |(): &mut (), number: &u32| {
            stop::check()?;
            let number = *number;
            let outcome = index.file(number).map_or(Ok((0, 0)), |entry| self.verify_file(&entry, level));
            let mut files_done = done.lock().unwrap_or_else(PoisonError::into_inner);
            *files_done += 1;
            progress(VerifyProgress { files_done: *files_done, files: u64::from(files) });
            Ok(outcome)
        };
        let numbers: Vec<u32> = (0..files).collect();
        for outcome in pool::each(inner.pool(state)?, &numbers, || (), check)? {
            report.files += 1;
            match outcome? {
                Ok((row_groups, rows)) => {
                    report.row_groups += row_groups;
                    report.rows += rows;
                }
                Err(problem) => report.problems.push(problem),
            }
        }
        Ok(report)
    }

    fn verify_file(&self, entry: &FileEntry<'_>, level: Staleness) -> Result<(u64, u64)> {
        let state = self.inner.state()?;
        let located = |error: Error| in_file(error, entry.path(), &*self.inner.source);
        state.files.check(entry, level).map_err(located)?;
        let mut row_groups = 0;
        let mut rows = 0;
        if level == Staleness::Deep {
            for group in entry.row_groups() {
                let group = &state.files.row_group(group)?;
                let read = RowGroupRead { group, slots: Slots::All, projection: self.projection(), keeps: false };
                let mut whole = WholeBatch::default();
                // The file itself is what is looked at, whatever a disk cache has of it.
                state.reader.read(read, &AtHand::default(), &mut whole).map_err(|error| group.located(error))?;
                row_groups += 1;
                rows += whole.into_batch()?.num_rows() as u64;
            }
        }
        Ok((row_groups, rows))
    }
}
