//! Which files there are below the inputs.

use std::collections::HashMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use fast_glob::glob_match;
use walkdir::WalkDir;

use super::found::{FilesToIndex, glob, has_extension, refuse_table};
use super::listing;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_index::path::check_path;
use rowdex_io::fs::{self, with_room};
use rowdex_io::source::StoreOptions;
use rowdex_io::source::place::{Place, Url};

pub(super) fn discover(inputs: &[PathBuf], root: Option<&Path>, options: &StoreOptions) -> Result<FilesToIndex> {
    if inputs.is_empty() {
        return Err(Error::invalid("no data was named").with_hint("name files, folders or patterns"));
    }
    let places = inputs.iter().map(Place::of).collect::<Result<Vec<_>>>()?;
    let root = root.map(Place::of).transpose()?;
    let remote: Vec<Url> = places.iter().filter_map(Place::url).cloned().collect();
    if remote.len() == places.len() {
        return listing::discover(&remote, root, options);
    }
    let local: Vec<PathBuf> = places.into_iter().filter_map(Place::into_path).collect();
    if let Some(url) = remote.first().or(root.as_ref().and_then(Place::url)) {
        return Err(Error::invalid("the data is partly local and partly in a store")
            .with_file(url.to_string())
            .with_hint("build one index for each"));
    }
    discover_local(&local, root.and_then(Place::into_path))
}

fn discover_local(inputs: &[PathBuf], root: Option<PathBuf>) -> Result<FilesToIndex> {
    let mut files = Vec::new();
    let mut bases = Vec::new();
    for input in inputs {
        let before = files.len();
        let base = expand(input, &mut files)?;
        let resolved = without_parents(&base)?;
        for file in &mut files[before..] {
            if let Ok(path) = file.strip_prefix(&base) {
                *file = resolved.join(path);
            }
        }
        bases.push(resolved);
        if files.len() == before {
            return Err(Error::new(ErrorKind::NotFound, "there is no Parquet file here")
                .with_file(input.display().to_string())
                .with_hint("name a file, a folder with *.parquet files, or a pattern that matches some"));
        }
    }
    let root = match root {
        Some(root) => without_parents(&root)?,
        None => common(&bases),
    };
    let mut paths = Vec::with_capacity(files.len());
    for file in &files {
        paths.push(below(&root, file)?);
    }
    paths.sort_unstable();
    let named = paths.len();
    paths.dedup();
    let repeated = (named - paths.len()) as u64;
    Ok(FilesToIndex { root: Place::Local(root), paths, repeated, listed: HashMap::new() })
}

/// Adds the files of one input and returns the directory they are below.
fn expand(input: &Path, files: &mut Vec<PathBuf>) -> Result<PathBuf> {
    match std::fs::metadata(input) {
        Ok(metadata) if metadata.is_dir() => {
            walk(input, usize::MAX, files, has_extension)?;
            Ok(input.to_owned())
        }
        Ok(_) => {
            files.push(input.to_owned());
            Ok(input.parent().unwrap_or(Path::new("")).to_owned())
        }
        Err(error) => match pattern(input)? {
            Some((base, depth, pattern)) => {
                let matches = |path: &Path| glob_match(&pattern, path.as_os_str().as_encoded_bytes());
                walk(&base, depth, files, matches)?;
                Ok(base)
            }
            None => Err(Error::io("cannot find the data", error).with_file(input.display().to_string())),
        },
    }
}

