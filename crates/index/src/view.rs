//! Views: indexes of the same files that serve other rows of them.
//!
//! Rows of different views are told apart by their *source rows*: their places among all rows of all row groups,
//! served or not. Those are the row ids of an index of the same files that serves everything.

use std::io::{Seek, SeekFrom};
use std::iter::Peekable;
use std::ops::Range;

use super::lengths::{LengthsWriter, NewLengths, RowLengths};
use super::output::Output;
use super::writer::{IndexWriter, NewFile, NewFooter, NewRowGroup, Summary};
use super::{FileEntry, Index, Root, RowGroupEntry};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::IdSet;
use rowdex_order::id_set::Builder;

/// Lengths that are copied to a view at once.
const COPIED_AT_ONCE: usize = 1 << 16;

impl Index {
    /// The source rows of each row group.
    fn source_groups(&self) -> impl Iterator<Item = (RowGroupEntry<'_>, Range<u64>)> {
        let mut start = 0_u64;
        self.row_groups().map(move |group| {
            let own = start..start.saturating_add(group.source_rows());
            start = own.end;
            (group, own)
        })
    }

    /// The source rows that are served.
    #[doc(hidden)]
    pub fn served_source(&self) -> Result<IdSet> {
        self.to_source(&IdSet::all(self.len())?)
    }

    /// The source rows of row ids.
    #[doc(hidden)]
    pub fn to_source(&self, ids: &IdSet) -> Result<IdSet> {
        let mut source = Builder::new(self.source_rows());
        let mut wanted = ids.ranges().peekable();
        for (group, own) in self.source_groups() {
            let runs: Box<dyn Iterator<Item = Range<u64>>> = match group.selection() {
                None => Box::new(std::iter::once(0..group.source_rows())),
                Some(set) => Box::new(set.runs()),
            };
            let mut id = group.first_row();
            for run in runs {
                let run_ids = id..id + (run.end - run.start);
                id = run_ids.end;
                each_within(&mut wanted, &run_ids, |common| {
                    let first = own.start + run.start + (common.start - run_ids.start);
                    source.add(first..first + (common.end - common.start))
                })?;
            }
        }
        Ok(source.finish())
    }

    /// The row ids of those source rows that are served.
    #[doc(hidden)]
    pub fn of_source(&self, source: &IdSet) -> Result<IdSet> {
        let mut ids = Builder::new(self.len());
        let mut wanted = source.ranges().peekable();
        for (group, own) in self.source_groups() {
            let selection = group.selection();
            let slot = |row: u64| selection.map_or(row, |set| set.rank(row));
            each_within(&mut wanted, &own, |common| {
                let slots = slot(common.start - own.start)..slot(common.end - own.start);
                ids.add(group.first_row() + slots.start..group.first_row() + slots.end)
            })?;
        }
        Ok(ids.finish())
    }

    /// The rows of this index that a view of the same files serves, too, by row id of this index. Takes time in
    /// proportion to the row groups and the stored selections.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the other is an index of other files, or of other contents of them.
    pub fn rows_of(&self, view: &Self) -> Result<IdSet> {
        self.check_same_files(view)?;
        self.of_source(&view.served_source()?)
    }

    /// Refuses a view of other files.
    #[doc(hidden)]
    pub fn check_same_files(&self, view: &Self) -> Result<()> {
        let other = |message: String| {
            let error =
                Error::invalid(message).with_hint("combine views of one index; make those of an older one again");
            match view.path() {
                Some(path) => Err(error.with_file(rowdex_io::source::place::shown(path))),
                None => Err(error),
            }
        };
        let own = self.num_files();
        let others = view.num_files();
        if own != others {
            return other(format!("it is not a view of the same files: it has {others}, and not {own}"));
        }
        let same = |a: &FileEntry<'_>, b: &FileEntry<'_>| {
            (a.path(), a.size(), a.footer_hash()) == (b.path(), b.size(), b.footer_hash())
        };
        if let Some((own, others)) = self.files().zip(view.files()).find(|(a, b)| !same(a, b)) {
            let message = match own.path() == others.path() {
                true => format!("it is not a view of the same files: {} has another content", own.path()),
                false => {
                    format!("it is not a view of the same files: it has {}, and not {}", others.path(), own.path())
                }
            };
            return other(message);
        }
        let rows = |group: RowGroupEntry<'_>| (group.file(), group.ordinal(), group.source_rows());
        if !self.row_groups().map(rows).eq(view.row_groups().map(rows)) {
            return other("it is not a view of the same row groups".to_owned());
        }
        Ok(())
    }
}

