//! Messages as bytes: little-endian numbers and texts with their lengths.

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::remedy::{Hint, Remedy};

/// The most bytes of a message. What is larger travels in a memory file.
pub(crate) const MOST_MESSAGE: usize = 64 << 10;

/// A text that is longer is cut, so that every error fits a message.
const MOST_TEXT: usize = 8 << 10;

/// Their places are their numbers in a message: new ones go to the end.
const KINDS: [ErrorKind; 16] = [
    ErrorKind::Internal,
    ErrorKind::Io,
    ErrorKind::NotFound,
    ErrorKind::AlreadyExists,
    ErrorKind::InvalidIndex,
    ErrorKind::UnsupportedIndex,
    ErrorKind::InvalidParquet,
    ErrorKind::UnsupportedParquet,
    ErrorKind::Schema,
    ErrorKind::Stale,
    ErrorKind::OutOfRange,
    ErrorKind::InvalidArgument,
    ErrorKind::TooLarge,
    ErrorKind::StateMismatch,
    ErrorKind::Closed,
    ErrorKind::TimedOut,
];

/// Writes a message.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// A message that begins with this tag.
    pub fn tagged(tag: u8) -> Self {
        Self(vec![tag])
    }

    /// Adds a number.
    pub fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// Adds a text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        let mut end = text.len().min(MOST_TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let (text, _) = text.split_at(end);
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    fn optional(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.number(1).text(text),
            None => self.number(0),
        }
    }

    /// Adds an error, with all that it names.
    pub fn error(&mut self, error: &Error) -> &mut Self {
        let kind = KINDS.iter().position(|kind| *kind == error.kind()).unwrap_or(0) as u64;
        self.number(kind).text(error.message()).optional(error.file()).optional(error.location());
        match error.row_group() {
            Some(row_group) => self.number(1).number(row_group),
            None => self.number(0),
        };
        self.optional(error.column()).optional(error.advice().map(Hint::form));
        let remedies = error.remedies();
        self.number(remedies.len() as u64);
        for remedy in remedies {
            self.number(Remedy::ALL.iter().position(|other| other == remedy).unwrap_or(0) as u64);
        }
        self
    }

    /// The message so far.
    #[cfg(test)]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The message.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Reads a message.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads a message from its beginning.
    pub fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// The tag that comes next.
    ///
    /// # Errors
    /// `Internal` if the message has ended, as for all that it reads.
    pub fn tag(&mut self) -> Result<u8> {
        let (tag, rest) = self.0.split_first().ok_or_else(garbled)?;
        self.0 = rest;
        Ok(*tag)
    }

    /// The number that comes next.
    ///
    /// # Errors
    /// As [`tag`](Self::tag).
    pub fn number(&mut self) -> Result<u64> {
        let (number, rest) = self.0.split_first_chunk().ok_or_else(garbled)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    /// A number that this process counts with.
    pub fn count(&mut self) -> Result<usize> {
        usize::try_from(self.number()?).map_err(|_| garbled())
    }

    /// The text that comes next.
    ///
    /// # Errors
    /// As [`tag`](Self::tag), and for what is no text.
    pub fn text(&mut self) -> Result<&'a str> {
        let length = self.count()?;
        let (text, rest) = self.0.split_at_checked(length).ok_or_else(garbled)?;
        self.0 = rest;
        std::str::from_utf8(text).map_err(|_| garbled())
    }

    fn optional(&mut self) -> Result<Option<&'a str>> {
        Ok(if self.number()? == 0 { None } else { Some(self.text()?) })
    }

    /// The error that comes next.
    ///
    /// # Errors
    /// As [`tag`](Self::tag), and for a kind that there is not.
    pub fn error(&mut self) -> Result<Error> {
        let kind = KINDS.get(self.count()?).copied().unwrap_or(ErrorKind::Internal);
        let mut error = Error::new(kind, self.text()?.to_owned());
        let (file, location) = (self.optional()?, self.optional()?);
        if let Some(file) = file {
            error = error.with_file(file).with_location(file, || location.map(str::to_owned));
        }
        if self.number()? != 0 {
            error = error.with_row_group(self.number()?);
        }
        if let Some(column) = self.optional()? {
            error = error.with_column(column);
        }
        let hint = self.optional()?;
        let mut remedies = Vec::new();
        for _ in 0..self.number()? {
            remedies.push(*Remedy::ALL.get(self.count()?).ok_or_else(garbled)?);
        }
        Ok(match hint {
            Some(hint) => error.with_hint(Hint::new(hint.to_owned(), remedies)),
            None => error,
        })
    }
}

/// The error for a message that no version of this library sends.
pub(super) fn garbled() -> Error {
    Error::new(ErrorKind::Internal, "another process of this machine sent what is no message of rowdex")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut message = Writer::tagged(7);
        message.number(u64::MAX).text("ä").text("").number(3);
        let bytes = message.into_bytes();
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.tag().unwrap(), reader.number().unwrap()), (7, u64::MAX));
        assert_eq!((reader.text().unwrap(), reader.text().unwrap()), ("ä", ""));
        assert_eq!(reader.count().unwrap(), 3);
        assert!(reader.number().is_err(), "there is nothing more");
    }

    #[test]
    fn an_error_arrives_as_it_was() {
        let bare = Error::new(ErrorKind::Internal, "x");
        let full = Error::new(ErrorKind::InvalidParquet, "a page is damaged")
            .with_file("a/b.parquet")
            .with_location("a/b.parquet", || Some("/data/a/b.parquet".to_owned()))
            .with_row_group(3)
            .with_column("text")
            .with_hint("write it again");
        let remedied =
            Error::new(ErrorKind::Stale, "z").with_remedies("update it ({}) in {}", &[Remedy::Update, Remedy::Root]);
        for error in [bare, full, remedied].into_iter().chain(KINDS.map(|kind| Error::new(kind, "y"))) {
            let mut message = Writer::default();
            message.error(&error);
            let read = Reader::new(message.bytes()).error().unwrap();
            assert_eq!((read.kind(), read.to_string()), (error.kind(), error.to_string()));
            assert_eq!((read.file(), read.row_group()), (error.file(), error.row_group()));
            assert_eq!((read.column(), read.advice()), (error.column(), error.advice()));
        }
    }

    #[test]
    fn a_message_that_was_cut_is_an_error() {
        let mut message = Writer::tagged(1);
        message.error(&Error::new(ErrorKind::Io, "cannot read").with_file("a").with_hint("b"));
        let bytes = message.into_bytes();
        for end in 0..bytes.len() {
            let mut reader = Reader::new(&bytes[..end]);
            assert!(reader.tag().and_then(|_| reader.error()).is_err(), "{end}");
        }
        let huge = [u64::MAX.to_le_bytes(), u64::MAX.to_le_bytes()].concat();
        assert!(Reader::new(&huge).text().is_err());
    }

    #[test]
    fn every_error_fits_a_message() {
        let long = "ß".repeat(MOST_MESSAGE);
        let error = Error::new(ErrorKind::Io, long.clone()).with_file(long.clone()).with_column(long.clone());
        let mut message = Writer::tagged(1);
        message.error(&error.with_location(&long, || Some(long.clone())).with_hint(long.clone()));
        assert!(message.bytes().len() < MOST_MESSAGE);
        assert!(Reader::new(&message.bytes()[1..]).error().is_ok());
    }
}
