//! Batches of packs: what they are made by, and which pieces they have.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::str::FromStr;
use std::time::Instant;

use super::handle::{self, Versioned};
use ::rowdex_order::sampler::{BatchPlan, DistributedSampler, PackForecast, PackSpec};
use ::rowdex_order::{Algorithm, Cost, Pack, PackCounts};
use rowdex_base::error::{Error, Result};

/// How rows are packed by their lengths. What is 0 or NULL has its default; lengths and capacity have none, but for the
/// capacity of "buckets".
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_pack_options {
    /// sizeof(rowdex_pack_options)
    pub struct_size: usize,
    /// The name of the lengths, which rowdex_index_note_lengths or a build noted in the index that the orders are of.
    pub lengths: *const c_char,
    /// Tokens of a pack. Of "buckets" the most of a row; 0 there is no limit.
    pub capacity: u64,
    /// Rows that are longer than a pack can hold: "split" (NULL) into pieces, "truncate", "drop" or "error". Batches
    /// within a budget, and "buckets", are of whole rows: there NULL is "error", and "split" is refused.
    pub overflow: *const c_char,
    /// How pieces are put into packs: "bfd" (NULL), best-fit decreasing; "concat", row after row; or, for batches of
    /// whole rows of like lengths with at most `capacity` tokens, "budget", or "padded", which counts the padding to
    /// the longest row. "buckets" are batches of as many rows with like lengths: each row is a pack, and every row
    /// comes.
    pub algorithm: *const c_char,
    /// Tokens that each piece takes beside its own.
    pub extra: u64,
    /// What a piece takes is rounded up to a multiple of this. 0: 1.
    pub multiple: u64,
    /// The most pieces of a pack. 0: any number.
    pub max_pieces: u32,
    /// 1 deals the packs of a step by what they cost: `cost_linear` times the tokens, and `cost_quadratic` times the
    /// sum of the squares of the lengths of the pieces.
    pub has_cost: u32,
    pub cost_linear: u64,
    pub cost_quadratic: u64,
    /// How many positions of the order are packed together. 0: 131072. Of "buckets", sorted together: 16384.
    pub block: u64,
    /// Rows without tokens: "skip" (NULL) or "keep" as pieces without tokens. "buckets" keep them.
    pub empty: *const c_char,
}

// SAFETY: repr(C), begins with its size, has only fields for which 0 is valid, and the u32 come in pairs, so there is
// no padding.
unsafe impl Versioned for rowdex_pack_options {}

/// Where the pieces of a step are written: for each row id one, pack after pack.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_pieces {
    /// sizeof(rowdex_pieces)
    pub struct_size: usize,
    /// The token of its row that each piece begins with: room for as many as row ids.
    pub offsets: *mut u64,
    /// How many tokens each piece has: room for as many.
    pub lengths: *mut u64,
    /// How many pieces there are up to the end of each pack.
    pub packs: *mut u64,
    /// For how many packs there is room: the batch size is always enough.
    pub packs_capacity: usize,
    /// How many packs there are.
    pub num_packs: *mut usize,
}

// SAFETY: repr(C), begins with its size, has only fields of 8 bytes for which 0 is valid.
unsafe impl Versioned for rowdex_pieces {}

/// What an epoch of packs comes to on all ranks together; all 0 where rows are served.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct rowdex_pack_forecast {
    /// Steps of every rank.
    pub steps: u64,
    /// Packs that all ranks are served, those that come twice and opened ones included.
    pub packs: u64,
    /// Packs that opening others made, so that steps are equal.
    pub opened: u64,
    /// Pieces of rows, each counted once.
    pub pieces: u64,
    /// How many a pack has, on average.
    pub pieces_a_pack: f64,
    /// The part of all places that has tokens.
    pub fill: f64,
    /// Tokens that all ranks are served, those that come twice counted twice.
    pub tokens: u64,
    /// Tokens that are lost because their rows are longer than a pack, and cut or left out.
    pub tokens_truncated: u64,
    pub tokens_dropped: u64,
    /// Tokens that the tail leaves out, and serves twice.
    pub tokens_left_out: u64,
    pub tokens_repeated: u64,
    /// Rows that are several pieces, are cut, are left out, and have no tokens.
    pub rows_split: u64,
    pub rows_truncated: u64,
    pub rows_dropped: u64,
    pub rows_empty: u64,
    /// What the rank with the most work has at a step, by the cost of the sampler, as a multiple of the mean: on
    /// average over the steps that were looked at.
    pub cost_imbalance: f64,
    pub steps_looked_at: u64,
    /// How long planning the epoch took: hardly any time where its plan was kept.
    pub seconds_to_plan: f64,
}

