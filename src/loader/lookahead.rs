//! How many bytes of a store to have on their way: as many as the link holds, and no more.
//!
//! Little's law again: for `λ` bytes a second that arrive `W` after they were asked for, `λW` must be under way. Both are measured while
//! reading. A reader that has too little under way measures a rate that is too low, so twice the product is aimed at; and where the link or
//! the decoder is the limit, more under way only waits in line, so the aim is raised only as long as the rate rises with it (both as in the
//! start of BBR, Cardwell et al. 2016).

use super::groups::Groups;
use crate::source::Link;

/// What is aimed at before anything is measured: 64 ms of a gigabit a second.
const START: u64 = 8 << 20;

/// What is aimed at, in bandwidth-delay products.
const GAIN: u64 = 2;

/// A rate that has not grown by so much since the aim was last raised did not grow with it.
const GROWN: f64 = 1.1;

/// The bytes to have on their way, or arrived and not yet decoded.
#[derive(Debug, Clone)]
pub(crate) struct Lookahead {
    bytes: u64,
    most: u64,
    /// Whether the caller chose how much it is.
    chosen: bool,
    /// The rate when `bytes` was last changed.
    rate: f64,
}

impl Lookahead {
    /// For row groups of a store, within `memory`; none for others. `read_concurrency` chooses how many, and then it does not adapt.
    pub(crate) fn new(groups: &dyn Groups, memory: u64, read_concurrency: Option<usize>) -> Self {
        // What is taken from the rows that are held is paid for in passes.
        let most = if groups.is_remote() { memory / 8 } else { 0 };
        let bytes = match read_concurrency {
            None => START,
            Some(row_groups) => {
                let largest = (0..groups.count()).map(|group| groups.size(group).cost).max().unwrap_or(0);
                largest.saturating_mul(row_groups as u64)
            }
        };
        Self { bytes: bytes.min(most), most, chosen: read_concurrency.is_some(), rate: 0.0 }
    }

    /// How many bytes. A row group is asked for as long as there are fewer, so it may be one row group more.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes note of what the link does now, and says whether that changed how many bytes it is.
    pub(crate) fn measure(&mut self, link: Link) -> bool {
        let aim = link.bandwidth_delay().saturating_mul(GAIN).clamp(1, self.most.max(1));
        let raised = aim > self.bytes && link.bytes_per_second > self.rate * GROWN;
        let lowered = aim < self.bytes / 2;
        if self.chosen || self.most == 0 || !(raised || lowered) {
            return false;
        }
        self.bytes = aim.min(self.bytes.saturating_mul(2));
        self.rate = link.bytes_per_second;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn started(most: u64) -> Lookahead {
        Lookahead { bytes: START.min(most), most, chosen: false, rate: 0.0 }
    }

    /// A link of so much latency and rate, read through by a decoder of so much a second: what is measured with so many bytes under way.
    fn link(latency: f64, rate: f64, decoder: f64, under_way: u64) -> Link {
        // Beyond its product a link answers later, not faster.
        let latency = (under_way as f64 / rate).min(2.0 * latency).max(latency);
        let rate = rate.min(decoder).min(under_way as f64 / latency);
        Link { latency: Duration::from_secs_f64(latency), bytes_per_second: rate }
    }

    #[test]
    fn it_grows_until_the_link_is_full_and_not_beyond() {
        for (latency, rate) in [(0.03, 1e9), (0.1, 1e9), (0.01, 1e8), (0.2, 3e9)] {
            let mut ahead = started(u64::MAX / 4);
            for _ in 0..40 {
                ahead.measure(link(latency, rate, f64::MAX, ahead.bytes()));
            }
            let product = latency * rate;
            let filled = ahead.bytes() as f64 / product;
            assert!((0.9..=5.0).contains(&filled), "{filled} of {product}");
        }
    }

    #[test]
    fn a_decoder_that_is_slower_than_the_link_needs_less() {
        let mut ahead = started(1 << 40);
        for _ in 0..40 {
            ahead.measure(link(0.05, 1e10, 1e8, ahead.bytes()));
        }
        assert!((5e6..=2.2e7).contains(&(ahead.bytes() as f64)), "{}", ahead.bytes());
    }

    #[test]
    fn it_keeps_to_its_part_of_the_memory_and_to_what_was_chosen() {
        let mut ahead = started(10 << 20);
        for _ in 0..10 {
            ahead.measure(link(0.1, 1e10, f64::MAX, ahead.bytes()));
        }
        assert_eq!(ahead.bytes(), 10 << 20);
        let mut chosen = Lookahead { chosen: true, ..started(1 << 30) };
        assert!(!chosen.measure(link(0.1, 1e10, f64::MAX, 1 << 20)));
        assert_eq!((chosen.bytes(), started(0).measure(link(0.1, 1e9, 1e9, 1))), (START, false));
    }

    #[test]
    fn it_shrinks_when_the_link_is_nearer_than_thought() {
        let mut ahead = started(1 << 30);
        ahead.measure(Link { latency: Duration::from_millis(100), bytes_per_second: 1e8 });
        assert_eq!(ahead.bytes(), 16 << 20);
        ahead.measure(Link { latency: Duration::from_millis(1), bytes_per_second: 1e8 });
        assert_eq!(ahead.bytes(), 200_000);
    }
}
