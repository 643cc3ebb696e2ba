//! Noting how long rows are, in an index that is there or in one that is built.

mod count;
#[cfg(test)]
mod tests;

use std::io::{Seek, SeekFrom};
use std::path::PathBuf;

use rayon::ThreadPool;

use self::count::{LengthsOrigin, LengthsReading};
use super::{OnProgress, THREADS};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::pool;
use rowdex_index::output::Output;
use rowdex_index::{Index, LengthsOf, LengthsWriter, root};
use rowdex_io::source::place::{Place, shown};
use rowdex_io::source::{self, Source, StoreOptions};

pub(super) use self::count::KnownRows;

/// Column chunks of a store that are in memory at once.
const COUNTED_AT_ONCE: usize = 16;

/// Records in an index how long its rows are, in tokens or any other unit: packs and token budgets are planned by it.
///
/// The lengths of a column of lists are counted by its levels, without decoding a value; a column of integers says
/// them itself. Lengths that only a tokenizer knows are given. Row ids, the fingerprint and everything else of the
/// index stay as they are, and readers that do not know lengths pass over them.
///
/// ```no_run
/// # fn main() -> rowdex::Result<()> {
/// rowdex::index::builder::LengthsBuilder::new("train.rdx").with_column("tokens").write()?;
/// let tokens = rowdex::Index::open("train.rdx")?.lengths("tokens")?;
/// println!("{} tokens, at most {} in a row", tokens.sum(), tokens.longest());
/// # Ok(()) }
/// ```
#[must_use]
pub struct LengthsBuilder {
    index: PathBuf,
    columns: Vec<String>,
    given: Vec<(String, Vec<u64>)>,
    root: Option<PathBuf>,
    threads: Option<usize>,
    store: StoreOptions,
    progress: Box<OnProgress>,
}

impl LengthsBuilder {
    /// For the index at this path or URL, which is replaced when all is done.
    pub fn new(index: impl Into<PathBuf>) -> Self {
        Self {
            index: index.into(),
            columns: Vec::new(),
            given: Vec::new(),
            root: None,
            threads: None,
            store: StoreOptions::default(),
            progress: Box::new(|_| ()),
        }
    }

    /// Counts the items of a column of lists, or takes the numbers of a column of integers; `a.b` is field b of column
    /// a. Null and empty lists have the length 0. A number must be there, and not be negative.
    pub fn with_column(mut self, column: impl Into<String>) -> Self {
        self.columns.push(column.into());
        self
    }

    /// Takes lengths from outside, in the order of the row ids, as
    /// [`ListOfRows::lengths`](crate::select::ListOfRows::lengths) reads them. Rows with such lengths are served
    /// whole.
    pub fn with_given(mut self, name: impl Into<String>, lengths: Vec<u64>) -> Self {
        self.given.push((name.into(), lengths));
        self
    }

