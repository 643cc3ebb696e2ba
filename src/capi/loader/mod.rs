//! Batches in the order of a sampler.

mod options;
mod prediction;
mod served;
mod standing;
mod stats;

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ffi::FFI_ArrowSchema;
use arrow::ffi_stream::FFI_ArrowArrayStream;

use self::options::{builder, rowdex_loader_options};
use self::served::Served;
use super::arrow::export_schema;
use super::batch::rowdex_batch;
use super::dataset::rowdex_dataset;
use super::error::{call, catch, rowdex_error, rowdex_status};
use super::handle::{self, out_param, require};
use super::sampler::rowdex_sampler;
use crate::loader::Loader;
use rowdex_base::error::ErrorKind;

/// Serves batches in the order of a sampler, epoch after epoch.
///
/// One thread at a time, and a second one gets an error; but rowdex_loader_close, rowdex_loader_get_stats and
/// rowdex_loader_schema may be called at any time, also while a thread waits for a batch. So may
/// rowdex_loader_get_info, rowdex_loader_state and rowdex_loader_reopen, which tell of the last batch that was handed
/// out.
#[derive(Debug)]
pub struct rowdex_loader {
    served: Arc<Served>,
    schema: SchemaRef,
}

fn new_handle(loader: Loader) -> *mut rowdex_loader {
    let schema = loader.schema();
    handle::handle(rowdex_loader { served: Arc::new(Served::new(loader)), schema })
}

/// A loader at the state of the sampler. Dataset and sampler may be freed or changed afterwards. Reads nothing and
/// starts no thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_new(
    dataset: Option<&rowdex_dataset>,
    sampler: Option<&rowdex_sampler>,
    options: *const rowdex_loader_options,
    loader: Option<&mut MaybeUninit<*mut rowdex_loader>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let out = out_param(loader, "loader")?;
        // SAFETY: the conventions of the header.
        let loader = unsafe { builder(dataset, sampler, options) }?.build()?;
        out.write(new_handle(loader));
        Ok(())
    })
}

/// Another loader like a given one, at the place where that stands, which may be closed, or inherited by a forked
/// child: it goes on with the batch after the last one that was handed out.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_loader_reopen(
    loader: Option<&rowdex_loader>,
    reopened: Option<&mut MaybeUninit<*mut rowdex_loader>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let seen = require(loader, "loader")?.served.seen();
        out_param(reopened, "reopened")?.write(new_handle(seen.standing.open()?));
        Ok(())
    })
}

/// Ends a loader, from any thread: one that waits for a batch gets ROWDEX_STATUS_CLOSED within a moment, and so does
/// every later call that asks for one, of this loader or its streams. A loader without threads finishes the row group
/// at hand first.
///
/// Its state and stats can still be asked for, and it must still be freed, by whoever is sure that no other thread has
/// a call under way.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_loader_close(loader: Option<&rowdex_loader>) {
    if let Some(loader) = loader {
        loader.served.close();
    }
}

/// The columns of every batch, as an Arrow struct type that the caller releases: those of the dataset, or with views in
/// the place of strings.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_loader_schema(
    loader: Option<&rowdex_loader>,
    schema: Option<&mut MaybeUninit<FFI_ArrowSchema>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let loader = require(loader, "loader")?;
        out_param(schema, "schema")?.write(export_schema(&loader.schema)?);
        Ok(())
    })
}

/// The next batch, which the caller frees; `*batch` is NULL at the end of the run. After an error the same error comes
/// each time, until the loader is resumed; but not after a call that has waited for max_wait, or was told to stop.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_next(
    loader: *mut rowdex_loader,
    batch: Option<&mut MaybeUninit<*mut rowdex_batch>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let loader = unsafe { handle::borrow(loader, "loader") }?;
        let out = out_param(batch, "batch")?;
        let next = loader.served.with(Loader::try_next)?;
        out.write(next.map_or(ptr::null_mut(), |batch| handle::handle(rowdex_batch::new(batch))));
        Ok(())
    })
}

/// The batch of this step, which must be the next, without handing it out; `*batch` is NULL at the end of the epoch.
/// The caller frees it.
///
/// Or the batch of the step after the one that was looked at last, for those who work on several at once: each is
/// handed out in its turn, and until then the loader stands before it. Whatever else is asked of the loader but for its
/// place, its stats and its lost groups drops what was looked at. A loader with more_ranks shows its next batch alone.
///
/// Or that batch and the ones that follow it in the epoch, as one, if they are ready, lie one after the other in
/// memory, and have no more than `max_rows` rows: for those who convert many rows as fast as few. An error comes at the
/// step that it belongs to. A loader that was set to another epoch meanwhile, or is closed, returns
/// ROWDEX_STATUS_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_peek(
    loader: *mut rowdex_loader,
    epoch: u64,
    step: u64,
    max_rows: usize,
    batch: Option<&mut MaybeUninit<*mut rowdex_batch>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let loader = unsafe { handle::borrow(loader, "loader") }?;
        let out = out_param(batch, "batch")?;
        let next = loader.served.peek(epoch, step, max_rows)?;
        out.write(next.map_or(ptr::null_mut(), |batch| handle::handle(rowdex_batch::new(batch))));
        Ok(())
    })
}

/// Hands out the batch of this step, which must be the next, to somebody who has it from rowdex_loader_peek: the state
/// is then the one after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_advance(
    loader: *mut rowdex_loader,
    epoch: u64,
    step: u64,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let loader = unsafe { handle::borrow(loader, "loader") }?;
        loader.served.advance(epoch, step)
    })
}

/// The batches to come as an Arrow stream that the caller releases: rows only, without row ids, epochs and marks of
/// pads.
///
/// The stream and the loader are one: what is taken from either is gone from both, rowdex_loader_state tells where the
/// stream is, and either may be freed first. A run without an end makes a stream without an end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_stream(
    loader: *mut rowdex_loader,
    stream: Option<&mut MaybeUninit<FFI_ArrowArrayStream>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let handle = unsafe { handle::borrow(loader, "loader") }?;
        let out = out_param(stream, "stream")?;
        // The stream's own callback could not report it.
        export_schema(&handle.schema)?;
        let stream = Stream { served: Arc::clone(&handle.served), schema: handle.schema.clone() };
        out.write(FFI_ArrowArrayStream::new(Box::new(stream)));
        Ok(())
    })
}

struct Stream {
    served: Arc<Served>,
    schema: SchemaRef,
}

impl Iterator for Stream {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        // Caught here, because a panic would end the process in Arrow's callback.
        let next = loop {
            match catch(|| self.served.with(Loader::try_next)) {
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                next => break next,
            }
        };
        next.transpose().map(|batch| match batch {
            Ok(batch) => Ok(batch.records),
            Err(error) => Err(ArrowError::from_external_error(Box::new(error))),
        })
    }
}

impl RecordBatchReader for Stream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
