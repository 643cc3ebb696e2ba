//! What every rank is promised, for every order that is made of others: equal counts, exact cover, resuming anywhere.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use rowdex::order::Order;
use rowdex::order::{Balanced, Global, IdSet, Mixed, MixedPart, Resized, Sequential, Side, Split, Subset, Weighted};
use rowdex::sampler::Tail;
use rowdex::sampler::{BatchPlan, State};
use rowdex::{DistributedSampler, Shard};

const SEED: u64 = 9;

fn global(rows: u64) -> Arc<dyn Order> {
    Arc::new(Global::new(rows, SEED).unwrap())
}

/// Every second row of three, and a gap.
fn kept(rows: u64) -> IdSet {
    IdSet::filter(rows, |row| row % 3 != 1 && !(20..40).contains(&row)).unwrap()
}

/// All sorts of orders over about `n` rows, and whether each of their rows comes once in an epoch.
fn sorts(n: u64) -> Vec<(&'static str, Arc<dyn Order>, bool)> {
    let weights: Vec<f64> = (0..n).map(|row| (row % 4) as f64).collect();
    let labels: Vec<u32> = (0..n).map(|row| (row % 7 % 3) as u32).collect();
    let positive = weights.iter().filter(|weight| **weight > 0.0).count() as u64;
    let part = |rows: u64, proportion| MixedPart::new(global(rows), rows, proportion);
    let subset = || -> Arc<dyn Order> { Arc::new(Subset::new(global(kept(n).len()), kept(n)).unwrap()) };
    let kept_weights: Vec<f64> = kept(n).iter().map(|row| weights[row as usize] + 1.0).collect();
    let weighted_rest = Weighted::with_replacement(&kept_weights, n, SEED).unwrap();
    let split = Split::new(0.3, SEED).unwrap();
    let train = split.rows(Side::Train, n).unwrap();
    vec![
        ("subset", subset(), true),
        ("split", Arc::new(Subset::new(Arc::new(Sequential::new(train.len()).unwrap()), train).unwrap()), true),
        ("weighted", Arc::new(Weighted::with_replacement(&weights, n + 3, SEED).unwrap()), false),
        ("drawn", Arc::new(Weighted::without_replacement(&weights, positive, SEED).unwrap()), true),
        ("weighted rest", Arc::new(Subset::new(Arc::new(weighted_rest), kept(n)).unwrap()), false),
        ("balanced", Arc::new(Balanced::new(&labels, n + 5, SEED).unwrap()), false),
        ("mixed", Arc::new(Mixed::new([part(n, 0.6), part(5, 0.1), part(3 * n, 0.3)], n + 40, SEED).unwrap()), false),
        ("shorter", Arc::new(Resized::new(subset(), 1 + n / 5).unwrap()), false),
        ("longer", Arc::new(Resized::new(global(n), 2 * n + 7).unwrap()), false),
    ]
}

fn world(orders: &Arc<dyn Order>, size: u32, batch: usize, tail: Tail) -> Vec<DistributedSampler> {
    let shard = |rank| Shard::new(rank, size).unwrap().with_tail(tail);
    (0..size).map(|rank| DistributedSampler::new(orders.clone(), shard(rank), batch).unwrap()).collect()
}

/// What is left of an epoch over all ranks, by position; checks that ranks take as many steps and no position comes
/// twice.
fn served(world: &[DistributedSampler], epoch: u64) -> BTreeMap<u64, (u64, bool)> {
    let mut all = BTreeMap::new();
    let first = world[0].plan(epoch).unwrap();
    for sampler in world {
        let plan = sampler.plan(epoch).unwrap();
        assert_eq!((plan.steps(), plan.steps_left()), (first.steps(), first.steps_left()));
        assert_eq!(plan.batches().count() as u64, plan.steps_left());
        for batch in plan.batches() {
            let BatchPlan { first, stride, rows, pads, .. } = batch.unwrap();
            for (i, row) in rows.iter().enumerate() {
                assert_eq!(all.insert(first + i as u64 * stride, (*row, i + pads >= rows.len())), None);
            }
        }
    }
    all
}

