//! A store's client with the threads that drive it: what belongs to one process.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{
    ClientConfigKey, ClientOptions, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    RetryConfig, aws, azure, gcp, http,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::credentials::Credentials;
use super::fault::{Fault, Sort};
use super::meter::{Meter, Sent};
use super::transport::{Transport, truth};
use super::upload::in_parts;
use crate::source::place::{Scheme, Url};
use crate::source::{Done, FileStat, Link, Pending, StoreOptions, Traffic};
use rowdex_base::buffers::Buffers;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::fork::undivided;
use rowdex_base::stop;

/// Threads that move bytes between sockets and buffers. They wait most of the time; decoding is done elsewhere.
const THREADS: usize = 2;

/// A server that sends nothing for so long is taken for dead.
const SILENCE: &str = "20 seconds";

/// Pauses before a request is repeated: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Bytes of buffers that may lie unused.
const IDLE: usize = 64 << 20;

/// An object larger than this is written in parts.
const LARGE: usize = 64 << 20;

/// The client of one store in one process, and its threads, which end with it.
pub(super) struct Client {
    runtime: Option<Runtime>,
    shared: Arc<Shared>,
    buffers: Arc<Buffers<BytesMut>>,
}

/// What requests need.
struct Shared {
    store: Arc<dyn ObjectStore>,
    /// `None` if requests go without any.
    credentials: Option<Credentials>,
    url: Url,
    permits: Semaphore,
    deadline: Duration,
    retries: usize,
    requests: AtomicU64,
    bytes: AtomicU64,
    meter: Meter,
}

/// A request for a range, and where its bytes go.
pub(super) struct Part {
    pub(super) range: Range<u64>,
    pub(super) body: BytesMut,
}

/// An answer, of which the body is still to come.
type Answer = Result<GetResult, Fault>;

impl Client {
    pub(super) fn new(url: &Url, options: &StoreOptions) -> Result<Self> {
        let (store, credentials) = store(url, options)
            .map_err(|error| Fault::of_configuration(&error, url).error.with_file(url.to_string()))?;
        let runtime =
            Builder::new_multi_thread().worker_threads(THREADS).thread_name("rowdex-store").enable_all().build();
        let runtime = runtime
            .map_err(|error| Error::io("cannot start the threads for the store", error).with_file(url.to_string()))?;
        let shared = Arc::new(Shared {
            store,
            credentials,
            url: url.clone(),
            permits: Semaphore::new(options.concurrency.min(Semaphore::MAX_PERMITS)),
            deadline: options.deadline,
            retries: options.retries,
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            meter: Meter::default(),
        });
        Ok(Self { runtime: Some(runtime), shared, buffers: Arc::new(Buffers::keeping(IDLE)) })
    }

    pub(super) fn traffic(&self) -> Traffic {
        Traffic {
            requests: self.shared.requests.load(Ordering::Relaxed),
            bytes: self.shared.bytes.load(Ordering::Relaxed),
        }
    }

    /// Where memory for parts comes from, and goes again.
    pub(super) fn buffers(&self) -> &Arc<Buffers<BytesMut>> {
        &self.buffers
    }

    pub(super) fn link(&self) -> Option<Link> {
        self.shared.meter.link()
    }

    /// Starts work on the client's threads.
    ///
    /// The result comes through a channel and not through the runtime, so that waiting for it is no different inside
    /// another runtime.
    fn start<T, F, W>(&self, work: W) -> Result<Pending<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
        W: FnOnce(Arc<Shared>) -> F,
    {
        let Some(runtime) = &self.runtime else { return Err(Error::new(ErrorKind::Internal, "the store is closed")) };
        let (sender, receiver) = mpsc::sync_channel(1);
        let work = work(Arc::clone(&self.shared));
        let done = Done::default();
        let at_end = AtEnd(done.clone());
        let task = runtime.spawn(async move {
            let _at_end = at_end;
            // Nobody waits any more if this fails.
            let _ = sender.send(work.await);
        });
        let abort = AbortOnDrop(task.abort_handle());
        Ok(Pending::new(done, move || {
            let outcome = stop::receive(&receiver);
            drop(abort);
            outcome?.unwrap_or_else(|| Err(Error::new(ErrorKind::Internal, "a request to the store was given up")))
        }))
    }

