//! Where a loader stands, and how it is set elsewhere.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use super::rowdex_loader;
use crate::capi::error::{call, give, rowdex_error, rowdex_status};
use crate::capi::handle::{self, require};
use crate::loader::Standing;

/// Where a loader stands.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_loader_info {
    /// The epoch that the next batch is of.
    pub epoch: u64,
    /// The step that it is of.
    pub step: u64,
    /// How many steps that epoch has in all, wherever the run was resumed. Epochs of packs differ.
    pub steps: u64,
    /// How many of them are left.
    pub steps_left: u64,
}

impl From<&Standing> for rowdex_loader_info {
    fn from(standing: &Standing) -> Self {
        let Standing { step, steps, steps_left, .. } = *standing;
        Self { epoch: standing.epoch(), step, steps, steps_left }
    }
}

/// Where a loader stands.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_loader_get_info(
    loader: Option<&rowdex_loader>,
    info: Option<&mut MaybeUninit<rowdex_loader_info>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    give(error, info, "info", || Ok((&require(loader, "loader")?.served.seen().standing).into()))
}

/// Where the run stands after the last step of which all batches were handed out, as text of one line with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_state(
    loader: Option<&rowdex_loader>,
    buffer: *mut c_char,
    capacity: usize,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let seen = require(loader, "loader")?.served.seen();
        // SAFETY: the conventions of the header.
        let buffer = unsafe { handle::buffer(buffer.cast(), capacity, "buffer") }?;
        handle::write_text(&seen.standing.state.to_string(), buffer)
    })
}

/// Continues with this step of an epoch. What was read ahead is dropped, unless it comes next anyway. After an error,
/// that error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_seek(
    loader: *mut rowdex_loader,
    epoch: u64,
    step: u64,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let loader = unsafe { handle::borrow(loader, "loader") }?;
        loader.served.with(|loader| loader.seek(epoch, step))
    })
}

/// Begins an epoch, or continues one that was resumed, and says which one that is and where it begins: `*epoch`, or for
/// NULL the next one that was not begun. `info` may be NULL.
///
/// If some of the current epoch's batches were served and others not, these are dropped, and so is what was read ahead,
/// unless it comes next anyway. The epoch's last batch is the one with step + 1 == steps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_begin_epoch(
    loader: *mut rowdex_loader,
    epoch: Option<&u64>,
    info: Option<&mut MaybeUninit<rowdex_loader_info>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let loader = unsafe { handle::borrow(loader, "loader") }?;
        let standing = loader.served.with(|loader| {
            match epoch {
                Some(epoch) => loader.set_epoch(*epoch),
                None => drop(loader.epoch()),
            }
            Ok(loader.standing())
        })?;
        if let Some(out) = info {
            out.write((&standing).into());
        }
        Ok(())
    })
}
