//! Requests to a store, whose client repeats those that fail until their time is over.

use std::future::Future;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, try_join_all};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, WriteMultipart};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::fault::{FaultSort, StoreFault};
use super::hub::Hub;
use super::meter::Meter;
use crate::source::place::{Scheme, Url};
use crate::source::{FileStat, short_read};
use rowdex_base::error::{Error, ErrorKind, Result};

/// An object larger than this is written in parts.
pub(super) const LARGE: usize = 64 << 20;

/// The largest request for a part of a file.
const PART: u64 = 8 << 20;

/// How long credentials may take that nobody has seen. A machine's own service answers in milliseconds, and on one that
/// is no cloud's there is nobody to ask.
const CREDENTIALS: Duration = Duration::from_secs(5);

/// Gets credentials, which the store's client keeps until shortly before they expire.
pub(super) type Credentials = Box<dyn Fn() -> BoxFuture<'static, object_store::Result<()>> + Send + Sync>;

/// What requests need.
pub(super) struct Requests {
    pub(super) store: Arc<dyn ObjectStore>,
    /// `None` if requests go without any.
    pub(super) credentials: Option<Credentials>,
    pub(super) had_credentials: AtomicBool,
    /// What the hub alone is asked; `None` for any other store.
    pub(super) hub: Option<Hub>,
    pub(super) url: Url,
    pub(super) permits: Semaphore,
    pub(super) deadline: Duration,
    pub(super) requests: Arc<AtomicU64>,
    pub(super) bytes: AtomicU64,
    pub(super) meter: Mutex<Meter>,
}

/// How many requests a read is made of: one connection is slower than the link.
pub(super) fn count_parts(read: &Range<u64>) -> u64 {
    (read.end - read.start).div_ceil(PART).max(1)
}

impl Requests {
    pub(super) fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fault(&self, error: &object_store::Error) -> StoreFault {
        StoreFault::of(error, &self.url)
    }

    /// A request with its repetitions, which ends at the deadline. Its time is counted from its turn.
    async fn ask<T>(&self, request: impl Future<Output = Result<T, StoreFault>>) -> Result<T, StoreFault> {
        let _permit = self.permits.acquire().await;
        let in_time = async {
            self.wait_for_credentials().await?;
            request.await
        };
        timeout(self.deadline, in_time).await.unwrap_or_else(|_| {
            let seconds = self.deadline.as_secs_f64();
            let message = format!("gave up after {seconds} s: the store fails, or does not answer in time");
            Err(StoreFault::new(ErrorKind::Io, message, "check the network and the store, or try again later"))
        })
    }

    /// Credentials are asked for before the first request, so that an error says which of two servers it was.
    async fn wait_for_credentials(&self) -> Result<(), StoreFault> {
        let Some(credentials) = self.credentials.as_ref().filter(|_| !self.had_credentials.load(Ordering::Relaxed))
        else {
            return Ok(());
        };
        match timeout(CREDENTIALS.min(self.deadline), credentials()).await {
            Ok(Ok(())) => {
                self.had_credentials.store(true, Ordering::Relaxed);
                Ok(())
            }
            failed => Err(StoreFault::of_credentials(failed.ok().and_then(Result::err).as_ref(), &self.url)),
        }
    }

    async fn get(&self, path: &Path, options: GetOptions) -> Result<GetResult, StoreFault> {
        self.store.get_opts(path, options).await.map_err(|error| self.fault(&error))
    }

    pub(super) async fn stat(&self, path: &Path) -> Result<FileStat> {
        let answer = self.ask(self.get(path, GetOptions { head: true, ..GetOptions::default() }));
        answer.await.map(|answer| stat_of(&answer.meta)).map_err(StoreFault::into_error)
    }

