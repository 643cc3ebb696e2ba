//! Files as engines spell them: relative to the root, absolute, from the working folder, or as URLs.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use crate::{Index, root};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::source::place::{Place, Url, percent_decoded};

/// The files of an index by every spelling met so far.
#[derive(Debug)]
pub(super) struct FileNames<'a> {
    by_path: HashMap<&'a str, u32>,
    /// Where the files are; `None` for an index from memory, whose files have no other names.
    root: Option<Place>,
    /// Spellings found before.
    found: HashMap<String, u32>,
    /// The one that was asked for last, as rows of a file mostly come together.
    last: Option<(String, u32)>,
}

impl<'a> FileNames<'a> {
    pub(super) fn new(index: &'a Index) -> Self {
        let by_path = index.files().map(|file| (file.path(), file.index())).collect();
        Self { by_path, root: root::of(index).ok(), found: HashMap::new(), last: None }
    }

    /// The file that is called just so, by its path in the index.
    pub(super) fn exactly(&self, path: &str) -> Option<u32> {
        self.by_path.get(path).copied()
    }

    /// The file of any spelling.
    pub(super) fn find(&mut self, name: &str) -> Result<u32> {
        self.named(name)?.ok_or_else(|| self.unknown(name))
    }

    /// The file of any spelling, if there is one.
    pub(super) fn named(&mut self, name: &str) -> Result<Option<u32>> {
        if let Some((last, file)) = &self.last
            && last == name
        {
            return Ok(Some(*file));
        }
        let file = match self.found.get(name) {
            Some(file) => *file,
            None => {
                let Some(file) = self.spelled(name)? else { return Ok(None) };
                self.found.insert(name.to_owned(), file);
                file
            }
        };
        self.last = Some((name.to_owned(), file));
        Ok(Some(file))
    }

    fn spelled(&self, name: &str) -> Result<Option<u32>> {
        // A path relative to the root may be the path of another file from the working folder.
        let paths = self.paths(name);
        let found = paths.iter().filter_map(|path| self.exactly(path));
        let mut files: Vec<u32> = self.exactly(name).into_iter().chain(found).collect();
        files.sort_unstable();
        files.dedup();
        match files.as_slice() {
            [file] => Ok(Some(*file)),
            [] => Ok(None),
            _ => Err(Error::new(ErrorKind::InvalidArgument, format!("{name:?} may mean two files of the index"))
                .with_hint("list files by their paths relative to the root of the index")),
        }
    }

