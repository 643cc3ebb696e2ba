//! Row groups that a loader could not read.

use std::mem::MaybeUninit;

use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{out_param, require};
use super::loader::rowdex_loader;
use crate::loader::Loader;

/// Why row groups could not be read so far, whose rows others stand in for: errors for rowdex_error_at, with
/// `lost_group` in what they say, which the caller frees by rowdex_error_free. NULL if there are none, as always unless
/// faults are to be substituted.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_loader_lost_groups(
    loader: Option<&rowdex_loader>,
    lost: Option<&mut MaybeUninit<*mut rowdex_error>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let loader = require(loader, "loader")?;
        let out = out_param(lost, "lost")?;
        let lost = loader.served.ask(Loader::lost_groups)?;
        let errors = lost.iter().map(|group| rowdex_error::of_lost_group(group.row_group, &group.error));
        out.write(rowdex_error::several(errors));
        Ok(())
    })
}
