//! Ranks of a machine that share one reader. All are threads here, and processes in `tests/it/share.rs` and
//! `python/tests/test_share.py`.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use super::*;
use crate::loader::share::{Share, message};
use rowdex_order::sampler::ReplicationLayout;
use rowdex_share::{Connection, Listener, Met, Received, Signal, meet};

/// Fails if it is not done in time.
pub(super) fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, waited) = channel();
    let worker = thread::spawn(move || {
        let _ = done.send(work());
    });
    let result = waited.recv_timeout(Duration::from_secs(120));
    match result {
        Ok(result) => {
            worker.join().unwrap();
            result
        }
        Err(RecvTimeoutError::Disconnected) => std::panic::resume_unwind(worker.join().unwrap_err()),
        Err(RecvTimeoutError::Timeout) => panic!("it hangs"),
    }
}

/// A group that no other test meets.
pub(super) fn share(ranks: u32) -> Share {
    static JOBS: AtomicU64 = AtomicU64::new(0);
    let job = format!("test {} {}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
    Share::machine().job(job).name("test").ranks(ranks)
}

pub(super) fn joining(fake: &Arc<Fake>, sampler: &DistributedSampler, options: &Options, share: &Share) -> Loader {
    let samplers = vec![sampler.clone()];
    let group = share.resolve(1, &each(fake), &samplers, options).unwrap();
    Loader::new(each(fake), samplers, Options { group: Some(Arc::new(group)), ..options.clone() }).unwrap()
}

/// The reader ends soon after the last loader.
pub(super) fn nothing_is_left(fake: &Arc<Fake>) {
    let began = std::time::Instant::now();
    while Arc::strong_count(fake) > 1 {
        assert!(began.elapsed() < Duration::from_secs(20), "something is left");
        thread::sleep(Duration::from_millis(2));
    }
}

/// What is served until the end, or until an error: batches are compared with what the order says.
pub(super) fn serve(loader: &mut Loader, sampler: &DistributedSampler, epochs: u64) -> Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    while let Some(batch) = loader.try_next()? {
        let plan = sampler.plan(batch.epoch).unwrap();
        let expected = plan.batch(batch.step).unwrap();
        assert_eq!((batch.rank, batch.steps, batch.pads), (plan.shard().rank(), plan.steps(), expected.pads));
        if batch.substituted.is_empty() {
            assert_eq!(batch.row_ids, expected.rows);
        }
        assert_values(&batch);
        assert_eq!(loader.state(), sampler.state_after(batch.epoch, batch.step).unwrap());
        found.push((batch.epoch, batch.step));
    }
    assert!(found.last().is_none_or(|(epoch, _)| epoch + 1 == epochs));
    Ok(found)
}

