//! Writes an index: footers as they come, everything else at the end.
//!
//! Footers are the only part whose size is not bounded by what a lookup needs, so they are compressed and written at
//! once and are the first section. The tables stay in memory until `finish`: 24 bytes for a row group, 72 and the
//! path for a file, 1.1 bits for a row of a row group that is served in part. Equal calls write equal bytes.

use std::collections::HashMap;
use std::io::{Seek, Write};

use arrow_schema::Schema;
use zerocopy::little_endian::{I64, U32, U64};

use super::contents::{MAX_FOOTER, MAX_ROWS, guide_len};
use super::format::{
    CRITICAL, DEFERRED, FileRecord, MetaRecord, RootRecord, RowGroupRecord, RowSetRecord, StringRef, hash, id,
};
use super::path::{MAX_PATH, check_path};
use super::sections::{SectionWriter, write_error};
use super::{Root, rows, schema};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::source::FileStat;
use rowdex_projection::Renames;

/// Changing it changes the bytes of every index.
const FOOTER_COMPRESSION: i32 = 1;

/// A file to add; the row groups that follow are its own.
#[derive(Clone, Debug)]
pub struct NewFile<'a> {
    /// Its path below the root.
    pub path: &'a str,
    /// Its size, last modification and version tag, as far as the store has them.
    pub stat: &'a FileStat,
    /// Its footer, which is written here if it is stored.
    pub footer: &'a NewFooter,
    /// One for each partition column, `None` for null.
    pub partition_values: &'a [Option<&'a str>],
}

/// A row group of the file that was added last.
#[derive(Clone, Debug)]
pub struct NewRowGroup<'a> {
    /// Its place in the file; increases, and skips row groups that serve nothing and were left out.
    pub ordinal: u32,
    /// Its rows in the file.
    pub source_rows: u64,
    /// About how many bytes it takes when decoded.
    pub decoded_bytes: u64,
    /// The rows to serve, increasing; `None` for all.
    pub selection: Option<&'a [u32]>,
}

/// What is known of the whole only at the end.
#[derive(Clone, Debug)]
pub struct Summary<'a> {
    /// The schema that is served.
    pub schema: &'a Schema,
    /// Columns whose values come from paths.
    pub partition_columns: &'a [String],
    /// Columns that are served by other names than the files have.
    pub renames: &'a Renames,
    /// Where the files are.
    pub root: &'a Root,
    /// JSON text.
    pub build_info: &'a str,
}

/// The hash of a footer, and the footer as it is stored if it is.
#[derive(Debug)]
pub struct NewFooter {
    pub(super) hash: u64,
    pub(super) raw_length: u32,
    pub(super) bytes: Option<Vec<u8>>,
}

/// Compresses footers, which takes longer than reading them, so each thread that reads has its own.
pub struct FooterCompressor {
    /// `None` for an index without footers.
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl std::fmt::Debug for FooterCompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FooterCompressor").finish_non_exhaustive()
    }
}

impl FooterCompressor {
    /// A compressor with its own memory, or for an index without footers.
    ///
    /// # Errors
    /// `Io` if there is no memory for it.
    pub fn new(stored: bool) -> Result<Self> {
        let compressor = || {
            let mut zstd = zstd::bulk::Compressor::new(FOOTER_COMPRESSION)?;
            zstd.include_contentsize(true)?;
            Ok(zstd)
        };
        Ok(Self { zstd: stored.then(compressor).transpose().map_err(write_error)? })
    }

    /// The footer with these bytes.
    ///
    /// # Errors
    /// `TooLarge` beyond what a reader accepts.
    pub fn footer(&mut self, raw: &[u8]) -> Result<NewFooter> {
        let Some(zstd) = &mut self.zstd else { return Ok(NewFooter { hash: hash(raw), raw_length: 0, bytes: None }) };
        let too_large = || Error::new(ErrorKind::TooLarge, format!("a footer of {} bytes is not stored", raw.len()));
        let raw_length = u32::try_from(raw.len()).ok().filter(|&length| length <= MAX_FOOTER).ok_or_else(too_large)?;
        let bytes = zstd.compress(raw).map_err(write_error)?;
        Ok(NewFooter { hash: hash(raw), raw_length, bytes: Some(bytes) })
    }
}

