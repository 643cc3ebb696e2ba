//! Order, made from one description of what is wanted.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned, out_param};
use super::id_set::rowdex_id_set;
use super::index::rowdex_index;
use ::rowdex_index::{Index, OrderFile};
use ::rowdex_order::{JoinedLengths, Lengths, Order, OrderSpec, Partition, Recipe, RowLayout};
use rowdex_base::error::Result;

/// Which row comes at which position, in every epoch. Concurrent use is fine, and so is freeing it while a sampler uses
/// it.
#[derive(Debug)]
pub struct rowdex_order {
    orders: Arc<dyn Order>,
    /// Whose rows they are, where that was told: packs go by the lengths that are noted there.
    indexes: Vec<Index>,
}

impl rowdex_order {
    pub(super) fn orders(&self) -> Arc<dyn Order> {
        Arc::clone(&self.orders)
    }

    /// The lengths of all rows by this name.
    pub(super) fn lengths(&self, name: &str) -> Result<Arc<dyn Lengths>> {
        if self.indexes.is_empty() {
            return Err(handle::invalid(
                "packs of orders that have no index, which would have the lengths of their rows",
            )
            .with_column(name)
            .with_hint("set `index` or `indexes` where the orders are made"));
        }
        let lengths = |index: &Index| Ok(Arc::new(index.lengths(name)?) as Arc<dyn Lengths>);
        Ok(JoinedLengths::of(self.indexes.iter().map(lengths).collect::<Result<_>>()?))
    }
}

/// Which rows come in which order, in epochs of which size. What is 0 or NULL has its default.
///
/// The steps are taken in this sequence, whichever are wanted: the order, of all rows or of those kept; epochs of
/// `size`; pieces for `shards`; `rotated`. Another sequence takes one struct around another (`inner`). What the order
/// cannot honour is refused.
///
/// The struct and all that it points to may go once the orders are made.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_order_options {
    /// sizeof(rowdex_order_options)
    pub struct_size: usize,
    /// The rows are those of this index.
    pub index: *const rowdex_index,
    /// Or those of several indexes one after the other, as in rowdex_dataset_mixed.
    pub indexes: *const *const rowdex_index,
    pub num_indexes: usize,
    /// Or there is no index, and row groups have so many rows each; for a bare number of rows that is one.
    pub group_rows: *const u64,
    pub num_groups: usize,
    /// The order by name: "global" (NULL), "sequential", "torch" or "blocks(8)". Or one of the following, and no name.
    pub order: *const c_char,
    /// These row ids in this order, in every epoch. Rows may repeat and be left out. The list is copied.
    pub row_ids: *const u64,
    pub num_row_ids: usize,
    /// The row ids in this file: little-endian 64-bit integers and nothing else. The file is mapped, so that all
    /// processes of a machine share it, and read once to check it. It must not be changed while the orders are used;
    /// replace it by renaming another to its place.
    pub order_file: *const c_char,
    /// Rows drawn by weight: a finite number that is not negative for each row, or for each row that is kept. 16 bytes
    /// a row for all epochs.
    pub weights: *const f64,
    pub num_weights: usize,
    /// Classes equally often or by proportion: the class of each row, or of each row that is kept. 8 bytes a row for
    /// all epochs.
    pub labels: *const u32,
    pub num_labels: usize,
    /// Several datasets by proportion: an order for each, without rows. Dataset `i`, from 0 on, has the seed of the
    /// mixture plus `i + 1` plus its own.
    pub parts: *const *const rowdex_order_options,
    pub num_parts: usize,
    /// Another order, without rows. The seeds are added. Under `kept` it takes the rows that are kept for one row
    /// group.
    pub inner: *const rowdex_order_options,
    /// How often each class or dataset comes, which counts against the others. Classes without proportions come equally
    /// often.
    pub proportions: *const f64,
    pub num_proportions: usize,
    /// Only these rows are served.
    pub kept: *const rowdex_id_set,
    /// How many positions an epoch has. Weights, classes and mixtures draw so many (by default as many as there are
    /// rows; without replacement, as have a weight above 0). Of other orders, a pass over the rows goes on where the
    /// epoch before ended.
    pub size: u64,
    /// The same on all ranks.
    pub seed: u64,
    /// Deals each of so many shards one consecutive piece. The sampler option partition does this for the shards that
    /// the sampler has.
    pub shards: u32,
    /// 1 begins elsewhere each epoch. The sampler option rotation does this where it is needed.
    pub rotated: u32,
    /// 1 refuses a list or file that does not have every row exactly once.
    pub permutation: u32,
    /// 1 draws no row twice in an epoch.
    pub without_replacement: u32,
}

