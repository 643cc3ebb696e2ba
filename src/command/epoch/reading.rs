//! Reading what ranks are served.

use std::time::Instant;

use arrow::array::RecordBatch;
use rowdex::dataset::Counters;
use rowdex::digest::RowDigests;
use rowdex::sampler::{BatchPlan, EpochPlan, RowIds, State};
use rowdex::{Batch, Dataset, DistributedSampler, Loader};
use xxhash_rust::xxh3::Xxh3Default;

use super::report::{EpochReport, NamedRows, RankReport, Report, passes};
use super::served::{ServedRows, TokenCoverage};
use crate::command::carousel::CarouselSettings;
use crate::command::failure::Failure;
use crate::command::output;
use crate::command::progress;
use crate::command::sampling::{BatchArg, SamplingArgs, first_of_each};

/// Which part of the epochs is read, and whether the values are digested.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extent<'a> {
    /// From this state on.
    pub(crate) resume: Option<&'a State>,
    /// So many steps at most.
    pub(crate) steps: Option<u64>,
    pub(crate) digests: bool,
}

/// Reads every batch of every chosen rank, step by step, so that the rows of a step are neighbours in the order.
pub(crate) fn read(
    dataset: &Dataset,
    sampling: &SamplingArgs,
    batch_size: BatchArg,
    carousel: &CarouselSettings,
    extent: Extent<'_>,
) -> Result<Report, Failure> {
    let chosen = sampling.choose(dataset)?;
    let mut samplers = sampling.samplers(&chosen, batch_size)?;
    if let Some(state) = extent.resume {
        samplers.iter_mut().try_for_each(|sampler| sampler.resume(state))?;
    }
    let digests = extent.digests.then(|| RowDigests::new(dataset.schema())).transpose()?;
    let ranks: Vec<RankState> = samplers.into_iter().map(|sampler| RankState::new(sampler, digests.clone())).collect();
    let first = ranks.first().map_or(sampling.epoch, |rank| rank.sampler.epoch());
    let end = first.checked_add(sampling.epochs).ok_or_else(|| Failure::new("there is no epoch after 2^64 - 1"))?;
    let mut walk = EpochWalk {
        dataset,
        groups: dataset.index().row_groups().filter(|group| group.rows() > 0).count(),
        loader: loader(dataset, &ranks, end, carousel)?,
        served: ServedRows::new(dataset.len(), chosen.rows)?,
        tokens: None,
        state: ranks.first().map(|rank| rank.sampler.state()),
        first: first_of_each(ranks.iter().map(|rank| rank.sampler.shard())),
        ranks,
        left: extent.steps.unwrap_or(u64::MAX),
        substituted: 0,
        peak_held_bytes: 0,
        counted: dataset.counters(),
    };
    let mut bar = progress::EpochBar::new(dataset);
    let before = walk.counted;
    let started = Instant::now();
    let mut epochs = Vec::new();
    let mut total_served = 0;
    for epoch in first..end {
        epochs.push(walk.epoch(epoch, &mut bar, if extent.steps.is_some() { 1 } else { end - epoch })?);
        total_served += walk.served.count;
        if walk.left == 0 {
            break;
        }
    }
    bar.finish();

    let cost = walk.counted - before;
    let seconds = started.elapsed().as_secs_f64();
    let rows_per_second = output::rate(total_served, seconds);
    Ok(walk.report(chosen.rows, sampling.world_size, cost, seconds, rows_per_second, epochs))
}

/// The ranks on their way through epochs.
struct EpochWalk<'a> {
    dataset: &'a Dataset,
    /// How many row groups have rows.
    groups: usize,
    loader: Option<Loader>,
    /// Of this epoch.
    served: ServedRows,
    /// Of this epoch, if it has packs.
    tokens: Option<TokenCoverage>,
    state: Option<State>,
    ranks: Vec<RankState>,
    /// Which ranks are the first ones of their shards.
    first: Vec<bool>,
    /// How many steps there may still be.
    left: u64,
    substituted: u64,
    peak_held_bytes: u64,
    /// What was counted when the last epoch was over: a loader goes on with the next one at once.
    counted: Counters,
}

