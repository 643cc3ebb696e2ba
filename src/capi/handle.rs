//! What the caller hands over: handles, strings, arrays, and structs of another version.

use std::ffi::{CStr, OsStr, c_char};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use arc_swap::ArcSwap;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::kind::owned_text;
use crate::describe;
use rowdex_base::error::{Error, ErrorKind, Result};

/// A handle or another thing that must be there.
pub(super) fn require<'a, T>(value: Option<&'a T>, name: &str) -> Result<&'a T> {
    value.ok_or_else(|| null(name))
}

/// A handle that the function may change, which it does behind a lock, so that a shared reference is enough.
///
/// # Safety
/// `handle` is NULL or came from this library, and is freed by nobody for as long as the result is used.
pub(super) unsafe fn borrow<'a, T>(handle: *mut T, name: &str) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| null(name))
}

/// Where a result goes.
pub(super) fn out_param<'a, T>(out: Option<&'a mut MaybeUninit<T>>, name: &str) -> Result<&'a mut MaybeUninit<T>> {
    out.ok_or_else(|| null(name))
}

/// What a text describes. `what` is what errors call it.
///
/// # Safety
/// As [`optional_text`].
pub(super) unsafe fn described<T: DeserializeOwned>(json: *const c_char, what: &str) -> Result<T> {
    if json.is_null() {
        return Err(null("description"));
    }
    // SAFETY: the caller's promise.
    describe::read(what, unsafe { CStr::from_ptr(json) }.to_bytes())
}

/// Writes a report as JSON, which the caller owns, unless nobody wants it.
pub(super) fn write_report(out: Option<&mut MaybeUninit<*mut c_char>>, report: &impl Serialize) -> Result<()> {
    if let Some(out) = out {
        let text = serde_json::to_string(report);
        let text = text.map_err(|error| Error::new(ErrorKind::Internal, format!("a report is no JSON: {error}")))?;
        out.write(owned_text(&text));
    }
    Ok(())
}

/// The caller's array, which may be NULL if it is empty.
///
/// # Safety
/// `first` is NULL, misaligned, or the first of `len` values that nobody writes to for as long as the slice is used.
pub(super) unsafe fn slice<'a, T>(first: *const T, len: usize, name: &str) -> Result<&'a [T]> {
    check_array(first, len, name)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: not NULL, aligned and of a possible size, as was just checked; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(first, len) })
}

/// The caller's buffer, which may be NULL if it is empty, and need not be initialised.
///
/// # Safety
/// `first` is NULL, misaligned, or the first of `len` places that nobody else uses for as long as the slice is used.
pub(super) unsafe fn buffer<'a, T>(first: *mut T, len: usize, name: &str) -> Result<&'a mut [MaybeUninit<T>]> {
    check_array(first, len, name)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: not NULL, aligned and of a possible size, as was just checked; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(first.cast(), len) })
}

fn check_array<T>(first: *const T, len: usize, name: &str) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    if first.is_null() {
        return Err(null(name));
    }
    if !first.is_aligned() {
        return Err(invalid(format!("`{name}` is not aligned to {} bytes", align_of::<T>())));
    }
    match len.checked_mul(size_of::<T>()) {
        Some(bytes) if isize::try_from(bytes).is_ok() => Ok(()),
        _ => Err(invalid(format!("`{name}` cannot have {len} elements"))),
    }
}

/// The caller's text, or `None` where it gives NULL.
///
/// # Safety
/// `text` is NULL or ends with a NUL, and nobody writes to it for as long as the result is used.
pub(super) unsafe fn optional_text<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| invalid(format!("`{name}` is not UTF-8")))
}

/// The caller's text.
///
/// # Safety
/// As [`optional_text`].
pub(super) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    // SAFETY: the caller's promise.
    unsafe { optional_text(text, name) }?.ok_or_else(|| null(name))
}

