//! Several row groups of a file, decoded as if they were one.
//!
//! To begin a row group of a hundred rows takes longer than to decode its values. So each column goes on from a row
//! group to the next one, and the chunks that a sink takes have rows of several.

use std::ops::Range;

use super::chunks::RowGroup;
use super::decode::{GroupDecoder, WantedRows, unpacked};
use super::direct;
use super::guard::FilePage;
use super::pages::Pages;
use super::seam::{as_asked, length_of, within};
use super::{FileBytes, RowSink};
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
        let Some((group, more)) = found.as_deref().and_then(<[RowGroup<'_>]>::split_first) else { return Ok(None) };
        let origins = self.origins();
        let leaves = self.leaves(&origins);
        let mut pages = self.pages(*group, more.to_vec(), None, None);
        pages.batch_rows = chunk_rows.min(pages.of.rows);
        let views = self.wanted_views(&leaves);
        let may_decode = |leaf: &usize, of: &RowGroup<'_>| {
            let column = of.column(*leaf);
            // Views of a dictionary have its values once.
            let is_spelled_out = column.dictionary().is_some() && views.binary_search(leaf).is_ok();
            let is_alike = group.column(*leaf).compression() == column.compression();
            direct::may_decode(column) && is_alike && !is_spelled_out
        };
        if leaves.is_empty()
            || pages.batch_rows == 0
            || u32::try_from(pages.of.rows).is_err()
            || !pages.go_on(&leaves, &self.roots(&leaves))
            || !leaves.iter().all(|leaf| may_decode(leaf, group) && more.iter().all(|of| may_decode(leaf, of)))
            || !self.look(&mut pages, &leaves, bytes)?
        {
            return Ok(None);
        }
        let wanted = WantedRows { leaves: &leaves, origins: &origins, alone: &[], selected: None, chunk_rows };
        self.decode_pages(&pages, &wanted, bytes, sink).map(Some)
    }

    /// Reads all pages of these columns and walks their headers; `false` if not all can be decoded together.
    fn look(&self, pages: &mut Pages<'_>, leaves: &[usize], bytes: &dyn FileBytes) -> Result<bool> {
        let mut groups = vec![pages.of.group];
        groups.extend(&pages.of.more);
        let chunks = leaves.iter().flat_map(|leaf| groups.iter().map(|group| group.column(*leaf).range()));
        let ranges = together(chunks.collect());
        let length = length_of(&ranges);
        if length > self.max_decoded_bytes {
            return Ok(false);
        }
        let read = as_asked(bytes.read(&ranges)?, &ranges)?;
        pages.staged = if bytes.has(&ranges) { 0 } else { length };
        let mut total = 0_u64;
        for &leaf in leaves {
            let mut found: Vec<FilePage> = Vec::with_capacity(2 * groups.len());
            let mut largest = 0;
            for group in &groups {
                let column = group.column(leaf);
                let range = column.range();
                let Some(own) = within(&ranges, &read, &range) else { return Ok(false) };
                let before = found.len();
                let own = std::iter::once((range.start, &own));
                let tally = self.walk(*group, leaf, own, true, false, &mut found)?;
                if !direct::decodes(column, &tally) {
                    return Ok(false);
                }
                largest = largest.max(unpacked(column, &tally));
                if let Some(page) = found.get_mut(before) {
                    page.begins_group = before > 0;
                }
                total = total.saturating_add(self.takes(leaf, column, &tally, tally.values, group.num_rows(), true));
            }
            pages.staged = pages.staged.saturating_add(largest);
            pages.of.found.push((leaf, found.into()));
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
