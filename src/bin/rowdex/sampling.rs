//! Which rank gets which rows when, as it is asked for on the command line.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use rowdex::index::OrderFile;
use rowdex::order::{Explicit, OrderSpec, Partition};
use rowdex::sampler::ReplicaLayout;
use rowdex::{DistributedSampler, Index, Orders, Shard, Tail};

use crate::args::named;
use crate::failure::Failure;

/// More ranks than this in one process would take gigabytes just to be counted.
const MOST_RANKS: u32 = 1 << 16;

/// Who gets which rows when.
#[derive(Debug, Clone, Args)]
pub(crate) struct SamplingArgs {
    /// The order of the rows before they are dealt to the ranks: `sequential` takes them as they lie, `global` shuffles all among
    /// all, `blocks(K)` or `blocks:K` shuffles row groups and the rows of K of them at a time (`blocks:all` for all), `torch` is
    /// PyTorch's own shuffle.
    #[arg(long, value_name = "ORDER", default_value = "global")]
    pub(crate) order: OrderSpec,

    /// Serve the row ids in this file in its order, in every epoch: little-endian 64-bit integers and nothing else.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["order", "seed"])]
    pub(crate) order_file: Option<PathBuf>,

    /// Refuse an order file that does not list every row exactly once.
    #[arg(long, requires = "order_file")]
    pub(crate) permutation: bool,

    /// How positions are dealt to the ranks: `strided` in turn, `contiguous` in one consecutive piece for each rank, so that
    /// with `blocks(K)` and `sequential` every row group is read by about one rank.
    #[arg(
        long,
        value_name = "PARTITION",
        default_value = "strided",
        value_parser = named::<Partition>(&["strided", "contiguous"])
    )]
    pub(crate) partition: Partition,

    /// Begin an order that never changes with the same row in every epoch, even if the tail then drops or repeats the same rows
    /// each time.
    #[arg(long)]
    pub(crate) no_rotate: bool,

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
        let orders = match &self.order_file {
            Some(path) => self.listed(path, index.len())?,
            None => {
                let groups: Vec<u64> = index.row_groups().map(|group| group.rows()).collect();
                self.order.orders(&groups, self.seed)?
            }
        };
        // Of whichever rank: they agree on how many shards there are.
        Ok(self.partition.orders(orders, self.shard(0)?.count())?)
    }

    fn listed(&self, path: &Path, rows: u64) -> rowdex::Result<Arc<dyn Orders>> {
        let orders = Explicit::from_le_bytes(OrderFile::open(path)?, rows).and_then(|orders| {
            if self.permutation {
                orders.check_permutation()?;
            }
            Ok(orders)
        });
        Ok(Arc::new(orders.map_err(|error| error.with_file(path.display().to_string()))?))
    }

    pub(crate) fn shard(&self, rank: u32) -> Result<Shard, Failure> {
        let shard = Shard::new(rank, self.world_size)?.with_tail(self.tail);
        Ok(shard.with_replicas(self.replicas, self.replica_layout)?)
    }

    /// One sampler for each chosen rank.
    pub(crate) fn samplers(&self, index: &Index) -> Result<Vec<DistributedSampler>, Failure> {
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
        let orders = self.orders(index)?;
        let sampler = |rank| {
            let sampler = DistributedSampler::new(Arc::clone(&orders), self.shard(rank)?, self.batch_size)?;
            Ok(if self.no_rotate { sampler.with_rotation(false) } else { sampler })
        };
        chosen.map(sampler).collect()
    }
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
