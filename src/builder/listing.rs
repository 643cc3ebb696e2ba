//! Which files there are below URLs of an object store.

use std::path::Path;

use fast_glob::glob_match;

use super::found::{FilesToIndex, glob, has_extension, refuse_table};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_index::output;
use rowdex_index::path::check_path;
use rowdex_io::source::place::{Place, Scheme, Url};
use rowdex_io::source::{FileStat, ObjectSource, StoreOptions};

/// What makes a key a pattern.
const SPECIAL: [char; 4] = ['*', '?', '[', '{'];

/// The files of these inputs, all in one store. Asks only for listings: a file that is named is not looked at.
///
/// A branch of the hub is taken for the commit that it is of now, so what is found is all of one commit.
pub(super) fn discover(inputs: &[Url], root: Option<Place>, options: &StoreOptions) -> Result<FilesToIndex> {
    let (inputs, root) = &pinned(inputs, root, options)?;
    let root = root.clone();
    let Some(first) = inputs.first() else { return Err(Error::new(ErrorKind::Internal, "a listing of nothing")) };
    if let Some(other) = inputs.iter().find(|input| !input.same_store(first)) {
        return Err(Error::invalid(format!("the data is in several stores: {first} is in another"))
            .with_file(other.to_string())
            .with_hint("build one index for each bucket, container or host"));
    }
    let mut files = Vec::new();
    let mut bases = Vec::new();
    for input in inputs {
        let before = files.len();
        let base = expand(input, options, &mut files)?;
        bases.push(base);
        if files.len() == before {
            return Err(Error::new(ErrorKind::NotFound, "there is no Parquet file here")
                .with_file(input.to_string())
                .with_hint(
                    "name a file, a prefix with *.parquet files that ends in `/`, or a pattern that matches some",
                ));
        }
    }
    let root = match root {
        None => first.with_key(common(&bases)),
        Some(Place::Remote(root)) if root.same_store(first) => root.with_key(root.key.trim_end_matches('/')),
        Some(_) => {
            return Err(Error::invalid("the root is not in the store of the data")
                .with_hint("choose a root that contains all files"));
        }
    };
    let named = files.len();
    // Of a file that was named, too, what a listing says stays known.
    files.sort_by(|(one, stat), (other, known)| one.cmp(other).then(stat.is_none().cmp(&known.is_none())));
    files.dedup_by(|(again, _), (key, _)| again == key);
    let repeated = (named - files.len()) as u64;
    let mut paths = Vec::with_capacity(files.len());
    let mut listed = std::collections::HashMap::new();
    for (key, stat) in files {
        let named = |error: Error| error.with_file(first.with_key(&*key).to_string());
        let path = if root.key.is_empty() { Some(key.as_str()) } else { key.strip_prefix(&format!("{}/", root.key)) };
        let path = path.ok_or_else(|| {
            named(
                Error::invalid(format!("the file is not below the root {root}"))
                    .with_hint("choose a root that contains all files"),
            )
        })?;
        check_path(path).map_err(named)?;
        if let Some(stat) = stat {
            listed.insert(path.to_owned(), stat);
        }
        paths.push(path.to_owned());
    }
    paths.sort_unstable();
    Ok(FilesToIndex { root: Place::Remote(root), paths, repeated, listed })
}

/// The same URLs, with commits for the branches of the hub; each branch is asked for once.
fn pinned(inputs: &[Url], root: Option<Place>, options: &StoreOptions) -> Result<(Vec<Url>, Option<Place>)> {
    let mut known: Vec<(Url, Url)> = Vec::new();
    let mut pinned = |url: &Url| {
        let store = url.with_key("");
        let commit = match known.iter().find(|(branch, _)| *branch == store) {
            Some((_, commit)) => commit.clone(),
            None => {
                let commit = ObjectSource::pinned(store.clone(), options)?;
                known.push((store, commit.clone()));
                commit
            }
        };
        Ok(commit.with_key(&*url.key))
    };
    let inputs = inputs.iter().map(&mut pinned).collect::<Result<_>>()?;
    let root = match root {
        Some(Place::Remote(root)) => Some(Place::Remote(pinned(&root)?)),
        other => other,
    };
    Ok((inputs, root))
}

