use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow_array::builder::{Int32Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{
    ArrayRef, BooleanArray, LargeBinaryArray, RecordBatch, StringArray, StringViewArray, TimestampMillisecondArray,
    UInt64Array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use proptest::prelude::*;

use super::groups::{FetchCost, Groups, Reads, RowForm, Unit, UnitSize};
use super::recovery::Recovery;
use super::*;
use crate::builder::IndexBuilder;
use crate::dataset::Dataset;
use crate::dataset::{Prefetch, Slots};
use rowdex_base::stop::Asked;
use rowdex_io::source::{Done, Pending};
use rowdex_order::sampler::{Shard, Tail};
use rowdex_order::{
    Blocks, Contiguous, EpochOrder, Explicit, Global, Lengths, Order, OrderSpec, Pack, Packed, Paired, Piece, Resized,
    Rotated, Sequential, Weighted,
};
use rowdex_parquet::{self as row_group, RowSink};

mod beside_tokens;
mod in_order;
mod packs;
#[cfg(feature = "capi")]
mod peeked;
mod places;
#[cfg(target_os = "linux")]
mod served;
#[cfg(target_os = "linux")]
mod share;
mod sizes;
mod units;

/// A dataset in which row `i` is `(i, "row number i")`.
#[derive(Debug)]
pub(super) struct Fake {
    /// The first row of each group, and the end.
    starts: Vec<u64>,
    /// How many spaces follow each text.
    padding: usize,
    /// Set when what fails can be read again.
    repaired: AtomicBool,
    /// What sizes are multiplied with before they are told.
    lie: f64,
    delay: Duration,
    /// A store's row groups arrive when this says so.
    store: Option<Store>,
    failing: BTreeSet<u32>,
    failing_with: ErrorKind,
    /// What texts are served as, and of how many rows at most.
    served: (DataType, usize),
    panicking: BTreeSet<u32>,
    decodes: AtomicU64,
    /// Of each group, the failed ones included.
    attempts: Vec<AtomicU64>,
}

/// What was asked for and has not arrived, in the order in which it was asked for.
type Store = Arc<Mutex<Vec<(u32, Done)>>>;

const ROW_BYTES: u64 = 8 + 16 + 20;

impl Fake {
    pub(super) fn new(sizes: &[u64]) -> Self {
        let mut starts = vec![0];
        for size in sizes {
            starts.push(starts[starts.len() - 1] + size);
        }
        Self {
            starts,
            padding: 0,
            repaired: AtomicBool::new(false),
            lie: 1.0,
            delay: Duration::ZERO,
            store: None,
            failing: BTreeSet::new(),
            failing_with: ErrorKind::InvalidParquet,
            served: (DataType::Utf8, usize::MAX),
            panicking: BTreeSet::new(),
            decodes: AtomicU64::new(0),
            attempts: sizes.iter().map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn len(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// The group of a row.
    fn group(&self, row: u64) -> u32 {
        self.starts.partition_point(|start| *start <= row) as u32 - 1
    }

    fn row_bytes(&self) -> u64 {
        ROW_BYTES + self.padding as u64
    }

    fn batch(&self, rows: impl Iterator<Item = u64>) -> RecordBatch {
        let ids: Vec<u64> = rows.collect();
        let text = |id: &u64| format!("row number {id:9}{:1$}", "", self.padding);
        let texts = StringViewArray::from_iter_values(ids.iter().map(text)).gc();
        let columns: Vec<ArrayRef> = vec![Arc::new(UInt64Array::from(ids)), Arc::new(texts)];
        RecordBatch::try_new(schema(DataType::Utf8View), columns).unwrap()
    }
}

fn schema(text: DataType) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("id", DataType::UInt64, false), Field::new("text", text, false)]))
}

impl Groups for Fake {
    fn count(&self) -> u32 {
        (self.starts.len() - 1) as u32
    }

    fn unit(&self, row_group: u32) -> Unit {
        let rows = self.starts[row_group as usize + 1] - self.starts[row_group as usize];
        let bytes = (rows as f64 * self.row_bytes() as f64 * self.lie) as u64;
        let size = UnitSize { rows, bytes, cost: bytes };
        Unit { size, ..Unit::default() }
    }

    fn fetch(&self, row_groups: &[u32], reads: Reads) -> FetchCost {
        let rows: u64 = row_groups.iter().map(|row_group| self.unit(*row_group).size.rows).sum();
        let bytes = if let Reads::Some(rows, _) = reads { rows } else { rows };
        FetchCost { bytes, row_groups: row_groups.len() as u64, ..FetchCost::default() }
    }

    fn form(&self) -> RowForm {
        RowForm {
            decoded: schema(DataType::Utf8View),
            is_adapted: false,
            served: schema(self.served.0.clone()),
            shares_values: false,
            chunks_are_own: true,
            is_remote: self.store.is_some(),
        }
    }

    fn prefetch(&self, row_group: u32, _slots: Slots<'_>) -> Option<Prefetch> {
        let store = self.store.as_ref()?;
        let done = Done::default();
        store.lock().unwrap().push((row_group, done.clone()));
        Some(Prefetch::of(self.unit(row_group).size.bytes, Pending::new(done, || Ok(Vec::new()))))
    }

    fn read(&self, row_group: u32, slots: Slots<'_>, prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<()> {
        assert!(prefetch.is_none_or(|prefetch| prefetch.has_arrived()), "a thread would wait for it");
        std::thread::sleep(self.delay);
        self.attempts[row_group as usize].fetch_add(1, Ordering::Relaxed);
        assert!(!self.panicking.contains(&row_group), "a defect");
        rowdex_base::stop::check()?;
        if self.failing.contains(&row_group) && !self.repaired.load(Ordering::Relaxed) {
            return Err(Error::new(self.failing_with, "damaged").with_row_group(u64::from(row_group)));
        }
        self.decodes.fetch_add(1, Ordering::Relaxed);
        let start = self.starts[row_group as usize];
        let ids: Vec<u64> = match slots {
            Slots::All => (start..self.starts[row_group as usize + 1]).collect(),
            Slots::Some(slots) | Slots::Due(slots) => {
                assert!(slots.is_sorted_by(|a, b| a < b));
                slots.iter().map(|slot| start + u64::from(*slot)).collect()
            }
        };
        match ids.is_empty() {
            true => sink.take(self.batch(std::iter::empty())),
            false => ids.chunks(sink.chunk_rows()).try_for_each(|ids| sink.take(self.batch(ids.iter().copied()))),
        }
    }

    fn output(&self, batch: &RecordBatch, served: &SchemaRef) -> Result<RecordBatch> {
        if batch.num_rows() > self.served.1 {
            return Err(Error::new(ErrorKind::TooLarge, "more bytes than offsets reach"));
        }
        row_group::finish(batch, served)
    }
}

fn sampler(orders: &Arc<dyn Order>, rank: u32, world: u32, rows: usize, tail: Tail) -> DistributedSampler {
    let shard = Shard::new(rank, world).unwrap().with_tail(tail);
    DistributedSampler::new(Arc::clone(orders), shard, rows).unwrap()
}

fn orders(global: bool, len: u64) -> Arc<dyn Order> {
    if global { Arc::new(Global::new(len, 7).unwrap()) } else { Arc::new(Sequential::new(len).unwrap()) }
}

/// Every sort of orders that is a permutation, and some that repeat rows and leave rows out.
fn sorts(len: u64) -> Vec<(String, Arc<dyn Order>)> {
    let groups = [1.min(len), 0, len / 3, len / 5];
    let groups = [&groups[..], &[len - groups.iter().sum::<u64>()]].concat();
    let named = |name: &str| name.parse::<OrderSpec>().unwrap().orders(&groups, 7).unwrap();
    let mut all: Vec<(String, Arc<dyn Order>)> =
        vec![("explicit".into(), Arc::new(Explicit::new((0..len).rev().collect::<Vec<_>>(), len).unwrap()))];
    for name in ["sequential", "global", "blocks(3)"] {
        all.push((format!("contiguous {name}"), Arc::new(Contiguous::new(named(name), 4).unwrap())));
        all.push((format!("paired {name}"), Arc::new(Paired::new(named(name)))));
        all.push((format!("rotated {name}"), Arc::new(Rotated::new(named(name)))));
    }
    all.extend(
        ["sequential", "global", "torch", "blocks(1)", "blocks(3)", "blocks(all)"].map(|n| (n.into(), named(n))),
    );
    if len > 0 {
        let weights: Vec<f64> = (0..len).map(|row| (row % 3) as f64 + 0.5).collect();
        all.push(("weighted".into(), Arc::new(Weighted::with_replacement(&weights, len + 5, 7).unwrap())));
        all.push(("resized".into(), Arc::new(Resized::new(orders(true, len), len / 2 + 1).unwrap())));
    }
    all
}

fn options(memory: u64, threads: usize, epochs: u64) -> Options {
    Options { memory, threads, epochs: Some(epochs), ..Options::default() }
}

/// Compares with what the samplers say, from `state` on.
fn check(loader: &mut Loader, samplers: &mut [DistributedSampler], epochs: u64) {
    while samplers[0].epoch() < epochs {
        let plans: Vec<_> = samplers.iter_mut().map(|sampler| sampler.next_epoch().unwrap()).collect();
        for step in plans[0].first_step()..plans[0].steps() {
            for plan in &plans {
                let expected = plan.batch(step).unwrap();
                let batch = loader.next().unwrap().unwrap();
                assert_eq!((batch.epoch, batch.step, batch.steps), (expected.epoch, step, plan.steps()));
                assert_eq!((batch.rank, batch.pads), (plan.shard().rank(), expected.pads));
                assert_eq!(batch.row_ids, expected.rows);
                assert_values(&batch);
            }
            assert_eq!(loader.state(), samplers[0].state_after(plans[0].epoch(), step).unwrap());
        }
    }
    assert!(loader.next().is_none());
    assert!(loader.next().is_none());
}

/// The dataset of one file, which lies in the folder.
fn one_file<const N: usize>(
    columns: [(&str, ArrayRef); N],
    group_rows: u64,
    properties: WriterPropertiesBuilder,
) -> (tempfile::TempDir, Dataset) {
    let dir = tempfile::tempdir().unwrap();
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap();
    let properties = properties.set_max_row_group_row_count(Some(group_rows as usize)).build();
    let out = std::fs::File::create(dir.path().join("rows.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(out, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let index = dir.path().join("rows.rdx");
    IndexBuilder::new([dir.path()]).build(&index).unwrap();
    (dir, Dataset::open(index).unwrap())
}

fn assert_values(batch: &Batch) {
    assert_eq!(batch.records.schema(), schema(DataType::Utf8));
    assert_eq!(batch.records.column(0).as_primitive::<UInt64Type>().values(), &batch.row_ids[..]);
    for (text, row) in batch.records.column(1).as_string::<i32>().iter().zip(&batch.row_ids) {
        assert_eq!(text.map(str::trim_end), Some(&*format!("row number {row:9}")));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_are_what_the_sampler_says_whatever_the_threads_and_the_memory(
        sizes in prop::collection::vec(0u64..60, 0..12),
        sort: prop::sample::Index,
        world in 1u32..4,
        served in 1u32..3,
        cut in 1usize..40,
        tail in prop::sample::select(vec![Tail::Wrap, Tail::Drop, Tail::Uneven]),
        threads in prop::sample::select(vec![0usize, 1, 2, 4]),
        memory in prop::sample::select(vec![0u64, 60, 200, 400, 1000]),
        read_ahead in prop::option::of(0usize..20),
        resumed in prop::option::of(0u64..20),
        wide: bool,
        joined in prop::option::of(1u64..300),
    ) {
        let mut fake = Fake::new(&sizes);
        fake.padding = if wide { 600 } else { 0 };
        let sorts = sorts(fake.len());
        let (_name, orders) = &sorts[sort.index(sorts.len())];
        let ranks = 0..served.min(world);
        let mut samplers: Vec<_> = ranks.map(|rank| sampler(orders, rank, world, cut, tail)).collect();
        if let Some(step) = resumed && samplers[0].steps() > 0 {
            let state = samplers[0].state_after(1, step % samplers[0].steps()).unwrap();
            samplers.iter_mut().for_each(|sampler| sampler.resume(&state).unwrap());
        }
        let options = Options { read_ahead, ..options(memory * fake.row_bytes(), threads, 4) };
        let fake = Arc::new(fake);
        let mut loader = Loader::new(units_of(&fake, joined), samplers.clone(), options).unwrap();
        check(&mut loader, &mut samplers, 4);
        drop(loader);
        prop_assert_eq!(Arc::strong_count(&fake), 1);
    }
}

/// Its groups, with those joined that have at most so many rows together.
fn units_of(fake: &Arc<Fake>, joined: Option<u64>) -> Arc<Units> {
    Arc::new(Units::new(fake.clone(), joined.map(|rows| rows * fake.row_bytes())))
}

/// The row groups of a dataset, those joined that have at most so many bytes together.
fn units_of_dataset(dataset: &Dataset, views: bool, most: Option<u64>) -> Arc<Units> {
    let groups = DatasetGroups::new(std::slice::from_ref(dataset), dataset.schema(), views);
    Arc::new(Units::new(Arc::new(groups), most))
}

/// Its groups, each as a unit.
fn each(fake: &Arc<Fake>) -> Arc<Units> {
    Arc::new(Units::new(fake.clone(), None))
}

fn loader(fake: &Arc<Fake>, orders: &Arc<dyn Order>, cut: usize, options: Options) -> Loader {
    Loader::new(each(fake), vec![sampler(orders, 0, 1, cut, Tail::Wrap)], options).unwrap()
}

#[test]
fn an_error_comes_at_the_step_that_needs_the_group_and_not_before() {
    for (threads, panics, joined) in [
        (0, false, None),
        (2, false, None),
        (0, true, None),
        (3, true, None),
        (0, false, Some(130)),
        (2, false, Some(400)),
        (3, true, Some(90)),
    ] {
        for global in [false, true] {
            for bad in [0, 3, 9] {
                let mut fake = Fake::new(&[40; 10]);
                if panics { &mut fake.panicking } else { &mut fake.failing }.insert(bad);
                let fake = Arc::new(fake);
                let orders = orders(global, 400);
                let memory = 100 * ROW_BYTES;
                let samplers = vec![sampler(&orders, 0, 1, 3, Tail::Wrap)];
                let mut loader = Loader::new(units_of(&fake, joined), samplers, options(memory, threads, 2)).unwrap();
                let order = orders.epoch(0).unwrap();
                let first = (0..400).position(|q| order.row(q).unwrap() / 40 == u64::from(bad)).unwrap();
                for step in 0..first / 3 {
                    let batch = loader.next().unwrap().unwrap();
                    assert_eq!(batch.step, step as u64);
                    assert_values(&batch);
                }
                let state = loader.state();
                assert_eq!(state.consumed, first as u64 / 3 * 3);
                let error = loader.next().unwrap().unwrap_err();
                if panics {
                    assert_eq!(error.kind(), ErrorKind::Internal);
                    assert!(error.to_string().contains(&format!("row group {bad}")), "{error}");
                } else {
                    assert_eq!((error.kind(), error.row_group()), (ErrorKind::InvalidParquet, Some(u64::from(bad))));
                }
                assert!(loader.next().is_none());
                assert_eq!(loader.state(), state);
                drop(loader);
                assert_eq!(Arc::strong_count(&fake), 1);
            }
        }
    }
}

#[test]
fn batches_too_large_for_one_array_are_made_apart_and_one_too_large_by_itself_is_an_error_at_its_step() {
    // Nothing but `output` gives texts that type.
    let words = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let cuts = [(7, 7), (7, 5)];
    for ((cut, most), threads) in cuts.into_iter().flat_map(|cut| [(cut, 0), (cut, 2)]) {
        let fake = Arc::new(Fake { served: (words.clone(), most), ..Fake::new(&[40; 10]) });
        let orders = orders(true, 400);
        let plan = sampler(&orders, 0, 1, cut, Tail::Wrap).plan(0).unwrap();
        let expected = (0..plan.steps()).map(|step| plan.batch(step).unwrap().rows);
        let expected: Vec<_> = expected.take_while(|rows| rows.len() <= most).collect();
        let mut loader = loader(&fake, &orders, cut, options(1 << 30, threads, 1));
        for rows in &expected {
            let batch = loader.try_next().unwrap().unwrap();
            assert_eq!(batch.row_ids, *rows);
            assert_eq!(batch.records.column(0).as_primitive::<UInt64Type>().values(), &rows[..]);
        }
        assert!(expected.len() > 1 || most < 7);
        match expected.len() as u64 == plan.steps() {
            true => assert!(loader.try_next().unwrap().is_none()),
            false => assert_eq!(loader.try_next().unwrap_err().kind(), ErrorKind::TooLarge),
        }
    }
}

/// The items of an epoch: its number, and each batch's step or the error.
fn items(loader: &mut Loader) -> (u64, Vec<std::result::Result<u64, String>>) {
    let epoch = loader.epoch();
    let item = |batch: Result<Batch>| batch.map(|batch| batch.step).map_err(|error| error.to_string());
    (epoch.number(), epoch.map(item).collect())
}

#[test]
fn after_an_error_a_loader_serves_nothing_and_says_it_again_until_it_is_resumed() {
    // In an order that follows the files, the first group is needed at the first step of an epoch, and the second at
    // its fifth.
    for (bad, good) in [(0, 0), (1, 4)] {
        for threads in [0, 2] {
            let mut fake = Fake::new(&[40; 4]);
            fake.failing.insert(bad);
            let fake = Arc::new(fake);
            let fresh = || loader(&fake, &orders(false, 160), 10, options(50 * ROW_BYTES, threads, 3));

            let mut loader = fresh();
            assert_eq!(loader.by_ref().filter(Result::is_ok).count(), good);
            assert!(loader.next().is_none());
            let told = loader.try_next().unwrap_err();
            assert_eq!(told.row_group(), Some(u64::from(bad)));
            assert_eq!(loader.try_next().unwrap_err().to_string(), told.to_string());

            let mut loader = fresh();
            let (epoch, mut first) = items(&mut loader);
            assert_eq!((epoch, first.pop(), first.len()), (0, Some(Err(told.to_string())), good));
            let state = loader.state();
            assert_eq!((state.epoch, state.consumed), (0, 10 * good as u64));
            for _ in 0..3 {
                assert_eq!(items(&mut loader), (0, vec![Err(told.to_string())]));
                loader.set_epoch(2);
                assert_eq!(items(&mut loader), (0, vec![Err(told.to_string())]));
                assert!(loader.next().is_none());
                assert_eq!(loader.state(), state);
            }

            // Not repaired, it is read again and found as bad.
            let attempts = || fake.attempts[bad as usize].load(Ordering::Relaxed);
            let before = attempts();
            loader.resume(&state).unwrap();
            assert_eq!(loader.next().unwrap().unwrap_err().to_string(), told.to_string());
            assert!(attempts() > before && loader.next().is_none());
            // What is past the damage is served, until the next epoch needs it.
            loader.resume(&State { consumed: 80, ..state }).unwrap();
            assert_eq!(items(&mut loader), (0, (8..16).map(Ok).collect()));
            assert_eq!(items(&mut loader).1.len(), good + 1);
            // A state that is refused changes nothing.
            assert!(loader.resume(&State { fingerprint: 1, ..state }).is_err());
            assert_eq!(items(&mut loader), (1, vec![Err(told.to_string())]));
            // Repaired, it goes on with the step that it stopped at.
            fake.repaired.store(true, Ordering::Relaxed);
            loader.resume(&loader.state()).unwrap();
            assert_eq!(items(&mut loader), (1, (good as u64..16).map(Ok).collect()));
            assert_eq!(items(&mut loader), (2, (0..16).map(Ok).collect()));
            assert!(loader.next().is_none() && loader.try_next().unwrap().is_none());
            fake.repaired.store(false, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_loader_that_was_closed_says_so_and_its_iterators_end() {
    for threads in [0, 2] {
        let fake = Arc::new(Fake::new(&[40; 4]));
        let mut loader = loader(&fake, &orders(false, 160), 10, options(1 << 20, threads, 3));
        assert!(loader.next().unwrap().is_ok());
        let state = loader.state();
        loader.control().close();
        assert_eq!(loader.next().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        assert!(loader.next().is_none());
        assert_eq!(items(&mut loader).1.len(), 1);
        assert_eq!(loader.try_next().unwrap_err().kind(), ErrorKind::Closed);
        loader.resume(&state).unwrap();
        assert_eq!(loader.try_next().unwrap_err().kind(), ErrorKind::Closed);
    }
}

/// Tells calls of this thread to stop, ever more seldom, so that they get somewhere.
fn stopped_now_and_then() -> impl Sized {
    let asked = AtomicU64::new(1);
    Asked::new(move || asked.fetch_add(1, Ordering::Relaxed).is_power_of_two()).enter()
}

/// What is served of two epochs, by calls that are told to stop now and then.
fn served_in_spite_of_stops(loader: &mut Loader) -> Vec<(u64, u64, Vec<u64>)> {
    let _asked = stopped_now_and_then();
    let (mut served, mut stops) = (Vec::new(), 0);
    for _ in 0..2 {
        for batch in loader.epoch() {
            match batch {
                Ok(batch) => served.push((batch.epoch, batch.step, batch.row_ids)),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                    stops += 1;
                }
            }
        }
    }
    // Threads may have a batch before it is asked for.
    assert!(stops > 0 || loader.options.threads > 0, "no call was told");
    served
}

#[test]
fn a_call_that_is_told_to_stop_ends_alone_and_the_next_one_goes_on() {
    let fake = Arc::new(Fake::new(&[37, 5, 60, 0, 41, 22]));
    for (name, orders) in sorts(fake.len()) {
        let made = |threads| loader(&fake, &orders, 7, options(60 * ROW_BYTES, threads, 2));
        let whole: Vec<_> =
            made(0).map(|batch| batch.unwrap()).map(|batch| (batch.epoch, batch.step, batch.row_ids)).collect();
        for threads in [0, 2] {
            assert_eq!(served_in_spite_of_stops(&mut made(threads)), whole, "{name}, {threads} threads");
        }
    }
}

#[test]
fn whoever_waits_for_a_limited_time_gets_the_same_batches() {
    let fake = Arc::new(Fake::new(&[37, 5, 60, 0, 41, 22]));
    for (name, orders) in sorts(fake.len()) {
        for (threads, most) in [(0, Duration::ZERO), (2, Duration::ZERO), (2, Duration::from_micros(50))] {
            let options = |max_wait| Options { max_wait, ..options(60 * ROW_BYTES, threads, 2) };
            let mut whole = loader(&fake, &orders, 7, options(None));
            let mut asked = loader(&fake, &orders, 7, options(Some(most)));
            for _ in 0..2 {
                // An epoch goes on after it has said that nothing is there yet.
                let mut asked = asked.epoch();
                for due in whole.epoch() {
                    let batch = asked.find(|batch| !matches!(batch, Err(error) if is_to_come(error)));
                    let (batch, due) = (batch.unwrap().unwrap(), due.unwrap());
                    assert_eq!((batch.epoch, batch.step, batch.records), (due.epoch, due.step, due.records), "{name}");
                }
                assert!(asked.all(|batch| matches!(batch, Err(error) if is_to_come(&error))), "{name}");
            }
            assert_eq!(asked.epoch().count(), 0);
        }
    }
}

#[test]
fn steps_are_numbered_and_counted_from_the_beginning_of_an_epoch_that_was_resumed() {
    let fake = Arc::new(Fake::new(&[79; 10]));
    let orders = orders(true, 790);
    let ranks = || (0..2).map(|rank| sampler(&orders, rank, 2, 5, Tail::Wrap));
    let state = ranks().next().unwrap().state_after(1, 49).unwrap();
    for threads in [0, 2] {
        let mut loader = Loader::new(each(&fake), ranks().collect(), options(1 << 20, threads, 3)).unwrap();
        loader.resume(&state).unwrap();
        assert_eq!((loader.steps(), loader.steps_left()), (79, 29));
        for step in 50..79 {
            for rank in 0..2 {
                assert_eq!(loader.steps_left(), 79 - step);
                let batch = loader.next().unwrap().unwrap();
                assert_eq!((batch.epoch, batch.step, batch.steps, batch.rank), (1, step, 79, rank));
                assert_eq!((batch.steps_left(), batch.is_last()), (78 - step, step == 78));
            }
        }
        assert_eq!((loader.steps(), loader.steps_left()), (79, 79));
        assert_eq!(loader.epoch().count(), 2 * 79);
        assert_eq!((loader.steps(), loader.steps_left()), (79, 0));
    }
}

/// Counts the epochs that are prepared.
#[derive(Debug)]
struct Prepared {
    orders: Arc<dyn Order>,
    epochs: AtomicU64,
}

impl Order for Prepared {
    fn len(&self) -> u64 {
        self.orders.len()
    }

    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        self.epochs.fetch_add(1, Ordering::Relaxed);
        self.orders.epoch(epoch)
    }

    fn fingerprint(&self) -> u64 {
        self.orders.fingerprint()
    }

    fn name(&self) -> &'static str {
        self.orders.name()
    }
}

/// Breaks at a position.
#[derive(Debug)]
struct Broken(Arc<dyn EpochOrder>, u64);

impl Order for Broken {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn epoch(&self, _: u64) -> Result<Arc<dyn EpochOrder>> {
        Ok(Arc::new(Self(Arc::clone(&self.0), self.1)))
    }

    fn fingerprint(&self) -> u64 {
        1
    }

    fn name(&self) -> &'static str {
        "broken"
    }
}

impl EpochOrder for Broken {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn row(&self, position: u64) -> Option<u64> {
        assert!(position < self.1, "a defect");
        self.0.row(position)
    }

    fn position(&self, row: u64) -> Option<u64> {
        self.0.position(row)
    }
}

#[test]
fn an_order_that_panics_is_an_error_at_the_step_that_needs_the_row() {
    for threads in [0, 2] {
        let fake = Arc::new(Fake::new(&[40; 10]));
        let broken: Arc<dyn Order> = Arc::new(Broken(orders(true, 400).epoch(0).unwrap(), 105));
        let mut loader = loader(&fake, &broken, 10, options(1 << 30, threads, 1));
        for _ in 0..10 {
            assert_values(&loader.try_next().unwrap().unwrap());
        }
        let error = loader.try_next().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().contains("the order panicked"), "{error}");
    }
}

#[test]
fn few_epochs_of_a_tiny_dataset_are_prepared_before_they_are_due() {
    for rows in [1, 2, 3, 50, 1000] {
        for (name, orders) in sorts(rows) {
            for (threads, world, batch, most) in [(0, 1, 2, 2), (0, 3, 1, 2), (2, 1, 2, 6), (2, 3, 1, 6)] {
                let fake = Arc::new(Fake::new(&[rows]));
                let prepared = Arc::new(Prepared { orders: Arc::clone(&orders), epochs: AtomicU64::new(0) });
                let orders: Arc<dyn Order> = prepared.clone();
                let samplers = vec![sampler(&orders, 0, world, batch, Tail::Wrap)];
                let options = Options { epochs: None, ..options(1 << 30, threads, 0) };
                let mut loader = Loader::new(each(&fake), samplers, options).unwrap();
                let mut served = 0;
                while served < 9 {
                    served = loader.next().unwrap().unwrap().epoch;
                    let ahead = prepared.epochs.load(Ordering::Relaxed) - served;
                    assert!(ahead <= most, "{name} of {rows}: {ahead} in epoch {served}, {threads} threads");
                }
            }
        }
    }
}

/// What `Fault::Substitute` specifies, with all losses known from the beginning: the next row in the circle that can be
/// read.
fn substitute(fake: &Fake, seed: u64, row: u64) -> u64 {
    let circle = Global::new(fake.len(), seed).unwrap().epoch(u64::MAX).unwrap();
    let lost = |row: u64| fake.failing.contains(&fake.group(row));
    let start = circle.position(row).unwrap();
    (start..).map(|q| circle.row(q % fake.len()).unwrap()).find(|row| !lost(*row)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_that_are_lost_are_replaced_alike_whatever_the_ranks_the_threads_and_the_memory(
        sizes in prop::collection::vec(0u64..60, 2..12),
        bad in prop::collection::btree_set(0u32..12, 0..6),
        global: bool,
        world in 1u32..4,
        batch in 1usize..40,
        threads in prop::sample::select(vec![0usize, 1, 2, 4]),
        memory in prop::sample::select(vec![0u64, 60, 200, 1000]),
        seed in 0u64..3,
        wide: bool,
        joined in prop::option::of(1u64..300),
    ) {
        let mut fake = Fake::new(&sizes);
        fake.padding = if wide { 600 } else { 0 };
        let bad: BTreeSet<u32> = bad.into_iter().filter(|group| (*group as usize) < sizes.len()).collect();
        prop_assume!(sizes.iter().enumerate().any(|(group, rows)| *rows > 0 && !bad.contains(&(group as u32))));
        fake.failing = bad.clone();
        let fake = Arc::new(fake);
        let orders = orders(global, fake.len());
        for rank in 0..world {
            let samplers = vec![sampler(&orders, rank, world, batch, Tail::Wrap)];
            let fault = Fault::Substitute { seed };
            let options = Options { fault, ..options(memory * fake.row_bytes(), threads, 2) };
            let mut loader = Loader::new(units_of(&fake, joined), samplers.clone(), options).unwrap();
            let (mut replaced, mut groups) = (0, BTreeSet::new());
            fake.attempts.iter().for_each(|attempts| attempts.store(0, Ordering::Relaxed));
            for epoch in 0..2 {
                let plan = samplers[0].plan(epoch).unwrap();
                for expected in plan.batches() {
                    let (expected, batch) = (expected.unwrap(), loader.next().unwrap().unwrap());
                    let rows: Vec<u64> = expected.rows.iter().map(|row| substitute(&fake, seed, *row)).collect();
                    prop_assert_eq!(&batch.row_ids, &rows);
                    assert_values(&batch);
                    let places = (0..rows.len()).filter(|place| rows[*place] != expected.rows[*place]);
                    let told: Vec<_> = places.map(|place| Substituted { place, lost: expected.rows[place] }).collect();
                    groups.extend(told.iter().map(|told| fake.group(told.lost)));
                    replaced += told.len() as u64;
                    prop_assert_eq!(batch.substituted, told);
                }
            }
            prop_assert_eq!(loader.stats().substituted, replaced);
            let lost: BTreeSet<u32> = loader.lost_groups().iter().map(|lost| lost.row_group).collect();
            prop_assert!(groups.is_subset(&lost) && lost.is_subset(&bad), "{:?} {:?} {:?}", groups, lost, bad);
            prop_assert!(loader.next().is_none());
            for group in &bad {
                // Those that found it lost at the same time; where it is one of several, it is then tried alone.
                let attempts = fake.attempts[*group as usize].load(Ordering::Relaxed);
                let each = if joined.is_some() { 2 } else { 1 };
                prop_assert!(attempts <= each * threads.max(1) as u64, "{} attempts", attempts);
            }
        }
    }
}

#[test]
fn what_is_no_fault_of_the_data_ends_the_run_and_replaces_no_row() {
    use ErrorKind::*;
    let of_the_data = [Io, NotFound, Stale, InvalidParquet, UnsupportedParquet, TooLarge, Schema];
    let others = [InvalidIndex, UnsupportedIndex, OutOfRange, InvalidArgument, StateMismatch, Internal];
    for (kind, threads) in of_the_data.into_iter().chain(others).flat_map(|kind| [(kind, 0), (kind, 2)]) {
        let mut fake = Fake::new(&[40; 10]);
        fake.failing.insert(3);
        fake.failing_with = kind;
        let options = Options { fault: Fault::Substitute { seed: 5 }, ..options(100 * ROW_BYTES, threads, 1) };
        let mut loader = loader(&Arc::new(fake), &orders(true, 400), 10, options);
        let outcome: Result<Vec<Batch>> = loader.by_ref().collect();
        if others.contains(&kind) {
            assert_eq!(outcome.unwrap_err().kind(), kind);
            assert!(loader.lost_groups().is_empty());
        } else {
            assert_eq!(outcome.unwrap().iter().map(|batch| batch.substituted.len()).sum::<usize>(), 40);
        }
    }
    // A panic is a defect as well, also where it is met while other rows are replaced.
    let mut fake = Fake::new(&[40; 10]);
    fake.failing.insert(3);
    fake.panicking.insert(7);
    let options = Options { fault: Fault::Substitute { seed: 5 }, ..options(100 * ROW_BYTES, 0, 1) };
    let mut loader = loader(&Arc::new(fake), &orders(false, 400), 10, options);
    let outcome: Result<Vec<Batch>> = loader.by_ref().collect();
    assert_eq!(outcome.unwrap_err().kind(), Internal);
}

#[test]
fn what_was_lost_is_not_tried_again_after_a_resume() {
    let mut fake = Fake::new(&[40; 10]);
    fake.failing.insert(3);
    let fake = Arc::new(fake);
    let options = Options { fault: Fault::Substitute { seed: 5 }, ..options(100 * ROW_BYTES, 0, 3) };
    let mut loader = loader(&fake, &orders(true, 400), 10, options);
    assert_eq!(loader.epoch().filter(Result::is_ok).count(), 40);
    loader.resume(&State { epoch: 1, consumed: 200, ..loader.state() }).unwrap();
    assert_eq!(loader.epoch().filter(Result::is_ok).count(), 20);
    loader.set_epoch(0);
    assert_eq!(loader.epoch().filter(Result::is_ok).count(), 40);
    assert_eq!(fake.attempts[3].load(Ordering::Relaxed), 1);
    assert_eq!(loader.lost_groups()[0].error.row_group(), Some(3));
}

#[test]
fn a_lost_group_costs_a_pass_and_no_more() {
    let sizes = [500; 40];
    let decodes = |bad: Option<u32>| {
        let mut fake = Fake::new(&sizes);
        fake.failing.extend(bad);
        let fake = Arc::new(fake);
        let options = Options { fault: Fault::Substitute { seed: 1 }, ..options(4000 * ROW_BYTES, 2, 3) };
        let mut loader = loader(&fake, &orders(true, 20_000), 32, options);
        assert_eq!(loader.by_ref().filter(Result::is_ok).count(), 3 * 625);
        drop(loader);
        fake.decodes.load(Ordering::Relaxed)
    };
    let (sound, faulty) = (decodes(None), decodes(Some(7)));
    assert!(faulty <= sound + 2 * 40, "{faulty} decodes instead of {sound}");
}

#[test]
fn with_nothing_left_to_read_there_is_an_error() {
    for threads in [0, 2] {
        let mut fake = Fake::new(&[40, 0, 40]);
        fake.failing.extend([0, 1, 2]);
        let fake = Arc::new(fake);
        let options = Options { fault: Fault::Substitute { seed: 0 }, ..options(1 << 20, threads, 1) };
        let mut loader = loader(&fake, &orders(true, 80), 10, options);
        let error = loader.next().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParquet);
        assert!(error.to_string().contains("no row can be read"), "{error}");
        assert!(loader.next().is_none());
    }
}

#[test]
fn a_row_that_is_not_there_is_an_error_at_its_step() {
    let fake = Arc::new(Fake::new(&[40; 2]));
    let orders = orders(false, 100);
    for threads in [0, 2] {
        let mut loader = loader(&fake, &orders, 9, options(1 << 20, threads, 1));
        assert_eq!(loader.by_ref().take(8).filter(Result::is_ok).count(), 8);
        assert_eq!(loader.next().unwrap().unwrap_err().kind(), ErrorKind::OutOfRange);
        assert!(loader.next().is_none());
    }
}

#[test]
fn a_loader_dropped_at_any_time_leaves_no_thread_behind() {
    let mut fake = Fake::new(&[50; 30]);
    fake.delay = Duration::from_millis(2);
    let fake = Arc::new(fake);
    let orders = orders(true, 1500);
    for steps in [0, 1, 2, 5, 30, 149, 150, 151, 299] {
        for threads in [0, 1, 4] {
            let mut loader = loader(&fake, &orders, 10, options(300 * ROW_BYTES, threads, 2));
            assert_eq!(loader.by_ref().take(steps).filter(Result::is_ok).count(), steps);
            let owners = if steps == 0 { 1 } else { 3 };
            assert_eq!(Arc::strong_count(&loader.units), owners, "started before a batch was asked for");
            let began = Instant::now();
            drop(loader);
            assert!(began.elapsed() < Duration::from_secs(30), "it waits for a row group at most");
            assert_eq!(Arc::strong_count(&fake), 1);
        }
    }
}

#[test]
fn epochs_follow_each_other_and_an_abandoned_one_is_not_taken_up_again() {
    let fake = Arc::new(Fake::new(&[30; 4]));
    let orders = orders(true, 120);
    for threads in [0, 2] {
        let mut loader = loader(&fake, &orders, 16, options(60 * ROW_BYTES, threads, 5));
        assert_eq!(loader.epoch().map(|batch| batch.unwrap().epoch).collect::<Vec<_>>(), [0; 8]);
        assert_eq!((loader.state().epoch, loader.state().consumed), (1, 0));
        assert_eq!(loader.epoch().take(3).filter(Result::is_ok).count(), 3);
        assert_eq!((loader.state().epoch, loader.state().consumed), (1, 48));
        assert_eq!(loader.epoch().number(), 2);
        assert_eq!((loader.state().epoch, loader.state().consumed), (2, 0));
        let last: Vec<_> = loader.epoch().map(|batch| batch.unwrap()).collect();
        assert_eq!((last[7].epoch, last[7].step, last[7].is_last(), last[6].is_last()), (2, 7, true, false));
        loader.set_epoch(4);
        assert_eq!(loader.epoch().count(), 8);
        assert_eq!(loader.epoch().count(), 0);
        assert!(loader.next().is_none());
        loader.resume(&State { epoch: 3, consumed: 112, ..loader.state() }).unwrap();
        assert_eq!(loader.epoch().count(), 1);
        assert_eq!(loader.epoch().count(), 8);
        loader.set_epoch(3);
        assert_eq!(loader.epoch().count(), 8);
        let bad = State { fingerprint: 1, ..loader.state() };
        assert_eq!(loader.resume(&bad).unwrap_err().kind(), ErrorKind::StateMismatch);
    }
}

#[test]
fn no_rows_make_no_batches_and_no_endless_loop() {
    let fake = Arc::new(Fake::new(&[0, 0]));
    for threads in [0, 2] {
        let mut loader = loader(&fake, &orders(true, 0), 4, Options { epochs: None, ..options(100, threads, 1) });
        assert_eq!(loader.epoch().count(), 0);
        assert!(loader.next().is_none());
    }
}

#[test]
fn batches_show_rows_where_they_lie_unless_that_keeps_many_others_in_memory() {
    let fake = Arc::new(Fake::new(&[20_000; 4]));
    for (batch, shows) in [(3, false), (500, true)] {
        let mut loader = loader(&fake, &orders(false, 80_000), batch, options(40_000 * ROW_BYTES, 0, 1));
        let mut shown = 0;
        for batch in loader.epoch() {
            let batch = batch.unwrap();
            assert_values(&batch);
            let kept = batch.records.column(0).to_data().buffers()[0].capacity() / 8;
            assert!(kept <= 64 * batch.records.num_rows(), "{kept}");
            // Batches that are copied keep as many as are made together.
            shown += usize::from(kept > 16 * batch.records.num_rows());
        }
        // Horizons that end inside a group leave few rows of it.
        assert!(if shows { shown >= 20 } else { shown == 0 }, "{shown}");
    }
}

#[test]
fn what_is_held_keeps_to_the_memory_even_if_sizes_are_told_wrong() {
    for lie in [0.25, 1.0, 4.0] {
        for (part, threads) in [(0.1, 2), (0.25, 1), (0.5, 4), (0.75, 2)] {
            let mut fake = Fake::new(&[500; 40]);
            fake.lie = lie;
            let fake = Arc::new(fake);
            let all = 20_000.0 * ROW_BYTES as f64;
            let memory = (all * part) as u64;
            let mut loader = loader(&fake, &orders(true, 20_000), 32, options(memory, threads, 3));
            assert_eq!(loader.by_ref().filter(Result::is_ok).count(), 3 * 625);
            let mut loader = self::loader(&fake, &orders(true, 20_000), 32, options(memory, threads, 3));
            assert_eq!(loader.by_ref().take(1800).filter(Result::is_ok).count(), 1800);
            let groups = threads as u64 * 500 * ROW_BYTES * 2;
            let stats = loader.stats();
            assert!(stats.peak_bytes <= memory + groups + memory / 5, "{lie} {part}: {} of {memory}", stats.peak_bytes);
        }
    }
}

#[test]
fn a_prediction_of_many_rows_is_made_on_a_smaller_scale() {
    let fake = Arc::new(Fake::new(&[1 << 24; 64]));
    let orders = orders(true, fake.len());
    let samplers: Arc<[DistributedSampler]> = vec![sampler(&orders, 0, 1, 256, Tail::Wrap)].into();
    let told = estimate::estimate(&each(&fake), &samplers, fake.len() * ROW_BYTES / 10, 2).unwrap();
    // Of a row of 44 bytes another three are known while it is looked ahead at.
    assert!((5.0 * 47.0 / 44.0..5.9).contains(&told.passes), "{told:?}");
    assert_eq!(told.first_batch_decodes, 64);
    // Rows that divide evenly need not do so on that scale.
    let fake = Arc::new(Fake::new(&[65_625; 64]));
    let orders = self::orders(true, fake.len());
    let samplers: Arc<[DistributedSampler]> = vec![sampler(&orders, 0, 6, 256, Tail::Error)].into();
    assert!(estimate::estimate(&each(&fake), &samplers, fake.len() * ROW_BYTES / 10, 2).is_ok());
}

#[test]
fn a_forked_child_is_refused_until_it_goes_on_from_the_state() {
    let fake = Arc::new(Fake::new(&[50; 8]));
    let mut loader = loader(&fake, &orders(true, 400), 7, options(100 * ROW_BYTES, 2, 1));
    let mut rows: Vec<u64> = loader.by_ref().take(5).flat_map(|batch| batch.unwrap().row_ids).collect();
    // As it looks to a child: the threads belong to a process of another number.
    loader.engine.as_mut().unwrap().process ^= 1;
    let error = loader.next().unwrap().unwrap_err();
    assert_eq!((error.kind(), loader.next().is_none()), (ErrorKind::Closed, true));
    loader.resume(&loader.state()).unwrap();
    rows.extend(loader.flat_map(|batch| batch.unwrap().row_ids));
    rows.sort_unstable();
    assert!(rows.into_iter().eq(0..400));
}

#[test]
fn a_memory_that_what_is_known_of_row_groups_would_fill_is_refused_with_the_least_that_works() {
    let fake = Arc::new(Fake::new(&[2; 10_000]));
    let samplers = vec![sampler(&orders(true, 20_000), 0, 1, 100, Tail::Wrap)];
    let told = estimate::estimate(&each(&fake), &samplers.clone().into(), 1 << 20, 0).unwrap();
    let made = |memory: u64| Loader::new(each(&fake), samplers.clone(), options(memory, 0, 1));
    let refused = made(told.least_memory - 1).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(refused.to_string().contains(&told.least_memory.to_string()), "{refused}");
    assert_eq!(made(told.least_memory).unwrap().filter(Result::is_ok).count(), 200);
    assert!(told.bookkeeping_bytes >= told.least_memory / 2, "{told:?}");
}

#[test]
fn ranks_that_differ_in_more_than_the_rank_are_refused() {
    let fake = Arc::new(Fake::new(&[50; 2]));
    let orders = orders(true, 100);
    let one = sampler(&orders, 0, 2, 8, Tail::Wrap);
    for other in [
        sampler(&orders, 1, 2, 9, Tail::Wrap),
        sampler(&orders, 1, 2, 8, Tail::Drop),
        sampler(&orders, 1, 3, 8, Tail::Wrap),
    ] {
        let built = Loader::new(each(&fake), vec![one.clone(), other], Options::default());
        assert_eq!(built.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert!(Loader::new(each(&fake), Vec::new(), Options::default()).is_err());
    let twice = vec![one.clone(), sampler(&orders, 1, 2, 8, Tail::Wrap), one];
    let refused = Loader::new(each(&fake), twice, Options::default()).unwrap_err();
    assert!(refused.to_string().contains("rank 0 is given twice"), "{refused}");
}

#[test]
fn pads_are_marked() {
    let fake = Arc::new(Fake::new(&[5; 2]));
    let orders = orders(false, 10);
    let mut loader =
        Loader::new(each(&fake), vec![sampler(&orders, 2, 4, 2, Tail::Wrap)], options(1000, 0, 1)).unwrap();
    let batches: Vec<Batch> = loader.by_ref().map(|batch| batch.unwrap()).collect();
    assert_eq!(batches[1].row_ids, [0]);
    assert_eq!(batches[1].pad_mask(), BooleanArray::from(vec![true]));
    assert_eq!(batches[0].pad_mask(), BooleanArray::from(vec![false, false]));
}

/// Two files of three row groups, with nulls, long and short strings, lists and dictionary keys.
pub(super) fn files() -> (tempfile::TempDir, Dataset) {
    let dir = tempfile::tempdir().unwrap();
    for file in 0..2u64 {
        let ids: Vec<u64> = (file * 500..(file + 1) * 500).collect();
        let text = |id: &u64| (!id.is_multiple_of(7)).then(|| format!("{id} ").repeat((id % 90) as usize));
        let mut lists = ListBuilder::new(Int32Builder::new());
        ids.iter().for_each(|id| lists.append_option((!id.is_multiple_of(5)).then(|| (0..*id as i32 % 9).map(Some))));
        let times =
            TimestampMillisecondArray::from_iter(ids.iter().map(|id| (!id.is_multiple_of(3)).then_some(*id as i64)));
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("id", Arc::new(UInt64Array::from(ids.clone()))),
            ("text", Arc::new(StringArray::from_iter(ids.iter().map(text)))),
            ("bytes", Arc::new(LargeBinaryArray::from_iter_values(ids.iter().map(|id| vec![*id as u8; 700])))),
            ("list", Arc::new(lists.finish())),
            ("time", Arc::new(times.with_timezone("UTC"))),
            (
                "flag",
                Arc::new(BooleanArray::from_iter(
                    ids.iter().map(|id| (!id.is_multiple_of(4)).then_some(id.is_multiple_of(2))),
                )),
            ),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(190)).build();
        let out = std::fs::File::create(dir.path().join(format!("{file}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(out, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
    let index = dir.path().join("data.rdx");
    IndexBuilder::new([dir.path()]).build(&index).unwrap();
    let dataset = Dataset::open(index).unwrap();
    (dir, dataset)
}

#[test]
fn batches_are_what_the_dataset_takes_as_views_too() {
    let (_dir, dataset) = files();
    let all = dataset.decoded_bytes();
    for (cut, global) in [(1, true), (30, true), (64, false), (600, true)] {
        for (memory, threads, views) in [
            (0, 2, false),
            (all / 10, 0, true),
            (all / 3, 4, false),
            (all / 3, 4, true),
            (all * 3 / 4, 2, false),
            (all * 2, 1, true),
        ] {
            let sampler = sampler(&orders(global, dataset.len()), 1, 2, cut, Tail::Wrap);
            let builder = Loader::builder(&dataset, sampler.clone()).memory(memory).threads(threads).epochs(2);
            assert_eq!(builder.clone().with_views(true).with_views(false).build().unwrap().schema(), *dataset.schema());
            let loader = builder.with_views(views).build().unwrap();
            let schema = loader.schema();
            let types = [schema.field(1).data_type(), schema.field(2).data_type()];
            assert_eq!(types == [&DataType::Utf8View, &DataType::BinaryView], views);
            // Views show what they keep, whatever is decoded after them.
            let kept: Vec<Batch> = loader.map(|batch| batch.unwrap()).collect();
            let plans = (0..2).map(|epoch| sampler.plan(epoch).unwrap());
            let expected: Vec<_> = plans.flat_map(|plan| plan.batches().collect::<Vec<_>>()).collect();
            assert_eq!(kept.len(), expected.len());
            for (batch, expected) in kept.iter().zip(expected) {
                assert_eq!(batch.row_ids, expected.unwrap().rows);
                assert_eq!(batch.records.schema(), schema);
                let own = row_group::finish(&batch.records, dataset.schema()).unwrap();
                assert_eq!(own, dataset.take(&batch.row_ids).unwrap());
            }
        }
    }
}

/// Waits until nothing more is asked for, and returns the row groups that are on their way: at least one of those that
/// are left.
fn asked(store: &Store, left: usize) -> Vec<u32> {
    let (mut before, began) = (usize::MAX, Instant::now());
    loop {
        let asked: Vec<u32> = store.lock().unwrap().iter().map(|(group, _)| *group).collect();
        // A loader that begins has asked for nothing yet.
        if asked.len() == before && asked.is_empty() == (left == 0) {
            return asked;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is asked for, and {left} row groups are left");
        before = asked.len();
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn rows_that_are_there_are_served_while_the_next_row_group_is_on_its_way() {
    for threads in [1, 2] {
        let store = Store::default();
        let fake = Fake { store: Some(Arc::clone(&store)), padding: 1000, ..Fake::new(&[64; 24]) };
        let memory = 16 * 64 * fake.row_bytes();
        let mut samplers = [sampler(&orders(false, fake.len()), 0, 1, 8, Tail::Wrap)];
        let mut loader = Loader::new(each(&Arc::new(fake)), samplers.to_vec(), options(memory, threads, 1)).unwrap();
        let plan = samplers[0].next_epoch().unwrap();
        let (sender, served) = std::sync::mpsc::channel();
        let consumer = std::thread::spawn(move || {
            for batch in loader.by_ref() {
                sender.send(batch.unwrap()).unwrap();
            }
        });
        let (mut steps, mut most, mut left) = (0, 0, 24);
        while steps < plan.steps() {
            let asked = asked(&store, left);
            most = most.max(asked.len());
            // Each row group has the rows of eight steps. Whatever comes before the first that has not arrived must
            // come out.
            let until = asked.first().map_or(plan.steps(), |group| u64::from(*group) * 8);
            while steps < until {
                let batch = served.recv_timeout(Duration::from_secs(20)).unwrap();
                assert_eq!(batch.row_ids, plan.batch(steps).unwrap().rows);
                steps += 1;
            }
            steps += served.try_iter().count() as u64;
            if !asked.is_empty() {
                let (_, done) = store.lock().unwrap().remove(0);
                done.set();
                left -= 1;
            }
        }
        consumer.join().unwrap();
        // A scan holds hardly any rows, so nearly all of the memory is for what is on its way.
        assert!((8..=16).contains(&most), "{most} of 24");
    }
}

#[test]
fn rows_that_are_lost_after_they_were_chosen_as_substitutes_are_chosen_anew() {
    let fake = Arc::new(Fake::new(&[10, 10, 10]));
    let units = units_of(&fake, Some(30));
    let faults = Faults::new(Fault::Substitute { seed: 0 }, &units).unwrap();
    let chosen: Vec<_> = (20..30).map(|row| (row, units.locate(row).unwrap())).collect();
    faults.lose(2, Error::new(ErrorKind::InvalidParquet, "damaged"), &units).unwrap();
    let mut recovery = Recovery {
        units: &units,
        faults: &faults,
        batch_rows: 1,
        unit: 0,
        stays: false,
        held: None,
        prefetch: None,
        decodes: 0,
    };
    assert!(recovery.fetch(&chosen).unwrap().is_none());
    assert_eq!(recovery.decodes, 0);
    let others: Vec<_> = (0..10).rev().map(|row| (row, units.locate(row).unwrap())).collect();
    let fetched = recovery.fetch(&others).unwrap().unwrap();
    assert!(fetched.column(0).as_primitive::<UInt64Type>().values().iter().copied().eq((0..10).rev()));
}
