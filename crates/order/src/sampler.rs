//! Which positions are mine.
//!
//! [`Order`] says which row comes at which position; a [`Shard`] says which positions belong to a rank; a
//! [`DistributedSampler`] puts both together and cuts the result into batches. All of it is arithmetic: ranks never
//! talk, and yet every rank takes the same number of steps in every epoch.
//!
//! With `n` rows, `S` shards (the world size, divided by the number of replicas) and batch size `B`:
//!
//! - Position `q` belongs to shard `q mod S`; the p-th sample of shard `s` is position `s + p * S`. Rows are shuffled
//!   before they are shared out, never the other way round.
//! - The samples of a rank are as many as its [`Tail`] policy says, and its batches are those samples cut every `B`.
//! - An epoch has `ceil(m / B)` steps, `m` being the most samples that any rank has; or, if short batches are dropped,
//!   `floor(m / B)` with the fewest. So the last batch may be short and, with [`Tail::Uneven`], may even be empty on
//!   ranks that have a sample less. It is a step nonetheless: the ranks must all take part in it.
//! - Step `t` of all ranks together is the positions from `t * S * B` up to `(t + 1) * S * B`. So while `S * B` stays
//!   the same, what a full step trains on does not depend on how many ranks there are (but see the next point).
//! - Rows that are dropped or repeated are other ones each epoch: shuffled orders see to that themselves, and those
//!   that are [the same in every epoch](Order::is_same_every_epoch) begin elsewhere in each if any rows are dropped or
//!   repeated; see [`DistributedSampler::with_rotation`], which can say yes or no whatever the number of ranks. An
//!   [`EpochPlan`] says which rows those are.
//! - A [`State`] counts consumed positions over all ranks. Resuming serves the remaining positions `[c, n)` by the same
//!   rules, with `n - c` in the place of `n` and position `c + s + p * S` as the p-th sample that is left.
//! - Samples and steps are numbered from the beginning of the epoch, after a resume too: of an epoch of `N` steps of
//!   which `L` are left, these are the steps `N - L` to `N - 1`, in whatever world the run began.
//!   [`steps`](DistributedSampler::steps) is `N`, [`steps_left`](DistributedSampler::steps_left) is `L`.
//!
//! ```
//! use std::sync::Arc;
//! # mod rowdex { pub use rowdex_base::error::Result; pub use rowdex_order::{self as order, sampler}; }
//! use rowdex::order::Global;
//! use rowdex::sampler::{DistributedSampler, Shard};
//!
//! # fn main() -> rowdex::Result<()> {
//! let orders = Arc::new(Global::new(1_000_000, 42)?);
//! let mut sampler = DistributedSampler::new(orders, Shard::new(3, 8)?, 256)?;
//! assert_eq!((sampler.len(), sampler.steps()), (125_000, 489));
//! for batch in sampler.batches()?.take(2) {
//!     let batch = batch?;
//!     assert_eq!(batch.rows.len(), 256);
//!     let checkpoint = sampler.state_after(batch.epoch, batch.step)?.to_string();
//! #   assert!(checkpoint.starts_with("rowdex-state-v2:"));
//! }
//! # Ok(())
//! # }
//! ```

mod batch;
mod deal;
mod evened;
mod forecast;
mod launch;
mod options;
mod pack_spec;
mod packs;
mod plan;
mod resume;
mod shard;
mod state;
mod worker;
mod world;

use std::sync::Arc;

pub use self::batch::BatchPlan;
use self::deal::{Deal, PackBatching, RankDeal, RowsDeal};
pub use self::forecast::PackForecast;
pub use self::launch::Launch;
pub use self::options::SamplerOptions;
pub use self::pack_spec::PackSpec;
pub use self::plan::{EpochPlan, Sample};
use self::resume::Resumed;
use self::shard::Rest;
pub use self::shard::{ReplicationLayout, Shard, Tail};
pub use self::state::{Run, State};
#[doc(hidden)]
pub use self::worker::PartOf;
use crate::recent::Recent;
use crate::{Cost, EpochOrder, Order, Packed, Rotated};
use rowdex_base::error::{Error, ErrorKind, Result};

