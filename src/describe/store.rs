//! How object stores are talked to.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::{OptionalSetting, invalid};
use rowdex_base::error::Result;
use rowdex_io::source::StoreOptions;

/// How an object store is talked to. What is left out has its default.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreDescription {
    concurrency: Option<usize>,
    /// In seconds.
    deadline: Option<f64>,
    retries: Option<usize>,
    #[serde(default)]
    config: BTreeMap<String, String>,
}

impl StoreDescription {
    pub(crate) fn options(&self) -> Result<StoreOptions> {
        if self.concurrency == Some(0) {
            return Err(invalid("store: `concurrency` is 0: use 1 or more"));
        }
        if let Some(seconds) = self.deadline.filter(|seconds| !(*seconds > 0.0 && *seconds < 1e12)) {
            return Err(invalid(format!("store: a `deadline` of {seconds}: use a number of seconds above 0")));
        }
        let deadline = |seconds| Duration::from_secs_f64(seconds).max(Duration::from_millis(1));
        let options = StoreOptions::new()
            .given(self.concurrency, StoreOptions::with_concurrency)
            .given(self.deadline.map(deadline), StoreOptions::with_deadline)
            .given(self.retries, StoreOptions::with_retries);
        if self.config.iter().any(|(name, value)| name.contains('\0') || value.contains('\0')) {
            return Err(invalid("store: a name or a value of `config` has a NUL"));
        }
        Ok(self.config.iter().fold(options, |options, (name, value)| options.with_config(name, value)))
    }
}
