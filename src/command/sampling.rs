//! Which rank gets which rows when, as it is asked for on the command line.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use rowdex::order::{Lengths, Order, Partition, Recipe};
use rowdex::sampler::{EpochPlan, PackSpec, ReplicationLayout, SamplerOptions, State, Tail};
use rowdex::{Dataset, DistributedSampler, Index, Shard};

use crate::command::args::named;
use crate::command::failure::Failure;
use crate::command::order_arg::OrderArg;

/// More ranks than this in one process would take gigabytes just to be counted.
const MOST_RANKS: u32 = 1 << 16;

/// Which row comes where, and how positions are assigned to ranks.
#[derive(Debug, Clone, Args)]
pub(crate) struct DealingArgs {
    /// The order of the rows before they are assigned to the ranks: `sequential` takes them as they lie, `global`
    /// shuffles all among all, `blocks(K)` or `blocks:K` shuffles row groups and the rows of K of them at a time
    /// (`blocks:all` for all), `torch` is PyTorch's own shuffle. `weighted:COLUMN` draws rows in proportion to a
    /// column, or `weighted:COLUMN,from=LIST` to that of a list; with `,once` no row comes twice in an epoch.
    /// `balanced:COLUMN` serves all classes equally often. `scored:COLUMN,folds=K` sorts by a column, or by lengths of
    /// this name in the index, in K sweeps from the lowest to the highest. `file:FILE` serves the row ids in a file,
    /// little-endian 64-bit integers. With `,size=N` an epoch ends after this number of rows over all ranks, and the
    /// next one continues, or draws again. With `,paired` behind that every second epoch is the one before it
    /// backwards. With `,contiguous` at the end each rank takes one consecutive piece, instead of positions in turn.
    #[arg(long, value_name = "ORDER", default_value = "global")]
    pub(crate) order: OrderArg,

    /// The seed of the shuffle, the same on all ranks.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,

    /// How many ranks get the same rows, as those of a model-parallel group must: `2` for ranks 0 and 1, 2 and 3, or
    /// `2,strided` for 0 and 2, 1 and 3 of four.
    #[arg(long, value_name = "K", default_value = "1", value_parser = replication)]
    pub(crate) replication: (u32, ReplicationLayout),

    /// What becomes of rows, or packs, that do not divide evenly among the ranks: `wrap` (the default) repeats the
    /// first ones, `drop` leaves them out, `uneven` gives some ranks one more, `error` refuses; `even` (the default of
    /// packs but buckets, and for them alone) opens packs until all ranks have the same number.
    #[arg(long, value_name = "TAIL", value_parser = named::<Tail>(&["wrap", "drop", "uneven", "error", "even"]))]
    pub(crate) tail: Option<Tail>,

    /// Rows, or packs, per step and rank.
    #[arg(long, value_name = "B", default_value_t = 256, value_parser = batch_size)]
    pub(crate) batch_size: usize,

    /// Batches of packs: the name of the lengths in the index and the tokens of a pack, `tokens:8192`, and then options
    /// with commas between them: `overflow=split|truncate|drop|error`, `algorithm=bfd|concat|budget|padded`, `extra=N`,
    /// `multiple=N`, `max_pieces=N`, `second=NAME-N` (a second limit), `block=N`, `empty=skip|keep`,
    /// `cost=LINEAR-QUADRATIC` (docs/sequences.md). Or batches of rows of like lengths, sorted within N positions:
    /// `tokens:buckets,block=N`.
    #[arg(long, value_name = "LENGTHS:CAPACITY", value_parser = packing)]
    pub(crate) pack: Option<PackSpec>,

    /// Serve only the rows that this view of INDEX serves, too, by their row ids in INDEX: `rowdex select` writes one.
    #[arg(long, value_name = "VIEW")]
    pub(crate) only: Option<PathBuf>,
}

/// Who gets which rows when.
#[derive(Debug, Clone, Args)]
pub(crate) struct SamplingArgs {
    #[command(flatten)]
    pub(crate) dealing: DealingArgs,

