//! What a loader will do, told beforehand by running its plan without the data.

use std::collections::HashSet;
use std::sync::Arc;

use super::driver::{Driver, Epochs, left_of};
use super::groups::{FetchCost, Reads, UnitSize};
use super::plan::{Budget, Extract, Outlook, Plan, PlanAnswer, fixed};
use super::route::{Route, RouteFacts, route};
use super::schedule::excess;
use super::units::{RowFinder, RowTable, Units};
use rowdex_base::error::{ErrorKind, Result};
use rowdex_order::sampler::{BatchPlan, DistributedSampler, Tail};
use rowdex_order::{Global, Sequential};

/// What a [`Loader`](super::Loader) will do, from [`LoaderBuilder::estimate`](super::LoaderBuilder::estimate).
///
/// A pass is as many decodes as there are row groups with rows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[cfg_attr(feature = "capi", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Estimate {
    /// Passes of the first epoch, in which no row is held at the beginning.
    pub first_passes: f64,
    /// Passes of every later epoch.
    pub passes: f64,
    /// Row groups decoded in the first epoch.
    pub first_decodes: f64,
    /// Row groups decoded in every later epoch.
    pub decodes: f64,
    /// Bytes read in the first epoch.
    pub first_bytes_read: u64,
    /// Bytes read in every later epoch: the chosen columns' chunks, or pages of them where few rows of a row group are
    /// wanted, or the due values alone where they are long and not compressed.
    pub bytes_read: u64,
    /// Requests to a store in the first epoch, those among them that its files and the positions of their pages take
    /// once; 0 for local files.
    pub first_requests: u64,
    /// Requests to a store in every later epoch.
    pub requests: u64,
    /// Row groups decoded before the first batch is there.
    pub first_batch_decodes: u64,
    /// The most bytes held, as [`LoaderStats::peak_bytes`](super::LoaderStats::peak_bytes) counts them.
    pub peak_bytes: u64,
    /// Units that row groups are read, decoded and held in: one for each, or for several small ones of a file.
    pub units: u64,
    /// How many of [`peak_bytes`](Self::peak_bytes) are not rows: what is known of row groups, and of the rows that are
    /// looked ahead at.
    pub bookkeeping_bytes: u64,
    /// The least [memory](super::LoaderBuilder::memory) that a loader takes: twice what is known of row groups alone.
    pub least_memory: u64,
}

/// Simulating this many rows takes a tenth of a second or so; a larger run is simulated on a smaller scale.
const ROWS: u64 = 2 << 20;
/// So few rows of a unit do not stand for more.
const GROUP_ROWS: u64 = 64;

