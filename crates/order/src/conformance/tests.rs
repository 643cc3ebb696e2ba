//! All sorts of orders, checked, and orders that break a rule, found out.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::every;
use crate::{EpochOrder, Order, Uses, reachable};

fn rows(order: &dyn EpochOrder, first: u64, stride: u64, room: usize) -> Vec<u64> {
    let mut rows = vec![u64::MAX; room];
    let written = order.fill_strided(first, stride, &mut rows);
    assert!(rows[written..].iter().all(|row| *row == u64::MAX), "{order:?} writes beyond its end");
    rows.truncate(written);
    rows
}

const LENGTHS: &[u64] = if cfg!(miri) { &[0, 1, 3] } else { &[0, 1, 2, 3, 19, 21, 64, 100, 599, 1200] };

fn each(mut check: impl FnMut(&str, &dyn EpochOrder)) {
    for len in LENGTHS.iter().copied() {
        for (name, orders) in every(len, 11).unwrap() {
            for epoch in [0, 1, u64::MAX] {
                let order = orders.epoch(epoch).unwrap();
                assert_eq!((order.len(), orders.len(), order.is_empty()), (len, len, len == 0), "{name}");
                check(&format!("{name}, {len} rows, epoch {epoch}"), &*order);
            }
        }
    }
}

#[test]
fn every_row_is_served_once() {
    each(|name, order| {
        let mut rows = rows(order, 0, 1, order.len() as usize + 3);
        rows.sort_unstable();
        assert!(rows.into_iter().eq(0..order.len()), "{name}");
        // A list may hold anything.
        assert_eq!(order.uses(), if name.starts_with("explicit") { Uses::Any } else { Uses::Once }, "{name}");
    });
}

#[test]
fn there_is_a_row_exactly_below_the_length_and_the_inverse_finds_it() {
    each(|name, order| {
        let len = order.len();
        for position in 0..len {
            let row = order.row(position).unwrap();
            assert_eq!(order.position(row), Some(position), "{name}");
        }
        for beyond in [len, len + 1, u64::MAX] {
            assert_eq!((order.row(beyond), order.position(beyond)), (None, None), "{name}");
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn filling_gives_what_single_rows_give_for_any_stride() {
    each(|name, order| {
        let len = order.len();
        for first in [0, 1, 2, len / 2, len.saturating_sub(5), len, u64::MAX] {
            for stride in [0, 1, 2, 3, 4, 5, 6, 8, 12, 30, 299, len, u64::MAX] {
                for room in [0, 1, 2, 50, 700] {
                    let rows = rows(order, first, stride, room);
                    assert_eq!(rows.len(), reachable(first, stride, len, room), "{name} {first} {stride} {room}");
                    for (i, row) in (0..).zip(rows) {
                        assert_eq!(Some(row), order.row(first + i * stride), "{name} {first} {stride} {i}");
                    }
                }
            }
        }
    });
}

#[test]
fn an_epoch_is_the_same_whenever_it_is_asked_for() {
    for len in [1, 100, 599] {
        for (name, orders) in every(len, 3).unwrap() {
            let first = rows(&*orders.epoch(2).unwrap(), 0, 1, len as usize);
            let other = rows(&*orders.epoch(3).unwrap(), 0, 1, len as usize);
            assert_eq!(rows(&*orders.epoch(2).unwrap(), 0, 1, len as usize), first, "{name}");
            assert_eq!(first == other, orders.is_same_every_epoch() || len == 1, "{name}");
        }
    }
}

#[test]
fn all_orders_have_fingerprints_of_their_own() {
    let mut seen = BTreeSet::new();
    for (len, seed) in [(100, 3), (100, 4), (101, 3)] {
        for (name, orders) in every(len, seed).unwrap() {
            // Without a seed, those of another seed are the same orders.
            let unseeded = name.contains("sequential") || name == "explicit";
            assert_eq!(seen.insert(orders.fingerprint()), seed == 3 || !unseeded, "{name} {len} {seed}");
        }
    }
}

/// Sequential, but for one rule.
#[derive(Debug, Clone, Copy)]
struct Broken(&'static str);

impl Order for Broken {
    fn len(&self) -> u64 {
        20
    }

    fn rows(&self) -> Option<u64> {
        Some(20)
    }

    fn epoch(&self, _epoch: u64) -> rowdex_base::error::Result<Arc<dyn EpochOrder>> {
        Ok(Arc::new(*self))
    }

    fn fingerprint(&self) -> u64 {
        1
    }

    fn name(&self) -> &'static str {
        "broken"
    }
}

impl EpochOrder for Broken {
    fn len(&self) -> u64 {
        if self.0 == "positions instead" { 19 } else { 20 }
    }

    fn uses(&self) -> Uses {
        Uses::Once
    }

    fn row(&self, position: u64) -> Option<u64> {
        match (self.0, position) {
            ("has no row", 7) => None,
            ("has a row", 20) => Some(3),
            ("of 20 rows", 7) => Some(20),
            ("served twice", 7) => Some(6),
            _ => (position < 20).then_some(position),
        }
    }

    fn position(&self, row: u64) -> Option<u64> {
        match (self.0, row) {
            ("which has another row", 7) => Some(8),
            ("is not known", 7) => None,
            ("served twice", 7) => None,
            _ => (row < 20).then_some(row),
        }
    }

    fn fill_strided(&self, first: u64, stride: u64, rows: &mut [u64]) -> usize {
        let written = reachable(first, stride, 20, rows.len());
        (0..).zip(&mut rows[..written]).for_each(|(place, row)| *row = first + place * stride);
        match self.0 {
            "gives other rows" if written > 3 => rows[3] = 0,
            "writes beyond" if written < rows.len() => rows[written] = 0,
            _ => {}
        }
        written
    }
}

#[test]
fn each_broken_rule_is_named() {
    super::check(&Broken("nothing"), [0, 5]).unwrap();
    let rules = [
        "positions instead",
        "has no row",
        "has a row",
        "of 20 rows",
        "served twice",
        "which has another row",
        "is not known",
        "gives other rows",
        "writes beyond",
    ];
    for rule in rules {
        let error = super::check(&Broken(rule), [5]).unwrap_err().to_string();
        assert!(error.contains(rule) && error.contains("orders broken, epoch 5"), "{rule}: {error}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn every_sort_of_orders_conforms() {
    for len in [0, 1, 2, 19, 100, 599] {
        for (name, orders) in every(len, 11).unwrap() {
            super::check(&*orders, [0, 1, u64::MAX]).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}
