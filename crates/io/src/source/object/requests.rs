//! Requests to a store, each repeated until it succeeds, cannot succeed, or its time is over.

use std::collections::HashSet;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt};
use object_store::client::HttpError;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, PutMode};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::credentials::Credentials;
use super::fault::{Fault, Sort};
use super::hub::{Hub, Page};
use super::meter::{Meter, Sent};
use crate::source::FileStat;
use crate::source::place::{Scheme, Url};
use rowdex_base::error::{Error, ErrorKind, Result};

/// Pauses before a request is repeated: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// An object larger than this is written in parts.
pub(super) const LARGE: usize = 64 << 20;

/// Pages of the hub, which have a thousand files each, that a listing may have.
const HUB_PAGES: usize = 1000;

/// What requests need.
pub(super) struct Shared {
    pub(super) store: Arc<dyn ObjectStore>,
    /// The same, where it takes objects in parts.
    pub(super) parts: Option<Arc<dyn MultipartStore>>,
    /// The same, where it lists objects page by page.
    pub(super) pages: Option<Arc<dyn PaginatedListStore>>,
    /// `None` if requests go without any.
    pub(super) credentials: Option<Credentials>,
    /// What the hub alone is asked; `None` for any other store.
    pub(super) hub: Option<Arc<Hub>>,
    pub(super) url: Url,
    pub(super) permits: Semaphore,
    pub(super) deadline: Duration,
    pub(super) retries: usize,
    pub(super) requests: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) meter: Meter,
}

/// An answer, of which the body is still to come.
type Answer = Result<GetResult, Fault>;

/// One request with its repetitions.
pub(super) struct Attempts<'a> {
    shared: &'a Shared,
    _permit: SemaphorePermit<'a>,
    deadline: Instant,
    left: usize,
    pause: Duration,
}

