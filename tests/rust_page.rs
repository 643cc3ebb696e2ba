//! The example of `docs/reference/rust.md` is `tests/data/rust_page.rs`, and it runs, as that of two loaders does. This
//! is a test program of its own, because the example works in the current folder.

use std::fs;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;

mod example {
    include!("data/rust_page.rs");

    pub(super) fn run() -> rowdex::Result<()> {
        main()
    }
}

#[expect(dead_code, reason = "its main takes arguments; the test calls what main calls")]
#[path = "../examples/side_by_side.rs"]
mod side_by_side;

#[test]
fn the_example_of_the_manual_runs_as_it_is_written() {
    let root = env!("CARGO_MANIFEST_DIR");
    let page = fs::read_to_string(format!("{root}/docs/reference/rust.md")).unwrap();
    let shown = page.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(shown, fs::read_to_string(format!("{root}/tests/data/rust_page.rs")).unwrap());

    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    for part in 0..3 {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(part * 5_000..(part + 1) * 5_000));
        let rows = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        let file = fs::File::create(folder.path().join(format!("data/{part}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
    }
    std::env::set_current_dir(folder.path()).unwrap();
    example::run().unwrap();
    rowdex::IndexBuilder::new(["data"]).build("rows.rdx").unwrap();
    let rows = (0..4).map(|rank| side_by_side::served("rows.rdx", "rows.rdx", rank, 4).unwrap());
    assert_eq!(rows.sum::<usize>(), 15_000);
}
