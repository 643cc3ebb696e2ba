//! `rowdex epoch`: what the ranks of a training job do, without the training.

use std::time::Instant;

use arrow::array::RecordBatch;
use clap::{ArgMatches, Args, ValueEnum};
use indicatif::{HumanBytes, HumanCount};
use rowdex::dataset::TierCounters;
use rowdex::loader::{Fault, LostGroup};
use rowdex::sampler::{BatchPlan, EpochPlan, RowIds, State};
use rowdex::{Batch, Dataset, DistributedSampler, Loader};
use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3Default;

use crate::args::{IndexArg, JsonArg};
use crate::carousel::{Carousel, CarouselArgs};
use crate::digest::Digest;
use crate::failure::{Failure, complain, said};
use crate::output;
use crate::progress;
use crate::sampling::{BatchArg, SamplingArgs};
use crate::state_arg;

/// Row groups decoded more often than this in an epoch are worth a word.
pub(crate) const MANY_PASSES: f64 = 4.0;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  rowdex epoch train.rdx --world-size 8 --batch-size 256
  rowdex epoch train.rdx --world-size 8 --rank 3 --epochs 2 --memory 25% --json
  rowdex epoch train.rdx --order sequential --tail uneven --columns label,text
  rowdex epoch train.rdx --skip bad.txt --split train --split-by user --balance label --epoch-size 1000000

First --skip and --split leave rows out. Then --order, --weights or --balance orders the rows that are left. Then
--epoch-size ends an epoch. --weights and --balance exclude each other and --order.")]
pub(crate) struct EpochArgs {
    #[command(flatten)]
    index: IndexArg,

    #[command(flatten)]
    sampling: SamplingArgs,

    #[command(flatten)]
    batch: BatchArg,

    /// Go on from this state of an earlier run: a line `rowdex-state-v2:...`, or a checkpoint that has it. Order, seed,
    /// ranks and batch size are those of that run; ranks and batch size may be given to go on with others.
    #[arg(long, value_name = "STATE", conflicts_with = "epoch", value_parser = state_arg::read)]
    resume: Option<State>,

    /// Stop after this many steps, even in the middle of an epoch.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,

    /// What reads the rows: `carousel` looks ahead in the order and keeps the rows that are due, `lru` keeps the row
    /// groups used last.
    #[arg(long, value_enum, default_value_t = Reader::Carousel)]
    loader: Reader,

    #[command(flatten)]
    carousel: CarouselArgs,

    #[command(flatten)]
    json: JsonArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Reader {
    Carousel,
    Lru,
}

pub(crate) fn run(args: &EpochArgs, given: &ArgMatches) -> Result<(), Failure> {
    let (mut sampling, mut batch) = (args.sampling.clone(), args.batch);
    if let Some(state) = &args.resume {
        state_arg::go_on(state, &mut sampling, &mut batch, given)?;
    }
    let index = args.index.open()?;
    let carousel = args.carousel.carousel(&index)?;
    let (dataset, reading) = match args.loader {
        Reader::Lru if carousel.fault != Fault::Fail => {
            return Err(Failure::usage("only the carousel substitutes rows that cannot be read (`--loader carousel`)"));
        }
        Reader::Lru if carousel.read_concurrency.is_some() => {
            return Err(Failure::usage("only the carousel reads ahead: leave out --read-concurrency, or --loader lru"));
        }
        Reader::Lru => (args.carousel.open(index, carousel.memory)?, Reading::Lru),
        Reader::Carousel => (args.carousel.open(index, 0)?, Reading::Carousel(carousel)),
    };
    let report = read(&dataset, &sampling, batch, reading, args.resume.as_ref(), args.steps);
    if let Some(fault) = dataset.tier_fault() {
        complain(fault);
    }
    let report = report?;
    let most = report.epochs.iter().map(|epoch| epoch.passes).fold(0.0, f64::max);
    if most > MANY_PASSES {
        complain(format!(
            "row groups were decoded {most:.0} times each in an epoch; more memory (`--memory`) or fewer columns \
             (`--columns`) would help, and `rowdex predict` says how much"
        ));
    }
    for lost in &report.lost {
        complain(format!("row group {} cannot be read: {}", lost.row_group, said(&lost.error)));
    }
    if report.substituted > 0 {
        complain(format!(
            "{} served in the place of rows that cannot be read",
            output::counted(report.substituted, "row")
        ));
    }
    if args.json.json { output::print_json(&report.to_json()) } else { output::print(&report.to_text()) }
}

/// What fetches the rows of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reading {
    /// `Dataset::take`, with the dataset's own cache.
    Lru,
    /// The loader, within this many bytes.
    Carousel(Carousel),
}