/// All ranks at once, each on a thread.
pub(super) fn all<T: Send>(loaders: Vec<Loader>, work: impl Fn(usize, Loader) -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let ranks = loaders.into_iter().enumerate();
        let ranks: Vec<_> = ranks.map(|(rank, loader)| scope.spawn(move || work(rank, loader))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn every_rank_gets_what_it_would_have_read_itself() {
    in_time(|| {
        let fake = Arc::new(Fake::new(&[37, 5, 60, 0, 41, 22, 8, 50]));
        let n = fake.len();
        let mut count = 0;
        for (number, (_, orders)) in sorts(n).into_iter().enumerate() {
            let tail = [Tail::Wrap, Tail::Drop, Tail::Uneven][number % 3];
            let (world, ranks) = [(4, 4), (3, 2), (2, 2), (5, 3)][number % 4];
            let (threads, drift) = [(0, 1), (2, 2), (1, 7), (2, 32)][number % 4];
            let cut = [3, 10, 1, 40][(number / 2) % 4];
            let options = options(n / 3 * ROW_BYTES, threads, 3);
            let share = share(ranks).drift(drift);
            let mut samplers: Vec<_> = (0..ranks).map(|rank| sampler(&orders, rank, world, cut, tail)).collect();
            if number % 2 == 1 && samplers[0].steps() > 1 {
                // Of these ranks, or of others that were one more.
                let before = sampler(&orders, 0, world + u32::from(number % 4 == 1), cut, tail);
                let state = before.state_after(0, before.steps() / 2).unwrap();
                samplers.iter_mut().for_each(|sampler| sampler.resume(&state).unwrap());
            }
            let loaders = samplers.iter().map(|sampler| joining(&fake, sampler, &options, &share)).collect();
            let served = all(loaders, |rank, mut loader| serve(&mut loader, &samplers[rank], 3).unwrap());
            let steps: u64 = (0..3)
                .filter(|epoch| *epoch >= samplers[0].epoch())
                .map(|epoch| samplers[0].plan(epoch).unwrap().steps_left())
                .sum();
            assert!(served.iter().all(|served| served.len() as u64 == steps));
            count += served.iter().map(Vec::len).sum::<usize>();
        }
        assert!(count > 1000, "{count} batches");
        nothing_is_left(&fake);
    });
}

#[test]
fn replicas_get_the_same_rows_of_one_decode_and_one_file() {
    in_time(|| {
        let fake = Arc::new(Fake::new(&[50; 8]));
        let orders = orders(true, 400);
        let shard = |rank| Shard::new(rank, 4).unwrap().with_replication(2, ReplicationLayout::Consecutive).unwrap();
        let samplers: Vec<_> =
            (0..4).map(|rank| DistributedSampler::new(Arc::clone(&orders), shard(rank), 10).unwrap()).collect();
        let options = options(400 * ROW_BYTES * 2, 2, 2);
        let share = share(4);
        let loaders = samplers.iter().map(|sampler| joining(&fake, sampler, &options, &share)).collect();
        let rows = all(loaders, |rank, mut loader| {
            let served = serve(&mut loader, &samplers[rank], 2).unwrap();
            assert_eq!(served.len() as u64, 2 * samplers[rank].steps());
            loader.control().stats()
        });
        drop(rows);
        assert_eq!(fake.decodes.load(Ordering::Relaxed), 8, "each row group once");
    });
}

#[test]
fn a_rank_that_pauses_at_a_step_keeps_nobody_from_that_step() {
    in_time(|| {
        let (orders, fake) = (orders(true, 600), Arc::new(Fake::new(&[100; 6])));
        // Windows of a batch or two, and stretches of the order that are longer than these.
        for (memory, drift) in [(60, 32), (100, 32), (400, 32), (400, 2), (4000, 5)] {
            let options = options(memory * ROW_BYTES, 1, 1);
            let samplers: Vec<_> = (0..3).map(|rank| sampler(&orders, rank, 3, 10, Tail::Wrap)).collect();
            for pause in [1, 3, 9] {
                let share = share(3).drift(drift);
                let loaders = samplers.iter().map(|sampler| joining(&fake, sampler, &options, &share)).collect();
                // As if each step of an epoch ended with an evaluation, which waits for all ranks.
                let barrier = std::sync::Barrier::new(3);
                all(loaders, |_, mut loader| {
                    for step in 0..20 {
                        assert_eq!(loader.try_next().unwrap().unwrap().step, step);
                        if step % pause == 0 {
                            barrier.wait();
                        }
                    }
                });
            }
        }
    });
}

#[test]
fn an_error_comes_to_each_rank_at_its_step() {
    in_time(|| {
        for (global, bad, panics) in [(true, 3, false), (false, 5, false), (true, 0, true)] {
            let mut fake = Fake::new(&[40; 10]);
            if panics { &mut fake.panicking } else { &mut fake.failing }.insert(bad);
            let fake = Arc::new(fake);
            let orders = orders(global, 400);
            let options = options(100 * ROW_BYTES, 2, 2);
            let samplers: Vec<_> = (0..3).map(|rank| sampler(&orders, rank, 3, 4, Tail::Wrap)).collect();
            let told = |mut loader: Loader| {
                let served = loader.by_ref().take_while(Result::is_ok).count();
                let error = loader.try_next().unwrap_err();
                (served, error.kind(), error.row_group(), error.to_string(), loader.state())
            };
            let alone = samplers
                .iter()
                .map(|sampler| told(Loader::new(each(&fake), vec![sampler.clone()], options.clone()).unwrap()));
            let alone: Vec<_> = alone.collect();
            let share = share(3);
            let loaders = samplers.iter().map(|sampler| joining(&fake, sampler, &options, &share)).collect();
            assert_eq!(all(loaders, |_, loader| told(loader)), alone);
        }
    });
}

#[test]
fn rows_that_are_lost_are_replaced_alike_and_all_ranks_know_of_them() {
    in_time(|| {
        let mut fake = Fake::new(&[40; 10]);
        fake.failing.insert(4);
        let fake = Arc::new(fake);
        let orders = orders(true, 400);
        let options = Options { fault: Fault::Substitute { seed: 5 }, ..options(200 * ROW_BYTES, 2, 1) };
        let samplers: Vec<_> = (0..2).map(|rank| sampler(&orders, rank, 2, 10, Tail::Wrap)).collect();
        let rows = |mut loader: Loader| {
            let batches: Vec<_> = loader.by_ref().map(Result::unwrap).map(|b| (b.row_ids, b.substituted)).collect();
            let lost: Vec<_> =
                loader.lost_groups().iter().map(|lost| (lost.row_group, lost.error.to_string())).collect();
            (batches, lost)
        };
        let alone = samplers.iter().map(|s| rows(Loader::new(each(&fake), vec![s.clone()], options.clone()).unwrap()));
        let alone: Vec<_> = alone.collect();
        let share = share(2);
        let loaders = samplers.iter().map(|sampler| joining(&fake, sampler, &options, &share)).collect();
        assert_eq!(all(loaders, |_, loader| rows(loader)), alone);
        assert_eq!(alone[0].1.len(), 1);
    });
}

#[test]
fn a_rank_that_leaves_holds_up_nobody_and_goes_on_at_its_state_when_it_comes_back() {
    in_time(|| {
        let fake = Arc::new(Fake::new(&[40; 10]));
        let orders = orders(true, 400);
        let options = options(200 * ROW_BYTES, 2, 2);
        let samplers: Vec<_> = (0..3).map(|rank| sampler(&orders, rank, 3, 5, Tail::Wrap)).collect();
        let share = share(3).wait(Duration::from_millis(200)).drift(4);
        let loaders: Vec<_> = samplers.iter().map(|sampler| joining(&fake, sampler, &options, &share)).collect();
        // The first to come reads; it may be the one that leaves.
        for leaving in 0..3 {
            let loaders = loaders.iter().map(|loader| loader.standing_again()).collect();
            all(loaders, |rank, mut loader| {
                let sampler = &samplers[rank];
                if rank != leaving {
                    assert_eq!(serve(&mut loader, sampler, 2).unwrap().len(), 54);
                    return;
                }
                for _ in 0..7 {
                    loader.next().unwrap().unwrap();
                }
                let state = loader.state();
                drop(loader);
                thread::sleep(Duration::from_millis(50));
                let mut sampler = sampler.clone();
                sampler.resume(&state).unwrap();
                let mut loader = joining(&fake, &sampler, &options, &share);
                assert_eq!(serve(&mut loader, &sampler, 2).unwrap().len(), 54 - 7);
            });
        }
        drop(loaders);
        nothing_is_left(&fake);
    });
}

impl Loader {
    /// One like it that was not used.
    fn standing_again(&self) -> Loader {
        Loader::new(Arc::clone(&self.units), self.samplers.to_vec(), self.options.clone()).unwrap()
    }
}

#[test]
fn ranks_go_from_epoch_to_epoch_without_a_new_start_and_to_another_one_together() {
    in_time(|| {
        let fake = Arc::new(Fake::new(&[40; 10]));
        let orders = orders(true, 400);
        let options = Options { epochs: None, ..options(800 * ROW_BYTES, 2, 0) };
        let samplers: Vec<_> = (0..2).map(|rank| sampler(&orders, rank, 2, 10, Tail::Wrap)).collect();
        let share = share(2).wait(Duration::from_secs(2));
        let loaders = samplers.iter().map(|sampler| joining(&fake, sampler, &options, &share)).collect();
        all(loaders, |rank, mut loader| {
            let epoch = |loader: &mut Loader, number: u64, most: usize| {
                let mut epoch = loader.epoch();
                assert_eq!(epoch.number(), number);
                for (step, batch) in (0..).zip(epoch.by_ref().take(most)) {
                    let batch = batch.unwrap();
                    assert_eq!((batch.epoch, batch.step), (number, step));
                    assert_eq!(batch.row_ids, samplers[rank].plan(number).unwrap().batch(step).unwrap().rows);
                }
            };
            for number in 0..3 {
                loader.set_epoch(number);
                epoch(&mut loader, number, 100);
            }
            assert_eq!(loader.stats().decodes, 10, "all fits");
            epoch(&mut loader, 3, 4);
            loader.set_epoch(9);
            epoch(&mut loader, 9, 100);
            let state = samplers[rank].state_after(5, 11).unwrap();
            loader.resume(&state).unwrap();
            let batch = loader.next().unwrap().unwrap();
            assert_eq!((batch.epoch, batch.step), (5, 12));
        });
    });
}

#[test]
fn a_rank_that_goes_back_goes_on_reading_and_waits_for_nobody_who_is_there() {
    in_time(|| {
        let fake = Arc::new(Fake::new(&[40; 10]));
        let orders = orders(true, 400);
        let options = Options { epochs: None, ..options(200 * ROW_BYTES, 2, 0) };
        let samplers: Vec<_> = (0..3).map(|rank| sampler(&orders, rank, 3, 10, Tail::Wrap)).collect();
        // Longer than the watchdog: nobody may wait for it.
        let share = share(3).wait(Duration::from_secs(1000));
        let loaders = samplers.iter().map(|sampler| joining(&fake, sampler, &options, &share)).collect();
        let barrier = std::sync::Barrier::new(3);
        all(loaders, |rank, mut loader| {
            let take = |loader: &mut Loader, epoch: u64, steps: u64| {
                for step in 0..steps {
                    let batch = loader.next().unwrap().unwrap();
                    assert_eq!((batch.epoch, batch.step), (epoch, step));
                    assert_eq!(batch.row_ids, samplers[rank].plan(epoch).unwrap().batch(step).unwrap().rows);
                }
            };
            // Whichever reads is among those who go back first, while the others ask for nothing.
            for round in 0..3 {
                loader.set_epoch(4 + round);
                take(&mut loader, 4 + round, 14);
                barrier.wait();
                if rank as u64 == round {
                    loader.set_epoch(round);
                    take(&mut loader, round, 5);
                }
                barrier.wait();
            }
        });
        nothing_is_left(&fake);
    });
}

#[test]
fn ranks_that_go_anywhere_at_any_time_get_the_batches_of_each_place() {
    in_time(|| {
        for seed in 0..6 {
            let fake = Arc::new(Fake::new(&[37, 5, 60, 0, 41, 22, 8, 50]));
            let orders = orders(seed % 2 == 0, fake.len());
            let options = Options { epochs: None, ..options(fake.len() / 3 * ROW_BYTES, seed as usize % 3, 0) };
            let samplers: Vec<_> = (0..3).map(|rank| sampler(&orders, rank, 3, 4, Tail::Wrap)).collect();
            let share = share(3).drift([1, 4, 32][seed as usize / 2]).wait(Duration::from_millis(300));
            let loaders = samplers.iter().map(|sampler| joining(&fake, sampler, &options, &share)).collect();
            all(loaders, |rank, mut loader| {
                let mut random = seed << 8 | rank as u64;
                let mut draw = |below: u64| {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (random >> 33) % below
                };
                let steps = samplers[rank].steps();
                let (mut epoch, mut step) = (0, 0);
                for _ in 0..12 {
                    for _ in 0..draw(30) {
                        let batch = loader.next().unwrap().unwrap();
                        assert_eq!((batch.epoch, batch.step), (epoch, step));
                        assert_eq!(batch.row_ids, samplers[rank].plan(epoch).unwrap().batch(step).unwrap().rows);
                        (epoch, step) = if batch.is_last() { (epoch + 1, 0) } else { (epoch, step + 1) };
                    }
                    let place = (draw(3), draw(steps - 1));
                    let state = samplers[rank].state_after(place.0, place.1).unwrap();
                    match draw(4) {
                        0 => {
                            // Another loader of this rank, while the others may read on with the reader of the first.
                            let mut sampler = samplers[rank].clone();
                            sampler.resume(&state).unwrap();
                            loader = joining(&fake, &sampler, &options, &share);
                            (epoch, step) = (place.0, place.1 + 1);
                        }
                        1 => {
                            // One that is not resumed within: that would go on where it is.
                            (epoch, step) = (place.0 + 4, 0);
                            loader.set_epoch(epoch);
                        }
                        _ => {
                            loader.resume(&state).unwrap();
                            (epoch, step) = (place.0, place.1 + 1);
                        }
                    }
                }
            });
            nothing_is_left(&fake);
        }
    });
}

#[test]
#[cfg(feature = "capi")]
fn workers_that_go_anywhere_get_the_batches_of_each_place_though_each_has_another_number_of_steps() {
    in_time(|| {
        for seed in 0..6 {
            let fake = Arc::new(Fake::new(&[370, 50, 600, 0, 410, 220, 80, 500]));
            let orders = orders(seed % 2 == 0, fake.len());
            let options = Options { epochs: None, ..options(fake.len() * ROW_BYTES, seed as usize % 3, 0) };
            let share = share(2).drift([4, 16, 32][seed as usize / 2]).wait(Duration::from_millis(300));
            let mut samplers: Vec<_> = (0..2).map(|rank| sampler(&orders, rank, 2, 4, Tail::Wrap)).collect();
            // One that has little left of the epoch besides one that has all of it.
            let state = samplers[1].state_after(0, samplers[1].steps() - 14).unwrap();
            samplers[1].resume(&state).unwrap();
            let parts: Vec<_> =
                samplers.iter().flat_map(|rank| (0..4).map(|worker| rank.worker(worker, 4).unwrap())).collect();
            let loaders = (0..).zip(&parts).map(|(number, part)| {
                let options = Options { epochs: (number >= 4).then_some(1), ..options.clone() };
                joining(&fake, part, &options, &share)
            });
            all(loaders.collect(), |number, mut loader| {
                let part = &parts[number];
                let mut random = seed << 8 | number as u64;
                let mut draw = |below: u64| {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (random >> 33) % below
                };
                let epochs = if number < 4 { 3 } else { 1 };
                for _ in 0..6 {
                    // The beginning of an epoch is where a worker stands that takes a step for the last one.
                    let (mut epoch, mut step) = (draw(epochs), if draw(2) == 0 { 0 } else { draw(part.steps()) });
                    loader.seek(epoch, step).unwrap();
                    for _ in 0..1 + draw(60) {
                        if epoch == epochs {
                            break;
                        }
                        let batch = loader.next().unwrap().unwrap();
                        assert_eq!((batch.epoch, batch.step, batch.steps), (epoch, step, part.steps()));
                        assert_eq!(batch.row_ids, part.plan(epoch).unwrap().batch(step).unwrap().rows);
                        (epoch, step) = if batch.is_last() { (epoch + 1, 0) } else { (epoch, step + 1) };
                    }
                }
            });
            nothing_is_left(&fake);
        }
    });
}

/// A rank's batches in the order of their steps, which its workers make in turns, each a few ahead, as those of a
/// `DataLoader` do.
fn in_turns(workers: Vec<Loader>, whole: &DistributedSampler, epochs: std::ops::Range<u64>) -> u64 {
    let count = workers.len();
    let (begin, ends) = (whole.epoch(), epochs.end);
    let mut served = 0;
    thread::scope(|scope| {
        let workers = workers.into_iter().map(|mut worker| {
            let (send, receive) = std::sync::mpsc::sync_channel(1);
            scope.spawn(move || {
                while let Some(batch) = worker.try_next().unwrap() {
                    assert_eq!(batch.steps, worker.steps(), "those of this worker");
                    if send.send(batch).is_err() {
                        break;
                    }
                }
            });
            receive
        });
        let workers: Vec<_> = workers.collect();
        for epoch in epochs {
            let plan = whole.plan(epoch).unwrap();
            let first = if epoch == begin { plan.first_step() } else { 0 };
            for step in first..plan.steps() {
                let batch = workers[(step - first) as usize % count].recv().unwrap();
                let expected = plan.batch(step).unwrap();
                assert_eq!((batch.epoch, &batch.row_ids), (epoch, &expected.rows), "step {step}");
                assert_eq!(batch.step, (step - first) / count as u64);
                assert_values(&batch);
                served += 1;
            }
        }
        assert!(ends > begin);
    });
    served
}

#[test]
fn the_workers_of_all_ranks_share_one_reader() {
    in_time(|| {
        let cases = [(2, 3, 7, 32), (1, 4, 5, 1), (3, 2, 40, 4), (2, 8, 50, 32)];
        for (number, (ranks, workers, cut, drift)) in cases.into_iter().enumerate() {
            let fake = Arc::new(Fake::new(&[370, 50, 600, 0, 410, 220, 80, 500]));
            let n = fake.len();
            let orders = orders(number % 2 == 0, n);
            let options = options(n / 3 * ROW_BYTES, number, 4);
            let share = share(ranks).drift(drift);
            let samplers: Vec<_> = (0..ranks).map(|rank| sampler(&orders, rank, ranks, cut, Tail::Wrap)).collect();
            let open = |sampler: &DistributedSampler, options: &Options| -> Vec<Loader> {
                let parts = (0..workers).map(|worker| sampler.worker(worker, workers).unwrap());
                parts.map(|part| joining(&fake, &part, options, &share)).collect()
            };
            thread::scope(|scope| {
                let ranks: Vec<_> = samplers
                    .iter()
                    .map(|sampler| {
                        let workers = open(sampler, &options);
                        scope.spawn(move || in_turns(workers, sampler, 0..4))
                    })
                    .collect();
                for rank in ranks {
                    assert_eq!(rank.join().unwrap(), 4 * samplers[0].steps());
                }
            });
            // The rest of an epoch, of which workers have other numbers of steps.
            let state = samplers[0].state_after(1, samplers[0].steps() / 3).unwrap();
            let mut resumed = samplers.clone();
            resumed.iter_mut().for_each(|sampler| sampler.resume(&state).unwrap());
            let options = Options { epochs: Some(2), ..options };
            thread::scope(|scope| {
                for sampler in &resumed {
                    let workers = open(sampler, &options);
                    scope.spawn(move || assert_eq!(in_turns(workers, sampler, 1..2), sampler.steps_left()));
                }
            });
            nothing_is_left(&fake);
        }
    });
}

#[test]
fn the_reader_of_all_workers_decodes_as_seldom_as_one_loader() {
    in_time(|| {
        let orders = orders(true, 2000);
        let options = options(400 * ROW_BYTES, 2, 2);
        let samplers: Vec<_> = (0..2).map(|rank| sampler(&orders, rank, 2, 10, Tail::Wrap)).collect();
        let alone = Arc::new(Fake::new(&[100; 20]));
        let mut one = Loader::new(each(&alone), samplers.clone(), options.clone()).unwrap();
        assert_eq!(one.by_ref().map(Result::unwrap).count(), 400);
        let fake = Arc::new(Fake::new(&[100; 20]));
        let share = share(2).drift(2);
        thread::scope(|scope| {
            for sampler in &samplers {
                let parts = (0..4).map(|worker| sampler.worker(worker, 4).unwrap());
                let workers = parts.map(|part| joining(&fake, &part, &options, &share)).collect();
                scope.spawn(move || in_turns(workers, sampler, 0..2));
            }
        });
        let (shared, alone) = (fake.decodes.load(Ordering::Relaxed), alone.decodes.load(Ordering::Relaxed));
        assert!(shared <= alone * 3 / 2, "{shared} decodes, {alone} by one loader of all ranks");
    });
}

#[test]
fn a_rank_gets_no_further_ahead_than_it_may() {
    in_time(|| {
        let fake = Arc::new(Fake::new(&[40; 20]));
        let orders = orders(true, 800);
        let options = options(800 * ROW_BYTES, 2, 1);
        let samplers: Vec<_> = (0..2).map(|rank| sampler(&orders, rank, 2, 4, Tail::Wrap)).collect();
        let share = share(2).drift(8).wait(Duration::from_secs(60));
        let slow = joining(&fake, &samplers[0], &options, &share);
        let fast = joining(&fake, &samplers[1], &options, &share);
        let served = AtomicU64::new(0);
        all(vec![slow, fast], |rank, mut loader| {
            if rank == 1 {
                while loader.next().is_some() {
                    served.fetch_add(1, Ordering::SeqCst);
                }
                assert!(loader.control().stats().drift <= 24);
                return;
            }
            for step in 0..100 {
                loader.next().unwrap().unwrap();
                if step % 20 == 10 {
                    // However long it takes, the other one does not get far.
                    thread::sleep(Duration::from_millis(100));
                    assert!(served.load(Ordering::SeqCst) <= step + 1 + 8 + 8 + 8, "at step {step}");
                }
                let stats = loader.stats();
                assert!(stats.window_bytes < 2 * 8 * 8 * ROW_BYTES + (64 << 10), "{stats:?}");
            }
        });
        assert_eq!(served.into_inner(), 100);
    });
}

#[test]
fn what_cannot_be_shared_is_refused_when_it_is_made() {
    let fake = Arc::new(Fake::new(&[40; 4]));
    let orders = orders(true, 160);
    let ranks: Vec<_> = (0..2).map(|rank| sampler(&orders, rank, 2, 4, Tail::Wrap)).collect();
    let options = options(1 << 20, 1, 1);
    let refused = |share: Share, samplers: &[DistributedSampler], word: &str| {
        let error = share.resolve(1, &each(&fake), samplers, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(word) && error.hint().is_some(), "{error}");
    };
    refused(share(2), &ranks, "several ranks");
    refused(share(2).drift(0), &ranks[..1], "0 steps");
    refused(share(3), &ranks[..1], "3 ranks on this machine of 2");
    refused(share(0), &ranks[..1], "0 ranks");
}

#[test]
fn another_loader_of_a_rank_takes_its_place() {
    in_time(|| {
        let fake = Arc::new(Fake::new(&[40; 4]));
        let sampler = sampler(&orders(true, 160), 0, 2, 4, Tail::Wrap);
        let (options, share) = (options(1 << 20, 1, 1), share(1).drift(2));
        let mut first = joining(&fake, &sampler, &options, &share);
        first.next().unwrap().unwrap();
        let mut second = joining(&fake, &sampler, &options, &share);
        assert_eq!(second.next().unwrap().unwrap().step, 0);
        let error = first.find_map(Result::err).unwrap();
        assert!(error.to_string().contains("another loader of rank 0"), "{error}");
        drop(first);
        assert_eq!(serve(&mut second, &sampler, 1).unwrap().len(), 19, "although the reader was with the first");
    });
}

#[test]
fn a_rank_that_waits_is_ended_by_another_thread() {
    in_time(|| {
        let fake = Arc::new(Fake::new(&[40; 4]));
        let orders = orders(true, 160);
        let (options, share) = (options(1 << 20, 1, 1), share(2).wait(Duration::from_secs(1000)));
        for _ in 0..2 {
            let mut loader = joining(&fake, &sampler(&orders, 0, 2, 4, Tail::Wrap), &options, &share);
            let control = loader.control();
            let waiting = thread::spawn(move || loader.try_next().unwrap_err().kind());
            thread::sleep(Duration::from_millis(30));
            control.close();
            assert_eq!(waiting.join().unwrap(), ErrorKind::Closed);
        }
        nothing_is_left(&fake);
    });
}

#[test]
fn a_rank_that_waits_for_a_limited_time_asks_again_and_loses_nothing() {
    in_time(|| {
        let fake = Arc::new(Fake::new(&[40; 4]));
        let orders = orders(true, 160);
        let options = Options { max_wait: Some(Duration::from_millis(1)), ..options(1 << 20, 1, 2) };
        let share = share(2).drift(2).wait(Duration::from_secs(1000));
        let samplers: Vec<_> = (0..2).map(|rank| sampler(&orders, rank, 2, 4, Tail::Wrap)).collect();
        let mut first = joining(&fake, &samplers[0], &options, &share);
        for _ in 0..3 {
            let error = first.try_next().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}: the other rank is not there");
        }
        let loaders = vec![first, joining(&fake, &samplers[1], &options, &share)];
        let late = all(loaders, |rank, mut loader| {
            let (mut late, mut served) = (0, 0);
            loop {
                let batch = match loader.try_next() {
                    Err(error) if error.kind() == ErrorKind::TimedOut => {
                        late += 1;
                        continue;
                    }
                    batch => batch.unwrap(),
                };
                let Some(batch) = batch else { break };
                assert_eq!((batch.epoch, batch.step), (served / 20, served % 20));
                let plan = samplers[rank].plan(batch.epoch).unwrap();
                assert_eq!(batch.row_ids, plan.batch(batch.step).unwrap().rows);
                served += 1;
                thread::sleep(Duration::from_millis(3 * rank as u64));
            }
            assert_eq!(served, 40);
            late
        });
        assert!(late[0] > 0, "it is ahead by as much as it may, and waits for the other one");
    });
}

/// An order that panics on threads of a reader with this name, whatever it is asked there, from when it is told to.
#[derive(Debug)]
struct Frail {
    order: Arc<dyn Order>,
    thread: &'static str,
    is_frail: Arc<AtomicBool>,
}

impl Order for Frail {
    fn len(&self) -> u64 {
        self.order.len()
    }

    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        self.order.epoch(epoch)
    }

    fn fingerprint(&self) -> u64 {
        let is_frail = self.is_frail.load(Ordering::Relaxed) && thread::current().name() == Some(self.thread);
        assert!(!is_frail, "a defect");
        self.order.fingerprint()
    }

    fn name(&self) -> &'static str {
        self.order.name()
    }
}

