//! One epoch of one rank, gone through batch by batch as a training job would.

use rowdex::sampler::{BatchPlan, Batches, EpochPlan};
use xxhash_rust::xxh3::Xxh3Default;

use super::cover::{Counts, SetHash};
use crate::command::failure::Failure;
use crate::command::progress::Progress;

/// What one rank was dealt in one epoch.
#[derive(Debug, Default)]
pub(super) struct Dealt {
    pub(super) steps: u64,
    pub(super) samples: u64,
    /// The position of the first sample; the others follow at distances of the number of shards.
    pub(super) first: Option<u64>,
    /// The set of the rows that are not pads.
    pub(super) rows: SetHash,
    pub(super) pads: Vec<u64>,
    /// What is wrong with this rank by itself.
    pub(super) broken: Vec<String>,
}

/// What a rank's epoch is held against.
#[derive(Clone, Copy)]
pub(super) struct Against<'a> {
    /// Row ids are below this.
    pub(super) rows: u64,
    pub(super) batch_size: u64,
    /// The rank's batches are also made by this many workers, and must be the same; 0 for none.
    pub(super) workers: u64,
    /// Where to count the rows that are not pads.
    pub(super) counts: Option<&'a Counts>,
    pub(super) progress: &'a Progress,
}

/// More complaints than this about one rank say nothing new.
const ENOUGH: usize = 3;

/// Goes through all batches of a rank; its rows, as 8 little-endian bytes each, go to the digest in their order.
pub(super) fn deal(plan: &EpochPlan, against: Against<'_>, digest: &mut Xxh3Default) -> Result<Dealt, Failure> {
    let mut dealt = Dealt::default();
    let mut workers = workers(plan, against.workers)?;
    let mut batch = BatchPlan::default();
    let mut bytes = Vec::new();
    for step in plan.first_step()..plan.steps() {
        plan.fill(step, &mut batch)?;
        if let Some(complaint) = check(&batch, plan, &dealt, against) {
            dealt.complain(complaint);
        }
        if !workers.is_empty() {
            let turn = ((step - plan.first_step()) % workers.len() as u64) as usize;
            let theirs = workers.get_mut(turn).and_then(Iterator::next).transpose()?;
            if theirs.as_ref() != Some(&batch) {
                dealt.complain(format!(
                    "worker {turn} makes another batch of step {step} than the rank without workers"
                ));
            }
        }
        dealt.add(&batch, against.counts);
        bytes.clear();
        bytes.extend(batch.rows.iter().flat_map(|row| row.to_le_bytes()));
        digest.update(&bytes);
        against.progress.advance(1);
    }
    for (worker, mut left) in workers.into_iter().enumerate() {
        if left.next().is_some() {
            dealt.complain(format!("worker {worker} has batches left after the last step"));
        }
    }
    if dealt.samples != plan.samples_left() {
        dealt.complain(format!("{} samples instead of {}", dealt.samples, plan.samples_left()));
    }
    Ok(dealt)
}

fn workers(plan: &EpochPlan, workers: u64) -> Result<Vec<Batches>, Failure> {
    Ok((0..workers).map(|worker| plan.batches_of_worker(worker, workers)).collect::<rowdex::Result<_>>()?)
}

/// What is wrong with a batch, given those before it.
fn check(batch: &BatchPlan, plan: &EpochPlan, before: &Dealt, against: Against<'_>) -> Option<String> {
    let step = batch.step;
    let count = batch.rows.len() as u64;
    let len = plan.order().len();
    if count > against.batch_size || (count < against.batch_size && step + 1 < plan.steps()) {
        return Some(format!("step {step} has {count} rows instead of {}", against.batch_size));
    }
    let expected = before.first.map(|first| first + before.samples * batch.stride);
    if count > 0 && (expected.is_some_and(|expected| batch.first != expected) || batch.stride == 0) {
        return Some(format!("step {step} is at position {} and does not follow the one before", batch.first));
    }
    if let Some(row) = batch.rows.iter().find(|row| **row >= against.rows) {
        return Some(format!("step {step} has row {row}, and there are {} rows", against.rows));
    }
    // Pads are what lies at the order's length and beyond, and it is the first rows that are served again.
    let real = len.saturating_sub(batch.first).div_ceil(batch.stride).min(count);
    if real + batch.pads as u64 != count {
        return Some(format!("step {step} counts {} pads instead of {}", batch.pads, count - real));
    }
    let wrong = (real..count).zip(batch.rows.iter().skip(real as usize)).find(|(slot, row)| {
        let position = (batch.first + slot * batch.stride).checked_rem(len);
        position.and_then(|position| plan.order().row(position)) != Some(**row)
    });
    wrong.map(|(slot, row)| format!("step {step} has row {row} as a pad in slot {slot}, which is of another position"))
}

impl Dealt {
    fn complain(&mut self, complaint: String) {
        if self.broken.len() < ENOUGH {
            self.broken.push(complaint);
        }
    }

    fn add(&mut self, batch: &BatchPlan, counts: Option<&Counts>) {
        self.steps += 1;
        self.samples += batch.rows.len() as u64;
        if !batch.rows.is_empty() {
            self.first.get_or_insert(batch.first);
        }
        let (real, pads) = batch.rows.split_at(batch.rows.len().saturating_sub(batch.pads));
        self.rows.add(real);
        self.pads.extend_from_slice(pads);
        if let Some(counts) = counts {
            counts.add(real);
        }
    }
}
