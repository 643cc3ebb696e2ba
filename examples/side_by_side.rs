//! Columns of two indexes of the same rows, side by side, by two loaders in lockstep:
//! `cargo run --release --example side_by_side -- images.rdx embeddings.rdx`.

use std::sync::Arc;

use rowdex::order::Global;
use rowdex::{Dataset, DistributedSampler, Loader, Result, Shard};

fn main() -> Result<()> {
    let indexes: Vec<String> = std::env::args().skip(1).collect();
    if let [images, embeddings] = indexes.as_slice() {
        println!("{} rows side by side", served(images, embeddings, 1, 4)?);
    }
    Ok(())
}

/// How many rows a rank gets in an epoch: one sampler says for both which they are, and one state is that of both.
pub(crate) fn served(images: &str, embeddings: &str, rank: u32, world_size: u32) -> Result<usize> {
    let images = Dataset::open(images)?;
    let embeddings = Dataset::open(embeddings)?;
    let order = Arc::new(Global::new(images.len(), 42)?);
    let sampler = DistributedSampler::new(order, Shard::new(rank, world_size)?, 64)?;
    // More memory for the one with more bytes.
    let mut images = Loader::builder(&images, sampler.clone()).memory(192 << 20).build()?;
    let mut embeddings = Loader::builder(&embeddings, sampler).memory(64 << 20).build()?;
    let mut rows = 0;
    for (image, embedding) in images.epoch().zip(embeddings.epoch()) {
        let image = image?;
        let embedding = embedding?;
        assert_eq!(image.row_ids, embedding.row_ids);
        // Row i of `image.records` and row i of `embedding.records` are the same row.
        rows += image.records.num_rows();
    }
    Ok(rows)
}
