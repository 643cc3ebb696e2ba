//! Why a command stopped, and what its caller is told.

use std::fmt::Display;
use std::io::{self, Write};

#[derive(Debug)]
pub(crate) enum Failure {
    /// One sentence says it all.
    Said(String),
    /// The command line asks for what cannot be: one sentence says why.
    CalledWrongly(String),
    /// The errors were written already, where they were found.
    Reported,
    /// Whoever read stdout has gone, as `head` does when it has enough. Nothing is wrong.
    ReaderGone,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Said(message.into())
    }

    /// What the arguments alone show to be wrong, whatever the data is.
    pub(crate) fn usage(message: impl ToString) -> Self {
        Self::CalledWrongly(message.to_string())
    }

    /// Tells it, and returns the exit status.
    pub(crate) fn report(self) -> u8 {
        match self {
            Self::Said(message) => {
                complain(message);
                1
            }
            Self::CalledWrongly(message) => {
                complain(message);
                2
            }
            Self::Reported => 1,
            Self::ReaderGone => 0,
        }
    }
}

impl From<rowdex::Error> for Failure {
    fn from(error: rowdex::Error) -> Self {
        Self::Said(error.to_string())
    }
}

/// For writes to stdout; whatever else can fail in the operating system comes as a [`rowdex::Error`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::Said(format!("cannot write to stdout: {error}")),
        }
    }
}

/// Writes a line to stderr. If that fails there is nobody left to tell.
pub(crate) fn complain(message: impl Display) {
    let _ = writeln!(io::stderr(), "rowdex: {message}");
}
