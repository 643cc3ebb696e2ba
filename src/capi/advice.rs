//! What would let a loader decode less.

use std::mem::MaybeUninit;

use super::dataset::rowdex_dataset;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned};
use super::loader::{builder, rowdex_loader_options};
use super::sampler::rowdex_sampler;
use crate::loader::Means;

/// What would let a loader decode less. Of each way: what it takes, 0 if it would not save a tenth of the passes, and
/// the passes and the bytes read in every epoch after the first.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct rowdex_advice {
    /// sizeof(rowdex_advice), set by the caller.
    pub struct_size: usize,
    /// So many bytes of memory in the options of the loader.
    pub memory: u64,
    /// Passes with that memory.
    pub memory_passes: f64,
    /// Bytes read with that memory.
    pub memory_bytes_read: u64,
    /// The order "blocks" with this k.
    pub blocks: u64,
    /// Passes with that order.
    pub blocks_passes: f64,
    /// Bytes read with that order.
    pub blocks_bytes_read: u64,
    /// 1: writing the rows anew in a random order (`rowdex shuffle`), and then the order "sequential".
    pub rewrite: u64,
    /// Passes over what was written so.
    pub rewrite_passes: f64,
    /// Bytes read of what was written so.
    pub rewrite_bytes_read: u64,
    /// One loader shared by so many ranks of a machine, with the memory of all of them.
    pub share: u64,
    /// Passes of that loader for each of the ranks.
    pub share_passes: f64,
    /// Bytes that that loader reads for each of the ranks.
    pub share_bytes_read: u64,
}

// SAFETY: repr(C) and numbers of 8 bytes only.
unsafe impl Versioned for rowdex_advice {}

/// What would let a loader with these arguments decode less, from the index alone, by what rowdex_loader_predict goes
/// by. All is 0 where an epoch takes fewer than two passes. Takes some times as long as a prediction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_advise(
    dataset: Option<&rowdex_dataset>,
    sampler: Option<&rowdex_sampler>,
    options: *const rowdex_loader_options,
    advice: *mut rowdex_advice,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let out = unsafe { handle::struct_out(advice, "advice") }?;
        let mut told = rowdex_advice::default();
        // SAFETY: as above.
        for one in unsafe { builder(dataset, sampler, options) }?.advise()? {
            let (passes, bytes_read) = match one.means {
                Means::Memory(bytes) => {
                    told.memory = bytes;
                    (&mut told.memory_passes, &mut told.memory_bytes_read)
                }
                Means::Blocks(k) => {
                    told.blocks = k;
                    (&mut told.blocks_passes, &mut told.blocks_bytes_read)
                }
                Means::Rewrite => {
                    told.rewrite = 1;
                    (&mut told.rewrite_passes, &mut told.rewrite_bytes_read)
                }
                Means::Share(ranks) => {
                    told.share = ranks.into();
                    (&mut told.share_passes, &mut told.share_bytes_read)
                }
            };
            (*passes, *bytes_read) = (one.passes, one.bytes_read);
        }
        out.write(told);
        Ok(())
    })
}
