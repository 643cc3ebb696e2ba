//! Digests of rows, and the proof that two datasets have the same.

use std::fs;
use std::process::Stdio;

use serde_json::json;

use super::place::{Place, ROWS, rows_from};

/// The rows of [`Place::with_index`] in other files below `other`, in another order.
fn rearranged(place: &Place) {
    for (number, (first, rows)) in [(700, 303), (0, 300), (300, 400)].into_iter().enumerate() {
        place.write(&format!("other/{number}.parquet"), &rows_from(first, rows));
    }
}

#[test]
fn rows_are_the_same_in_other_files_and_another_order() {
    let place = Place::with_index();
    rearranged(&place);
    let report = place.json("prove --same-rows train.rdx other");
    assert_eq!((&report["a"]["rows"], &report["b"]["rows"]), (&json!(ROWS), &json!(ROWS)));
    assert_eq!(report["a"]["rows_digest"], report["b"]["rows_digest"]);
    assert_eq!(report["promises"].as_array().unwrap().len(), 1);
    assert_eq!(report["left_out"], json!([]));
    let text = place.run("prove --same-rows data other --threads 1").succeeds().text();
    assert!(text.contains("yes  every row of data is once in other"), "{text}");
    assert!(text.contains(report["a"]["rows_digest"].as_str().unwrap()), "{text}");
    // Row i of the data is row order(i) of the other, but in no order that is asked for here.
    place.run("prove --same-rows data other --order-of data --order sequential").fails();
    place.run("prove --same-rows data data --order-of data --order sequential").succeeds();
}

#[test]
fn data_is_compared_under_every_name_that_an_index_is_built_of() {
    let place = Place::with_index();
    fs::create_dir(place.path("all")).unwrap();
    place.write("all/one.pq", &rows_from(0, ROWS));
    place.write("two.PARQ", &rows_from(0, ROWS));
    for data in ["all", "all/", "all/one.pq", "two.PARQ", "data/part-[0-9].parq*"] {
        place.run(&format!("prove --same-rows train.rdx {data}")).succeeds();
    }
    fs::write(place.path("broken.rdx"), "no index").unwrap();
    place.run("prove --same-rows train.rdx broken.rdx").fails().complains(&["broken.rdx", "index"]);
    for missing in ["trian.rdx", "no/folder", "none.parquet"] {
        place.run(&format!("prove --same-rows train.rdx {missing}")).fails().complains(&[missing]);
    }
}

#[test]
fn the_row_that_differs_is_named() {
    let place = Place::with_index();
    rearranged(&place);
    place.write("other/1.parquet", &rows_from(1, 300));
    let outcome = place.run("prove --same-rows train.rdx other --json").complains(&[
        "2.parquet, row group 0",
        "the rows of other are not those of train.rdx",
        "row id 0 (part-0.parquet, row group 0, row 0) of train.rdx",
        "row id 603 (2.parquet, row group 0, row 0) of other",
    ]);
    assert_eq!(outcome.json()["ok"], json!(false));
    assert_eq!(outcome.json()["problem"]["file"], json!("2.parquet"));
    place.write("other/1.parquet", &rows_from(0, 299));
    place.run("prove --same-rows train.rdx other").fails().complains(&[
        "other has 1002 rows, and train.rdx 1003",
        "row id 299 (part-0.parquet, row group 3, row 8) of train.rdx is missing",
    ]);
}

#[test]
fn a_proof_that_fails_says_so_though_nobody_reads_it() {
    let place = Place::with_index();
    place.write("other/0.parquet", &rows_from(1, ROWS));
    fs::write(place.path("data/part-0.parquet"), "no longer Parquet").unwrap();
    for command in ["prove --same-rows other data/part-4.parquet --json", "verify train.rdx --json"] {
        let mut child = place.command(command).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(1), "{command}");
    }
}

#[test]
fn an_option_of_the_other_proof_is_refused_and_so_is_an_order_of_another_dataset() {
    let place = Place::with_index();
    for (options, said) in [
        ("--same-rows data data --world-size 2", "--world-size"),
        ("--same-rows data data --exact", "--exact"),
        ("--same-rows data data --seed 2", "without --order-of; leave out --seed"),
        ("train.rdx --same-rows data data", "leave out INDEX"),
        ("--same-rows data data --order-of train.rdx", "names neither of the two"),
        ("--columns id train.rdx", "--same-rows"),
        ("", "name an index"),
    ] {
        place.run(&format!("prove {options}")).exits_with_usage().complains(&[said]);
    }
    place.run("prove --same-rows data nowhere.rdx").fails().complains(&["nowhere.rdx"]);
}
