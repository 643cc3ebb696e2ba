//! Decoding one row group, or some rows of it.

mod alone;
mod apart;
mod look;

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::FieldRef;
use parquet::arrow::arrow_reader::RowSelection;
use parquet::basic::Compression;

pub(super) use self::look::unpacked;

use self::alone::ColumnReadAlone;

use super::chunks::{PagePositions, RowGroup};
use super::columns::{ColumnOrigin, is_view, leaves_from, origins};
use super::direct::GroupBytes;
use super::errors::{ASK_FOR_LESS, caught_panic, internal, invalid, too_large};
use super::pages::Pages;
use super::{FileBytes, FileMetadata, RowSink, adapt, as_asked, length_of};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_projection::Projection;
use rowdex_rows::{Chunks, Footprint, compact_sparse, record_batch};

/// What a row group may take when decoded, unless said otherwise: 2 GiB.
pub const MAX_DECODED_BYTES: u64 = 2 << 30;

/// Which rows of a row group to decode.
#[derive(Debug, Clone, Copy)]
pub enum RowsToDecode<'a> {
    /// All of them.
    All,
    /// These, by their place in the group, strictly increasing.
    ///
    /// Pages without a wanted row are not read if the file says where its pages are.
    Selected(&'a [u32]),
    /// These as well, of a row group that is read as a whole: what is read does not depend on them.
    ///
    /// The others are not decoded where that is done here. Chunks may have fewer rows than the sink asks for.
    Due(&'a [u32]),
}

/// One row group of a file, and what its rows are decoded to.
#[derive(Debug, Clone, Copy)]
pub struct GroupDecoder<'a> {
    /// The file.
    pub file: &'a FileMetadata,
    /// Which row group of it.
    pub row_group: usize,
    /// The columns. One that the file lacks is null, and one of a narrower type than the dataset's is widened.
    pub projection: &'a Projection,
    /// Columns whose value is the same in the whole file and comes from its path; they take precedence over a column of
    /// the same name in the file.
    pub partitions: &'a [(&'a str, Option<&'a str>)],
    /// Rows that take more bytes than this are refused: all rows together, or those of each chunk where there are
    /// several. While they are decoded, their compressed bytes and one page per column come on top.
    pub max_decoded_bytes: u64,
}

/// What is decoded of a row group, and to what.
#[derive(Clone, Copy)]
pub(crate) struct WantedRows<'a> {
    /// Where each output column comes from.
    pub(crate) origins: &'a [ColumnOrigin<'a>],
    /// Columns of which the selected values are read, of which there are some then.
    pub(crate) alone: &'a [ColumnReadAlone<'a>],
    /// The rows, if they are not all.
    pub(crate) selected: Option<&'a [u32]>,
    pub(crate) chunk_rows: usize,
}

impl<'a> GroupDecoder<'a> {
    /// Decodes these rows and hands them to the sink. Returns how many bytes the rows took.
    ///
    /// One read for the columns' bytes; before the first selection in a row group, one more for the positions of its
    /// pages. Without such positions a selection reads whole columns.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidParquet`] if the bytes are damaged, [`ErrorKind::UnsupportedParquet`] if they use something
    /// that cannot be read, [`ErrorKind::TooLarge`] if the rows take more than is allowed, [`ErrorKind::Schema`] if a
    /// column cannot be brought to its type or has nulls where it must not, [`ErrorKind::OutOfRange`] and
    /// [`ErrorKind::InvalidArgument`] for a row group or rows that cannot be, and what `bytes` and the sink report.
    pub fn decode(&self, rows: RowsToDecode<'_>, bytes: &dyn FileBytes, sink: &mut dyn RowSink) -> Result<u64> {
        let origins = self.origins();
        let decoded = self.leaves(&origins).and_then(|leaves| match self.width(rows, &origins, &leaves, bytes, sink) {
            Some(width) => self.decode_apart(width, rows, &origins, bytes, sink),
            None => self.decode_together(rows, &origins, leaves, bytes, sink),
        });
        decoded.map_err(|error| error.with_row_group(self.row_group as u64).with_file(self.file.path()))
    }

