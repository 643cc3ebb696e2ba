//! Index files that somebody overwrites or cuts off in place while a process has them open.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use rowdex::index::order_file;
use rowdex::order::{Explicit, Order};
use rowdex::{Dataset, ErrorKind, Index, IndexBuilder};
use tempfile::TempDir;

use crate::alone;

const FILES: i64 = 20;
const ROWS: i64 = 50;

/// Tells the process that holds the index open what is done to it.
const CHANGE: &str = "ROWDEX_TEST_CHANGE";

fn write(path: &Path, first: i64, rows: i64) {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + rows));
    let batch = RecordBatch::try_from_iter([("id", column)]).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(10)).build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Files with an index.
fn place() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    for file in 0..FILES {
        write(&folder.path().join(format!("data/{file:02}.parquet")), file * ROWS, ROWS);
    }
    let index = folder.path().join("train.rdx");
    IndexBuilder::new([folder.path().join("data")]).build(&index).unwrap();
    (folder, index)
}

/// Writes to the file that is there, as `cp` does.
fn overwrite(path: &Path, bytes: &[u8]) {
    let mut file = OpenOptions::new().write(true).truncate(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
}

fn change(folder: &Path, index: &Path, how: &str) {
    let bytes = fs::read(index).unwrap();
    match how {
        "cut off" => overwrite(index, &bytes[..100]),
        "emptied" => overwrite(index, &[]),
        "zeros" => overwrite(index, &vec![0; bytes.len()]),
        "another index" => {
            fs::create_dir(folder.join("other")).unwrap();
            write(&folder.join("other/00.parquet"), 7_000_000, 5 * ROWS);
            let other = folder.join("other.rdx");
            IndexBuilder::new([folder.join("other")]).build(&other).unwrap();
            overwrite(index, &fs::read(other).unwrap());
        }
        other => panic!("{other} is not known"),
    }
}

#[test]
fn an_index_that_is_overwritten_or_cut_off_while_it_is_open_goes_on_serving_the_rows_it_was_opened_with() {
    for how in ["cut off", "emptied", "zeros", "another index"] {
        alone::succeeded(&alone::run(
            "changed_index::serves_from_an_index_that_changes",
            None,
            &[(CHANGE, how.as_ref())],
        ));
    }
}

#[test]
#[ignore = "is run in a process of its own, which must not be killed"]
fn serves_from_an_index_that_changes() {
    let how = std::env::var(CHANGE).unwrap();
    let (folder, path) = place();
    let index = Index::open(&path).unwrap();
    let fingerprint = Index::open(&path).unwrap().fingerprint();
    let dataset = Dataset::builder(index.clone()).with_cache_bytes(0).open().unwrap();
    assert_eq!(dataset.get(3).unwrap().num_rows(), 1);
    change(folder.path(), &path, &how);
    // Most of the files are opened only now, and their footers were in the index.
    let rows: Vec<u64> = (0..(FILES * ROWS) as u64).collect();
    let served = dataset.take(&rows).unwrap();
    assert_eq!(served.column(0).as_primitive::<Int64Type>().values().to_vec(), (0..FILES * ROWS).collect::<Vec<_>>());
    assert_eq!(index.fingerprint(), fingerprint);
    for error in [index.footer(7).unwrap_err(), index.verify().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidIndex, "{error}");
        assert!(error.to_string().contains("train.rdx") && error.hint().is_some(), "{error}");
    }
}

#[test]
fn an_index_that_is_replaced_by_renaming_while_it_is_open_stays_the_old_one() {
    let (folder, path) = place();
    let index = Index::open(&path).unwrap();
    let footer = Index::open(&path).unwrap().footer(7).unwrap();
    fs::write(folder.path().join("new.rdx"), b"no index").unwrap();
    fs::rename(folder.path().join("new.rdx"), &path).unwrap();
    assert_eq!(index.footer(7).unwrap(), footer);
    index.verify().unwrap();
}

#[test]
fn an_order_file_that_is_cut_off_while_it_is_open_keeps_its_row_ids() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("order.bin");
    let ids: Vec<u8> = (0..10_000_u64).flat_map(u64::to_le_bytes).collect();
    fs::write(&path, &ids).unwrap();
    let orders = Explicit::of(order_file(&path).unwrap(), 10_000).unwrap();
    overwrite(&path, &[]);
    assert_eq!(orders.epoch(0).unwrap().row(9_999), Some(9_999));
}
