//! How ranks share a reader.

use std::path::PathBuf;

use serde::Deserialize;

use super::{GivenPath, OptionalSetting};
use crate::loader::Share;

/// How the loaders of a machine share a reader, as [`Share`] has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShareDescription {
    name: Option<String>,
    job: Option<String>,
    ranks: Option<u32>,
    drift: Option<usize>,
    #[serde(default)]
    program: Vec<GivenPath>,
}

impl ShareDescription {
    pub(crate) fn share(self) -> Share {
        Share::machine()
            .program(self.program.iter().map(PathBuf::from))
            .given(self.name, Share::name)
            .given(self.job, Share::job)
            .given(self.ranks, Share::ranks)
            .given(self.drift, Share::drift)
    }
}
