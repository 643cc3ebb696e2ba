//! Digests of rows that an index has already, in an index that is built anew of some of its files.

use std::collections::HashMap;
use std::io::{Seek, SeekFrom};

use super::lengths::KnownRows;
use rowdex_base::error::{Error, Result};
use rowdex_index::output::Output;
use rowdex_index::{Index, NotedDigests, RowGroupEntry, add_digests, known_digests};
use rowdex_projection::Projection;
use rowdex_rows::RowDigests;

/// Takes over, into an index that was just written to `out`, what is known of the rows of its files. Nothing is read of
/// the others, which have no digest then. Returns the new length.
pub(super) fn carry(out: &mut Output, known: &[KnownRows]) -> Result<Option<u64>> {
    // Indexes of one fingerprint have the same rows under the same ids, and the files are those that were indexed.
    let mut noted: HashMap<u64, (&Index, NotedDigests)> = HashMap::new();
    for (index, _) in known.iter().flatten() {
        if !noted.contains_key(&index.fingerprint())
            && let Some(digests) = index.noted_digests()?
        {
            noted.insert(index.fingerprint(), (index, digests));
        }
    }
    let mut of_files = known.iter().flatten().filter_map(|(index, _)| noted.get(&index.fingerprint()));
    let Some(columns) = of_files.next().map(|(_, digests)| digests.columns.clone()) else { return Ok(None) };
    let index = &out.read_back()?;
    if !has(index, &columns) {
        return Ok(None);
    }
    let first = |group: &RowGroupEntry<'_>| {
        let (before, ids) = known.get(group.file() as usize)?.as_ref()?;
        let (before, digests) = noted.get(&before.fingerprint())?;
        let own = index.file(group.file())?.row_ids().start;
        Some((*before, digests, group.first_row().checked_sub(own)?.checked_add(ids.start)?))
    };
    let digests = known_digests(index, &columns, first);
    if !digests.says_something(index) {
        return Ok(None);
    }
    let length = add_digests(out, index, &digests)?.seek(SeekFrom::End(0));
    length.map(Some).map_err(|error| Error::io("cannot write the index", error))
}

/// Whether the schema has these columns, with values of these kinds.
fn has(index: &Index, columns: &[(String, String)]) -> bool {
    let names: Vec<&String> = columns.iter().map(|(name, _)| name).collect();
    let own = Projection::columns(index.schema(), &names).and_then(|own| RowDigests::new(own.output()));
    let own = own.map(RowDigests::into_columns);
    own.is_ok_and(|own| own.into_iter().map(|column| (column.name, column.kind)).eq(columns.iter().cloned()))
}
