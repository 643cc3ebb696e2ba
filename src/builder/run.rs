//! What a build does: which files there are, what their footers say, and what is written of them.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::footers::Footers;
use super::found::FilesToIndex;
use super::lengths::{self, KnownRows, counting};
use super::partition::Partitions;
use super::schema::Merged;
use super::unchanged::unchanged;
use super::writing::Build;
use super::{BuildReport, IndexBuilder};
use rowdex_base::error::{Error, Result};
use rowdex_index::output::{self, Output};
use rowdex_index::writer::{FooterCompressor, IndexWriter};
use rowdex_index::{Index, root};
use rowdex_io::source::place::{Place, shown};
use rowdex_io::source::{self, Source};
use rowdex_projection::Renames;

/// An index, if it is of all rows of its files.
pub(super) fn updatable(old: Index) -> Result<Index> {
    if old.row_groups().any(|group| group.selection().is_some()) {
        return Err(Error::invalid("an index of selected rows cannot be updated")
            .with_file(shown(old.path().unwrap_or(Path::new(""))))
            .with_hint("update the index of all rows, and select again"));
    }
    Ok(old)
}

impl IndexBuilder {
    pub(super) fn old_index(&self, output: &Path, place: &Place) -> Result<Option<Index>> {
        if !self.update {
            return Ok(None);
        }
        if !output::exists(place, &self.store)? {
            return Ok(None);
        }
        updatable(Index::open_with(output, &self.store)?).map(Some)
    }

    /// An index of all rows, with the lengths that are asked for or were there before.
    pub(super) fn write_noted(
        &self,
        out: &mut Output,
        output: &Place,
        found: &FilesToIndex,
        old: Option<&Index>,
    ) -> Result<BuildReport> {
        let source = &*source::open(found.root.clone(), &self.store)?;
        let (mut report, known) = self.write(out, output, source, found, old)?;
        let pool = counting(self.threads, &self.store, source.is_remote())?;
        if let Some(length) = lengths::note(out, &self.lengths, old, source, &pool, &known, &self.progress)? {
            report.index_bytes = length;
        }
        Ok(report)
    }

    /// An index of all rows, and which of its files another index may have lengths of.
    fn write(
        &self,
        out: &mut Output,
        output: &Place,
        source: &dyn Source,
        found: &FilesToIndex,
        old: Option<&Index>,
    ) -> Result<(BuildReport, Vec<KnownRows>)> {
        let root = root::recorded(output, &found.root)?;
        let unchanged = match old {
            Some(old) => unchanged(old, found, source, *old.root() == root || is_older(old, &found.root)),
            None => HashMap::new(),
        };
        let kept = old.map_or(0, |old| old.files().take_while(|file| unchanged.contains_key(file.path())).count());
        let kept_paths: HashSet<&str> = kept_paths_in_order(old, kept).collect();
        let fresh: Vec<&str> =
            found.paths.iter().map(String::as_str).filter(|path| !kept_paths.contains(path)).collect();
        let all = || kept_paths_in_order(old, kept).chain(fresh.iter().copied());
        let partitions = if self.partitions { Partitions::of(all())? } else { Partitions::default() };
        let renames = self.all_renames(old.filter(|_| kept > 0), old)?;

        let mut build = Build {
            writer: IndexWriter::new(out)?,
            merged: Merged::new(self.schema_mode),
            partitions: &partitions,
            renames: &renames,
            // Those of the index that is updated were in its files.
            renamed: old.iter().flat_map(|old| old.renames()).map(|(name, _)| name.to_owned()).collect(),
            undecodable: old.map(Index::undecodable).unwrap_or_default(),
            compressor: FooterCompressor::new(self.footers)?,
            report: BuildReport { kept_files: kept as u64, repeated_files: found.repeated, ..BuildReport::default() },
            known: Vec::new(),
        };
        // What is behind the files that are kept is read anew.
        build.undecodable.retain(|_, file| (*file as usize) < kept);
        if let Some(old) = old {
            build.merged.start_with(old, kept, &partitions)?;
            for (entry, now) in old.files().map_while(|file| Some((file, unchanged.get(file.path())?))).take(kept) {
                build.keep(old, &entry, now, source)?;
            }
        }
        let footers = Footers { builder: self, source, found, old, unchanged, renames: &renames };
        footers.add_all(&fresh, kept + fresh.len(), &mut build)?;
        build.finish(&root, self)
    }

    /// The renames of the index that is updated, and those that were asked for. Of the files that are kept footers are
    /// not read, so no column of theirs can get another name.
    fn all_renames(&self, kept: Option<&Index>, old: Option<&Index>) -> Result<Renames> {
        let before = old.map_or(&[][..], |old| old.renaming().pairs());
        let more = || self.renames.iter().filter(|pair| !before.contains(pair));
        if let Some((name, new)) =
            more().find(|(name, _)| kept.is_some_and(|kept| kept.schema().column_with_name(name).is_some()))
        {
            let message = format!("the index serves this column, so an update cannot rename it to {new:?}");
            return Err(Error::invalid(message).with_column(name).with_hint("build it again with `overwrite`"));
        }
        Renames::new(before.iter().chain(more()).cloned())
    }
}

/// Whether the files of an index are the same folder of the hub, at another commit.
fn is_older(old: &Index, root: &Place) -> bool {
    match (Place::of(&old.root().path), root) {
        (Ok(Place::Remote(before)), Place::Remote(now)) => before.same_repository(now) && before.key == now.key,
        _ => false,
    }
}

fn kept_paths_in_order(old: Option<&Index>, kept: usize) -> impl Iterator<Item = &str> {
    old.into_iter().flat_map(move |old| old.files().take(kept)).map(|file| file.path())
}
