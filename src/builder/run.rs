//! What a build does: which files there are, what their footers say, and what is written of them.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::found::Found;
use super::lengths::{self, KnownRows};
use super::partition::Partitions;
use super::parts::Parts;
use super::scanned::Scanned;
use super::schema::Merged;
use super::threads::{counting, reading};
use super::unchanged::unchanged;
use super::writing::Build;
use super::{BuildProgress, BuildReport, IndexBuilder};
use rowdex_base::error::{Error, ErrorKind, Remedy, Result};
use rowdex_base::stop;
use rowdex_index::output::{self, Output};
use rowdex_index::writer::{FooterCompressor, IndexWriter};
use rowdex_index::{Index, root, view};
use rowdex_io::source;
use rowdex_io::source::place::{Place, shown};
use rowdex_projection::Renames;

/// Files whose footers are in memory at once, for each thread.
const WINDOW_PER_THREAD: usize = 32;

/// The same where a thread does little but wait for one request.
const WINDOW_PER_REQUEST: usize = 4;

/// Bounds of what is read of a file's end in a store, in the hope that its footer is in it.
const MIN_GUESS: u64 = 8 << 10;
const MAX_GUESS: u64 = 4 << 20;

impl IndexBuilder {
    pub(super) fn check_slice(&self) -> Result<()> {
        let refuse =
            |message: String, hint: &'static str| Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint));
        match self.slice {
            Some((slice, slices)) if slice >= slices => {
                refuse(format!("there is no slice {slice} of {slices}"), "slices are counted from 0")
            }
            Some(_) if self.rows.is_some() => refuse(
                "a slice of the files cannot select rows".to_owned(),
                "select rows when the parts are joined to the whole",
            ),
            Some(_) if self.update => {
                refuse("a slice of the files cannot be updated".to_owned(), "update the whole index")
            }
            _ => Ok(()),
        }
    }

    pub(super) fn old_index(&self, output: &Path, place: &Place) -> Result<Option<Index>> {
        if !self.update {
            return Ok(None);
        }
        if self.rows.is_some() {
            return Err(Error::new(ErrorKind::InvalidArgument, "an update cannot select rows")
                .with_hint("build the index anew with the list of rows"));
        }
        if !output::exists(place, &self.store)? {
            return Ok(None);
        }
        let old = Index::open_with(output, &self.store)?;
        if old.row_groups().any(|group| group.selection().is_some()) {
            return Err(Error::new(ErrorKind::InvalidArgument, "an index of selected rows cannot be updated")
                .with_file(shown(output))
                .with_remedies("build it anew ({}) with a new list of rows", &[Remedy::Overwrite]));
        }
        Ok(Some(old))
    }