// SAFETY: repr(C), begins with its size, has only fields for which 0 is valid, and the u32 come in pairs, so there is
// no padding.
unsafe impl Versioned for rowdex_order_options {}

/// Orders as they are described.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_order_new(
    options: *const rowdex_order_options,
    orders: Option<&mut MaybeUninit<*mut rowdex_order>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let out = out_param(orders, "orders")?;
        if options.is_null() {
            return Err(handle::null("options"));
        }
        // SAFETY: the conventions of the header.
        let options = unsafe { handle::options(options, "options") }?;
        // SAFETY: as above.
        let (rows, indexes) = unsafe { layout(&options) }?;
        let rows = rows.ok_or_else(|| {
            handle::invalid("there are no rows to order").with_hint("set `index`, `indexes` or `group_rows`")
        })?;
        // SAFETY: as above.
        let recipe = unsafe { recipe(&options, 0) }?;
        out.write(handle::handle(rowdex_order { orders: recipe.orders(&rows)?, indexes }));
        Ok(())
    })
}

/// The rows that are described, `None` if none are; and whose they are.
///
/// # Safety
/// What the struct points to is valid, as the header says.
unsafe fn layout(options: &rowdex_order_options) -> Result<(Option<RowLayout>, Vec<Index>)> {
    // SAFETY: the caller's promise.
    let index = unsafe { options.index.as_ref() };
    // SAFETY: as above.
    let indexes = unsafe { handle::slice(options.indexes, options.num_indexes, "indexes") }?;
    // SAFETY: as above.
    let groups = unsafe { handle::slice(options.group_rows, options.num_groups, "group_rows") }?;
    let given = [index.is_some(), !indexes.is_empty(), !options.group_rows.is_null()];
    if given.iter().filter(|given| **given).count() > 1 {
        return Err(handle::invalid("`index`, `indexes` and `group_rows` exclude each other"));
    }
    if let Some(index) = index {
        return Ok((Some(index.0.layout()), vec![index.0.clone()]));
    }
    if indexes.is_empty() {
        let layout = (!options.group_rows.is_null()).then(|| RowLayout::of_groups(groups.iter().copied()));
        return Ok((layout, Vec::new()));
    }
    let indexes = indexes.iter().map(|index| {
        // SAFETY: as above.
        Ok(unsafe { handle::borrow(index.cast_mut(), "indexes[…]") }?.0.clone())
    });
    let indexes = indexes.collect::<Result<Vec<_>>>()?;
    Ok((Some(RowLayout::of_datasets(indexes.iter().map(Index::layout))), indexes))
}

/// More structs inside each other than this are a circle.
const DEEPEST: usize = 32;

