//! How many bytes of memory batches keep alive.
//!
//! An array's buffer is counted by the address of its allocation, so that it is counted once however many arrays
//! share it.

use std::collections::{HashMap, HashSet};

use arrow::array::{Array, ArrayData, AsArray, RecordBatch, downcast_primitive_array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::DataType;

use super::views::view_bytes;

/// Bytes of memory that a batch keeps alive.
pub fn bytes_of(batch: &RecordBatch) -> u64 {
    Footprint::default().add(batch)
}

/// Bytes of the rows of a batch that may be a part of what is held elsewhere.
pub fn bytes_of_part(batch: &RecordBatch) -> u64 {
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
pub fn bytes_shown(batch: &RecordBatch) -> u64 {
    let shown = batch.columns().iter().filter_map(|column| view_bytes(column.as_ref()));
    Footprint::without_values().add(batch) + shown.sum::<u64>()
}

/// Whether the values that views of batches keep alive are mostly values that they show.
pub fn show_what_they_keep(batches: &[RecordBatch]) -> bool {
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
pub struct Footprint {
    seen: HashSet<usize>,
    /// The values of views are counted elsewhere.
    without_values: bool,
}

impl Footprint {
    /// Leaves the values of views out.
    pub fn without_values() -> Self {
        Self { without_values: true, ..Self::default() }
    }

    /// Bytes that a batch adds.
    pub fn add(&mut self, batch: &RecordBatch) -> u64 {
        batch.columns().iter().map(|column| self.add_array(column.as_ref())).fold(0, u64::saturating_add)
    }

    /// Bytes that an array adds.
    pub fn add_array(&mut self, array: &dyn Array) -> u64 {
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

/// Counts what each chunk of a row group adds to the chunk before it, which is not alive any more.
///
/// Views of two chunks that follow each other may show the same pages, and a dictionary is shown by all, so those are
/// counted once. Every other buffer is the chunk's own.
#[derive(Debug, Default)]
pub struct ChunkBytes {
    /// The pages that the last chunk shows, by their addresses. They are kept, because the allocator gives the address
    /// of a freed buffer to the next one.
    shown: HashMap<usize, Buffer>,
}

impl ChunkBytes {
    /// Bytes that the next chunk takes which the chunk before it did not.
    pub fn add(&mut self, chunk: &RecordBatch) -> u64 {
        // The arrays of a mapped chunk are all parts of one buffer.
        let (mut own, mut shown) = (HashSet::new(), HashMap::new());
        let bytes = chunk.columns().iter().map(|column| self.add_column(column.as_ref(), &mut own, &mut shown)).sum();
        self.shown = shown;
        bytes
    }

    fn add_column(&self, column: &dyn Array, own: &mut HashSet<usize>, shown: &mut HashMap<usize, Buffer>) -> u64 {
        let pages = match (column.as_string_view_opt(), column.as_binary_view_opt()) {
            (Some(strings), _) => strings.data_buffers(),
            (_, Some(binary)) => binary.data_buffers(),
            _ => {
                return downcast_primitive_array!(
                    column => {
                        let buffers = [Some(column.values().inner()), column.nulls().map(NullBuffer::buffer)];
                        buffers.into_iter().flatten().map(|buffer| own_buffer(buffer, own, shown)).sum()
                    },
                    _ => own_bytes(&column.to_data(), own, shown)
                );
            }
        };
        let mut bytes = 16 * column.len() as u64;
        for page in pages {
            let is_new = shown.insert(place(page), page.clone()).is_none();
            if is_new && !self.shown.contains_key(&place(page)) && !own.contains(&place(page)) {
                bytes += page.capacity() as u64;
            }
        }
        bytes
    }
}

fn own_buffer(buffer: &Buffer, own: &mut HashSet<usize>, shown: &HashMap<usize, Buffer>) -> u64 {
    let new = own.insert(place(buffer)) && !shown.contains_key(&place(buffer));
    if new { buffer.capacity() as u64 } else { 0 }
}

fn own_bytes(data: &ArrayData, own: &mut HashSet<usize>, shown: &HashMap<usize, Buffer>) -> u64 {
    let nulls = data.nulls().map(|nulls| nulls.buffer());
    let bytes: u64 = data.buffers().iter().chain(nulls).map(|buffer| own_buffer(buffer, own, shown)).sum();
    bytes + data.child_data().iter().map(|child| own_bytes(child, own, shown)).sum::<u64>()
}

/// Where a buffer's allocation begins.
fn place(buffer: &Buffer) -> usize {
    buffer.data_ptr().as_ptr() as usize
}
