//! One reader for all ranks of a machine.
//!
//! The loaders of a machine's ranks meet at an address of the job. Whoever finds nobody there starts `rowdex serve`, a
//! process that runs the carousel for all of them, with the memory and the threads of the machine; each gets the
//! batches that it would have read itself. See `docs/share.md`.

#[cfg(target_os = "linux")]
mod client;
#[cfg(target_os = "linux")]
mod lanes;
#[cfg(target_os = "linux")]
pub(super) mod message;
#[cfg_attr(not(target_os = "linux"), path = "no_server.rs")]
mod reader;
#[cfg(target_os = "linux")]
mod start;

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_schema::Schema;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

pub use self::reader::Server;
use super::deliver::Deliver;
use super::recovery::Faults;
use super::units::Units;
use super::{NextBatch, Options};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::sampler::{DistributedSampler, Launch, Shard};

/// How many steps ranks may drift apart unless it is said.
const DRIFT: usize = 32;

/// How long the reader waits for ranks that have not come.
const WAIT: Duration = Duration::from_secs(5);

/// How the loaders of a machine's ranks find each other, for [`LoaderBuilder::share`](super::LoaderBuilder::share).
///
/// ```no_run
/// use std::sync::Arc;
/// use rowdex::loader::Share;
/// use rowdex::order::Global;
/// use rowdex::{Dataset, DistributedSampler, Loader, Shard};
///
/// # fn main() -> rowdex::Result<()> {
/// let dataset = Dataset::open("train.rdx")?;
/// let order = Arc::new(Global::new(dataset.len(), 42)?);
/// let sampler = DistributedSampler::new(order, Shard::from_env()?, 256)?; // a rank of torchrun's
/// let share = Share::machine().name("train");
/// let loader = Loader::builder(&dataset, sampler).memory(64 << 30).threads(16).share(share).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[must_use]
pub struct Share {
    pub(super) job: Option<String>,
    name: String,
    pub(super) ranks: Option<u32>,
    drift: Option<usize>,
    wait: Duration,
    /// That reads, and its first arguments. It is of no use to the reader itself.
    #[serde(skip)]
    program: Vec<OsString>,
}

