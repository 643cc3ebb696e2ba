//! Status codes, error objects, and the border that no panic crosses.

use std::any::Any;
use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{from_ref, null, null_mut};

use super::fork;
use super::handle::{self, Versioned};
use rowdex_base::error::{Error, ErrorKind, Remedy, Result};

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

/// What went wrong, where, and what to do about it. Some calls give several as one (rowdex_error_at).
#[derive(Debug)]
pub struct rowdex_error {
    kind: rowdex_status,
    message: CString,
    file: Option<CString>,
    row_group: Option<u64>,
    column: Option<CString>,
    hint: Option<CString>,
    hint_form: Option<CString>,
    lost_group: u64,
    /// Those that follow this one.
    more: Vec<Self>,
}

impl rowdex_error {
    pub(super) fn new(error: &Error) -> Self {
        Self {
            kind: error.kind().into(),
            message: handle::c_string(&error.in_words(field)),
            file: error.file().map(handle::c_string),
            row_group: error.row_group(),
            column: error.column().map(handle::c_string),
            hint: error.advice().map(|hint| handle::c_string(&hint.in_words(field))),
            hint_form: form(error).as_deref().map(handle::c_string),
            lost_group: 0,
            more: Vec::new(),
        }
    }

    /// Why the row group with this number is lost.
    pub(super) fn of_lost_group(number: u32, error: &Error) -> Self {
        Self { lost_group: number.into(), ..Self::new(error) }
    }

    /// Several errors as one handle; NULL for none.
    pub(super) fn several(errors: impl IntoIterator<Item = Self>) -> *mut Self {
        let mut errors = errors.into_iter();
        errors.next().map_or(null_mut(), |first| handle::handle(Self { more: errors.collect(), ..first }))
    }
}

/// The field of a struct of options that has a remedy, as a hint names it.
fn field(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::Overwrite => "`overwrite`",
        Remedy::Update => "`update`",
        Remedy::NoFooters => "`footers`",
        Remedy::NoPartitions => "`partitions`",
        Remedy::UnionSchema => "`schema`",
        Remedy::Slice => "`slice`",
        Remedy::Root => "`root`",
        Remedy::ListedRows => "`rows`",
        Remedy::Sample => "`sample`",
        Remedy::Lengths => "`rowdex_index_note_lengths`",
        // The header has no field for a remedy that is newer than it.
        _ => "",
    }
}

/// A hint that names fields, with each of them in braces.
fn form(error: &Error) -> Option<String> {
    let hint = error.advice().filter(|hint| !hint.remedies().is_empty())?;
    let names = hint.remedies().iter().map(|remedy| format!("{{{}}}", field(*remedy).trim_matches('`')));
    Some(names.fold(hint.form().to_owned(), |form, name| form.replacen("{}", &name, 1)))
}

/// All of an error in one line: place, what went wrong, and what to do. NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_error_message(error: Option<&rowdex_error>) -> *const c_char {
    error.map_or(null(), |error| error.message.as_ptr())
}

/// What an error says, part by part. The texts belong to the error, and are NULL where nothing is known.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_error_info {
    /// sizeof(rowdex_error_info), set by the caller.
    pub struct_size: usize,
    /// What kind of error it is; ROWDEX_STATUS_OK for no error.
    pub kind: rowdex_status,
    /// Whether the row group is known that it happened in.
    pub has_row_group: u32,
    /// That row group, by its place in the file.
    pub row_group: u64,
    /// As of rowdex_error_message.
    pub message: *const c_char,
    /// The file that it happened in.
    pub file: *const c_char,
    /// The column that it happened in, by its dotted path.
    pub column: *const c_char,
    /// What to do about it. The message has it, too.
    pub hint: *const c_char,
    /// Of rowdex_loader_lost_groups: the number of the row group in the index, or for a mixed dataset over all indexes.
    pub lost_group: u64,
    /// The hint with each field of options that it names in braces, {overwrite} for one, for bindings that have other
    /// words for them. NULL if it names none.
    pub hint_form: *const c_char,
}

// SAFETY: repr(C), begins with its size, has only fields for which 0 is valid, and the two of 4 bytes are a pair, so
// there is no padding.
unsafe impl Versioned for rowdex_error_info {}

/// What an error says, part by part; for NULL, that there is none. Fails only if `info` is not what it should be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_error_get_info(
    error: Option<&rowdex_error>,
    info: *mut rowdex_error_info,
) -> rowdex_status {
    call(None, || {
        // SAFETY: the conventions of the header.
        let out = unsafe { handle::struct_out(info, "info") }?;
        out.write(rowdex_error_info {
            struct_size: 0,
            kind: error.map_or(rowdex_status::Ok, |error| error.kind),
            has_row_group: u32::from(error.is_some_and(|error| error.row_group.is_some())),
            row_group: error.and_then(|error| error.row_group).unwrap_or(0),
            message: rowdex_error_message(error),
            file: pointer(error.and_then(|error| error.file.as_ref())),
            column: pointer(error.and_then(|error| error.column.as_ref())),
            hint: pointer(error.and_then(|error| error.hint.as_ref())),
            lost_group: error.map_or(0, |error| error.lost_group),
            hint_form: pointer(error.and_then(|error| error.hint_form.as_ref())),
        });
        Ok(())
    })
}

/// One of several errors by its place, from 0, which is the first one itself. It belongs to the first one; NULL beyond
/// the last.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_error_at(errors: Option<&rowdex_error>, place: usize) -> *const rowdex_error {
    let found = errors.and_then(|first| match place.checked_sub(1) {
        None => Some(first),
        Some(behind) => first.more.get(behind),
    });
    found.map_or(null(), from_ref)
}

fn pointer(text: Option<&CString>) -> *const c_char {
    text.map_or(null(), |text| text.as_ptr())
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
                place.write(handle::handle(rowdex_error::new(&cause)));
            }
            cause.kind().into()
        }
    }
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
