//! Rows of a dataset as a batch, and batches as streams: for callers who hand the same rows on more than once.

use std::mem::MaybeUninit;

use arrow::array::RecordBatchIterator;
use arrow::ffi_stream::FFI_ArrowArrayStream;

use super::arrow::export_schema;
use super::batch::rowdex_batch;
use super::dataset::rowdex_dataset;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, given, place};

/// Rows in the order asked, as a batch that the caller frees: for exporting them more than once. It says that it is step 0 of 1 on rank 0.
///
/// Row ids may repeat. Each row group is decoded at most once in a call, several in parallel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_take_batch(
    dataset: Option<&rowdex_dataset>,
    rows: *const u64,
    num_rows: usize,
    batch: Option<&mut MaybeUninit<*mut rowdex_batch>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = given(dataset, "dataset")?.map();
        // SAFETY: the conventions of the header.
        let rows = unsafe { handle::slice(rows, num_rows, "rows") }?;
        let out = place(batch, "batch")?;
        let batch = rowdex_batch::of_rows(dataset.take(rows)?, rows);
        out.write(handle::handle(batch));
        Ok(())
    })
}

/// The rows of a batch, as an Arrow stream of one array that the caller releases. Nothing is copied, and either may go first.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_batch_stream(
    batch: Option<&rowdex_batch>,
    stream: Option<&mut MaybeUninit<FFI_ArrowArrayStream>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let records = given(batch, "batch")?.batch.records.clone();
        let out = place(stream, "stream")?;
        let schema = records.schema();
        // The stream's own callback could not report it.
        export_schema(&schema)?;
        out.write(FFI_ArrowArrayStream::new(Box::new(RecordBatchIterator::new([Ok(records)], schema))));
        Ok(())
    })
}
