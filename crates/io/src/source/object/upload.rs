//! A large object, written in parts.

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, future, stream};
use object_store::MultipartUpload;

/// Parts that are under way at once.
const AT_ONCE: usize = 4;

/// Sends `bytes` in parts of this length, and completes the object.
///
/// An upload that fails is taken back, because stores keep and bill its parts. If that fails as well (the store may
/// have dropped them already) the error is still the first one, which says what is wrong and whether it may pass.
pub(super) async fn in_parts(
    mut upload: Box<dyn MultipartUpload>,
    mut bytes: Bytes,
    length: usize,
) -> object_store::Result<()> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let part = bytes.split_to(length.clamp(1, bytes.len()));
        parts.push(upload.put_part(part.into()));
    }
    let sent = stream::iter(parts).buffer_unordered(AT_ONCE).try_for_each(|()| future::ready(Ok(()))).await;
    let outcome = match sent {
        Ok(()) => upload.complete().await.map(drop),
        Err(error) => Err(error),
    };
    if outcome.is_err() {
        let _ = upload.abort().await;
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use object_store::{Error, ObjectStoreExt, PutPayload, PutResult, Result, UploadPart};

    use super::*;

    fn wait<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    fn failed<T>(what: &'static str) -> Result<T> {
        Err(Error::Generic { store: "test", source: what.into() })
    }

    /// An upload of which something fails, and which is not to be taken back either.
    #[derive(Debug)]
    struct Failing {
        parts: bool,
        aborts: Arc<AtomicU64>,
    }

    impl MultipartUpload for Failing {
        fn put_part(&mut self, _: PutPayload) -> UploadPart {
            let fails = self.parts;
            async move { if fails { failed("the part") } else { Ok(()) } }.boxed()
        }

        fn complete<'a, 'b>(&'a mut self) -> BoxFuture<'b, Result<PutResult>>
        where
            'a: 'b,
            Self: 'b,
        {
            async { failed("the completion") }.boxed()
        }

        fn abort<'a, 'b>(&'a mut self) -> BoxFuture<'b, Result<()>>
        where
            'a: 'b,
            Self: 'b,
        {
            self.aborts.fetch_add(1, Ordering::Relaxed);
            async { failed("the clean-up") }.boxed()
        }
    }

    #[test]
    fn parts_make_up_the_object_whatever_their_length() {
        let bytes = Bytes::from_iter((0..1000_u32).map(|byte| byte as u8));
        let (store, path) = (InMemory::new(), Path::from("a/b"));
        for length in [1, 7, 250, 999, 1000, 5000] {
            let written = wait(async {
                in_parts(store.put_multipart(&path).await?, bytes.clone(), length).await?;
                store.get(&path).await?.bytes().await
            });
            assert_eq!(written.unwrap(), bytes, "parts of {length}");
        }
    }

    #[test]
    fn an_upload_that_fails_is_taken_back_and_says_what_failed_first() {
        for (parts, what) in [(true, "the part"), (false, "the completion")] {
            let aborts = Arc::new(AtomicU64::new(0));
            let upload = Box::new(Failing { parts, aborts: Arc::clone(&aborts) });
            let error = wait(in_parts(upload, Bytes::from_static(b"abc"), 2)).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
            assert_eq!(aborts.load(Ordering::Relaxed), 1);
        }
    }
}
