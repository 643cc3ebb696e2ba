//! What the caller hands over: handles, strings, arrays and options.

use std::ffi::{CStr, OsStr, c_char};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use arc_swap::ArcSwap;
use serde::de::DeserializeOwned;

use super::version::ROWDEX_NONE;
use crate::describe::{self, StoreDescription};
use ::rowdex_io::source::StoreOptions;
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

/// A struct of options, of whose fields 0 is the default.
///
/// # Safety
/// The type is valid when all of its bytes are 0.
pub(super) unsafe trait GivenOptions: Copy {
    /// The caller's, or the defaults where it gives NULL.
    fn of(given: Option<&Self>) -> Self {
        // SAFETY: what is promised of the type.
        given.copied().unwrap_or_else(|| unsafe { MaybeUninit::zeroed().assume_init() })
    }
}

/// A number of which 0 stands for the default, and [`ROWDEX_NONE`] for 0.
pub(super) fn chosen(option: u64) -> Option<u64> {
    match option {
        0 => None,
        ROWDEX_NONE => Some(0),
        more => Some(more),
    }
}

/// How the object store is talked to that a text describes; the defaults for NULL.
///
/// # Safety
/// As [`optional_text`].
pub(super) unsafe fn store_options(json: *const c_char) -> Result<StoreOptions> {
    if json.is_null() {
        return Ok(StoreOptions::default());
    }
    // SAFETY: the caller's promise.
    unsafe { described::<StoreDescription>(json, "store") }?.options()
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
