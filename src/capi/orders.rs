//! Orders by name, over row groups or a bare length, and lists of row ids as orders.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, given, place, rowdex_str};
use super::index::rowdex_index;
use crate::Result;
use crate::index::OrderFile;
use crate::order::{Explicit, OrderSpec, Orders};

/// Which row comes at which position, in every epoch. Concurrent use is fine, and so is freeing it while a sampler uses it.
#[derive(Debug)]
pub struct rowdex_orders(Kind);

#[derive(Debug)]
enum Kind {
    /// Known as such for as long as nothing is made of it.
    Explicit(Arc<Explicit>),
    Other(Arc<dyn Orders>),
}

impl rowdex_orders {
    pub(super) fn new(orders: Arc<dyn Orders>) -> Self {
        Self(Kind::Other(orders))
    }

    pub(super) fn orders(&self) -> Arc<dyn Orders> {
        match &self.0 {
            Kind::Explicit(orders) => Arc::<Explicit>::clone(orders),
            Kind::Other(orders) => Arc::clone(orders),
        }
    }
}

/// The orders called `spec` (such as "global" or "sequential") over the rows of an index. The seed must be the same on all ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_orders_for_index(
    spec: *const c_char,
    index: Option<&rowdex_index>,
    seed: u64,
    orders: Option<&mut MaybeUninit<*mut rowdex_orders>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let index = &given(index, "index")?.0;
        let groups: Vec<u64> = index.row_groups().map(|group| group.rows()).collect();
        // SAFETY: the conventions of the header.
        let spec = unsafe { handle::text(spec, "spec") }?;
        give(orders, spec, &groups, seed)
    })
}

/// The orders called `spec` over row groups of so many rows each, in the order of their row ids; over a bare length, that is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_orders_for_groups(
    spec: *const c_char,
    group_rows: *const u64,
    num_groups: usize,
    seed: u64,
    orders: Option<&mut MaybeUninit<*mut rowdex_orders>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let groups = unsafe { handle::slice(group_rows, num_groups, "group_rows") }?;
        // SAFETY: as above.
        let spec = unsafe { handle::text(spec, "spec") }?;
        give(orders, spec, groups, seed)
    })
}

/// Rows in the order of a list, the same in every epoch: what a sampler of one's own drew. Rows may repeat and be left out.
///
/// The list is copied and checked: all row ids must be below `dataset_rows`, the length of the dataset that it is meant for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_orders_explicit(
    rows: *const u64,
    num_rows: usize,
    dataset_rows: u64,
    orders: Option<&mut MaybeUninit<*mut rowdex_orders>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let rows = unsafe { handle::slice(rows, num_rows, "rows") }?;
        let out = place(orders, "orders")?;
        let orders = Explicit::new(rows, dataset_rows)?;
        out.write(handle::handle(rowdex_orders(Kind::Explicit(Arc::new(orders)))));
        Ok(())
    })
}

/// Rows in the order of a file, the same in every epoch: row ids as little-endian 64-bit integers and nothing else.
///
/// The file is mapped, so that all processes of a machine share it, and read once, to check it as rowdex_orders_explicit does. It must not be changed
/// while the orders are used; replace it by renaming another to its place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_orders_from_file(
    path: *const c_char,
    dataset_rows: u64,
    orders: Option<&mut MaybeUninit<*mut rowdex_orders>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let path = unsafe { handle::path(path, "path") }?;
        let out = place(orders, "orders")?;
        let orders = Explicit::from_le_bytes(OrderFile::open(path)?, dataset_rows)
            .map_err(|error| error.with_file(path.display().to_string()))?;
        out.write(handle::handle(rowdex_orders(Kind::Explicit(Arc::new(orders)))));
        Ok(())
    })
}

/// Checks that orders from a list or a file have every row of the dataset exactly once. Takes a bit for each row, while it lasts.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_orders_check_permutation(
    orders: Option<&rowdex_orders>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || match &given(orders, "orders")?.0 {
        Kind::Explicit(orders) => orders.check_permutation(),
        Kind::Other(orders) => Err(handle::invalid(format!("orders {} are not from a list or a file", orders.name()))),
    })
}

fn give(out: Option<&mut MaybeUninit<*mut rowdex_orders>>, spec: &str, groups: &[u64], seed: u64) -> Result<()> {
    let out = place(out, "orders")?;
    let orders = spec.parse::<OrderSpec>()?.orders(groups, seed)?;
    out.write(handle::handle(rowdex_orders::new(orders)));
    Ok(())
}

/// Ends the life of an orders handle.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_orders_free(orders: Option<Box<rowdex_orders>>) {
    handle::free(orders);
}

/// How many positions every epoch has.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_orders_len(orders: Option<&rowdex_orders>) -> u64 {
    orders.map_or(0, |orders| orders.orders().len())
}

/// What the orders are called.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_orders_name(orders: Option<&rowdex_orders>) -> rowdex_str {
    orders.map(|orders| orders.orders().name()).into()
}

/// A hash over everything that decides the orders: a saved state is accepted by runs with the same one.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_orders_fingerprint(orders: Option<&rowdex_orders>) -> u64 {
    orders.map_or(0, |orders| orders.orders().fingerprint())
}

/// The rows at positions `first`, `first + stride`, … of an epoch, as many as there are but at most `len`; `filled` is how many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_orders_fill(
    orders: Option<&rowdex_orders>,
    epoch: u64,
    first: u64,
    stride: u64,
    rows: *mut u64,
    len: usize,
    filled: Option<&mut MaybeUninit<usize>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let orders = given(orders, "orders")?.orders();
        // SAFETY: the conventions of the header.
        let rows = unsafe { handle::buffer(rows, len, "rows") }?;
        let filled = place(filled, "filled")?;
        if stride == 0 {
            return Err(handle::invalid("a stride of 0").with_hint("use 1 or more"));
        }
        let order = orders.epoch(epoch)?;
        let there = order.len().saturating_sub(first).div_ceil(stride);
        let wanted = usize::try_from(there).unwrap_or(usize::MAX).min(len);
        let mut own = handle::zeros(wanted, "rows")?;
        let count = order.fill_strided(first, stride, &mut own);
        rows[..count].write_copy_of_slice(&own[..count]);
        filled.write(count);
        Ok(())
    })
}
