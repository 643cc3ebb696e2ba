//! A store's client with the threads that drive it: what belongs to one process.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use bytes::{Bytes, BytesMut};
use object_store::multipart::PartId;
use object_store::path::Path;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::connect::{Connection, connection};
use super::fault::Fault;
use super::meter::Meter;
use super::requests::Shared;
use crate::fs::with_room;
use crate::source::place::Url;
use crate::source::{Done, FileStat, Link, Pending, StoreOptions, Traffic};
use rowdex_base::buffers::Buffers;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop;

/// Threads that move bytes between sockets and buffers. They wait most of the time; decoding is done elsewhere.
const THREADS: usize = 2;

/// Bytes of buffers that may lie unused.
const IDLE: usize = 64 << 20;

/// The client of one store in one process, and its threads, which end with it.
pub(super) struct Client {
    runtime: Option<Runtime>,
    shared: Arc<Shared>,
    buffers: Arc<Buffers<BytesMut>>,
}

/// A request for a range, and where its bytes go.
pub(super) struct Part {
    pub(super) range: Range<u64>,
    pub(super) body: BytesMut,
}

impl Client {
    pub(super) fn new(url: &Url, options: &StoreOptions) -> Result<Self> {
        let Connection { store, parts, pages, credentials, hub } = connection(url, options)
            .map_err(|error| Fault::of_configuration(&error, url).error.with_file(url.to_string()))?;
        let runtime =
            || Builder::new_multi_thread().worker_threads(THREADS).thread_name("rowdex-store").enable_all().build();
        let runtime = with_room(runtime)
            .map_err(|error| Error::io("cannot start the threads for the store", error).with_file(url.to_string()))?;
        let shared = Arc::new(Shared {
            store,
            parts,
            pages,
            credentials,
            hub,
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
                let shared = Arc::clone(&shared);
                let path = path.clone();
                let expected = expected.clone();
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

    /// The commit of the hub that the root names.
    pub(super) fn commit(&self) -> Result<String> {
        self.start(|shared| async move { shared.commit().await })?.wait()
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

    pub(super) fn remove(&self, key: String) -> Result<()> {
        self.start(|shared| async move { shared.remove(&path(&key)?).await })?.wait()
    }

    pub(super) fn begin_upload(&self, key: String) -> Result<String> {
        self.start(|shared| async move { shared.begin_upload(&path(&key)?).await })?.wait()
    }

    /// Starts sending a part of an upload.
    pub(super) fn upload_part(&self, key: String, id: String, number: usize, bytes: Bytes) -> Result<Pending<PartId>> {
        self.start(move |shared| async move { shared.upload_part(&path(&key)?, &id, number, bytes).await })
    }

    pub(super) fn complete_upload(
        &self,
        key: String,
        id: String,
        parts: Vec<PartId>,
        length: u64,
        overwrite: bool,
    ) -> Result<()> {
        let complete = move |shared: Arc<Shared>| async move {
            shared.complete_upload(&path(&key)?, &id, parts, length, overwrite).await
        };
        self.start(complete)?.wait()
    }

    pub(super) fn abort_upload(&self, key: String, id: String) -> Result<()> {
        self.start(|shared| async move { shared.abort_upload(&path(&key)?, &id).await })?.wait()
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

fn path(key: &str) -> Result<Path> {
    Path::parse(key).map_err(|_| {
        Error::new(
            ErrorKind::InvalidArgument,
            "the path cannot be that of an object: it has an empty part, a `.` or a `..`",
        )
        .with_file(key.to_owned())
    })
}
