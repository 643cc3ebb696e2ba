//! How much memory a loader and a rewrite really take, as the kernel sees it: what is resident, whatever the allocator
//! does with it. Each runs in a process of its own.
//!
//! `ROWDEX_LONG=1` runs the shapes at full size, and `ROWDEX_SHAPES=bool,blobs` only some of them.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot set up fails")]

mod rewriting;

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array,
    ListArray, RecordBatch, StringArray, UInt8Array,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use rowdex::order::Global;
use rowdex::{Dataset, DistributedSampler, IndexBuilder, Loader, Shard};

/// As in the shared library.
#[global_allocator]
static ALLOCATOR: rowdex::MappedBlocks = rowdex::MappedBlocks::new();

const MIB: u64 = 1 << 20;

/// Bytes that are kept of a column of a row group: what the footer says of it.
const FOOTER: u64 = 40;

/// Bytes that are kept of a column: its type in several schemas, and the headers of its arrays in batches.
const COLUMN: u64 = 2 << 10;

/// Threads of every loader.
const THREADS: usize = 2;

struct Shape {
    name: &'static str,
    batch: fn(Range<i64>) -> RecordBatch,
    has_dictionaries: bool,
    /// Rows of a row group, all rows and budgets in KiB, in the gate and at full size.
    group_rows: [i64; 2],
    rows: [i64; 2],
    memory: [&'static [u64]; 2],
    batch_rows: usize,
    is_compressed: bool,
}

const SHAPES: [Shape; 13] = [
    Shape {
        name: "tab",
        batch: tab,
        group_rows: [100_000, 400_000],
        rows: [1_000_000, 10_000_000],
        memory: [&[8_192], &[65_536, 204_800]],
        batch_rows: 256,
        is_compressed: true,
        has_dictionaries: false,
    },
    Shape {
        name: "uint8",
        batch: bytes,
        group_rows: [200_000, 1_048_576],
        rows: [2_000_000, 60_000_000],
        memory: [&[512], &[16_384, 40_960]],
        batch_rows: 256,
        is_compressed: true,
        has_dictionaries: false,
    },
    Shape {
        name: "bool",
        batch: flags,
        group_rows: [200_000, 1_048_576],
        rows: [2_000_000, 30_000_000],
        memory: [&[128], &[2_048, 3_072]],
        batch_rows: 256,
        is_compressed: true,
        has_dictionaries: false,
    },
    Shape {
        name: "int32",
        batch: numbers,
        group_rows: [100_000, 1_048_576],
        rows: [1_000_000, 30_000_000],
        memory: [&[1_024], &[32_768, 65_536]],
        batch_rows: 256,
        is_compressed: true,
        has_dictionaries: false,
    },
    Shape {
        name: "columns",
        batch: columns,
        group_rows: [100, 200],
        rows: [1_000, 4_000],
        memory: [&[6_144], &[24_576, 51_200]],
        batch_rows: 32,
        is_compressed: true,
        has_dictionaries: false,
    },
    Shape {
        name: "images",
        batch: images,
        group_rows: [100, 100],
        rows: [2_000, 15_000],
        memory: [&[8_192], &[40_960, 153_600]],
        batch_rows: 64,
        is_compressed: false,
        has_dictionaries: false,
    },
    Shape {
        name: "large groups",
        batch: pairs,
        group_rows: [500_000, 2_000_000],
        rows: [1_500_000, 10_000_000],
        memory: [&[6_144], &[65_536, 102_400]],
        batch_rows: 256,
        is_compressed: true,
        has_dictionaries: false,
    },
    Shape {
        name: "blobs",
        batch: blobs,
        group_rows: [8, 8],
        rows: [80, 400],
        memory: [&[20_480], &[40_960, 204_800]],
        batch_rows: 4,
        is_compressed: false,
        has_dictionaries: false,
    },
    Shape {
        name: "strings",
        batch: strings,
        group_rows: [10_000, 20_000],
        rows: [80_000, 2_000_000],
        memory: [&[2_048], &[40_960, 122_880]],
        batch_rows: 256,
        is_compressed: true,
        has_dictionaries: false,
    },
    Shape {
        name: "tokens",
        batch: tokens,
        group_rows: [1_000, 2_000],
        rows: [10_000, 100_000],
        memory: [&[5_120], &[40_960, 122_880]],
        batch_rows: 64,
        is_compressed: true,
        has_dictionaries: false,
    },
    Shape {
        name: "narrow",
        batch: narrow,
        group_rows: [5_000, 20_000],
        rows: [40_000, 1_000_000],
        memory: [&[6_144], &[65_536, 204_800]],
        batch_rows: 256,
        is_compressed: true,
        has_dictionaries: false,
    },
    Shape {
        name: "text columns",
        batch: texts,
        group_rows: [100, 100],
        rows: [1_000, 4_000],
        memory: [&[8_192], &[8_192, 16_384]],
        batch_rows: 32,
        is_compressed: true,
        has_dictionaries: false,
    },
    Shape {
        name: "word columns",
        batch: words,
        group_rows: [100, 100],
        rows: [1_000, 4_000],
        memory: [&[4_096], &[8_192, 32_768]],
        batch_rows: 32,
        is_compressed: true,
        has_dictionaries: true,
    },
];

fn mixed(row: i64) -> u64 {
    let z = (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn one(column: impl Into<ArrayRef>) -> RecordBatch {
    RecordBatch::try_from_iter([("value", column.into())]).unwrap()
}

fn bytes(rows: Range<i64>) -> RecordBatch {
    one(Arc::new(UInt8Array::from_iter_values(rows.map(|row| (mixed(row) >> 40) as u8))) as ArrayRef)
}

fn flags(rows: Range<i64>) -> RecordBatch {
    one(Arc::new(rows.map(|row| Some(mixed(row) >> 63 > 0)).collect::<BooleanArray>()) as ArrayRef)
}

fn numbers(rows: Range<i64>) -> RecordBatch {
    one(Arc::new(Int32Array::from_iter_values(rows.map(|row| (mixed(row) >> 32) as i32))) as ArrayRef)
}

fn pairs(rows: Range<i64>) -> RecordBatch {
    let floats = Float64Array::from_iter_values(rows.clone().map(|row| mixed(row) as f64));
    let columns: [(&str, ArrayRef); 2] =
        [("id", Arc::new(Int64Array::from_iter_values(rows))), ("x", Arc::new(floats))];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Ten columns of numbers, some of which compress.
fn tab(rows: Range<i64>) -> RecordBatch {
    let column = |number: i64| -> ArrayRef {
        let value = |row: i64| mixed(row * 10 + number);
        let rows = rows.clone();
        match number % 4 {
            0 => Arc::new(Int64Array::from_iter_values(rows)),
            1 => Arc::new(Float64Array::from_iter_values(rows.map(|row| value(row) as f64))),
            2 => Arc::new(Int32Array::from_iter_values(rows.map(|row| (value(row) >> 55) as i32))),
            _ => Arc::new(rows.map(|row| (row % 7 > 0).then_some((value(row) >> 40) as f32)).collect::<Float32Array>()),
        }
    };
    RecordBatch::try_from_iter_with_nullable((0..10).map(|number| (format!("c{number}"), column(number), true)))
        .unwrap()
}

fn columns(rows: Range<i64>) -> RecordBatch {
    let column = |number: i64| -> ArrayRef {
        let value = |row: i64| (mixed(row * 5000 + number) >> 40) as f32;
        Arc::new(Float32Array::from_iter_values(rows.clone().map(value)))
    };
    RecordBatch::try_from_iter((0..5000).map(|number| (format!("c{number}"), column(number)))).unwrap()
}

fn texts(rows: Range<i64>) -> RecordBatch {
    string_columns(rows, |value| format!("{value:019x}"))
}

/// Words of which a row group has each several times.
fn words(rows: Range<i64>) -> RecordBatch {
    string_columns(rows, |value| format!("{:x}", value % 8))
}

fn string_columns(rows: Range<i64>, text: fn(u64) -> String) -> RecordBatch {
    let column = |number: i64| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(rows.clone().map(|row| text(mixed(row * 3000 + number) >> 8))))
    };
    RecordBatch::try_from_iter((0..3000).map(|number| (format!("c{number}"), column(number)))).unwrap()
}

fn narrow(rows: Range<i64>) -> RecordBatch {
    let column = |number: i64| -> ArrayRef {
        let value = |row: i64| mixed(row * 200 + number);
        let rows = rows.clone();
        match number % 4 {
            0 => Arc::new(Int8Array::from_iter_values(rows.map(|row| (value(row) >> 60) as i8))),
            1 => Arc::new(Int16Array::from_iter_values(rows.map(|row| (value(row) >> 50) as i16))),
            2 => Arc::new(rows.map(|row| (row % 7 > 0).then_some((value(row) >> 40) as i32)).collect::<Int32Array>()),
            _ => Arc::new(rows.map(|row| Some(value(row) >> 63 > 0)).collect::<BooleanArray>()),
        }
    };
    RecordBatch::try_from_iter((0..200).map(|number| (format!("c{number}"), column(number)))).unwrap()
}

/// Random bytes of about so many, half as many at least.
fn filled(row: i64, about: usize) -> Vec<u8> {
    let length = about / 2 + mixed(row) as usize % about;
    (0..length as i64 / 8).flat_map(|word| mixed(row * 1_000_003 + word).to_le_bytes()).collect()
}

fn images(rows: Range<i64>) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone()));
    let images: ArrayRef = Arc::new(BinaryArray::from_iter_values(rows.map(|row| filled(row, 20_000))));
    RecordBatch::try_from_iter([("id", ids), ("image", images)]).unwrap()
}