/// The samples and batches of one rank, epoch after epoch.
///
/// The methods that take an epoch are pure. [`batches`](Self::batches) and [`next_epoch`](Self::next_epoch) serve the
/// current epoch and move on to the next one, so a training loop need not call [`set_epoch`](Self::set_epoch), but may.
#[derive(Debug, Clone)]
pub struct DistributedSampler {
    /// The orders it was made with, which `orders` are too, or their rotation.
    given: Arc<dyn Order>,
    orders: Arc<dyn Order>,
    shard: Shard,
    batch_size: u64,
    /// What decides batches of packs.
    packs: Option<Arc<PackBatching>>,
    drop_last_batch: bool,
    rotation: Rotation,
    epoch: u64,
    resumed: Option<Resumed>,
    part_of: Option<Arc<PartOf>>,
    /// The order of the epoch asked for last, because making one can cost time in proportion to the number of rows.
    recent: Recent<u64, Arc<dyn EpochOrder>>,
}

/// Whether epochs that would all be the same begin elsewhere each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rotation {
    /// Where rows are dropped or repeated.
    Needed,
    Always,
    Never,
    /// As the run did that was resumed.
    Resumed,
}

impl DistributedSampler {
    /// The sampler of `shard`, at the beginning of epoch 0.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the batch size is 0, if there are more than [`MAX_LEN`](crate::MAX_LEN) rows, or if
    /// the tail policy is [`Tail::Error`] and the number of shards does not divide the number of rows.
    pub fn new(orders: Arc<dyn Order>, shard: Shard, batch_size: usize) -> Result<Self> {
        if batch_size == 0 {
            return Err(Error::invalid("a batch size of 0").with_hint("use 1 or more"));
        }
        Self::with_packs(orders, shard, batch_size as u64, None)
    }

    /// The sampler of `shard` over packs: each batch is `packs` of them. With a `cost`, the packs of each full step
    /// over all ranks are [assigned](Cost::deal) so that ranks have about the same work; what a step trains on stays
    /// the same. Of [buckets](crate::Pack::buckets) a pack is a row, and `packs` is the batch size.
    ///
    /// An epoch is planned when it is first asked for, which fails as [`Packed::packed`] does, and if its packs can not
    /// be assigned as the tail policy demands. [`plan`](Self::plan) says so, and what returns no error is 0 then, such
    /// as [`steps`](Self::steps).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a batch has no packs; of buckets, for the tail policy [`Tail::Even`], a cost, or more rows
    /// of a step on all ranks than [`Pack::MAX_BLOCK`](crate::Pack::MAX_BLOCK).
    pub fn of_packs(orders: Arc<Packed>, shard: Shard, packs: usize, cost: Option<Cost>) -> Result<Self> {
        if packs == 0 {
            return Err(Error::invalid("batches of 0 packs").with_hint("use 1 or more"));
        }
        let batching = PackBatching::new(Arc::clone(&orders), packs as u64, cost);
        Self::with_packs(orders, shard, packs as u64, Some(Arc::new(batching)))
    }

    fn with_packs(
        orders: Arc<dyn Order>,
        shard: Shard,
        batch_size: u64,
        packs: Option<Arc<PackBatching>>,
    ) -> Result<Self> {
        let sampler = Self {
            given: Arc::clone(&orders),
            orders,
            shard,
            batch_size,
            packs,
            drop_last_batch: false,
            rotation: Rotation::Needed,
            epoch: 0,
            resumed: None,
            part_of: None,
            recent: Recent::new(1),
        };
        sampler.check(shard, sampler.orders.len())?;
        Ok(sampler.rotated_as_needed())
    }

    /// Whether to leave out the last batch of an epoch if it is short on any rank; by default it is served short.
    ///
    /// Every batch is then full, and steps are still equal on all ranks.
    #[must_use]
    pub fn with_drop_last_batch(mut self, drop_last_batch: bool) -> Self {
        self.drop_last_batch = drop_last_batch;
        self.rotated_as_needed()
    }