/// Calls `each` with what of the wanted ranges is in `own`, and leaves those that go beyond it.
fn each_within(
    wanted: &mut Peekable<impl Iterator<Item = Range<u64>>>,
    own: &Range<u64>,
    mut each: impl FnMut(Range<u64>) -> Result<()>,
) -> Result<()> {
    while let Some(range) = wanted.peek() {
        let common = range.start.max(own.start)..range.end.min(own.end);
        if common.start < common.end {
            each(common)?;
        }
        if range.end > own.end {
            break;
        }
        wanted.next();
    }
    Ok(())
}

/// Writes an index of the files of `base` that serves these source rows, and returns how long it is in bytes.
pub fn write(out: &mut Output, base: &Index, rows: &IdSet, root: &Root, build_info: &str) -> Result<u64> {
    let mut writer = IndexWriter::new(out)?;
    let mut wanted = rows.ranges().peekable();
    let mut groups = base.source_groups();
    let mut picked = Vec::new();
    for file in base.files() {
        let stored = file.stored_footer()?;
        let footer = NewFooter {
            hash: file.footer_hash(),
            raw_length: stored.as_ref().map_or(0, |(_, raw_length)| *raw_length),
            bytes: stored.map(|(bytes, _)| bytes.to_vec()),
        };
        let values: Vec<Option<&str>> = file.partition_values().collect();
        writer.push_file(NewFile {
            path: file.path(),
            stat: &file.stat(),
            footer: &footer,
            partition_values: &values,
        })?;
        for (group, own) in groups.by_ref().take(file.row_groups().len()) {
            picked.clear();
            let mut count = 0;
            each_within(&mut wanted, &own, |common| {
                count += common.end - common.start;
                match count < group.source_rows() {
                    true => pick(&mut picked, common.start - own.start..common.end - own.start),
                    false => Ok(()),
                }
            })?;
            writer.push_row_group(NewRowGroup {
                ordinal: group.ordinal(),
                source_rows: group.source_rows(),
                decoded_bytes: group.decoded_bytes(),
                selection: (count < group.source_rows()).then_some(&*picked),
            })?;
        }
    }
    let summary = Summary {
        schema: base.schema(),
        partition_columns: base.partition_columns(),
        renames: base.renaming(),
        root,
        build_info,
    };
    let out = copy_lengths(writer.finish(&summary)?, base, rows)?;
    out.seek(SeekFrom::End(0)).map_err(|error| Error::io("cannot write the index", error))
}

/// Adds the lengths that the base has of the rows of a view that was just written. Rows that the base does not serve
/// have none there; then the view has no lengths.
fn copy_lengths<'a>(out: &'a mut Output, base: &Index, rows: &IdSet) -> Result<&'a mut Output> {
    let names = base.lengths_columns()?;
    let ids = if names.is_empty() { return Ok(out) } else { base.of_source(rows)? };
    if ids.len() != rows.len() {
        return Ok(out);
    }
    let columns: Vec<RowLengths> = names.iter().map(|name| base.lengths(name)).collect::<Result<_>>()?;
    let new = columns.iter().map(|known| NewLengths { name: known.name().to_owned(), of: known.of() });
    let view = out.read_back()?;
    let mut writer = LengthsWriter::append(out, &view, new.collect())?;
    let mut lengths = Vec::new();
    for range in ids.ranges() {
        for start in range.clone().step_by(COPIED_AT_ONCE) {
            let piece = start..range.end.min(start.saturating_add(COPIED_AT_ONCE as u64));
            for (column, known) in columns.iter().enumerate() {
                lengths.clear();
                known.read(piece.clone(), &mut lengths)?;
                writer.push(column, &lengths)?;
            }
        }
    }
    writer.finish()
}

/// Adds rows of a row group, which are numbered with 32 bits where only some are served.
fn pick(picked: &mut Vec<u32>, rows: Range<u64>) -> Result<()> {
    let too_large = || {
        Error::new(ErrorKind::TooLarge, "a row group of more than 2^32 rows cannot be served in part")
            .with_hint("write the data with smaller row groups")
    };
    let start = u32::try_from(rows.start);
    let last = u32::try_from(rows.end - 1);
    let (Ok(start), Ok(last)) = (start, last) else { return Err(too_large()) };
    picked.try_reserve((rows.end - rows.start) as usize).map_err(|_| too_large())?;
    picked.extend(start..=last);
    Ok(())
}
