//! Datasets of many files in a process that may have few of them open.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use parquet::arrow::ArrowWriter;
use rowdex::dataset::DiskCache;
use rowdex::dataset::Staleness;
use rowdex::{Dataset, ErrorKind, Index, IndexBuilder};
use tempfile::TempDir;

use crate::alone;

/// What the process may have open, and some files of which each dataset has more.
const LIMIT: u32 = 64;
const FILES: i64 = 150;
const ROWS: i64 = 3;

fn write(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    for file in 0..FILES {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(file * ROWS..(file + 1) * ROWS));
        let batch = RecordBatch::try_from_iter([("id", column)]).unwrap();
        let file = File::create(folder.join(format!("{file:04}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
}

fn ids(batch: &RecordBatch) -> Vec<i64> {
    batch.column(0).as_primitive::<Int64Type>().values().to_vec()
}

#[test]
fn many_datasets_of_many_files_are_built_read_and_verified_where_few_files_may_be_open() {
    alone::succeeded(&alone::run("open_files::serves_many_datasets", Some(LIMIT), &[]));
}

#[test]
#[ignore = "is run with a limit of open files"]
fn serves_many_datasets() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    write(&data);
    let rows: Vec<u64> = (0..(FILES * ROWS) as u64).rev().collect();
    let expected: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
    let mut datasets = Vec::new();
    for number in 0..5 {
        // A part of them reads every footer from its file, and one keeps what it decodes in a disk cache.
        let index = folder.path().join(format!("{number}.rdx"));
        IndexBuilder::new([&data]).with_footers(number % 2 == 0).build(&index).unwrap();
        let mut builder = Dataset::builder(Index::open(&index).unwrap()).with_threads(4).with_cache_bytes(0);
        if number == 3 {
            builder = builder.with_disk_cache(DiskCache::new(folder.path().join("disk_cache"), 1 << 30));
        }
        datasets.push(builder.open().unwrap());
    }
    for _ in 0..2 {
        for dataset in &datasets {
            assert_eq!(ids(&dataset.take(&rows).unwrap()), expected);
            assert_eq!(dataset.disk_cache_fault().map(|fault| fault.to_string()), None);
        }
    }
    let report = datasets[0].verify(Staleness::Deep, &|_| ()).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);

    // Something else takes all that is left: the datasets give their own files back.
    let index = Index::open(folder.path().join("0.rdx")).unwrap();
    let mut others = take_all(&folder.path().join("0.rdx"));
    others.truncate(others.len() - 6);
    let late = Dataset::builder(index).with_threads(0).with_cache_bytes(0).open().unwrap();
    assert_eq!(ids(&late.take(&rows).unwrap()), expected);
    others.extend(take_all(&folder.path().join("0.rdx")));
    IndexBuilder::new([&data]).with_threads(1).build(folder.path().join("late.rdx")).unwrap();

    // Where nothing is left to give back, the error says what to do.
    others.extend(take_all(&folder.path().join("0.rdx")));
    drop(datasets);
    drop(late);
    others.extend(take_all(&folder.path().join("0.rdx")));
    let error = Index::open(folder.path().join("0.rdx")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("ulimit -n"), "{error}");
}

/// Opens a file until the system refuses.
fn take_all(path: &Path) -> Vec<File> {
    std::iter::from_fn(|| File::open(path).ok()).collect()
}
