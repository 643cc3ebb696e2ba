//! Loaders that share a reader, which they start: `rowdex serve` as a process. `python/tests/test_share.py` has ranks
//! that are processes, too.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rowdex::dataset::MixedDataset;
use rowdex::error::ErrorKind;
use rowdex::loader::{Fault, LoaderBuilder, Share};
use rowdex::order::{
    Balanced, Blocks, Contiguous, EpochOrder, Explicit, Global, IdSet, Mixed, MixedPart, Order, Packed, Resized,
    Sequential, Subset, Torch, Weighted,
};
use rowdex::sampler::PackSpec;
use rowdex::{Batch, Dataset, DistributedSampler, Loader, Shard};
use rustix::process::{Pid, Signal, kill_process};

use super::place::Place;
use super::serve::{in_time, job};

fn share(job: &str, ranks: u32) -> Share {
    Share::machine().job(job).name("own").ranks(ranks).program([env!("CARGO_BIN_EXE_rowdex")])
}

/// The process that reads for a job, which has the socket of its address as its standard input.
fn reader(job: &str) -> Option<Pid> {
    let address = format!("@{}", rowdex_share::address(rustix::process::getuid().as_raw(), job, "own"));
    let table = fs::read_to_string("/proc/net/unix").unwrap();
    let sockets = table.lines().filter(|line| line.contains(&address));
    let sockets: Vec<String> = sockets.filter_map(|line| line.split_whitespace().nth(6)).map(str::to_owned).collect();
    let listens = |process: &Path| {
        let input = fs::read_link(process.join("fd/0")).unwrap_or_default();
        let command = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        command.contains("--socket") && sockets.iter().any(|socket| input == Path::new(&format!("socket:[{socket}]")))
    };
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let reader = processes.filter(|process| listens(process)).find_map(|path| path.file_name()?.to_str()?.parse().ok());
    reader.and_then(Pid::from_raw)
}

