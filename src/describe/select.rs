//! Which rows of an index a view serves.

use std::path::Path;

use serde::Deserialize;

use super::{GivenPath, Operands, OptionalSetting, StoreDescription, invalid};
use crate::select::Select;
use rowdex_base::error::Result;
use rowdex_index::Index;
use rowdex_io::source::StoreOptions;
use rowdex_order::IdSet;

/// Which rows of an index a view serves, as [`Select`] chooses them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SelectDescription {
    output: GivenPath,
    rows: Option<GivenPath>,
    skip: Option<GivenPath>,
    /// A set of rows.
    kept: Option<usize>,
    /// What is recorded of it.
    note: Option<String>,
    intersect: Option<Vec<GivenPath>>,
    exclude: Option<Vec<GivenPath>>,
    union: Option<Vec<GivenPath>>,
    sample: Option<SampleDescription>,
    split: Option<SplitDescription>,
    #[serde(rename = "where")]
    condition: Option<String>,
    root: Option<GivenPath>,
    overwrite: Option<bool>,
    store: Option<StoreDescription>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SampleDescription {
    fraction: f64,
    #[serde(default)]
    seed: u64,
}

/// A side of a split by a hash: of row ids, or of the values of a column.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SplitDescription {
    pub(crate) side: String,
    pub(crate) validation_fraction: Option<f64>,
    #[serde(default)]
    pub(crate) seed: u64,
    pub(crate) by: Option<String>,
}

impl SplitDescription {
    /// The part of the rows that is for validation.
    pub(crate) fn fraction(&self) -> f64 {
        self.validation_fraction.unwrap_or(0.1)
    }
}

impl SelectDescription {
    pub(crate) fn output(&self) -> &Path {
        self.output.as_ref()
    }

    /// The choices among the rows of the base.
    pub(crate) fn select<'a>(&self, given: &impl Operands<'a>) -> Result<Select> {
        let store = self.store.as_ref().map_or_else(|| Ok(StoreOptions::default()), StoreDescription::options)?;
        let open = |path: &GivenPath| Index::open_with(path.as_ref() as &Path, &store);
        let base = given.indexes().first().cloned().ok_or_else(|| invalid("select: there is no index to select of"))?;
        let reads = self.condition.is_some() || self.split.as_ref().is_some_and(|split| split.by.is_some());
        if self.root.is_some() && !reads {
            return Err(invalid("select: `root` is where the data is that `where` and `split.by` read")
                .with_hint("give one of them, or leave it out"));
        }
        let rows = base.len();
        let mut select = Select::new(base)
            .with_overwrite(self.overwrite == Some(true))
            .with_store_options(store.clone())
            .given(self.rows.as_ref(), Select::rows)
            .given(self.skip.as_ref(), Select::skip)
            .given(self.root.as_ref(), Select::with_root);
        if self.kept.is_some() || self.note.is_some() {
            let kept = match self.kept {
                Some(kept) => IdSet::clone(given.set(kept)?),
                None => IdSet::from_ranges(rows, std::iter::once(0..rows))?,
            };
            select = select.kept(kept, self.note.clone().unwrap_or_default());
        }
        for view in self.intersect.iter().flatten() {
            select = select.intersect(open(view)?);
        }
        for view in self.exclude.iter().flatten() {
            select = select.exclude(open(view)?);
        }
        for view in self.union.iter().flatten() {
            select = select.union(open(view)?);
        }
        if let Some(SampleDescription { fraction, seed }) = self.sample {
            if !(fraction > 0.0 && fraction <= 1.0) {
                let message = format!("select: `sample.fraction` is {fraction}: use a fraction above 0, up to 1");
                return Err(invalid(message));
            }
            select = select.sample(fraction, seed);
        }
        if let Some(split) = &self.split {
            let side = split.side.parse()?;
            select = match &split.by {
                Some(column) => select.split_by(column, side, split.fraction(), split.seed),
                None => select.split(side, split.fraction(), split.seed),
            };
        }
        match &self.condition {
            Some(condition) => filtered(select, condition),
            None => Ok(select),
        }
    }
}

#[cfg(feature = "filter")]
#[allow(clippy::unnecessary_wraps, reason = "it fails without the feature")]
fn filtered(select: Select, condition: &str) -> Result<Select> {
    Ok(select.filter(condition))
}

#[cfg(not(feature = "filter"))]
fn filtered(_: Select, _: &str) -> Result<Select> {
    Err(super::no_filters())
}
