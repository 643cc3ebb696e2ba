//! What any handle may be asked: to tell of itself, for its columns and its rows, to be closed, and to end.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use serde_json::json;

use super::arrow::export_schema;
use super::batch::rowdex_batch;
use super::error::{self, call, give, rowdex_error, rowdex_status};
use super::handle;
use super::kind::{self, asked, kind};

/// Ends the life of any handle, and of a text that a function made for its caller, once. Nothing is done for NULL.
///
/// Handles do not depend on each other, nor does what was exported of them. Of a loader and of prefetched rows no other
/// thread may have a call under way: close them first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_free(handle: *mut c_void) {
    // What a destructor that panics leaves behind is leaked, which is all that can be done.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the header says that it came from this library.
        if let Ok(kind) = unsafe { kind(handle) } {
            // SAFETY: as above, and that nobody uses it any more.
            unsafe { (kind.end)(handle) }
        }
    }));
}

/// What is known of a handle, as JSON that the caller frees; for NULL what is known of the library: version.
///
/// An index: rows (those served: row ids are 0 up to rows - 1), source_rows (those that the row groups have in their
/// files), row_groups, files, columns (at the top level, partition columns among them), size_bytes, fingerprint
/// (another one if any row id means another row), root (where the files were when it was built), root_is_relative (to
/// the folder of the index), build_info (a text: what built it and with which options, as JSON), and lengths, a list of
/// what is recorded: name, of ("items" of a column of lists, "numbers" of a column of integers, or "given"), sum,
/// longest, fingerprint.
///
/// A dataset: rows; and, unless it is mixed, what it did so far in this process: hits and misses (look-ups that found
/// the row group decoded, or not), decodes (of row groups, whole or in part), bytes_decoded, bytes_read (from the
/// source, footers included), evictions, held_bytes (of decoded row groups), requests (to a store), bytes_fetched
/// (those of failed and repeated requests included), and disk_cache: hits, misses, writes, bytes_written, evictions,
/// bytes_evicted, discards (entries that were damaged or of another version), and fault: null, or why nothing more is
/// kept there; rows are served all the same.
///
/// A set: len, rows (out of how many), repeated (how often rows were listed beyond the first time), unserved (listed
/// rows that the index does not serve). Orders: rows (of an epoch), fingerprint, augment_key (of the seed, for
/// random numbers of rows: docs/orders.md).
///
/// A sampler, of its current epoch: epoch, len (samples of this rank, repeated ones included, wherever the run was
/// resumed; of packs pieces), steps, batch_size, rank, world_size, shards (different ones), shard (which of them this
/// rank sees), fingerprint (of the orders), ends (the numbers of the datasets of a mixture with stages that end, each
/// with the position before which it has served all that it may), samples_left (those from len - samples_left on),
/// steps_left.
///
/// A loader, since it was started, resumed or set to another epoch: decodes, extractions (times that rows of a row
/// group were picked out), rows (put into batches; some may wait to be asked for), held_bytes, peak_bytes, planning_ns,
/// decoding_ns, extracting_ns and assembling_ns (added up over its threads), substituted (rows that stand in for others
/// that could not be read), drift (steps that the farthest rank is ahead of the last one) and window_bytes (sent to
/// ranks and not taken yet), if ranks share a reader; and lost: the row groups that could not be read, whose rows
/// others stand in for, each with its number, row_group (in the index, or for a mixed dataset over all), and its error.
///
/// Prefetched rows: prefetched, waiting (not taken yet), followed (served from memory), fell_back (served by the
/// dataset, because others come next, or because they could not be read when they were needed); and, since reading
/// ahead was last started, decodes, held_bytes, peak_bytes.
///
/// An error, as it is in other reports, too: status, message, and file, row_group (by its place in the file), column
/// (by its dotted path) and hint (what to do about it, which the message has, too), which are null where nothing is
/// known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_describe(
    handle: *const c_void,
    report: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    error::report(error, report, || match handle.is_null() {
        true => Ok(json!({ "version": env!("CARGO_PKG_VERSION") })),
        // SAFETY: the conventions of the header.
        false => unsafe { asked(handle) }?.told(),
    })
}

/// The columns of an index, a dataset, or the batches of a loader, as an Arrow struct type that the caller releases: of
/// all files, those served, or these with views in the place of strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_schema(
    handle: *const c_void,
    schema: Option<&mut MaybeUninit<FFI_ArrowSchema>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    // SAFETY: the conventions of the header.
    give(error, schema, "schema", || export_schema(&*unsafe { asked(handle) }?.columns()?))
}

/// The rows of a batch, or the batches of a loader to come, as an Arrow stream that the caller releases: rows only,
/// without row ids and epochs, and without a mark of repeated rows. Nothing is copied, and either may be freed first.
///
/// The stream of a loader and the loader are one: what is taken from either is gone from both, and rowdex_loader_state
/// says where the stream is. A run without an end makes a stream without an end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_stream(
    handle: *const c_void,
    stream: Option<&mut MaybeUninit<FFI_ArrowArrayStream>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    give(error, stream, "stream", || {
        // SAFETY: the conventions of the header.
        let rows = unsafe { asked(handle) }?.rows()?;
        // The stream's own callback could not report it.
        export_schema(&rows.schema())?;
        Ok(FFI_ArrowArrayStream::new(rows))
    })
}

/// Rows of a dataset or of prefetched rows in the order asked, as a batch that the caller frees: export it. It says
/// that it is step 0 of 1 on rank 0.
///
/// Row ids may repeat. Each row group is decoded at most once in a call, several in parallel. A single row takes
/// microseconds when its row group is cached, and otherwise reads the pages that hold the row, or the row group. All
/// columns served are read, so open the dataset with those that are wanted.
///
/// Of prefetched rows a call for exactly those that were prefetched next, any number of them, is served from memory,
/// and any other call by the dataset. Rows of a call that failed count as taken: asked for again, they come from the
/// dataset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_take(
    handle: *const c_void,
    rows: *const u64,
    num_rows: usize,
    batch: Option<&mut MaybeUninit<*mut rowdex_batch>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    give(error, batch, "batch", || {
        // SAFETY: the conventions of the header.
        let asked = unsafe { asked(handle) }?;
        // SAFETY: as above.
        let rows = unsafe { handle::slice(rows, num_rows, "rows") }?;
        Ok(kind::handle(rowdex_batch::of_rows(asked.take(rows)?, rows)))
    })
}

/// Resumes a sampler or a loader from a state, which may come from a world of another size and another batch size. What
/// a loader read ahead is dropped. Nothing is changed on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_resume(
    handle: *mut c_void,
    state: *const c_char,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let asked = unsafe { asked(handle) }?;
        // SAFETY: as above.
        asked.resume(&unsafe { handle::text(state, "state") }?.parse()?)
    })
}

/// Ends a loader, or prefetched rows, from any thread: one that waits for a batch or for rows gets ROWDEX_STATUS_CLOSED
/// within a moment, and so does every later call that asks for some, streams of a loader included. A loader without
/// threads finishes the row group at hand first. Nothing is done for NULL and for other handles.
///
/// The state and the stats of a loader can still be asked for, and it must still be freed, when no other thread has a
/// call under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_close(handle: *const c_void) {
    // SAFETY: the conventions of the header.
    if let Ok(asked) = unsafe { asked(handle) } {
        asked.close();
    }
}
