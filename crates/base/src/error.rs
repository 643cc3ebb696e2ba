//! The one error type: what went wrong, where, and what to do about it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A `Result` whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What sort of failure an [`Error`] is, for callers that branch on it.
///
/// New kinds may be added, so a `match` needs a `_` arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system or the store failed a read, a write or a request.
    Io,
    /// A file that should be there is not.
    NotFound,
    /// A file is there already and the caller did not ask to replace it.
    AlreadyExists,
    /// The index bytes are not a valid index: not one at all, truncated, or damaged.
    InvalidIndex,
    /// The index is of a format version, or needs a feature, that this library does not know.
    UnsupportedIndex,
    /// A Parquet file is malformed: not Parquet, truncated, or with damaged pages.
    InvalidParquet,
    /// A Parquet file is valid but uses something that cannot be read here, such as encryption.
    UnsupportedParquet,
    /// Two files do not have the same columns, or a column cannot be brought to the asked type.
    Schema,
    /// A data file is not the one that was indexed.
    Stale,
    /// A row id, row group or position beyond the end.
    OutOfRange,
    /// An argument that can never be right, such as a batch size of zero.
    InvalidArgument,
    /// Decoding would take more memory than the limit allows.
    TooLarge,
    /// A saved state or fingerprint belongs to another order, dataset or sampler.
    StateMismatch,
    /// What was asked was closed before, or meanwhile by another thread.
    Closed,
    /// Nothing came within the time to wait. It is not over: ask again.
    TimedOut,
    /// A defect of this library; please report it.
    Internal,
}

impl ErrorKind {
    /// Whether an error of this kind says that the data of a row group cannot be read.
    ///
    /// The other kinds say something of the caller, of the index, or of a defect here. Sound rows must not be replaced
    /// because of those.
    #[doc(hidden)]
    pub fn is_of_the_data(self) -> bool {
        match self {
            Self::Io
            | Self::NotFound
            | Self::Stale
            | Self::InvalidParquet
            | Self::UnsupportedParquet
            // A damaged header often claims more bytes than the limit allows.
            | Self::TooLarge
            // Which file a column comes from decides whether it has values that its type cannot take.
            | Self::Schema => true,
            Self::AlreadyExists
            | Self::InvalidIndex
            | Self::UnsupportedIndex
            | Self::OutOfRange
            | Self::InvalidArgument
            | Self::StateMismatch
            | Self::Closed
            | Self::TimedOut
            | Self::Internal => false,
        }
    }
}

/// What went wrong, with the file, row group and column it happened in and what to do, where they are known.
///
/// `Display` prints all of it on one line; [`std::error::Error::source`] gives the cause. An error is cheap to clone,
/// because every thread that waited for the same row group gets the same one.
#[derive(Clone, thiserror::Error, Serialize, Deserialize)]
#[error("{inner}")]
pub struct Error {
    inner: Box<ErrorDetails>,
    /// Of this process alone.
    #[serde(skip)]
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct ErrorDetails {
    kind: ErrorKind,
    message: Cow<'static, str>,
    file: Option<String>,
    /// Where a user finds the file, if its path is relative to a folder or URL that a user may not know.
    location: Option<String>,
    row_group: Option<u64>,
    column: Option<String>,
    hint: Option<Cow<'static, str>>,
}

impl Error {
    /// An error of this kind that says `message`, with no place and no advice yet.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        let inner =
            ErrorDetails { kind, message, file: None, location: None, row_group: None, column: None, hint: None };
        Self { inner: Box::new(inner), source: None }
    }

