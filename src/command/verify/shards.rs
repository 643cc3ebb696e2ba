//! `rowdex verify --shards`: goes through everything that all ranks get, and shows that the promises hold.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use clap::ArgMatches;
use rayon::prelude::*;
use rowdex::DistributedSampler;
use rowdex::order::{Overflow, Packed, Piece, Uses};
use rowdex::sampler::{BatchPlan, EpochPlan, Tail};
use serde_json::{Value, json};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::VerifyArgs;
use crate::command::failure::{Failure, complain};
use crate::command::output;
use crate::command::progress::Progress;
use crate::command::sampling;

/// More complaints than this about one rank say nothing new.
const ENOUGH: usize = 3;

/// Positions of an order that are looked at in one go.
const AT_ONCE: usize = 1 << 16;

/// What holds, where nothing is broken.
const PROMISES: [&str; 5] = [
    "every rank takes the same number of steps, and has the same number of rows or packs (uneven: one more or less)",
    "every position is assigned to one shard, once, and the same to ranks of one replica group",
    "rows and tokens are those of the order, each as often, but for what is repeated or dropped",
    "repeated rows are the first rows",
    "no pack exceeds its capacity",
];

pub(super) fn run(args: &VerifyArgs, given: &ArgMatches) -> Result<(), Failure> {
    let mut sampling = args.sampling.clone();
    args.state.settle(&mut sampling, true, given)?;
    sampling.whole_epochs();
    let started = Instant::now();
    let index = args.index.open()?;
    let samplers = sampling.samplers(&sampling.orders(&index)?)?;
    let Some(first) = samplers.first() else { return Err(Failure::usage("there is no rank to look at")) };
    let proof = prove(&samplers, index.len(), sampling.epochs()?)?;
    if !proof.broken.is_empty() {
        proof.broken.iter().for_each(complain);
        return Err(Failure::Reported);
    }
    let ranks = (0..).zip(&proof.ranks).map(|(rank, dealt)| {
        json!({
            "rank": rank,
            "steps": dealt.steps,
            "packs": first.packed().map(|_| dealt.units),
            "samples": dealt.samples,
            "pads": dealt.pads,
            "row_ids_digest": format!("{:016x}", dealt.row_ids.digest()),
        })
    });
    let digests: Vec<u8> = proof.ranks.iter().flat_map(|rank| rank.row_ids.digest().to_le_bytes()).collect();
    output::tell(
        args.json.json,
        &json!({
            "rows": index.len(),
            "positions": first.orders().len(),
            "fingerprint": format!("{:016x}", first.orders().fingerprint()),
            "world_size": sampling.world_size,
            "shards": first.shard().count(),
            "steps": proof.ranks.first().map(|rank| rank.steps),
            "row_ids_digest": format!("{:016x}", xxh3_64(&digests)),
            "seconds": started.elapsed().as_secs_f64(),
            "ranks": ranks.collect::<Vec<_>>(),
            "epochs": proof.epochs,
            "promises": PROMISES.map(|promise| json!({"holds": true, "promise": promise})),
        }),
    )
}

/// What was found of a run.
struct Proof {
    /// Of the last epoch, but for the digest.
    ranks: Vec<Dealt>,
    epochs: Vec<Value>,
    broken: Vec<String>,
}

/// What a rank got in an epoch.
#[derive(Default)]
struct Dealt {
    steps: u64,
    /// Packs, or rows where there are none.
    units: u64,
    /// Rows, or pieces of them.
    samples: u64,
    pads: u64,
    tokens: u64,
    /// Of all positions, and of all tokens but the repeated ones: sums of hashes, which are the same in any order.
    positions: u64,
    contents: u64,
    /// Of all epochs.
    row_ids: Xxh3Default,
    broken: Vec<String>,
}

/// Goes through the epochs, until one breaks a promise.
fn prove(samplers: &[DistributedSampler], rows: u64, epochs: Range<u64>) -> Result<Proof, Failure> {
    let ranks = samplers.iter().map(|_| Dealt::default()).collect();
    let mut proof = Proof { ranks, epochs: Vec::new(), broken: Vec::new() };
    let Some(sampler) = samplers.first() else { return Ok(proof) };
    let packed = sampler.packed().map(|packed| &**packed);
    let progress = Progress::new("steps");
    for epoch in epochs {
        let plans = sampling::plans(samplers, epoch)?;
        progress.lengthen(plans.iter().map(EpochPlan::steps).sum());
        let all = proof.ranks.par_iter_mut().zip(&plans);
        all.try_for_each(|(rank, plan)| rank.deal(plan, packed, rows, &progress))?;
        let mut broken = Vec::new();
        proof.epochs.extend(together(sampler, &plans, &proof.ranks, rows, &mut broken)?);
        proof.broken.extend(broken.iter().map(|what| format!("epoch {epoch}: {what}")));
        if !proof.broken.is_empty() {
            break;
        }
    }
    progress.finish();
    Ok(proof)
}

