//! Objects that are written in parts as their bytes come: requests to a store, repeated as all others are.

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;

use super::fault::{Fault, Sort};
use super::requests::Shared;
use crate::source::FileStat;
use rowdex_base::error::{Error, ErrorKind, Result};

/// Parts of an object that is written at once that are under way together.
const AT_ONCE: usize = 4;

impl Shared {
    /// Asks until it succeeds, cannot succeed, or its time is over.
    async fn ask<T, F>(&self, request: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let mut attempts = self.attempts().await?;
        loop {
            let attempt = async { request().await.map_err(|error| Fault::of(&error, &self.url)) };
            match attempts.limit(attempt).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => attempts.again(fault).await?,
            }
        }
    }

    fn parts(&self) -> Result<&dyn MultipartStore> {
        self.parts.as_deref().ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "a server of this kind takes no object in parts")
                .with_hint("write to a store of the kinds s3, gs or az, or to a local folder")
        })
    }

    /// The name of a new upload; empty where uploads have none, and need not be taken back.
    pub(super) async fn begin_upload(&self, path: &Path) -> Result<String> {
        let parts = self.parts()?;
        self.ask(|| parts.create_multipart(path)).await
    }

    pub(super) async fn upload_part(&self, path: &Path, id: &String, number: usize, bytes: Bytes) -> Result<PartId> {
        let parts = self.parts()?;
        let put = self.ask(|| parts.put_part(path, id, number, bytes.clone().into())).await;
        put.map_err(|error| if error.kind() == ErrorKind::NotFound { taken_back() } else { error })
    }

    /// Makes the object of its parts, which has so many bytes then. `before` is what it takes the place of.
    pub(super) async fn complete_upload(
        &self,
        path: &Path,
        id: &String,
        given: Vec<PartId>,
        length: u64,
        before: Option<FileStat>,
    ) -> Result<()> {
        let parts = self.parts()?;
        let mut attempts = self.attempts().await?;
        let fault = loop {
            let attempt = async {
                let completed = parts.complete_multipart(path, id, given.clone()).await;
                completed.map_err(|error| Fault::of(&error, &self.url))
            };
            match attempts.limit(attempt).await {
                Ok(_) => return Ok(()),
                Err(fault) if fault.sort == Sort::Passing => attempts.again(fault).await?,
                Err(fault) => break fault,
            }
        };
        drop(attempts);
        // The answer to an earlier attempt may have been lost, and then there is no such upload any more.
        match self.stat(path).await {
            Ok(stat) if stat.size == length && before.as_ref() != Some(&stat) => Ok(()),
            _ if fault.error.kind() == ErrorKind::NotFound => Err(taken_back()),
            _ => Err(fault.error),
        }
    }

    /// Writes an object in parts of this length, each within the time of a request.
    ///
    /// An upload that fails is taken back. If that fails as well the error is still the first one, which says what is
    /// wrong.
    pub(super) async fn put_in_parts(&self, path: &Path, bytes: Bytes, length: usize) -> Result<()> {
        let before = match self.stat(path).await {
            Ok(stat) => Some(stat),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let (id, all) = (&self.begin_upload(path).await?, bytes.len());
        let parts = (0..all).step_by(length.max(1)).map(|start| bytes.slice(start..all.min(start + length.max(1))));
        let sent = stream::iter(parts.enumerate()).map(|(number, part)| self.upload_part(path, id, number, part));
        let outcome = match sent.buffered(AT_ONCE).try_collect().await {
            Ok(parts) => self.complete_upload(path, id, parts, all as u64, before).await,
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            let _ = self.abort_upload(path, id).await;
        }
        outcome
    }

    /// Drops the parts of an upload, if there are any.
    pub(super) async fn abort_upload(&self, path: &Path, id: &String) -> Result<()> {
        let parts = self.parts()?;
        self.ask(|| parts.abort_multipart(path, id)).await.or_else(passed)
    }

    /// Removes an object, if it is there.
    pub(super) async fn remove(&self, path: &Path) -> Result<()> {
        self.ask(|| self.store.delete(path)).await.or_else(passed)
    }
}

