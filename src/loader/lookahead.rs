//! How many bytes of a store to have on their way: as many as the link holds, and no more.
//!
//! By Little's law again, for `λ` bytes a second that arrive `W` after they were asked for, `λW` must be under way. A
//! reader that is kept waiting by what it asked for too late measures a `λ` that is too low, and so would ask for
//! less; what tells is whether it waits. So, as AMP does for disks (B. Gill and L. Bathen, "AMP: Adaptive
//! Multi-stream Prefetching in a Shared Cache", FAST 2007), more is asked for when a row group had not arrived when
//! it was due, and less when for a while a third of what was asked for later ones had, too. Where the link is the
//! limit every row group is late, and more under way would only wait in line: beyond twice the bandwidth-delay
//! product that is measured it does not grow (the gain of BBR's start: Cardwell et al., "BBR: Congestion-Based
//! Congestion Control", 2016).
//!
//! What is on its way takes memory from the rows that are held, which is paid for in passes. While the link is waited
//! for, bytes come in proportion to what is under way, and with a part `a` of the memory for that and `1 - a` for rows
//! an epoch takes a time of `1 / (a (1 - a))`. That is least at a half, but a quarter is within a third of it and costs
//! a third fewer requests and bytes. Memory for which the order has no use, because it follows the files or the run has
//! just begun, is free.

use super::units::Units;
use rowdex_io::source::Link;

/// What is aimed at before anything is measured: 50 ms of ten gigabits a second. To begin with less would cost a
/// latency for each doubling, and nothing is held yet for which the memory would be needed.
const START: u64 = 64 << 20;

/// It never becomes less than this.
const LEAST: u64 = 1 << 20;

/// What is aimed at, in bandwidth-delay products.
const GAIN: u64 = 2;

/// So many extractions that found more than they needed, and none that was late, are no accident.
const PLENTY: u32 = 8;

/// What an extraction found of what was read ahead for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadTiming {
    /// It had to wait, although no more could be asked for before.
    Late,
    InTime,
    /// A third of what was asked for later extractions was there as well.
    Plenty,
}

/// The bytes to have on their way, or arrived and not yet decoded.
#[derive(Debug, Clone)]
pub(crate) struct Lookahead {
    bytes: u64,
    memory: u64,
    /// The most that is taken from the rows that are held.
    share: u64,
    /// What threads need besides, to decode at once.
    decoding: u64,
    /// Whether the caller chose how much it is.
    chosen: bool,
    /// Whether it was never too much yet.
    growing: bool,
    plenty: u32,
    /// The first extraction that was read ahead since `bytes` was last changed.
    changed_at: u64,
}

impl Lookahead {
    /// For row groups of a store, within `memory`; none for others. `read_concurrency` chooses how many, and then it
    /// does not adapt.
    pub(crate) fn new(units: &Units, memory: u64, threads: usize, read_concurrency: Option<usize>) -> Self {
        let costs = || units.sizes.iter().map(|size| size.cost);
        let largest = units.form.is_remote.then(|| costs().max().unwrap_or(0));
        Self::of(largest, memory, threads, read_concurrency)
    }

    /// For row groups of a store of which the largest takes so many bytes; with `None`, for local ones.
    pub(super) fn of(largest: Option<u64>, memory: u64, threads: usize, read_concurrency: Option<usize>) -> Self {
        let bytes = match (largest, read_concurrency) {
            (None, _) => 0,
            (_, None) => START,
            (Some(largest), Some(row_groups)) => largest.saturating_mul(row_groups as u64),
        };
        Self {
            bytes,
            memory,
            share: if largest.is_some() { memory / 4 } else { 0 },
            decoding: largest.unwrap_or(0).saturating_mul(2 * threads.max(1) as u64),
            chosen: read_concurrency.is_some() || bytes == 0,
            growing: true,
            plenty: 0,
            changed_at: 0,
        }
    }

    /// What the rows that are held have to do without.
    pub(crate) fn reserve(&self) -> u64 {
        self.bytes.min(self.share)
    }

    /// How many bytes while rows take so many. A row group is asked for as long as there are fewer, so it may be one
    /// row group more.
    pub(crate) fn bytes(&self, held: u64) -> u64 {
        self.bytes.min(self.share.max(self.memory.saturating_sub(held.saturating_add(self.decoding))))
    }

    /// Takes note of what the extraction of this number found, where `next` is the first that is not read ahead yet,
    /// and says whether the reserve has changed.
    pub(crate) fn note(&mut self, number: u64, found: ReadTiming, next: u64, link: Option<Link>) -> bool {
        let before = self.reserve();
        match (found, link) {
            _ if self.chosen => {}
            (ReadTiming::Late, Some(link)) => {
                self.plenty = 0;
                // What was asked for before says nothing of the change.
                if number >= self.changed_at {
                    self.late(link, next);
                }
            }
            (ReadTiming::Plenty, _) => {
                self.plenty += 1;
                if self.plenty == PLENTY {
                    self.bytes = (self.bytes - self.bytes / 8).max(LEAST);
                    (self.plenty, self.growing) = (0, false);
                }
            }
            _ => {}
        }
        self.reserve() != before
    }

