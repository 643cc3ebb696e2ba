//! The promises of packs: goes through every batch of every rank, step by step.

use std::ops::Range;

use rowdex::DistributedSampler;
use rowdex::order::{Algorithm, EpochOrder, Lengths, Overflow, Pack, Packed, Piece};
use rowdex::sampler::{BatchPlan, EpochPlan, Tail};
use serde_json::{Value, json};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::cover::element;
use crate::command::failure::{Failure, complain};
use crate::command::output;
use crate::command::progress::Progress;
use crate::command::sampling::{self, SamplingArgs, first_of_each};

/// Positions of the order that are looked at in one go.
const AT_ONCE: usize = 1 << 16;

/// More complaints than this about an epoch say nothing new.
const ENOUGH: usize = 5;

/// What was found of a run.
#[derive(Default)]
pub(super) struct PackProof {
    ranks: Vec<PackedRank>,
    epochs: Vec<PackedEpoch>,
    pub(super) broken: Vec<String>,
}

/// What a rank was dealt in all epochs.
#[derive(Default)]
struct PackedRank {
    steps: u64,
    packs: u64,
    pieces: u64,
    pads: u64,
    digest: Xxh3Default,
}

/// What all shards were dealt in an epoch.
#[derive(Default)]
struct PackedEpoch {
    epoch: u64,
    steps: u64,
    packs: u64,
    pieces: u64,
    tokens: u64,
    pads: u64,
    /// Pieces that the tail policy leaves out.
    dropped: u64,
    /// Over the tokens of all pieces that are not pads, those that are dropped included.
    tokens_hash: u64,
    broken: Vec<String>,
}

/// Goes through the epochs, until one breaks a promise.
pub(super) fn prove(samplers: &[DistributedSampler], epochs: Range<u64>) -> Result<PackProof, Failure> {
    let mut proof = PackProof::default();
    proof.ranks.resize_with(samplers.len(), PackedRank::default);
    let Some(packed) = samplers.first().and_then(DistributedSampler::packed) else {
        return Err(Failure::new("there is no rank to prove anything of"));
    };
    let first = first_of_each(samplers.iter().map(DistributedSampler::shard));
    let progress = Progress::new("steps", 0);
    for epoch in epochs {
        let plans = sampling::plans(samplers, epoch)?;
        let found = go_through(packed, &plans, &first, &mut proof.ranks, &progress)?;
        proof.broken.extend(found.broken.iter().map(|what| format!("epoch {epoch}: {what}")));
        proof.epochs.push(found);
        if !proof.broken.is_empty() {
            break;
        }
    }
    progress.finish();
    Ok(proof)
}

fn go_through(
    packed: &Packed,
    plans: &[EpochPlan],
    first: &[bool],
    ranks: &mut [PackedRank],
    progress: &Progress,
) -> Result<PackedEpoch, Failure> {
    let Some(plan) = plans.first() else { return Ok(PackedEpoch::default()) };
    let Some(of_epoch) = plan.packed() else { return Ok(PackedEpoch::default()) };
    let mut found = PackedEpoch { epoch: plan.epoch(), steps: plan.steps(), ..PackedEpoch::default() };
    progress.lengthen(plan.steps());
    if let Some(rank) = plans.iter().position(|other| other.steps() != plan.steps()) {
        found.complain(format!("rank 0 takes {} steps and rank {rank} {}", plan.steps(), plans[rank].steps()));
        return Ok(found);
    }
    let len = of_epoch.len();
    let mut next = 0;
    let mut batch = BatchPlan::default();
    for step in 0..plan.steps() {
        let mut stretches = Vec::new();
        let mut packs = Vec::new();
        let mut lengths = Vec::new();
        let mut of_shard = vec![None; plan.shard().count() as usize];
        for ((rank, plan), (own, first)) in plans.iter().enumerate().zip(ranks.iter_mut().zip(first)) {
            plan.fill(step, &mut batch)?;
            own.add(&batch);
            found.check_batch(rank, &batch, plan, packed.pack());
            let shard = of_shard.get_mut(plan.shard().index() as usize);
            let same = shard.map(|shard| shard.get_or_insert_with(|| batch.pieces.clone()) == &batch.pieces);
            if same == Some(false) {
                found.complain(format!("step {step}: rank {rank} and another one of its replica group differ"));
            }
            if *first {
                found.add(&batch);
                packs.push(batch.packs.len());
                let real = batch.pieces.len().saturating_sub(batch.pads);
                lengths.extend(batch.pieces.iter().take(real).map(|piece| piece.length));
                stretches.push((batch.first, batch.pieces.len() as u64));
            }
        }
        found.check_step(step, &packs, plan);
        if packed.pack().algorithm == Algorithm::Buckets && plan.start() == 0 && !lengths.is_sorted() {
            found.complain(format!("step {step}: the batches of the ranks are no neighbours in length"));
        }
        stretches.sort_unstable();
        for (first, count) in stretches.into_iter().filter(|(_, count)| *count > 0) {
            if first != next {
                found.complain(format!("step {step} goes on at position {first} instead of {next}"));
            }
            next = first + count;
        }
        progress.advance(1);
    }
    let mut dropped = Vec::new();
    of_epoch.read(next, len.saturating_sub(next), &mut dropped)?;
    found.dropped = dropped.len() as u64;
    found.hash(&dropped);
    found.check_whole(packed, plan, next, len)?;
    Ok(found)
}

