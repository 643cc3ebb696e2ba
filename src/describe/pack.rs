//! How rows are packed by their lengths.

use serde::Deserialize;

use super::invalid;
use rowdex_base::error::Result;
use rowdex_order::sampler::PackSpec;
use rowdex_order::{Algorithm, Cost, Pack};

/// How rows are packed by their lengths, as [`PackSpec`] has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PackDescription {
    lengths: String,
    capacity: Option<u64>,
    overflow: Option<String>,
    algorithm: Option<String>,
    extra: Option<u64>,
    multiple: Option<u64>,
    max_pieces: Option<u32>,
    /// How much the tokens of a pack count, and the squares of the lengths of its pieces.
    cost: Option<[u64; 2]>,
    block: Option<u64>,
    empty: Option<String>,
}

impl PackDescription {
    pub(crate) fn spec(&self) -> Result<PackSpec> {
        let algorithm = self.algorithm.as_deref().map_or(Ok(Algorithm::default()), str::parse)?;
        let capacity = match self.capacity {
            Some(capacity) => capacity,
            None if algorithm == Algorithm::Buckets => Pack::MAX_CAPACITY,
            None => return Err(invalid("pack: `capacity` is missing: how many tokens a pack has")),
        };
        let usual = PackSpec::default_of(algorithm, capacity);
        let pack = Pack {
            overflow: self.overflow.as_deref().map_or(Ok(usual.overflow), str::parse)?,
            extra: self.extra.unwrap_or(usual.extra),
            multiple: self.multiple.unwrap_or(usual.multiple),
            max_pieces: self.max_pieces,
            block: self.block.unwrap_or(usual.block),
            empty: self.empty.as_deref().map_or(Ok(usual.empty), str::parse)?,
            ..usual
        };
        pack.check().map_err(|error| error.with_column(&self.lengths))?;
        let cost = self.cost.map(|[linear, quadratic]| Cost { linear, quadratic });
        Ok(PackSpec { cost, ..PackSpec::new(&self.lengths, pack) })
    }
}
