//! What `auto` means: row groups, pages, dictionaries and compression, decided on a sample of the rows.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use arrow::array::RecordBatch;

use super::OutputOptions;
use super::columns::{OutputColumns, as_read};
use super::encode::{Encoding, described};
use super::part::spilled_bytes;
use super::plan::{Codec, ColumnPlan, RewritePlan};
use crate::dataset::{Dataset, Slots};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::Order;
use rowdex_parquet::{Annotated, WholeBatch};
use rowdex_rows::{bytes_of_part, join_exactly};

/// Row groups that the sample is from, and rows of each, and bytes of each by what the index says.
const GROUPS: u64 = 8;
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
const LONG_VALUE: f64 = 4096.0;

/// Bytes that are encoded at once.
const CHUNK: f64 = (1 << 20) as f64;
const MOST_CHUNK_ROWS: u64 = 16 << 10;

/// What something must save to be worth it.
const WORTH: f64 = 0.9;

/// Decides all that the output depends on.
pub(super) fn decide(
    dataset: &Dataset,
    columns: &OutputColumns,
    order: &dyn Order,
    options: &OutputOptions,
) -> Result<RewritePlan> {
    let rows = order.epoch_len(0)?;
    let sample = sample(dataset, columns)?;
    let sampled = sample.num_rows().max(1) as f64;
    let sample_bytes = bytes_of_part(&sample).max(sample.num_rows() as u64);
    let row_bytes = (sample_bytes as f64 / sampled).max(1.0);
    let chunk_rows = round(CHUNK / row_bytes, MOST_CHUNK_ROWS);
    let mut leaves = leaves(columns, &sample, chunk_rows, options)?;
    let variants = annotate(dataset, &mut leaves)?;
    let sample_encoded_bytes = encoded(columns, &sample, &leaves, chunk_rows)?.iter().sum::<u64>();
    let encoded_row_bytes = (sample_encoded_bytes as f64 / sampled).max(0.01);
    let files = match (options.files, rows) {
        (_, 0) => 1,
        (Some(files), _) if files > rows => {
            let message = format!("{files} files for {rows} rows");
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("ask for no more files than rows"));
        }
        (Some(files), _) => files,
        (None, _) => {
            let files = (rows as f64 * encoded_row_bytes / options.file_bytes.max(1) as f64).ceil() as u64;
            files.clamp(1, rows.max(1))
        }
    };
    let row_group_rows = options.row_group_rows.unwrap_or_else(|| {
        let wanted = (ROW_GROUP / row_bytes).max((LEAST_ENCODED / encoded_row_bytes).min(MOST_DECODED / row_bytes));
        // All of a file are about as large.
        let of_file = rows.div_ceil(files).max(1);
        of_file.div_ceil(of_file.div_ceil(round(wanted, MOST_ROWS)))
    });
    let groups = rows.div_ceil(files.max(1)).div_ceil(row_group_rows.max(1));
    if groups > MOST_GROUPS {
        let message = format!("{groups} row groups in a file, and Parquet has {MOST_GROUPS} at most");
        return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("write more files, or larger row groups"));
    }
    Ok(RewritePlan {
        source: dataset.index().binding(b"rowdex rewrite 2"),
        rows,
        order: order.outline().to_string(),
        order_fingerprint: order.fingerprint(),
        files,
        row_group_rows,
        chunk_rows,
        columns: leaves,
        groups: variants,
        origin: options.origin.clone(),
        sample_rows: sample.num_rows() as u64,
        sample_bytes,
        sample_encoded_bytes,
        sample_spilled_bytes: match spilled_bytes(&sample, true)? {
            bytes if RewritePlan::is_worth_compressing(bytes, sample_bytes) => bytes,
            _ => spilled_bytes(&sample, false)?,
        },
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
fn sample(dataset: &Dataset, columns: &OutputColumns) -> Result<RecordBatch> {
    let index = dataset.index();
    let groups: Vec<u32> = index.row_groups().filter(|group| group.rows() > 0).map(|group| group.index()).collect();
    let count = (groups.len() as u64).min(GROUPS);
    let mut parts = vec![RecordBatch::new_empty(columns.plain.clone())];
    for number in 0..count {
        let Some(group) = groups.get((number * groups.len() as u64 / count) as usize) else { continue };
        let Some(entry) = index.row_group(*group) else { continue };
        let row_bytes = (entry.decoded_bytes() / entry.source_rows().max(1)).max(1);
        let wanted = (GROUP_BYTES / row_bytes).clamp(1, GROUP_ROWS).min(entry.rows());
        let slots: Vec<u32> = (0..wanted).map(|slot| (slot * entry.rows() / wanted) as u32).collect();
        let mut whole = WholeBatch::default();
        dataset.read(*group, Slots::Some(&slots), as_read(dataset), None, &mut whole)?;
        parts.push(columns.plain_of(&whole.into_batch()?)?);
    }
    join_exactly(&columns.plain, parts)
}

/// How each leaf is to be encoded: each choice by what it saves on the sample.
fn leaves(
    columns: &OutputColumns,
    sample: &RecordBatch,
    chunk_rows: u64,
    options: &OutputOptions,
) -> Result<Vec<ColumnPlan>> {
    let described = described(&columns.encoded)?;
    let plain = described.columns().iter().map(|leaf| ColumnPlan {
        path: leaf.path().string(),
        compression: Codec::None,
        dictionary: false,
        page_bytes: PAGE,
        logical_type: None,
    });
    let mut leaves: Vec<ColumnPlan> = plain.collect();
    let tried = |leaves: &[ColumnPlan]| encoded(columns, sample, leaves, chunk_rows);
    let with = |leaves: &[ColumnPlan], change: &dyn Fn(&mut ColumnPlan)| {
        let mut changed = leaves.to_vec();
        changed.iter_mut().for_each(change);
        tried(&changed)
    };
    let uncompressed = tried(&leaves)?;
    let with_dictionary = match options.dictionary {
        None => with(&leaves, &|leaf| leaf.dictionary = true)?,
        Some(_) => Vec::new(),
    };
    for (number, leaf) in leaves.iter_mut().enumerate() {
        let saves =
            || with_dictionary.get(number).is_some_and(|bytes| *bytes as f64 <= WORTH * uncompressed[number] as f64);
        leaf.dictionary = options.dictionary.unwrap_or_else(saves);
        let value = uncompressed[number] as f64 / sample.num_rows().max(1) as f64;
        let page = if value >= LONG_VALUE { LONG_PAGE } else { PAGE };
        leaf.page_bytes = options.page_bytes.unwrap_or(page);
    }
    if let Some(codec) = options.compression {
        leaves.iter_mut().for_each(|leaf| leaf.compression = codec);
        return Ok(leaves);
    }
    let uncompressed = tried(&leaves)?;
    let snappy = with(&leaves, &|leaf| leaf.compression = Codec::Snappy)?;
    let zstd = with(&leaves, &|leaf| leaf.compression = Codec::Zstd(3))?;
    for (leaf, ((plain, snappy), zstd)) in leaves.iter_mut().zip(uncompressed.iter().zip(&snappy).zip(&zstd)) {
        let plain = *plain as f64;
        let snappy = *snappy as f64;
        let zstd = *zstd as f64;
        leaf.compression = match () {
            () if snappy.min(zstd) > WORTH * plain => Codec::None,
            () if zstd <= WORTH * snappy => Codec::Zstd(3),
            () => Codec::Snappy,
        };
    }
    Ok(leaves)
}

/// Notes what all files that have it say of a leaf. Returns what they say of groups.
fn annotate(dataset: &Dataset, leaves: &mut [ColumnPlan]) -> Result<Vec<(String, String)>> {
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
    let mut said: Vec<(String, String)> = columns.into_values().flatten().collect();
    // A column may have dots in its name, and then be called as a leaf of another one is.
    let mut called: HashMap<String, usize> = HashMap::new();
    leaves.iter().for_each(|leaf| *called.entry(leaf.path.clone()).or_default() += 1);
    for leaf in leaves.iter_mut().filter(|leaf| called.get(&leaf.path) == Some(&1)) {
        let name = said.iter().find(|(path, _)| *path == leaf.path).map(|(_, name)| name.clone());
        leaf.logical_type = name;
    }
    let is_group = |path: &str| leaves.iter().any(|leaf| leaf.path.starts_with(&format!("{path}.")));
    said.retain(|(path, _)| !called.contains_key(path) && is_group(path));
    Ok(said)
}

/// How many bytes each leaf of the sample takes when it is encoded so.
fn encoded(columns: &OutputColumns, sample: &RecordBatch, leaves: &[ColumnPlan], chunk_rows: u64) -> Result<Vec<u64>> {
    let encoding = Encoding::new(columns, leaves, &[], chunk_rows as usize)?;
    let mut file = encoding.file(Vec::new())?;
    let mut group = encoding.group()?;
    // Row ids in no order, as they will be.
    let ids = || (0..sample.num_rows() as u64).map(|row| row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24).collect();
    group.add(columns.encoded_of(sample, ids)?)?;
    file.add(group.finish()?)?;
    let bytes = file.finish()?;
    let read = ParquetMetaDataReader::new().parse_and_finish(&bytes::Bytes::from(bytes));
    let metadata: ParquetMetaData =
        read.map_err(|error| Error::new(ErrorKind::Internal, format!("the encoded sample cannot be read: {error}")))?;
    let size = |leaf: usize| {
        let groups = metadata.row_groups().iter();
        groups.map(|group| u64::try_from(group.column(leaf).compressed_size()).unwrap_or(0)).sum()
    };
    Ok((0..leaves.len()).map(size).collect())
}
