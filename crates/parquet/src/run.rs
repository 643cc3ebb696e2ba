//! Several row groups of a file, decoded as if they were one.
//!
//! To begin a row group of a hundred rows takes longer than to decode its values. So each column goes on from a row
//! group to the next one, and the chunks that a sink takes have rows of several.

use std::ops::Range;

use arrow::array::RecordBatch;
use bytes::Bytes;

use super::chunks::RowGroup;
use super::columns::{leaves_from, origins};
use super::decode::{GroupDecoder, WantedRows, check_values, walk};
use super::direct;
use super::guard::FilePage;
use super::pages::Pages;
use super::seam::read_exactly;
use super::{FileBytes, RowSink};
use rowdex_base::buffers;
use rowdex_base::error::Result;

impl GroupDecoder<'_> {
    /// Decodes all rows of these row groups, one after the other, and hands them to the sink in chunks that go across
    /// row groups. Returns how many bytes the rows took.
    ///
    /// `None`, before the sink was given anything, if some column has to be decoded in another way, or if they might
    /// take more memory than one row group may. [`decode`](Self::decode) decodes them then, one by one.
    ///
    /// One read for the bytes of all of them.
    ///
    /// # Errors
    ///
    /// As for [`decode`](Self::decode), which finds out what is wrong with which row group.
    pub fn decode_run(
        &self,
        row_groups: &[usize],
        bytes: &dyn FileBytes,
        sink: &mut dyn RowSink,
    ) -> Result<Option<u64>> {
        let chunk_rows = sink.chunk_rows().max(1);
        let found: Option<Vec<RowGroup<'_>>> = row_groups.iter().map(|group| self.file.group(*group)).collect();
        let (Some(groups), Some(&first)) = (found, row_groups.first()) else { return Ok(None) };
        let Some((group, more)) = groups.split_first() else { return Ok(None) };
        let rows = groups.iter().map(|group| group.num_rows().unsigned_abs()).fold(0, u64::saturating_add);
        let Ok(rows) = u32::try_from(rows) else { return Ok(None) };
        let origins = origins(self.file, self.projection, self.partitions);
        let leaves = leaves_from(self.file, self.projection, &origins);
        let mut pages = Pages {
            file: self.file,
            views: Vec::new(),
            row_group: first,
            group: *group,
            more: more.to_vec(),
            paged: None,
            rows: rows as usize,
            selection: None,
            batch_rows: chunk_rows.min(rows as usize).max(1),
            ranges: Vec::new(),
            bytes: Vec::new(),
            rare: Vec::new(),
            found: Vec::new(),
            limit: self.max_decoded_bytes,
        };
        let roots = self.roots(&leaves);
        let views = self.wanted_views(&leaves);
        let may_decode = |group: &RowGroup<'_>| {
            leaves.iter().all(|&leaf| {
                let column = group.column(leaf);
                // Views of a dictionary have its values once.
                let is_spelled_out = column.dictionary_page_offset().is_some() && views.binary_search(&leaf).is_ok();
                let is_alike =
                    groups.first().is_some_and(|first| first.column(leaf).compression() == column.compression());
                direct::may_decode(column) && is_alike && !is_spelled_out
            })
        };
        if leaves.is_empty()
            || rows == 0
            || !pages.go_on(&leaves, &roots)
            || !groups.iter().all(may_decode)
            || !self.look(&mut pages, &groups, &leaves, bytes)?
        {
            return Ok(None);
        }
        let mut decoded = 0_u64;
        let mut each = |chunk: RecordBatch| {
            decoded = decoded.saturating_add(chunk.get_array_memory_size() as u64);
            sink.take(chunk)
        };
        let wanted = WantedRows { leaves: &leaves, origins: &origins, alone: &[], selected: None, chunk_rows };
        self.decode_pages(&pages, &wanted, bytes, &mut each)?;
        Ok(Some(decoded))
    }

    /// Reads all pages of these columns and walks their headers; `false` if not all can be decoded together.
    fn look(
        &self,
        pages: &mut Pages<'_>,
        groups: &[RowGroup<'_>],
        leaves: &[usize],
        bytes: &dyn FileBytes,
    ) -> Result<bool> {
        let chunks: Vec<Range<u64>> =
            leaves.iter().flat_map(|leaf| groups.iter().map(|group| group.column(*leaf).range())).collect();
        let ranges = together(chunks.clone());
        let length = ranges.iter().map(|range| range.end.saturating_sub(range.start)).fold(0, u64::saturating_add);
        if length > self.max_decoded_bytes {
            return Ok(false);
        }
        let read = buffers::reading(|| read_exactly(bytes, &ranges))?;
        let mut total = 0_u64;
        let mut chunks = chunks.into_iter();
        for &leaf in leaves {
            let mut found: Vec<FilePage> = Vec::with_capacity(2 * groups.len());
            for (group, range) in groups.iter().zip(&mut chunks) {
                let column = group.column(leaf);
                let Some(own) = within(&ranges, &read, &range) else { return Ok(false) };
                let before = found.len();
                let own = std::iter::once((range.start, &own));
                let tally = walk(own, &self.chunk(column, false), &mut found)?;
                check_values(*group, column, &tally, true, false)?;
                if !direct::decodes(column, &tally) {
                    return Ok(false);
                }
                if let Some(page) = found.get_mut(before) {
                    page.begins_group = before > 0;
                }
                let rows = group.num_rows() as usize;
                total = total.saturating_add(self.takes(leaf, column, &tally, tally.values, rows, true));
            }
            pages.found.push((leaf, found.into()));
        }
        Ok(total <= self.max_decoded_bytes)
    }
}

/// Sorts ranges, and joins those that touch.
pub fn together(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// The bytes of a range that lies in one of these.
fn within(ranges: &[Range<u64>], bytes: &[Bytes], range: &Range<u64>) -> Option<Bytes> {
    let place = ranges.partition_point(|known| known.start <= range.start).checked_sub(1)?;
    let known = ranges.get(place)?;
    let bytes = bytes.get(place)?;
    let start = usize::try_from(range.start - known.start).ok()?;
    let end = usize::try_from(range.end.checked_sub(known.start)?).ok()?;
    (start <= end && end <= bytes.len()).then(|| bytes.slice(start..end))
}
