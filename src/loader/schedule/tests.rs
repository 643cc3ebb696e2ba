//! The schedule under any sequence of events, without threads and without data.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::loader::driver::{Driver, Epochs};
use crate::loader::groups::UnitSize;
use crate::loader::plan::{Budget, Plan, PlanAnswer};
use crate::loader::tests::Fake;
use crate::loader::units::Units;
use rowdex_order::sampler::{DistributedSampler, Shard};
use rowdex_order::{Global, Order, Sequential};
use rowdex_rows::Cutting;

const ROW: u64 = 100;

/// A loader without data: every task takes a while, and the next one to be done is any of those under way.
struct World {
    schedule: Schedule,
    driver: Option<Driver>,
    ends: Vec<u64>,
    threads: usize,
    remote: bool,
    /// The tasks under way, and reads that have not arrived.
    under_way: Vec<Task>,
    reads: Vec<u64>,
    /// Rows of the segments that were planned, by number, and how many of which row group they are made of.
    segments: BTreeMap<u64, Vec<(u32, u32)>>,
    planned: u64,
    /// The row groups of the extractions that were planned, which of these have begun, and which are done.
    extractions: Vec<u32>,
    begun: BTreeSet<u64>,
    done: BTreeSet<u64>,
    /// The most row groups that were being decoded at once.
    most_decoding: usize,
    stayed: BTreeMap<u32, u64>,
    places: BTreeSet<u32>,
    /// Bytes that are read of a row group, for each byte of it when decoded.
    read: f64,
    /// What is in memory, as counted here.
    held: u64,
    set_aside: u64,
    read_ahead: BTreeMap<u64, u64>,
    /// What the plan knows, the most that this ever was, and the slots of extractions that have not begun.
    listing: u64,
    most_listing: u64,
    slots: BTreeMap<u64, u64>,
    /// Bytes of the segments that were assembled and not taken.
    ready: BTreeMap<u64, u64>,
    assembled: u64,
    /// How many parts are left of segments that are assembled in parts, and the one of which the next may begin.
    parts: BTreeMap<u64, u64>,
    due: Option<u64>,
    /// The most that were being assembled at once.
    most_assembling: usize,
    served: u64,
    peak: u64,
    random: u64,
}

/// The row group that a task decodes.
fn decodes(task: &Task) -> Option<u32> {
    match task {
        Task::Extract(extraction) if !extraction.stayed => Some(extraction.extract.unit),
        _ => None,
    }
}