impl EpochWalk<'_> {
    /// Reads an epoch, or as many of its steps as are left. The bar is for so many epochs like it.
    fn epoch(&mut self, epoch: u64, bar: &mut progress::EpochBar, epochs: u64) -> Result<EpochReport, Failure> {
        let started = Instant::now();
        self.served.clear();
        let plans = self.ranks.iter().map(|rank| rank.sampler.plan(epoch)).collect::<rowdex::Result<Vec<_>>>()?;
        self.tokens = match (self.ranks.first().and_then(|rank| rank.sampler.packed()), plans.first()) {
            (Some(packed), Some(plan)) => {
                let counts = plan.packed().map(|packs| packs.counts()).transpose()?;
                counts.map(|counts| TokenCoverage::new(*packed.pack(), counts))
            }
            _ => None,
        };
        let first_step = plans.first().map_or(0, EpochPlan::first_step);
        let steps = plans.first().map_or(0, EpochPlan::steps_left).min(self.left);
        self.left -= steps;
        bar.start_epoch(epoch, steps, epochs);
        let named = |rows: fn(&EpochPlan) -> RowIds| plans.first().map(|plan| NamedRows::new(rows(plan))).transpose();
        let dropped = named(EpochPlan::dropped)?;
        let repeated = named(EpochPlan::repeated)?;
        self.ranks.iter_mut().for_each(RankState::start_epoch);
        let mut batch = BatchPlan::default();
        for step in first_step..first_step + steps {
            for (rank, plan) in plans.iter().enumerate() {
                plan.fill(step, &mut batch)?;
                self.add(rank, &mut batch)?;
            }
            bar.step(self.served.count, &|decodes| passes(decodes, self.groups));
        }
        if let (Some(rank), Some(last)) = (self.ranks.first(), steps.checked_sub(1)) {
            self.state = Some(rank.sampler.state_after(epoch, first_step + last)?);
        }
        let counters = self.dataset.counters();
        let cost = counters - std::mem::replace(&mut self.counted, counters);
        let seconds = started.elapsed().as_secs_f64();
        Ok(EpochReport {
            epoch,
            dropped: dropped.unwrap_or_default(),
            repeated: repeated.unwrap_or_default(),
            decodes: cost.decodes,
            passes: passes(cost.decodes, self.groups),
            bytes_read: cost.bytes_read,
            seconds,
            rows_per_second: output::rate(self.served.count, seconds),
        })
    }

    /// What was read of these rows of so many ranks, in so many seconds and at so many rows a second.
    fn report(
        self,
        rows: u64,
        world_size: u32,
        cost: Counters,
        seconds: f64,
        rows_per_second: f64,
        epochs: Vec<EpochReport>,
    ) -> Report {
        let ranks: Vec<RankReport> = self.ranks.iter().map(RankState::report).collect();
        Report {
            rows,
            world_size,
            steps: ranks.first().map_or(0, |rank| rank.steps),
            ranks,
            coverage: self.served.coverage(),
            tokens: self.tokens,
            decodes: cost.decodes,
            passes: passes(cost.decodes, self.groups),
            bytes_read: cost.bytes_read,
            requests: cost.requests,
            bytes_fetched: cost.bytes_fetched,
            tier: self.dataset.tier_counters(),
            seconds,
            rows_per_second,
            peak_held_bytes: self.peak_held_bytes,
            substituted: self.substituted,
            lost: self.loader.map(|loader| loader.lost_groups()).unwrap_or_default(),
            state: self.state,
            epochs,
        }
    }

    /// Reads a batch, whose rows become those that were served.
    fn add(&mut self, rank: usize, batch: &mut BatchPlan) -> Result<(), Failure> {
        let Some(loader) = &mut self.loader else { return Ok(()) };
        let served = next(loader, &batch.rows)?;
        self.peak_held_bytes = self.peak_held_bytes.max(loader.stats().peak_bytes);
        self.substituted += served.substituted.len() as u64;
        batch.rows = served.row_ids;
        let values = served.records;
        if let Some(rank) = self.ranks.get_mut(rank) {
            rank.add(batch, &values)?;
        }
        self.served.add(&batch.rows);
        if let Some(tokens) = self.tokens.as_mut().filter(|_| self.first.get(rank).copied().unwrap_or(false)) {
            tokens.add(batch);
        }
        Ok(())
    }
}

/// A loader for all of these ranks; `None` where there are none.
fn loader(
    dataset: &Dataset,
    ranks: &[RankState],
    end: u64,
    carousel: &CarouselSettings,
) -> Result<Option<Loader>, Failure> {
    let Some((first, others)) = ranks.split_first() else { return Ok(None) };
    let loader = carousel.builder(dataset, first.sampler.clone());
    Ok(Some(loader.and_ranks(others.iter().map(|rank| rank.sampler.clone())).epochs(end).build()?))
}

/// The next batch, which must be of just the rows that the sampler has next, but for those that another stands in for.
fn next(loader: &mut Loader, rows: &[u64]) -> Result<Batch, Failure> {
    let defect = || Failure::new("the loader's rows are not the sampler's; this is a defect of rowdex");
    let batch = loader.next().transpose()?.ok_or_else(defect)?;
    let same = match batch.substituted.as_slice() {
        [] => batch.row_ids == rows,
        some => {
            let mut asked = batch.row_ids.clone();
            for stand_in in some {
                *asked.get_mut(stand_in.place).ok_or_else(defect)? = stand_in.lost;
            }
            asked == rows
        }
    };
    if same { Ok(batch) } else { Err(defect()) }
}

/// One rank, and what it got so far.
struct RankState {
    rank: u32,
    sampler: DistributedSampler,
    steps: u64,
    samples: u64,
    pads: u64,
    /// Of the values, if they are asked for, and their sum.
    digests: Option<RowDigests>,
    digest: u128,
    row_ids: Xxh3Default,
}

impl RankState {
    fn new(sampler: DistributedSampler, digests: Option<RowDigests>) -> Self {
        Self {
            rank: sampler.shard().rank(),
            sampler,
            steps: 0,
            samples: 0,
            pads: 0,
            digests,
            digest: 0,
            row_ids: Xxh3Default::new(),
        }
    }

    fn start_epoch(&mut self) {
        (self.steps, self.samples, self.pads) = (0, 0, 0);
    }

    fn add(&mut self, batch: &BatchPlan, values: &RecordBatch) -> Result<(), Failure> {
        self.steps += 1;
        self.samples += batch.rows.len() as u64;
        self.pads += batch.pads as u64;
        for row in &batch.rows {
            self.row_ids.update(&row.to_le_bytes());
        }
        if let Some(digests) = &mut self.digests {
            let mut found = Vec::new();
            digests.add(values, &mut found)?;
            self.digest = found.into_iter().fold(self.digest, u128::wrapping_add);
        }
        Ok(())
    }

    fn report(&self) -> RankReport {
        let &Self { rank, steps, samples, pads, .. } = self;
        let digest = self.digests.is_some().then_some(self.digest);
        RankReport { rank, steps, samples, pads, digest, row_ids_digest: self.row_ids.digest() }
    }
}
