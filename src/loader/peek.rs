//! Looking at what comes next before it is handed out, and going on at a place: for those who hand batches out one by
//! one, and several at a time to whoever converts them.

use std::sync::Arc;

use arrow_array::RecordBatch;

use super::batch::BatchSlice;
use super::{Batch, Loader, NextBatch, Options, Substituted, Units};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::sampler::{DistributedSampler, State};

impl Loader {
    /// The batch of this step, which must be the next, or for a single rank the one after that which was looked at
    /// last; or that one and those after it as one batch, if they are there already, lie beside it in memory, and have
    /// no more than so many rows. `None` at the end of the epoch. They are handed out by [`advance`](Self::advance)
    /// alone.
    pub(crate) fn peek(&mut self, epoch: u64, step: u64, max_rows: usize) -> Result<Option<Batch>> {
        self.control.check()?;
        let steps = self.steps_of(epoch);
        if step >= steps {
            // Whoever looks ahead may look past the end while batches are left.
            if self.place.epoch == epoch && self.next_step() >= steps {
                // An epoch without a batch is over before it has begun.
                self.place = NextBatch { epoch: epoch.saturating_add(1), batch: 0 };
            }
            return Ok(None);
        }
        let ahead = step.saturating_sub(self.next_step()) as usize;
        // The step does not say which rank's batch it is.
        let ahead = if self.samplers.len() == 1 && ahead == self.looked { ahead } else { 0 };
        self.expect(epoch, step - ahead as u64)?;
        if !self.ready(ahead)? {
            return Ok(None);
        }
        let waiting = || self.waiting.iter().skip(ahead);
        let Some(first) = waiting().next().filter(|batch| batch.epoch == epoch) else { return Ok(None) };
        self.looked = ahead + 1;
        let full = self.samplers.first().map_or(0, DistributedSampler::batch_size);
        let mut rows = 0;
        let mut parts = 0;
        for batch in waiting() {
            let more = batch.row_ids.len();
            let follows = parts == 0
                || (self.samplers.len() == 1
                    && first.packs.is_none()
                    && batch.epoch == epoch
                    && rows + more <= max_rows
                    && first.part.goes_on(rows, &batch.part));
            // Batches are taken apart again by the batch size, so only the last one may have fewer rows.
            if !follows || rows as u64 != full.saturating_mul(parts as u64) {
                break;
            }
            (rows, parts) = (rows + more, parts + 1);
        }
        let records = if parts > 1 { first.part.rows(rows) } else { None };
        Ok(Some(match records {
            Some(records) => join(first, records, waiting().take(parts)),
            None => first.clone(),
        }))
    }

    /// Hands out the batch of this step, which must be the next.
    pub(crate) fn advance(&mut self, epoch: u64, step: u64) -> Result<()> {
        self.control.check()?;
        self.expect(epoch, step)?;
        self.serve(Some(epoch)).map(drop)
    }

    /// Goes on with this step of an epoch. What was read ahead is dropped, unless that is what comes next anyway.
    ///
    /// # Errors
    ///
    /// `OutOfRange` if the epoch has no such step left, and the error that ended the loader, if one did.
    pub(crate) fn seek(&mut self, epoch: u64, step: u64) -> Result<()> {
        if let Some(error) = self.failure() {
            return Err(error.clone());
        }
        if self.over.is_none() && (self.place.epoch, self.next_step()) == (epoch, step) {
            return Ok(());
        }
        let mut samplers = self.samplers.to_vec();
        for sampler in &mut samplers {
            sampler.set_epoch(epoch);
        }
        let first = samplers.first().map_or(0, |sampler| sampler.first_step(epoch));
        let state = match (samplers.first(), step.checked_sub(1)) {
            (Some(sampler), Some(before)) if step > first => sampler.state_after(epoch, before)?,
            (Some(sampler), _) if step == first => sampler.state(),
            _ => {
                let message = format!("step {step} of an epoch that was resumed at step {first}");
                return Err(Error::new(ErrorKind::OutOfRange, message));
            }
        };
        let ranks = samplers.len() as u64;
        self.samplers = samplers.into();
        self.go_to(NextBatch { epoch, batch: if step > first { step * ranks } else { 0 } });
        self.state = state;
        Ok(())
    }

    fn expect(&self, epoch: u64, step: u64) -> Result<()> {
        if (self.place.epoch, self.next_step()) == (epoch, step) {
            return Ok(());
        }
        let message =
            "another iteration over this loader was begun, or it was set to another epoch, before this one ended";
        Err(Error::new(ErrorKind::Closed, message).with_hint("give each iteration another loader"))
    }

    /// Where it stands, for other threads, and for a loader of its own that goes on there.
    pub(crate) fn standing(&self) -> Standing {
        Standing {
            units: Arc::clone(&self.units),
            samplers: Arc::clone(&self.samplers),
            options: self.options.clone(),
            place: self.place,
            state: self.state,
            step: self.next_step(),
            steps: self.steps(),
            steps_left: self.steps_left(),
        }
    }
}

/// Where a loader stands.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    units: Arc<Units>,
    samplers: Arc<[DistributedSampler]>,
    options: Options,
    place: NextBatch,
    pub(crate) state: State,
    pub(crate) step: u64,
    pub(crate) steps: u64,
    pub(crate) steps_left: u64,
}

impl Standing {
    pub(crate) fn epoch(&self) -> u64 {
        self.place.epoch
    }

    /// Another loader that goes on here, with the batch after the last one that was handed out.
    pub(crate) fn open(&self) -> Result<Loader> {
        let loader = Loader::new(Arc::clone(&self.units), self.samplers.to_vec(), self.options.clone())?;
        Ok(Loader { place: self.place, state: self.state, ..loader })
    }
}

/// Batches that follow each other as one, whose rows are `records`.
fn join<'a>(first: &Batch, records: RecordBatch, parts: impl Iterator<Item = &'a Batch>) -> Batch {
    let mut whole = Batch { records, part: BatchSlice::default(), ..first.clone() };
    for part in parts.skip(1) {
        let before = whole.row_ids.len();
        let moved = part.substituted.iter().map(|row| Substituted { place: before + row.place, ..*row });
        whole.substituted.extend(moved);
        whole.row_ids.extend_from_slice(&part.row_ids);
        whole.positions.extend_from_slice(&part.positions);
        whole.pads += part.pads;
    }
    whole
}
