//! What plans of packs promise beyond what all plans do, against a model that opens one pack at a time.

use super::plans::{DrawnLengths, packed};
use super::*;
use crate::{Lengths, Overflow, Pack, Packed, PackedEpoch, Piece};

type Packs = Vec<Vec<Piece>>;

/// The packs of an epoch from a position on.
fn packs_from(epoch: &PackedEpoch, position: u64) -> Packs {
    let (mut packs, mut from) = (Vec::new(), position);
    while from < epoch.len() {
        let end = epoch.start(epoch.pack_of(from).unwrap() + 1).unwrap();
        let mut pieces = Vec::new();
        epoch.read(from, end - from, &mut pieces).unwrap();
        packs.push(pieces);
        from = end;
    }
    packs
}

/// Takes the last piece of the last pack with several, and puts it behind, until there are so many packs.
fn opened(mut packs: Packs, goal: usize) -> Option<Packs> {
    while packs.len() < goal {
        let last = packs.iter().rposition(|pack| pack.len() > 1)?;
        let piece = packs[last].pop().unwrap();
        packs.insert(last + 1, vec![piece]);
    }
    Some(packs)
}

/// The packs of a step, rank by rank, each time the dearest that is left for the rank that has had the least, until all
/// ranks have one more.
fn by_cost(step: &[Vec<Piece>], ranks: usize, seed: u64) -> Packs {
    if !seed.is_multiple_of(3) {
        return step.to_vec();
    }
    let cost_of = |pack: &Vec<Piece>| pack.iter().map(|piece| piece.length * (20 + piece.length)).sum::<u64>();
    let (mut left, mut dealt) = (step.to_vec(), vec![Packs::new(); ranks]);
    while !left.is_empty() {
        let sums: Vec<u64> = dealt.iter().map(|own| own.iter().map(cost_of).sum()).collect();
        let mut turn: Vec<usize> = (0..ranks).collect();
        turn.sort_by_key(|rank| sums[*rank]);
        for rank in turn {
            let dearest = left.iter().map(cost_of).max().unwrap();
            let at = left.iter().position(|pack| cost_of(pack) == dearest).unwrap();
            dealt[rank].push(left.remove(at));
        }
    }
    dealt.concat()
}

/// Which packs each rank has at each step, of an epoch or what is left of one.
fn dealt(left: Packs, whole: &Packs, world: (usize, usize), tail: Tail, seed: u64) -> Option<Vec<Vec<Packs>>> {
    let (ranks, each) = world;
    let mut packs = left;
    if tail == Tail::Even && !packs.is_empty() {
        let full = opened(packs.clone(), packs.len().next_multiple_of(ranks * each));
        packs = full.or_else(|| opened(packs.clone(), packs.len().next_multiple_of(ranks)))?;
    }
    let over = packs.len() % ranks;
    let full = packs.len() / (ranks * each);
    match tail {
        Tail::Wrap => packs.extend(whole.iter().cycle().take((ranks - over) % ranks).cloned().collect::<Packs>()),
        Tail::Drop => packs.truncate(packs.len() - over),
        Tail::Error if over > 0 => return None,
        _ => {}
    }
    let mut steps = Vec::new();
    for (number, step) in packs.chunks(ranks * each).enumerate() {
        let step = if number < full { by_cost(step, ranks, seed) } else { step.to_vec() };
        let (mut begin, mut of_ranks) = (0, Vec::new());
        for rank in 0..ranks {
            let count = step.len() / ranks + usize::from(rank < step.len() % ranks);
            of_ranks.push(step[begin..begin + count].to_vec());
            begin += count;
        }
        steps.push(of_ranks);
    }
    Some(steps)
}

/// The packs of a batch.
fn packs_of(batch: &BatchPlan) -> Packs {
    assert!(batch.pieces.iter().map(|piece| piece.row).eq(batch.rows.iter().copied()));
    assert_eq!(batch.packs.last().copied().unwrap_or(0), batch.pieces.len());
    let mut begin = 0;
    let mut pack = |end: &usize| batch.pieces[std::mem::replace(&mut begin, *end)..*end].to_vec();
    batch.packs.iter().map(&mut pack).collect()
}

/// What is left of an epoch on all ranks, step by step; the error if it can not be dealt.
fn served(world: &[DistributedSampler], epoch: u64) -> Result<Vec<Vec<Packs>>> {
    let plan = world[0].plan(epoch)?;
    let steps = plan.first_step()..plan.steps();
    Ok(steps.map(|step| world.iter().map(|rank| packs_of(&rank.batch(epoch, step).unwrap())).collect()).collect())
}

fn tails() -> impl Strategy<Value = Tail> {
    prop::sample::select(vec![Tail::Wrap, Tail::Drop, Tail::Uneven, Tail::Error, Tail::Even])
}

fn pieces(steps: &[Vec<Packs>]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = steps.iter().flatten().flatten().flatten().copied().collect();
    pieces.sort_unstable();
    pieces
}