    /// Finds the data files below this directory or URL, instead of where the index says that they were.
    pub fn with_root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = Some(root.into());
        self
    }

    /// Counts with this many threads. Default: one per available core; for data in a store, as many as
    /// [`StoreOptions::with_concurrency`] says, and at most 16.
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// How object stores are talked to, if the data or the index is in one. Default: [`StoreOptions::default`].
    pub fn with_store_options(mut self, options: StoreOptions) -> Self {
        self.store = options;
        self
    }

    /// Is called after each window of row groups, on the thread that writes.
    pub fn with_progress(mut self, progress: impl Fn(super::BuildProgress) + Send + Sync + 'static) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Notes the lengths: the path holds the index as it was, or with all of them, at any moment. Lengths of the same
    /// names are replaced, others stay.
    ///
    /// Reads the columns that are counted, and nothing else of the files. Returns the length of the index in bytes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a column that is neither of lists nor of integers, a name that is asked for
    /// twice, no name at all, and lengths that are not as many as there are rows; [`ErrorKind::Schema`] for a number
    /// that is null or negative, [`ErrorKind::TooLarge`] for a row of 2^40 tokens or more, [`ErrorKind::Stale`] for a
    /// file that is not the one that was indexed, and if somebody else wrote the index meanwhile; and those of reading
    /// and writing.
    pub fn write(&self) -> Result<u64> {
        let index = Index::open_with(&self.index, &self.store)?;
        let columns = self.origins(&index)?;
        let mut out = Output::create(Place::of(&self.index)?, true, &self.store)?;
        self.count(&index, &columns, &mut out).map_err(|error| match error.kind() {
            ErrorKind::Io => error.with_file(shown(&self.index)),
            _ => error,
        })?;
        let end = out.seek(SeekFrom::End(0)).map_err(|error| Error::io("cannot write the index", error))?;
        out.commit_over(&index)?;
        Ok(end)
    }

    fn count(&self, index: &Index, columns: &[(String, LengthsOrigin<'_>)], out: &mut Output) -> Result<()> {
        let root = self.root.as_ref().map_or_else(|| root::of(index), Place::of)?;
        let source = &*source::open(root, &self.store)?;
        let known: Vec<KnownRows> = index.files().map(|file| Some((index.clone(), file.row_ids()))).collect();
        let pool = counting(self.threads, &self.store, source.is_remote())?;
        let progress = &*self.progress;
        let reading =
            LengthsReading { index, source, columns, pool: &pool, known: &known, counts_anew: true, progress };
        reading.write(|new| LengthsWriter::copy(out, index, new)).map(drop)
    }

    /// All lengths that the index is to have, by name.
    fn origins(&self, index: &Index) -> Result<Vec<(String, LengthsOrigin<'_>)>> {
        let refuse =
            |name: &str, message: String| Err(Error::invalid(message).with_column(name).with_file(shown(&self.index)));
        let before = index.lengths_columns()?;
        let mut columns = Vec::new();
        for name in &self.columns {
            columns.push((name.clone(), LengthsOrigin::column(index, name)?));
        }
        for (name, lengths) in &self.given {
            if lengths.len() as u64 != index.len() {
                let message = format!("{} lengths are given for {} rows", lengths.len(), index.len());
                return refuse(name, message);
            }
            columns.push((name.clone(), LengthsOrigin::Given(lengths)));
        }
        if columns.is_empty() {
            return Err(Error::invalid("no lengths are asked for").with_hint("name a column"));
        }
        for name in before {
            if !columns.iter().any(|(known, _)| known == name) {
                columns.push((name.to_owned(), LengthsOrigin::Known(index.lengths(name)?.of())));
            }
        }
        columns.sort_by(|(a, _), (b, _)| a.cmp(b));
        if let Some([(name, _), _]) = columns.array_windows().find(|[(a, _), (b, _)]| a == b) {
            return refuse(name, "lengths of this name are asked for twice".to_owned());
        }
        Ok(columns)
    }
}

impl std::fmt::Debug for LengthsBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LengthsBuilder").finish_non_exhaustive()
    }
}

/// Threads that count lengths.
pub(super) fn counting(threads: Option<usize>, store: &StoreOptions, remote: bool) -> Result<ThreadPool> {
    pool::start(threads.unwrap_or(if remote { store.concurrency.min(COUNTED_AT_ONCE) } else { 0 }), THREADS)
}

/// Notes lengths of an index that was just written to `out`: of the columns that are asked for, and of those that the
/// index before it had. What is known of a file is not counted again.
pub(super) fn note(
    out: &mut Output,
    asked: &[String],
    before: Option<&Index>,
    source: &dyn Source,
    pool: &ThreadPool,
    known: &[KnownRows],
    progress: &OnProgress,
) -> Result<Option<u64>> {
    let mut names: Vec<(String, LengthsOf)> = Vec::new();
    for name in before.map(Index::lengths_columns).transpose()?.unwrap_or_default() {
        let of = before.map(|before| before.lengths(name)).transpose()?.map_or(LengthsOf::Items, |known| known.of());
        names.push((name.to_owned(), of));
    }
    names.retain(|(name, _)| !asked.contains(name));
    names.extend(asked.iter().map(|name| (name.clone(), LengthsOf::Items)));
    names.sort_by(|(a, _), (b, _)| a.cmp(b));
    names.dedup_by(|(a, _), (b, _)| a == b);
    if names.is_empty() {
        return Ok(None);
    }
    let index = &out.read_back()?;
    let origin = |(name, of): (String, LengthsOf)| {
        let origin =
            if of == LengthsOf::Given { Ok(LengthsOrigin::Known(of)) } else { LengthsOrigin::column(index, &name) };
        origin.map(|origin| (name, origin))
    };
    let columns: Vec<(String, LengthsOrigin<'_>)> = names.into_iter().map(origin).collect::<Result<_>>()?;
    let reading = LengthsReading { index, source, columns: &columns, pool, known, counts_anew: false, progress };
    let out = reading.write(|new| LengthsWriter::append(out, index, new))?;
    let length = out.seek(SeekFrom::End(0)).map_err(|error| Error::io("cannot write the index", error))?;
    Ok(Some(length))
}