impl Dealt {
    /// Goes through all batches of an epoch, as a training job would.
    fn deal(
        &mut self,
        plan: &EpochPlan,
        packed: Option<&Packed>,
        rows: u64,
        progress: &Progress,
    ) -> Result<(), Failure> {
        *self = Self { row_ids: std::mem::take(&mut self.row_ids), ..Self::default() };
        let mut batch = BatchPlan::default();
        for step in plan.first_step()..plan.steps() {
            plan.fill(step, &mut batch)?;
            let wrong = wrong(&batch, plan, packed, rows).filter(|_| self.broken.len() < ENOUGH);
            self.broken.extend(wrong.map(|what| format!("step {step} {what}")));
            self.add(&batch, packed.is_some());
            progress.advance(1);
        }
        Ok(())
    }

    fn add(&mut self, batch: &BatchPlan, packs: bool) {
        self.steps += 1;
        self.units += if packs { batch.packs.len() } else { batch.rows.len() } as u64;
        self.samples += batch.rows.len() as u64;
        self.pads += batch.pads as u64;
        self.row_ids.update(&batch.rows.iter().flat_map(|row| row.to_le_bytes()).collect::<Vec<_>>());
        let real = batch.rows.len().saturating_sub(batch.pads);
        for ((slot, position), row) in positions(batch).enumerate().zip(&batch.rows) {
            let piece = batch.pieces.get(slot).copied().unwrap_or(Piece { row: *row, offset: 0, length: 1 });
            self.positions = self.positions.wrapping_add(element(position));
            self.tokens += piece.length;
            if slot < real {
                self.contents = self.contents.wrapping_add(tokens(piece));
            }
        }
    }
}

fn positions(batch: &BatchPlan) -> impl Iterator<Item = u64> {
    (0..).map(|slot| batch.first + slot * batch.stride)
}

/// What is wrong with a batch by itself.
fn wrong(batch: &BatchPlan, plan: &EpochPlan, packed: Option<&Packed>, rows: u64) -> Option<String> {
    let size = plan.batch_size();
    let units = packed.map_or(batch.rows.len(), |_| batch.packs.len()) as u64;
    if units > size || (units < size && batch.step + 1 < plan.steps()) {
        return Some(format!("has {units} rows or packs instead of {size}"));
    }
    if let Some(row) = batch.rows.iter().find(|row| **row >= rows) {
        return Some(format!("has row {row}, and there are {rows} rows"));
    }
    // Pads are what lies at the order's length and beyond, and it is the first rows that are served again.
    let order = plan.order();
    let again = || positions(batch).zip(&batch.rows).filter(|(position, _)| *position >= order.len());
    let is_other = |(position, row): (u64, &u64)| order.row(position % order.len().max(1)) != Some(*row);
    if again().count() != batch.pads || again().any(is_other) {
        return Some(format!("has {} repeated rows that are not the order's first rows", batch.pads));
    }
    let pack = packed?.pack();
    // Lengths that cannot be read are an error of `whole`.
    let second = pack.second_of(&**packed?.lengths(), &batch.rows).ok()?;
    let mut packs = std::iter::once(0).chain(batch.packs.iter().copied()).zip(&batch.packs);
    let is_bad = |(first, end): (usize, &usize)| {
        let pieces = batch.pieces.get(first..*end).unwrap_or_default();
        let sum: u64 = second.get(first..*end).unwrap_or_default().iter().sum();
        let many = pack.max_pieces.is_some_and(|most| pieces.len() as u64 > u64::from(most));
        let beyond = sum > pack.second.map_or(0, u64::from);
        many || beyond || pieces.is_empty() || pack.taken(pieces.iter().map(|piece| piece.length)) > pack.capacity
    };
    packs.any(is_bad).then(|| format!("has a pack beyond its {} tokens or its other limits, or empty", pack.capacity))
}

