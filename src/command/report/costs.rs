//! What epochs cost, as a loader would be asked for them.

use std::sync::Arc;

use rowdex::loader::{LoaderBuilder, Prediction};
use rowdex::order::quality::{Quality, measure};
use rowdex::order::{Order, OrderSpec, Recipe};
use rowdex::{Dataset, DistributedSampler, Loader, Shard};

use crate::command::failure::Failure;
use crate::command::size::Memory;

/// What a job is asked about: a global order, dealt to so many ranks.
pub(super) const BATCH_SIZE: usize = 256;
const WORLD_SIZES: [u32; 3] = [1, 8, 64];

/// Shares of the decoded bytes that the curve is drawn through.
const SHARES: [u64; 9] = [2, 5, 10, 15, 25, 35, 50, 75, 100];

/// Passes from which on more memory saves little, because training has other costs.
const FEW_PASSES: f64 = 2.1;

/// Rows and row groups up to which an order is walked row by row, some fifty times.
const MOST_ROWS: u64 = 1 << 22;
const MOST_GROUPS: u32 = 100_000;

/// Whether that takes seconds.
pub(super) fn walks(dataset: &Dataset) -> bool {
    !dataset.is_empty() && dataset.len() <= MOST_ROWS && dataset.index().num_row_groups() <= MOST_GROUPS
}

/// What loaders would do.
pub(super) struct Costs {
    /// What was asked for: one loader of one rank.
    pub(super) memory: u64,
    pub(super) here: Option<Point>,
    /// None where they would take long, and no law tells them.
    pub(super) curve: Vec<Point>,
    /// The least memory of the curve whose passes are few.
    pub(super) knee: Option<Point>,
    pub(super) shards: Vec<Shards>,
    /// Of the order; none where it would take long.
    pub(super) quality: Option<Quality>,
}

/// What an epoch takes with some memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) memory: u64,
    pub(super) passes: f64,
    /// What the passes are of; without, they are the law's.
    pub(super) told: Option<Prediction>,
}

/// What a world of ranks gets.
pub(super) struct Shards {
    pub(super) world_size: u32,
    pub(super) samples: u64,
    pub(super) steps: u64,
    pub(super) pads: u64,
    /// What a rank does with a loader of its own; none where it would take long to tell.
    pub(super) alone: Option<Point>,
}

/// What is asked, of one dataset.
struct Question<'a> {
    dataset: &'a Dataset,
}

impl Question<'_> {
    fn orders(&self) -> Result<Arc<dyn Order>, Failure> {
        Ok(Recipe::new(OrderSpec::Global).orders(&self.dataset.index().layout())?)
    }

    /// Of the first rank.
    fn sampler(&self, world_size: u32) -> Result<DistributedSampler, Failure> {
        Ok(DistributedSampler::new(self.orders()?, Shard::new(0, world_size)?, BATCH_SIZE)?)
    }

    fn loader(&self, world_size: u32, memory: u64) -> Result<LoaderBuilder, Failure> {
        Ok(Loader::builder(self.dataset, self.sampler(world_size)?).memory(memory))
    }

    fn at(&self, world_size: u32, memory: u64) -> Result<Point, Failure> {
        let told = self.loader(world_size, memory)?.predict()?;
        Ok(Point { memory, passes: told.passes, told: Some(told) })
    }

    /// For one rank. Of more rows than are walked here, those of a global order follow a law: of n rows of which M fit,
    /// n / 2M passes, and 2 (1 - M / n) from half of them on (docs/performance.md).
    fn point(&self, memory: u64) -> Result<Option<Point>, Failure> {
        if walks(self.dataset) {
            return Ok(Some(self.at(1, memory)?));
        }
        if self.dataset.is_empty() {
            return Ok(None);
        }
        let share = (memory as f64 / self.dataset.decoded_bytes().max(1) as f64).clamp(f64::MIN_POSITIVE, 1.0);
        let passes = if share <= 0.5 { 0.5 / share } else { 2.0 * (1.0 - share) };
        Ok(Some(Point { memory, passes: passes.min(self.dataset.len() as f64), told: None }))
    }

    fn curve(&self) -> Result<Vec<Point>, Failure> {
        let decoded = u128::from(self.dataset.decoded_bytes());
        let memory = |percent: &u64| (decoded * u128::from(*percent) / 100) as u64;
        SHARES.iter().filter_map(|percent| self.point(memory(percent)).transpose()).collect()
    }

    fn shards(&self, memory: u64) -> Result<Vec<Shards>, Failure> {
        let one = |&world_size: &u32| {
            let sampler = self.sampler(world_size)?;
            let (rows, shard) = (self.dataset.len(), sampler.shard());
            let pads = shard.total_samples(rows)?.saturating_sub(rows);
            let alone = if walks(self.dataset) { Some(self.at(world_size, memory)?) } else { None };
            Ok(Shards { world_size, samples: shard.samples(rows)?, steps: sampler.steps(), pads, alone })
        };
        WORLD_SIZES.iter().map(one).collect()
    }

    fn quality(&self) -> Result<Option<Quality>, Failure> {
        if !walks(self.dataset) {
            return Ok(None);
        }
        let groups: Vec<u64> = self.dataset.index().row_groups().map(|group| group.rows()).collect();
        let order = self.orders()?.epoch(0)?;
        Ok(Some(measure(&*order, BATCH_SIZE as u64, &groups, None)?))
    }
}

impl Costs {
    pub(super) fn of(memory: Memory, dataset: &Dataset) -> Result<Self, Failure> {
        let question = Question { dataset };
        let memory = memory.bytes(dataset.decoded_bytes());
        let curve = question.curve()?;
        let knee = curve.iter().find(|point| point.passes <= FEW_PASSES).copied();
        Ok(Self {
            shards: question.shards(memory)?,
            quality: question.quality()?,
            here: question.point(memory)?,
            memory,
            curve,
            knee,
        })
    }
}
