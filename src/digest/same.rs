//! Whether two datasets have the same rows, and whether these are in the order of one of them that somebody says.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_128;

use super::RowsDigest;
use super::cells::Cells;
use super::report::{SameRowsReport, WrongRows};
use super::scan::Scan;
use crate::dataset::{Dataset, RowProgress, RowsDone};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::{EpochOrder, Uses};

/// Compares the rows of two datasets over the columns that both serve.
///
/// ```no_run
/// use rowdex::Dataset;
/// use rowdex::digest::SameRows;
/// use rowdex::order::{Global, Order};
///
/// # fn main() -> rowdex::Result<()> {
/// let (input, output) = (Dataset::open("train.rdx")?, Dataset::open("shuffled/index.rdx")?);
/// let order = Global::new(input.len(), 42)?.epoch(0)?;
/// let report = SameRows::new(&input, &output).with_order(order).check(&|_| ())?;
/// assert!(report.holds(), "{:?}", report.wrong);
/// # Ok(()) }
/// ```
///
/// Each row of both is decoded once, on the threads of its dataset. It takes the memory of one chunk of rows a thread,
/// and 128 KiB.
#[must_use]
pub struct SameRows<'a> {
    first: &'a Dataset,
    second: &'a Dataset,
    order: Option<Arc<dyn EpochOrder>>,
}

impl<'a> SameRows<'a> {
    /// Of these two.
    pub fn new(first: &'a Dataset, second: &'a Dataset) -> Self {
        Self { first, second, order: None }
    }

    /// Checks as well that row `i` of the second dataset is row `order(i)` of the first.
    ///
    /// An order that may repeat rows takes 16 bytes of memory for each position.
    pub fn with_order(self, order: Arc<dyn EpochOrder>) -> Self {
        Self { order: Some(order), ..self }
    }

    /// Reads both, and compares.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if they have no column in common; [`ErrorKind::Schema`] for a column that has
    /// values of another kind in the second one, or of a type that has no digest; and those of reading.
    pub fn check(&self, progress: &(dyn Fn(RowProgress) + Sync)) -> Result<SameRowsReport> {
        let (names, left_out) = common(self.first, self.second)?;
        let [first, second] = [self.first, self.second].map(|dataset| with_columns(dataset, &names));
        let first = &first?;
        let second = &second?;
        let done = &RowsDone::new(first.len().saturating_add(second.len()), progress);
        let one = Scan::new(first, done)?;
        let other = Scan::new(second, done)?;
        same_kinds(&one, &other)?;
        let (sums, wrong) = match self.order.as_deref() {
            Some(order) => in_order(&one, &other, order)?,
            None => ([one.sum(|_, _| ())?, other.sum(|_, _| ())?], None),
        };
        let is_once = self.order.as_deref().is_none_or(|order| has_each_once(order, first.len()));
        let columns = one.columns().to_vec();
        let digest = |dataset: &Dataset, sum| RowsDigest { rows: dataset.len(), sum, columns: columns.clone() };
        Ok(SameRowsReport {
            first: digest(first, sums[0]),
            second: digest(second, sums[1]),
            left_out,
            same_rows: is_once.then_some(sums[0] == sums[1] && first.len() == second.len()),
            in_order: self.order.as_ref().map(|_| wrong.is_none()),
            wrong: wrong.map(|rows| WrongRows::of(second.index(), rows)),
        })
    }
}

/// Whether the order serves every one of so many rows once.
fn has_each_once(order: &dyn EpochOrder, rows: u64) -> bool {
    order.uses() == Uses::Once && order.len() == rows
}

