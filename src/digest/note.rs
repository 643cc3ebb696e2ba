//! The digest of the rows, noted in their index: row group by row group.

use std::io::{Seek, SeekFrom};
use std::path::Path;

use arrow::datatypes::FieldRef;

use super::scan::{Done, Scan, sum};
use super::{DigestColumn, DigestProgress, RowsDigest};
use crate::dataset::Dataset;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_index::output::Output;
use rowdex_index::{Index, NotedDigests, RowGroupEntry, with_digests};
use rowdex_io::source::StoreOptions;
use rowdex_io::source::place::{Place, shown};
use rowdex_projection::Projection;

/// The digest that was noted in an index; `None` if none was, or not of all rows.
///
/// # Errors
/// [`ErrorKind::InvalidIndex`] when what was noted is damaged, or of another index.
pub fn noted(index: &Index) -> Result<Option<RowsDigest>> {
    Ok(index.noted_digests()?.and_then(|noted| {
        let column = |(name, kind): &(String, String)| DigestColumn { name: name.clone(), kind: kind.clone() };
        let columns = noted.columns.iter().map(column).collect();
        Some(RowsDigest { rows: index.len(), sum: noted.total()?, columns })
    }))
}

/// The columns that a digest was noted over, and how many rows have none yet: those of files that an update added, and
/// of row groups that a view serves in part. `None` if nothing was noted.
///
/// # Errors
/// As [`noted`].
pub fn noted_columns(index: &Index) -> Result<Option<(Vec<String>, u64)>> {
    let Some(noted) = index.noted_digests()? else { return Ok(None) };
    let groups = noted.sums.iter().zip(index.row_groups());
    let missing = groups.filter(|(sum, _)| sum.is_none()).map(|(_, group)| group.rows()).sum();
    Ok(Some((noted.columns.into_iter().map(|(name, _)| name).collect(), missing)))
}

impl Dataset {
    /// Notes the digest of all rows over the columns that are served, in the index that the dataset was opened with: so
    /// whoever trains on the rows can name them. The path holds the index as it was, or with the digest, at any moment.
    ///
    /// A digest is noted for each row group. Row groups that have one over these columns are not read, so after an
    /// update only those of new and changed files are. A digest over other columns is replaced. Row ids, the
    /// fingerprint and everything else of the index stay as they are, and readers that do not know digests pass over
    /// them.
    ///
    /// ```no_run
    /// # fn main() -> rowdex::Result<()> {
    /// # let store = rowdex::source::StoreOptions::default();
    /// let digest = rowdex::Dataset::open("train.rdx")?.note_digest(&store, &|_| ())?;
    /// println!("{} rows, digest {digest}", digest.rows);
    /// assert_eq!(rowdex::digest::noted(&rowdex::Index::open("train.rdx")?)?, Some(digest));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an index that was not opened from a file or URL, and where only some fields
    /// of a struct are served; [`ErrorKind::Stale`] if another index is there by now; [`ErrorKind::Schema`] for a
    /// column of a type that has no digest; and those of reading and writing.
    pub fn note_digest(&self, store: &StoreOptions, progress: &(dyn Fn(DigestProgress) + Sync)) -> Result<RowsDigest> {
        let index = reopened(self.index(), store)?;
        refuse_parts(self)?;
        let columns = super::columns_of(self)?;
        let names: Vec<(String, String)> =
            columns.iter().map(|column| (column.name.clone(), column.kind.clone())).collect();
        let known = index.noted_digests()?.filter(|known| known.columns == names);
        let mut sums = known.map_or_else(|| vec![None; index.num_row_groups() as usize], |known| known.sums);
        let missing = |entry: &RowGroupEntry<'_>| sums.get(entry.index() as usize).is_some_and(Option::is_none);
        let missing: Vec<RowGroupEntry<'_>> = self.index().row_groups().filter(missing).collect();
        let done = Done::new(missing.iter().map(RowGroupEntry::rows).sum(), progress);
        let add = |so_far: &mut u128, _, digests: &[u128]| *so_far = so_far.wrapping_add(sum(digests));
        let found = Scan::new(self, &done)?.run_over(&missing, |_| 0, add)?;
        for (entry, found) in missing.iter().zip(found) {
            if let Some(sum) = sums.get_mut(entry.index() as usize) {
                *sum = Some(found);
            }
        }
        let digests = NotedDigests { columns: names, sums };
        // Lengths may have been noted meanwhile.
        replace(&reopened(&index, store)?, Some(&digests), store)?;
        let total = digests.total();
        let total = total.ok_or_else(|| Error::new(ErrorKind::Internal, "a row group has no digest"))?;
        Ok(RowsDigest { rows: index.len(), sum: total, columns })
    }
}

