//! Work that a description says and that ends in a report: building, selecting, rewriting, checking.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use serde_json::{Value, json};

use super::dataset::rowdex_dataset;
use super::error::{self, rowdex_error, rowdex_status};
use super::handle::{self, require};
use super::operands::{GivenOperands, rowdex_operands};
use super::progress::{Progress, rowdex_progress};
use crate::dataset::{RowProgress, VerifyProgress};
use crate::describe::{
    BuildDescription, DigestDescription, FindDescription, JobDescription, LengthsDescription, Operands,
    RewriteDescription, SelectDescription, VerifyDescription,
};
use crate::digest::SameRows;
use crate::select::{ListOfRows, Select};
use ::rowdex_index::Index;
use ::rowdex_order::sampler::Launch;
use rowdex_base::error::Result;

/// Does what is described, and reports what came of it: both are JSON. `report` may be NULL; the caller frees it.
/// `operands` are what a description refers to, and may be NULL. The description names one kind of work:
///
/// {"build": {"files": ["data/"], "output": "train.rdx"}} builds an index from the footers of Parquet files. Its path
/// holds what it held, or the whole new index, at any moment. Costs about one read for each file. All but these two may
/// be left out: files: files, folders (searched for *.parquet, *.parq and *.pq) and patterns. root: stores paths
/// relative to this directory, which must contain all files; the deepest one that does by default. schema: "strict"
/// (the same columns and types in every file) or "union" (missing columns are null, types are widened). threads: that
/// read footers, one for each available core by default. overwrite: true replaces an existing file. update: true
/// updates the index at output, if there is one: its unchanged leading files keep their row ids. footers: false does
/// not store footers, so everyone who opens the index reads them again. partitions: false does not turn folders named
/// key=value into columns. rename: columns of the files that are served by other names, {"content": "text"}. lengths:
/// columns by which it is recorded how long rows are, as "lengths" does; progress is reported once more, then. store:
/// as for rowdex_index_open. Progress is reported after each window of files. The report: files, kept_files (of an
/// update), read_files, requests, footer_bytes, row_groups, rows, index_bytes, repeated_files (named more than once),
/// unlike_files (with other columns than the first one), unlike_example, a text that names one of these and says in
/// what it differs, or null, and undecodable_columns, which a newer writer encoded or compressed, so that this version
/// serves all others. find: "or_build" looks for an index of the files as they are now, and builds one only if
/// there is none; output may then be left out for the cache folder of the user ($ROWDEX_CACHE, $XDG_CACHE_HOME/rowdex
/// or ~/.cache/rowdex), and files may be one index, which is taken. Of several processes one builds, and the others
/// wait. "only" builds none, and returns ROWDEX_STATUS_NOT_FOUND. The report is then: index (its path), built (the
/// report above, or null), and is_rebuilt (whether there was an index of the data as it was before).
///
/// {"lengths": {"index": "train.rdx", "columns": ["tokens"]}} records how long the rows are in an index, a file or a
/// URL: it holds the index as it was, or with all of these lengths, at any moment. Lengths of the same names are
/// replaced, others stay, and so does the fingerprint. An index that is open stays without them; open it again.
/// columns: of lists, whose items are counted without decoding a value, or of integers, which say the lengths
/// themselves. Null and empty lists have the length 0; an integer must be there, and not be negative. given: lists of
/// lengths, by the names to record them by: tables or folders of tables with every row of the index once and a column
/// `length`. Such rows are served whole. stream: the name of the lengths that the stream of the operands has, another
/// such list. root: where the data is, instead of where the index says. threads, store: as above. Progress is reported
/// after each window of row groups. The report is empty.
///
/// {"select": {"output": "view.rdx", "where": "lang = 'en'"}} writes a view of index 0: an index of the same files that
/// serves only some of the rows. No data is copied, and none is read but for a condition and for a split by a column.
/// Its path holds what it held, or the whole view, at any moment. A view without rows is refused. At least one choice
/// must be made. Every choice leaves rows out; only union adds rows, to what the others leave. rows: keeps only the
/// rows that this file lists, as the list of rowdex_id_set_new. skip: leaves out those that this file lists. kept:
/// keeps only the rows of this set; note: what is recorded of them. intersect: keeps only rows that these indexes of
/// the same files serve, too; exclude: leaves out the rows that these serve; union: adds the rows that these serve.
/// sample: {"fraction": 0.01, "seed": 7} keeps a sample of the rows by a hash: a row stays in it when files are
/// appended. split: as for rowdex_id_set_new. where: keeps only rows that meet this condition in SQL. root: where the
/// data is that where and split read, instead of where the index says. overwrite, store: as above. Progress is how far
/// the condition is: rows decided, rows in all, and 0. The report: rows, base_rows, source_rows, repeated (how often
/// lists had rows beyond the first time), unserved (listed rows that the base does not serve), index_bytes.
///
/// {"rewrite": {"output": "shuffled", "memory": 4294967296}} writes the rows of the dataset again: row i of the output
/// is row order(i) of the dataset, in epoch 0 of the order of the operands. The output is a folder of Parquet files, or
/// a prefix of a store (s3, gs or az), which is talked to as the dataset's is, with an index next to them, index.rdx.
/// docs/rewriting.md says what is written, and what it takes. The files are the same to the byte with any memory,
/// threads and tasks. A call that was stopped (rowdex_stop_when) or has failed leaves no file half written, and another
/// one with resume continues. memory: about how many bytes of rows to hold, 1 GiB by default. threads: that decode and
/// encode, one for each available core and at most eight by default. files: writes this number of files, of equal
/// numbers of rows or one row more. Or file_bytes: about how large a file is, 512 MiB by default. row_group_rows: the
/// last row group of a file may have fewer; by default such that it takes 32 MiB in memory, and up to 64 MiB if it
/// would take less than 4 MiB in the file. page_bytes: of values, after which a page ends; by default 128 KiB, and 1
/// MiB where a value takes 4 KiB or more. compression: "none", "snappy", "lz4", "zstd" or "zstd:LEVEL"; by default for
/// each column what makes a sample smallest. origin: adds a column of this name with the row ids of the dataset. spill:
/// spills rows to a folder in this one, which is local; by default in the output, if that is local. step: one step of
/// the work, where several machines share it: all tasks of "spill", then all of "write", then "index"; by default all
/// of it. task: [2, 8] is the task with number 2, from 0, of 8 that share the step. resume: true resumes from what an
/// earlier call left in the output. overwrite: true replaces what an earlier call wrote there. Progress is rows that
/// are done and rows in all, both of two passes together, and bytes that were spilled and written so far. The report:
/// rows, files, kept_files (finished by a call that this one resumes), bytes_written and bytes_spilled (by this call),
/// and index, which is null for a step that does not write it.
///
/// {"verify": {"check": "footer"}} checks the index of the dataset, every byte of it, then every data file at this
/// level, and reports all bad files at once: "off" looks at the index alone, "stat" costs a stat for each file,
/// "footer" a read for each file, and "deep" decodes the chosen columns of every row group. Without a dataset index 0
/// alone is checked. The report: files (that were looked at), rows (that were decoded; 0 below "deep"), and problems:
/// what is wrong with bad files, in their order, as rowdex_describe reports errors.
///
/// {"digest": {}} is the digest of the rows of the dataset over the columns that it serves, in any order of the rows;
/// docs/digests.md specifies it. With `other` among the operands the rows of both are compared, over the columns that
/// both serve; with an order, too, of which epoch is the epoch: row i of the other one is row order(i) of the dataset.
/// Reads and decodes all rows once, on the threads of each dataset. Progress is rows that were read, rows to read, and
/// 0. The report: rows, digest (32 hexadecimal digits), other_rows, other_digest, same_rows (whether every row of the
///    dataset is once in the other one and nothing else is; null where that was not compared, because the order leaves
///    rows out, or repeats some), in_order, and difference: null, or what differs, as rowdex_describe reports errors:
///    with an order, with the file and row group of rows that differ.
///
/// {"launch": {}} says which rank this process is, as torchrun, Open MPI, PMI or Slurm put it into its environment:
/// rank (below world_size), world_size, local_rank and local_world_size (of this machine; null if the launcher does not
/// say), and launcher. It fails if no launcher is found, if a variable is missing or no number, or if launchers
/// disagree; the error names the variables. The environment must not be changed by another thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_run(
    description: *const c_char,
    operands: Option<&rowdex_operands>,
    progress: rowdex_progress,
    progress_userdata: *mut c_void,
    report: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    error::report(error, report, || {
        // First, so that a stream is released whatever else is wrong.
        // SAFETY: the conventions of the header.
        let given = unsafe { GivenOperands::of(operands) }?;
        // SAFETY: as above.
        let described: JobDescription = unsafe { handle::described(description, "") }?;
        let progress = Progress::new(progress, progress_userdata);
        match described {
            JobDescription::Build(build) => built(&build, progress),
            JobDescription::Lengths(lengths) => noted(&lengths, given, progress),
            JobDescription::Select(select) => selected(&select, &given, progress),
            JobDescription::Rewrite(rewrite) => rewritten(&rewrite, &given, progress),
            JobDescription::Verify(verify) => verified(&verify, &given, progress),
            JobDescription::Digest(digest) => digested(&digest, &given, progress),
            JobDescription::Launch {} => launched(),
        }
    })
}

