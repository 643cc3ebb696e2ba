//! Why a command stopped, and what its caller reads.

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
    /// The reader of stdout has gone, as `head` does when it has enough. Nothing is wrong.
    ReaderGone,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Said(message.into())
    }

    /// What the arguments alone show to be wrong, for any data.
    pub(crate) fn usage(message: impl ToString) -> Self {
        Self::CalledWrongly(message.to_string())
    }

    /// Reports it, and returns the exit status.
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

/// For writes to stdout; all other errors of the operating system come as a [`rowdex::Error`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::Said(format!("cannot write to stdout: {error}")),
        }
    }
}

/// Writes a line to stderr. If that fails, the error cannot be reported.
pub(crate) fn complain(message: impl Display) {
    let _ = writeln!(io::stderr(), "rowdex: {message}");
}
