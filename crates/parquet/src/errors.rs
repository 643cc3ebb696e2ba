//! Errors of what cannot be decoded.

use std::any::Any;
use std::borrow::Cow;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_schema::ArrowError;
use parquet::errors::ParquetError;

use rowdex_base::error::{Error, ErrorKind, Result};

/// What to do about values that take too much memory.
pub(super) const ASK_FOR_LESS: &str = "allow more memory, ask for fewer columns, or write smaller row groups";

pub(super) fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidParquet, message)
}

pub(super) fn unsupported(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::UnsupportedParquet, message)
}

pub(super) fn internal(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Internal, message)
}

pub(super) fn too_large(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::TooLarge, message)
}

/// The error for items or bytes that are more than offsets of 32 bits can count.
pub(super) fn beyond_offsets(what: &str) -> Error {
    too_large(format!("{what} for offsets of 32 bits"))
        .with_hint("ask for fewer rows at a time, or write smaller row groups")
}

/// The error for pages that are not what they should be.
pub(super) fn damaged(message: impl Display) -> Error {
    invalid(format!("the row group cannot be decoded: it {message}"))
}

pub(super) fn cannot_be(error: ArrowError) -> Error {
    damaged(format!("has values that cannot be: {error}"))
}

/// Says what the parser objected to.
pub(super) fn parquet_error(what: &str, error: ParquetError) -> Error {
    let kind = match &error {
        ParquetError::NYI(_) => ErrorKind::UnsupportedParquet,
        _ => ErrorKind::InvalidParquet,
    };
    Error::new(kind, format!("{what} cannot be decoded: {error}")).with_source(error)
}

/// Runs a step of the decoder, which may panic on bytes it does not expect.
pub(super) fn caught<T>(what: &str, step: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T> {
    caught_panic(|| step().map_err(|error| parquet_error(what, error)))
}

/// Runs a step over decoded columns, whose makers may have believed damaged bytes.
pub(super) fn caught_panic<T>(step: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(step)).map_err(internal_panic)?
}

/// The error for a panic inside the decoder: the bytes are to blame, because on sound ones it does not panic.
fn internal_panic(payload: Box<dyn Any + Send>) -> Error {
    let said = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let said = said.or_else(|| payload.downcast_ref::<String>().cloned());
    invalid(format!("the decoder gave up: {}", said.as_deref().unwrap_or("panicked")))
}
