//! The data side of a training job on several ranks: `cargo run --release --example train_loop -- DATA [WORLD_SIZE]`.
//!
//! Indexes the folder, then plays every rank for two epochs and saves a checkpoint in the middle of the second one,
//! from which half of the ranks resume.

use std::path::PathBuf;
use std::sync::Arc;

use rowdex::order::Global;
use rowdex::sampler::State;
use rowdex::{Dataset, DistributedSampler, Error, ErrorKind, IndexBuilder, Loader, Result, Shard};

const SEED: u64 = 42;
const BATCH_SIZE: usize = 256;
const MEMORY_PER_RANK: u64 = 256 << 20;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let data = arguments
        .next()
        .ok_or_else(|| Error::new(ErrorKind::InvalidArgument, "no data").with_hint("name a folder of Parquet files"))?;
    let world_size: u32 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(4);
    let index: PathBuf = std::env::temp_dir().join(format!("train_loop-{}.rdx", std::process::id()));
    IndexBuilder::new([data]).build(&index)?;
    let dataset = Dataset::open(&index)?;
    println!("{} rows", dataset.len());

    // In a job each rank is a process. The checkpoint is the same on all of them, because it counts the steps of the
    // whole job.
    let mut checkpoint = None;
    for rank in 0..world_size {
        let mut loader = loader(&dataset, rank, world_size)?;
        let mut rows = 0;
        for batch in loader.epoch() {
            rows += train(&batch?);
        }
        let half = loader.epoch().next().transpose()?.map_or(0, |first| first.steps / 2);
        for _ in 1..half {
            loader.next().transpose()?;
        }
        println!("rank {rank}: {rows} rows in epoch 0, stopped after {half} steps of epoch 1");
        checkpoint = Some(loader.state());
    }

    let survivors = (world_size / 2).max(1);
    if let Some(checkpoint) = checkpoint {
        let text = checkpoint.to_string();
        println!("resuming from {text} with {survivors} ranks");
        let checkpoint: State = text.parse()?;
        for rank in 0..survivors {
            let mut loader = loader(&dataset, rank, survivors)?;
            loader.resume(&checkpoint)?;
            let mut rows = 0;
            for batch in loader.epoch() {
                rows += train(&batch?);
            }
            println!("rank {rank}: the other {rows} rows of epoch 1");
        }
    }
    std::fs::remove_file(&index).map_err(|error| Error::io("cannot remove the index", error))
}

fn loader(dataset: &Dataset, rank: u32, world_size: u32) -> Result<Loader> {
    let order = Arc::new(Global::new(dataset.len(), SEED)?);
    let sampler = DistributedSampler::new(order, Shard::new(rank, world_size)?, BATCH_SIZE)?;
    Loader::builder(dataset, sampler).memory(MEMORY_PER_RANK).threads(2).build()
}

/// Stands for the work on a batch; returns how many rows it had, without the repeated ones at the end of an epoch.
fn train(batch: &rowdex::Batch) -> usize {
    batch.records.num_rows() - batch.pads
}
