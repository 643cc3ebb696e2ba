use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, StringViewArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use proptest::prelude::*;

use super::plan::GroupSize;
use super::*;
use crate::order::{Global, Order, Orders, Sequential};
use crate::row_group;
use crate::sampler::{Shard, Tail};

/// A dataset in which row `i` is `(i, "row number i")`.
#[derive(Debug)]
struct Fake {
    /// The first row of each group, and the end.
    starts: Vec<u64>,
    /// What sizes are multiplied with before they are told.
    lie: f64,
    delay: Duration,
    failing: BTreeSet<u32>,
    panicking: BTreeSet<u32>,
    decodes: AtomicU64,
    rows_decoded: AtomicU64,
    busy: AtomicBool,
}

const ROW_BYTES: u64 = 8 + 16 + 20;

impl Fake {
    fn new(sizes: &[u64]) -> Self {
        let mut starts = vec![0];
        for size in sizes {
            starts.push(starts[starts.len() - 1] + size);
        }
        Self {
            starts,
            lie: 1.0,
            delay: Duration::ZERO,
            failing: BTreeSet::new(),
            panicking: BTreeSet::new(),
            decodes: AtomicU64::new(0),
            rows_decoded: AtomicU64::new(0),
            busy: AtomicBool::new(false),
        }
    }

    fn len(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    fn batch(rows: impl Iterator<Item = u64>) -> RecordBatch {
        let ids: Vec<u64> = rows.collect();
        let texts = StringViewArray::from_iter_values(ids.iter().map(|id| format!("row number {id:9}")));
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

    fn size(&self, group: u32) -> GroupSize {
        let rows = self.starts[group as usize + 1] - self.starts[group as usize];
        let bytes = (rows as f64 * ROW_BYTES as f64 * self.lie) as u64;
        GroupSize { rows, bytes, cost: bytes }
    }

    fn locate(&self, row: u64) -> Option<(u32, u32)> {
        if row >= self.len() {
            return None;
        }
        let group = self.starts.partition_point(|start| *start <= row) - 1;
        Some((group as u32, (row - self.starts[group]) as u32))
    }

    fn schema(&self) -> SchemaRef {
        schema(DataType::Utf8View)
    }

    fn decode(&self, group: u32, slots: Option<&[u32]>) -> Result<RecordBatch> {
        self.busy.store(true, Ordering::SeqCst);
        std::thread::sleep(self.delay);
        self.busy.store(false, Ordering::SeqCst);
        assert!(!self.panicking.contains(&group), "a defect");
        if self.failing.contains(&group) {
            return Err(Error::new(ErrorKind::InvalidParquet, "damaged").with_row_group(u64::from(group)));
        }
        self.decodes.fetch_add(1, Ordering::Relaxed);
        let start = self.starts[group as usize];
        let batch = match slots {
            None => Self::batch(start..self.starts[group as usize + 1]),
            Some(slots) => {
                assert!(slots.is_sorted_by(|a, b| a < b));
                Self::batch(slots.iter().map(|slot| start + u64::from(*slot)))
            }
        };
        self.rows_decoded.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        Ok(batch)
    }

    fn output(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        row_group::finish(batch, &schema(DataType::Utf8))
    }
}

fn sampler(orders: &Arc<dyn Orders>, rank: u32, world: u32, batch: usize, tail: Tail) -> DistributedSampler {
    let shard = Shard::new(rank, world).unwrap().with_tail(tail);
    DistributedSampler::new(Arc::clone(orders), shard, batch).unwrap()
}

fn orders(global: bool, len: u64) -> Arc<dyn Orders> {
    if global { Arc::new(Global::new(len, 7).unwrap()) } else { Arc::new(Sequential::new(len).unwrap()) }
}

fn options(memory: u64, threads: usize, epochs: u64) -> Options {
    Options { memory, threads, read_ahead: None, epochs: Some(epochs) }
}

/// Compares with what the samplers say, from `state` on.
fn check(loader: &mut Loader, samplers: &mut [DistributedSampler], epochs: u64) {
    while samplers[0].epoch() < epochs {
        let plans: Vec<_> = samplers.iter_mut().map(|sampler| sampler.next_epoch().unwrap()).collect();
        for step in 0..plans[0].steps() {
            for (plan, sampler) in plans.iter().zip(&*samplers) {
                let expected = plan.batch(step).unwrap();
                let batch = loader.next().unwrap().unwrap();
                assert_eq!((batch.epoch, batch.step, batch.steps), (expected.epoch, step, plan.steps()));
                assert_eq!((batch.rank, batch.pads), (plan.shard().rank(), expected.pads));
                assert_eq!(batch.row_ids, expected.rows);
                assert_values(&batch);
                let _ = sampler;
            }
            assert_eq!(loader.state(), samplers[0].state_after(plans[0].epoch(), step).unwrap());
        }
    }
    assert!(loader.next().is_none());
    assert!(loader.next().is_none());
}

fn assert_values(batch: &Batch) {
    assert_eq!(batch.records.schema(), schema(DataType::Utf8));
    assert_eq!(batch.records.column(0).as_primitive::<UInt64Type>().values(), &batch.row_ids[..]);
    for (text, row) in batch.records.column(1).as_string::<i32>().iter().zip(&batch.row_ids) {
        assert_eq!(text, Some(&*format!("row number {row:9}")));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_are_what_the_sampler_says_whatever_the_threads_and_the_memory(
        sizes in prop::collection::vec(0u64..60, 0..12),
        global: bool,
        world in 1u32..4,
        served in 1u32..3,
        batch in 1usize..40,
        tail in prop::sample::select(vec![Tail::Wrap, Tail::Drop, Tail::Uneven]),
        threads in prop::sample::select(vec![0usize, 1, 2, 4]),
        memory in prop::sample::select(vec![0u64, 60, 200, 400, 1000]),
        read_ahead in prop::option::of(0usize..20),
        resumed in prop::option::of(0u64..20),
    ) {
        let fake = Fake::new(&sizes);
        let orders = orders(global, fake.len());
        let ranks = 0..served.min(world);
        let mut samplers: Vec<_> = ranks.map(|rank| sampler(&orders, rank, world, batch, tail)).collect();
        if let Some(step) = resumed && samplers[0].steps() > 0 {
            let state = samplers[0].state_after(1, step % samplers[0].steps()).unwrap();
            samplers.iter_mut().for_each(|sampler| sampler.resume(&state).unwrap());
        }
        let options = Options { read_ahead, ..options(memory * ROW_BYTES, threads, 4) };
        let fake = Arc::new(fake);
        let mut loader = Loader::new(fake.clone(), samplers.clone(), options).unwrap();
        check(&mut loader, &mut samplers, 4);
        drop(loader);
        prop_assert_eq!(Arc::strong_count(&fake), 1);
    }
}
