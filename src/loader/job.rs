//! What a rank tells the reader that it has started: which rows to read for whom, and how.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use super::builder::LoaderBuilder;
use super::share::message::{VERSION, bytes, check_version, garbled};
use super::share::{ReaderJob, Seat, Server, Share};
use super::{Loader, Options};
use crate::dataset::{Dataset, MixedDataset, SavedDataset};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::SavedSampler;

#[derive(Serialize, Deserialize)]
struct Job {
    // First, so that any version reads it.
    version: String,
    datasets: Vec<SavedDataset>,
    views: bool,
    sampler: SavedSampler,
    options: Options,
    share: Share,
}

impl ReaderJob for LoaderBuilder {
    fn told(&self, ranks: u32) -> Result<Vec<u8>> {
        let ([sampler], Some(share)) = (&self.samplers[..], &self.share) else { return Err(garbled()) };
        let own =
            |error: Error| error.with_hint("start the reader before the ranks, in a separate process that has it");
        let job = Job {
            version: VERSION.to_owned(),
            datasets: self.datasets.iter().map(Dataset::saved).collect::<Result<_>>().map_err(own)?,
            views: self.groups.form.shares_values,
            sampler: SavedSampler::of(sampler).map_err(own)?,
            options: self.options.clone(),
            // All that the launcher has said: nobody needs to find the reader by its name.
            share: share.clone().job("").ranks(ranks),
        };
        let job = bytes(&job);
        if job.is_empty() {
            let message = "an order, lengths or a path that cannot be sent to another process";
            return Err(own(Error::new(ErrorKind::InvalidArgument, message)));
        }
        Ok(job)
    }
}

impl Job {
    /// What the reader needs for it.
    fn seat(job: &[u8]) -> Result<Seat> {
        check_version(postcard::take_from_bytes(job).map_err(|_| garbled())?.0)?;
        let Self { datasets, views, sampler, options, share, .. } = postcard::from_bytes(job).map_err(|_| garbled())?;
        let mut datasets = datasets.into_iter().map(SavedDataset::open).collect::<Result<Vec<_>>>()?;
        let sampler = sampler.sampler()?;
        let builder = match datasets.pop() {
            Some(dataset) if datasets.is_empty() => Loader::builder(&dataset, sampler),
            last => Loader::builder(&MixedDataset::new(datasets.into_iter().chain(last))?, sampler),
        };
        let builder = LoaderBuilder { options, ..builder.with_views(views).share(share) };
        builder.seat()
    }
}

impl Server {
    /// Reads for the ranks that meet at this socket, as the one says in `job` that has made it, until they have left.
    #[doc(hidden)]
    pub fn run(socket: OwnedFd, job: OwnedFd) -> Result<()> {
        let mut bytes = Vec::new();
        let read = File::from(job).read_to_end(&mut bytes);
        read.map_err(|error| Error::io("cannot read what to serve", error))?;
        Self::listen(Job::seat(&bytes)?, socket)
    }
}