impl Share {
    /// With the loaders of the other ranks of this job on this machine. Which job it is, and how many ranks are here,
    /// is what the launcher says.
    ///
    /// Unless they are given [names](Self::name), loaders are distinguished by the order in which a process calls this.
    pub fn machine() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        // As in Python, so that a process in another language may serve.
        let name = format!("loader {}", MADE.fetch_add(1, Ordering::Relaxed));
        Self { job: None, name, ranks: None, drift: None, wait: WAIT, program: Vec::new() }
    }

    /// Which of the job's loaders this is: the same on all ranks. A process that has several, such as one for training
    /// and one for validation, gives each another name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The name of the job, unless the launcher says it: the same on all ranks, and not that of another job on this
    /// machine.
    pub fn job(mut self, job: impl Into<String>) -> Self {
        self.job = Some(job.into());
        self
    }

    /// How many ranks of the job are on this machine, unless the launcher says it.
    pub fn ranks(mut self, ranks: u32) -> Self {
        self.ranks = Some(ranks);
        self
    }

    /// How many steps a rank may be ahead of another one, about; then it waits. Default: 32, fewer where batches are so
    /// large that a sixteenth of the memory does not hold 32 for each rank.
    pub fn drift(mut self, steps: usize) -> Self {
        self.drift = Some(steps);
        self
    }

    /// How long the reader waits for ranks that have not come, before it begins without them. Default: 5 seconds.
    ///
    /// They may come later. It then begins again, with every rank at its own place.
    pub fn wait(mut self, time: Duration) -> Self {
        self.wait = time;
        self
    }

    /// The program that reads, and arguments that come before its own: the command `rowdex` of this version. Default:
    /// `rowdex`, where the system finds programs.
    pub fn program(mut self, program: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.program = program.into_iter().map(Into::into).collect();
        self
    }

    /// What the loaders agree on, with what this process knows of its job.
    pub(super) fn resolve(
        &self,
        dataset: u64,
        units: &Units,
        samplers: &[DistributedSampler],
        options: &Options,
    ) -> Result<Group> {
        let [sampler] = samplers else {
            return Err(invalid("a loader of several ranks that shares a reader")
                .with_hint("give one sampler, of any rank: each rank has its own loader, and these share a reader"));
        };
        let sampler_is_whole = sampler.part_of().is_none();
        // Workers are told apart when they meet.
        let sampler = sampler.part_of().map_or(sampler, |part| &part.rank);
        let drift = self.drift.unwrap_or(DRIFT);
        if drift == 0 {
            return Err(invalid("ranks that may drift 0 steps apart").with_hint("use 1 or more"));
        }
        let shard = sampler.shard();
        let ranks = self.ranks_here(shard)?;
        let is_alone = shard.world_size() == 1 && sampler_is_whole;
        let address = self.address(is_alone)?;
        let number =
            |number: Option<usize>| number.map_or_else(|| "the default".to_owned(), |number| number.to_string());
        let said = true;
        let facts = [
            ("dataset", format!("{dataset:016x}"), said),
            ("columns", told_columns(&units.form.served), said),
            ("tokens", told_tokens(options), said),
            ("order", format!("{} {:016x}", sampler.given().name(), sampler.given().fingerprint()), said),
            ("sampling", told_sampling(sampler), said),
            ("on_error", format!("{:?}", options.fault), said),
            ("number of ranks on this machine", ranks.to_string(), said),
            ("memory", options.memory.to_string(), options.memory_is_given),
            ("threads", options.threads.to_string(), options.threads_are_given),
            ("read_ahead", number(options.read_ahead), options.read_ahead.is_some()),
            ("read_concurrency", number(options.read_concurrency), options.read_concurrency.is_some()),
            ("drift", drift.to_string(), self.drift.is_some()),
        ];
        let facts = facts.map(|(name, value, said)| Fact { name: name.to_owned(), value, said }).to_vec();
        Ok(Group {
            address,
            ranks,
            drift: drift as u64,
            wait: self.wait,
            facts,
            job: None,
            program: self.program.clone(),
            process: AtomicU64::new(0),
        })
    }

    /// How many ranks are on this machine.
    fn ranks_here(&self, shard: Shard) -> Result<u32> {
        let launch = || Launch::from_env().ok()?.local_world_size;
        // A rank that is the only one is alone on its machine.
        let only = || (shard.world_size() == 1).then_some(1);
        let ranks = self.ranks.or_else(launch).or_else(only).ok_or_else(|| {
            invalid("`share`: how many ranks share this machine is not known")
                .with_hint("start them with torchrun or mpirun, or give `ranks` of the share")
        })?;
        if ranks == 0 || ranks > shard.world_size() {
            let message = format!("{ranks} ranks on this machine of {} in all", shard.world_size());
            return Err(invalid(message).with_hint("give `ranks` of the share as it is"));
        }
        Ok(ranks)
    }

    /// The samplers of this machine's ranks, if their numbers follow each other; of whole ranks, too, where each has
    /// workers.
    pub(super) fn ranks_of(&self, sampler: &DistributedSampler) -> Result<Vec<DistributedSampler>> {
        let sampler = sampler.part_of().map_or(sampler, |part| &part.rank);
        let shard = sampler.shard();
        let ranks = self.ranks_here(shard)?;
        let first = shard.rank() / ranks * ranks;
        let end = first.saturating_add(ranks).min(shard.world_size());
        let other = |rank| {
            let other = Shard::new(rank, shard.world_size())?.with_tail(shard.tail());
            sampler.with_shard(other.with_replication(shard.replicas(), shard.layout())?)
        };
        (first..end).map(other).collect()
    }

    #[cfg(target_os = "linux")]
    fn address(&self, is_alone: bool) -> Result<String> {
        let lookup = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
        let job = self.job.clone().or_else(|| rowdex_share::job_of_launcher(lookup));
        // Whoever has nobody to meet needs no name that others know.
        let own = || is_alone.then(|| format!("process {}", std::process::id()));
        let job = job.or_else(own).ok_or_else(|| {
            invalid("`share`: the loaders of this machine cannot meet: no launcher has named the job").with_hint(
                "start the ranks with torchrun, srun or mpirun, give `job` of the share, or leave `share` out",
            )
        })?;
        Ok(rowdex_share::address(rustix::process::getuid().as_raw(), &job, &self.name))
    }

    #[cfg(not(target_os = "linux"))]
    fn address(&self, _is_alone: bool) -> Result<String> {
        Err(invalid("ranks share a reader on Linux only").with_hint("leave it out: each rank then reads for itself"))
    }
}