/// The sums of both, and the positions of the first rows that are not in order, if there are any.
fn in_order(one: &Scan<'_>, other: &Scan<'_>, order: &dyn EpochOrder) -> Result<([u128; 2], Option<Range<u64>>)> {
    let listed = listed(order, one.rows())?;
    let all = order.len().max(other.rows());
    let wanted = Cells::new(all);
    let found = Cells::new(all);
    let places = AtomicU64::new(0);
    let add_first = |row: u64, digests: &[u128]| {
        let mut count = 0;
        for (row, digest) in (row..).zip(digests) {
            let mut add = |position: u64| {
                count += 1;
                wanted.add(position, placed(position, *digest));
            };
            match &listed {
                Some(listed) => of_row(listed, row).for_each(|(_, position)| add(*position)),
                None => order.position(row).into_iter().for_each(add),
            }
        }
        places.fetch_add(count, Ordering::Relaxed);
    };
    let add_second = |row: u64, digests: &[u128]| {
        (row..).zip(digests).for_each(|(position, digest)| found.add(position, placed(position, *digest)));
    };
    let sums = [one.sum(add_first)?, other.sum(add_second)?];
    if places.into_inner() != order.len() {
        return Err(Error::new(ErrorKind::Internal, "the order does not say at which positions its rows are"));
    }
    Ok((sums, wanted.differences(&found).next().map(|wrong| wrong.start..wrong.end.min(all))))
}

/// Rows with their positions, sorted; `None` for an order that has each row once, and so can be asked.
fn listed(order: &dyn EpochOrder, rows: u64) -> Result<Option<Vec<(u64, u64)>>> {
    let no_memory = || Error::new(ErrorKind::TooLarge, format!("no memory for {} positions", order.len()));
    if has_each_once(order, rows) {
        return Ok(None);
    }
    let mut listed = Vec::new();
    listed.try_reserve_exact(usize::try_from(order.len()).map_err(|_| no_memory())?).map_err(|_| no_memory())?;
    listed.extend((0..order.len()).filter_map(|position| Some((order.row(position)?, position))));
    if let Some((row, position)) = listed.iter().find(|(row, _)| *row >= rows) {
        let message = format!("position {position} of the order is row {row}, and the first dataset has {rows}");
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    listed.sort_unstable();
    Ok(Some(listed))
}

fn of_row(sorted: &[(u64, u64)], row: u64) -> impl Iterator<Item = &(u64, u64)> {
    let start = sorted.partition_point(|(known, _)| *known < row);
    sorted.iter().skip(start).take_while(move |(known, _)| *known == row)
}

/// A digest of a row and its position.
fn placed(position: u64, digest: u128) -> u128 {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&digest.to_le_bytes());
    bytes[16..].copy_from_slice(&position.to_le_bytes());
    xxh3_128(&bytes)
}

/// The names of the columns that both have, and those that only one has.
fn common(first: &Dataset, second: &Dataset) -> Result<(Vec<String>, Vec<String>)> {
    let names = |dataset: &Dataset| -> Vec<String> {
        dataset.schema().fields().iter().map(|field| field.name().clone()).collect()
    };
    let (own, others) = (names(first), names(second));
    let in_both: HashSet<&String> = own.iter().filter(|name| others.contains(name)).collect();
    if in_both.is_empty() {
        let message = "the two datasets have no column in common".to_owned();
        return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(format!(
            "the first has {}, the second {}",
            own.join(", "),
            others.join(", ")
        )));
    }
    let left_out = own.iter().chain(&others).filter(|name| !in_both.contains(name)).cloned().collect();
    Ok((own.iter().filter(|name| in_both.contains(name)).cloned().collect(), left_out))
}

/// The dataset, or one that serves these columns alone.
fn with_columns(dataset: &Dataset, names: &[String]) -> Result<Dataset> {
    if dataset.schema().fields().len() == names.len() {
        return Ok(dataset.clone());
    }
    dataset.with_other_columns(names)
}

fn same_kinds(first: &Scan<'_>, second: &Scan<'_>) -> Result<()> {
    let mut each = first.columns().iter().zip(second.columns());
    let Some((own, others)) = each.find(|(own, others)| own != others) else { return Ok(()) };
    let message = format!("the first dataset has values of kind {}, the second {}", own.kind, others.kind);
    Err(Error::new(ErrorKind::Schema, message).with_column(&own.name).with_hint("leave the column out"))
}

impl fmt::Debug for SameRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SameRows").finish_non_exhaustive()
    }
}