    /// Starts reading parts of an object; each range is one request.
    pub(super) fn start_ranges(
        &self,
        key: String,
        parts: Vec<Part>,
        expected: Option<FileStat>,
    ) -> Result<Pending<Vec<BytesMut>>> {
        self.start(|shared| async move {
            let path = path(&key)?;
            let mut tasks = JoinSet::new();
            for (number, mut part) in parts.into_iter().enumerate() {
                let (shared, path, expected) = (Arc::clone(&shared), path.clone(), expected.clone());
                tasks.spawn(async move {
                    let read = shared.range(&path, part.range, expected.as_ref(), &mut part.body).await;
                    (number, read.map(|_| part.body))
                });
            }
            let mut bodies = Vec::new();
            bodies.resize_with(tasks.len(), BytesMut::new);
            while let Some(done) = tasks.join_next().await {
                let given_up = |_| Error::new(ErrorKind::Internal, "a request to the store was given up");
                let (number, body) = done.map_err(given_up)?;
                if let Some(place) = bodies.get_mut(number) {
                    *place = body?;
                }
            }
            Ok(bodies)
        })
    }

    pub(super) fn stat(&self, key: String) -> Result<FileStat> {
        self.start(|shared| async move { shared.stat(&path(&key)?).await })?.wait()
    }

    /// The end of an object, at most `length` bytes, or all of it.
    pub(super) fn end(
        &self,
        key: String,
        length: Option<u64>,
        expected: Option<FileStat>,
    ) -> Result<(FileStat, Bytes)> {
        self.start(move |shared| async move { shared.end(&path(&key)?, length, expected.as_ref()).await })?.wait()
    }

    /// All objects below a key, as folders go: what `a/b` names is not below `a/bc`.
    pub(super) fn list(&self, key: String) -> Result<Vec<(String, FileStat)>> {
        self.start(|shared| async move { shared.list(&path(&key)?).await })?.wait()
    }

    pub(super) fn put(&self, key: String, bytes: Bytes, overwrite: bool) -> Result<()> {
        self.start(move |shared| async move {
            let path = path(&key)?;
            shared.put(&path, bytes, overwrite).await
        })?
        .wait()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waits for nothing, so it may be called from within another runtime.
            runtime.shutdown_background();
        }
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Says that it is done even of work that was given up.
struct AtEnd(Done);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// One request with its repetitions.
struct Attempts<'a> {
    shared: &'a Shared,
    _permit: SemaphorePermit<'a>,
    deadline: Instant,
    left: usize,
    pause: Duration,
}

