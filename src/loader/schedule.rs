//! What comes next: whether to plan further, read ahead, extract rows or assemble a segment, within the memory.
//!
//! The schedule knows neither threads nor data nor the clock. It is told what has happened and says what to do, so it
//! is tested like the plan, over any sequence of events. In this order it asks for a segment whose rows are all there,
//! a read to be started, an extraction that the memory permits, and a further step of the plan; only while less is on
//! its way than should be, the plan comes before the extraction.
//!
//! It never waits for ever: an extraction that the next segment needs is asked for whatever memory it takes, once
//! nothing else goes on and the consumer has taken all that there is.

mod memory;
mod told;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(crate) use self::memory::excess;
use self::memory::{BytesInUse, READ, SmoothedRatio};
pub(crate) use self::told::{Extraction, ExtractionOutcome, Read, Settings, Task};
use super::lookahead::{Lookahead, ReadTiming};
use super::plan::{Extract, Measurement, Outlook, PICKED};
use rowdex_io::source::Link;

/// Segments of more epochs than the consumer's and so many are not planned before it takes some: preparing an epoch may
/// take time and memory in proportion to the rows.
const EPOCHS_AHEAD: u64 = 2;

/// Decides what is done next.
#[derive(Debug)]
pub(crate) struct Schedule {
    settings: Settings,
    memory: BytesInUse,
    planning: Planning,
    /// Whether the run ends with what was planned; more may come after.
    pub(crate) ended: bool,
    reads: ReadsAhead,
    extractions: Extractions,
    segments: Segments,
    /// How much of a decoded row group is in memory at once, beside the rows that are kept of it: little where chunks
    /// come and go, all of it where the rows are views of its pages.
    staged: SmoothedRatio,
    /// What is read of a row group, and its open pages.
    read: SmoothedRatio,
    /// Extractions and assemblies that are under way.
    running: usize,
}

#[derive(Debug, Default)]
struct Planning {
    under_way: bool,
    /// What was measured since the plan was last asked.
    measured: Vec<Measurement>,
    outlook: Outlook,
}

#[derive(Debug)]
struct ReadsAhead {
    lookahead: Lookahead,
    /// The first extraction for which it was not decided yet whether to read ahead.
    next: u64,
    /// The extraction for which a read is being started.
    starting: Option<u64>,
    /// Bytes, and whether they are there, by the number of the extraction.
    under_way: BTreeMap<u64, (u64, bool)>,
    /// The extraction that was waited for, with as much read ahead as may be.
    late: Option<u64>,
    /// Bytes read ahead so far, and what they take when decoded.
    expansion: (u64, u64),
}

#[derive(Debug, Default)]
struct Extractions {
    planned: VecDeque<(u64, Extract)>,
    /// The number of the next one to be planned.
    next: u64,
    /// All before this one are done, and these after it.
    done_before: u64,
    done: BTreeSet<u64>,
    /// Row groups that are being decoded, and whether they stay.
    under_way: BTreeMap<u32, bool>,
    /// Row groups that stayed decoded, and their bytes.
    stayed: BTreeMap<u32, u64>,
    /// Row groups of which it is kept where long values lie, and the bytes of that.
    places: BTreeMap<u32, u64>,
    /// Row groups decoded so far.
    decodes: u64,
}

#[derive(Debug, Default)]
struct Segments {
    /// For each that was planned and not begun, the extraction before which all must be done.
    planned: VecDeque<u64>,
    /// The number of the next one to be planned.
    next: u64,
    /// The epochs of those that were planned and not handed out.
    epochs: VecDeque<u64>,
    assembling: usize,
    /// Those of which some batches are made, and the one of these whose batches were handed out.
    begun: BTreeSet<u64>,
    due: Option<u64>,
    /// Bytes and batches of those that wait for the consumer.
    ready: BTreeMap<u64, (u64, usize)>,
    /// The number of the next one to be handed out.
    next_out: u64,
}

