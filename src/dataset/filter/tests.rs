use std::fs::File;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::*;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use super::*;
use crate::builder::{IndexBuilder, SchemaMode};
use rowdex_index::Index;

/// Rows whose values lie close together within a row group, with nulls, NaN, both zeros and long texts.
fn rows(rng: &mut ChaCha8Rng, from: i64, count: i64) -> RecordBatch {
    let nulls = rng.random_range(0..3) * 3;
    let spread = rng.random_range(0..4) * 2;
    let mut ids = Vec::new();
    for at in 0..count {
        let null = nulls > 0 && rng.random_range(0..10) < nulls;
        ids.push((!null || rng.random_range(0..10) == 0).then(|| (from + at) / 20 + rng.random_range(0..=spread) - 3));
    }
    let text = |id: &i64| match id.rem_euclid(5) {
        0 => String::new(),
        1 => format!("ä{id:05}"),
        2 => format!("{id:05}{}", "x".repeat(100)),
        3 => format!("{id:05}"),
        _ => format!("{id:05}\u{10ffff}{}", "\u{10ffff}".repeat(30)),
    };
    let float = |id: &i64| match id.rem_euclid(11) {
        0 => f64::NAN,
        1 => -0.0,
        2 => 0.0,
        3 => -f64::NAN,
        4 => f64::INFINITY,
        _ => *id as f64 / 2.0,
    };
    let of = |make: fn(&i64) -> i64| ids.iter().map(move |id| id.as_ref().map(make));
    let texts: Vec<Option<String>> = ids.iter().map(|id| id.as_ref().map(text)).collect();
    let lang =
        StringArray::from_iter(texts.iter().map(|text| text.as_ref().map(|text| text.get(..3))).map(Option::flatten));
    let meta = StructArray::from(vec![
        (Arc::new(arrow_schema::Field::new("lang", arrow_schema::DataType::Utf8, true)), Arc::new(lang) as ArrayRef),
        (
            Arc::new(arrow_schema::Field::new("n", arrow_schema::DataType::Int32, true)),
            Arc::new(Int32Array::from_iter(of(|id| *id).map(|id| id.map(|id| id as i32)))) as ArrayRef,
        ),
    ]);
    let days = ids.iter().map(|id| id.map(|id| id as i32));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from(ids.clone()))),
        ("small", Arc::new(Int8Array::from_iter(of(|id| id.rem_euclid(100)).map(|id| id.map(|id| id as i8))))),
        (
            "big",
            Arc::new(UInt64Array::from_iter(of(|id| *id).map(|id| id.map(|id| (id as u64).wrapping_add(1 << 63))))),
        ),
        ("x", Arc::new(Float64Array::from_iter(ids.iter().map(|id| id.as_ref().map(float))))),
        ("y", Arc::new(Float32Array::from_iter(ids.iter().map(|id| id.as_ref().map(|id| float(id) as f32))))),
        ("text", Arc::new(StringArray::from_iter(texts.iter()))),
        ("raw", Arc::new(BinaryArray::from_iter(texts.iter().map(|text| text.as_ref().map(String::as_bytes))))),
        ("kind", Arc::new(texts.iter().map(|text| text.as_deref()).collect::<DictionaryArray<Int32Type>>())),
        ("flag", Arc::new(BooleanArray::from_iter(of(|id| id / 50 % 2).map(|bit| bit.map(|bit| bit == 0))))),
        ("day", Arc::new(Date32Array::from_iter(days))),
        ("at", Arc::new(TimestampMillisecondArray::from_iter(of(|id| id * 86_400_000)).with_timezone("Europe/Berlin"))),
        (
            "price",
            Arc::new(
                Decimal128Array::from_iter(of(|id| *id).map(|id| id.map(i128::from)))
                    .with_precision_and_scale(12, 2)
                    .unwrap(),
            ),
        ),
        ("meta", Arc::new(meta)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

fn write(folder: &TempDir, name: &str, batch: &RecordBatch, group: usize, statistics: EnabledStatistics) {
    let path = folder.path().join("data").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group))
        .set_statistics_truncate_length(Some(4))
        .set_column_index_truncate_length(Some(4))
        .set_data_page_row_count_limit(7)
        .set_write_batch_size(7)
        .set_statistics_enabled(statistics)
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// A term, compared somehow with something near the values that there are.
fn predicate(rng: &mut ChaCha8Rng, most: i64, depth: u32) -> String {
    if depth > 0 && rng.random_range(0..3) == 0 {
        let (a, b) = (predicate(rng, most, depth - 1), predicate(rng, most, depth - 1));
        return match rng.random_range(0..4) {
            0 => format!("({a} or {b})"),
            1 => format!("not ({a})"),
            2 => format!("(({a}) is not true and {b})"),
            _ => format!("({a} and {b})"),
        };
    }
    let id = rng.random_range(-3..most + 3);
    let op = ["=", "<>", "<", "<=", ">", ">="][rng.random_range(0..6)];
    let half = id as f64 / 2.0;
    let date = arrow_array::temporal_conversions::date32_to_datetime(id as i32).unwrap().date();
    let texts = [String::new(), format!("ä{id:05}"), format!("{id:05}"), format!("{id:05}x"), format!("{id:03}")];
    let text = &texts[rng.random_range(0..5)];
    let term = ["text", "kind", "meta.lang"][rng.random_range(0..3)];
    match rng.random_range(0..18) {
        0 | 1 => format!("id {op} {id}"),
        2 => format!("small {op} {}", id % 100),
        3 => format!("big {op} {}", (id.max(0) as u64).wrapping_add(1 << 63)),
        4 => format!("x {op} {half}"),
        5 => format!("y {op} {half}"),
        6 => format!("x {op} 0.0"),
        7 | 8 => format!("{term} {op} '{text}'"),
        9 => format!("raw {op} cast('{text}' as bytea)"),
        10 => format!("{term} like '{text}%'"),
        11 => format!("flag {op} true"),
        12 => format!("day {op} '{date}'"),
        13 => format!("at {op} '{date}T01:00:00Z'"),
        14 => format!("price between {} and {}", id as f64 / 100.0, (id + 5) as f64 / 100.0),
        15 => format!("{} is null", ["id", "x", "text", "meta.n", "meta", "part", "late"][rng.random_range(0..7)]),
        16 => format!("id not in ({id}, {}, 7)", id + 1),
        _ => format!("meta.n {op} {id} and part = {}", id % 2),
    }
}

