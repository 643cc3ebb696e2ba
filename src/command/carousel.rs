//! How the carousel reads, as it is asked for on the command line: what becomes a loader, or a server.

use clap::{Args, ValueEnum};
use rowdex::dataset::DatasetBuilder;
use rowdex::loader::{Fault, LoaderBuilder};
use rowdex::{Dataset, DistributedSampler, Index, Loader};

use crate::command::args::{DataArgs, TierArgs};
use crate::command::failure::Failure;
use crate::command::size::Memory;

/// What is read, by how many threads, and within how much memory.
#[derive(Debug, Clone, Args)]
pub(crate) struct CarouselArgs {
    /// Keep at most this much of decoded row groups: bytes, a size like 4GiB, or a share like 25% of the chosen columns
    /// when decoded.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: Memory,

    /// What to do about a row group that cannot be read: `fail`, or `substitute` each of its rows by another one that
    /// can be read, the same on all ranks.
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = OnFault::Fail)]
    on_fault: OnFault,

    /// With `--on-fault substitute`: another seed takes other rows in the place of those that cannot be read [default:
    /// 0].
    #[arg(long, value_name = "S")]
    fault_seed: Option<u64>,

    /// With the carousel: read at most this many row groups of a store at once, instead of as many as hide its latency.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=1024))]
    read_concurrency: Option<u16>,

    /// With --pack: the column that has the tokens, or the path of a field of a struct, `doc.tokens`, and after it
    /// those with an item for each token, `tokens,weights` [default: the one whose items were counted for the lengths].
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',', requires = "pack")]
    tokens: Vec<String>,

    #[command(flatten)]
    data: DataArgs,

    #[command(flatten)]
    tier: TierArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnFault {
    Fail,
    Substitute,
}

impl CarouselArgs {
    /// The dataset, which keeps so many bytes of row groups itself.
    pub(crate) fn open(&self, index: Index, cache_bytes: u64) -> Result<Dataset, Failure> {
        self.tier.open(self.data.builder(index, Some(cache_bytes)))
    }

    /// How it is to be read.
    pub(crate) fn carousel(&self, index: &Index) -> Result<Carousel, Failure> {
        let decoded_bytes = self.data.open(index.clone(), None)?.decoded_bytes();
        let fault = match self.on_fault {
            OnFault::Fail if self.fault_seed.is_some() => {
                return Err(Failure::usage(
                    "--fault-seed chooses substitutes: add `--on-fault substitute`, or leave it out",
                ));
            }
            OnFault::Fail => Fault::Fail,
            OnFault::Substitute => Fault::Substitute { seed: self.fault_seed.unwrap_or(0) },
        };
        Ok(Carousel {
            memory: self.memory.bytes(decoded_bytes),
            threads: self.data.threads.threads.map_or_else(DatasetBuilder::default_threads, usize::from),
            read_concurrency: self.read_concurrency.map(usize::from),
            fault,
            tokens: self.tokens.clone(),
        })
    }
}

/// How the carousel reads.
#[derive(Debug, Clone)]
pub(crate) struct Carousel {
    pub(crate) memory: u64,
    pub(crate) threads: usize,
    pub(crate) read_concurrency: Option<usize>,
    pub(crate) fault: Fault,
    /// Which column has the tokens of packs, and which have an item for each, if that is said.
    pub(crate) tokens: Vec<String>,
}

impl Carousel {
    /// A loader of a sampler's batches, or a server of the ranks that are like it.
    pub(crate) fn builder(&self, dataset: &Dataset, sampler: DistributedSampler) -> LoaderBuilder {
        let loader = Loader::builder(dataset, sampler).memory(self.memory).threads(self.threads).on_fault(self.fault);
        let loader = match self.read_concurrency {
            Some(row_groups) => loader.read_concurrency(row_groups),
            None => loader,
        };
        match self.tokens.split_first() {
            Some((tokens, beside)) => loader.tokens(tokens).with_columns(beside),
            None => loader,
        }
    }
}
