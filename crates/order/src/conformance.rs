//! What every [`Order`] must keep to, as one check that runs over any of them.
//!
//! The built-in orders are tested by it. An implementation of your own should be, too:
//!
//! ```
//! # mod rowdex { pub use rowdex_base::error::Result; pub use rowdex_order as order; }
//! use rowdex::order::{Sequential, conformance};
//!
//! # fn main() -> rowdex::Result<()> {
//! conformance::check(&Sequential::new(1000)?, [0, 1, 7])?;
//! # Ok(())
//! # }
//! ```

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::{Blocks, Contiguous, EpochOrder, Explicit, Global, Order, Rotated, Sequential, Torch, Uses};
use rowdex_base::error::{Error, ErrorKind, Result};

/// So many row ids are asked for, whether they are served or not.
const MOST_UNSERVED: u64 = 1 << 16;

/// Checks what [`EpochOrder`] and [`Order`] ask of an implementation, in these epochs. All positions of them are
/// listed, so use short orders.
///
/// # Errors
///
/// Those of [`Order::epoch`], and `Internal` for what the orders do not keep to: the error says what, and where.
pub fn check(orders: &dyn Order, epochs: impl IntoIterator<Item = u64>) -> Result<()> {
    each(orders, epochs, false)
}

/// As [`check`], and every row that is served has a known position, however often it is served.
#[cfg(test)]
pub(crate) fn check_strictly(orders: &dyn Order, epochs: impl IntoIterator<Item = u64>) -> Result<()> {
    each(orders, epochs, true)
}

fn each(orders: &dyn Order, epochs: impl IntoIterator<Item = u64>, strictly: bool) -> Result<()> {
    let len = orders.len();
    let most = orders.rows();
    for epoch in epochs {
        let wrong = |what: String| {
            let message = format!("orders {}, epoch {epoch}: {what}", orders.name());
            Error::new(ErrorKind::Internal, message).with_hint("the implementation of the orders is at fault")
        };
        let order = orders.epoch(epoch)?;
        if order.len() != len {
            return Err(wrong(format!("{} positions instead of {len}", order.len())));
        }
        let rows = rows(&*order, most).map_err(wrong)?;
        let again = orders.epoch(epoch)?;
        let differs = |position: &u64| again.row(*position) != rows.get(to_usize(*position)).copied();
        if let Some(position) = (0..len).rev().find(differs) {
            return Err(wrong(format!("position {position} has another row when it is asked for again")));
        }
        positions(&*order, &rows, most, strictly || order.uses() != Uses::Any).map_err(wrong)?;
        uses(&*order, &rows).map_err(wrong)?;
        filling(&*order, &rows).map_err(wrong)?;
    }
    Ok(())
}

/// The row at every position: there is one exactly below the length.
fn rows(order: &dyn EpochOrder, most: Option<u64>) -> Result<Vec<u64>, String> {
    let len = order.len();
    let row = |position| order.row(position).ok_or_else(|| format!("position {position} of {len} has no row"));
    let rows: Vec<u64> = (0..len).map(row).collect::<Result<_, _>>()?;
    if let Some(beyond) = [len, u64::MAX].into_iter().find(|position| order.row(*position).is_some()) {
        return Err(format!("position {beyond} has a row, and there are {len} positions"));
    }
    match rows.iter().find(|row| most.is_some_and(|most| **row >= most)) {
        Some(row) => Err(format!("row {row} is served, of {} rows", most.unwrap_or_default())),
        None => Ok(rows),
    }
}

