//! Is a data file still the one that was indexed?

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::index::FileEntry;
use crate::source::FileStat;
use crate::{Error, ErrorKind, Result};

/// How closely a data file is compared with what was indexed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Staleness {
    /// Not at all. Row counts are still compared when a footer is parsed.
    Off,
    /// Size, and modification time or entity tag: of local files once per file and process, and of files in a store with every read, which
    /// costs no request of its own. Misses a file that was rewritten with the same length and given its old time back.
    #[default]
    Stat,
    /// As `Stat`, and the footer is read and its hash compared, once per file and process. A footer holds sizes, places and
    /// usually statistics of all data, so it changes with nearly any of it.
    Footer,
    /// As `Footer`, before every read of a row group; when verifying, every row group is decoded as well.
    Deep,
}

impl Staleness {
    /// All levels, from the cheapest to the most thorough.
    pub const ALL: [Self; 4] = [Self::Off, Self::Stat, Self::Footer, Self::Deep];

    fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Stat => "stat",
            Self::Footer => "footer",
            Self::Deep => "deep",
        }
    }
}

impl fmt::Display for Staleness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Staleness {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|level| level.name() == text).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, format!("{text:?} is no staleness level"))
                .with_hint("use off, stat, footer or deep")
        })
    }
}

/// Compares size, and entity tag or modification time, with what was indexed.
pub(super) fn check_stat(entry: &FileEntry<'_>, now: &FileStat) -> Result<()> {
    let then = entry.stat();
    if then.may_be(now) {
        return Ok(());
    }
    Err(if now.size != then.size {
        stale(entry, format!("it is {} bytes long, and was {} when it was indexed", now.size, then.size))
    } else if then.etag.is_some() && now.etag.is_some() {
        stale(entry, "its entity tag has changed since it was indexed")
    } else {
        stale(entry, "it was modified after it was indexed")
    })
}

pub(super) fn stale(entry: &FileEntry<'_>, message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Stale, message)
        .with_file(entry.path())
        .with_hint("build the index again, or update it (`rowdex build --update`)")
}
