//! Lengths of all rows of an index: those that are known already, and the others counted in the files.

use std::collections::HashMap;
use std::io::{Seek, Write};
use std::ops::Range;

use bytes::Bytes;
use rayon::ThreadPool;

use crate::builder::unchanged::has_footer_of;
use crate::builder::{BuildProgress, OnProgress};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::{pool, stop};
use rowdex_index::{FileEntry, Index, LengthsOf, LengthsWriter, NewLengths, RowGroupEntry, RowLengths};
use rowdex_io::source::{FileStat, Source};
use rowdex_parquet::{Counted, FileBytes, FileMetadata, GroupDecoder, MAX_DECODED_BYTES, counted, read_end};
use rowdex_projection::Projection;

/// Row groups that are counted at once, for each thread.
const GROUPS_PER_THREAD: usize = 4;

/// Lengths to note under a name, and where they come from.
#[derive(Debug)]
pub(super) enum LengthsOrigin<'a> {
    /// A column of the files, and what it counts.
    Column(Projection, Counted),
    /// One for each row.
    Given(&'a [u64]),
    /// Another index that has them for all files that it has.
    Known(LengthsOf),
}

/// Where lengths of the rows of a file are known: an index, and the ids that the rows have there.
pub(crate) type KnownRows = Option<(Index, Range<u64>)>;

impl LengthsOrigin<'_> {
    /// A column of the schema.
    pub(super) fn column(index: &Index, name: &str) -> Result<Self> {
        let projection = Projection::columns(index.schema(), &[name])?;
        let (counted, path) = counted(&projection).map_err(|error| error.with_column(name))?;
        if path != name {
            return Err(Error::invalid("it is not the column itself that would be counted")
                .with_column(name)
                .with_hint(format!("name the column: {path}")));
        }
        Ok(Self::Column(projection, counted))
    }

    fn of(&self) -> LengthsOf {
        match self {
            Self::Column(_, Counted::Items) => LengthsOf::Items,
            Self::Column(_, Counted::Number) => LengthsOf::Numbers,
            Self::Given(_) => LengthsOf::Given,
            Self::Known(of) => *of,
        }
    }
}

/// How the files of an index are read for their lengths.
pub(super) struct LengthsReading<'a> {
    pub(super) index: &'a Index,
    pub(super) source: &'a dyn Source,
    /// The lengths to write by their names, which are sorted.
    pub(super) columns: &'a [(String, LengthsOrigin<'a>)],
    pub(super) pool: &'a ThreadPool,
    /// For each file, in order; none where nothing is known.
    pub(super) known: &'a [KnownRows],
    /// Whether columns are counted in all files, whatever is known of them.
    pub(super) counts_anew: bool,
    pub(super) progress: &'a OnProgress,
}

