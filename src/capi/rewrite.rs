//! Writing the rows of a dataset anew, in an order.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use super::dataset::rowdex_dataset;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, require};
use super::orders::rowdex_order;
use super::progress::{Progress, rowdex_progress};
use crate::describe::RewriteDescription;
use crate::rewrite::{Phase, RewriteProgress};

/// Writes the rows of a dataset anew: row i of the output is row order(i) of the dataset, in epoch 0. The output is a
/// folder of Parquet files, or a prefix of a store (s3, gs or az), which is talked to as the dataset's is, with an
/// index beside them, index.rdx. docs/rewriting.md says what is written, and what it takes.
///
/// The files are the same to the byte whatever the memory, the threads and the tasks are. A call that was stopped
/// (rowdex_stop_when) or has failed leaves no file half written, and another one with resume goes on.
///
/// The description is JSON: {"output": "shuffled", "memory": 4294967296}. Beside the output all may be left out:
///
/// memory: about how many bytes of rows to hold, 1 GiB by default. threads: that decode and encode, one for each
/// available core and at most eight by default. files: writes so many, of equal numbers of rows or one row more. Or
/// file_bytes: about how large a file is, 512 MiB by default. row_group_rows: the last row group of a file may have
/// fewer; by default such that it takes 32 MiB in memory, and up to 64 MiB if it would take less than 4 MiB in the
/// file. page_bytes: of values, after which a page ends; by default 128 KiB, and 1 MiB where a value takes 4 KiB or
/// more. compression: "none", "snappy", "lz4", "zstd" or "zstd:LEVEL"; by default for each column what makes a sample
/// smallest. dictionary: whether values go to dictionaries; by default in columns where that saves a tenth of a sample.
/// origin: adds a column of this name with the row ids of the dataset. spill: spills rows to a folder in this one,
/// which is local; by default in the output, if that is local. step: one step of the work, where several machines share
/// it: all tasks of "spill", then all of "write", then "index"; by default all of it. task: [2, 8] is the task with
/// number 2, from 0, of 8 that share the step. resume: true goes on with what an earlier call left in the output.
/// overwrite: true replaces what an earlier call wrote there.
///
/// `progress` is told rows that are done with and rows in all, both of two passes together, and bytes that were spilled
/// and written so far. Any thread calls it, one at a time. The report is JSON that the caller frees, and `report` may
/// be NULL: rows, files, kept_files (finished by a call that this one goes on from), bytes_written and bytes_spilled
/// (by this call), and index, which is null for a step that does not write it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_rewrite(
    dataset: Option<&rowdex_dataset>,
    order: Option<&rowdex_order>,
    description: *const c_char,
    progress: rowdex_progress,
    progress_userdata: *mut c_void,
    report: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = require(dataset, "dataset")?.one()?;
        let order = require(order, "order")?.orders();
        // SAFETY: the conventions of the header.
        let described: RewriteDescription = unsafe { handle::described(description, "rewrite") }?;
        let task = described.task()?;
        let told = Mutex::new(RewriteTeller {
            progress: Progress::new(progress, progress_userdata),
            second: if task.is_none() { order.epoch_len(0)? } else { 0 },
            first: 0,
            done: 0,
        });
        let rewrite = described
            .rewrite(dataset, order)?
            .with_progress(move |at| told.lock().unwrap_or_else(PoisonError::into_inner).tell(&at));
        let made = task.map_or_else(|| rewrite.run(), |task| rewrite.run_task(task))?;
        handle::write_report(report, &made)
    })
}

/// Tells progress over both passes, and never back: threads are done with some rows at once.
struct RewriteTeller {
    progress: Progress,
    /// Rows of the second pass, if this call does both.
    second: u64,
    /// Rows of the first pass.
    first: u64,
    done: u64,
}

impl RewriteTeller {
    fn tell(&mut self, at: &RewriteProgress) {
        let all = match at.phase {
            Phase::Read => {
                self.first = at.rows;
                self.done = self.done.max(at.rows_done);
                at.rows + self.second
            }
            Phase::Write => {
                self.done = self.done.max(self.first + at.rows_done);
                self.first + at.rows
            }
        };
        self.progress.tell(self.done, all, at.bytes_spilled + at.bytes_written);
    }
}
