//! Decoding one row group, or some rows of it.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::{DataType, FieldRef};
use bytes::Bytes;
use parquet::DecodeResult;
use parquet::arrow::arrow_reader::RowSelection;
use parquet::basic::{Compression, Type};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};

use super::columns::{Origin, is_view, leaves_from, leaves_of, origins};
use super::direct::ValuePlaces;
use super::guard::{self, Chunk, FilePage, Refusal, Tally};
use super::masked::masked;
use super::pages::Pages;
use super::seam::read_exactly;
use super::types::has_some_of;
use super::{FileBytes, FileMetadata, RowSink, adapt, caught, caught_panic, direct};
use rowdex_base::buffers;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_projection::Projection;
use rowdex_rows::{Chunks, Footprint, compact_sparse, record_batch};

/// What a row group may take when decoded, unless said otherwise: 2 GiB.
pub const MAX_DECODED_BYTES: u64 = 2 << 30;

/// Which rows of a row group to decode.
#[derive(Debug, Clone, Copy)]
pub enum Rows<'a> {
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

impl GroupDecoder<'_> {
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
    pub fn decode(&self, rows: Rows<'_>, bytes: &dyn FileBytes, sink: &mut dyn RowSink) -> Result<u64> {
        self.run(rows, bytes, sink)
            .map_err(|error| error.with_row_group(self.row_group as u64).with_file(self.file.path()))
    }

    fn run(&self, rows: Rows<'_>, bytes: &dyn FileBytes, sink: &mut dyn RowSink) -> Result<u64> {
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
        let origins = origins(self.file, self.projection, self.partitions);
        let mut leaves = leaves_from(self.file, self.projection, &origins);
        if let (Rows::Due(_), Some(due)) = (rows, selected) {
            let alone = self.read_alone(&origins, &leaves, bytes);
            leaves.retain(|leaf| alone.iter().all(|alone| alone.leaf != *leaf));
            if !alone.is_empty() {
                return self.decode_due(group, &leaves, &origins, &alone, due, bytes, sink);
            }
        }
        if leaves.is_empty() || count == 0 {
            let mut left = count;
            loop {
                let rows = left.min(chunk_rows);
                each(self.batch(self.columns(&self.sources(&origins, &[], &[]), &[], rows)?, rows)?)?;
                left -= rows;
                if left == 0 {
                    return Ok(decoded);
                }
            }
        }
        let mut pages = match rows {
            Rows::Due(_) => self.fetch(group, &leaves, None, total as usize, (false, chunk_rows), bytes)?,
            _ => self.fetch(group, &leaves, selected, count, (selected.is_none(), chunk_rows), bytes)?,
        };
        pages.batch_rows = pages.batch_rows.min(chunk_rows);
        let is_due = matches!(rows, Rows::Due(_)) && bytes.is_near() && !Pages::is_left_to_parquet();
        let is_first = is_due && !self.file.has_value_places(self.row_group);
        let places = is_first.then(|| self.find_values(&pages, group, &leaves));
        let done = self.decode_pages(&pages, &leaves, &origins, &[], selected, chunk_rows, bytes, &mut each);
        done.map_err(|error| self.blame(&pages, &leaves, error))?;
        if let Some(places) = places {
            self.file.note_value_places(self.row_group, places);
        }
        if is_due {
            sink.places_are_kept(self.file.value_places_bytes(self.row_group));
        }
        Ok(decoded)
    }

    /// Where the values of columns lie that can be read one by one.
    fn find_values(&self, pages: &Pages, group: &RowGroupMetaData, leaves: &[usize]) -> Vec<(usize, ValuePlaces)> {
        let views = self.wanted_views(leaves);
        let own = pages.found.iter().filter(|(leaf, _)| views.binary_search(leaf).is_ok());
        let alone = own.filter(|(leaf, _)| direct::may_be_read_alone(group.column(*leaf)));
        alone.filter_map(|(leaf, found)| Some((*leaf, ValuePlaces::find(group.column(*leaf), found)?))).collect()
    }

    /// The columns whose due values are read one by one. They are decoded to views of what is read.
    fn read_alone(&self, origins: &[Origin<'_>], leaves: &[usize], bytes: &dyn FileBytes) -> Vec<Alone<'_>> {
        let rows = self.file.row_group_rows(self.row_group) as usize;
        let views = self.wanted_views(leaves);
        if !bytes.is_near() || views.is_empty() || Pages::is_left_to_parquet() {
            return Vec::new();
        }
        if bytes.has(&self.file.chunks(self.row_group, self.projection, self.partitions)) {
            return Vec::new();
        }
        let alone = |(origin, field): (&Origin<'_>, &FieldRef)| {
            let Origin::File(root) = *origin else { return None };
            let own = self.file.leaves(root);
            let leaf = own.start;
            let places = self.file.value_places(self.row_group, leaf).filter(|places| places.rows() == rows)?;
            let fits = own.len() == 1 && views.binary_search(&leaf).is_ok() && is_view(field.data_type());
            fits.then(|| Alone { root, leaf, places, data_type: field.data_type().clone() })
        };
        let mut found: Vec<Alone<'_>> =
            origins.iter().zip(self.projection.internal().fields()).filter_map(alone).collect();
        found.dedup_by_key(|alone| alone.leaf);
        found
    }

    /// As [`run`](Self::run), with columns of which only the due values are read.
    #[expect(clippy::too_many_arguments, reason = "what is known of a row group when its decoding begins")]
    fn decode_due(
        &self,
        group: &RowGroupMetaData,
        leaves: &[usize],
        origins: &[Origin<'_>],
        alone: &[Alone<'_>],
        due: &[u32],
        bytes: &dyn FileBytes,
        sink: &mut dyn RowSink,
    ) -> Result<u64> {
        let chunk_rows = sink.chunk_rows().max(1);
        let views = self.projection.internal().fields().iter().filter(|field| is_view(field.data_type()));
        if views.count() == alone.len() {
            sink.values_are_own();
        }
        sink.places_are_kept(self.file.value_places_bytes(self.row_group));
        let mut decoded = 0_u64;
        let mut each = |chunk: RecordBatch| {
            decoded = decoded.saturating_add(chunk.get_array_memory_size() as u64);
            sink.take(chunk)
        };
        if leaves.is_empty() {
            let sources = self.sources(origins, &[], alone);
            for rows in due.chunks(chunk_rows) {
                let columns = self.with_alone(&[], alone, rows, bytes)?;
                each(self.batch(self.columns(&sources, &columns, rows.len())?, rows.len())?)?;
            }
            return Ok(decoded);
        }
        let total = self.file.row_group_rows(self.row_group) as usize;
        let mut pages = self.fetch(group, leaves, None, total, (false, chunk_rows), bytes)?;
        pages.batch_rows = pages.batch_rows.min(chunk_rows);
        let done = self.decode_pages(&pages, leaves, origins, alone, Some(due), chunk_rows, bytes, &mut each);
        done.map_err(|error| self.blame(&pages, leaves, error))?;
        Ok(decoded)
    }

    /// The decoded columns, and behind them those that are read alone, of these rows.
    fn with_alone(
        &self,
        decoded: &[ArrayRef],
        alone: &[Alone<'_>],
        rows: &[u32],
        bytes: &dyn FileBytes,
    ) -> Result<Vec<ArrayRef>> {
        let mut columns = decoded.to_vec();
        for Alone { root, places, data_type, .. } in alone {
            let name = || self.file.arrow_schema().field(*root).name();
            columns.push(places.read(rows, bytes, data_type).map_err(|error| error.with_column(name()))?);
        }
        Ok(columns)
    }

    /// Reads the pages that hold the wanted rows, and makes sure that they can be decoded within the limit. With `all`
    /// every row of them is, in chunks of so many rows.
    fn fetch(
        &self,
        group: &RowGroupMetaData,
        leaves: &[usize],
        selected: Option<&[u32]>,
        count: usize,
        (all, chunk_rows): (bool, usize),
        bytes: &dyn FileBytes,
    ) -> Result<Pages> {
        if selected.is_none() {
            let declared = leaves.iter().map(|&leaf| group.column(leaf).uncompressed_size().unsigned_abs());
            self.within_limit(declared.fold(0, u64::saturating_add))?;
        }
        let seeks_pages = is_sparse(group, selected)
            && !bytes.has(&self.file.chunks(self.row_group, self.projection, self.partitions));
        let paged = if seeks_pages { self.file.paged(bytes, self.row_group)? } else { None };
        let mut pages = self.pages(group, selected, count, paged.as_ref())?;
        let mut decoder = pages.decoder(leaves)?;
        if let DecodeResult::NeedsData(ranges) = caught("the row group", || decoder.try_decode())? {
            let asked = ranges.iter().map(|range| range.end.saturating_sub(range.start));
            self.within_limit(asked.fold(0, u64::saturating_add))?;
            let read = || read_exactly(bytes, &ranges);
            // Where all rows come at once they may stay for long, and a buffer that is used again may be too large.
            let stays = count <= chunk_rows && self.keeps_pages(group, leaves);
            pages.bytes = if stays { read()? } else { buffers::reading(read)? };
            pages.ranges = ranges;
        }
        let plan = self.look_into(&pages, group, leaves, selected.is_some(), count, all)?;
        pages.batch_rows = plan.batch_rows.clamp(1, count);
        pages.rare = plan.rare;
        pages.found = plan.found;
        if !plan.views.is_empty() {
            let paged = paged.as_ref().map(|metadata| (self.row_group, metadata));
            pages.reader = self.file.reader(paged, &plan.views)?;
        }
        Ok(pages)
    }

    /// The pages that hold the wanted rows, before they are read. `paged` has their positions, if they are to be made
    /// use of.
    fn pages(
        &self,
        group: &RowGroupMetaData,
        selected: Option<&[u32]>,
        count: usize,
        paged: Option<&Arc<ParquetMetaData>>,
    ) -> Result<Pages> {
        Ok(Pages {
            reader: self.file.reader(paged.map(|metadata| (self.row_group, metadata)), &[])?,
            group: if paged.is_some() { 0 } else { self.row_group },
            more: Vec::new(),
            rows: group.num_rows() as usize,
            selection: selected.map(|rows| selection(rows, group.num_rows() as usize)),
            batch_rows: count,
            ranges: Vec::new(),
            bytes: Vec::new(),
            rare: Vec::new(),
            found: Vec::new(),
            limit: self.max_decoded_bytes,
        })
    }

    /// Where decoding will read, sorted, as far as that is known without a read: for some rows of a group whose
    /// pages' positions were never read, it is these positions alone.
    pub fn places(&self, rows: Rows<'_>) -> Result<Vec<Range<u64>>> {
        let Some(group) = self.file.group(self.row_group) else { return Ok(Vec::new()) };
        let rows = if matches!(rows, Rows::Due(_)) { Rows::All } else { rows };
        let selected = selected(rows, self.file.row_group_rows(self.row_group))?;
        let leaves = leaves_of(self.file, self.projection, self.partitions);
        let sparse = selected.filter(|_| is_sparse(group, selected));
        if leaves.is_empty() || sparse.is_some_and(<[u32]>::is_empty) {
            return Ok(Vec::new());
        }
        let (Some(rows), true) = (sparse, self.file.has_page_positions(self.row_group)) else {
            return Ok(self.file.chunks(self.row_group, self.projection, self.partitions));
        };
        let paged = match self.file.known_pages(self.row_group) {
            Some(Some(paged)) => paged,
            Some(None) => return Ok(self.file.chunks(self.row_group, self.projection, self.partitions)),
            None => return Ok(self.file.page_positions(self.row_group).into_iter().collect()),
        };
        let mut decoder = self.pages(group, selected, rows.len(), Some(&paged))?.decoder(&leaves)?;
        match caught("the row group", || decoder.try_decode())? {
            DecodeResult::NeedsData(mut ranges) => {
                ranges.sort_unstable_by_key(|range| (range.start, range.end));
                Ok(ranges)
            }
            _ => Ok(Vec::new()),
        }
    }

    pub(super) fn within_limit(&self, bytes: u64) -> Result<()> {
        let limit = self.max_decoded_bytes;
        if bytes <= limit {
            return Ok(());
        }
        Err(Error::new(ErrorKind::TooLarge, format!("takes {bytes} bytes, more than the {limit} allowed"))
            .with_hint("allow more memory, ask for fewer columns, or write smaller row groups"))
    }

    /// Walks the page headers before the decoder does.
    fn look_into(
        &self,
        pages: &Pages,
        group: &RowGroupMetaData,
        leaves: &[usize],
        selective: bool,
        count: usize,
        all: bool,
    ) -> Result<Plan> {
        let limit = self.max_decoded_bytes;
        let mut plan = Plan { batch_rows: count, views: Vec::new(), rare: Vec::new(), found: Vec::new() };
        let mut total = 0u64;
        let mut walked = Vec::with_capacity(leaves.len());
        let wanted_views = self.wanted_views(leaves);
        let mut in_order: Vec<(&Range<u64>, &Bytes)> = pages.ranges.iter().zip(&pages.bytes).collect();
        in_order.sort_by_key(|(range, _)| range.start);
        for &leaf in leaves {
            let column = group.column(leaf);
            let name = |error: Error| error.with_column(column.column_path().string());
            let descriptor = column.column_descr();
            let nested = descriptor.max_rep_level() > 0;
            let chunk = self.chunk(column, selective && !nested);
            let (start, length) = column.byte_range();
            let own = in_order.partition_point(|(range, _)| range.start < start);
            let own = in_order[own..].iter().take_while(|(range, _)| range.start < start + length);
            let own: Vec<_> = own.filter(|(range, _)| range.end <= start + length).collect();
            let is_whole = !selective || own.iter().any(|(range, _)| **range == (start..start + length));
            let own = own.into_iter().map(|(range, bytes)| (range.start, *bytes));
            let mut found = Vec::new();
            let tally = walk(own, &chunk, &mut found).map_err(name)?;
            check_values(group, column, &tally, is_whole, selective).map_err(name)?;
            found.sort_unstable_by_key(|page| page.at);
            let found: Arc<[FilePage]> = found.into();
            if !direct::decodes(column, &tally) || !pages.decodes_leaf(leaf, leaves) {
                plan.rare.push(leaf);
            }
            let rows = is_whole.then_some(group.num_rows().unsigned_abs() as usize);
            walked.push((leaf, found, rows, tally.has_rare));
            let touched = |values: u64| if selective && !nested { values.min(count as u64) } else { values };
            let entries = touched(tally.values);
            total = total.saturating_add(self.takes(leaf, column, &tally, (entries, count), !selective || nested));
            if column.column_type() == Type::BYTE_ARRAY {
                // Every reference to the dictionary is spelled out unless the values are views of it. How long they
                // are cannot be seen from here, so if it could be too much, views come first and are measured, unless
                // what decodes them measures them before it copies them.
                let spelled_out = touched(tally.referring).saturating_mul(tally.dictionary);
                if wanted_views.binary_search(&leaf).is_ok()
                    || (spelled_out > limit
                        && self.file.can_explode(leaf, &tally)
                        && !(all && direct::decodes(column, &tally) && pages.decodes_root(leaf)))
                {
                    plan.views.push(leaf);
                }
            }
            let batch_rows = usize::try_from(limit / tally.largest.max(1)).unwrap_or(usize::MAX);
            if selective && batch_rows < count {
                plan.batch_rows = plan.batch_rows.min(batch_rows);
            }
        }
        self.within_limit(total)?;
        let root = |leaf: &usize| pages.reader.parquet_schema().get_column_root_idx(*leaf);
        let left: Vec<usize> = plan.rare.iter().map(root).collect();
        for (leaf, found, rows, has_rare) in walked {
            if left.binary_search(&root(&leaf)).is_err() {
                plan.found.push((leaf, found));
            } else if !has_rare && !self.file.levels_are_checked(self.row_group, leaf) {
                let column = group.column(leaf);
                let told = |at: u64| pages.rows_at(leaf, at);
                let column_of = (pages.reader.parquet_schema(), leaf, column);
                let checked = direct::check_levels(column_of, &found, rows, &told);
                checked.map_err(|error| error.with_column(column.column_path().string()))?;
                if rows.is_some() {
                    self.file.note_levels(self.row_group, leaf);
                }
            }
        }
        plan.found.sort_unstable_by_key(|(leaf, _)| *leaf);
        Ok(plan)
    }

    /// Bytes that a column takes while so many of its entries, of so many rows, are decoded; with `all`, all of them.
    pub(super) fn takes(
        &self,
        leaf: usize,
        column: &ColumnChunkMetaData,
        tally: &Tally,
        (entries, rows): (u64, usize),
        all: bool,
    ) -> u64 {
        let measure = self.file.measure(leaf);
        // Every entry has two levels of two bytes while it is decoded.
        let mut bytes = measure.values(entries, rows as u64).saturating_mul(measure.width);
        bytes = bytes.saturating_add(entries.saturating_mul(4));
        bytes = bytes.saturating_add(tally.dictionary_values.saturating_mul(measure.width.max(16)));
        if column.column_type() == Type::BYTE_ARRAY {
            bytes = bytes.saturating_add(tally.spelled_out);
            if all {
                bytes = bytes.saturating_add(tally.data).saturating_add(tally.dictionary);
            }
        }
        bytes
    }

    /// Whether what is decoded may be views of the bytes that are read, rather than of pages that were decompressed.
    fn keeps_pages(&self, group: &RowGroupMetaData, leaves: &[usize]) -> bool {
        let views = self.wanted_views(leaves);
        views.iter().any(|leaf| group.column(*leaf).compression() == Compression::UNCOMPRESSED)
    }

    /// What is known of a column chunk before its pages are walked; of some of its pages with `some`.
    pub(super) fn chunk(&self, column: &ColumnChunkMetaData, some: bool) -> Chunk {
        let descriptor = column.column_descr();
        let limit = self.max_decoded_bytes;
        Chunk {
            compression: column.compression(),
            values: column.num_values().unsigned_abs(),
            max_levels: (descriptor.max_rep_level(), descriptor.max_def_level()),
            page_limit: limit,
            limit: if some { u64::MAX } else { limit },
        }
    }

    /// The columns that the projection keeps as views, sorted.
    pub(super) fn wanted_views(&self, leaves: &[usize]) -> Vec<usize> {
        let file = self.file.arrow_schema().fields();
        let internal = self.projection.internal().fields().iter().enumerate();
        let viewed: Vec<usize> = internal.filter(|(_, field)| is_view(field.data_type())).map(|(at, _)| at).collect();
        if viewed.is_empty() {
            return Vec::new();
        }
        let places = self.projection.places_in(file);
        let places = viewed.into_iter().filter_map(|column| places.get(column).copied().flatten());
        let own = places.flat_map(|place| self.file.leaves(place));
        let mut views: Vec<usize> = own.filter(|leaf| leaves.binary_search(leaf).is_ok()).collect();
        views.sort_unstable();
        views
    }

    /// Decodes what was fetched, batch by batch, and stops when a chunk becomes too much. Of the columns `alone` the
    /// selected values are read, of which there are some then.
    #[expect(clippy::too_many_arguments, reason = "what is known of a row group when its decoding begins")]
    pub(super) fn decode_pages(
        &self,
        pages: &Pages,
        leaves: &[usize],
        origins: &[Origin<'_>],
        alone: &[Alone<'_>],
        selected: Option<&[u32]>,
        chunk_rows: usize,
        bytes_of_file: &dyn FileBytes,
        each: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let count = selected.map_or(pages.rows, <[u32]>::len);
        let roots = self.roots(leaves);
        let sources = self.sources(origins, &roots, alone);
        let (mut footprint, mut bytes) = (Footprint::default(), 0_u64);
        // What is due of a row group need not be copied to chunks of one length.
        let is_due = selected.is_some() && pages.selection.is_none();
        let mut chunks = Chunks::of(chunk_rows);
        let mut seen = 0;
        // The decoder makes short batches where values are large.
        pages.each_batch(leaves, &roots, selected, count, |batch, rows| {
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
                return each(part);
            }
            chunks.push(part);
            while let Some(chunk) = caught_panic(|| chunks.next_chunk())? {
                footprint = Footprint::default();
                bytes = chunks.waiting().map(|part| footprint.add(part)).fold(0, u64::saturating_add);
                each(chunk)?;
            }
            Ok(())
        })?;
        if seen != count {
            let message = format!("holds {seen} rows where {count} were expected");
            return Err(Error::new(ErrorKind::InvalidParquet, message));
        }
        caught_panic(|| chunks.last())?.map_or(Ok(()), each)
    }

    /// Finds out which column an error comes from by decoding each alone.
    fn blame(&self, pages: &Pages, leaves: &[usize], error: Error) -> Error {
        if error.column().is_some()
            || !matches!(error.kind(), ErrorKind::InvalidParquet | ErrorKind::UnsupportedParquet)
        {
            return error;
        }
        for root in self.roots(leaves) {
            let range = self.file.leaves(root);
            let own: Vec<usize> = leaves.iter().copied().filter(|leaf| range.contains(leaf)).collect();
            if pages.each_decoded(&own, |_| Ok(())).is_err() {
                return error.with_column(self.file.arrow_schema().field(root).name());
            }
        }
        error
    }

    /// The fields of the file that have some of the leaves.
    pub(super) fn roots(&self, leaves: &[usize]) -> Vec<usize> {
        let all = 0..self.file.arrow_schema().fields().len();
        all.filter(|&root| has_some_of(leaves, &self.file.leaves(root))).collect()
    }

    /// What the output columns are made of, where the file's fields `roots` are decoded, and behind them those that are
    /// read alone.
    fn sources<'a>(&self, origins: &[Origin<'a>], roots: &[usize], alone: &[Alone<'_>]) -> Vec<Made<'a>> {
        let of_root = |place: usize| {
            let alone = || Some(roots.len() + alone.iter().position(|alone| alone.root == place)?);
            roots.binary_search(&place).ok().or_else(alone)
        };
        let made = |origin: &Origin<'a>| match *origin {
            Origin::Partition(value) => Made::Constant(value),
            // Of a group without columns, or of no rows at all, there is nothing to decode.
            Origin::File(place) => of_root(place).map_or(Made::Null, Made::Decoded),
            Origin::Missing => Made::Null,
        };
        origins.iter().map(made).collect()
    }

    /// The output columns, from the decoded columns of the file.
    fn columns(&self, sources: &[Made<'_>], decoded: &[ArrayRef], rows: usize) -> Result<Vec<ArrayRef>> {
        let limit = self.max_decoded_bytes;
        let column = |(made, field): (&Made<'_>, &FieldRef)| {
            let array = match *made {
                Made::Constant(value) => adapt::constant(value, field, rows, limit)?,
                Made::Null => new_null_array(field.data_type(), rows),
                Made::Decoded(place) => {
                    let array =
                        decoded.get(place).ok_or_else(|| Error::new(ErrorKind::Internal, "a column is lost"))?;
                    adapt::adapt(&masked(array, field.name())?, field.data_type(), field.name(), limit)?
                }
            };
            adapt::check_nulls(&array, field)?;
            Ok(array)
        };
        sources.iter().zip(self.projection.internal().fields()).map(column).collect()
    }

    fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        record_batch(self.projection.internal(), columns, rows)
            .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()).with_source(error))
    }
}

/// What an output column is made of.
enum Made<'a> {
    Constant(Option<&'a str>),
    Null,
    /// A decoded column of the file, by its place among them.
    Decoded(usize),
}

/// A column of which only the due values are read.
pub(super) struct Alone<'a> {
    /// The field of the file, and its only leaf.
    root: usize,
    leaf: usize,
    places: &'a ValuePlaces,
    data_type: DataType,
}

/// How to decode what was looked into.
struct Plan {
    batch_rows: usize,
    views: Vec<usize>,
    /// Columns with encodings that only the parquet crate decodes.
    rare: Vec<usize>,
    /// The pages of the other columns.
    found: Vec<(usize, Arc<[FilePage]>)>,
}

/// Whether so few rows are wanted that pages can be left out. With more than half of them hardly one can.
fn is_sparse(group: &RowGroupMetaData, selected: Option<&[u32]>) -> bool {
    selected.is_some_and(|rows| rows.len() <= group.num_rows() as usize / 2)
}

/// The wanted rows, if they are not all of them.
fn selected(rows: Rows<'_>, total: u32) -> Result<Option<&[u32]>> {
    let (Rows::Selected(rows) | Rows::Due(rows)) = rows else { return Ok(None) };
    check_selection(rows, total)?;
    Ok((rows.len() < total as usize).then_some(rows))
}

/// Walks the page headers in these bytes of a column chunk, each with its place in the file, and notes the pages.
pub(super) fn walk<'a>(
    bytes: impl Iterator<Item = (u64, &'a Bytes)>,
    chunk: &Chunk,
    found: &mut Vec<FilePage>,
) -> Result<Tally> {
    let mut tally = Tally::default();
    for (start, bytes) in bytes {
        let mut note = |head: guard::Page| {
            let (at, body) = (start + head.start as u64, bytes.slice(head.body.clone()));
            found.push(FilePage { at, body, head, begins_group: false });
        };
        guard::walk(bytes, chunk, &mut tally, &mut note).map_err(refused)?;
    }
    Ok(tally)
}

/// Makes sure that the pages of a column chunk have as many values as it needs. A header that miscounts values makes
/// later rows others, or the parquet crate wait for values for ever.
pub(super) fn check_values(
    group: &RowGroupMetaData,
    column: &ColumnChunkMetaData,
    tally: &Tally,
    is_whole: bool,
    selective: bool,
) -> Result<()> {
    let nested = column.column_descr().max_rep_level() > 0;
    let rows = group.num_rows().unsigned_abs();
    if is_whole && (tally.values < rows || (!nested && tally.values > rows)) {
        let message = format!("its pages hold {} values for {rows} rows", tally.values);
        return Err(Error::new(ErrorKind::InvalidParquet, message));
    }
    let declared = column.num_values().unsigned_abs();
    if (!selective || is_whole) && tally.values != declared {
        let message = format!("its pages hold {} values, and the footer says {declared}", tally.values);
        return Err(Error::new(ErrorKind::InvalidParquet, message));
    }
    if let Some(begun) = tally.rows().filter(|begun| is_whole && *begun != rows) {
        let message = format!("its pages hold {begun} rows where the footer says {rows}");
        return Err(Error::new(ErrorKind::InvalidParquet, message));
    }
    Ok(())
}

fn refused(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Damaged(message) => Error::new(ErrorKind::InvalidParquet, message),
        Refusal::TooLarge(message) => Error::new(ErrorKind::TooLarge, message),
        Refusal::Unsupported(message) => Error::new(ErrorKind::UnsupportedParquet, message),
    }
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
