//! Columns of which only the due values are read, each where it lies.

use arrow_array::ArrayRef;
use arrow_schema::{DataType, FieldRef};

use super::GroupDecoder;
use crate::FileBytes;
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

impl GroupDecoder<'_> {
    /// Where the values of columns lie that can be read one by one.
    pub(super) fn find_values(&self, pages: &Pages<'_>) -> Vec<(usize, ValuePlaces)> {
        let views = self.wanted_views(pages.leaves);
        let found = pages.of.found.iter().filter(|(leaf, _)| views.binary_search(leaf).is_ok());
        let alone = found.filter_map(|(leaf, found)| {
            let column = pages.of.group.column(*leaf);
            let places = direct::may_be_read_alone(column).then(|| ValuePlaces::find(column, found));
            Some((*leaf, places.flatten()?))
        });
        alone.collect()
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
        if !bytes.is_near() || views.is_empty() {
            return Vec::new();
        }
        let noted = self.file.value_places(self.row_group).and_then(Once::get);
        let Some(noted) = noted else { return Vec::new() };
        if bytes.has(&self.chunks()) {
            return Vec::new();
        }
        let alone = |(origin, field): (&ColumnOrigin<'_>, &FieldRef)| {
            let ColumnOrigin::File(root) = *origin else { return None };
            let own = self.file.leaves(root);
            let leaf = own.start;
            let (_, places) = noted.iter().find(|(known, places)| *known == leaf && places.rows() == rows)?;
            let fits = own.len() == 1 && views.binary_search(&leaf).is_ok() && is_view(field.data_type());
            fits.then(|| ColumnReadAlone { root, leaf, places, data_type: field.data_type().clone() })
        };
        let mut found: Vec<ColumnReadAlone<'_>> =
            origins.iter().zip(self.projection.internal().fields()).filter_map(alone).collect();
        found.dedup_by_key(|alone| alone.leaf);
        found
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