    fn late(&mut self, link: Link, next: u64) {
        let aim = link.bandwidth_delay().saturating_mul(GAIN).clamp(LEAST, self.memory.max(LEAST));
        let step = if self.growing { self.bytes } else { self.bytes / 8 };
        if aim > self.bytes {
            self.bytes = aim.min(self.bytes.saturating_add(step));
        } else if aim < self.bytes / 2 {
            self.bytes /= 2;
        } else {
            return;
        }
        self.changed_at = next;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use super::*;

    fn started(memory: u64) -> Lookahead {
        let (share, decoding) = (memory / 4, 0);
        Lookahead { bytes: START, memory, share, decoding, chosen: false, growing: true, plenty: 0, changed_at: 0 }
    }

    /// A store and a decoder, in seconds and bytes a second.
    #[derive(Debug, Clone, Copy)]
    struct World {
        latency: f64,
        link: f64,
        decoder: f64,
        group: u64,
    }

    /// One row group after the other is read through and decoded. Returns bytes a second over the second half.
    fn run(ahead: &mut Lookahead, world: World, groups: u64) -> f64 {
        let World { latency, link, decoder, group } = world;
        // When a row group was asked for and arrived.
        let mut asked: VecDeque<(f64, f64)> = VecDeque::new();
        let (mut now, mut next, mut wire, mut half) = (0.0_f64, 0, 0.0_f64, 0.0);
        let mut arrivals: VecDeque<f64> = VecDeque::new();
        let mut rates: VecDeque<f64> = VecDeque::new();
        for number in 0..groups {
            let mut ask = |now: f64, asked: &mut VecDeque<(f64, f64)>, next: &mut u64, most: u64| {
                while (asked.len() as u64) * group < most && *next < groups {
                    wire = wire.max(now + latency) + group as f64 / link;
                    asked.push_back((now, wire));
                    arrivals.push_back(wire);
                    *next += 1;
                }
            };
            ask(now, &mut asked, &mut next, ahead.bytes(0));
            let (sent, arrived) = asked.pop_front().unwrap();
            ask(now, &mut asked, &mut next, ahead.bytes(0));
            let there = asked.iter().take_while(|read| read.1 <= now).count();
            let found = match (arrived > now, there > asked.len() / 3) {
                (true, _) => ReadTiming::Late,
                (_, true) => ReadTiming::Plenty,
                _ => ReadTiming::InTime,
            };
            now = now.max(arrived) + group as f64 / decoder;
            while arrivals.front().is_some_and(|at| *at <= sent) {
                arrivals.pop_front();
            }
            let meanwhile = arrivals.iter().take_while(|at| **at <= arrived).count();
            rates.push_back(meanwhile as f64 * group as f64 / (arrived - sent));
            if rates.len() > 16 {
                rates.pop_front();
            }
            let rate = rates.iter().copied().fold(0.0, f64::max);
            let measured = Link { latency: Duration::from_secs_f64(latency), bytes_per_second: rate };
            ahead.note(number, found, next, Some(measured));
            if number == groups / 2 {
                half = now;
            }
        }
        (groups - groups / 2 - 1) as f64 * group as f64 / (now - half)
    }

    #[test]
    fn neither_link_nor_decoder_waits_for_the_other_whatever_their_speeds() {
        for latency in [0.001, 0.03, 0.1, 0.3] {
            for link in [1e8, 1e9, 1e10] {
                for decoder in [1e8, 1e9, 1e10] {
                    for group in [1 << 20, 8 << 20, 64 << 20] {
                        let world = World { latency, link, decoder, group };
                        let mut ahead = started(1 << 40);
                        let product = latency * link.min(decoder);
                        let rate = run(&mut ahead, world, 1000 + 20 * (product as u64 / group));
                        let best = link.min(decoder);
                        assert!(rate >= best * 0.9, "{world:?}: {:.2} with {}", rate / best, ahead.bytes(0));
                        // The link's rate is measured from groups that arrive together, and may seem higher for a
                        // moment.
                        let enough = 5.0 * product + 3.0 * group as f64 + START as f64;
                        assert!(ahead.bytes(0) as f64 <= enough, "{world:?}: {} of {enough}", ahead.bytes(0));
                    }
                }
            }
        }
    }

    #[test]
    fn it_takes_a_quarter_of_the_memory_from_rows_and_all_that_is_free() {
        let mut ahead = started(100 << 20);
        let far = World { latency: 0.5, link: 1e10, decoder: 1e10, group: 1 << 20 };
        run(&mut ahead, far, 2000);
        assert_eq!((ahead.reserve(), ahead.bytes(0)), (25 << 20, 100 << 20));
        assert_eq!((ahead.bytes(60 << 20), ahead.bytes(90 << 20)), (40 << 20, 25 << 20));
        let decoding = Lookahead { decoding: 30 << 20, ..ahead };
        assert_eq!((decoding.bytes(0), decoding.bytes(60 << 20)), (70 << 20, 25 << 20));
    }

    #[test]
    fn what_was_chosen_stays_and_local_files_have_none() {
        let link = Some(Link { latency: Duration::from_millis(100), bytes_per_second: 1e10 });
        let mut chosen = Lookahead { chosen: true, ..started(1 << 30) };
        let mut local = Lookahead { bytes: 0, share: 0, chosen: true, ..started(1 << 30) };
        for number in 0..40 {
            assert!(
                !chosen.note(number, ReadTiming::Late, number, link)
                    && !local.note(number, ReadTiming::Plenty, number, link)
            );
        }
        assert_eq!((chosen.bytes(0), local.bytes(0), local.reserve()), (START, 0, 0));
    }
}
