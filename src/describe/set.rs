//! Which rows are in a set.

use std::borrow::Cow;

use serde::Deserialize;

use super::select::SplitDescription;
use super::{GivenPath, Operands, invalid};
use crate::dataset::Dataset;
use crate::select::{ListOfRows, ListedRows};
use rowdex_base::error::Result;
use rowdex_index::Index;
use rowdex_order::{IdSet, Split};

/// Which rows are in a set: by one of the ways to say it, of those of another set, with those of a third one, or all
/// others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetDescription {
    /// Out of how many rows the set is.
    rows: Option<u64>,
    row_ids: Option<usize>,
    /// Starts and ends, in turn.
    ranges: Option<usize>,
    list: Option<GivenPath>,
    stream: Option<bool>,
    view: Option<usize>,
    #[serde(rename = "where")]
    condition: Option<String>,
    split: Option<SplitDescription>,
    set: Option<usize>,
    of: Option<usize>,
    union: Option<usize>,
    complement: Option<bool>,
}

/// A set, and how often rows were listed beyond the first time or are not served, if a list says which they are.
pub(crate) struct ChosenRows {
    pub(crate) rows: IdSet,
    pub(crate) repeated: u64,
    pub(crate) unserved: u64,
}

impl SetDescription {
    pub(crate) fn rows<'a>(
        &self,
        given: &impl Operands<'a>,
        dataset: Option<&Dataset>,
        stream: Option<ListOfRows<'_>>,
    ) -> Result<ChosenRows> {
        let of = self.of.map(|of| given.set(of)).transpose()?.map(|of| &**of);
        let mut chosen = self.chosen(given, dataset, stream, of)?;
        if let Some(more) = self.union {
            chosen.rows = chosen.rows.union(given.set(more)?)?;
        }
        if self.complement == Some(true) {
            chosen.rows = chosen.rows.complement()?;
        }
        Ok(chosen)
    }

    fn chosen<'a>(
        &self,
        given: &impl Operands<'a>,
        dataset: Option<&Dataset>,
        stream: Option<ListOfRows<'_>>,
        of: Option<&IdSet>,
    ) -> Result<ChosenRows> {
        self.check()?;
        let index = |number: usize| {
            let missing = || invalid(format!("set: there is no index {number}"));
            given.indexes().get(number).ok_or_else(missing)
        };
        let reads = || dataset.ok_or_else(|| invalid("set: there is no dataset, whose values are read"));
        let count = || self.rows.ok_or_else(|| invalid("set: `rows` is missing: out of how many rows the set is"));
        let mut repeated = 0;
        let mut unserved = 0;
        let mut listed = |list: ListedRows| {
            repeated = list.repeated;
            unserved = list.unserved;
            Cow::Owned(list.rows)
        };
        let rows = if let Some(condition) = &self.condition {
            Cow::Owned(filtered(reads()?, condition, of)?)
        } else if let Some(split) = &self.split {
            let side = split.side.parse()?;
            let by_hash = Split::new(split.fraction(), split.seed)?;
            match &split.by {
                Some(column) => {
                    let column = reads()?.column(column);
                    let column = if let Some(of) = of { column.of(of) } else { column };
                    Cow::Owned(column.split(&by_hash, side)?)
                }
                None => Cow::Owned(by_hash.rows(side, count()?)?),
            }
        } else if let Some(list) = &self.list {
            listed(ListOfRows::from(list).rows(index(0)?)?)
        } else if let Some(stream) = stream.filter(|_| self.stream == Some(true)) {
            listed(stream.rows(index(0)?)?)
        } else if let Some(view) = self.view {
            Cow::Owned(Index::rows_of(index(0)?, index(view)?)?)
        } else if let Some(ids) = self.row_ids {
            Cow::Owned(IdSet::from_ids(count()?, given.row_ids(ids)?.iter().copied())?)
        } else if let Some(ranges) = self.ranges {
            let (pairs, rest) = given.row_ids(ranges)?.as_chunks::<2>();
            if !rest.is_empty() {
                return Err(invalid("set: `ranges` has a start without an end"));
            }
            Cow::Owned(IdSet::from_ranges(count()?, pairs.iter().map(|[start, end]| *start..*end))?)
        } else if let Some(set) = self.set {
            Cow::Borrowed(&**given.set(set)?)
        } else {
            return Err(invalid("set: there is no stream, whose rows are listed"));
        };
        let rows = match of {
            Some(of) => rows.intersection(of)?,
            None => rows.into_owned(),
        };
        Ok(ChosenRows { rows, repeated, unserved })
    }

    /// Refuses what says nothing, or too much, of the rows that are asked for.
    fn check(&self) -> Result<()> {
        let ways = [
            self.row_ids.is_some(),
            self.ranges.is_some(),
            self.list.is_some(),
            self.stream == Some(true),
            self.view.is_some(),
            self.condition.is_some(),
            self.split.is_some(),
            self.set.is_some(),
        ];
        if ways.iter().filter(|way| **way).count() != 1 {
            let names = "`row_ids`, `ranges`, `list`, `stream`, `view`, `where`, `split` and `set`";
            return Err(invalid(format!("set: not just one of {names} says which rows are in it")));
        }
        let counts =
            self.row_ids.or(self.ranges).is_some() || self.split.as_ref().is_some_and(|split| split.by.is_none());
        if self.rows.is_some() && !counts {
            return Err(invalid("set: `rows` says nothing of the rows that are asked for").with_hint("leave it out"));
        }
        Ok(())
    }
}

#[cfg(feature = "filter")]
fn filtered(dataset: &Dataset, condition: &str, of: Option<&IdSet>) -> Result<IdSet> {
    let filter = dataset.filter(condition)?;
    match of {
        Some(of) => filter.of(of).rows(),
        None => filter.rows(),
    }
}

#[cfg(not(feature = "filter"))]
fn filtered(_: &Dataset, _: &str, _: Option<&IdSet>) -> Result<IdSet> {
    Err(super::no_filters())
}