/// What each rank gets from so many epochs.
fn served(ranks: Vec<LoaderBuilder>) -> Vec<Vec<Batch>> {
    thread::scope(|scope| {
        let serve = |builder: LoaderBuilder| builder.build().unwrap().map(Result::unwrap).collect();
        let ranks: Vec<_> = ranks.into_iter().map(|builder| scope.spawn(move || serve(builder))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Compares what two ranks get together with what they get alone.
fn compare(name: &str, rank: impl Fn(u32) -> LoaderBuilder) {
    let job = job();
    let alone = served((0..2).map(&rank).collect());
    let shared = served((0..2).map(|number| rank(number).share(share(&job, 2))).collect());
    assert!(alone[0].len() > 3, "{name}");
    assert_eq!(shared, alone, "{name}");
}

fn sampler(order: &Arc<dyn Order>, rank: u32) -> DistributedSampler {
    DistributedSampler::new(Arc::clone(order), Shard::new(rank, 2).unwrap(), 16).unwrap()
}

#[test]
fn a_reader_of_its_own_makes_every_order_again() {
    in_time(|| {
        let place = Place::with_index();
        let dataset = Dataset::open(place.path("train.rdx")).unwrap();
        let n = dataset.len();
        let global = |n, seed| -> Arc<dyn Order> { Arc::new(Global::new(n, seed).unwrap()) };
        let kept = Arc::new(IdSet::filter(n, |row| row % 3 != 1).unwrap());
        let groups: Vec<u64> = dataset.index().row_groups().map(|group| group.rows()).collect();
        let weights: Vec<f64> = (0..n).map(|row| (row % 5) as f64).collect();
        let labels: Vec<u32> = (0..n).map(|row| (row % 7) as u32).collect();
        let orders: [Arc<dyn Order>; 10] = [
            Arc::new(Sequential::new(n).unwrap()),
            Arc::new(Blocks::new(&groups, 2, 3).unwrap()),
            Arc::new(Explicit::new((0..n).rev().collect::<Vec<_>>(), n).unwrap()),
            Arc::new(Torch::new(n, 3).unwrap()),
            Arc::new(Weighted::with_replacement(&weights, 300, 3).unwrap()),
            Arc::new(Weighted::without_replacement(&weights, 300, 3).unwrap()),
            Arc::new(Balanced::new(&labels, 300, 3).unwrap()),
            Arc::new(Resized::new(global(n, 4), 300).unwrap()),
            Arc::new(Contiguous::new(global(n, 5), 2).unwrap()),
            Arc::new(Subset::new(global(kept.len(), 6), kept).unwrap()),
        ];
        for order in &orders {
            compare(&format!("{order:?}"), |rank| Loader::builder(&dataset, sampler(order, rank)).epochs(2));
        }
        let two = MixedDataset::new([dataset.clone(), dataset]).unwrap();
        let parts = [MixedPart::new(global(n, 1), n, 0.7), MixedPart::new(global(n, 2), n, 0.3)];
        let mixed: Arc<dyn Order> = Arc::new(Mixed::new(parts, 500, 8).unwrap());
        compare("mixed", |rank| {
            let fault = Fault::Substitute { seed: 1 };
            Loader::builder(&two, sampler(&mixed, rank)).with_views(true).on_error(fault).memory(20_000).epochs(2)
        });
    });
}

#[test]
fn a_reader_of_its_own_packs_by_the_same_lengths() {
    in_time(|| {
        let place = Place::with_data();
        place.run("build data -o train.rdx --lengths tags").succeeds();
        let dataset =
            Dataset::builder(rowdex::Index::open(place.path("train.rdx")).unwrap()).with_columns(["tags", "id"]);
        let dataset = dataset.open().unwrap();
        for pack in ["tags:16", "tags:buckets"] {
            let spec: PackSpec = pack.parse().unwrap();
            let lengths = Arc::new(dataset.index().lengths("tags").unwrap());
            let order = Arc::new(Global::new(dataset.len(), 6).unwrap());
            let packed = Arc::new(Packed::new(order, lengths, spec.pack).unwrap());
            compare(pack, |rank| {
                let shard = Shard::new(rank, 2).unwrap();
                let sampler = DistributedSampler::of_packs(Arc::clone(&packed), shard, 4, None).unwrap();
                Loader::builder(&dataset, sampler).epochs(2)
            });
        }
    });
}

#[test]
fn readers_that_are_killed_are_started_again_at_the_same_step() {
    in_time(|| {
        let place = Place::with_index();
        let job = &job();
        let dataset = Dataset::open(place.path("train.rdx")).unwrap();
        let order: Arc<dyn Order> = Arc::new(Global::new(dataset.len(), 42).unwrap());
        let rank = |rank| Loader::builder(&dataset, sampler(&order, rank)).memory(20_000).threads(1).epochs(6);
        let alone = served(vec![rank(0), rank(1)]);
        let share = share(job, 2).drift(4).wait(Duration::from_millis(500));
        let shared = thread::scope(|scope| {
            let rank = |number| {
                let loader = rank(number).share(share.clone()).build().unwrap();
                scope.spawn(move || {
                    let mut found = Vec::new();
                    for batch in loader {
                        found.push(batch.unwrap());
                        if number == 0 && found.len() % 40 == 17 {
                            let reader = std::iter::repeat_with(|| self::reader(job)).find_map(|reader| reader);
                            let _ = kill_process(reader.unwrap(), Signal::KILL);
                        }
                    }
                    found
                })
            };
            let ranks = [rank(0), rank(1)];
            ranks.map(|rank| rank.join().unwrap())
        });
        assert_eq!(shared.to_vec(), alone);
    });
}

#[test]
fn a_reader_that_nobody_uses_ends_by_itself() {
    in_time(|| {
        let place = Place::with_index();
        let dataset = Dataset::open(place.path("train.rdx")).unwrap();
        let order: Arc<dyn Order> = Arc::new(Global::new(dataset.len(), 42).unwrap());
        let job = job();
        let build = || Loader::builder(&dataset, sampler(&order, 0)).share(share(&job, 1)).build().unwrap();
        let mut loader = build();
        let first = loader.next().unwrap().unwrap();
        let process = reader(&job).unwrap();
        drop(loader);
        // The next one finds it there.
        assert_eq!(build().next().unwrap().unwrap(), first);
        assert_eq!(reader(&job), Some(process));
        let began = Instant::now();
        while reader(&job).is_some() {
            assert!(began.elapsed() < Duration::from_secs(60), "it stays");
            thread::sleep(Duration::from_millis(20));
        }
    });
}

/// An order that no other program has.
#[derive(Debug)]
struct Own(Global);

impl Order for Own {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn epoch(&self, epoch: u64) -> rowdex::Result<Arc<dyn EpochOrder>> {
        self.0.epoch(epoch)
    }

    fn fingerprint(&self) -> u64 {
        self.0.fingerprint()
    }

    fn name(&self) -> &'static str {
        "own"
    }
}

#[test]
fn a_reader_that_cannot_be_started_is_an_error_that_says_why() {
    in_time(|| {
        let place = Place::with_index();
        let dataset = Dataset::open(place.path("train.rdx")).unwrap();
        let global = Global::new(dataset.len(), 1).unwrap();
        let refused = |order: Arc<dyn Order>, program: &str| {
            let share = share(&job(), 1).program([program]);
            let builder = Loader::builder(&dataset, sampler(&order, 0)).share(share);
            builder.build().unwrap().try_next().unwrap_err()
        };
        let error = refused(Arc::new(global), "/no/such/program");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("/no/such/program") && error.hint().is_some(), "{error}");
        let error = refused(Arc::new(global), "/bin/ls");
        assert!(error.to_string().contains("has failed (exit status"), "{error}");
        let error = refused(Arc::new(Own(global)), env!("CARGO_BIN_EXE_rowdex"));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.hint().is_some_and(|hint| hint.contains("start the reader before the ranks")), "{error}");
    });
}
