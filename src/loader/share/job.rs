//! What a rank tells the reader that it has started: which rows to read for whom, and how.

use serde::{Deserialize, Serialize};

use super::message::{VERSION, bytes, check_version, garbled};
use super::{Seat, Share};
use crate::dataset::{Dataset, MixedDataset, SavedDataset};
use crate::loader::{Loader, LoaderBuilder, Options};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::SavedSampler;

#[derive(Serialize, Deserialize)]
pub(super) struct Job {
    // First, so that any version reads it.
    version: String,
    datasets: Vec<SavedDataset>,
    views: bool,
    sampler: SavedSampler,
    options: Options,
    share: Share,
}

impl Job {
    /// What such a loader is to be served.
    pub(super) fn of(builder: &LoaderBuilder, share: Share) -> Result<Vec<u8>> {
        let [sampler] = &builder.samplers[..] else { return Err(garbled()) };
        let own =
            |error: Error| error.with_hint("start the reader before the ranks, in a process of its own that has it");
        let job = Self {
            version: VERSION.to_owned(),
            datasets: builder.datasets.iter().map(Dataset::saved).collect::<Result<_>>().map_err(own)?,
            views: builder.groups.form().shares_values,
            sampler: SavedSampler::of(sampler).map_err(own)?,
            options: builder.options.clone(),
            share,
        };
        let job = bytes(&job);
        if job.is_empty() {
            let message = "an order, lengths or a path that another process cannot be told";
            return Err(own(Error::new(ErrorKind::InvalidArgument, message)));
        }
        Ok(job)
    }

    /// What the reader needs for it.
    pub(super) fn seat(job: &[u8]) -> Result<Seat> {
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
