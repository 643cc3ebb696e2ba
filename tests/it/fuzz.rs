//! Bytes from outside, damaged at random: an index, and Parquet files with their footers and pages. Whatever they are,
//! there is an answer or an error, never a panic.
//!
//! Each target runs for `ROWDEX_FUZZ_SECONDS` (3 unless set), from a seed that a failure names and `ROWDEX_FUZZ_SEED`
//! repeats. `RUSTFLAGS="--cfg fuzzing"` makes damaged indexes pass their checksums, and so reaches what is behind them.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::datatypes::Int32Type;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::{WriterProperties, WriterVersion};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use rowdex::dataset::Staleness;
use rowdex::{Dataset, Index, IndexBuilder};

const ROWS: i64 = 400;

/// Damages bytes in one of the ways in which files are damaged: bits, bytes, numbers, pieces moved, an end that is
/// missing.
fn damage(bytes: &mut Vec<u8>, draw: &mut ChaCha8Rng, keep_length: bool) {
    for _ in 0..draw.random_range(1..4) {
        let at = draw.random_range(0..bytes.len());
        let end = bytes.len().min(at + draw.random_range(1..16));
        match draw.random_range(0..6) {
            0 => bytes[at] ^= 1 << draw.random_range(0..8),
            1 => bytes[at] = draw.random(),
            2 => bytes[at..end].fill(0xFF),
            3 => bytes[at..end].fill(0),
            4 => {
                let from = draw.random_range(0..=bytes.len() - (end - at));
                bytes.copy_within(from..from + (end - at), at);
            }
            _ if keep_length => bytes[at] = bytes[at].wrapping_add(1),
            _ => bytes.truncate(at.max(1)),
        }
    }
}

/// Calls a target with ever new randomness until its time is over, and says how often.
fn run(mut target: impl FnMut(&mut ChaCha8Rng)) -> u64 {
    let given = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let limit = Duration::from_secs(given("ROWDEX_FUZZ_SECONDS").unwrap_or(3));
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let repeated = given("ROWDEX_FUZZ_SEED");
    let first = repeated.or(given("ROWDEX_RANDOM_SEED")).unwrap_or_else(now);
    let (started, mut seed, mut runs) = (Instant::now(), first, 0);
    loop {
        let mut draw = ChaCha8Rng::seed_from_u64(seed);
        if catch_unwind(AssertUnwindSafe(|| target(&mut draw))).is_err() {
            panic!("ROWDEX_FUZZ_SEED={seed} repeats this");
        }
        runs += 1;
        if repeated.is_some() || started.elapsed() >= limit {
            return runs;
        }
        seed = seed.wrapping_add(1);
    }
}