    /// Decodes the columns of the projection, which come from there, of these columns of the file, together.
    fn decode_together(
        &self,
        rows: RowsToDecode<'_>,
        origins: &[ColumnOrigin<'_>],
        mut leaves: Vec<usize>,
        bytes: &dyn FileBytes,
        sink: &mut dyn RowSink,
    ) -> Result<u64> {
        let Some(group) = self.file.group(self.row_group) else {
            let message = format!("the file has {} row groups", self.file.num_row_groups());
            return Err(Error::new(ErrorKind::OutOfRange, message));
        };
        let selected = selected(rows, group)?;
        let is_due = matches!(rows, RowsToDecode::Due(_));
        let mut alone = Vec::new();
        if is_due && selected.is_some() {
            alone = self.read_alone(origins, &leaves, bytes);
            leaves.retain(|leaf| alone.iter().all(|alone| alone.leaf != *leaf));
        }
        let views = self.projection.internal().fields().iter().filter(|field| is_view(field.data_type()));
        if !alone.is_empty() && views.count() == alone.len() {
            sink.values_are_own();
        }
        let chunk_rows = sink.chunk_rows().max(1);
        let wanted = WantedRows { origins, alone: &alone, selected, chunk_rows };
        let count = selected.map_or(group.num_rows(), <[u32]>::len);
        let decoded = if leaves.is_empty() || count == 0 {
            self.decode_without_pages(&wanted, count, bytes, sink)?
        } else {
            let pages = self.fetch(group, &leaves, &wanted, is_due, bytes)?;
            let places = self.file.value_places(self.row_group);
            let places = places.filter(|places| is_due && bytes.is_near() && places.get().is_none());
            let found = places.map(|places| (places, self.find_values(&pages)));
            let decoded = self.decode_pages(&pages, &wanted, bytes, sink);
            let decoded = decoded.map_err(|error| self.blame(&pages, error))?;
            if let Some((places, found)) = found {
                places.set(found);
            }
            decoded
        };
        if is_due && bytes.is_near() {
            sink.places_are_kept(self.file.value_places_bytes(self.row_group));
        }
        Ok(decoded)
    }

    /// Reads the pages that hold the wanted rows, and makes sure that they can be decoded within the limit. Rows that
    /// are due are of a row group that is read as a whole.
    fn fetch<'p>(
        &'p self,
        group: RowGroup<'p>,
        leaves: &'p [usize],
        wanted: &WantedRows<'_>,
        are_due: bool,
        bytes: &dyn FileBytes,
    ) -> Result<Pages<'p>> {
        let WantedRows { selected, chunk_rows, .. } = *wanted;
        let sought = selected.filter(|_| !are_due);
        if sought.is_none() {
            self.within_limit(declared(group, leaves))?;
        }
        let seeks_pages = is_sparse(group, sought) && !bytes.has(&self.chunks());
        let paged = if seeks_pages { self.file.paged(bytes, self.row_group)? } else { None };
        let mut pages = self.pages(group, Vec::new(), leaves, sought, paged);
        let count = pages.batch_rows;
        pages.ranges = match pages.of.paged {
            Some(_) => pages.needed()?,
            None => leaves.iter().map(|leaf| group.column(*leaf).range()).collect(),
        };
        let asked = length_of(&pages.ranges);
        self.within_limit(asked)?;
        pages.bytes = as_asked(bytes.read(&pages.ranges)?, &pages.ranges)?;
        self.look_into(&mut pages, selected.is_none())?;
        // What stays may be shown by the rows, and counts as theirs.
        let is_shown = |leaf: &usize| group.column(*leaf).compression() == Compression::UNCOMPRESSED;
        let stays = count <= chunk_rows && self.wanted_views(leaves).iter().any(is_shown);
        if !stays && !bytes.has(&pages.ranges) {
            pages.staged = pages.staged.saturating_add(asked);
        }
        pages.batch_rows = pages.batch_rows.min(chunk_rows);
        Ok(pages)
    }

    /// Makes `count` rows of what needs no pages. Returns how many bytes they took.
    fn decode_without_pages(
        &self,
        wanted: &WantedRows<'_>,
        count: usize,
        bytes: &dyn FileBytes,
        sink: &mut dyn RowSink,
    ) -> Result<u64> {
        let WantedRows { origins, alone, selected, chunk_rows } = *wanted;
        let sources = self.sources(origins, &[], alone);
        let mut decoded = 0;
        let mut at = 0;
        loop {
            let rows = chunk_rows.min(count - at);
            let here = selected.and_then(|selected| selected.get(at..at + rows)).unwrap_or_default();
            let columns = self.with_alone(&[], alone, here, bytes)?;
            give(self.batch(self.columns(&sources, &columns, rows)?, rows)?, sink, &mut decoded)?;
            at += rows;
            if at == count {
                return Ok(decoded);
            }
        }
    }

    /// Decodes what was fetched, batch by batch, and stops when a chunk becomes too much. Returns how many bytes the
    /// rows took.
    pub(super) fn decode_pages(
        &self,
        pages: &Pages,
        wanted: &WantedRows<'_>,
        bytes_of_file: &dyn FileBytes,
        sink: &mut dyn RowSink,
    ) -> Result<u64> {
        let WantedRows { origins, alone, selected, chunk_rows } = *wanted;
        let count = selected.map_or(pages.of.rows, <[u32]>::len);
        let roots = pages.roots();
        let sources = self.sources(origins, &roots, alone);
        let mut footprint = Footprint::default();
        let mut bytes = 0_u64;
        // What is due of a row group need not be copied to chunks of one length.
        let is_due = selected.is_some() && pages.selection.is_none();
        let mut chunks = Chunks::of(chunk_rows);
        let mut seen = 0;
        let mut decoded = 0;
        // The decoder makes short batches where values are large.
        pages.each_batch(&roots, selected, count, |batch, rows| {
            let first = seen;
            seen += rows;
            let here = selected.and_then(|selected| selected.get(first..seen)).unwrap_or_default();
            let batch = match alone {
                [] => Cow::from(batch),
                alone => Cow::from(self.with_alone(batch, alone, here, bytes_of_file)?),
            };
            let part = caught_panic(|| {
                let mut columns = self.columns(&sources, &batch, rows)?;
                if pages.selection.is_some() {
                    columns.iter_mut().for_each(compact_sparse);
                }
                let added = columns.iter().map(|column| footprint.add_array(column.as_ref()));
                bytes = added.fold(bytes, u64::saturating_add);
                self.within_limit(bytes)?;
                self.batch(columns, rows)
            })?;
            if is_due {
                (footprint, bytes) = (Footprint::default(), 0);
                return give(part, sink, &mut decoded);
            }
            chunks.push(part);
            while let Some(chunk) = caught_panic(|| chunks.next_chunk())? {
                footprint = Footprint::default();
                bytes = chunks.waiting().map(|part| footprint.add(part)).fold(0, u64::saturating_add);
                give(chunk, sink, &mut decoded)?;
            }
            Ok(())
        })?;
        if seen != count {
            return Err(invalid(format!("holds {seen} rows where {count} were expected")));
        }
        if let Some(chunk) = caught_panic(|| chunks.last())? {
            give(chunk, sink, &mut decoded)?;
        }
        sink.pages_took(pages.staged);
        Ok(decoded)
    }

    /// Finds out which column an error comes from by decoding each alone.
    fn blame(&self, pages: &Pages, error: Error) -> Error {
        if error.column().is_some()
            || !matches!(error.kind(), ErrorKind::InvalidParquet | ErrorKind::UnsupportedParquet)
        {
            return error;
        }
        for root in pages.roots() {
            if pages.each_decoded(pages.leaves_of(root), |_| Ok(())).is_err() {
                return error.with_column(self.file.arrow_schema().field(root).name());
            }
        }
        error
    }

    /// What the output columns are made of, where the file's fields `roots` are decoded, and behind them those that are
    /// read alone: each [`ColumnOrigin::File`] is then by its place among these.
    fn sources<'o>(
        &self,
        origins: &[ColumnOrigin<'o>],
        roots: &[usize],
        alone: &[ColumnReadAlone<'_>],
    ) -> Vec<ColumnOrigin<'o>> {
        let made = |origin: &ColumnOrigin<'o>| match *origin {
            ColumnOrigin::File(root) => {
                let alone = || Some(roots.len() + alone.iter().position(|alone| alone.root == root)?);
                // Of a group without columns, or of no rows at all, there is nothing to decode.
                roots.binary_search(&root).ok().or_else(alone).map_or(ColumnOrigin::Missing, ColumnOrigin::File)
            }
            other => other,
        };
        origins.iter().map(made).collect()
    }

    /// The output columns, from the decoded columns of the file.
    fn columns(&self, sources: &[ColumnOrigin<'_>], decoded: &[ArrayRef], rows: usize) -> Result<Vec<ArrayRef>> {
        let limit = self.max_decoded_bytes;
        let column = |(source, field): (&ColumnOrigin<'_>, &FieldRef)| {
            let array = match *source {
                ColumnOrigin::Partition(value) => adapt::constant(value, field, rows, limit)?,
                ColumnOrigin::Missing => adapt::nulls(field.data_type(), rows, field.name(), limit)?,
                ColumnOrigin::File(place) => {
                    let array = decoded.get(place).ok_or_else(|| internal("a column is lost"))?;
                    let right = adapt::mask(array, None, field.name())?;
                    adapt::adapt(right.as_ref().unwrap_or(array), field.data_type(), field.name(), limit)?
                }
            };
            adapt::check_nulls(&array, field)?;
            Ok(array)
        };
        sources.iter().zip(self.projection.internal().fields()).map(column).collect()
    }

    pub(super) fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        record_batch(self.projection.internal(), columns, rows)
            .map_err(|error| internal(error.to_string()).with_source(error))
    }

    /// The pages that hold the wanted rows of a row group, and of those that follow it, before they are read. `paged`
    /// has their positions, if they are to be made use of.
    pub(super) fn pages<'p>(
        &'p self,
        group: RowGroup<'p>,
        more: Vec<RowGroup<'p>>,
        leaves: &'p [usize],
        sought: Option<&[u32]>,
        paged: Option<PagePositions>,
    ) -> Pages<'p> {
        let rows = group.num_rows() + more.iter().map(RowGroup::num_rows).sum::<usize>();
        let of = GroupBytes {
            group,
            more,
            rows,
            paged,
            found: Vec::new(),
            unpacker: Rc::default(),
            all_rows: sought.is_none(),
            limit: self.max_decoded_bytes,
        };
        Pages {
            file: self.file,
            leaves,
            views: Vec::new(),
            of,
            selection: sought.map(|sought| selection(sought, rows)),
            batch_rows: sought.map_or(rows, <[u32]>::len),
            ranges: Vec::new(),
            bytes: Vec::new(),
            rare: Vec::new(),
            staged: 0,
        }
    }

    /// Where decoding will read, sorted, as far as that is known without a read: for some rows of a group whose
    /// pages' positions were never read, it is these positions alone.
    pub fn places(&self, rows: RowsToDecode<'_>) -> Result<Vec<Range<u64>>> {
        let Some(group) = self.file.group(self.row_group) else { return Ok(Vec::new()) };
        let rows = if matches!(rows, RowsToDecode::Due(_)) { RowsToDecode::All } else { rows };
        let selected = selected(rows, group)?;
        let leaves = self.leaves(&self.origins())?;
        let sparse = selected.filter(|_| is_sparse(group, selected));
        if leaves.is_empty() || sparse.is_some_and(<[u32]>::is_empty) {
            return Ok(Vec::new());
        }
        if sparse.is_none() || !self.file.has_page_positions(self.row_group) {
            return Ok(self.chunks());
        }
        let paged = match self.file.known_pages(self.row_group) {
            Some(Some(paged)) => paged,
            Some(None) => return Ok(self.chunks()),
            None => return Ok(self.file.page_positions(self.row_group).into_iter().collect()),
        };
        let mut ranges = self.pages(group, Vec::new(), &leaves, selected, Some(paged)).needed()?;
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        Ok(ranges)
    }

    /// Where all of the columns are read.
    fn chunks(&self) -> Vec<Range<u64>> {
        self.file.chunks(self.row_group, self.projection, self.partitions)
    }

    /// Where each output column comes from.
    pub(super) fn origins(&self) -> Vec<ColumnOrigin<'a>> {
        origins(self.file, self.projection, self.partitions)
    }

    /// The columns of the file that are needed, all of which can be decoded.
    pub(super) fn leaves(&self, origins: &[ColumnOrigin<'_>]) -> Result<Vec<usize>> {
        let leaves = leaves_from(self.file, self.projection, origins);
        let checked = self.file.check_decodable(self.row_group..self.row_group + 1, &leaves);
        checked.map(|()| leaves).map_err(|error| error.with_hint("choose other `columns`"))
    }

    pub(super) fn within_limit(&self, bytes: u64) -> Result<()> {
        let limit = self.max_decoded_bytes;
        if bytes <= limit {
            return Ok(());
        }
        Err(too_large(format!("takes {bytes} bytes, more than the {limit} allowed")).with_hint(ASK_FOR_LESS))
    }
}

