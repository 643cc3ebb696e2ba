//! What a loader will do, and what would let it decode less.

use std::mem::MaybeUninit;

use super::options::{builder, rowdex_loader_options};
use crate::capi::dataset::rowdex_dataset;
use crate::capi::error::{call, rowdex_error, rowdex_status};
use crate::capi::handle::{self, Versioned};
use crate::capi::packs::rowdex_pack_forecast;
use crate::capi::sampler::rowdex_sampler;
use crate::loader::{Advice, Means, Prediction};

/// What a loader will do.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_prediction {
    /// sizeof(rowdex_prediction), set by the caller.
    pub struct_size: usize,
    /// Decodes of each row group in the first epoch, in which no row is held at the beginning, on average.
    pub first_passes: f64,
    /// Decodes of each row group in every later epoch, on average.
    pub passes: f64,
    /// Row groups decoded in every later epoch.
    pub decodes: f64,
    /// Row groups decoded before the first batch is there.
    pub first_batch_decodes: u64,
    /// The most bytes held.
    pub peak_bytes: u64,
    /// Row groups decoded in the first epoch.
    pub first_decodes: f64,
    /// Bytes read in the first epoch.
    pub first_bytes_read: u64,
    /// Bytes read in every later epoch.
    pub bytes_read: u64,
    /// Requests to a store in the first epoch; 0 for local files.
    pub first_requests: u64,
    /// Requests to a store in every later epoch.
    pub requests: u64,
    /// Units that row groups are read, decoded and held in: one for each, or for several small ones of a file.
    pub units: u64,
    /// How many of peak_bytes are not rows: what is known of row groups, and of the rows that are looked ahead at.
    pub bookkeeping_bytes: u64,
    /// The least memory that a loader takes.
    pub least_memory: u64,
    /// What the packs of the sampler come to.
    pub packs: rowdex_pack_forecast,
}

// SAFETY: repr(C) and numbers of 8 bytes only.
unsafe impl Versioned for rowdex_prediction {}

impl rowdex_prediction {
    fn of(told: Prediction, packs: rowdex_pack_forecast) -> Self {
        let Prediction {
            first_passes,
            passes,
            first_decodes,
            decodes,
            first_bytes_read,
            bytes_read,
            first_requests,
            requests,
            first_batch_decodes,
            peak_bytes,
            units,
            bookkeeping_bytes,
            least_memory,
        } = told;
        Self {
            struct_size: 0,
            first_passes,
            passes,
            decodes,
            first_batch_decodes,
            peak_bytes,
            first_decodes,
            first_bytes_read,
            bytes_read,
            first_requests,
            requests,
            units,
            bookkeeping_bytes,
            least_memory,
            packs,
        }
    }
}

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
    /// 1: writing the rows anew in a random order (`rowdex rewrite`), and then the order "sequential".
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

impl From<Vec<Advice>> for rowdex_advice {
    fn from(ways: Vec<Advice>) -> Self {
        let mut told = Self::default();
        for way in ways {
            let (passes, bytes_read) = match way.means {
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
            (*passes, *bytes_read) = (way.passes, way.bytes_read);
        }
        told
    }
}

/// What a loader with these arguments will do, and what would let it decode less, from the index alone. One of
/// `prediction` and `advice` may be NULL, and is not worked out then.
///
/// A prediction takes a fraction of a second, with packs as long as planning an epoch and packing some of its blocks;
/// advice takes some times as long. All of the advice is 0 where an epoch takes fewer than two passes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_predict(
    dataset: Option<&rowdex_dataset>,
    sampler: Option<&rowdex_sampler>,
    options: *const rowdex_loader_options,
    prediction: *mut rowdex_prediction,
    advice: *mut rowdex_advice,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let prediction = unsafe { handle::optional_struct_out(prediction, "prediction") }?;
        // SAFETY: as above.
        let advice = unsafe { handle::optional_struct_out(advice, "advice") }?;
        if prediction.is_none() && advice.is_none() {
            return Err(handle::null("prediction"));
        }
        // SAFETY: as above.
        let builder = unsafe { builder(dataset, sampler, options) }?;
        let predict = || {
            // First, as it times the planning.
            let packs = rowdex_pack_forecast::of(&handle::require(sampler, "sampler")?.0.load())?;
            Ok(rowdex_prediction::of(builder.predict()?, packs))
        };
        let predicted = prediction.is_some().then(predict).transpose()?;
        let advised = advice.is_some().then(|| builder.advise()).transpose()?;
        if let (Some(out), Some(told)) = (prediction, predicted) {
            out.write(told);
        }
        if let (Some(out), Some(told)) = (advice, advised) {
            out.write(told.into());
        }
        Ok(())
    })
}
