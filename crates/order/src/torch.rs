//! The orders of PyTorch, number for number.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde::{Deserialize, Serialize};

use super::fingerprint::fingerprint;
use super::mt19937::Mt19937;
use super::table::RowList;
use super::{EpochOrder, Order, OrderKind, OrderSpec, Outline, Uses, check_len};
use rowdex_base::error::Result;
use rowdex_base::once::Once;
use rowdex_base::per_process::PerProcess;

/// From this length on, PyTorch 2.6 and later shuffle in another way: `(2^32 - 1) / 20`.
const LARGE: u64 = 214_748_364;

/// The orders of `torch.utils.data.DistributedSampler(shuffle=True)`, number for number.
///
/// Epoch `e` is `torch.randperm(len, generator=torch.Generator().manual_seed(seed + e))` on the CPU. With
/// [`Tail::Wrap`](crate::sampler::Tail::Wrap) a [`DistributedSampler`](crate::sampler::DistributedSampler) then serves
/// what torch's serves with `drop_last=False`, with [`Tail::Drop`](crate::sampler::Tail::Drop) what it serves with
/// `drop_last=True`. Torch's `shuffle=False` is [`Sequential`](super::Sequential), in a sampler [without
/// rotation](crate::sampler::DistributedSampler::with_rotation).
///
/// It is here to move runs from torch and to prove that nothing changed. [`Global`](super::Global) is the better order:
/// no memory, no time before the first row, and epochs that have nothing to do with those of other seeds. What torch's
/// generator takes is `seed + epoch`, and of that the low 32 bits:
///
/// - seed 0 in epoch 1 is seed 1 in epoch 0;
/// - seeds that differ by a multiple of 2^32 give the same orders;
/// - a negative seed `-s` of torch is `2^64 - s` here, `s.wrapping_neg()`. Torch refuses a sum beyond 2^64 - 1, which
///   wraps here.
///
/// An epoch costs 4 bytes a row, of which there are at most 2^32, and one draw a row, in sequence, before its first
/// row. It is made once for all samplers that share these orders, clones included, and kept as long as one of them uses
/// it. [`position`](EpochOrder::position) makes an inverse of the same size when it is first asked for; where there is
/// no memory for that, it looks through the rows.
///
/// From 214 748 364 rows on this is what PyTorch 2.6 and later do; earlier versions kept the algorithm for fewer rows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Torch {
    len: u64,
    seed: u64,
    #[serde(skip, default = "nothing_made")]
    made: Arc<PerProcess<Mutex<EpochsInUse>>>,
}

type EpochsInUse = Vec<(u64, Weak<Randperm>)>;

fn nothing_made() -> Arc<PerProcess<Mutex<EpochsInUse>>> {
    Arc::new(PerProcess::new(Mutex::default()))
}

impl Torch {
    const NAME: &str = "torch";

    /// Torch's orders of `len` rows, from `DistributedSampler`'s `seed`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `len` exceeds [`MAX_LEN`](super::MAX_LEN).
    pub fn new(len: u64, seed: u64) -> Result<Self> {
        Ok(Self { len: check_len(len)?, seed, made: nothing_made() })
    }
}

impl Order for Torch {
    fn len(&self) -> u64 {
        self.len
    }

    fn rows(&self) -> Option<u64> {
        Some(self.len)
    }

    /// O(len) time and memory, unless somebody uses this epoch already: then nothing.
    ///
    /// # Errors
    ///
    /// `TooLarge` for more than 2^32 rows, or if there is no memory for the epoch.
    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        let make = || Randperm::new(self.len, self.seed.wrapping_add(epoch)).map(Arc::new);
        let Some(made) = self.made.get(Mutex::default) else { return Ok(make()?) };
        // Held while the order is made, so that samplers that ask at once wait for one order rather than make two.
        // Nothing in it can be left half done, so a panic of another thread does not matter.
        let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|(_, order)| order.strong_count() > 0);
        let held = made.iter().find(|(held, _)| *held == epoch).and_then(|(_, order)| order.upgrade());
        if let Some(order) = held {
            return Ok(order);
        }
        let order = make()?;
        made.push((epoch, Arc::downgrade(&order)));
        Ok(order)
    }

    /// Over the 32 bits of the seed that count.
    fn fingerprint(&self) -> u64 {
        fingerprint(Self::NAME, self.len, &[u64::from(self.seed as u32)])
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn outline(&self) -> Outline {
        Outline::new(OrderKind::Named(OrderSpec::Torch)).seeded(self.seed)
    }
}