impl Attempts<'_> {
    /// One attempt, which ends at the deadline at the latest.
    async fn limit<T>(&self, attempt: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        self.shared.requests.fetch_add(1, Ordering::Relaxed);
        let late = |_| Err(Fault::new(Sort::Passing, ErrorKind::Io, "the store does not answer in time"));
        tokio::time::timeout_at(self.deadline, attempt).await.unwrap_or_else(late)
    }

    /// Waits until it is time to try again, unless that is in vain or too late.
    async fn again(&mut self, fault: Fault) -> Result<()> {
        if fault.sort != Sort::Passing || self.left == 0 {
            return Err(fault.error);
        }
        self.left -= 1;
        let pause = self.pause.mul_f64(0.5 + jitter() / 2.0);
        self.pause = (self.pause * 2).min(MAX_PAUSE);
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
    async fn attempts(&self) -> Result<Attempts<'_>> {
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

    async fn get(&self, path: &Path, options: GetOptions) -> Answer {
        self.store.get_opts(path, options).await.map_err(|error| Fault::of(&error, &self.url))
    }

    async fn stat(&self, path: &Path) -> Result<FileStat> {
        let mut attempts = self.attempts().await?;
        loop {
            let options = GetOptions { head: true, ..GetOptions::default() };
            match attempts.limit(self.get(path, options)).await {
                Ok(answer) => return Ok(stat_of(&answer.meta)),
                Err(fault) => attempts.again(fault).await?,
            }
        }
    }

    /// One range of an object, which must be the expected one if one is expected.
    async fn range(
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

    async fn end(&self, path: &Path, length: Option<u64>, expected: Option<&FileStat>) -> Result<(FileStat, Bytes)> {
        let Some(length) = length else { return self.whole(path).await };
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

    async fn whole(&self, path: &Path) -> Result<(FileStat, Bytes)> {
        let mut attempts = self.attempts().await?;
        loop {
            match attempts.limit(self.try_get(path, GetOptions::default(), u64::MAX)).await {
                Ok(whole) => return Ok(whole),
                Err(fault) => attempts.again(fault).await?,
            }
        }
    }

    /// The end of an object in one request; `None` if it is empty, which has no end, or the server knows no suffixes.
    async fn suffix(&self, path: &Path, length: u64) -> Result<Option<(FileStat, Bytes)>> {
        let mut attempts = self.attempts().await?;
        loop {
            let options = GetOptions { range: Some(GetRange::Suffix(length)), ..GetOptions::default() };
            match attempts.limit(self.try_get(path, options, length)).await {
                Ok(end) => return Ok(Some(end)),
                Err(Fault { sort: Sort::Range, .. }) => return Ok(None),
                Err(fault) => attempts.again(fault).await?,
            }
        }
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
            let chunk = chunk.map_err(|error| Fault::of(&error, &self.url))?;
            self.bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            if chunk.len() > length - body.len() {
                return Err(wrong());
            }
            body.extend_from_slice(&chunk);
        }
        if body.len() == length { Ok(()) } else { Err(wrong()) }
    }

    async fn list(&self, prefix: &Path) -> Result<Vec<(String, FileStat)>> {
        let mut attempts = self.attempts().await?;
        // As long as pages come it goes on, so the deadline is for each object.
        let mut listed = Vec::new();
        let mut stream = self.store.list(Some(prefix));
        loop {
            match tokio::time::timeout(self.deadline, stream.next()).await {
                Ok(None) => return Ok(listed),
                Ok(Some(Ok(object))) => {
                    // A full page of a listing has a thousand objects.
                    if listed.len() % 1000 == 0 {
                        self.requests.fetch_add(1, Ordering::Relaxed);
                    }
                    listed.push((object.location.to_string(), stat_of(&object)));
                }
                Ok(Some(Err(error))) => {
                    attempts.again(Fault::of(&error, &self.url)).await?;
                    listed.clear();
                    stream = self.store.list(Some(prefix));
                }
                Err(_) => return Err(Error::new(ErrorKind::Io, "the store does not answer in time")),
            }
        }
    }

    async fn put(&self, path: &Path, bytes: Bytes, overwrite: bool) -> Result<()> {
        if !overwrite {
            // Some stores cannot create conditionally, and a large object is written in parts; this is right but for a
            // race.
            match self.stat(path).await {
                Ok(_) => return Err(Error::new(ErrorKind::AlreadyExists, "the file exists already")),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let mut attempts = self.attempts().await?;
        let mut mode = if overwrite { PutMode::Overwrite } else { PutMode::Create };
        loop {
            let put = async {
                let put = if bytes.len() > LARGE {
                    match self.store.put_multipart(path).await {
                        Ok(upload) => in_parts(upload, bytes.clone(), LARGE / 4).await,
                        Err(error) => Err(error),
                    }
                } else {
                    self.store.put_opts(path, bytes.clone().into(), mode.clone().into()).await.map(drop)
                };
                put.map_err(|error| Fault::of(&error, &self.url))
            };
            match attempts.limit(put).await {
                Ok(()) => return Ok(()),
                Err(Fault { sort: Sort::Unsupported, .. }) if !matches!(mode, PutMode::Overwrite) => {
                    mode = PutMode::Overwrite;
                }
                Err(fault) => attempts.again(fault).await?,
            }
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

fn path(key: &str) -> Result<Path> {
    Path::parse(key).map_err(|_| {
        Error::new(
            ErrorKind::InvalidArgument,
            "the path cannot be that of an object: it has an empty part, a `.` or a `..`",
        )
        .with_file(key.to_owned())
    })
}

/// Gives TLS its cryptography: what the application has installed, otherwise ring, which builds in a fraction of the
/// time of rustls' own default.
fn install_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread was faster.
        let _ = undivided(|| rustls::crypto::ring::default_provider().install_default());
    }
}

/// The client of a store, and where it gets credentials from unless its requests go without.
fn store(url: &Url, options: &StoreOptions) -> object_store::Result<(Arc<dyn ObjectStore>, Option<Credentials>)> {
    install_cryptography();
    // Requests are repeated here, where they are counted and a deadline holds for all of it.
    let retry = RetryConfig { max_retries: 0, retry_timeout: options.deadline, ..RetryConfig::default() };
    let given = |variable: &str| {
        let own = options.config.iter().any(|(name, _)| name.eq_ignore_ascii_case(variable));
        own || std::env::var_os(variable).is_some()
    };
    let deadline = format!("{} seconds", options.deadline.as_secs().max(1));
    let timeouts = [
        (ClientConfigKey::Timeout, "TIMEOUT", deadline.as_str()),
        (ClientConfigKey::ReadTimeout, "READ_TIMEOUT", SILENCE),
    ];
    macro_rules! configured {
        ($builder:expr, $key:path, $prefix:literal) => {{
            let mut builder = $builder;
            for (key, name, value) in timeouts {
                if !given(&format!("{}_{name}", $prefix)) {
                    builder = builder.with_config($key(key), value);
                }
            }
            for (name, value) in &options.config {
                if let Ok(key) = name.to_ascii_lowercase().parse() {
                    builder = builder.with_config(key, value);
                }
            }
            builder.with_retry(retry).with_http_connector(Transport { follows: false })
        }};
    }
    let asks = |skip: Option<String>| skip.and_then(|skip| truth(&skip)) != Some(true);
    Ok(match url.scheme {
        Scheme::S3 => {
            let builder = configured!(aws::AmazonS3Builder::from_env(), aws::AmazonS3ConfigKey::Client, "AWS");
            let asks = asks(builder.get_config_value(&aws::AmazonS3ConfigKey::SkipSignature));
            let store = builder.with_bucket_name(&url.authority).build()?;
            let credentials = asks.then(|| Credentials::of(store.credentials()));
            (Arc::new(store), credentials)
        }
        Scheme::Gcs => {
            let builder =
                configured!(gcp::GoogleCloudStorageBuilder::from_env(), gcp::GoogleConfigKey::Client, "GOOGLE");
            let asks = asks(builder.get_config_value(&gcp::GoogleConfigKey::SkipSignature));
            let store = builder.with_bucket_name(&url.authority).build()?;
            let credentials = asks.then(|| Credentials::of(store.credentials()));
            (Arc::new(store), credentials)
        }
        Scheme::Azure => {
            let builder = configured!(azure::MicrosoftAzureBuilder::from_env(), azure::AzureConfigKey::Client, "AZURE");
            let asks = asks(builder.get_config_value(&azure::AzureConfigKey::SkipSignature));
            let store = builder.with_container_name(&url.authority).build()?;
            let credentials = asks.then(|| Credentials::of(store.credentials()));
            (Arc::new(store), credentials)
        }
        Scheme::Http | Scheme::Https => {
            let root = url.with_key("").to_string();
            let client = timeouts
                .into_iter()
                .fold(ClientOptions::new(), |client, (key, _, value)| client.with_config(key, value));
            let client = client.with_allow_http(url.scheme == Scheme::Http);
            let store = http::HttpBuilder::new().with_url(root).with_client_options(client).with_retry(retry);
            (Arc::new(store.with_http_connector(Transport { follows: true }).build()?), None)
        }
    })
}
