//! URLs of the hub: `hf://datasets/OWNER/NAME@REVISION/PATH`.
//!
//! Which dataset it is, and at which revision, is the store that a URL names, so it is in the authority of a URL, in
//! one spelling: `datasets/OWNER/NAME`, or `datasets/OWNER/NAME@REVISION` with the slashes of the revision encoded.
//! Paths are not decoded.

use super::percent::{percent_decoded, percent_encoded};
use rowdex_base::error::{Error, ErrorKind, Result};

/// The revision of a URL that names none.
const DEFAULT: &str = "main";

/// A dataset of the hub at a revision, as a URL names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repository {
    /// `OWNER/NAME`
    pub(crate) name: String,
    /// A branch, a tag, another reference, or a commit.
    pub(crate) revision: String,
}

impl Repository {
    /// The one that an authority names.
    pub(crate) fn of(authority: &str) -> Option<Self> {
        let named = authority.strip_prefix("datasets/")?;
        let (name, revision) = match named.split_once('@') {
            Some((name, revision)) => (name, percent_decoded(revision)?),
            None => (named, DEFAULT.to_owned()),
        };
        Some(Self { name: name.to_owned(), revision })
    }

    /// The authority of the same dataset at another revision.
    pub(crate) fn at(&self, revision: &str) -> String {
        format!("datasets/{}@{}", self.name, encoded(revision))
    }

    /// Whether the revision is a commit, whose files never change.
    #[cfg(any(feature = "object-store", test))]
    pub(crate) fn is_pinned(&self) -> bool {
        is_commit(&self.revision)
    }

    /// The revision as one part of a path.
    #[cfg(feature = "object-store")]
    pub(crate) fn encoded_revision(&self) -> String {
        encoded(&self.revision)
    }
}

/// Whether this is a whole commit hash, of SHA-1.
#[cfg(any(feature = "object-store", test))]
pub(crate) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// What stands behind `hf://`, as authority and key.
pub(crate) fn parse(rest: &str) -> Result<(String, String)> {
    const HOW: &str = "write `hf://datasets/OWNER/NAME`, or `hf://datasets/OWNER/NAME@REVISION/PATH`";
    let refuse = |message: &'static str| Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(HOW));
    if rest.contains('\0') {
        return refuse("the URL contains a NUL");
    }
    let Some(named) = rest.strip_prefix("datasets/") else {
        return refuse("only datasets of the hub are read, and this URL names something else");
    };
    let (owner, rest) = named.split_once('/').unwrap_or((named, ""));
    let (name, rest) = rest.split_at(rest.find(['/', '@']).unwrap_or(rest.len()));
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with('.')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    if !is_name(owner) || !is_name(name) {
        return refuse("the URL names no dataset");
    }
    let (revision, key) = match rest.strip_prefix('@') {
        Some(rest) => {
            let (revision, key) = split_revision(rest);
            (Some(revision), key)
        }
        None => (None, rest.strip_prefix('/').unwrap_or_default()),
    };
    let authority = match revision {
        Some(Some(revision)) if is_reference(&revision) => format!("datasets/{owner}/{name}@{}", encoded(&revision)),
        Some(_) => return refuse("the URL has a revision that cannot be one"),
        None => format!("datasets/{owner}/{name}"),
    };
    Ok((authority, key.to_owned()))
}

/// The revision, decoded, and the path behind it; no revision if that is wrongly encoded. `~parquet` is short for the
/// branch with converted files.
fn split_revision(rest: &str) -> (Option<String>, &str) {
    let (revision, key) = rest.split_once('/').unwrap_or((rest, ""));
    let revision = match revision.strip_prefix('~') {
        Some(name) => Some(format!("refs/convert/{name}")),
        None => percent_decoded(revision),
    };
    (revision, key)
}

/// Whether git would take it as a name.
fn is_reference(revision: &str) -> bool {
    revision.split('/').all(|part| !part.is_empty() && !part.starts_with('.')) && !revision.contains(['\\', '?', ' '])
}

fn encoded(revision: &str) -> String {
    percent_encoded(revision).replace('/', "%2F")
}
