//! What the sections mean: every table checked against every other, once, before anything is looked up.
//!
//! The order of the checks follows the references: counts, then strings, then files, then row groups, then the guide
//! and the selections, each of which may rely on what was checked before it.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use std::collections::HashSet;

use arrow_schema::SchemaRef;
use bytes::Bytes;
use zerocopy::little_endian::U32;

use super::format::{
    Envelope, FileRecord, MetaRecord, RecordTable, RootRecord, RowGroupRecord, RowSetRecord, Section, StringRef, id,
};
use super::path::{MAX_PATH, check_path};
use super::rows::{RowSet, container_len};
use super::stored::{IndexBytes, invalid};
use super::{Root, schema};
use rowdex_base::error::{Error, Result};
use rowdex_projection::Renames;

/// The largest footer that is stored or given out, in bytes.
pub(super) const MAX_FOOTER: u32 = 1 << 30;

const STRING_REF: u64 = size_of::<StringRef>() as u64;

/// Row ids stay below this, so that sums of two of them do not overflow.
pub(super) const MAX_ROWS: u64 = 1 << 63;

/// The tables of a valid index.
#[derive(Debug)]
pub(super) struct IndexContents {
    pub(super) rows: u64,
    pub(super) source_rows: u64,
    pub(super) files: RecordTable<FileRecord>,
    pub(super) row_groups: RecordTable<RowGroupRecord>,
    /// Buckets of the guide have `1 << guide_shift` rows.
    pub(super) guide_shift: u32,
    /// For each bucket of rows, and for the end of the last one, the row group that its first row is in.
    pub(super) guide: RecordTable<U32>,
    pub(super) strings: Bytes,
    pub(super) selections: Option<Selections>,
    /// The columns that the folders of the files say.
    pub(super) partition_columns: Vec<String>,
    /// Their names, and then for each file one value for each of them.
    pub(super) partition_values: RecordTable<StringRef>,
    pub(super) schema: SchemaRef,
    pub(super) renames: Renames,
    /// Where the files were.
    pub(super) root: Root,
    /// What built the index, as JSON.
    pub(super) build_info: String,
    // Sections that are read when they are asked for; empty where they are not there.
    /// Stored footers, compressed.
    pub(super) footers: IndexBytes,
    pub(super) lengths: IndexBytes,
}

/// One record for each row group, and the containers that they point into.
#[derive(Debug)]
pub(super) struct Selections {
    pub(super) records: RecordTable<RowSetRecord>,
    pub(super) data: Bytes,
}

impl IndexContents {
    pub(super) fn parse(envelope: &Envelope) -> Result<Self> {
        let meta = RecordTable::<MetaRecord>::new(envelope.require(id::META)?, 1)?;
        let Some(&meta) = meta.as_slice().first() else { return Err(invalid("META is empty")) };
        let files = u64::from(meta.files.get());
        let row_groups = u64::from(meta.row_groups.get());
        let rows = meta.rows.get();
        if rows >= MAX_ROWS || meta.reserved.get() != 0 {
            return Err(invalid(format!("the index counts {rows} rows, fewer than 2^63 expected")));
        }

        let strings = envelope.require(id::STRINGS)?.bytes.clone();
        let text = text(envelope.require(id::STRINGS)?, "STRINGS")?;
        let footers = envelope.stored(id::FOOTERS);

        let files = checked_files(envelope, files, row_groups, text, footers.len())?;
        let groups = RecordTable::<RowGroupRecord>::new(envelope.require(id::ROW_GROUPS)?, row_groups)?;
        check_row_groups(files.as_slice(), groups.as_slice(), rows)?;
        let guide_shift = meta.guide_shift.get();
        let Some(buckets) = guide_len(rows, guide_shift) else {
            return Err(invalid(format!("the guide has buckets of 2^{guide_shift} rows")));
        };
        let guide = RecordTable::<U32>::new(envelope.require(id::GUIDE)?, buckets)?;
        check_guide(guide.as_slice(), guide_shift, groups.as_slice())?;

        let selections = selections(envelope, groups.as_slice())?;
        let source_rows = meta.source_rows.get();
        if counted_source_rows(rows, selections.as_ref()).is_none_or(|sum| sum != source_rows || sum >= MAX_ROWS) {
            return Err(invalid(format!("the row groups do not add up to {source_rows} source rows")));
        }

        let schema = schema::decode(&envelope.require(id::SCHEMA)?.bytes)?;
        let (partition_columns, partition_values) = partitions(envelope, files.as_slice().len(), text, &schema)?;
        let renames = renames(envelope, text)?;
        let root = root(envelope, text)?;
        let build_info = envelope.get(id::BUILD_INFO).map(|section| self::text(section, "BUILD_INFO")).transpose()?;
        let build_info = build_info.unwrap_or_default().to_owned();
        Ok(Self {
            rows,
            source_rows,
            files,
            row_groups: groups,
            guide_shift,
            guide,
            strings,
            selections,
            partition_columns,
            partition_values,
            schema,
            renames,
            root,
            build_info,
            footers,
            lengths: envelope.stored(id::LENGTHS),
        })
    }

