//! What decoders of values have in common, whatever the values are.

use std::fmt::Debug;

use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use bytes::{Buf, Bytes};
use parquet::basic::Encoding;

use super::hybrid::Hybrid;
use crate::errors::damaged;
use rowdex_base::error::{Error, Result};

/// The values of one column chunk, page by page. They are kept without the nulls between them until all are there.
pub(super) trait ColumnValues: Debug {
    /// Takes a dictionary of so many values.
    fn set_dictionary(&mut self, bytes: &Bytes, count: usize) -> Result<()>;

    /// Expects that values of another row group follow, which may have another dictionary or none.
    fn forget_dictionary(&mut self);

    /// Takes the values of a page, of which there are at most so many.
    fn set_page(&mut self, encoding: Encoding, bytes: Bytes, most: usize) -> Result<()>;

    /// Makes room for so many more values and nulls.
    fn reserve(&mut self, count: usize);

    /// Keeps the next values of the page.
    fn read(&mut self, count: usize) -> Result<()>;

    /// Passes by the next values of the page.
    fn skip(&mut self, count: usize) -> Result<()>;

    /// What was kept since the last time, as an array.
    fn finish(&mut self, nulls: ValueNulls) -> Result<ArrayRef>;
}

/// What of an array's values is missing.
pub(super) struct ValueNulls {
    pub(super) len: usize,
    /// `None` if nothing is.
    pub(super) there: Option<NullBuffer>,
    /// Whether the array shows it, rather than what is above it.
    pub(super) is_shown: bool,
}

impl ValueNulls {
    pub(super) fn shown(self) -> Option<NullBuffer> {
        self.there.filter(|_| self.is_shown)
    }
}

/// The error for another number of values than levels say.
pub(super) fn unspread() -> Error {
    damaged("has levels that do not fit its values")
}

pub(super) fn short() -> Error {
    damaged("has fewer values than its pages declare")
}

pub(super) fn unknown(encoding: Encoding) -> Error {
    damaged(format!("has values encoded as {encoding}"))
}

/// The references of a page to its dictionary. Some writers leave out how wide they are where there is none.
pub(super) fn references(mut bytes: Bytes) -> Result<Hybrid> {
    let width = bytes.try_get_u8().unwrap_or(0);
    Hybrid::new(bytes, width.into())
}

pub(super) fn no_dictionary() -> Error {
    damaged("refers to a dictionary that is not there")
}

pub(super) fn beyond(reference: u32) -> Error {
    damaged(format!("refers to value {reference} of its dictionary, which has fewer"))
}
