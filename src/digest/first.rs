//! Which row differs, once it is known that one does.

use std::collections::HashMap;
use std::ops::Range;

use super::cells::{CELLS, Cells};
use super::report::{RowDifference, RowPlace};
use super::scan::{Scan, WalkDone};
use crate::dataset::Dataset;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_index::RowGroupEntry;
use rowdex_order::{EpochOrder, Uses};
use rowdex_rows::RowDigests;

/// Of so many cells that differ the rows are compared.
const COMPARED: usize = 8;

/// At which positions rows are.
pub(super) enum Positions<'a> {
    Inverse(&'a dyn EpochOrder),
    /// Rows with their positions, sorted.
    Listed(Vec<(u64, u64)>),
}

impl<'a> Positions<'a> {
    pub(super) fn of(order: &'a dyn EpochOrder, rows: u64) -> Result<Self> {
        let no_memory = || Error::new(ErrorKind::TooLarge, format!("no memory for {} positions", order.len()));
        if order.uses() == Uses::Once && order.len() == rows {
            return Ok(Self::Inverse(order));
        }
        let mut listed = Vec::new();
        listed.try_reserve_exact(usize::try_from(order.len()).map_err(|_| no_memory())?).map_err(|_| no_memory())?;
        listed.extend((0..order.len()).filter_map(|position| Some((order.row(position)?, position))));
        if let Some((row, position)) = listed.iter().find(|(row, _)| *row >= rows) {
            let message = format!("position {position} of the order is row {row}, and the first dataset has {rows}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        listed.sort_unstable();
        Ok(Self::Listed(listed))
    }

    /// Calls `each` with every position of a row.
    pub(super) fn each(&self, row: u64, mut each: impl FnMut(u64)) {
        match self {
            Self::Inverse(order) => {
                if let Some(position) = order.position(row) {
                    each(position);
                }
            }
            Self::Listed(listed) => of_row(listed, row).for_each(|(_, position)| each(*position)),
        }
    }
}

fn of_row(sorted: &[(u64, u64)], row: u64) -> impl Iterator<Item = &(u64, u64)> {
    let start = sorted.partition_point(|(known, _)| *known < row);
    sorted.iter().skip(start).take_while(move |(known, _)| *known == row)
}

/// A dataset, and how its rows are read.
pub(super) type Of<'a> = (&'a Scan<'a>, &'a Dataset);

/// The first position in a range at which the second dataset does not have the row that the order says.
pub(super) fn in_order(
    (one, first): Of<'_>,
    (other, second): Of<'_>,
    order: &dyn EpochOrder,
    range: Range<u64>,
    done: &WalkDone<'_>,
) -> Result<Option<RowDifference>> {
    let mut rows: Vec<(u64, u64)> =
        range.clone().filter_map(|position| Some((order.row(position)?, position))).collect();
    rows.sort_unstable();
    let wanted = digests_at(one, first, &rows, done)?;
    let own: Vec<(u64, u64)> = range.clone().take_while(|row| *row < second.len()).map(|row| (row, row)).collect();
    let found = digests_at(other, second, &own, done)?;
    let mut each = range;
    let Some(position) = each.find(|position| wanted.get(position) != found.get(position)) else { return Ok(None) };
    let row = order.row(position);
    let columns = match row.filter(|_| position < second.len()) {
        Some(row) => columns_that_differ(first, row, second, position)?,
        None => Vec::new(),
    };
    Ok(Some(RowDifference {
        first: row.and_then(|row| RowPlace::of(first.index(), row)),
        second: RowPlace::of(second.index(), position),
        columns,
    }))
}

/// The digests of these rows, which are sorted, by their positions.
fn digests_at(
    scan: &Scan<'_>,
    dataset: &Dataset,
    rows: &[(u64, u64)],
    done: &WalkDone<'_>,
) -> Result<HashMap<u64, u128>> {
    let has_one = |entry: &RowGroupEntry<'_>| {
        let ids = entry.row_ids();
        let next = rows.get(rows.partition_point(|(row, _)| *row < ids.start));
        next.is_some_and(|(row, _)| *row < ids.end)
    };
    let entries: Vec<RowGroupEntry<'_>> = dataset.index().row_groups().filter(has_one).collect();
    done.lengthen(entries.iter().map(RowGroupEntry::rows).sum());
    let pick = |picked: &mut Vec<(u64, u128)>, first: u64, digests: &[u128]| {
        let start = rows.partition_point(|(row, _)| *row < first);
        for (row, position) in rows.iter().skip(start) {
            match digests.get((row - first) as usize) {
                Some(digest) => picked.push((*position, *digest)),
                None => break,
            }
        }
    };
    Ok(scan.run_over(&entries, |_| Vec::new(), pick)?.into_iter().flatten().collect())
}

