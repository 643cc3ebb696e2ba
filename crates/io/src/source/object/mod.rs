//! Files in object stores: S3, GCS, Azure, HTTP servers, and the Hugging Face hub.
//!
//! A row group is read in a few large requests at once. What keeps them few and the bytes needed: ranges are joined
//! over gaps, smallest first, as long as the gaps together stay below 2 % of what is needed (or 16 KiB) and each below
//! 1 MiB, and over all gaps that [`StoreOptions::with_gap`] permits; what is then longer than 8 MiB is fetched in equal
//! parts of at most that length, because one connection is slower than the link.

mod client;
mod connect;
mod credentials;
mod fault;
mod hub;
mod hub_fault;
mod hub_settings;
mod meter;
mod requests;
#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one range is a list of ranges here")]
mod tests;
mod transport;
mod uploads;
mod writer;

use std::fmt;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use self::client::{Client, Part};
use self::requests::LARGE;
pub use self::writer::ObjectWriter;
use super::place::{Place, Url};
use super::{FileStat, Link, Pending, Source, StoreOptions, Traffic, UploadOptions, VANISHED, cut, short_read};
use rowdex_base::buffers::Buffers;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::once::Once;
use rowdex_base::per_process::PerProcess;

/// The largest gap that is read over.
const GAP: u64 = 1 << 20;

/// Gaps of so many bytes together are always read over: their transfer takes less than another request.
const FREE_GAPS: u64 = 16 << 10;

/// The largest request.
const PART: u64 = 8 << 20;

/// Files below one URL of an object store.
///
/// Nothing is asked of the store, and no thread started, before the first call that needs it. The threads end with the
/// source. A process that is forked from one that has used it gets connections and threads of its own.
pub struct ObjectSource {
    root: Url,
    options: StoreOptions,
    client: PerProcess<Once<Client>>,
}

impl ObjectSource {
    /// Files below `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`, `http://HOST/PREFIX`,
    /// `https://HOST/PREFIX` or `hf://datasets/OWNER/NAME@REVISION/PREFIX`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for any other URL, and for one that has a user, a password or a query.
    pub fn new(url: &str, options: &StoreOptions) -> Result<Self> {
        match Place::of(url)? {
            Place::Remote(url) => Self::at(url, options),
            Place::Local(_) => Err(Error::new(ErrorKind::InvalidArgument, "this is no URL of an object store")
                .with_file(url.to_owned())
                .with_hint("write `s3://bucket/path`, and use a `LocalSource` for local files")),
        }
    }

    /// The files below a URL.
    ///
    /// # Errors
    /// `InvalidArgument` for options that the store does not take.
    #[doc(hidden)]
    pub fn at(root: Url, options: &StoreOptions) -> Result<Self> {
        let root = root.with_key(root.key.trim_end_matches('/'));
        Ok(Self { root, options: options.clone(), client: PerProcess::new(Once::new()) })
    }

    fn client(&self) -> Result<&Client> {
        let slot = self.client.get(Once::new);
        let slot = slot.ok_or_else(|| Error::new(ErrorKind::Internal, "the store is being closed"))?;
        if let Some(client) = slot.get() {
            return Ok(client);
        }
        // A fault is not kept: the next call may find what was missing.
        let client = Client::new(&self.root, &self.options)?;
        Ok(slot.get_or_init(|| client))
    }

    /// The client, if there has been any use for it.
    fn used(&self) -> Option<&Client> {
        self.client.get(Once::new)?.get()
    }

    fn key(&self, path: &str) -> String {
        match (self.root.key.as_str(), path) {
            ("", path) => path.to_owned(),
            (root, "") => root.to_owned(),
            (root, path) => format!("{root}/{path}"),
        }
    }

    /// An error names the file: the root's own URL if it is the root. What is not below the root was there when it was
    /// listed; the root itself was only named.
    fn located(&self, path: &str, error: Error) -> Error {
        let is_missing = error.kind() == ErrorKind::NotFound;
        let error = error.with_file(if path.is_empty() { self.root.to_string() } else { path.to_owned() });
        match (is_missing, path) {
            (true, "") => error.with_hint("check the address"),
            (true, _) => error.with_hint(VANISHED),
            (false, _) => error,
        }
    }

    /// Keys and stats of all objects below the root.
    #[doc(hidden)]
    pub fn list(&self) -> Result<Vec<(String, FileStat)>> {
        self.client()?.list(self.key("")).map_err(|error| error.with_file(self.root.to_string()))
    }

