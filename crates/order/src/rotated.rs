//! An order that begins elsewhere each epoch.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::fingerprint::fingerprint;
use super::{EpochOrder, Order, Uses, reachable};
use rowdex_base::error::Result;

/// How many candidates for the step there are.
const CANDIDATES: u64 = 64;

/// Other orders, beginning further on in each epoch and going round: what comes last, and so is dropped or repeated by
/// the sharding, is something else each time.
///
/// Position `q` of epoch `e` is position `(q + e * c) mod n` of the orders inside, with a step `c` of about `n / 1.618`
/// that has no factor in common with `n`. So epoch 0 is as inside; in any `n` epochs one after another every position
/// is last exactly once; and on the way there the beginnings lie about evenly, as multiples of the golden ratio do. It
/// does not depend on the number of ranks, so a run can be resumed with another.
///
/// A [`DistributedSampler`](crate::sampler::DistributedSampler) does this by itself to orders that are [the same in
/// every epoch](Order::is_same_every_epoch) where rows are dropped or repeated, see
/// [`with_rotation`](crate::sampler::DistributedSampler::with_rotation). `docs/orders.md` has the exact step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rotated {
    #[serde(with = "crate::shared")]
    orders: Arc<dyn Order>,
    step: u64,
}

impl Rotated {
    const NAME: &str = "rotated";

    /// `orders`, beginning elsewhere each epoch.
    pub fn new(orders: Arc<dyn Order>) -> Self {
        Self { step: step(orders.len()), orders }
    }
}

impl Order for Rotated {
    fn len(&self) -> u64 {
        self.orders.len()
    }

    fn rows(&self) -> Option<u64> {
        self.orders.rows()
    }

    /// # Errors
    ///
    /// Those of the orders inside.
    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        let len = u128::from(self.len().max(1));
        let offset = u128::from(epoch) * u128::from(self.step) % len;
        Ok(Arc::new(Turned { order: self.orders.epoch(epoch)?, offset: offset as u64 }))
    }

    fn fingerprint(&self) -> u64 {
        fingerprint(Self::NAME, self.len(), &[self.orders.fingerprint()])
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn follows_row_groups(&self) -> bool {
        self.orders.follows_row_groups()
    }
}

/// The step for `n` positions: of the 64 integers from `n / 1.618` on that are less than `n` the one whose ratio to `n`
/// has the smallest sum of partial quotients, which is what keeps multiples apart (Niederreiter, 1978); the first of
/// several, and 0 if none has no factor in common with `n`.
fn step(n: u64) -> u64 {
    let first = ((u128::from(n) * 0x9e37_79b9_7f4a_7c15) >> 64).max(1) as u64;
    let candidates = (first..n.min(first.saturating_add(CANDIDATES))).filter_map(|c| Some((quotients(n, c)?, c)));
    candidates.min().map_or(0, |(_, c)| c)
}

/// The sum of the partial quotients of `n / c`, that is, of Euclid's algorithm; `None` if they have a factor in common.
fn quotients(mut n: u64, mut c: u64) -> Option<u64> {
    let mut sum = 0_u64;
    while c > 0 {
        sum = sum.saturating_add(n / c);
        (n, c) = (c, n % c);
    }
    (n == 1).then_some(sum)
}

/// One epoch of [`Rotated`].
#[derive(Debug)]
struct Turned {
    order: Arc<dyn EpochOrder>,
    /// Less than the length.
    offset: u64,
}

impl Turned {
    /// The position inside of a position that exists. No overflow: both are less than 2^63.
    fn inside(&self, position: u64) -> u64 {
        let position = position + self.offset;
        position.checked_sub(self.len()).unwrap_or(position)
    }
}

impl EpochOrder for Turned {
    fn len(&self) -> u64 {
        self.order.len()
    }

    fn uses(&self) -> Uses {
        self.order.uses()
    }

    fn occurrence(&self, position: u64) -> u64 {
        self.order.occurrence(self.inside(position))
    }

