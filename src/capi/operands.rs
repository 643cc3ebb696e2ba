//! What descriptions refer to by numbers.

use std::ffi::c_void;
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use serde_json::{Value, json};

use super::arrow::{GivenStream, stream_of};
use super::dataset::rowdex_dataset;
use super::handle::{self, GivenOptions, require};
use super::index::rowdex_index;
use super::kind::AnyHandle;
use crate::describe::Operands;
use ::rowdex_index::Index;
use ::rowdex_order::{IdSet, JoinedLengths, Lengths, Order};
use rowdex_base::error::{Error, Result};

/// A set of row ids, out of a number of rows. At most 1.0625 bits for each of the rows. Concurrent use is fine.
#[derive(Debug)]
pub struct rowdex_id_set {
    pub(super) rows: Arc<IdSet>,
    /// How often rows were listed beyond the first time.
    pub(super) repeated: u64,
    /// Listed rows that are not served.
    pub(super) unserved: u64,
}

/// Which row comes at which position, in every epoch. Concurrent use is fine, and so is freeing it while a sampler uses
/// it.
#[derive(Debug)]
pub struct rowdex_order {
    pub(super) orders: Arc<dyn Order>,
    /// Whose rows they are, where that was told: packs go by the lengths that are noted there.
    pub(super) indexes: Vec<Index>,
    /// Of the random numbers of rows.
    pub(super) augment_key: u64,
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
            .with_hint("give an index where the orders are made"));
        }
        let lengths = |index: &Index| Ok(Arc::new(index.lengths(name)?) as Arc<dyn Lengths>);
        Ok(JoinedLengths::of(self.indexes.iter().map(lengths).collect::<Result<_>>()?))
    }
}

impl AnyHandle for rowdex_order {
    fn told(&self) -> Result<Value> {
        Ok(json!({
            "rows": self.orders.len(),
            "fingerprint": self.orders.fingerprint(),
            "augment_key": self.augment_key,
        }))
    }
}

/// An array of numbers: row ids are uint64_t, weights double, labels uint32_t.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_numbers {
    /// The first one; NULL if there are none.
    pub values: *const c_void,
    /// How many.
    pub len: usize,
}

/// What a description refers to, because it is large or open: by its number in these arrays, from 0. All of it may go
/// when the call is over.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_operands {
    pub indexes: *const *const rowdex_index,
    pub num_indexes: usize,
    pub numbers: *const rowdex_numbers,
    pub num_numbers: usize,
    pub sets: *const *const rowdex_id_set,
    pub num_sets: usize,
    /// The dataset whose values are read: those of the columns that are named, which need not be among those served.
    pub dataset: *const rowdex_dataset,
    /// Another dataset, which that one is compared with.
    pub other: *const rowdex_dataset,
    pub order: *const rowdex_order,
    /// A list of rows. It is moved from, and released in any case.
    pub stream: *mut FFI_ArrowArrayStream,
}

// SAFETY: pointers and integers.
unsafe impl GivenOptions for rowdex_operands {}

/// What a caller gave.
pub(super) struct GivenOperands<'a> {
    indexes: Vec<Index>,
    numbers: &'a [rowdex_numbers],
    sets: Vec<&'a rowdex_id_set>,
    pub(super) dataset: Option<&'a rowdex_dataset>,
    pub(super) other: Option<&'a rowdex_dataset>,
    pub(super) order: Option<&'a rowdex_order>,
    pub(super) stream: Option<GivenStream>,
}

impl<'a> GivenOperands<'a> {
    /// # Safety
    /// The pointer, which may be NULL, and all that it points to are as the header says for as long as this is used.
    pub(super) unsafe fn of(operands: Option<&rowdex_operands>) -> Result<Self> {
        let operands = GivenOptions::of(operands);
        // Before anything else that may fail, so that it is released then.
        // SAFETY: the caller's promise.
        let stream = (!operands.stream.is_null()).then(|| unsafe { stream_of(operands.stream) }).transpose()?;
        // SAFETY: as above.
        let indexes = unsafe { handle::slice(operands.indexes, operands.num_indexes, "operands.indexes") }?;
        // SAFETY: as above.
        let indexes = indexes.iter().map(|index| require(unsafe { index.as_ref() }, "operands.indexes[…]"));
        // SAFETY: as above.
        let sets = unsafe { handle::slice(operands.sets, operands.num_sets, "operands.sets") }?;
        // SAFETY: as above.
        let sets = sets.iter().map(|set| require(unsafe { set.as_ref() }, "operands.sets[…]"));
        Ok(Self {
            indexes: indexes.map(|index| Ok(index?.0.clone())).collect::<Result<_>>()?,
            // SAFETY: as above.
            numbers: unsafe { handle::slice(operands.numbers, operands.num_numbers, "operands.numbers") }?,
            sets: sets.collect::<Result<_>>()?,
            // SAFETY: as above.
            dataset: unsafe { operands.dataset.as_ref() },
            // SAFETY: as above.
            other: unsafe { operands.other.as_ref() },
            // SAFETY: as above.
            order: unsafe { operands.order.as_ref() },
            stream,
        })
    }

    fn numbers<T>(&self, number: usize) -> Result<&'a [T]> {
        let array = self.numbers.get(number).ok_or_else(|| missing("array of numbers", number, self.numbers.len()))?;
        // SAFETY: whoever made this promised numbers of the type that the description has them for.
        unsafe { handle::slice(array.values.cast(), array.len, "operands.numbers[…].values") }
    }
}

fn missing(what: &str, number: usize, count: usize) -> Error {
    handle::invalid(format!("the description refers to {what} {number}, and there are {count}"))
}

impl<'a> Operands<'a> for GivenOperands<'a> {
    fn indexes(&self) -> &[Index] {
        &self.indexes
    }

    fn row_ids(&self, number: usize) -> Result<&'a [u64]> {
        self.numbers(number)
    }

    fn weights(&self, number: usize) -> Result<&'a [f64]> {
        self.numbers(number)
    }

    fn labels(&self, number: usize) -> Result<&'a [u32]> {
        self.numbers(number)
    }

    fn set(&self, number: usize) -> Result<&'a Arc<IdSet>> {
        Ok(&self.sets.get(number).ok_or_else(|| missing("set", number, self.sets.len()))?.rows)
    }
}
