//! Buckets: batches of as many rows with like lengths, against a sort of each window written plainly.

use super::plans::DrawnLengths;
use super::*;

/// A run of some ranks: rows, seed of the lengths, `within`.
#[derive(Debug, Clone, Copy)]
struct Case {
    rows: u64,
    seed: u64,
    within: u64,
}

impl Case {
    fn orders(self) -> Arc<dyn Order> {
        Arc::new(crate::Global::new(self.rows, 7).unwrap())
    }

    fn packed(self, orders: Arc<dyn Order>) -> Arc<Packed> {
        let lengths = DrawnLengths { rows: orders.rows().unwrap(), seed: self.seed };
        Arc::new(Packed::new(orders, Arc::new(lengths), Pack::buckets(self.within)).unwrap())
    }

    fn length(self, row: u64) -> u64 {
        DrawnLengths { rows: self.rows, seed: self.seed }.length(row).unwrap()
    }

    fn world(self, ranks: u32, batch: usize, tail: Tail) -> Vec<DistributedSampler> {
        let packed = self.packed(self.orders());
        let shard = |rank| Shard::new(rank, ranks).unwrap().with_tail(tail);
        let of = |rank| DistributedSampler::of_packs(Arc::clone(&packed), shard(rank), batch, None).unwrap();
        (0..ranks).map(of).collect()
    }

    /// The rows of an epoch that are sorted together: windows of whole steps of `step` rows, and then what is left.
    fn windows(self, epoch: u64, step: u64) -> (Vec<Vec<u64>>, Vec<u64>) {
        let order = self.orders().epoch(epoch).unwrap();
        let mut rows: Vec<u64> = (0..self.rows).map(|position| order.row(position).unwrap()).collect();
        let rest = rows.split_off((self.rows / step * step) as usize);
        let steps = ((self.within as f64 / step as f64).round() as u64).max(1);
        let mut windows: Vec<Vec<u64>> = rows.chunks((steps * step) as usize).map(<[u64]>::to_vec).collect();
        // A window is as long as asked for, or longer: the rows of the whole order decide how many there are.
        while windows.len() as u64 > (self.rows / (steps * step)).max(1) {
            let last = windows.pop().unwrap();
            windows.last_mut().unwrap().extend(last);
        }
        (windows, rest)
    }
}

/// What is left of an epoch on all ranks: step by step, rank by rank.
fn steps_of(world: &[DistributedSampler], epoch: u64) -> Vec<Vec<Vec<u64>>> {
    let plans: Vec<_> = world.iter().map(|rank| rank.plan(epoch).unwrap()).collect();
    let steps = plans[0].first_step()..plans[0].steps();
    steps.map(|step| plans.iter().map(|plan| plan.batch(step).unwrap().rows).collect()).collect()
}

