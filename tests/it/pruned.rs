//! How much of the data a condition reads where statistics decide most of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use rowdex::{Dataset, IndexBuilder};
use tempfile::TempDir;

const ROWS: i64 = 100_000;

fn scattered(id: i64) -> i64 {
    id.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64) >> 20
}

fn key(id: i64) -> String {
    format!("key {:016x}", scattered(id))
}

/// Rows sorted by `id`, with texts and numbers that are in no order.
fn dataset(folder: &TempDir, properties: WriterPropertiesBuilder) -> Dataset {
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..ROWS))),
        ("key", Arc::new(StringArray::from_iter_values((0..ROWS).map(key)))),
        ("score", Arc::new(Float64Array::from_iter_values((0..ROWS).map(|id| scattered(id) as f64)))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let file = std::fs::File::create(data.join("a.parquet")).unwrap();
    let properties = properties.set_dictionary_enabled(false).build();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    IndexBuilder::new([&data]).build(folder.path().join("i.rdx")).unwrap();
    Dataset::open(folder.path().join("i.rdx")).unwrap()
}

/// Rows that meet a condition, bytes read for it, and bytes read for it without leaving anything out.
fn read(dataset: &Dataset, condition: &str) -> (u64, u64, u64) {
    let filter = dataset.filter(condition).unwrap();
    let (kept, report) = filter.run(&|_| ()).unwrap();
    let (all, whole) = filter.clone().with_pruning(false).run(&|_| ()).unwrap();
    assert_eq!(kept, all, "{condition}");
    (kept.len(), report.bytes_read, whole.bytes_read)
}

#[test]
fn a_condition_that_statistics_leave_one_percent_of_reads_less_than_three_percent_of_the_bytes() {
    let by_groups = WriterProperties::builder().set_max_row_group_row_count(Some(1000));
    let by_pages = WriterProperties::builder().set_data_page_row_count_limit(500).set_write_batch_size(500);
    for (how, properties) in [("row groups", by_groups), ("pages", by_pages)] {
        let folder = TempDir::new().unwrap();
        let dataset = dataset(&folder, properties);
        // One percent of the rows, which lie in two of a hundred row groups or three of two hundred pages.
        for condition in ["id >= 43300 and id < 44300", "id between 43300 and 44299 and score <> 0.5"] {
            let (kept, read, whole) = read(&dataset, condition);
            assert_eq!(kept, 1000, "{how}: {condition}");
            assert!(read > 0 && read * 100 < whole * 3, "{how}: {condition}: {read} of {whole} bytes");
        }
    }
}
