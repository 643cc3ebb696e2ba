//! What the sampler promises, over worlds small enough to list.

mod buckets;
mod packs;
pub(super) mod plans;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use self::plans::Cut;
use super::*;
use crate::{
    Blocks, Contiguous, EpochOrder, Explicit, Global, Lengths, MAX_LEN, Mixed, MixedPart, Pack, Sequential, Torch,
    conformance,
};

/// A given list in every epoch, in which rows may be missing or repeated.
#[derive(Debug)]
struct Listed(Vec<u64>);

impl Order for Listed {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn epoch(&self, _: u64) -> Result<Arc<dyn EpochOrder>> {
        Ok(Arc::new(Self(self.0.clone())))
    }

    fn fingerprint(&self) -> u64 {
        self.0.len() as u64
    }

    fn name(&self) -> &'static str {
        "listed"
    }
}

impl EpochOrder for Listed {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn row(&self, position: u64) -> Option<u64> {
        self.0.get(usize::try_from(position).ok()?).copied()
    }

    fn position(&self, row: u64) -> Option<u64> {
        self.0.iter().position(|other| *other == row).map(|position| position as u64)
    }
}

fn global(n: u64) -> Arc<dyn Order> {
    Arc::new(Global::new(n, 7).unwrap())
}

/// Rows of a rank in the fewest steps that always have as many.
fn unit(cut: Cut) -> u64 {
    match cut {
        Cut::Rows(batch_size) => batch_size as u64,
        Cut::Packs(..) => 8,
    }
}

/// One sampler for every rank.
fn world(orders: &Arc<dyn Order>, size: u32, cut: impl Into<Cut>, tail: Tail) -> Vec<DistributedSampler> {
    let cut = cut.into();
    (0..size).map(|rank| cut.sampler(orders, Shard::new(rank, size).unwrap().with_tail(tail))).collect()
}

/// As it comes back from a checkpoint.
fn saved(state: State) -> State {
    let read = state.to_string().parse().unwrap();
    assert_eq!(state, read);
    read
}

fn samples(sampler: &DistributedSampler, epoch: u64) -> Vec<Sample> {
    sampler.plan(epoch).unwrap().samples().map(|sample| sample.unwrap()).collect()
}

fn batches(sampler: &DistributedSampler, epoch: u64) -> Vec<BatchPlan> {
    sampler.plan(epoch).unwrap().batches().map(|batch| batch.unwrap()).collect()
}

/// Position -> (row, pad) of one step over all ranks, checking that no position comes twice.
fn step(world: &[DistributedSampler], epoch: u64, step: u64) -> BTreeMap<u64, (u64, bool)> {
    let mut all = BTreeMap::new();
    for sampler in world {
        let batch = sampler.batch(epoch, step).unwrap();
        for (i, row) in batch.rows.iter().enumerate() {
            let pad = i >= batch.rows.len() - batch.pads;
            let previous = all.insert(batch.first + i as u64 * batch.stride, (*row, pad));
            assert_eq!(previous, None);
        }
    }
    all
}

/// What is left of an epoch over all ranks.
fn rest(world: &[DistributedSampler], epoch: u64) -> BTreeMap<u64, (u64, bool)> {
    let plan = world[0].plan(epoch).unwrap();
    (plan.first_step()..plan.steps()).flat_map(|t| step(world, epoch, t)).collect()
}

/// `torch.utils.data.DistributedSampler.__iter__` on the list `rows`, after its documentation and behaviour.
fn torch(rows: &[u64], size: usize, rank: usize, drop_last: bool) -> Vec<u64> {
    let n = rows.len();
    let num = if drop_last && !n.is_multiple_of(size) {
        ((n as f64 - size as f64) / size as f64).ceil() as usize
    } else {
        n.div_ceil(size)
    };
    let total = num * size;
    let all: Vec<u64> =
        if drop_last { rows[..total].to_vec() } else { rows.iter().cycle().take(total).copied().collect() };
    all.into_iter().skip(rank).step_by(size).collect()
}

/// Any sort of orders over `n` rows.
fn orders_of(sort: prop::sample::Index, n: u64) -> Arc<dyn Order> {
    let mut all = conformance::every(n, 7).unwrap();
    all.swap_remove(sort.index(all.len())).1
}

fn tails() -> impl Strategy<Value = Tail> {
    prop::sample::select(vec![Tail::Wrap, Tail::Drop, Tail::Uneven])
}

fn rows() -> impl Strategy<Value = Cut> {
    (1_usize..9).prop_map(Cut::from)
}

fn packs() -> impl Strategy<Value = Cut> {
    (1_usize..4, any::<u64>()).prop_map(|(packs, seed)| Cut::Packs(packs, seed))
}

