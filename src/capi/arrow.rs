//! Record batches as the structs of the Arrow C data interface.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_schema::ArrowError;
use arrow_schema::{DataType, Schema};

use super::error::{give, rowdex_error, rowdex_status};
use super::handle::{self, require};
use rowdex_base::error::{Error, ErrorKind, Result};

/// Writes another struct for the same Arrow schema, which the caller releases, too.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_schema_copy(
    schema: Option<&FFI_ArrowSchema>,
    copy: Option<&mut MaybeUninit<FFI_ArrowSchema>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    give(error, copy, "copy", || {
        let schema = require(schema, "schema")?;
        if is_released(schema) {
            return Err(handle::invalid("the schema was released, or moved elsewhere"));
        }
        let schema = Schema::try_from(schema).map_err(|error| {
            Error::new(ErrorKind::Schema, format!("not the schema of columns: {error}")).with_source(error)
        })?;
        export_schema(&schema)
    })
}

/// Whether a schema has nothing to be read any more, which its release function being NULL says.
fn is_released(schema: &FFI_ArrowSchema) -> bool {
    /// Pointers and numbers of eight bytes before it: the format, the name, the metadata, the flags, the number of
    /// children, the children, and the dictionary.
    const BEFORE: usize = 7;
    const { assert!(size_of::<FFI_ArrowSchema>() == 9 * 8 && size_of::<*const c_void>() == 8) };
    // SAFETY: the struct is that of the Arrow C data interface, of nine fields of eight bytes each, of which this is
    // one; a pointer to a function that may be NULL is read as any pointer is.
    unsafe { (*ptr::from_ref(schema).cast::<*const c_void>().add(BEFORE)).is_null() }
}

/// Calls the release function of an Arrow schema, unless it was released or moved: for languages in which a destructor
/// is an address. The struct itself stays the caller's.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_schema_release(schema: Option<&mut FFI_ArrowSchema>) {
    release(schema.map(|schema| std::mem::replace(schema, FFI_ArrowSchema::empty())));
}

/// As rowdex_schema_release, for an Arrow array.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_array_release(array: Option<&mut FFI_ArrowArray>) {
    release(array.map(|array| std::mem::replace(array, FFI_ArrowArray::empty())));
}

fn release<T>(given: Option<T>) {
    // What a destructor that panics leaves behind is leaked, which is all that can be done.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(given)));
}

/// The schema as a struct type, with a child for each column.
pub(super) fn export_schema(schema: &Schema) -> Result<FFI_ArrowSchema> {
    check_names(schema)?;
    FFI_ArrowSchema::try_from(schema).map_err(|error| {
        let message = format!("the schema cannot be expressed in the Arrow C data interface: {error}");
        Error::new(ErrorKind::Schema, message).with_source(error)
    })
}

/// Rows as a struct array without nulls of its own, with a child for each column; buffers are shared, not copied.
///
/// Outputs are written when nothing can fail any more.
pub(super) fn export_batch(
    batch: RecordBatch,
    array: &mut MaybeUninit<FFI_ArrowArray>,
    schema: Option<&mut MaybeUninit<FFI_ArrowSchema>>,
) -> Result<()> {
    let exported = schema.is_some().then(|| export_schema(&batch.schema())).transpose()?;
    array.write(FFI_ArrowArray::new(&StructArray::from(batch).into_data()));
    if let (Some(place), Some(exported)) = (schema, exported) {
        place.write(exported);
    }
    Ok(())
}

/// One array and its type. Outputs are written when nothing can fail any more.
pub(super) fn export_array(
    made: &dyn Array,
    array: &mut MaybeUninit<FFI_ArrowArray>,
    schema: Option<&mut MaybeUninit<FFI_ArrowSchema>>,
) -> Result<()> {
    if let Some(place) = schema {
        let exported = FFI_ArrowSchema::try_from(made.data_type()).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("the type of an array cannot be exported: {error}"))
        })?;
        place.write(exported);
    }
    array.write(FFI_ArrowArray::new(&made.to_data()));
    Ok(())
}

/// A stream of the caller's.
pub(super) struct GivenStream(ArrowArrayStreamReader);

impl Iterator for GivenStream {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        // Arrow's reader panics where a stream fails without a message, which it may do.
        catch_unwind(AssertUnwindSafe(|| self.0.next())).unwrap_or_else(|_| {
            Some(Err(ArrowError::CDataInterface("the stream failed, and does not say why".to_owned())))
        })
    }
}

/// Takes a stream over, which is released whatever happens.
///
/// # Safety
/// The pointer is NULL or one to a stream of whoever calls, as the header says. It is marked as moved from.
pub(super) unsafe fn stream_of(stream: *mut FFI_ArrowArrayStream) -> Result<GivenStream> {
    if stream.is_null() || !stream.is_aligned() {
        return Err(handle::null("stream"));
    }
    // SAFETY: the caller's promise.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream) };
    ArrowArrayStreamReader::try_new(stream).map(GivenStream).map_err(|error| {
        Error::new(ErrorKind::InvalidArgument, format!("cannot read the stream: {error}")).with_source(error)
    })
}

/// C strings cannot hold every name, and every time zone, that Parquet can.
fn check_names(schema: &Schema) -> Result<()> {
    for field in schema.flattened_fields() {
        let values = if let DataType::Dictionary(_, values) = field.data_type() { values } else { field.data_type() };
        let zone = if let DataType::Timestamp(_, Some(zone)) = values { zone } else { "" };
        if field.name().contains('\0') || zone.contains('\0') {
            let message = "a name or a time zone with a NUL cannot be expressed in the Arrow C data interface";
            return Err(Error::new(ErrorKind::Schema, message)
                .with_column(field.name().replace('\0', "\u{fffd}"))
                .with_hint("choose other columns"));
        }
    }
    Ok(())
}
