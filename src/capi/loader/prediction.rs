//! What a loader will do.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use serde::Serialize;

use super::options::{builder, rowdex_loader_options};
use crate::capi::dataset::rowdex_dataset;
use crate::capi::error::{call, rowdex_error, rowdex_status};
use crate::capi::handle;
use crate::capi::packs::ForecastReport;
use crate::capi::sampler::rowdex_sampler;
use crate::loader::Estimate;

#[derive(Serialize)]
struct PredictionReport {
    #[serde(flatten)]
    prediction: Estimate,
    packs: Option<ForecastReport>,
}

/// What a loader with these arguments will do, from the index alone. The report is JSON that the caller frees. It takes
/// a fraction of a second, with packs as long as planning an epoch and packing some of its blocks.
///
/// first_passes, first_decodes, first_bytes_read and first_requests are of the first epoch, in which no
/// row is held at the beginning, and passes, decodes, bytes_read and requests of every later one: decodes of each row
/// group on average, row groups decoded, bytes read, and requests to a store. first_batch_decodes: row groups decoded
/// before the first batch is there. peak_bytes: the most bytes held; bookkeeping_bytes: how many of them are not rows.
/// units: what row groups are read, decoded and held in: one for each, or for several small ones of a file.
/// least_memory: the least that a loader takes. packs: null where rows are served, or what an epoch of packs comes to
/// on all ranks together: steps, packs (those that come twice and opened ones included), opened (so that steps are
/// equal), pieces (each counted once), pieces_a_pack, fill (the part of all places that has tokens), tokens,
/// tokens_truncated, tokens_dropped, tokens_left_out and tokens_repeated (by the tail), rows_split, rows_truncated,
/// rows_dropped, rows_empty, cost_imbalance (what the rank with the most work has at a step, as a multiple of the mean,
/// on average over steps_looked_at), seconds_to_plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_estimate(
    dataset: Option<&rowdex_dataset>,
    sampler: Option<&rowdex_sampler>,
    options: *const rowdex_loader_options,
    report: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let builder = unsafe { builder(dataset, sampler, options) }?;
        // First, as it times the planning.
        let packs = ForecastReport::of(&handle::require(sampler, "sampler")?.0.load())?;
        handle::write_report(report, &PredictionReport { prediction: builder.estimate()?, packs })
    })
}
