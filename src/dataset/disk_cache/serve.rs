//! Rows out of mapped chunks, as a decoder would hand them over.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;

use crate::dataset::reader::Slots;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_parquet::RowSink;
use rowdex_rows::{Chunks, detach, gather, join_exactly, record_batch, uncopied};

/// Hands over rows of an entry with the types of `schema`, in chunks as asked.
///
/// Chunks of all rows are mapped memory, to be picked from and let go. Whatever comes in one piece, and rows of some
/// slots, are copies, because whoever asks for those keeps them.
pub(super) fn serve(
    chunks: &[RecordBatch],
    slots: Slots<'_>,
    schema: &SchemaRef,
    sink: &mut dyn RowSink,
) -> Result<()> {
    let total: usize = chunks.iter().map(RecordBatch::num_rows).sum();
    match slots {
        Slots::All if sink.chunk_rows() >= total => sink.take(copied(chunks, schema, total)?),
        Slots::All => in_chunks(chunks, schema, sink),
        Slots::Some(slots) | Slots::Due(slots) => picked(chunks, slots, schema, sink),
    }
}

/// Whole chunks of as many rows as asked, which those kept may have or not.
fn in_chunks(kept: &[RecordBatch], schema: &SchemaRef, sink: &mut dyn RowSink) -> Result<()> {
    let mut chunks = Chunks::of(sink.chunk_rows());
    for chunk in kept {
        chunks.push(record_batch(schema, chunk.columns().to_vec(), chunk.num_rows()).map_err(uncopied)?);
        while let Some(chunk) = chunks.next_chunk()? {
            sink.take(chunk)?;
        }
    }
    chunks.last()?.map_or(Ok(()), |chunk| sink.take(chunk))
}

/// Copies of the rows at these slots.
fn picked(chunks: &[RecordBatch], slots: &[u32], schema: &SchemaRef, sink: &mut dyn RowSink) -> Result<()> {
    let mut starts = Vec::with_capacity(chunks.len());
    let mut end = 0;
    for chunk in chunks {
        starts.push(end);
        end += chunk.num_rows();
    }
    let place = |slot: &u32| {
        let slot = *slot as usize;
        let chunk = starts.partition_point(|start| *start <= slot).checked_sub(1).filter(|_| slot < end);
        let chunk = chunk.ok_or_else(|| Error::new(ErrorKind::Internal, "an entry of the disk cache lacks rows"))?;
        Ok((chunk as u32, (slot - starts[chunk]) as u32))
    };
    let batches: Vec<&RecordBatch> = chunks.iter().collect();
    // No rows at all are handed over as well.
    let none: [&[u32]; 1] = [&[]];
    let pieces: Vec<&[u32]> =
        if slots.is_empty() { none.to_vec() } else { slots.chunks(sink.chunk_rows().max(1)).collect() };
    for slots in pieces {
        let places = slots.iter().map(place).collect::<Result<Vec<_>>>()?;
        let types = chunks.first().map(RecordBatch::schema).unwrap_or_else(|| Arc::clone(schema));
        let rows = gather(&batches, &places, &types)?;
        sink.take(detached(schema, rows.columns(), places.len())?)?;
    }
    Ok(())
}

/// Copies of all rows, in one batch.
fn copied(chunks: &[RecordBatch], schema: &SchemaRef, rows: usize) -> Result<RecordBatch> {
    let types = chunks.first().map_or_else(|| Arc::clone(schema), RecordBatch::schema);
    // What is joined with nothing is copied nevertheless.
    let parts = chunks.iter().cloned().chain([RecordBatch::new_empty(Arc::clone(&types))]).collect();
    detached(schema, join_exactly(&types, parts)?.columns(), rows)
}

fn detached(schema: &SchemaRef, columns: &[ArrayRef], rows: usize) -> Result<RecordBatch> {
    let columns = columns.iter().map(detach).collect::<Result<Vec<_>, _>>().map_err(uncopied)?;
    record_batch(schema, columns, rows).map_err(uncopied)
}
