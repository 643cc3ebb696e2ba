//! Handles, structs and arrays as C hands them over. Miri runs these tests, and sees each byte that is read or freed
//! wrongly.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{ptr, thread};

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchReader, StringArray, UInt64Array};

use crate::capi::any::{rowdex_describe, rowdex_free, rowdex_resume, rowdex_schema, rowdex_stream};
use crate::capi::arrow::{rowdex_array_release, rowdex_schema_copy, rowdex_schema_release};
use crate::capi::batch::{rowdex_batch, rowdex_batch_export, rowdex_batch_get_info, rowdex_batch_info};
use crate::capi::error::{rowdex_error, rowdex_error_message, rowdex_status};
use crate::capi::handle::{Exclusive, GivenOptions, Snapshot, shared_number};
use crate::capi::id_set::{rowdex_id_set_contains, rowdex_id_set_fill, rowdex_id_set_new};
use crate::capi::kind::{handle, owned_text};
use crate::capi::operands::rowdex_order;
use crate::capi::operands::{rowdex_id_set, rowdex_numbers, rowdex_operands};
use crate::capi::orders::rowdex_order_new;
use crate::capi::sampler::{
    rowdex_sampler, rowdex_sampler_batch, rowdex_sampler_fill, rowdex_sampler_new, rowdex_sampler_options,
    rowdex_sampler_state,
};
use ::rowdex_order::sampler::{DistributedSampler, Shard};
use ::rowdex_order::{EpochOrder, Global, Order};
use rowdex_base::error::{Error, ErrorKind};

/// What a call made, which goes through a pointer as in C, or the message of its error.
fn made<T>(
    call: impl FnOnce(Option<&mut MaybeUninit<*mut T>>, Option<&mut MaybeUninit<*mut rowdex_error>>) -> rowdex_status,
) -> Result<Made<T>, String> {
    let (mut out, mut error) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    match call(Some(&mut out), Some(&mut error)) {
        // SAFETY: written, because the call succeeded, and owned by us.
        rowdex_status::Ok => Ok(Made(unsafe { out.assume_init() })),
        // SAFETY: written, because the call failed, and owned by us.
        _ => Err(message(&Made(unsafe { error.assume_init() }))),
    }
}

fn message(error: &rowdex_error) -> String {
    // SAFETY: the message lives as long as the error, and ends with a NUL.
    unsafe { CStr::from_ptr(rowdex_error_message(Some(error))) }.to_str().unwrap().to_owned()
}

/// A handle of ours.
#[derive(Debug)]
pub(super) struct Made<T>(pub(super) *mut T);

impl<T> Deref for Made<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: it came from the library, and is freed when this goes.
        unsafe { &*self.0 }
    }
}

impl<T> Drop for Made<T> {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { rowdex_free(self.0.cast()) };
    }
}

#[test]
fn a_text_is_freed_as_a_handle_is() {
    for text in ["", "1234567", "12345678", "a\0b"] {
        let made = Made(owned_text(text));
        // SAFETY: it ends with a NUL.
        let found = unsafe { CStr::from_ptr(made.0) };
        assert_eq!(found.to_str().unwrap(), text.replace('\0', "\u{fffd}"));
    }
    // SAFETY: nothing is done.
    unsafe { rowdex_free(ptr::null_mut()) };
}

/// What is known of a handle.
fn described<T>(handle: *const T) -> Result<String, String> {
    // SAFETY: a handle of ours.
    let told = made(|report, error| unsafe { rowdex_describe(handle.cast(), report, error) })?;
    // SAFETY: a text that ends with a NUL.
    Ok(unsafe { CStr::from_ptr(told.0) }.to_str().unwrap().to_owned())
}