/// A row that only the first dataset has, or has more often, and one that only the second has.
pub(super) fn of_any_order(
    (one, first): Of<'_>,
    (other, second): Of<'_>,
    done: &WalkDone<'_>,
) -> Result<Option<RowDifference>> {
    done.lengthen(first.len().saturating_add(second.len()).saturating_mul(2));
    let cell = |digest: u128| (digest >> 116) as u64;
    let cells_of = |scan: &Scan<'_>| {
        let cells = Cells::new(CELLS - 1);
        let add =
            |(): &mut (), _, digests: &[u128]| digests.iter().for_each(|digest| cells.add(cell(*digest), *digest));
        scan.run(|_| (), add).map(|_| cells)
    };
    let own = cells_of(one)?;
    let others = cells_of(other)?;
    let compared: Vec<u64> = own.differences(&others).map(|cell| cell.start).take(COMPARED).collect();
    let rows_of = |scan: &Scan<'_>| -> Result<Vec<(u128, u64)>> {
        let pick = |picked: &mut Vec<(u128, u64)>, first: u64, digests: &[u128]| {
            picked.extend(digests.iter().copied().zip(first..).filter(|(digest, _)| compared.contains(&cell(*digest))));
        };
        let mut rows: Vec<(u128, u64)> = scan.run(|_| Vec::new(), pick)?.into_iter().flatten().collect();
        rows.sort_unstable();
        Ok(rows)
    };
    let own = rows_of(one)?;
    let others = rows_of(other)?;
    let missing = only_in(&own, &others);
    let added = only_in(&others, &own);
    let columns = match (&missing[..], &added[..]) {
        ([row], [other]) => columns_that_differ(first, *row, second, *other)?,
        _ => Vec::new(),
    };
    let place = |rows: &[u64], dataset: &Dataset| RowPlace::of(dataset.index(), *rows.iter().min()?);
    Ok(Some(RowDifference { first: place(&missing, first), second: place(&added, second), columns }))
}

/// The rows whose digests are in one of two sorted lists more often than in the other.
fn only_in(own: &[(u128, u64)], others: &[(u128, u64)]) -> Vec<u64> {
    let mut others = others.iter().map(|(digest, _)| *digest).peekable();
    let mut only = Vec::new();
    for (digest, row) in own {
        while others.next_if(|other| other < digest).is_some() {}
        if others.next_if_eq(digest).is_none() {
            only.push(*row);
        }
    }
    only
}

/// The names of the columns in which two rows differ.
fn columns_that_differ(first: &Dataset, row: u64, second: &Dataset, other: u64) -> Result<Vec<String>> {
    let one = first.get(row)?;
    let two = second.get(other)?;
    let mut names = Vec::new();
    for field in one.schema_ref().fields() {
        let digest = |batch: &arrow::array::RecordBatch| -> Result<Vec<u128>> {
            let place = batch.schema_ref().index_of(field.name());
            let column = place.and_then(|place| batch.project(&[place])).map_err(|error| {
                Error::new(ErrorKind::Internal, "a row lacks a column").with_column(field.name()).with_source(error)
            })?;
            let mut digests = Vec::new();
            RowDigests::new(column.schema_ref())?.add(&column, &mut digests)?;
            Ok(digests)
        };
        if digest(&one)? != digest(&two)? {
            names.push(field.name().clone());
        }
    }
    Ok(names)
}
