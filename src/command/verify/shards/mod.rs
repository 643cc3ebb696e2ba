//! `rowdex verify --shards`: goes through everything that all ranks are dealt, and shows that the promises hold.

mod cover;
mod packs;
mod pass;
mod report;
#[cfg(test)]
mod tests;
mod together;

use std::ops::Range;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use clap::ArgMatches;
use rowdex::DistributedSampler;
use rowdex::order::Uses;
use rowdex::sampler::EpochPlan;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use self::cover::{Counts, SetHash};
use self::pass::{Against, Dealt, deal};
use self::together::Together;
use super::VerifyArgs;
use crate::command::failure::{Failure, complain};
use crate::command::output;
use crate::command::progress::Progress;
use crate::command::sampling::{self, first_of_each};

pub(crate) fn run(args: &VerifyArgs, given: &ArgMatches) -> Result<(), Failure> {
    let mut sampling = args.sampling.clone();
    let mut batch = args.batch;
    args.state.settle(&mut sampling, Some(&mut batch), given)?;
    sampling.whole_epochs();
    let started = Instant::now();
    let index = args.index.open()?;
    let samplers = sampling.samplers(&sampling.orders(&index)?, batch)?;
    if sampling.dealing.pack.is_some() {
        if args.workers > 0 {
            return Err(Failure::usage("--workers is of rows: leave it out where there is --pack"));
        }
        let proof = packs::prove(&samplers, sampling.epochs()?)?;
        return proof.report(&sampling, args.json.json, started.elapsed().as_secs_f64());
    }
    let proof = prove(&samplers, index.len(), sampling.epochs()?, args.workers, false)?;
    if !proof.broken.is_empty() {
        proof.broken.iter().for_each(complain);
        return Err(Failure::Reported);
    }
    let report = report::Report { args: &sampling, proof: &proof, seconds: started.elapsed().as_secs_f64() };
    if args.json.json { output::print_json(&report.to_json()) } else { output::print(&report.to_text()) }
}

/// What was found of a run.
#[derive(Debug)]
struct Proof {
    rows: u64,
    positions: u64,
    fingerprint: u64,
    shards: u32,
    workers: u64,
    promise: Uses,
    cover: Cover,
    /// Of the last epoch, but for the digest.
    ranks: Vec<RankProof>,
    epochs: Vec<Together>,
    digest: u64,
    broken: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct RankProof {
    steps: u64,
    samples: u64,
    pads: u64,
    digest: u64,
}

/// How it is known which rows were served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cover {
    Hashed,
    Counted,
}

/// Goes through the epochs, until one breaks a promise.
fn prove(
    samplers: &[DistributedSampler],
    rows: u64,
    epochs: Range<u64>,
    workers: u64,
    exact: bool,
) -> Result<Proof, Failure> {
    let Some(first) = samplers.first() else { return Err(Failure::new("there is no rank to prove anything of")) };
    let positions = first.orders().len();
    let mut proof = Proof {
        rows,
        positions,
        fingerprint: first.orders().fingerprint(),
        shards: first.shard().count(),
        workers,
        promise: Uses::Once,
        cover: if exact { Cover::Counted } else { Cover::Hashed },
        ranks: Vec::new(),
        epochs: Vec::new(),
        digest: 0,
        broken: Vec::new(),
    };
    let mut digests = vec![Xxh3Default::new(); samplers.len()];
    let mut all = None;
    let progress = Progress::new("steps", 0);
    for epoch in epochs {
        let plans = sampling::plans(samplers, epoch)?;
        proof.promise = plans.first().map_or(Uses::Any, |plan| plan.order().uses());
        if proof.promise != Uses::Once || positions != rows {
            proof.cover = Cover::Counted;
        }
        let counts = (proof.cover == Cover::Counted).then(|| Counts::new(rows)).transpose()?;
        let against =
            Against { rows, batch_size: first.batch_size(), workers, counts: counts.as_ref(), progress: &progress };
        progress.lengthen(plans.iter().map(EpochPlan::steps).sum());
        let ranks = deal_all(&plans, against, &mut digests)?;
        let mut together = Together::new(&plans, &ranks);
        let one_of_each = one_of_each(&plans, &ranks);
        match &counts {
            Some(counts) => together.counted(proof.promise, positions, &one_of_each, counts),
            None => {
                let all = *all.get_or_insert_with(|| SetHash::of_all(positions));
                let order = plans.first().map(EpochPlan::order);
                if !order.is_some_and(|order| together.hashed(&**order, &one_of_each, all)) {
                    name_the_rows(&plans, against, proof.promise, &mut together)?;
                }
            }
        }
        proof.broken.extend(together.broken.iter().map(|what| format!("epoch {epoch}: {what}")));
        proof.ranks = ranks
            .iter()
            .map(|dealt| RankProof {
                steps: dealt.steps,
                samples: dealt.samples,
                pads: dealt.pads.len() as u64,
                digest: 0,
            })
            .collect();
        proof.epochs.push(together);
        if !proof.broken.is_empty() {
            break;
        }
    }
    progress.finish();
    for (rank, digest) in proof.ranks.iter_mut().zip(&digests) {
        rank.digest = digest.digest();
    }
    replicas(samplers, &mut proof);
    proof.digest = xxh3_64(&proof.ranks.iter().flat_map(|rank| rank.digest.to_le_bytes()).collect::<Vec<_>>());
    Ok(proof)
}

