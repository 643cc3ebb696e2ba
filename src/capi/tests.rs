//! What the C programs under `tests/capi` cannot reach: columns of every fixed width, nulls inside lists, panics, names
//! with a NUL.

mod handles;

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, FixedSizeBinaryArray, FixedSizeListArray, Float32Array, Int8Array,
    Int32Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};

use super::arrow::export_batch;
use super::buffers::{copy_into, rowdex_column_buffer};
use super::error::{call, rowdex_error, rowdex_error_message, rowdex_status};
use rowdex_base::error::{ErrorKind, Result};

/// Copies one column to a buffer that lies at an odd address, and its validity.
fn copied(array: ArrayRef, width: usize, validity: bool) -> Result<(Vec<u8>, Vec<u8>)> {
    let rows = array.len();
    let batch = RecordBatch::try_from_iter([("a", array)]).unwrap();
    let mut values = vec![0xee; rows * width + 1];
    let mut valid = vec![0xee; rows];
    let buffer = rowdex_column_buffer {
        column: 0,
        values: values[1..].as_mut_ptr().cast(),
        values_bytes: rows * width,
        validity: if validity { valid.as_mut_ptr() } else { ptr::null_mut() },
    };
    // SAFETY: the buffers are as long as is said and live until the end.
    let outcome = unsafe { copy_into(&batch, &[buffer]) };
    if outcome.is_err() {
        assert!(values.iter().chain(&valid).all(|byte| *byte == 0xee), "written in spite of a failure");
    }
    outcome.map(|()| (values.split_off(1), valid))
}

fn pairs(values: Vec<Option<[Option<i32>; 2]>>) -> FixedSizeListArray {
    let items: Int32Array = values.iter().flat_map(|pair| pair.unwrap_or([Some(7), None])).collect();
    let nulls = values.iter().map(Option::is_some).collect::<Vec<_>>().into();
    let field = Arc::new(Field::new_list_field(DataType::Int32, true));
    FixedSizeListArray::new(field, 2, Arc::new(items), Some(nulls))
}

#[test]
fn every_type_of_fixed_width_is_copied_as_arrow_lays_it_out() {
    let bytes = |values: &[i32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    let copy = |array: ArrayRef, width| copied(array, width, false).unwrap().0;
    assert_eq!(copy(Arc::new(Int32Array::from(vec![1, -2, 3])), 4), bytes(&[1, -2, 3]));
    assert_eq!(copy(Arc::new(BooleanArray::from(vec![true, false, true])), 1), [1, 0, 1]);
    assert_eq!(copy(Arc::new(Float32Array::from(vec![1.5])), 4), 1.5_f32.to_le_bytes());
    assert_eq!(copy(Arc::new(TimestampMicrosecondArray::from(vec![5])), 8), 5_i64.to_le_bytes());
    assert_eq!(copy(Arc::new(Decimal128Array::from(vec![-5])), 16), (-5_i128).to_le_bytes());
    let binary = FixedSizeBinaryArray::try_from_iter([b"abc", b"def"].into_iter()).unwrap();
    assert_eq!(copy(Arc::new(binary), 3), b"abcdef");
    assert_eq!(
        copy(Arc::new(pairs(vec![Some([Some(1), Some(2)]), Some([Some(3), Some(4)])])), 8),
        bytes(&[1, 2, 3, 4])
    );
    assert!(copy(Arc::new(Int32Array::from(Vec::<i32>::new())), 4).is_empty());
}

#[test]
fn a_slice_is_copied_from_where_it_begins() {
    let booleans = BooleanArray::from((0..30).map(|i| i % 3 == 0).collect::<Vec<_>>());
    let numbers = Int32Array::from_iter((0..30).map(|i| (i % 4 > 0).then_some(i)));
    let lists = pairs((0..30).map(|i| (i % 5 > 0).then_some([Some(i), Some(-i)])).collect());
    for start in [0, 1, 7, 8, 13] {
        let (values, _) = copied(Arc::new(booleans.slice(start, 9)), 1, false).unwrap();
        assert!((0..9).all(|i| (values[i] == 1) == booleans.value(start + i)));
        let (values, valid) = copied(Arc::new(numbers.slice(start, 9)), 4, true).unwrap();
        for (i, bytes) in values.chunks_exact(4).enumerate() {
            assert_eq!(valid[i] == 1, numbers.is_valid(start + i));
            let expected = if numbers.is_valid(start + i) { numbers.value(start + i) } else { 0 };
            assert_eq!(bytes, expected.to_le_bytes());
        }
        let (values, valid) = copied(Arc::new(lists.slice(start, 9)), 8, true).unwrap();
        for (i, bytes) in values.chunks_exact(8).enumerate() {
            assert_eq!(valid[i] == 1, lists.is_valid(start + i));
            let first = if lists.is_valid(start + i) { (start + i) as i32 } else { 0 };
            assert_eq!(bytes[..4], first.to_le_bytes());
            assert_eq!(bytes[4..], (-first).to_le_bytes());
        }
    }
}

#[test]
fn nulls_need_a_place_and_may_not_hide_in_lists() {
    let nulls: ArrayRef = Arc::new(Int8Array::from(vec![Some(1), None]));
    let refused = copied(Arc::clone(&nulls), 1, false).unwrap_err();
    assert_eq!((refused.kind(), refused.column()), (ErrorKind::Schema, Some("a")));
    assert_eq!(copied(nulls, 1, true).unwrap(), (vec![1, 0], vec![1, 0]));
    let hidden: ArrayRef = Arc::new(pairs(vec![None, Some([Some(1), None])]));
    let refused = copied(hidden, 8, true).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Schema);
    assert!(refused.message().contains("row 1"), "{refused}");
}

#[test]
fn a_column_without_a_fixed_width_or_a_buffer_of_another_size_is_refused() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    assert_eq!(copied(text, 1, true).unwrap_err().kind(), ErrorKind::Schema);
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    assert_eq!(copied(numbers, 3, true).unwrap_err().kind(), ErrorKind::InvalidArgument);
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
    assert_eq!(RecordBatch::from(arrow::array::StructArray::from(data)), batch);
}

#[test]
fn a_batch_without_columns_keeps_its_rows() {
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(5));
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
