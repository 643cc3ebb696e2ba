//! What a handle is, and what any may be asked.

use std::ffi::{CString, c_char, c_void};
use std::mem::offset_of;
use std::ptr;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::SchemaRef;
use serde_json::Value;

use ::rowdex_order::sampler::State;
use rowdex_base::error::{Error, ErrorKind, Result};

fn refused(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

/// A name from a hostile file may have a NUL, which would end the text for C.
pub(super) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

/// What a handle may be asked. What it is not made for is refused.
pub(super) trait AnyHandle {
    /// What is known of it.
    fn told(&self) -> Result<Value> {
        Err(refused("nothing is known of such a handle"))
    }

    fn columns(&self) -> Result<SchemaRef> {
        Err(refused("such a handle has no columns"))
    }

    /// Its rows to come.
    fn rows(&self) -> Result<Box<dyn RecordBatchReader + Send>> {
        Err(refused("such a handle has no rows to stream"))
    }

    /// Rows by their row id, in the order asked.
    fn take(&self, _: &[u64]) -> Result<RecordBatch> {
        Err(refused("such a handle has no rows to take"))
    }

    fn resume(&self, _: &State) -> Result<()> {
        Err(refused("such a handle resumes from no state"))
    }

    fn close(&self) {}
}

/// What a handle is, which lies right before it.
pub(super) struct Kind {
    pub(super) end: unsafe fn(*mut c_void),
    asked: unsafe fn(*const c_void) -> *const dyn AnyHandle,
}

/// A handle in memory.
#[repr(C)]
struct HandleBox<T> {
    kind: &'static Kind,
    value: T,
}

impl<T: AnyHandle + 'static> HandleBox<T> {
    const KIND: Kind = Kind { end: end::<T>, asked: |handle| handle.cast::<T>() };
}

/// A new handle, which the caller owns.
pub(super) fn handle<T: AnyHandle + 'static>(value: T) -> *mut T {
    const { assert!(offset_of!(HandleBox<T>, value) == size_of::<&Kind>()) };
    let owned = Box::into_raw(Box::new(HandleBox { kind: &HandleBox::<T>::KIND, value }));
    // SAFETY: it was just made.
    unsafe { &raw mut (*owned).value }
}

/// # Safety
/// The address is that of a handle of this type, which nobody uses any more.
unsafe fn end<T>(value: *mut c_void) {
    // SAFETY: the caller's promise; what `handle` made begins right before the value.
    drop(unsafe { Box::from_raw(value.cast::<&Kind>().sub(1).cast::<HandleBox<T>>()) });
}

struct Text;

impl AnyHandle for Text {}

const TEXT: Kind = Kind { end: end_text, asked: |_| ptr::from_ref::<dyn AnyHandle>(&Text) };

/// A text and its NUL, which the caller owns as it owns a handle.
pub(super) fn owned_text(text: &str) -> *mut c_char {
    let text = c_string(text);
    let bytes = text.as_bytes_with_nul();
    // Before it: how many words it is in all, and what it is.
    let words = vec![0_usize; 2 + bytes.len().div_ceil(size_of::<usize>())].into_boxed_slice();
    let count = words.len();
    let first = Box::into_raw(words).cast::<usize>();
    // SAFETY: there is room for two words and for the bytes behind them.
    unsafe {
        first.write(count);
        first.add(1).cast::<&Kind>().write(&TEXT);
        let place = first.add(2).cast::<u8>();
        place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        place.cast()
    }
}

/// # Safety
/// As [`end`], of a text.
unsafe fn end_text(text: *mut c_void) {
    // SAFETY: the caller's promise; so it was made.
    unsafe {
        let first = text.cast::<usize>().sub(2);
        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(first, first.read())));
    }
}

/// # Safety
/// `handle` is NULL or came from this library, and is freed by nobody for as long as the result is used.
pub(super) unsafe fn kind(handle: *const c_void) -> Result<&'static Kind> {
    // SAFETY: the caller's promise; what it is lies before it.
    (!handle.is_null())
        .then(|| unsafe { handle.cast::<&Kind>().sub(1).read() })
        .ok_or_else(|| refused("`handle` is NULL"))
}

/// # Safety
/// As [`kind`].
pub(super) unsafe fn asked<'a>(handle: *const c_void) -> Result<&'a dyn AnyHandle> {
    // SAFETY: the caller's promise, and of its kind is what is asked.
    Ok(unsafe { &*(kind(handle)?.asked)(handle) })
}
