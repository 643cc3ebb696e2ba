//! Rows out of mapped chunks, as a decoder would hand them over.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericByteViewArray, RecordBatch, RecordBatchOptions, new_empty_array};
use arrow::buffer::Buffer;
use arrow::compute::concat;
use arrow::datatypes::{BinaryViewType, ByteViewType, DataType, SchemaRef, StringViewType};
use arrow::error::ArrowError;

use super::Chunked;
use crate::dataset::Slots;
use crate::dataset::interleave::interleave;
use crate::{Error, ErrorKind, Result};

/// Hands over rows of an entry with the types of `schema`, in chunks as asked.
///
/// Chunks of all rows are mapped memory, to be picked from and let go. Whatever comes in one piece, and rows of some slots, are copies, because
/// whoever asks for those keeps them.
pub(super) fn serve(chunks: &[RecordBatch], slots: Slots<'_>, schema: &SchemaRef, out: Chunked<'_>) -> Result<()> {
    let total: usize = chunks.iter().map(RecordBatch::num_rows).sum();
    match slots {
        Slots::All if out.rows >= total => (out.each)(copied(chunks, schema, total)?),
        Slots::All => in_chunks(chunks, schema, out),
        Slots::Some(slots) => picked(chunks, slots, schema, out),
    }
}

/// Whole chunks of as many rows as asked, which those kept may have or not.
fn in_chunks(chunks: &[RecordBatch], schema: &SchemaRef, out: Chunked<'_>) -> Result<()> {
    let wanted = out.rows.max(1);
    let (mut parts, mut have) = (Vec::new(), 0);
    for chunk in chunks {
        let mut start = 0;
        while start < chunk.num_rows() {
            let rows = (wanted - have).min(chunk.num_rows() - start);
            parts.push(if rows == chunk.num_rows() { chunk.clone() } else { chunk.slice(start, rows) });
            (start, have) = (start + rows, have + rows);
            if have == wanted {
                (out.each)(joined(&std::mem::take(&mut parts), schema, have)?)?;
                have = 0;
            }
        }
    }
    if have > 0 { (out.each)(joined(&parts, schema, have)?) } else { Ok(()) }
}

/// Copies of the rows at these slots.
fn picked(chunks: &[RecordBatch], slots: &[u32], schema: &SchemaRef, out: Chunked<'_>) -> Result<()> {
    let mut starts = Vec::with_capacity(chunks.len());
    let mut end = 0;
    for chunk in chunks {
        starts.push(end);
        end += chunk.num_rows();
    }
    let place = |slot: &u32| {
        let slot = *slot as usize;
        let chunk = starts.partition_point(|start| *start <= slot).checked_sub(1).filter(|_| slot < end);
        let chunk = chunk.ok_or_else(|| Error::new(ErrorKind::Internal, "an entry of the disk tier lacks rows"))?;
        Ok((chunk as u32, (slot - starts[chunk]) as u32))
    };
    let batches: Vec<&RecordBatch> = chunks.iter().collect();
    // No rows at all are handed over as well.
    let none: [&[u32]; 1] = [&[]];
    let pieces: Vec<&[u32]> = if slots.is_empty() { none.to_vec() } else { slots.chunks(out.rows.max(1)).collect() };
    for slots in pieces {
        let places = slots.iter().map(place).collect::<Result<Vec<_>>>()?;
        let types = chunks.first().map(RecordBatch::schema).unwrap_or_else(|| Arc::clone(schema));
        let rows = interleave(&batches, &places, &types).map_err(broken)?;
        let columns = rows.columns().iter().map(let_go).collect::<Result<Vec<_>, _>>().map_err(broken)?;
        (out.each)(batch(schema, columns, places.len())?)?;
    }
    Ok(())
}

/// Copies of all rows, in one batch.
fn copied(chunks: &[RecordBatch], schema: &SchemaRef, rows: usize) -> Result<RecordBatch> {
    let column = |number: usize| {
        // What is joined with nothing is copied nevertheless.
        let nothing = new_empty_array(chunks.first()?.column(number).data_type());
        let mut parts: Vec<&dyn Array> = chunks.iter().map(|chunk| chunk.column(number).as_ref()).collect();
        parts.push(nothing.as_ref());
        Some(concat(&parts).and_then(|whole| let_go(&whole)))
    };
    let columns = (0..schema.fields().len()).filter_map(column).collect::<Result<Vec<_>, _>>().map_err(broken)?;
    batch(schema, columns, rows)
}

fn joined(parts: &[RecordBatch], schema: &SchemaRef, rows: usize) -> Result<RecordBatch> {
    let columns = match parts {
        [only] => only.columns().to_vec(),
        _ => {
            let column = |number: usize| {
                let arrays: Vec<&dyn Array> = parts.iter().map(|part| part.column(number).as_ref()).collect();
                concat(&arrays)
            };
            (0..schema.fields().len()).map(column).collect::<Result<Vec<_>, _>>().map_err(broken)?
        }
    };
    batch(schema, columns, rows)
}

fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(broken)
}

/// Copies what views show: the values, or the buffers that have them where those are shorter.
fn let_go(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    fn copy<T: ByteViewType + ?Sized>(views: &GenericByteViewArray<T>) -> Result<ArrayRef, ArrowError> {
        let held: u64 = views.data_buffers().iter().map(|buffer| buffer.len() as u64).sum();
        let shown: u64 = views.lengths().map(u64::from).sum();
        if shown <= held {
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

fn broken(error: ArrowError) -> Error {
    Error::new(ErrorKind::TooLarge, format!("the rows do not fit one batch: {error}")).with_source(error)
}