fn sorted(mut rows: Vec<u64>) -> Vec<u64> {
    rows.sort_unstable();
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 100 }))]

    #[test]
    #[cfg_attr(miri, ignore = "takes too many steps for Miri")]
    fn the_batches_of_a_step_are_neighbours_in_the_sorted_rows_of_a_window(
        rows in 1_u64..400, seed: u64, within in 1_u64..150, ranks in 1_u32..6, batch in 1_usize..7, epoch in 0_u64..3,
    ) {
        let run = Case { rows, seed, within };
        let world = run.world(ranks, batch, Tail::Uneven);
        let (windows, rest) = run.windows(epoch, u64::from(ranks) * batch as u64);
        let mut steps = steps_of(&world, epoch);
        for mut window in windows {
            window.sort_by_key(|row| run.length(*row));
            let mut expected: Vec<Vec<Vec<u64>>> = window
                .chunks(ranks as usize * batch)
                .map(|step| step.chunks(batch).map(<[u64]>::to_vec).collect())
                .collect();
            let mut found: Vec<_> = steps.drain(..expected.len()).collect();
            expected.sort();
            found.sort();
            prop_assert_eq!(found, expected);
        }
        prop_assert_eq!(steps.len(), usize::from(!rest.is_empty()));
        let mut last = rest;
        last.sort_by_key(|row| run.length(*row));
        prop_assert_eq!(steps.concat().concat(), last);
    }

    #[test]
    fn any_worlds_go_on_with_the_epoch_as_it_began_and_cut_the_next_one_for_themselves(
        rows in 1_u64..300, seed: u64, within in 1_u64..150,
        worlds in prop::collection::vec((1_u32..10, 1_usize..6, 0_u64..4), 1..5),
    ) {
        let run = Case { rows, seed, within };
        let (mut state, mut served) = (None::<State>, Vec::new());
        let mut whole = Vec::new();
        for (ranks, batch, steps) in worlds {
            let fresh = run.world(ranks, batch, Tail::Uneven);
            let mut world = fresh.clone();
            for sampler in &mut world {
                sampler.set_epoch(2);
                if let Some(state) = state {
                    sampler.resume(&saved(state)).unwrap();
                }
            }
            let left = steps_of(&world, 2);
            if state.is_none() {
                whole = left.concat().concat();
                prop_assert!(sorted(whole.clone()).into_iter().eq(0..rows));
            }
            prop_assert_eq!(left.concat().concat(), &whole[served.len()..]);
            prop_assert_eq!(steps_of(&world, 3), steps_of(&fresh, 3));
            let steps = steps.min((left.len() as u64).saturating_sub(1));
            if steps == 0 {
                continue;
            }
            let first = world[0].plan(2).unwrap().first_step();
            let told = world[0].state_after(2, first + steps - 1).unwrap();
            for rank in &world {
                prop_assert_eq!(rank.state_after(2, first + steps - 1).unwrap(), told);
            }
            // The same ranks go on as if they had not stopped.
            let mut again = fresh.clone();
            for sampler in &mut again {
                sampler.resume(&saved(told)).unwrap();
            }
            prop_assert_eq!(&steps_of(&again, 2)[..], &left[steps as usize..]);
            prop_assert_eq!(again[0].state(), told);
            served.extend(left[..steps as usize].concat().concat());
            state = Some(told);
        }
    }

    #[test]
    fn tails_workers_and_replicas_are_those_of_rows(
        rows in 1_u64..200, seed: u64, ranks in 1_u32..5, batch in 1_usize..6, workers in 1_u64..4,
        tail in prop::sample::select(vec![Tail::Wrap, Tail::Drop, Tail::Uneven]), drop_last: bool,
    ) {
        let run = Case { rows, seed, within: 40 };
        let of = |sampler: DistributedSampler| sampler.with_drop_last_batch(drop_last);
        let world: Vec<_> = run.world(ranks, batch, tail).into_iter().map(of).collect();
        let plain: Vec<_> = (0..ranks)
            .map(|rank| DistributedSampler::new(run.orders(), world[rank as usize].shard(), batch).map(of).unwrap())
            .collect();
        let steps = steps_of(&world, 1);
        let sizes = |steps: &[Vec<Vec<u64>>]| -> Vec<usize> {
            steps.iter().map(|step| step.iter().map(Vec::len).sum()).collect()
        };
        prop_assert_eq!(sizes(&steps), sizes(&steps_of(&plain, 1)));
        let served = steps.concat().concat();
        let distinct: std::collections::HashSet<u64> = served.iter().copied().collect();
        prop_assert!(tail == Tail::Wrap || distinct.len() == served.len());
        prop_assert!(tail != Tail::Wrap || drop_last || distinct.len() as u64 == rows);
        for rank in &world {
            let plan = rank.plan(1).unwrap();
            let own: Vec<Vec<u64>> = plan.batches().map(|batch| batch.unwrap().rows).collect();
            let own: Vec<Vec<u64>> = own.into_iter().filter(|rows| !rows.is_empty()).collect();
            for worker in 0..workers {
                let part = rank.worker(worker, workers).unwrap();
                let batches: Vec<Vec<u64>> =
                    part.plan(1).unwrap().batches().map(|batch| batch.unwrap().rows).collect();
                let expected: Vec<Vec<u64>> =
                    own.iter().skip(worker as usize).step_by(workers as usize).cloned().collect();
                prop_assert_eq!(batches, expected);
            }
            let twice = Shard::new(rank.shard().rank() * 2 + 1, ranks * 2).unwrap().with_tail(tail);
            let twice = twice.with_replication(2, ReplicationLayout::Consecutive).unwrap();
            let replica = of(DistributedSampler::of_packs(run.packed(run.orders()), twice, batch, None).unwrap());
            prop_assert_eq!(steps_of(&[replica], 1), steps_of(std::slice::from_ref(rank), 1));
            // Samples one by one, and where a row is.
            for (p, row) in (plan.first_sample()..).zip(own.concat()) {
                let sample = plan.at(p).unwrap().unwrap();
                prop_assert_eq!(sample.row, row);
                prop_assert_eq!(plan.sample_at(sample.position), Some(p));
                prop_assert!(sample.pad || plan.order().position(row) == Some(sample.position));
            }
        }
    }
}