/// The set of these row ids out of ten.
fn set_of(ids: &[u64]) -> Made<rowdex_id_set> {
    let numbers = rowdex_numbers { values: ids.as_ptr().cast(), len: ids.len() };
    let operands = rowdex_operands { numbers: &raw const numbers, num_numbers: 1, ..GivenOptions::of(None) };
    let described = c"{\"rows\": 10, \"row_ids\": 0}".as_ptr();
    // SAFETY: the operands are valid, and so is what they point to.
    made(|set, error| unsafe { rowdex_id_set_new(described, Some(&operands), set, error) }).unwrap()
}

#[test]
fn a_set_is_asked_through_buffers_that_nobody_wrote_to() {
    let set = set_of(&[7, 3, 7, 5]);
    let mut ids = [MaybeUninit::<u64>::uninit(); 4];
    let mut filled = MaybeUninit::uninit();
    // SAFETY: there is room for as many ids as is said.
    let status =
        unsafe { rowdex_id_set_fill(Some(&set), 1, ids.as_mut_ptr().cast(), ids.len(), Some(&mut filled), None) };
    assert_eq!(status, rowdex_status::Ok);
    // SAFETY: written, because the call succeeded.
    let filled = unsafe { filled.assume_init() };
    // SAFETY: so many were written.
    assert_eq!((filled, unsafe { [ids[0].assume_init(), ids[1].assume_init()] }), (2, [5, 7]));
    assert_eq!(described(set.0).unwrap(), r#"{"len":3,"rows":10,"repeated":0,"unserved":0}"#);
    let sets = [set.0.cast_const()];
    let operands = rowdex_operands { sets: sets.as_ptr(), num_sets: 1, ..GivenOptions::of(None) };
    let described = c"{\"set\": 0, \"complement\": true}".as_ptr();
    // SAFETY: as above.
    let rest = made(|set, error| unsafe { rowdex_id_set_new(described, Some(&operands), set, error) }).unwrap();
    drop(set);
    assert!(rowdex_id_set_contains(Some(&rest), 4) && !rowdex_id_set_contains(Some(&rest), 5));
    drop(rest);
}

#[test]
fn a_sampler_outlives_the_orders_and_sets_that_it_was_made_from() {
    let kept = set_of(&[1, 2, 3, 5, 8]);
    let sets = [kept.0.cast_const()];
    let operands = rowdex_operands { sets: sets.as_ptr(), num_sets: 1, ..GivenOptions::of(None) };
    let described = c"{\"row_groups\": [6, 4], \"kept\": 0, \"seed\": 3}".as_ptr();
    // SAFETY: the operands are valid, and so is what they point to.
    let orders = made::<rowdex_order>(|out, error| unsafe { rowdex_order_new(described, Some(&operands), out, error) });
    let orders = orders.unwrap();
    drop(kept);
    let options = rowdex_sampler_options {
        rank: 1,
        world_size: 2,
        batch_size: 2,
        tail: c"wrap".as_ptr(),
        ..GivenOptions::of(None)
    };
    // SAFETY: as above.
    let sampler = made(|out, error| unsafe { rowdex_sampler_new(Some(&orders), Some(&options), out, error) }).unwrap();
    drop(orders);
    let (mut rows, mut pads) = ([0_u64; 3], [9_u8; 3]);
    // SAFETY: there is room for three of each.
    let status = unsafe { rowdex_sampler_fill(Some(&sampler), 0, 0, 3, rows.as_mut_ptr(), pads.as_mut_ptr(), None) };
    assert_eq!(status, rowdex_status::Ok);
    assert!(rows.iter().all(|row| [1, 2, 3, 5, 8].contains(row)) && pads == [0, 0, 1], "{rows:?} {pads:?}");
    let (mut batch, mut len) = ([0_u64; 2], MaybeUninit::uninit());
    // SAFETY: as above.
    let status =
        unsafe { rowdex_sampler_batch(Some(&sampler), 0, 1, batch.as_mut_ptr(), 2, Some(&mut len), None, None, None) };
    // SAFETY: written, because the call succeeded.
    assert_eq!((status, unsafe { len.assume_init() }, batch[0]), (rowdex_status::Ok, 1, rows[2]));
    let mut state = [MaybeUninit::<c_char>::uninit(); 512];
    // SAFETY: there is room for as many bytes as is said.
    let status = unsafe { rowdex_sampler_state(Some(&sampler), 0, 1, state.as_mut_ptr().cast(), state.len(), None) };
    assert_eq!(status, rowdex_status::Ok);
    // SAFETY: a handle that nobody frees meanwhile, and a text that ends with a NUL.
    assert_eq!(unsafe { rowdex_resume(sampler.0.cast(), state.as_ptr().cast(), None) }, rowdex_status::Ok);
}

#[test]
fn an_order_is_made_once_for_all_batches_of_an_epoch_though_the_sampler_stands_at_another_one() {
    /// Counts how often an order is made.
    #[derive(Debug)]
    struct Counting(AtomicUsize);

    impl Order for Counting {
        fn len(&self) -> u64 {
            100
        }

        fn epoch(&self, epoch: u64) -> rowdex_base::error::Result<Arc<dyn EpochOrder>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Global::new(100, 0)?.epoch(epoch)
        }

        fn fingerprint(&self) -> u64 {
            0
        }

        fn name(&self) -> &'static str {
            "counting"
        }
    }

    let orders = Arc::new(Counting(AtomicUsize::new(0)));
    let shard = Shard::new(0, 2).unwrap();
    let sampler = DistributedSampler::new(Arc::clone(&orders) as Arc<dyn Order>, shard, 7).unwrap();
    let sampler = Made(handle(rowdex_sampler(Snapshot::new(sampler))));
    for step in 0..3 {
        assert!(described(sampler.0).unwrap().starts_with(r#"{"epoch":0,"len":50,"steps":8,"#));
        let (mut rows, mut len) = ([0_u64; 7], MaybeUninit::uninit());
        // SAFETY: there is room for a batch.
        let status = unsafe {
            rowdex_sampler_batch(Some(&sampler), 1, step, rows.as_mut_ptr(), 7, Some(&mut len), None, None, None)
        };
        assert_eq!(status, rowdex_status::Ok);
    }
    assert_eq!(orders.0.load(Ordering::Relaxed), 1);
}

#[test]
fn what_is_not_aligned_is_refused_before_it_is_read() {
    let ids = [7_u64; 4];
    // One byte behind where a number may lie.
    let crooked = ids.as_ptr().cast::<u8>().wrapping_add(1);
    let numbers = rowdex_numbers { values: crooked.cast(), len: 2 };
    let operands = rowdex_operands { numbers: &raw const numbers, num_numbers: 1, ..GivenOptions::of(None) };
    let described = c"{\"rows\": 10, \"row_ids\": 0}".as_ptr();
    // SAFETY: the operands are valid, and what they point to is checked.
    let refused = made(|set, error| unsafe { rowdex_id_set_new(described, Some(&operands), set, error) });
    assert!(refused.unwrap_err().contains("is not aligned to 8 bytes"));
    let number = 5_u32;
    // SAFETY: NULL, not aligned, or a number that is there until the end.
    let told = |number: *const u32| unsafe { shared_number(number, "flag") };
    assert!(told(ptr::null()).unwrap().is_none());
    assert!(told((&raw const number).cast::<u8>().wrapping_add(1).cast()).is_err());
}

#[test]
fn a_handle_is_asked_for_what_it_has() {
    let error = Made(handle(rowdex_error::new(&Error::new(ErrorKind::Stale, "old").with_row_group(3))));
    let told = described(error.0).unwrap();
    assert!(told.contains(r#""status":9,"#) && told.contains(r#""row_group":3,"#), "{told}");
    let text = Made(owned_text("{}"));
    assert!(described(text.0).unwrap_err().contains("nothing is known"));
    let mut schema = MaybeUninit::uninit();
    // SAFETY: a handle of ours.
    let status = unsafe { rowdex_schema(error.0.cast(), Some(&mut schema), None) };
    assert_eq!(status, rowdex_status::InvalidArgument);
}

fn rows() -> RecordBatch {
    let columns: [(&str, ArrayRef); 2] = [
        ("id", Arc::new(UInt64Array::from(vec![4, 5]))),
        ("text", Arc::new(StringArray::from(vec![Some("vier"), None]))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn what_was_exported_of_a_batch_outlives_it() {
    let batch = Made(handle(rowdex_batch::of_rows(rows(), &[40, 50])));
    let mut info = MaybeUninit::<rowdex_batch_info>::uninit();
    assert_eq!(rowdex_batch_get_info(Some(&batch), Some(&mut info), None), rowdex_status::Ok);
    // SAFETY: written, because the call succeeded.
    let info = unsafe { info.assume_init() };
    // SAFETY: as many as there are rows, and the batch lives.
    assert_eq!(unsafe { std::slice::from_raw_parts(info.row_ids, 2) }, [40, 50]);
    let (mut array, mut schema) = (MaybeUninit::<FFI_ArrowArray>::uninit(), MaybeUninit::<FFI_ArrowSchema>::uninit());
    let status = rowdex_batch_export(Some(&batch), Some(&mut array), Some(&mut schema), None);
    assert_eq!(status, rowdex_status::Ok);
    let mut stream = MaybeUninit::<FFI_ArrowArrayStream>::uninit();
    // SAFETY: a handle of ours.
    assert_eq!(unsafe { rowdex_stream(batch.0.cast(), Some(&mut stream), None) }, rowdex_status::Ok);
    drop(batch);
    // SAFETY: all were written, because the calls succeeded.
    let (mut array, mut schema, stream) = unsafe { (array.assume_init(), schema.assume_init(), stream.assume_init()) };
    let mut copy = MaybeUninit::uninit();
    assert_eq!(rowdex_schema_copy(Some(&schema), Some(&mut copy), None), rowdex_status::Ok);
    rowdex_schema_release(Some(&mut schema));
    rowdex_schema_release(Some(&mut schema));
    // SAFETY: as above.
    rowdex_schema_release(Some(unsafe { copy.assume_init_mut() }));
    rowdex_array_release(Some(&mut array));
    rowdex_array_release(Some(&mut array));
    let mut stream = ArrowArrayStreamReader::try_new(stream).unwrap();
    assert_eq!(stream.schema().fields().len(), 2);
    assert_eq!(stream.next().unwrap().unwrap(), rows());
    assert!(stream.next().is_none());
}

#[test]
fn a_stream_is_released_that_goes_with_options_that_are_wrong() {
    let reader = arrow_array::RecordBatchIterator::new([Ok(rows())], rows().schema());
    let mut stream = FFI_ArrowArrayStream::new(Box::new(reader));
    let operands = rowdex_operands { stream: &raw mut stream, ..GivenOptions::of(None) };
    // SAFETY: the operands are valid, and so is what they point to.
    let refused =
        made(|set, error| unsafe { rowdex_id_set_new(c"{\"stream\": true}".as_ptr(), Some(&operands), set, error) });
    assert!(refused.unwrap_err().contains("there is no index 0"));
    assert!(stream.release.is_none());
}

#[test]
fn many_threads_change_a_value_and_one_at_a_time_has_an_exclusive_one() {
    let (snapshot, exclusive) = (Snapshot::new(0_u64), Exclusive::new(0_u64));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..20 {
                    snapshot
                        .change(|value| {
                            *value += 1;
                            Ok(())
                        })
                        .unwrap();
                    if let Ok(mut value) = exclusive.lock("value") {
                        *value += 1;
                    }
                }
            });
        }
    });
    assert_eq!(*snapshot.load(), 60);
    assert!((1..=60).contains(&*exclusive.lock("value").unwrap()));
}
