//! Decoded arrays as Arrow has them: no null in a field without nulls, but where the struct above it is null.
//!
//! The decoder makes arrays of levels, which say at which depth a value ends. So below a field that is never null,
//! inside of something that is, it notes a null at the lowest level and none in between. Arrow's own constructors
//! refuse such arrays, and so would everybody who copies them.

use std::slice;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, make_array, new_null_array};
use arrow_buffer::NullBuffer;
use arrow_schema::ArrowError;
use arrow_schema::{DataType, Field};

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_projection::children;
use rowdex_rows::{below, with_below};

/// Takes the nulls out of fields that have none, where a null further up says so already.
///
/// # Errors
/// [`ErrorKind::Schema`] if there is a null that nothing further up says.
pub(super) fn masked(array: &ArrayRef, path: &str) -> Result<ArrayRef> {
    Ok(mask(array, None, path)?.unwrap_or_else(|| Arc::clone(array)))
}

/// `None` if the array is right as it is. `above` has the nulls further up.
fn mask(array: &ArrayRef, above: Option<&NullBuffer>, path: &str) -> Result<Option<ArrayRef>> {
    let all = || NullBuffer::union(above, array.nulls());
    let (fields, own, visible) = match array.data_type() {
        DataType::Struct(fields) => (&fields[..], array.nulls().cloned(), all()),
        DataType::FixedSizeList(item, size) => {
            let of_items = |nulls: NullBuffer| nulls.expand(size.unsigned_abs() as usize);
            (slice::from_ref(item), array.nulls().cloned().map(of_items), all().map(of_items))
        }
        // The items of a null list are not there, so what is above a list masks nothing in it.
        DataType::Map(entries, _) => (children(entries.data_type()), None, None),
        other => (children(other), None, None),
    };
    let is_named = matches!(array.data_type(), DataType::Struct(_) | DataType::Map(..));
    let mut columns = if fields.is_empty() { Vec::new() } else { below(array) };
    let mut is_right = true;
    for (column, field) in columns.iter_mut().zip(fields) {
        let path = if is_named { format!("{path}.{}", field.name()) } else { path.to_owned() };
        if let Some(changed) = mask(column, visible.as_ref(), &path)? {
            (*column, is_right) = (changed, false);
        }
        if let Some(changed) = without_nulls(column, field, own.as_ref(), visible.as_ref(), &path)? {
            (*column, is_right) = (changed, false);
        }
    }
    if is_right {
        return Ok(None);
    }
    with_below(array, array.data_type(), &columns).map(Some).map_err(|error| broken(array, path, error))
}

/// The array of a field without nulls; `None` if it may have those that it has. `above` has the nulls of what is
/// directly above the field, `visible` those of all that is above it.
fn without_nulls(
    array: &ArrayRef,
    field: &Field,
    above: Option<&NullBuffer>,
    visible: Option<&NullBuffer>,
    path: &str,
) -> Result<Option<ArrayRef>> {
    let Some(nulls) = array.nulls().filter(|nulls| !field.is_nullable() && nulls.null_count() > 0) else {
        return Ok(None);
    };
    if above.is_some_and(|above| above.contains(nulls)) {
        return Ok(None);
    }
    if !visible.is_some_and(|visible| visible.contains(nulls)) {
        let message = "has nulls, and the file's schema says it has none";
        return Err(Error::new(ErrorKind::Schema, message).with_column(path));
    }
    let data = with_a_value(array).to_data().into_builder().nulls(None).build();
    Ok(Some(make_array(data.map_err(|error| broken(array, path, error))?)))
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

fn broken(array: &ArrayRef, path: &str, error: ArrowError) -> Error {
    let message = format!("was decoded to something that is no {}", array.data_type());
    Error::new(ErrorKind::Internal, message).with_column(path).with_source(error)
}