    /// The string of a reference that was checked, so `None` only for [`StringRef::NONE`].
    pub(super) fn string(&self, at: StringRef) -> Option<&str> {
        let start = at.offset.get() as usize;
        let bytes = self.strings.get(start..start.checked_add(at.length.get() as usize)?)?;
        std::str::from_utf8(bytes).ok()
    }

    /// The first row id of a row group; for the number of row groups, the number of rows.
    pub(super) fn first_row(&self, row_group: u32) -> u64 {
        let before = row_group.checked_sub(1).and_then(|before| self.row_groups.as_slice().get(before as usize));
        before.map_or(0, |record| record.end.get())
    }

    /// The rows of a row group that are served, `None` when all are.
    pub(super) fn selection(&self, row_group: u32, rows: u64) -> Option<RowSet<'_>> {
        let selections = self.selections.as_ref()?;
        RowSet::new(selections.records.as_slice().get(row_group as usize)?, rows, &selections.data)
    }
}

fn text<'a>(section: &'a Section, name: &str) -> Result<&'a str> {
    std::str::from_utf8(&section.bytes).map_err(|error| invalid(format!("{name} is not UTF-8: {error}")))
}

/// `None` for no string; an error for one that is not in STRINGS.
fn resolve(text: &str, at: StringRef) -> Result<Option<&str>> {
    if at == StringRef::NONE {
        return Ok(None);
    }
    let start = at.offset.get() as usize;
    let string = start.checked_add(at.length.get() as usize).and_then(|end| text.get(start..end));
    string
        .map(Some)
        .ok_or_else(|| invalid(format!("a string of {} bytes at byte {} is not in STRINGS", at.length, at.offset)))
}

/// The table of the files, which have so many row groups together. `strings` is what they refer to, and `footers` the
/// length of the footers.
fn checked_files(
    envelope: &Envelope,
    files: u64,
    row_groups: u64,
    strings: &str,
    footers: u64,
) -> Result<RecordTable<FileRecord>> {
    let files = RecordTable::<FileRecord>::new(envelope.require(id::FILES)?, files)?;
    let mut counted = 0_u64;
    for file in files.as_slice() {
        let path = check_file(file, counted, strings, footers)?;
        counted = counted.saturating_add(u64::from(file.row_groups.get()));
        if counted > row_groups {
            return Err(invalid(format!("{path}: the files have more row groups than the index")));
        }
    }
    if counted != row_groups {
        return Err(invalid(format!("the files have {counted} row groups, the index {row_groups}")));
    }
    Ok(files)
}

/// How many rows the row groups have, those included that are not served; `None` for more than there are numbers.
fn counted_source_rows(rows: u64, selections: Option<&Selections>) -> Option<u64> {
    let Some(selections) = selections else { return Some(rows) };
    selections.records.as_slice().iter().map(|record| record.source_rows.get()).try_fold(0, u64::checked_add)
}

