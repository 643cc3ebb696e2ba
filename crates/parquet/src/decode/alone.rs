//! Columns of which only the due values are read, each where it lies.

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, FieldRef};

use super::{GroupDecoder, RowSink, WantedRows};
use crate::FileBytes;
use crate::chunks::RowGroup;
use crate::columns::{ColumnOrigin, is_view};
use crate::direct::{self, ValuePlaces};
use crate::pages::Pages;
use rowdex_base::error::Result;
use rowdex_base::once::Once;

/// A column of which only the due values are read.
pub(crate) struct ColumnReadAlone<'a> {
    /// The field of the file, and its only leaf.
    pub(super) root: usize,
    pub(super) leaf: usize,
    places: &'a ValuePlaces,
    data_type: DataType,
}

impl<'a> GroupDecoder<'a> {
    /// Where the values of columns lie that can be read one by one.
    pub(super) fn find_values(
        &self,
        pages: &Pages<'_>,
        group: RowGroup<'_>,
        leaves: &[usize],
    ) -> Vec<(usize, ValuePlaces)> {
        let views = self.wanted_views(leaves);
        let own = pages.found.iter().filter(|(leaf, _)| views.binary_search(leaf).is_ok());
        let alone = own.filter(|(leaf, _)| direct::may_be_read_alone(group.column(*leaf)));
        alone.filter_map(|(leaf, found)| Some((*leaf, ValuePlaces::find(group.column(*leaf), found)?))).collect()
    }

    /// The columns whose due values are read one by one. They are decoded to views of what is read.
    pub(super) fn read_alone(
        &self,
        origins: &[ColumnOrigin<'_>],
        leaves: &[usize],
        bytes: &dyn FileBytes,
    ) -> Vec<ColumnReadAlone<'_>> {
        let rows = self.file.row_group_rows(self.row_group) as usize;
        let views = self.wanted_views(leaves);
        if !bytes.is_near() || views.is_empty() || Pages::is_left_to_parquet() {
            return Vec::new();
        }
        if bytes.has(&self.file.chunks(self.row_group, self.projection, self.partitions)) {
            return Vec::new();
        }
        let noted = self.file.value_places(self.row_group).and_then(Once::get);
        let alone = |(origin, field): (&ColumnOrigin<'_>, &FieldRef)| {
            let ColumnOrigin::File(root) = *origin else { return None };
            let own = self.file.leaves(root);
            let leaf = own.start;
            let (_, places) = noted?.iter().find(|(known, places)| *known == leaf && places.rows() == rows)?;
            let fits = own.len() == 1 && views.binary_search(&leaf).is_ok() && is_view(field.data_type());
            fits.then(|| ColumnReadAlone { root, leaf, places, data_type: field.data_type().clone() })
        };
        let mut found: Vec<ColumnReadAlone<'_>> =
            origins.iter().zip(self.projection.internal().fields()).filter_map(alone).collect();
        found.dedup_by_key(|alone| alone.leaf);
        found
    }

    /// Decodes what is due of a row group of which some columns are read alone.
    pub(super) fn decode_due(
        &self,
        group: RowGroup<'a>,
        wanted: &WantedRows<'_>,
        due: &[u32],
        bytes: &dyn FileBytes,
        sink: &mut dyn RowSink,
    ) -> Result<u64> {
        let WantedRows { leaves, origins, alone, chunk_rows, .. } = *wanted;
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
        let mut pages = self.fetch(group, leaves, None, false, chunk_rows, bytes)?;
        pages.batch_rows = pages.batch_rows.min(chunk_rows);
        let done = self.decode_pages(&pages, wanted, bytes, &mut each);
        done.map_err(|error| self.blame(&pages, leaves, error))?;
        Ok(decoded)
    }

    /// The decoded columns, and behind them those that are read alone, of these rows.
    pub(super) fn with_alone(
        &self,
        decoded: &[ArrayRef],
        alone: &[ColumnReadAlone<'_>],
        rows: &[u32],
        bytes: &dyn FileBytes,
    ) -> Result<Vec<ArrayRef>> {
        let mut columns = decoded.to_vec();
        for ColumnReadAlone { root, places, data_type, .. } in alone {
            let name = || self.file.arrow_schema().field(*root).name();
            columns.push(places.read(rows, bytes, data_type).map_err(|error| error.with_column(name()))?);
        }
        Ok(columns)
    }
}
