//! What can be asked, as types.

use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use rowdex::dataset::{DiskTier, TierKind};
use rowdex::sampler::State;
use rowdex::{Dataset, DatasetBuilder, Index, SchemaMode, Staleness};

use crate::failure::Failure;
use crate::ids::IdsArgs;
use crate::prove::ProveArgs;
use crate::quality::QualityArgs;
use crate::sampling::SamplingArgs;
use crate::size::Memory;
use crate::whereabouts::WhereArgs;

/// Parquet files as a map-style dataset for distributed training.
///
/// `build` reads the footers of Parquet files and writes an index, in which every row has a number. All other commands take
/// that index: they say where a row is, fetch rows, or run whole epochs as the ranks of a training job would.
#[derive(Debug, Parser)]
#[command(name = "rowdex", version, propagate_version = true, after_help = CLI_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const CLI_HELP: &str = "\
Examples:
  rowdex demo
  rowdex build data/ -o train.rdx
  rowdex get train.rdx 0 41 99
  rowdex epoch train.rdx --world-size 8 --batch-size 256
  rowdex plan train.rdx --world-size 8 --memory 4GiB

Results go to stdout, everything else to stderr. Exit status: 0 done, 1 failed, 2 called wrongly.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Index Parquet files.
    Build(BuildArgs),
    /// Say what is in an index.
    Info(InfoArgs),
    /// Check an index, and the files it is of.
    Verify(VerifyArgs),
    /// Say in which file, row group and row a row id is.
    Locate(LocateArgs),
    /// Fetch rows by their ids, in the order asked.
    Get(GetArgs),
    /// Read whole epochs as the ranks of a training job would, and report what each rank got.
    Epoch(EpochArgs),
    /// Say what an epoch would cost within a memory budget, from the index alone.
    Plan(PlanArgs),
    /// Write the row ids that a rank is dealt, one a line.
    Ids(IdsArgs),
    /// Go through all that every rank is dealt, and show that shards are equal, disjoint and complete.
    Prove(ProveArgs),
    /// Say which rows a step of a run has, or which steps have a row.
    Where(WhereArgs),
    /// Compare orders: how far they shuffle, and what their batches are made of.
    Quality(QualityArgs),
    /// Make a small dataset, index it and train on it for show.
    Demo(DemoArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rowdex build data/ -o train.rdx
  rowdex build 'data/2024-*/*.parquet' more/extra.parquet -o train.rdx --root .
  rowdex build data/ -o train.rdx --update
  rowdex build s3://bucket/data/ -o s3://bucket/train.rdx
  rowdex build data/ -o subset.rdx --rows rows.csv")]
pub(crate) struct BuildArgs {
    /// Parquet files, folders to search for them, and quoted glob patterns; or URLs of these in one bucket, container or host (s3, gs,
    /// az, http, https). Credentials are taken from the environment.
    #[arg(required = true, value_name = "DATA")]
    pub(crate) data: Vec<PathBuf>,

    /// The index to write, a file or a URL.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// Replace the index if there is one.
    #[arg(long)]
    pub(crate) force: bool,

    /// Go on from the index if there is one: leading files that have not changed keep their row ids, the others follow.
    #[arg(long, conflicts_with_all = ["force", "rows"])]
    pub(crate) update: bool,

    /// Store paths relative to this directory instead of to the deepest one that contains all files.
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    /// How to bring the schemas together: `strict` wants the same columns in every file, `union` fills missing columns
    /// with nulls and widens types.
    #[arg(long, value_name = "MODE", default_value = "strict", value_parser = named::<SchemaMode>(&["strict", "union"]))]
    pub(crate) schema: SchemaMode,

    /// Do not store the footers: a smaller index, but everyone who opens it reads them again.
    #[arg(long)]
    pub(crate) no_footers: bool,

    /// Do not make columns of folders named key=value.
    #[arg(long)]
    pub(crate) no_partitions: bool,

    /// Index only the rows in this Parquet or CSV file, with a column `row_id` or the columns `file`, `row_group` and
    /// `row`.
    #[arg(long, value_name = "FILE")]
    pub(crate) rows: Option<PathBuf>,

    /// Read footers with this many threads [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,

    /// Send at most this many requests to a store at once.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) concurrency: u16,

    #[command(flatten)]
    pub(crate) json: JsonArg,
}

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    pub(crate) index: IndexArg,

    #[command(flatten)]
    pub(crate) json: JsonArg,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Levels:
  off     every byte of the index
  stat    and the size and time of every file
  footer  and the footer of every file
  deep    and every value of every file")]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) index: IndexArg,

    /// How closely to look.
    #[arg(long, value_name = "LEVEL", default_value = "stat", value_parser = named::<Staleness>(LEVELS))]
    pub(crate) level: Staleness,

    #[command(flatten)]
    pub(crate) root: RootArg,

    #[command(flatten)]
    pub(crate) threads: ThreadsArg,

    #[command(flatten)]
    pub(crate) json: JsonArg,
}