fn check_file<'a>(file: &FileRecord, first_row_group: u64, text: &'a str, footers: u64) -> Result<&'a str> {
    let Some(path) = resolve(text, file.path)? else { return Err(invalid("a file has no path")) };
    check_path(path).map_err(|error| invalid(error.message().to_owned()))?;
    let error = |message: &str| Err(invalid(format!("{path}: {message}")));
    resolve(text, file.etag)?;
    if u64::from(file.first_row_group.get()) != first_row_group {
        return error("its row groups do not follow those of the file before");
    }
    let flags = file.flags.get();
    if flags & !FileRecord::KNOWN_FLAGS != 0 || file.reserved.get() != 0 {
        return error("it has unknown flags");
    }
    if flags & FileRecord::HAS_MTIME == 0 && file.mtime_ns.get() != 0 {
        return error("it has no modification time and yet one");
    }
    let offset = file.footer_offset.get();
    let length = u64::from(file.footer_length.get());
    if flags & FileRecord::HAS_FOOTER == 0 {
        if offset != 0 || length != 0 || file.footer_raw_length.get() != 0 {
            return error("it has no stored footer and yet a place for one");
        }
    } else if offset.checked_add(length).is_none_or(|end| end > footers) {
        return error("its footer is not in FOOTERS");
    } else if file.footer_raw_length.get() > MAX_FOOTER {
        return error("its footer is larger than 1 GiB");
    }
    Ok(path)
}

fn check_row_groups(files: &[FileRecord], groups: &[RowGroupRecord], rows: u64) -> Result<()> {
    let mut end = 0;
    let mut rest = groups;
    for (number, file) in (0_u32..).zip(files) {
        let Some((own, others)) = rest.split_at_checked(file.row_groups.get() as usize) else {
            return Err(invalid("the files have more row groups than the index"));
        };
        rest = others;
        let mut next_ordinal = 0_u64;
        for group in own {
            if group.file.get() != number {
                return Err(invalid(format!("a row group of file {number} says that it is of file {}", group.file)));
            }
            if group.end.get() < end {
                return Err(invalid(format!("the rows go back from {end} to {} in file {number}", group.end)));
            }
            let ordinal = u64::from(group.ordinal.get());
            if ordinal < next_ordinal {
                return Err(invalid(format!("row group {ordinal} of file {number} is out of order")));
            }
            end = group.end.get();
            next_ordinal = ordinal.saturating_add(1);
        }
    }
    if end != rows {
        return Err(invalid(format!("the row groups have {end} rows, the index {rows}")));
    }
    Ok(())
}

/// The number of entries of a guide: one for each bucket and one for the end of the last; none when there are no rows.
pub(super) fn guide_len(rows: u64, shift: u32) -> Option<u64> {
    match rows.checked_sub(1) {
        None => Some(0),
        Some(last) => last.checked_shr(shift)?.checked_add(2),
    }
}

/// Entry `b` must be the first row group that ends after row `b << shift`, which two neighbours prove.
fn check_guide(guide: &[U32], shift: u32, groups: &[RowGroupRecord]) -> Result<()> {
    for (bucket, entry) in (0_u64..).zip(guide) {
        let entry = entry.get() as usize;
        let row = bucket.checked_shl(shift).unwrap_or(u64::MAX);
        let ends_before = entry.checked_sub(1).is_none_or(|at| groups.get(at).is_some_and(|g| g.end.get() <= row));
        let ends_after = groups.get(entry).map_or(entry == groups.len(), |group| group.end.get() > row);
        if !ends_before || !ends_after {
            return Err(invalid(format!("the guide leads row {row} to the wrong row group {entry}")));
        }
    }
    Ok(())
}

