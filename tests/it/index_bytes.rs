//! Index files from outside: old ones that must open for ever, and bytes that are no index.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::thread;

use rowdex::index::Location;
use rowdex::index::Root;
use rowdex::{ErrorKind, Index};

/// Saved sampler states hold it, so it never changes.
const FINGERPRINT: u64 = 9_474_308_051_744_252_352;

/// Written by format 1.0: three files, six row groups, every kind of container, footers and a partition column.
fn golden() -> Index {
    Index::open(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/data/index-1.0.rdx")).unwrap()
}

#[test]
fn an_index_of_format_1_0_opens_and_means_what_it_meant() {
    let index = golden();
    index.verify().unwrap();
    assert_eq!((index.len(), index.source_rows()), (543, 1959));
    assert_eq!(index.fingerprint(), FINGERPRINT);
    assert_eq!(*index.root(), Root { is_relative: true, path: "../data".to_owned() });
    assert_eq!(index.partition_columns(), ["year"]);
    assert_eq!(index.schema().fields().len(), 5);
    let paths: Vec<_> = index.files().map(|file| file.path()).collect();
    assert_eq!(paths, ["year=2023/a.parquet", "year=2023/empty.parquet", "year=__null__/ü.parquet"]);
    assert_eq!(index.footer(2).unwrap().unwrap().len(), 1600);
    let places = [(0, (0, 0, 0)), (299, (0, 0, 598)), (300, (0, 1, 10)), (490, (2, 0, 0)), (541, (2, 1, 500))];
    for (row, expected) in places {
        let Location { file, ordinal, row: source_row, .. } = index.locate(row).unwrap();
        assert_eq!((file, ordinal, source_row), expected, "row {row}");
    }
}

#[test]
fn clones_of_an_index_are_used_from_many_threads() {
    let index = golden();
    thread::scope(|scope| {
        for _ in 0..8 {
            let index = index.clone();
            scope.spawn(move || {
                let rows: Vec<_> = (0..index.len()).map(|row| index.locate(row).unwrap()).collect();
                assert!(rows.windows(2).all(|pair| pair[0].row_group <= pair[1].row_group));
            });
        }
    });
}

#[test]
fn bytes_that_are_no_index_are_refused_with_advice() {
    for bytes in [&b""[..], b"\x89", b"\x89RDX\r\n\x1a\n", b"PAR1", b"{}", &[0; 4096], &[0xFF; 4096]] {
        let error = Index::from_bytes(bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidIndex, "{error}");
        assert!(error.hint().is_some(), "{error}");
    }
}