/// Adds the files of one input and returns the folder they are below.
fn expand(input: &Url, options: &StoreOptions, files: &mut Vec<(String, Option<FileStat>)>) -> Result<String> {
    let key = input.key.as_str();
    // There may be an object of this very name.
    if key.contains(SPECIAL) && !key.ends_with('/') && !output::exists(&Place::Remote(input.clone()), options)? {
        let (base, pattern) = pattern(input)?;
        for (key, stat) in list(input, &base, options)? {
            if glob_match(&pattern, &key) {
                files.push((key, Some(stat)));
            }
        }
        return Ok(base);
    }
    let folder = key.trim_end_matches('/');
    let http = matches!(input.scheme, Scheme::Http | Scheme::Https);
    let is_folder = key.is_empty() || key.ends_with('/');
    if is_folder || !(http || has_extension(Path::new(key))) {
        let before = files.len();
        for (key, stat) in list(input, folder, options)? {
            if has_extension(Path::new(&key)) {
                files.push((key, Some(stat)));
            }
        }
        if files.len() > before || is_folder {
            return Ok(folder.to_owned());
        }
    }
    files.push((key.to_owned(), None));
    Ok(input.parent().key)
}

/// The visible files below a folder.
fn list(store: &Url, folder: &str, options: &StoreOptions) -> Result<impl Iterator<Item = (String, FileStat)>> {
    let listed = ObjectSource::at(store.with_key(folder), options)?.list();
    let listed = listed.map_err(|error| match store.scheme {
        Scheme::Http | Scheme::Https => error.with_hint("most HTTP servers do not list files; name each file"),
        _ => error,
    })?;
    let below = if folder.is_empty() { 0 } else { folder.len() + 1 };
    for (key, _) in &listed {
        refuse_table(Path::new(key), |folder| store.with_key(folder.to_string_lossy()).to_string())?;
    }
    let visible = move |key: &str| {
        let path = key.get(below..).unwrap_or_default();
        !path.is_empty() && !path.split('/').any(|part| part.starts_with(['.', '_']))
    };
    Ok(without_folders(listed).into_iter().filter(move |(key, _)| visible(key)))
}

/// Without the empty objects that stand for folders: the client leaves out the slash that their names end in.
fn without_folders(mut listed: Vec<(String, FileStat)>) -> Vec<(String, FileStat)> {
    listed.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let is_folder = |key: &str| {
        let below = format!("{key}/");
        let next = listed.partition_point(|(other, _)| *other < below);
        listed.get(next).is_some_and(|(other, _)| other.starts_with(&below))
    };
    let folders: Vec<bool> = listed.iter().map(|(key, stat)| stat.size == 0 && is_folder(key)).collect();
    listed.into_iter().zip(folders).filter(|(_, folder)| !folder).map(|(file, _)| file).collect()
}

/// A glob pattern and the folder before its first special character.
fn pattern(input: &Url) -> Result<(String, String)> {
    let base: Vec<&str> = input.key.split('/').take_while(|part| !part.contains(SPECIAL)).collect();
    Ok((base.join("/"), glob(&input.key, input.to_string())?))
}

/// The deepest folder that contains all of these.
fn common(bases: &[String]) -> String {
    let mut shared: Option<Vec<&str>> = None;
    for base in bases {
        let parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
        shared = Some(match shared {
            None => parts,
            Some(shared) => shared.iter().zip(&parts).take_while(|(a, b)| a == b).map(|(part, _)| *part).collect(),
        });
    }
    shared.unwrap_or_default().join("/")
}