proptest! {
    #[test]
    fn packs_are_dealt_as_the_model_deals_them(
        n in 0_u64..120, seed: u64, size in 1_u32..10, each in 1_usize..4, tail in tails(), epoch in 0_u64..2,
    ) {
        let whole = packs_from(&packed(global(n), seed).packed(epoch).unwrap(), 0);
        let world = world(&global(n), size, Cut::Packs(each, seed), tail);
        let expected = dealt(whole.clone(), &whole, (size as usize, each), tail, seed);
        let own = served(&world, epoch);
        match expected {
            Some(expected) => prop_assert_eq!(own.unwrap(), expected),
            None => prop_assert_eq!(own.unwrap_err().kind(), ErrorKind::InvalidArgument),
        }
    }

    #[test]
    fn even_steps_lose_nothing_and_serve_nothing_twice_through_any_number_of_worlds(
        n in 0_u64..160, seed: u64, worlds in prop::collection::vec((1_u32..10, 1_usize..4, 0_usize..6), 1..5),
    ) {
        let orders = global(n);
        let epoch = packed(global(n), seed).packed(3).unwrap();
        let whole = packs_from(&epoch, 0);
        let mut all: Vec<Piece> = whole.iter().flatten().copied().collect();
        all.sort_unstable();
        let (mut state, mut done) = (None::<State>, Vec::new());
        let last = worlds.len() - 1;
        for (number, (size, each, steps)) in worlds.into_iter().enumerate() {
            let mut world = world(&orders, size, Cut::Packs(each, seed), Tail::Even);
            let from = state.map_or(0, |state| state.consumed);
            let left = packs_from(&epoch, from);
            let expected = dealt(left.clone(), &whole, (size as usize, each), Tail::Even, seed);
            let mut goes_on = true;
            for sampler in &mut world {
                sampler.set_epoch(3);
                if let Some(state) = state {
                    goes_on &= sampler.resume(&saved(state)).is_ok();
                }
            }
            let Some(expected) = expected else {
                // Too few pieces for these ranks: refused by all of them.
                prop_assert!(state.is_none() || !goes_on);
                prop_assert!(served(&world, 3).is_err() || state.is_some());
                continue;
            };
            prop_assert!(goes_on);
            let rest = served(&world, 3).unwrap();
            prop_assert_eq!(&rest, &expected);
            prop_assert!(rest.iter().all(|step| step.iter().all(|packs| packs.len() == step[0].len())));
            let steps = if number == last { rest.len() } else { steps.min(rest.len().saturating_sub(1)) };
            let mut served_now = pieces(&rest);
            served_now.extend(&done);
            served_now.sort_unstable();
            prop_assert_eq!(&served_now, &all);
            if steps == 0 || steps == rest.len() {
                continue;
            }
            // The same world stops in between and goes on as if it had not.
            let first = world[0].plan(3).unwrap().first_step();
            for stop in 0..steps as u64 {
                let state = world[0].state_after(3, first + stop).unwrap();
                let mut again = world.clone();
                for (sampler, again) in world.iter().zip(&mut again) {
                    prop_assert_eq!(sampler.state_after(3, first + stop).unwrap(), state);
                    again.resume(&saved(state)).unwrap();
                    prop_assert_eq!(again.plan(3).unwrap().first_step(), first + stop + 1);
                }
                prop_assert_eq!(&served(&again, 3).unwrap()[..], &rest[stop as usize + 1..]);
            }
            state = Some(world[0].state_after(3, first + steps as u64 - 1).unwrap());
            done.extend(pieces(&rest[..steps]));
        }
    }

    #[test]
    fn workers_and_replicas_have_the_batches_of_their_rank(
        n in 0_u64..120, seed: u64, size in 1_u32..5, each in 1_usize..4, tail in tails(), workers in 1_u64..5,
        stop in 0_u64..4,
    ) {
        let orders = global(n);
        for mut rank in world(&orders, size, Cut::Packs(each, seed), tail) {
            if rank.plan(0).is_err() {
                continue;
            }
            if stop > 0 && let Ok(state) = rank.state_after(0, stop - 1) && let Err(refused) = rank.resume(&state) {
                // After the last step the next epoch begins, which may have a number of packs that can not be dealt.
                prop_assert_eq!(rank.plan(1).unwrap_err().to_string(), refused.to_string());
                continue;
            }
            let epoch = rank.epoch();
            let served = |batch: BatchPlan| (batch.pieces, batch.packs, batch.pads);
            let own: Vec<_> = batches(&rank, epoch).into_iter().map(served).collect();
            let of_workers: Vec<Vec<_>> = (0..workers)
                .map(|worker| {
                    let worker = rank.worker(worker, workers).unwrap();
                    let batches = batches(&worker, epoch).into_iter();
                    batches.map(|batch| (batch.pieces, batch.packs, batch.pads)).collect()
                })
                .collect();
            let with_rows = own.iter().filter(|(pieces, ..)| !pieces.is_empty()).count();
            prop_assert_eq!(of_workers.iter().map(Vec::len).sum::<usize>(), with_rows);
            for (step, batch) in own.iter().take(with_rows).enumerate() {
                prop_assert_eq!(&of_workers[step % workers as usize][step / workers as usize], batch);
            }
            let shard = rank.shard();
            let twice = Shard::new(shard.rank() * 2 + 1, size * 2).unwrap().with_tail(tail);
            let twice = twice.with_replication(2, ReplicationLayout::Consecutive).unwrap();
            let replica = Cut::Packs(each, seed).sampler(&orders, twice);
            let whole = |sampler: &DistributedSampler| batches(sampler, epoch + 1);
            if rank.plan(epoch + 1).is_ok() {
                prop_assert_eq!(whole(&replica), whole(&rank));
            }
        }
    }

    #[test]
    fn all_steps_of_a_run_are_known_before_it_begins(
        n in 30_u64..160, seed: u64, size in 1_u32..5, each in 1_usize..4,
    ) {
        // Rows drawn with replacement, of which epochs have different numbers of tokens.
        let weights: Vec<f64> = (0..n).map(|row| (row % 7 + 1) as f64).collect();
        let orders: Arc<dyn Order> = Arc::new(crate::Weighted::with_replacement(&weights, n, 5).unwrap());
        let mut sampler = world(&orders, size, Cut::Packs(each, seed), Tail::Even).remove(0);
        if (0..5).any(|epoch| sampler.plan(epoch).is_err()) {
            return Ok(());
        }
        let steps: Vec<u64> = (0..5).map(|epoch| sampler.plan(epoch).unwrap().steps()).collect();
        prop_assert_eq!(sampler.total_steps(5).unwrap(), steps.iter().sum::<u64>());
        prop_assert_eq!(sampler.total_steps(0).unwrap(), 0);
        if steps[0] > 1 {
            let state = sampler.state_after(0, 0).unwrap();
            sampler.resume(&state).unwrap();
            prop_assert_eq!(sampler.total_steps(2).unwrap(), steps[0] - 1 + steps[1]);
        }
        sampler.set_epoch(3);
        prop_assert_eq!((sampler.steps(), sampler.total_steps(2).unwrap()), (steps[3], steps[3] + steps[4]));
    }
}

