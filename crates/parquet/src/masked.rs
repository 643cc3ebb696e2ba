//! Decoded arrays as Arrow has them: no null in a field without nulls, but where the struct above it is null.
//!
//! The decoder makes arrays of levels, which say at which depth a value ends. So below a field that is never null,
//! inside of something that is, it notes a null at the lowest level and none in between. Arrow's own constructors
//! refuse such arrays, and so would everybody who copies them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, GenericListViewArray, MapArray, OffsetSizeTrait,
    StructArray, make_array, new_null_array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use arrow::error::ArrowError;

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_projection::children;

/// Takes the nulls out of fields that have none, where a null further up says so already.
///
/// # Errors
/// [`ErrorKind::Schema`] if there is a null that nothing further up says.
pub(super) fn masked(array: &ArrayRef, path: &str) -> Result<ArrayRef> {
    Ok(mask(array, None, path)?.unwrap_or_else(|| Arc::clone(array)))
}

/// `None` if the array is right as it is. `above` has the nulls further up.
fn mask(array: &ArrayRef, above: Option<&NullBuffer>, path: &str) -> Result<Option<ArrayRef>> {
    let nulls = || array.nulls().cloned();
    let changed: Result<ArrayRef, ArrowError> = match array.data_type() {
        DataType::Struct(fields) => {
            let Some(columns) = mask_fields(array, fields, above, path)? else { return Ok(None) };
            StructArray::try_new_with_length(fields.clone(), columns, nulls(), array.len())
                .map(|array| Arc::new(array) as _)
        }
        DataType::List(item) => return mask_items::<i32>(array, item, path),
        DataType::LargeList(item) => return mask_items::<i64>(array, item, path),
        DataType::ListView(item) => return mask_viewed::<i32>(array, item, path),
        DataType::LargeListView(item) => return mask_viewed::<i64>(array, item, path),
        DataType::FixedSizeList(item, size) => {
            let lists = array.as_fixed_size_list();
            let of_items = |nulls: &NullBuffer| nulls.expand(size.unsigned_abs() as usize);
            let visible = NullBuffer::union(above, lists.nulls()).as_ref().map(of_items);
            let changed = mask(lists.values(), visible.as_ref(), path)?;
            let values = changed.as_ref().unwrap_or_else(|| lists.values());
            let own = lists.nulls().map(of_items);
            let stripped = without_nulls(values, item, own.as_ref(), visible.as_ref(), &|| path.to_owned())?;
            let Some(values) = stripped.or(changed) else { return Ok(None) };
            FixedSizeListArray::try_new_with_length(Arc::clone(item), *size, values, nulls(), array.len())
                .map(|array| Arc::new(array) as _)
        }
        DataType::Map(entries, sorted) => {
            let map = array.as_map();
            let inner: ArrayRef = Arc::new(map.entries().clone());
            let Some(inner) = mask(&inner, None, path)? else { return Ok(None) };
            MapArray::try_new(Arc::clone(entries), map.offsets().clone(), inner.as_struct().clone(), nulls(), *sorted)
                .map(|array| Arc::new(array) as _)
        }
        _ => return Ok(None),
    };
    changed.map(Some).map_err(|error| broken(array, path, error))
}

fn mask_fields(
    array: &ArrayRef,
    fields: &Fields,
    above: Option<&NullBuffer>,
    path: &str,
) -> Result<Option<Vec<ArrayRef>>> {
    let visible = NullBuffer::union(above, array.nulls());
    let mut columns = array.as_struct().columns().to_vec();
    let mut is_right = true;
    for (column, field) in columns.iter_mut().zip(fields) {
        let path = || format!("{path}.{}", field.name());
        if !children(column.data_type()).is_empty()
            && let Some(changed) = mask(column, visible.as_ref(), &path())?
        {
            (*column, is_right) = (changed, false);
        }
        if let Some(changed) = without_nulls(column, field, array.nulls(), visible.as_ref(), &path)? {
            (*column, is_right) = (changed, false);
        }
    }
    Ok((!is_right).then_some(columns))
}

/// The array of a field without nulls; `None` if it may have those that it has. `above` has the nulls of what is
/// directly above the field, `visible` those of all that is above it.
fn without_nulls(
    array: &ArrayRef,
    field: &Field,
    above: Option<&NullBuffer>,
    visible: Option<&NullBuffer>,
    path: &dyn Fn() -> String,
) -> Result<Option<ArrayRef>> {
    let Some(nulls) = array.nulls().filter(|nulls| !field.is_nullable() && nulls.null_count() > 0) else {
        return Ok(None);
    };
    if above.is_some_and(|above| above.contains(nulls)) {
        return Ok(None);
    }
    if !visible.is_some_and(|visible| visible.contains(nulls)) {
        let message = "has nulls, and the file's schema says it has none";
        return Err(Error::new(ErrorKind::Schema, message).with_column(path()));
    }
    let data = with_a_value(array).to_data().into_builder().nulls(None).build();
    Ok(Some(make_array(data.map_err(|error| broken(array, &path(), error))?)))
}

/// The same dictionary array, whose dictionary has a value: the keys below nulls are those of the first one.
fn with_a_value(array: &ArrayRef) -> ArrayRef {
    let Some(dictionary) = array.as_any_dictionary_opt().filter(|dictionary| dictionary.values().is_empty()) else {
        return Arc::clone(array);
    };
    let null = new_null_array(dictionary.values().data_type(), 1).to_data();
    match null.into_builder().nulls(None).build() {
        Ok(blank) => dictionary.with_values(make_array(blank)),
        Err(_) => Arc::clone(array),
    }
}

/// The items of a null list are not there, so what is above a list masks nothing in it.
fn mask_items<O: OffsetSizeTrait>(array: &ArrayRef, item: &FieldRef, path: &str) -> Result<Option<ArrayRef>> {
    let lists = array.as_list::<O>();
    let Some(values) = mask(lists.values(), None, path)? else { return Ok(None) };
    let offsets = lists.offsets().clone();
    let nulls = lists.nulls().cloned();
    let lists = GenericListArray::<O>::try_new(Arc::clone(item), offsets, values, nulls);
    Ok(Some(Arc::new(lists.map_err(|error| broken(array, path, error))?)))
}

/// As [`mask_items`].
fn mask_viewed<O: OffsetSizeTrait>(array: &ArrayRef, item: &FieldRef, path: &str) -> Result<Option<ArrayRef>> {
    let lists = array.as_list_view::<O>();
    let Some(values) = mask(lists.values(), None, path)? else { return Ok(None) };
    let offsets = lists.offsets().clone();
    let sizes = lists.sizes().clone();
    let nulls = lists.nulls().cloned();
    let lists = GenericListViewArray::<O>::try_new(Arc::clone(item), offsets, sizes, values, nulls);
    Ok(Some(Arc::new(lists.map_err(|error| broken(array, path, error))?)))
}

fn broken(array: &ArrayRef, path: &str, error: ArrowError) -> Error {
    let message = format!("was decoded to something that is no {}", array.data_type());
    Error::new(ErrorKind::Internal, message).with_column(path).with_source(error)
}
