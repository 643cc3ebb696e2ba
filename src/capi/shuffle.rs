//! Writing the rows of a dataset anew, in an order.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use super::dataset::rowdex_dataset;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned, require};
use super::option::{Count, bytes, count};
use super::orders::rowdex_order;
use super::progress::{Progress, rowdex_progress};
use crate::rewrite::{Phase, Rewrite, RewriteProgress, RewriteReport, RewriteTask};
use rowdex_base::error::Result;

/// How rows are written anew. All zeros are the defaults, but for the order and the output.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_shuffle_options {
    /// sizeof(rowdex_shuffle_options)
    pub struct_size: usize,
    /// Row i of the output is row order(i) of the dataset, in epoch 0.
    pub order: *const rowdex_order,
    /// The folder to write to, or a prefix of a store (s3, gs or az), which is talked to as the dataset's is.
    pub output: *const c_char,
    /// About how many bytes of rows to hold. 0: 1 GiB.
    pub memory: u64,
    /// Threads that decode and encode. 0: one for each available core, at most eight.
    pub threads: u64,
    /// Writes so many files, of equal numbers of rows or one row more. 0: as many as make each about file_bytes.
    pub files: u64,
    /// About how large a file is. 0: 512 MiB.
    pub file_bytes: u64,
    /// Rows of a row group; the last one of a file may have fewer. 0: such that it takes 32 MiB in memory; more, up
    /// to 64 MiB, if it would take less than 4 MiB in the file.
    pub row_group_rows: u64,
    /// Bytes of values after which a page ends. 0: 128 KiB, and 1 MiB where a value takes 4 KiB or more.
    pub page_bytes: u64,
    /// "none", "snappy", "lz4", "zstd" or "zstd:LEVEL". NULL: for each column what makes a sample smallest.
    pub compression: *const c_char,
    /// "yes" or "no". NULL: values go to dictionaries in columns where that saves a tenth of a sample.
    pub dictionary: *const c_char,
    /// Adds a column of this name with the row ids of the dataset. NULL: none.
    pub origin: *const c_char,
    /// Spills rows to a folder in this one, which is local. NULL: in the output folder, if that is local.
    pub spill: *const c_char,
    /// One step of the work, where several machines share it: all tasks of "spill", then all of "write", then "index".
    /// NULL: all of it.
    pub step: *const c_char,
    /// The number of this task of the step "spill" or "write", from 0.
    pub task: u64,
    /// How many tasks share the step. 0: 1.
    pub tasks: u64,
    /// 1 goes on with what an earlier call left in the output folder.
    pub resume: u32,
    /// 1 replaces what an earlier call wrote there.
    pub overwrite: u32,
    /// Is told rows that are done with and rows in all, both of two passes together, and bytes that were spilled and
    /// written so far. Any thread calls it, one at a time. NULL: nobody is told.
    pub progress: rowdex_progress,
    /// The first argument of progress.
    pub progress_userdata: *mut c_void,
}

// SAFETY: repr(C), begins with its size, has only fields for which 0 is valid, and the u32 come in pairs, so there is
// no padding.
unsafe impl Versioned for rowdex_shuffle_options {}

/// What was written.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct rowdex_shuffle_report {
    /// sizeof(rowdex_shuffle_report), set by the caller.
    pub struct_size: usize,
    /// Rows that were written, or are in files that were there already.
    pub rows: u64,
    /// Output files.
    pub files: u64,
    /// Files that were finished before, by a call that this one goes on from.
    pub kept_files: u64,
    /// Bytes of the files that this call wrote.
    pub bytes_written: u64,
    /// Bytes that this call spilled.
    pub bytes_spilled: u64,
}

// SAFETY: repr(C) and numbers of 8 bytes only.
unsafe impl Versioned for rowdex_shuffle_report {}

