//! What a loader will do, told beforehand by running its plan without the data.

use std::collections::HashSet;
use std::sync::Arc;

use super::driver::{Driver, Planned};
use super::groups::Groups;
use super::plan::{GroupSize, Plan};
use super::walk::Walk;
use crate::Result;
use crate::order::{Global, Orders, Sequential};
use crate::sampler::{BatchPlan, DistributedSampler};

/// What a [`Loader`](super::Loader) will do, from [`LoaderBuilder::predict`](super::LoaderBuilder::predict).
///
/// A pass is as many decodes as there are row groups.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// Passes of the first epoch, in which no row is held at the beginning.
    pub first_passes: f64,
    /// Passes of every later epoch.
    pub passes: f64,
    /// Row groups decoded in every later epoch.
    pub decodes: f64,
    /// Row groups decoded before the first batch is there.
    pub first_batch_decodes: u64,
    /// The most bytes held, without row groups that are being decoded.
    pub peak_bytes: u64,
}

/// Simulating this many rows takes a tenth of a second or so; a larger run is simulated on a smaller scale.
const ROWS: u64 = 2 << 20;
/// So few rows of a group do not stand for more.
const GROUP_ROWS: u64 = 64;

/// Runs the plan of a loader that starts where the samplers are.
pub(crate) fn predict(groups: &dyn Groups, samplers: &Arc<[DistributedSampler]>, memory: u64) -> Result<Prediction> {
    let Some(first) = samplers.first() else { return Ok(Prediction::default()) };
    let told = simulate(groups, samplers, first, memory)?;
    let mut batch = BatchPlan::default();
    let plan = first.plan(first.epoch())?;
    if plan.steps() > 0 {
        plan.fill(0, &mut batch)?;
    }
    let due: HashSet<u32> = batch.rows.iter().filter_map(|&row| groups.locate(row)).map(|(group, _)| group).collect();
    Ok(Prediction { first_batch_decodes: due.len() as u64, ..told })
}

fn simulate(
    groups: &dyn Groups,
    samplers: &Arc<[DistributedSampler]>,
    first: &DistributedSampler,
    memory: u64,
) -> Result<Prediction> {
    let sizes: Vec<GroupSize> = (0..groups.count()).map(|group| groups.size(group)).collect();
    let batch = first.batch_size().min(first.orders().len()).max(1);
    let rows: u64 = sizes.iter().map(|size| size.rows).sum();
    let scale = (rows / ROWS).min(rows / (sizes.len() as u64 * GROUP_ROWS).max(1)).max(1);
    let scaled: Vec<GroupSize> = sizes.iter().map(|size| scaled(size, scale)).collect();
    let fewer = scaled.iter().map(|size| size.rows).sum();
    // Of these orders alone a shorter one is known to behave alike.
    let orders: Option<Arc<dyn Orders>> = match first.given().name() {
        "global" if scale > 1 => Some(Arc::new(Global::new(fewer, 0)?)),
        "sequential" if scale > 1 => Some(Arc::new(Sequential::new(fewer)?)),
        _ => None,
    };
    let Some(orders) = orders else {
        let plan = Plan::new(&sizes, memory, batch, first.orders().fingerprint());
        return run(plan, samplers, sizes.len(), |row| groups.locate(row));
    };
    let batch = (batch / scale).max(1);
    let sampler =
        |like: &DistributedSampler| DistributedSampler::new(Arc::clone(&orders), like.shard(), batch as usize);
    let samplers = samplers.iter().map(sampler).collect::<Result<Vec<_>>>()?.into();
    let mut ends = Vec::with_capacity(scaled.len());
    let mut end = 0;
    for size in &scaled {
        end += size.rows;
        ends.push(end);
    }
    let locate = |row: u64| {
        let group = ends.partition_point(|end| *end <= row);
        let start = ends.get(group)? - scaled.get(group)?.rows;
        Some((group as u32, (row - start) as u32))
    };
    let plan = Plan::new(&scaled, memory / scale, batch, orders.fingerprint());
    let told = run(plan, &samplers, scaled.len(), locate)?;
    Ok(Prediction { peak_bytes: told.peak_bytes.saturating_mul(scale), ..told })
}

fn scaled(size: &GroupSize, scale: u64) -> GroupSize {
    GroupSize { rows: size.rows.div_ceil(scale), bytes: size.bytes / scale, cost: size.cost / scale }
}

fn run(
    plan: Plan,
    samplers: &Arc<[DistributedSampler]>,
    groups: usize,
    locate: impl Fn(u64) -> Option<(u32, u32)>,
) -> Result<Prediction> {
    /// Long enough to come to rest even where a horizon spans several epochs.
    const EPOCHS: u64 = 6;
    let start = samplers.first().map_or(0, DistributedSampler::epoch);
    let walk = Walk::new(Arc::clone(samplers), start, 0, Some(EPOCHS));
    let mut driver = Driver::new(plan, walk);
    let (mut decodes, mut seen, mut epochs) = (0u64, 0u64, Vec::new());
    loop {
        match driver.advance(&locate) {
            Planned::Walked => {}
            Planned::Extract(extract) => decodes += u64::from(extract.decode),
            Planned::Segment(span, _) => {
                if span.batches.end == span.plans.batches() {
                    epochs.push(decodes - seen);
                    seen = decodes;
                }
            }
            Planned::End(Some(error)) => return Err(error),
            Planned::End(None) => break,
        }
    }
    // The last epoch is left out, because nothing is read for one that would follow.
    let later = epochs.get(epochs.len() / 2..epochs.len().saturating_sub(1)).unwrap_or_default();
    let decodes = later.iter().sum::<u64>() as f64 / later.len().max(1) as f64;
    let groups = groups.max(1) as f64;
    Ok(Prediction {
        first_passes: epochs.first().map_or(0.0, |first| *first as f64 / groups),
        passes: decodes / groups,
        decodes,
        first_batch_decodes: 0,
        peak_bytes: driver.plan.peak(),
    })
}
