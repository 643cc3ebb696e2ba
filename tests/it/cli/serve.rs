//! `rowdex serve`: a process that reads for ranks, which are loaders of this process here and processes of their own in
//! `python/tests/test_serve.py`.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt64Array};
use arrow::datatypes::Int32Type;
use rowdex::loader::{LoaderBuilder, Sequencing, Share};
use rowdex::order::{Global, Lengths};
use rowdex::sampler::{PackSpec, SamplerOptions};
use rowdex::{Batch, Dataset, DistributedSampler, Loader, Shard};
use rustix::process::{Pid, Signal, kill_process};

use super::place::Place;

const WATCHDOG: Duration = Duration::from_secs(120);

/// Fails if it is not done in time.
pub(super) fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, waited) = channel();
    let worker = thread::spawn(move || {
        let _ = done.send(work());
    });
    match waited.recv_timeout(WATCHDOG) {
        Ok(result) => result,
        Err(RecvTimeoutError::Disconnected) => std::panic::resume_unwind(worker.join().unwrap_err()),
        Err(RecvTimeoutError::Timeout) => panic!("it hangs"),
    }
}

/// The name of a job that no other test has.
pub(super) fn job() -> String {
    static JOBS: AtomicU64 = AtomicU64::new(0);
    format!("test-{}-{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed))
}

/// A server that takes ranks.
struct Serving {
    child: Child,
    /// What it says when ranks may come.
    line: String,
    stdout: Option<BufReader<std::process::ChildStdout>>,
}

impl Serving {
    /// Waits until ranks may come; what it wrote to stderr if it ends before.
    fn start(place: &Place, arguments: &str) -> Result<Self, String> {
        let mut command = place.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (line, stdout) = in_time(move || {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            (line, stdout)
        });
        let mut serving = Self { child, line, stdout: Some(stdout) };
        if serving.line.is_empty() {
            return Err(serving.end().2);
        }
        Ok(serving)
    }

    fn process(&self) -> String {
        format!("process {}", self.child.id())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end. How it ended, and what more it wrote.
    fn end(&mut self) -> (ExitStatus, String, String) {
        let begun = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(begun.elapsed() < WATCHDOG, "it does not end"),
            }
            thread::sleep(Duration::from_millis(5));
        };
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (status, stdout, stderr)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sampler(dataset: &Dataset, rank: u32, world: u32, batch: usize, seed: u64) -> DistributedSampler {
    let order = Arc::new(Global::new(dataset.len(), seed).unwrap());
    DistributedSampler::new(order, Shard::new(rank, world).unwrap(), batch).unwrap()
}

fn share(job: &str, ranks: u32) -> Share {
    Share::machine().job(job).name("loader 0").ranks(ranks).program([env!("CARGO_BIN_EXE_rowdex")])
}

/// What each rank gets from so many epochs.
fn served(place: &Place, loader: impl Fn(LoaderBuilder) -> LoaderBuilder + Sync, ranks: u32) -> Vec<Vec<Batch>> {
    let dataset = Dataset::open(place.path("train.rdx")).unwrap();
    let rank = |rank| {
        let builder = Loader::builder(&dataset, sampler(&dataset, rank, ranks, 16, 42)).epochs(3);
        loader(builder).build().unwrap().map(Result::unwrap).collect()
    };
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..ranks).map(|number| scope.spawn(move || rank(number))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn ranks_get_what_they_would_have_read_themselves_and_a_server_ends_once_they_have_left() {
    in_time(|| {
        let place = Place::with_index();
        for ranks in [2, 3] {
            let job = job();
            let more = "--batch-size 16 --seed 42 --memory 20% --threads 1 --disk-cache disk_cache=10MiB --once";
            let arguments = format!("serve train.rdx --job {job} --ranks {ranks} {more}");
            let mut serving = Serving::start(&place, &arguments).unwrap();
            assert!(serving.line.contains("1,003 rows") && serving.line.contains(&serving.process()));
            let shared = served(&place, |builder| builder.share(share(&job, ranks)), ranks);
            assert_eq!(shared, served(&place, |builder| builder, ranks));
            assert!(std::fs::read_dir(place.path("disk_cache")).unwrap().next().is_some(), "the server has decoded");
            let (status, stdout, stderr) = serving.end();
            assert!(status.success() && stderr.is_empty(), "{stderr}");
            assert!(stdout.contains("served ") && stdout.contains("decoded"), "{stdout}");
        }
    });
}

#[test]
fn packs_through_a_server_are_those_that_ranks_would_have_read_themselves() {
    in_time(|| {
        let place = Place::with_data();
        place.run("build data -o train.rdx --lengths tags").succeeds();
        // Lengths by a list, of which no column says that they are those of the tags.
        let lengths = (0..1003).map(|id| if id % 5 == 0 { 0 } else { id % 4 });
        let lengths: ArrayRef = Arc::new(UInt64Array::from_iter_values(lengths));
        let ids: ArrayRef = Arc::new(UInt64Array::from_iter_values(0..1003));
        place.write("listed.parquet", &RecordBatch::try_from_iter([("row_id", ids), ("length", lengths)]).unwrap());
        place.run("build data -o train.rdx --update --lengths listed=listed.parquet").succeeds();
        for (pack, tokens) in [("tags:16", ""), ("tags:buckets", ""), ("listed:2", "--tokens tags")] {
            let job = job();
            let more = format!("--pack {pack} {tokens} --batch-size 4 --seed 42 --threads 1 --once");
            let mut serving = Serving::start(&place, &format!("serve train.rdx --job {job} --ranks 2 {more}")).unwrap();
            let shared = packs_of(&place, pack, |builder| builder.share(share(&job, 2)));
            assert_eq!(shared, packs_of(&place, pack, |builder| builder), "{pack}");
            assert!(serving.end().0.success());
        }
        let refused = place.run("serve train.rdx --job none --ranks 1 --pack listed:2").fails();
        refused.complains(&["no column has the tokens"]);
    });
}

/// Batches and tokens that two ranks get of an epoch of packs.
fn packs_of(
    place: &Place,
    pack: &str,
    loader: impl Fn(LoaderBuilder) -> LoaderBuilder + Sync,
) -> Vec<Vec<(Batch, Vec<i32>)>> {
    let dataset = Dataset::open(place.path("train.rdx")).unwrap();
    let spec: PackSpec = pack.parse().unwrap();
    let lengths: Arc<dyn Lengths> = Arc::new(dataset.index().lengths(&spec.lengths).unwrap());
    let rank = |rank| {
        let orders = Arc::new(Global::new(dataset.len(), 42).unwrap());
        let shard = Shard::new(rank, 2).unwrap().with_tail(spec.default_tail());
        let options = SamplerOptions::of(shard, 4);
        let sampler = options.sampler_of_packs(orders, Arc::clone(&lengths), &spec).unwrap();
        let builder = Loader::builder(&dataset, sampler).epochs(1);
        let builder = if spec.lengths == "listed" { builder.tokens("tags") } else { builder };
        let found = |batch: rowdex::Result<Batch>| {
            let batch = batch.unwrap();
            let tokens = batch.sequences(&Sequencing::default()).unwrap().tokens;
            (batch, tokens.as_primitive::<Int32Type>().values().to_vec())
        };
        loader(builder).build().unwrap().map(found).collect()
    };
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..2).map(|number| scope.spawn(move || rank(number))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn ranks_start_a_reader_when_the_server_has_ended() {
    in_time(|| {
        let place = Place::with_index();
        for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
            let job = job();
            let mut serving = start(&place, &job);
            let dataset = Dataset::open(place.path("train.rdx")).unwrap();
            let own = sampler(&dataset, 0, 1, 16, 42);
            let alone: Vec<_> =
                Loader::builder(&dataset, own.clone()).epochs(3).build().unwrap().map(Result::unwrap).collect();
            let mut loader = Loader::builder(&dataset, own).epochs(3).share(share(&job, 1)).build().unwrap();
            let mut found = vec![loader.next().unwrap().unwrap()];
            serving.signal(signal);
            let (status, _, stderr) = serving.end();
            let is_told = status.success() && stderr.contains("ended while 1 loader used it");
            assert!(is_told || signal == Signal::KILL, "{stderr}");
            found.extend(loader.map(Result::unwrap));
            assert_eq!(found, alone);
        }
    });
}

fn start(place: &Place, job: &str) -> Serving {
    let more = "--batch-size 16 --seed 42 --threads 1 --drift 4";
    Serving::start(place, &format!("serve train.rdx --job {job} --ranks 1 {more}")).unwrap()
}

#[test]
fn a_server_comes_before_the_ranks_and_is_the_only_one() {
    in_time(|| {
        let place = Place::with_index();
        let job = job();
        let arguments = format!("serve train.rdx --job {job} --ranks 1 --batch-size 16 --seed 42");
        let dataset = Dataset::open(place.path("train.rdx")).unwrap();
        let mut loader =
            Loader::builder(&dataset, sampler(&dataset, 0, 1, 16, 42)).share(share(&job, 1)).build().unwrap();
        loader.next().unwrap().unwrap();
        let refused = |process: &str| {
            let outcome = place.run(&arguments).fails();
            outcome.complains(&[process, "reads for this job already", "before the ranks"]);
        };
        refused("process");
        let other = format!("serve train.rdx --job {} --ranks 1 --batch-size 16 --seed 42", self::job());
        let serving = Serving::start(&place, &other).unwrap();
        place.run(&other).fails().complains(&[&serving.process()]);
        drop(loader);
        place.run("serve train.rdx --job x --ranks 3 --world-size 2").fails().complains(&["3 ranks on this machine"]);
        place.run("serve train.rdx --ranks 3").exits_with_usage().complains(&["--job"]);
    });
}