    /// The first epoch to run.
    #[arg(long, value_name = "E", default_value_t = 0)]
    pub(crate) epoch: u64,

    /// How many epochs to run.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) epochs: u64,

    /// How many ranks there are.
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) world_size: u32,

    /// The rank to be, where a command asks for one.
    #[arg(skip = Rank::All)]
    pub(crate) rank: Rank,

    /// Of the run that is asked about, if its state is given.
    #[arg(skip)]
    pub(crate) run: Option<State>,

    /// Whether a short last batch is left out, which only a state says.
    #[arg(skip)]
    pub(crate) drop_last_batch: bool,
}

fn replication(text: &str) -> Result<(u32, ReplicationLayout), String> {
    let (replicas, layout) = text.split_once(',').unwrap_or((text, "consecutive"));
    let replicas = replicas.parse().ok().filter(|replicas| *replicas > 0);
    let replicas = replicas.ok_or_else(|| format!("{text:?} does not begin with a number from 1 on"))?;
    Ok((replicas, layout.parse().map_err(|error: rowdex::Error| error.to_string())?))
}

fn packing(text: &str) -> Result<PackSpec, String> {
    text.parse().map_err(|error: rowdex::Error| error.to_string())
}

fn batch_size(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|size| *size > 0).ok_or_else(|| format!("{text:?} is not a number from 1 on"))
}

/// The orders that a command line asks for.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) orders: Arc<dyn Order>,
    /// How many rows there are to serve.
    pub(crate) rows: u64,
    /// What the orders are called.
    pub(crate) name: String,
    /// The lengths of the rows, if they are packed.
    lengths: Option<Arc<dyn Lengths>>,
}

impl DealingArgs {
    /// What becomes of rows or packs that do not divide evenly.
    pub(crate) fn tail(&self) -> Tail {
        self.tail.unwrap_or_else(|| self.pack.as_ref().map_or(Tail::default(), PackSpec::default_tail))
    }

    /// For so many ranks, from epoch 0 on.
    pub(crate) fn among(self, world_size: u32) -> SamplingArgs {
        let rank = Rank::All;
        SamplingArgs { dealing: self, epoch: 0, epochs: 1, world_size, rank, run: None, drop_last_batch: false }
    }
}

impl SamplingArgs {
    /// The orders over the rows of an index. A column that decides is read where the index says that the data is.
    pub(crate) fn orders(&self, index: &Index) -> Result<Chosen, Failure> {
        let dataset = || Ok(Dataset::builder(index.clone()).with_columns(None::<&str>).open()?);
        self.choose_from(index, dataset)
    }

    /// The orders over the rows of a dataset.
    pub(crate) fn choose(&self, dataset: &Dataset) -> Result<Chosen, Failure> {
        self.choose_from(dataset.index(), || Ok(dataset.clone()))
    }

    /// The orders over the rows of an index, whose dataset is opened if values decide.
    fn choose_from(
        &self,
        index: &Index,
        dataset: impl FnOnce() -> Result<Dataset, Failure>,
    ) -> Result<Chosen, Failure> {
        let dealing = &self.dealing;
        let (recipe, rows) = dealing.order.recipe(dealing.only.as_deref(), index, dataset)?;
        // The shard of any rank: all agree on how many shards there are.
        let shards = (dealing.order.partition == Partition::Contiguous).then_some(self.shard(0)?.count());
        let recipe = Recipe { shards, seed: dealing.seed, ..recipe };
        let find = |name: &str| Ok(Arc::new(index.lengths(name)?) as Arc<dyn Lengths>);
        let lengths = self.dealing.pack.as_ref().map(|pack| pack.lengths(find)).transpose()?;
        Ok(Chosen { orders: recipe.orders(&index.layout())?, rows, name: recipe.to_string(), lengths })
    }

    fn shard(&self, rank: u32) -> Result<Shard, Failure> {
        let shard = Shard::new(rank, self.world_size).map_err(Failure::usage)?.with_tail(self.dealing.tail());
        let (replicas, layout) = self.dealing.replication;
        shard.with_replication(replicas, layout).map_err(Failure::usage)
    }

