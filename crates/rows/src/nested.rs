//! Rows of columns of any type: whatever is below a nested one is copied by the same kernel.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, GenericListViewArray, MapArray, OffsetSizeTrait,
    StructArray,
};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{ArrowNativeType, DataType, FieldRef, Fields};
use arrow::error::ArrowError;

use super::dictionary::dictionaries;
use super::flat::{self, ends, nulls};
use super::picks::{Picks, Spans};

/// An array for each run, of the rows that it picks.
pub(super) fn copy<P: Picks>(
    arrays: &[&dyn Array],
    runs: &[P],
    wanted: &DataType,
) -> Result<Vec<ArrayRef>, ArrowError> {
    use DataType::*;
    match arrays[0].data_type() {
        List(_) | LargeList(_) | FixedSizeList(_, _) => lists(arrays, runs),
        ListView(_) | LargeListView(_) => list_views(arrays, runs),
        Struct(fields) => structs(arrays, fields, runs),
        Map(entries, sorted) => maps(arrays, entries, *sorted, runs),
        Dictionary(_, _) => dictionaries(arrays, runs),
        _ => flat::copy(arrays, runs, wanted),
    }
}

fn structs<P: Picks>(arrays: &[&dyn Array], fields: &Fields, runs: &[P]) -> Result<Vec<ArrayRef>, ArrowError> {
    let mut columns: Vec<Vec<ArrayRef>> = runs.iter().map(|_| Vec::with_capacity(fields.len())).collect();
    for (place, field) in fields.iter().enumerate() {
        let below: Vec<&dyn Array> = arrays.iter().map(|array| array.as_struct().column(place).as_ref()).collect();
        let copied = copy(&below, runs, field.data_type())?;
        columns.iter_mut().zip(copied).for_each(|(columns, array)| columns.push(array));
    }
    let finish = |(run, columns): (&P, Vec<ArrayRef>)| -> Result<ArrayRef, ArrowError> {
        let nulls = nulls(arrays, run);
        let rows = run.count();
        Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, rows)?))
    };
    runs.iter().zip(columns).map(finish).collect()
}

fn lists<P: Picks>(arrays: &[&dyn Array], runs: &[P]) -> Result<Vec<ArrayRef>, ArrowError> {
    let extents: Vec<Extents<'_>> = arrays.iter().map(|array| Extents::of(*array)).collect();
    let items: Vec<&dyn Array> = arrays.iter().map(|array| items(*array).as_ref()).collect();
    let spans: Vec<Spans> = runs.iter().map(|run| below(run, &extents)).collect();
    let values = copy(&items, &spans.iter().collect::<Vec<_>>(), items[0].data_type())?;
    let finish = |(run, values): (&P, ArrayRef)| -> Result<ArrayRef, ArrowError> {
        let nulls = nulls(arrays, run);
        let lengths = || run.rows().map(|(source, row)| extents[source].len(row));
        Ok(match arrays[0].data_type() {
            DataType::List(item) => {
                Arc::new(GenericListArray::<i32>::try_new(item.clone(), ends(run.count(), lengths())?, values, nulls)?)
            }
            DataType::LargeList(item) => {
                Arc::new(GenericListArray::<i64>::try_new(item.clone(), ends(run.count(), lengths())?, values, nulls)?)
            }
            DataType::FixedSizeList(item, size) => {
                let rows = run.count();
                Arc::new(FixedSizeListArray::try_new_with_length(item.clone(), *size, values, nulls, rows)?)
            }
            other => return Err(ArrowError::InvalidArgumentError(format!("{other} is no list"))),
        })
    };
    runs.iter().zip(values).map(finish).collect()
}

fn maps<P: Picks>(
    arrays: &[&dyn Array],
    entries: &FieldRef,
    sorted: bool,
    runs: &[P],
) -> Result<Vec<ArrayRef>, ArrowError> {
    let extents: Vec<Extents<'_>> =
        arrays.iter().map(|array| Extents::Offsets(array.as_map().value_offsets())).collect();
    let items: Vec<&dyn Array> = arrays.iter().map(|array| array.as_map().entries() as &dyn Array).collect();
    let spans: Vec<Spans> = runs.iter().map(|run| below(run, &extents)).collect();
    let values = copy(&items, &spans.iter().collect::<Vec<_>>(), items[0].data_type())?;
    let finish = |(run, values): (&P, ArrayRef)| -> Result<ArrayRef, ArrowError> {
        let offsets = ends(run.count(), run.rows().map(|(source, row)| extents[source].len(row)))?;
        let inner = values.as_struct().clone();
        let nulls = nulls(arrays, run);
        Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, inner, nulls, sorted)?))
    };
    runs.iter().zip(values).map(finish).collect()
}

