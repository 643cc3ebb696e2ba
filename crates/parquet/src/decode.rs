//! Decoding one row group, or some rows of it.

mod alone;
mod apart;
mod look;
mod output;

use std::ops::Range;

use arrow::array::RecordBatch;
use parquet::arrow::arrow_reader::RowSelection;

pub(super) use self::look::{check_values, walk};

use self::alone::ColumnReadAlone;

use super::chunks::RowGroup;
use super::columns::{ColumnOrigin, leaves_from, leaves_of};
use super::footer::PagePositions;
use super::pages::Pages;
use super::seam::read_exactly;
use super::{FileBytes, FileMetadata, RowSink};
use rowdex_base::buffers;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_projection::Projection;

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
    /// The columns of the file that are decoded.
    pub(crate) leaves: &'a [usize],
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
        self.run(rows, bytes, sink)
            .map_err(|error| error.with_row_group(self.row_group as u64).with_file(self.file.path()))
    }

    /// Decodes the columns of the projection, which come from there, together.
    fn run_columns(
        &self,
        rows: RowsToDecode<'_>,
        origins: &[ColumnOrigin<'_>],
        bytes: &dyn FileBytes,
        sink: &mut dyn RowSink,
    ) -> Result<u64> {
        let chunk_rows = sink.chunk_rows().max(1);
        let mut decoded = 0_u64;
        let mut each = |chunk: RecordBatch| {
            decoded = decoded.saturating_add(chunk.get_array_memory_size() as u64);
            sink.take(chunk)
        };
        let Some(group) = self.file.group(self.row_group) else {
            let message = format!("the file has {} row groups", self.file.num_row_groups());
            return Err(Error::new(ErrorKind::OutOfRange, message));
        };
        let total = self.file.row_group_rows(self.row_group);
        let selected = selected(rows, total)?;
        let count = selected.map_or(total as usize, <[u32]>::len);
        let mut leaves = leaves_from(self.file, self.projection, origins);
        if let (RowsToDecode::Due(_), Some(due)) = (rows, selected) {
            let alone = self.read_alone(origins, &leaves, bytes);
            leaves.retain(|leaf| alone.iter().all(|alone| alone.leaf != *leaf));
            if !alone.is_empty() {
                let wanted = WantedRows { leaves: &leaves, origins, alone: &alone, selected: Some(due), chunk_rows };
                return self.decode_due(group, &wanted, due, bytes, sink);
            }
        }
        if leaves.is_empty() || count == 0 {
            let mut left = count;
            loop {
                let rows = left.min(chunk_rows);
                each(self.batch(self.columns(&self.sources(origins, &[], &[]), &[], rows)?, rows)?)?;
                left -= rows;
                if left == 0 {
                    return Ok(decoded);
                }
            }
        }
        let mut pages = match rows {
            RowsToDecode::Due(_) => self.fetch(group, &leaves, None, false, chunk_rows, bytes)?,
            _ => self.fetch(group, &leaves, selected, selected.is_none(), chunk_rows, bytes)?,
        };
        pages.batch_rows = pages.batch_rows.min(chunk_rows);
        let is_due = matches!(rows, RowsToDecode::Due(_)) && bytes.is_near() && !Pages::is_left_to_parquet();
        let noted = self.file.value_places(self.row_group).filter(|noted| is_due && noted.get().is_none());
        let places = noted.map(|noted| (noted, self.find_values(&pages, group, &leaves)));
        let wanted = WantedRows { leaves: &leaves, origins, alone: &[], selected, chunk_rows };
        let done = self.decode_pages(&pages, &wanted, bytes, &mut each);
        done.map_err(|error| self.blame(&pages, &leaves, error))?;
        if let Some((noted, places)) = places {
            noted.set(places);
        }
        if is_due {
            sink.places_are_kept(self.file.value_places_bytes(self.row_group));
        }
        Ok(decoded)
    }

    /// Reads the pages that hold the wanted rows, and makes sure that they can be decoded within the limit. With `all`
    /// every row of them is, in chunks of so many rows.
    fn fetch(
        &self,
        group: RowGroup<'a>,
        leaves: &[usize],
        selected: Option<&[u32]>,
        all: bool,
        chunk_rows: usize,
        bytes: &dyn FileBytes,
    ) -> Result<Pages<'a>> {
        if selected.is_none() {
            let declared = leaves.iter().map(|&leaf| group.column(leaf).uncompressed_size().unsigned_abs());
            self.within_limit(declared.fold(0, u64::saturating_add))?;
        }
        let seeks_pages = is_sparse(group, selected)
            && !bytes.has(&self.file.chunks(self.row_group, self.projection, self.partitions));
        let paged = if seeks_pages { self.file.paged(bytes, self.row_group)? } else { None };
        let mut pages = self.pages(group, selected, paged)?;
        let count = pages.batch_rows;
        pages.ranges = match pages.paged {
            Some(_) => pages.needed(leaves)?,
            None => leaves.iter().map(|leaf| group.column(*leaf).range()).collect(),
        };
        let asked = pages.ranges.iter().map(|range| range.end.saturating_sub(range.start));
        self.within_limit(asked.fold(0, u64::saturating_add))?;
        let read = || read_exactly(bytes, &pages.ranges);
        // Where all rows come at once they may stay for long, and a buffer that is used again may be too large.
        let stays = count <= chunk_rows && self.keeps_pages(group, leaves);
        pages.bytes = if stays { read()? } else { buffers::reading(read)? };
        let found = self.look_into(&pages, group, leaves, selected.is_some(), count, all)?;
        pages.batch_rows = found.batch_rows.clamp(1, count);
        pages.rare = found.rare;
        pages.found = found.pages;
        pages.views = found.views;
        Ok(pages)
    }

    /// The pages that hold the wanted rows, before they are read. `paged` has their positions, if they are to be made
    /// use of.
    fn pages(&self, group: RowGroup<'a>, selected: Option<&[u32]>, paged: Option<PagePositions>) -> Result<Pages<'a>> {
        Ok(Pages {
            file: self.file,
            views: Vec::new(),
            row_group: self.row_group,
            group,
            more: Vec::new(),
            paged,
            rows: group.num_rows() as usize,
            selection: selected.map(|rows| selection(rows, group.num_rows() as usize)),
            batch_rows: selected.map_or(group.num_rows() as usize, <[u32]>::len),
            ranges: Vec::new(),
            bytes: Vec::new(),
            rare: Vec::new(),
            found: Vec::new(),
            limit: self.max_decoded_bytes,
        })
    }

    /// Where decoding will read, sorted, as far as that is known without a read: for some rows of a group whose
    /// pages' positions were never read, it is these positions alone.
    pub fn places(&self, rows: RowsToDecode<'_>) -> Result<Vec<Range<u64>>> {
        let Some(group) = self.file.group(self.row_group) else { return Ok(Vec::new()) };
        let rows = if matches!(rows, RowsToDecode::Due(_)) { RowsToDecode::All } else { rows };
        let selected = selected(rows, self.file.row_group_rows(self.row_group))?;
        let leaves = leaves_of(self.file, self.projection, self.partitions);
        let sparse = selected.filter(|_| is_sparse(group, selected));
        if leaves.is_empty() || sparse.is_some_and(<[u32]>::is_empty) {
            return Ok(Vec::new());
        }
        if sparse.is_none() || !self.file.has_page_positions(self.row_group) {
            return Ok(self.file.chunks(self.row_group, self.projection, self.partitions));
        }
        let paged = match self.file.known_pages(self.row_group) {
            Some(Some(paged)) => paged,
            Some(None) => return Ok(self.file.chunks(self.row_group, self.projection, self.partitions)),
            None => return Ok(self.file.page_positions(self.row_group).into_iter().collect()),
        };
        let mut ranges = self.pages(group, selected, Some(paged))?.needed(&leaves)?;
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        Ok(ranges)
    }

    pub(super) fn within_limit(&self, bytes: u64) -> Result<()> {
        let limit = self.max_decoded_bytes;
        if bytes <= limit {
            return Ok(());
        }
        Err(Error::new(ErrorKind::TooLarge, format!("takes {bytes} bytes, more than the {limit} allowed"))
            .with_hint("allow more memory, ask for fewer columns, or write smaller row groups"))
    }
}

