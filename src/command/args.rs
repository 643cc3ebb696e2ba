//! Arguments that several commands have.

use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rowdex::dataset::{DatasetBuilder, DiskCache};
use rowdex::index::builder::BuildReport;
use rowdex::{Dataset, Index, IndexBuilder};

use crate::command::failure::{Failure, complain};
use crate::command::size::Memory;

#[derive(Debug, Clone, Args)]
pub(crate) struct IndexArg {
    /// An index that `rowdex build` wrote, a file or a URL; or data, whose index is found in the cache folder of the
    /// user or built there.
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
}

impl IndexArg {
    pub(crate) fn open(&self) -> Result<Index, Failure> {
        index_of(std::slice::from_ref(&self.index))
    }
}

/// The index that a path names, or that of data, which is built if it is not there.
pub(crate) fn index_of(inputs: &[PathBuf]) -> Result<Index, Failure> {
    let found = IndexBuilder::new(inputs).find_or_build(None)?;
    if let Some(built) = &found.built {
        let again = if found.is_rebuilt { " again, because they changed" } else { "" };
        complain(format!("indexed {} files with {} rows{again}", built.files, built.rows));
        warn_of_undecodable(built);
    }
    Ok(found.index)
}

/// Says which columns of an index that was built cannot be served.
pub(crate) fn warn_of_undecodable(built: &BuildReport) {
    if !built.undecodable_columns.is_empty() {
        let names = built.undecodable_columns.join(", ");
        complain(format!("this version cannot decode {names}, which a newer writer wrote: serve other columns"));
    }
}

/// The dataset of an index, of all columns that can be decoded.
pub(crate) fn decodable(index: &Index) -> Result<Dataset, Failure> {
    let builder = Dataset::builder(index.clone()).with_cache_bytes(0);
    // Of several columns of one name none can be chosen.
    let is_all = index.undecodable().is_empty();
    Ok(if is_all { builder } else { builder.with_columns(index.decodable()) }.open()?)
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RootArg {
    /// Find the data below this directory or URL, instead of where it was when the index was built.
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
}

/// How the data of an index is read.
#[derive(Debug, Clone, Args)]
pub(crate) struct FilesArgs {
    /// Read only these columns, in this order; `a.b` is field b of column a, and nothing else of a is read.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    columns: Option<Vec<String>>,

    #[command(flatten)]
    root: RootArg,
}

/// How the data of an index is read, and by how many threads.
#[derive(Debug, Clone, Args)]
pub(crate) struct DataArgs {
    #[command(flatten)]
    files: FilesArgs,

    /// Decode with this many threads [default: one per core, at most eight; 16 for data in a store, but for `epoch` and
    /// `serve`].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=1024))]
    pub(crate) threads: Option<u16>,
}

impl FilesArgs {
    pub(crate) fn builder(&self, index: Index) -> DatasetBuilder {
        let mut builder = Dataset::builder(index);
        if let Some(columns) = &self.columns {
            builder = builder.with_columns(columns);
        }
        if let Some(root) = &self.root.root {
            builder = builder.with_root(root);
        }
        builder
    }
}

impl DataArgs {
    /// The dataset, which keeps no row groups: what reads it keeps them, or reads each once.
    pub(crate) fn open(&self, index: Index) -> Result<Dataset, Failure> {
        Ok(self.builder(index).open()?)
    }

    pub(crate) fn builder(&self, index: Index) -> DatasetBuilder {
        let builder = self.files.builder(index).with_cache_bytes(0);
        match self.threads {
            Some(threads) => builder.with_threads(usize::from(threads)),
            None => builder,
        }
    }
}

/// Where row groups are kept on disk.
#[derive(Debug, Clone, Args)]
pub(crate) struct DiskCacheArgs {
    /// Keep row groups in this folder on a local disk, for all processes of this machine, so that each is fetched and
    /// decoded once between them; at most so much of them: bytes, a size like 500GiB, or a share like 100% of the
    /// chosen columns when decoded.
    #[arg(long, value_name = "DIR=SIZE", value_parser = disk_cache)]
    disk_cache: Option<(PathBuf, Memory)>,
}

fn disk_cache(text: &str) -> Result<(PathBuf, Memory), String> {
    let (folder, size) = text.rsplit_once('=').ok_or_else(|| format!("{text:?} has no size: write DIR=500GiB"))?;
    Ok((folder.into(), size.parse()?))
}

impl DiskCacheArgs {
    /// The same dataset, with the disk cache that was asked for.
    pub(crate) fn open(&self, builder: DatasetBuilder) -> Result<Dataset, Failure> {
        let Some((folder, size)) = &self.disk_cache else { return Ok(builder.open()?) };
        let decoded = match size {
            Memory::Bytes(_) => 0,
            Memory::Share(_) => builder.clone().open()?.decoded_bytes(),
        };
        let disk_cache = DiskCache::new(folder, size.bytes(decoded));
        Ok(builder.with_disk_cache(disk_cache).open()?)
    }
}

/// The row ids in the order asked; all of them are checked before the first is given out, so that a typing error does
/// not show after a gigabyte of output.
pub(crate) fn checked(rows: &[RowIds], index: &Index) -> Result<impl Iterator<Item = u64>, Failure> {
    let last = rows.iter().map(|ids| ids.0.end.saturating_sub(1));
    match last.filter(|&row| row >= index.len()).max() {
        None => Ok(rows.iter().flat_map(|ids| ids.0.clone())),
        Some(row) => Err(out_of_range(row, index)),
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
pub(crate) struct RowIds(Range<u64>);

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

pub(crate) const LEVELS: &[&str] = &["off", "stat", "footer", "deep"];

/// Parses what the library parses, and lets the usage text list the names.
pub(crate) fn named<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = rowdex::Error> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse::<T>())
}
