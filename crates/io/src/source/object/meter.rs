//! How fast a store answers: latency and rate, from the requests that are made anyway.
//!
//! As in BBR (Cardwell, Cheng, Gunn, Yeganeh and Jacobson, "BBR: Congestion-Based Congestion Control", 2016), the rate
//! of a request is what arrived of *all* requests between its start and its end, so that it counts what the link
//! delivers and not what one connection got of it.

use std::time::Duration;

use crate::source::Link;

/// The rate is the best of so many requests: a pause of the reader is not a slow link.
const RATES: usize = 16;

/// A sample moves the latency by this part of the difference, as for the round-trip time of TCP (RFC 6298).
const SMOOTHING: f64 = 1.0 / 8.0;

/// What requests took lately.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Seconds to the head of an answer; `None` before the first.
    latency: Option<f64>,
    /// Bytes a second.
    rates: [f64; RATES],
    next: usize,
}

impl Meter {
    /// Notes a request of which the answer began after `latency`, and while which so many bytes came in all.
    pub(super) fn note(&mut self, latency: Duration, bytes: u64, took: Duration) {
        let sample = latency.as_secs_f64();
        let smoothed = self.latency.map_or(sample, |latency| latency + (sample - latency) * SMOOTHING);
        self.latency = Some(smoothed);
        self.rates[self.next % RATES] = bytes as f64 / took.as_secs_f64().max(1e-6);
        self.next += 1;
    }

    pub(super) fn link(&self) -> Option<Link> {
        let latency = Duration::from_secs_f64(self.latency?);
        Some(Link { latency, bytes_per_second: self.rates.iter().copied().fold(0.0, f64::max) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_is_smoothed_and_the_rate_is_the_best_of_late() {
        let mut meter = Meter::default();
        assert_eq!(meter.link(), None);
        meter.note(Duration::from_millis(32), 3_000_000, Duration::from_secs(1));
        meter.note(Duration::from_millis(64), 1_000_000, Duration::from_secs(1));
        let link = meter.link().unwrap();
        assert_eq!((link.latency, link.bytes_per_second), (Duration::from_millis(36), 3e6));
        for _ in 0..RATES {
            meter.note(Duration::from_millis(64), 2_000_000, Duration::from_secs(1));
        }
        let link = meter.link().unwrap();
        assert_eq!(link.bytes_per_second, 2e6);
        assert!(link.latency > Duration::from_millis(60) && link.latency <= Duration::from_millis(64));
    }
}