/// A glob pattern, the directory before its first special character, and how deep below that its files may lie;
/// `None` if there is no special character.
fn pattern(input: &Path) -> Result<Option<(PathBuf, usize, String)>> {
    let special = |component: &Component<'_>| component.as_os_str().to_string_lossy().contains(['*', '?', '[', '{']);
    if !input.components().any(|component| special(&component)) {
        return Ok(None);
    }
    let base: PathBuf = input.components().take_while(|component| !special(component)).collect();
    let text = input.components().collect::<PathBuf>().to_string_lossy().into_owned();
    let pattern = glob(&text, input.display().to_string())?;
    let behind = input.components().count() - base.components().count();
    let depth = if text.contains("**") { usize::MAX } else { behind };
    Ok(Some((base, depth, pattern)))
}

/// Adds the files below a folder that are wanted, sorted by name, but for those that are hidden by their names.
fn walk(base: &Path, depth: usize, files: &mut Vec<PathBuf>, wanted: impl Fn(&Path) -> bool) -> Result<()> {
    let start = if base.as_os_str().is_empty() { Path::new(".") } else { base };
    let before = files.len();
    let mut place = start.to_owned();
    let mut refused = Ok(());
    with_room(|| {
        files.truncate(before);
        // A path that begins with `./` would not match a pattern without it.
        let named = |path: &Path| match path.strip_prefix(".") {
            Ok(path) if base.as_os_str().is_empty() => path.to_owned(),
            _ => path.to_owned(),
        };
        let entries = WalkDir::new(start).max_depth(depth).follow_links(true).sort_by_file_name();
        let mut is_wanted = |path: &Path| {
            if refused.is_ok() {
                refused = refuse_table(path, |folder| folder.display().to_string());
            }
            !is_hidden(path)
        };
        for entry in entries.into_iter().filter_entry(|entry| entry.depth() == 0 || is_wanted(entry.path())) {
            match entry {
                Ok(entry) if entry.file_type().is_file() => {
                    files.extend(Some(named(entry.path())).filter(|path| wanted(path)));
                }
                Ok(_) => {}
                Err(error) if error.depth() > 0 && is_of_no_file(&error, |path| wanted(&named(path))) => {}
                Err(error) => {
                    place = error.path().unwrap_or(start).to_owned();
                    let code = error.io_error().and_then(io::Error::raw_os_error);
                    return Err(code.map_or_else(|| io::Error::other(error), io::Error::from_raw_os_error));
                }
            }
        }
        Ok(())
    })
    .map_err(|error| {
        let is_link = error.kind() == io::ErrorKind::NotFound && place.is_symlink();
        let message = if is_link { "the link leads to nothing" } else { "cannot list the folder" };
        fs::error(message, error).with_file(place.display().to_string())
    })?;
    refused
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(['.', '_']))
}

/// Whether the error hides no file that is wanted: it is of a hidden name, or of a link to nothing.
fn is_of_no_file(error: &walkdir::Error, wanted: impl Fn(&Path) -> bool) -> bool {
    let is_missing = error.io_error().is_some_and(|error| error.kind() == io::ErrorKind::NotFound);
    error.path().is_some_and(|path| is_hidden(path) || is_missing && !wanted(path))
}

/// The same folder by a path without `..`, which no index may have. Where that leads behind a link, the system knows.
fn without_parents(path: &Path) -> Result<PathBuf> {
    let parts: Vec<Component<'_>> = path.components().collect();
    let Some(last) = parts.iter().rposition(|part| *part == Component::ParentDir) else { return Ok(path.to_owned()) };
    let above: PathBuf = parts[..=last].iter().collect();
    let mut resolved = above
        .canonicalize()
        .map_err(|error| Error::io("cannot resolve the directory", error).with_file(above.display().to_string()))?;
    resolved.extend(&parts[last + 1..]);
    Ok(resolved)
}

/// The deepest directory that contains all of these.
fn common(bases: &[PathBuf]) -> PathBuf {
    let absolute =
        |base: &PathBuf| std::path::absolute(if base.as_os_str().is_empty() { Path::new(".") } else { base });
    let [first, rest @ ..] = bases else { return PathBuf::new() };
    if rest.iter().all(|base| base == first) {
        return first.clone();
    }
    let mut shared: Vec<PathBuf> = bases.iter().map(|base| absolute(base).unwrap_or_else(|_| base.clone())).collect();
    let mut root = shared.pop().unwrap_or_default();
    while !shared.iter().all(|base| base.starts_with(&root)) && root.pop() {}
    root
}

/// The path below the root, as an index stores it.
fn below(root: &Path, file: &Path) -> Result<String> {
    let named = |error: Error| error.with_file(file.display().to_string());
    let resolved = |path: &Path| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        std::path::absolute(path).map_err(|error| Error::io("cannot resolve the path", error)).map_err(named)
    };
    let root = resolved(root)?;
    let absolute = resolved(file)?;
    let relative = absolute.strip_prefix(&root).map_err(|_| {
        named(
            Error::invalid(format!("the file is not below the root {}", root.display()))
                .with_hint("choose a root that contains all files"),
        )
    })?;
    let parts: Option<Vec<&str>> = relative.components().map(|part| part.as_os_str().to_str()).collect();
    let path =
        parts.ok_or_else(|| named(Error::invalid("the file's name is not UTF-8").with_hint("rename the file")))?;
    let path = path.join("/");
    check_path(&path).map_err(named)?;
    Ok(path)
}
