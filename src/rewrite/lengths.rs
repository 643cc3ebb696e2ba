//! The index of the output, with the lengths that the input has.

use std::path::PathBuf;

use super::output::RewriteOutput;
use crate::builder::{IndexBuilder, LengthsBuilder};
use crate::dataset::Dataset;
use rowdex_base::error::Result;
use rowdex_index::LengthsOf;

/// Builds the index. Lengths of columns that are written are read of them. Others, given ones among them, are brought
/// to the order of the rows, which takes eight bytes a row for as long as they are noted. Returns how many rows the
/// files have.
pub(super) fn build<I: Iterator<Item = u64>>(
    dataset: &Dataset,
    files: Vec<PathBuf>,
    output: &RewriteOutput,
    rows: impl Fn() -> I,
) -> Result<u64> {
    let index = dataset.index();
    let mut columns = Vec::new();
    let mut given = Vec::new();
    for name in index.lengths_columns()? {
        let lengths = index.lengths(name)?;
        match lengths.of() {
            LengthsOf::Items | LengthsOf::Numbers
                if rowdex_projection::Projection::columns(dataset.schema(), &[name]).is_ok() =>
            {
                columns.push(name.to_owned());
            }
            _ => {
                let mut all = Vec::new();
                lengths.read(0..index.len(), &mut all)?;
                let ordered = rows().filter_map(|row| all.get(usize::try_from(row).ok()?).copied()).collect();
                given.push((name.to_owned(), ordered));
            }
        }
    }
    let path = output.index();
    let builder = IndexBuilder::new(files).with_root(output.path()).with_partitions(false).with_overwrite(true);
    let builder = builder.with_store_options(dataset.store_options().clone());
    let found = builder.with_lengths(columns).build(&path)?.rows;
    // Lengths of other rows could not be noted.
    if given.iter().any(|(_, all): &(String, Vec<u64>)| all.len() as u64 != found) || given.is_empty() {
        return Ok(found);
    }
    let noted = given
        .into_iter()
        .fold(LengthsBuilder::new(&path).with_store_options(dataset.store_options().clone()), |noted, (name, all)| {
            noted.with_given(name, all)
        });
    noted.write().map(|_| found)
}
