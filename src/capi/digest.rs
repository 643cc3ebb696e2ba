//! Digests of the rows of a dataset: alone, and compared with those of another.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::dataset::rowdex_dataset;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned, require};
use super::orders::rowdex_order;
use super::progress::{Progress, rowdex_progress};
use crate::digest::{DigestProgress, RowsDigest, SameRows};

/// What the rows of a dataset are compared with. All zeros: with nothing, and their digest is told.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_digest_options {
    /// sizeof(rowdex_digest_options)
    pub struct_size: usize,
    /// Compares the rows with those of this dataset, over the columns that both serve. NULL: with none.
    pub other: *const rowdex_dataset,
    /// Compares the order as well: row i of `other` is row order(i) of the dataset. NULL: any order.
    pub order: *const rowdex_order,
    /// The epoch of the order.
    pub epoch: u64,
    /// Is told rows that were read, rows to read, and 0. NULL: nobody is told.
    pub progress: rowdex_progress,
    /// The first argument of progress.
    pub progress_userdata: *mut c_void,
}

// SAFETY: repr(C), begins with its size, and has only fields of 8 bytes for which 0 is valid.
unsafe impl Versioned for rowdex_digest_options {}

/// Digests of rows, and what a comparison found.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct rowdex_digest_info {
    /// sizeof(rowdex_digest_info), set by the caller.
    pub struct_size: usize,
    /// Rows of the dataset.
    pub rows: u64,
    /// The low half of their digest, of 128 bits.
    pub low: u64,
    /// The high half.
    pub high: u64,
    /// Rows of the other dataset, and the halves of their digest.
    pub other_rows: u64,
    /// As low.
    pub other_low: u64,
    /// As high.
    pub other_high: u64,
    /// 1 if every row of the dataset is once in the other one and nothing else is; 0 if not, or where that was not
    /// compared: the order leaves rows out, or repeats some.
    pub same_rows: u64,
    /// 1 if the other dataset has its rows in the order; 0 if not, or without an order.
    pub in_order: u64,
}

// SAFETY: repr(C) and integers of 8 bytes only.
unsafe impl Versioned for rowdex_digest_info {}

/// The digest of the rows of a dataset over the columns that it serves, whatever their order; docs/digests.md specifies
/// it. With `other` the rows of both are compared: `difference` is then what is not so, with an order with the file
/// and row group of rows that differ, or NULL if all is so. The caller frees it by rowdex_free.
///
/// Reads and decodes all rows once, on the threads of each dataset. `info` and `difference` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_digest(
    dataset: Option<&rowdex_dataset>,
    options: *const rowdex_digest_options,
    info: *mut rowdex_digest_info,
    difference: Option<&mut MaybeUninit<*mut rowdex_error>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = require(dataset, "dataset")?.one()?;
        // SAFETY: the conventions of the header.
        let options = unsafe { handle::options(options, "options") }?;
        // SAFETY: as above.
        let out = unsafe { handle::optional_struct_out(info, "info") }?;
        // SAFETY: as above.
        let (other, order) = unsafe { (options.other.as_ref(), options.order.as_ref()) };
        if other.is_none() && order.is_some() {
            return Err(handle::invalid("an order is for a comparison with another dataset"));
        }
        handle::refuse_unused([("options.epoch", options.epoch != 0, order.is_some())], "rows without an order")?;
        let told = DigestTeller::new(Progress::new(options.progress, options.progress_userdata));
        let tell = |progress: DigestProgress| told.tell(progress);
        let (found, problem) = match other {
            None => (alone(&dataset.rows_digest(&tell)?), None),
            Some(other) => {
                let mut same = SameRows::new(dataset, other.one()?);
                if let Some(order) = order {
                    same = same.with_order(order.orders().epoch(options.epoch)?);
                }
                let report = same.check(&tell)?;
                let found = rowdex_digest_info {
                    other_rows: report.second.rows,
                    other_low: report.second.sum as u64,
                    other_high: (report.second.sum >> 64) as u64,
                    same_rows: u64::from(report.same_rows == Some(true)),
                    in_order: u64::from(report.in_order == Some(true)),
                    ..alone(&report.first)
                };
                (found, report.problem("the dataset", "the other one"))
            }
        };
        if let Some(out) = out {
            out.write(found);
        }
        if let Some(difference) = difference {
            difference.write(rowdex_error::several(problem.iter().map(rowdex_error::new)));
        }
        Ok(())
    })
}

fn alone(digest: &RowsDigest) -> rowdex_digest_info {
    let RowsDigest { rows, sum, .. } = digest;
    rowdex_digest_info { rows: *rows, low: *sum as u64, high: (sum >> 64) as u64, ..rowdex_digest_info::default() }
}

/// Tells progress by one thread at a time, and never back.
struct DigestTeller {
    progress: Mutex<Progress>,
    rows_done: AtomicU64,
}

impl DigestTeller {
    fn new(progress: Progress) -> Self {
        Self { progress: Mutex::new(progress), rows_done: AtomicU64::new(0) }
    }

    fn tell(&self, progress: DigestProgress) {
        let DigestProgress { rows_done, rows, .. } = progress;
        self.rows_done.fetch_max(rows_done, Ordering::Relaxed);
        let told = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        told.tell(self.rows_done.load(Ordering::Relaxed), rows, 0);
    }
}