/// Names and types of columns, in a line of some length.
fn told_columns(schema: &Schema) -> String {
    let columns = schema.fields().iter().map(|field| format!("{} ({})", field.name(), field.data_type()));
    let columns = columns.collect::<Vec<_>>().join(", ");
    match columns.len() {
        0..=400 => columns,
        _ => format!("{} columns, {:016x}", schema.fields().len(), xxh3_64(columns.as_bytes())),
    }
}

/// Which columns have the tokens of packs, and an item for each.
fn told_tokens(options: &Options) -> String {
    let tokens = options.tokens.clone().unwrap_or_else(|| "the default".to_owned());
    std::iter::once(&tokens).chain(&options.with_columns).map(String::as_str).collect::<Vec<_>>().join(",")
}

/// The batches of all ranks, and what becomes of rows that are left over, wherever a rank stands.
fn told_sampling(sampler: &DistributedSampler) -> String {
    let run = sampler.state().run.map(|mut run| {
        (run.start, run.step) = (0, None);
        run.to_string()
    });
    run.unwrap_or_default()
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

/// Something that decides what is served, or how, as one process has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Fact {
    name: String,
    value: String,
    /// Whether it was chosen. What decides which rows are served counts as chosen, though it may be a default.
    said: bool,
}

/// What a reader is to serve, as bytes for another process.
pub(super) trait ReaderJob: std::fmt::Debug + Send + Sync {
    /// For so many ranks on this machine.
    #[cfg(target_os = "linux")]
    fn told(&self, ranks: u32) -> Result<Vec<u8>>;
}

/// The loaders that share a reader.
#[derive(Debug)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is none"))]
pub(super) struct Group {
    address: String,
    /// Ranks on this machine.
    ranks: u32,
    drift: u64,
    wait: Duration,
    /// What must be the same on all ranks.
    facts: Vec<Fact>,
    /// What the reader is told to serve if this process starts it, and the program of it with its first arguments.
    pub(super) job: Option<Box<dyn ReaderJob>>,
    program: Vec<OsString>,
    /// The process that has used it; 0 before anyone has.
    process: AtomicU64,
}

#[cfg(target_os = "linux")]
impl Group {
    /// How many loaders are to be expected, of a rank's sampler or of one of its workers': a worker without a step asks
    /// for none.
    fn consumers(&self, sampler: &DistributedSampler) -> usize {
        let workers = sampler.part_of().map_or(1, |part| part.workers.min(part.rank.steps_left()).max(1));
        usize::try_from(workers.saturating_mul(self.ranks.into())).unwrap_or(usize::MAX)
    }
}

/// What a rank serves, and from where on.
#[derive(Debug, Clone)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is none"))]
pub(super) struct Seat {
    pub(super) group: Arc<Group>,
    pub(super) units: Arc<Units>,
    pub(super) faults: Arc<Faults>,
    pub(super) sampler: DistributedSampler,
    pub(super) options: Options,
    pub(super) place: NextBatch,
}

/// Delivers the batches of a rank, which another process may read.
#[cfg(target_os = "linux")]
pub(super) fn deliver(seat: Seat) -> Result<Box<dyn Deliver>> {
    let own = u64::from(std::process::id());
    if let Err(other) = seat.group.process.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed)
        && other != own
    {
        let message = "this process was forked from one that uses this loader, which shares a reader";
        return Err(Error::new(ErrorKind::Closed, message)
            .with_hint("make a loader in the forked process, with another share name, or fork before using it"));
    }
    Ok(Box::new(client::Client::new(seat)?))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn deliver(_: Seat) -> Result<Box<dyn Deliver>> {
    Err(invalid("ranks share a reader on Linux only"))
}