    /// Whether orders that are [the same in every epoch](Order::is_same_every_epoch) begin elsewhere each epoch, as
    /// [`Rotated`] has it. Epoch 0 and orders that shuffle are not touched.
    ///
    /// By default they do where the tail policy, or leaving out a short last batch, drops or repeats rows: those would
    /// be the same rows in every epoch otherwise, and a dropped row would never be served. `false` is what torch's
    /// `DistributedSampler(shuffle=False)` does. With `true` or `false` it does not depend on the number of ranks. A
    /// run that is [resumed](Self::resume) continues the way it began, and this is ignored.
    #[must_use]
    pub fn with_rotation(mut self, rotation: bool) -> Self {
        if self.rotation != Rotation::Resumed {
            self.rotation = if rotation { Rotation::Always } else { Rotation::Never };
        }
        self.rotated_as_needed()
    }

    fn rotated_as_needed(mut self) -> Self {
        let rotated = match self.rotation {
            Rotation::Needed => self.given.is_same_every_epoch() && self.leaves_a_tail(),
            Rotation::Always => self.given.is_same_every_epoch(),
            Rotation::Never => false,
            Rotation::Resumed => return self,
        };
        self.orders = if rotated { Arc::new(Rotated::new(Arc::clone(&self.given))) } else { Arc::clone(&self.given) };
        self.recent = Recent::new(1);
        self
    }

    /// The sampler of another shard of the same run, at the same place. It has the order that this one made last, which
    /// thus is made and held only once for several ranks in one process.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the tail policy is [`Tail::Error`] and the number of shards does not divide the number of
    /// rows.
    pub fn with_shard(&self, shard: Shard) -> Result<Self> {
        self.check(shard, self.orders.len())?;
        self.check(shard, self.orders.len().saturating_sub(self.start(self.epoch)))?;
        let alike = shard.count() == self.shard.count() && shard.tail() == self.shard.tail();
        let taken = |resumed: Resumed| Resumed {
            took_over: if alike { resumed.took_over } else { resumed.consumed },
            ..resumed
        };
        let resumed = self.resumed.map(taken);
        let sampler = Self { shard, resumed, ..self.clone() };
        // Another number of shards may need a rotation, or need none any more.
        Ok(if alike { sampler } else { sampler.rotated_as_needed() })
    }

    /// Whether any rows of a whole epoch are dropped or repeated.
    fn leaves_a_tail(&self) -> bool {
        let served = |deal: Arc<Deal>| deal.served(deal.steps());
        self.whole(0).and_then(served).is_ok_and(|served| served != self.orders.len())
    }

    /// The orders it follows: those it was made with, or their [rotation](Self::with_rotation).
    pub fn orders(&self) -> &Arc<dyn Order> {
        &self.orders
    }

    /// The orders it was made with.
    #[doc(hidden)]
    pub fn given(&self) -> &Arc<dyn Order> {
        &self.given
    }

    /// Whether it serves all rows as they lie in the index.
    #[doc(hidden)]
    pub fn serves_all_in_order(&self) -> bool {
        self.shard.count() == 1 && self.part_of.is_none() && self.given.name() == "sequential"
    }

    /// The shard it serves.
    pub fn shard(&self) -> Shard {
        self.shard
    }

    /// The rank of which it serves a [worker](Self::worker)'s batches, if it does.
    #[doc(hidden)]
    pub fn part_of(&self) -> Option<&PartOf> {
        self.part_of.as_deref()
    }

    /// The packs that its batches are made of, if they are.
    pub fn packed(&self) -> Option<&Arc<Packed>> {
        self.packs.as_ref().map(|packs| &packs.orders)
    }

