//! The rowdex side of `tools/compare/compare.py` and `remote.py`: does one burst of work for each line on stdin, and
//! answers with what it took.
//!
//! Both sides stay alive and take turns, so that a machine whose speed drifts is fair to both.

use std::fs::File;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use rowdex::dataset::DiskCache;
use rowdex::order::{Global, Order, Sequential};
use rowdex::{Dataset, DistributedSampler, Index, IndexBuilder, Loader, Result, Shard};

/// As in the `rowdex` command.
#[global_allocator]
static ALLOCATOR: rowdex::MappedBlocks = rowdex::MappedBlocks::new().with_huge_pages();

/// Rows per batch of the take comparison.
const BATCH: usize = 256;
/// Threads of the loader, and of plain decoding.
const THREADS: usize = 2;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [task, data @ .., scratch] = arguments.as_slice() else {
        eprintln!(
            "usage: rowdex_side take|get|cold-get|build|sequential|plain|first-PERCENT|loader-PERCENT|views-PERCENT|\
             disk_cache-PERCENT DATA ... SCRATCH"
        );
        std::process::exit(2);
    };
    let index = Path::new(scratch).join(format!("{task}.rdx"));
    let build = || IndexBuilder::new(data).with_overwrite(true).build(&index);
    let report = build()?;
    // Filled by the first epoch.
    let disk_cache =
        task.starts_with("disk_cache-").then(|| DiskCache::new(Path::new(scratch).join("disk_cache"), 1 << 40));
    let open = |cache| {
        let builder = Dataset::builder(Index::open(&index)?).with_cache_bytes(cache).with_threads(1);
        match disk_cache.clone() {
            Some(disk_cache) => builder.with_disk_cache(disk_cache).open(),
            None => builder.open(),
        }
    };
    let warm = open(64 << 30)?;
    if matches!(task.as_str(), "take" | "get") {
        for group in warm.index().row_groups() {
            warm.take(&group.row_ids().collect::<Vec<_>>()[..])?;
        }
    }
    let (views, percent) = match task.strip_prefix("views-") {
        Some(percent) => (true, Some(percent)),
        None => (false, task.strip_prefix("loader-").or_else(|| task.strip_prefix("disk_cache-"))),
    };
    let shuffled = || Global::new(report.rows, 42).map(|order| Arc::new(order) as Arc<dyn Order>);
    let in_order = || Sequential::new(report.rows).map(|order| Arc::new(order) as Arc<dyn Order>);
    let loader = |order: Arc<dyn Order>, percent: u64| {
        let sampler = DistributedSampler::new(order, Shard::new(0, 1)?, BATCH)?;
        let memory = warm.decoded_bytes() / 100 * percent;
        Loader::builder(&warm, sampler).memory(memory).threads(THREADS).with_views(views).build()
    };
    let parse = |percent: &str| percent.parse::<u64>().unwrap_or(100);
    let mut steady = match percent {
        Some(percent) => {
            let mut loader = loader(shuffled()?, parse(percent))?;
            // The first epoch fills the memory; what follows is the steady state.
            for batch in loader.epoch() {
                batch?;
            }
            Some(loader)
        }
        None => None,
    };
    let first = task.strip_prefix("first-").map(parse);
    let footers = footers(data, task == "plain");
    let mut random = Random(42);
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let bursts: usize = line.trim().parse().unwrap_or(1);
        let draws: Vec<u64> = (0..bursts * BATCH).map(|_| random.below(report.rows)).collect();
        let before = warm.counters();
        let start = Instant::now();
        let (mut rows, mut bytes_read) = (0, 0);
        match task.as_str() {
            "take" => {
                for batch in draws.chunks(BATCH) {
                    rows += warm.take(batch)?.num_rows();
                }
            }
            "get" => {
                for &row in &draws {
                    rows += warm.get(row)?.num_rows();
                }
            }
            "cold-get" => {
                for &row in &draws[..bursts] {
                    let cold = open(0)?;
                    rows += cold.get(row)?.num_rows();
                    bytes_read += cold.counters().bytes_read;
                }
            }
            "build" => rows += build()?.files as usize,
            "plain" => rows += decode_plainly(&footers),
            _ => match (&mut steady, first) {
                // A loader of its own each time: one that goes on has read ahead meanwhile.
                _ if task == "sequential" => {
                    for batch in loader(in_order()?, 25)?.epoch() {
                        rows += batch?.records.num_rows();
                    }
                }
                (_, Some(percent)) => {
                    let batch = loader(shuffled()?, percent)?.next().transpose()?;
                    rows += batch.map_or(0, |batch| batch.records.num_rows());
                }
                (loader, None) => {
                    for batch in loader.iter_mut().flatten().take(bursts) {
                        rows += batch?.records.num_rows();
                    }
                }
            },
        }
        let seconds = start.elapsed().as_secs_f64();
        bytes_read += (warm.counters() - before).bytes_read;
        let decodes = (warm.counters() - before).decodes;
        println!("{rows} {seconds} {bytes_read} {decodes}");
        std::io::stdout().flush().map_err(|error| rowdex::Error::io("cannot answer", error))?;
    }
    Ok(())
}

/// The files of folders with their footers.
fn footers(data: &[String], wanted: bool) -> Vec<(PathBuf, ArrowReaderMetadata)> {
    let entries = data.iter().flat_map(std::fs::read_dir).flatten().flatten().filter(|_| wanted);
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    paths.sort();
    let open = |path: PathBuf| {
        let metadata = ArrowReaderMetadata::load(&File::open(&path).ok()?, Default::default()).ok()?;
        Some((path, metadata))
    };
    paths.into_iter().filter_map(open).collect()
}

/// What the parquet crate does alone: decodes all row groups, each on one thread, in batches of its own size. Returns
/// the rows.
fn decode_plainly(footers: &[(PathBuf, ArrowReaderMetadata)]) -> usize {
    let groups: Vec<_> = footers
        .iter()
        .flat_map(|(file, footer)| (0..footer.metadata().num_row_groups()).map(move |group| (file, footer, group)))
        .collect();
    let (next, rows) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some((file, footer, group)) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Opened anew, because readers of one file share its position.
                    let Ok(file) = File::open(file) else { continue };
                    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, (*footer).clone())
                        .with_row_groups(vec![*group])
                        .build();
                    for batch in reader.into_iter().flatten().flatten() {
                        rows.fetch_add(batch.num_rows(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    rows.into_inner()
}

/// xorshift64*, by Vigna; any draw would do.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((u128::from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)) * u128::from(limit)) >> 64) as u64
    }
}