impl Schedule {
    pub(crate) fn new(settings: Settings, lookahead: Lookahead) -> Self {
        let under_way = BTreeMap::new();
        let expansion = (0, 0);
        let reads = ReadsAhead { lookahead, next: 0, starting: None, under_way, late: None, expansion };
        let planning = Planning { outlook: Outlook { segments_ready: 1, ..Outlook::default() }, ..Planning::default() };
        Self {
            settings,
            memory: BytesInUse::default(),
            planning,
            ended: false,
            reads,
            extractions: Extractions::default(),
            segments: Segments::default(),
            staged: SmoothedRatio(1.0),
            read: SmoothedRatio(READ),
            running: 0,
        }
    }

    /// What to do next, if anything can be done before something else has happened.
    pub(crate) fn next(&mut self) -> Option<Task> {
        if let Some(segment) = self.next_segment() {
            return Some(Task::Assemble(segment));
        }
        if let Some(read) = self.next_read() {
            return Some(Task::Read(read));
        }
        // An extraction may wait for the store, and all that is not asked for before it waits with it.
        let hungry = self.may_read_ahead();
        let plan = if hungry { self.next_plan() } else { None };
        plan.or_else(|| self.next_extraction()).or_else(|| self.next_plan())
    }

    /// The number of the next segment to hand out.
    pub(crate) fn next_out(&self) -> u64 {
        self.segments.next_out
    }

    /// Whether everything was planned and handed out.
    pub(crate) fn is_over(&self) -> bool {
        self.ended && self.segments.next_out == self.segments.next
    }

