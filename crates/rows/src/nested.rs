//! Rows of columns of any type: whatever is below a nested one is copied by the same kernel.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericListArray, GenericListViewArray, MapArray, OffsetSizeTrait,
    StructArray, make_array,
};
use arrow_buffer::ArrowNativeType;
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::ArrowError;
use arrow_schema::{DataType, FieldRef, Fields};

use super::dictionary::{dictionaries, has_dictionary};
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
        List(_) | LargeList(_) | ListView(_) | LargeListView(_) | FixedSizeList(_, _) | Map(_, _) => {
            lists(arrays, runs)
        }
        Struct(fields) => structs(arrays, fields, runs),
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

/// Lists of any kind, and maps. The items of list views may lie in any order and be shared: the copies lie one after
/// another and share nothing.
fn lists<P: Picks>(arrays: &[&dyn Array], runs: &[P]) -> Result<Vec<ArrayRef>, ArrowError> {
    let lists: Vec<Lists<'_>> = arrays.iter().filter_map(|array| Lists::of(*array)).collect();
    let items: Vec<&dyn Array> = lists.iter().map(|lists| lists.items).collect();
    let below = |run: &P| {
        let spans = run.spans();
        let mut items = Spans::with_capacity(spans.len());
        spans.for_each(|(source, rows)| lists[source].push_items(source, rows, &mut items));
        items
    };
    let spans: Vec<Spans> = runs.iter().map(below).collect();
    let values = copy(&items, &spans.iter().collect::<Vec<_>>(), items[0].data_type())?;
    let finish = |(run, values): (&P, ArrayRef)| {
        let lengths = run.rows().map(|(source, row)| lists[source].range(row).len());
        list_array(arrays[0].data_type(), run.count(), lengths, values, nulls(arrays, run))
    };
    runs.iter().zip(values).map(finish).collect()
}

/// So many lists, or maps, of this type and these lengths, whose items lie one after the other.
pub fn list_array(
    data_type: &DataType,
    count: usize,
    lengths: impl Iterator<Item = usize>,
    items: ArrayRef,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    fn views<O: OffsetSizeTrait>(
        item: &FieldRef,
        count: usize,
        lengths: impl Iterator<Item = usize>,
        items: ArrayRef,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError> {
        let ends = ends::<O>(count, lengths)?;
        let sizes: ScalarBuffer<O> = ends.windows(2).map(|ends| ends[1] - ends[0]).collect();
        let offsets = ends.inner().slice(0, count);
        Ok(Arc::new(GenericListViewArray::<O>::try_new(item.clone(), offsets, sizes, items, nulls)?))
    }
    Ok(match data_type {
        DataType::List(item) => {
            Arc::new(GenericListArray::<i32>::try_new(item.clone(), ends(count, lengths)?, items, nulls)?)
        }
        DataType::LargeList(item) => {
            Arc::new(GenericListArray::<i64>::try_new(item.clone(), ends(count, lengths)?, items, nulls)?)
        }
        DataType::ListView(item) => views::<i32>(item, count, lengths, items, nulls)?,
        DataType::LargeListView(item) => views::<i64>(item, count, lengths, items, nulls)?,
        DataType::FixedSizeList(item, size) => {
            Arc::new(FixedSizeListArray::try_new_with_length(item.clone(), *size, items, nulls, count)?)
        }
        DataType::Map(entries, sorted) => {
            let inner = items.as_struct().clone();
            Arc::new(MapArray::try_new(entries.clone(), ends(count, lengths)?, inner, nulls, *sorted)?)
        }
        other => return Err(ArrowError::InvalidArgumentError(format!("{other} is no list"))),
    })
}

/// The arrays below one of a nested type: the items of lists, the fields of structs, keys and values of maps.
pub fn below(array: &dyn Array) -> Vec<ArrayRef> {
    let data = match array.as_map_opt() {
        Some(map) => map.entries().to_data(),
        None => array.to_data(),
    };
    data.child_data().iter().cloned().map(make_array).collect()
}

/// The same array as one of this type, with other arrays [below](below()) it.
///
/// # Errors
/// If they do not fit the type or the array.
pub fn with_below(array: &dyn Array, data_type: &DataType, below: &[ArrayRef]) -> Result<ArrayRef, ArrowError> {
    let with = |array: ArrayData, data_type: &DataType, below| {
        array.into_builder().data_type(data_type.clone()).child_data(below).build()
    };
    let mut below: Vec<ArrayData> = below.iter().map(|array| array.to_data()).collect();
    if let (DataType::Map(entries, _), Some(map)) = (data_type, array.as_map_opt()) {
        below = vec![with(map.entries().to_data(), entries.data_type(), below)?];
    }
    Ok(make_array(with(array.to_data(), data_type, below)?))
}

/// The array itself, or the dictionary arrays below it.
pub(super) fn dictionary_arrays(array: &ArrayRef) -> Vec<ArrayRef> {
    match array.data_type() {
        DataType::Dictionary(_, _) => vec![Arc::clone(array)],
        other if has_dictionary(other) => below(array.as_ref()).iter().flat_map(dictionary_arrays).collect(),
        _ => Vec::new(),
    }
}

/// The values of all dictionaries of an array.
pub(super) fn values_of(array: &ArrayRef) -> Vec<ArrayData> {
    dictionary_arrays(array).iter().map(|array| array.as_any_dictionary().values().to_data()).collect()
}

/// The array with these in the places of its dictionary arrays, which stay where there is none.
pub(super) fn with_dictionaries(
    array: &ArrayRef,
    others: &mut impl Iterator<Item = Option<ArrayRef>>,
) -> Result<ArrayRef, ArrowError> {
    match array.data_type() {
        DataType::Dictionary(_, _) => Ok(others.next().flatten().unwrap_or_else(|| Arc::clone(array))),
        other if has_dictionary(other) => {
            let below = below(array.as_ref()).into_iter().map(|below| with_dictionaries(&below, others));
            with_below(array.as_ref(), other, &below.collect::<Result<Vec<_>, _>>()?)
        }
        _ => Ok(Arc::clone(array)),
    }
}

/// An array of lists, or of maps.
#[derive(Debug, Clone, Copy)]
pub struct Lists<'a> {
    pub(super) array: &'a dyn Array,
    /// All items.
    pub items: &'a dyn Array,
    extents: Extents<'a>,
}