#[test]
fn an_order_that_panics_before_an_engine_is_started_is_an_error_for_all_ranks() {
    in_time(|| {
        let fake = Arc::new(Fake::new(&[40; 4]));
        let frail = Frail { order: orders(true, 160), thread: "rowdex-share-send", is_frail: Arc::default() };
        frail.is_frail.store(true, Ordering::Relaxed);
        let orders: Arc<dyn Order> = Arc::new(frail);
        let (options, share) = (options(1 << 20, 1, 1), share(2).wait(Duration::from_millis(200)));
        let samplers: Vec<_> = (0..2).map(|rank| sampler(&orders, rank, 2, 4, Tail::Wrap)).collect();
        let loaders = samplers.iter().map(|sampler| joining(&fake, sampler, &options, &share)).collect();
        for error in all(loaders, |_, mut loader| loader.try_next().unwrap_err()) {
            assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
            assert!(error.to_string().contains("reading for several ranks panicked"), "{error}");
        }
        nothing_is_left(&fake);
    });
}

#[cfg(feature = "capi")]
#[test]
fn an_order_that_panics_where_a_rank_says_its_place_is_an_error_for_that_rank() {
    in_time(|| {
        let fake = Arc::new(Fake::new(&[40; 4]));
        let is_frail = Arc::new(AtomicBool::new(false));
        let frail = Frail { order: orders(true, 160), thread: "rowdex-share-rank", is_frail: Arc::clone(&is_frail) };
        let orders: Arc<dyn Order> = Arc::new(frail);
        let (options, share) = (options(1 << 20, 1, 1), share(2).wait(Duration::from_millis(200)));
        let samplers: Vec<_> = (0..2).map(|rank| sampler(&orders, rank, 2, 4, Tail::Wrap)).collect();
        let loaders = samplers.iter().map(|sampler| joining(&fake, sampler, &options, &share)).collect();
        let both = std::sync::Barrier::new(2);
        let errors = all(loaders, |rank, mut loader| {
            loader.next().unwrap().unwrap();
            both.wait();
            is_frail.store(true, Ordering::Relaxed);
            // It has a connection already, and says where it goes on.
            let error = (rank == 1).then(|| {
                loader.seek(0, 3).unwrap();
                loader.try_next().unwrap_err()
            });
            both.wait();
            error
        });
        let error = errors[1].as_ref().unwrap();
        assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
        assert!(error.to_string().contains("finding a rank's place panicked"), "{error}");
        nothing_is_left(&fake);
    });
}