    /// What decides its batches: `rows`, `packs` or `buckets`.
    #[doc(hidden)]
    pub fn kind(&self) -> &'static str {
        self.packs.as_ref().map_or(state::ROWS, |packs| packs.kind())
    }

    /// Rows, or packs, per batch on this rank: the most that one has.
    pub fn batch_size(&self) -> u64 {
        self.batch_size
    }

    /// Whether a short last batch is left out.
    #[doc(hidden)]
    pub fn drops_last_batch(&self) -> bool {
        self.drop_last_batch
    }

    /// The epoch that the next iteration serves.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Makes the next iteration serve `epoch`.
    ///
    /// An epoch that was resumed stays resumed if it is the current one already; coming back to it later serves it
    /// whole.
    pub fn set_epoch(&mut self, epoch: u64) {
        if epoch != self.epoch {
            self.epoch = epoch;
            self.resumed = None;
        }
    }

    /// How many samples this rank has in the current epoch, repeated ones included: in all of it, wherever the run was
    /// resumed.
    pub fn len(&self) -> u64 {
        let whole = self.whole(self.epoch).map_or(0, |whole| whole.samples());
        whole.max(self.samples_left())
    }

    /// Whether this rank has no sample in the current epoch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many samples of the current epoch this rank has still to serve: [`len`](Self::len), unless the run was
    /// resumed within it.
    pub fn samples_left(&self) -> u64 {
        self.left(self.epoch).map_or(0, |left| left.samples())
    }

    /// How many batches every rank has in the current epoch: in all of it, wherever the run was resumed.
    pub fn steps(&self) -> u64 {
        self.whole(self.epoch).map_or(0, |whole| whole.steps())
    }

    /// How many steps of the current epoch are still to be served: [`steps`](Self::steps), unless the run was resumed
    /// within it.
    pub fn steps_left(&self) -> u64 {
        self.left(self.epoch).map_or(0, |left| left.steps())
    }

    /// How many steps there are in the current epoch, from its position on, and in the ones after it: in so many epochs
    /// altogether. Epochs of packs differ by a few steps, so each of them is planned.
    ///
    /// # Errors
    ///
    /// Those of [`plan`](Self::plan).
    pub fn total_steps(&self, epochs: u64) -> Result<u64> {
        if self.packs.is_none() && self.part_of.is_none() {
            let more = epochs.saturating_sub(1).saturating_mul(self.whole(self.epoch)?.steps());
            return Ok(if epochs == 0 { 0 } else { self.left(self.epoch)?.steps().saturating_add(more) });
        }
        let epochs = self.epoch..self.epoch.saturating_add(epochs);
        epochs.map(|epoch| Ok(self.left(epoch)?.steps())).sum()
    }

    /// One epoch, as a value that answers for itself. Costs what [`Order::epoch`] costs, unless it was the last epoch
    /// asked for.
    ///
    /// # Errors
    ///
    /// Those of [`Order::epoch`], and `Internal` if it gives an order of another length.
    pub fn plan(&self, epoch: u64) -> Result<EpochPlan> {
        let rest = self.rest(epoch)?;
        let left = self.deal(&rest)?;
        let pads = match left.packed() {
            Some(packed) => Arc::clone(packed) as Arc<dyn EpochOrder>,
            None => self.recent.get(epoch, || self.order(epoch))?,
        };
        let order = left.order().unwrap_or_else(|| Arc::clone(&pads));
        let whole = if rest.start == 0 { Arc::clone(&left) } else { self.whole(epoch)? };
        let served = left.served(left.steps())?;
        Ok(EpochPlan { order, pads, rest, batch_size: self.batch_size, whole, left, served })
    }

    /// This rank's batch at a step of an epoch.
    ///
    /// # Errors
    ///
    /// Those of [`plan`](Self::plan) and [`EpochPlan::fill`]; `OutOfRange` if the epoch has no such step left.
    pub fn batch(&self, epoch: u64, step: u64) -> Result<BatchPlan> {
        self.plan(epoch)?.batch(step)
    }

    /// The current epoch; the one after becomes current.
    ///
    /// # Errors
    ///
    /// Those of [`plan`](Self::plan); `OutOfRange` after epoch 2^64 - 1. The current epoch then stays current.
    pub fn next_epoch(&mut self) -> Result<EpochPlan> {
        let next = after(self.epoch)?;
        let plan = self.plan(self.epoch)?;
        self.epoch = next;
        Ok(plan)
    }

    /// The batches of the current epoch; the one after becomes current.
    ///
    /// # Errors
    ///
    /// Those of [`next_epoch`](Self::next_epoch).
    pub fn batches(&mut self) -> Result<impl Iterator<Item = Result<BatchPlan>> + use<>> {
        let plan = self.next_epoch()?;
        Ok((plan.first_step()..plan.steps()).map(move |step| plan.batch(step)))
    }

    fn order(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        let order = self.orders.epoch(epoch)?;
        let len = self.orders.epoch_len(epoch)?;
        if order.len() != len {
            let message = format!("the order of epoch {epoch} has {} positions, not {len}", order.len());
            return Err(
                Error::new(ErrorKind::Internal, message).with_hint("the implementation of these Order is at fault")
            );
        }
        Ok(order)
    }

    /// Refuses so many positions for a shard, where that can be told without planning an epoch.
    fn check(&self, shard: Shard, positions: u64) -> Result<()> {
        match &self.packs {
            Some(packs) => packs.check(shard),
            None => shard.share(positions).map(|_| ()),
        }
    }

    /// How many rows a step of all ranks has, where the order of an epoch depends on it.
    fn bucket_step(&self) -> Option<u64> {
        self.packs.as_ref()?.step(self.shard)
    }

    /// By which cost packs are dealt, if they are.
    pub(crate) fn cost(&self) -> Option<Cost> {
        self.packs.as_ref()?.cost
    }

    /// Deals what is left of an epoch.
    fn deal(&self, rest: &Rest) -> Result<Arc<Deal>> {
        match (&self.part_of, &self.packs) {
            (Some(part), _) => Ok(Arc::new(part.deal(rest)?)),
            (None, Some(packs)) => packs.deal(rest),
            (None, None) => Ok(Arc::new(Deal::of(RankDeal::Rows(RowsDeal::new(self.batch_size, *rest)?)))),
        }
    }

    /// The position that an epoch begins at.
    fn start(&self, epoch: u64) -> u64 {
        self.resumed.filter(|resumed| resumed.epoch == epoch).map_or(0, |resumed| resumed.consumed)
    }

    /// All of an epoch.
    fn whole_rest(&self, epoch: u64) -> Result<Rest> {
        let Self { shard, drop_last_batch, .. } = *self;
        Ok(Rest { epoch, len: self.orders.epoch_len(epoch)?, start: 0, began: 0, step: 0, shard, drop_last_batch })
    }

    /// What is left of an epoch.
    fn rest(&self, epoch: u64) -> Result<Rest> {
        let whole = self.whole_rest(epoch)?;
        let resumed = self.resumed.filter(|resumed| resumed.epoch == epoch);
        let Some(Resumed { consumed, took_over, step, .. }) = resumed else { return Ok(whole) };
        Ok(Rest { start: consumed, began: took_over, step, ..whole })
    }

    /// What an epoch has that is served from its beginning; or, if these ranks could not have served it from there,
    /// from where they took it over.
    fn whole(&self, epoch: u64) -> Result<Arc<Deal>> {
        let whole = self.whole_rest(epoch)?;
        let rest = self.rest(epoch)?;
        self.deal(&whole).or_else(|_| self.deal(&Rest { start: rest.began, ..rest }))
    }

    /// How many batches every rank has in an epoch: in all of it, wherever the run was resumed.
    #[doc(hidden)]
    pub fn steps_of(&self, epoch: u64) -> u64 {
        self.known_steps_of(epoch).unwrap_or(0)
    }

    /// The same; `None` of an epoch that is not served.
    #[doc(hidden)]
    pub fn known_steps_of(&self, epoch: u64) -> Option<u64> {
        self.whole(epoch).ok().map(|whole| whole.steps())
    }

    /// The first step that is left of an epoch.
    #[doc(hidden)]
    pub fn first_step(&self, epoch: u64) -> u64 {
        let steps = |deal: Result<Arc<Deal>>| deal.map_or(0, |deal| deal.steps());
        steps(self.whole(epoch)) - steps(self.left(epoch))
    }

    /// What is left of an epoch.
    fn left(&self, epoch: u64) -> Result<Arc<Deal>> {
        self.deal(&self.rest(epoch)?)
    }
}

fn after(epoch: u64) -> Result<u64> {
    epoch.checked_add(1).ok_or_else(|| Error::new(ErrorKind::OutOfRange, "there is no epoch after 2^64 - 1"))
}

#[cfg(test)]
mod tests;
