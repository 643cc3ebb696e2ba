//! Several datasets by weights that change in the course of a run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::fingerprint::fingerprint;
use super::stage_plan::{StagePlan, StageSchedule};
use super::stages::StagePlace;
use super::{EpochOrder, MAX_LEN, Order, OrderKind, Outline, Resized, check_len, reachable};
use rowdex_base::error::{Error, ErrorKind, Result};

/// How many positions go through the tree of sources together.
const BATCH: usize = 512;

/// A mixture of several datasets whose weights change in the course of a run, see [`StagePlan`].
///
/// Row ids are those of the datasets one after the other, as in a `MixedDataset`. Positions of the run continue through
/// its epochs. Each dataset is served in its own order, pass after pass, and continues in later stages and epochs where
/// it stopped; so of what it may serve, no row is left out or repeated. At every position each of two datasets has the
/// rows that its weights say, rounded up or down, see [`before`](Self::before). More datasets are mostly within a row
/// of that, and a few rows off at most.
///
/// Plans with the same stages before a position serve the same rows before it: other stages after it, datasets that
/// come then, and the sequence of the datasets change nothing. A position costs what one of its dataset does and about
/// 5 ns a level of the tree. An epoch holds the inner epochs that it touches.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Staged {
    #[serde(with = "crate::shared")]
    parts: Arc<Vec<StagedSource>>,
    #[serde(with = "crate::shared")]
    schedule: Arc<StageSchedule>,
    rows: u64,
    len: u64,
    seed: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct StagedSource {
    #[serde(with = "crate::shared")]
    orders: Arc<dyn Order>,
    /// Where its row ids begin.
    first: u64,
}

impl Staged {
    const NAME: &str = "staged";

    /// Epochs of `len` positions, over datasets of so many rows that are served in these orders. The seed decides where
    /// datasets come, not which of their rows.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a plan that contradicts itself or the datasets, with the stage and the source by name, and
    /// if the run ends within the first epoch.
    pub fn new(plan: &StagePlan, orders: Vec<Arc<dyn Order>>, rows: &[u64], len: u64, seed: u64) -> Result<Self> {
        let each: Vec<u64> = orders.iter().map(|orders| orders.len()).collect();
        let fingerprints: Vec<u64> = orders.iter().map(|orders| orders.fingerprint()).collect();
        let schedule = Arc::new(plan.schedule(&each, &fingerprints, seed)?);
        let mut first = 0_u64;
        let mut parts = Vec::with_capacity(orders.len());
        for ((orders, rows), name) in orders.into_iter().zip(rows).zip(&plan.sources) {
            if let Some(most) = orders.rows().filter(|most| most > rows) {
                return Err(Error::invalid(format!("source {name:?} has {rows} rows, and its order is over {most}")));
            }
            parts.push(StagedSource { orders, first });
            first = first.saturating_add(*rows);
        }
        if check_len(first.max(len))? == 0 || len == 0 {
            return Err(Error::invalid("epochs of 0 positions").with_hint("use 1 or more"));
        }
        let staged = Self { parts: Arc::new(parts), schedule, rows: first, len, seed };
        staged.start(0).map_err(|error| Error::invalid(error.message().to_owned()))?;
        Ok(staged)
    }

    /// How many rows of each dataset come before a position of the run, counted through all epochs.
    pub fn before(&self, position: u64) -> Vec<u64> {
        self.schedule.span(position).counts(position.min(self.schedule.end))
    }

    /// The position of the run at which an epoch begins.
    fn start(&self, epoch: u64) -> Result<u64> {
        let last = (u128::from(epoch) + 1) * u128::from(self.len);
        if last <= u128::from(self.schedule.end) {
            return Ok(epoch * self.len);
        }
        let message = format!(
            "epoch {epoch} of {} positions goes beyond position {}, where the run ends",
            self.len, self.schedule.end
        );
        Err(Error::new(ErrorKind::OutOfRange, message)
            .with_hint("use shorter epochs, fewer of them, or more repetitions"))
    }

    /// What decides all positions before this one.
    fn digest(&self, position: u64) -> u64 {
        position.checked_sub(1).map_or(self.seed, |last| self.schedule.span(last).digest)
    }
}

