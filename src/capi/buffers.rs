//! Columns of fixed width, copied into the caller's buffers.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;

use super::handle;
use rowdex_base::error::{Error, ErrorKind, Result};

/// Where the values of one column go.
///
/// Numbers, dates, times, decimals and fixed-size binary are written as Arrow lays them out, booleans as one byte each,
/// and lists of a fixed size of these one after another. Where `validity` is given, it gets 1 for each row that has a
/// value and 0 for each that is null, whose value is written as zeros. Without it a null is an error, and so is one
/// inside a list, anyway.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_column_buffer {
    /// The place of the column in the schema.
    pub column: usize,
    /// Where the values go, in the order of the rows. It need not be aligned.
    pub values: *mut c_void,
    /// How many bytes these are: exactly the number of rows times the width of the type.
    pub values_bytes: usize,
    /// Where the validity goes, one byte for each row; may be NULL.
    pub validity: *mut u8,
}

/// Copies columns of a batch into the caller's buffers; writes nothing unless all can be written.
///
/// # Safety
/// Each buffer is as its description says, and overlaps no other one.
pub(super) unsafe fn copy_into(batch: &RecordBatch, columns: &[rowdex_column_buffer]) -> Result<()> {
    let mut ready = Vec::with_capacity(columns.len());
    for buffer in columns {
        let Some(array) = batch.columns().get(buffer.column) else {
            let message = format!("column {} of {}", buffer.column, batch.num_columns());
            return Err(Error::new(ErrorKind::OutOfRange, message).with_hint("columns count from 0"));
        };
        let schema = batch.schema_ref();
        let name = schema.field(buffer.column).name();
        // SAFETY: the caller's promise.
        let prepared = unsafe { Prepared::new(array, buffer) };
        ready.push(prepared.map_err(|error| error.with_column(name))?);
    }
    ready.into_iter().for_each(Prepared::write);
    Ok(())
}

/// A column and its buffer, which are known to fit.
struct Prepared<'a> {
    array: &'a dyn Array,
    bytes: Buffer,
    width: usize,
    values: &'a mut [MaybeUninit<u8>],
    validity: Option<&'a mut [MaybeUninit<u8>]>,
}

impl<'a> Prepared<'a> {
    /// # Safety
    /// As [`copy_into`].
    unsafe fn new(array: &'a dyn Array, buffer: &rowdex_column_buffer) -> Result<Self> {
        let width = width(array.data_type()).ok_or_else(|| {
            let message = format!("a column of type {} has no fixed width", array.data_type());
            Error::new(ErrorKind::Schema, message).with_hint("take it as Arrow")
        })?;
        let needed = array.len().checked_mul(width);
        if needed != Some(buffer.values_bytes) {
            let message = format!(
                "a buffer of {} bytes for {} rows of {width} bytes ({})",
                buffer.values_bytes,
                array.len(),
                array.data_type()
            );
            return Err(handle::invalid(message));
        }
        if buffer.validity.is_null() && array.null_count() > 0 {
            return Err(Error::new(
                ErrorKind::Schema,
                format!("{} of {} values are null", array.null_count(), array.len()),
            )
            .with_hint("give a buffer for the validity"));
        }
        let bytes = value_bytes(array)?;
        // SAFETY: the caller's promise.
        let values = unsafe { handle::buffer(buffer.values.cast(), buffer.values_bytes, "values") }?;
        let validity = match buffer.validity.is_null() {
            true => None,
            // SAFETY: as above.
            false => Some(unsafe { handle::buffer(buffer.validity, array.len(), "validity") }?),
        };
        if bytes.len() != values.len() {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("{} bytes of values, not {}", bytes.len(), values.len()),
            ));
        }
        Ok(Self { array, bytes, width, values, validity })
    }

    fn write(self) {
        self.values.write_copy_of_slice(&self.bytes);
        let nulls = self.array.nulls().filter(|nulls| nulls.null_count() > 0);
        if let (Some(nulls), true) = (nulls, self.width > 0) {
            for (value, valid) in self.values.chunks_exact_mut(self.width).zip(nulls) {
                if !valid {
                    value.fill(MaybeUninit::new(0));
                }
            }
        }
        if let Some(validity) = self.validity {
            validity.fill(MaybeUninit::new(1));
            if let Some(nulls) = nulls {
                for (place, valid) in validity.iter_mut().zip(nulls) {
                    place.write(valid.into());
                }
            }
        }
    }
}

/// How many bytes a value takes in a buffer; `None` if that differs from value to value.
fn width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Boolean => Some(1),
        DataType::FixedSizeBinary(width) => usize::try_from(*width).ok(),
        DataType::FixedSizeList(item, len) => width(item.data_type())?.checked_mul(usize::try_from(*len).ok()?),
        other => other.primitive_width(),
    }
}

/// The values of an array of fixed width, one after another; what is under nulls is anything.
fn value_bytes(array: &dyn Array) -> Result<Buffer> {
    match array.data_type() {
        DataType::Boolean => Ok(array.as_boolean().values().iter().map(u8::from).collect::<Vec<u8>>().into()),
        DataType::FixedSizeList(_, len) => {
            let list = array.as_fixed_size_list();
            let items = list.values();
            if let Some(nulls) = items.nulls().filter(|nulls| nulls.null_count() > 0) {
                let len = usize::try_from(*len).unwrap_or_default().max(1);
                let bad = (0..items.len()).find(|item| nulls.is_null(*item) && list.is_valid(item / len));
                if let Some(item) = bad {
                    let message = format!("a null inside the list of row {} of the batch", item / len);
                    return Err(Error::new(ErrorKind::Schema, message).with_hint("take it as Arrow"));
                }
            }
            value_bytes(items)
        }
        data_type => {
            let width = width(data_type).unwrap_or_default();
            let data = array.to_data();
            let from = data.offset().checked_mul(width);
            let len = data.len().checked_mul(width);
            let whole = data.buffers().first();
            match (whole, from, len) {
                (Some(whole), Some(from), Some(len)) if from.checked_add(len).is_some_and(|end| end <= whole.len()) => {
                    Ok(whole.slice_with_length(from, len))
                }
                _ => {
                    let message = format!("an array of type {data_type} has a buffer of another size");
                    Err(Error::new(ErrorKind::Internal, message))
                }
            }
        }
    }
}
