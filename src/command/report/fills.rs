//! How full sequences of common lengths would be, by the lengths that an index has.

use std::sync::Arc;

use rowdex::index::LengthsOf;
use rowdex::order::{OrderSpec, Overflow, Pack, Recipe};
use rowdex::sampler::{PackSpec, SamplerOptions, Tail};
use rowdex::{Dataset, Shard};
use serde_json::{Value, json};

use super::costs::walks;
use crate::command::failure::Failure;

/// Capacities of packs that models are trained with.
const CAPACITIES: [u64; 3] = [2048, 8192, 32_768];

/// Packs of one capacity.
pub(super) struct Fill {
    pub(super) capacity: u64,
    pub(super) packs: u64,
    /// The part of all places that has tokens.
    pub(super) fill: f64,
    /// Rows that are longer than a pack: split, or left out where no column has their tokens.
    pub(super) rows_split: u64,
    pub(super) rows_dropped: u64,
}

impl Fill {
    /// Of the lengths with this name, for one rank; none where it would take long.
    pub(super) fn of(dataset: &Dataset, lengths: &str, order: OrderSpec) -> Result<Vec<Self>, Failure> {
        if !walks(dataset) {
            return Ok(Vec::new());
        }
        let index = dataset.index();
        let noted = index.lengths(lengths)?;
        let overflow = if matches!(noted.of(), LengthsOf::Items) { Overflow::Split } else { Overflow::Drop };
        let noted = Arc::new(noted);
        let options = SamplerOptions::of(Shard::new(0, 1)?.with_tail(Tail::Even), 1);
        let orders = Recipe::new(order).orders(&index.layout())?;
        let one = |capacity| {
            let spec = PackSpec::new(lengths, Pack { overflow, ..Pack::of(capacity) });
            let noted = Arc::clone(&noted);
            let sampler = options.sampler_of_packs(Arc::clone(&orders), noted, &spec)?;
            let told = sampler.forecast(0, 1)?;
            let (rows_split, rows_dropped) = (told.counts.rows_split, told.counts.rows_dropped);
            Ok(Self { capacity, packs: told.packs, fill: told.fill, rows_split, rows_dropped })
        };
        CAPACITIES.into_iter().map(one).collect()
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "capacity": self.capacity,
            "packs": self.packs,
            "fill": self.fill,
            "rows_split": self.rows_split,
            "rows_dropped": self.rows_dropped,
        })
    }
}