impl PackedRank {
    fn add(&mut self, batch: &BatchPlan) {
        self.steps += 1;
        self.packs += batch.packs.len() as u64;
        self.pieces += batch.pieces.len() as u64;
        self.pads += batch.pads as u64;
        let numbers = batch.pieces.iter().flat_map(|piece| [piece.row, piece.offset, piece.length]);
        let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        self.digest.update(&bytes);
    }
}

impl PackedEpoch {
    fn complain(&mut self, what: String) {
        if self.broken.len() < ENOUGH {
            self.broken.push(what);
        }
    }

    fn add(&mut self, batch: &BatchPlan) {
        self.packs += batch.packs.len() as u64;
        self.pieces += batch.pieces.len() as u64;
        self.pads += batch.pads as u64;
        self.tokens += batch.pieces.iter().map(|piece| piece.length).sum::<u64>();
        let real = batch.pieces.len().saturating_sub(batch.pads);
        self.hash(batch.pieces.get(..real).unwrap_or_default());
    }

    /// Of the pieces of a row that follow each other without gap and overlap, all but the ends of the row cancel out.
    fn hash(&mut self, pieces: &[Piece]) {
        for Piece { row, offset, length } in pieces {
            let ends = token(*row, offset + length).wrapping_sub(token(*row, *offset));
            self.tokens_hash = self.tokens_hash.wrapping_add(ends);
        }
    }

    /// A batch by itself.
    fn check_batch(&mut self, rank: usize, batch: &BatchPlan, plan: &EpochPlan, pack: &Pack) {
        let step = batch.step;
        let mut first = 0;
        if batch.packs.last().copied().unwrap_or(0) != batch.pieces.len() || batch.rows.len() != batch.pieces.len() {
            self.complain(format!("step {step}: the packs of rank {rank} do not have all of its pieces"));
        }
        for end in &batch.packs {
            let pieces = batch.pieces.get(first..*end).unwrap_or_default();
            let taken = pack.taken(pieces.iter().map(|piece| piece.length));
            let many = pack.max_pieces.is_some_and(|most| pieces.len() as u64 > u64::from(most));
            if taken > pack.capacity || many || pieces.is_empty() {
                self.complain(format!(
                    "step {step}: a pack of rank {rank} has {} pieces that take {taken} tokens of {}",
                    pieces.len(),
                    pack.capacity
                ));
            }
            first = *end;
        }
        let full = batch.packs.len() as u64 == plan.batch_size();
        if batch.packs.len() as u64 > plan.batch_size() || (!full && step + 1 < plan.steps()) {
            self.complain(format!("step {step}: rank {rank} has {} packs of {}", batch.packs.len(), plan.batch_size()));
        }
    }

    /// The shards have as many packs at a step.
    fn check_step(&mut self, step: u64, packs: &[usize], plan: &EpochPlan) {
        let most = packs.iter().max().copied();
        let fewest = packs.iter().min().copied();
        let differ = most.zip(fewest).map_or(0, |(most, fewest)| most - fewest);
        if differ > usize::from(plan.shard().tail() == Tail::Uneven) {
            self.complain(format!("step {step}: one rank has {most:?} packs and another one {fewest:?}"));
        }
    }

    /// Every token of the order once, but for those that the packing itself leaves out.
    fn check_whole(&mut self, packed: &Packed, plan: &EpochPlan, end: u64, len: u64) -> Result<(), Failure> {
        let order = packed.orders().epoch(plan.epoch())?;
        let expected = all_tokens(&*order, &**packed.lengths(), packed.pack())?;
        if self.tokens_hash != expected {
            self.complain("the pieces are not all tokens of the order once".to_owned());
        }
        if self.pieces + self.dropped != len + self.pads {
            let Self { pieces, dropped, pads, .. } = *self;
            self.complain(format!("{pieces} pieces served, {pads} of them pads, and {dropped} dropped, of {len}"));
        }
        let may_drop = plan.shard().tail() == Tail::Drop;
        if (self.dropped > 0 && !may_drop) || (self.pads > 0 && plan.shard().tail() != Tail::Wrap) {
            self.complain(format!("the ranks end at position {end} of {len}"));
        }
        Ok(())
    }
}

/// A hash of the place before a token of a row.
fn token(row: u64, at: u64) -> u64 {
    element(element(row).wrapping_add(at))
}

