//! Orders that draw rows by weight or class, and orders made of others.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, given, place};
use super::id_set::rowdex_id_set;
use super::index::rowdex_index;
use super::orders::rowdex_orders;
use crate::order::{Balanced, Contiguous, Mixed, MixedPart, OrderSpec, Orders, Resized, Rotated, Subset, Weighted};
use crate::{Index, Result};

fn give(
    out: Option<&mut MaybeUninit<*mut rowdex_orders>>,
    make: impl FnOnce() -> Result<Arc<dyn Orders>>,
) -> Result<()> {
    let out = place(out, "orders")?;
    out.write(handle::handle(rowdex_orders::new(make()?)));
    Ok(())
}

/// Epochs of `len` positions, each of which draws one of `num_weights` rows by its weight. Weights are finite and not negative. 16 bytes a row
/// for all epochs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_orders_weighted_with_replacement(
    weights: *const f64,
    num_weights: usize,
    len: u64,
    seed: u64,
    orders: Option<&mut MaybeUninit<*mut rowdex_orders>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let weights = unsafe { handle::slice(weights, num_weights, "weights") }?;
        give(orders, || Ok(Arc::new(Weighted::with_replacement(weights, len, seed)?)))
    })
}

/// Epochs of `len` different rows, drawn one after the other by weight among those that are left. At most as many as have a weight above 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_orders_weighted_without_replacement(
    weights: *const f64,
    num_weights: usize,
    len: u64,
    seed: u64,
    orders: Option<&mut MaybeUninit<*mut rowdex_orders>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let weights = unsafe { handle::slice(weights, num_weights, "weights") }?;
        give(orders, || Ok(Arc::new(Weighted::without_replacement(weights, len, seed)?)))
    })
}

/// Epochs of `len` positions in which class `c` comes in proportion to `proportions[c]`, or with no proportions (NULL, 0) all classes
/// equally often. `labels` has the class of every row; 8 bytes a row for all epochs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_orders_balanced(
    labels: *const u32,
    num_labels: usize,
    proportions: *const f64,
    num_proportions: usize,
    len: u64,
    seed: u64,
    orders: Option<&mut MaybeUninit<*mut rowdex_orders>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let labels = unsafe { handle::slice(labels, num_labels, "labels") }?;
        // SAFETY: as above.
        let proportions = unsafe { handle::slice(proportions, num_proportions, "proportions") }?;
        give(orders, || match proportions {
            [] => Ok(Arc::new(Balanced::new(labels, len, seed)?)),
            proportions => Ok(Arc::new(Balanced::with_proportions(labels, proportions, len, seed)?)),
        })
    })
}

/// One of the datasets of a mixture.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_mixed_part {
    /// The order of its rows.
    pub orders: *const rowdex_orders,
    /// How many rows it has.
    pub rows: u64,
    /// How often it comes, which counts against the proportions of the others.
    pub proportion: f64,
}

/// Epochs of `len` positions over several datasets by proportion, with the row ids of rowdex_dataset_mixed. The seed decides where each
/// comes, not which of its rows. The parts may be freed afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_orders_mixed(
    parts: *const rowdex_mixed_part,
    num_parts: usize,
    len: u64,
    seed: u64,
    orders: Option<&mut MaybeUninit<*mut rowdex_orders>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let parts = unsafe { handle::slice(parts, num_parts, "parts") }?;
        let parts = parts.iter().map(|part| {
            // SAFETY: as above.
            let orders = unsafe { handle::borrow(part.orders.cast_mut(), "parts[…].orders") }?.orders();
            Ok(MixedPart::new(orders, part.rows, part.proportion))
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        give(orders, || Ok(Arc::new(Mixed::new(parts, len, seed)?)))
    })
}

/// Other orders in epochs of `size` positions: a pass over the rows goes on where the epoch before ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_orders_resized(
    inner: Option<&rowdex_orders>,
    size: u64,
    orders: Option<&mut MaybeUninit<*mut rowdex_orders>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let inner = given(inner, "inner")?.orders();
        give(orders, || Ok(Arc::new(Resized::new(inner, size)?)))
    })
}

/// Other orders over the rows of a set: where `inner` has place `i`, the row at place `i` of the set is served. So `inner` is made for as many rows
/// as the set has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_orders_subset(
    inner: Option<&rowdex_orders>,
    kept: Option<&rowdex_id_set>,
    orders: Option<&mut MaybeUninit<*mut rowdex_orders>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let inner = given(inner, "inner")?.orders();
        let kept = Arc::clone(&given(kept, "kept")?.0);
        give(orders, || Ok(Arc::new(Subset::new(inner, kept)?)))
    })
}

/// The orders called `spec` over those rows of an index that a set keeps: rowdex_orders_subset of orders over what is left of each row group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_orders_for_subset(
    spec: *const c_char,
    index: Option<&rowdex_index>,
    kept: Option<&rowdex_id_set>,
    seed: u64,
    orders: Option<&mut MaybeUninit<*mut rowdex_orders>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let spec: OrderSpec = unsafe { handle::text(spec, "spec") }?.parse()?;
        let index: &Index = &given(index, "index")?.0;
        let kept = Arc::clone(&given(kept, "kept")?.0);
        let (rows, len) = (kept.rows(), index.len());
        if rows != len {
            let message = format!("a set out of {rows} rows for an index of {len}");
            return Err(handle::invalid(message).with_hint("make the set for as many rows as the index has"));
        }
        let left = index.row_groups().map(|group| group.row_ids()).map(|ids| kept.rank(ids.end) - kept.rank(ids.start));
        let left: Vec<u64> = left.collect();
        give(orders, || Ok(Arc::new(Subset::new(spec.orders(&left, seed)?, kept)?)))
    })
}

/// Other orders in pieces for so many shards: each is dealt one consecutive piece, instead of every so many-th position. The sampler option
/// partition does this for the shards that the sampler has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_orders_contiguous(
    inner: Option<&rowdex_orders>,
    shards: u32,
    orders: Option<&mut MaybeUninit<*mut rowdex_orders>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let inner = given(inner, "inner")?.orders();
        give(orders, || Ok(Arc::new(Contiguous::new(inner, shards)?)))
    })
}

/// Other orders, beginning elsewhere each epoch. The sampler option rotation does this where it is needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_orders_rotated(
    inner: Option<&rowdex_orders>,
    orders: Option<&mut MaybeUninit<*mut rowdex_orders>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let inner = given(inner, "inner")?.orders();
        give(orders, || Ok(Arc::new(Rotated::new(inner))))
    })
}
