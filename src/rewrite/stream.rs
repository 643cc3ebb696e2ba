//! The way without a spill: a loader serves the order, and what it serves is encoded.

use std::ops::Range;
use std::sync::Arc;

use rayon::ThreadPool;

use super::lanes::Lanes;
use super::write::Writing;
use crate::dataset::Dataset;
use crate::loader::{Loader, LoaderBuilder, Prediction};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop;
use rowdex_order::sampler::{DistributedSampler, Shard, Tail};
use rowdex_order::{EpochOrder, Order, Uses};

/// What is served, and within what.
pub(super) struct Stream<'a> {
    pub(super) dataset: &'a Dataset,
    pub(super) orders: &'a Arc<dyn Order>,
    pub(super) memory: u64,
    pub(super) threads: usize,
    pub(super) batch_rows: usize,
    /// Row groups that are encoded at once.
    pub(super) lanes: usize,
}

impl Stream<'_> {
    fn loader(&self, orders: Arc<dyn Order>) -> Result<LoaderBuilder> {
        let shard = Shard::new(0, 1)?.with_tail(Tail::Uneven);
        let sampler = DistributedSampler::new(orders, shard, self.batch_rows.max(1))?;
        Ok(Loader::builder(self.dataset, sampler).memory(self.memory).threads(self.threads).epochs(1))
    }

    /// What serving all of the order would take; `None` if a loader needs more memory.
    pub(super) fn predict(&self) -> Result<Option<Prediction>> {
        let prediction = self.loader(Arc::clone(self.orders))?.predict()?;
        Ok((prediction.least_memory <= self.memory).then_some(prediction))
    }

    /// Writes the files that have these positions.
    pub(super) fn write(&self, pool: &ThreadPool, writing: &Writing<'_>, positions: Range<u64>) -> Result<()> {
        let orders: Arc<dyn Order> = match positions == (0..writing.order.len()) {
            true => Arc::clone(self.orders),
            false => Arc::new(Part { epoch: self.orders.epoch(0)?, positions: positions.clone() }),
        };
        let (shape, mut at) = (writing.plan.shape(), positions.start);
        let loader = self.loader(orders)?.build()?;
        pool.in_place_scope(|scope| {
            let mut lanes = Lanes::new(pool, scope, writing, self.lanes);
            for batch in loader {
                stop::check()?;
                let plain = writing.columns.plain_of_served(&batch?.records)?;
                let end = at + plain.num_rows() as u64;
                for group in shape.groups(at..end) {
                    let (from, to) = (group.positions.start.max(at), group.positions.end.min(end));
                    let rows = plain.slice((from - at) as usize, (to - from) as usize);
                    lanes.add(group, from..to, writing.columns.encoded_of(&rows, || writing.row_ids(from..to))?)?;
                }
                at = end;
            }
            lanes.finish()
        })?;
        if at == positions.end {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Internal, format!("the loader ended at position {at} of {}", positions.end)))
    }
}

/// Consecutive positions of an epoch.
#[derive(Debug)]
struct Part {
    epoch: Arc<dyn EpochOrder>,
    positions: Range<u64>,
}

impl Order for Part {
    fn len(&self) -> u64 {
        self.positions.end - self.positions.start
    }

    fn epoch(&self, _: u64) -> Result<Arc<dyn EpochOrder>> {
        Ok(Arc::new(Self { epoch: Arc::clone(&self.epoch), positions: self.positions.clone() }))
    }

    fn fingerprint(&self) -> u64 {
        rowdex_order::fingerprint("part", 1, Order::len(self), &[self.positions.start])
    }

    fn name(&self) -> &'static str {
        "part"
    }
}

impl EpochOrder for Part {
    fn len(&self) -> u64 {
        self.positions.end - self.positions.start
    }

    fn row(&self, position: u64) -> Option<u64> {
        let position = self.positions.start.checked_add(position)?;
        self.epoch.row(position).filter(|_| position < self.positions.end)
    }

    fn position(&self, row: u64) -> Option<u64> {
        let position = self.epoch.position(row).filter(|position| self.positions.contains(position))?;
        Some(position - self.positions.start)
    }

    fn uses(&self) -> Uses {
        match self.epoch.uses() {
            Uses::Once | Uses::AtMostOnce => Uses::AtMostOnce,
            Uses::Any => Uses::Any,
        }
    }

    fn fill_strided(&self, first: u64, stride: u64, rows: &mut [u64]) -> usize {
        let left = EpochOrder::len(self).saturating_sub(first).div_ceil(stride.max(1)).min(rows.len() as u64);
        self.epoch.fill_strided(self.positions.start.saturating_add(first), stride, &mut rows[..left as usize])
    }
}
