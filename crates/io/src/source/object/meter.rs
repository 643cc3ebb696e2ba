//! How fast a store answers: latency and rate, from the requests that are made anyway.
//!
//! As in BBR (Cardwell, Cheng, Gunn, Yeganeh and Jacobson, "BBR: Congestion-Based Congestion Control", 2016), the rate
//! of a request is what arrived of *all* requests between its start and its end, so that it counts what the link
//! delivers and not what one connection got of it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::source::Link;

/// The rate is the best of so many requests: a pause of the reader is not a slow link.
const RATES: usize = 16;

/// A sample moves the latency by this part of the difference, as for the round-trip time of TCP (RFC 6298).
const SMOOTHING: f64 = 1.0 / 8.0;

/// What requests took lately.
#[derive(Debug, Default)]
pub(super) struct Meter {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Seconds to the head of an answer; `None` before the first.
    latency: Option<f64>,
    /// Bytes a second.
    rates: [f64; RATES],
    next: usize,
}

/// When a request was sent, and how many bytes had arrived by then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    at: Instant,
    arrived: u64,
}

impl Sent {
    pub(super) fn now(arrived: u64) -> Self {
        Self { at: Instant::now(), arrived }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.at.elapsed()
    }
}

impl Meter {
    /// Notes a request of which the answer began after `latency`, and ended now that `arrived` bytes have come in all.
    pub(super) fn note(&self, sent: Sent, latency: Duration, arrived: u64) {
        self.add(latency, arrived.saturating_sub(sent.arrived), sent.elapsed());
    }

    fn add(&self, latency: Duration, bytes: u64, took: Duration) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let sample = latency.as_secs_f64();
        let smoothed = seen.latency.map_or(sample, |latency| latency + (sample - latency) * SMOOTHING);
        seen.latency = Some(smoothed);
        let next = seen.next % RATES;
        seen.rates[next] = bytes as f64 / took.as_secs_f64().max(1e-6);
        seen.next = next + 1;
    }

    pub(super) fn link(&self) -> Option<Link> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let latency = Duration::from_secs_f64(seen.latency?);
        Some(Link { latency, bytes_per_second: seen.rates.iter().copied().fold(0.0, f64::max) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_is_smoothed_and_the_rate_is_the_best_of_late() {
        let meter = Meter::default();
        assert_eq!(meter.link(), None);
        meter.add(Duration::from_millis(32), 3_000_000, Duration::from_secs(1));
        meter.add(Duration::from_millis(64), 1_000_000, Duration::from_secs(1));
        let link = meter.link().unwrap();
        assert_eq!((link.latency, link.bytes_per_second), (Duration::from_millis(36), 3e6));
        for _ in 0..RATES {
            meter.add(Duration::from_millis(64), 2_000_000, Duration::from_secs(1));
        }
        let link = meter.link().unwrap();
        assert_eq!(link.bytes_per_second, 2e6);
        assert!(link.latency > Duration::from_millis(60) && link.latency <= Duration::from_millis(64));
    }
}