impl Order for Staged {
    fn len(&self) -> u64 {
        self.len
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    /// # Errors
    ///
    /// Those of the inner orders, and `OutOfRange` if the run ends before the epoch does.
    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        let start = self.start(epoch)?;
        let before = self.before(start);
        let served = before.iter().zip(self.before(start + self.len));
        let orders = self.parts.iter().zip(served);
        let orders = orders.map(|(part, (from, to))| Resized::stretch(&part.orders, *from, to - from));
        let orders = orders.collect::<Result<_>>()?;
        Ok(Arc::new(StagedEpoch {
            parts: Arc::clone(&self.parts),
            schedule: Arc::clone(&self.schedule),
            orders,
            before,
            start,
            len: self.len,
        }))
    }

    fn fingerprint(&self) -> u64 {
        fingerprint(Self::NAME, self.len, &[self.digest(MAX_LEN), self.schedule.end])
    }

    fn fingerprint_before(&self, epoch: u64, position: u64) -> u64 {
        let position = epoch.saturating_mul(self.len).saturating_add(position);
        fingerprint(Self::NAME, self.len, &[self.digest(position)])
    }

    fn ends(&self) -> &[(usize, u64)] {
        &self.schedule.ends
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn outline(&self) -> Outline {
        Outline::drawn(OrderKind::Mixed, self.seed, self.len)
    }

    fn follows_row_groups(&self) -> bool {
        self.parts.iter().any(|part| part.orders.follows_row_groups())
    }
}

/// One epoch of [`Staged`].
#[derive(Debug)]
struct StagedEpoch {
    parts: Arc<Vec<StagedSource>>,
    schedule: Arc<StageSchedule>,
    /// What is served of each dataset.
    orders: Vec<Arc<dyn EpochOrder>>,
    /// How many rows of each dataset are served in earlier epochs.
    before: Vec<u64>,
    start: u64,
    len: u64,
}

impl EpochOrder for StagedEpoch {
    fn len(&self) -> u64 {
        self.len
    }

    fn row(&self, position: u64) -> Option<u64> {
        let mut row = [0];
        (self.fill_strided(position, 1, &mut row) == 1).then_some(row[0])
    }

    /// Of a row that is served several times, the first position, where the inner orders know it.
    fn position(&self, row: u64) -> Option<u64> {
        let source = self.parts.partition_point(|part| part.first <= row).checked_sub(1)?;
        let number = self.before[source] + self.orders[source].position(row - self.parts[source].first)?;
        let mut low = self.start;
        let mut high = self.start + self.len;
        while low < high {
            let middle = u64::midpoint(low, high);
            let before = self.schedule.span(middle).counts(middle + 1)[source];
            if before > number { high = middle } else { low = middle + 1 }
        }
        Some(low - self.start)
    }

    fn fill_strided(&self, first: u64, stride: u64, rows: &mut [u64]) -> usize {
        let count = reachable(first, stride, self.len, rows.len());
        let mut places = vec![StagePlace::default(); count.min(BATCH)];
        let mut spare = places.clone();
        let mut ids = vec![0; places.len()];
        let mut position = self.start.wrapping_add(first);
        let mut written = 0;
        let mut served = count;
        while written < count {
            let span = self.schedule.span(position);
            let mut filled = 0;
            while filled < places.len() && written + filled < count && position < span.end {
                places[filled] = StagePlace { slot: written + filled, rows: position };
                position = position.wrapping_add(stride);
                filled += 1;
            }
            span.assign(&mut places[..filled], &mut spare, &mut |source, places| {
                let orders = &*self.orders[source];
                let StagedSource { first, .. } = self.parts[source];
                let number = |place: &StagePlace| place.rows - self.before[source];
                let ids = &mut ids[..places.len()];
                let start = number(&places[0]);
                // Many at a time, if no other rank has some in between.
                let known = if number(&places[places.len() - 1]) - start == ids.len() as u64 - 1 {
                    orders.fill(start, ids)
                } else {
                    let mut known = 0;
                    while let Some(row) = places.get(known).and_then(|place| orders.row(number(place))) {
                        ids[known] = row;
                        known += 1;
                    }
                    known
                };
                // Orders that end too early are found by what is missing.
                served = places.get(known).map_or(served, |place| served.min(place.slot));
                for (id, place) in ids.iter().zip(places) {
                    rows[place.slot] = first + id;
                }
            });
            written += filled;
        }
        served
    }
}

#[cfg(test)]
mod tests;
