//! What is read ahead from a store is fetched once, for all processes: each of these datasets stands for one.

use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::dataset::Prefetch;
use rowdex_io::source::{Done, LocalSource, Pending, Source};
use rowdex_parquet::WholeBatch;

/// A folder as if it were a store, which answers reads ahead when it is let.
#[derive(Debug)]
struct Gated {
    local: Arc<LocalSource>,
    gate: Arc<Gate>,
    reads: AtomicU64,
}

#[derive(Debug, Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    given_up: AtomicBool,
}

impl Gated {
    fn set(&self, open: bool) {
        *self.gate.is_open.lock().unwrap() = open;
        self.gate.opened.notify_all();
    }

    fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        self.gate.given_up.store(true, Ordering::Relaxed);
        self.set(true);
    }
}

impl Source for Gated {
    fn stat(&self, path: &str) -> Result<FileStat> {
        self.local.stat(path)
    }

    fn read(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.local.read(path, ranges)
    }

    fn begin(&self, path: &str, _: &FileStat, ranges: &[Range<u64>]) -> Option<Pending<Vec<Bytes>>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let (local, gate) = (Arc::clone(&self.local), Arc::clone(&self.gate));
        let (path, ranges) = (path.to_owned(), ranges.to_vec());
        let (sender, receiver) = mpsc::channel();
        let done = Done::default();
        let told = done.clone();
        thread::spawn(move || {
            let mut is_open = gate.is_open.lock().unwrap();
            while !*is_open {
                is_open = gate.opened.wait(is_open).unwrap();
            }
            drop(is_open);
            if !gate.given_up.load(Ordering::Relaxed) {
                let _ = sender.send(local.read(&path, &ranges));
            }
            told.set();
        });
        Some(Pending::new(done, move || receiver.recv().unwrap()))
    }

    fn is_remote(&self) -> bool {
        true
    }
}

/// A process: its dataset, and its way to the store.
struct Process {
    dataset: Dataset,
    store: Arc<Gated>,
}

impl Process {
    fn new(place: &Fixture, wait: Duration) -> Self {
        Self::of(place.builder(), place, wait)
    }

    fn of(builder: DatasetBuilder, place: &Fixture, wait: Duration) -> Self {
        let local = Arc::new(LocalSource::new(place.path("data")));
        let store = Arc::new(Gated { local, gate: Arc::default(), reads: AtomicU64::new(0) });
        let source: Arc<dyn Source> = store.clone();
        let tier = place.tier(PLENTY).with_wait(wait);
        let dataset = builder.with_disk_tier(tier).with_cache_bytes(0).with_source(source).open().unwrap();
        Self { dataset, store }
    }

    fn prefetch(&self, group: u32) -> Option<Prefetch> {
        self.dataset.prefetch(group, Slots::All)
    }

    /// Decodes a row group, and looks at its first row.
    fn decode(&self, group: u32, prefetch: Option<Prefetch>) {
        let projection = self.dataset.projection().clone();
        let mut rows = WholeBatch::default();
        self.dataset.read(group, Slots::All, &projection, prefetch, &mut rows).unwrap();
        let rows = rows.into_batch().unwrap();
        assert_eq!(rows.column(0).as_primitive::<Int64Type>().value(0), i64::from(group) * GROUP as i64);
    }

    fn timeouts(&self) -> u64 {
        self.dataset.tier_counters().timeouts
    }
}

const LONG: Duration = Duration::from_secs(60);

fn two(place: &Fixture) -> (Process, Process) {
    (Process::new(place, LONG), Process::new(place, LONG))
}