/// What a struct describes, apart from its rows.
///
/// # Safety
/// What the struct points to is valid, as the header says, for as long as the recipe is used.
unsafe fn recipe<'a>(options: &rowdex_order_options, depth: usize) -> Result<Recipe<'a>> {
    // SAFETY: the caller's promise.
    let recipe = unsafe { base(options, depth) }?;
    let recipe = recipe
        .with_permutation(options.permutation != 0)
        .with_replacement(options.without_replacement == 0)
        .with_rotation(options.rotated != 0)
        .with_seed(options.seed);
    // SAFETY: as above.
    let proportions = unsafe { handle::slice(options.proportions, options.num_proportions, "proportions") }?;
    let recipe = if options.proportions.is_null() { recipe } else { recipe.with_proportions(proportions) };
    // SAFETY: as above.
    let recipe = match unsafe { options.kept.as_ref() } {
        Some(kept) => recipe.with_kept(Arc::clone(&kept.0)),
        None => recipe,
    };
    let recipe = if options.size > 0 { recipe.with_size(options.size) } else { recipe };
    Ok(if options.shards > 0 { recipe.with_partition(Partition::Contiguous, options.shards) } else { recipe })
}

/// The order that a struct names or lists.
///
/// # Safety
/// As [`recipe`].
unsafe fn base<'a>(options: &rowdex_order_options, depth: usize) -> Result<Recipe<'a>> {
    // SAFETY: the caller's promise.
    let name = unsafe { handle::optional_text(options.order, "order") }?;
    // SAFETY: as above.
    let row_ids = unsafe { handle::slice(options.row_ids, options.num_row_ids, "row_ids") }?;
    // SAFETY: as above.
    let file = unsafe { handle::optional_path(options.order_file) };
    // SAFETY: as above.
    let weights = unsafe { handle::slice(options.weights, options.num_weights, "weights") }?;
    // SAFETY: as above.
    let labels = unsafe { handle::slice(options.labels, options.num_labels, "labels") }?;
    // SAFETY: as above.
    let parts = unsafe { handle::slice(options.parts, options.num_parts, "parts") }?;
    let listed = !options.row_ids.is_null();
    let weighted = !options.weights.is_null();
    let balanced = !options.labels.is_null();
    let mixed = !options.parts.is_null();
    let nested = !options.inner.is_null();
    let given = [name.is_some(), listed, file.is_some(), weighted, balanced, mixed, nested];
    if given.iter().filter(|given| **given).count() > 1 {
        let message = "`order`, `row_ids`, `order_file`, `weights`, `labels`, `parts` and `inner` exclude each other";
        return Err(handle::invalid(message).with_hint("set one of them, or none for the order \"global\""));
    }
    if listed {
        return Ok(Recipe::explicit(row_ids));
    }
    if let Some(path) = file {
        return Ok(Recipe::explicit_le_bytes(OrderFile::open(path)?).with_file(path.display().to_string()));
    }
    if weighted {
        return Ok(Recipe::weighted(weights));
    }
    if balanced {
        return Ok(Recipe::balanced(labels));
    }
    if mixed {
        let parts = parts.iter().map(|part| {
            // SAFETY: as above.
            unsafe { within(*part, "parts[…]", depth) }
        });
        return Ok(Recipe::mixed(parts.collect::<Result<Vec<_>>>()?, &[][..]));
    }
    if nested {
        // SAFETY: as above.
        return Ok(Recipe::around(unsafe { within(options.inner, "inner", depth) }?));
    }
    Ok(Recipe::new(name.map_or(Ok(OrderSpec::default()), str::parse)?))
}

/// A struct inside another one.
///
/// # Safety
/// As [`recipe`].
unsafe fn within<'a>(options: *const rowdex_order_options, name: &str, depth: usize) -> Result<Recipe<'a>> {
    if options.is_null() {
        return Err(handle::null(name));
    }
    if depth == DEEPEST {
        return Err(handle::invalid(format!("more than {DEEPEST} orders inside each other")));
    }
    // SAFETY: the caller's promise.
    let options = unsafe { handle::options(options, name) }?;
    // SAFETY: as above.
    if unsafe { layout(&options) }?.0.is_some() {
        return Err(handle::invalid(format!("`{name}` has rows of its own"))
            .with_hint("set `index`, `indexes` or `group_rows` in the outermost struct alone"));
    }
    // SAFETY: as above.
    unsafe { recipe(&options, depth + 1) }
}