/// Writes an index: files and their row groups in order, and what is known of the whole at the end.
pub struct IndexWriter<W> {
    out: SectionWriter<W>,
    strings: Vec<u8>,
    /// Partition values repeat in file after file; paths do not.
    repeated: HashMap<String, StringRef>,
    files: Vec<FileRecord>,
    row_groups: Vec<RowGroupRecord>,
    partition_values: Vec<StringRef>,
    /// Empty until the first row group that is served in part.
    row_sets: Vec<RowSetRecord>,
    row_set_data: Vec<u8>,
    source_rows: u64,
}

impl<W> std::fmt::Debug for IndexWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndexWriter").finish_non_exhaustive()
    }
}

impl<W: Write + Seek> IndexWriter<W> {
    /// Starts an index at the start of `out`, which should be buffered.
    pub fn new(out: W) -> Result<Self> {
        let mut out = SectionWriter::new(out)?;
        out.begin()?;
        Ok(Self {
            out,
            strings: Vec::new(),
            repeated: HashMap::new(),
            files: Vec::new(),
            row_groups: Vec::new(),
            partition_values: Vec::new(),
            row_sets: Vec::new(),
            row_set_data: Vec::new(),
            source_rows: 0,
        })
    }

    /// Adds a file and returns its number.
    pub fn push_file(&mut self, file: NewFile<'_>) -> Result<u32> {
        check_path(file.path)?;
        let file_number = number(self.files.len(), "files")?;
        let first_row_group = number_of_groups(&self.row_groups)?;
        let mut flags = 0;
        if file.stat.mtime_ns.is_some() {
            flags |= FileRecord::HAS_MTIME;
        }
        let mut footer_offset = 0;
        if file.footer.bytes.is_some() {
            flags |= FileRecord::HAS_FOOTER;
            footer_offset = self.out.begun();
        }
        let footer = file.footer.bytes.as_deref().unwrap_or_default();
        let footer_length = u32::try_from(footer.len())
            .map_err(|_| Error::new(ErrorKind::TooLarge, "a footer of more than 4 GiB is not stored"))?;
        self.out.write(footer)?;
        let record = FileRecord {
            path: self.string(file.path)?,
            size: U64::new(file.stat.size),
            mtime_ns: I64::new(file.stat.mtime_ns.unwrap_or(0)),
            etag: file.stat.etag.as_deref().map_or(Ok(StringRef::NONE), |etag| self.string(etag))?,
            footer_hash: U64::new(file.footer.hash),
            footer_offset: U64::new(footer_offset),
            footer_length: U32::new(footer_length),
            footer_raw_length: U32::new(file.footer.raw_length),
            first_row_group: U32::new(first_row_group),
            row_groups: U32::new(0),
            flags: U32::new(flags),
            reserved: U32::new(0),
        };
        for value in file.partition_values {
            let at = value.map_or(Ok(StringRef::NONE), |value| self.repeated_string(value))?;
            self.partition_values.push(at);
        }
        self.files.push(record);
        Ok(file_number)
    }