/// Waits until what was read ahead has arrived, for everybody.
fn arrived(prefetch: &Prefetch) {
    let began = Instant::now();
    while !prefetch.has_arrived() {
        assert!(began.elapsed() < LONG);
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether only entries are in the folder.
fn is_tidy(place: &Fixture) -> bool {
    place.entries().iter().all(|path| path.extension().is_some_and(|suffix| suffix == "rdxt"))
}

#[test]
fn what_one_process_reads_ahead_another_does_not_fetch_whoever_gets_to_it_first() {
    for first_decodes_first in [true, false] {
        let place = Fixture::new();
        let (first, second) = two(&place);
        let prefetch = first.prefetch(1).unwrap();
        assert!(second.prefetch(1).is_none() && first.prefetch(1).is_none(), "it is on its way");
        assert_eq!((first.store.reads(), second.store.reads()), (1, 0));
        first.store.set(true);
        arrived(&prefetch);
        assert!(second.prefetch(1).is_none(), "it is there");
        if first_decodes_first {
            first.decode(1, Some(prefetch));
            second.decode(1, None);
        } else {
            second.decode(1, None);
            first.decode(1, Some(prefetch));
        }
        assert!(second.prefetch(1).is_none() && first.prefetch(1).is_none(), "it is kept");
        assert_eq!((first.store.reads(), second.store.reads()), (1, 0));
        let decodes = first.dataset.counters().decodes + second.dataset.counters().decodes;
        assert_eq!(decodes, 1);
        assert_eq!(first.dataset.tier_counters().writes + second.dataset.tier_counters().writes, 1);
        assert!(is_tidy(&place), "{:?}", place.entries());
    }
}

#[test]
fn a_process_that_does_not_come_back_for_what_it_read_ahead_holds_nobody_up() {
    let place = Fixture::new();
    let (first, second) = two(&place);
    let prefetches: Vec<_> = (0..GROUPS as u32).map(|group| first.prefetch(group).unwrap()).collect();
    first.store.set(true);
    (0..GROUPS as u32).for_each(|group| second.decode(group, None));
    assert_eq!((first.store.reads(), second.store.reads(), second.timeouts()), (GROUPS, 0, 0));
    drop(prefetches);
    assert_eq!(place.entries().len() as u64, GROUPS);
    assert!(is_tidy(&place));
}

#[test]
fn two_processes_that_need_first_what_the_other_has_read_ahead_both_get_on() {
    let place = Fixture::new();
    let (first, second) = two(&place);
    let (one, two) = (first.prefetch(1).unwrap(), second.prefetch(2).unwrap());
    thread::scope(|scope| {
        scope.spawn(|| {
            first.decode(2, None);
            first.decode(1, Some(one));
        });
        scope.spawn(|| {
            second.decode(1, None);
            second.decode(2, Some(two));
        });
        thread::sleep(Duration::from_millis(20));
        first.store.set(true);
        second.store.set(true);
    });
    assert_eq!((first.store.reads(), second.store.reads()), (1, 1));
    assert_eq!((first.timeouts(), second.timeouts(), is_tidy(&place)), (0, 0, true));
}

#[test]
fn a_process_does_not_wait_for_itself() {
    let place = Fixture::new();
    let process = Process::new(&place, LONG);
    let prefetch = process.prefetch(3).unwrap();
    process.store.set(true);
    process.decode(3, None);
    process.decode(3, Some(prefetch));
    assert_eq!((process.store.reads(), process.timeouts(), is_tidy(&place)), (1, 0, true));
}

#[test]
fn two_loaders_of_one_dataset_take_turns_on_one_thread_and_on_their_own() {
    for threads in [0, 2] {
        let place = Fixture::new();
        let process = Process::new(&place, LONG);
        process.store.set(true);
        let loader = |seed| {
            let order = Arc::new(Global::new(ROWS as u64, seed).unwrap());
            let sampler = DistributedSampler::new(order, Shard::new(0, 1).unwrap(), 64).unwrap();
            let loader = Loader::builder(&process.dataset, sampler).memory(process.dataset.decoded_bytes() / 4);
            loader.threads(threads).epochs(1).build().unwrap()
        };
        let mut rows = 0;
        for (one, two) in loader(1).zip(loader(2)) {
            for batch in [one.unwrap(), two.unwrap()] {
                let ids = batch.records.column(0).as_primitive::<Int64Type>();
                assert!(ids.values().iter().zip(&batch.row_ids).all(|(id, row)| *id as u64 == *row));
                rows += ids.values().len();
            }
        }
        assert_eq!(rows as i64, 2 * ROWS);
        assert_eq!((process.timeouts(), is_tidy(&place)), (0, true));
        assert_eq!(process.store.reads(), GROUPS, "{threads}");
    }
}

#[test]
fn a_read_that_is_given_up_is_anybodys_again() {
    let place = Fixture::new();
    let (first, second) = two(&place);
    drop(first.prefetch(1).unwrap());
    assert!(place.entries().is_empty(), "{:?}", place.entries());
    let prefetch = second.prefetch(1).unwrap();
    assert!(first.prefetch(1).is_none());
    second.store.set(true);
    arrived(&prefetch);
    drop(prefetch);
    assert!(place.entries().is_empty(), "bytes that nobody came back for");
    assert!(is_tidy(&place));
}

#[test]
fn what_a_stopped_process_reads_ahead_is_not_waited_for_for_ever() {
    let place = Fixture::new();
    let wait = Duration::from_millis(300);
    let (stopped, other) = (Process::new(&place, wait), Process::new(&place, wait));
    let prefetches: Vec<_> = (0..GROUPS as u32).map(|group| stopped.prefetch(group).unwrap()).collect();
    (0..GROUPS as u32).for_each(|group| other.decode(group, None));
    assert_eq!((other.store.reads(), other.timeouts()), (GROUPS, GROUPS));
    drop(prefetches);
    assert!(is_tidy(&place));
}

#[test]
fn what_a_killed_process_had_fetched_is_used_and_cleared() {
    let place = Fixture::new();
    let (killed, other) = two(&place);
    let prefetch = killed.prefetch(2).unwrap();
    killed.store.set(true);
    arrived(&prefetch);
    // Nothing of it is dropped.
    std::mem::forget(prefetch);
    assert!(!is_tidy(&place));
    other.decode(2, None);
    assert_eq!((other.store.reads(), is_tidy(&place)), (0, true));
}

#[test]
fn fetched_bytes_that_are_damaged_are_fetched_again() {
    let place = Fixture::new();
    let (first, second) = two(&place);
    let prefetch = first.prefetch(2).unwrap();
    first.store.set(true);
    arrived(&prefetch);
    let [file] = &place.entries()[..] else { panic!("{:?}", place.entries()) };
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(file, bytes).unwrap();
    second.decode(2, None);
    assert_eq!(second.store.reads(), 1);
    first.decode(2, Some(prefetch));
    assert!(is_tidy(&place));
}

#[test]
fn locks_are_so_few_that_files_can_be_opened_still() {
    let place = Fixture(TempDir::new().unwrap());
    write(&place.path("data/a.parquet"), &columns(0..400).project(&[0]).unwrap(), 1);
    place.index();
    let (first, second) = two(&place);
    let prefetches: Vec<_> = (0..400).map(|group| first.prefetch(group).unwrap()).collect();
    assert!(place.entries().len() <= 256, "{}", place.entries().len());
    first.store.set(true);
    prefetches.iter().for_each(arrived);
    let rows = |group: u32, prefetch| {
        let projection = first.dataset.projection().clone();
        let mut rows = WholeBatch::default();
        first.dataset.read(group, Slots::All, &projection, prefetch, &mut rows).unwrap();
        rows.into_batch().unwrap()
    };
    for (group, prefetch) in prefetches.into_iter().enumerate() {
        assert_eq!(
            rows(group as u32, Some(prefetch)).column(0).as_primitive::<Int64Type>().values()[..],
            [group as i64]
        );
    }
    assert_eq!((first.store.reads(), first.dataset.tier_counters().writes), (400, 400));
    assert!(second.prefetch(399).is_none());
    fs::remove_dir_all(place.path("tier")).unwrap();
}

#[test]
fn few_rows_of_each_row_group_are_kept_as_what_they_are() {
    let place = Fixture::new();
    let rows = Arc::new(UInt64Array::from_iter_values((0..ROWS as u64).filter(|row| row % 211 == 5))) as ArrayRef;
    write(&place.path("rows.parquet"), &RecordBatch::try_from_iter([("row_id", rows)]).unwrap(), 1 << 20);
    let some = place.path("some.rdx");
    IndexBuilder::new([place.path("data")]).with_rows(place.path("rows.parquet")).build(&some).unwrap();
    let open = || Process::of(Dataset::builder(Index::open(&some).unwrap()), &place, LONG);
    for _ in 0..2 {
        let process = open();
        process.store.set(true);
        let ids: Vec<i64> = (0..GROUPS as u32)
            .flat_map(|group| {
                let projection = process.dataset.projection().clone();
                let prefetch = process.prefetch(group);
                let mut rows = WholeBatch::default();
                process.dataset.read(group, Slots::All, &projection, prefetch, &mut rows).unwrap();
                let rows = rows.into_batch().unwrap();
                rows.column(0).as_primitive::<Int64Type>().values().to_vec()
            })
            .collect();
        assert_eq!(ids, (0..ROWS).filter(|row| row % 211 == 5).collect::<Vec<_>>());
    }
    assert!(is_tidy(&place));
    fs::remove_dir_all(place.path("tier")).unwrap();
}
