//! Files in object stores: S3, GCS, Azure, HTTP servers, and the Hugging Face hub.
//!
//! A row group is read in a few large requests at once. Ranges are joined over gaps of up to 16 KiB, or as long as
//! [`StoreOptions::with_gap`] permits; what is then longer than 8 MiB is fetched in equal parts of at most that length,
//! because one connection is slower than the link. The store's own client repeats requests that fail.

mod client;
mod connect;
mod fault;
mod hub;
mod meter;
mod requests;
#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one range is a list of ranges here")]
mod tests;
mod transport;
mod writer;

use std::fmt;
use std::future::Future;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::future::try_join_all;
use object_store::path::Path;

use self::client::StoreClient;
use self::requests::{LARGE, Requests, count_parts};
pub use self::writer::ObjectWriter;
use super::place::{Place, Url};
use super::{FileStat, Link, Pending, Source, StoreOptions, Traffic, UploadOptions, VANISHED, coalesce, cut};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::once::Once;
use rowdex_base::per_process::PerProcess;

/// Gaps of so many bytes are always read over: their transfer takes less than another request.
const FREE_GAP: u64 = 16 << 10;

/// Files below one URL of an object store.
///
/// Nothing is asked of the store, and no thread started, before the first call that needs it. The threads end with the
/// source. A process that is forked from one that has used it gets its own connections and threads.
pub struct ObjectSource {
    root: Url,
    options: StoreOptions,
    client: PerProcess<Once<StoreClient>>,
}

impl ObjectSource {
    /// Files below `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`, `http://HOST/PREFIX`,
    /// `https://HOST/PREFIX`, `hf://datasets/OWNER/NAME@REVISION/PREFIX` or `hf://buckets/OWNER/NAME/PREFIX`.
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

    fn client(&self) -> Result<&StoreClient> {
        let slot = self.client.get(Once::new);
        let slot = slot.ok_or_else(|| Error::new(ErrorKind::Internal, "the store is being closed"))?;
        if let Some(client) = slot.get() {
            return Ok(client);
        }
        // A fault is not kept: the next call may find what was missing.
        let client = StoreClient::new(&self.root, &self.options)?;
        Ok(slot.get_or_init(|| client))
    }

    /// The client, if there has been any use for it.
    fn used(&self) -> Option<&StoreClient> {
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

    /// Starts work on the object at a path, whose errors are not told of which file they are.
    fn start<T, F>(&self, path: &str, work: impl FnOnce(Arc<Requests>, Path) -> F) -> Result<Pending<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let key = Path::parse(self.key(path)).map_err(|_| {
            let message = "the path cannot be that of an object: it has an empty part, a `.` or a `..`";
            Error::new(ErrorKind::InvalidArgument, message)
        })?;
        self.client()?.start(|shared| work(shared, key))
    }

    /// Does work on the object at a path; errors name it.
    fn run<T, F>(&self, path: &str, work: impl FnOnce(Arc<Requests>, Path) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let done = self.start(path, work).and_then(Pending::wait);
        done.map_err(|error| self.located("", error.with_file(self.url(path))))
    }

    /// Keys and stats of all objects below the root.
    #[doc(hidden)]
    pub fn list(&self) -> Result<Vec<(String, FileStat)>> {
        self.run("", |shared, folder| async move { shared.list(&folder).await })
    }

    /// The URL with the commit in place of a branch or tag of the hub, which is asked for it. Any other URL, and one
    /// that names a commit or a bucket, stays as it is.
    ///
    /// # Errors
    /// Those of the hub, and `InvalidArgument` where its answer is none.
    #[doc(hidden)]
    pub fn pinned(url: Url, options: &StoreOptions) -> Result<Url> {
        if url.repository().is_none_or(|repository| repository.revision.is_none() || repository.is_pinned()) {
            return Ok(url);
        }
        let source = Self::at(url.with_key(""), options)?;
        let commit = source.run("", |shared, _| async move {
            match &shared.hub {
                Some(hub) => hub.commit().await,
                None => Err(Error::new(ErrorKind::Internal, "a commit of a store without any")),
            }
        });
        Ok(url.at_revision(&commit.map_err(|error| error.with_file(url.to_string()))?))
    }