/// Whether so few rows are wanted that pages can be left out. With more than half of them hardly one can.
fn is_sparse(group: RowGroup<'_>, selected: Option<&[u32]>) -> bool {
    selected.is_some_and(|rows| rows.len() <= group.num_rows() as usize / 2)
}

/// The wanted rows, if they are not all of them.
fn selected(rows: RowsToDecode<'_>, total: u32) -> Result<Option<&[u32]>> {
    let (RowsToDecode::Selected(rows) | RowsToDecode::Due(rows)) = rows else { return Ok(None) };
    check_selection(rows, total)?;
    Ok((rows.len() < total as usize).then_some(rows))
}

fn check_selection(rows: &[u32], total: u32) -> Result<()> {
    if let Some(pair) = rows.windows(2).find(|pair| pair[0] >= pair[1]) {
        let message = format!("rows must be strictly increasing, and {} follows {}", pair[1], pair[0]);
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    match rows.last() {
        Some(last) if *last >= total => {
            Err(Error::new(ErrorKind::OutOfRange, format!("row {last} of a row group that has {total}")))
        }
        _ => Ok(()),
    }
}

fn selection(rows: &[u32], total: usize) -> RowSelection {
    let runs = rows.chunk_by(|a, b| a + 1 == *b).map(|run| run[0] as usize..run[0] as usize + run.len());
    RowSelection::from_consecutive_ranges(runs, total)
}