#[derive(Debug, Args)]
pub(crate) struct LocateArgs {
    #[command(flatten)]
    pub(crate) index: IndexArg,

    #[command(flatten)]
    pub(crate) rows: RowsArg,

    #[command(flatten)]
    pub(crate) json: JsonArg,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rowdex get train.rdx 0 41 99 --columns label,text
  rowdex get train.rdx 1000..2000 --output rows.parquet
  rowdex get train.rdx 7 --format json")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) index: IndexArg,

    #[command(flatten)]
    pub(crate) rows: RowsArg,

    /// How to write the rows [default: by the extension of --output, else table]. `arrow` is an Arrow IPC file.
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,

    /// Write to this file instead of to stdout.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Replace the file if there is one.
    #[arg(long, requires = "output")]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) data: DataArgs,

    #[command(flatten)]
    pub(crate) tier: TierArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
    Csv,
    Arrow,
    Parquet,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  rowdex epoch train.rdx --world-size 8 --batch-size 256
  rowdex epoch train.rdx --world-size 8 --rank 3 --epochs 2 --memory 25% --json
  rowdex epoch train.rdx --order sequential --tail uneven --columns label,text
  rowdex epoch train.rdx --skip bad.txt --split train --split-by user --balance label --epoch-size 1000000

Which rows, in which order, how many: --skip and --split leave rows out; --order, --weights or --balance order those that are left;
--epoch-size ends an epoch. --weights and --balance exclude each other and --order.")]
pub(crate) struct EpochArgs {
    #[command(flatten)]
    pub(crate) index: IndexArg,

    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,

    /// Keep at most this much of decoded row groups: bytes, a size like 4GiB, or a share like 25% of the chosen columns
    /// when decoded.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub(crate) memory: Memory,

    /// Go on from this state of an earlier run, whatever its number of ranks: a line `rowdex-state-v1:...`.
    #[arg(long, value_name = "STATE", conflicts_with = "epoch")]
    pub(crate) resume: Option<State>,

    /// Stop after this many steps, even in the middle of an epoch.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: Option<u64>,