    /// Adds a row group to the file that was added last and returns its number.
    pub fn push_row_group(&mut self, group: NewRowGroup<'_>) -> Result<u32> {
        let row_group = number_of_groups(&self.row_groups)?;
        let Some(file) = self.files.last_mut() else { return Err(misuse("a row group comes before the first file")) };
        let own = file.row_groups.get();
        let before = self.row_groups.last().filter(|_| own > 0).map(|before| before.ordinal.get());
        if before.is_some_and(|before| group.ordinal <= before) {
            return Err(misuse("row groups of a file must be added in order"));
        }
        let rows = match group.selection {
            Some(selected) => selected.len() as u64,
            None => group.source_rows,
        };
        let start = self.row_groups.last().map_or(0, |before| before.end.get());
        let source_rows = self.source_rows.checked_add(group.source_rows).filter(|&sum| sum < MAX_ROWS);
        let (Some(source_rows), Some(end)) = (source_rows, start.checked_add(rows)) else {
            return Err(Error::new(ErrorKind::TooLarge, "an index has fewer than 2^63 rows"));
        };
        self.push_selection(&group, start)?;
        if let Some(file) = self.files.last_mut() {
            file.row_groups = U32::new(own + 1);
        }
        self.source_rows = source_rows;
        self.row_groups.push(RowGroupRecord {
            end: U64::new(end),
            file: U32::new((self.files.len() - 1) as u32),
            ordinal: U32::new(group.ordinal),
            decoded_bytes: U64::new(group.decoded_bytes),
        });
        Ok(row_group)
    }

    fn push_selection(&mut self, group: &NewRowGroup<'_>, start: u64) -> Result<()> {
        let all = |source_rows: u64, offset: usize| RowSetRecord {
            source_rows: U64::new(source_rows),
            offset: U64::new(offset as u64),
            kind: U32::new(rows::kind::ALL),
            runs: U32::new(0),
        };
        let record = match group.selection {
            Some(selected) => rows::encode(selected, group.source_rows, &mut self.row_set_data)?,
            None => all(group.source_rows, self.row_set_data.len()),
        };
        if self.row_sets.is_empty() {
            if record.kind.get() == rows::kind::ALL {
                return Ok(());
            }
            // From here on every row group needs a record, the ones before included.
            let mut before = 0;
            self.row_sets.reserve(self.row_groups.len() + 1);
            for earlier in &self.row_groups {
                self.row_sets.push(all(earlier.end.get() - before, 0));
                before = earlier.end.get();
            }
            debug_assert_eq!(before, start);
        }
        self.row_sets.push(record);
        Ok(())
    }

    /// Writes all tables and, last of all, the header; returns what was written to, flushed.
    pub fn finish(mut self, summary: &Summary<'_>) -> Result<W> {
        check_root(summary.root)?;
        let root = self.root(summary.root)?;
        let partitions = self.partitions(summary)?;
        let mut renames = Vec::with_capacity(2 * summary.renames.pairs().len());
        for (old, new) in summary.renames.pairs() {
            renames.extend([self.string(old)?, self.string(new)?]);
        }

        let total = self.row_groups.last().map_or(0, |last| last.end.get());
        let (guide_shift, guide) = guide(&self.row_groups, total);
        let meta = MetaRecord {
            rows: U64::new(total),
            source_rows: U64::new(self.source_rows),
            files: U32::new(number(self.files.len(), "files")?),
            row_groups: U32::new(number_of_groups(&self.row_groups)?),
            guide_shift: U32::new(guide_shift),
            reserved: U32::new(0),
        };
        let Self { mut out, strings, files, row_groups, row_sets, row_set_data, .. } = self;
        if out.begun() > 0 {
            out.end(id::FOOTERS, DEFERRED, 1);
        }
        out.section(id::META, CRITICAL, &[meta])?;
        out.section(id::STRINGS, CRITICAL, &strings)?;
        out.section(id::FILES, CRITICAL, &files)?;
        out.section(id::ROW_GROUPS, CRITICAL, &row_groups)?;
        out.section(id::GUIDE, CRITICAL, &guide)?;
        out.section(id::SCHEMA, CRITICAL, &schema::encode(summary.schema)?)?;
        if !summary.partition_columns.is_empty() {
            out.section(id::PARTITIONS, CRITICAL, &partitions)?;
        }
        out.section(id::ROOT, CRITICAL, &[root])?;
        if !renames.is_empty() {
            // A reader that does not know them would serve nulls.
            out.section(id::RENAMES, CRITICAL, &renames)?;
        }
        if !row_sets.is_empty() {
            out.section(id::ROW_SETS, CRITICAL, &row_sets)?;
            out.section(id::ROW_SET_DATA, CRITICAL, &row_set_data)?;
        }
        out.section(id::BUILD_INFO, 0, summary.build_info.as_bytes())?;
        out.close()
    }