#[test]
fn rows_that_come_again_are_in_buckets_as_often_as_they_come() {
    let listed: Vec<u64> = (0..97).map(|place| place * place % 13).collect();
    let orders: Arc<dyn Order> = Arc::new(crate::Explicit::new(listed.clone(), 13).unwrap());
    let run = Case { rows: 13, seed: 3, within: 24 };
    let shard = |rank| Shard::new(rank, 3).unwrap().with_tail(Tail::Uneven);
    let packed = run.packed(orders);
    let of = |rank| DistributedSampler::of_packs(Arc::clone(&packed), shard(rank), 4, None).unwrap();
    let served = steps_of(&[of(0), of(1), of(2)], 0).concat().concat();
    assert_eq!(sorted(served), sorted(listed));
}

#[test]
fn what_buckets_cannot_be_is_refused() {
    let run = Case { rows: 100, seed: 1, within: 24 };
    let packed = run.packed(run.orders());
    let shard = |ranks, tail| Shard::new(0, ranks).unwrap().with_tail(tail);
    let cost = Some(Cost { linear: 1, quadratic: 0 });
    for (ranks, tail, batch, cost, word) in [
        (2, Tail::Even, 4, None, "even"),
        (2, Tail::Wrap, 4, cost, "cost"),
        (1 << 12, Tail::Wrap, 1 << 9, None, "1048576"),
        (2, Tail::Wrap, 0, None, "0"),
    ] {
        let error = DistributedSampler::of_packs(Arc::clone(&packed), shard(ranks, tail), batch, cost).unwrap_err();
        let text = format!("{error} {:?}", error.hint());
        assert!(error.kind() == ErrorKind::InvalidArgument && text.contains(word), "{text}");
    }
    let first = DistributedSampler::of_packs(Arc::clone(&packed), shard(2, Tail::Wrap), 4, None).unwrap();
    assert!(first.with_shard(shard(2, Tail::Even)).is_err());
    // Nothing but the rows of a window is asked for, so a row that is too long shows with its window.
    let pack = Pack { capacity: 40, ..Pack::buckets(24) };
    let lengths = Arc::new(DrawnLengths { rows: 100, seed: 1 });
    let packed = Arc::new(Packed::new(run.orders(), lengths, pack).unwrap());
    let sampler = DistributedSampler::of_packs(packed, shard(1, Tail::Wrap), 10, None).unwrap();
    let plan = sampler.plan(0).unwrap();
    let errors: Vec<_> = plan.batches().filter_map(std::result::Result::err).collect();
    assert!(!errors.is_empty() && errors.iter().all(|error| error.kind() == ErrorKind::InvalidArgument), "{errors:?}");
    assert!(sampler.forecast(0, 4).is_err());
}

/// Changing these changes what runs serve that people have begun, and refuses states that they have saved.
#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn buckets_of_version_1_and_their_states_are_frozen() {
    let run = Case { rows: 20, seed: 9, within: 8 };
    let world = run.world(2, 2, Tail::Uneven);
    let large = Case { rows: 50_000, seed: 9, within: 1 << 12 };
    let rows = steps_of(&large.world(8, 16, Tail::Uneven), 3).concat().concat();
    let bytes: Vec<u8> = rows.into_iter().flat_map(u64::to_le_bytes).collect();
    let text = world[0].state_after(1, 2).unwrap().to_string();
    let mut three = run.world(3, 1, Tail::Uneven).remove(0);
    three.resume(&text.parse().unwrap()).unwrap();
    let taken_over = three.state_after(1, three.plan(1).unwrap().first_step()).unwrap().to_string();
    assert_eq!(
        (
            world[0].orders().fingerprint(),
            steps_of(&world, 1).concat().concat(),
            xxhash_rust::xxh3::xxh3_64(&bytes),
            text.as_str(),
            taken_over.as_str(),
        ),
        (
            16_065_699_399_063_363_193,
            vec![15, 16, 18, 7, 9, 17, 2, 3, 13, 5, 1, 10, 14, 6, 0, 11, 12, 4, 8, 19],
            4_412_500_950_392_801_815,
            "rowdex-state-v2:def4d47bd560de79:1:12:buckets:global,seed-7:2x2,uneven:e28fea8518e47c80",
            "rowdex-state-v2:def4d47bd560de79:1:15:buckets:global,seed-7:3x1,uneven,steps-4,from-12:1953bc7f6e22330f",
        )
    );
    // Whoever has packs, or rows, goes on from none of these.
    let packs = world_of_packs().resume(&text.parse().unwrap()).unwrap_err();
    assert!(packs.to_string().contains("plan of buckets"), "{packs}");
}

fn world_of_packs() -> DistributedSampler {
    super::world(&global(20), 2, Cut::Packs(2, 9), Tail::Even).remove(0)
}
