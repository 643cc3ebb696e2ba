//! What `auto` means: row groups, pages, dictionaries and compression, decided on a sample of the rows.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt64Array};
use parquet::arrow::arrow_writer::ArrowColumnChunk;
use rayon::ThreadPool;

use super::columns::{OutputColumns, as_read};
use super::encode::{Encoding, described};
use super::part;
use super::{Codec, ColumnPlan, Rewrite, RewritePlan};
use crate::dataset::{Dataset, Slots};
use rowdex_base::error::{Error, Result};
use rowdex_base::pool::{self, run_on};
use rowdex_parquet::{Annotated, WholeBatch};
use rowdex_rows::{bytes_of_part, join_exactly};

/// Row groups that the sample is from, and rows of each, and bytes of each by what the index says.
const GROUPS: usize = 8;
const GROUP_ROWS: u64 = 1024;
const GROUP_BYTES: u64 = 2 << 20;

/// Bytes of a row group in memory, as it is meant to be; the least that it takes in the file where rows are small
/// there; and the most that it takes in memory for that.
const ROW_GROUP: f64 = (32 << 20) as f64;
const LEAST_ENCODED: f64 = (4 << 20) as f64;
const MOST_DECODED: f64 = (64 << 20) as f64;
const MOST_ROWS: u64 = 1 << 20;
/// Their numbers have 16 bits in Parquet.
const MOST_GROUPS: u64 = 32_767;

/// Bytes of a page, and of a page of long values, which are found one by one.
const PAGE: u64 = 128 << 10;
const LONG_PAGE: u64 = 1 << 20;
const LONG_VALUE: u64 = 4096;

/// Bytes that are encoded at once.
const CHUNK: f64 = (1 << 20) as f64;
const MOST_CHUNK_ROWS: u64 = 16 << 10;

/// What something must save to be worth it.
const WORTH: f64 = 0.9;

/// Decides all that the output depends on.
pub(super) fn decide(rewrite: &Rewrite, columns: &OutputColumns, pool: &ThreadPool) -> Result<RewritePlan> {
    let dataset = &rewrite.dataset;
    let rows = rewrite.orders.epoch_len(0)?;
    let sample = sample(dataset, columns, pool)?;
    let sample_rows = sample.num_rows() as u64;
    let sampled = sample_rows.max(1) as f64;
    let sample_bytes = bytes_of_part(&sample).max(sample_rows);
    let row_bytes = (sample_bytes as f64 / sampled).max(1.0);
    let chunk_rows = round(CHUNK / row_bytes, MOST_CHUNK_ROWS);
    let (leaves, sample_encoded_bytes) = run_on(pool, || choose(rewrite, columns, &sample, chunk_rows))??;
    let encoded_row_bytes = (sample_encoded_bytes as f64 / sampled).max(0.01);
    let files = match rewrite.files {
        _ if rows == 0 => 1,
        None => ((rows as f64 * encoded_row_bytes / rewrite.file_bytes as f64).ceil() as u64).clamp(1, rows),
        Some(files) if files <= rows => files,
        Some(files) => {
            let message = format!("{files} files for {rows} rows");
            return Err(Error::invalid(message).with_hint("ask for no more files than rows"));
        }
    };
    // A place in one has 32 bits.
    let row_group_rows = rewrite.row_group_rows.map(|rows| rows.min(u64::from(u32::MAX))).unwrap_or_else(|| {
        let wanted = (ROW_GROUP / row_bytes).max((LEAST_ENCODED / encoded_row_bytes).min(MOST_DECODED / row_bytes));
        // All of a file are about as large.
        let of_file = rows.div_ceil(files).max(1);
        of_file.div_ceil(of_file.div_ceil(round(wanted, MOST_ROWS)))
    });
    let groups = rows.div_ceil(files).div_ceil(row_group_rows);
    if groups > MOST_GROUPS {
        let message = format!("{groups} row groups in a file, and Parquet has {MOST_GROUPS} at most");
        return Err(Error::invalid(message).with_hint("write more files, or larger row groups"));
    }
    Ok(RewritePlan {
        source: dataset.index().binding(b"rowdex rewrite 2"),
        rows,
        order: rewrite.orders.outline().to_string(),
        order_fingerprint: rewrite.orders.fingerprint(),
        files,
        row_group_rows,
        chunk_rows,
        logical_types: logical_types(dataset, &leaves)?,
        columns: leaves,
        origin: rewrite.origin.clone(),
        sample_rows,
        sample_bytes,
        sample_encoded_bytes,
        // Compressing and decompressing a gigabyte takes longer than writing and reading a third of it.
        spill_compressed: part::encoded(&sample, true)?.len() as u64 <= sample_bytes / 2,
    })
}

/// A number of rows, a multiple of 1024 where it is larger.
fn round(rows: f64, most: u64) -> u64 {
    match (rows as u64).clamp(1, most) {
        few @ ..1024 => few,
        many => many / 1024 * 1024,
    }
}