    /// What a spelling may be relative to the root.
    fn paths(&self, name: &str) -> Vec<String> {
        let plain_and_decoded = |text: &str| {
            let decoded = percent_decoded(text).filter(|decoded| decoded != text);
            [Some(text.to_owned()), decoded].into_iter().flatten().collect::<Vec<_>>()
        };
        match (&self.root, name.strip_prefix("file:")) {
            (Some(Place::Local(root)), Some(rest)) => {
                // Hadoop writes one slash, browsers three.
                let path = match rest.strip_prefix("//") {
                    Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
                    None => rest,
                };
                plain_and_decoded(path).iter().filter_map(|path| below(root, Path::new(path))).collect()
            }
            (Some(Place::Local(root)), None) if !name.contains("://") => {
                let within = name.strip_prefix("./").map(str::to_owned);
                below(root, Path::new(name)).into_iter().chain(within).collect()
            }
            (Some(Place::Remote(root)), None) => {
                let Some(key) = key_in(root, name) else { return Vec::new() };
                let folder = root.key.trim_matches('/');
                let relative = |key: String| match folder.is_empty() {
                    true => Some(key),
                    false => key.strip_prefix(folder)?.strip_prefix('/').map(str::to_owned),
                };
                plain_and_decoded(&key).into_iter().filter_map(relative).collect()
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn unknown(&self, name: &str) -> Error {
        let example = self.by_path.iter().min_by_key(|(_, file)| **file).map(|(path, _)| *path);
        let place = match &self.root {
            Some(Place::Local(root)) => format!(", below {}", root.display()),
            Some(Place::Remote(root)) => format!(", below {root}"),
            None => String::new(),
        };
        let hint = match example {
            Some(example) => format!("its files have names like {example}{place}"),
            None => "it has no files".to_owned(),
        };
        Error::new(ErrorKind::OutOfRange, format!("no file of the index is called {name:?}")).with_hint(hint)
    }
}

/// The key of a URL in the same bucket, container or host as the root, or of `bucket/key`.
pub(super) fn key_in(root: &Url, name: &str) -> Option<String> {
    let Some((scheme, rest)) = name.split_once("://") else {
        return name.strip_prefix(root.authority.as_str())?.strip_prefix('/').map(str::to_owned);
    };
    if scheme == "hf" {
        let url = Place::of(name).ok()?.url().filter(|url| url.same_repository(root))?.clone();
        return Some(url.key);
    }
    let (authority, key) = rest.split_once('/')?;
    // abfss://container@account.dfs.core.windows.net/key; nothing else may have a user.
    let authority = match authority.split_once('@') {
        Some((container, _)) if scheme.starts_with("abfs") || scheme.starts_with("wasb") => container,
        _ => authority,
    };
    let spelled = match scheme {
        "s3n" => "s3",
        "gcs" => "gs",
        "wasb" | "wasbs" => "az",
        other => other,
    };
    match Place::of(format!("{spelled}://{authority}/")).ok()? {
        Place::Remote(url) if url.same_store(root) => Some(key.to_owned()),
        _ => None,
    }
}

/// A local path relative to the root, with `/` between its parts.
fn below(root: &Path, path: &Path) -> Option<String> {
    let lexical = || relative(&tidy(root)?, &tidy(path)?);
    // The same file by another way: through a link, most of the time.
    let real = || relative(&root.canonicalize().ok()?, &path.canonicalize().ok()?);
    // Two dots behind a link lead elsewhere than the text says.
    let up = path.components().any(|part| part == Component::ParentDir);
    if up { real() } else { lexical().or_else(real) }
}

fn relative(root: &Path, path: &Path) -> Option<String> {
    let rest = path.strip_prefix(root).ok()?;
    Some(rest.to_str()?.replace(std::path::MAIN_SEPARATOR, "/"))
}

/// Absolute, and without `.` and `..`.
fn tidy(path: &Path) -> Option<PathBuf> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let mut tidy = PathBuf::new();
    for component in std::path::absolute(path).ok()?.components() {
        match component {
            Component::ParentDir => {
                tidy.pop();
            }
            Component::CurDir => {}
            part => tidy.push(part),
        }
    }
    Some(tidy)
}

#[cfg(test)]
mod tests {
    use rowdex_io::source::place::{Place, Url};

    use super::key_in;

    #[test]
    fn urls_of_stores_are_matched_by_bucket_and_key() {
        let Ok(Place::Remote(root)) = Place::of("s3://bucket/data") else { panic!("no URL") };
        let azure = match Place::of("az://container/data").unwrap() {
            Place::Remote(url) => url,
            Place::Local(_) => panic!("no URL"),
        };
        let key = |root: &Url, name: &str| key_in(root, name);
        for name in ["s3://bucket/data/x", "s3a://bucket/data/x", "s3n://bucket/data/x", "bucket/data/x"] {
            assert_eq!(key(&root, name).as_deref(), Some("data/x"), "{name}");
        }
        assert_eq!(key(&azure, "abfss://container@account.dfs.core.windows.net/data/x").as_deref(), Some("data/x"));
        for name in ["s3://other/data/x", "gs://bucket/data/x", "s3://user@bucket/data/x", "data/x", "s3:/bucket/x"] {
            assert_eq!(key(&root, name), None, "{name}");
        }
    }
}
