//! Columns that have an item for each token of packs, where the labels of these tokens are: at the place before each.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};

use super::flat::only;
use super::nested::copy;
use super::picks::Spans;
use super::spots::{NO_LABEL, Spots, Then, broken, too_wide};
use super::tokens::{LABELS, MASKS, last};
use super::{record_batch, uncopied};
use rowdex_base::error::Result;

/// A column that has an item for each token of packs.
#[derive(Debug, Clone)]
pub struct TokenItems {
    /// What it is called, or its path.
    pub name: String,
    /// The items of all tokens, one after the other.
    pub items: ArrayRef,
    /// Those of the tokens that follow pieces behind which their row goes on.
    pub behind: ArrayRef,
}

/// The labels of each place, where a column has labels, or is to be it: that of `eos` where the last token of its row
/// has one, or in any case with `always`.
pub(super) fn labels(column: &TokenItems, spots: &Spots, eos: Option<i64>, always: bool) -> Result<Vec<i64>> {
    let wide = |items: &ArrayRef| match cast(items, &DataType::Int64).map_err(uncopied)? {
        wide if wide.null_count() > 0 => Err(too_wide()),
        wide => Ok(wide),
    };
    let items = wide(&column.items)?;
    let behind = wide(&column.behind)?;
    let shifted = shifted(&items, &behind, NO_LABEL, spots)?;
    let mut labels = shifted.as_primitive_opt::<Int64Type>().ok_or_else(broken)?.values().to_vec();
    for spot in spots.pieces.iter().filter(|spot| spot.eos) {
        let label = spot.last().and_then(|last| labels.get_mut(last));
        if let (Some(label), Some(eos)) = (label, eos)
            && (always || *label != NO_LABEL || spot.tokens == 0)
        {
            *label = eos;
        }
    }
    Ok(labels)
}

/// Whether a column has labels.
pub(super) fn are_labels(column: &TokenItems) -> bool {
    last(&column.name) == LABELS
}

/// The other columns.
pub(super) fn others(beside: &[TokenItems], spots: &Spots) -> Result<RecordBatch> {
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    for column in beside.iter().filter(|column| !are_labels(column)) {
        fields.push(Field::new(&column.name, column.items.data_type().clone(), false));
        columns.push(shifted(&column.items, &column.behind, 0, spots)?);
    }
    record_batch(&Arc::new(Schema::new(fields)), columns, spots.places).map_err(uncopied)
}

/// Takes the labels away where a mask among the columns has 0.
pub(super) fn mask(labels: &mut [i64], columns: &RecordBatch) -> Result<()> {
    for (field, column) in columns.schema_ref().fields().iter().zip(columns.columns()) {
        if MASKS.contains(&last(field.name())) {
            let counts = cast(column, &DataType::Boolean).map_err(uncopied)?;
            let counts = counts.as_boolean_opt().ok_or_else(broken)?.values();
            labels.iter_mut().zip(counts).filter(|(_, counts)| !counts).for_each(|(label, _)| *label = NO_LABEL);
        }
    }
    Ok(())
}

/// For each place the item of the token that follows in its row, and `none` where none does. A token that was added at
/// the end of a row has the item of the one before it.
fn shifted(items: &ArrayRef, behind: &ArrayRef, none: i64, spots: &Spots) -> Result<ArrayRef> {
    const ITEMS: usize = 0;
    const BEHIND: usize = 1;
    const NONE: usize = 2;
    let mut spans = Spans::with_capacity(3 * spots.pieces.len());
    let mut most = 0;
    let mut next = 0;
    let push = |spans: &mut Spans, source: usize, items: Range<usize>| {
        if !items.is_empty() {
            spans.push(source, items);
        }
    };
    let mut fill = |spans: &mut Spans, end: usize| {
        let places = end.saturating_sub(spans.rows_so_far());
        most = places.max(most);
        push(spans, NONE, 0..places);
    };
    for spot in &spots.pieces {
        fill(&mut spans, spot.at);
        let own = spot.source..spot.source + spot.tokens;
        // The first token is what follows the one before it, if that was added.
        let first = own.end.min(own.start + usize::from(!spot.bos));
        push(&mut spans, ITEMS, first..own.end);
        if let Then::Token(_) = spot.then {
            spans.push(BEHIND, next..next + 1);
            next += 1;
        } else if spot.eos && !own.is_empty() {
            spans.push(ITEMS, own.end - 1..own.end);
        }
    }
    fill(&mut spans, spots.places);
    let tokens = spots.pieces.last().map_or(0, |spot| spot.source + spot.tokens);
    if (items.len(), behind.len(), spans.rows_so_far()) != (tokens, next, spots.places) {
        return Err(broken());
    }
    let none: ArrayRef = Arc::new(Int64Array::from_value(none, most));
    let none = cast(&none, items.data_type()).map_err(uncopied)?;
    let sources: [&dyn Array; 3] = [items, behind, &none];
    copy(&sources, &[&spans], items.data_type()).and_then(only).map_err(uncopied)
}
