//! Which rank gets which rows when, as it is asked for on the command line.

use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use rowdex::order::OrderSpec;
use rowdex::sampler::{EpochPlan, ReplicaLayout};
use rowdex::{DistributedSampler, Index, Orders, Shard, Tail};

use crate::args::named;
use crate::failure::Failure;

/// More ranks than this in one process would take gigabytes just to be counted.
const MOST_RANKS: u32 = 1 << 16;

/// Who gets which rows when.
#[derive(Debug, Clone, Args)]
pub(crate) struct SamplingArgs {
    /// The order of the rows before they are dealt to the ranks: `sequential` takes them as they lie, `global` shuffles all among
    /// all.
    #[arg(long, value_name = "ORDER", default_value = "global", value_parser = named::<OrderSpec>(&["sequential", "global"]))]
    pub(crate) order: OrderSpec,

    /// The seed of the shuffle, the same on all ranks.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,

    /// The first epoch to run.
    #[arg(long, value_name = "E", default_value_t = 0)]
    pub(crate) epoch: u64,

    /// How many epochs to run.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) epochs: u64,

    /// How many ranks there are.
    #[arg(long, value_name = "R", default_value_t = 1)]
    pub(crate) world_size: u32,

    /// The rank to be, or `all` of them, step by step.
    #[arg(long, value_name = "RANK", default_value = "all")]
    pub(crate) rank: Rank,

    /// How many ranks get the same rows, as those of a model-parallel group must.
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub(crate) replicas: u32,

    /// Which ranks form a group: `consecutive` (0 and 1, 2 and 3) or `strided` (0 and 2, 1 and 3).
    #[arg(
        long,
        value_name = "LAYOUT",
        default_value = "consecutive",
        value_parser = named::<ReplicaLayout>(&["consecutive", "strided"])
    )]
    pub(crate) replica_layout: ReplicaLayout,

    /// Rows per step and rank.
    #[arg(long, value_name = "B", default_value_t = 256)]
    pub(crate) batch_size: usize,

    /// What becomes of rows that do not divide evenly among the ranks: `wrap` repeats the first ones, `drop` leaves them
    /// out, `uneven` gives some ranks one more, `error` refuses.
    #[arg(
        long,
        value_name = "TAIL",
        default_value = "wrap",
        value_parser = named::<Tail>(&["wrap", "drop", "uneven", "error"])
    )]
    pub(crate) tail: Tail,
}

impl SamplingArgs {
    pub(crate) fn orders(&self, index: &Index) -> Result<Arc<dyn Orders>, Failure> {
        Ok(self.order.orders(&group_rows(index), self.seed)?)
    }

    pub(crate) fn shard(&self, rank: u32) -> Result<Shard, Failure> {
        let shard = Shard::new(rank, self.world_size)?.with_tail(self.tail);
        Ok(shard.with_replicas(self.replicas, self.replica_layout)?)
    }

    /// One sampler for each chosen rank.
    pub(crate) fn samplers(&self, index: &Index) -> Result<Vec<DistributedSampler>, Failure> {
        self.samplers_of(self.orders(index)?)
    }

    /// One sampler for each chosen rank, all following these orders.
    pub(crate) fn samplers_of(&self, orders: Arc<dyn Orders>) -> Result<Vec<DistributedSampler>, Failure> {
        let chosen = match self.rank {
            Rank::One(rank) => rank..rank.saturating_add(1),
            Rank::All if self.world_size > MOST_RANKS => {
                return Err(Failure::new(format!(
                    "{} ranks are too many to be all of; choose one (`--rank`) of them",
                    self.world_size
                )));
            }
            // An empty world has no rank 0, and the library says so better.
            Rank::All => 0..self.world_size.max(1),
        };
        let sampler = |rank| Ok(DistributedSampler::new(Arc::clone(&orders), self.shard(rank)?, self.batch_size)?);
        chosen.map(sampler).collect()
    }

    /// The epochs to run.
    pub(crate) fn epochs(&self) -> Result<Range<u64>, Failure> {
        let end = self.epoch.checked_add(self.epochs);
        Ok(self.epoch..end.ok_or_else(|| Failure::new("there is no epoch after 2^64 - 1"))?)
    }
}

/// The rows to deal out: those of an index, or nothing but their number.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct RowsOfArgs {
    /// An index that `rowdex build` wrote.
    #[arg(value_name = "INDEX")]
    index: Option<PathBuf>,

    /// So many rows, in one row group, without an index.
    #[arg(long, value_name = "N")]
    len: Option<u64>,
}

impl RowsOfArgs {
    /// The orders to follow, and how many rows there are.
    pub(crate) fn orders(&self, sampling: &SamplingArgs) -> Result<(Arc<dyn Orders>, u64), Failure> {
        match &self.index {
            Some(path) => {
                let index = Index::open(path)?;
                Ok((sampling.orders(&index)?, index.len()))
            }
            None => {
                let len = self.len.unwrap_or_default();
                Ok((sampling.order.orders(&[len], sampling.seed)?, len))
            }
        }
    }
}

/// The epoch of every rank, all with one and the same order, which may be large.
pub(crate) fn plans(samplers: &[DistributedSampler], epoch: u64) -> Result<Vec<EpochPlan>, Failure> {
    let Some(first) = samplers.first() else { return Ok(Vec::new()) };
    first.plan(epoch)?;
    let plan = |sampler: &DistributedSampler| first.with_shard(sampler.shard())?.plan(epoch);
    Ok(samplers.iter().map(plan).collect::<rowdex::Result<_>>()?)
}

/// The rows of each row group, as orders want to know them.
pub(crate) fn group_rows(index: &Index) -> Vec<u64> {
    index.row_groups().map(|group| group.rows()).collect()
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