/// Where the items of each list are.
#[derive(Debug, Clone, Copy)]
enum Extents<'a> {
    Offsets(&'a [i32]),
    LargeOffsets(&'a [i64]),
    Fixed(usize),
    Views(&'a [i32], &'a [i32]),
    LargeViews(&'a [i64], &'a [i64]),
}

impl<'a> Lists<'a> {
    /// `None` for an array of something else.
    pub fn of(array: &'a dyn Array) -> Option<Self> {
        let (items, extents): (&dyn Array, _) = match array.data_type() {
            DataType::List(_) => {
                let lists = array.as_list::<i32>();
                (lists.values(), Extents::Offsets(lists.value_offsets()))
            }
            DataType::LargeList(_) => {
                let lists = array.as_list::<i64>();
                (lists.values(), Extents::LargeOffsets(lists.value_offsets()))
            }
            DataType::ListView(_) => {
                let lists = array.as_list_view::<i32>();
                (lists.values(), Extents::Views(lists.offsets(), lists.sizes()))
            }
            DataType::LargeListView(_) => {
                let lists = array.as_list_view::<i64>();
                (lists.values(), Extents::LargeViews(lists.offsets(), lists.sizes()))
            }
            DataType::Map(_, _) => {
                let maps = array.as_map();
                (maps.entries(), Extents::Offsets(maps.value_offsets()))
            }
            DataType::FixedSizeList(_, size) => (array.as_fixed_size_list().values(), Extents::Fixed(size.as_usize())),
            _ => return None,
        };
        Some(Self { array, items, extents })
    }

    /// Where the items of a list are.
    pub fn range(&self, list: usize) -> Range<usize> {
        fn view<O: OffsetSizeTrait>(offsets: &[O], sizes: &[O], list: usize) -> Range<usize> {
            let start = offsets[list].as_usize();
            start..start + sizes[list].as_usize()
        }
        match self.extents {
            // The items of a null are anywhere.
            Extents::Views(..) | Extents::LargeViews(..) if self.array.is_null(list) => 0..0,
            Extents::Views(offsets, sizes) => view(offsets, sizes, list),
            Extents::LargeViews(offsets, sizes) => view(offsets, sizes, list),
            Extents::Offsets(offsets) => offsets[list].as_usize()..offsets[list + 1].as_usize(),
            Extents::LargeOffsets(offsets) => offsets[list].as_usize()..offsets[list + 1].as_usize(),
            Extents::Fixed(size) => list * size..(list + 1) * size,
        }
    }

    /// The same, and none of a null; `None` of a list that is not there.
    #[inline]
    pub(super) fn items_of(&self, list: usize) -> Option<Range<usize>> {
        (list < self.array.len()).then(|| if self.array.is_null(list) { 0..0 } else { self.range(list) })
    }

    /// Adds the items of lists that follow each other.
    fn push_items(&self, source: usize, lists: Range<usize>, items: &mut Spans) {
        match self.extents {
            Extents::Views(..) | Extents::LargeViews(..) => {
                lists.for_each(|list| items.push(source, self.range(list)));
            }
            _ if lists.is_empty() => {}
            _ => items.push(source, self.range(lists.start).start..self.range(lists.end - 1).end),
        }
    }
}