    /// What to do about a row group that cannot be read: `fail`, or `substitute` each of its rows by another one that can be read,
    /// the same on all ranks.
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = OnFault::Fail)]
    pub(crate) on_fault: OnFault,

    /// Which rows stand in for those that cannot be read.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) fault_seed: u64,

    /// What reads the rows: `carousel` looks ahead in the order and keeps the rows that are due, `lru` keeps the row groups used last.
    #[arg(long, value_enum, default_value_t = Loader::Carousel)]
    pub(crate) loader: Loader,

    /// Have at most this many row groups of a store on their way at once, instead of as many as hide its latency.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=1024))]
    pub(crate) read_concurrency: Option<u16>,

    #[command(flatten)]
    pub(crate) data: DataArgs,

    #[command(flatten)]
    pub(crate) tier: TierArgs,

    #[command(flatten)]
    pub(crate) json: JsonArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFault {
    Fail,
    Substitute,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  rowdex plan train.rdx --memory 4GiB --batch-size 256
  rowdex plan train.rdx --memory 10% --world-size 64 --ranks-per-node 8 --columns label,text --json

Costs are those of one loader. A pass is decoding every row group once.")]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) index: IndexArg,

    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,

    /// What a loader may hold: bytes, a size like 4GiB, or a share like 25% of the chosen columns when decoded.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub(crate) memory: Memory,

    /// How many ranks share one loader and its memory.
    #[arg(long, value_name = "L", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ranks_per_node: u32,

    #[command(flatten)]
    pub(crate) data: DataArgs,

    #[command(flatten)]
    pub(crate) json: JsonArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Loader {
    Carousel,
    Lru,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Keep the dataset and its index in this new folder, instead of a temporary one that is removed at the end.
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct IndexArg {
    /// An index that `rowdex build` wrote, a file or a URL.
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
}

impl IndexArg {
    pub(crate) fn open(&self) -> Result<Index, Failure> {
        Ok(Index::open(&self.index)?)
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RootArg {
    /// Find the data below this directory or URL, instead of where it was when the index was built.
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ThreadsArg {
    /// Decode with this many threads [default: one per core, at most eight; 16 for data in a store, but for `epoch`].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=1024))]
    pub(crate) threads: Option<u16>,
}

/// How the data of an index is read.
#[derive(Debug, Clone, Args)]
pub(crate) struct DataArgs {
    /// Read only these columns, in this order; `a.b` is field b of column a.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(crate) columns: Option<Vec<String>>,

    /// How closely to compare each file with what was indexed.
    #[arg(
        long,
        value_name = "LEVEL",
        default_value = "stat",
        value_parser = named::<Staleness>(LEVELS)
    )]
    pub(crate) staleness: Staleness,

    #[command(flatten)]
    pub(crate) root: RootArg,

    #[command(flatten)]
    pub(crate) threads: ThreadsArg,
}

impl DataArgs {
    pub(crate) fn open(&self, index: Index, cache_bytes: Option<u64>) -> Result<Dataset, Failure> {
        Ok(self.builder(index, cache_bytes).open()?)
    }

    pub(crate) fn builder(&self, index: Index, cache_bytes: Option<u64>) -> DatasetBuilder {
        let mut builder = Dataset::builder(index).with_staleness(self.staleness);
        if let Some(bytes) = cache_bytes {
            builder = builder.with_cache_bytes(bytes);
        }
        if let Some(columns) = &self.columns {
            builder = builder.with_columns(columns);
        }
        if let Some(root) = &self.root.root {
            builder = builder.with_root(root);
        }
        if let Some(threads) = self.threads.threads {
            builder = builder.with_threads(usize::from(threads));
        }
        builder
    }
}

/// Where row groups are kept on disk.
#[derive(Debug, Clone, Args)]
pub(crate) struct TierArgs {
    /// Keep row groups in this folder on a local disk, for all processes of this machine: each is fetched and decoded once between them.
    #[arg(long, value_name = "DIR", requires = "cache_disk")]
    pub(crate) cache_dir: Option<PathBuf>,

    /// Keep at most this much in --cache-dir: bytes, a size like 500GiB, or a share like 100% of the chosen columns when decoded.
    #[arg(long, value_name = "SIZE", requires = "cache_dir")]
    pub(crate) cache_disk: Option<Memory>,

    /// What to keep in --cache-dir: `decoded` rows, which cost nothing to read again, or the `fetched` bytes, which take less room and are
    /// decoded each time.
    #[arg(long, value_name = "KIND", default_value = "decoded", requires = "cache_dir",
        value_parser = named::<TierKind>(&["fetched", "decoded"]))]
    pub(crate) cache_kind: TierKind,
}

impl TierArgs {
    /// The same dataset, with the tier that was asked for.
    pub(crate) fn open(&self, builder: DatasetBuilder) -> Result<Dataset, Failure> {
        let (Some(folder), Some(size)) = (&self.cache_dir, self.cache_disk) else { return Ok(builder.open()?) };
        let decoded = match size {
            Memory::Bytes(_) => 0,
            Memory::Share(_) => builder.clone().open()?.decoded_bytes(),
        };
        let tier = DiskTier::new(folder, size.bytes(decoded)).with_kind(self.cache_kind);
        Ok(builder.with_disk_tier(tier).open()?)
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RowsArg {
    /// Row ids, and ranges of them: 10..20 is 10 to 19.
    #[arg(required = true, value_name = "ROW")]
    rows: Vec<RowIds>,
}

impl RowsArg {
    /// The row ids in the order asked; all of them are checked before the first is given out, so that a typing error
    /// does not show after a gigabyte of output.
    pub(crate) fn ids(&self, index: &Index) -> Result<impl Iterator<Item = u64>, Failure> {
        let last = self.rows.iter().map(|ids| ids.0.end.saturating_sub(1));
        match last.filter(|&row| row >= index.len()).max() {
            None => Ok(self.rows.iter().flat_map(|ids| ids.0.clone())),
            Some(row) => Err(out_of_range(row, index)),
        }
    }
}

pub(crate) fn out_of_range(row: u64, index: &Index) -> Failure {
    let path = index.path().map(|path| path.display().to_string()).unwrap_or_default();
    let hint = match index.len().checked_sub(1) {
        Some(last) => format!("row ids are 0 to {last}"),
        None => "it has no rows".to_owned(),
    };
    rowdex::Error::new(rowdex::ErrorKind::OutOfRange, format!("row id {row} is beyond the end"))
        .with_file(path)
        .with_hint(hint)
        .into()
}

/// One row id or a range of them.
#[derive(Debug, Clone)]
struct RowIds(Range<u64>);

impl FromStr for RowIds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is neither a row id nor a range like 10..20");
        let (first, end) = match text.split_once("..") {
            None => {
                let row: u64 = text.parse().map_err(|_| bad())?;
                (row, row.saturating_add(1))
            }
            Some((first, end)) => (first.parse().map_err(|_| bad())?, end.parse().map_err(|_| bad())?),
        };
        if first < end { Ok(Self(first..end)) } else { Err(format!("{text:?} is an empty range")) }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct JsonArg {
    /// Write the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

const LEVELS: &[&str] = &["off", "stat", "footer", "deep"];

/// Parses what the library parses, and lets the usage text list the names.
pub(crate) fn named<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = rowdex::Error> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse::<T>())
}
