//! Which rank this process is.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned};
use ::rowdex_order::sampler::Launch;

/// In a launch: what the launcher does not say.
pub const ROWDEX_UNKNOWN: u32 = u32::MAX;

/// The rank that a launcher gave this process.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_launch {
    /// sizeof(rowdex_launch), set by the caller.
    pub struct_size: usize,
    /// The rank of this process, below world_size.
    pub rank: u32,
    /// How many ranks there are.
    pub world_size: u32,
    /// Which of the ranks on this machine it is; ROWDEX_UNKNOWN if the launcher does not say.
    pub local_rank: u32,
    /// How many ranks there are on this machine; ROWDEX_UNKNOWN if the launcher does not say.
    pub local_world_size: u32,
    /// Whose variables these are: "torchrun", "Open MPI", "PMI" or "Slurm". The text is valid for ever.
    pub launcher: *const c_char,
}

// SAFETY: repr(C); integers of 4 bytes in pairs, and of 8, and a pointer.
unsafe impl Versioned for rowdex_launch {}

/// What torchrun, Open MPI, PMI or Slurm put into the environment of this process.
///
/// It is an error if no launcher is found, if a variable is missing or no number, or if launchers disagree; it names
/// the variables. The environment must not be changed by another thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_launch_from_env(
    launch: *mut rowdex_launch,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let out = unsafe { handle::struct_out(launch, "launch") }?;
        let found = Launch::from_env()?;
        out.write(rowdex_launch {
            struct_size: 0,
            rank: found.rank,
            world_size: found.world_size,
            local_rank: found.local_rank.unwrap_or(ROWDEX_UNKNOWN),
            local_world_size: found.local_world_size.unwrap_or(ROWDEX_UNKNOWN),
            launcher: found.launcher.as_ptr(),
        });
        Ok(())
    })
}