    /// A range of an object, which must be the expected one, in parts that share one allocation; and what the store
    /// says of the object.
    pub(super) async fn read(&self, path: &Path, range: &Range<u64>, expected: &FileStat) -> Result<(FileStat, Bytes)> {
        if range.end > expected.size {
            return Err(short_read(range, expected.size.saturating_sub(range.start) as usize));
        }
        let each = (range.end - range.start).div_ceil(count_parts(range)).max(1);
        let mut rest = BytesMut::with_capacity((range.end - range.start) as usize);
        let parts = range.clone().step_by(each as usize).map(|start| {
            let part = start..(start + each).min(range.end);
            let behind = rest.split_off((part.end - part.start) as usize);
            let mut body = std::mem::replace(&mut rest, behind);
            async move { self.ask(self.part(path, part, expected, &mut body)).await.map(|stat| (stat, body)) }
        });
        let whole = try_join_all(parts).await.map_err(StoreFault::into_error)?.into_iter().reduce(
            |(stat, mut whole), (_, next)| {
                whole.unsplit(next);
                (stat, whole)
            },
        );
        let (stat, whole) = whole.unwrap_or_else(|| (expected.clone(), BytesMut::new()));
        Ok((stat, whole.freeze()))
    }

    /// The client goes on with a body that breaks off, but only where the store has tags, and not after a short one.
    async fn part(
        &self,
        path: &Path,
        range: Range<u64>,
        expected: &FileStat,
        body: &mut BytesMut,
    ) -> Result<FileStat, StoreFault> {
        let mut attempts = 3;
        loop {
            let if_match = expected.etag.as_deref().and_then(strong);
            let part = Some(GetRange::Bounded(range.clone()));
            let options = GetOptions { range: part, if_match, ..GetOptions::default() };
            let sent = Instant::now();
            let before = self.bytes.load(Ordering::Relaxed);
            let answer = self.get(path, options).await?;
            let latency = sent.elapsed();
            // Not every server knows conditions, so the answer must say of which content it is, too.
            let stat = stat_of(&answer.meta);
            if !expected.may_be(&stat) {
                return Err(StoreFault::changed());
            }
            attempts -= 1;
            match self.body(answer, range.end - range.start, body).await {
                Err(_) if attempts > 0 => {}
                received => {
                    received?;
                    self.meter().note(latency, self.bytes.load(Ordering::Relaxed) - before, sent.elapsed());
                    return Ok(stat);
                }
            }
        }
    }

    /// The end of an object, at most `length` bytes.
    pub(super) async fn end(&self, path: &Path, length: u64, expected: Option<FileStat>) -> Result<(FileStat, Bytes)> {
        let stat = match expected {
            Some(expected) => expected,
            None if self.url.scheme == Scheme::Azure => self.stat(path).await?,
            None => {
                let options = GetOptions { range: Some(GetRange::Suffix(length)), ..GetOptions::default() };
                match self.ask(self.try_get(path, options, length)).await {
                    // It is empty, which has no end, or the server knows no suffixes.
                    Err(StoreFault { sort: FaultSort::Range, .. }) => self.stat(path).await?,
                    end => return end.map_err(StoreFault::into_error),
                }
            }
        };
        self.read(path, &(stat.size.saturating_sub(length)..stat.size), &stat).await
    }

    pub(super) async fn get_whole(&self, path: &Path) -> Result<Bytes> {
        let whole = self.ask(self.try_get(path, GetOptions::default(), u64::MAX)).await;
        whole.map(|(_, bytes)| bytes).map_err(StoreFault::into_error)
    }

    /// Asks for up to `length` bytes.
    async fn try_get(&self, path: &Path, options: GetOptions, length: u64) -> Result<(FileStat, Bytes), StoreFault> {
        let answer = self.get(path, options).await?;
        let stat = stat_of(&answer.meta);
        let mut body = BytesMut::new();
        self.body(answer, stat.size.min(length), &mut body).await?;
        Ok((stat, body.freeze()))
    }

