//! The tokens of packs, as the arrays that a model takes.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::{ArrayRef, Int32Array, Int64Array, ListArray, RecordBatch};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{Field, Schema};

use super::arrow::export_batch;
use super::batch::rowdex_batch;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, GivenOptions, out_param, require};
use crate::loader::{Batch, PackLayout, Sequences, Sequencing};
use rowdex_base::error::{Error, ErrorKind, Result};

/// How the tokens of packs come. All zeros are the defaults.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_sequence_options {
    /// "flat" (NULL): packs one after the other, as long as each is. "rows": each has as many places as its capacity,
    /// of which those behind its pieces are filled up.
    pub layout: *const c_char,
    /// 1 makes no labels where no column has them.
    pub without_labels: u64,
    /// The token that each row begins with, one of the extra ones that packs reserve. NULL: none is added.
    pub bos: *const i64,
    /// The token that each row ends with, as bos.
    pub eos: *const i64,
    /// The token of places that are filled up.
    pub pad: i64,
}

// SAFETY: pointers and integers.
unsafe impl GivenOptions for rowdex_sequence_options {}

/// The tokens of a batch of packs as the arrays that a model takes: an Arrow struct array that the caller releases, and
/// its type (may be NULL if it is not wanted). The struct has one row, and its children are lists, each of which is one
/// of the arrays.
///
/// `tokens`, under the name of the column: the tokens of all packs, one after the other. `cu_seqlens` (int32): where
/// each piece begins, and where the last one ends; `pack_offsets` (int32): the same of packs, counted in tokens, too;
/// `max_seqlen` (int32, one number): the longest piece; `lengths` (int32): the tokens of each piece, without those that
/// fill it up. For each token `position_ids` (int64), which restart at each piece; `segment_ids` (int32), which number
/// the pieces of a pack from 1, and are 0 where nothing but filling is; and `labels` (int64): the label of the token
/// that follows in the row, or -100. That is the token itself, unless a column has labels. For each piece `row_ids` and
/// `offsets` (int64): which row it is of, and from which token on. Other columns with an item for each token come under
/// their names: for each token the item of the one that follows in the row, or 0.
///
/// Nothing is copied of tokens that nothing is added to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_batch_sequences(
    batch: Option<&rowdex_batch>,
    options: Option<&rowdex_sequence_options>,
    array: Option<&mut MaybeUninit<FFI_ArrowArray>>,
    schema: Option<&mut MaybeUninit<FFI_ArrowSchema>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let batch = &require(batch, "batch")?.batch;
        let out = out_param(array, "array")?;
        let options = GivenOptions::of(options);
        // SAFETY: the conventions of the header.
        let layout = unsafe { handle::optional_text(options.layout, "options.layout") }?;
        let how = Sequencing {
            layout: layout.map_or(Ok(PackLayout::default()), str::parse)?,
            labels: options.without_labels == 0,
            // SAFETY: as above.
            bos: unsafe { options.bos.as_ref() }.copied(),
            // SAFETY: as above.
            eos: unsafe { options.eos.as_ref() }.copied(),
            pad: options.pad,
        };
        export_batch(one_row(batch, batch.sequences(&how)?)?, out, schema)
    })
}

/// All arrays, each as a list of the only row.
fn one_row(batch: &Batch, made: Sequences) -> Result<RecordBatch> {
    let Some((packs, tokens)) = batch.packs.as_ref().and_then(|packs| Some((packs, packs.column()?))) else {
        return Err(Error::new(ErrorKind::Internal, "sequences of no packs"));
    };
    let offsets: Int64Array = packs.pieces.iter().map(|piece| piece.offset as i64).collect();
    let rows: Int64Array = batch.row_ids.iter().map(|row| *row as i64).collect();
    let int32 = |numbers| Arc::new(Int32Array::new(numbers, None)) as ArrayRef;
    let int64 = |numbers| Arc::new(Int64Array::new(numbers, None)) as ArrayRef;
    let arrays = [
        (tokens, Some(made.tokens)),
        ("cu_seqlens", Some(int32(made.cu_seqlens))),
        ("pack_offsets", Some(int32(made.pack_offsets))),
        ("max_seqlen", Some(int32(vec![made.max_seqlen].into()))),
        ("lengths", Some(int32(made.lengths))),
        ("position_ids", Some(int64(made.position_ids))),
        ("segment_ids", Some(int32(made.segment_ids))),
        ("labels", made.labels.map(int64)),
        ("row_ids", Some(Arc::new(rows))),
        ("offsets", Some(Arc::new(offsets))),
    ];
    let beside = made.beside.schema();
    let beside = beside.fields().iter().map(|field| field.name().as_str());
    let beside: Vec<_> = beside.zip(made.beside.columns().iter().cloned().map(Some)).collect();
    let named = beside.iter().chain(&arrays[..1]).map(|(name, _)| *name);
    if let Some(name) = named.into_iter().find(|own| arrays.iter().skip(1).any(|(name, _)| name == own)) {
        return Err(handle::invalid("a column with the tokens, or an item for each, has the name of another array")
            .with_column(name)
            .with_hint("rename the column when the index is built"));
    }
    let mut fields: Vec<Field> = Vec::new();
    let mut lists: Vec<ArrayRef> = Vec::new();
    for (name, array) in arrays.into_iter().chain(beside) {
        let Some(array) = array else { continue };
        let item = Arc::new(Field::new("item", array.data_type().clone(), false));
        let ends = OffsetBuffer::from_lengths([array.len()]);
        let list = ListArray::try_new(item, ends, array, None).map_err(rowdex_rows::uncopied)?;
        fields.push(Field::new(name, arrow_array::Array::data_type(&list).clone(), false));
        lists.push(Arc::new(list));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), lists).map_err(rowdex_rows::uncopied)
}
