//! Descriptions: what to build, select and write, as plain values that a front hands over as JSON.
//!
//! Each is checked here alone. A field that is not known, or that has a value of another kind, is refused by name.

mod build;
mod check;
mod column;
mod order;
mod rewrite;
mod select;
mod set;
mod share;
mod store;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{self, DeserializeOwned, Deserializer, Visitor};

pub(crate) use self::build::{BuildDescription, FindDescription, LengthsDescription};
pub(crate) use self::check::{DigestDescription, VerifyDescription};
pub(crate) use self::column::{AskedColumn, ColumnDescription};
pub(crate) use self::order::OrderDescription;
pub(crate) use self::rewrite::RewriteDescription;
pub(crate) use self::select::SelectDescription;
pub(crate) use self::set::{ChosenRows, SetDescription};
pub(crate) use self::share::ShareDescription;
pub(crate) use self::store::StoreDescription;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_index::Index;
use rowdex_order::IdSet;

/// Work that ends in a report.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum JobDescription {
    Build(BuildDescription),
    Lengths(LengthsDescription),
    Select(SelectDescription),
    Rewrite(RewriteDescription),
    Verify(VerifyDescription),
    Digest(DigestDescription),
    Launch {},
}

/// What a description refers to by numbers, because it is large or open.
pub(crate) trait Operands<'a> {
    fn indexes(&self) -> &[Index];
    fn row_ids(&self, number: usize) -> Result<&'a [u64]>;
    fn weights(&self, number: usize) -> Result<&'a [f64]>;
    fn labels(&self, number: usize) -> Result<&'a [u32]>;
    fn set(&self, number: usize) -> Result<&'a Arc<IdSet>>;
}

/// The value that a text describes. `what` is what errors call it; if it is empty, that is the first field.
pub(crate) fn read<T: DeserializeOwned>(what: &str, text: &[u8]) -> Result<T> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let (what, field) = match path.split_once('.') {
            Some((first, rest)) if what.is_empty() && !rest.is_empty() => (first, rest),
            _ if what.is_empty() => (path.trim_matches('.'), "."),
            _ => (what, path.as_str()),
        };
        let cause = error.into_inner().to_string();
        // The text is mostly one line that a program wrote.
        let cause = cause.split(" at line ").next().unwrap_or_default();
        match field {
            "." => invalid(format!("{what}: {cause}")),
            _ if cause.starts_with("unknown field") => invalid(format!("{what}: {cause}")),
            // Values there may be secrets.
            secret if secret.starts_with("store.config") => invalid(format!("{what}: `{secret}` is no text")),
            _ => invalid(format!("{what}: `{field}`: {cause}")),
        }
    })?;
    json.end().map_err(|error| invalid(format!("{what}: {error}")))?;
    Ok(value)
}

/// Settings that may be left out.
pub(crate) trait OptionalSetting: Sized {
    /// Set to a value, if there is one.
    fn given<T>(self, value: Option<T>, set: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => set(self, value),
            None => self,
        }
    }
}

impl<T> OptionalSetting for T {}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

/// What a library says that was built without conditions.
#[cfg(not(feature = "filter"))]
pub(crate) fn no_filters() -> Error {
    invalid("this library was built without conditions").with_hint("build it with the feature `filter`")
}

/// A path, in whatever encoding the file system has.
#[derive(Debug, Clone)]
pub(crate) struct GivenPath(PathBuf);

impl AsRef<Path> for GivenPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl From<&GivenPath> for PathBuf {
    fn from(path: &GivenPath) -> Self {
        path.0.clone()
    }
}

impl<'de> Deserialize<'de> for GivenPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_byte_buf(PathVisitor)
    }
}

struct PathVisitor;

impl Visitor<'_> for PathVisitor {
    type Value = GivenPath;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<GivenPath, E> {
        self.visit_bytes(text.as_bytes())
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> std::result::Result<GivenPath, E> {
        if bytes.contains(&0) {
            return Err(E::custom("a path with a NUL"));
        }
        Ok(GivenPath(OsString::from_vec(bytes.to_vec()).into()))
    }
}