fn launched() -> Result<Value> {
    let Launch { launcher, rank, world_size, local_rank, local_world_size, .. } = Launch::from_env()?;
    Ok(json!({
        "rank": rank,
        "world_size": world_size,
        "local_rank": local_rank,
        "local_world_size": local_world_size,
        "launcher": launcher,
    }))
}

fn built(described: &BuildDescription, progress: Progress) -> Result<Value> {
    let builder =
        described.builder()?.with_progress(move |build| progress.tell(build.files_done, build.files, build.rows));
    let output = described.output()?;
    let (index, built, is_rebuilt) = match (described.find(), output) {
        (None, Some(output)) => return error::json(&builder.build(output)?),
        (Some(FindDescription::Only), _) => (builder.find(output)?, None, false),
        _ => {
            let found = builder.find_or_build(output)?;
            (found.index, found.built, found.is_rebuilt)
        }
    };
    Ok(json!({ "index": index.path(), "built": error::json(&built)?, "is_rebuilt": is_rebuilt }))
}

fn noted(described: &LengthsDescription, given: GivenOperands<'_>, progress: Progress) -> Result<Value> {
    let read = given
        .stream
        .map(|stream| move |index: &Index, column: &str| ListOfRows::Batches(Box::new(stream)).lengths(index, column));
    let builder = described.builder(read)?;
    builder.with_progress(move |done| progress.tell(done.files_done, done.files, done.rows)).write()?;
    Ok(json!({}))
}