    /// All of an object; of the one that the root names, if the path is empty.
    #[doc(hidden)]
    pub fn get_whole(&self, path: &str) -> Result<Bytes> {
        self.run(path, |shared, path| async move { shared.get_whole(&path).await })
    }

    /// Writes an object, whole or not at all; the one that the root names, if the path is empty.
    #[doc(hidden)]
    pub fn put(self: &Arc<Self>, path: &str, bytes: Bytes, overwrite: bool) -> Result<()> {
        if bytes.len() <= LARGE {
            return self.run(path, move |shared, path| async move { shared.put(&path, bytes, overwrite).await });
        }
        if !overwrite && self.stat(path).is_ok() {
            return Err(Error::new(ErrorKind::AlreadyExists, "the file exists already").with_file(self.url(path)));
        }
        // In parts, each within the time of a request.
        let options = UploadOptions { part_bytes: LARGE / 4, parts: 4 };
        let mut writer = ObjectWriter::new(Arc::clone(self), path, options, overwrite);
        let written = writer.write_all(&bytes);
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
        self.run(path, |shared, path| async move { shared.remove(&path).await })
    }

    fn url(&self, path: &str) -> String {
        self.root.with_key(self.key(path)).to_string()
    }

    fn join(&self, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        coalesce(ranges, self.options.gap.max(FREE_GAP), u64::MAX)
    }

    /// Starts reading; without `expected`, the object is looked at first.
    fn start_read(
        &self,
        path: &str,
        expected: Option<&FileStat>,
        ranges: &[Range<u64>],
    ) -> Result<Pending<Vec<Bytes>>> {
        let reads = self.join(ranges);
        let ranges = ranges.to_vec();
        let expected = expected.cloned();
        self.start(path, |shared, path| async move {
            let stat = match expected {
                Some(stat) => stat,
                None => shared.stat(&path).await?,
            };
            let whole = try_join_all(reads.iter().map(|read| shared.read(&path, read, &stat))).await?;
            let whole: Vec<Bytes> = whole.into_iter().map(|(_, bytes)| bytes).collect();
            cut(&reads, &whole, &ranges)
        })
    }
}

impl Source for ObjectSource {
    fn location(&self, path: &str) -> Option<String> {
        Some(self.url(path))
    }

    fn stat(&self, path: &str) -> Result<FileStat> {
        let stat = self.start(path, |shared, path| async move { shared.stat(&path).await });
        stat.and_then(Pending::wait).map_err(|error| self.located(path, error))
    }

    fn end(&self, path: &str, length: u64, expected: Option<&FileStat>) -> Result<(FileStat, Bytes)> {
        let expected = expected.cloned();
        let end = self.start(path, move |shared, path| async move { shared.end(&path, length, expected).await });
        end.and_then(Pending::wait).map_err(|error| self.located(path, error))
    }

    fn read(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.read_unchanged(path, None, ranges)
    }

    fn read_unchanged(&self, path: &str, then: Option<&FileStat>, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.start_read(path, then, ranges).and_then(Pending::wait).map_err(|error| self.located(path, error))
    }

    fn begin(&self, path: &str, stat: &FileStat, ranges: &[Range<u64>]) -> Option<Pending<Vec<Bytes>>> {
        // An error comes again, with its words, from the read that this would have been for.
        self.start_read(path, Some(stat), ranges).ok()
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn traffic(&self) -> Traffic {
        let Some(client) = self.used() else { return Traffic::default() };
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Traffic { requests: read(&client.shared.requests), bytes: read(&client.shared.bytes) }
    }

    fn link(&self) -> Option<Link> {
        self.used()?.shared.meter().link()
    }

    fn requests(&self, ranges: &[Range<u64>]) -> u64 {
        self.join(ranges).iter().map(count_parts).fold(0, u64::saturating_add)
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
