//! Row groups that a loader could not read.

use std::mem::MaybeUninit;
use std::ptr;

use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, out_param, require};
use super::loader::rowdex_loader;

/// The row groups that a loader found unreadable, whose rows others stand in for.
#[derive(Debug)]
pub struct rowdex_lost_groups(Vec<(u32, rowdex_error)>);

/// The row groups that were found unreadable so far, which the caller frees; always none unless faults are to be
/// substituted.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_loader_lost_groups(
    loader: Option<&rowdex_loader>,
    lost: Option<&mut MaybeUninit<*mut rowdex_lost_groups>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let loader = require(loader, "loader")?;
        let out = out_param(lost, "lost")?;
        let lost = loader.served.with(|loader| Ok(loader.lost_groups()))?;
        let lost = lost.iter().map(|group| (group.row_group, rowdex_error::new(&group.error)));
        out.write(handle::handle(rowdex_lost_groups(lost.collect())));
        Ok(())
    })
}

/// How many there are.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_lost_groups_len(lost: Option<&rowdex_lost_groups>) -> usize {
    lost.map_or(0, |lost| lost.0.len())
}

/// Why one of them could not be read, and if `row_group` is not NULL, its number in the index, or for a mixed dataset
/// over all indexes. The error belongs to the list; NULL, and no number, beyond the last one.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_lost_groups_get(
    lost: Option<&rowdex_lost_groups>,
    i: usize,
    row_group: Option<&mut MaybeUninit<u32>>,
) -> *const rowdex_error {
    let Some((number, error)) = lost.and_then(|lost| lost.0.get(i)) else { return ptr::null() };
    if let Some(row_group) = row_group {
        row_group.write(*number);
    }
    ptr::from_ref(error)
}

/// Ends the life of the list and of its errors.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_lost_groups_free(lost: Option<Box<rowdex_lost_groups>>) {
    handle::free(lost);
}
