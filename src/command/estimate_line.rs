//! What a loader does with a memory, as it is predicted.

use rowdex::loader::Prediction;
use serde_json::{Value, json};

/// What is predicted for one size of the memory.
pub(crate) struct Line {
    pub(crate) memory: u64,
    pub(crate) told: Prediction,
}

impl Line {
    pub(crate) fn to_json(&self) -> Value {
        let told = &self.told;
        json!({
            "memory": self.memory,
            "passes": told.passes,
            "decodes": told.decodes,
            "units": told.units,
            "bytes_read": told.bytes_read,
            "requests": told.requests,
            "peak_held_bytes": told.peak_bytes,
            "bookkeeping_bytes": told.bookkeeping_bytes,
            "least_memory": told.least_memory,
            "first_batch_decodes": told.first_batch_decodes,
            "first_epoch": {
                "passes": told.first_passes,
                "decodes": told.first_decodes,
                "bytes_read": told.first_bytes_read,
                "requests": told.first_requests,
            },
        })
    }
}