    fn row(&self, position: u64) -> Option<u64> {
        if position >= self.len() {
            return None;
        }
        self.order.row(self.inside(position))
    }

    fn position(&self, row: u64) -> Option<u64> {
        let position = self.order.position(row)?;
        let before = position.checked_sub(self.offset);
        Some(before.unwrap_or_else(|| position + (self.len() - self.offset)))
    }

    fn fill_strided(&self, first: u64, stride: u64, rows: &mut [u64]) -> usize {
        let count = reachable(first, stride, self.len(), rows.len());
        // Positions up to here are after the beginning inside, those from here on are before it.
        let turn = self.len() - self.offset;
        let after = reachable(first, stride, turn, count);
        let (now, later) = rows[..count].split_at_mut(after);
        if !now.is_empty() {
            let written = self.order.fill_strided(first + self.offset, stride, now);
            if written < after {
                return written;
            }
        }
        if later.is_empty() {
            return count;
        }
        after + self.order.fill_strided(self.inside(first + after as u64 * stride), stride, later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MAX_LEN, Sequential};

    fn rotated(n: u64) -> Rotated {
        Rotated::new(Arc::new(Sequential::new(n).unwrap()))
    }

    #[test]
    fn the_first_epoch_is_as_inside_and_the_others_go_round() {
        for n in 1..50 {
            for epoch in 0..2 * n {
                let order = rotated(n).epoch(epoch).unwrap();
                let begin = order.row(0).unwrap();
                assert!((0..n).all(|q| order.row(q) == Some((begin + q) % n)), "{n} {epoch}");
                assert_eq!(begin == 0, epoch % n == 0, "{n} {epoch}");
            }
        }
    }

    #[test]
    fn every_row_is_as_often_in_the_tail_as_any_other() {
        for n in [1, 2, 3, 10, 97, 600, 1000, 1024].into_iter().take(if cfg!(miri) { 5 } else { 8 }) {
            for tail in [1, 2, 7, 15, 63] {
                let mut counts = vec![0; n as usize];
                for epoch in 0..n {
                    let order = rotated(n).epoch(epoch).unwrap();
                    (n.saturating_sub(tail)..n).for_each(|q| counts[order.row(q).unwrap() as usize] += 1);
                    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                    assert!(most - least <= 4, "{n} {tail} {epoch}: {least} to {most}");
                }
                assert!(counts.iter().all(|count| *count == tail.min(n)), "{n} {tail}");
            }
        }
    }

    #[test]
    fn no_row_is_in_the_tail_again_before_three_in_eight_were_in_it() {
        for n in [1000, 4096, 9240] {
            for tail in [1, 3, 7, 15, 63] {
                let mut seen = vec![false; n as usize];
                for epoch in 0..n * 3 / 8 / tail {
                    let order = rotated(n).epoch(epoch).unwrap();
                    let again =
                        (n - tail..n).any(|q| std::mem::replace(&mut seen[order.row(q).unwrap() as usize], true));
                    assert!(!again, "{n} {tail} {epoch}");
                }
            }
        }
    }

    /// Changing these would serve other rows to whoever goes on with a run.
    #[test]
    fn the_steps_of_version_1_are_frozen() {
        let steps = [0, 1, 2, 3, 10, 1000, 1_281_167, 1 << 40, MAX_LEN].map(step);
        assert_eq!(steps, [0, 0, 1, 1, 7, 633, 791_812, 679_535_557_043, 5_700_357_409_661_599_248]);
        assert_eq!(rotated(1000).fingerprint(), 0x3a6d_55ed_0583_2117);
    }

    #[test]
    fn the_longest_orders_do_not_overflow() {
        let order = rotated(MAX_LEN).epoch(u64::MAX).unwrap();
        for q in [0, 1, MAX_LEN / 2, MAX_LEN - 1] {
            assert_eq!(order.position(order.row(q).unwrap()), Some(q));
        }
        assert_eq!((order.row(MAX_LEN), order.position(MAX_LEN)), (None, None));
    }
}
