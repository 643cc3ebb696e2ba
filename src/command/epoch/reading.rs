//! Reading what ranks are served, and telling what it was and what it cost.

use std::ops::Range;
use std::time::Instant;

use rowdex::dataset::{Counters, DiskCacheCounters};
use rowdex::digest::RowDigests;
use rowdex::sampler::{BatchPlan, EpochPlan, State};
use rowdex::{Batch, Dataset, DistributedSampler, Loader};
use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3Default;

use super::EpochArgs;
use super::served::{ServedRows, ServedTokens};
use crate::command::failure::Failure;
use crate::command::output;
use crate::command::progress::Progress;
use crate::command::sampling::first_of_each;

/// So many of the dropped and of the repeated rows of an epoch are named.
const MOST_NAMED: usize = 100;

/// Reads every batch of every chosen rank, step by step, so that the rows of a step are neighbours in the order.
///
/// Counts of rows are of one epoch, the last; costs and digests are of all of them.
pub(super) fn read(dataset: &Dataset, args: &EpochArgs) -> Result<Value, Failure> {
    let sampling = &args.sampling;
    let chosen = sampling.choose(dataset)?;
    let mut samplers = sampling.samplers(&chosen)?;
    if let Some(state) = &args.resume {
        samplers.iter_mut().try_for_each(|sampler| sampler.resume(state))?;
    }
    let Some((sampler, others)) = samplers.split_first() else { return Err(Failure::usage("there is no rank to be")) };
    let first = sampler.epoch();
    let end = first.checked_add(sampling.epochs).ok_or_else(|| Failure::new("there is no epoch after 2^64 - 1"))?;
    let mut walk = EpochWalk {
        dataset,
        groups: dataset.index().row_groups().filter(|group| group.rows() > 0).count(),
        loader: args.carousel.builder(dataset, sampler.clone()).and_ranks(others.to_vec()).epochs(end).build()?,
        served: ServedRows::new(dataset.len())?,
        tokens: None,
        state: sampler.state(),
        first: first_of_each(samplers.iter().map(DistributedSampler::shard)),
        digests: args.digest.then(|| RowDigests::new(dataset.schema())).transpose()?,
        ranks: samplers.iter().map(|_| RankState::default()).collect(),
        samplers,
        left: args.steps.unwrap_or(u64::MAX),
        substituted: 0,
        peak_held_bytes: 0,
        counted: dataset.counters(),
        progress: Progress::new("steps"),
    };
    let before = walk.counted;
    let started = Instant::now();
    let mut epochs = Vec::new();
    let mut served = 0;
    for epoch in first..end {
        epochs.push(walk.epoch(epoch)?);
        served += walk.served.count;
        if walk.left == 0 {
            break;
        }
    }
    walk.progress.finish();

    let cost = walk.counted - before;
    let seconds = started.elapsed().as_secs_f64();
    let lost = walk.loader.lost_groups();
    let lost = lost.iter().map(|lost| json!({"row_group": lost.row_group, "error": lost.error.to_string()}));
    Ok(json!({
        "rows": chosen.rows,
        "world_size": sampling.world_size,
        "steps": walk.ranks.first().map_or(0, |rank| rank.steps),
        "ranks": walk.ranks.iter().zip(&walk.samplers).map(|(rank, of)| walk.rank(rank, of)).collect::<Vec<_>>(),
        "coverage": walk.coverage(chosen.rows),
        "decodes": cost.decodes,
        "passes": walk.passes(cost),
        "bytes_read": cost.bytes_read,
        "requests": cost.requests,
        "bytes_fetched": cost.bytes_fetched,
        "disk_cache": disk_cache(dataset.disk_cache_counters()),
        "seconds": seconds,
        "rows_per_second": output::rate(served, seconds),
        "peak_held_bytes": walk.peak_held_bytes,
        "substituted": walk.substituted,
        "lost_row_groups": lost.collect::<Vec<_>>(),
        "state": walk.state.to_string(),
        "epochs": epochs,
    }))
}

/// What came from the disk cache, and what went there, if there is one.
fn disk_cache(counted: DiskCacheCounters) -> Option<Value> {
    (counted != DiskCacheCounters::default()).then(|| {
        json!({
            "hits": counted.hits,
            "misses": counted.misses,
            "writes": counted.writes,
            "bytes_written": counted.bytes_written,
            "evictions": counted.evictions,
            "bytes_evicted": counted.bytes_evicted,
            "discards": counted.discards,
        })
    })
}

/// The ranks on their way through epochs.
struct EpochWalk<'a> {
    dataset: &'a Dataset,
    /// How many row groups have rows.
    groups: usize,
    loader: Loader,
    /// Of this epoch.
    served: ServedRows,
    /// Of this epoch, if it has packs.
    tokens: Option<ServedTokens>,
    state: State,
    samplers: Vec<DistributedSampler>,
    /// Which ranks are the first ones of their shards.
    first: Vec<bool>,
    /// Of the values, if they are asked for.
    digests: Option<RowDigests>,
    ranks: Vec<RankState>,
    /// How many steps there may still be.
    left: u64,
    substituted: u64,
    peak_held_bytes: u64,
    /// What was counted when the last epoch was over: a loader begins the next one at once.
    counted: Counters,
    progress: Progress,
}

/// What one rank got so far.
#[derive(Default)]
struct RankState {
    steps: u64,
    samples: u64,
    pads: u64,
    /// The sum of the digests of its rows, which is the same in any order.
    digest: u128,
    row_ids: Xxh3Default,
}