fn blobs(rows: Range<i64>) -> RecordBatch {
    one(Arc::new(BinaryArray::from_iter_values(rows.map(|row| filled(row, 1_000_000)))) as ArrayRef)
}

fn strings(rows: Range<i64>) -> RecordBatch {
    let text = |row: i64| format!("{:x} ", mixed(row)).repeat(1 + mixed(row) as usize % 9);
    let short = StringArray::from_iter_values(rows.clone().map(|row| format!("{:x}", mixed(row) >> 40)));
    let long: StringArray = rows.map(|row| (row % 9 > 0).then(|| text(row))).collect();
    let columns: [(&str, ArrayRef); 2] = [("short", Arc::new(short)), ("long", Arc::new(long))];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn tokens(rows: Range<i64>) -> RecordBatch {
    let lengths = rows.clone().map(|row| mixed(row) as usize % 1000);
    let offsets = OffsetBuffer::from_lengths(lengths);
    let tokens: ScalarBuffer<i32> =
        (0..*offsets.last().unwrap()).map(|i| (mixed(rows.start + i64::from(i)) >> 48) as i32).collect();
    let item = Arc::new(Field::new_list_field(DataType::Int32, false));
    let lists = ListArray::new(item, offsets, Arc::new(Int32Array::new(tokens, None)), None);
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows));
    RecordBatch::try_from_iter([("id", ids), ("tokens", Arc::new(lists) as ArrayRef)]).unwrap()
}

