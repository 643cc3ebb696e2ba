//! How the carousel reads, as it is asked for on the command line: what becomes a loader, or a server.

use clap::Args;
use rowdex::dataset::DatasetBuilder;
use rowdex::loader::{Fault, LoaderBuilder};
use rowdex::{Dataset, DistributedSampler, Index, Loader};

use crate::command::args::{DataArgs, DiskCacheArgs};
use crate::command::failure::Failure;
use crate::command::size::Memory;

/// What is read, by how many threads, and within how much memory.
#[derive(Debug, Clone, Args)]
pub(crate) struct CarouselArgs {
    /// Keep at most this much of decoded row groups: bytes, a size like 4GiB, or a share like 25% of the chosen columns
    /// when decoded.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: Memory,

    /// What to do about a row group that cannot be read: `raise` the error, or `substitute` each of its rows by another
    /// one that can be read, the same on all ranks; `substitute:SEED` takes others.
    #[arg(long, value_name = "POLICY", default_value = "raise", value_parser = fault)]
    on_error: Fault,

    #[command(flatten)]
    data: DataArgs,

    #[command(flatten)]
    disk_cache: DiskCacheArgs,
}

fn fault(text: &str) -> Result<Fault, String> {
    let bad = || format!("{text:?} is neither raise nor substitute");
    match text.split_once(':') {
        None if text == "raise" => Ok(Fault::Fail),
        None if text == "substitute" => Ok(Fault::Substitute { seed: 0 }),
        Some(("substitute", seed)) => Ok(Fault::Substitute { seed: seed.parse().map_err(|_| bad())? }),
        _ => Err(bad()),
    }
}

impl CarouselArgs {
    pub(crate) fn open(&self, index: Index) -> Result<Dataset, Failure> {
        self.disk_cache.open(self.data.builder(index))
    }

    pub(crate) fn memory(&self, dataset: &Dataset) -> u64 {
        self.memory.bytes(dataset.decoded_bytes())
    }

    pub(crate) fn threads(&self) -> usize {
        self.data.threads.map_or_else(DatasetBuilder::default_threads, usize::from)
    }

    /// A loader of a sampler's batches, or a server of the ranks that are like it.
    pub(crate) fn builder(&self, dataset: &Dataset, sampler: DistributedSampler) -> LoaderBuilder {
        let loader = Loader::builder(dataset, sampler).memory(self.memory(dataset));
        loader.threads(self.threads()).on_error(self.on_error)
    }
}