    /// Receives the whole body, which must be of this length.
    async fn body(&self, answer: GetResult, length: u64, body: &mut BytesMut) -> Result<(), StoreFault> {
        let wrong = || {
            let message = "the store delivers another length than it was asked for";
            StoreFault::new(ErrorKind::Io, message, "try again later")
        };
        let length = usize::try_from(length).map_err(|_| wrong())?;
        body.clear();
        // More than a little is taken as it comes, whatever the server says that it has.
        body.reserve(length.min(LARGE));
        let mut stream = answer.into_stream();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|error| self.fault(&error))?;
            self.bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            if chunk.len() > length - body.len() {
                return Err(wrong());
            }
            body.extend_from_slice(&chunk);
        }
        if body.len() == length { Ok(()) } else { Err(wrong()) }
    }

    /// All objects below a folder, as folders go: what `a/b` names is not below `a/bc`.
    pub(super) async fn list(&self, folder: &Path) -> Result<Vec<(String, FileStat)>> {
        if let Some(hub) = &self.hub {
            return hub.list(folder.as_ref()).await;
        }
        let mut listed = Vec::new();
        let mut objects = self.store.list(Some(folder).filter(|folder| !folder.as_ref().is_empty()));
        loop {
            let next = async { objects.next().await.transpose().map_err(|error| self.fault(&error)) };
            let Some(object) = self.ask(next).await.map_err(StoreFault::into_error)? else { return Ok(listed) };
            listed.push((object.location.to_string(), stat_of(&object)));
        }
    }

    pub(super) async fn put(&self, path: &Path, bytes: Bytes, overwrite: bool) -> Result<()> {
        // Some stores cannot create conditionally; this is right but for a race.
        if !overwrite && self.is_there(path).await?.is_some() {
            return Err(Error::new(ErrorKind::AlreadyExists, "the file exists already"));
        }
        let mode = if overwrite { PutMode::Overwrite } else { PutMode::Create };
        let put = match self.try_put(path, &bytes, mode).await {
            Err(StoreFault { sort: FaultSort::Unsupported, .. }) => {
                self.try_put(path, &bytes, PutMode::Overwrite).await
            }
            put => put,
        };
        match put.map_err(StoreFault::into_error) {
            // An earlier attempt may have put it without an answer.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => match self.get_whole(path).await {
                Ok(found) if found == bytes => Ok(()),
                _ => Err(error),
            },
            put => put,
        }
    }

    async fn try_put(&self, path: &Path, bytes: &Bytes, mode: PutMode) -> Result<(), StoreFault> {
        let put = self.store.put_opts(path, bytes.clone().into(), mode.into());
        self.ask(async { put.await.map(drop).map_err(|error| self.fault(&error)) }).await
    }

    /// The stat of an object, if there is one.
    pub(super) async fn is_there(&self, path: &Path) -> Result<Option<FileStat>> {
        match self.stat(path).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            stat => stat.map(Some),
        }
    }

    /// Removes an object, if it is there.
    pub(super) async fn remove(&self, path: &Path) -> Result<()> {
        match self.ask(async { self.store.delete(path).await.map_err(|error| self.fault(&error)) }).await {
            Err(fault) if fault.error.kind() != ErrorKind::NotFound => Err(fault.error),
            _ => Ok(()),
        }
    }

    pub(super) async fn begin_upload(&self, path: &Path, part_bytes: usize) -> Result<WriteMultipart> {
        let begin = async { self.store.put_multipart(path).await.map_err(|error| self.fault(&error)) };
        let upload = self.ask(begin).await.map_err(StoreFault::into_error)?;
        Ok(WriteMultipart::new_with_chunk_size(upload, part_bytes))
    }
}

/// A tag that a condition may name. Weak ones never match.
fn strong(etag: &str) -> Option<String> {
    match etag {
        weak if weak.starts_with("W/") => None,
        quoted if quoted.starts_with('"') => Some(quoted.to_owned()),
        bare => Some(format!("\"{bare}\"")),
    }
}

fn stat_of(meta: &ObjectMeta) -> FileStat {
    // Listings tell fractions of a second that answers do not.
    let seconds = meta.last_modified.timestamp();
    let mtime_ns = seconds.checked_mul(1_000_000_000).filter(|_| seconds > 0);
    FileStat { size: meta.size, mtime_ns, etag: meta.e_tag.clone() }
}
