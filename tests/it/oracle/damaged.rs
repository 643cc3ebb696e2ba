//! Files with one damaged place, beside what pyarrow makes of them.
//!
//! A file that pyarrow reads is read alike, or refused. One that pyarrow refuses is refused, or has the values of the
//! file before it was damaged: then what is damaged says nothing of values. Rows read alone come from the same pages,
//! so they are right wherever they are served.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int8Array, Int32Array, ListArray, RecordBatch, StringArray,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Int32Type};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::properties::{WriterProperties, WriterVersion};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use rowdex::{Dataset, IndexBuilder};
use tempfile::TempDir;

use super::compare::{plain_batch, rows_of, value_difference};
use super::python::{Oracle, say};
use super::serve::{expectation, with_extension};

const ROWS: usize = 60;

/// What became of a damaged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    BothRefuse,
    BothServe,
    RowdexRefuses,
    /// pyarrow refuses it, and the values are those of the file before.
    Sound,
}

/// Values of every shape that is decoded in a way of its own, with nulls.
fn batch() -> RecordBatch {
    let rows = 0..ROWS as i32;
    let some = |row: i32| (row % 5 != 0).then_some(row);
    let lists = rows.clone().map(|row| some(row).map(|row| (0..row % 4).map(some).collect::<Vec<_>>()));
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
    // Lists of structs with lists: levels up to 2 and 6.
    let inner = (0..2 * ROWS as i32).map(|item| (item % 7 != 0).then(|| (0..item % 3).map(some).collect::<Vec<_>>()));
    let inner: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(inner));
    let valid = NullBuffer::from_iter((0..2 * ROWS).map(|item| item % 6 != 1));
    let fields = vec![Field::new("below", inner.data_type().clone(), true)];
    let items = StructArray::new(fields.into(), vec![inner], Some(valid));
    let item = Arc::new(Field::new("item", items.data_type().clone(), true));
    let valid = NullBuffer::from_iter(rows.clone().map(|row| row % 8 != 3));
    let nested = ListArray::new(item, OffsetBuffer::from_lengths([2; ROWS]), Arc::new(items), Some(valid));
    let word = |row: i32| some(row).map(|row| format!("word {}", row % 3));
    let part = StructArray::new(
        vec![Field::new("x", DataType::Int8, true)].into(),
        vec![Arc::new(Int8Array::from_iter(rows.clone().map(|row| some(row).map(|row| row as i8)))) as ArrayRef],
        Some(NullBuffer::from_iter(rows.clone().map(|row| row % 9 != 4))),
    );
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("whole", Arc::new(Int32Array::from_iter_values(rows.clone().map(|row| row % 11))), false),
        ("some", Arc::new(Int32Array::from_iter(rows.clone().map(some))), true),
        ("x", Arc::new(Float64Array::from_iter(rows.clone().map(|row| some(row).map(f64::from)))), true),
        ("word", Arc::new(StringArray::from_iter(rows.clone().map(word))), true),
        ("flag", Arc::new(BooleanArray::from_iter(rows.map(|row| some(row).map(|row| row % 2 == 0)))), true),
        ("part", Arc::new(part), true),
        ("list", Arc::new(lists), true),
        ("nested", Arc::new(nested), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Small pages, most bytes of which are headers and levels.
fn sound(draw: &mut ChaCha8Rng) -> Vec<u8> {
    let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
    let properties = WriterProperties::builder()
        .set_compression(if draw.random_bool(0.7) { Compression::UNCOMPRESSED } else { Compression::SNAPPY })
        .set_writer_version(versions[draw.random_range(0..2)])
        .set_dictionary_enabled(draw.random_bool(0.5))
        .set_max_row_group_row_count(Some([25, 60][draw.random_range(0..2)]))
        .set_data_page_row_count_limit(10)
        .set_write_batch_size(5)
        .set_offset_index_disabled(draw.random_bool(0.5))
        .build();
    let mut bytes = Vec::new();
    let batch = batch();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

fn footer_of(bytes: &[u8]) -> Range<usize> {
    let end = bytes.len() - 8;
    let length = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap());
    end - length as usize..end
}

/// Damages bytes next to each other: in pages, or in a footer that can still be parsed.
fn damaged(sound: &[u8], draw: &mut ChaCha8Rng) -> Vec<u8> {
    let footer = footer_of(sound);
    let in_footer = draw.random_bool(0.3);
    loop {
        let mut bytes = sound.to_vec();
        let range = if in_footer { footer.clone() } else { 4..footer.start };
        let at = draw.random_range(range.clone());
        match draw.random_range(0..4) {
            0 | 1 => bytes[at] ^= 1 << draw.random_range(0..8),
            2 => bytes[at] = draw.random(),
            _ => bytes[at..range.end.min(at + draw.random_range(1..4))].fill(if draw.random() { 0xFF } else { 0 }),
        }
        let parses = || ParquetMetaDataReader::decode_metadata(&bytes[footer.clone()]).is_ok();
        if bytes != sound && (!in_footer || parses()) {
            return bytes;
        }
    }
}

/// Damages so many files, and says what became of them.
pub(super) fn compare(oracle: &Oracle, seed: u64, count: usize) {
    let folder = TempDir::new().unwrap();
    let (files, expected) = (folder.path().join("files"), folder.path().join("expected"));
    fs::create_dir(&files).unwrap();
    let name = |number: usize| format!("{number:05}.parquet");
    for number in 0..count {
        let mut draw = ChaCha8Rng::seed_from_u64(seed.wrapping_add(number as u64));
        let sound = sound(&mut draw);
        fs::write(files.join(name(number)), damaged(&sound, &mut draw)).unwrap();
    }
    oracle.expect(&files, &expected).unwrap();
    let before = plain_batch(&batch());
    let (mut fates, mut wrong) = (BTreeMap::<Fate, usize>::new(), Vec::new());
    for number in 0..count {
        let seed = seed.wrapping_add(number as u64);
        match fate(&files.join(name(number)), &expected.join(name(number)), &before) {
            Ok(fate) => *fates.entry(fate).or_default() += 1,
            Err(difference) => wrong.push(format!("ROWDEX_DAMAGED_SEED={seed}: {difference}")),
        }
    }
    say(&format!("damaged files: ROWDEX_DAMAGED_SEED={seed} ROWDEX_DAMAGED_FILES={count}: {fates:?}"));
    assert!(wrong.is_empty(), "{} of {count} files:\n{}", wrong.len(), wrong.join("\n"));
    if count >= 100 {
        assert!(fates[&Fate::BothRefuse] > count / 10 && fates[&Fate::BothServe] > count / 10, "{fates:?}");
    }
}

fn fate(file: &Path, expected: &Path, before: &RecordBatch) -> Result<Fate, String> {
    let arrows = with_extension(expected, "arrows");
    let want = arrows.exists().then(|| expectation(&arrows).1);
    let refusal = || fs::read_to_string(with_extension(expected, "error")).unwrap_or_default();
    let folder = TempDir::new().unwrap();
    let index = folder.path().join("i.rdx");
    let build = IndexBuilder::new([file]).with_partitions(false).with_threads(1).build(&index);
    let opened = build.and_then(|_| Dataset::open(&index));
    let refused = if want.is_some() { Fate::RowdexRefuses } else { Fate::BothRefuse };
    let Ok(dataset) = opened else { return Ok(refused) };
    let rows: Vec<u64> = (0..dataset.len()).collect();
    let all = dataset.take(&rows);
    let pages = Dataset::builder(rowdex::Index::open(&index).unwrap()).with_cache_bytes(0).with_threads(0);
    let pages = pages.open().map_err(|error| error.to_string())?;
    // What pyarrow reads, or what was there before.
    let truth = want.as_ref().unwrap_or(before);
    if all.is_ok() && dataset.len() != truth.num_rows() as u64 {
        return Err(format!("{} rows and not {}: {}", dataset.len(), truth.num_rows(), refusal()));
    }
    if let Ok(all) = &all
        && let Some(difference) = value_difference(&plain_batch(all), truth)
    {
        return Err(format!("{difference}; {}", refusal()));
    }
    for &row in rows.iter().step_by(7).filter(|row| **row < truth.num_rows() as u64) {
        let alone = [pages.get(row), pages.take(&[row, (row + 23) % dataset.len()]).map(|two| two.slice(0, 1))];
        for alone in alone.into_iter().flatten() {
            // pyarrow takes rows that a row group has too many for those of the next one, which is not damaged.
            let before = Some(before).filter(|_| all.is_err());
            let differs = |truth| value_difference(&plain_batch(&alone), &rows_of(truth, &[row]));
            if let (Some(difference), true) = (differs(truth), before.is_none_or(|before| differs(before).is_some())) {
                return Err(format!("row {row} alone: {difference}; {}", refusal()));
            }
        }
    }
    Ok(match (all, want) {
        (Ok(_), Some(_)) => Fate::BothServe,
        // Statistics that nothing was chosen by, and counts that the pages themselves contradict.
        (Ok(_), None) => Fate::Sound,
        (Err(_), _) => refused,
    })
}
