//! Is a data file still the one that was indexed?

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_index::FileEntry;
use rowdex_io::source::FileStat;

/// How closely a data file is compared with what was indexed.
///
/// A copy of the indexed file is the indexed file: a local file of another modification time is accepted when its
/// size and its footer are those that were indexed. A footer holds the places and sizes of all data and usually their
/// statistics, so it changes with nearly any of it. `docs/staleness.md` says what each level costs, and what it does
/// not notice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Staleness {
    /// Compares nothing, neither when a file is opened nor when it is read. Row counts are still compared when a
    /// footer is parsed.
    Off,
    /// Compares the size, and the modification time or the entity tag: of local files when they are opened, and of
    /// files in a store with every read, which costs no extra request. Where only the time differs, it compares the
    /// footer. Does not see that a file was rewritten with the same length and given its old time back.
    ///
    /// At this level and above, every read of a local file compares size and modification time with those that the file
    /// had when it was opened.
    #[default]
    Stat,
    /// Compares the size and the hash of the footer, and in a store the entity tag, when a file is opened.
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

/// Compares size, and entity tag or modification time, with what was indexed. True for a file that is as long as it was
/// then, and of another time: a copy, or another content, which its footer tells.
///
/// # Errors
/// [`ErrorKind::Stale`] for a file that is another one.
pub(super) fn is_retimed(entry: &FileEntry<'_>, now: &FileStat) -> Result<bool> {
    let then = entry.stat();
    if then.may_be(now) {
        Ok(false)
    } else if now.size != then.size {
        let message = format!("it is {} bytes long, and was {} when it was indexed", now.size, then.size);
        Err(stale(entry, message))
    } else if then.etag.is_some() && now.etag.is_some() {
        Err(stale(entry, "its entity tag has changed since it was indexed"))
    } else {
        Ok(true)
    }
}

/// The error of a file whose time and footer are both others than when it was indexed.
pub(super) fn modified(entry: &FileEntry<'_>) -> Error {
    stale(entry, "it was modified after it was indexed")
}

pub(super) fn stale(entry: &FileEntry<'_>, message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Stale, message).with_file(entry.path()).with_hint("build the index again, or with `update`")
}
