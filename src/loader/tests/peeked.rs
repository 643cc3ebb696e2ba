//! Batches that are looked at, several at once, and handed out one by one.

use super::*;

/// Peeks for at most so many rows, takes what it gets apart by the batch size, and hands that out.
fn in_pieces(loader: &mut Loader, sampler: &DistributedSampler, epoch: u64, first: u64, max_rows: usize) -> u64 {
    let (plan, size) = (sampler.plan(epoch).unwrap(), sampler.batch_size() as usize);
    let (mut step, mut together) = (first, 0);
    while let Some(batch) = loader.peek(epoch, step, max_rows).unwrap() {
        assert_values(&batch);
        let parts = batch.row_ids.chunks(size.max(1));
        together += u64::from(parts.len() > 1);
        assert!(parts.len() <= 1 || batch.row_ids.len() <= max_rows);
        for part in parts.chain(batch.row_ids.is_empty().then_some(&[][..])) {
            assert_eq!(part, plan.batch(step).unwrap().rows, "step {step} of epoch {epoch}");
            loader.advance(epoch, step).unwrap();
            assert_eq!(loader.state(), sampler.state_after(epoch, step).unwrap());
            step += 1;
        }
    }
    assert_eq!(step, plan.steps());
    together
}

#[test]
fn what_is_looked_at_together_comes_apart_by_the_batch_size_and_is_what_the_plan_says() {
    let fake = Arc::new(Fake::new(&[37, 5, 60, 0, 41, 22, 8, 50]));
    for (number, cut) in [1, 7].into_iter().enumerate() {
        let sampler = sampler(&orders(number % 2 == 0, fake.len()), 1, 2, cut, Tail::Uneven);
        let mut loader = Loader::new(each(&fake), vec![sampler.clone()], options(4 << 20, 0, 4)).unwrap();
        let whole: u64 = (0..2).map(|epoch| in_pieces(&mut loader, &sampler, epoch, 0, 1000)).sum();
        assert!(whole > 0, "{cut:?}: none together");
        // From any step on, and from a state.
        for step in [1, 2, sampler.steps() / 2, sampler.steps() - 1] {
            loader.seek(2, step).unwrap();
            in_pieces(&mut loader, &sampler, 2, step, 20);
            let mut resumed = sampler.clone();
            resumed.resume(&sampler.state_after(1, step - 1).unwrap()).unwrap();
            loader.resume(&resumed.state()).unwrap();
            in_pieces(&mut loader, &resumed, 1, step, 20);
        }
    }
}

#[test]
fn an_error_that_is_met_while_looking_ahead_ends_it_where_it_is_due() {
    for threads in [0, 2] {
        let fake = Arc::new(Fake { failing: BTreeSet::from([2]), ..Fake::new(&[10; 4]) });
        let sampler = sampler(&orders(false, fake.len()), 0, 1, 5, Tail::Wrap);
        let mut loader = Loader::new(each(&fake), vec![sampler], options(4 << 20, threads, 1)).unwrap();
        for step in 0..4 {
            assert_values(&loader.peek(0, step, 1).unwrap().unwrap());
        }
        assert!(loader.peek(0, 4, 1).is_err() && loader.failure().is_none());
        (0..4).for_each(|step| loader.advance(0, step).unwrap());
        assert!(loader.peek(0, 4, 1).is_err() && loader.failure().is_some());
    }
}
