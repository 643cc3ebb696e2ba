//! The order `torch` and the tails `wrap` and `drop` against PyTorch's own sampler.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use rowdex::order::{Order, Sequential, Torch};
use rowdex::sampler::Tail;
use rowdex::{DistributedSampler, Shard};

use super::python::{oracle, say, torch_order};

#[test]
fn every_rank_is_served_what_torch_serves() {
    let torch = std::env::var_os("ROWDEX_TORCH").map(PathBuf::from);
    let Some(python) = torch.clone().or_else(|| oracle().map(|oracle| oracle.python.clone())) else { return };
    let printed = torch_order(&python, torch.is_some()).unwrap();
    let mut orders: HashMap<(u64, u64, bool), Arc<dyn Order>> = HashMap::new();
    let (mut lists, mut rows) = (0, 0);
    for line in printed.lines() {
        let (case, ids) = line.split_once(':').unwrap();
        let case: Vec<u64> = case.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let &[len, ranks, seed, epoch, shuffle, drop_last, rank] = &case[..] else { panic!("{line}") };
        let expected: Vec<u64> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
        let orders = orders.entry((len, seed, shuffle == 1)).or_insert_with(|| match shuffle {
            1 => Arc::new(Torch::new(len, seed).unwrap()),
            _ => Arc::new(Sequential::new(len).unwrap()),
        });
        let tail = if drop_last == 1 { Tail::Drop } else { Tail::Wrap };
        let shard = Shard::new(rank as u32, ranks as u32).unwrap().with_tail(tail);
        let sampler = DistributedSampler::new(Arc::clone(orders), shard, 3).unwrap().with_rotation(false);
        let plan = sampler.plan(epoch).unwrap();
        let served: Vec<u64> = plan.samples().map(|sample| sample.unwrap().row).collect();
        assert_eq!(served, expected, "{case:?}");
        assert_eq!(sampler.len(), expected.len() as u64);
        for row in expected.iter().take(3) {
            assert_eq!(plan.order().row(plan.order().position(*row).unwrap()), Some(*row));
        }
        lists += 1;
        rows += expected.len();
    }
    assert!(lists > 4000, "{lists}");
    let whom = match torch {
        Some(_) => "PyTorch",
        None => "the Mersenne Twister of Python; for PyTorch itself, name a Python that has it in ROWDEX_TORCH",
    };
    say(&format!("order torch: {lists} lists of {rows} rows compared with {whom}"));
}
