//! What keeps the hub from giving a file, as the client that asks it tells the rest. No text of the hub is in it.

use std::fmt;
use std::time::Duration;

use object_store::client::{HttpError, HttpErrorKind};

/// Why the hub, or the store that it sends its clients to, gives nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HubFault {
    /// The hub does not show it: the status, the hub's own word for why, and whether a token was sent.
    Refused { status: u16, code: Option<String>, with_token: bool },
    /// Too many requests: how long to wait, if the hub says so.
    Limited { wait: Option<Duration> },
    /// The store refuses what the hub signed a moment ago.
    Unsigned { status: u16 },
    /// No network may be used.
    Offline,
    /// The hub is read, and not written to.
    ReadOnly,
    /// The token would go out without encryption.
    Open,
    /// The answer is none of the hub's protocol.
    Misread(&'static str),
}

impl HubFault {
    pub(super) fn error(self) -> HttpError {
        HttpError::new(HttpErrorKind::Unknown, self)
    }
}

impl fmt::Display for HubFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the hub: {self:?}")
    }
}

impl std::error::Error for HubFault {}
