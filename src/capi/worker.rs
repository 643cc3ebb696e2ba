//! The samplers of worker processes.

use std::mem::MaybeUninit;

use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{Snapshot, out_param, require};
use super::kind;
use super::sampler::rowdex_sampler;

/// The batches of one of `workers` workers of a rank, those whose step is `worker` modulo `workers`, as a sampler of
/// their own: its step `i` is step `worker + i * workers` of the rank's. A loader of it plans for just what that worker
/// serves.
///
/// It begins with the first step of the current epoch. Steps in which the rank has no rows are left out. It tells its
/// rank, as a rowdex_batch_info of its batches does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_sampler_worker(
    sampler: Option<&rowdex_sampler>,
    worker: u64,
    workers: u64,
    own: Option<&mut MaybeUninit<*mut rowdex_sampler>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let sampler = require(sampler, "sampler")?.0.load();
        let out = out_param(own, "own")?;
        let worker = sampler.worker(worker, workers)?;
        out.write(kind::handle(rowdex_sampler(Snapshot::new(worker))));
        Ok(())
    })
}
