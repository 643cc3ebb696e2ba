//! A list of row ids as the order of every epoch.

use std::sync::{Arc, OnceLock};

use xxhash_rust::xxh3::Xxh3Default;

use crate::order::{MAX_LEN, Order, Orders};
use crate::{Error, ErrorKind, Result};

/// Rows in the order in which a foreign sampler wants them.
#[derive(Debug, Clone)]
pub(super) struct Explicit {
    rows: Arc<[u64]>,
    fingerprint: u64,
    /// Positions, sorted by their row and then by themselves; made when it is first asked where a row is.
    by_row: Arc<OnceLock<Vec<u64>>>,
}

impl Explicit {
    /// # Errors
    ///
    /// `OutOfRange` if the dataset has no such row.
    pub(super) fn new(rows: &[u64], dataset_rows: u64) -> Result<Self> {
        if rows.len() as u64 > MAX_LEN {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("an order of {} positions", rows.len())));
        }
        let mut hasher = Xxh3Default::new();
        hasher.update(b"explicit 1");
        for (position, row) in rows.iter().enumerate() {
            if *row >= dataset_rows {
                let message = format!("row id {row} at position {position} of an order for {dataset_rows} rows");
                return Err(Error::new(ErrorKind::OutOfRange, message)
                    .with_hint("make the order for the dataset that it is used with"));
            }
            hasher.update(&row.to_le_bytes());
        }
        Ok(Self { rows: rows.into(), fingerprint: hasher.digest(), by_row: Arc::default() })
    }
}

impl Order for Explicit {
    fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    fn row(&self, position: u64) -> Option<u64> {
        self.rows.get(usize::try_from(position).ok()?).copied()
    }

    fn position(&self, row: u64) -> Option<u64> {
        let by_row = self.by_row.get_or_init(|| {
            let mut positions: Vec<u64> = (0..self.rows.len() as u64).collect();
            positions.sort_by_key(|position| self.row(*position));
            positions
        });
        let first = by_row.partition_point(|position| self.row(*position) < Some(row));
        by_row.get(first).copied().filter(|position| self.row(*position) == Some(row))
    }
}

impl Orders for Explicit {
    fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    fn epoch(&self, _epoch: u64) -> Result<Arc<dyn Order>> {
        Ok(Arc::new(self.clone()))
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn name(&self) -> &'static str {
        "explicit"
    }
}
