//! Status codes, error objects, and the border that no panic crosses.

use std::any::Any;
use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;

use serde::Serialize;
use serde_json::{Value, json};

use super::fork;
use super::handle::out_param;
use super::kind::{self, AnyHandle};
use rowdex_base::error::{Error, ErrorKind, Result};

/// How a call went. Numbers are never used again for something else, and new ones may be added.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rowdex_status {
    /// All is done.
    Ok = 0,
    /// The operating system or the store failed a read, a write or a request.
    Io = 1,
    /// A file that should be there is not.
    NotFound = 2,
    /// A file is there already and the caller did not ask to replace it.
    AlreadyExists = 3,
    /// The index bytes are not a valid index: not one at all, truncated, or damaged.
    InvalidIndex = 4,
    /// The index is of a format version, or needs a feature, that this library does not know.
    UnsupportedIndex = 5,
    /// A Parquet file is malformed: not Parquet, truncated, or with damaged pages.
    InvalidParquet = 6,
    /// A Parquet file is valid but uses something that cannot be read here, such as encryption.
    UnsupportedParquet = 7,
    /// Two files do not have the same columns, or a column cannot be brought to the asked type.
    Schema = 8,
    /// A data file is not the one that was indexed.
    Stale = 9,
    /// A row id, row group, position or step beyond the end.
    OutOfRange = 10,
    /// An argument that can never be right, such as NULL or a batch size of 0.
    InvalidArgument = 11,
    /// Decoding would take more memory than the limit allows.
    TooLarge = 12,
    /// A saved state or fingerprint belongs to another order, dataset or sampler.
    StateMismatch = 13,
    /// A defect of the library; please report it.
    Internal = 14,
    /// The handle was closed, before the call or meanwhile by another thread.
    Closed = 15,
    /// Nothing came within the time to wait. Nothing is lost: call again.
    TimedOut = 16,
}

impl From<ErrorKind> for rowdex_status {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Io => Self::Io,
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::AlreadyExists => Self::AlreadyExists,
            ErrorKind::InvalidIndex => Self::InvalidIndex,
            ErrorKind::UnsupportedIndex => Self::UnsupportedIndex,
            ErrorKind::InvalidParquet => Self::InvalidParquet,
            ErrorKind::UnsupportedParquet => Self::UnsupportedParquet,
            ErrorKind::Schema => Self::Schema,
            ErrorKind::Stale => Self::Stale,
            ErrorKind::OutOfRange => Self::OutOfRange,
            ErrorKind::InvalidArgument => Self::InvalidArgument,
            ErrorKind::TooLarge => Self::TooLarge,
            ErrorKind::StateMismatch => Self::StateMismatch,
            ErrorKind::Internal => Self::Internal,
            ErrorKind::Closed => Self::Closed,
            ErrorKind::TimedOut => Self::TimedOut,
            // The header has no number for a kind that is newer than it.
            _ => Self::Internal,
        }
    }
}

/// What went wrong, where, and what to do about it.
#[derive(Debug)]
pub struct rowdex_error {
    message: CString,
    told: Value,
}

impl rowdex_error {
    pub(super) fn new(error: &Error) -> Self {
        Self { message: kind::c_string(&error.to_string()), told: told(error) }
    }
}

impl AnyHandle for rowdex_error {
    fn told(&self) -> Result<Value> {
        Ok(self.told.clone())
    }
}

/// What a report says of an error.
pub(super) fn told(error: &Error) -> Value {
    json!({
        "status": rowdex_status::from(error.kind()) as i32,
        "message": error.to_string(),
        "file": error.file(),
        "row_group": error.row_group(),
        "column": error.column(),
        "hint": error.hint(),
    })
}

/// All of an error in one line: place, what went wrong, and what to do. NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_error_message(error: Option<&rowdex_error>) -> *const c_char {
    error.map_or(null(), |error| error.message.as_ptr())
}

/// Where an entry point leaves its error, which may be nowhere.
pub(super) type ErrorOut<'a> = Option<&'a mut MaybeUninit<*mut rowdex_error>>;

/// Runs the body of an entry point. What fails, or panics, becomes a status and an error; outputs are written last, by
/// the body.
pub(super) fn call(error: ErrorOut<'_>, work: impl FnOnce() -> Result<()>) -> rowdex_status {
    fork::ready();
    match catch(work) {
        Ok(()) => rowdex_status::Ok,
        Err(cause) => {
            if let Some(place) = error {
                place.write(kind::handle(rowdex_error::new(&cause)));
            }
            cause.kind().into()
        }
    }
}

/// As [`call`], of one that has one result, which goes to `out`.
pub(super) fn give<T>(
    error: ErrorOut<'_>,
    out: Option<&mut MaybeUninit<T>>,
    name: &str,
    work: impl FnOnce() -> Result<T>,
) -> rowdex_status {
    call(error, || {
        let out = out_param(out, name)?;
        out.write(work()?);
        Ok(())
    })
}

/// As [`call`], of one that reports as JSON, which the caller owns, unless nobody wants it.
pub(super) fn report(
    error: ErrorOut<'_>,
    out: Option<&mut MaybeUninit<*mut c_char>>,
    work: impl FnOnce() -> Result<Value>,
) -> rowdex_status {
    call(error, || {
        let report = work()?;
        if let Some(out) = out {
            out.write(kind::owned_text(&report.to_string()));
        }
        Ok(())
    })
}

/// A report as JSON.
pub(super) fn json(report: &impl Serialize) -> Result<Value> {
    serde_json::to_value(report)
        .map_err(|error| Error::new(ErrorKind::Internal, format!("a report is no JSON: {error}")))
}

/// Turns a panic into an error.
pub(super) fn catch<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::new(ErrorKind::Internal, format!("a panic: {}", panic_message(&*panic)))
            .with_hint("this is a defect of rowdex; please report it"))
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("of an unknown kind")
}
