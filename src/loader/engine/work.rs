//! What a thread of a loader does at a time, and what comes of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::EngineCore;
use crate::dataset::Prefetch;
use crate::loader::assemble::Making;
use crate::loader::carousel::DueRows;
use crate::loader::cutting;
use crate::loader::driver::Driver;
use crate::loader::extract;
use crate::loader::plan::{Measurement, PlanAnswer};
use crate::loader::recovery::{Recovery, caught, panicked};
use crate::loader::schedule::{Extraction, ExtractionOutcome, Read};
use crate::loader::units::some;
use rowdex_rows::{Dictionaries, Held};

impl EngineCore {
    pub(super) fn start_read(&self, mut read: Read) {
        let slots = read.slots.as_mut().map(|slots| extract::distinct(slots));
        let start = || self.units.prefetch(read.unit, some(slots.as_deref()));
        let prefetch = catch_unwind(AssertUnwindSafe(start)).unwrap_or(None);
        if let Some(prefetch) = &prefetch {
            let me = Weak::clone(&self.me);
            let number = read.number;
            prefetch.when_arrived(move || {
                if let Some(shared) = me.upgrade() {
                    shared.lock().schedule.arrived(number);
                    shared.work.notify_all();
                }
            });
        }
        let mut progress = self.lock();
        progress.schedule.read_started(&read, prefetch.as_ref().map(Prefetch::bytes));
        if let Some(prefetch) = prefetch {
            // It may have arrived before the schedule knew of it.
            if prefetch.has_arrived() {
                progress.schedule.arrived(read.number);
            }
            progress.prefetch.insert(read.number, prefetch);
        }
        self.work.notify_all();
    }

    pub(super) fn plan(&self, mut driver: Box<Driver>, measured: &[Measurement]) {
        let began = Instant::now();
        let planned = catch_unwind(AssertUnwindSafe(|| {
            measured.iter().for_each(|measured| driver.plan.note(*measured));
            driver.advance(|near, row| self.faults.resolve(row, near, &self.units))
        }));
        let planned = planned.unwrap_or_else(|_| {
            driver.error = Some(panicked("the order"));
            PlanAnswer::End
        });
        let outlook = driver.plan.outlook();
        let mut progress = self.lock();
        progress.stats.planning += began.elapsed();
        match planned {
            PlanAnswer::Look => {}
            PlanAnswer::Extract(extract) => progress.schedule.add_extraction(extract),
            PlanAnswer::Segment(parts) => {
                if let Some(range) = driver.ranges.pop_front() {
                    progress.schedule.add_segment(range.epoch);
                    progress.tickets.push_back((range, parts));
                }
            }
            // What comes later is prefetched under this lock, so it is seen here or there.
            PlanAnswer::End if driver.has_more() => {}
            PlanAnswer::End => {
                progress.error = driver.error.take();
                self.ready.notify_all();
                progress.schedule.ended = true;
            }
        }
        progress.schedule.planned(outlook);
        progress.driver = Some(driver);
        self.work.notify_all();
    }

    pub(super) fn extract(&self, mut extraction: Extraction, held: Option<Held>, prefetch: Option<Prefetch>) {
        let due = std::mem::take(&mut extraction.extract.due);
        let unit = extraction.extract.unit;
        let keep = extraction.extract.keep;
        let was_held = held.is_some();
        let ahead = prefetch.as_ref().map_or(0, Prefetch::bytes);
        let began = Instant::now();
        let (extracted, decodes) = {
            let mut recovery =
                Recovery { units: &self.units, faults: &self.faults, batch_rows: self.batch_rows, decodes: 0 };
            // Whatever panics, a thread that ends here would be waited for for ever.
            let extracted = caught(self.units.row_groups(unit).start, || {
                cutting::extract(&mut recovery, unit, &due, keep, held, prefetch)
            });
            (extracted, recovery.decodes)
        };
        let took = began.elapsed();
        let link = self.units.groups.link();
        let mut progress = self.lock();
        progress.stats.decodes += decodes;
        progress.stats.extractions += 1;
        let shared = self.units.dictionaries.as_ref().map_or(0, Dictionaries::bytes);
        let mut done = ExtractionOutcome { decodes, read: ahead, shared, ..ExtractionOutcome::default() };
        let (rows, stays) = match extracted {
            Ok(brought) => {
                progress.stats.extracting += brought.picking;
                progress.stats.decoding += took.saturating_sub(brought.picking);
                done.rows = Some(brought.rows.bytes());
                done.stays = brought.stays.as_ref().map(Held::bytes);
                done.decoded = brought.decoded_bytes.map(|bytes| (self.units.size(unit).bytes, bytes));
                done.staged = brought.staged_bytes;
                done.read += brought.read_bytes;
                done.places = brought.places_bytes;
                (brought.rows, brought.stays)
            }
            Err(error) => (DueRows::default().before(error, due.len()), None),
        };
        progress.schedule.extracted(&extraction, done, link);
        if !(was_held && keep) {
            progress.carousel.stay(unit, stays);
        }
        progress.carousel.insert(unit, extraction.number, rows);
        self.work.notify_all();
    }

    pub(super) fn assemble(&self, segment: u64, mut making: Making) {
        let began = Instant::now();
        // What the batches before took tells how many there is room for; the first segments have few.
        let most = self.most_made.checked_div(self.made.load(Ordering::Relaxed)).unwrap_or(u64::MAX);
        let assembled = catch_unwind(AssertUnwindSafe(|| making.assemble(&self.units, most)));
        let assembled = assembled.unwrap_or_else(|_| making.fail(panicked("assembling batches")));
        if let Some(bytes) = assembled.bytes.checked_div(assembled.batches.len() as u64) {
            self.made.store(bytes, Ordering::Relaxed);
        }
        let (freed, rest) = match making.range.batches.is_empty() {
            true => {
                let bytes = making.claimed.bytes;
                drop(making);
                (bytes, None)
            }
            false => (0, Some(making)),
        };
        let mut progress = self.lock();
        progress.stats.assembling += began.elapsed();
        progress.stats.substituted += assembled.batches.iter().map(|batch| batch.substituted.len() as u64).sum::<u64>();
        progress.stats.rows += assembled.batches.iter().map(|batch| batch.row_ids.len() as u64).sum::<u64>();
        progress.schedule.assembled(segment, assembled.batches.len(), assembled.bytes, freed, rest.is_none());
        progress.rest.extend(rest.map(|rest| (segment, rest)));
        progress.out.insert(segment, assembled);
        self.work.notify_all();
        self.ready.notify_all();
    }
}