/// Writes a file of the shape and indexes it.
fn written(shape: &Shape, size: usize, folder: &Path) -> PathBuf {
    let (rows, group_rows) = (shape.rows[size], shape.group_rows[size]);
    let (path, index) = (folder.join("a.parquet"), folder.join("a.rdx"));
    let schema = (shape.batch)(0..1).schema();
    let compression = if shape.is_compressed { Compression::SNAPPY } else { Compression::UNCOMPRESSED };
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows as usize))
        .set_compression(compression)
        .set_dictionary_enabled(shape.has_dictionaries)
        .build();
    let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), schema, Some(properties)).unwrap();
    let step = group_rows.min(100_000);
    for start in (0..rows).step_by(step as usize) {
        writer.write(&(shape.batch)(start..rows.min(start + step))).unwrap();
    }
    writer.close().unwrap();
    IndexBuilder::new([path]).build(&index).unwrap();
    index
}

/// Bytes of memory that this process has for itself, or shares as memory.
fn resident() -> u64 {
    resident_of("self").unwrap()
}

/// The same of another process; `None` once it has none.
fn resident_of(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let of = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    };
    Some((of("RssAnon:")? + of("RssShmem:")?) << 10)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}

fn number(name: &str) -> u64 {
    std::env::var(name).unwrap().parse().unwrap()
}

