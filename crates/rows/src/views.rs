//! Views of strings and bytes, which keep the whole buffers alive that their values lie in.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryViewArray, RecordBatch, StringViewArray};
use arrow_buffer::Buffer;
use arrow_schema::ArrowError;
use arrow_schema::DataType;

use super::record_batch;

/// A value of no more bytes is in its view.
pub(super) const INLINE: u32 = 12;

/// Where a longer one has the number of its buffer, and its place there.
pub(super) const BUFFER: u32 = 64;
pub(super) const PLACE: u32 = 96;

/// Copies the values that views show, so that the batch keeps no other memory alive. Free of charge without views.
pub fn compact(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let compacted = compact_pieces(vec![batch])?.pop();
    compacted.ok_or_else(|| ArrowError::ComputeError("a batch that is gone".into()))
}

/// As [`compact`] for the pieces of one batch, which have columns of the same types. Values that repeat, because they
/// come out of a dictionary, are copied once for all pieces, which share them then.
pub fn compact_pieces(pieces: Vec<RecordBatch>) -> Result<Vec<RecordBatch>, ArrowError> {
    change_columns(pieces, is_view, &mut copy_shown)
}

/// Changes the columns of such types of the pieces of one batch, each in all pieces at once.
pub(super) fn change_columns(
    mut pieces: Vec<RecordBatch>,
    is_one: impl Fn(&DataType) -> bool,
    change: &mut dyn FnMut(&mut [ArrayRef]) -> Result<(), ArrowError>,
) -> Result<Vec<RecordBatch>, ArrowError> {
    let Some(schema) = pieces.first().map(RecordBatch::schema) else { return Ok(pieces) };
    let mut columns: Vec<Vec<ArrayRef>> = pieces.iter().map(|piece| piece.columns().to_vec()).collect();
    // What is changed is let go piece by piece.
    let none = arrow_array::new_empty_array(&DataType::Null);
    let rows: Vec<usize> = pieces.drain(..).map(|piece| piece.num_rows()).collect();
    for place in (0..schema.fields().len()).filter(|place| is_one(schema.field(*place).data_type())) {
        let taken = columns.iter_mut().map(|columns| std::mem::replace(&mut columns[place], Arc::clone(&none)));
        let mut arrays: Vec<ArrayRef> = taken.collect();
        change(&mut arrays)?;
        columns.iter_mut().zip(arrays).for_each(|(columns, array)| columns[place] = array);
    }
    columns.into_iter().zip(rows).map(|(columns, rows)| record_batch(&schema, columns, rows)).collect()
}

/// Lets go of the memory that no view shows, of views whose values have memory of their own each. Copies no values.
pub fn forget_unseen(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let column = |array: &ArrayRef| {
        let Some((_, buffers)) = views_of(array.as_ref()) else { return Ok(Arc::clone(array)) };
        let mut places = vec![u32::MAX; buffers.len()];
        let mut kept: Vec<Buffer> = Vec::new();
        let views = with_long(array.as_ref(), |view| {
            let buffer = (view >> BUFFER) as u32 as usize;
            let (Some(place), Some(bytes)) = (places.get_mut(buffer), buffers.get(buffer)) else {
                return Err(ArrowError::ComputeError("a view of a buffer that is not there".into()));
            };
            if *place == u32::MAX {
                *place = kept.len() as u32;
                kept.push(bytes.clone());
            }
            Ok(view & !(u128::from(u32::MAX) << BUFFER) | u128::from(*place) << BUFFER)
        });
        with_views(array, views?, kept)
    };
    let columns = batch.columns().iter().map(column).collect::<Result<Vec<_>, _>>()?;
    record_batch(batch.schema_ref(), columns, batch.num_rows())
}

/// Copies what views show: the values, or the buffers that have them where those are shorter.
pub fn detach(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let mut detached = [Arc::clone(array)];
    if is_view(array.data_type()) {
        copy_shown(&mut detached)?;
    }
    let [detached] = detached;
    Ok(detached)
}