    /// The ranks that are asked for.
    fn ranks(&self) -> Result<Range<u32>, Failure> {
        match self.rank {
            Rank::One(rank) => Ok(rank..rank.saturating_add(1)),
            Rank::All if self.world_size > MOST_RANKS => Err(Failure::usage(format!(
                "{} ranks are too many to be all of; choose one (`--rank`) of them",
                self.world_size
            ))),
            Rank::All => Ok(0..self.world_size),
        }
    }

    /// One sampler for each chosen rank, all of these orders, at the first epoch.
    pub(crate) fn samplers(&self, chosen: &Chosen) -> Result<Vec<DistributedSampler>, Failure> {
        let ranks = self.ranks()?;
        if ranks.is_empty() {
            return Ok(Vec::new());
        }
        // An epoch of packs is planned once for all of them.
        let first = self.sampler(chosen, ranks.start)?;
        let others = (ranks.start + 1..ranks.end).map(|rank| Ok(first.with_shard(self.shard(rank)?)?));
        let others = others.collect::<Result<Vec<_>, Failure>>()?;
        Ok(std::iter::once(first).chain(others).collect())
    }

    /// The sampler of a rank, at the first epoch: the only place where the command makes one from its arguments.
    pub(crate) fn sampler(&self, chosen: &Chosen, rank: u32) -> Result<DistributedSampler, Failure> {
        let options = SamplerOptions::of(self.shard(rank)?, self.dealing.batch_size);
        let options = SamplerOptions { drop_last_batch: self.drop_last_batch, ..options };
        let orders = Arc::clone(&chosen.orders);
        let mut sampler = match (&self.dealing.pack, &chosen.lengths) {
            (Some(pack), Some(lengths)) => options.sampler_of_packs(orders, Arc::clone(lengths), pack)?,
            _ => options.sampler(orders)?,
        };
        let Some(state) = &self.run else {
            sampler.set_epoch(self.epoch);
            return Ok(sampler);
        };
        // What others served of the epoch before these ranks took over, nobody can tell by this state.
        let start = state.run.map_or(0, |run| run.start);
        sampler.resume(&State { consumed: start, ..*state })?;
        // Another epoch and back would be whole.
        if start == 0 {
            sampler.set_epoch(self.epoch);
        }
        Ok(sampler)
    }

    /// Asks about whole epochs alone, wherever the ranks of the state took over.
    pub(crate) fn whole_epochs(&mut self) {
        if let Some(run) = self.run.as_mut().and_then(|state| state.run.as_mut()) {
            run.start = 0;
        }
    }

    /// The epochs to run.
    pub(crate) fn epochs(&self) -> Result<Range<u64>, Failure> {
        let end = self.epoch.checked_add(self.epochs);
        Ok(self.epoch..end.ok_or_else(|| Failure::usage("there is no epoch after 2^64 - 1"))?)
    }
}

/// The epoch of every rank, all with one and the same order, which may be large.
pub(crate) fn plans(samplers: &[DistributedSampler], epoch: u64) -> Result<Vec<EpochPlan>, Failure> {
    let Some(first) = samplers.first() else { return Ok(Vec::new()) };
    first.plan(epoch)?;
    let plan = |sampler: &DistributedSampler| first.with_shard(sampler.shard())?.plan(epoch);
    Ok(samplers.iter().map(plan).collect::<rowdex::Result<_>>()?)
}

/// The first rank of each shard, in the order of ranks.
pub(crate) fn first_of_each(shards: impl Iterator<Item = Shard>) -> Vec<bool> {
    let mut seen = BTreeSet::new();
    shards.map(|shard| seen.insert(shard.index())).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    All,
    One(u32),
}

impl FromStr for Rank {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            _ => text.parse().map(Self::One).map_err(|_| format!("{text:?} is neither a rank nor `all`")),
        }
    }
}
