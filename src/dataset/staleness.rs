//! Is a data file still the one that was indexed?

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::index::FileEntry;
use crate::source::Source;
use crate::{Error, ErrorKind, Result};

/// How closely a data file is compared with what was indexed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Staleness {
    /// Not at all. Row counts are still compared when a footer is parsed.
    Off,
    /// Size, and modification time or entity tag, once per file and process: one `stat` or request. Misses a file that was
    /// rewritten with the same length and given its old time back.
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

/// Compares size and modification time, or entity tag where both sides have one.
pub(super) fn check_stat(source: &dyn Source, entry: &FileEntry<'_>) -> Result<()> {
    let now = source.stat(entry.path())?;
    if now.size != entry.size() {
        return Err(stale(
            entry,
            format!("it is {} bytes long, and was {} when it was indexed", now.size, entry.size()),
        ));
    }
    match (now.etag.as_deref(), entry.etag()) {
        (Some(now), Some(then)) if now != then => Err(stale(entry, "its entity tag has changed since it was indexed")),
        (Some(_), Some(_)) => Ok(()),
        _ => match (now.mtime_ns, entry.mtime_ns()) {
            (Some(now), Some(then)) if now != then => Err(stale(entry, "it was modified after it was indexed")),
            _ => Ok(()),
        },
    }
}

pub(super) fn stale(entry: &FileEntry<'_>, message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Stale, message)
        .with_file(entry.path())
        .with_hint("build the index again, or update it (`rowdex build --update`)")
}
