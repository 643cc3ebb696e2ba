//! Views of strings and bytes, which keep the whole buffers alive that their values lie in.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericByteViewArray, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::{BinaryViewType, ByteViewType, DataType, StringViewType};
use arrow::error::ArrowError;

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
    change_columns(pieces, is_view, &mut |arrays| match arrays.first().map(|array| array.data_type()) {
        Some(DataType::Utf8View) => copy_shown::<StringViewType>(arrays),
        _ => copy_shown::<BinaryViewType>(arrays),
    })
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
    let none = arrow::array::new_empty_array(&DataType::Null);
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
    fn forget<T: ByteViewType + ?Sized>(array: &GenericByteViewArray<T>) -> Result<ArrayRef, ArrowError> {
        let mut places = vec![u32::MAX; array.data_buffers().len()];
        let mut kept: Vec<Buffer> = Vec::new();
        let mut views = Vec::with_capacity(array.len());
        for (row, &view) in array.views().iter().enumerate() {
            if array.is_null(row) || view as u32 <= INLINE {
                views.push(if array.is_null(row) { 0 } else { view });
                continue;
            }
            let buffer = (view >> BUFFER) as u32;
            let (Some(place), Some(bytes)) =
                (places.get_mut(buffer as usize), array.data_buffers().get(buffer as usize))
            else {
                return Err(ArrowError::ComputeError("a view of a buffer that is not there".into()));
            };
            if *place == u32::MAX {
                *place = kept.len() as u32;
                kept.push(bytes.clone());
            }
            views.push(view & !(u128::from(u32::MAX) << BUFFER) | u128::from(*place) << BUFFER);
        }
        Ok(Arc::new(GenericByteViewArray::<T>::try_new(views.into(), kept, array.nulls().cloned())?))
    }
    let column = |array: &ArrayRef| match array.data_type() {
        DataType::Utf8View => forget(array.as_byte_view::<StringViewType>()),
        DataType::BinaryView => forget(array.as_byte_view::<BinaryViewType>()),
        _ => Ok(Arc::clone(array)),
    };
    let columns = batch.columns().iter().map(column).collect::<Result<Vec<_>, _>>()?;
    record_batch(batch.schema_ref(), columns, batch.num_rows())
}

/// Copies what views show: the values, or the buffers that have them where those are shorter.
pub fn detach(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let mut detached = [Arc::clone(array)];
    match array.data_type() {
        DataType::Utf8View => copy_shown::<StringViewType>(&mut detached)?,
        DataType::BinaryView => copy_shown::<BinaryViewType>(&mut detached)?,
        _ => {}
    }
    let [detached] = detached;
    Ok(detached)
}

/// As [`detach`], for arrays of views whose values may lie in the same buffers. These are then copied once.
fn copy_shown<T: ByteViewType>(arrays: &mut [ArrayRef]) -> Result<(), ArrowError> {
    let key = |buffer: &Buffer| (buffer.as_ptr() as usize, buffer.len());
    let mut begins = HashMap::new();
    let mut buffers = Vec::new();
    let mut length = 0_u64;
    let mut values = 0;
    for array in arrays.iter().map(|array| array.as_byte_view::<T>()) {
        values +=
            array.views().iter().map(|view| *view as u32).filter(|length| *length > INLINE).map(u64::from).sum::<u64>();
        for buffer in array.data_buffers() {
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
        arrays.iter_mut().for_each(|array| *array = Arc::new(array.as_byte_view::<T>().gc()));
        return Ok(());
    }
    let copied = Buffer::from_vec(buffers.iter().map(|buffer| buffer.as_slice()).collect::<Vec<_>>().concat());
    for array in arrays {
        let found = array.as_byte_view::<T>();
        let begins: Vec<u32> =
            found.data_buffers().iter().map(|buffer| begins.get(&key(buffer)).copied().unwrap_or(0)).collect();
        let moved = |(row, &view): (usize, &u128)| {
            if found.is_null(row) || view as u32 <= INLINE {
                return if found.is_null(row) { 0 } else { view };
            }
            let begin = begins.get((view >> BUFFER) as u32 as usize).copied().unwrap_or(0);
            let place = ((view >> PLACE) as u32).saturating_add(begin);
            view & ((1 << BUFFER) - 1) | u128::from(place) << PLACE
        };
        let views: Vec<u128> = found.views().iter().enumerate().map(moved).collect();
        let nulls = found.nulls().cloned();
        *array = Arc::new(GenericByteViewArray::<T>::try_new(views.into(), vec![copied.clone()], nulls)?);
    }
    Ok(())
}

/// Copies the values of views that keep far more alive than they show, as a few rows out of large pages do.
pub fn compact_sparse(array: &mut ArrayRef) {
    fn copy<T: ByteViewType + ?Sized>(views: &GenericByteViewArray<T>) -> Option<ArrayRef> {
        (shown(views) < held(views) / 2).then(|| Arc::new(views.gc()) as ArrayRef)
    }
    let compacted = match array.data_type() {
        DataType::Utf8View => copy(array.as_byte_view::<StringViewType>()),
        DataType::BinaryView => copy(array.as_byte_view::<BinaryViewType>()),
        _ => None,
    };
    if let Some(compacted) = compacted {
        *array = compacted;
    }
}

/// Bytes of the values that views show, each as often as it is shown; `None` for other arrays.
pub fn view_bytes(array: &dyn Array) -> Option<u64> {
    match array.data_type() {
        DataType::Utf8View => Some(shown(array.as_byte_view::<StringViewType>())),
        DataType::BinaryView => Some(shown(array.as_byte_view::<BinaryViewType>())),
        _ => None,
    }
}

pub(super) fn is_view(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}

fn shown<T: ByteViewType + ?Sized>(views: &GenericByteViewArray<T>) -> u64 {
    // The length is the low half of a view.
    views.views().iter().map(|view| u64::from(*view as u32)).sum()
}

fn held<T: ByteViewType + ?Sized>(views: &GenericByteViewArray<T>) -> u64 {
    views.data_buffers().iter().map(|buffer| buffer.len() as u64).sum()
}