impl<'a> LengthsReading<'a> {
    /// Writes the lengths.
    pub(super) fn write<W: Write + Seek>(
        &self,
        begin: impl FnOnce(Vec<NewLengths>) -> Result<LengthsWriter<W>>,
    ) -> Result<W> {
        let new = self.columns.iter().map(|(name, origin)| NewLengths { name: name.clone(), of: origin.of() });
        let mut writer = begin(new.collect())?;
        let known = self.known_lengths()?;
        let groups: Vec<RowGroupEntry<'_>> = self.index.row_groups().filter(|group| group.rows() > 0).collect();
        let mut open = HashMap::new();
        for window in groups.chunks(GROUPS_PER_THREAD * self.pool.current_num_threads().max(1)) {
            stop::check()?;
            self.open(window, &known, &mut open)?;
            let lengths = |(): &mut (), group: &RowGroupEntry<'_>| -> Result<Vec<Vec<u64>>> {
                let each = self.columns.iter().zip(&known);
                each.map(|((_, origin), known)| self.lengths(group, origin, known, &open)).collect()
            };
            for of_group in pool::each(Some(self.pool), window, || (), lengths)? {
                for (column, lengths) in of_group?.iter().enumerate() {
                    writer.push(column, lengths)?;
                }
            }
            let last = window.last().map_or((0, 0), |group| (group.file(), group.row_ids().end));
            open.retain(|file, _| *file == last.0);
            self.tell(last.0, last.1);
        }
        self.tell(self.index.num_files(), self.index.len());
        writer.finish()
    }

    fn tell(&self, files_done: u32, rows: u64) {
        let files = u64::from(self.index.num_files());
        let files_done = files_done.into();
        (self.progress)(BuildProgress { files_done, files, rows, bytes: 0, counts_lengths: true });
    }

    /// For each column, for each file, where its lengths are known.
    fn known_lengths(&self) -> Result<Vec<Vec<Option<KnownLengths>>>> {
        let of_file = |name: &String, origin: &LengthsOrigin<'_>, entry: FileEntry<'_>| -> Result<_> {
            let known = self.known.get(entry.index() as usize).and_then(Option::as_ref);
            let known = known.filter(|_| match origin {
                LengthsOrigin::Column(..) => !self.counts_anew,
                LengthsOrigin::Given(_) => false,
                LengthsOrigin::Known(_) => true,
            });
            if let Some((index, ids)) = known
                && index.lengths_columns()?.contains(&name.as_str())
            {
                let lengths = index.lengths(name)?;
                if lengths.of() == origin.of() {
                    return Ok(Some(KnownLengths { lengths, shift: ids.start.wrapping_sub(entry.row_ids().start) }));
                }
            }
            match origin {
                LengthsOrigin::Known(_) if entry.rows() > 0 => {
                    let message = "the index has lengths that were given, and none of the rows of this file";
                    Err(Error::invalid(message)
                        .with_file(entry.path())
                        .with_column(name)
                        .with_hint("build it again with `overwrite`, and give the lengths of all rows"))
                }
                _ => Ok(None),
            }
        };
        let of_column = |(name, origin): &(String, LengthsOrigin<'_>)| {
            self.index.files().map(|entry| of_file(name, origin, entry)).collect()
        };
        self.columns.iter().map(of_column).collect()
    }

    /// Opens the files of these row groups that have to be read.
    fn open(
        &self,
        window: &[RowGroupEntry<'_>],
        known: &[Vec<Option<KnownLengths>>],
        open: &mut HashMap<u32, LengthsFile<'a>>,
    ) -> Result<()> {
        let is_read = |file: u32| {
            let mut each = self.columns.iter().zip(known);
            each.any(|((_, origin), known)| {
                matches!(origin, LengthsOrigin::Column(..)) && known.get(file as usize).is_none_or(Option::is_none)
            })
        };
        let mut files: Vec<u32> = window.iter().map(RowGroupEntry::file).collect();
        files.dedup();
        files.retain(|file| !open.contains_key(file) && is_read(*file));
        let opened = pool::each(Some(self.pool), &files, || (), |(), file| self.open_file(*file))?;
        for (file, opened) in files.into_iter().zip(opened) {
            open.insert(file, opened?);
        }
        Ok(())
    }

    fn open_file(&self, file: u32) -> Result<LengthsFile<'a>> {
        let missing = || Error::new(ErrorKind::Internal, "the index has no such file");
        let entry = self.index.file(file).ok_or_else(missing)?;
        let open = || {
            let now = self.content(&entry)?;
            let footer = match self.index.footer(file)? {
                Some(footer) => footer,
                None => {
                    let (_, footer) = read_end(self.source, entry.path(), self.source.footer_guess(), Some(&now))?;
                    if footer.hash != entry.footer_hash() {
                        return Err(stale(&entry));
                    }
                    footer.bytes
                }
            };
            let metadata = FileMetadata::parse(entry.path(), &footer, entry.size(), self.index.renaming())?;
            Ok(LengthsFile { source: self.source, metadata, content: now })
        };
        open().map_err(|error: Error| self.located(error, entry.path()))
    }

    /// What a file is like now, which must be what was indexed.
    fn content(&self, entry: &FileEntry<'_>) -> Result<FileStat> {
        if self.source.is_remote() && entry.etag().is_some() {
            // Every read is compared with it.
            return Ok(entry.stat());
        }
        let now = self.source.stat(entry.path())?;
        if entry.stat().may_be(&now) {
            return Ok(now);
        }
        // A copy has a time of its own.
        if has_footer_of(entry, &now, self.source) { Ok(now) } else { Err(stale(entry)) }
    }

    /// Lengths of the rows of a row group: given, known, or counted.
    fn lengths(
        &self,
        group: &RowGroupEntry<'_>,
        origin: &LengthsOrigin<'_>,
        known: &[Option<KnownLengths>],
        open: &HashMap<u32, LengthsFile<'a>>,
    ) -> Result<Vec<u64>> {
        let ids = group.row_ids();
        if let LengthsOrigin::Given(given) = origin {
            return Ok(given[ids.start as usize..ids.end as usize].to_vec());
        }
        if let Some(Some(known)) = known.get(group.file() as usize) {
            let place = |row: u64| row.wrapping_add(known.shift);
            let mut lengths = Vec::new();
            known.lengths.read(place(ids.start)..place(ids.end), &mut lengths)?;
            return Ok(lengths);
        }
        match (origin, open.get(&group.file())) {
            (LengthsOrigin::Column(projection, _), Some(file)) => self.count_column(group, file, projection),
            _ => Err(Error::new(ErrorKind::Internal, "lengths of a file are not known")),
        }
    }

    /// The lengths of the rows of a row group that are served.
    fn count_column(
        &self,
        group: &RowGroupEntry<'_>,
        file: &LengthsFile<'_>,
        projection: &Projection,
    ) -> Result<Vec<u64>> {
        let values: Vec<_> =
            self.index.file(group.file()).into_iter().flat_map(|entry| entry.partition_values()).collect();
        let names = self.index.partition_columns().iter().map(String::as_str);
        let partitions: Vec<(&str, Option<&str>)> = names.zip(values).collect();
        let decoder = GroupDecoder {
            file: &file.metadata,
            row_group: group.ordinal() as usize,
            projection,
            partitions: &partitions,
            max_decoded_bytes: MAX_DECODED_BYTES,
        };
        let located = |error: Error| self.located(error, file.metadata.path());
        let lengths = decoder.lengths(file).map_err(located)?;
        let changed = || {
            let message = format!("has {} rows, and {} were indexed", lengths.len(), group.source_rows());
            located(Error::new(ErrorKind::Stale, message).with_row_group(u64::from(group.ordinal())))
        };
        if lengths.len() as u64 != group.source_rows() {
            return Err(changed());
        }
        Ok(match group.selection() {
            None => lengths,
            Some(set) => set.iter().filter_map(|row| lengths.get(row as usize).copied()).collect(),
        })
    }

    fn located(&self, error: Error, path: &str) -> Error {
        error.with_file(path).with_location(path, || self.source.location(path))
    }
}

/// Lengths of the rows of a file, as another index has them.
#[derive(Debug)]
pub(super) struct KnownLengths {
    lengths: RowLengths,
    /// How much further on each row is there than here.
    shift: u64,
}

/// A file that is read for its lengths, and what it was like when it was opened.
struct LengthsFile<'a> {
    source: &'a dyn Source,
    metadata: FileMetadata,
    content: FileStat,
}

impl FileBytes for LengthsFile<'_> {
    fn read(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.source.read_unchanged(self.metadata.path(), Some(&self.content), ranges)
    }
}

fn stale(entry: &FileEntry<'_>) -> Error {
    Error::new(ErrorKind::Stale, "it was changed after it was indexed")
        .with_file(entry.path())
        .with_hint("build the index again, or with `update`")
}
