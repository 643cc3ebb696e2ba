//! Where a row goes: the positions at which an order has it.

use std::sync::Arc;

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::{EpochOrder, Uses};

/// The inverse of an order: its own, or a table where rows may come more than once.
#[derive(Debug)]
pub(super) struct Destinations {
    order: Arc<dyn EpochOrder>,
    /// Row and position, sorted.
    table: Option<Vec<(u64, u64)>>,
}

/// Positions that are asked for at once.
const STEP: usize = 4096;

impl Destinations {
    /// Of this order, within so many bytes.
    ///
    /// # Errors
    /// `TooLarge` if the table of an order that may repeat rows does not fit.
    pub(super) fn new(order: Arc<dyn EpochOrder>, memory: u64) -> Result<Self> {
        if order.uses() != Uses::Any {
            return Ok(Self { order, table: None });
        }
        let bytes = order.len().saturating_mul(size_of::<(u64, u64)>() as u64);
        if bytes > memory {
            let message = format!("the places of {} listed rows take {bytes} bytes of memory", order.len());
            return Err(Error::new(ErrorKind::TooLarge, message)
                .with_hint(format!("give {} bytes of memory or more", bytes.saturating_mul(4))));
        }
        let mut table = Vec::with_capacity(order.len() as usize);
        let mut rows = vec![0; STEP];
        for first in (0..order.len()).step_by(STEP) {
            let filled = order.fill(first, &mut rows);
            table.extend(rows[..filled].iter().copied().zip(first..));
        }
        table.sort_unstable();
        Ok(Self { order, table: Some(table) })
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> u64 {
        self.table.as_ref().map_or(0, |table| (table.len() * size_of::<(u64, u64)>()) as u64)
    }

    /// Tells each position of a row.
    pub(super) fn of(&self, row: u64, mut tell: impl FnMut(u64)) {
        match &self.table {
            None => {
                if let Some(position) = self.order.position(row) {
                    tell(position);
                }
            }
            Some(table) => {
                let first = table.partition_point(|(other, _)| *other < row);
                table[first..].iter().take_while(|(other, _)| *other == row).for_each(|(_, position)| tell(*position));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowdex_order::{Explicit, Global, Order};

    fn walked(order: &Arc<dyn EpochOrder>, rows: u64) {
        let destinations = Destinations::new(Arc::clone(order), 1 << 20).unwrap();
        for row in 0..rows {
            let mut found = Vec::new();
            destinations.of(row, |position| found.push(position));
            let expected: Vec<u64> = (0..order.len()).filter(|position| order.row(*position) == Some(row)).collect();
            assert_eq!(found, expected, "row {row}");
        }
    }

    #[test]
    fn all_positions_of_a_row_are_found_also_of_one_that_is_repeated() {
        walked(&Global::new(300, 4).unwrap().epoch(0).unwrap(), 300);
        let ids: Vec<u64> = (0..9000).map(|id| id * 31 % 97).collect();
        walked(&Explicit::new(&ids[..], 120).unwrap().epoch(0).unwrap(), 120);
    }

    #[test]
    fn a_table_that_does_not_fit_is_refused() {
        let order = Explicit::new(&[1, 1][..], 2).unwrap().epoch(0).unwrap();
        assert_eq!(Destinations::new(order, 31).unwrap_err().kind(), ErrorKind::TooLarge);
    }
}
