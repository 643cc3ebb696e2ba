//! What a loader is made with.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::recovery::Fault;
use super::share;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Options {
    pub(super) memory: u64,
    pub(super) threads: usize,
    /// Whether these were chosen.
    pub(super) memory_is_given: bool,
    pub(super) threads_are_given: bool,
    pub(super) read_ahead: Option<usize>,
    pub(super) read_concurrency: Option<usize>,
    pub(super) epochs: Option<u64>,
    pub(super) max_wait: Option<Duration>,
    pub(super) fault: Fault,
    /// The column with the tokens, if it was named.
    pub(super) tokens: Option<String>,
    /// Columns beside it that were named, with an item for each token.
    pub(super) with_columns: Vec<String>,
    #[serde(skip)]
    pub(super) group: Option<Arc<share::Group>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory: 1 << 30,
            threads: 2,
            memory_is_given: false,
            threads_are_given: false,
            read_ahead: None,
            read_concurrency: None,
            epochs: None,
            max_wait: None,
            fault: Fault::Fail,
            tokens: None,
            with_columns: Vec::new(),
            group: None,
        }
    }
}
