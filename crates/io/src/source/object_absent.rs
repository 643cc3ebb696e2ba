//! What stands for the stores in a library that was built without them.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::place::Url;
use super::{FileStat, Source, StoreOptions, UploadOptions};
use rowdex_base::error::{Error, ErrorKind, Result};

/// What would write to a store.
pub use ObjectSource as ObjectWriter;

/// Nothing: this library was built without the feature `object-store`.
#[derive(Debug)]
pub enum ObjectSource {}

impl ObjectSource {
    #[doc(hidden)]
    pub fn at(url: Url, _options: &StoreOptions) -> Result<Self> {
        Err(Error::new(ErrorKind::InvalidArgument, "this rowdex was built without object stores")
            .with_file(url.to_string())
            .with_hint("build it with the feature `object-store`"))
    }

    #[doc(hidden)]
    pub fn pinned(url: Url, options: &StoreOptions) -> Result<Url> {
        match url.repository() {
            Some(_) => Self::at(url, options).map(|absent| match absent {}),
            None => Ok(url),
        }
    }

    #[doc(hidden)]
    pub fn list(&self) -> Result<Vec<(String, FileStat)>> {
        match *self {}
    }

    #[doc(hidden)]
    pub fn get_whole(&self, _path: &str) -> Result<Bytes> {
        match *self {}
    }

    #[doc(hidden)]
    pub fn put(self: &Arc<Self>, _path: &str, _bytes: Bytes, _overwrite: bool) -> Result<()> {
        match **self {}
    }

    #[doc(hidden)]
    pub fn create(self: &Arc<Self>, _path: &str, _options: UploadOptions) -> Result<ObjectWriter> {
        match **self {}
    }

    #[doc(hidden)]
    pub fn remove(&self, _path: &str) -> Result<()> {
        match *self {}
    }

    #[doc(hidden)]
    pub fn commit(self) -> Result<u64> {
        match self {}
    }
}

impl Source for ObjectSource {
    fn stat(&self, _path: &str) -> Result<FileStat> {
        match *self {}
    }

    fn read(&self, _path: &str, _ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        match *self {}
    }
}

impl Write for ObjectSource {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match *self {}
    }
}