/// The caller's path, in whatever encoding the file system has.
///
/// # Safety
/// As [`optional_text`].
pub(super) unsafe fn optional_path<'a>(path: *const c_char) -> Option<&'a Path> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    Some(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// The caller's path.
///
/// # Safety
/// As [`optional_text`].
pub(super) unsafe fn path<'a>(path: *const c_char, name: &str) -> Result<&'a Path> {
    // SAFETY: the caller's promise.
    unsafe { optional_path(path) }.ok_or_else(|| null(name))
}

/// The texts that the caller lists.
///
/// # Safety
/// As [`slice`], and each as for [`optional_text`].
pub(super) unsafe fn texts<'a>(strings: *const *const c_char, len: usize, name: &str) -> Result<Vec<&'a str>> {
    // SAFETY: the caller's promise.
    let strings = unsafe { slice(strings, len, name) }?;
    let name = format!("{name}[…]");
    // SAFETY: as above.
    strings.iter().map(|string| unsafe { text(*string, &name) }).collect()
}

/// Refuses the first field that is given and that nothing uses: silence would let the caller believe in it. Each has
/// its name, whether it is given, and whether it is used.
pub(super) fn refuse_unused<const N: usize>(fields: [(&str, bool, bool); N], what: &str) -> Result<()> {
    match fields.into_iter().find(|(_, given, used)| *given && !used) {
        None => Ok(()),
        Some((name, ..)) => {
            Err(invalid(format!("`{name}` says nothing of {what}"))
                .with_hint("leave it 0 or NULL, or give what it is for"))
        }
    }
}

/// A number that others may change meanwhile, or `None` where the caller gives NULL.
///
/// # Safety
/// `number` is NULL, misaligned, or a number that is there for as long as the result is used, and that is written to
/// atomically alone.
pub(super) unsafe fn shared_number(number: *const u32, name: &str) -> Result<Option<&'static AtomicU32>> {
    check_array(number, usize::from(!number.is_null()), name)?;
    // SAFETY: aligned, as was just checked; the rest is the caller's promise.
    Ok((!number.is_null()).then(|| unsafe { AtomicU32::from_ptr(number.cast_mut()) }))
}

/// Writes a text and its NUL into the caller's buffer.
pub(super) fn write_text(text: &str, buffer: &mut [MaybeUninit<u8>]) -> Result<()> {
    let needed = text.len() + 1;
    match buffer.get_mut(..needed) {
        Some(place) => {
            place[..text.len()].write_copy_of_slice(text.as_bytes());
            place[text.len()].write(0);
            Ok(())
        }
        None => Err(invalid(format!("a buffer of {} bytes for a text of {needed}, its NUL included", buffer.len()))),
    }
}

/// A struct that later versions may append fields to.
///
/// # Safety
/// The type is `repr(C)`, begins with a `usize`, which is the size of the struct that the caller was compiled with, has
/// no padding, and is valid when all of its bytes are 0.
pub(super) unsafe trait Versioned: Copy {}

/// More than any struct here will ever have: a larger size was never written.
const LARGEST_STRUCT: usize = 4096;

/// The size that the caller gives a struct.
///
/// # Safety
/// `given` is valid for reading a `usize`.
unsafe fn struct_size<T: Versioned>(given: *const T, name: &str) -> Result<usize> {
    if !given.is_aligned() {
        return Err(invalid(format!("`{name}` is not aligned to {} bytes", align_of::<T>())));
    }
    // SAFETY: the caller's promise, and `Versioned` says what comes first.
    let size = unsafe { given.cast::<usize>().read() };
    // No struct ends within a word. A size that does would let through half of a pointer.
    if !(size_of::<usize>()..=LARGEST_STRUCT).contains(&size) || !size.is_multiple_of(size_of::<usize>()) {
        return Err(invalid(format!("`{name}.struct_size` is {size}")).with_hint("set it to the sizeof of the struct"));
    }
    Ok(size)
}

/// The caller's options; the defaults, which are all 0, where it gives NULL or was compiled before they existed.
///
/// # Safety
/// `given` is NULL or points to as many bytes as its `struct_size` says.
pub(super) unsafe fn options<T: Versioned>(given: *const T, name: &str) -> Result<T> {
    let mut options = MaybeUninit::<T>::zeroed();
    if !given.is_null() {
        // SAFETY: the caller's promise.
        let size = unsafe { struct_size(given, name) }?;
        // SAFETY: so many bytes are readable by the caller's promise, and `options` has room for those that are copied.
        unsafe { given.cast::<u8>().copy_to_nonoverlapping(options.as_mut_ptr().cast(), size.min(size_of::<T>())) };
        if let Some(more) = size.checked_sub(size_of::<T>()) {
            // SAFETY: the caller's promise.
            let tail = unsafe { std::slice::from_raw_parts(given.cast::<u8>().add(size_of::<T>()), more) };
            if tail.iter().any(|byte| *byte != 0) {
                let message = format!("`{name}` has an option that this version of the library does not know");
                return Err(invalid(message).with_hint("link the library that the header came with"));
            }
        }
    }
    // SAFETY: zeroed, which is valid, but for fields that were written by a caller who knows them.
    Ok(unsafe { options.assume_init() })
}