/// What was served and what it cost. Counts of rows are of one epoch, the last; costs and digests are of all of them.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) rows: u64,
    pub(crate) world_size: u32,
    pub(crate) steps: u64,
    pub(crate) ranks: Vec<RankReport>,
    pub(crate) coverage: Coverage,
    pub(crate) decodes: u64,
    pub(crate) passes: f64,
    pub(crate) bytes_read: u64,
    pub(crate) requests: u64,
    pub(crate) bytes_fetched: u64,
    pub(crate) tier: TierCounters,
    pub(crate) seconds: f64,
    pub(crate) rows_per_second: f64,
    pub(crate) peak_held_bytes: u64,
    /// Rows that stood in for others.
    pub(crate) substituted: u64,
    pub(crate) lost: Vec<LostGroup>,
    /// Where to go on.
    pub(crate) state: Option<State>,
    pub(crate) epochs: Vec<EpochReport>,
}

#[derive(Debug)]
pub(crate) struct RankReport {
    pub(crate) rank: u32,
    pub(crate) steps: u64,
    pub(crate) samples: u64,
    pub(crate) pads: u64,
    pub(crate) digest: u64,
    /// Of the row ids alone, as `rowdex prove` computes it.
    pub(crate) row_ids_digest: u64,
}

/// Which rows the chosen ranks were served, all together.
#[derive(Debug)]
pub(crate) struct Coverage {
    pub(crate) served: u64,
    pub(crate) distinct: u64,
    pub(crate) repeated: u64,
    pub(crate) missing: u64,
}

/// So many of the dropped and of the repeated rows of an epoch are named.
const MOST_NAMED: usize = 100;

#[derive(Debug)]
pub(crate) struct EpochReport {
    pub(crate) epoch: u64,
    /// What no rank serves, chosen or not.
    pub(crate) dropped: NamedRows,
    /// What ranks serve as pads.
    pub(crate) repeated: NamedRows,
    pub(crate) decodes: u64,
    pub(crate) passes: f64,
    pub(crate) bytes_read: u64,
    pub(crate) seconds: f64,
    pub(crate) rows_per_second: f64,
}

/// Some rows, the first of them by their ids.
#[derive(Debug, Default)]
pub(crate) struct NamedRows {
    pub(crate) count: u64,
    pub(crate) first: Vec<u64>,
}

impl NamedRows {
    fn new(rows: RowIds) -> rowdex::Result<Self> {
        Ok(Self { count: rows.left(), first: rows.take(MOST_NAMED).collect::<rowdex::Result<_>>()? })
    }

    fn to_json(&self) -> Value {
        json!({ "count": self.count, "row_ids": self.first })
    }
}