    /// The URL with the commit in place of a branch or tag of the hub, which is asked for it. Any other URL, and one
    /// that names a commit, stays as it is.
    ///
    /// # Errors
    /// Those of the hub, and `InvalidArgument` where its answer is none.
    #[doc(hidden)]
    pub fn pinned(url: Url, options: &StoreOptions) -> Result<Url> {
        if url.repository().is_none_or(|repository| repository.is_pinned()) {
            return Ok(url);
        }
        let commit = Self::at(url.with_key(""), options)?.client()?.commit();
        Ok(url.at_revision(&commit.map_err(|error| error.with_file(url.to_string()))?))
    }

    /// All of an object; of the one that the root names, if the path is empty.
    #[doc(hidden)]
    pub fn get_whole(&self, path: &str) -> Result<Bytes> {
        let whole = self.client()?.end(self.key(path), None, None);
        Ok(whole.map_err(|error| self.located("", error.with_file(self.url(path))))?.1)
    }

    /// Writes an object, whole or not at all; the one that the root names, if the path is empty.
    #[doc(hidden)]
    pub fn put(self: &Arc<Self>, path: &str, bytes: Bytes, overwrite: bool) -> Result<()> {
        if bytes.len() > LARGE {
            return self.put_large(path, &bytes, overwrite);
        }
        self.client()?.put(self.key(path), bytes, overwrite).map_err(|error| error.with_file(self.url(path)))
    }

    /// Writes an object in parts, each within the time of a request.
    fn put_large(self: &Arc<Self>, path: &str, bytes: &[u8], overwrite: bool) -> Result<()> {
        if !overwrite && self.stat(path).is_ok() {
            return Err(Error::new(ErrorKind::AlreadyExists, "the file exists already").with_file(self.url(path)));
        }
        let options = UploadOptions { part_bytes: LARGE / 4, parts: 4 };
        let mut writer = ObjectWriter::new(Arc::clone(self), path, options, overwrite);
        let written = writer.write_all(bytes);
        written.map_err(|error| Error::io("cannot write to the store", error).with_file(self.url(path)))?;
        writer.commit().map(drop)
    }

    /// Begins an object, which appears whole or not at all, and holds no more of it than these options say.
    #[doc(hidden)]
    pub fn create(self: &Arc<Self>, path: &str, options: UploadOptions) -> Result<ObjectWriter> {
        Ok(ObjectWriter::new(Arc::clone(self), path, options, false))
    }

    /// Removes an object, if it is there.
    #[doc(hidden)]
    pub fn remove(&self, path: &str) -> Result<()> {
        self.client()?.remove(self.key(path)).map_err(|error| error.with_file(self.url(path)))
    }

