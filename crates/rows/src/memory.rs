//! How many bytes of memory batches keep alive.
//!
//! An array's buffer is counted by the address of its allocation, so that it is counted once however many arrays
//! share it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, downcast_primitive_array};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::dictionary::has_dictionary;
use super::nested::{dictionary_arrays, values_of};
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
        None => bytes_of_data(&array.to_data()),
    }
}

/// The same of its data.
pub(super) fn bytes_of_data(data: &ArrayData) -> u64 {
    data.get_slice_memory_size().map_or_else(|_| Footprint::default().add_data(data), |bytes| bytes as u64)
}

/// Buffers that count elsewhere, by the addresses of their allocations.
#[derive(Debug, Clone, Default)]
pub struct Elsewhere(Arc<HashSet<usize>>);

impl Elsewhere {
    /// These and those of the dictionaries of a batch.
    pub fn and_dictionaries_of(&self, batch: &RecordBatch) -> Self {
        let values = batch.columns().iter().flat_map(values_of);
        values.fold(self.clone(), |elsewhere, values| elsewhere.and(&values))
    }

    /// These and those of an array.
    pub(super) fn and(mut self, data: &ArrayData) -> Self {
        let places = Arc::make_mut(&mut self.0);
        places.extend(buffers_of(data).map(place));
        self
    }

    /// Whether the buffers of an array do.
    pub(super) fn has(&self, data: &ArrayData) -> bool {
        !self.0.is_empty() && buffers_of(data).all(|buffer| self.0.contains(&place(buffer)))
    }
}

fn buffers_of(data: &ArrayData) -> impl Iterator<Item = &Buffer> {
    data.buffers().iter().chain(data.nulls().map(|nulls| nulls.buffer()))
}

/// Bytes of batches that follow each other. Each may be a part of what is held elsewhere, but for dictionaries, which
/// count once.
pub fn bytes_of_parts<'a>(batches: impl Iterator<Item = &'a RecordBatch>, elsewhere: &Elsewhere) -> u64 {
    let mut footprint = Footprint::beside(elsewhere);
    let column = |column: &ArrayRef| {
        let all = bytes_of_array(column.as_ref());
        if !has_dictionary(column.data_type()) {
            return all;
        }
        let of = |values: &ArrayData| (bytes_of_data(values), footprint.add_data(values));
        values_of(column).iter().map(of).fold(all, |all, (values, new)| all.saturating_sub(values) + new)
    };
    batches.flat_map(RecordBatch::columns).map(column).fold(0, u64::saturating_add)
}

/// Bytes that batches add to what their views share with what is held: their own, and the values that they show, which
/// stay for as long as the batches do.
pub fn bytes_shown<'a>(batches: impl Iterator<Item = &'a RecordBatch>, elsewhere: &Elsewhere) -> u64 {
    let mut footprint = Footprint::beside(elsewhere).without_values();
    let shown =
        |batch: &RecordBatch| -> u64 { batch.columns().iter().filter_map(|column| view_bytes(column.as_ref())).sum() };
    batches.map(|batch| footprint.add(batch) + shown(batch)).sum()
}

/// Whether the values that views of batches keep alive are mostly values that they show, and no dictionary has more
/// values than rows, unless it counts elsewhere.
pub fn show_what_they_keep(batches: &[RecordBatch], elsewhere: &Elsewhere) -> bool {
    let mut dictionaries = batches.iter().flat_map(RecordBatch::columns).flat_map(dictionary_arrays);
    if dictionaries.any(|array| {
        let values = array.as_any_dictionary().values();
        values.len() > array.len() && !elsewhere.has(&values.to_data())
    }) {
        return false;
    }
    let mut all = Footprint::default();
    let mut others = Footprint::default().without_values();
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
    elsewhere: Elsewhere,
    /// The values of views are counted elsewhere.
    without_values: bool,
}

impl Footprint {
    /// Leaves the values of views out.
    #[must_use]
    pub fn without_values(self) -> Self {
        Self { without_values: true, ..self }
    }

    /// Leaves out what counts elsewhere.
    pub fn beside(elsewhere: &Elsewhere) -> Self {
        Self { elsewhere: elsewhere.clone(), ..Self::default() }
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
        let is_new = self.seen.insert(place(buffer)) && !self.elsewhere.0.contains(&place(buffer));
        if is_new { buffer.capacity() as u64 } else { 0 }
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
    /// The pages and dictionaries that the last chunk shows, by their addresses. They are kept, because the allocator
    /// gives the address of a freed buffer to the next one.
    shown: HashMap<usize, Buffer>,
    elsewhere: Elsewhere,
}

impl ChunkBytes {
    /// Leaves out what counts elsewhere.
    pub fn beside(elsewhere: &Elsewhere) -> Self {
        Self { elsewhere: elsewhere.clone(), ..Self::default() }
    }

    /// Bytes that the next chunk takes which the chunk before it did not.
    pub fn add(&mut self, chunk: &RecordBatch) -> u64 {
        let mut footprint = Footprint::beside(&self.elsewhere);
        footprint.seen.extend(self.shown.keys());
        let bytes = footprint.add(chunk);
        self.shown.clear();
        let columns = chunk.columns().iter().filter(|column| !column.data_type().is_primitive());
        columns.for_each(|column| self.show(&column.to_data()));
        bytes
    }

    fn show(&mut self, data: &ArrayData) {
        let mut keep = |buffer: &Buffer| drop(self.shown.insert(place(buffer), buffer.clone()));
        match data.data_type() {
            DataType::Utf8View | DataType::BinaryView => data.buffers().iter().skip(1).for_each(keep),
            DataType::Dictionary(_, _) => data.child_data().iter().flat_map(buffers_of).for_each(&mut keep),
            _ => data.child_data().iter().for_each(|below| self.show(below)),
        }
    }
}

/// Where a buffer's allocation begins.
fn place(buffer: &Buffer) -> usize {
    buffer.data_ptr().as_ptr() as usize
}