impl EpochWalk<'_> {
    /// Reads an epoch, or as many of its steps as are left.
    fn epoch(&mut self, epoch: u64) -> Result<Value, Failure> {
        let started = Instant::now();
        self.served.clear();
        let plans = self.samplers.iter().map(|sampler| sampler.plan(epoch)).collect::<rowdex::Result<Vec<_>>>()?;
        let (Some(sampler), Some(plan)) = (self.samplers.first(), plans.first()) else { return Ok(Value::Null) };
        let counts = plan.packed().map(|packs| packs.counts()).transpose()?;
        self.tokens =
            sampler.packed().zip(counts).map(|(packed, counts)| ServedTokens::new(*packed.pack(), counts.tokens));
        let first_step = plan.first_step();
        let steps = plan.steps_left().min(self.left);
        self.left -= steps;
        self.progress.lengthen(steps);
        for rank in &mut self.ranks {
            (rank.steps, rank.samples, rank.pads) = (0, 0, 0);
        }
        let mut batch = BatchPlan::default();
        for step in first_step..first_step + steps {
            for (rank, plan) in plans.iter().enumerate() {
                plan.fill(step, &mut batch)?;
                self.add(rank, &mut batch)?;
            }
            self.progress.advance(1);
        }
        if let (Some(sampler), Some(last)) = (self.samplers.first(), steps.checked_sub(1)) {
            self.state = sampler.state_after(epoch, first_step + last)?;
        }
        let counters = self.dataset.counters();
        let cost = counters - std::mem::replace(&mut self.counted, counters);
        let seconds = started.elapsed().as_secs_f64();
        Ok(json!({
            "epoch": epoch,
            "dropped": named(plan, plan.dropped())?,
            "repeated": named(plan, plan.repeated())?,
            "decodes": cost.decodes,
            "passes": self.passes(cost),
            "bytes_read": cost.bytes_read,
            "seconds": seconds,
            "rows_per_second": output::rate(self.served.count, seconds),
        }))
    }

    /// So often each row group was decoded on average.
    fn passes(&self, cost: Counters) -> f64 {
        if self.groups == 0 { 0.0 } else { cost.decodes as f64 / self.groups as f64 }
    }

    /// Reads a batch, whose rows become those that were served.
    fn add(&mut self, rank: usize, batch: &mut BatchPlan) -> Result<(), Failure> {
        let served = next(&mut self.loader, &batch.rows)?;
        self.peak_held_bytes = self.peak_held_bytes.max(self.loader.stats().peak_bytes);
        self.substituted += served.substituted.len() as u64;
        batch.rows = served.row_ids;
        self.served.add(&batch.rows);
        if let Some(tokens) = self.tokens.as_mut().filter(|_| self.first.get(rank).copied().unwrap_or(false)) {
            tokens.add(batch);
        }
        let Some(rank) = self.ranks.get_mut(rank) else { return Ok(()) };
        rank.steps += 1;
        rank.samples += batch.rows.len() as u64;
        rank.pads += batch.pads as u64;
        batch.rows.iter().for_each(|row| rank.row_ids.update(&row.to_le_bytes()));
        if let Some(digests) = &mut self.digests {
            let mut found = Vec::new();
            digests.add(&served.records, &mut found)?;
            rank.digest = found.into_iter().fold(rank.digest, u128::wrapping_add);
        }
        Ok(())
    }

    fn rank(&self, rank: &RankState, sampler: &DistributedSampler) -> Value {
        json!({
            "rank": sampler.shard().rank(),
            "steps": rank.steps,
            "samples": rank.samples,
            "pads": rank.pads,
            "rows_digest": self.digests.as_ref().map(|_| format!("{:032x}", rank.digest)),
            "row_ids_digest": format!("{:016x}", rank.row_ids.digest()),
        })
    }

    /// Which of so many rows were served; and which tokens, if there are packs.
    fn coverage(&self, rows: u64) -> Value {
        let distinct = self.served.distinct();
        let missing = rows.saturating_sub(distinct);
        match &self.tokens {
            // A row is served as often as it has pieces.
            Some(tokens) => json!({"distinct": distinct, "missing": missing, "tokens": tokens.told()}),
            None => {
                let served = self.served.count;
                let repeated = served.saturating_sub(distinct);
                json!({"served": served, "distinct": distinct, "repeated": repeated, "missing": missing})
            }
        }
    }
}

/// Some rows, the first of them by their ids.
fn named(plan: &EpochPlan, positions: Range<u64>) -> Result<Value, Failure> {
    let count = positions.end - positions.start;
    let rows = positions.take(MOST_NAMED).map(|position| plan.row(position));
    Ok(json!({"count": count, "row_ids": rows.collect::<rowdex::Result<Vec<_>>>()?}))
}

/// The next batch, which must be of just the rows that the sampler has next, but for those that another stands in for.
fn next(loader: &mut Loader, rows: &[u64]) -> Result<Batch, Failure> {
    let defect = || Failure::new("the loader's rows are not the sampler's; this is a defect of rowdex");
    let batch = loader.next().transpose()?.ok_or_else(defect)?;
    let mut asked = batch.row_ids.clone();
    for stand_in in &batch.substituted {
        *asked.get_mut(stand_in.place).ok_or_else(defect)? = stand_in.lost;
    }
    if asked == rows { Ok(batch) } else { Err(defect()) }
}