/// Compares what the ranks got with each other, and with the order.
fn together(
    sampler: &DistributedSampler,
    plans: &[EpochPlan],
    ranks: &[Dealt],
    rows: u64,
    broken: &mut Vec<String>,
) -> Result<Option<Value>, Failure> {
    let Some((plan, first)) = plans.first().zip(ranks.first()) else { return Ok(None) };
    let packed = sampler.packed().map(|packed| &**packed);
    let uneven = u64::from(plan.shard().tail() == Tail::Uneven);
    let mut shards: BTreeMap<u32, (usize, &Dealt)> = BTreeMap::new();
    for (rank, (plan, dealt)) in plans.iter().zip(ranks).enumerate() {
        broken.extend(dealt.broken.iter().map(|what| format!("rank {rank}: {what}")));
        if dealt.steps != first.steps || dealt.units.abs_diff(first.units) > uneven {
            let counts = |dealt: &Dealt| format!("{} steps with {} rows or packs", dealt.steps, dealt.units);
            broken.push(format!("rank 0 takes {}, and rank {rank} {}", counts(first), counts(dealt)));
        }
        let (other, same) = *shards.entry(plan.shard().index()).or_insert((rank, dealt));
        let all = |dealt: &Dealt| (dealt.positions, dealt.contents, dealt.row_ids.digest());
        if all(same) != all(dealt) {
            broken.push(format!("ranks {other} and {rank} are of one replica group and get different rows"));
        }
    }
    let count = plan.shard().count();
    if shards.len() as u64 != u64::from(count) {
        broken.push(format!("{} of {count} shards have a rank", shards.len()));
    }
    let sum = |number: fn(&Dealt) -> u64| shards.values().map(|(_, dealt)| number(dealt)).fold(0, u64::wrapping_add);
    let served = sum(|dealt| dealt.samples);
    let pads = sum(|dealt| dealt.pads);
    let positions = (0..served).fold(0_u64, |sum, position| sum.wrapping_add(element(position)));
    if sum(|dealt| dealt.positions) != positions {
        broken.push(format!("the ranks do not get each of the first {served} positions once"));
    }
    let dropped = plan.order().len().saturating_sub(served);
    let mut left_out = Vec::new();
    match plan.packed() {
        Some(packs) => packs.read(plan.order().len() - dropped, dropped, &mut left_out)?,
        None => {
            for position in plan.dropped() {
                left_out.push(Piece { row: plan.row(position)?, offset: 0, length: 1 });
            }
        }
    }
    let dealt = sum(|dealt| dealt.contents);
    let contents = left_out.iter().fold(dealt, |sum, piece| sum.wrapping_add(tokens(*piece)));
    if contents != whole(plan, packed, rows)? {
        broken.push("what the ranks get and what is dropped are not all rows and tokens once".to_owned());
    }
    let tail = plan.shard().tail();
    // Of whole rows so few are dropped that no shard could have one more.
    let may_drop = sampler.state().run.is_some_and(|run| run.drop_last_batch)
        || (tail == Tail::Drop && (packed.is_some() || dropped < u64::from(count)));
    let drops = dropped > 0 && !may_drop;
    if (pads > 0 && tail != Tail::Wrap) || drops || left_out.len() as u64 != dropped {
        broken.push(format!("{served} positions are served, {pads} of them repeated, of {}", plan.order().len()));
    }
    Ok(Some(json!({
        "epoch": plan.epoch(),
        "steps": plan.steps(),
        "packs": packed.map(|_| sum(|dealt| dealt.units)),
        "served": served,
        "pads": pads,
        "dropped": dropped,
        "tokens": packed.map(|_| sum(|dealt| dealt.tokens)),
    })))
}

/// The sum of the tokens of all positions of an order; of rows that promise to be all, without asking the order.
fn whole(plan: &EpochPlan, packed: Option<&Packed>, rows: u64) -> Result<u64, Failure> {
    let order = packed.map(|packed| packed.orders().epoch(plan.epoch())).transpose()?;
    let order = order.as_ref().unwrap_or(plan.order());
    let each = order.uses() == Uses::Once && order.len() == rows;
    let mut ids = vec![0; AT_ONCE];
    let mut lengths = vec![1; AT_ONCE];
    let mut sum = 0_u64;
    for first in (0..order.len()).step_by(AT_ONCE) {
        let count = if each {
            ids.iter_mut().zip(first..rows).map(|(id, row)| *id = row).count()
        } else {
            order.fill(first, &mut ids)
        };
        if let Some(packed) = packed {
            packed.lengths().fill(&ids[..count], &mut lengths[..count])?;
            let second = packed.pack().second_of(&**packed.lengths(), &ids[..count])?;
            let limit = packed.pack().second.map_or(0, u64::from);
            // Such a row is dropped, where it is not refused.
            let dropped = lengths.iter_mut().zip(second).filter(|(_, second)| *second > limit);
            dropped.for_each(|(length, _)| *length = 0);
        }
        for (row, length) in ids.iter().zip(&lengths).take(count) {
            let kept = match packed.map(|packed| (packed.pack().overflow, packed.pack().longest())) {
                Some((Overflow::Truncate, longest)) => (*length).min(longest),
                Some((Overflow::Drop, longest)) if *length > longest => 0,
                _ => *length,
            };
            sum = sum.wrapping_add(tokens(Piece { row: *row, offset: 0, length: kept }));
        }
    }
    Ok(sum)
}

/// A hash of some tokens of a row. Of pieces that follow each other without gap and overlap, all but the ends of the
/// row cancel out in the sum.
fn tokens(Piece { row, offset, length }: Piece) -> u64 {
    let before = |at| element(element(row).wrapping_add(at));
    before(offset + length).wrapping_sub(before(offset))
}

/// Stafford's variant 13 of the MurmurHash3 finalizer, as in SplitMix64, with its increment so that 0 is hashed, too.
///
/// Sums of it modulo 2^64 distinguish multisets: of two different ones one in 2^64 pairs has the same sum, unless such
/// a pair is looked for. (Bellare and Micciancio 1997; Clarke et al. 2003, MSet-Add-Hash.)
fn element(number: u64) -> u64 {
    let x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests;