/// All ranks, on as many threads as there are cores.
fn deal_all(plans: &[EpochPlan], against: Against<'_>, digests: &mut [Xxh3Default]) -> Result<Vec<Dealt>, Failure> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(plans.len());
    let mut results: Vec<Option<Result<Dealt, Failure>>> = Vec::new();
    results.resize_with(plans.len(), || None);
    let queue = Mutex::new(plans.iter().zip(digests).zip(&mut results));
    let work = || {
        loop {
            let next = queue.lock().ok().and_then(|mut queue| queue.next());
            let Some(((plan, digest), result)) = next else { return };
            *result = Some(deal(plan, against, digest));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let lost = || Err(Failure::new("a rank was not gone through; this is a defect of rowdex"));
    results.into_iter().map(|result| result.unwrap_or_else(lost)).collect()
}

/// One rank of each shard.
fn one_of_each<'a>(plans: &[EpochPlan], ranks: &'a [Dealt]) -> Vec<&'a Dealt> {
    let first = first_of_each(plans.iter().map(EpochPlan::shard));
    ranks.iter().zip(first).filter_map(|(dealt, first)| first.then_some(dealt)).collect()
}

/// The hash says that something is wrong with the rows; a second pass counts them and says what.
fn name_the_rows(
    plans: &[EpochPlan],
    against: Against<'_>,
    promise: Uses,
    together: &mut Together,
) -> Result<(), Failure> {
    let before = together.broken.len();
    let counts = Counts::new(against.rows)?;
    let first = first_of_each(plans.iter().map(EpochPlan::shard));
    let shards: Vec<EpochPlan> =
        plans.iter().zip(first).filter(|(_, first)| *first).map(|(plan, _)| plan.clone()).collect();
    let against = Against { workers: 0, counts: Some(&counts), ..against };
    let ranks = deal_all(&shards, against, &mut vec![Xxh3Default::new(); shards.len()])?;
    together.counted(promise, against.rows, &ranks.iter().collect::<Vec<_>>(), &counts);
    if together.broken.len() == before {
        together.broken.push("the rows served are not every row once, and another look finds nothing wrong".to_owned());
    }
    Ok(())
}

/// Ranks of a replica group must have the digest of the group's first.
fn replicas(samplers: &[DistributedSampler], proof: &mut Proof) {
    let first = first_of_each(samplers.iter().map(DistributedSampler::shard));
    let mut of_shard = vec![None; proof.shards as usize];
    for (rank, (sampler, first)) in samplers.iter().zip(first).enumerate() {
        let (Some(found), Some(shard)) = (proof.ranks.get(rank), of_shard.get_mut(sampler.shard().index() as usize))
        else {
            continue;
        };
        if first {
            *shard = Some((rank, found.digest));
        } else if let Some((other, digest)) = *shard
            && digest != found.digest
        {
            proof
                .broken
                .push(format!("ranks {other} and {rank} are of one replica group and are dealt different rows"));
        }
    }
}
