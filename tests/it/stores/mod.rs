//! The same data from a local folder and from real servers of S3, Azure and HTTP, and one that stands for Google's: the
//! same rows, from a fair network and a foul one.
//!
//! The S3 server is `s3s-fs`, which `tools/stores/setup.sh` builds below `target/`; `tools/stores/more.sh` finds or
//! installs nginx and Azurite. Where one cannot be had these tests say what they leave out and pass, unless
//! `ROWDEX_STORES` is `required` (an S3 server) or `all`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod command;
mod credentials;
mod disk_cache;
mod faults;
mod gcs;
mod http;
mod hub;
mod hub_server;
mod listing;
mod proxy;
mod reading;
mod redirects;
mod server;
mod shuffled;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

/// Rows `first..first + rows`, whose values follow from their number.
fn rows(first: i64, rows: i64) -> RecordBatch {
    let ids = || first..first + rows;
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(ids()));
    let text: ArrayRef = Arc::new(StringArray::from_iter(ids().map(|id| (id % 7 != 3).then(|| format!("row {id}")))));
    let noise = |id: i64| {
        (0..100).map(move |at| (id.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) >> (at % 57)) as u8 ^ at as u8)
    };
    let blob: ArrayRef = Arc::new(BinaryArray::from_iter_values(ids().map(|id| noise(id).collect::<Vec<_>>())));
    RecordBatch::try_from_iter([("id", id), ("text", text), ("blob", blob)]).unwrap()
}

/// Writes a file of these rows, in row groups of 500, with pages of 50 rows.
fn write(path: &Path, batch: &RecordBatch) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(500))
        .set_data_page_row_count_limit(50)
        .set_write_batch_size(50)
        .set_dictionary_enabled(false)
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// The data of most tests: two folders, four files, 5003 rows in 12 row groups.
const FILES: [(&str, i64, i64); 4] = [
    ("a/1.parquet", 0, 1000),
    ("a/2 x#%.parquet", 1000, 1),
    ("b/c/3.parquet", 1001, 2002),
    ("b/c/é.parquet", 3003, 2000),
];
const ROWS: u64 = 5003;

fn write_data(folder: &Path) {
    for (name, first, count) in FILES {
        write(&folder.join(name), &rows(first, count));
    }
    std::fs::write(folder.join("a/_SUCCESS"), "").unwrap();
    std::fs::write(folder.join("a/readme.txt"), "not data").unwrap();
}
