//! Places as people name them: a local path, or a URL of an object store.
//!
//! A URL is taken apart without decoding, because a key of a bucket may hold any character: `s3://bucket/a
//! b#1/x.parquet` means just what it says, as it does to the tools of the stores. Only `http`, `https` and `file` URLs
//! are percent-encoded.
//!
//! Credentials come from the environment and from nowhere else. A URL with a user, a password or a query is refused,
//! and [`shown`] writes it without them, so that no message, log or index repeats a secret.

use std::fmt;
use std::path::{Path, PathBuf};

use super::hub_place::{self, Repository};
use super::percent::percent_encoded;
use rowdex_base::error::{Error, ErrorKind, Result};

pub use super::percent::percent_decoded;

/// Which store a URL belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Amazon S3 and what speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
    /// An HTTP server.
    Http,
    /// An HTTP server with TLS.
    Https,
    /// A dataset or a bucket of the Hugging Face hub.
    Hf,
}

/// A URL of an object store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Url {
    /// Which kind of store.
    pub scheme: Scheme,
    /// The bucket, the container, the host and port, or the dataset of the hub with its revision, or a bucket of it.
    pub authority: String,
    /// The key, without the slash before it. May end in one.
    pub key: String,
}

/// Where something is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A path of this machine.
    Local(PathBuf),
    /// A URL of a store.
    Remote(Url),
}

impl Place {
    /// What the path names. A path without a scheme that is known here is local.
    pub fn of(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let Some((scheme, rest)) = split(path) else { return Ok(Self::Local(path.to_owned())) };
        let refuse = |message: &'static str, hint: &'static str| {
            Err(Error::new(ErrorKind::InvalidArgument, message).with_file(shown(path)).with_hint(hint))
        };
        if scheme == "hf" {
            let (authority, key) = hub_place::parse(rest).map_err(|error| error.with_file(shown(path)))?;
            return Ok(Self::Remote(Url { scheme: Scheme::Hf, authority, key }));
        }
        let encoded = matches!(scheme, "http" | "https" | "file");
        let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            return refuse("the URL has a user or a password", "credentials are taken from the environment only");
        }
        if encoded && key.contains(['?', '#']) || authority.contains(['?', '#']) {
            return refuse("the URL has a query or a fragment", "credentials are taken from the environment only");
        }
        let key = if encoded {
            match percent_decoded(key) {
                Some(key) => key,
                None => return refuse("the URL has a wrong percent-encoding", "write `%25` for a percent sign"),
            }
        } else {
            key.to_owned()
        };
        if key.contains('\0') {
            return refuse("the URL contains a NUL", "check the URL");
        }
        let scheme = match scheme {
            "file" if matches!(authority, "" | "localhost") => {
                return Ok(Self::Local(PathBuf::from(format!("/{key}"))));
            }
            "file" => return refuse("the URL names a host", "write `file:///path`"),
            "s3" | "s3a" => Scheme::S3,
            "gs" => Scheme::Gcs,
            "az" | "azure" | "abfs" | "abfss" => Scheme::Azure,
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return refuse("this scheme is not known", "use s3, gs, az, hf, http, https or file, or a local path"),
        };
        if authority.is_empty() {
            return refuse("the URL names no bucket, container or host", "write `s3://bucket/path`");
        }
        Ok(Self::Remote(Url { scheme, authority: authority.to_owned(), key }))
    }
}

impl Place {
    /// The URL, if it is one.
    pub fn url(&self) -> Option<&Url> {
        match self {
            Self::Remote(url) => Some(url),
            Self::Local(_) => None,
        }
    }

    /// The path, if it is one of this machine.
    pub fn into_path(self) -> Option<PathBuf> {
        match self {
            Self::Local(path) => Some(path),
            Self::Remote(_) => None,
        }
    }
}

impl Url {
    /// The same store, another key.
    pub fn with_key(&self, key: impl Into<String>) -> Self {
        Self { key: key.into(), ..self.clone() }
    }

    /// Whether both are in one bucket, container or host.
    pub fn same_store(&self, other: &Self) -> bool {
        (self.scheme, &self.authority) == (other.scheme, &other.authority)
    }