#[test]
fn too_few_pieces_for_the_ranks_are_refused_and_counted() {
    let world = world(&global(9), 16, Cut::Packs(3, 1), Tail::Even);
    let error = world[5].plan(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let message = error.to_string();
    assert!(message.contains("16 shards") && message.contains("pieces") && message.contains("uneven"), "{message}");
    assert_eq!((world[5].steps(), world[5].len()), (0, 0));
}

#[test]
fn an_epoch_whose_rows_are_all_left_out_is_an_error_and_no_epoch_without_steps() {
    let lengths = DrawnLengths { rows: 9, seed: 1 };
    let empty = (0..9).filter(|row| lengths.length(*row).unwrap() == 0).count();
    let pack = Pack { overflow: Overflow::Drop, extra: 1, ..Pack::of(2) };
    let longer = (0..9).filter(|row| lengths.length(*row).unwrap() > 1).count();
    assert_eq!(empty + longer, 9);
    for tail in [Tail::Even, Tail::Wrap, Tail::Drop, Tail::Uneven, Tail::Error] {
        let orders = Arc::new(Packed::new(global(9), Arc::new(DrawnLengths { rows: 9, seed: 1 }), pack).unwrap());
        let shard = Shard::new(0, 2).unwrap().with_tail(tail);
        let error = DistributedSampler::of_packs(orders, shard, 1, None).unwrap().plan(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let message = error.to_string();
        assert!(message.contains(&format!("no row of the epoch has a piece: {empty} are empty")), "{message}");
        assert!(message.contains(&format!("{longer} longer")) && message.contains("larger capacity"), "{message}");
    }
}

#[test]
fn the_tail_policy_even_is_refused_for_rows() {
    let shard = Shard::new(0, 2).unwrap().with_tail(Tail::Even);
    let error = DistributedSampler::new(global(10), shard, 2).unwrap_err();
    assert!(error.to_string().contains("for packs"), "{error}");
    let orders = Arc::new(packed(global(10), 1));
    assert!(DistributedSampler::of_packs(orders, shard, 0, None).is_err());
}

/// Changing these refuses states that people have saved.
#[test]
fn states_of_packs_are_frozen() {
    let sampler = world(&global(500), 3, Cut::Packs(2, 9), Tail::Even).remove(1);
    let text = sampler.state_after(1, 7).unwrap().to_string();
    assert_eq!(text, "rowdex-state-v2:14c0fdc46adfcf40:1:108:packs:global,seed-7:3x2,even,cost-20-1:14dab782b72df4b7");
    assert_eq!(text.parse::<State>().unwrap(), sampler.state_after(1, 7).unwrap());
    let rows = world(&global(500), 3, 2, Tail::Wrap).remove(1).state();
    let error = sampler.clone().resume(&rows).unwrap_err();
    assert!(error.to_string().contains("plan of rows") && error.to_string().contains("plan of packs"), "{error}");
}
