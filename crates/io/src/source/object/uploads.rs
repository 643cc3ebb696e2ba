//! Objects that are written in parts as their bytes come: requests to a store, repeated as all others are.

use bytes::Bytes;
use object_store::ObjectStoreExt;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;

use super::fault::Sort;
use super::requests::Shared;
use rowdex_base::error::{Error, ErrorKind, Result};

impl Shared {
    fn parts(&self) -> Result<&dyn MultipartStore> {
        self.parts.as_deref().ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "a server of this kind takes no object in parts")
                .with_hint("write to a store of the kinds s3, gs or az, or to a local folder")
        })
    }

    /// The name of a new upload; empty where uploads have none, and need not be taken back.
    pub(super) async fn begin_upload(&self, path: &Path) -> Result<String> {
        let parts = self.parts()?;
        self.ask(|| async { parts.create_multipart(path).await.map_err(|error| self.fault(&error)) }).await
    }

    pub(super) async fn upload_part(&self, path: &Path, id: &String, number: usize, bytes: Bytes) -> Result<PartId> {
        let parts = self.parts()?;
        let put = || async {
            let put = parts.put_part(path, id, number, bytes.clone().into()).await;
            put.map_err(|error| self.fault(&error))
        };
        self.ask(put).await.map_err(|error| if error.kind() == ErrorKind::NotFound { taken_back() } else { error })
    }

    /// Makes the object of its parts, which has so many bytes then, and may take the place of another one.
    pub(super) async fn complete_upload(
        &self,
        path: &Path,
        id: &String,
        given: Vec<PartId>,
        length: u64,
        overwrite: bool,
    ) -> Result<()> {
        let parts = self.parts()?;
        let mut attempts = self.attempts().await?;
        let fault = loop {
            let attempt = async {
                let completed = parts.complete_multipart(path, id, given.clone()).await;
                completed.map_err(|error| self.fault(&error))
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
            Ok(stat) if stat.size == length && !overwrite => Ok(()),
            _ if fault.error.kind() == ErrorKind::NotFound => Err(taken_back()),
            _ => Err(fault.error),
        }
    }

    /// Drops the parts of an upload, if there are any.
    pub(super) async fn abort_upload(&self, path: &Path, id: &String) -> Result<()> {
        let parts = self.parts()?;
        let abort = || async { parts.abort_multipart(path, id).await.map_err(|error| self.fault(&error)) };
        self.ask(abort).await.or_else(passed)
    }

    /// Removes an object, if it is there.
    pub(super) async fn remove(&self, path: &Path) -> Result<()> {
        let delete = || async { self.store.delete(path).await.map_err(|error| self.fault(&error)) };
        self.ask(delete).await.or_else(passed)
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