    /// The dataset or bucket of the hub that it names; `None` if it is a URL of another store.
    pub(crate) fn repository(&self) -> Option<Repository> {
        (self.scheme == Scheme::Hf).then(|| Repository::of(&self.authority))?
    }

    /// The same files of a dataset of the hub at another revision. Any other URL stays as it is.
    #[must_use]
    pub fn at_revision(&self, revision: &str) -> Self {
        match self.repository().filter(|repository| repository.revision.is_some()) {
            Some(repository) => Self { authority: repository.at(revision), ..self.clone() },
            None => self.clone(),
        }
    }

    /// Whether both are in one dataset of the hub, at any revision, or in one bucket of it. Its entity tags are those
    /// of contents: what has one tag in both is the same file.
    pub fn same_repository(&self, other: &Self) -> bool {
        self.repository().zip(other.repository()).is_some_and(|(one, other)| one.name == other.name)
    }

    /// The folder that the key is in.
    pub fn parent(&self) -> Self {
        self.with_key(self.key.rsplit_once('/').map_or("", |(folder, _)| folder))
    }

    /// The place that a relative path leads to from this folder; `None` if it leads out of the store.
    pub fn join(&self, relative: &str) -> Option<Self> {
        let mut parts: Vec<&str> = self.key.split('/').filter(|part| !part.is_empty()).collect();
        for part in relative.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()?),
                part => parts.push(part),
            }
        }
        Some(self.with_key(parts.join("/")))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::S3 => "s3",
            Scheme::Gcs => "gs",
            Scheme::Azure => "az",
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Hf => "hf",
        };
        write!(f, "{scheme}://{}/", self.authority)?;
        match self.scheme {
            Scheme::Http | Scheme::Https => f.write_str(&percent_encoded(&self.key)),
            _ => f.write_str(&self.key),
        }
    }
}

/// The path or URL as messages may show it: without a user, a password, a query or a fragment.
pub fn shown(path: &Path) -> String {
    let Some((scheme, rest)) = split(path) else { return path.display().to_string() };
    let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
    let bare = |text: &str| text.split(['?', '#']).next().unwrap_or_default().to_owned();
    let host = bare(authority.rsplit_once('@').map_or(authority, |(_, host)| host));
    let cut = matches!(scheme, "http" | "https" | "file")
        || ["?sig=", "?X-Amz-", "?token="].iter().any(|secret| key.contains(secret));
    let key = if cut || host.len() < authority.len() { bare(key) } else { key.to_owned() };
    format!("{scheme}://{host}/{key}")
}

