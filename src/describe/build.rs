//! Which index is built of which files, and which lengths are noted in one.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::{GivenPath, OptionalSetting, StoreDescription, invalid};
use crate::builder::{IndexBuilder, LengthsBuilder, SchemaMode};
use crate::select::ListOfRows;
use rowdex_base::error::Result;
use rowdex_index::Index;
use rowdex_io::source::StoreOptions;

/// The column that has the lengths, where they are given.
const LENGTH: &str = "length";

/// Which index is built of which files, as [`IndexBuilder`] does it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BuildDescription {
    files: Vec<GivenPath>,
    output: Option<GivenPath>,
    find: Option<FindDescription>,
    root: Option<GivenPath>,
    schema: Option<String>,
    threads: Option<usize>,
    overwrite: Option<bool>,
    update: Option<bool>,
    footers: Option<bool>,
    partitions: Option<bool>,
    rename: Option<BTreeMap<String, String>>,
    lengths: Option<Vec<String>>,
    store: Option<StoreDescription>,
}

/// Whether an index is looked for before it is built.
#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FindDescription {
    OrBuild,
    Only,
}

impl BuildDescription {
    pub(crate) fn find(&self) -> Option<FindDescription> {
        self.find
    }

    /// Where the index is to be; `None` for the cache folder of the user.
    pub(crate) fn output(&self) -> Result<Option<&Path>> {
        match (&self.output, self.find) {
            (None, None) => Err(invalid("build: no `output`, which only an index that is found may leave out")),
            (output, _) => Ok(output.as_ref().map(AsRef::as_ref)),
        }
    }

    pub(crate) fn updates(&self) -> bool {
        self.update == Some(true)
    }

    pub(crate) fn store(&self) -> Result<StoreOptions> {
        self.store.as_ref().map_or_else(|| Ok(StoreOptions::default()), StoreDescription::options)
    }

    pub(crate) fn builder(&self) -> Result<IndexBuilder> {
        let mode = self.schema.as_deref().map(str::parse::<SchemaMode>).transpose()?;
        Ok(IndexBuilder::new(&self.files)
            .with_footers(self.footers != Some(false))
            .with_partitions(self.partitions != Some(false))
            .with_overwrite(self.overwrite == Some(true))
            .with_update(self.updates())
            .with_renames(self.rename.iter().flatten())
            .with_lengths(self.lengths.iter().flatten())
            .with_store_options(self.store()?)
            .given(self.root.as_ref(), IndexBuilder::with_root)
            .given(mode, IndexBuilder::with_schema_mode)
            .given(self.threads, IndexBuilder::with_threads))
    }
}

/// Which lengths are noted in an index that is there, as [`LengthsBuilder`] does it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LengthsDescription {
    index: GivenPath,
    columns: Option<Vec<String>>,
    /// Lists of lengths by the names to note them by.
    given: Option<BTreeMap<String, GivenPath>>,
    /// The name of lengths that a stream has.
    stream: Option<String>,
    root: Option<GivenPath>,
    threads: Option<usize>,
    store: Option<StoreDescription>,
}

impl LengthsDescription {
    /// `stream` reads the lengths of a stream that came with the description, if one did.
    pub(crate) fn builder(
        &self,
        stream: Option<impl FnOnce(&Index, &str) -> Result<Vec<u64>>>,
    ) -> Result<LengthsBuilder> {
        let store = self.store.as_ref().map_or_else(|| Ok(StoreOptions::default()), StoreDescription::options)?;
        let mut builder = LengthsBuilder::new(&self.index)
            .with_store_options(store.clone())
            .given(self.root.as_ref(), LengthsBuilder::with_root)
            .given(self.threads, LengthsBuilder::with_threads);
        for column in self.columns.iter().flatten() {
            builder = builder.with_column(column);
        }
        let index = || Index::open_with(self.index.as_ref() as &Path, &store);
        for (name, list) in self.given.iter().flatten() {
            builder = builder.with_given(name, ListOfRows::from(list).lengths(&index()?, LENGTH)?);
        }
        match (&self.stream, stream) {
            (Some(name), Some(read)) => Ok(builder.with_given(name, read(&index()?, LENGTH)?)),
            (None, None) => Ok(builder),
            _ => Err(invalid("lengths: `stream` names the lengths of a stream, and goes with one")),
        }
    }
}