/// Refuses columns that are served in part: what is noted goes by the names of columns, and whoever reads it again
/// would take the whole ones.
fn refuse_parts(dataset: &Dataset) -> Result<()> {
    let is_part = |field: &&FieldRef| {
        let whole = Projection::columns(dataset.index().schema(), &[field.name()]);
        whole.is_ok_and(|whole| whole.output().fields().iter().all(|whole| whole.data_type() != field.data_type()))
    };
    match dataset.schema().fields().iter().find(is_part) {
        None => Ok(()),
        Some(field) => {
            let message = "a digest is noted over whole columns, and of this one only some fields are served";
            Err(Error::new(ErrorKind::InvalidArgument, message)
                .with_column(field.name())
                .with_hint("name the whole column, or take the digest without noting it"))
        }
    }
}

/// Notes the digest of rows that have none yet, in an index where others have one: after an update of it. Says whether
/// there were any. The data is below `root`, or where the index says.
///
/// # Errors
/// As [`Dataset::note_digest`].
pub fn complete(
    index: &Path,
    root: Option<&Path>,
    store: &StoreOptions,
    progress: &(dyn Fn(DigestProgress) + Sync),
) -> Result<bool> {
    let index = Index::open_with(index, store)?;
    let Some((columns, _)) = noted_columns(&index)?.filter(|(_, missing)| *missing > 0) else { return Ok(false) };
    let builder = Dataset::builder(index).with_columns(columns).with_cache_bytes(0).with_store_options(store.clone());
    let dataset = match root {
        Some(root) => builder.with_root(root).open(),
        None => builder.open(),
    };
    dataset?.note_digest(store, progress).map(|_| true)
}

/// Removes the digest that was noted in an index from its file, if there is one.
///
/// # Errors
/// As [`Dataset::note_digest`], without those of reading.
pub fn remove(index: &Index, store: &StoreOptions) -> Result<()> {
    replace(&reopened(index, store)?, None, store)
}

/// What is at the place of an index by now.
pub(crate) fn reopened(index: &Index, store: &StoreOptions) -> Result<Index> {
    let Some(path) = index.path() else {
        return Err(Error::new(ErrorKind::InvalidArgument, "the index is in memory, and not in a file to note it in"));
    };
    let now = Index::open_with(path, store)?;
    if now.fingerprint() == index.fingerprint() {
        return Ok(now);
    }
    Err(Error::new(ErrorKind::Stale, "another index is there by now").with_file(shown(path)).with_hint("open it anew"))
}

fn replace(index: &Index, digests: Option<&NotedDigests>, store: &StoreOptions) -> Result<()> {
    let path = index.path().unwrap_or(Path::new(""));
    let mut out = Output::create(Place::of(path)?, true, store)?;
    with_digests(&mut out, index, digests).map_err(|error| match error.kind() {
        ErrorKind::Io => error.with_file(shown(path)),
        _ => error,
    })?;
    out.seek(SeekFrom::End(0)).map_err(|error| Error::io("cannot write the index", error))?;
    out.commit_over(index)
}