/// A file with pages of every encoding that writers choose by themselves, nulls, lists, and a page index.
fn write(path: &Path, compression: Compression, version: WriterVersion) {
    let some = |row: i64| (row % 5 != 0).then_some(row);
    let lists =
        (0..ROWS).map(|row| some(row).map(|row| (0..row % 4).map(|item| Some(item as i32)).collect::<Vec<_>>()));
    let columns: [(&str, ArrayRef); 5] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..ROWS))),
        ("score", Arc::new(Float64Array::from_iter((0..ROWS).map(|row| some(row).map(|row| row as f64))))),
        (
            "name",
            Arc::new(StringArray::from_iter((0..ROWS).map(|row| some(row).map(|row| format!("name {}", row % 9))))),
        ),
        ("flag", Arc::new(BooleanArray::from_iter((0..ROWS).map(|row| some(row).map(|row| row % 2 == 0))))),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_writer_version(version)
        .set_max_row_group_row_count(Some(150))
        .set_data_page_row_count_limit(40)
        .set_write_batch_size(20)
        .build();
    let mut writer = ArrowWriter::try_new(fs::File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

const KINDS: [(Compression, WriterVersion); 3] = [
    (Compression::UNCOMPRESSED, WriterVersion::PARQUET_1_0),
    (Compression::SNAPPY, WriterVersion::PARQUET_2_0),
    (Compression::LZ4_RAW, WriterVersion::PARQUET_1_0),
];

#[test]
fn a_damaged_index_is_refused_or_answers() {
    let whole =
        fs::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/data/index-1.0.rdx")).unwrap();
    let runs = run(|draw| {
        let mut bytes = whole.clone();
        damage(&mut bytes, draw, false);
        let is_whole = bytes == whole;
        if let Ok(index) = Index::from_bytes(bytes) {
            for row in 0..index.len().min(2_000) {
                let place = index.locate(row).unwrap();
                assert!(place.file < index.num_files());
            }
            assert_eq!(index.locate(index.len()), None);
            // What is behind checksums that damage passes may be anything.
            let is_sound = index.verify().is_ok();
            assert!(!is_sound || is_whole || cfg!(fuzzing));
            for file in 0..index.num_files() {
                assert!(index.footer(file).is_ok() || !is_sound || cfg!(fuzzing));
            }
        }
    });
    assert!(runs > 0, "{runs}");
}

#[test]
fn a_damaged_footer_is_refused_or_indexed() {
    let folder = tempfile::tempdir().unwrap();
    let (file, output) = (folder.path().join("a.parquet"), folder.path().join("out.rdx"));
    let whole = KINDS.map(|(compression, version)| {
        write(&file, compression, version);
        fs::read(&file).unwrap()
    });
    let runs = run(|draw| {
        let mut bytes = whole[draw.random_range(0..whole.len())].clone();
        let length = u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap()) as usize;
        let mut footer = bytes.split_off(bytes.len() - 8 - length);
        damage(&mut footer, draw, false);
        bytes.extend(footer);
        fs::write(&file, bytes).unwrap();
        if IndexBuilder::new([&file]).with_overwrite(true).build(&output).is_ok() {
            let index = Index::open(&output).unwrap();
            if let Ok(dataset) = Dataset::builder(index).with_cache_bytes(1 << 20).open() {
                let rows = [0, dataset.len() / 2, dataset.len().saturating_sub(1)];
                if let Ok(taken) = dataset.take(&rows) {
                    assert_eq!((taken.num_rows(), taken.schema()), (rows.len(), Arc::clone(dataset.schema())));
                }
            }
        }
    });
    assert!(runs > 0, "{runs}");
}

#[test]
fn damaged_pages_are_refused_or_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let mut kinds = Vec::new();
    for (i, (compression, version)) in KINDS.into_iter().enumerate() {
        let (file, index) = (data.join(format!("{i}.parquet")), folder.path().join(format!("{i}.rdx")));
        write(&file, compression, version);
        IndexBuilder::new([&file]).build(&index).unwrap();
        kinds.push((fs::read(&file).unwrap(), file, index));
    }
    let runs = run(|draw| {
        let (whole, file, index) = &kinds[draw.random_range(0..kinds.len())];
        let mut bytes = whole.clone();
        let footer = u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap()) as usize;
        let rest = bytes.split_off(bytes.len() - 8 - footer);
        damage(&mut bytes, draw, true);
        bytes.extend(rest);
        fs::write(file, bytes).unwrap();
        // Off, because the file is not what was indexed, which the other levels would say.
        let dataset = Dataset::builder(Index::open(index).unwrap())
            .with_check(Staleness::Off)
            .with_cache_bytes(0)
            .open()
            .unwrap();
        let rows: Vec<u64> = (0..draw.random_range(1..40)).map(|_| draw.random_range(0..ROWS as u64)).collect();
        for taken in [dataset.take(&rows), dataset.get(rows[0])].into_iter().flatten() {
            assert!(taken.num_rows() == rows.len() || taken.num_rows() == 1);
        }
    });
    assert!(runs > 0, "{runs}");
}
