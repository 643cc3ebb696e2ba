//! A store's client with the threads that drive it: what belongs to one process.

use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::connect::connect;
use super::requests::Requests;
use crate::fs::with_room;
use crate::source::place::Url;
use crate::source::{Done, Pending, StoreOptions};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop;

/// Threads that move bytes between sockets and buffers. They wait most of the time; decoding is done elsewhere.
const THREADS: usize = 2;

/// The client of one store in one process, and its threads, which end with it.
pub(super) struct StoreClient {
    runtime: Option<Runtime>,
    pub(super) shared: Arc<Requests>,
}

impl StoreClient {
    pub(super) fn new(url: &Url, options: &StoreOptions) -> Result<Self> {
        let named = |error: Error| error.with_file(url.to_string());
        let shared = Arc::new(connect(url, options).map_err(named)?);
        let runtime =
            || Builder::new_multi_thread().worker_threads(THREADS).thread_name("rowdex-store").enable_all().build();
        let runtime =
            with_room(runtime).map_err(|error| named(Error::io("cannot start the threads for the store", error)))?;
        Ok(Self { runtime: Some(runtime), shared })
    }

    /// Starts work on the client's threads.
    ///
    /// The result comes through a channel and not through the runtime, so that waiting for it is no different inside
    /// another runtime.
    pub(super) fn start<T, F>(&self, work: impl FnOnce(Arc<Requests>) -> F) -> Result<Pending<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let given_up = |what: &'static str| Error::new(ErrorKind::Internal, what);
        let runtime = self.runtime.as_ref().ok_or_else(|| given_up("the store is closed"))?;
        let (sender, receiver) = mpsc::sync_channel(1);
        let work = work(Arc::clone(&self.shared));
        let done = Done::default();
        let at_end = AtEnd(done.clone());
        // The task ends with it.
        let mut task = JoinSet::new();
        let work = async move {
            let _at_end = at_end;
            // Nobody waits any more if this fails.
            let _ = sender.send(work.await);
        };
        task.spawn_on(work, runtime.handle());
        Ok(Pending::new(done, move || {
            let outcome = stop::receive(&receiver);
            drop(task);
            outcome?.unwrap_or_else(|| Err(given_up("a request to the store was given up")))
        }))
    }
}

impl Drop for StoreClient {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waits for nothing, so it may be called from within another runtime.
            runtime.shutdown_background();
        }
    }
}

/// Says that it is done even of work that was given up.
struct AtEnd(Done);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.set();
    }
}