/// A group of one rank, at whose address the test listens in the place of a reader.
fn answered() -> (Share, Listener) {
    static JOBS: AtomicU64 = AtomicU64::new(0);
    let job = format!("answered {} {}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
    let address = rowdex_share::address(rustix::process::getuid().as_raw(), &job, "test");
    let Some(Met::First(listener)) = meet(&address, &Signal::new().unwrap()).unwrap() else { panic!("it is taken") };
    (Share::machine().job(job).name("test").ranks(1), listener)
}

/// The first byte of the first message.
const HELLO: u8 = 0;

/// What sort of message came; nothing if none did.
fn heard(connection: &Connection, most: Option<Duration>) -> Option<u8> {
    let mut buffer = Vec::new();
    match connection.receive(&mut buffer, &Signal::new().unwrap(), most).unwrap() {
        Received::Message(..) => Some(buffer[0]),
        Received::TimedOut => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rank_that_waits_for_a_batch_or_for_a_reader_ends_when_the_call_is_to_stop() {
    in_time(|| {
        let fake = Arc::new(Fake::new(&[40; 4]));
        let sampler = sampler(&orders(true, 160), 0, 2, 4, Tail::Wrap);
        let (silent, listener) = answered();
        for share in [share(2).wait(Duration::from_secs(1000)), silent] {
            let mut loader = joining(&fake, &sampler, &options(1 << 20, 1, 1), &share);
            let is_to_stop = Arc::new(AtomicBool::new(false));
            let asked = Arc::clone(&is_to_stop);
            let waiting = thread::spawn(move || {
                let _asked = Asked::new(move || asked.load(Ordering::Relaxed)).enter();
                loader.try_next().unwrap_err().kind()
            });
            is_to_stop.store(true, Ordering::Relaxed);
            assert_eq!(waiting.join().unwrap(), ErrorKind::Closed);
        }
        drop(listener);
        nothing_is_left(&fake);
    });
}

#[test]
fn a_rank_whose_calls_are_told_to_stop_gets_every_batch_once() {
    in_time(|| {
        let fake = Arc::new(Fake::new(&[40; 4]));
        let sampler = sampler(&orders(true, 160), 0, 1, 4, Tail::Wrap);
        let options = options(1 << 20, 1, 2);
        let alone = Loader::new(each(&fake), vec![sampler.clone()], options.clone()).unwrap();
        let whole: Vec<_> =
            alone.map(|batch| batch.unwrap()).map(|batch| (batch.epoch, batch.step, batch.row_ids)).collect();
        let mut loader = joining(&fake, &sampler, &options, &share(1));
        assert_eq!(served_in_spite_of_stops(&mut loader), whole);
    });
}

#[test]
fn a_rank_waits_no_longer_for_a_reader_than_for_a_batch_and_says_once_where_it_is() {
    in_time(|| {
        let fake = Arc::new(Fake::new(&[40; 4]));
        let sampler = sampler(&orders(true, 160), 0, 1, 4, Tail::Wrap);
        let (share, listener) = answered();
        let options = Options { max_wait: Some(Duration::from_millis(2)), ..options(1 << 20, 1, 1) };
        let mut loader = joining(&fake, &sampler, &options, &share);
        for _ in 0..3 {
            assert_eq!(loader.try_next().unwrap_err().kind(), ErrorKind::TimedOut, "nobody answers");
        }
        let connection = listener.accept(&Signal::new().unwrap(), None).unwrap().unwrap();
        let said = std::iter::from_fn(|| heard(&connection, Some(Duration::ZERO)));
        assert_eq!(said.collect::<Vec<_>>(), [HELLO]);
        let told = Error::new(ErrorKind::Stale, "told");
        assert!(connection.send(&message::failure(&told), None, &Signal::new().unwrap()).unwrap());
        let mut errors = std::iter::repeat_with(|| loader.try_next().unwrap_err().kind());
        let error = errors.find(|kind| *kind != ErrorKind::TimedOut);
        assert_eq!(error, Some(ErrorKind::Stale), "it is still the place that it named first");
    });
}

#[cfg(feature = "capi")]
#[test]
fn the_place_behind_the_last_step_of_an_epoch_is_the_first_of_the_next_one() {
    in_time(|| {
        let fake = Arc::new(Fake::new(&[40; 4]));
        let orders = orders(true, 160);
        let (options, share) = (options(1 << 20, 1, 2), share(2).wait(Duration::from_millis(1)));
        let whole = sampler(&orders, 0, 2, 4, Tail::Wrap);
        for sampler in [whole.clone(), whole.worker(1, 2).unwrap()] {
            let (steps, share) = (sampler.steps(), share.clone().name(format!("{:?}", sampler.steps())));
            for before in [0, 3] {
                let alone = Loader::new(each(&fake), vec![sampler.clone()], options.clone()).unwrap();
                for mut loader in [alone, joining(&fake, &sampler, &options, &share)] {
                    assert_eq!(loader.by_ref().take(before).map(Result::unwrap).count(), before);
                    loader.seek(0, steps).unwrap();
                    for step in 0..steps {
                        let batch = loader.try_next().unwrap().unwrap();
                        assert_eq!((batch.epoch, batch.step), (1, step));
                        assert_eq!(batch.row_ids, sampler.plan(1).unwrap().batch(step).unwrap().rows);
                    }
                    loader.seek(1, steps).unwrap();
                    assert!(loader.try_next().unwrap().is_none(), "there is no epoch after it");
                }
            }
        }
        nothing_is_left(&fake);
    });
}

/// Rows of tokens as a dataset, and their packs. Epochs have different numbers of steps.
fn packs(rows: u64) -> (tempfile::TempDir, Dataset, Arc<Packed>) {
    let lengths: Vec<u64> = (0..rows).map(|row| 1 + (row * 7919 + row * row) % 15).collect();
    let tokens = lengths.iter().map(|length| Some((0..*length as i32).map(Some).collect::<Vec<_>>()));
    let tokens = arrow_array::ListArray::from_iter_primitive::<arrow_array::types::Int32Type, _, _>(tokens);
    let (dir, dataset) = one_file([("tokens", Arc::new(tokens) as ArrayRef)], 25, WriterProperties::builder());
    let packed = Packed::new(orders(true, rows), Arc::new(lengths), Pack { block: 10, ..Pack::of(16) }).unwrap();
    (dir, dataset, Arc::new(packed))
}

#[test]
fn readers_that_end_one_after_another_without_a_batch_are_an_error() {
    in_time(|| {
        let fake = Arc::new(Fake::new(&[40; 4]));
        let sampler = sampler(&orders(true, 160), 0, 1, 4, Tail::Wrap);
        let (share, listener) = answered();
        let mut loader = joining(&fake, &sampler, &options(1 << 20, 1, 1), &share);
        let refused = thread::spawn(move || loader.try_next().unwrap_err());
        for _ in 0..5 {
            let connection = listener.accept(&Signal::new().unwrap(), None).unwrap().unwrap();
            assert_eq!(heard(&connection, None), Some(HELLO));
        }
        let error = refused.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("5 readers") && error.hint().is_some(), "{error}");
    });
}

#[test]
fn ranks_that_share_a_reader_pass_over_epochs_of_packs_without_a_step() {
    in_time(|| {
        let (_dir, dataset, packed) = packs(21);
        let of_rank = |rank| {
            let shard = Shard::new(rank, 10).unwrap().with_tail(Tail::Drop);
            DistributedSampler::of_packs(Arc::clone(&packed), shard, 1, None).unwrap()
        };
        let steps: Vec<u64> = (0..40).map(|epoch| of_rank(0).steps_of(epoch)).collect();
        assert!(steps.contains(&0) && steps.contains(&1), "{steps:?}");
        let share = share(2);
        let open = |rank| {
            let builder = Loader::builder(&dataset, of_rank(rank)).tokens("tokens").threads(1).epochs(40);
            builder.share(share.clone()).build().unwrap()
        };
        all(vec![open(0), open(1)], |_, mut loader| {
            for (epoch, steps) in steps.iter().enumerate() {
                assert_eq!(loader.epoch().map(Result::unwrap).count() as u64, *steps, "epoch {epoch}");
            }
            assert!(loader.try_next().unwrap().is_none());
        });
    });
}

#[test]
fn a_rank_that_comes_back_in_a_later_epoch_of_packs_locks_nobody_up() {
    in_time(|| {
        let (_dir, dataset, packed) = packs(200);
        let of_rank =
            |rank| DistributedSampler::of_packs(Arc::clone(&packed), Shard::new(rank, 2).unwrap(), 1, None).unwrap();
        let samplers = [of_rank(0), of_rank(1)];
        let steps = |epoch| samplers[0].steps_of(epoch);
        // Counted by its own steps, this epoch is far behind where it is by those of epoch 0.
        let late = (1..100).find(|epoch| epoch * steps(*epoch) > epoch * steps(0) + 12).unwrap();
        assert!(steps(late) > 16);
        for memory in [1_000, 4_000, 16_000] {
            let share = share(2).wait(Duration::from_millis(300));
            let open = |sampler: &DistributedSampler| {
                let builder = Loader::builder(&dataset, sampler.clone()).tokens("tokens").memory(memory).threads(1);
                builder.share(share.clone()).build().unwrap()
            };
            let barrier = std::sync::Barrier::new(2);
            all(samplers.iter().map(open).collect(), |rank, mut loader| {
                for epoch in 0..late {
                    assert_eq!(loader.epoch().map(Result::unwrap).count() as u64, steps(epoch));
                }
                barrier.wait();
                if rank == 1 {
                    drop(loader);
                    let mut sampler = samplers[1].clone();
                    sampler.set_epoch(late);
                    loader = open(&sampler);
                }
                // As if each step ended with an operation of all ranks.
                for step in 0..steps(late) {
                    let batch = loader.try_next().unwrap().unwrap();
                    assert_eq!((batch.epoch, batch.step), (late, step));
                    assert_eq!(batch.row_ids, samplers[rank].plan(late).unwrap().batch(step).unwrap().rows);
                    barrier.wait();
                }
            });
        }
    });
}