#[test]
fn what_footers_decide_is_what_the_rows_decide() {
    let (mut decided, mut partly, mut by_pages) = (0, 0, 0);
    for seed in 0..4 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let folder = TempDir::new().unwrap();
        let mut from = 0;
        for file in 0..4 {
            let count = rng.random_range(1..400);
            let mut batch = rows(&mut rng, from, count);
            if file == 1 {
                // Another order of columns, without one, with one more, and a narrower one.
                let narrow = arrow_cast::cast(batch.column(0), &arrow_schema::DataType::Int32).unwrap();
                let columns = batch
                    .columns()
                    .iter()
                    .zip(batch.schema().fields().clone().iter())
                    .skip(2)
                    .rev()
                    .map(|(column, field)| (field.name().clone(), Arc::clone(column)))
                    .collect::<Vec<_>>();
                let more = [("late".to_owned(), Arc::clone(&narrow)), ("id".to_owned(), narrow)];
                let columns = columns.into_iter().chain(more).map(|(name, column)| (name, column, true));
                batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
            }
            let statistics = if file == 2 { EnabledStatistics::None } else { EnabledStatistics::Page };
            write(&folder, &format!("part={}/{file}.parquet", file % 2), &batch, 50, statistics);
            from += count;
        }
        let index = folder.path().join("train.rdx");
        IndexBuilder::new([folder.path().join("data")]).with_schema_mode(SchemaMode::Union).build(&index).unwrap();
        let dataset = Dataset::builder(Index::open(index).unwrap()).with_threads(2).open().unwrap();
        let some = IdSet::filter(dataset.len(), |row| row % 3 == 0).unwrap();
        for _ in 0..30 {
            let text = predicate(&mut rng, from / 20, 2);
            let filter = dataset.filter(&text).unwrap_or_else(|error| panic!("{error}"));
            let (read, all) = filter.clone().with_pruning(false).run(&|_| ()).unwrap_or_else(|error| panic!("{error}"));
            let (pruned, report) = filter.run(&|_| ()).unwrap();
            assert_eq!(read, pruned, "seed {seed}: {text}");
            assert_eq!((all.row_groups_all, all.row_groups_none), (0, 0));
            by_pages += report.rows_by_pages;
            decided += report.row_groups_all + report.row_groups_none;
            partly += u64::from(report.row_groups_all > 0 && report.row_groups_none > 0);
            assert_eq!(filter.of(&some).rows().unwrap(), read.intersection(&some).unwrap(), "seed {seed}: {text}");
        }
    }
    assert!(decided > 200 && partly > 5 && by_pages > 1000, "{decided} {partly} {by_pages}");
}

#[test]
fn a_column_that_is_not_there_is_told_before_anything_is_read() {
    let folder = TempDir::new().unwrap();
    let batch = rows(&mut ChaCha8Rng::seed_from_u64(0), 0, 50);
    write(&folder, "a.parquet", &batch, 50, EnabledStatistics::Chunk);
    let index = folder.path().join("train.rdx");
    IndexBuilder::new([folder.path().join("data")]).build(&index).unwrap();
    std::fs::remove_dir_all(folder.path().join("data")).unwrap();
    let dataset = Dataset::open(index).unwrap();
    let error = dataset.filter("txet = 'x'").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("did you mean \"text\"?"), "{error}");
    assert_eq!(dataset.filter("text = 'x'").unwrap().rows().unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn pages_that_the_page_index_decides_are_not_read() {
    let folder = TempDir::new().unwrap();
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..20_000));
    let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
    std::fs::create_dir_all(folder.path().join("data")).unwrap();
    let properties = WriterProperties::builder().set_data_page_row_count_limit(500).set_write_batch_size(500);
    let properties = properties.set_dictionary_enabled(false).build();
    let file = File::create(folder.path().join("data/a.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let index = folder.path().join("train.rdx");
    IndexBuilder::new([folder.path().join("data")]).build(&index).unwrap();
    let dataset = Dataset::open(index).unwrap();
    let (kept, report) = dataset.filter("id >= 7100 and id < 7300").unwrap().run(&|_| ()).unwrap();
    assert!(kept.ranges().eq(std::iter::once(7100..7300)));
    assert_eq!((report.rows_by_pages, report.rows_evaluated), (19_500, 500));
    assert!(report.bytes_read < 20_000, "{}", report.bytes_read);
    for (constant, rows) in [("1 = 1", 20_000), ("1 = 2", 0), ("null", 0)] {
        let filter = dataset.filter(constant).unwrap();
        assert_eq!(filter.rows().unwrap().len(), rows, "{constant}");
        assert_eq!(filter.with_pruning(false).rows().unwrap().len(), rows, "{constant}");
    }
    let (kept, report) = dataset.filter("id >= 500").unwrap().run(&|_| ()).unwrap();
    assert_eq!((kept.len(), report.rows_evaluated), (19_500, 0));
}