impl World {
    fn random(&mut self, below: usize) -> usize {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below.max(1) as u64) as usize
    }

    /// Gives whoever is free something to do. Reads are only started, which is done by the next event.
    fn begin(&mut self) {
        while self.under_way.len() < self.threads.max(1)
            && let Some(task) = self.schedule.next()
        {
            match &task {
                Task::Plan(_) => assert!(self.driver.is_some(), "the plan is asked twice at once"),
                Task::Read(read) => {
                    assert!(self.remote && !self.begun.contains(&read.number), "a read that comes too late");
                }
                Task::Extract(extraction) => {
                    let Extraction { number, extract, stayed, needs, .. } = extraction;
                    assert!(self.begun.insert(*number), "an extraction begins twice");
                    for (earlier, unit) in (0..*number).zip(&self.extractions) {
                        let waits = self.under_way.iter().any(|task| decodes(task) == Some(*unit));
                        assert!(waits || self.begun.contains(&earlier), "extractions begin in the order of the plan");
                    }
                    assert_eq!(*stayed, self.stayed.contains_key(&extract.unit));
                    assert!(self.threads == 0 || !self.reads.contains(number), "a thread would wait for the store");
                    let to_stay = |task: &Task| {
                        matches!(task, Task::Extract(other)
                        if other.extract.unit == extract.unit && other.extract.keep && !other.stayed)
                    };
                    assert!(*stayed || !self.under_way.iter().any(to_stay), "decoded twice");
                    let reads = |task: &Task| decodes(task) == Some(extract.unit);
                    assert!(*stayed || !self.under_way.iter().any(reads), "read by two threads at once");
                    self.slots.remove(number);
                    self.read_ahead.remove(number);
                    self.reads.retain(|read| read != number);
                    self.set_aside += needs;
                }
                Task::Assemble(segment) if self.due == Some(*segment) => self.due = None,
                Task::Assemble(segment) => {
                    assert_eq!(*segment, self.assembled, "segments are assembled once each, in order");
                    self.parts.insert(*segment, if segment % 5 == 2 { 3 } else { 1 });
                    self.assembled += 1;
                }
            }
            self.under_way.push(task);
            let assembling = self.under_way.iter().filter(|task| matches!(task, Task::Assemble(_))).count();
            self.most_assembling = self.most_assembling.max(assembling);
            self.most_decoding = self.most_decoding.max(self.under_way.iter().filter_map(decodes).count());
            self.check();
        }
    }

    fn finish(&mut self, task: Task) {
        match task {
            Task::Plan(_) => self.plan(),
            Task::Read(read) => {
                let bytes = (self.random(4) > 0).then(|| self.rows_of(read.unit) * ROW / 2);
                self.schedule.read_started(&read, bytes);
                if let Some(bytes) = bytes {
                    self.read_ahead.insert(read.number, bytes);
                    self.reads.push(read.number);
                }
            }
            Task::Extract(extraction) => {
                let Extraction { number, extract, stayed, needs, .. } = &extraction;
                let rows = extract.due.len() as u64 * ROW;
                let whole = self.rows_of(extract.unit) * ROW;
                let stays = extract.keep.then_some(whole);
                let decoded = (!stayed && !extract.is_sparse()).then_some((whole, whole));
                let decodes = u64::from(!stayed);
                // Of some row groups it is kept where values lie, from the first time on that one does not stay.
                let places = if extract.unit % 3 == 1 && !extract.keep && !stayed { whole / 64 } else { 0 };
                if places > 0 && self.places.insert(extract.unit) {
                    self.held += places;
                }
                let read = if whole < 1 << 20 { 8 << 20 } else { (whole as f64 * self.read) as u64 };
                let came = ExtractionOutcome {
                    decodes,
                    rows: Some(rows),
                    stays,
                    decoded,
                    staged: whole / 8,
                    read,
                    places,
                    shared: 0,
                };
                self.schedule.extracted(&extraction, came, None);
                self.set_aside -= needs;
                self.held += rows;
                if !extract.keep {
                    self.stayed.remove(&extract.unit);
                } else if let Some(bytes) = stays {
                    self.stayed.insert(extract.unit, bytes);
                }
                assert!(self.done.insert(*number));
            }
            Task::Assemble(segment) => {
                let rows: u64 = self.segments[&segment].iter().map(|(_, rows)| u64::from(*rows)).sum();
                let left = self.parts.get_mut(&segment).unwrap();
                *left -= 1;
                // Rows are let go when nothing is left to be made of them.
                let bytes = if segment % 5 == 2 { rows } else { rows * ROW };
                let freed = if *left == 0 { rows * ROW } else { 0 };
                self.schedule.assembled(segment, 1, bytes, freed, *left == 0);
                self.ready.insert(segment, bytes);
                self.held = self.held + bytes - freed;
            }
        }
        self.check();
    }

    fn plan(&mut self) {
        let mut driver = self.driver.take().unwrap();
        let step = driver.advance();
        let outlook = driver.plan.outlook();
        match step {
            PlanAnswer::Look => {}
            PlanAnswer::Extract(extract) => {
                self.slots.insert(self.extractions.len() as u64, extract.due.bytes() as u64);
                self.extractions.push(extract.unit);
                self.schedule.add_extraction(extract);
            }
            PlanAnswer::Segment(parts) => {
                self.segments.insert(self.planned, parts);
                self.planned += 1;
                self.schedule.add_segment(driver.ranges.pop_front().unwrap().epoch);
            }
            PlanAnswer::End => {
                assert!(driver.error.is_none());
                self.schedule.ended = true;
            }
        }
        self.schedule.planned(outlook);
        self.listing = outlook.listing;
        self.most_listing = self.most_listing.max(outlook.listing + self.slots.values().sum::<u64>());
        self.driver = Some(driver);
    }

    /// One thing happens. Returns whether the run is over.
    fn step(&mut self) -> bool {
        self.begin();
        let (tasks, reads) = (self.under_way.len(), self.reads.len());
        let next = self.schedule.next_out();
        let ready = usize::from(self.ready.contains_key(&next));
        if tasks + reads + ready == 0 {
            assert!(self.schedule.is_over(), "nothing can happen any more, and the run is not over");
            return true;
        }
        // With nobody else to work, the consumer does whatever there is before it takes what it wants.
        let which = self.random(tasks + reads + ready);
        if which < tasks {
            let task = self.under_way.swap_remove(which);
            self.finish(task);
        } else if which < tasks + reads {
            let read = self.reads.swap_remove(which - tasks);
            self.schedule.arrived(read);
        } else {
            self.schedule.handed_out();
            self.held -= self.ready.remove(&next).unwrap();
            if self.parts[&next] > 0 {
                assert_eq!(self.schedule.next_out(), next, "the rest comes before the next segment");
                self.due = Some(next);
                self.begin();
                assert!(self.due.is_none() || self.under_way.len() >= self.threads.max(1), "the rest begins at once");
                self.check();
                return false;
            }
            let parts = self.segments.remove(&next).unwrap();
            self.served += parts.iter().map(|(_, rows)| u64::from(*rows)).sum::<u64>();
        }
        self.check();
        false
    }

    fn rows_of(&self, unit: u32) -> u64 {
        let start = if unit == 0 { 0 } else { self.ends[unit as usize - 1] };
        self.ends[unit as usize] - start
    }

    fn check(&mut self) {
        let stayed: u64 = self.stayed.values().sum();
        let read_ahead: u64 = self.read_ahead.values().sum();
        let known = self.listing + self.slots.values().sum::<u64>();
        let bytes = self.held + stayed + self.set_aside + read_ahead + known;
        assert_eq!(self.schedule.bytes().0, bytes, "bytes are counted wrongly");
        self.peak = self.peak.max(bytes);
    }
}

