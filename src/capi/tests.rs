//! What the C programs under `tests/capi` cannot reach: nulls inside lists, panics, names with a NUL.

mod handles;

use std::mem::MaybeUninit;
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::{ArrayRef, FixedSizeListArray, Int32Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, TimeUnit};

use super::arrow::export_batch;
use super::error::{call, rowdex_error, rowdex_error_message, rowdex_status};
use rowdex_base::error::ErrorKind;

fn pairs(values: Vec<Option<[Option<i32>; 2]>>) -> FixedSizeListArray {
    let items: Int32Array = values.iter().flat_map(|pair| pair.unwrap_or([Some(7), None])).collect();
    let nulls = values.iter().map(Option::is_some).collect::<Vec<_>>().into();
    let field = Arc::new(Field::new_list_field(DataType::Int32, true));
    FixedSizeListArray::new(field, 2, Arc::new(items), Some(nulls))
}

#[test]
fn a_batch_survives_the_trip_through_the_c_data_interface() {
    let columns: [(&str, ArrayRef); 2] = [
        ("a", Arc::new(pairs(vec![None, Some([Some(1), None])]))),
        ("b", Arc::new(StringArray::from(vec![Some("x"), None]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let (mut array, mut schema) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    export_batch(batch.clone(), &mut array, Some(&mut schema)).unwrap();
    // SAFETY: both were written, because the export succeeded.
    let (array, schema): (FFI_ArrowArray, FFI_ArrowSchema) = unsafe { (array.assume_init(), schema.assume_init()) };
    // SAFETY: they came from an export.
    let data = unsafe { from_ffi(array, &schema) }.unwrap();
    assert_eq!(RecordBatch::from(arrow_array::StructArray::from(data)), batch);
}

#[test]
fn a_batch_without_columns_keeps_its_rows() {
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(5));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
    let mut array = MaybeUninit::uninit();
    export_batch(batch, &mut array, None).unwrap();
    // SAFETY: written, because the export succeeded.
    assert_eq!(unsafe { array.assume_init() }.len(), 5);
}

#[test]
fn a_column_name_with_a_nul_is_an_error_and_no_panic() {
    let field = Field::new("in\0ner", DataType::Int8, true);
    let schema = Schema::new(vec![Field::new_list("outer", Field::new_struct("item", vec![field], true), true)]);
    let batch = RecordBatch::new_empty(Arc::new(schema));
    let (mut array, mut schema) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let refused = export_batch(batch, &mut array, Some(&mut schema)).unwrap_err();
    assert_eq!((refused.kind(), refused.column()), (ErrorKind::Schema, Some("in\u{fffd}ner")));
}

#[test]
fn a_time_zone_with_a_nul_is_an_error_and_no_panic() {
    let zoned = DataType::Timestamp(TimeUnit::Second, Some("U\0TC".into()));
    let coded = DataType::Dictionary(Box::new(DataType::Int8), Box::new(zoned.clone()));
    for data_type in [zoned, coded] {
        let batch = RecordBatch::new_empty(Arc::new(Schema::new(vec![Field::new("when", data_type, true)])));
        let (mut array, mut schema) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let refused = export_batch(batch, &mut array, Some(&mut schema)).unwrap_err();
        assert_eq!((refused.kind(), refused.column()), (ErrorKind::Schema, Some("when")));
    }
}

#[test]
fn a_panic_is_an_internal_error_with_its_message() {
    let mut error = MaybeUninit::<*mut rowdex_error>::uninit();
    let nothing: Vec<u8> = Vec::new();
    let status = call(Some(&mut error), || {
        let _ = nothing[usize::from(nothing.is_empty())];
        Ok(())
    });
    assert_eq!(status, rowdex_status::Internal);
    // SAFETY: written, because the call failed, and owned by us.
    let error = handles::Made(unsafe { error.assume_init() });
    // SAFETY: the message lives as long as the error.
    let message = unsafe { std::ffi::CStr::from_ptr(rowdex_error_message(Some(&error))) };
    assert!(message.to_str().unwrap().contains("index out of bounds"));
}