/// Reads every batch of every chosen rank, step by step, so that the rows of a step are neighbours in the order; from
/// `resume` on if there is such a state, and so many steps at most.
pub(crate) fn read(
    dataset: &Dataset,
    sampling: &SamplingArgs,
    batch_size: BatchArg,
    reading: Reading,
    resume: Option<&State>,
    most_steps: Option<u64>,
) -> Result<Report, Failure> {
    let chosen = sampling.choose(dataset)?;
    let rows = chosen.rows;
    let mut ranks: Vec<RankState> =
        sampling.samplers(&chosen.orders, batch_size)?.into_iter().map(RankState::new).collect();
    for rank in &mut ranks {
        if let Some(state) = resume {
            rank.sampler.resume(state)?;
        }
    }
    let first = ranks.first().map_or(sampling.epoch, |rank| rank.sampler.epoch());
    let end = first.checked_add(sampling.epochs).ok_or_else(|| Failure::new("there is no epoch after 2^64 - 1"))?;
    let groups = dataset.index().row_groups().filter(|group| group.rows() > 0).count();
    let passes = |decodes: u64| if groups == 0 { 0.0 } else { decodes as f64 / groups as f64 };
    let mut left = most_steps.unwrap_or(u64::MAX);
    let mut state = ranks.first().map(|rank| rank.sampler.state());
    let mut bar = progress::EpochBar::new(dataset);

    let mut loader = loader(dataset, &ranks, end, reading)?;
    let before = dataset.counters();
    let started = Instant::now();
    let mut served = Served::new(dataset.len(), rows)?;
    let (mut total_served, mut substituted) = (0, 0);
    let mut peak_held_bytes = 0;
    let mut epochs = Vec::new();
    for epoch in first..end {
        let (before, started) = (dataset.counters(), Instant::now());
        served.clear();
        let plans = ranks.iter().map(|rank| rank.sampler.plan(epoch)).collect::<rowdex::Result<Vec<_>>>()?;
        let first_step = plans.first().map_or(0, EpochPlan::first_step);
        let steps = plans.first().map_or(0, EpochPlan::steps_left).min(left);
        left -= steps;
        bar.start_epoch(epoch, steps, if most_steps.is_some() { 1 } else { end - epoch });
        let mut batch = BatchPlan::default();
        let dropped = plans.first().map(|plan| NamedRows::new(plan.dropped())).transpose()?.unwrap_or_default();
        let repeated = plans.first().map(|plan| NamedRows::new(plan.repeated())).transpose()?.unwrap_or_default();
        for rank in &mut ranks {
            rank.start_epoch();
        }
        for step in first_step..first_step + steps {
            for (rank, plan) in ranks.iter_mut().zip(&plans) {
                plan.fill(step, &mut batch)?;
                let values = match &mut loader {
                    Some(loader) => {
                        let served = next(loader, &batch.rows)?;
                        substituted += served.substituted.len() as u64;
                        batch.rows = served.row_ids;
                        served.records
                    }
                    None => dataset.take(&batch.rows)?,
                };
                rank.add(&batch, &values)?;
                served.add(&batch.rows);
                let held = loader.as_ref().map_or(dataset.counters().held_bytes, |loader| loader.stats().peak_bytes);
                peak_held_bytes = peak_held_bytes.max(held);
            }
            bar.step(served.count, &passes);
        }
        if let (Some(rank), Some(last)) = (ranks.first(), steps.checked_sub(1)) {
            state = Some(rank.sampler.state_after(epoch, first_step + last)?);
        }
        total_served += served.count;
        let cost = dataset.counters() - before;
        let (decodes, bytes_read) = (cost.decodes, cost.bytes_read);
        let seconds = started.elapsed().as_secs_f64();
        let rows_per_second = output::rate(served.count, seconds);
        let passes = passes(decodes);
        epochs.push(EpochReport { epoch, dropped, repeated, decodes, passes, bytes_read, seconds, rows_per_second });
        if left == 0 {
            break;
        }
    }
    bar.finish();

    let cost = dataset.counters() - before;
    let seconds = started.elapsed().as_secs_f64();
    let reports: Vec<RankReport> = ranks.iter().map(RankState::report).collect();
    Ok(Report {
        rows,
        world_size: sampling.world_size,
        steps: reports.first().map_or(0, |rank| rank.steps),
        ranks: reports,
        coverage: served.coverage(),
        decodes: cost.decodes,
        passes: passes(cost.decodes),
        bytes_read: cost.bytes_read,
        requests: cost.requests,
        bytes_fetched: cost.bytes_fetched,
        tier: dataset.tier_counters(),
        seconds,
        rows_per_second: output::rate(total_served, seconds),
        peak_held_bytes,
        substituted,
        lost: loader.map(|loader| loader.lost_groups()).unwrap_or_default(),
        state,
        epochs,
    })
}

/// A loader for all of these ranks; `None` where there are none, or for another way of reading.
fn loader(dataset: &Dataset, ranks: &[RankState], end: u64, reading: Reading) -> Result<Option<Loader>, Failure> {
    let Reading::Carousel(carousel) = reading else { return Ok(None) };
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
    digest: Digest,
    row_ids: Xxh3Default,
}

impl RankState {
    fn new(sampler: DistributedSampler) -> Self {
        Self {
            rank: sampler.shard().rank(),
            sampler,
            steps: 0,
            samples: 0,
            pads: 0,
            digest: Digest::new(),
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
        self.digest.add(batch.first, batch.stride, &batch.rows, values)
    }

    fn report(&self) -> RankReport {
        let &Self { rank, steps, samples, pads, .. } = self;
        RankReport { rank, steps, samples, pads, digest: self.digest.finish(), row_ids_digest: self.row_ids.digest() }
    }
}

/// A bit for each row that was served.
struct Served {
    /// How many there are to serve.
    rows: u64,
    bits: Vec<u64>,
    count: u64,
}

impl Served {
    /// An index may claim any number of rows, and memory runs out before the numbers do.
    fn new(all: u64, rows: u64) -> Result<Self, Failure> {
        let too_many = || Failure::new(format!("no memory to count which of {all} rows are served"));
        let words = usize::try_from(all.div_ceil(64)).map_err(|_| too_many())?;
        let mut bits = Vec::new();
        bits.try_reserve_exact(words).map_err(|_| too_many())?;
        bits.resize(words, 0);
        Ok(Self { rows, bits, count: 0 })
    }

    fn clear(&mut self) {
        self.bits.fill(0);
        self.count = 0;
    }

    fn add(&mut self, rows: &[u64]) {
        self.count += rows.len() as u64;
        for &row in rows {
            if let Some(bits) = self.bits.get_mut((row / 64) as usize) {
                *bits |= 1 << (row % 64);
            }
        }
    }