fn tails() -> impl Strategy<Value = Tail> {
    prop::sample::select(vec![Tail::Wrap, Tail::Drop, Tail::Uneven])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranks_get_equally_many_and_together_the_whole_order(
        n in 44_u64..300, size in 1_u32..17, batch in 1_usize..9, tail in tails(), epoch in 0_u64..4,
    ) {
        for (name, orders, _) in sorts(n) {
            let world = world(&orders, size, batch, tail);
            let (len, ranks) = (orders.len(), u64::from(size));
            let expected = match tail {
                Tail::Wrap => len.div_ceil(ranks) * ranks,
                Tail::Drop => len / ranks * ranks,
                _ => len,
            };
            let all = served(&world, epoch);
            prop_assert!(all.keys().copied().eq(0..expected), "{}", name);
            let order = world[0].orders().epoch(epoch).unwrap();
            for (q, (row, pad)) in all {
                prop_assert_eq!((Some(row), pad), (order.row(q % len), q >= len), "{}", name);
            }
            let lens: Vec<u64> = world.iter().map(|sampler| sampler.plan(epoch).unwrap().len()).collect();
            prop_assert!(lens.iter().max().unwrap() - lens.iter().min().unwrap() <= u64::from(tail == Tail::Uneven));
        }
    }

    #[test]
    fn resuming_anywhere_with_any_world_goes_on_as_if_nothing_had_happened(
        n in 44_u64..300, size in 1_u32..6, other in 1_u32..6, batch in 1_usize..9, epoch in 0_u64..3,
        at in 0.0..1.0_f64,
    ) {
        for (name, orders, _) in sorts(n) {
            let before = world(&orders, size, batch, Tail::Uneven);
            let steps = before[0].plan(epoch).unwrap().steps();
            let state = before[0].state_after(epoch, (steps as f64 * at) as u64).unwrap();
            let state: State = state.to_string().parse().unwrap();
            let mut after = world(&orders, other, batch + 1, Tail::Uneven);
            for sampler in &mut after {
                sampler.resume(&state).unwrap();
            }
            let mut whole = served(&before, state.epoch);
            let rest = whole.split_off(&state.consumed);
            prop_assert_eq!(served(&after, state.epoch), rest, "{}", name);
        }
    }

    #[test]
    fn what_is_skipped_is_never_served_and_what_is_left_is_served_once(n in 44_u64..300, size in 1_u32..9) {
        for (name, orders, once) in sorts(n) {
            let world = world(&orders, size, 4, Tail::Uneven);
            let rows: Vec<u64> = served(&world, 1).into_values().map(|(row, _)| row).collect();
            if name.starts_with("subset") || name == "weighted rest" || name == "shorter" {
                prop_assert!(rows.iter().all(|row| kept(n).contains(*row)), "{}", name);
            }
            if once {
                let set = IdSet::from_ids(n, rows.iter().copied()).unwrap();
                prop_assert_eq!(set.len(), rows.len() as u64, "{} serves a row twice", name);
            }
            if name == "subset" {
                prop_assert_eq!(rows.len() as u64, kept(n).len());
            }
        }
    }

    #[test]
    fn a_step_does_not_depend_on_the_number_of_ranks_while_its_rows_are_as_many(n in 44_u64..300, epoch in 0_u64..3) {
        for (name, orders, _) in sorts(n) {
            let step = |size: u32, batch| -> Vec<u64> {
                let world = world(&orders, size, batch, Tail::Uneven);
                let mut rows: Vec<u64> =
                    world.iter().flat_map(|sampler| sampler.batch(epoch, 0).unwrap().rows).collect();
                rows.sort_unstable();
                rows
            };
            prop_assert_eq!(step(2, 4), step(8, 1), "{}", name);
            prop_assert_eq!(step(2, 4), step(1, 8), "{}", name);
        }
    }
}

#[test]
fn no_two_sorts_of_orders_take_each_others_states() {
    let mut prints: Vec<u64> = sorts(100).iter().map(|(_, orders, _)| orders.fingerprint()).collect();
    prints.extend([100, 101].map(|n| global(n).fingerprint()));
    let all = prints.len();
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), all);
}