impl rowdex_pack_forecast {
    /// That of the current epoch of a sampler.
    pub(super) fn of(sampler: &DistributedSampler) -> Result<Self> {
        if sampler.packed().is_none() {
            return Ok(Self::default());
        }
        let started = Instant::now();
        let epoch = sampler.epoch();
        sampler.plan(epoch)?;
        let seconds_to_plan = started.elapsed().as_secs_f64();
        let told = sampler.forecast(epoch, PackForecast::STEPS)?;
        let PackCounts {
            pieces,
            rows_split,
            rows_dropped,
            tokens_dropped,
            rows_truncated,
            tokens_truncated,
            rows_empty,
            ..
        } = told.counts;
        Ok(Self {
            steps: told.steps,
            packs: told.packs,
            opened: told.opened,
            pieces,
            pieces_a_pack: told.pieces_a_pack(),
            fill: told.fill,
            tokens: told.tokens(),
            tokens_truncated,
            tokens_dropped,
            tokens_left_out: told.tokens_left_out,
            tokens_repeated: told.tokens_repeated,
            rows_split,
            rows_truncated,
            rows_dropped,
            rows_empty,
            cost_imbalance: told.imbalance,
            steps_looked_at: told.steps_looked_at,
            seconds_to_plan,
        })
    }
}

/// The packing that is described; `None` for NULL.
///
/// # Safety
/// What is pointed to is valid, as the header says.
pub(super) unsafe fn pack_spec(options: *const rowdex_pack_options, name: &str) -> Result<Option<PackSpec>> {
    if options.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let options = unsafe { handle::options(options, name) }?;
    // SAFETY: as above.
    let lengths = unsafe { handle::text(options.lengths, "options.pack.lengths") }?;
    // SAFETY: as above.
    let algorithm = unsafe { parsed(options.algorithm, "options.pack.algorithm") }?;
    let algorithm = algorithm.unwrap_or(Algorithm::default());
    let any = algorithm == Algorithm::Buckets && options.capacity == 0;
    let usual = PackSpec::default_of(algorithm, if any { Pack::MAX_CAPACITY } else { options.capacity });
    let pack = Pack {
        // SAFETY: as above.
        overflow: unsafe { parsed(options.overflow, "options.pack.overflow") }?.unwrap_or(usual.overflow),
        extra: options.extra,
        multiple: if options.multiple == 0 { usual.multiple } else { options.multiple },
        max_pieces: (options.max_pieces > 0).then_some(options.max_pieces),
        block: if options.block == 0 { usual.block } else { options.block },
        // SAFETY: as above.
        empty: unsafe { parsed(options.empty, "options.pack.empty") }?.unwrap_or(usual.empty),
        ..usual
    };
    pack.check().map_err(|error| error.with_column(lengths))?;
    let costs = options.has_cost != 0;
    let fields = [
        ("options.pack.cost_linear", options.cost_linear != 0, costs),
        ("options.pack.cost_quadratic", options.cost_quadratic != 0, costs),
    ];
    handle::refuse_unused(fields, "packs without `has_cost`")?;
    let cost = Cost { linear: options.cost_linear, quadratic: options.cost_quadratic };
    let cost = costs.then_some(cost);
    Ok(Some(PackSpec { cost, ..PackSpec::new(lengths, pack) }))
}

/// # Safety
/// As [`pack_spec`].
unsafe fn parsed<T: FromStr<Err = Error>>(text: *const c_char, name: &str) -> Result<Option<T>> {
    // SAFETY: the caller's promise.
    unsafe { handle::optional_text(text, name) }?.map(str::parse).transpose()
}

impl rowdex_pieces {
    /// Writes the pieces of a batch, unless that is not asked for.
    ///
    /// # Safety
    /// What is pointed to is valid, as the header says, with room for `capacity` pieces.
    pub(super) unsafe fn write(pieces: *const Self, batch: &BatchPlan, capacity: usize, kind: &str) -> Result<()> {
        if pieces.is_null() {
            return Ok(());
        }
        if kind == "rows" {
            let message = format!("the pieces of a batch of {kind}");
            return Err(handle::invalid(message).with_hint("only a sampler with `pack` has pieces"));
        }
        // SAFETY: the caller's promise.
        let to = unsafe { handle::options(pieces, "pieces") }?;
        // SAFETY: as above.
        let offsets = unsafe { handle::buffer(to.offsets, capacity, "pieces.offsets") }?;
        // SAFETY: as above.
        let lengths = unsafe { handle::buffer(to.lengths, capacity, "pieces.lengths") }?;
        // SAFETY: as above.
        let packs = unsafe { handle::buffer(to.packs, to.packs_capacity, "pieces.packs") }?;
        // SAFETY: as above.
        let num_packs = unsafe { handle::buffer(to.num_packs, 1, "pieces.num_packs") }?;
        if packs.len() < batch.packs.len() {
            let message = format!("room for {} packs, and the batch has {}", packs.len(), batch.packs.len());
            return Err(handle::invalid(message).with_hint("make room for as many as the batch size"));
        }
        put(offsets, batch.pieces.iter().map(|piece| piece.offset));
        put(lengths, batch.pieces.iter().map(|piece| piece.length));
        put(packs, batch.packs.iter().map(|end| *end as u64));
        put(num_packs, [batch.packs.len()]);
        Ok(())
    }
}

fn put<T>(to: &mut [MaybeUninit<T>], values: impl IntoIterator<Item = T>) {
    for (to, value) in to.iter_mut().zip(values) {
        to.write(value);
    }
}
