//! What an epoch of packs comes to, told before training.

use super::{DistributedSampler, EpochPlan, Shard};
use crate::{Cost, PackCounts, Piece};
use rowdex_base::error::{Error, ErrorKind, Result};

/// What an epoch of packs comes to on all ranks together.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PackForecast {
    /// What the planned packs have, before any is opened and before the tail policy.
    pub counts: PackCounts,
    /// Steps of every rank.
    pub steps: u64,
    /// Packs that all shards are served, repeated and opened ones included.
    pub packs: u64,
    /// Packs that opening others made, so that steps are equal.
    pub opened: u64,
    /// Tokens that the tail policy leaves out.
    pub tokens_left_out: u64,
    /// Tokens that it serves twice.
    pub tokens_repeated: u64,
    /// The part of all places that has tokens, the extra ones included. Of buckets, in batches that are padded to their
    /// longest row, of the steps that are looked at.
    pub fill: f64,
    /// What the slowest shard has to do at a step, by the cost of the sampler or by [`COST`](Self::COST): this many
    /// times what shards have on average. A mean over steps that are looked at.
    pub imbalance: f64,
    /// How many steps were looked at.
    pub steps_looked_at: u64,
    /// The tokens of each pack of those steps, the extra ones included.
    pub pack_tokens: Vec<u64>,
}

impl PackForecast {
    /// What packs of a model of 7 billion parameters cost.
    pub const COST: Cost = Cost { linear: 24_576, quadratic: 1 };

    /// Steps that a report looks at: a second of packing blocks at the most.
    pub const STEPS: u64 = 64;

    /// Tokens that all ranks are served, those that come twice counted twice, and the extra ones not.
    pub fn tokens(&self) -> u64 {
        (self.counts.tokens - self.tokens_left_out).saturating_add(self.tokens_repeated)
    }

    /// Pieces of a pack on average, before any pack is opened.
    pub fn pieces_a_pack(&self) -> f64 {
        self.counts.pieces as f64 / self.counts.packs.max(1) as f64
    }
}

impl DistributedSampler {
    /// What an epoch of packs comes to. Of its steps, `most_steps` are looked at, evenly spread: each takes packing a
    /// block or two.
    ///
    /// # Errors
    ///
    /// Those of [`plan`](Self::plan); `InvalidArgument` if there are no packs.
    pub fn forecast(&self, epoch: u64, most_steps: u64) -> Result<PackForecast> {
        let Some(packed) = self.packed() else {
            return Err(Error::invalid("the packs of a sampler of rows").with_hint("make the sampler with packs"));
        };
        let deal = self.whole(epoch)?;
        let Some(of_epoch) = deal.packed() else {
            return Err(Error::new(ErrorKind::Internal, "a plan of packs without their epoch"));
        };
        let counts = of_epoch.counts()?;
        let steps = deal.steps();
        let len = counts.pieces;
        let served = deal.served(steps)?;
        let tokens = |first: u64, end: u64| {
            let mut pieces = Vec::new();
            of_epoch.read(first, end.saturating_sub(first), &mut pieces)?;
            Ok::<_, Error>(pieces.iter().map(|piece| piece.length).sum::<u64>())
        };
        let tokens_left_out = tokens(served, len)?;
        // A world larger than the epoch repeats it as a whole first.
        let more = served.saturating_sub(len);
        let tokens_repeated = match more.checked_div(len) {
            Some(times) => times.saturating_mul(counts.tokens).saturating_add(tokens(0, more % len)?),
            None => 0,
        };
        let plans = self.plans_of_shards(epoch)?;
        let mut forecast = PackForecast {
            counts,
            steps,
            packs: 0,
            opened: 0,
            tokens_left_out,
            tokens_repeated,
            fill: 1.0,
            imbalance: 1.0,
            steps_looked_at: 0,
            pack_tokens: Vec::new(),
        };
        let full = steps.saturating_sub(1);
        forecast.packs = full * self.batch_size() * u64::from(self.shard().count());
        if steps > 0 {
            let last = plans.iter().map(|plan| Ok(plan.batch(full)?.packs.len() as u64)).sum::<Result<u64>>()?;
            forecast.packs += last;
        }
        if served == len {
            forecast.opened = forecast.packs.saturating_sub(counts.packs);
        }
        let pack = packed.pack();
        let taken = forecast.tokens() as f64 + pack.extra as f64 * served as f64;
        let padded = self.look(&plans, &mut forecast, most_steps, pack.extra)?;
        if pack.is_of_rows() {
            let looked_at: u64 = forecast.pack_tokens.iter().sum();
            forecast.fill = if padded > 0.0 { looked_at as f64 / padded } else { 1.0 };
        } else if forecast.packs > 0 {
            forecast.fill = taken / (forecast.packs as f64 * pack.capacity as f64);
        }
        Ok(forecast)
    }

