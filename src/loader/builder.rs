//! Options of a loader.

use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};

use super::Loader;
use super::estimate::{self, Estimate};
use super::groups::dataset::DatasetGroups;
use super::groups::{RowForm, fingerprint};
use super::lookahead::Lookahead;
use super::packing::{ServedPacks, column_of};
use super::recovery::Fault;
use super::share::{Group, Seat, Server, Share};
use super::units::Units;
use crate::dataset::Dataset;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::sampler::DistributedSampler;
use rowdex_rows::token_columns;

/// Options of a [`Loader`], from [`Loader::builder`].
#[derive(Debug, Clone)]
pub struct LoaderBuilder {
    pub(super) datasets: Vec<Dataset>,
    pub(super) served: SchemaRef,
    pub(super) groups: Arc<DatasetGroups>,
    pub(super) samplers: Vec<DistributedSampler>,
    pub(super) share: Option<Share>,
    pub(super) options: Options,
}

impl LoaderBuilder {
    /// How many bytes to hold at most: decoded rows, those being decoded, the batches that wait, and what is known of
    /// row groups and of the rows that are looked ahead at ([`Estimate::bookkeeping_bytes`]). Default: 1 GiB.
    ///
    /// It may be exceeded by an eighth, as rows come and go, and by two row groups, or by the rows of two batches where
    /// these take more. What is resident besides is a constant: compressed bytes, open pages, and what the allocator
    /// keeps. See `docs/performance.md`.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        (self.options.memory, self.options.memory_is_given) = (bytes, true);
        self
    }

    /// How many threads the loader has. With 0 all work is done on the thread that asks for batches. Default: 2.
    ///
    /// What is served does not depend on it. No thread exists before the first batch is asked for, nor after the end.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        (self.options.threads, self.options.threads_are_given) = (threads, true);
        self
    }

    /// How many finished batches may wait to be asked for, about. Default: a few, fewer of wide rows than of narrow
    /// ones.
    #[must_use]
    pub fn read_ahead(mut self, batches: usize) -> Self {
        self.options.read_ahead = Some(batches);
        self
    }

    /// How many row groups of an object store may be on their way at once, those being decoded left out. Default: as
    /// many as the link holds; local files are not read ahead.
    ///
    /// Unless chosen here, more is asked for when a row group was late, up to twice the latency of the store times the
    /// rate at which it delivers, and less when row groups lie about. However much that is, it takes up to a quarter of
    /// the [memory](Self::memory) from the rows that are held, what the order has no use for besides, and one row
    /// group.
    #[must_use]
    pub fn read_concurrency(mut self, row_groups: usize) -> Self {
        self.options.read_concurrency = Some(row_groups);
        self
    }

    /// How many epochs the run has: it ends before epoch `epochs`, wherever it was started or resumed. Default: no end.
    #[must_use]
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.options.epochs = Some(epochs);
        self
    }

    /// How long to wait for a batch. A caller that asks for one that is not there by then gets an error of the kind
    /// [`TimedOut`](ErrorKind::TimedOut), and may do something else and ask again: nothing is lost. Default: without
    /// end.
    ///
    /// A loader without threads finishes the row group at hand first.
    #[must_use]
    pub fn max_wait(mut self, most: Duration) -> Self {
        self.options.max_wait = Some(most);
        self
    }

    /// Serves top-level string and binary columns as `Utf8View` and `BinaryView`, from any of their types. Default: no,
    /// with the schema's own types.
    ///
    /// Their values are then not copied into batches, which is worth it for wide ones. In exchange a batch keeps alive
    /// what its values are in: a part of the rows that are held, or row groups that stay decoded. So drop batches soon,
    /// or copy what is to be kept; what waiting batches keep is counted by the values that they show.
    #[must_use]
    pub fn with_views(mut self, views: bool) -> Self {
        self.groups = Arc::new(DatasetGroups::new(&self.datasets, &self.served, views));
        self
    }

    /// What to do about a row group that cannot be read. Default: [`Fault::Fail`].
    ///
    /// Set it alike on all ranks, or they serve different rows.
    #[must_use]
    pub fn on_error(mut self, fault: Fault) -> Self {
        self.options.fault = fault;
        self
    }

    /// Which column has the tokens of packs: its name, or the path of a field of a struct, as `doc.tokens`. It has
    /// lists of integers. Default: the column whose items were counted for the lengths, if these were counted so.
    ///
    /// Where no column has them, rows are served whole: packs that split or truncate rows are refused.
    #[must_use]
    pub fn tokens(mut self, column: impl Into<String>) -> Self {
        self.options.tokens = Some(column.into());
        self
    }

    /// Columns with an item for each token: their rows are cut as those of the tokens are, and
    /// [`Batch::sequences`](super::Batch::sequences) has them where the labels are. They have lists of numbers, as long
    /// as the tokens of their rows; others return an error at the first row. Default: none but `labels`,
    /// `completion_mask` and `assistant_masks`, which are such columns where they have lists of integers next to the
    /// tokens.
    #[must_use]
    pub fn with_columns(mut self, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.with_columns = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Serves the batches of these ranks, too: at every step one after another, the first sampler's first. All together
    /// share the memory, so it goes as far as if there were one rank.
    #[must_use]
    pub fn and_ranks(mut self, samplers: impl IntoIterator<Item = DistributedSampler>) -> Self {
        self.samplers.extend(samplers);
        self
    }

    /// Shares one reader with the loaders of the other ranks on this machine: each row group is decoded for all of
    /// them, and [memory](Self::memory) and [threads](Self::threads) are those of the machine. Default: no.
    ///
    /// What each rank gets stays the same, to the bit. All ranks of the machine need the same arguments. With a
    /// [worker's](DistributedSampler::worker) sampler the reader is that of all workers of all ranks. Linux only. See
    /// `docs/share.md`.
    #[must_use]
    pub fn share(mut self, share: Share) -> Self {
        self.share = Some(share);
        self
    }

    /// What the loader will do, from the index alone. Takes a fraction of a second, or more for long orders of other
    /// sorts than `global` and `sequential`, through which it walks row by row.
    ///
    /// No data file is read, but for a few footers where the index was built without them.
    ///
    /// With [`share`](Self::share) it is what the reader will do for the ranks of this machine, whose numbers are taken
    /// to follow each other.
    ///
    /// # Errors
    ///
    /// Those of [`Order::epoch`](rowdex_order::Order::epoch), and `OutOfRange` if the order has a row that is not
    /// there. With `share` those of [`build`](Self::build), too.
    pub fn estimate(&self) -> Result<Estimate> {
        let memory = self.options.memory;
        let units = self.units()?;
        let ahead = Lookahead::new(&units, memory, self.options.threads, self.options.read_concurrency).reserve();
        let samplers = match (&self.share, &self.samplers[..]) {
            (Some(share), [sampler]) => share.ranks_of(sampler)?,
            _ => self.samplers.clone(),
        };
        estimate::estimate(&units, &samplers.into(), memory - ahead, self.options.threads)
    }

    /// The memory that brings the passes of a later epoch down to a few, or to one where they are a few, and what the
    /// loader does with it, by the same plan that [`estimate`](Self::estimate) runs. None where an epoch takes fewer
    /// than two passes. Takes some times as long as an estimate.
    ///
    /// # Errors
    ///
    /// Those of [`estimate`](Self::estimate).
    pub fn advise(&self) -> Result<Option<(u64, Estimate)>> {
        /// With fewer passes nothing is advised: at least one is what any order takes that follows no row groups.
        const ENOUGH: f64 = 2.0;
        const FEW: f64 = 4.0;
        const TRIES: usize = 6;
        let passes = self.estimate()?.passes;
        if passes < ENOUGH {
            return Ok(None);
        }
        let target = if passes > FEW { FEW } else { 1.0 };
        // Passes are in inverse proportion to the memory.
        let mut memory = self.options.memory.max(1) as f64 * passes / target * 1.05;
        let mut advice = None;
        for _ in 0..TRIES {
            let memory_tried = (memory as u64).next_multiple_of(1 << 20);
            let told = self.clone().memory(memory_tried).estimate()?;
            advice = Some((memory_tried, told));
            if told.passes <= target {
                break;
            }
            memory *= 1.2;
        }
        Ok(advice.filter(|(_, told)| told.passes <= passes * 0.9))
    }

    /// The loader, at the state of the sampler. Reads nothing and starts no thread.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the [memory](Self::memory) is less than [`Estimate::least_memory`], if the samplers of
    /// several ranks differ in anything but the rank, if two of them are of the same rank, and if it cannot
    /// [share](Self::share) a reader: because it has several ranks itself, because neither the launcher nor the caller
    /// says which job this is and how many ranks are on this machine, or because this is not Linux.
    pub fn build(self) -> Result<Loader> {
        let units = self.units()?;
        let mut options = self.options.clone();
        if let Some(share) = &self.share {
            let mut group = share.resolve(fingerprint(&self.datasets), &units, &self.samplers, &options)?;
            group.job = Some(Box::new(self.clone()));
            options.group = Some(Arc::new(group));
        }
        Loader::new(units, self.samplers, options)
    }

    /// Reads for the loaders of this machine's ranks that [share](Self::share) a reader, in the place of the process
    /// that these would start: in a separate process, for orders and sources that no other program has. It takes the
    /// place where the ranks meet at once, and so before any of them does.
    ///
    /// The sampler is that of any rank. Each loader resumes from its own state and ends at its own last epoch, which
    /// are not those of this one. All else that decides what is served must be the same in all loaders; memory,
    /// threads, [`read_ahead`](Self::read_ahead), [`read_concurrency`](Self::read_concurrency) and the options of
    /// [`Share`] are the server's, which loaders leave out or give alike. See `docs/share.md`.
    ///
    /// # Errors
    ///
    /// Those of [`build`](Self::build); `InvalidArgument` without `share`, and `AlreadyExists` if another process reads
    /// for these ranks already.
    pub fn serve(self) -> Result<Server> {
        Server::start(self.seat()?)
    }

    /// What a reader needs for such loaders.
    pub(super) fn seat(self) -> Result<Seat> {
        self.build()?.seat().ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "a server without a job to serve")
                .with_hint("say which ranks it is for: share(Share::machine().job(\"name\").ranks(8))")
        })
    }

    /// What is read at once: small row groups together, unless the order takes them one by one.
    pub(super) fn units(&self) -> Result<Arc<Units>> {
        let in_order = match &self.samplers[..] {
            [sampler] if self.share.is_none() && sampler.serves_all_in_order() => self.groups.in_order(),
            _ => None,
        };
        let groups = in_order.map_or_else(|| Arc::clone(&self.groups), Arc::new);
        let packed = self.samplers.first().and_then(DistributedSampler::packed);
        let tokens = packed.and_then(|packed| column_of(packed, self.options.tokens.as_deref()));
        let with = &self.options.with_columns;
        let columns = tokens.map(|name| token_columns(&groups.form.decoded, name, with)).unwrap_or_default();
        let units = match self.samplers.iter().any(|sampler| sampler.orders().follows_row_groups()) {
            true => Units::new(groups, None),
            false => Units::joined(groups, self.options.memory),
        };
        let units = units.with_lists(&columns);
        let packing = self.packing(&units.form, &columns)?;
        Ok(Arc::new(units.with_packing(packing).sharing_dictionaries(self.options.memory)))
    }

    /// What is known of the packs, if samplers have some, with an item for each token in these columns.
    fn packing(&self, form: &RowForm, columns: &[String]) -> Result<Option<ServedPacks>> {
        let Some(sampler) = self.samplers.first() else { return Ok(None) };
        let given = self.options.tokens.as_ref().or(self.options.with_columns.first());
        if let Some(name) = given.filter(|_| columns.is_empty()) {
            let (message, hint) = match sampler.packed() {
                None => {
                    ("a column with tokens for a sampler without packs", "leave it out, or make the sampler of packs")
                }
                Some(_) => (
                    "items for each token of packs of which no column has the tokens",
                    "name the column with the tokens",
                ),
            };
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_column(name).with_hint(hint));
        }
        if sampler.packed().is_some() && self.options.fault != Fault::Fail {
            let message = "packs of which rows that cannot be read are replaced by others, which have other lengths";
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("raise errors instead"));
        }
        ServedPacks::of(sampler, columns, &form.decoded, &form.served)
    }
}

/// What a loader is made with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Options {
    pub(super) memory: u64,
    pub(super) threads: usize,
    /// Whether these were chosen.
    pub(super) memory_is_given: bool,
    pub(super) threads_are_given: bool,
    pub(super) read_ahead: Option<usize>,
    pub(super) read_concurrency: Option<usize>,
    pub(super) epochs: Option<u64>,
    pub(super) max_wait: Option<Duration>,
    pub(super) fault: Fault,
    /// The column with the tokens, if it was named.
    pub(super) tokens: Option<String>,
    /// Columns beside it that were named, with an item for each token.
    pub(super) with_columns: Vec<String>,
    #[serde(skip)]
    pub(super) group: Option<Arc<Group>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory: 1 << 30,
            threads: 2,
            memory_is_given: false,
            threads_are_given: false,
            read_ahead: None,
            read_concurrency: None,
            epochs: None,
            max_wait: None,
            fault: Fault::Fail,
            tokens: None,
            with_columns: Vec::new(),
            group: None,
        }
    }
}