/// Lengths that are small, and lengths around multiples of `R * B`.
fn worlds(cuts: impl Strategy<Value = Cut>) -> impl Strategy<Value = (u64, u32, Cut)> {
    (1_u32..17, cuts).prop_flat_map(|(size, cut)| {
        let stride = u64::from(size) * unit(cut);
        let around = (0_u64..5, 0_u64..5).prop_map(move |(k, off)| (k * stride + off).saturating_sub(2));
        prop_oneof![0_u64..600, around].prop_map(move |n| (n, size, cut))
    })
}

proptest! {
    #[test]
    fn every_row_is_served_once_and_pads_are_exact(
        (n, size, cut) in worlds(rows()), tail in tails(), epoch in 0_u64..3, drop_last: bool,
        sort: prop::sample::Index,
    ) {
        let orders = orders_of(sort, n);
        let world: Vec<_> =
            world(&orders, size, cut, tail).into_iter().map(|s| s.with_drop_last_batch(drop_last)).collect();
        let order = world[0].orders().epoch(epoch).unwrap();
        let served = rest(&world, epoch);
        let size = u64::from(size);
        let mut expected = match tail {
            Tail::Wrap => n.div_ceil(size) * size,
            Tail::Drop => n / size * size,
            _ => n,
        };
        if drop_last {
            let global_batch = size * unit(cut);
            expected = match tail {
                Tail::Uneven => n / size * size,
                _ => expected,
            } / global_batch * global_batch;
        }
        prop_assert!(served.keys().copied().eq(0..expected));
        let mut rows: Vec<u64> = served.values().filter(|(_, pad)| !pad).map(|(row, _)| *row).collect();
        for (q, (row, pad)) in &served {
            prop_assert_eq!(Some(*row), order.row(q % n));
            prop_assert_eq!(*pad, *q >= n);
        }
        let pads: Vec<u64> = served.values().filter(|(_, pad)| *pad).map(|(row, _)| *row).collect();
        for sampler in &world {
            let plan = sampler.plan(epoch).unwrap();
            prop_assert_eq!(plan.repeated().map(|q| plan.row(q).unwrap()).collect::<Vec<_>>(), &pads[..]);
            prop_assert_eq!(plan.dropped().count() as u64, n.saturating_sub(expected));
        }
        let plan = world[0].plan(epoch).unwrap();
        rows.extend(plan.dropped().map(|q| plan.row(q).unwrap()));
        rows.sort_unstable();
        prop_assert!(rows.into_iter().eq(0..n));
    }

    #[test]
    fn all_ranks_take_the_same_steps_and_only_the_last_is_short(
        (n, size, cut) in worlds(rows()), tail in tails(), drop_last: bool, sort: prop::sample::Index,
    ) {
        let world = world(&orders_of(sort, n), size, cut, tail).into_iter();
        let world: Vec<_> = world.map(|sampler| sampler.with_drop_last_batch(drop_last)).collect();
        let steps = world[0].steps();
        for sampler in &world {
            let batches = batches(sampler, 0);
            prop_assert_eq!(sampler.steps(), steps);
            prop_assert_eq!(batches.len() as u64, steps);
            for batch_plan in &batches {
                let count = batch_plan.rows.len();
                prop_assert!(count as u64 == unit(cut) || (batch_plan.step + 1 == steps && !drop_last));
            }
            let rows: Vec<u64> = batches.iter().flat_map(|batch| batch.rows.clone()).collect();
            let one_by_one: Vec<u64> = samples(sampler, 0).iter().map(|sample| sample.row).collect();
            prop_assert_eq!(rows.len() as u64, sampler.len());
            prop_assert_eq!(rows, one_by_one);
        }
    }

    #[test]
    fn wrap_and_drop_are_what_torch_does((n, size, batch) in worlds(rows())) {
        let list: Vec<u64> = (0..n).map(|i| i * 7919 % 613).collect();
        let orders: Arc<dyn Order> = Arc::new(Listed(list.clone()));
        for (tail, drop_last) in [(Tail::Wrap, false), (Tail::Drop, true)] {
            for (rank, sampler) in world(&orders, size, batch, tail).iter().enumerate() {
                let rows: Vec<u64> = samples(sampler, 0).iter().map(|sample| sample.row).collect();
                prop_assert_eq!(rows, torch(&list, size as usize, rank, drop_last));
            }
        }
    }

    #[test]
    fn what_a_step_trains_on_does_not_depend_on_the_world_while_the_global_batch_stays(
        n in 0_u64..600, tail in tails(), epoch in 0_u64..2, rotation: bool, sort: prop::sample::Index,
    ) {
        let orders = orders_of(sort, n);
        let world = |size, batch| -> Vec<_> {
            world(&orders, size, batch, tail).into_iter().map(|sampler| sampler.with_rotation(rotation)).collect()
        };
        let one = world(1, 24);
        for (size, batch) in [(2, 12), (3, 8), (4, 6), (8, 3), (12, 2), (24, 1)] {
            let many = world(size, batch);
            if tail != Tail::Drop {
                prop_assert_eq!(many[0].steps(), one[0].steps());
            }
            for t in 0..many[0].steps() {
                let mut mine = step(&many, epoch, t);
                let whole = step(&one, epoch, t);
                // Pads and dropped rows are all that the world decides, and both are at the end.
                mine.retain(|_, (_, pad)| !*pad);
                prop_assert!(mine.iter().all(|(q, row)| whole.get(q) == Some(row)));
                if (t + 1) * 24 <= n || tail != Tail::Drop {
                    prop_assert_eq!(mine, whole);
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes too many steps for Miri")]
    fn resuming_after_any_step_goes_on_as_if_nothing_had_happened(
        (n, size, cut) in worlds(prop_oneof![2 => rows(), 1 => packs()]), tail in tails(), drop_last: bool,
        sort: prop::sample::Index,
    ) {
        let orders = orders_of(sort, n);
        for sampler in world(&orders, size, cut, tail) {
            let mut sampler = sampler.with_drop_last_batch(drop_last);
            let whole = batches(&sampler, 0);
            for t in 0..whole.len() as u64 {
                let state = sampler.state_after(0, t).unwrap();
                let mut resumed = sampler.clone();
                resumed.resume(&saved(state)).unwrap();
                prop_assert_eq!(resumed.state(), state);
                if t + 1 == whole.len() as u64 {
                    prop_assert_eq!((resumed.epoch(), state.consumed), (1, 0));
                    prop_assert_eq!(batches(&resumed, 1), batches(&sampler, 1));
                    continue;
                }
                let rest = batches(&resumed, 0);
                prop_assert_eq!((resumed.len(), resumed.steps()), (sampler.len(), sampler.steps()));
                prop_assert_eq!(rest.len() as u64, resumed.steps_left());
                prop_assert_eq!(rest.len() as u64, whole.len() as u64 - t - 1);
                for (batch, uninterrupted) in rest.iter().zip(&whole[t as usize + 1..]) {
                    let state = |sampler: &DistributedSampler| sampler.state_after(0, batch.step).unwrap();
                    prop_assert_eq!(state(&resumed), state(&sampler));
                    prop_assert_eq!(batch, uninterrupted);
                }
                let served: usize = whole[..=t as usize].iter().map(|batch| batch.rows.len()).sum();
                prop_assert_eq!(resumed.samples_left(), resumed.len() - served as u64);
                prop_assert_eq!(samples(&resumed, 0), &samples(&sampler, 0)[served..]);
                for p in 0..resumed.len() {
                    let left = sampler.plan(0).unwrap().at(p).unwrap().filter(|_| p >= served as u64);
                    prop_assert_eq!(resumed.plan(0).unwrap().at(p).unwrap(), left);
                }
                prop_assert_eq!(resumed.batch(0, t).unwrap_err().kind(), ErrorKind::OutOfRange);
                prop_assert_eq!(resumed.state_after(0, t).unwrap_err().kind(), ErrorKind::OutOfRange);
                prop_assert_eq!(batches(&resumed, 1), batches(&sampler, 1));
            }
            sampler.set_epoch(5);
            prop_assert_eq!(sampler.state().epoch, 5);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes too many steps for Miri")]
    fn resuming_in_another_world_serves_every_remaining_row_once(
        (n, size, cut) in worlds(rows()), new_size in 1_u32..17, new_cut in rows(), tail in tails(),
        new_tail in tails(), epoch in 0_u64..2, sort: prop::sample::Index,
    ) {
        let orders = orders_of(sort, n);
        let old = world(&orders, size, cut, tail).remove(0);
        let order = old.orders().epoch(epoch).unwrap();
        for t in 0..old.steps().saturating_sub(1) {
            let state = old.state_after(epoch, t).unwrap();
            let mut new = world(&orders, new_size, new_cut, new_tail);
            for sampler in &mut new {
                sampler.resume(&state).unwrap();
                let plan = sampler.plan(epoch).unwrap();
                prop_assert_eq!((sampler.steps(), sampler.steps_left()), (plan.steps(), plan.steps_left()));
                prop_assert_eq!((sampler.len(), sampler.samples_left()), (plan.len(), plan.samples_left()));
                prop_assert_eq!(plan.samples().count() as u64, plan.samples_left());
                // An epoch has as many steps as ever, and its last one the number that it always has.
                sampler.set_epoch(epoch + 1);
                prop_assert_eq!((sampler.steps(), sampler.len()), (plan.steps(), plan.len()));
                let numbers = plan.batches().map(|batch| batch.unwrap().step);
                prop_assert!(numbers.eq(plan.steps() - plan.steps_left()..plan.steps()));
                sampler.resume(&state).unwrap();
            }
            prop_assert!(new.iter().all(|sampler| sampler.steps_left() == new[0].steps_left()));
            for sampler in new.iter().filter(|sampler| sampler.steps_left() > 1) {
                // The new world stops in turn, after its first step.
                let (step, mut again) = (sampler.steps() - sampler.steps_left(), sampler.clone());
                again.resume(&saved(sampler.state_after(epoch, step).unwrap())).unwrap();
                prop_assert_eq!(&batches(&again, epoch)[..], &batches(sampler, epoch)[1..]);
            }
            let (left, shards) = (n - state.consumed, u64::from(new_size));
            let began = new[0].state().run.unwrap().start;
            let expected = match new_tail {
                Tail::Wrap => (n - began).div_ceil(shards) * shards,
                Tail::Drop => (n - began) / shards * shards,
                _ => n - began,
            } - (state.consumed - began);
            let served = rest(&new, epoch);
            prop_assert!(served.keys().copied().eq(state.consumed..state.consumed + expected));
            let plan = new[0].plan(epoch).unwrap();
            prop_assert_eq!(plan.dropped().count() as u64, left.saturating_sub(expected));
            prop_assert_eq!(plan.repeated().count() as u64, expected.saturating_sub(left));
            for (q, (row, pad)) in served {
                prop_assert_eq!(Some(row), order.row(q % n));
                prop_assert_eq!(pad, q >= n);
            }
        }
    }
}

#[test]
fn torch_examples_come_out_as_torch_prints_them() {
    assert_eq!(torch(&[0, 1, 2], 8, 4, false), [1]);
    assert_eq!(torch(&[0, 1, 2], 8, 4, true), Vec::<u64>::new());
    assert_eq!(torch(&[5, 6, 7, 8, 9], 2, 1, false), [6, 8, 5]);
    assert_eq!(torch(&[5, 6, 7, 8, 9], 2, 1, true), [6, 8]);
}

/// What `torch.utils.data.DistributedSampler` of PyTorch 2.15 served.
#[test]
fn torch_orders_are_dealt_as_torch_deals_them() {
    let rows = |n, seed, rank, size, tail| -> Vec<u64> {
        let orders: Arc<dyn Order> = Arc::new(Torch::new(n, seed).unwrap());
        samples(&world(&orders, size, 2, tail)[rank], 2).iter().map(|sample| sample.row).collect()
    };
    assert_eq!(rows(10, 3, 1, 4, Tail::Wrap), [4, 5, 7]);
    assert_eq!(rows(10, 3, 3, 4, Tail::Drop), [6, 2]);
    let orders: Arc<dyn Order> = Arc::new(Torch::new(3, 0).unwrap());
    let world = world(&orders, 8, 1, Tail::Wrap);
    let firsts: Vec<u64> = world.iter().map(|sampler| samples(sampler, 0)[0].row).collect();
    assert_eq!(firsts, [2, 0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn what_never_changes_drops_and_repeats_every_row_equally_often() {
    for n in [10_u64, 23, 100, 101].into_iter().take(if cfg!(miri) { 1 } else { 4 }) {
        let explicit: Arc<dyn Order> = Arc::new(Explicit::new((0..n).rev().collect::<Vec<_>>(), n).unwrap());
        let sequential: Arc<dyn Order> = Arc::new(Sequential::new(n).unwrap());
        let contiguous: Arc<dyn Order> = Arc::new(Contiguous::new(Arc::clone(&sequential), 7).unwrap());
        for orders in [sequential, explicit, contiguous] {
            for (tail, drop_last) in
                [(Tail::Wrap, false), (Tail::Drop, false), (Tail::Drop, true), (Tail::Uneven, true)]
            {
                let sampler = world(&orders, 7, 2, tail).pop().unwrap().with_drop_last_batch(drop_last);
                let steps = sampler.steps();
                let mut counts = vec![0; n as usize];
                for epoch in 0..n {
                    let plan = sampler.plan(epoch).unwrap();
                    assert_eq!(plan.steps(), steps);
                    for position in plan.dropped().chain(plan.repeated()) {
                        counts[plan.row(position).unwrap() as usize] += 1;
                    }
                    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                    assert!(most - least <= 4, "{n} {tail} {epoch}: {least} to {most}");
                }
                assert!(counts[0] > 0 && counts.iter().all(|count| *count == counts[0]), "{n} {tail} {counts:?}");
            }
        }
    }
}

#[test]
fn only_what_leaves_a_tail_begins_elsewhere_and_only_after_the_first_epoch() {
    let first = |orders: &Arc<dyn Order>, size, tail, epoch| -> u64 {
        world(orders, size, 2, tail)[0].plan(epoch).unwrap().at(0).unwrap().unwrap().row
    };
    let orders: Arc<dyn Order> = Arc::new(Sequential::new(100).unwrap());
    for tail in [Tail::Wrap, Tail::Drop] {
        assert_eq!(first(&orders, 7, tail, 0), 0);
        assert_ne!(first(&orders, 7, tail, 1), 0);
        assert_eq!(first(&orders, 1, tail, 1), 0);
        assert_eq!(first(&orders, 4, tail, 1), 0);
        let sampler = world(&orders, 7, 2, tail).remove(0);
        assert_eq!(sampler.orders().name(), "rotated");
        assert_eq!(sampler.clone().with_rotation(false).plan(1).unwrap().at(0).unwrap().unwrap().row, 0);
        let one = world(&orders, 1, 2, tail).remove(0);
        assert_ne!(one.with_rotation(true).plan(1).unwrap().at(0).unwrap().unwrap().row, 0);
    }
    assert_eq!(first(&orders, 7, Tail::Uneven, 1), 0);
    for orders in [global(100), Arc::new(Torch::new(100, 0).unwrap()), Arc::new(Blocks::new(&[50; 2], 1, 0).unwrap())] {
        let sampler = world(&orders, 7, 2, Tail::Wrap).remove(0);
        assert_eq!(sampler.with_rotation(true).state().fingerprint, orders.fingerprint());
    }
}

#[test]
fn a_resumed_run_goes_on_rotated_or_not_as_it_began() {
    let place = |state: State| State { run: None, ..state };
    let orders: Arc<dyn Order> = Arc::new(Sequential::new(100).unwrap());
    for (size, other) in [(7, 4), (4, 7)] {
        let old = world(&orders, size, 2, Tail::Wrap).remove(0);
        let state = old.state_after(1, 3).unwrap();
        let mut new = world(&orders, other, 5, Tail::Uneven);
        for sampler in &mut new {
            sampler.resume(&state).unwrap();
            assert_eq!(place(sampler.state()), place(state));
            let other = sampler.clone().with_rotation(size == 4).with_drop_last_batch(true);
            assert_eq!(place(other.state()), place(state));
            assert_eq!(sampler.state_after(3, 0).unwrap().fingerprint, state.fingerprint);
        }
        let order = old.plan(1).unwrap();
        let served = rest(&new, 1);
        assert!(served.keys().copied().eq(state.consumed..100));
        assert!(served.into_iter().all(|(q, (row, _))| order.order().row(q) == Some(row)));
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes too many steps for Miri")]
fn replicas_see_the_same_batches_and_together_the_whole_epoch() {
    for (name, orders) in conformance::every(if cfg!(miri) { 13 } else { 101 }, 7).unwrap() {
        replicas_share(&name, &orders, 4.into());
        replicas_share(&name, &orders, Cut::Packs(2, 5));
    }
}

fn replicas_share(name: &str, orders: &Arc<dyn Order>, cut: Cut) {
    for layout in [ReplicationLayout::Consecutive, ReplicationLayout::Strided] {
        for replicas in [1, 2, 3, 4, 6, 12] {
            let mut groups: BTreeMap<u32, Vec<Vec<BatchPlan>>> = BTreeMap::new();
            for rank in 0..12 {
                let shard = Shard::new(rank, 12).unwrap().with_replication(replicas, layout).unwrap();
                groups.entry(shard.index()).or_default().push(batches(&cut.sampler(orders, shard), 0));
            }
            let plain = world(orders, 12 / replicas, cut, Tail::Wrap);
            assert_eq!(groups.len(), plain.len(), "{name}");
            for (members, plain) in groups.values().zip(&plain) {
                assert_eq!(members.len(), replicas as usize);
                assert!(members.iter().all(|member| *member == batches(plain, 0)));
            }
        }
    }
}

#[test]
fn replicas_count_once_in_what_is_consumed() {
    let orders = global(101);
    for layout in [ReplicationLayout::Consecutive, ReplicationLayout::Strided] {
        for rank in 0..12 {
            let shard = Shard::new(rank, 12).unwrap().with_replication(3, layout).unwrap();
            let mut sampler = DistributedSampler::new(Arc::clone(&orders), shard, 4).unwrap();
            let whole = batches(&sampler, 0);
            let state = sampler.state_after(0, 1).unwrap();
            assert_eq!(state.consumed, 2 * 4 * 4);
            sampler.resume(&state).unwrap();
            let rest: Vec<Vec<u64>> = batches(&sampler, 0).into_iter().map(|batch| batch.rows).collect();
            assert!(rest.iter().eq(whole[2..].iter().map(|batch| &batch.rows)));
        }
    }
}

#[test]
fn no_rows_make_no_steps() {
    for orders in [global(0), Arc::new(Sequential::new(0).unwrap())] {
        for tail in [Tail::Wrap, Tail::Drop, Tail::Uneven, Tail::Error] {
            for mut sampler in world(&orders, 3, 2, tail) {
                assert_eq!((sampler.len(), sampler.steps()), (0, 0));
                assert!(sampler.is_empty());
                assert_eq!(sampler.next_epoch().unwrap().samples().count(), 0);
                assert_eq!(sampler.batches().unwrap().count(), 0);
                assert_eq!(sampler.batch(0, 0).unwrap_err().kind(), ErrorKind::OutOfRange);
                assert_eq!(sampler.state_after(0, 0).unwrap_err().kind(), ErrorKind::OutOfRange);
                let state = sampler.state();
                sampler.resume(&state).unwrap();
                assert_eq!(sampler.epoch(), 2);
            }
        }
    }
}

#[test]
fn a_batch_size_beyond_the_samples_makes_one_short_batch() {
    let world = world(&global(10), 4, usize::MAX, Tail::Wrap);
    for sampler in &world {
        assert_eq!(sampler.steps(), 1);
        assert_eq!(sampler.batch(0, 0).unwrap().rows.len(), 3);
        assert_eq!(sampler.clone().with_drop_last_batch(true).steps(), 0);
    }
}

#[test]
fn a_rank_with_fewer_samples_takes_an_empty_last_step() {
    let world = world(&global(9), 4, 2, Tail::Uneven);
    let last = |rank: usize| world[rank].batch(0, 1).unwrap().rows.len();
    assert_eq!([last(0), last(1), last(2), last(3)], [1, 0, 0, 0]);
    assert!(world.iter().all(|sampler| sampler.steps() == 2));
}

#[test]
fn rows_that_an_order_repeats_or_omits_are_served_as_it_says() {
    let orders: Arc<dyn Order> = Arc::new(Listed(vec![4, 4, 9, 4, 0]));
    let world = world(&orders, 2, 2, Tail::Wrap);
    let rows = |rank: usize| samples(&world[rank], 3).iter().map(|sample| sample.row).collect::<Vec<_>>();
    assert_eq!((rows(0), rows(1)), (vec![4, 9, 0], vec![4, 4, 4]));
}

#[test]
fn the_largest_worlds_lengths_and_batches_do_not_overflow() {
    let orders = global(MAX_LEN);
    for tail in [Tail::Wrap, Tail::Drop, Tail::Uneven] {
        for rank in [0, u32::MAX - 1] {
            for batch in [1, 4096, usize::MAX] {
                let shard = Shard::new(rank, u32::MAX).unwrap().with_tail(tail);
                let sampler = DistributedSampler::new(Arc::clone(&orders), shard, batch).unwrap();
                let plan = sampler.plan(u64::MAX).unwrap();
                assert!(plan.at(plan.len() - 1).unwrap().unwrap().row < MAX_LEN);
                assert_eq!(plan.at(plan.len()).unwrap(), None);
                assert_eq!(plan.at(u64::MAX).unwrap(), None);
                if batch != usize::MAX {
                    let last = plan.batch(plan.steps() - 1).unwrap();
                    assert!(last.rows.len() <= batch);
                    let state = sampler.state_after(0, plan.steps() - 2).unwrap();
                    let mut resumed = sampler.clone();
                    resumed.resume(&state).unwrap();
                    assert_eq!(
                        (resumed.steps_left(), resumed.batch(0, plan.steps() - 1).unwrap().rows),
                        (1, sampler.batch(0, plan.steps() - 1).unwrap().rows)
                    );
                }
                assert_eq!(plan.batch(u64::MAX).unwrap_err().kind(), ErrorKind::OutOfRange);
            }
        }
    }
    let all = DistributedSampler::new(orders, Shard::new(0, 1).unwrap(), usize::MAX).unwrap();
    assert_eq!(all.batch(0, 0).unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn epochs_advance_by_themselves_on_every_iteration() {
    let mut sampler = world(&global(100), 2, 10, Tail::Wrap).remove(0);
    let first: Vec<u64> = sampler.next_epoch().unwrap().samples().map(|sample| sample.unwrap().row).collect();
    assert_eq!(sampler.epoch(), 1);
    let second: Vec<u64> = sampler.batches().unwrap().flat_map(|batch| batch.unwrap().rows).collect();
    assert_eq!(sampler.epoch(), 2);
    assert_ne!(first, second);
    assert_eq!(sampler.next_epoch().unwrap().epoch(), 2);
    sampler.set_epoch(0);
    let again: Vec<u64> = sampler.next_epoch().unwrap().samples().map(|sample| sample.unwrap().row).collect();
    assert_eq!(again, first);
}

#[test]
fn an_epoch_is_cut_short_only_once_after_resuming() {
    let mut sampler = world(&global(100), 2, 10, Tail::Wrap).remove(0);
    let state = sampler.state_after(3, 1).unwrap();
    sampler.resume(&state).unwrap();
    sampler.set_epoch(3);
    let counts = |sampler: &DistributedSampler| (sampler.epoch(), sampler.samples_left(), sampler.steps_left());
    assert_eq!(counts(&sampler), (3, 30, 3));
    assert_eq!((sampler.len(), sampler.steps()), (50, 5));
    assert_eq!(sampler.batches().unwrap().count(), 3);
    assert_eq!(counts(&sampler), (4, 50, 5));
    // The loop that consumes the resumed epoch saves its states while the next epoch is current already.
    assert_eq!(sampler.state_after(3, 2).unwrap().consumed, 60);
    sampler.set_epoch(3);
    assert_eq!(counts(&sampler), (3, 50, 5));
}

#[test]
fn a_state_that_can_not_be_resumed_leaves_the_sampler_as_it_is() {
    let mut sampler = world(&global(100), 2, 10, Tail::Error).remove(0);
    let state = sampler.state();
    let cases = [
        (State { fingerprint: 1, ..state }, ErrorKind::StateMismatch),
        (State { consumed: 101, ..state }, ErrorKind::OutOfRange),
        (State { consumed: 99, ..state }, ErrorKind::InvalidArgument),
        (State { consumed: 100, epoch: u64::MAX, ..state }, ErrorKind::OutOfRange),
    ];
    for (bad, kind) in cases {
        assert_eq!(sampler.resume(&bad).unwrap_err().kind(), kind);
        assert_eq!(sampler.state(), state);
    }
    let other = State { fingerprint: 0xabc, ..state };
    let message = sampler.resume(&other).unwrap_err().to_string();
    assert!(message.contains("0000000000000abc") && message.contains(&format!("{:016x}", state.fingerprint)));
    sampler.resume(&State { consumed: 100, epoch: 4, ..state }).unwrap();
    assert_eq!((sampler.epoch(), sampler.len()), (5, 50));
}

#[test]
fn a_changed_mixture_is_refused_with_a_way_on() {
    let sampler = |proportion| {
        let part = |proportion| MixedPart::new(global(50), 50, proportion);
        let mixed = Mixed::new([part(1.0), part(proportion)], 100, 0).unwrap();
        DistributedSampler::new(Arc::new(mixed), Shard::new(0, 1).unwrap(), 10).unwrap()
    };
    let error = sampler(2.0).resume(&sampler(1.0).state_after(0, 3).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StateMismatch);
    assert!(error.hint().unwrap().contains("leave the state out and set the epoch"), "{error}");
}

#[test]
fn there_is_no_epoch_after_the_last() {
    let mut sampler = world(&global(4), 1, 4, Tail::Wrap).remove(0);
    sampler.set_epoch(u64::MAX);
    assert_eq!(sampler.next_epoch().unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(sampler.state_after(u64::MAX, 0).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(sampler.batch(u64::MAX, 0).unwrap().rows.len(), 4);
}

#[test]
fn arguments_that_can_never_be_right_are_refused() {
    let shard = Shard::new(0, 3).unwrap();
    let kind = |result: Result<DistributedSampler>| result.unwrap_err().kind();
    assert_eq!(kind(DistributedSampler::new(global(10), shard, 0)), ErrorKind::InvalidArgument);
    assert_eq!(kind(DistributedSampler::new(global(10), shard.with_tail(Tail::Error), 1)), ErrorKind::InvalidArgument);
    let sampler = DistributedSampler::new(global(10), shard, 1).unwrap();
    for (worker, workers) in [(1, 0), (1, 1), (4, 4), (u64::MAX, 2)] {
        assert_eq!(kind(sampler.worker(worker, workers)), ErrorKind::InvalidArgument);
    }
    assert_eq!(sampler.epoch(), 0);
}

#[test]
fn a_batch_is_written_over_the_one_before() {
    let sampler = world(&global(10), 4, 2, Tail::Wrap).pop().unwrap();
    let plan = sampler.plan(0).unwrap();
    let mut batch = BatchPlan::default();
    for step in [1, 0, 1] {
        plan.fill(step, &mut batch).unwrap();
        assert_eq!(batch, plan.batch(step).unwrap());
    }
    assert_eq!((batch.rows.len(), batch.pads), (1, 1));
    assert!(plan.fill(2, &mut batch).is_err());
    assert!(batch.rows.is_empty() && batch.pads == 0);
}

#[test]
fn samples_are_found_by_their_step_and_by_their_position() {
    for cut in [Cut::Rows(4), Cut::Packs(2, 3)] {
        for tail in [Tail::Wrap, Tail::Drop, Tail::Uneven] {
            let mut world = world(&global(97), 3, cut, tail);
            let state = world[0].state_after(1, 2).unwrap();
            world.iter_mut().for_each(|sampler| sampler.resume(&state).unwrap());
            for sampler in &world {
                let plan = sampler.plan(1).unwrap();
                assert_eq!((plan.step_of(plan.first_sample() - 1), plan.step_of(plan.len())), (None, None));
                let mut positions = BTreeMap::new();
                for p in plan.first_sample()..plan.len() {
                    let (step, slot) = plan.step_of(p).unwrap();
                    let (batch, sample) = (plan.batch(step).unwrap(), plan.at(p).unwrap().unwrap());
                    assert_eq!(
                        (batch.rows[slot as usize], batch.first + slot * batch.stride),
                        (sample.row, sample.position)
                    );
                    positions.insert(sample.position, p);
                }
                for position in 0..120 {
                    assert_eq!(plan.sample_at(position), positions.get(&position).copied());
                }
            }
        }
    }
}

#[test]
fn a_state_of_another_kind_of_plan_is_refused() {
    let mut rows = world(&global(100), 2, 7, Tail::Wrap).remove(1);
    let mut packs = world(&global(100), 2, Cut::Packs(2, 1), Tail::Wrap).remove(1);
    let of_rows = rows.state_after(0, 1).unwrap();
    let of_packs = packs.state_after(0, 1).unwrap();
    for (sampler, state) in [(&mut rows, of_packs), (&mut packs, of_rows)] {
        let before = sampler.state();
        let error = sampler.resume(&state).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StateMismatch);
        assert!(error.to_string().contains("packs") && error.to_string().contains("rows"), "{error}");
        assert_eq!(sampler.state(), before);
    }
    // States of version 1 are of rows.
    let first = State { run: None, ..of_rows };
    assert!(rows.resume(&first).is_ok() && packs.resume(&first).is_err());
}

#[test]
fn an_order_that_breaks_its_contract_is_reported() {
    /// Says it has `len` positions and serves `rows`.
    #[derive(Debug, Clone, Copy)]
    struct Short {
        len: u64,
        rows: u64,
    }
    impl Order for Short {
        fn len(&self) -> u64 {
            self.len.min(10)
        }
        fn epoch(&self, _: u64) -> Result<Arc<dyn EpochOrder>> {
            Ok(Arc::new(*self))
        }
        fn fingerprint(&self) -> u64 {
            0
        }
        fn name(&self) -> &'static str {
            "short"
        }
    }
    impl EpochOrder for Short {
        fn len(&self) -> u64 {
            self.len
        }
        fn row(&self, position: u64) -> Option<u64> {
            (position < self.rows).then_some(position)
        }
        fn position(&self, _: u64) -> Option<u64> {
            None
        }
    }
    let sampler =
        |len, rows| DistributedSampler::new(Arc::new(Short { len, rows }), Shard::new(0, 2).unwrap(), 8).unwrap();
    assert_eq!(sampler(11, 11).plan(0).unwrap_err().kind(), ErrorKind::Internal);
    let plan = sampler(10, 6).plan(0).unwrap();
    assert_eq!(plan.batch(0).unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(plan.samples().filter_map(Result::ok).count(), 3);
    assert_eq!(plan.samples().count(), 5);
}

#[test]
fn an_order_is_made_once_for_all_questions_about_an_epoch() {
    #[derive(Debug, Default)]
    struct Counted(AtomicUsize);
    impl Order for Counted {
        fn len(&self) -> u64 {
            3
        }
        fn epoch(&self, _: u64) -> Result<Arc<dyn EpochOrder>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(Arc::new(Listed(vec![2, 0, 1])))
        }
        fn fingerprint(&self) -> u64 {
            0
        }
        fn name(&self) -> &'static str {
            "counted"
        }
    }
    let orders = Arc::new(Counted::default());
    let sampler = DistributedSampler::new(Arc::clone(&orders) as Arc<dyn Order>, Shard::new(0, 1).unwrap(), 1).unwrap();
    for p in 0..3 {
        sampler.plan(0).unwrap().at(p).unwrap();
        sampler.batch(0, p).unwrap();
    }
    assert_eq!(orders.0.load(Ordering::Relaxed), 1);
    sampler.plan(1).unwrap().at(0).unwrap();
    assert_eq!(orders.0.load(Ordering::Relaxed), 2);
}

#[test]
fn a_sampler_of_another_shard_is_as_if_made_for_it_and_shares_the_order() {
    /// Counts how often an order is made.
    #[derive(Debug)]
    struct Counting(AtomicUsize);

    impl Order for Counting {
        fn len(&self) -> u64 {
            100
        }

        fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            global(100).epoch(epoch)
        }

        fn fingerprint(&self) -> u64 {
            0
        }

        fn name(&self) -> &'static str {
            "counting"
        }
    }

    let orders = Arc::new(Counting(AtomicUsize::new(0)));
    let shard = |rank| Shard::new(rank, 3).unwrap();
    let mut first = DistributedSampler::new(Arc::clone(&orders) as Arc<dyn Order>, shard(0), 7).unwrap();
    first.resume(&State { fingerprint: 0, epoch: 5, consumed: 21, run: None }).unwrap();
    first.plan(5).unwrap();
    for rank in 0..3 {
        let mut alone = DistributedSampler::new(global(100), shard(rank), 7).unwrap();
        alone.resume(&State { epoch: 5, consumed: 21, ..alone.state() }).unwrap();
        let shared = first.with_shard(shard(rank)).unwrap();
        assert_eq!(batches(&shared, 5), batches(&alone, 5));
    }
    assert_eq!(orders.0.load(Ordering::Relaxed), 1);
    let refused = first.with_shard(shard(0).with_tail(Tail::Error)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
}
