//! Building an index.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use crate::capi::error::{call, rowdex_error, rowdex_status};
use crate::capi::handle;
use crate::capi::progress::{Progress, rowdex_progress};
use crate::describe::BuildDescription;

/// Builds an index from the footers of Parquet files. Its path holds what it held, or the whole new index, at any
/// moment. Costs about one read for each file.
///
/// The description is JSON: {"files": ["data/"], "output": "train.rdx"}. Beside these two all may be left out:
///
/// files: files, folders (searched for *.parquet, *.parq and *.pq) and patterns. root: stores paths relative to this
/// directory, which must contain all files; the deepest one that does by default. schema: "strict" (the same columns
/// and types in every file) or "union" (missing columns are null, types are widened). threads: that read footers,
/// one for each available core by default. overwrite: true replaces an existing file. update: true updates the index at
/// output, if there is one: its unchanged leading files keep their row ids. footers: false does not store footers, so
/// everyone who opens the index reads them again. partitions: false does not turn folders named key=value into columns.
/// rename: columns of the files that are served by other names, {"content": "text"}. lengths: columns by which it is
/// noted how long rows are, as rowdex_index_note_lengths does; progress is told once more, then. store: as for
/// rowdex_index_open.
///
/// `progress` is called after each window of files, by the thread that builds. The report is JSON that the caller
/// frees, and `report` may be NULL: files, kept_files (of an update), read_files, requests, footer_bytes, row_groups,
/// rows, index_bytes, repeated_files (named more than once), unlike_files (with other columns than the first one), and
/// unlike_example, a text that names one of these and says in what it differs, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_index_build(
    description: *const c_char,
    progress: rowdex_progress,
    progress_userdata: *mut c_void,
    report: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let described: BuildDescription = unsafe { handle::described(description, "build") }?;
        let progress = Progress::new(progress, progress_userdata);
        let builder =
            described.builder()?.with_progress(move |build| progress.tell(build.files_done, build.files, build.rows));
        handle::write_report(report, &builder.build(described.output())?)
    })
}
