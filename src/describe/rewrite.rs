//! How rows are written anew.

use std::sync::Arc;

use serde::Deserialize;

use super::{GivenPath, OptionalSetting, invalid};
use crate::dataset::Dataset;
use crate::rewrite::{Codec, Rewrite, RewriteTask};
use rowdex_base::error::Result;
use rowdex_order::Order;

/// How rows are written anew, as [`Rewrite`] does it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RewriteDescription {
    output: GivenPath,
    memory: Option<u64>,
    threads: Option<usize>,
    files: Option<u64>,
    file_bytes: Option<u64>,
    row_group_rows: Option<u64>,
    page_bytes: Option<u64>,
    compression: Option<String>,
    origin: Option<String>,
    spill: Option<GivenPath>,
    resume: Option<bool>,
    overwrite: Option<bool>,
    step: Option<StepDescription>,
    /// The number of the task of the step, and how many share it.
    task: Option<[u64; 2]>,
}

/// One step of the work, where several machines share it.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StepDescription {
    Spill,
    Write,
    Index,
}

impl RewriteDescription {
    /// The step that is asked for; `None` for the whole work.
    pub(crate) fn task(&self) -> Result<Option<RewriteTask>> {
        let Some(step) = self.step else {
            return match self.task {
                None => Ok(None),
                Some(_) => Err(invalid("rewrite: `task` says nothing of the whole work").with_hint("name a `step`")),
            };
        };
        if self.resume == Some(true) || self.overwrite == Some(true) {
            return Err(invalid("rewrite: `resume` and `overwrite` say nothing of one step")
                .with_hint("leave them out: a step resumes by itself"));
        }
        let [task, tasks] = self.task.unwrap_or([0, 1]);
        Ok(Some(match step {
            StepDescription::Spill => RewriteTask::Spill { task, tasks },
            StepDescription::Write => RewriteTask::Write { task, tasks },
            StepDescription::Index if self.task.is_none() => RewriteTask::Index,
            StepDescription::Index => return Err(invalid("rewrite: the step `index` has no tasks")),
        }))
    }

    pub(crate) fn rewrite(&self, dataset: &Dataset, order: Arc<dyn Order>) -> Result<Rewrite> {
        if self.resume == Some(true) && self.overwrite == Some(true) {
            return Err(invalid("rewrite: `resume` keeps what `overwrite` replaces: choose one of them"));
        }
        if self.files.is_some() && self.file_bytes.is_some() {
            return Err(invalid("rewrite: either `files` or `file_bytes`, and not both"));
        }
        Ok(Rewrite::new(dataset, order, &self.output)
            .with_resume(self.resume == Some(true))
            .with_overwrite(self.overwrite == Some(true))
            .given(self.memory, Rewrite::with_memory)
            .given(self.threads, Rewrite::with_threads)
            .given(self.files, Rewrite::with_files)
            .given(self.file_bytes, Rewrite::with_file_bytes)
            .given(self.row_group_rows, Rewrite::with_row_group_rows)
            .given(self.page_bytes, Rewrite::with_page_bytes)
            .given(self.compression.as_deref().map(str::parse::<Codec>).transpose()?, Rewrite::with_compression)
            .given(self.origin.as_ref(), Rewrite::with_origin)
            .given(self.spill.as_ref(), Rewrite::with_spill))
    }
}
