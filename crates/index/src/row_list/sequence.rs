//! Rows of a list in the order in which it has them.

use std::path::Path;

use super::{Index, out_of_range, table};
use rowdex_base::error::{Error, Result};
use rowdex_io::fs;

impl Index {
    /// The row ids that a file lists, in its order, each as often as it is listed: what
    /// [`Recipe::explicit`](rowdex_order::Recipe::explicit) takes. The list is one as for
    /// [`read_rows`](Self::read_rows); files of a folder follow each other by name. 8 bytes a listed row.
    ///
    /// # Errors
    /// As for [`read_rows`](Self::read_rows), and [`ErrorKind::OutOfRange`](rowdex_base::error::ErrorKind) for a row
    /// that the index does not serve.
    pub fn read_order(&self, list: impl AsRef<Path>) -> Result<Vec<u64>> {
        let list = list.as_ref();
        let mut rows = Vec::new();
        let mut read = || match table::is_table(list) {
            true => self.visit(
                |each| table::read(list, None, each),
                |row, _| {
                    rows.push(row.ok_or_else(not_served)?);
                    Ok(())
                },
            ),
            false => {
                let text = fs::with_room(|| std::fs::read_to_string(list))
                    .map_err(|error| fs::error("cannot read the list of rows", error))?;
                let (ranges, unserved) = self.listed_in(&text)?;
                if unserved > 0 {
                    return Err(not_served());
                }
                rows.extend(ranges.into_iter().flatten());
                Ok(())
            }
        };
        read().map_err(|error: Error| error.with_file(list.display().to_string()))?;
        Ok(rows)
    }
}

fn not_served() -> Error {
    out_of_range("a row is listed that the index does not serve".to_owned())
}