    /// Takes back the upload of an object that a process did not live to complete, which its note tells of.
    #[doc(hidden)]
    pub fn take_back(&self, path: &str) -> Result<()> {
        match self.get_whole(&writer::note(path)) {
            Ok(id) => match self.take_back_upload(path, &String::from_utf8_lossy(&id)) {
                // It was completed, and nobody was left to remove the note. Not all stores say so in the same way.
                Err(_) if self.stat(path).is_ok() => self.remove(&writer::note(path)),
                taken => taken,
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn take_back_upload(&self, path: &str, id: &str) -> Result<()> {
        let taken = self.client()?.abort_upload(self.key(path), id.to_owned());
        taken.map_err(|error| error.with_file(self.url(path)))?;
        self.remove(&writer::note(path))
    }

    fn url(&self, path: &str) -> String {
        self.root.with_key(self.key(path)).to_string()
    }

    fn start(&self, path: &str, expected: Option<&FileStat>, ranges: &[Range<u64>]) -> Result<Pending<Vec<Bytes>>> {
        let size = expected.map_or(u64::MAX, |stat| stat.size);
        if let Some(range) = ranges.iter().find(|range| range.start < range.end && range.end > size) {
            return Err(short_read(range, size.saturating_sub(range.start) as usize));
        }
        let reads = join(ranges, self.options.gap);
        let client = self.client()?;
        let buffers = Arc::clone(client.buffers());
        let parts: Vec<Vec<Part>> = reads.iter().map(|read| parts(read, expected.is_some(), &buffers)).collect();
        let counts: Vec<usize> = parts.iter().map(Vec::len).collect();
        let parts = parts.into_iter().flatten().collect();
        let pending = client.start_ranges(self.key(path), parts, expected.cloned())?;
        let ranges = ranges.to_vec();
        Ok(pending.then(move |bodies| {
            let mut bodies = bodies.into_iter();
            let glued = counts.into_iter().map(|count| buffers.lend(glue(bodies.by_ref().take(count))));
            let whole: Vec<Bytes> = glued.collect();
            cut(&reads, &whole, &ranges)
        }))
    }
}

impl Source for ObjectSource {
    fn location(&self, path: &str) -> Option<String> {
        Some(self.url(path))
    }

    fn stat(&self, path: &str) -> Result<FileStat> {
        let stat = || self.client()?.stat(self.key(path));
        stat().map_err(|error| self.located(path, error))
    }

    fn end(&self, path: &str, length: u64, expected: Option<&FileStat>) -> Result<(FileStat, Bytes)> {
        let end = || self.client()?.end(self.key(path), Some(length), expected.cloned());
        end().map_err(|error| self.located(path, error))
    }

    fn read(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.start(path, None, ranges).and_then(Pending::wait).map_err(|error| self.located(path, error))
    }

    fn read_unchanged(&self, path: &str, stat: &FileStat, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.start(path, Some(stat), ranges).and_then(Pending::wait).map_err(|error| self.located(path, error))
    }

    fn begin(&self, path: &str, stat: &FileStat, ranges: &[Range<u64>]) -> Option<Pending<Vec<Bytes>>> {
        // An error comes again, with its words, from the read that this would have been for.
        self.start(path, Some(stat), ranges).ok()
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn traffic(&self) -> Traffic {
        self.used().map(Client::traffic).unwrap_or_default()
    }

    fn link(&self) -> Option<Link> {
        self.used()?.link()
    }

    fn requests(&self, ranges: &[Range<u64>]) -> u64 {
        join(ranges, self.options.gap).iter().map(count_parts).fold(0, u64::saturating_add)
    }
}

impl fmt::Debug for ObjectSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectSource")
            .field("root", &self.root.to_string())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Joins ranges over their smallest gaps: all up to `permitted`, and others within what may be wasted.
fn join(ranges: &[Range<u64>], permitted: u64) -> Vec<Range<u64>> {
    let joined = super::coalesce(ranges, 0, u64::MAX);
    let needed: u64 = joined.iter().map(|range| range.end - range.start).fold(0, u64::saturating_add);
    let mut left = (needed / 50).max(FREE_GAPS);
    let mut gaps: Vec<(u64, usize)> =
        joined.windows(2).enumerate().map(|(at, pair)| (pair[1].start - pair[0].end, at)).collect();
    gaps.sort_unstable();
    let mut over = vec![false; joined.len()];
    for (gap, at) in gaps {
        if gap > permitted {
            if gap > GAP || gap > left {
                break;
            }
            left -= gap;
        }
        over[at] = true;
    }
    let mut reads: Vec<Range<u64>> = Vec::new();
    let mut goes_on = false;
    for (range, over) in joined.into_iter().zip(over) {
        match reads.last_mut() {
            Some(last) if goes_on => last.end = range.end,
            _ => reads.push(range),
        }
        goes_on = over;
    }
    reads
}

/// How many requests a read is made of.
fn count_parts(read: &Range<u64>) -> u64 {
    (read.end - read.start).div_ceil(PART).max(1)
}

/// Equal parts, none longer than a request may be, which share one allocation.
///
/// If it is not known that the file has so many bytes, nothing is allocated for them yet, and it stays one part.
fn parts(read: &Range<u64>, known: bool, buffers: &Buffers<BytesMut>) -> Vec<Part> {
    let length = read.end - read.start;
    let Some(whole) = usize::try_from(length).ok().filter(|_| known) else {
        return vec![Part { range: read.clone(), body: BytesMut::new() }];
    };
    let count = count_parts(read);
    let each = length.div_ceil(count);
    let mut rest = buffers.take(whole);
    let part = |number: u64| {
        let range = read.start + number * each..(read.start + (number + 1) * each).min(read.end);
        let behind = rest.split_off((range.end - range.start) as usize);
        Part { range, body: std::mem::replace(&mut rest, behind) }
    };
    (0..count).map(part).collect()
}

/// What [`parts`] took apart, again in one piece, which takes no copy.
fn glue(bodies: impl Iterator<Item = BytesMut>) -> BytesMut {
    let mut whole = BytesMut::new();
    for body in bodies {
        if whole.is_empty() {
            whole = body;
        } else {
            whole.unsplit(body);
        }
    }
    whole
}