/// What a [`World`] is made of.
struct Made<'a> {
    sizes: &'a [u64],
    memory: u64,
    batch: usize,
    global: bool,
    threads: usize,
    batches_waiting: Option<usize>,
    store: Option<Option<usize>>,
    random: u64,
}

/// Epochs of a run.
const RUN: u64 = 3;

/// Bytes that are kept of where long values of a row group lie, if it has any.
fn places(sizes: &[u64], unit: usize) -> u64 {
    if unit % 3 == 1 { sizes[unit] * ROW / 64 } else { 0 }
}

impl Made<'_> {
    fn world(&self) -> World {
        let Self { sizes, memory, batch, global, threads, batches_waiting, store, random } = *self;
        let rows: u64 = sizes.iter().sum();
        let ends = sizes
            .iter()
            .scan(0, |end, rows| {
                *end += rows;
                Some(*end)
            })
            .collect();
        let units: Vec<UnitSize> =
            sizes.iter().map(|rows| UnitSize { rows: *rows, bytes: rows * ROW, cost: rows * ROW }).collect();
        let largest = sizes.iter().max().unwrap() * ROW;
        let lookahead = Lookahead::of(store.map(|_| largest), memory, threads, store.flatten());
        let settings = Settings {
            memory,
            threads,
            read_ahead: batches_waiting,
            read_concurrency: store.flatten(),
            batch_rows: batch as u64,
            seed: 7,
        };
        let orders: Arc<dyn Order> =
            if global { Arc::new(Global::new(rows, 7).unwrap()) } else { Arc::new(Sequential::new(rows).unwrap()) };
        let sampler = DistributedSampler::new(orders, Shard::new(0, 1).unwrap(), batch).unwrap();
        let (held, batch_rows) = ((memory - lookahead.reserve()) as f64, (batch as u64).min(rows.max(1)));
        let mut plan = Plan::new(&units, Budget { memory: held, batch_rows, cutting: Cutting::Packed }, 1, 7);
        plan.set_aside((0..sizes.len()).map(|unit| places(sizes, unit)).sum());
        let units = Arc::new(Units::new(Arc::new(Fake::new(sizes)), None));
        let walk = Epochs::new(vec![sampler].into(), 0, 0, Some(RUN));
        let driver = Driver::new(plan, Box::new(walk), units.finder(), units, Arc::default());
        World {
            schedule: Schedule::new(settings, lookahead),
            driver: Some(driver),
            ends,
            threads,
            remote: store.is_some(),
            under_way: Vec::new(),
            reads: Vec::new(),
            segments: BTreeMap::new(),
            planned: 0,
            extractions: Vec::new(),
            begun: BTreeSet::new(),
            done: BTreeSet::new(),
            most_decoding: 0,
            stayed: BTreeMap::new(),
            places: BTreeSet::new(),
            read: 1.0,
            held: 0,
            set_aside: 0,
            read_ahead: BTreeMap::new(),
            listing: 0,
            most_listing: 0,
            slots: BTreeMap::new(),
            ready: BTreeMap::new(),
            assembled: 0,
            parts: BTreeMap::new(),
            due: None,
            most_assembling: 0,
            served: 0,
            peak: 0,
            random,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_segment_is_assembled_once_in_order_within_the_memory_and_nothing_waits_for_ever(
        sizes in prop::collection::vec(0u64..80, 1..20),
        part in prop::sample::select(vec![0.0, 0.1, 0.3, 0.6, 1.0, 3.0]),
        batch in 1usize..40,
        global: bool,
        threads in 0usize..5,
        batches_waiting in prop::option::of(0usize..6),
        store in prop::option::of(prop::option::of(1usize..5)),
        random: u64,
    ) {
        let rows: u64 = sizes.iter().sum();
        let largest = sizes.iter().max().unwrap() * ROW;
        let all_places: u64 = (0..sizes.len()).map(|unit| places(&sizes, unit)).sum();
        let memory = (rows as f64 * ROW as f64 * part) as u64;
        let sizes = &sizes[..];
        let mut world = Made { sizes, memory, batch, global, threads, batches_waiting, store, random }.world();
        while !world.step() {}
        prop_assert_eq!(world.served, RUN * rows);
        prop_assert_eq!(world.assembled, world.planned);
        prop_assert_eq!(&world.done, &world.begun);
        prop_assert_eq!(world.done.len(), world.extractions.len());
        let kept: u64 = world.places.iter().map(|unit| places(sizes, *unit as usize)).sum();
        prop_assert_eq!((world.held, world.set_aside, world.read_ahead.len()), (kept, 0, 0));
        prop_assert_eq!(world.schedule.bytes().1, world.peak);
        // An eighth, as rows come and go, and two row groups, or the rows of two batches where these take more. The
        // memory is often less than what is known takes, or getting rows out of a unit.
        let batches = 2 * (batch as u64).min(rows) * ROW;
        let known = world.most_listing + PICKED * (rows / sizes.len() as u64 + sizes.iter().max().unwrap()) * 2;
        let most = memory + memory / 8 + (2 * largest).max(batches) + largest + all_places + known;
        prop_assert!(world.peak <= most, "{} of {}", world.peak, most);
    }
}

impl World {
    /// Runs to the end, where these tasks take longer than all else; says what is under way before any of them is done.
    fn run_slowly(&mut self, is_slow: impl Fn(&Task) -> bool, mut watch: impl FnMut(&Self)) {
        loop {
            self.begin();
            if let Some(quick) = self.under_way.iter().position(|task| !is_slow(task)) {
                let task = self.under_way.swap_remove(quick);
                self.finish(task);
                continue;
            }
            watch(self);
            if self.step() {
                return;
            }
        }
    }
}

fn is_decoding(task: &Task) -> bool {
    decodes(task).is_some()
}

/// In batches of ten rows.
fn made(sizes: &[u64], part: f64, global: bool, threads: usize) -> Made<'_> {
    let memory = (sizes.iter().sum::<u64>() as f64 * ROW as f64 * part) as u64;
    Made { sizes, memory, batch: 10, global, threads, batches_waiting: None, store: None, random: 1 }
}