impl Attempts<'_> {
    /// One attempt, which ends at the deadline at the latest.
    pub(super) async fn limit<T>(&self, attempt: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        self.shared.requests.fetch_add(1, Ordering::Relaxed);
        let late = |_| Err(Fault::new(Sort::Passing, ErrorKind::Io, "the store does not answer in time"));
        tokio::time::timeout_at(self.deadline, attempt).await.unwrap_or_else(late)
    }

    /// Waits until it is time to try again, unless that is in vain or too late.
    pub(super) async fn again(&mut self, fault: Fault) -> Result<()> {
        if fault.sort != Sort::Passing || self.left == 0 {
            return Err(fault.error);
        }
        self.left -= 1;
        let pause = self.pause.mul_f64(0.5 + jitter() / 2.0);
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        if let Some(wait) = fault.wait
            && Instant::now() + wait >= self.deadline
        {
            let asked = wait.as_secs_f64().ceil();
            let whole = self.shared.deadline.as_secs_f64();
            let message =
                format!("{}: it asks to wait {asked} s, and a request may take {whole} s", fault.error.message());
            let hint = fault.error.hint().unwrap_or_default();
            return Err(Error::new(fault.error.kind(), message).with_hint(format!("give a longer deadline, or {hint}")));
        }
        // Not all at once, when the time has come.
        let pause = fault.wait.map_or(pause, |wait| wait + pause);
        if Instant::now() + pause >= self.deadline {
            let seconds = self.shared.deadline.as_secs_f64();
            let message = format!("gave up after {seconds} s: {}", fault.error.message());
            return Err(Error::new(fault.error.kind(), message)
                .with_hint("check the network and the store, or try again later"));
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

impl Shared {
    /// Waits for a turn, and for credentials. The time for the request is counted from its turn.
    pub(super) async fn attempts(&self) -> Result<Attempts<'_>> {
        let permit = self.permits.acquire().await;
        let permit = permit.map_err(|_| Error::new(ErrorKind::Internal, "the store is closed"))?;
        let deadline = Instant::now() + self.deadline;
        let mut attempts = Attempts { shared: self, _permit: permit, deadline, left: self.retries, pause: FIRST_PAUSE };
        if let Some(credentials) = &self.credentials {
            let left = |attempts: &Attempts<'_>| attempts.deadline.saturating_duration_since(Instant::now());
            while let Err(fault) = credentials.ready(&self.url, left(&attempts)).await {
                attempts.again(fault).await?;
            }
        }
        Ok(attempts)
    }

    pub(super) fn fault(&self, error: &object_store::Error) -> Fault {
        Fault::of(error, &self.url)
    }

    async fn get(&self, path: &Path, options: GetOptions) -> Answer {
        self.store.get_opts(path, options).await.map_err(|error| self.fault(&error))
    }

    /// Asks until it succeeds, cannot succeed, or its time is over.
    pub(super) async fn ask<T, F>(&self, request: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let mut attempts = self.attempts().await?;
        loop {
            match attempts.limit(request()).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => attempts.again(fault).await?,
            }
        }
    }

    pub(super) async fn stat(&self, path: &Path) -> Result<FileStat> {
        let answer = self.ask(|| self.get(path, GetOptions { head: true, ..GetOptions::default() }));
        Ok(stat_of(&answer.await?.meta))
    }

    /// One range of an object, which must be the expected one if one is expected.
    pub(super) async fn range(
        &self,
        path: &Path,
        range: Range<u64>,
        expected: Option<&FileStat>,
        body: &mut BytesMut,
    ) -> Result<FileStat> {
        let mut attempts = self.attempts().await?;
        loop {
            match attempts.limit(self.try_range(path, range.clone(), expected, body)).await {
                Ok(stat) => return Ok(stat),
                Err(fault) => attempts.again(fault).await?,
            }
        }
    }

    async fn try_range(
        &self,
        path: &Path,
        range: Range<u64>,
        expected: Option<&FileStat>,
        body: &mut BytesMut,
    ) -> Result<FileStat, Fault> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: expected.and_then(|stat| strong(stat.etag.as_deref()?)),
            ..GetOptions::default()
        };
        let sent = Sent::now(self.bytes.load(Ordering::Relaxed));
        let answer = self.get(path, options).await?;
        let latency = sent.elapsed();
        // Not every server knows conditions, so the answer must say of which content it is, too.
        let stat = stat_of(&answer.meta);
        if expected.is_some_and(|expected| !expected.may_be(&stat)) {
            return Err(Fault::changed());
        }
        self.body(answer, range.end - range.start, body).await?;
        self.meter.note(sent, latency, self.bytes.load(Ordering::Relaxed));
        Ok(stat)
    }

    pub(super) async fn end(
        &self,
        path: &Path,
        length: Option<u64>,
        expected: Option<&FileStat>,
    ) -> Result<(FileStat, Bytes)> {
        let Some(length) = length else {
            return self.ask(|| self.try_get(path, GetOptions::default(), u64::MAX)).await;
        };
        let stat = match expected {
            Some(expected) => expected.clone(),
            None if self.url.scheme == Scheme::Azure => self.stat(path).await?,
            None => match self.suffix(path, length).await? {
                Some(end) => return Ok(end),
                None => self.stat(path).await?,
            },
        };
        if stat.size == 0 {
            return Ok((stat, Bytes::new()));
        }
        let start = stat.size.saturating_sub(length);
        let mut body = BytesMut::new();
        let stat = self.range(path, start..stat.size, Some(&stat), &mut body).await?;
        Ok((stat, body.freeze()))
    }

    /// The end of an object in one request; `None` if it is empty, which has no end, or the server knows no suffixes.
    async fn suffix(&self, path: &Path, length: u64) -> Result<Option<(FileStat, Bytes)>> {
        self.ask(|| async {
            let options = GetOptions { range: Some(GetRange::Suffix(length)), ..GetOptions::default() };
            match self.try_get(path, options, length).await {
                Err(Fault { sort: Sort::Range, .. }) => Ok(None),
                end => end.map(Some),
            }
        })
        .await
    }

    /// Asks for up to `length` bytes.
    async fn try_get(&self, path: &Path, options: GetOptions, length: u64) -> Result<(FileStat, Bytes), Fault> {
        let answer = self.get(path, options).await?;
        let stat = stat_of(&answer.meta);
        let mut body = BytesMut::new();
        self.body(answer, stat.size.min(length), &mut body).await?;
        Ok((stat, body.freeze()))
    }

    /// Receives the whole body, which must be of this length.
    async fn body(&self, answer: GetResult, length: u64, body: &mut BytesMut) -> Result<(), Fault> {
        let wrong =
            || Fault::new(Sort::Passing, ErrorKind::Io, "the store delivers another length than it was asked for");
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

    /// The commit that the hub has for the revision.
    pub(super) async fn commit(&self) -> Result<String> {
        let hub =
            self.hub.as_ref().ok_or_else(|| Error::new(ErrorKind::Internal, "a commit of a store without any"))?;
        self.ask(|| async { hub.commit().await.map_err(|error| self.hub_fault(error)) }).await
    }

    fn hub_fault(&self, error: HttpError) -> Fault {
        Fault::of(&object_store::Error::Generic { store: "hub", source: Box::new(error) }, &self.url)
    }

    /// All files below a folder, page by page.
    pub(super) async fn list(&self, folder: &Path) -> Result<Vec<(String, FileStat)>> {
        let mut listed = Vec::new();
        let mut next = None;
        let mut named = HashSet::new();
        for number in 0.. {
            if self.hub.is_some() && number == HUB_PAGES {
                return Err(Error::new(
                    ErrorKind::Io,
                    format!("the listing does not end after {} files", listed.len()),
                )
                .with_hint("name a folder of the dataset"));
            }
            // Each page is a request of its own, with its own time: a long listing may meet any number of faults.
            let page = self.ask(|| async {
                match self.page(folder, next.as_deref()).await {
                    // What is no folder of the hub has nothing below it.
                    Err(fault) if fault.sort == Sort::NoEntry && !folder.as_ref().is_empty() => Ok(None),
                    page => page.map(Some),
                }
            });
            let Some(page) = page.await? else { return Ok(Vec::new()) };
            listed.extend(page.files);
            let Some(token) = page.next else { break };
            if !named.insert(token.clone()) {
                let message = format!("the listing comes back to a page that it had, after {} files", listed.len());
                return Err(
                    Error::new(ErrorKind::Io, message).with_hint("name the files, or ask whoever runs the store")
                );
            }
            next = Some(token);
        }
        Ok(listed)
    }

    /// The page of a listing that an earlier one names, or the first.
    async fn page(&self, folder: &Path, next: Option<&str>) -> Result<Page, Fault> {
        if let Some(hub) = &self.hub {
            return hub.page(folder.as_ref(), next).await.map_err(|error| self.hub_fault(error));
        }
        let fault = |error| self.fault(&error);
        let (objects, next) = match &self.pages {
            Some(pages) => {
                let prefix = Some(format!("{folder}/")).filter(|_| !folder.as_ref().is_empty());
                let options = PaginatedListOptions { page_token: next.map(str::to_owned), ..Default::default() };
                let page = pages.list_paginated(prefix.as_deref(), options).await.map_err(fault)?;
                (page.result.objects, page.page_token)
            }
            // Any other server lists all at once.
            None => (self.store.list(Some(folder)).try_collect().await.map_err(fault)?, None),
        };
        let files = objects.iter().map(|object| (object.location.to_string(), stat_of(object))).collect();
        Ok(Page { files, next })
    }

    pub(super) async fn put(&self, path: &Path, bytes: Bytes, overwrite: bool) -> Result<()> {
        if !overwrite {
            // Some stores cannot create conditionally; this is right but for a race.
            match self.stat(path).await {
                Ok(_) => return Err(Error::new(ErrorKind::AlreadyExists, "the file exists already")),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let mut attempts = self.attempts().await?;
        let mut mode = if overwrite { PutMode::Overwrite } else { PutMode::Create };
        let mut is_again = false;
        loop {
            let put = async {
                let put = self.store.put_opts(path, bytes.clone().into(), mode.clone().into()).await;
                put.map_err(|error| self.fault(&error))
            };
            match attempts.limit(put).await {
                Ok(_) => return Ok(()),
                Err(Fault { sort: Sort::Unsupported, .. }) if !matches!(mode, PutMode::Overwrite) => {
                    mode = PutMode::Overwrite;
                }
                // An earlier attempt may have put it without an answer.
                Err(Fault { sort: Sort::Exists, .. }) if is_again && self.has(path, &bytes).await => return Ok(()),
                Err(fault) => attempts.again(fault).await?,
            }
            is_again = true;
        }
    }

    /// Whether the object has these bytes.
    async fn has(&self, path: &Path, bytes: &Bytes) -> bool {
        match self.store.get_opts(path, GetOptions::default()).await {
            Ok(found) => found.bytes().await.is_ok_and(|found| found == *bytes),
            Err(_) => false,
        }
    }
}

/// From 0 to 1, so that those who failed together do not all come back together.
fn jitter() -> f64 {
    f64::from(RandomState::new().hash_one(0) as u32) / f64::from(u32::MAX)
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