fn selected(described: &SelectDescription, given: &GivenOperands<'_>, progress: Progress) -> Result<Value> {
    error::json(&watched(described.select(given)?, progress).write(described.output())?)
}

#[cfg(feature = "filter")]
fn watched(select: Select, progress: Progress) -> Select {
    select.with_progress(move |at| progress.tell(at.rows_done, at.rows, 0))
}

#[cfg(not(feature = "filter"))]
fn watched(select: Select, _: Progress) -> Select {
    select
}

fn rewritten(described: &RewriteDescription, given: &GivenOperands<'_>, progress: Progress) -> Result<Value> {
    let dataset = require(given.dataset, "operands.dataset")?.one()?;
    let order = require(given.order, "operands.order")?.orders();
    let task = described.task()?;
    let rewrite = described
        .rewrite(dataset, order)?
        .with_progress(move |at| progress.tell(at.rows_done, at.rows, at.bytes_spilled + at.bytes_written));
    error::json(&task.map_or_else(|| rewrite.run(), |task| rewrite.run_task(task))?)
}

fn verified(described: &VerifyDescription, given: &GivenOperands<'_>, progress: Progress) -> Result<Value> {
    let Some(dataset) = given.dataset else {
        require(given.indexes().first(), "operands.dataset")?.verify()?;
        return Ok(json!({ "files": 0, "rows": 0, "problems": [] }));
    };
    let tell = |verify: VerifyProgress| progress.tell(verify.files_done, verify.files, 0);
    let found = dataset.one()?.verify(described.check()?, &tell)?;
    let problems: Vec<_> = found.problems.iter().map(error::told).collect();
    Ok(json!({ "files": found.files, "rows": found.rows, "problems": problems }))
}

fn digested(described: &DigestDescription, given: &GivenOperands<'_>, progress: Progress) -> Result<Value> {
    let dataset = require(given.dataset, "operands.dataset")?.one()?;
    let tell = |at: RowProgress| progress.tell(at.rows_done, at.rows, 0);
    let hex = |sum: u128| format!("{sum:032x}");
    let Some(other) = given.other.map(rowdex_dataset::one).transpose()? else {
        if given.order.is_some() {
            return Err(handle::invalid("an order is for a comparison with another dataset"));
        }
        described.epoch(None)?;
        let digest = dataset.rows_digest(&tell)?;
        return Ok(json!({ "rows": digest.rows, "digest": hex(digest.sum) }));
    };
    let orders = given.order.map(super::operands::rowdex_order::orders);
    let mut same = SameRows::new(dataset, other);
    if let Some(epoch) = described.epoch(orders)? {
        same = same.with_order(epoch);
    }
    let report = same.check(&tell)?;
    Ok(json!({
        "rows": report.first.rows,
        "digest": hex(report.first.sum),
        "other_rows": report.second.rows,
        "other_digest": hex(report.second.sum),
        "same_rows": report.same_rows,
        "in_order": report.in_order,
        "difference": report.problem("the dataset", "the other one").as_ref().map(error::told),
    }))
}
