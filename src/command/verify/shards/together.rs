//! One epoch of all ranks: whether what they were dealt fits together.

use std::collections::{BTreeMap, BTreeSet};

use rowdex::order::{EpochOrder, Uses};
use rowdex::sampler::EpochPlan;
use rowdex::sampler::Tail;

use super::cover::{Counts, SetHash};
use super::pass::Dealt;

/// What all ranks together were dealt in one epoch.
#[derive(Debug)]
pub(super) struct Together {
    pub(super) epoch: u64,
    /// Samples of all shards, pads among them.
    pub(super) served: u64,
    pub(super) pads: u64,
    /// Rows that are at positions of the order which no rank serves.
    pub(super) dropped: Vec<u64>,
    /// How often the row is served that is served least, and most; pads count. `None` until it is known.
    pub(super) uses: Option<(u64, u64)>,
    pub(super) broken: Vec<String>,
}

/// How many of a sort are named; the others are as bad.
const NAMED: usize = 5;

impl Together {
    /// Holds the ranks against each other. `ranks` are of all ranks in turn.
    pub(super) fn new(plans: &[EpochPlan], ranks: &[Dealt]) -> Self {
        let epoch = plans.first().map_or(0, EpochPlan::epoch);
        let mut together = Self { epoch, served: 0, pads: 0, dropped: Vec::new(), uses: None, broken: Vec::new() };
        for (rank, dealt) in ranks.iter().enumerate() {
            together.broken.extend(dealt.broken.iter().map(|what| format!("rank {rank}: {what}")));
        }
        together.steps_and_samples(plans, ranks);
        together.positions(plans, ranks);
        together
    }

    fn steps_and_samples(&mut self, plans: &[EpochPlan], ranks: &[Dealt]) {
        let (Some(plan), Some(first)) = (plans.first(), ranks.first()) else { return };
        if let Some(rank) = ranks.iter().position(|rank| rank.steps != first.steps) {
            self.broken.push(format!("rank 0 takes {} steps and rank {rank} {}", first.steps, ranks[rank].steps));
        }
        let may_differ = u64::from(plan.shard().tail() == Tail::Uneven);
        let most = (0..ranks.len()).max_by_key(|rank| ranks[*rank].samples).unwrap_or_default();
        let fewest = (0..ranks.len()).min_by_key(|rank| ranks[*rank].samples).unwrap_or_default();
        let more = ranks[most].samples;
        let fewer = ranks[fewest].samples;
        if more - fewer > may_differ {
            self.broken.push(format!("rank {most} has {more} samples and rank {fewest} {fewer}"));
        }
    }

    /// The shards must be the residues modulo their number, each as long as the others leave no gap: then no position
    /// is dealt twice, and none before the last is left out.
    fn positions(&mut self, plans: &[EpochPlan], ranks: &[Dealt]) {
        let Some(plan) = plans.first() else { return };
        let shards = u64::from(plan.shard().count());
        let mut seen = BTreeMap::new();
        let mut distinct = Vec::new();
        for (rank, (plan, dealt)) in plans.iter().zip(ranks).enumerate() {
            match seen.insert(plan.shard().index(), (rank, dealt)) {
                None => distinct.push((rank, dealt)),
                Some((other, first)) if (first.first, first.samples) != (dealt.first, dealt.samples) => {
                    self.broken
                        .push(format!("ranks {other} and {rank} are of one replica group and are dealt differently"));
                }
                Some(_) => {}
            }
        }
        self.served = distinct.iter().map(|(_, dealt)| dealt.samples).sum();
        self.pads = distinct.iter().map(|(_, dealt)| dealt.pads.len() as u64).sum();
        if distinct.len() as u64 != shards {
            self.broken.push(format!("{} of {shards} shards have a rank", distinct.len()));
        }
        let mut firsts = BTreeSet::new();
        for (rank, dealt) in distinct {
            let Some(first) = dealt.first else { continue };
            let due = self.served.saturating_sub(first).div_ceil(shards.max(1));
            if first >= shards || dealt.samples != due {
                self.broken.push(format!(
                    "rank {rank} is dealt {} positions from {first} on, of {} among {shards} shards",
                    dealt.samples, self.served
                ));
            } else if !firsts.insert(first) {
                self.broken
                    .push(format!("rank {rank} is dealt positions that another shard is dealt, from {first} on"));
            }
        }
        let order = plan.order();
        self.dropped = (self.served..order.len()).take(DROPPED).filter_map(|position| order.row(position)).collect();
        let dropped = order.len().saturating_sub(self.served);
        if dropped >= shards && dropped > 0 {
            self.broken.push(format!("{dropped} positions are not served, as many as there are shards or more"));
        }
    }

    /// Compares the set of the rows served with that of all rows.
    pub(super) fn hashed(&mut self, order: &dyn EpochOrder, ranks: &[&Dealt], all: SetHash) -> bool {
        let mut set = SetHash::default();
        set.add(&self.dropped);
        ranks.iter().for_each(|dealt| set.join(dealt.rows));
        let rows = (self.served + self.dropped.len() as u64).saturating_sub(self.pads);
        if set != all || rows != order.len() {
            return false;
        }
        // Each row once, but for the dropped ones and the pads.
        let mut again: BTreeMap<u64, u64> = self.dropped.iter().map(|row| (*row, 0)).collect();
        for row in ranks.iter().flat_map(|dealt| &dealt.pads) {
            *again.entry(*row).or_insert(1) += 1;
        }
        let untouched = (order.len() > again.len() as u64).then_some(1);
        let uses = || again.values().copied().chain(untouched);
        self.uses = Some((uses().min().unwrap_or(0), uses().max().unwrap_or(0)));
        true
    }

    /// Goes through the counts of all rows but pads.
    pub(super) fn counted(&mut self, promise: Uses, positions: u64, ranks: &[&Dealt], counts: &Counts) {
        let dropped: BTreeSet<u64> = self.dropped.iter().copied().collect();
        let mut missing = Named::default();
        let mut double = Named::default();
        for (row, count) in counts.iter() {
            if promise != Uses::Any && count > 1 {
                double.add(row);
            }
            if promise == Uses::Once && count == 0 && row < positions && !dropped.contains(&row) {
                missing.add(row);
            }
        }
        self.broken.extend(missing.0.first().map(|_| format!("no rank serves {missing}")));
        self.broken.extend(double.0.first().map(|_| format!("{double} served more than once, and not as a pad")));
        ranks.iter().for_each(|dealt| counts.add(&dealt.pads));
        let uses = || counts.iter().map(|(_, count)| count);
        self.uses = Some((uses().min().unwrap_or(0), uses().max().unwrap_or(0)));
    }
}

/// More dropped rows than this are a broken promise, and there may be as many as an order has positions.
const DROPPED: usize = 1 << 20;

/// The first rows of a sort, and how many there are.
#[derive(Default)]
struct Named(Vec<u64>, u64);

impl Named {
    fn add(&mut self, row: u64) {
        if self.0.len() < NAMED {
            self.0.push(row);
        }
        self.1 += 1;
    }
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rows: Vec<String> = self.0.iter().map(u64::to_string).collect();
        let more = self.1 - self.0.len() as u64;
        write!(f, "{} {}", if self.1 == 1 { "row" } else { "rows" }, rows.join(", "))?;
        if more > 0 { write!(f, " and {more} more") } else { Ok(()) }
    }
}
