//! URLs of the hub: `hf://datasets/OWNER/NAME@REVISION/PATH` and `hf://buckets/OWNER/NAME/PATH`.
//!
//! Which dataset it is, and at which revision, is the store that a URL names, so it is in the authority of a URL, in
//! one spelling: `datasets/OWNER/NAME`, or `datasets/OWNER/NAME@REVISION` with the slashes of the revision encoded. A
//! bucket has no revisions. Paths are not decoded.

use super::percent::{percent_decoded, percent_encoded};
use rowdex_base::error::{Error, ErrorKind, Result};

/// The revision of a URL of a dataset that names none.
const DEFAULT: &str = "main";

/// A dataset of the hub at a revision, or a bucket of the hub, as a URL names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repository {
    /// `datasets/OWNER/NAME` or `buckets/OWNER/NAME`
    pub(crate) name: String,
    /// A branch, a tag, another reference, or a commit; `None` of a bucket.
    pub(crate) revision: Option<String>,
}

impl Repository {
    /// The one that an authority names.
    pub(crate) fn of(authority: &str) -> Option<Self> {
        let (name, revision) = match authority.split_once('@') {
            Some((name, revision)) => (name, Some(percent_decoded(revision)?)),
            None => (authority, authority.starts_with("datasets/").then(|| DEFAULT.to_owned())),
        };
        Some(Self { name: name.to_owned(), revision })
    }

    /// The authority of the same dataset at another revision.
    pub(crate) fn at(&self, revision: &str) -> String {
        format!("{}@{}", self.name, encoded(revision))
    }

    /// Whether the revision is a commit, whose files never change.
    #[cfg(any(feature = "object-store", test))]
    pub(crate) fn is_pinned(&self) -> bool {
        self.revision.as_deref().is_some_and(is_commit)
    }

    /// The path at the hub of one thing that it has of the revision, such as the listing (`tree`).
    #[cfg(feature = "object-store")]
    pub(crate) fn path(&self, what: &str) -> String {
        let revision = self.revision.as_ref().map(|revision| format!("/{}", encoded(revision)));
        format!("{}/{what}{}", self.name, revision.unwrap_or_default())
    }
}

/// Whether this is a whole commit hash, of SHA-1.
#[cfg(any(feature = "object-store", test))]
pub(crate) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// What stands behind `hf://`, as authority and key.
pub(crate) fn parse(rest: &str) -> Result<(String, String)> {
    const HOW: &str = "write `hf://datasets/OWNER/NAME`, `hf://datasets/OWNER/NAME@REVISION/PATH` or \
                       `hf://buckets/OWNER/NAME/PATH`";
    let refuse = |message: &'static str| Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(HOW));
    if rest.contains('\0') {
        return refuse("the URL contains a NUL");
    }
    let Some((kind @ ("datasets" | "buckets"), named)) = rest.split_once('/') else {
        return refuse("only datasets and buckets of the hub are read, and this URL names something else");
    };
    let (owner, rest) = named.split_once('/').unwrap_or((named, ""));
    let (name, rest) = rest.split_at(rest.find(['/', '@']).unwrap_or(rest.len()));
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with('.')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    if !is_name(owner) || !is_name(name) {
        return refuse("the URL names no dataset and no bucket");
    }
    let repository = format!("{kind}/{owner}/{name}");
    let Some(rest) = rest.strip_prefix('@') else {
        return Ok((repository, rest.strip_prefix('/').unwrap_or_default().to_owned()));
    };
    if kind == "buckets" {
        return refuse("the URL has a revision, and a bucket has none");
    }
    let (revision, key) = rest.split_once('/').unwrap_or((rest, ""));
    let revision = match revision.strip_prefix('~') {
        // It is short for the branch with converted files.
        Some(name) => Some(format!("refs/convert/{name}")),
        None => percent_decoded(revision),
    };
    match revision.filter(|revision| is_reference(revision)) {
        Some(revision) => Ok((format!("{repository}@{}", encoded(&revision)), key.to_owned())),
        None => refuse("the URL has a revision that cannot be one"),
    }
}

/// Whether git would take it as a name.
fn is_reference(revision: &str) -> bool {
    revision.split('/').all(|part| !part.is_empty() && !part.starts_with('.')) && !revision.contains(['\\', '?', ' '])
}

/// A text as one part of a path.
pub(crate) fn encoded(text: &str) -> String {
    percent_encoded(text).replace('/', "%2F")
}
