//! What can be had of a group of which something cannot be read.
//!
//! An error of a group of several row groups is of one of them. So its row groups are then read one by one: an error
//! comes at the row that needs what cannot be read, and no sooner, and a row group is lost alone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::RecordBatch;

use super::faults::{Faults, row_group_of, undecoded};
use super::groups::Groups;
use super::held::DueRows;
use super::plan::PIECES;
use rowdex_base::error::{Error, Result};
use rowdex_rows::Place;

/// Notes which row groups of a group cannot be read, because reading it came to this error. Counts what it decodes, and
/// returns whether there are any.
///
/// # Errors
/// One that no row is to be replaced for.
pub(crate) fn lose(groups: &dyn Groups, faults: &Faults, group: u32, error: Error, decodes: &mut u64) -> Result<bool> {
    let row_groups = groups.row_groups(group);
    if row_groups.len() == 1 {
        *decodes += 1;
        return faults.lose(row_groups.start, error, groups).map(|()| true);
    }
    let mut lost = false;
    for row_group in row_groups.filter(|row_group| !groups.slots_of(*row_group).is_empty()) {
        *decodes += 1;
        if let Err(error) = read(groups, group, row_group) {
            faults.lose(row_group, error, groups)?;
            lost = true;
        }
    }
    Ok(lost)
}

/// The rows at these slots of a group that cannot be read as a whole, up to the first that cannot be had, and then the
/// error. Counts what it decodes.
///
/// # Errors
/// `error`, if each row group can be read.
pub(crate) fn salvage(
    groups: &dyn Groups,
    group: u32,
    slots: &[u32],
    error: Error,
    decodes: &mut u64,
) -> Result<DueRows> {
    let first = groups.row_groups(group).start;
    let mut parts: Vec<Option<u32>> = vec![None; groups.row_groups(group).len()];
    let mut batches = Vec::new();
    let mut places: Vec<Place> = Vec::with_capacity(slots.len());
    for slot in slots {
        let row_group = row_group_of(group, *slot, groups);
        let own = groups.slots_of(row_group);
        let part = match parts[(row_group - first) as usize] {
            Some(part) => part,
            None => {
                *decodes += 1;
                match read(groups, group, row_group) {
                    Ok(batch) => batches.push(batch),
                    Err(error) => {
                        let missing = slots.len() - places.len();
                        return match places.is_empty() {
                            true => Ok(DueRows::failed(error, missing)),
                            false => Ok(DueRows::merge(&batches, &places, PIECES, false)?.before(error, missing)),
                        };
                    }
                }
                *parts[(row_group - first) as usize].insert(batches.len() as u32 - 1)
            }
        };
        places.push((part, slot - own.start));
    }
    // Row groups of which nothing is due may be the ones that cannot be read.
    if places.is_empty() { Err(error) } else { DueRows::merge(&batches, &places, PIECES, false) }
}

fn read(groups: &dyn Groups, group: u32, row_group: u32) -> Result<RecordBatch> {
    let slots: Vec<u32> = groups.slots_of(row_group).collect();
    let decode = || groups.read_whole(group, Some(&slots), None);
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| Err(undecoded(row_group)))
}
