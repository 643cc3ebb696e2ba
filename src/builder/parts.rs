//! Indexes of parts of the data, made elsewhere, whose footers need not be read again.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use super::unchanged::Unchanged;
use rowdex_base::error::{Error, ErrorKind, Remedy, Result};
use rowdex_index::{Index, root};
use rowdex_io::source::place::{Place, shown};
use rowdex_io::source::{FileStat, Source, StoreOptions};

/// The indexes of parts.
#[derive(Debug, Default)]
pub(super) struct Parts {
    indexes: Vec<Index>,
}

/// The files of the parts by path: in which index each is, and its number there.
#[derive(Debug, Default)]
pub(super) struct KnownFiles<'a> {
    files: HashMap<&'a str, (&'a Index, u32)>,
}

impl Parts {
    /// Opens indexes of files below the same root, which must have their footers and serve all of their rows.
    pub(super) fn open(paths: &[PathBuf], root: &Place, options: &StoreOptions) -> Result<Self> {
        if paths.is_empty() {
            return Ok(Self::default());
        }
        let root = root::absolute(root)?.path;
        let open = |path: &PathBuf| {
            let index = Index::open_with(path, options)?;
            check(&index, &root).map_err(|error| error.with_file(shown(path)))?;
            Ok(index)
        };
        Ok(Self { indexes: paths.iter().map(open).collect::<Result<_>>()? })
    }

    /// Which files there are; of a file in two parts the first one counts.
    pub(super) fn files(&self) -> KnownFiles<'_> {
        let mut files = HashMap::new();
        for index in &self.indexes {
            for entry in index.files() {
                files.entry(entry.path()).or_insert((index, entry.index()));
            }
        }
        KnownFiles { files }
    }
}

impl<'a> KnownFiles<'a> {
    /// The part that has a file as it is now, and what it recorded of it.
    pub(super) fn find(
        &self,
        path: &str,
        listed: Option<&FileStat>,
        source: &dyn Source,
    ) -> Option<(&'a Index, Unchanged)> {
        let (index, file) = *self.files.get(path)?;
        let recorded = index.file(file)?.stat();
        let same = match listed {
            Some(now) => recorded.is_surely(now),
            None => recorded.is_surely(&source.stat(path).ok()?),
        };
        same.then_some((index, Unchanged { file, stat: recorded }))
    }
}

fn check(part: &Index, whole: &str) -> Result<()> {
    let refuse = |message: String, hint: &'static str, remedies: &[Remedy]| {
        Err(Error::new(ErrorKind::InvalidArgument, message).with_remedies(hint, remedies))
    };
    if let Some(file) = part.files().find(|file| !file.has_footer()) {
        return refuse(
            format!("the part has no footers, that of {} for one", file.path()),
            "build parts with footers, and leave footers out of the whole ({}) if need be",
            &[Remedy::NoFooters],
        );
    }
    if part.row_groups().any(|group| group.selection().is_some()) {
        return refuse(
            "the part is an index of selected rows".to_owned(),
            "build parts of all rows, and select rows of the whole ({})",
            &[Remedy::ListedRows],
        );
    }
    let own = root::of(part).and_then(|own| root::absolute(&own)).map(|own| own.path).ok();
    if own.as_deref() != Some(whole) {
        let own = own.as_deref().unwrap_or(&part.root().path);
        return refuse(
            format!("the files of the part are below {own}, and those of the whole below {whole}"),
            "build parts of the same data ({}), or with the same root ({})",
            &[Remedy::Slice, Remedy::Root],
        );
    }
    Ok(())
}

/// The places in a list that slice `slice` of `slices` has. Slices are consecutive and differ by one in length.
pub(super) fn slice_of(length: usize, slice: u64, slices: u64) -> Range<usize> {
    let bound = |slice: u64| (length as u128 * u128::from(slice) / u128::from(slices.max(1))) as usize;
    bound(slice)..bound(slice + 1)
}
