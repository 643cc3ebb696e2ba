//! What planning an epoch of packs costs, and packing a block: `cargo bench -p rowdex-order --bench packs -- ROWS`.
//!
//! Lengths are lognormal, as those of web documents (898 tokens on average) and of a mix with books (2424) are said to
//! be, and lie in memory with 2 bytes a row. Seconds are those of the processor, where the system tells them of a
//! thread, and of the clock for what several threads do.

use std::sync::Arc;
use std::time::Instant;

use rowdex_base::error::Result;
use rowdex_order::{Global, Lengths, Order, Pack, Packed};

/// Lengths below 2^16.
#[derive(Debug)]
struct Short(Vec<u16>);

impl Lengths for Short {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn length(&self, row: u64) -> Result<u64> {
        Ok(self.0.get(row as usize).copied().unwrap_or(0).into())
    }

    fn fill(&self, rows: &[u64], lengths: &mut [u64]) -> Result<()> {
        for (row, length) in rows.iter().zip(lengths) {
            *length = self.0.get(*row as usize).copied().unwrap_or(0).into();
        }
        Ok(())
    }

    fn fingerprint(&self) -> u64 {
        self.len()
    }
}

/// Lognormal lengths with this mean, by a sum of twelve draws.
fn lengths(rows: u64, mean: f64, sigma: f64) -> Short {
    let mut state = 1_u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1_u64 << 24) as f64
    };
    let table: Vec<u16> = (0..1 << 16)
        .map(|_| {
            let normal = (0..12).map(|_| draw()).sum::<f64>() - 6.0;
            (mean.ln() - sigma * sigma / 2.0 + sigma * normal).exp().clamp(10.0, 65_535.0) as u16
        })
        .collect();
    Short((0..rows).map(|row| table[(row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize]).collect())
}

/// Seconds that the main thread has had a processor, or of the clock.
fn now(origin: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").ok();
    let nanoseconds: Option<f64> = stat.and_then(|stat| stat.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| origin.elapsed().as_secs_f64(), |nanoseconds| nanoseconds / 1e9)
}

fn main() -> Result<()> {
    let origin = Instant::now();
    let rows = std::env::args().filter_map(|text| text.parse().ok()).next().unwrap_or(10_000_000);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for (name, mean, sigma) in [("web", 898.0, 1.2), ("mixed", 2424.0, 1.6)] {
        let lengths: Arc<dyn Lengths> = Arc::new(lengths(rows, mean, sigma));
        let orders = Arc::new(Global::new(rows, 42)?);
        let (order, began) = (orders.epoch(0)?, now(origin));
        let (mut block, mut first, mut sum) = (vec![0; 1 << 17], 0, 0_u64);
        while let count @ 1.. = order.fill(first, &mut block) {
            sum ^= block[..count].iter().fold(0, |sum, row| sum ^ row);
            first += count as u64;
        }
        let walk = now(origin) - began;
        println!(
            "{name}: walking {rows} rows on one thread {walk:.2} s ({:.1} ns a row, {sum})",
            walk * 1e9 / rows as f64
        );
        for capacity in [2048, 8192, 32_768] {
            let packed = |threads| {
                let (orders, lengths) = (Arc::clone(&orders) as Arc<dyn Order>, Arc::clone(&lengths));
                Packed::new(orders, lengths, Pack::of(capacity)).map(|packed| packed.with_threads(threads))
            };
            let began = now(origin);
            let epoch = packed(1)?.packed(0)?;
            let one = now(origin) - began;
            let began = Instant::now();
            packed(threads)?.packed(0)?;
            let all = began.elapsed().as_secs_f64();
            let counts = epoch.counts()?;
            let fill = counts.tokens as f64 / (counts.packs * capacity) as f64;
            let (began, mut places) = (now(origin), 0);
            let packs = [1, 3, 5, 7, 9, 11, 13, 15].map(|eighth| epoch.packs() * eighth / 16);
            for pack in packs {
                places ^= epoch.start(pack)?;
            }
            let block = (now(origin) - began) / packs.len() as f64;
            println!(
                "  {capacity}: planned in {one:.2} s on one thread ({:.2} of walking), {all:.2} s on {threads}; \
                 a block packed in {:.2} ms ({places}); \
                 {} packs, {:.4} % full, {} rows split",
                one / walk,
                block * 1e3,
                counts.packs,
                fill * 100.0,
                counts.rows_split,
            );
        }
    }
    Ok(())
}
