//! Decoding one row group, or some rows of it.

mod alone;
mod apart;
mod look;
mod output;

use std::ops::Range;
use std::rc::Rc;

use parquet::arrow::arrow_reader::RowSelection;

pub(super) use self::look::unpacked;

use self::alone::ColumnReadAlone;

use super::chunks::{PagePositions, RowGroup};
use super::columns::{ColumnOrigin, is_view, leaves_from, origins};
use super::direct::GroupBytes;
use super::errors::{ASK_FOR_LESS, too_large};
use super::pages::Pages;
use super::seam::{as_asked, length_of};
use super::{FileBytes, FileMetadata, RowSink};
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
        let origins = self.origins();
        let decoded = match self.width(rows, &origins, bytes, sink) {
            Some(width) => self.decode_apart(width, rows, &origins, bytes, sink),
            None => self.decode_together(rows, &origins, bytes, sink),
        };
        decoded.map_err(|error| error.with_row_group(self.row_group as u64).with_file(self.file.path()))
    }

    /// Decodes the columns of the projection, which come from there, together.
    fn decode_together(
        &self,
        rows: RowsToDecode<'_>,
        origins: &[ColumnOrigin<'_>],
        bytes: &dyn FileBytes,
        sink: &mut dyn RowSink,
    ) -> Result<u64> {
        let Some(group) = self.file.group(self.row_group) else {
            let message = format!("the file has {} row groups", self.file.num_row_groups());
            return Err(Error::new(ErrorKind::OutOfRange, message));
        };
        let selected = selected(rows, group)?;
        let is_due = matches!(rows, RowsToDecode::Due(_));
        let mut leaves = self.leaves(origins);
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
        let wanted = WantedRows { leaves: &leaves, origins, alone: &alone, selected, chunk_rows };
        let count = selected.map_or(group.num_rows(), <[u32]>::len);
        let decoded = if leaves.is_empty() || count == 0 {
            self.decode_without_pages(&wanted, count, bytes, sink)?
        } else {
            let pages = self.fetch(group, &wanted, is_due, bytes)?;
            let places = self.file.value_places(self.row_group);
            let places = places.filter(|places| is_due && bytes.is_near() && places.get().is_none());
            let found = places.map(|places| (places, self.find_values(&pages, &leaves)));
            let decoded = self.decode_pages(&pages, &wanted, bytes, sink);
            let decoded = decoded.map_err(|error| self.blame(&pages, &leaves, error))?;
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
    fn fetch(
        &self,
        group: RowGroup<'a>,
        wanted: &WantedRows<'_>,
        are_due: bool,
        bytes: &dyn FileBytes,
    ) -> Result<Pages<'a>> {
        let WantedRows { leaves, selected, chunk_rows, .. } = *wanted;
        let sought = selected.filter(|_| !are_due);
        if sought.is_none() {
            self.within_limit(declared(group, leaves))?;
        }
        let seeks_pages = is_sparse(group, sought) && !bytes.has(&self.chunks());
        let paged = if seeks_pages { self.file.paged(bytes, self.row_group)? } else { None };
        let mut pages = self.pages(group, Vec::new(), sought, paged);
        let count = pages.batch_rows;
        pages.ranges = match pages.of.paged {
            Some(_) => pages.needed(leaves)?,
            None => leaves.iter().map(|leaf| group.column(*leaf).range()).collect(),
        };
        let asked = length_of(&pages.ranges);
        self.within_limit(asked)?;
        pages.bytes = as_asked(bytes.read(&pages.ranges)?, &pages.ranges)?;
        self.look_into(&mut pages, leaves, selected.is_none())?;
        // What stays may be shown by the rows, and counts as theirs.
        let stays = count <= chunk_rows && self.keeps_pages(group, leaves);
        if !stays && !bytes.has(&pages.ranges) {
            pages.staged = pages.staged.saturating_add(asked);
        }
        pages.batch_rows = pages.batch_rows.min(chunk_rows);
        Ok(pages)
    }

    /// The pages that hold the wanted rows of a row group, and of those that follow it, before they are read. `paged`
    /// has their positions, if they are to be made use of.
    pub(super) fn pages(
        &self,
        group: RowGroup<'a>,
        more: Vec<RowGroup<'a>>,
        sought: Option<&[u32]>,
        paged: Option<PagePositions>,
    ) -> Pages<'a> {
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
        let leaves = self.leaves(&self.origins());
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
        let mut ranges = self.pages(group, Vec::new(), selected, Some(paged)).needed(&leaves)?;
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

    /// The columns of the file that are needed.
    pub(super) fn leaves(&self, origins: &[ColumnOrigin<'_>]) -> Vec<usize> {
        leaves_from(self.file, self.projection, origins)
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
