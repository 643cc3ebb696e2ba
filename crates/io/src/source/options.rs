//! How stores are talked to.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Options for object stores. The defaults are what `rowdex` uses.
///
/// What a store needs to know (credentials, region, endpoint) comes from the environment, under the names that the
/// `object_store` crate and the stores' own tools use: `AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`,
/// `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_NAME` and so on. [`with_config`](Self::with_config) goes
/// before the environment.
#[derive(Clone, Serialize, Deserialize)]
pub struct StoreOptions {
    #[doc(hidden)]
    pub concurrency: usize,
    pub(crate) deadline: Duration,
    pub(crate) retries: usize,
    pub(crate) gap: u64,
    pub(crate) config: Vec<(String, String)>,
}

impl StoreOptions {
    /// The defaults: 64 requests at once, 10 retries, 2 minutes.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many requests may be under way at once; at least 1. Default: 64.
    #[must_use]
    pub fn with_concurrency(mut self, requests: usize) -> Self {
        self.concurrency = requests.max(1);
        self
    }

    /// How long a request may take with all of its retries. Default: 2 minutes.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How often a request is sent again after a fault that may pass: a lost connection, a body that is cut off, a
    /// status of 408, 429 or 5xx. The pauses between grow from 100 ms to 5 s, with jitter. Default: 10.
    #[must_use]
    pub fn with_retries(mut self, retries: usize) -> Self {
        self.retries = retries;
        self
    }

    /// Reads over gaps of up to this many bytes between two ranges that are needed, however many there are. Default,
    /// and least: 16 KiB.
    ///
    /// A choice of columns costs a request for each run of neighbours in each row group; with a gap of the size of the
    /// columns between, it costs one, and the bytes of these columns. Within a region requests are billed and bytes are
    /// not: a request costs what a connection could bring in its latency (2 MB at 30 ms and 70 MB/s). Across regions,
    /// or where the link is full, bytes are what costs.
    #[must_use]
    pub fn with_gap(mut self, bytes: u64) -> Self {
        self.gap = bytes;
        self
    }

    /// Sets an option of the store by the name that its environment variable has, in any case: `aws_endpoint_url`.
    /// A name that the store does not know is ignored, as an environment variable would be.
    #[must_use]
    pub fn with_config(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.push((name.into(), value.into()));
        self
    }
}

/// What an object that is written in parts takes in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadOptions {
    /// Bytes of a part; S3 wants 5 MiB or more, and at most 10,000 parts.
    pub part_bytes: usize,
    /// Parts in memory at once, the one that is being filled among them; 2 at least.
    pub parts: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { concurrency: 64, deadline: Duration::from_secs(120), retries: 10, gap: 0, config: Vec::new() }
    }
}

/// Values may be secrets, so only names are written.
impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("concurrency", &self.concurrency)
            .field("deadline", &self.deadline)
            .field("retries", &self.retries)
            .field("gap", &self.gap)
            .field("config", &self.config.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .finish()
    }
}
