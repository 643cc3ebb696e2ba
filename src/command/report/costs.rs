//! What epochs cost, as a loader would be asked for them.

use rowdex::loader::Prediction;
use rowdex::order::{OrderSpec, Recipe};
use rowdex::{Dataset, DistributedSampler, Loader, Shard};

use crate::command::failure::Failure;
use crate::command::size::Memory;

/// What a job is asked about: a global order, of one rank.
pub(super) const BATCH_SIZE: usize = 256;

/// Shares of the decoded bytes that are told.
const SHARES: [u64; 6] = [5, 10, 25, 50, 75, 100];

/// Rows and row groups up to which an order is walked row by row, some times.
const MOST_ROWS: u64 = 1 << 22;
const MOST_GROUPS: u32 = 100_000;

/// What loaders would do.
pub(super) struct Costs {
    /// What was asked for.
    pub(super) memory: u64,
    pub(super) here: Option<Point>,
    /// None where there are no rows.
    pub(super) curve: Vec<Point>,
}

/// What an epoch takes with some memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) memory: u64,
    pub(super) passes: f64,
    /// What the passes are of; without, they are the law's.
    pub(super) told: Option<Prediction>,
}

/// Of more rows than are walked here, those of a global order follow a law: of n rows of which M fit, n / 2M passes,
/// and 2 (1 - M / n) from half of them on (docs/performance.md).
fn point(dataset: &Dataset, memory: u64) -> Result<Option<Point>, Failure> {
    if dataset.is_empty() {
        return Ok(None);
    }
    if dataset.len() <= MOST_ROWS && dataset.index().num_row_groups() <= MOST_GROUPS {
        let order = Recipe::new(OrderSpec::Global).orders(&dataset.index().layout())?;
        let sampler = DistributedSampler::new(order, Shard::new(0, 1)?, BATCH_SIZE)?;
        let told = Loader::builder(dataset, sampler).memory(memory).predict()?;
        return Ok(Some(Point { memory, passes: told.passes, told: Some(told) }));
    }
    let share = (memory as f64 / dataset.decoded_bytes().max(1) as f64).clamp(f64::MIN_POSITIVE, 1.0);
    let passes = if share <= 0.5 { 0.5 / share } else { 2.0 * (1.0 - share) };
    Ok(Some(Point { memory, passes: passes.min(dataset.len() as f64), told: None }))
}

impl Costs {
    pub(super) fn of(memory: Memory, dataset: &Dataset) -> Result<Self, Failure> {
        let decoded = dataset.decoded_bytes();
        let memory = memory.bytes(decoded);
        let share = |percent: &u64| (u128::from(decoded) * u128::from(*percent) / 100) as u64;
        let curve = SHARES.iter().filter_map(|percent| point(dataset, share(percent)).transpose());
        Ok(Self { memory, here: point(dataset, memory)?, curve: curve.collect::<Result<_, _>>()? })
    }
}
