//! The footers of the files that an index gets anew: read, or known from another index, by many threads at once.

use std::collections::HashMap;

use super::found::FilesToIndex;
use super::scanned::Scanned;
use super::unchanged::Unchanged;
use super::writing::Build;
use super::{BuildProgress, IndexBuilder, THREADS};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::{pool, stop};
use rowdex_index::Index;
use rowdex_index::writer::FooterCompressor;
use rowdex_io::source::Source;
use rowdex_parquet::read_end;
use rowdex_projection::Renames;

/// Files whose footers are in memory at once, for each thread.
const WINDOW_PER_THREAD: usize = 32;

/// The same where a thread does little but wait for one request.
const WINDOW_PER_REQUEST: usize = 4;

/// Bounds of what is read of a file's end in a store, in the hope that its footer is in it.
const MIN_GUESS: u64 = 8 << 10;
const MAX_GUESS: u64 = 4 << 20;

/// Where the footers of a build come from.
pub(super) struct Footers<'a> {
    pub(super) builder: &'a IndexBuilder,
    pub(super) source: &'a dyn Source,
    pub(super) found: &'a FilesToIndex,
    /// The index that is updated, and which of its files are as they were.
    pub(super) old: Option<&'a Index>,
    pub(super) unchanged: HashMap<&'a str, Unchanged>,
    pub(super) renames: &'a Renames,
}

impl Footers<'_> {
    /// Adds files to an index that will have `total`, in order, and tells of the progress.
    pub(super) fn add_all(&self, paths: &[&str], total: usize, build: &mut Build<'_>) -> Result<()> {
        let progress = |build: &Build<'_>| {
            let files_done = build.report.files;
            let rows = build.report.rows;
            let bytes = build.report.footer_bytes;
            let progress = BuildProgress { files_done, files: total as u64, rows, bytes, counts_lengths: false };
            (self.builder.progress)(progress);
        };
        progress(build);
        let remote = self.source.is_remote();
        let threads = if remote { self.builder.store.concurrency } else { self.builder.threads.unwrap_or(0) };
        let pool = pool::start(threads, THREADS)?;
        let window = pool.current_num_threads() * if remote { WINDOW_PER_REQUEST } else { WINDOW_PER_THREAD };
        let mut guess = self.source.footer_guess();
        for window in paths.chunks(window) {
            stop::check()?;
            let scan = |compressor: &mut Result<FooterCompressor>, path: &&str| {
                self.scan(path, guess, compressor.as_mut().map_err(|error| error.clone())?)
            };
            let scanned = pool::each(Some(&pool), window, || FooterCompressor::new(self.builder.footers), scan)?;
            let mut longest = 0;
            for file in scanned {
                let (file, read) = file?;
                let length = file.footer_bytes;
                longest = longest.max(length);
                if read {
                    build.report.read_files += 1;
                    build.report.footer_bytes += length;
                }
                let path = file.metadata.path().to_owned();
                build.add(file).map_err(|error| self.located(error, &path))?;
            }
            if remote {
                // Files of one dataset have footers of about one length.
                guess = (longest + longest / 8 + 8).next_multiple_of(4 << 10).clamp(MIN_GUESS, MAX_GUESS);
            }
            build.report.requests = self.source.traffic().requests;
            progress(build);
        }
        Ok(())
    }

    /// What the footer of a file says, and whether it was read for that.
    fn scan(&self, path: &str, guess: u64, compressor: &mut FooterCompressor) -> Result<(Scanned, bool)> {
        if let (Some(old), Some(now)) = (self.old, self.unchanged.get(path))
            && let Some(known) = Scanned::known(old, now, self.renames, compressor)?
        {
            return Ok((known, false));
        }
        let read = read_end(self.source, path, guess, self.found.listed.get(path));
        let parsed = read.and_then(|(stat, footer)| Scanned::parse(path, stat, footer, self.renames, compressor));
        Ok((parsed.map_err(|error| self.located(not_there(error, self.found, path), path))?, true))
    }

    fn located(&self, error: Error, path: &str) -> Error {
        error.with_location(path, || self.source.location(path))
    }
}

/// A file in a store that was named, and not listed, may not be there.
fn not_there(error: Error, found: &FilesToIndex, path: &str) -> Error {
    match found.root.url().and_then(|root| root.join(path)) {
        Some(url) if error.kind() == ErrorKind::NotFound && error.file() == Some(path) => {
            Error::new(ErrorKind::NotFound, error.message().to_owned())
                .with_file(url.to_string())
                .with_hint("check the name; a folder ends in `/`")
        }
        _ => error,
    }
}
