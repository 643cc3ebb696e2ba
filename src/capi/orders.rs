//! Order, made from one description of what is wanted.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, out_param};
use super::kind;
use super::operands::{GivenOperands, rowdex_operands, rowdex_order};
use crate::describe::{Operands, OrderDescription};
use ::rowdex_order::augment_key;

/// Orders as they are described, over the rows of the index in `operands`, or of several indexes one after the other,
/// as in rowdex_dataset_mixed. Without an index the description says how many rows there are.
///
/// The description is JSON, {"order": "blocks(8)", "seed": 42}, and what is left out has its default. The order is by
/// one of these: order: a name, "global" (the default), "sequential", "torch" or "blocks(8)". row_ids: an array of row
/// ids, in this order in every epoch; rows may repeat and be left out. file: a file of row ids: little-endian 64-bit
/// integers and nothing else. It is mapped, so that all processes of a machine share it, and read once to check it; it
/// must not be changed while the orders are used. weights: an array of weights, for each row or for each row that is
/// kept, finite and not negative, by which rows are drawn; 16 bytes a row for all epochs. scored: the number of an
/// array of scores, doubles as weights are, by which rows are sorted, the lowest first; the number of sweeps, each of
/// which has every so many-th row; and how many neighbours are shuffled. labels: an array of the classes of the rows,
/// or of the rows that are kept, which come equally often or by proportions; 8 bytes a row for all epochs. parts:
/// several datasets by proportions: a description for each, without rows; dataset `i`, from 0 on, has the seed of the
/// mixture plus `i + 1` plus its own. With stages, their weights change in the course of the run, and their seeds come
/// from their names: {"sources": names of the datasets, "stages": [[position, {name: weight}], ...], "ramp": "step" or
/// "linear", "repetitions": {name: how often all rows may be served}, "on_exhausted": "repeat", "renormalise" or
/// "stop"}; the last three may be left out. inner: another description, without rows, whose seed is added; under kept
/// it takes the rows that are kept for one row group.
///
/// The steps that are asked for are taken in this sequence; another sequence takes one description around another.
/// kept: a set; only its rows are served. size: how many positions an epoch has. Weights, classes and mixtures draw
/// this number (by default the number of rows; without replacement, that of the rows with a weight above 0); of other
/// orders, a pass over the rows continues where the epoch before ended. paired: true serves every epoch once more,
/// backwards: epoch 2e + 1 is epoch 2e from its end on. shards: assigns one consecutive piece to each of so many
/// shards. rotated: true begins elsewhere each epoch.
///
/// In addition to these: rows, or row_groups (how many rows each has), where there is no index. seed: the same on all
/// ranks. proportions: how often each class or dataset comes, in relation to the others. permutation: true refuses a
/// list or file that does not have every row exactly once. replacement: false draws no row twice in an epoch. What the
/// order cannot honour is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_order_new(
    description: *const c_char,
    operands: Option<&rowdex_operands>,
    orders: Option<&mut MaybeUninit<*mut rowdex_order>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let given = unsafe { GivenOperands::of(operands) }?;
        let out = out_param(orders, "orders")?;
        // SAFETY: as above.
        let described: OrderDescription = unsafe { handle::described(description, "order") }?;
        let indexes = given.indexes().to_vec();
        let augment_key = augment_key(described.seed);
        out.write(kind::handle(rowdex_order { orders: described.orders(&given)?, indexes, augment_key }));
        Ok(())
    })
}