/// Scheme and rest of a path that looks like a URL.
fn split(path: &Path) -> Option<(&str, &str)> {
    let (scheme, rest) = path.to_str()?.split_once("://")?;
    let known = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    known.then_some((scheme, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(text: &str) -> Url {
        match Place::of(text).unwrap() {
            Place::Remote(url) => url,
            Place::Local(path) => panic!("{text} is local: {path:?}"),
        }
    }

    #[test]
    fn paths_without_a_scheme_are_local() {
        for path in ["data", "/data/x.parquet", "C:\\data", "a:b", "./s3:/x", "1s3://x"] {
            assert_eq!(Place::of(path).unwrap(), Place::Local(path.into()));
        }
        assert_eq!(Place::of("file:///a%20b/c").unwrap(), Place::Local("/a b/c".into()));
    }

    #[test]
    fn a_url_is_taken_apart_and_written_the_same() {
        let cases = [
            ("s3://bucket/a b/#1 100%/x?.parquet", Scheme::S3, "bucket", "a b/#1 100%/x?.parquet"),
            ("s3a://bucket", Scheme::S3, "bucket", ""),
            ("gs://bucket/a/", Scheme::Gcs, "bucket", "a/"),
            ("abfss://container/a", Scheme::Azure, "container", "a"),
            ("http://host:8080/a%20b/c", Scheme::Http, "host:8080", "a b/c"),
            ("https://host/%C3%A9", Scheme::Https, "host", "é"),
        ];
        for (text, scheme, authority, key) in cases {
            let url = remote(text);
            assert_eq!((url.scheme, url.authority.as_str(), url.key.as_str()), (scheme, authority, key));
            assert_eq!(remote(&url.to_string()), url);
        }
    }

    #[test]
    fn relative_paths_are_followed_within_the_store() {
        let folder = remote("s3://b/x/index.rdx").parent();
        assert_eq!(folder.join("").unwrap().key, "x");
        assert_eq!(folder.join("../data/./y").unwrap().key, "data/y");
        assert_eq!(folder.join("../..").map(|url| url.key), None);
    }

    #[test]
    fn secrets_in_a_url_are_refused_and_not_repeated() {
        for text in [
            "s3://AKIA:canary@bucket/x",
            "https://user:canary@host/x",
            "https://host/x?X-Amz-Signature=canary",
            "https://host/x#canary",
            "https://host?canary",
            "gopher://user:canary@host/x",
            "file://host/x?canary",
            "http://h/%zz?canary",
        ] {
            let error = Place::of(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(!format!("{error} {error:?} {}", shown(Path::new(text))).contains("canary"), "{error}");
        }
    }

    #[test]
    fn a_url_names_a_dataset_a_revision_and_a_path() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        for (text, revision, key, written) in [
            ("hf://datasets/o/n", "main", "", "hf://datasets/o/n/"),
            ("hf://datasets/o/n/", "main", "", "hf://datasets/o/n/"),
            ("hf://datasets/o/n/a b/*.parquet", "main", "a b/*.parquet", "hf://datasets/o/n/a b/*.parquet"),
            ("hf://datasets/o/n@v1.0/x", "v1.0", "x", "hf://datasets/o/n@v1.0/x"),
            ("hf://datasets/o/n@my%2Fbranch/x", "my/branch", "x", "hf://datasets/o/n@my%2Fbranch/x"),
            ("hf://datasets/o/n@~parquet", "refs/convert/parquet", "", "hf://datasets/o/n@refs%2Fconvert%2Fparquet/"),
            (&format!("hf://datasets/o/n@{commit}/x"), commit, "x", &format!("hf://datasets/o/n@{commit}/x")),
        ] {
            let found = remote(text);
            let repository = found.repository().unwrap();
            assert_eq!((&*repository.name, repository.revision.as_deref()), ("datasets/o/n", Some(revision)), "{text}");
            assert_eq!((found.key.as_str(), found.to_string().as_str()), (key, written));
            assert_eq!(repository.is_pinned(), revision == commit);
            assert_eq!(remote(written), found, "{text}");
            let pinned = found.at_revision(commit);
            assert!(pinned.repository().unwrap().is_pinned() && pinned.key == found.key);
            assert!(pinned.same_repository(&found) && pinned.same_store(&found) == (revision == commit));
        }
        let bucket = remote("hf://buckets/o/n/a@b/x y#");
        assert_eq!((bucket.key.as_str(), bucket.to_string().as_str()), ("a@b/x y#", "hf://buckets/o/n/a@b/x y#"));
        assert!(bucket.at_revision(commit) == bucket && !bucket.repository().unwrap().is_pinned());
        assert!(!bucket.same_repository(&remote("hf://datasets/o/n")) && remote("hf://buckets/o/n").key.is_empty());
    }

    #[test]
    fn what_names_no_dataset_is_refused_with_how_to_write_it() {
        for text in [
            "hf://",
            "hf://o/n",
            "hf://models/o/n/x",
            "hf://datasets",
            "hf://datasets/",
            "hf://datasets/o",
            "hf://datasets/o/",
            "hf://datasets/../n",
            "hf://datasets/o/n?token=canary",
            "hf://user:canary@datasets/o/n",
            "hf://datasets/o/n@",
            "hf://datasets/o/n@/x",
            "hf://datasets/o/n@%2E%2E/x",
            "hf://datasets/o/n@%zz",
            "hf://datasets/o/n@a b/x",
            "hf://datasets/o/n@%2F%2F",
            "hf://buckets/o",
            "hf://buckets/o/n@main/x",
        ] {
            let error = Place::of(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
            let told = format!("{error}");
            assert!(told.contains("hf://datasets/OWNER/NAME") && !told.contains("canary"), "{told}");
        }
    }
}