fn taken_back() -> Error {
    Error::new(ErrorKind::Io, "the upload was taken back before it was complete")
        .with_hint("see whether another process writes the same output, and then go on")
}

/// What is gone already is as it should be.
fn passed(error: Error) -> Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use object_store::memory::InMemory;
    use object_store::{MultipartId, PutPayload, PutResult};
    use tokio::sync::Semaphore;

    use super::super::meter::Meter;
    use super::*;
    use crate::source::place::Place;

    /// A store of which something fails, and that counts uploads that are taken back.
    #[derive(Debug, Default)]
    struct Failing {
        store: Arc<InMemory>,
        parts: bool,
        completion: bool,
        aborts: AtomicU64,
    }

    fn refused<T>(path: &Path) -> object_store::Result<T> {
        Err(object_store::Error::PermissionDenied { path: path.to_string(), source: "refused".into() })
    }

    fn cannot<T>(operation: &str) -> object_store::Result<T> {
        Err(object_store::Error::NotImplemented { operation: operation.to_owned(), implementer: "test".to_owned() })
    }

    #[async_trait]
    impl MultipartStore for Failing {
        async fn create_multipart(&self, path: &Path) -> object_store::Result<MultipartId> {
            self.store.create_multipart(path).await
        }

        async fn put_part(
            &self,
            path: &Path,
            id: &MultipartId,
            number: usize,
            bytes: PutPayload,
        ) -> object_store::Result<PartId> {
            // Of several that are on their way together, not the first.
            match self.parts && number == 1 {
                true => refused(path),
                false => self.store.put_part(path, id, number, bytes).await,
            }
        }

        async fn complete_multipart(
            &self,
            path: &Path,
            id: &MultipartId,
            parts: Vec<PartId>,
        ) -> object_store::Result<PutResult> {
            match self.completion {
                true => cannot("the completion"),
                false => self.store.complete_multipart(path, id, parts).await,
            }
        }

        async fn abort_multipart(&self, path: &Path, _: &MultipartId) -> object_store::Result<()> {
            self.aborts.fetch_add(1, Ordering::Relaxed);
            refused(path)
        }
    }

    fn shared(store: Arc<Failing>) -> Shared {
        let Ok(Place::Remote(url)) = Place::of(std::path::Path::new("s3://bucket")) else { panic!() };
        Shared {
            store: Arc::<InMemory>::clone(&store.store),
            parts: Some(store),
            pages: None,
            credentials: None,
            hub: None,
            url,
            permits: Semaphore::new(2),
            deadline: Duration::from_secs(60),
            retries: 0,
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            meter: Meter::default(),
        }
    }

    fn wait<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn parts_make_up_the_object_whatever_their_length() {
        let bytes = Bytes::from_iter((0..1000_u32).map(|byte| byte as u8));
        let (store, path) = (Arc::new(Failing::default()), Path::from("a/b"));
        let shared = shared(Arc::clone(&store));
        for length in [1, 7, 250, 999, 1000, 5000] {
            let written = wait(async {
                shared.put_in_parts(&path, bytes.clone(), length).await.unwrap();
                store.store.get(&path).await.unwrap().bytes().await
            });
            assert_eq!(written.unwrap(), bytes, "parts of {length}");
        }
        assert_eq!(store.aborts.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_upload_that_fails_is_taken_back_and_says_what_failed_first() {
        for (parts, what) in [(true, "refuses access"), (false, "cannot do this")] {
            let store = Arc::new(Failing { parts, completion: true, ..Failing::default() });
            let shared = shared(Arc::clone(&store));
            // One of as many bytes, which it would have taken the place of.
            wait(store.store.put(&Path::from("a"), Bytes::from_static(b"before").into())).unwrap();
            let error = wait(shared.put_in_parts(&Path::from("a"), Bytes::from_static(b"abcdef"), 2)).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
            assert_eq!(store.aborts.load(Ordering::Relaxed), 1);
        }
    }
}