/// In a process of its own: tells what a loader took.
#[test]
#[ignore = "run by the others"]
fn one_loader() {
    static PEAK: AtomicU64 = AtomicU64::new(0);
    static OVER: AtomicBool = AtomicBool::new(false);
    let before = resident();
    let watch = std::thread::spawn(|| {
        while !OVER.load(Ordering::Relaxed) {
            PEAK.fetch_max(resident(), Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let dataset = Dataset::open(std::env::var("ROWDEX_INDEX").unwrap()).unwrap();
    let orders = Arc::new(Global::new(dataset.len(), 1).unwrap());
    let (shard, batch_rows) = (Shard::new(0, 1).unwrap(), number("ROWDEX_BATCH"));
    let mut sampler = DistributedSampler::new(orders, shard, batch_rows as usize).unwrap();
    if std::env::var_os("ROWDEX_LONG").is_some() {
        // In the last quarter of an epoch, so that the rows are of two.
        sampler.resume(&sampler.state_after(0, dataset.len() / batch_rows * 3 / 4).unwrap()).unwrap();
    }
    let builder = Loader::builder(&dataset, sampler).memory(number("ROWDEX_MEMORY")).threads(THREADS);
    let (predicted, mut loader) = (builder.estimate().unwrap(), builder.build().unwrap());
    let began = std::time::Instant::now();
    let (mut rows, most) = (0, number("ROWDEX_ROWS"));
    while rows < most {
        rows += loader.next().unwrap().unwrap().records.num_rows() as u64;
    }
    let took = began.elapsed();
    let stats = loader.stats();
    OVER.store(true, Ordering::Relaxed);
    watch.join().unwrap();
    let left = resident().saturating_sub(before);
    drop((loader, dataset));
    println!(
        "took {} counted {} left {left} dropped {} planned {} passes {} decodes {} ms {}",
        PEAK.load(Ordering::Relaxed).saturating_sub(before),
        stats.peak_bytes,
        resident().saturating_sub(before),
        predicted.peak_bytes,
        predicted.passes,
        stats.decodes,
        took.as_millis(),
    );
}

#[test]
fn what_is_resident_of_a_loader_is_what_it_was_given_and_what_is_told_besides() {
    let only = std::env::var("ROWDEX_SHAPES").ok();
    let is_long = std::env::var_os("ROWDEX_LONG").is_some();
    let size = usize::from(is_long);
    let chosen = |shape: &&Shape| only.as_ref().is_none_or(|only| only.split(',').any(|name| name == shape.name));
    let mut missed = Vec::new();
    for shape in SHAPES.iter().filter(chosen) {
        let folder = tempfile::tempdir().unwrap();
        let (rows, group_rows) = (shape.rows[size], shape.group_rows[size]);
        let index = written(shape, size, folder.path());
        let decoded = Dataset::open(&index).unwrap().decoded_bytes();
        let group = decoded * group_rows as u64 / rows as u64;
        // What a dataset keeps of the footers of its files.
        let columns = (shape.batch)(0..1).num_columns() as u64;
        // What is promised; most short runs are held to less, because 32 MiB would hide what they hold.
        let is_held_to_promise = is_long || ["text columns", "word columns"].contains(&shape.name);
        let constant = if is_held_to_promise { 32 * MIB } else { 20 * MIB };
        let footers = columns * (COLUMN + (rows / group_rows) as u64 * FOOTER);
        for memory in shape.memory[size] {
            let memory = memory << 10;
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "one_loader", "--ignored", "--nocapture", "--test-threads=1"])
                .env("ROWDEX_INDEX", &index)
                .env("ROWDEX_MEMORY", memory.to_string())
                .env("ROWDEX_BATCH", shape.batch_rows.to_string())
                .env("ROWDEX_ROWS", (if is_long { rows / 2 } else { rows * 3 / 4 }).to_string())
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let told = text.lines().find_map(|line| line.split_once("took ")).map(|(_, rest)| rest.to_owned());
            let Some(told) = told else { panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)) };
            let took: u64 = told.split(' ').next().unwrap().parse().unwrap();
            let allowed = memory + memory / 8 + 2 * group + footers + constant + THREADS as u64 * MIB;
            let [took_mib, allowed_mib, group] = [took, allowed, group].map(mib);
            let line = format!(
                "{} memory {:.1} of {:.0} group {group:.1}: {took_mib:.1} of {allowed_mib:.1} MiB allowed; {told}",
                shape.name,
                mib(memory),
                mib(decoded),
            );
            println!("{line}");
            if took > allowed {
                missed.push(line);
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