    fn root(&mut self, root: &Root) -> Result<RootRecord> {
        let kind = u32::from(!root.is_relative);
        Ok(RootRecord { kind: U32::new(kind), reserved: U32::new(0), path: self.string(&root.path)? })
    }

    /// The names of the partition columns, and the values of all files.
    fn partitions(&mut self, summary: &Summary<'_>) -> Result<Vec<StringRef>> {
        let columns = summary.partition_columns.len();
        if self.partition_values.len() != columns * self.files.len() {
            return Err(misuse("every file needs one value for each partition column"));
        }
        let mut partitions = Vec::with_capacity(columns + self.partition_values.len());
        for name in summary.partition_columns {
            if summary.schema.field_with_name(name).is_err() {
                return Err(misuse("every partition column must be in the schema"));
            }
            partitions.push(self.string(name)?);
        }
        partitions.append(&mut self.partition_values);
        Ok(partitions)
    }

    fn string(&mut self, string: &str) -> Result<StringRef> {
        let offset = u32::try_from(self.strings.len()).ok();
        let length = u32::try_from(string.len()).ok();
        let ends = offset.zip(length).filter(|(offset, length)| offset.checked_add(*length).is_some());
        let Some((offset, length)) = ends else {
            return Err(Error::new(ErrorKind::TooLarge, "the paths and names of an index have less than 4 GiB"));
        };
        self.strings.extend_from_slice(string.as_bytes());
        Ok(StringRef { offset: U32::new(offset), length: U32::new(length) })
    }

    fn repeated_string(&mut self, string: &str) -> Result<StringRef> {
        if let Some(&at) = self.repeated.get(string) {
            return Ok(at);
        }
        let at = self.string(string)?;
        self.repeated.insert(string.to_owned(), at);
        Ok(at)
    }
}

/// The finest guide of at most two entries for each row group: its shift, and the first row group of each bucket.
fn guide(groups: &[RowGroupRecord], rows: u64) -> (u32, Vec<U32>) {
    let limit = 2 * groups.len() as u64;
    let fits = |&shift: &u32| guide_len(rows, shift).is_some_and(|entries| entries <= limit);
    // A shift of 63 makes one bucket of everything, and two entries always fit where there are rows.
    let shift = (0..63).find(fits).unwrap_or(63);
    let entries = guide_len(rows, shift).unwrap_or(0);
    let mut group = 0;
    let entry = |bucket: u64| {
        while groups.get(group).is_some_and(|record: &RowGroupRecord| record.end.get() <= bucket << shift) {
            group += 1;
        }
        U32::new(group as u32)
    };
    (shift, (0..entries).map(entry).collect())
}

/// A recorded root is read by whoever gets the index, so it carries no password and no signature.
fn check_root(root: &Root) -> Result<()> {
    let path = root.path.as_str();
    let url = path.split_once("://").map(|(_, rest)| rest);
    let secret = url.is_some_and(|rest| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        authority.contains('@') || rest.contains(['?', '#'])
    });
    if secret {
        return Err(Error::invalid("the root is a URL with a user, a query or a fragment")
            .with_hint("give credentials when opening, they are not stored in an index"));
    }
    if path.len() > MAX_PATH || path.contains('\0') {
        return Err(Error::invalid("the root is longer than 4096 bytes or contains a NUL"));
    }
    Ok(())
}

fn number(count: usize, of: &str) -> Result<u32> {
    // The largest number stays free, so that counts fit too.
    u32::try_from(count)
        .ok()
        .filter(|&count| count < u32::MAX)
        .ok_or_else(|| Error::new(ErrorKind::TooLarge, format!("an index has fewer than 2^32 - 1 {of}")))
}

fn number_of_groups(groups: &[RowGroupRecord]) -> Result<u32> {
    number(groups.len(), "row groups")
}

fn misuse(message: &'static str) -> Error {
    Error::new(ErrorKind::Internal, message)
}