    /// The whole epoch of one rank of each shard.
    fn plans_of_shards(&self, epoch: u64) -> Result<Vec<EpochPlan>> {
        let mut whole = self.clone();
        // Another epoch and back is whole.
        whole.set_epoch(epoch.wrapping_add(1));
        whole.set_epoch(epoch);
        let shards = self.shard().count();
        let plan = |index| {
            let shard = Shard::new(index, shards)?.with_tail(self.shard().tail());
            whole.with_shard(shard)?.plan(epoch)
        };
        (0..shards).map(plan).collect()
    }

    /// Looks at some steps. Returns how many places their batches have, with each pack as long as the longest one.
    fn look(&self, plans: &[EpochPlan], forecast: &mut PackForecast, most_steps: u64, extra: u64) -> Result<f64> {
        let cost = self.cost().unwrap_or(PackForecast::COST);
        let stride = forecast.steps.div_ceil(most_steps.max(1)).max(1);
        let mut imbalance = 0.0;
        let mut padded = 0.0;
        for step in (0..forecast.steps).step_by(usize::try_from(stride).unwrap_or(usize::MAX)) {
            let mut sum = 0.0;
            let mut most = 0.0_f64;
            for plan in plans {
                let batch = plan.batch(step)?;
                let mut first = 0;
                let mut own = 0.0;
                let mut longest = 0;
                for end in &batch.packs {
                    let pieces: &[Piece] = batch.pieces.get(first..*end).unwrap_or_default();
                    let tokens: u64 = pieces.iter().map(|piece| piece.length + extra).sum();
                    forecast.pack_tokens.push(tokens);
                    longest = longest.max(tokens);
                    own += cost.of(pieces.iter().map(|piece| piece.length)) as f64;
                    first = *end;
                }
                padded += longest as f64 * batch.packs.len() as f64;
                sum += own;
                most = most.max(own);
            }
            forecast.steps_looked_at += 1;
            imbalance += if sum > 0.0 { most * plans.len() as f64 / sum } else { 1.0 };
        }
        if forecast.steps_looked_at > 0 {
            forecast.imbalance = imbalance / forecast.steps_looked_at as f64;
        }
        Ok(padded)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sampler::Tail;
    use crate::{Global, Overflow, Pack, Packed};

    /// What a look at every batch of every rank finds.
    #[test]
    fn a_forecast_is_what_all_batches_of_all_ranks_come_to() {
        let lengths: Vec<u64> = (0..700_u64).map(|row| row * row % 90).collect();
        for (tail, overflow) in [
            (Tail::Even, Overflow::Split),
            (Tail::Wrap, Overflow::Truncate),
            (Tail::Drop, Overflow::Drop),
            (Tail::Uneven, Overflow::Split),
        ] {
            let pack = Pack { overflow, extra: 1, block: 100, ..Pack::of(64) };
            let orders = Arc::new(Global::new(700, 3).unwrap());
            let packed = Arc::new(Packed::new(orders, Arc::new(lengths.clone()), pack).unwrap());
            let shard = |rank| Shard::new(rank, 3).unwrap().with_tail(tail);
            let sampler = DistributedSampler::of_packs(packed, shard(1), 4, None).unwrap();
            let forecast = sampler.forecast(2, u64::MAX).unwrap();
            let mut packs = 0;
            let mut tokens = 0;
            let mut pads = 0;
            for rank in 0..3 {
                let plan = sampler.with_shard(shard(rank)).unwrap().plan(2).unwrap();
                assert_eq!(plan.steps(), forecast.steps);
                for batch in plan.batches() {
                    let batch = batch.unwrap();
                    let real = batch.pieces.len() - batch.pads;
                    packs += batch.packs.len() as u64;
                    tokens += batch.pieces.iter().map(|piece| piece.length).sum::<u64>();
                    pads += batch.pieces[real..].iter().map(|piece| piece.length).sum::<u64>();
                }
            }
            let all: u64 = lengths.iter().sum();
            let counts = forecast.counts;
            assert_eq!((forecast.packs, forecast.tokens(), forecast.tokens_repeated), (packs, tokens, pads), "{tail}");
            assert_eq!(all, counts.tokens + counts.tokens_dropped + counts.tokens_truncated);
            assert_eq!(forecast.pack_tokens.len() as u64, packs);
            let places: u64 = forecast.pack_tokens.iter().sum();
            assert!((forecast.fill - places as f64 / (packs * 64) as f64).abs() < 1e-9);
            assert!(forecast.imbalance >= 1.0 && forecast.steps_looked_at == forecast.steps);
            assert!(tail == Tail::Drop || forecast.tokens_left_out == 0);
            assert!(tail == Tail::Wrap || forecast.tokens_repeated == 0);
        }
    }

    #[test]
    fn a_sampler_of_rows_has_no_packs_to_forecast() {
        let sampler = DistributedSampler::new(Arc::new(Global::new(9, 1).unwrap()), Shard::new(0, 1).unwrap(), 2);
        assert_eq!(sampler.unwrap().forecast(0, 9).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}