fn selections(envelope: &Envelope, groups: &[RowGroupRecord]) -> Result<Option<Selections>> {
    let Some(section) = envelope.get(id::ROW_SETS) else {
        return match envelope.get(id::ROW_SET_DATA) {
            Some(_) => Err(invalid("there is ROW_SET_DATA and no ROW_SETS")),
            None => Ok(None),
        };
    };
    let records = RecordTable::<RowSetRecord>::new(section, groups.len() as u64)?;
    let data = envelope.require(id::ROW_SET_DATA)?.bytes.clone();
    let mut before = 0_u64;
    let mut place = 0_u64;
    for (group, record) in groups.iter().zip(records.as_slice()) {
        let rows = group.end.get().saturating_sub(before);
        before = group.end.get();
        let error =
            |error: Error| invalid(format!("row group {} of file {}: {}", group.ordinal, group.file, error.message()));
        if record.offset.get() != place {
            return Err(error(invalid("its selection does not follow the one before")));
        }
        let length = container_len(record, rows).map_err(error)?;
        place = place.saturating_add(length);
        if place > data.len() as u64 {
            return Err(error(invalid("its selection is not in ROW_SET_DATA")));
        }
        if let Some(set) = RowSet::new(record, rows, &data) {
            set.check().map_err(error)?;
        }
    }
    if place != data.len() as u64 {
        return Err(invalid(format!("the selections take {place} bytes, ROW_SET_DATA has {}", data.len())));
    }
    Ok(Some(Selections { records, data }))
}

/// The names of the partition columns, and the table that has them and all values.
fn partitions(
    envelope: &Envelope,
    files: usize,
    text: &str,
    schema: &SchemaRef,
) -> Result<(Vec<String>, RecordTable<StringRef>)> {
    let Some(section) = envelope.get(id::PARTITIONS) else {
        return Ok((Vec::new(), RecordTable::of(Bytes::new())));
    };
    let refs = RecordTable::<StringRef>::new(section, section.bytes.len() as u64 / STRING_REF)?;
    let columns = refs.as_slice().len().checked_div(files.saturating_add(1)).unwrap_or_default();
    if columns == 0 || columns.checked_mul(files.saturating_add(1)) != Some(refs.as_slice().len()) {
        return Err(invalid(format!("{} partition values do not divide by {files} files", refs.as_slice().len())));
    }
    let fields: HashSet<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let mut names: Vec<String> = Vec::new();
    for &at in refs.as_slice().iter().take(columns) {
        let Some(name) = resolve(text, at)? else { return Err(invalid("a partition column has no name")) };
        if !fields.contains(name) {
            return Err(invalid(format!("the partition column {name:?} is not in the schema")));
        }
        names.push(name.to_owned());
    }
    refs.as_slice().iter().try_for_each(|&at| resolve(text, at).map(drop))?;
    Ok((names, refs))
}

fn renames(envelope: &Envelope, text: &str) -> Result<Renames> {
    let Some(section) = envelope.get(id::RENAMES) else { return Ok(Renames::default()) };
    let refs = RecordTable::<StringRef>::new(section, section.bytes.len() as u64 / STRING_REF)?;
    let (pairs, rest) = refs.as_slice().as_chunks::<2>();
    if !rest.is_empty() || pairs.is_empty() {
        return Err(invalid(format!("RENAMES has {} names, pairs expected", refs.as_slice().len())));
    }
    let name = |at: StringRef| match resolve(text, at)? {
        Some(name) => Ok(name.to_owned()),
        None => Err(invalid("a renamed column has no name")),
    };
    let pairs: Vec<(String, String)> =
        pairs.iter().map(|&[old, new]| Ok((name(old)?, name(new)?))).collect::<Result<_>>()?;
    Renames::new(pairs).map_err(|error| invalid(format!("RENAMES contradicts itself: {}", error.message())))
}

fn root(envelope: &Envelope, text: &str) -> Result<Root> {
    let record = RecordTable::<RootRecord>::new(envelope.require(id::ROOT)?, 1)?;
    let Some(record) = record.as_slice().first() else { return Err(invalid("ROOT is empty")) };
    let is_relative = match record.kind.get() {
        0 => true,
        1 => false,
        other => return Err(invalid(format!("the root is of the unknown kind {other}"))),
    };
    let path = resolve(text, record.path)?.unwrap_or_default();
    if record.reserved.get() != 0 || path.len() > MAX_PATH || path.contains('\0') {
        return Err(invalid("the root is not a path"));
    }
    Ok(Root { is_relative, path: path.to_owned() })
}