/// As [`detach`], for arrays of views whose values may lie in the same buffers. These are then copied once.
fn copy_shown(arrays: &mut [ArrayRef]) -> Result<(), ArrowError> {
    let key = |buffer: &Buffer| (buffer.as_ptr() as usize, buffer.len());
    let mut begins = HashMap::new();
    let mut buffers = Vec::new();
    let mut length = 0_u64;
    let mut values = 0;
    for (views, own) in arrays.iter().filter_map(|array| views_of(array.as_ref())) {
        let lengths = views.iter().map(|view| *view as u32);
        values += lengths.filter(|length| *length > INLINE).map(u64::from).sum::<u64>();
        for buffer in own {
            begins.entry(key(buffer)).or_insert_with(|| {
                buffers.push(buffer.clone());
                length += buffer.len() as u64;
                (length - buffer.len() as u64) as u32
            });
        }
    }
    // Pieces are let go of one after the other, and what they share with the last of them.
    let alone = if arrays.len() > 1 { values / 2 } else { values };
    if alone <= length || i32::try_from(length).is_err() {
        arrays.iter_mut().for_each(|array| *array = copied_alone(array));
        return Ok(());
    }
    let copied = Buffer::from_vec(buffers.iter().map(|buffer| buffer.as_slice()).collect::<Vec<_>>().concat());
    for array in arrays {
        let own = views_of(array.as_ref()).map_or(&[][..], |(_, buffers)| buffers);
        let begins: Vec<u32> = own.iter().map(|buffer| begins.get(&key(buffer)).copied().unwrap_or(0)).collect();
        let views = with_long(array.as_ref(), |view| {
            let begin = begins.get((view >> BUFFER) as u32 as usize).copied().unwrap_or(0);
            let place = ((view >> PLACE) as u32).saturating_add(begin);
            Ok(view & ((1 << BUFFER) - 1) | u128::from(place) << PLACE)
        })?;
        *array = with_views(array, views, vec![copied.clone()])?;
    }
    Ok(())
}

/// Copies the values of views that keep far more alive than they show, as a few rows out of large pages do.
pub fn compact_sparse(array: &mut ArrayRef) {
    let held = |buffers: &[Buffer]| buffers.iter().map(|buffer| buffer.len() as u64).sum::<u64>();
    if views_of(array.as_ref()).is_some_and(|(views, buffers)| shown(views) < held(buffers) / 2) {
        *array = copied_alone(array);
    }
}

/// Bytes of the values that views show, each as often as it is shown; `None` for other arrays.
pub fn view_bytes(array: &dyn Array) -> Option<u64> {
    views_of(array).map(|(views, _)| shown(views))
}

pub(super) fn is_view(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}

/// The views of an array of such, and the buffers that have long values.
pub(super) fn views_of(array: &dyn Array) -> Option<(&[u128], &[Buffer])> {
    match (array.as_string_view_opt(), array.as_binary_view_opt()) {
        (Some(strings), _) => Some((strings.views(), strings.data_buffers())),
        (_, Some(binary)) => Some((binary.views(), binary.data_buffers())),
        _ => None,
    }
}

/// The views of an array, with others of the values that are in buffers. A null has no bytes.
fn with_long(
    array: &dyn Array,
    mut long: impl FnMut(u128) -> Result<u128, ArrowError>,
) -> Result<Vec<u128>, ArrowError> {
    let views = views_of(array).map_or(&[][..], |(views, _)| views);
    let nulls = array.nulls();
    // In memory of just their size.
    let mut found = Vec::with_capacity(views.len());
    for (row, &view) in views.iter().enumerate() {
        found.push(match nulls.is_some_and(|nulls| nulls.is_null(row)) {
            true => 0,
            false if view as u32 <= INLINE => view,
            false => long(view)?,
        });
    }
    Ok(found)
}

/// The array with these views of these buffers.
fn with_views(array: &ArrayRef, views: Vec<u128>, buffers: Vec<Buffer>) -> Result<ArrayRef, ArrowError> {
    let nulls = array.nulls().cloned();
    Ok(match array.data_type() {
        DataType::Utf8View => Arc::new(StringViewArray::try_new(views.into(), buffers, nulls)?),
        _ => Arc::new(BinaryViewArray::try_new(views.into(), buffers, nulls)?),
    })
}

/// The array of views with a copy of each value.
fn copied_alone(array: &ArrayRef) -> ArrayRef {
    match array.as_string_view_opt() {
        Some(strings) => Arc::new(strings.gc()),
        None => Arc::new(array.as_binary_view().gc()),
    }
}

fn shown(views: &[u128]) -> u64 {
    // The length is the low half of a view.
    views.iter().map(|view| u64::from(*view as u32)).sum()
}
