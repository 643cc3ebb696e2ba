//! Batches of packs: which pieces they have, and what an epoch of them comes to.

use std::mem::MaybeUninit;
use std::time::Instant;

use serde_json::{Value, json};

use super::handle;
use ::rowdex_order::sampler::{BatchPlan, DistributedSampler, PackForecast};
use rowdex_base::error::Result;

/// Where the pieces of a step are written: for each row id one, pack after pack.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_pieces {
    /// The token of its row that each piece begins with: room for one for each row id.
    pub offsets: *mut u64,
    /// How many tokens each piece has: room for the same number.
    pub lengths: *mut u64,
    /// How many pieces there are up to the end of each pack.
    pub packs: *mut u64,
    /// For how many packs there is room: the batch size is always enough.
    pub packs_capacity: usize,
    /// How many packs there are.
    pub num_packs: *mut usize,
}

/// What the current epoch of a sampler comes to on all ranks together, if it serves packs; null otherwise.
pub(super) fn forecast(sampler: &DistributedSampler) -> Result<Value> {
    if sampler.packed().is_none() {
        return Ok(Value::Null);
    }
    let started = Instant::now();
    let epoch = sampler.epoch();
    sampler.plan(epoch)?;
    let seconds_to_plan = started.elapsed().as_secs_f64();
    let told = sampler.forecast(epoch, PackForecast::STEPS)?;
    Ok(json!({
        "steps": told.steps,
        "packs": told.packs,
        "opened": told.opened,
        "pieces": told.counts.pieces,
        "pieces_a_pack": told.pieces_a_pack(),
        "fill": told.fill,
        "tokens": told.tokens(),
        "tokens_truncated": told.counts.tokens_truncated,
        "tokens_dropped": told.counts.tokens_dropped,
        "tokens_left_out": told.tokens_left_out,
        "tokens_repeated": told.tokens_repeated,
        "rows_split": told.counts.rows_split,
        "rows_truncated": told.counts.rows_truncated,
        "rows_dropped": told.counts.rows_dropped,
        "rows_empty": told.counts.rows_empty,
        "cost_imbalance": told.imbalance,
        "steps_looked_at": told.steps_looked_at,
        "seconds_to_plan": seconds_to_plan,
    }))
}

impl rowdex_pieces {
    /// Writes the pieces of a batch.
    ///
    /// # Safety
    /// What is pointed to is valid, as the header says, with room for `capacity` pieces.
    pub(super) unsafe fn write(&self, batch: &BatchPlan, capacity: usize, kind: &str) -> Result<()> {
        if kind == "rows" {
            let message = format!("the pieces of a batch of {kind}");
            return Err(handle::invalid(message).with_hint("only a sampler with `pack` has pieces"));
        }
        // SAFETY: the caller's promise.
        let offsets = unsafe { handle::buffer(self.offsets, capacity, "pieces.offsets") }?;
        // SAFETY: as above.
        let lengths = unsafe { handle::buffer(self.lengths, capacity, "pieces.lengths") }?;
        // SAFETY: as above.
        let packs = unsafe { handle::buffer(self.packs, self.packs_capacity, "pieces.packs") }?;
        // SAFETY: as above.
        let num_packs = unsafe { handle::buffer(self.num_packs, 1, "pieces.num_packs") }?;
        if packs.len() < batch.packs.len() {
            let message = format!("room for {} packs, and the batch has {}", packs.len(), batch.packs.len());
            return Err(handle::invalid(message).with_hint("make room for as many as the batch size"));
        }
        put(offsets, batch.pieces.iter().map(|piece| piece.offset));
        put(lengths, batch.pieces.iter().map(|piece| piece.length));
        put(packs, batch.packs.iter().map(|end| *end as u64));
        put(num_packs, [batch.packs.len()]);
        Ok(())
    }
}

fn put<T>(to: &mut [MaybeUninit<T>], values: impl IntoIterator<Item = T>) {
    for (to, value) in to.iter_mut().zip(values) {
        to.write(value);
    }
}