/// What [`PackedEpoch::hash`] comes to over all positions of an order.
fn all_tokens(order: &dyn EpochOrder, lengths: &dyn Lengths, pack: &Pack) -> Result<u64, Failure> {
    let mut rows = vec![0; AT_ONCE];
    let mut found = vec![0; AT_ONCE];
    let mut sum = 0_u64;
    for first in (0..order.len()).step_by(AT_ONCE) {
        let count = order.fill(first, &mut rows);
        lengths.fill(&rows[..count], &mut found[..count])?;
        for (row, length) in rows.iter().zip(&found).take(count) {
            let kept = match pack.overflow {
                Overflow::Truncate => (*length).min(pack.longest()),
                Overflow::Drop if *length > pack.longest() => 0,
                _ => *length,
            };
            sum = sum.wrapping_add(token(*row, kept).wrapping_sub(token(*row, 0)));
        }
    }
    Ok(sum)
}

impl PackProof {
    pub(super) fn report(&self, args: &SamplingArgs, json: bool, seconds: f64) -> Result<(), Failure> {
        if !self.broken.is_empty() {
            self.broken.iter().for_each(complain);
            return Err(Failure::Reported);
        }
        if json {
            output::print_json(&self.to_json(args, seconds))
        } else {
            output::print(&self.to_text(args, seconds))
        }
    }

    fn promises(&self, args: &SamplingArgs) -> Vec<&'static str> {
        let pack = args.dealing.pack.as_ref().map(|pack| pack.pack.algorithm);
        let buckets = pack == Some(Algorithm::Buckets);
        let mut promises = vec![
            "every rank takes the same number of steps",
            match args.dealing.tail() {
                Tail::Uneven => "packs of any two ranks differ by one at most",
                _ => "every rank has the same number of packs at every step",
            },
            "every piece is dealt to one shard, once",
            match buckets {
                true => "the batches of a step are neighbours in length",
                false => "no pack exceeds its capacity",
            },
            match args.dealing.tail() {
                Tail::Wrap => "every token once, but for pads",
                Tail::Drop => "every token once, but for dropped packs",
                _ => "every token once",
            },
        ];
        if args.dealing.replication.0 > 1 {
            promises.push("ranks of a replica group are dealt the same");
        }
        promises
    }

    fn digest(&self) -> u64 {
        xxh3_64(&self.ranks.iter().flat_map(|rank| rank.digest.digest().to_le_bytes()).collect::<Vec<_>>())
    }

    fn to_json(&self, args: &SamplingArgs, seconds: f64) -> Value {
        let ranks = self.ranks.iter().enumerate().map(|(rank, found)| {
            json!({
                "rank": rank,
                "steps": found.steps,
                "packs": found.packs,
                "pieces": found.pieces,
                "pads": found.pads,
                "pieces_digest": format!("{:016x}", found.digest.digest()),
            })
        });
        let epochs = self.epochs.iter().map(|epoch| {
            json!({
                "epoch": epoch.epoch,
                "steps": epoch.steps,
                "packs": epoch.packs,
                "pieces": epoch.pieces,
                "tokens": epoch.tokens,
                "pads": epoch.pads,
                "dropped": epoch.dropped,
            })
        });
        json!({
            "pack": args.dealing.pack.as_ref().map(ToString::to_string),
            "world_size": args.world_size,
            "ranks": ranks.collect::<Vec<_>>(),
            "epochs": epochs.collect::<Vec<_>>(),
            "promises": self.promises(args),
            "pieces_digest": format!("{:016x}", self.digest()),
            "seconds": seconds,
        })
    }

    fn to_text(&self, args: &SamplingArgs, seconds: f64) -> String {
        let mut ranks = vec![["rank", "steps", "packs", "pieces", "pads", "pieces digest"].map(str::to_owned).to_vec()];
        ranks.extend(self.ranks.iter().enumerate().map(|(rank, found)| {
            let counts =
                [rank as u64, found.steps, found.packs, found.pieces, found.pads].map(|count| count.to_string());
            counts.into_iter().chain([format!("{:016x}", found.digest.digest())]).collect()
        }));
        let names = ["epoch", "steps", "packs", "pieces", "tokens", "pads", "dropped"];
        let mut epochs = vec![names.map(str::to_owned).to_vec()];
        epochs.extend(self.epochs.iter().map(|epoch| {
            let PackedEpoch { epoch, steps, packs, pieces, tokens, pads, dropped, .. } = *epoch;
            [epoch, steps, packs, pieces, tokens, pads, dropped].map(|number| number.to_string()).to_vec()
        }));
        let promises: String = self.promises(args).iter().map(|promise| format!("yes  {promise}\n")).collect();
        format!(
            "{}\n{}\n{promises}\npieces digest {:016x}, {seconds:.1} s\n",
            output::columns(&ranks),
            output::columns(&epochs),
            self.digest()
        )
    }
}
