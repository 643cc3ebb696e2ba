//! An object that appears whole or not at all, written in parts as its bytes come.
//!
//! Stores keep, and bill, the parts of an upload that its process did not live to complete. So its name is noted in an
//! object beside, from before its first part until it is complete, and whoever finds the note takes the upload back.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::multipart::PartId;

use super::ObjectSource;
use crate::source::{NOTES, Pending, Source, UploadOptions};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop::{self, Asked};

/// How long taking an upload back may take; and where the call was told to stop, which somebody waits for.
const TAKING_BACK: Duration = Duration::from_secs(10);
const WHEN_STOPPED: Duration = Duration::from_millis(200);
/// What S3 takes; other stores take more.
const MOST_PARTS: usize = 10_000;

/// An object being written, of which nothing is left unless it is committed.
pub struct ObjectWriter {
    store: Arc<ObjectSource>,
    path: String,
    options: UploadOptions,
    overwrite: bool,
    held: Vec<u8>,
    length: u64,
    upload: Option<Upload>,
    has_failed: bool,
}

/// Parts that were sent. Those on their way are one fewer than memory holds, because the next one is being filled.
struct Upload {
    id: String,
    parts: Vec<PartId>,
    under_way: VecDeque<Pending<PartId>>,
}

impl ObjectWriter {
    pub(super) fn new(store: Arc<ObjectSource>, path: &str, options: UploadOptions, overwrite: bool) -> Self {
        let path = path.to_owned();
        Self { store, path, options, overwrite, held: Vec::new(), length: 0, upload: None, has_failed: false }
    }

    /// Puts the object in its place; returns its length. If there is one of this length, it is as if it were this one:
    /// whoever writes the same output writes the same bytes.
    ///
    /// # Errors
    /// `AlreadyExists` if there is another one, and those of the store.
    pub fn commit(mut self) -> Result<u64> {
        let committed = self.try_commit();
        self.has_failed |= committed.is_err();
        committed.map(|()| self.length).map_err(|error| self.named(error))
    }

    fn try_commit(&mut self) -> Result<()> {
        if self.upload.is_none() {
            let bytes = Bytes::from(std::mem::take(&mut self.held));
            let put = self.store.put(&self.path, bytes, self.overwrite);
            return match put {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && self.is_there()? => Ok(()),
                put => put,
            };
        }
        if !self.held.is_empty() {
            self.send()?;
        }
        while self.receive()? {}
        stop::check()?;
        if !self.overwrite && self.is_there()? {
            return Ok(());
        }
        let Some(Upload { id, parts, .. }) = &mut self.upload else { return Ok(()) };
        let client = self.store.client()?;
        let key = self.store.key(&self.path);
        client.complete_upload(key, id.clone(), std::mem::take(parts), self.length, self.overwrite)?;
        self.upload = None;
        // The object is in its place, whatever becomes of the note. Who finds it finds no upload.
        let _ = self.store.remove(&note(&self.path));
        Ok(())
    }

    /// Whether an object of this length is in the place already.
    fn is_there(&self) -> Result<bool> {
        match self.store.client()?.stat(self.store.key(&self.path)) {
            Ok(stat) if stat.size == self.length => Ok(true),
            Ok(_) => Err(Error::new(ErrorKind::AlreadyExists, "the file exists already")
                .with_hint("remove it, or choose another place")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends what is held as the next part, when there is room for it on the way.
    fn send(&mut self) -> Result<()> {
        if self.upload.is_none() {
            self.upload = Some(self.begin()?);
        }
        let most = self.options.parts.max(2) - 1;
        while self.upload.as_ref().is_some_and(|upload| upload.under_way.len() >= most) {
            self.receive()?;
        }
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let bytes = Bytes::from(std::mem::take(&mut self.held));
        let number = upload.parts.len() + upload.under_way.len();
        if number >= MOST_PARTS {
            let message = format!("the file has more than {MOST_PARTS} parts of {} bytes", self.options.part_bytes);
            return Err(Error::new(ErrorKind::TooLarge, message).with_hint("write more files, or smaller ones"));
        }
        let client = self.store.client()?;
        let key = self.store.key(&self.path);
        upload.under_way.push_back(client.upload_part(key, upload.id.clone(), number, bytes)?);
        Ok(())
    }

    fn begin(&self) -> Result<Upload> {
        let id = self.store.client()?.begin_upload(self.store.key(&self.path))?;
        let upload = Upload { id, parts: Vec::new(), under_way: VecDeque::new() };
        if !upload.id.is_empty()
            && let Err(error) = self.store.put(&note(&self.path), upload.id.clone().into(), true)
        {
            self.take_back(&upload.id);
            return Err(error);
        }
        Ok(upload)
    }

    /// Waits for the part that was sent first; whether there was any.
    fn receive(&mut self) -> Result<bool> {
        let Some(upload) = &mut self.upload else { return Ok(false) };
        let Some(first) = upload.under_way.pop_front() else { return Ok(false) };
        upload.parts.push(first.wait()?);
        Ok(true)
    }

    /// Within a time, because whoever is told of an error waits for it. What cannot be taken back has its note.
    fn take_back(&self, id: &str) {
        let until = Instant::now() + if stop::check().is_ok() { TAKING_BACK } else { WHEN_STOPPED };
        let _asked = Asked::new(move || Instant::now() >= until).enter();
        let _ = self.store.take_back_upload(&self.path, id);
    }

    fn named(&self, error: Error) -> Error {
        let name = self.store.location(&self.path).unwrap_or_else(|| self.path.clone());
        error.with_file(name)
    }
}

/// Where the name of an upload is noted.
pub(super) fn note(path: &str) -> String {
    format!("{NOTES}{path}")
}

impl Write for ObjectWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.has_failed {
            return Err(io::Error::other("the upload has failed"));
        }
        if self.held.len() >= self.options.part_bytes
            && let Err(error) = self.send()
        {
            self.has_failed = true;
            return Err(io::Error::other(self.named(error)));
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
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take() {
            let Upload { id, under_way, .. } = upload;
            drop(under_way);
            self.take_back(&id);
        }
    }
}

impl fmt::Debug for ObjectWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectWriter").field("path", &self.path).field("length", &self.length).finish_non_exhaustive()
    }
}
