//! Which rows are served, and how often: skipping, splits, weights, classes and the size of epochs.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array};
use serde_json::{Value, json};

use super::place::Place;

/// A thousand rows in two files, with a class (90 %, 9 %, 1 %), a weight (0, 1, 2, 3), a user of ten rows, and gaps in
/// `gaps`.
pub(super) fn place() -> Place {
    let place = Place::new();
    for file in 0..2_i64 {
        let ids = || file * 500..(file + 1) * 500;
        let class = |id: i64| {
            if id % 100 == 37 {
                "rare"
            } else if id % 11 == 0 {
                "some"
            } else {
                "many"
            }
        };
        let columns: [(&str, ArrayRef); 5] = [
            ("id", Arc::new(Int64Array::from_iter_values(ids()))),
            ("class", Arc::new(StringArray::from_iter_values(ids().map(class)))),
            ("weight", Arc::new(Float64Array::from_iter_values(ids().map(|id| (id % 4) as f64)))),
            ("user", Arc::new(Int64Array::from_iter_values(ids().map(|id| id * 7 % 100)))),
            ("gaps", Arc::new(Int64Array::from_iter(ids().map(|id| (id != 617).then_some(id % 2))))),
        ];
        let batch =
            RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap();
        place.write(&format!("data/part-{file}.parquet"), &batch);
    }
    place.run("build data -o train.rdx").succeeds();
    place
}

fn epoch(place: &Place, options: &str) -> Value {
    place.json(&format!("epoch train.rdx --tail uneven --world-size 3 --batch-size 16 {options}"))
}

fn coverage(report: &Value) -> [u64; 4] {
    ["served", "distinct", "repeated", "missing"].map(|name| report["coverage"][name].as_u64().unwrap())
}

/// A view that `select` makes of the rows.
fn view(place: &Place, choice: &str) -> String {
    let name = format!("{}.rdx", choice.replace([' ', '/', '-', '=', ',', '.'], "_"));
    place.run(&format!("select train.rdx {choice} -o {name} --overwrite")).succeeds();
    name
}

#[test]
fn rows_that_a_view_leaves_out_are_not_served_and_all_others_are() {
    let place = place();
    place.list("bad.txt", (10..20).chain([7, 500]));
    let report = epoch(&place, &format!("--only {}", view(&place, "--skip bad.txt")));
    let left = 1000 - 12;
    assert_eq!((&report["rows"], coverage(&report)), (&json!(left), [left, left, 0, 0]));
    place.run("epoch train.rdx --only nowhere.rdx").fails().complains(&["nowhere.rdx"]);
    place.write("other/one.parquet", &super::place::rows_from(0, 10));
    place.run("build other -o other.rdx").succeeds();
    place.run("epoch train.rdx --only other.rdx").fails().complains(&["other.rdx", "not a view of the same files"]);
}

#[test]
fn weights_draw_and_classes_come_equally_often() {
    let place = place();
    let report = epoch(&place, "--order weighted:weight");
    assert!(coverage(&report)[0] == 1000 && coverage(&report)[1] <= 750);
    assert_eq!(coverage(&epoch(&place, "--order weighted:weight,once,size=100")), [100, 100, 0, 900]);
    place.run("epoch train.rdx --order weighted:gaps").fails().complains(&["part-1.parquet", "\"gaps\"", "row id 617"]);
    place.run("epoch train.rdx --order weighted:nope").fails().complains(&["\"nope\""]);
    // 100 of each class: no row of the many twice, of the rare each ten times.
    let some = (0..1000).filter(|id| id % 11 == 0 && id % 100 != 37).count() as u64;
    let report = epoch(&place, "--order balanced:class,size=300");
    assert_eq!((coverage(&report)[0], coverage(&report)[1]), (300, 100 + some.min(100) + 10));
    place.list("bad.txt", [617]);
    let without = view(&place, "--skip bad.txt");
    assert_eq!(coverage(&epoch(&place, &format!("--order balanced:gaps --only {without}")))[0], 999);
}

#[test]
fn what_can_not_be_together_is_refused_as_usage() {
    let place = place();
    for options in ["--split train,validation_fraction=2", "--split train,of=user", "--split test"] {
        place.run(&format!("select train.rdx -o x.rdx {options}")).exits_with_usage();
    }
    for order in ["global,size=0", "global,size=x"] {
        place.run(&format!("epoch train.rdx --order {order}")).exits_with_usage();
    }
    place.run("epoch train.rdx --order balanced:class,size=2").fails().complains(&["class", "epoch of 2"]);
}

#[test]
fn weights_come_from_a_list_beside_the_data() {
    let place = place();
    // The weights that the data has, in another order and with rows that the view does not serve.
    let write = |name: &str, ids: Vec<u64>| {
        let files = ids.iter().map(|id| format!("part-{}.parquet", id / 500));
        let files: ArrayRef = Arc::new(StringArray::from_iter_values(files));
        let rows: ArrayRef = Arc::new(UInt64Array::from_iter_values(ids.iter().map(|id| id % 500)));
        let weights: ArrayRef = Arc::new(UInt64Array::from_iter_values(ids.iter().map(|id| id % 4)));
        let columns = [("file", files), ("row_in_file", rows), ("w", weights)];
        place.write(name, &RecordBatch::try_from_iter(columns).unwrap());
    };
    write("w.parquet", (0..1000).rev().collect());
    let ids = |options: &str| place.run(&format!("trace {options}")).succeeds().text();
    let listed = "--order weighted:w,from=w.parquet";
    assert_eq!(ids(&format!("train.rdx {listed}")), ids("train.rdx --order weighted:weight"));
    let train = view(&place, "--split train");
    assert_eq!(
        ids(&format!("train.rdx {listed} --only {train}")),
        ids(&format!("train.rdx --order weighted:weight --only {train}"))
    );
    write("few.parquet", (100..300).collect());
    place.run("select train.rdx --rows few.parquet -o few.rdx").succeeds();
    assert_eq!(ids(&format!("few.rdx {listed}")), ids("few.rdx --order weighted:weight"));
    let few = place.run("trace train.rdx --order weighted:w,from=few.parquet").fails();
    few.complains(&["few.parquet", "\"w\"", "row id 0 is not listed"]);
}