/// Whether so few rows are wanted that pages can be left out. With more than half of them hardly one can.
fn is_sparse(group: RowGroup<'_>, selected: Option<&[u32]>) -> bool {
    selected.is_some_and(|rows| rows.len() <= group.num_rows() / 2)
}

/// Bytes of the pages of these columns, by the footer.
fn declared(group: RowGroup<'_>, leaves: &[usize]) -> u64 {
    leaves.iter().map(|leaf| group.column(*leaf).uncompressed_size()).fold(0, u64::saturating_add)
}

/// The wanted rows, if they are not all of them.
fn selected<'a>(rows: RowsToDecode<'a>, group: RowGroup<'_>) -> Result<Option<&'a [u32]>> {
    let (RowsToDecode::Selected(rows) | RowsToDecode::Due(rows)) = rows else { return Ok(None) };
    let total = group.num_rows();
    if let Some(pair) = rows.windows(2).find(|pair| pair[0] >= pair[1]) {
        let message = format!("rows must be strictly increasing, and {} follows {}", pair[1], pair[0]);
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    match rows.last() {
        Some(last) if *last as usize >= total => {
            Err(Error::new(ErrorKind::OutOfRange, format!("row {last} of a row group that has {total}")))
        }
        _ => Ok((rows.len() < total).then_some(rows)),
    }
}

fn selection(rows: &[u32], total: usize) -> RowSelection {
    let runs = rows.chunk_by(|a, b| a + 1 == *b).map(|run| run[0] as usize..run[0] as usize + run.len());
    RowSelection::from_consecutive_ranges(runs, total)
}

/// Hands a chunk to the sink, and counts its bytes.
fn give(chunk: RecordBatch, sink: &mut dyn RowSink, decoded: &mut u64) -> Result<()> {
    *decoded = decoded.saturating_add(chunk.get_array_memory_size() as u64);
    sink.take(chunk)
}
