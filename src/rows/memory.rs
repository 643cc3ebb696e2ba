//! How many bytes of memory batches keep alive.
//!
//! An array's buffer is counted by the address of its allocation, so that it is counted once however many arrays
//! share it.

use std::collections::HashSet;

use arrow::array::{Array, ArrayData, AsArray, RecordBatch, downcast_primitive_array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::DataType;

use super::views::view_bytes;

/// Bytes of memory that a batch keeps alive.
pub(crate) fn bytes_of(batch: &RecordBatch) -> u64 {
    Footprint::default().add(batch)
}

/// Bytes of the rows of a batch that may be a part of what is held elsewhere.
pub(crate) fn bytes_of_part(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(|column| bytes_of_array(column.as_ref())).fold(0, u64::saturating_add)
}

/// Bytes of the values of an array, which may be a part of what is held elsewhere.
pub(crate) fn bytes_of_array(array: &dyn Array) -> u64 {
    match array.data_type().primitive_width() {
        Some(width) => (array.len() * width + array.nulls().map_or(0, |_| array.len().div_ceil(8))) as u64,
        None => {
            let data = array.to_data();
            data.get_slice_memory_size().map_or_else(|_| Footprint::default().add_data(&data), |bytes| bytes as u64)
        }
    }
}

/// Bytes that a batch adds to what its views share with what is held: their own, and the values that they show, which
/// stay for as long as the batch does.
pub(crate) fn bytes_shown(batch: &RecordBatch) -> u64 {
    let shown = batch.columns().iter().filter_map(|column| view_bytes(column.as_ref()));
    Footprint::without_values().add(batch) + shown.sum::<u64>()
}

/// Whether the values that views of batches keep alive are mostly values that they show.
pub(crate) fn show_what_they_keep(batches: &[RecordBatch]) -> bool {
    let (mut all, mut others) = (Footprint::default(), Footprint::without_values());
    let total = |footprint: &mut Footprint| batches.iter().map(|batch| footprint.add(batch)).sum::<u64>();
    let kept = total(&mut all).saturating_sub(total(&mut others));
    let columns = batches.iter().flat_map(RecordBatch::columns);
    kept / 2 <= columns.filter_map(|column| view_bytes(column.as_ref())).sum()
}

/// Counts what arrays add to the memory that is kept alive by the arrays counted before.
///
/// All arrays must be alive for as long as it counts: the allocator gives the address of a freed buffer to the next
/// one.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    seen: HashSet<usize>,
    /// The values of views are counted elsewhere.
    without_values: bool,
}

impl Footprint {
    /// Leaves the values of views out.
    pub(crate) fn without_values() -> Self {
        Self { without_values: true, ..Self::default() }
    }

    /// Bytes that a batch adds.
    pub(crate) fn add(&mut self, batch: &RecordBatch) -> u64 {
        batch.columns().iter().map(|column| self.add_array(column.as_ref())).fold(0, u64::saturating_add)
    }

    /// Bytes that an array adds.
    pub(crate) fn add_array(&mut self, array: &dyn Array) -> u64 {
        downcast_primitive_array!(
            array => self.add_flat(array.values().inner(), array.nulls()),
            _ => self.add_data(&array.to_data())
        )
    }

    fn add_flat(&mut self, values: &Buffer, nulls: Option<&NullBuffer>) -> u64 {
        let buffers = [Some(values), nulls.map(NullBuffer::buffer)];
        buffers.into_iter().flatten().map(|buffer| self.add_buffer(buffer)).sum()
    }

    fn add_buffer(&mut self, buffer: &Buffer) -> u64 {
        if self.seen.insert(place(buffer)) { buffer.capacity() as u64 } else { 0 }
    }

    fn add_data(&mut self, data: &ArrayData) -> u64 {
        // The first buffer of views has the views.
        let views = matches!(data.data_type(), DataType::Utf8View | DataType::BinaryView);
        let counted = if self.without_values && views { 1 } else { usize::MAX };
        let nulls = data.nulls().map(|nulls| nulls.buffer());
        let mut bytes = 0_u64;
        for buffer in data.buffers().iter().take(counted).chain(nulls) {
            bytes = bytes.saturating_add(self.add_buffer(buffer));
        }
        data.child_data().iter().map(|child| self.add_data(child)).fold(bytes, u64::saturating_add)
    }
}

/// Counts what each chunk of a row group adds to the chunks before it, which are not alive any more.
///
/// Rows that were picked as views keep the pages alive that the next chunks' views show, too, so those are counted
/// once. Every other buffer is the chunk's own.
#[derive(Debug, Default)]
pub(crate) struct ChunkBytes {
    shown: HashSet<usize>,
}

impl ChunkBytes {
    /// Bytes that the next chunk takes which the chunks before it did not.
    pub(crate) fn add(&mut self, chunk: &RecordBatch) -> u64 {
        // The arrays of a mapped chunk are all parts of one buffer.
        let mut own = HashSet::new();
        chunk.columns().iter().map(|column| self.add_column(column.as_ref(), &mut own)).sum()
    }

    fn add_column(&mut self, column: &dyn Array, own: &mut HashSet<usize>) -> u64 {
        let pages = match (column.as_string_view_opt(), column.as_binary_view_opt()) {
            (Some(strings), _) => strings.data_buffers(),
            (_, Some(binary)) => binary.data_buffers(),
            _ => {
                return downcast_primitive_array!(
                    column => {
                        let buffers = [Some(column.values().inner()), column.nulls().map(NullBuffer::buffer)];
                        buffers.into_iter().flatten().map(|buffer| self.own_buffer(buffer, own)).sum()
                    },
                    _ => self.own_bytes(&column.to_data(), own)
                );
            }
        };
        let new = pages.iter().filter(|page| self.shown.insert(place(page)) && !own.contains(&place(page)));
        new.map(|page| page.capacity() as u64).sum::<u64>() + 16 * column.len() as u64
    }

    fn own_buffer(&self, buffer: &Buffer, own: &mut HashSet<usize>) -> u64 {
        let new = own.insert(place(buffer)) && !self.shown.contains(&place(buffer));
        if new { buffer.capacity() as u64 } else { 0 }
    }

    fn own_bytes(&self, data: &ArrayData, own: &mut HashSet<usize>) -> u64 {
        let nulls = data.nulls().map(|nulls| nulls.buffer());
        let bytes: u64 = data.buffers().iter().chain(nulls).map(|buffer| self.own_buffer(buffer, own)).sum();
        bytes + data.child_data().iter().map(|child| self.own_bytes(child, own)).sum::<u64>()
    }
}

/// Where a buffer's allocation begins.
fn place(buffer: &Buffer) -> usize {
    buffer.data_ptr().as_ptr() as usize
}
