//! Several row groups of a file, decoded as if they were one.
//!
//! To begin a row group of a hundred rows takes longer than to decode its values. So each column goes on from a row
//! group to the next one, and the chunks that a sink takes have rows of several.

use std::ops::Range;

use super::chunks::RowGroup;
use super::decode::{GroupDecoder, WantedRows, unpacked};
use super::guard::FilePage;
use super::pages::Pages;
use super::{FileBytes, RowSink, as_asked, direct, length_of};
use rowdex_base::error::Result;
use rowdex_io::source::{coalesce, cut};

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
        let leaves = self.leaves(&origins)?;
        self.file.check_decodable(0..self.file.num_row_groups(), &leaves)?;
        let mut pages = self.pages(*group, more.to_vec(), &leaves, None, None);
        pages.batch_rows = chunk_rows.min(pages.of.rows);
        let views = self.wanted_views(&leaves);
        let may_decode = |leaf: &usize, of: &RowGroup<'_>| {
            let column = of.column(*leaf);
            // Views of a dictionary have its values once.
            let is_spelled_out = column.dictionary().is_some() && views.binary_search(leaf).is_ok();
            let is_alike = group.column(*leaf).compression() == column.compression();
            direct::may_decode(column) && is_alike && !is_spelled_out
        };
        // Where lists begin and end is counted in each row group alone.
        let goes_on =
            |root: &usize| pages.tree(*root).is_some_and(|(_, tree)| !matches!(tree, direct::Tree::Lists { .. }));
        if leaves.is_empty()
            || pages.batch_rows == 0
            || u32::try_from(pages.of.rows).is_err()
            || !pages.roots().iter().all(goes_on)
            || !leaves.iter().all(|leaf| may_decode(leaf, group) && more.iter().all(|of| may_decode(leaf, of)))
            || !self.look(&mut pages, bytes)?
        {
            return Ok(None);
        }
        let wanted = WantedRows { origins: &origins, alone: &[], selected: None, chunk_rows };
        self.decode_pages(&pages, &wanted, bytes, sink).map(Some)
    }

    /// Reads all pages of these columns and walks their headers; `false` if not all can be decoded together.
    fn look(&self, pages: &mut Pages<'_>, bytes: &dyn FileBytes) -> Result<bool> {
        let leaves = pages.leaves;
        let mut groups = vec![pages.of.group];
        groups.extend(&pages.of.more);
        let of_leaf = |leaf: &usize| groups.iter().map(|group| group.column(*leaf).range()).collect::<Vec<_>>();
        let chunks: Vec<Range<u64>> = leaves.iter().flat_map(of_leaf).collect();
        let ranges = coalesce(&chunks, 0, u64::MAX);
        let length = length_of(&ranges);
        if length > self.max_decoded_bytes {
            return Ok(false);
        }
        let read = as_asked(bytes.read(&ranges)?, &ranges)?;
        pages.staged = if bytes.has(&ranges) { 0 } else { length };
        let mut chunks = chunks.iter().zip(cut(&ranges, &read, &chunks)?);
        let mut total = 0_u64;
        for &leaf in leaves {
            let mut found: Vec<FilePage> = Vec::with_capacity(2 * groups.len());
            let mut largest = 0;
            for (group, (range, own)) in groups.iter().zip(chunks.by_ref()) {
                let column = group.column(leaf);
                let before = found.len();
                let tally = self.walk(&[(range, &own)], *group, leaf, false, &mut found)?;
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
