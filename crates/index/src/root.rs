//! Where the files of an index are: what is recorded of it, and what that means where the index is now.

use std::io;
use std::path::{Component, Path, PathBuf};

use super::{Index, Root};
use rowdex_base::error::{Error, Result};
use rowdex_io::source::place::Place;

/// Where the files are, as the index says.
pub fn of(index: &Index) -> Result<Place> {
    let recorded = index.root();
    if !recorded.is_relative {
        return Place::of(&recorded.path);
    }
    let path = index.path().ok_or_else(|| {
        Error::invalid("an index from memory does not say where its files are")
            .with_hint("open the dataset with a root")
    })?;
    match Place::of(path)? {
        Place::Local(path) => Ok(Place::Local(beside(&path, &recorded.path))),
        Place::Remote(url) => match url.parent().join(&recorded.path) {
            Some(root) => Ok(Place::Remote(root)),
            None => Err(Error::invalid("the recorded root leads out of the store of the index")
                .with_file(url.to_string())
                .with_hint("name the root")),
        },
    }
}

/// The folder that is at this way from that of a file; from that of the file which a link leads to, where it is there
/// only.
fn beside(file: &Path, way: &str) -> PathBuf {
    let folder = |file: &Path| file.parent().unwrap_or_else(|| Path::new("")).join(way);
    let named = folder(file);
    if !named.join(".").is_dir()
        && let Some(linked) = file.canonicalize().ok().map(|file| folder(&file)).filter(|linked| linked.is_dir())
    {
        return linked;
    }
    named
}

/// The root relative to the directory of the index if it can be written so, absolute otherwise. It need not be there:
/// a view says the same of it as its base, wherever the data is now.
pub fn recorded(output: &Place, root: &Place) -> Result<Root> {
    let root = match root {
        // Data in a store stays where it is when an index of it is copied to another place.
        Place::Remote(url) => return Ok(Root { is_relative: false, path: url.to_string() }),
        Place::Local(root) => root,
    };
    let canonical = |path: &Path| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        resolved(path)
            .map_err(|error| Error::io("cannot resolve the directory", error).with_file(path.display().to_string()))
    };
    let root = canonical(root)?;
    let beside = match output {
        Place::Local(output) => relative(&canonical(output.parent().unwrap_or(Path::new("")))?, &root),
        Place::Remote(_) => None,
    };
    let is_relative = beside.is_some();
    let path = beside.unwrap_or(root);
    let path = path
        .to_str()
        .map(|path| path.replace(std::path::MAIN_SEPARATOR, "/"))
        .ok_or_else(|| Error::invalid("the path of the data is not UTF-8").with_file(path.display().to_string()))?;
    Ok(Root { is_relative, path })
}

/// The path without links as far as it is there, and from there on as it is written.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match (path.parent(), path.components().next_back()) {
            (Some(above), Some(last)) => {
                let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
                Ok(resolved(above)?.join(last))
            }
            _ => Err(error),
        },
        other => other,
    }
}

/// The way from one absolute directory to another; `None` between drives.
pub fn relative(from: &Path, to: &Path) -> Option<PathBuf> {
    let from: Vec<Component<'_>> = from.components().collect();
    let to: Vec<Component<'_>> = to.components().collect();
    let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    if shared == 0 {
        return None;
    }
    let up = from[shared..].iter().map(|_| Component::ParentDir);
    let path: PathBuf = up.chain(to[shared..].iter().copied()).collect();
    Some(if path.as_os_str().is_empty() { PathBuf::from(".") } else { path })
}