/// `torch.randperm` of one generator seed.
#[derive(Debug)]
struct Randperm {
    rows: RowList,
    positions: Once<RowList>,
}

impl Randperm {
    fn new(len: u64, seed: u64) -> Result<Self> {
        let words = Mt19937::new(seed as u32);
        let rows =
            RowList::shuffled(len, |rows| if len < LARGE { forward(words, rows) } else { inside_out(words, rows) })?;
        Ok(Self { rows, positions: Once::new() })
    }

    /// Made without holding anything, so that a process forked meanwhile is not left waiting.
    fn positions(&self) -> Option<&RowList> {
        match self.positions.get() {
            Some(positions) => Some(positions),
            None => {
                let positions = self.rows.inverse().ok()?;
                Some(self.positions.get_or_init(|| positions))
            }
        }
    }
}

impl EpochOrder for Randperm {
    fn len(&self) -> u64 {
        self.rows.len()
    }

    fn uses(&self) -> Uses {
        Uses::Once
    }

    fn row(&self, position: u64) -> Option<u64> {
        self.rows.get(position)
    }

    fn position(&self, row: u64) -> Option<u64> {
        match self.positions() {
            Some(positions) => positions.get(row),
            None => self.rows.find(row),
        }
    }

    fn fill_strided(&self, first: u64, stride: u64, rows: &mut [u64]) -> usize {
        self.rows.fill_strided(first, stride, rows)
    }
}

/// Fisher-Yates from the front with draws by remainder, which torch uses for fewer than [`LARGE`] rows.
fn forward(mut words: Mt19937, rows: &mut [u32]) {
    // The count fits 32 bits with room to spare, being less than LARGE.
    for first in 0..rows.len().saturating_sub(1) {
        let left = (rows.len() - first) as u32;
        rows.swap(first, first + (words.next_u32() % left) as usize);
    }
}