/// Where a struct goes, of which the caller may know only a part.
#[derive(Debug)]
pub(super) struct StructOut<T> {
    place: *mut T,
    size: usize,
}

/// # Safety
/// `out` is NULL or points to as many bytes as its `struct_size` says, which nobody else uses until the struct is
/// written.
pub(super) unsafe fn struct_out<T: Versioned>(out: *mut T, name: &str) -> Result<StructOut<T>> {
    if out.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller's promise.
    let size = unsafe { struct_size(out, name) }?;
    Ok(StructOut { place: out, size })
}

/// As [`struct_out`], or `None` where the caller gives NULL.
///
/// # Safety
/// As [`struct_out`].
pub(super) unsafe fn optional_struct_out<T: Versioned>(out: *mut T, name: &str) -> Result<Option<StructOut<T>>> {
    // SAFETY: the caller's promise.
    (!out.is_null()).then(|| unsafe { struct_out(out, name) }).transpose()
}

impl<T: Versioned> StructOut<T> {
    /// Writes what the caller knows of `value`, apart from its size; what the caller alone knows becomes 0.
    pub(super) fn write(self, value: T) {
        const SIZE: usize = size_of::<usize>();
        let known = self.size.min(size_of::<T>());
        let place = self.place.cast::<u8>();
        // SAFETY: whoever made `self` promised `size` bytes; `known` is no more than that and than `value` has, and no
        // less than SIZE.
        unsafe {
            (&raw const value).cast::<u8>().add(SIZE).copy_to_nonoverlapping(place.add(SIZE), known - SIZE);
            place.add(known).write_bytes(0, self.size - known);
        }
    }
}

/// A handle that one thread at a time may use: another one is told so, rather than made to wait, because in a forked
/// child the one that it would wait for does not exist.
#[derive(Debug)]
pub(super) struct Exclusive<T>(Mutex<T>);

impl<T> Exclusive<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(super) fn lock(&self, name: &str) -> Result<MutexGuard<'_, T>> {
        self.0.try_lock().map_err(|error| busy(&error, name))
    }
}

/// A handle that many threads may read and change at once. There is no lock, so nobody waits, nor does a child that was
/// forked while another thread made a change: that makes another value and puts it in the place of the one before.
#[derive(Debug)]
pub(super) struct Snapshot<T>(ArcSwap<T>);

impl<T: Clone> Snapshot<T> {
    pub(super) fn new(value: T) -> Self {
        Self(ArcSwap::from_pointee(value))
    }

    /// The value as it is now.
    pub(super) fn load(&self) -> Arc<T> {
        self.0.load_full()
    }

    /// Changes the value, or leaves it as it was where that fails. `change` is called again if another thread was
    /// faster.
    pub(super) fn change(&self, change: impl Fn(&mut T) -> Result<()>) -> Result<()> {
        loop {
            let before = self.load();
            let mut after = T::clone(&before);
            change(&mut after)?;
            let found = self.0.compare_and_swap(&before, Arc::new(after));
            if Arc::ptr_eq(&found, &before) {
                return Ok(());
            }
        }
    }
}

fn busy<T>(error: &TryLockError<T>, name: &str) -> Error {
    match error {
        TryLockError::WouldBlock => {
            invalid(format!("the {name} is in use by another thread")).with_hint("use it from one thread at a time")
        }
        TryLockError::Poisoned(_) => {
            Error::new(ErrorKind::Internal, format!("the {name} is broken by an earlier defect")).with_hint("free it")
        }
    }
}

pub(super) fn null(name: &str) -> Error {
    invalid(format!("`{name}` is NULL"))
}

pub(super) fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