/// A position of a row has that row; and where `all` are known, every row that is served has one.
fn positions(order: &dyn EpochOrder, rows: &[u64], most: Option<u64>, all: bool) -> Result<(), String> {
    let ids = most.unwrap_or_else(|| rows.iter().max().map_or(0, |row| row.saturating_add(1)));
    let mut served: Vec<u64> = rows.to_vec();
    served.sort_unstable();
    // Of the rows that are not served, enough: there may be any number of them.
    let some = ids.min(MOST_UNSERVED);
    for row in (0..some).chain(served.iter().copied()).chain([u64::MAX]) {
        match order.position(row) {
            Some(position) if order.row(position) != Some(row) => {
                return Err(format!("row {row} is said to be at position {position}, which has another row"));
            }
            None if all && served.binary_search(&row).is_ok() => {
                return Err(format!("row {row} is served, and its position is not known"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// How often rows are served is what the order promises.
fn uses(order: &dyn EpochOrder, rows: &[u64]) -> Result<(), String> {
    let mut served: Vec<u64> = rows.to_vec();
    served.sort_unstable();
    let twice = served.windows(2).find(|pair| pair.first() == pair.last()).and_then(|pair| pair.first());
    match (order.uses(), twice) {
        (Uses::Once | Uses::AtMostOnce, Some(row)) => Err(format!("row {row} is served twice, against the promise")),
        (Uses::Once, None) if !served.iter().copied().eq(0..order.len()) => {
            Err("rows are left out, against the promise of every row once".to_owned())
        }
        _ => Ok(()),
    }
}

/// Filling gives what single positions give, for any beginning, stride and room.
fn filling(order: &dyn EpochOrder, rows: &[u64]) -> Result<(), String> {
    let len = order.len();
    let strides = [
        (0, 1),
        (1, 1),
        (0, 3),
        (2, 7),
        (len / 2, 1),
        (len, 1),
        (0, len.saturating_add(1)),
        (1, u64::MAX),
        (u64::MAX, 1),
    ];
    for (first, stride) in strides {
        let first_at = to_usize(first);
        let by = to_usize(stride);
        let expected: Vec<u64> = rows.iter().skip(first_at).step_by(by).copied().collect();
        for room in [expected.len() + 3, expected.len() / 2] {
            let mut filled = vec![u64::MAX; room];
            let written = order.fill_strided(first, stride, &mut filled);
            let due = expected.len().min(room);
            if written != due || filled.get(..due) != expected.get(..due) {
                return Err(format!(
                    "filling {room} places from {first} by {stride} gives other rows than asking for each"
                ));
            }
            if filled.iter().skip(due).any(|row| *row != u64::MAX) {
                return Err(format!("filling {room} places from {first} by {stride} writes beyond what it counts"));
            }
        }
    }
    Ok(())
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Every sort of orders, over `len` rows: all of them permutations.
///
/// # Errors
/// None for a length that an order may have.
#[doc(hidden)]
pub fn every(len: u64, seed: u64) -> Result<Vec<(String, Arc<dyn Order>)>> {
    let groups = unequal(len);
    let blocks = |k| -> Result<Arc<dyn Order>> { Ok(Arc::new(Blocks::new(&groups, k, seed)?)) };
    let global: Arc<dyn Order> = Arc::new(Global::new(len, seed)?);
    let sequential: Arc<dyn Order> = Arc::new(Sequential::new(len)?);
    // Odd and so without a factor in common with what it is shifted by; reversed for good measure.
    let listed: Vec<u64> = (0..len).rev().map(|row| (row + len / 3) % len).collect();
    let pieces = |orders: &Arc<dyn Order>, shards| -> Result<Arc<dyn Order>> {
        Ok(Arc::new(Contiguous::new(Arc::clone(orders), shards)?))
    };
    let mut all: Vec<(String, Arc<dyn Order>)> = vec![
        ("sequential".into(), Arc::clone(&sequential)),
        ("global".into(), Arc::clone(&global)),
        ("torch".into(), Arc::new(Torch::new(len, seed)?)),
        ("explicit".into(), Arc::new(Explicit::new(listed, len)?)),
        ("rotated sequential".into(), Arc::new(Rotated::new(Arc::clone(&sequential)))),
        ("rotated global".into(), Arc::new(Rotated::new(Arc::clone(&global)))),
        ("contiguous(4) sequential".into(), pieces(&sequential, 4)?),
        ("contiguous(5) blocks(3)".into(), pieces(&blocks(3)?, 5)?),
        ("contiguous(1) global".into(), pieces(&global, 1)?),
        ("rotated contiguous(6) sequential".into(), Arc::new(Rotated::new(pieces(&sequential, 6)?))),
    ];
    for k in [1, 3, Blocks::ALL] {
        all.push((format!("blocks({k})"), blocks(k)?));
    }
    Ok(all)
}

/// So many rows in row groups of different sizes, of none as well.
fn unequal(mut len: u64) -> Vec<u64> {
    let mut groups = vec![0];
    for size in [1, 20, 0, 7, 33, 20].into_iter().cycle() {
        groups.push(size.min(len));
        len -= size.min(len);
        if len == 0 {
            break;
        }
    }
    groups
}