/// Runs the plan of a loader that starts where the samplers are.
pub(crate) fn estimate(
    units: &Arc<Units>,
    samplers: &Arc<[DistributedSampler]>,
    memory: u64,
    threads: usize,
) -> Result<Estimate> {
    let Some(first) = samplers.first() else { return Ok(Estimate::default()) };
    let mut batch = BatchPlan::default();
    let plan = first.plan(first.epoch())?;
    if plan.steps_left() > 0 {
        plan.fill(plan.first_step(), &mut batch)?;
    }
    let due: HashSet<u32> = batch.rows.iter().filter_map(|&row| units.locate(row)).map(|(unit, _)| unit).collect();

    let mut sizes = units.due_sizes();
    let rows: u64 = sizes.iter().map(|size| size.rows).sum();
    // Of these orders alone a shorter one is known to behave alike: one of rows, which stand for pieces, too. What a
    // block moves of them is as good as moved by the order itself.
    let name = first.packed().map_or_else(|| first.given().name(), |packed| packed.orders().name());
    let scale = match name {
        "global" | "sequential" => (rows / ROWS).min(rows / (sizes.len() as u64 * GROUP_ROWS).max(1)).max(1),
        _ => 1,
    };
    let memory = memory / scale;
    let batch_rows = (units.rows_of_batch(first) / scale).max(1);
    let mut orders = Arc::clone(first.orders());
    let mut samplers = Arc::clone(samplers);
    let mut near = units.finder();
    if scale > 1 {
        for size in &mut sizes {
            let UnitSize { rows, bytes, cost } = *size;
            *size = UnitSize { rows: rows.div_ceil(scale), bytes: bytes / scale, cost: cost / scale };
        }
        let fewer = sizes.iter().map(|size| size.rows).sum();
        orders = match name {
            "global" => Arc::new(Global::new(fewer, 0)?),
            _ => Arc::new(Sequential::new(fewer)?),
        };
        let sampler = |like: &DistributedSampler| {
            let shard = like.shard();
            // No rows are opened, and the fewer rows need not divide evenly.
            let tail = if matches!(shard.tail(), Tail::Even | Tail::Error) { Tail::Wrap } else { shard.tail() };
            DistributedSampler::new(Arc::clone(&orders), shard.with_tail(tail), batch_rows as usize)
        };
        samplers = samplers.iter().map(sampler).collect::<Result<Vec<_>>>()?.into();
        near = RowFinder::new(Arc::new(RowTable::new(sizes.iter().map(|size| size.rows))));
    }
    let budget = Budget { memory: memory as f64, batch_rows, cutting: units.cutting() };
    let mut plan = Plan::new(&sizes, budget, scale, orders.fingerprint());
    plan.set_aside(units.places_bytes() / scale);
    let run = Simulation { units, sizes: &sizes, scale, memory, threads };
    Ok(Estimate {
        first_batch_decodes: due.iter().map(|unit| units.filled(*unit)).sum(),
        units: u64::from(units.count()),
        least_memory: least_memory(units),
        ..run.of(plan, &samplers, near)?
    })
}

/// The least memory for a loader of these units: as much for rows as for what is known of units.
pub(crate) fn least_memory(units: &Units) -> u64 {
    2 * fixed(u64::from(units.count()))
}

/// A run of the plan on a scale of one to `scale`.
struct Simulation<'a> {
    units: &'a Arc<Units>,
    sizes: &'a [UnitSize],
    scale: u64,
    memory: u64,
    threads: usize,
}

/// Decodes, bytes and requests of each of these epochs, from what it took up to the beginning of each.
fn an_epoch(epochs: &[FetchCost], first: usize, end: usize) -> (f64, u64, u64) {
    let (Some(before), Some(after)) = (epochs.get(first), epochs.get(end)) else { return (0.0, 0, 0) };
    let count = end.saturating_sub(first).max(1) as u64;
    let decodes = (after.row_groups - before.row_groups) as f64 / count as f64;
    (decodes, (after.bytes - before.bytes) / count, ((after.requests - before.requests) / count as f64) as u64)
}

