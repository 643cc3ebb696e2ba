//! Ranks of a machine with a server, which is none of them. It is in this process here, and in one of its own in
//! `tests/it/cli/serve.rs` and `python/tests/test_serve.py`.

use super::share::{all, in_time, joining, nothing_is_left, serve, share};
use super::*;
use crate::loader::share::{Server, Share};
use rowdex_order::sampler::ReplicationLayout;

fn serving(fake: &Arc<Fake>, sampler: &DistributedSampler, options: &Options, share: &Share) -> Result<Server> {
    let samplers = vec![sampler.clone()];
    let group = share.resolve(1, &each(fake), &samplers, options).unwrap();
    let options = Options { group: Some(Arc::new(group)), ..options.clone() };
    Server::start(Loader::new(each(fake), samplers, options).unwrap().seat().unwrap())
}

/// As a rank that chooses nothing but how many epochs there are.
fn plain(epochs: u64) -> Options {
    Options { epochs: Some(epochs), ..Options::default() }
}

#[test]
fn a_server_gives_ranks_and_workers_one_job_after_another_what_they_would_have_read_themselves() {
    in_time(serve_one_job_after_another);
}

fn serve_one_job_after_another() {
    let fake = Arc::new(Fake::new(&[37, 5, 60, 0, 41, 22, 8, 50]));
    let orders = orders(true, fake.len());
    let share = share(3).drift(5).wait(Duration::from_millis(300));
    let samplers: Vec<_> = (0..3).map(|rank| sampler(&orders, rank, 3, 7, Tail::Wrap)).collect();
    let server = serving(&fake, &samplers[1], &options(fake.len() / 3 * ROW_BYTES, 2, 0), &share).unwrap();
    assert!(!server.is_deserted() && server.connected() == 0);
    for job in 0..3_u64 {
        // What is the server's own is not asked for, whatever a rank's defaults are.
        let options = plain(job + 1);
        let loaders = samplers.iter().map(|sampler| joining(&fake, sampler, &options, &share)).collect();
        let served = all(loaders, |rank, mut loader| {
            let first = loader.try_next().unwrap().unwrap();
            assert_eq!(first.row_ids, samplers[rank].plan(0).unwrap().batch(0).unwrap().rows);
            assert!(server.connected() > 0 && !server.is_deserted());
            serve(&mut loader, &samplers[rank], job + 1).unwrap().len() as u64 + 1
        });
        assert_eq!(served, [samplers[0].steps() * (job + 1); 3]);
        // Ranks that took over from others, of whom the server has not heard.
        let before = sampler(&orders, 0, 4, 7, Tail::Wrap);
        let mut resumed = samplers.clone();
        resumed.iter_mut().for_each(|sampler| sampler.resume(&before.state_after(0, 2 + job).unwrap()).unwrap());
        let loaders = resumed.iter().map(|sampler| joining(&fake, sampler, &plain(1), &share)).collect();
        let served = all(loaders, |rank, mut loader| serve(&mut loader, &resumed[rank], 1).unwrap().len() as u64);
        assert_eq!(served, [resumed[0].steps_left(); 3]);
        // Each rank with as many workers as it likes.
        let workers = |rank: usize| [1, 2, 3][(rank + job as usize) % 3];
        let parts = (0..3).flat_map(|rank| (0..workers(rank)).map(move |worker| (rank, worker)));
        let parts: Vec<_> =
            parts.map(|(rank, worker)| (rank, worker, samplers[rank].worker(worker, workers(rank)).unwrap())).collect();
        let loaders = parts.iter().map(|(_, _, part)| joining(&fake, part, &plain(2), &share)).collect();
        all(loaders, |at, mut loader| {
            let (rank, worker, _) = &parts[at];
            while let Some(batch) = loader.try_next().unwrap() {
                let plan = samplers[*rank].plan(batch.epoch).unwrap();
                let step = batch.step * workers(*rank) + worker;
                assert_eq!(batch.row_ids, plan.batch(step).unwrap().rows);
                assert_values(&batch);
            }
        });
    }
    assert!(server.stats().decodes > 0 && server.stats().rows > 0);
    while !server.is_deserted() {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(server);
    nothing_is_left(&fake);
}

#[test]
fn what_was_lost_for_one_job_is_read_again_for_the_next_one() {
    in_time(|| {
        let mut fake = Fake::new(&[40; 10]);
        fake.failing.insert(4);
        let fake = Arc::new(fake);
        let share = share(1).wait(Duration::from_millis(300));
        let own = sampler(&orders(true, 400), 0, 1, 10, Tail::Wrap);
        let fault = Fault::Substitute { seed: 5 };
        let server = serving(&fake, &own, &Options { fault, ..options(200 * ROW_BYTES, 2, 0) }, &share).unwrap();
        let job = || {
            let mut loader = joining(&fake, &own, &Options { fault, ..plain(1) }, &share);
            let replaced: usize = loader.by_ref().map(|batch| batch.unwrap().substituted.len()).sum();
            let lost = loader.lost_groups().len();
            drop(loader);
            while server.connected() > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            (replaced, lost)
        };
        assert_eq!(job(), (40, 1));
        fake.repaired.store(true, Ordering::Relaxed);
        assert_eq!(job(), (0, 0));
    });
}

#[test]
fn a_server_refuses_what_differs() {
    in_time(|| {
        let fake = Arc::new(Fake::new(&[40; 4]));
        let orders = orders(true, 160);
        let share = share(2).wait(Duration::from_millis(1));
        let own = || sampler(&orders, 1, 2, 4, Tail::Wrap);
        let _server = serving(&fake, &own(), &options(1 << 20, 3, 0), &share).unwrap();
        let refused_by = |share: &Share, sampler: DistributedSampler, options: Options, word: &str| {
            let error = joining(&fake, &sampler, &options, share).try_next().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            let text = error.to_string();
            assert!(text.contains("cannot share the reader") && text.contains(word), "{text}");
            assert!(error.hint().unwrap().contains("rowdex serve"), "{error}");
        };
        let refused = |sampler, options: Options, word: &str| refused_by(&share, sampler, options, word);
        let mine = |batch, tail| sampler(&orders, 1, 2, batch, tail);
        refused(mine(5, Tail::Wrap), plain(1), "its sampling is 2x5, and not 2x4");
        refused(mine(4, Tail::Uneven), plain(1), "its sampling is 2x4,uneven");
        refused(sampler(&orders, 1, 4, 4, Tail::Wrap), plain(1), "sampling is 4x4");
        refused(own().with_drop_last_batch(true), plain(1), "its sampling is 2x4,drop-last-batch");
        let other: Arc<dyn Order> = Arc::new(Global::new(160, 8).unwrap());
        refused(sampler(&other, 1, 2, 4, Tail::Wrap), plain(1), "its order is global");
        let replicas = Shard::new(1, 2).unwrap().with_replication(2, ReplicationLayout::Strided).unwrap();
        let replicas = DistributedSampler::new(Arc::clone(&orders), replicas, 4).unwrap();
        refused(replicas, plain(1), "its sampling is 2x4,replicas-2");
        let fault = Fault::Substitute { seed: 61 };
        refused(own(), Options { fault, ..plain(1) }, "on_error is Substitute");
        refused_by(&share.clone().ranks(1), own(), plain(1), "number of ranks on this machine is 1");
        // Its own, where they were chosen.
        let memory = Options { memory: 7, memory_is_given: true, ..plain(1) };
        refused(own(), memory, "its memory is 7, and not 1048576");
        let threads = Options { threads: 5, threads_are_given: true, ..plain(1) };
        refused(own(), threads, "its threads is 5, and not 3");
        refused(own(), Options { read_ahead: Some(9), ..plain(1) }, "read_ahead is 9");
        let reads = Options { read_concurrency: Some(9), ..plain(1) };
        refused(own(), reads, "read_concurrency is 9");
        refused_by(&share.clone().drift(9), own(), plain(1), "drift is 9");
        let same = Options { memory: 1 << 20, threads: 3, memory_is_given: true, threads_are_given: true, ..plain(1) };
        assert!(joining(&fake, &own(), &same, &share).next().unwrap().is_ok());
    });
}

#[test]
fn a_server_needs_to_know_whom_it_serves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let batch = Fake::new(&[4]).batch(0..4);
    let mut writer = ArrowWriter::try_new(std::fs::File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    IndexBuilder::new([&path]).build(folder.path().join("a.rdx")).unwrap();
    let dataset = Dataset::open(folder.path().join("a.rdx")).unwrap();
    let error = Loader::builder(&dataset, sampler(&orders(true, 4), 0, 1, 2, Tail::Wrap)).serve().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("without a job"), "{error}");
}
