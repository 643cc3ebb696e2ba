//! Threads that help another one decode.

use std::sync::Condvar;
use std::thread::{self, ThreadId};

use arrow::array::{BooleanArray, Decimal128Array, Float64Array, Int32Array, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use parquet::basic::Compression;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::*;
use rowdex_base::crew::{self, Job};

/// A part that only another thread than the one that offers it does.
#[derive(Debug, Default)]
pub(super) struct Offered {
    state: Mutex<OfferState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct OfferState {
    is_open: bool,
    /// Who offered it, and who did it.
    threads: Option<(ThreadId, Option<ThreadId>)>,
    /// Reads of threads that nobody could help.
    alone: u64,
}

impl Job for Offered {
    fn has_part(&self) -> bool {
        self.state.lock().unwrap().is_open
    }

    fn help(&self) {
        let mut state = self.state.lock().unwrap();
        if state.is_open {
            state.is_open = false;
            let helper = Some(thread::current().id());
            state.threads = state.threads.map(|(thread, _)| (thread, helper));
            self.changed.notify_all();
        }
    }
}

impl Offered {
    /// The first time, waits until another thread has done the part.
    pub(super) fn offer(self: &Arc<Self>) {
        let Some(crew) = crew::current() else {
            self.state.lock().unwrap().alone += 1;
            return;
        };
        let offer = crew.offer(Arc::clone(self) as Arc<dyn Job>);
        let mut state = self.state.lock().unwrap();
        if state.threads.is_some() {
            return;
        }
        (state.is_open, state.threads) = (true, Some((thread::current().id(), None)));
        drop(state);
        offer.call();
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_timeout_while(state, Duration::from_secs(60), |state| state.is_open).unwrap());
    }
}

#[test]
fn a_thread_with_nothing_to_do_helps_the_one_that_decodes() {
    for (threads, memory) in [(2, 10), (2, 1000), (4, 100)] {
        let offered = Arc::new(Offered::default());
        let fake = Arc::new(Fake { offered: Some(Arc::clone(&offered)), ..Fake::new(&[300]) });
        let mut loader = loader(&fake, &orders(true, 300), 7, options(memory * ROW_BYTES, threads, 2));
        for batch in loader.by_ref() {
            assert_values(&batch.unwrap());
        }
        let state = offered.state.lock().unwrap();
        let helped = state.threads.is_some_and(|(thread, helper)| helper.is_some_and(|helper| helper != thread));
        assert!(helped && state.alone == 0, "{state:?}");
    }
}

#[test]
fn one_thread_and_none_decode_alone() {
    for threads in [0, 1] {
        let offered = Arc::new(Offered::default());
        let fake = Arc::new(Fake { offered: Some(Arc::clone(&offered)), ..Fake::new(&[300, 300]) });
        let loader = loader(&fake, &orders(true, 600), 7, options(100 * ROW_BYTES, threads, 1));
        assert_eq!(loader.filter(Result::is_ok).count(), 86);
        let state = offered.state.lock().unwrap();
        assert!(state.threads.is_none() && state.alone > 1, "{state:?}");
    }
}

fn some_column(draw: &mut ChaCha8Rng, rows: usize) -> ArrayRef {
    let nulls = draw.random::<bool>().then(|| NullBuffer::from_iter((0..rows).map(|_| draw.random_ratio(9, 10))));
    let spread = if draw.random() { 50 } else { 1 << 40 };
    let numbers: Vec<i64> = (0..rows).map(|_| draw.random_range(0..spread)).collect();
    let int = |number: &i64| *number as i32;
    match draw.random_range(0..5) {
        0 => Arc::new(Float64Array::new(numbers.iter().map(|number| *number as f64).collect(), nulls)),
        1 => Arc::new(Int32Array::new(numbers.iter().map(int).collect(), nulls)),
        2 => Arc::new(StringArray::from_iter_values(numbers.iter().map(|number| format!("number {number}")))),
        3 => Arc::new(BooleanArray::from_iter(numbers.iter().map(|number| Some(number % 2 == 0)))),
        _ => {
            let lengths = numbers.iter().map(|number| (number % 4) as usize);
            let offsets = OffsetBuffer::from_lengths(lengths);
            let items = Int32Array::from_iter_values(0..offsets.last().copied().unwrap());
            let item = Arc::new(Field::new("element", DataType::Int32, true));
            Arc::new(ListArray::new(item, offsets, Arc::new(items), nulls))
        }
    }
}

/// One file of one row group with some columns of more than a megabyte, and where its pages end.
fn one_row_group(folder: &std::path::Path, draw: &mut ChaCha8Rng) -> (std::path::PathBuf, usize) {
    const ROWS: usize = 40_000;
    let columns = (0..draw.random_range(3..8)).map(|place| (format!("c{place}"), some_column(draw, ROWS), true));
    let mut columns: Vec<_> = columns.collect();
    // Among others there is one that only the parquet crate decodes, and these add up to enough.
    let times = TimestampMillisecondArray::from_iter_values((0..ROWS as i64).map(|row| row * 7919));
    columns.push(("numbers".into(), Arc::new(UInt64Array::from_iter_values(0..ROWS as u64)), false));
    columns.push(("times".into(), Arc::new(times), false));
    columns.push(("decimals".into(), Arc::new(Decimal128Array::from_iter_values(0..ROWS as i128)), false));
    if draw.random() {
        columns.pop();
    }
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(ROWS))
        .set_compression(Compression::SNAPPY)
        .set_data_page_row_count_limit(5000);
    let path = folder.join("one.parquet");
    let out = std::fs::File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(out, batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    let end = writer.bytes_written();
    let metadata = writer.close().unwrap();
    assert_eq!(metadata.num_row_groups(), 1);
    (path, end)
}

#[test]
fn one_row_group_comes_as_the_same_rows_and_the_same_errors_from_any_number_of_threads() {
    for seed in 0..2 {
        let draw = &mut ChaCha8Rng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let (path, end) = one_row_group(dir.path(), draw);
        let index = dir.path().join("data.rdx");
        IndexBuilder::new([&path]).build(&index).unwrap();
        let open = || Dataset::open(&index).unwrap();
        let all = open().decoded_bytes();
        let serve = |threads: usize, global: bool, memory: u64| {
            let dataset = open();
            let sampler = sampler(&orders(global, dataset.len()), 0, 1, 1000, Tail::Wrap);
            let mut loader =
                Loader::builder(&dataset, sampler).memory(memory).threads(threads).epochs(2).build().unwrap();
            let batches: Vec<RecordBatch> = loader.by_ref().map_while(|batch| batch.ok().map(|b| b.records)).collect();
            let error = loader.try_next().err().map(|error| error.to_string());
            (batches, error, loader.stats().decodes, dataset.counters().bytes_read)
        };
        let compare = |is_sound: bool| {
            for (global, memory) in [(true, all / 4), (false, all / 4), (true, all * 2)] {
                let alone = serve(1, global, memory);
                assert_eq!(alone.1.is_none(), is_sound, "seed {seed}: {:?}", alone.1);
                for threads in [2, 4] {
                    let helped = serve(threads, global, memory);
                    assert!(alone == helped, "seed {seed}, {threads} threads: {:?}, {:?}", alone.1, helped.1);
                }
            }
        };
        compare(true);
        let mut bytes = std::fs::read(&path).unwrap();
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        bytes[end / 8..end - end / 8].iter_mut().step_by(997).for_each(|byte| *byte ^= 0xa5);
        std::fs::write(&path, bytes).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        compare(false);
    }
}