/// Rows of row groups that lie evenly in the index, and evenly in these.
fn sample(dataset: &Dataset, columns: &OutputColumns, pool: &ThreadPool) -> Result<RecordBatch> {
    let index = dataset.index();
    let groups: Vec<_> = index.row_groups().filter(|group| group.rows() > 0).collect();
    let count = groups.len().min(GROUPS);
    let numbers: Vec<usize> = (0..count).map(|number| number * groups.len() / count).collect();
    let read = |(): &mut (), number: &usize| {
        let group = &groups[*number];
        let row_bytes = (group.decoded_bytes() / group.source_rows().max(1)).max(1);
        let wanted = (GROUP_BYTES / row_bytes).clamp(1, GROUP_ROWS).min(group.rows());
        let slots: Vec<u32> = (0..wanted).map(|slot| (slot * group.rows() / wanted) as u32).collect();
        let mut whole = WholeBatch::default();
        dataset.read(group.index(), Slots::Some(&slots), as_read(dataset), None, &mut whole)?;
        columns.plain_of(&whole.into_batch()?)
    };
    let mut parts = pool::each(Some(pool), &numbers, || (), read)?.into_iter().collect::<Result<Vec<_>>>()?;
    parts.push(RecordBatch::new_empty(columns.plain.clone()));
    join_exactly(&columns.plain, parts)
}

/// How each leaf is encoded, each choice by what it saves on the sample; and the bytes of that.
fn choose(
    rewrite: &Rewrite,
    columns: &OutputColumns,
    sample: &RecordBatch,
    chunk_rows: u64,
) -> Result<(Vec<ColumnPlan>, u64)> {
    let leaf = |path| ColumnPlan { path, compression: Codec::None, dictionary: false, page_bytes: PAGE };
    let described = described(&columns.encoded)?;
    let mut leaves: Vec<ColumnPlan> = described.columns().iter().map(|column| leaf(column.path().string())).collect();
    let mut bytes = encoded(columns, sample, &leaves, chunk_rows)?;
    let rows = sample.num_rows().max(1) as u64;
    for (leaf, bytes) in leaves.iter_mut().zip(&bytes) {
        let page = if bytes / rows >= LONG_VALUE { LONG_PAGE } else { PAGE };
        leaf.page_bytes = rewrite.page_bytes.unwrap_or(page);
    }
    let mut offer = |is_asked_for: bool, change: &dyn Fn(&mut ColumnPlan)| {
        let mut changed = leaves.clone();
        changed.iter_mut().for_each(change);
        let sizes = encoded(columns, sample, &changed, chunk_rows)?;
        for ((leaf, bytes), (changed, size)) in leaves.iter_mut().zip(&mut bytes).zip(changed.into_iter().zip(sizes)) {
            if is_asked_for || size as f64 <= WORTH * *bytes as f64 {
                *leaf = changed;
                *bytes = size;
            }
        }
        Ok::<_, Error>(())
    };
    offer(false, &|leaf| leaf.dictionary = true)?;
    match rewrite.compression {
        Some(codec) => offer(true, &|leaf| leaf.compression = codec)?,
        None => {
            offer(false, &|leaf| leaf.compression = Codec::Snappy)?;
            offer(false, &|leaf| leaf.compression = Codec::Zstd(3))?;
        }
    }
    Ok((leaves, bytes.iter().sum()))
}

/// What all files that have them say of leaves and groups, by path.
fn logical_types(dataset: &Dataset, leaves: &[ColumnPlan]) -> Result<Vec<(String, String)>> {
    let index = dataset.index();
    let of_files = index.schema().fields().len() - index.partition_columns().len();
    let mut columns: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for file in 0..index.num_files() {
        // Nothing is read of files that cannot change it.
        if columns.len() >= of_files && columns.values().all(Vec::is_empty) {
            return Ok(Vec::new());
        }
        for Annotated { column, said } in dataset.annotated(file)? {
            match columns.entry(column) {
                Entry::Occupied(mut before) => before.get_mut().retain(|one| said.contains(one)),
                Entry::Vacant(first) => drop(first.insert(said)),
            }
        }
    }
    // A column may have dots in its name, and then be called as a leaf or a group of another one is.
    let called = |path: &str| {
        let below = format!("{path}.");
        let groups = usize::from(leaves.iter().any(|leaf| leaf.path.starts_with(&below)));
        groups + leaves.iter().filter(|leaf| leaf.path == path).count()
    };
    let said = columns.into_values().flatten();
    Ok(said.filter(|(path, _)| called(path) == 1).collect())
}

/// How many bytes each leaf of the sample takes when it is encoded so.
fn encoded(columns: &OutputColumns, sample: &RecordBatch, leaves: &[ColumnPlan], chunk_rows: u64) -> Result<Vec<u64>> {
    let encoding = Encoding::new(columns, leaves, &[], chunk_rows)?;
    let group = encoding.group(0..sample.num_rows() as u64, |column, rows| {
        // Row ids in no order, as they will be.
        let id = |row: u64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
        Ok(match sample.columns().get(column) {
            Some(values) => values.slice(rows.start as usize, (rows.end - rows.start) as usize),
            None => Arc::new(UInt64Array::from_iter_values(rows.map(id))),
        })
    })?;
    let size = |leaf: &ArrowColumnChunk| u64::try_from(leaf.close().metadata.compressed_size()).unwrap_or(0);
    Ok(group.iter().map(size).collect())
}
