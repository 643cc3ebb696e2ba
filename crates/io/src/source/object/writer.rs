//! An object that appears whole or not at all, written in parts as its bytes come.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::WriteMultipart;
use tokio::sync::Mutex;

use super::ObjectSource;
use crate::source::UploadOptions;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop::{self, Asked};

/// How long taking an upload back may take; and where the call was told to stop, which somebody waits for.
const TAKING_BACK: Duration = Duration::from_secs(10);
const WHEN_STOPPED: Duration = Duration::from_millis(200);

/// An object being written, of which nothing is left unless it is committed or the process is killed: stores remove the
/// parts of an upload that nobody completes by a rule of the bucket.
pub struct ObjectWriter {
    store: Arc<ObjectSource>,
    path: String,
    options: UploadOptions,
    overwrite: bool,
    held: Vec<u8>,
    length: u64,
    /// From the first part on, for as long as there is something to take back.
    upload: Arc<Mutex<Option<WriteMultipart>>>,
    has_begun: bool,
    has_failed: bool,
}

impl ObjectWriter {
    pub(super) fn new(store: Arc<ObjectSource>, path: &str, options: UploadOptions, overwrite: bool) -> Self {
        Self {
            store,
            path: path.to_owned(),
            options,
            overwrite,
            held: Vec::new(),
            length: 0,
            upload: Arc::default(),
            has_begun: false,
            has_failed: false,
        }
    }

    /// Puts the object in its place; returns its length. If there is one of this length, it is as if it were this one:
    /// whoever writes the same output writes the same bytes.
    ///
    /// # Errors
    /// `AlreadyExists` if there is another one, and those of the store.
    pub fn commit(mut self) -> Result<u64> {
        let held = std::mem::take(&mut self.held);
        let length = self.length;
        let overwrite = self.overwrite;
        let has_begun = self.has_begun;
        let upload = Arc::clone(&self.upload);
        self.store.run(&self.path, move |shared, path| async move {
            let is_there = || async {
                match shared.is_there(&path).await? {
                    Some(stat) if stat.size != length => {
                        Err(Error::new(ErrorKind::AlreadyExists, "the file exists already")
                            .with_hint("remove it, or choose another place"))
                    }
                    found => Ok(found.is_some()),
                }
            };
            if !overwrite && is_there().await? {
                return Ok(());
            }
            if !has_begun {
                return shared.put(&path, held.into(), overwrite).await;
            }
            let Some(mut upload) = upload.lock().await.take() else { return Ok(()) };
            upload.put(held.into());
            match upload.finish().await {
                // The answer to an earlier attempt may have been lost, and then there is no such upload any more.
                Err(_) if !overwrite && is_there().await.is_ok_and(|is_there| is_there) => Ok(()),
                Err(error) => Err(shared.fault(&error).error),
                Ok(_) => Ok(()),
            }
        })?;
        Ok(length)
    }

    /// Sends what is held as the next part, when there is room for it on the way.
    fn send(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.held);
        let part_bytes = self.options.part_bytes;
        // One more is being filled.
        let most = self.options.parts.max(2) - 1;
        let upload = Arc::clone(&self.upload);
        self.has_begun = true;
        self.store.run(&self.path, move |shared, path| async move {
            let mut upload = upload.lock().await;
            let upload = match &mut *upload {
                Some(begun) => begun,
                none => none.insert(shared.begin_upload(&path, part_bytes).await?),
            };
            upload.wait_for_capacity(most).await.map_err(|error| shared.fault(&error).error)?;
            upload.put(bytes.into());
            Ok(())
        })
    }
}

impl Write for ObjectWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.has_failed {
            return Err(io::Error::other("the upload has failed"));
        }
        if self.held.len() >= self.options.part_bytes {
            self.has_failed = true;
            self.send().map_err(io::Error::other)?;
            self.has_failed = false;
        }
        let taken = bytes.len().min(self.options.part_bytes - self.held.len());
        self.held.extend_from_slice(&bytes[..taken]);
        self.length += taken as u64;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for ObjectWriter {
    /// Takes an upload back within a time, because whoever is told of an error waits for it.
    fn drop(&mut self) {
        if !self.has_begun {
            return;
        }
        let until = Instant::now() + if stop::check().is_ok() { TAKING_BACK } else { WHEN_STOPPED };
        let _asked = Asked::new(move || Instant::now() >= until).enter();
        let upload = Arc::clone(&self.upload);
        let _ = self.store.run(&self.path, |shared, _| async move {
            match upload.lock().await.take() {
                Some(upload) => upload.abort().await.map_err(|error| shared.fault(&error).error),
                None => Ok(()),
            }
        });
    }
}

impl fmt::Debug for ObjectWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectWriter").field("path", &self.path).field("length", &self.length).finish_non_exhaustive()
    }
}
