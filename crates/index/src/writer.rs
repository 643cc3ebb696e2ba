//! Writes an index: footers as they come, everything else at the end.
//!
//! Footers are the only part whose size is not bounded by what a lookup needs, so they are compressed and written at
//! once and are the first section. The tables stay in memory until `finish`: 24 bytes for a row group, 72 and the
//! path for a file, 1.1 bits for a row of a row group that is served in part. Equal calls write equal bytes.

use std::collections::HashMap;
use std::io::{Seek, Write};

use arrow::datatypes::Schema;
use zerocopy::little_endian::{I64, U32, U64};

use super::contents::{MAX_FOOTER, MAX_ROWS, guide_len};
use super::format::{
    CRITICAL, DEFERRED, FileRecord, MetaRecord, RootRecord, RowGroupRecord, RowSetRecord, StringRef, hash, id,
};
use super::path::{MAX_PATH, check_path};
use super::sections::{SectionWriter, write_error};
use super::{Root, RootKind, rows, schema};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_projection::Renames;

/// Changing it changes the bytes of every index.
const FOOTER_COMPRESSION: i32 = 1;

/// A file to add; the row groups that follow are its own.
#[derive(Clone, Debug)]
pub struct NewFile<'a> {
    /// Its path below the root.
    pub path: &'a str,
    /// Its length in bytes.
    pub size: u64,
    /// Its last modification in nanoseconds since the Unix epoch, where the store has such a time.
    pub mtime_ns: Option<i64>,
    /// The store's version tag, if it has one.
    pub etag: Option<&'a str>,
    /// Its footer.
    pub footer: FooterRef,
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

/// The hash of a footer, and its place if it was stored.
#[derive(Copy, Clone, Debug)]
pub struct FooterRef {
    hash: u64,
    offset: u64,
    length: u32,
    raw_length: u32,
    stored: bool,
}

impl FooterRef {
    /// For an index without footers.
    pub fn not_stored(raw: &[u8]) -> Self {
        Self::hashed(hash(raw))
    }

    /// The same, where only the hash is at hand.
    pub(crate) fn hashed(hash: u64) -> Self {
        Self { hash, offset: 0, length: 0, raw_length: 0, stored: false }
    }
}

/// Compresses footers, which takes longer than reading them, so each thread that reads has its own.
pub struct FooterCompressor {
    zstd: zstd::bulk::Compressor<'static>,
}

impl std::fmt::Debug for FooterCompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FooterCompressor").finish_non_exhaustive()
    }
}

/// A footer as it is stored.
#[derive(Debug)]
pub struct StoredFooter {
    hash: u64,
    raw_length: u32,
    bytes: Vec<u8>,
}

impl StoredFooter {
    /// As another index has it.
    pub(super) fn copied(hash: u64, raw_length: u32, bytes: Vec<u8>) -> Self {
        Self { hash, raw_length, bytes }
    }
}

impl FooterCompressor {
    /// A compressor with memory of its own.
    ///
    /// # Errors
    /// `Io` if there is no memory for it.
    pub fn new() -> Result<Self> {
        let mut zstd = zstd::bulk::Compressor::new(FOOTER_COMPRESSION).map_err(write_error)?;
        zstd.include_contentsize(true).map_err(write_error)?;
        Ok(Self { zstd })
    }

    /// The footer with these bytes, compressed.
    ///
    /// # Errors
    /// `TooLarge` beyond what a reader accepts.
    pub fn compress(&mut self, raw: &[u8]) -> Result<StoredFooter> {
        let too_large = || Error::new(ErrorKind::TooLarge, format!("a footer of {} bytes is not stored", raw.len()));
        let raw_length = u32::try_from(raw.len()).ok().filter(|&length| length <= MAX_FOOTER).ok_or_else(too_large)?;
        let bytes = self.zstd.compress(raw).map_err(write_error)?;
        Ok(StoredFooter { hash: hash(raw), raw_length, bytes })
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

    /// Writes the footer of a file that will be added.
    pub fn push_footer(&mut self, footer: &StoredFooter) -> Result<FooterRef> {
        let length = u32::try_from(footer.bytes.len())
            .map_err(|_| Error::new(ErrorKind::TooLarge, "a footer of more than 4 GiB is not stored"))?;
        let offset = self.out.begun();
        self.out.write(&footer.bytes)?;
        Ok(FooterRef { hash: footer.hash, offset, length, raw_length: footer.raw_length, stored: true })
    }

    /// Adds a file and returns its number.
    pub fn push_file(&mut self, file: NewFile<'_>) -> Result<u32> {
        check_path(file.path)?;
        let file_number = number(self.files.len(), "files")?;
        let first_row_group = number_of_groups(&self.row_groups)?;
        let mut flags = 0;
        if file.mtime_ns.is_some() {
            flags |= FileRecord::HAS_MTIME;
        }
        if file.footer.stored {
            flags |= FileRecord::HAS_FOOTER;
        }
        let record = FileRecord {
            path: self.string(file.path)?,
            size: U64::new(file.size),
            mtime_ns: I64::new(file.mtime_ns.unwrap_or(0)),
            etag: file.etag.map_or(Ok(StringRef::NONE), |etag| self.string(etag))?,
            footer_hash: U64::new(file.footer.hash),
            footer_offset: U64::new(file.footer.offset),
            footer_length: U32::new(file.footer.length),
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
        let strings = std::mem::take(&mut self.strings);
        let files = std::mem::take(&mut self.files);
        let row_groups = std::mem::take(&mut self.row_groups);
        let row_sets = std::mem::take(&mut self.row_sets);
        let row_set_data = std::mem::take(&mut self.row_set_data);

        if self.out.begun() > 0 {
            self.out.end(id::FOOTERS, DEFERRED, 1);
        }
        self.out.section(id::META, CRITICAL, &[meta])?;
        self.out.section(id::STRINGS, CRITICAL, &strings)?;
        self.out.section(id::FILES, CRITICAL, &files)?;
        self.out.section(id::ROW_GROUPS, CRITICAL, &row_groups)?;
        self.out.section(id::GUIDE, CRITICAL, &guide)?;
        self.out.section(id::SCHEMA, CRITICAL, &schema::encode(summary.schema)?)?;
        if !summary.partition_columns.is_empty() {
            self.out.section(id::PARTITIONS, CRITICAL, &partitions)?;
        }
        self.out.section(id::ROOT, CRITICAL, &[root])?;
        if !renames.is_empty() {
            // A reader that does not know them would serve nulls.
            self.out.section(id::RENAMES, CRITICAL, &renames)?;
        }
        if !row_sets.is_empty() {
            self.out.section(id::ROW_SETS, CRITICAL, &row_sets)?;
            self.out.section(id::ROW_SET_DATA, CRITICAL, &row_set_data)?;
        }
        self.out.section(id::BUILD_INFO, 0, summary.build_info.as_bytes())?;
        self.out.close()
    }

    fn root(&mut self, root: &Root) -> Result<RootRecord> {
        let kind = match root.kind {
            RootKind::RelativeToIndex => 0,
            RootKind::Absolute => 1,
        };
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
        return Err(Error::new(ErrorKind::InvalidArgument, "the root is a URL with a user, a query or a fragment")
            .with_hint("give credentials when opening, they are not stored in an index"));
    }
    if path.len() > MAX_PATH || path.contains('\0') {
        return Err(Error::new(ErrorKind::InvalidArgument, "the root is longer than 4096 bytes or contains a NUL"));
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