    fn coverage(&self) -> Coverage {
        let distinct = self.bits.iter().map(|bits| u64::from(bits.count_ones())).sum();
        Coverage {
            served: self.count,
            distinct,
            repeated: self.count.saturating_sub(distinct),
            missing: self.rows.saturating_sub(distinct),
        }
    }
}

impl Report {
    fn to_json(&self) -> Value {
        let rank = |rank: &RankReport| {
            json!({
                "rank": rank.rank,
                "steps": rank.steps,
                "samples": rank.samples,
                "pads": rank.pads,
                "digest": format!("{:016x}", rank.digest),
                "row_ids_digest": format!("{:016x}", rank.row_ids_digest),
            })
        };
        let epoch = |epoch: &EpochReport| {
            json!({
                "epoch": epoch.epoch,
                "dropped": epoch.dropped.to_json(),
                "repeated": epoch.repeated.to_json(),
                "decodes": epoch.decodes,
                "passes": epoch.passes,
                "bytes_read": epoch.bytes_read,
                "seconds": epoch.seconds,
                "rows_per_second": epoch.rows_per_second,
            })
        };
        let lost = |lost: &LostGroup| json!({ "row_group": lost.row_group, "error": said(&lost.error) });
        json!({
            "rows": self.rows,
            "world_size": self.world_size,
            "steps": self.steps,
            "ranks": self.ranks.iter().map(rank).collect::<Vec<_>>(),
            "coverage": {
                "served": self.coverage.served,
                "distinct": self.coverage.distinct,
                "repeated": self.coverage.repeated,
                "missing": self.coverage.missing,
            },
            "decodes": self.decodes,
            "passes": self.passes,
            "bytes_read": self.bytes_read,
            "requests": self.requests,
            "bytes_fetched": self.bytes_fetched,
            "tier": {
                "hits": self.tier.hits,
                "misses": self.tier.misses,
                "writes": self.tier.writes,
                "bytes_written": self.tier.bytes_written,
                "evictions": self.tier.evictions,
                "bytes_evicted": self.tier.bytes_evicted,
                "discards": self.tier.discards,
                "timeouts": self.tier.timeouts,
            },
            "seconds": self.seconds,
            "rows_per_second": self.rows_per_second,
            "peak_held_bytes": self.peak_held_bytes,
            "substituted": self.substituted,
            "lost_row_groups": self.lost.iter().map(lost).collect::<Vec<_>>(),
            "state": self.state.map(|state| state.to_string()),
            "epochs": self.epochs.iter().map(epoch).collect::<Vec<_>>(),
        })
    }

    pub(crate) fn to_text(&self) -> String {
        let mut ranks =
            vec![["rank", "steps", "samples", "pads", "row ids digest", "values digest"].map(str::to_owned).to_vec()];
        ranks.extend(self.ranks.iter().map(|rank| {
            let counts =
                [rank.rank.to_string(), rank.steps.to_string(), rank.samples.to_string(), rank.pads.to_string()];
            counts
                .into_iter()
                .chain([rank.row_ids_digest, rank.digest].map(|digest| format!("{digest:016x}")))
                .collect()
        }));
        let mut epochs = vec![["epoch", "seconds", "rows/s", "decodes", "passes", "read"].map(str::to_owned).to_vec()];
        epochs.extend(self.epochs.iter().map(|epoch| {
            vec![
                epoch.epoch.to_string(),
                format!("{:.2}", epoch.seconds),
                HumanCount(epoch.rows_per_second as u64).to_string(),
                epoch.decodes.to_string(),
                format!("{:.2}", epoch.passes),
                HumanBytes(epoch.bytes_read).to_string(),
            ]
        }));
        let substituted = match self.substituted {
            0 => String::new(),
            rows => format!(
                "{} served in the place of rows of {} that cannot be read\n",
                output::counted(rows, "row"),
                output::counted(self.lost.len() as u64, "row group")
            ),
        };
        let tier = match self.tier {
            TierCounters { hits: 0, misses: 0, .. } => String::new(),
            tier => format!(
                "{} from the disk tier, {} not in it, {} kept there\n",
                output::counted(tier.hits, "row group"),
                HumanCount(tier.misses),
                HumanBytes(tier.bytes_written)
            ),
        };
        let shared = match self.ranks.len() {
            0 | 1 => String::new(),
            ranks => format!(", by {ranks} ranks on one loader (`rowdex predict --ranks-per-node {ranks}`)"),
        };
        let state = self.state.map(|state| format!("to go on: --resume {state}\n")).unwrap_or_default();
        format!(
            "{}\n{}: {} served, {} distinct, {} repeated, {} missing\n\n{}\n{} read, {} decoded held at most{shared}\n\
             {tier}{substituted}{state}",
            output::columns(&ranks),
            output::counted(self.rows, "row"),
            HumanCount(self.coverage.served),
            HumanCount(self.coverage.distinct),
            HumanCount(self.coverage.repeated),
            HumanCount(self.coverage.missing),
            output::columns(&epochs),
            HumanBytes(self.bytes_read),
            HumanBytes(self.peak_held_bytes)
        )
    }
}