    /// Bytes in memory now, and the most that ever were.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.memory.total(), self.memory.peak)
    }

    fn next_segment(&mut self) -> Option<u64> {
        if let Some(begun) = self.segments.due.take() {
            self.segments.assembling += 1;
            self.running += 1;
            return Some(begun);
        }
        let needs = *self.segments.planned.front()?;
        if needs > self.extractions.done_before || !self.has_room() {
            return None;
        }
        self.segments.planned.pop_front();
        self.segments.assembling += 1;
        self.running += 1;
        Some(self.segments.next - self.segments.planned.len() as u64 - 1)
    }

    fn has_room(&self) -> bool {
        let Segments { ready, assembling, .. } = &self.segments;
        match self.settings.read_ahead {
            None => {
                let Outlook { segments_ready, segment_bytes, .. } = self.planning.outlook;
                // More at once where threads have nothing else to do and there is memory that nobody needs.
                let free = self.settings.memory.saturating_sub(self.memory.total());
                let fits = segment_bytes.saturating_mul(*assembling as u64 + 1) <= free;
                ready.len() + assembling < segments_ready
                    || (fits && ready.len() < segments_ready && *assembling < self.settings.threads)
            }
            Some(limit) => {
                let waiting: usize = ready.values().map(|(_, batches)| batches).sum();
                *assembling == 0 && (waiting < limit || ready.is_empty())
            }
        }
    }

    fn next_plan(&mut self) -> Option<Task> {
        let Planning { under_way, outlook, .. } = &self.planning;
        // Until a row group is decoded nobody knows what rows really take, so no more is planned than must be; or,
        // where that would cost the latency of a store once more, than fits if they take this many times as much, which
        // strings behind a dictionary hardly exceed.
        const MORE: u64 = 8;
        let harmless = self.reads.lookahead.reserve() > 0 && outlook.held < self.settings.memory / MORE;
        let unmeasured = self.extractions.decodes == 0 && self.extractions.next > 0 && !harmless;
        // Two for each thread, as one may be of a unit that another decodes, and one while the plan is asked.
        let ahead = 2 * self.settings.threads + 1 + self.reads.under_way.len();
        let far = |epochs: &VecDeque<u64>| epochs.back().zip(epochs.front()).map_or(0, |(last, first)| last - first);
        let due = !under_way
            && !self.ended
            && self.extractions.planned.len() < (if unmeasured { 1 } else { ahead })
            && self.segments.planned.len() < self.segments_planned()
            && far(&self.segments.epochs) < EPOCHS_AHEAD;
        due.then(|| {
            self.planning.under_way = true;
            Task::Plan(std::mem::take(&mut self.planning.measured))
        })
    }

    /// Bytes of what is read of a row group and of its open pages, beyond those that are free for each thread.
    fn read(&self, whole: u64) -> u64 {
        /// For all threads together: row groups of the usual sizes have no more, and it is a part of the constant that
        /// a loader takes besides its memory.
        const FREE: u64 = 16 << 20;
        self.read.of(whole).saturating_sub(FREE / self.settings.threads.max(1) as u64)
    }

    fn excess(&self) -> u64 {
        excess(self.planning.outlook.largest, self.settings.memory, self.settings.threads)
    }

    /// The most that may be in memory, unless something else must be done.
    fn most(&self) -> u64 {
        self.settings.memory.saturating_add(self.excess())
    }

    /// How many segments may be planned before their rows are there.
    fn segments_planned(&self) -> usize {
        // So far ahead that the memory, not the plan, is what holds the threads up: as segments are at most a 128th of
        // the memory each, these are by how much it may be exceeded.
        const SEGMENTS_PLANNED: usize = 16;
        // Lists of what small segments are made of would take more than their rows.
        const MOST: usize = 1 << 12;
        let outlook = &self.planning.outlook;
        let ahead = self.reads.lookahead.bytes(outlook.held);
        if ahead <= self.memory.read_ahead && !self.extractions.planned.is_empty() {
            return SEGMENTS_PLANNED;
        }
        // An order that follows the files has all rows of a row group before the next one is asked for: without more,
        // there would never be a second one to decode meanwhile.
        let (read, decoded) = self.reads.expansion;
        let decoded = u128::from(ahead) * u128::from(decoded.max(1)) / u128::from(read.max(1));
        let segments = (decoded + u128::from(self.excess())) / u128::from(outlook.segment_bytes.max(1));
        SEGMENTS_PLANNED + usize::try_from(segments).unwrap_or(usize::MAX).min(MOST)
    }

    fn may_read_ahead(&self) -> bool {
        self.settings.read_concurrency.is_none_or(|most| self.reads.under_way.len() < most)
            && self.memory.read_ahead < self.reads.lookahead.bytes(self.planning.outlook.held)
            // More rows than planned may be held for a while, and the plan follows slowly when more is to be on its
            // way.
            && self.memory.total() < self.most()
    }

    /// The next read to start. Starting it takes a moment, so that comes before all that takes longer, one at a time.
    pub(crate) fn next_read(&mut self) -> Option<Read> {
        if self.reads.starting.is_some() {
            return None;
        }
        while self.may_read_ahead() {
            let Extractions { planned, stayed, under_way, .. } = &self.extractions;
            let (number, extract) = planned.iter().find(|(number, _)| *number >= self.reads.next)?;
            self.reads.next = number + 1;
            let unit = extract.unit;
            let held = stayed.contains_key(&unit) || under_way.get(&unit) == Some(&true);
            let kept_before = |(other, before): &&(u64, Extract)| other < number && before.unit == unit && before.keep;
            if !(held || planned.iter().any(|planned| kept_before(&planned))) {
                self.reads.starting = Some(*number);
                let slots = extract.is_sparse().then(|| extract.due.slots.to_vec());
                return Some(Read { number: *number, unit, slots, whole: extract.whole });
            }
        }
        None
    }

    fn next_extraction(&mut self) -> Option<Task> {
        let Extractions { planned, stayed, .. } = &self.extractions;
        let at = self.first_free()?;
        let (number, extract) = planned.get(at)?;
        let stayed = stayed.contains_key(&extract.unit);
        if self.reads.starting == Some(*number) {
            return None;
        }
        let picked = PICKED * extract.due.len() as u64;
        let needs = extract.bytes
            + picked
            + match stayed {
                true => 0,
                false if extract.keep => extract.whole,
                false => self.staged.of(extract.whole),
            }
            + if stayed { 0 } else { self.read(extract.whole) };
        // When nothing else goes on and the consumer waits for just this, it must be done whatever it takes.
        let due = self.segments.planned.front().is_none_or(|needed| number < needed);
        let must = due && self.running == 0 && self.segments.ready.is_empty();
        let outlook = &self.planning.outlook;
        let segments = outlook.segments_ready.saturating_sub(self.segments.ready.len()) as u64;
        let needed = self.memory.total() + needs + segments * outlook.segment_bytes;
        if !must && needed > self.most() {
            return None;
        }
        let read = self.reads.under_way.get(number).copied();
        if self.settings.threads > 0 && !stayed && read.is_some_and(|(_, arrived)| !arrived) {
            // There may be other work before it comes, such as rows that somebody waits for.
            if !self.may_read_ahead() {
                self.reads.late = Some(*number);
            }
            return None;
        }
        let (number, extract) = self.extractions.planned.remove(at)?;
        self.running += 1;
        let found = self.found(number);
        if let Some((bytes, _)) = self.reads.under_way.remove(&number) {
            // While it is decoded it is no longer read ahead: its compressed bytes come on top of the memory, as those
            // of any row group do.
            self.memory.read_ahead -= bytes;
        }
        self.memory.planned -= extract.due.bytes() as u64;
        self.memory.in_flight += needs;
        self.memory.note_peak();
        if !stayed {
            self.extractions.under_way.insert(extract.unit, extract.keep);
        }
        Some(Task::Extract(Extraction { number, extract, stayed, needs, found }))
    }

    /// Where the first extraction is that waits for no row group that is being decoded.
    ///
    /// A row group is read by one thread at a time: what that leaves behind, on disk or in memory, is there for the
    /// next one. Extractions from other row groups do not wait for it: in the files' order those from one row group
    /// follow each other.
    fn first_free(&self) -> Option<usize> {
        let Extractions { planned, stayed, under_way, .. } = &self.extractions;
        planned
            .iter()
            .position(|(_, extract)| stayed.contains_key(&extract.unit) || !under_way.contains_key(&extract.unit))
    }

    /// What an extraction finds of what was read ahead.
    fn found(&self, number: u64) -> ReadTiming {
        let Some((own, _)) = self.reads.under_way.get(&number) else { return ReadTiming::InTime };
        if self.reads.late == Some(number) {
            return ReadTiming::Late;
        }
        let others = self.reads.under_way.iter().filter(|(other, (_, arrived))| **other != number && *arrived);
        let arrived: u64 = others.map(|(_, (bytes, _))| bytes).sum();
        if arrived > (self.memory.read_ahead - own) / 3 { ReadTiming::Plenty } else { ReadTiming::InTime }
    }

    /// The plan asks for an extraction.
    pub(crate) fn add_extraction(&mut self, extract: Extract) {
        self.memory.planned += extract.due.bytes() as u64;
        self.extractions.planned.push_back((self.extractions.next, extract));
        self.extractions.next += 1;
    }

    /// The plan has asked for all that a segment of this epoch needs.
    pub(crate) fn add_segment(&mut self, epoch: u64) {
        self.segments.planned.push_back(self.extractions.next);
        self.segments.epochs.push_back(epoch);
        self.segments.next += 1;
    }

    /// The plan took a step, whatever came of it.
    pub(crate) fn planned(&mut self, outlook: Outlook) {
        self.planning.under_way = false;
        self.planning.outlook = outlook;
        self.memory.listing = outlook.listing;
        self.memory.note_peak();
    }

    /// A read was started, of so many bytes; or there is none, and the extraction reads for itself.
    pub(crate) fn read_started(&mut self, read: &Read, bytes: Option<u64>) {
        self.reads.starting = None;
        let Some(bytes) = bytes else { return };
        self.memory.read_ahead += bytes;
        self.memory.note_peak();
        if read.slots.is_none() {
            let (all, decoded) = self.reads.expansion;
            self.reads.expansion = (all + bytes, decoded.saturating_add(read.whole));
        }
        self.reads.under_way.insert(read.number, (bytes, false));
    }

    /// What was read ahead for this extraction is there.
    pub(crate) fn arrived(&mut self, number: u64) {
        if let Some((_, arrived)) = self.reads.under_way.get_mut(&number) {
            *arrived = true;
        }
    }

    /// An extraction is done, over a link that was measured meanwhile.
    pub(crate) fn extracted(&mut self, extraction: &Extraction, done: ExtractionOutcome, link: Option<Link>) {
        /// Of the bytes of the largest row group, those with such a part tell what is read of it.
        const LIKE: u64 = 4;
        let Extraction { number, extract, stayed, needs, found } = extraction;
        if self.reads.lookahead.note(*number, *found, self.reads.next, link) {
            let memory = self.settings.memory - self.reads.lookahead.reserve();
            self.planning.measured.push(Measurement::Memory(memory.saturating_sub(self.memory.shared)));
        }
        if let more @ 1.. = done.shared.saturating_sub(self.memory.shared) {
            self.memory.held += more;
            self.memory.shared += more;
            self.planning.measured.push(Measurement::Shared(more));
        }
        self.running -= 1;
        self.memory.in_flight -= needs;
        let Extractions { under_way, stayed: stays, decodes, places, .. } = &mut self.extractions;
        if !stayed {
            under_way.remove(&extract.unit);
            // What is measured with a small row group may be what another thread has read of a large one.
            if extract.whole.saturating_mul(LIKE) >= self.planning.outlook.largest {
                self.read.add(done.read, extract.whole);
            }
        }
        *decodes += done.decodes;
        if done.places > 0 {
            let before = places.insert(extract.unit, done.places).unwrap_or(0);
            self.memory.held = self.memory.held + done.places - before;
        }
        if let Some((estimate, real)) = done.decoded {
            self.planning.measured.push(Measurement::Decoded(estimate, real));
        }
        if let Some(rows) = done.rows {
            if !extract.keep {
                // Short extractions from row groups that stay would say more of allocations than of rows.
                self.planning.measured.push(Measurement::Kept(extract.estimate, rows));
            }
            if !stayed && !extract.keep {
                self.staged.add(done.staged, extract.whole);
            }
            self.memory.held += rows;
        }
        if !(*stayed && extract.keep) {
            let removed = stays.remove(&extract.unit).unwrap_or(0);
            if let Some(bytes) = done.stays {
                stays.insert(extract.unit, bytes);
                self.memory.held += bytes;
            }
            self.memory.held -= removed;
        }
        self.extractions.done.insert(*number);
        while let before = self.extractions.done_before
            && self.extractions.done.remove(&before)
        {
            self.extractions.done_before += 1;
        }
        self.memory.note_peak();
    }

    /// A segment was assembled into so many batches of so many bytes, out of rows of which so many bytes were let go;
    /// or the next part of it, if it is not `done`. The rest is asked for once this part is handed out.
    pub(crate) fn assembled(&mut self, segment: u64, batches: usize, bytes: u64, freed: u64, done: bool) {
        if !done {
            self.segments.begun.insert(segment);
        }
        self.running -= 1;
        self.segments.assembling -= 1;
        self.memory.held = self.memory.held + bytes - freed;
        self.memory.note_peak();
        self.segments.ready.insert(segment, (bytes, batches));
    }

    /// The consumer has taken what was made of the next segment.
    pub(crate) fn handed_out(&mut self) {
        if let Some((bytes, _)) = self.segments.ready.remove(&self.segments.next_out) {
            self.memory.held -= bytes;
        }
        if self.segments.begun.remove(&self.segments.next_out) {
            self.segments.due = Some(self.segments.next_out);
            return;
        }
        self.segments.next_out += 1;
        self.segments.epochs.pop_front();
    }
}

#[cfg(test)]
mod tests;