    /// An index of all rows beside the one that is wanted, and of that one the listed rows.
    pub(super) fn write_listed(
        &self,
        out: &mut Output,
        output: &Place,
        found: &Found,
        rows: &Path,
    ) -> Result<BuildReport> {
        let mut all = Output::create(output.clone(), true, &self.store)?;
        let (mut report, _) = self.write(&mut all, output, found, None)?;
        let all = all.read_back()?;
        let listed = all.read_rows(rows)?;
        if listed.repeated > 0 {
            let message = match listed.repeated_row {
                Some(row) => format!("row id {row} is listed twice"),
                None => format!("{} rows are listed twice", listed.repeated),
            };
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with_file(rows.display().to_string())
                .with_hint(
                    "list each row once, or select the listed rows of an index, which serves each once and says so",
                ));
        }
        report.rows = listed.rows.len();
        report.index_bytes = view::write(out, &all, &all.to_source(&listed.rows)?, all.root(), all.build_info())?;
        self.note_lengths(out, found, None, &[], &mut report)?;
        Ok(report)
    }

    /// An index of all rows, with the lengths that are asked for or were there before.
    pub(super) fn write_noted(
        &self,
        out: &mut Output,
        output: &Place,
        found: &Found,
        old: Option<&Index>,
    ) -> Result<BuildReport> {
        let (mut report, known) = self.write(out, output, found, old)?;
        self.note_lengths(out, found, old, &known, &mut report)?;
        Ok(report)
    }

    fn note_lengths(
        &self,
        out: &mut Output,
        found: &Found,
        old: Option<&Index>,
        known: &[KnownRows],
        report: &mut BuildReport,
    ) -> Result<()> {
        let source = &*source::open(found.root.clone(), &self.store)?;
        let pool = counting(self.threads, &self.store, source.is_remote())?;
        if let Some(length) = lengths::note(out, (&self.lengths, old), source, &pool, known, &self.progress)? {
            report.index_bytes = length;
        }
        Ok(())
    }

    /// An index of all rows, and which of its files another index may have lengths of.
    fn write(
        &self,
        out: &mut Output,
        output: &Place,
        found: &Found,
        old: Option<&Index>,
    ) -> Result<(BuildReport, Vec<KnownRows>)> {
        let source = &*source::open(found.root.clone(), &self.store)?;
        // A slice is not opened beside the data, but joined to others elsewhere.
        let root =
            if self.slice.is_some() { root::absolute(&found.root) } else { root::recorded(output, &found.root) }?;
        let parts = Parts::open(&self.parts, &found.root, &self.store)?;
        let parts = parts.files();
        let unchanged = match old {
            Some(old) => unchanged(old, found, source, *old.root() == root),
            None => HashMap::new(),
        };
        let kept = old.map_or(0, |old| old.files().take_while(|file| unchanged.contains_key(file.path())).count());
        let kept_paths: HashSet<&str> =
            old.iter().flat_map(|old| old.files().take(kept)).map(|file| file.path()).collect();
        let fresh: Vec<&str> =
            found.paths.iter().map(String::as_str).filter(|path| !kept_paths.contains(path)).collect();
        let all = || kept_paths_in_order(old, kept).chain(fresh.iter().copied());
        let partitions = if self.partitions { Partitions::of(all())? } else { Partitions::default() };
        let renames = self.all_renames(old.filter(|_| kept > 0), old)?;

        let pool = reading(self.threads, &self.store, source.is_remote())?;
        let mut build = Build {
            writer: IndexWriter::new(out)?,
            merged: Merged::new(self.schema_mode),
            partitions: &partitions,
            renames: &renames,
            // Those of the index that is updated were in its files.
            renamed: old.iter().flat_map(|old| old.renames()).map(|(name, _)| name.to_owned()).collect(),
            compressor: self.footers.then(FooterCompressor::new).transpose()?,
            report: BuildReport {
                files: 0,
                kept_files: kept as u64,
                read_files: 0,
                requests: 0,
                footer_bytes: 0,
                row_groups: 0,
                rows: 0,
                source_rows: 0,
                index_bytes: 0,
                repeated_files: found.repeated,
            },
            known: Vec::new(),
        };
        let total = kept + fresh.len();
        let progress = |report: &BuildReport| {
            let &BuildReport { files: files_done, rows, footer_bytes: bytes, .. } = report;
            (self.progress)(BuildProgress { files_done, files: total as u64, rows, bytes, counts_lengths: false });
        };
        if let Some(old) = old {
            build.merged.start_with(old, kept, &partitions)?;
            for (entry, now) in old.files().map_while(|file| Some((file, unchanged.get(file.path())?))).take(kept) {
                build.keep(old, &entry, now, source)?;
            }
        }
        progress(&build.report);
        let located = |error: Error, path: &str| error.with_location(path, || source.location(path));
        let threads = pool.current_num_threads();
        let window = threads * if source.is_remote() { WINDOW_PER_REQUEST } else { WINDOW_PER_THREAD };
        let mut guess = source.footer_guess();
        for window in fresh.chunks(window) {
            stop::check()?;
            let compressor = || self.footers.then(FooterCompressor::new).transpose();
            let read = |compressor: &mut Result<Option<FooterCompressor>>, path: &&str| {
                let compressor = compressor.as_mut().map_err(|error| error.clone())?;
                if let (Some(old), Some(now)) = (old, unchanged.get(path))
                    && let Some(known) = Scanned::known(old, now, &renames, compressor.as_mut())?
                {
                    return Ok((known, false));
                }
                let listed = found.listed.get(*path);
                if let Some((part, now)) = parts.find(path, listed, source)
                    && let Some(known) = Scanned::known(part, &now, &renames, compressor.as_mut())?
                {
                    return Ok((known, false));
                }
                let read = Scanned::read(source, path, guess, listed, &renames, compressor.as_mut());
                Ok((read.map_err(|error| located(not_there(error, found, path), path))?, true))
            };
            let scanned = rowdex_base::pool::each(Some(&pool), window, compressor, read)?;
            let mut longest = 0;
            for file in scanned {
                let (file, read) = file?;
                let length = file.footer.bytes.len() as u64;
                longest = longest.max(length);
                if read {
                    build.report.read_files += 1;
                    build.report.footer_bytes += length;
                }
                let path = file.metadata.path().to_owned();
                build.add(file).map_err(|error| located(error, &path))?;
            }
            if source.is_remote() {
                // Files of one dataset have footers of about one length.
                guess = (longest + longest / 8 + 8).next_multiple_of(4 << 10).clamp(MIN_GUESS, MAX_GUESS);
            }
            build.report.requests = source.traffic().requests;
            progress(&build.report);
        }
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
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with_column(name)
                .with_remedies("build it anew ({})", &[Remedy::Overwrite]));
        }
        Renames::new(before.iter().chain(more()).cloned())
    }
}

/// A file in a store that was named, and not listed, may not be there.
fn not_there(error: Error, found: &Found, path: &str) -> Error {
    match found.root.url().and_then(|root| root.join(path)) {
        Some(url) if error.kind() == ErrorKind::NotFound && error.file() == Some(path) => {
            Error::new(ErrorKind::NotFound, error.message().to_owned())
                .with_file(url.to_string())
                .with_hint("check the name; a folder ends in `/`")
        }
        _ => error,
    }
}

fn kept_paths_in_order(old: Option<&Index>, kept: usize) -> impl Iterator<Item = &str> {
    old.into_iter().flat_map(move |old| old.files().take(kept)).map(|file| file.path())
}
