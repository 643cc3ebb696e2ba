//! What every [`Order`] must keep to, as one check for the tests of each.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Blocks, Contiguous, EpochOrder, Explicit, Global, Order, Rotated, Sequential, Torch, Uses, reachable};
use rowdex_base::error::Result;

/// Checks what [`EpochOrder`] and [`Order`] ask of an implementation, in these epochs, and that every served row has a
/// known position.
pub(crate) fn check(orders: &dyn Order, epochs: impl IntoIterator<Item = u64>) -> Result<()> {
    for epoch in epochs {
        let order = orders.epoch(epoch)?;
        let len = order.len();
        assert_eq!((len, order.is_empty()), (orders.len(), len == 0), "{orders:?}");
        let rows: Vec<u64> = (0..len).map(|position| order.row(position).unwrap()).collect();
        let again = orders.epoch(epoch)?;
        assert!((0..len).rev().all(|position| again.row(position) == Some(rows[position as usize])), "{orders:?}");
        assert!([len, u64::MAX].into_iter().all(|beyond| order.row(beyond).is_none()), "{orders:?}");
        let served: BTreeSet<u64> = rows.iter().copied().collect();
        let ids = orders.rows().unwrap_or(served.last().map_or(0, |row| row + 1));
        assert!(served.last().is_none_or(|row| *row < ids), "{orders:?}");
        // Of the rows that are not served, enough: there may be any number of them.
        for row in (0..ids.min(1 << 16)).chain(served.iter().copied()).chain([u64::MAX]) {
            let position = order.position(row);
            assert_eq!(position.is_some(), served.contains(&row), "{orders:?}, row {row}");
            assert!(position.is_none_or(|position| order.row(position) == Some(row)), "{orders:?}, row {row}");
        }
        match order.uses() {
            Uses::Once => assert!(served.len() == rows.len() && served.into_iter().eq(0..len), "{orders:?}"),
            Uses::AtMostOnce => assert_eq!(served.len(), rows.len(), "{orders:?}"),
            Uses::Any => {}
        }
        filling(&*order, &rows);
    }
    Ok(())
}

/// Filling gives what single positions give, for any beginning, stride and room.
fn filling(order: &dyn EpochOrder, rows: &[u64]) {
    let len = order.len();
    for first in [0, 1, 2, len / 2, len.saturating_sub(5), len, u64::MAX] {
        for stride in [0, 1, 2, 3, 4, 5, 6, 8, 12, 30, 299, len, u64::MAX] {
            for room in [0, 1, 2, 50, 700] {
                let mut filled = vec![u64::MAX; room];
                let written = order.fill_strided(first, stride, &mut filled);
                assert_eq!(written, reachable(first, stride, len, room), "{order:?} {first} {stride} {room}");
                assert!(filled[written..].iter().all(|row| *row == u64::MAX), "{order:?} writes beyond its end");
                let places = (0..written as u64).map(|i| rows[(first + i * stride) as usize]);
                assert!(places.eq(filled[..written].iter().copied()), "{order:?} {first} {stride} {room}");
            }
        }
    }
}

/// Every sort of orders, over `len` rows: all of them permutations.
pub(crate) fn every(len: u64, seed: u64) -> Result<Vec<(String, Arc<dyn Order>)>> {
    let groups = unequal(len);
    let blocks = |k| -> Result<Arc<dyn Order>> { Ok(Arc::new(Blocks::new(&groups, k, seed)?)) };
    let global: Arc<dyn Order> = Arc::new(Global::new(len, seed)?);
    let sequential: Arc<dyn Order> = Arc::new(Sequential::new(len)?);
    // Odd and so without a factor in common with what it is shifted by; reversed for good measure.
    let listed: Vec<u64> = (0..len).rev().map(|row| (row + len / 3) % len).collect();
    let pieces = |orders: &Arc<dyn Order>, shards| -> Result<Arc<dyn Order>> {
        Ok(Arc::new(Contiguous::new(Arc::clone(orders), shards)?))
    };
    let mut all: Vec<(String, Arc<dyn Order>)> = vec![
        ("sequential".into(), Arc::clone(&sequential)),
        ("global".into(), Arc::clone(&global)),
        ("torch".into(), Arc::new(Torch::new(len, seed)?)),
        ("explicit".into(), Arc::new(Explicit::new(listed, len)?)),
        ("rotated sequential".into(), Arc::new(Rotated::new(Arc::clone(&sequential)))),
        ("rotated global".into(), Arc::new(Rotated::new(Arc::clone(&global)))),
        ("paired global".into(), Arc::new(crate::Paired::new(Arc::clone(&global)))),
        ("scored".into(), Arc::new(crate::Scored::new(&vec![0.0; len as usize], 3, 16, seed)?)),
        ("contiguous(4) sequential".into(), pieces(&sequential, 4)?),
        ("contiguous(5) blocks(3)".into(), pieces(&blocks(3)?, 5)?),
        ("contiguous(1) global".into(), pieces(&global, 1)?),
        ("rotated contiguous(6) sequential".into(), Arc::new(Rotated::new(pieces(&sequential, 6)?))),
    ];
    for k in [1, 3, Blocks::ALL] {
        all.push((format!("blocks({k})"), blocks(k)?));
    }
    Ok(all)
}

/// So many rows in row groups of different sizes, of none as well.
fn unequal(mut len: u64) -> Vec<u64> {
    let mut groups = vec![0];
    for size in [1, 20, 0, 7, 33, 20].into_iter().cycle() {
        groups.push(size.min(len));
        len -= size.min(len);
        if len == 0 {
            break;
        }
    }
    groups
}

#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn every_sort_of_orders_conforms() {
    for len in [0, 1, 2, 3, 19, 21, 64, 100, 599] {
        for (name, orders) in every(len, 11).unwrap() {
            check(&*orders, [0, 1, u64::MAX]).unwrap();
            // A list may hold anything.
            let uses = if name == "explicit" { Uses::Any } else { Uses::Once };
            assert_eq!(orders.epoch(0).unwrap().uses(), uses, "{name}");
            let rows = |epoch| {
                let mut rows = vec![0; len as usize];
                orders.epoch(epoch).unwrap().fill(0, &mut rows);
                rows
            };
            assert!(len < 19 || (rows(2) == rows(3)) == orders.is_same_every_epoch(), "{name}");
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
