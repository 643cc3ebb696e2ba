//! Views: choosing the rows that an index serves.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
#[cfg(feature = "filter")]
use std::sync::Mutex;

use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, require};
use super::index::rowdex_index;
use super::operands::rowdex_id_set;
use super::progress::{Progress, rowdex_progress};
use crate::describe::SelectDescription;
use crate::select::Select;

/// Writes a view of an index: an index of the same files that serves only some of the rows. No data is copied, and none
/// is read but for a condition and for a split by a column. Its path holds what it held, or the whole view, at any
/// moment. A view without rows is an error.
///
/// The description is JSON: {"output": "view.rdx", "where": "lang = 'en'"}. At least one choice must be made.
/// Every choice leaves rows out; only union adds rows, to what the others leave:
///
/// rows: keeps only the rows that this file lists, as the list of rowdex_id_set_new. skip: leaves out those
/// that this file lists. `kept`, if it is not NULL: keeps only these rows, by row id of the base; note: what is
/// recorded of them. intersect: keeps only rows that these indexes of the same files serve, too; exclude: leaves out
/// the rows that these serve; union: adds the rows that these serve. sample: {"fraction": 0.01, "seed": 7} keeps a
/// sample of the rows by a hash: a row stays in it when files are appended. split: {"side": "train",
/// "validation_fraction": 0.1, "seed": 0, "by": "user"} keeps one side of a split by a hash, "train" or "validation",
/// of row ids, or of the values of a column. where: keeps only rows that meet this condition in SQL. root: where the
/// data is that where and split read, instead of where the index says. overwrite: true replaces an existing file.
/// store: as for rowdex_index_open.
///
/// `progress` is told how far the condition is: rows decided, rows in all, and 0. The report is JSON that the caller
/// frees, and `report` may be NULL: rows, base_rows, source_rows, repeated (how often lists had rows beyond the first
/// time), unserved (listed rows that the base does not serve), index_bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_select(
    base: Option<&rowdex_index>,
    description: *const c_char,
    kept: Option<&rowdex_id_set>,
    progress: rowdex_progress,
    progress_userdata: *mut c_void,
    report: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let described: SelectDescription = unsafe { handle::described(description, "select") }?;
        let kept = kept.map(|kept| (*kept.rows).clone());
        let select = described.select(require(base, "base")?.0.clone(), kept)?;
        let select = watched(select, Progress::new(progress, progress_userdata));
        handle::write_report(report, &select.write(described.output())?)
    })
}

#[cfg(feature = "filter")]
fn watched(select: Select, progress: Progress) -> Select {
    let progress = Mutex::new(progress);
    select.with_progress(move |at| {
        if let Ok(progress) = progress.lock() {
            progress.tell(at.rows_done, at.rows, 0);
        }
    })
}

#[cfg(not(feature = "filter"))]
fn watched(select: Select, _: Progress) -> Select {
    select
}