impl Simulation<'_> {
    fn of(&self, plan: Plan, samplers: &Arc<[DistributedSampler]>, near: RowFinder) -> Result<Estimate> {
        /// Long enough to come to rest even where a horizon ranges several epochs.
        const EPOCHS: u64 = 6;
        let start = samplers.first().map_or(0, DistributedSampler::epoch);
        let walk = Epochs::new(Arc::clone(samplers), start, 0, Some(EPOCHS));
        let mut driver = Driver::new(plan, Box::new(walk), near, Arc::clone(self.units), Arc::default());
        let mut cost = FetchCost::default();
        let mut epochs = vec![FetchCost::default()];
        let mut positioned = HashSet::new();
        let mut met = HashSet::new();
        loop {
            match driver.advance() {
                PlanAnswer::Extract(extract) if extract.decode => {
                    let unit = extract.unit;
                    let fetch = self.read(extract, &mut met);
                    cost = cost.plus(fetch);
                    if fetch.positions > 0 && positioned.insert(unit) {
                        cost.requests += fetch.positions as f64;
                    }
                }
                PlanAnswer::Look | PlanAnswer::Extract(_) => {}
                PlanAnswer::Segment(_) => {
                    let range = driver.ranges.pop_front();
                    if range.is_some_and(|range| range.batches.end == left_of(&range.plans).end) {
                        epochs.push(cost);
                    }
                }
                PlanAnswer::End => break,
            }
        }
        // A run may end before so many epochs.
        if let Some(error) = driver.error.filter(|error| epochs.len() == 1 || error.kind() != ErrorKind::OutOfRange) {
            return Err(error);
        }
        let (first_decodes, first_bytes_read, first_requests) = an_epoch(&epochs, 0, 1);
        // The last epoch is left out, because nothing is read for one that would follow.
        let all = epochs.len() - 1;
        let (first, end) = if all >= 3 { (all / 2, all - 1) } else { (0, all) };
        let (decodes, bytes_read, requests) = an_epoch(&epochs, first, end);
        let with_rows = (0..).zip(self.sizes).filter(|(_, size)| size.rows > 0);
        let units = with_rows.map(|(unit, _)| self.units.filled(unit)).sum::<u64>().max(1) as f64;
        Ok(Estimate {
            first_passes: first_decodes / units,
            passes: decodes / units,
            first_decodes,
            decodes,
            first_bytes_read,
            bytes_read,
            first_requests: first_requests + self.units.groups.opening_requests(),
            requests,
            bookkeeping_bytes: driver.plan.most_listed().saturating_mul(self.scale),
            peak_bytes: self.peak(&driver.plan, &met).saturating_mul(self.scale),
            ..Estimate::default()
        })
    }

    /// What is read for an extraction, decided as the engine decides. Of the units `met` some rows were decoded alone.
    fn read(&self, extract: Extract, met: &mut HashSet<u32>) -> FetchCost {
        let unit = extract.unit;
        let sparse = extract.is_sparse();
        let row_groups = self.units.row_groups(unit);
        let due = extract.due.len() as u64 * self.scale;
        if !extract.keep && route(&RouteFacts::of(self.units, unit, due as usize)) == Route::DecodeDue {
            return self.units.fetch(unit, if met.insert(unit) { Reads::All } else { Reads::Due(due) });
        }
        if !sparse && (extract.keep || row_groups.len() == 1) {
            return self.units.fetch(unit, Reads::All);
        }
        let mut slots = extract.due.slots.to_vec();
        slots.sort_unstable();
        slots.dedup();
        let rows = slots.len() as u64;
        let runs = slots.chunk_by(|a, b| a + 1 == *b).count() as u64;
        // Rows that are apart on this scale are so on the full one, each for itself.
        let scattered = runs > rows / 2;
        if row_groups.len() > 1 && !scattered {
            // What lies together is in few row groups, and these can be told on any scale.
            let full = |slot: &u32| u32::try_from(u64::from(*slot) * self.scale).unwrap_or(u32::MAX);
            let mut touched: Vec<u32> = slots.iter().map(|slot| self.units.row_group_of(unit, full(slot))).collect();
            touched.dedup();
            return self.units.groups.fetch(&touched, Reads::All);
        }
        let runs = if scattered { runs * self.scale } else { runs };
        self.units.fetch(unit, Reads::Some(rows * self.scale, runs))
    }

    /// The threads run ahead until the memory and what may exceed it are full; or until all is held, or as much as may
    /// be planned ahead. Of the units `met` it is kept where long values lie.
    fn peak(&self, plan: &Plan, met: &HashSet<u32>) -> u64 {
        let Outlook { segments_ready, segment_bytes, largest, .. } = plan.outlook();
        let waiting = segment_bytes.saturating_mul(segments_ready as u64 + 1);
        // Units that are decoded come with the rows picked out of them.
        let threads = self.threads.max(1) as u64;
        let decoding = if plan.keeps_all() { 0 } else { largest.saturating_mul(2 * threads) };
        let places = met.iter().map(|unit| self.units.long_values(*unit).places_bytes).sum::<u64>() / self.scale;
        let needed = plan.peak().saturating_add(waiting).saturating_add(decoding).saturating_add(places);
        // Each thread may assemble a segment if there is memory that nobody needs.
        let assembling = segment_bytes.saturating_mul(threads - 1);
        needed
            .saturating_add(assembling.min(self.memory.saturating_sub(needed)))
            .min(self.memory.saturating_add(excess(largest, self.memory, self.threads)))
    }
}
