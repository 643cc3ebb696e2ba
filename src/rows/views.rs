//! Views of strings and bytes, which keep the whole buffers alive that their values lie in.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericByteViewArray, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::{BinaryViewType, ByteViewType, DataType, StringViewType};
use arrow::error::ArrowError;

use super::record_batch;

/// Copies the values that views show, so that the batch keeps no other memory alive. Free of charge without views.
pub(crate) fn compact(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    if !batch.columns().iter().any(|column| is_view(column.data_type())) {
        return Ok(batch);
    }
    let columns = batch.columns().iter().map(detach).collect::<Result<Vec<_>, _>>()?;
    record_batch(batch.schema_ref(), columns, batch.num_rows())
}

/// Lets go of the memory that no view shows, of views whose values have memory of their own each. Copies no values.
pub(crate) fn forget_unseen(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    fn forget<T: ByteViewType + ?Sized>(array: &GenericByteViewArray<T>) -> Result<ArrayRef, ArrowError> {
        /// A value of no more bytes is in its view.
        const INLINE: u32 = 12;
        /// Where a view has the number of its buffer.
        const BUFFER: u32 = 64;
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
pub(crate) fn detach(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    fn copy<T: ByteViewType + ?Sized>(views: &GenericByteViewArray<T>) -> Result<ArrayRef, ArrowError> {
        if shown(views) <= held(views) {
            return Ok(Arc::new(views.gc()));
        }
        let buffers: Vec<Buffer> = views.data_buffers().iter().map(|buffer| Buffer::from(buffer.to_vec())).collect();
        let nulls = views.nulls().cloned();
        Ok(Arc::new(GenericByteViewArray::<T>::try_new(views.views().clone(), buffers, nulls)?))
    }
    match array.data_type() {
        DataType::Utf8View => copy(array.as_byte_view::<StringViewType>()),
        DataType::BinaryView => copy(array.as_byte_view::<BinaryViewType>()),
        _ => Ok(Arc::clone(array)),
    }
}

/// Copies the values of views that keep far more alive than they show, as a few rows out of large pages do.
pub(crate) fn compact_sparse(array: &mut ArrayRef) {
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
pub(crate) fn view_bytes(array: &dyn Array) -> Option<u64> {
    match array.data_type() {
        DataType::Utf8View => Some(shown(array.as_byte_view::<StringViewType>())),
        DataType::BinaryView => Some(shown(array.as_byte_view::<BinaryViewType>())),
        _ => None,
    }
}

fn is_view(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}

fn shown<T: ByteViewType + ?Sized>(views: &GenericByteViewArray<T>) -> u64 {
    // The length is the low half of a view.
    views.views().iter().map(|view| u64::from(*view as u32)).sum()
}

fn held<T: ByteViewType + ?Sized>(views: &GenericByteViewArray<T>) -> u64 {
    views.data_buffers().iter().map(|buffer| buffer.len() as u64).sum()
}
