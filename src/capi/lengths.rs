//! How long rows are: noting it in an index, and reading what is noted.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use arrow::ffi_stream::FFI_ArrowArrayStream;

use super::arrow::stream_of;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned, require, rowdex_str};
use super::index::rowdex_index;
use super::option::{Count, count};
use super::progress::{Progress, rowdex_progress};
use super::store::{rowdex_store_options, store_options};
use crate::builder::LengthsBuilder;
use ::rowdex_index::Index;
use rowdex_base::error::{Error, ErrorKind, Result};

/// The column that has the lengths, where they are given.
const LENGTH: &str = "length";

/// Which lengths are noted. All zeros note none.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_lengths_options {
    /// sizeof(rowdex_lengths_options)
    pub struct_size: usize,
    /// Columns of lists, whose items are counted without decoding a value, and of integers, which say the lengths
    /// themselves. Null and empty lists have the length 0; an integer must be there, and not be negative.
    pub columns: *const *const c_char,
    /// How many.
    pub num_columns: usize,
    /// What to call lengths that are given: rows with such lengths are served whole. NULL: none are given.
    pub given_name: *const c_char,
    /// A table, or a folder of tables, as for the list_file of a rowdex_id_set_options, with a column `length` and
    /// every row of the index once. NULL: they come as a stream.
    pub given_list: *const c_char,
    /// The same as an Arrow stream, which is moved from and released whatever happens.
    pub given_stream: *mut FFI_ArrowArrayStream,
    /// Names of lengths that are removed.
    pub removed: *const *const c_char,
    /// How many.
    pub num_removed: usize,
    /// Where the data is, instead of where the index says. NULL: there.
    pub root: *const c_char,
    /// Threads that count. 0: one for each available core.
    pub threads: u64,
    /// Is called after each window of row groups. NULL: nobody is told.
    pub progress: rowdex_progress,
    /// The first argument of progress.
    pub progress_userdata: *mut c_void,
    /// How the object store is talked to, if the data or the index is in one. NULL: the defaults.
    pub store: *const rowdex_store_options,
}

// SAFETY: repr(C), begins with its size, has only fields of 8 bytes for which 0 is valid.
unsafe impl Versioned for rowdex_lengths_options {}

/// Notes how long the rows are in the index at `path`, a file or a URL: it holds the index as it was, or with all of
/// these lengths, at any moment. Lengths of the same names are replaced, others stay, and so does the fingerprint.
///
/// An index that is open goes on without them; open it anew.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_lengths_note(
    path: *const c_char,
    options: *const rowdex_lengths_options,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let options = unsafe { handle::options(options, "options") }?;
        let stream = match options.given_stream.is_null() {
            true => None,
            // SAFETY: as above.
            false => Some(unsafe { stream_of(options.given_stream) }?),
        };
        // SAFETY: as above.
        let path = unsafe { handle::path(path, "path") }?;
        // SAFETY: as above.
        let store = unsafe { store_options(options.store, "options.store") }?;
        let progress = Progress::new(options.progress, options.progress_userdata);
        let mut builder = LengthsBuilder::new(path)
            .with_store_options(store.clone())
            .with_progress(move |done| progress.tell(done.files_done, done.files, done.rows));
        // SAFETY: as above.
        for column in unsafe { handle::texts(options.columns, options.num_columns, "options.columns") }? {
            builder = builder.with_column(column);
        }
        // SAFETY: as above.
        for name in unsafe { handle::texts(options.removed, options.num_removed, "options.removed") }? {
            builder = builder.without(name);
        }
        // SAFETY: as above.
        let list = unsafe { handle::optional_path(options.given_list) };
        // SAFETY: as above.
        let given_name = unsafe { handle::optional_text(options.given_name, "options.given_name") }?;
        let is_named = given_name.is_some();
        let given =
            [("options.given_list", list.is_some(), is_named), ("options.given_stream", stream.is_some(), is_named)];
        handle::refuse_unused(given, "lengths without `options.given_name`")?;
        if let Some(name) = given_name {
            let index = Index::open_with(path, &store)?;
            builder = builder.with_given(
                name,
                match (stream, list) {
                    (Some(stream), None) => index.read_lengths_of(stream, LENGTH)?,
                    (None, Some(list)) => index.read_lengths(list, LENGTH)?,
                    _ => return Err(handle::invalid("lengths are given by one list, or by one stream")),
                },
            );
        }
        // SAFETY: as above.
        if let Some(root) = unsafe { handle::optional_path(options.root) } {
            builder = builder.with_root(root);
        }
        if let Count::Exactly(threads) = count(options.threads, "options.threads")? {
            builder = builder.with_threads(threads);
        }
        builder.write().map(drop)
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
