use std::sync::Arc;

use rowdex::order::Global;
use rowdex::{Dataset, DistributedSampler, Loader, Shard};

fn main() -> rowdex::Result<()> {
    let dataset = Dataset::open_or_build("data/")?; // on every rank: finds the index of the files, or builds it
    let order = Arc::new(Global::new(dataset.len(), 42)?); // the number of rows and the seed
    let sampler = DistributedSampler::new(order, Shard::new(0, 8)?, 256)?; // rank 0 of 8
    let mut loader = Loader::builder(&dataset, sampler).memory(4 << 30).threads(4).epochs(2).build()?;
    while let Some(batch) = loader.next().transpose()? {
        let rows = batch.records.num_rows(); // `records` is an Arrow `RecordBatch`
        println!("epoch {} step {}: {rows} rows", batch.epoch, batch.step);
        let _checkpoint = loader.state(); // continues from here, with any number of ranks
    }
    Ok(())
}