/// Lists whose items may lie in any order and be shared: the copies lie one after another and share nothing.
fn list_views<P: Picks>(arrays: &[&dyn Array], runs: &[P]) -> Result<Vec<ArrayRef>, ArrowError> {
    match arrays[0].data_type() {
        DataType::LargeListView(item) => list_views_of::<i64, P>(arrays, item, runs),
        DataType::ListView(item) => list_views_of::<i32, P>(arrays, item, runs),
        other => Err(ArrowError::InvalidArgumentError(format!("{other} is no list view"))),
    }
}

fn list_views_of<O: OffsetSizeTrait, P: Picks>(
    arrays: &[&dyn Array],
    item: &FieldRef,
    runs: &[P],
) -> Result<Vec<ArrayRef>, ArrowError> {
    let views: Vec<&GenericListViewArray<O>> = arrays.iter().map(|array| array.as_list_view::<O>()).collect();
    let items: Vec<&dyn Array> = views.iter().map(|view| view.values().as_ref()).collect();
    let copied = |run: &P| -> Result<ArrayRef, ArrowError> {
        let mut spans = Spans::with_capacity(run.count());
        let mut offsets = Vec::with_capacity(run.count());
        let mut sizes = Vec::with_capacity(run.count());
        for (source, row) in run.rows() {
            let length = views[source].sizes()[row];
            // The items of a null are anywhere.
            let (start, length) = match views[source].is_valid(row) {
                true => (views[source].offsets()[row].as_usize(), length),
                false => (0, O::default()),
            };
            let before = spans.rows_so_far();
            offsets.push(O::from_usize(before).ok_or(ArrowError::OffsetOverflowError(before))?);
            sizes.push(length);
            spans.push(source, start..start + length.as_usize());
        }
        let values = copy(&items, &[&spans], item.data_type())?.pop();
        let values = values.ok_or_else(|| ArrowError::ComputeError("a list without items".into()))?;
        let offsets = ScalarBuffer::from(offsets);
        let sizes = ScalarBuffer::from(sizes);
        let nulls = nulls(arrays, run);
        Ok(Arc::new(GenericListViewArray::<O>::try_new(item.clone(), offsets, sizes, values, nulls)?))
    };
    runs.iter().map(copied).collect()
}

/// The items of all lists of a run.
fn below<P: Picks>(run: &P, extents: &[Extents<'_>]) -> Spans {
    let spans = run.spans();
    let mut items = Spans::with_capacity(spans.len());
    spans.for_each(|(source, lists)| items.push(source, extents[source].items(lists)));
    items
}

fn items(array: &dyn Array) -> &ArrayRef {
    if let Some(lists) = array.as_list_opt::<i32>() {
        return lists.values();
    }
    if let Some(lists) = array.as_list_opt::<i64>() {
        return lists.values();
    }
    array.as_fixed_size_list().values()
}

/// Where the items of each list of an array are.
enum Extents<'a> {
    Offsets(&'a [i32]),
    LargeOffsets(&'a [i64]),
    Fixed(usize),
}

impl<'a> Extents<'a> {
    fn of(array: &'a dyn Array) -> Self {
        if let Some(lists) = array.as_list_opt::<i32>() {
            return Extents::Offsets(lists.value_offsets());
        }
        if let Some(lists) = array.as_list_opt::<i64>() {
            return Extents::LargeOffsets(lists.value_offsets());
        }
        Extents::Fixed(array.as_fixed_size_list().value_length().as_usize())
    }

    /// The items of lists that follow each other.
    fn items(&self, lists: Range<usize>) -> Range<usize> {
        match self {
            Extents::Offsets(offsets) => offsets[lists.start].as_usize()..offsets[lists.end].as_usize(),
            Extents::LargeOffsets(offsets) => offsets[lists.start].as_usize()..offsets[lists.end].as_usize(),
            Extents::Fixed(size) => lists.start * size..lists.end * size,
        }
    }

    fn len(&self, list: usize) -> usize {
        self.items(list..list + 1).len()
    }
}
