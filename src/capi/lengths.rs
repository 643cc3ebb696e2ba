//! How long rows are: noting it in an index, and reading what is noted.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use arrow::ffi_stream::FFI_ArrowArrayStream;

use super::arrow::stream_of;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned, require, rowdex_str};
use super::index::rowdex_index;
use super::progress::{Progress, rowdex_progress};
use crate::describe::LengthsDescription;
use crate::select::ListOfRows;
use ::rowdex_index::Index;
use rowdex_base::error::{Error, ErrorKind, Result};

/// Notes how long the rows are in an index, a file or a URL: it holds the index as it was, or with all of these
/// lengths, at any moment. Lengths of the same names are replaced, others stay, and so does the fingerprint. An index
/// that is open goes on without them; open it anew.
///
/// The description is JSON: {"index": "train.rdx", "columns": ["tokens"]}. Beside the index, all may be left out:
///
/// columns: of lists, whose items are counted without decoding a value, or of integers, which say the lengths
/// themselves. Null and empty lists have the length 0; an integer must be there, and not be negative. given: lists of
/// lengths, by the names to note them by: tables with every row of the index once and a column `length`. Such rows are
/// served whole. stream: the name of the lengths that `stream` has, another such list. root: where the data is, instead
/// of where the index says. threads: that count, one for each available core by default. store: as for
/// rowdex_index_open.
///
/// `stream` may be NULL. It is moved from, and released whatever happens. `progress` is called after each window of
/// row groups.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_index_note_lengths(
    description: *const c_char,
    stream: *mut FFI_ArrowArrayStream,
    progress: rowdex_progress,
    progress_userdata: *mut c_void,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // Before anything else that may fail, so that it is released then.
        // SAFETY: the conventions of the header.
        let stream = (!stream.is_null()).then(|| unsafe { stream_of(stream) }).transpose()?;
        // SAFETY: as above.
        let described: LengthsDescription = unsafe { handle::described(description, "lengths") }?;
        let read = stream.map(|stream| {
            move |index: &Index, column: &str| ListOfRows::Batches(Box::new(stream)).lengths(index, column)
        });
        let progress = Progress::new(progress, progress_userdata);
        let builder = described.builder(read)?;
        builder.with_progress(move |done| progress.tell(done.files_done, done.files, done.rows)).write().map(drop)
    })
}

/// What is known of the lengths by one name.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_lengths_info {
    /// sizeof(rowdex_lengths_info), set by the caller.
    pub struct_size: usize,
    /// The name: that of the column that was counted, or the one that was given with the lengths.
    pub name: rowdex_str,
    /// What they are of: `items` of a column of lists, `numbers` of a column of integers, or `given`.
    pub of: rowdex_str,
    /// The sum over all rows.
    pub sum: u64,
    /// The length of the longest row.
    pub longest: u64,
    /// Differs between lengths that differ in any row.
    pub fingerprint: u64,
}

// SAFETY: repr(C); integers and pointers of 8 bytes only.
unsafe impl Versioned for rowdex_lengths_info {}

/// What is known of lengths by their number, in the order of their names; ROWDEX_STATUS_OUT_OF_RANGE behind the last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_index_get_lengths(
    index: Option<&rowdex_index>,
    number: u64,
    info: *mut rowdex_lengths_info,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let index = &require(index, "index")?.0;
        // SAFETY: the conventions of the header.
        let out = unsafe { handle::struct_out(info, "info") }?;
        let names = index.lengths_columns()?;
        let name =
            usize::try_from(number).ok().and_then(|number| names.get(number)).copied().ok_or_else(|| {
                Error::new(ErrorKind::OutOfRange, format!("lengths number {number} of {}", names.len()))
            })?;
        let lengths = index.lengths(name)?;
        out.write(rowdex_lengths_info {
            struct_size: 0,
            name: name.into(),
            of: lengths.of().name().into(),
            sum: lengths.sum(),
            longest: lengths.longest(),
            fingerprint: ::rowdex_order::Lengths::fingerprint(&lengths),
        });
        Ok(())
    })
}

/// Reads the lengths by this name, of the rows from `first_row` on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_index_read_lengths(
    index: Option<&rowdex_index>,
    name: *const c_char,
    first_row: u64,
    lengths: *mut u64,
    num_lengths: usize,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let index = &require(index, "index")?.0;
        // SAFETY: the conventions of the header.
        let known = index.lengths(unsafe { handle::text(name, "name") }?)?;
        // SAFETY: as above.
        let out = unsafe { handle::buffer(lengths, num_lengths, "lengths") }?;
        let end = first_row.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > index.len()) {
            let message = format!("{} lengths from row {first_row} on, of {} rows", out.len(), index.len());
            return Err(Error::new(ErrorKind::OutOfRange, message));
        }
        fill(&known, first_row, out)
    })
}

fn fill(known: &::rowdex_index::RowLengths, first_row: u64, out: &mut [MaybeUninit<u64>]) -> Result<()> {
    const AT_ONCE: usize = 1 << 16;
    let mut read = Vec::new();
    let mut at = first_row;
    for out in out.chunks_mut(AT_ONCE) {
        let end = at.saturating_add(out.len() as u64);
        read.clear();
        known.read(at..end, &mut read)?;
        if read.len() != out.len() {
            return Err(handle::invalid(format!("{} lengths for {} rows", read.len(), out.len())));
        }
        out.write_copy_of_slice(&read);
        at = end;
    }
    Ok(())
}