    /// The error of an argument that can never be right.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// The error of a failed operating-system call; `message` says what was being done.
    pub fn io(message: impl Into<Cow<'static, str>>, source: std::io::Error) -> Self {
        let kind = match source.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
            _ => ErrorKind::Io,
        };
        Self::new(kind, format!("{}: {source}", message.into())).with_source(source)
    }

    /// Names the file, unless a deeper layer has named one already.
    #[must_use]
    pub fn with_file(mut self, file: impl Into<String>) -> Self {
        self.inner.file.get_or_insert_with(|| file.into());
        self
    }

    /// Says where a user finds the file of this path, if that is the one that the error names.
    #[doc(hidden)]
    #[must_use]
    pub fn with_location(mut self, file: &str, location: impl FnOnce() -> Option<String>) -> Self {
        if self.inner.location.is_none() && self.inner.file.as_deref() == Some(file) {
            self.inner.location = location();
        }
        self
    }

    /// Names the row group by its place in the file, unless a deeper layer has.
    #[must_use]
    pub fn with_row_group(mut self, row_group: u64) -> Self {
        self.inner.row_group.get_or_insert(row_group);
        self
    }

    /// Names the column by its dotted path, unless a deeper layer has.
    #[must_use]
    pub fn with_column(mut self, column: impl Into<String>) -> Self {
        self.inner.column.get_or_insert_with(|| column.into());
        self
    }

    /// Says what to do about it, unless a deeper layer has. An option stands in backquotes, by the name that it has in
    /// all fronts.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.inner.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// Says which row ids there are of so many rows.
    #[doc(hidden)]
    #[must_use]
    pub fn with_row_ids(self, rows: u64) -> Self {
        self.with_hint(match rows.checked_sub(1) {
            Some(last) => format!("row ids are 0 to {last}"),
            None => "there are no rows".to_owned(),
        })
    }

    /// Says in which of several datasets it happened, whose files may have the same names.
    #[doc(hidden)]
    #[must_use]
    pub fn within_dataset(mut self, number: usize) -> Self {
        self.inner.message = format!("in dataset {number}: {}", self.inner.message).into();
        self
    }

    /// Keeps the cause, for [`std::error::Error::source`].
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// What sort of failure this is.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// What went wrong, without the place and the advice.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// The file it happened in. A data file is named by its path in the index; `Display` prints the path or URL that it
    /// was read from.
    pub fn file(&self) -> Option<&str> {
        self.inner.file.as_deref()
    }

    /// Where a user finds the file, if that is not its path.
    #[doc(hidden)]
    pub fn location(&self) -> Option<&str> {
        self.inner.location.as_deref()
    }

    /// The row group it happened in, by its place in the file.
    pub fn row_group(&self) -> Option<u64> {
        self.inner.row_group
    }

    /// The column it happened in, by its dotted path.
    pub fn column(&self) -> Option<&str> {
        self.inner.column.as_deref()
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        self.inner.hint.as_deref()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}: {})", self.inner.kind, self.inner)
    }
}

/// `file, row group 3, column "a.b": message; hint`.
impl fmt::Display for ErrorDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorDetails { message, file, location, row_group, column, hint, .. } = self;
        let mut separator = "";
        if let Some(file) = location.as_ref().or(file.as_ref()) {
            // An error is one line, whatever a file is called.
            for part in file.split_inclusive(char::is_control) {
                let plain = part.trim_end_matches(char::is_control);
                write!(f, "{plain}{}", part[plain.len()..].escape_default())?;
            }
            separator = ", ";
        }
        if let Some(row_group) = row_group {
            write!(f, "{separator}row group {row_group}")?;
            separator = ", ";
        }
        if let Some(column) = column {
            write!(f, "{separator}column {column:?}")?;
            separator = ", ";
        }
        if !separator.is_empty() {
            f.write_str(": ")?;
        }
        f.write_str(message)?;
        match hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_place_then_message_then_advice() {
        let error = Error::new(ErrorKind::Stale, "12 bytes long, 10 when indexed")
            .with_column("a.b")
            .with_row_group(3)
            .with_file("part-0.parquet")
            .with_hint("build the index again");
        assert_eq!(
            error.to_string(),
            "part-0.parquet, row group 3, column \"a.b\": 12 bytes long, 10 when indexed; build the index again"
        );
    }

    #[test]
    fn the_deepest_layer_names_the_place() {
        let error = Error::new(ErrorKind::Io, "x").with_file("inner").with_file("outer");
        assert_eq!(error.file(), Some("inner"));
        assert_eq!(error.to_string(), "inner: x");
    }

    #[test]
    fn a_file_is_printed_by_where_it_is_found_and_named_by_its_path() {
        let found = |error: Error| error.with_location("a/b.parquet", || Some("data/a/b.parquet".to_owned()));
        let error = found(Error::new(ErrorKind::Io, "x").with_file("a/b.parquet"));
        assert_eq!((error.file(), error.to_string().as_str()), (Some("a/b.parquet"), "data/a/b.parquet: x"));
        let other = found(Error::new(ErrorKind::Io, "x").with_file("train.rdx"));
        assert_eq!(other.to_string(), "train.rdx: x", "the place of another file");
        assert_eq!(found(Error::new(ErrorKind::Io, "x")).to_string(), "x");
    }

    #[test]
    fn an_error_is_one_line_whatever_a_file_is_called() {
        let error = Error::new(ErrorKind::Io, "x").with_file("a\n\r\tb/\u{7f}é\n");
        assert_eq!(error.to_string(), r"a\n\r\tb/\u{7f}é\n: x");
        assert_eq!(error.file(), Some("a\n\r\tb/\u{7f}é\n"));
    }

    #[test]
    fn a_missing_file_is_not_found_and_keeps_its_cause() {
        let error = Error::io("cannot open", std::io::ErrorKind::NotFound.into());
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(std::error::Error::source(&error).is_some());
    }
}
