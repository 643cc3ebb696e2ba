//! Orders that break a promise each, which a proof must notice and name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rowdex::order::{EpochOrder, Order, Uses};
use rowdex::sampler::Tail;
use rowdex::{DistributedSampler, Shard};

use super::*;

const LEN: u64 = 1000;

/// Rows 0, 1, 2, … with a fault.
#[derive(Debug, Clone, Copy)]
enum Faulty {
    None,
    /// Serves row 5 where row 7 should be.
    Double,
    /// Serves a row that does not exist.
    Beyond,
    /// Serves another row when asked again.
    Fickle,
    /// Is fickle about one position only when it is asked for alone, as repeated rows are.
    OtherPad,
    /// Serves no row twice, but not all.
    Half,
    /// Promises nothing.
    Doubled,
}

#[derive(Debug)]
struct Epoch(Faulty, AtomicU64);

impl Order for Faulty {
    fn len(&self) -> u64 {
        LEN
    }

    fn epoch(&self, _: u64) -> rowdex::Result<Arc<dyn EpochOrder>> {
        Ok(Arc::new(Epoch(*self, AtomicU64::new(0))))
    }

    fn fingerprint(&self) -> u64 {
        0
    }

    fn name(&self) -> &'static str {
        "faulty"
    }
}

impl EpochOrder for Epoch {
    fn len(&self) -> u64 {
        LEN
    }

    fn row(&self, position: u64) -> Option<u64> {
        let asked = || self.1.fetch_add(1, Ordering::Relaxed);
        let row = match self.0 {
            Faulty::Double if position == 7 => 5,
            Faulty::Beyond if position == 7 => LEN,
            Faulty::Fickle if position == 7 => 7 + asked(),
            Faulty::OtherPad if position == 0 => asked() % 2,
            Faulty::Half => position * 2,
            Faulty::Doubled => position / 2,
            _ => position,
        };
        (position < LEN).then_some(row)
    }

    fn position(&self, _: u64) -> Option<u64> {
        None
    }

    fn uses(&self) -> Uses {
        match self.0 {
            Faulty::Half => Uses::AtMostOnce,
            Faulty::Doubled => Uses::Any,
            _ => Uses::Once,
        }
    }
}

fn samplers(orders: Faulty, world_size: u32, tail: Tail) -> Vec<DistributedSampler> {
    let orders: Arc<dyn Order> = Arc::new(orders);
    let shard = |rank| Shard::new(rank, world_size).unwrap().with_tail(tail);
    (0..world_size).map(|rank| DistributedSampler::new(Arc::clone(&orders), shard(rank), 16).unwrap()).collect()
}

fn proof(orders: Faulty, tail: Tail) -> Vec<String> {
    prove(&samplers(orders, 3, tail), LEN, 0..2).unwrap().broken
}

/// There is a complaint with all of these words.
#[track_caller]
fn complains(broken: &[String], words: &[&str]) {
    assert!(broken.iter().any(|what| words.iter().all(|word| what.contains(word))), "{words:?}: {broken:?}");
}

#[test]
fn an_order_without_fault_holds_its_promises() {
    for tail in [Tail::Wrap, Tail::Drop, Tail::Uneven] {
        assert_eq!(proof(Faulty::None, tail), Vec::<String>::new());
        // Of orders that do not promise each row once, what they have is served.
        for orders in [Faulty::Half, Faulty::Doubled] {
            let proof = prove(&samplers(orders, 3, tail), 2 * LEN, 0..1).unwrap();
            assert_eq!(proof.broken, Vec::<String>::new());
        }
    }
}

#[test]
fn rows_that_are_missing_or_double_are_noticed() {
    for tail in [Tail::Wrap, Tail::Drop] {
        complains(&proof(Faulty::Double, tail), &["epoch 0", "not all rows"]);
    }
}

#[test]
fn rows_that_do_not_exist_are_named() {
    complains(&proof(Faulty::Beyond, Tail::Wrap), &["rank 1", "row 1000"]);
}

#[test]
fn pads_that_are_other_rows_are_noticed() {
    complains(&proof(Faulty::OtherPad, Tail::Wrap), &["repeated"]);
}

#[test]
fn replicas_that_are_dealt_different_rows_are_named() {
    let orders: Arc<dyn Order> = Arc::new(Faulty::Fickle);
    let shard = |rank| Shard::new(rank, 2).unwrap().with_replication(2, Default::default()).unwrap();
    let samplers: Vec<_> =
        (0..2).map(|rank| DistributedSampler::new(Arc::clone(&orders), shard(rank), 16).unwrap()).collect();
    complains(&prove(&samplers, LEN, 0..1).unwrap().broken, &["ranks 0 and 1", "replica group"]);
}

#[test]
fn a_rank_that_is_missing_or_there_twice_is_noticed() {
    let mut ranks = samplers(Faulty::None, 3, Tail::Wrap);
    ranks.pop();
    complains(&prove(&ranks, LEN, 0..1).unwrap().broken, &["2 of 3 shards"]);
    ranks.push(samplers(Faulty::None, 4, Tail::Wrap).remove(3));
    complains(&prove(&ranks, LEN, 0..1).unwrap().broken, &["positions"]);
}