#[test]
fn threads_assemble_at_once_where_the_memory_has_room_for_it() {
    // How many batches of a hundred rows fit the memory, and how many are assembled at once by so many threads.
    for (fit, threads, most) in [(2.0, 4, 1), (40.0, 1, 1), (40.0, 2, 2), (40.0, 4, 4)] {
        for random in 0..4 {
            let made = Made { batch: 100, random, ..made(&[100; 20], fit / 20.0, true, threads) };
            let mut world = made.world();
            world.run_slowly(|task| matches!(task, Task::Assemble(_)), |_| {});
            assert_eq!((world.served, world.most_assembling), (RUN * 2000, most), "{fit} fit, {threads} threads");
        }
    }
}

#[test]
fn in_the_files_order_each_thread_decodes_even_if_all_stay() {
    for (part, threads) in [(0.5, 2), (1.0, 2), (3.0, 2), (3.0, 3)] {
        let mut world = made(&[100; 20], part, false, threads).world();
        world.run_slowly(is_decoding, |_| {});
        assert_eq!((world.served, world.most_decoding), (RUN * 2000, threads), "with memory for {part} of the rows");
    }
}

#[test]
fn threads_decode_at_once_where_little_is_read_of_a_row_group() {
    // Of 25 MB each; what is read of them is counted beyond 8 MiB for each thread.
    let sizes = [250_000, 10].repeat(6);
    let at_once = |read: f64| {
        let mut world = World { read, ..Made { batch: 1000, ..made(&sizes, 1.0 / 3.0, true, 2) }.world() };
        let mut decoding = [0; 3];
        world.run_slowly(is_decoding, |world| {
            // Waiting for the consumer, who takes what there is first, takes as long.
            let large = |unit: &u32| sizes[*unit as usize] > 10 && world.ready.is_empty();
            decoding[world.under_way.iter().filter_map(decodes).filter(large).count()] += 1;
        });
        decoding[2] * 100 / (decoding[1] + decoding[2])
    };
    assert!(at_once(0.3) > 40, "{} of 100", at_once(0.3));
    assert!(at_once(1.5) < 20, "{} of 100", at_once(1.5));
}