/// Writes the rows of a dataset anew, in the order of epoch 0 of options.order, as Parquet files of a folder or of a
/// store with an index beside them, index.rdx. docs/rewriting.md says what is written, and what it takes.
///
/// The files are the same to the byte whatever the memory, the threads and the tasks are. A call that was stopped
/// (rowdex_stop_when) or has failed leaves no file half written, and another one with options.resume goes on. `report`
/// may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_shuffle(
    dataset: Option<&rowdex_dataset>,
    options: *const rowdex_shuffle_options,
    report: *mut rowdex_shuffle_report,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = require(dataset, "dataset")?;
        // SAFETY: the conventions of the header.
        let options = unsafe { handle::options(options, "options") }?;
        // SAFETY: as above.
        let out = unsafe { handle::optional_struct_out(report, "report") }?;
        // SAFETY: as above.
        let rewrite = unsafe { rewrite(dataset, &options) }?;
        // SAFETY: as above.
        let step = unsafe { handle::optional_text(options.step, "options.step") }?;
        let (task, tasks) = (options.task, options.tasks.max(1));
        let has_tasks = matches!(step, Some("spill" | "write"));
        handle::refuse_unused(
            [
                ("task", options.task > 0, has_tasks),
                ("tasks", options.tasks > 1, has_tasks),
                ("resume", options.resume != 0, step.is_none()),
                ("overwrite", options.overwrite != 0, step.is_none()),
            ],
            &step.map_or_else(|| "all of the work".to_owned(), |step| format!("the step {step:?}")),
        )?;
        let made = match step {
            None => rewrite.run()?,
            Some("spill") => rewrite.run_task(RewriteTask::Spill { task, tasks })?,
            Some("write") => rewrite.run_task(RewriteTask::Write { task, tasks })?,
            Some("index") => rewrite.run_task(RewriteTask::Index)?,
            Some(other) => {
                return Err(handle::invalid(format!("no step is called {other:?}"))
                    .with_hint("use \"spill\", \"write\" or \"index\""));
            }
        };
        if let Some(out) = out {
            out.write(told(&made));
        }
        Ok(())
    })
}

/// # Safety
/// The pointers in `options` are as the header says.
unsafe fn rewrite(dataset: &rowdex_dataset, options: &rowdex_shuffle_options) -> Result<Rewrite> {
    // SAFETY: the caller's promise.
    let order = require(unsafe { options.order.as_ref() }, "options.order")?;
    // SAFETY: as above.
    let output = unsafe { handle::path(options.output, "options.output") }?;
    let mut rewrite = Rewrite::new(dataset.one()?, order.orders(), output)
        .with_resume(options.resume != 0)
        .with_overwrite(options.overwrite != 0);
    if let Some(memory) = bytes(options.memory) {
        rewrite = rewrite.with_memory(memory);
    }
    if let Count::Exactly(threads) = count(options.threads, "options.threads")? {
        rewrite = rewrite.with_threads(threads);
    }
    rewrite = match (bytes(options.files), bytes(options.file_bytes)) {
        (Some(_), Some(_)) => return Err(handle::invalid("either files or file_bytes, and not both")),
        (Some(files), None) => rewrite.with_files(files),
        (None, Some(file_bytes)) => rewrite.with_file_bytes(file_bytes),
        (None, None) => rewrite,
    };
    if let Some(rows) = bytes(options.row_group_rows) {
        rewrite = rewrite.with_row_group_rows(rows);
    }
    if let Some(page_bytes) = bytes(options.page_bytes) {
        rewrite = rewrite.with_page_bytes(page_bytes);
    }
    // SAFETY: as above.
    if let Some(codec) = unsafe { handle::optional_text(options.compression, "options.compression") }? {
        rewrite = rewrite.with_compression(codec.parse()?);
    }
    // SAFETY: as above.
    rewrite = match unsafe { handle::optional_text(options.dictionary, "options.dictionary") }? {
        None => rewrite,
        Some("yes") => rewrite.with_dictionary(true),
        Some("no") => rewrite.with_dictionary(false),
        Some(other) => {
            return Err(
                handle::invalid(format!("`options.dictionary` is {other:?}")).with_hint("use \"yes\", \"no\" or NULL")
            );
        }
    };
    // SAFETY: as above.
    if let Some(name) = unsafe { handle::optional_text(options.origin, "options.origin") }? {
        rewrite = rewrite.with_origin(name);
    }
    // SAFETY: as above.
    if let Some(folder) = unsafe { handle::optional_path(options.spill) } {
        rewrite = rewrite.with_spill(folder);
    }
    let told = Mutex::new(Told {
        progress: Progress::new(options.progress, options.progress_userdata),
        second: if options.step.is_null() { order.orders().epoch_len(0)? } else { 0 },
        first: 0,
        done: 0,
    });
    Ok(rewrite.with_progress(move |at| told.lock().unwrap_or_else(PoisonError::into_inner).tell(&at)))
}

/// Tells progress over both passes, and never back: threads are done with some rows at once.
struct Told {
    progress: Progress,
    /// Rows of the second pass, if this call does both.
    second: u64,
    /// Rows of the first pass.
    first: u64,
    done: u64,
}

impl Told {
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

fn told(report: &RewriteReport) -> rowdex_shuffle_report {
    rowdex_shuffle_report {
        rows: report.rows,
        files: report.files,
        kept_files: report.kept_files,
        bytes_written: report.bytes_written,
        bytes_spilled: report.bytes_spilled,
        ..rowdex_shuffle_report::default()
    }
}