/// The inside-out Fisher-Yates from 64-bit draws, which torch uses from [`LARGE`] rows on.
fn inside_out(mut words: Mt19937, rows: &mut [u32]) {
    for i in 0..rows.len() {
        let draw = (words.next_u64() % (i as u64 + 1)) as usize;
        rows[i] = rows[draw];
        rows[draw] = i as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowdex_base::error::ErrorKind;

    fn rows(order: &dyn EpochOrder, first: u64, count: usize) -> Vec<u64> {
        let mut rows = vec![0; count];
        let written = order.fill(first, &mut rows);
        rows.truncate(written);
        rows
    }

    /// The sum of position times row.
    fn sum(order: &dyn EpochOrder) -> u64 {
        let mut rows = vec![0; 1 << 16];
        let (mut position, mut sum) = (0_u64, 0_u64);
        loop {
            let count = order.fill(position, &mut rows);
            for row in &rows[..count] {
                sum = sum.wrapping_add(position.wrapping_mul(*row));
                position += 1;
            }
            if count < rows.len() {
                return sum;
            }
        }
    }

    /// What `torch.randperm` of PyTorch 2.15 printed: length, seed, the first rows, the last rows, and the sum.
    fn assert_torch(len: u64, seed: u64, first: &[u64], last: &[u64], expected: u64) {
        let order = Torch::new(len, seed).unwrap().epoch(0).unwrap();
        assert_eq!(rows(&*order, 0, first.len()), first, "{len} {seed}");
        assert_eq!(rows(&*order, len - last.len() as u64, last.len()), last, "{len} {seed}");
        assert_eq!(sum(&*order), expected, "{len} {seed}");
    }

    #[test]
    fn the_rows_are_those_that_torch_prints() {
        assert_torch(10, 0, &[4, 1, 7, 5, 3, 9, 0, 8, 6, 2], &[], 209);
        assert_torch(10, 42, &[2, 6, 1, 8, 4, 5, 0, 9, 3, 7], &[], 223);
        for seed in [0, 1 << 32] {
            assert_torch(1000, seed, &[44, 37, 675, 775, 947, 209], &[745, 263, 354], 251_667_852);
        }
        assert_torch(1000, 5_u64.wrapping_neg(), &[30, 691, 129, 709, 575, 906], &[894, 855, 326], 248_869_617);
        if cfg!(miri) {
            return;
        }
        let first = [70_690, 23_614, 49_863, 398, 56_884, 74_277];
        assert_torch(100_000, 12_345, &first, &[69_310, 81_446, 20_365], 250_473_880_643_599);
        let first = [1_044_030, 165_401, 760_413, 410_973, 924_840, 505_154];
        assert_torch(1_281_167, 7, &first, &[1_110_107, 1_190_269, 242_772], 525_648_538_585_896_512);
    }

    #[test]
    #[ignore = "holds 2 GB, and takes minutes without optimisation"]
    fn the_rows_around_the_large_regime_are_those_that_torch_prints() {
        let first = [127_200_156, 172_463_228, 70_332_521, 131_886_836];
        let last = [70_920_960, 209_052_938, 202_837_649];
        assert_torch(LARGE - 1, 12_345, &first, &last, 17_014_330_371_032_678_376);
        let first = [172_768_042, 16_195_538, 110_244_130, 77_861_179];
        let last = [106_888_817, 78_332_852, 64_749_907];
        assert_torch(LARGE, 12_345, &first, &last, 11_642_596_680_343_868_985);
    }

    #[test]
    fn both_algorithms_permute() {
        for n in [0, 1, 2, 3, 100] {
            let all: Vec<u32> = (0..n).collect();
            for shuffle in [forward, inside_out] {
                let mut rows = all.clone();
                shuffle(Mt19937::new(3), &mut rows);
                assert!(n < 100 || rows != all);
                rows.sort_unstable();
                assert_eq!(rows, all);
            }
        }
    }

    #[test]
    fn seed_and_epoch_are_added_and_only_32_bits_of_the_sum_count() {
        let rows = |seed, epoch| rows(&*Torch::new(1000, seed).unwrap().epoch(epoch).unwrap(), 0, 1000);
        assert_eq!(rows(0, 1), rows(1, 0));
        assert_eq!(rows(7, 0), rows(7 + (1 << 32), 0));
        assert_eq!(rows(u64::MAX, 1), rows(0, 0));
        assert_ne!(rows(0, 1), rows(0, 0));
        let fingerprint = |seed| Torch::new(1000, seed).unwrap().fingerprint();
        assert_eq!(fingerprint(7), fingerprint(7 + (1 << 32)));
        assert_ne!(fingerprint(7), fingerprint(8));
    }

    /// Saved states carry it.
    #[test]
    fn the_fingerprint_of_version_1_is_frozen() {
        assert_eq!(Torch::new(1000, 7 + (1 << 32)).unwrap().fingerprint(), 0xf942_f892_629c_aac2);
    }

    #[test]
    fn an_epoch_is_made_once_while_somebody_uses_it() {
        let orders = Torch::new(1000, 3).unwrap();
        let clone = orders.clone();
        let order = orders.epoch(4).unwrap();
        let others = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| clone.epoch(4).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(others.iter().all(|other| Arc::ptr_eq(other, &order)));
        assert!(!Arc::ptr_eq(&orders.epoch(5).unwrap(), &order));
        let weak = Arc::downgrade(&order);
        drop((order, others));
        assert!(weak.upgrade().is_none());
        assert_eq!(orders.epoch(4).unwrap().len(), 1000);
    }

    #[test]
    fn an_order_that_memory_can_not_hold_is_an_error() {
        for len in [1 << 60, super::super::MAX_LEN] {
            let error = Torch::new(len, 0).unwrap().epoch(0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooLarge);
            assert!(error.to_string().contains(&len.to_string()), "{error}");
        }
        assert_eq!(Torch::new(1 << 63, 0).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn positions_are_found_with_and_without_an_inverse() {
        let order = Randperm::new(500, 1).unwrap();
        for row in 0..500 {
            assert_eq!(order.position(row), order.rows.find(row));
        }
        assert_eq!((order.position(500), order.rows.find(500)), (None, None));
    }
}
