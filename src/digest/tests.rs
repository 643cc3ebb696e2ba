use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt64Type};
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;

use super::*;
use crate::builder::IndexBuilder;
use rowdex_base::error::ErrorKind;
use rowdex_index::Index;
use rowdex_order::{EpochOrder, Explicit, Global, Order, Sequential};

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap()
}

/// So many rows of which some are equal.
fn rows(count: i64) -> RecordBatch {
    batch(vec![
        ("id", Arc::new((0..count).map(|row| (row % 11 != 5).then_some(row / 2)).collect::<Int64Array>())),
        ("text", Arc::new((0..count).map(|row| Some(format!("text {}", row / 2))).collect::<StringArray>())),
    ])
}

fn write(path: &Path, batch: &RecordBatch, row_group: usize) {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(row_group)).build();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// A dataset of files with these rows.
fn dataset(files: &[RecordBatch], row_group: usize) -> (TempDir, Dataset) {
    let folder = TempDir::new().unwrap();
    for (number, file) in files.iter().enumerate() {
        write(&folder.path().join(format!("{number}.parquet")), file, row_group);
    }
    let index = folder.path().join("i.rdx");
    IndexBuilder::new([folder.path()]).build(&index).unwrap();
    let dataset = Dataset::builder(Index::open(index).unwrap()).with_threads(2).open().unwrap();
    (folder, dataset)
}

fn ordered(batch: &RecordBatch, order: &dyn EpochOrder) -> RecordBatch {
    let rows = (0..order.len()).map(|position| order.row(position).unwrap());
    take_record_batch(batch, &arrow_array::PrimitiveArray::<UInt64Type>::from_iter_values(rows)).unwrap()
}

fn check(first: &Dataset, second: &Dataset, order: Option<&Arc<dyn EpochOrder>>) -> SameRowsReport {
    let same = SameRows::new(first, second);
    let same = match order {
        Some(order) => same.with_order(Arc::clone(order)),
        None => same,
    };
    same.check(&|_| ()).unwrap()
}

#[test]
fn a_digest_does_not_know_files_row_groups_encodings_or_the_order() {
    let rows = rows(1000);
    let (_one, one) = dataset(std::slice::from_ref(&rows), 1000);
    let words: DictionaryArray<Int32Type> = rows.column(1).as_string::<i32>().iter().collect();
    let narrow: Int32Array = rows
        .column(0)
        .as_primitive::<arrow_array::types::Int64Type>()
        .iter()
        .map(|id| id.map(|id| id as i32))
        .collect();
    let other = batch(vec![("text", Arc::new(words)), ("id", Arc::new(narrow))]);
    let (_two, two) = dataset(&[other.slice(600, 400), other.slice(0, 600)], 7);
    let digest = one.rows_digest(&|_| ()).unwrap();
    assert_eq!(digest, two.rows_digest(&|_| ()).unwrap());
    assert_eq!(digest.rows, 1000);
    assert_eq!(digest.to_string().len(), 32);
    let report = check(&one, &two, None);
    assert!(report.holds() && report.first == digest && report.wrong.is_none());
    assert_eq!((report.same_rows, report.in_order), (Some(true), None));
}

#[test]
fn a_row_that_is_lost_repeated_or_changed_is_noticed() {
    let rows = rows(1000);
    let (_one, one) = dataset(std::slice::from_ref(&rows), 100);
    let without = concat_batches(&rows.schema(), &[rows.slice(0, 700), rows.slice(701, 299)]).unwrap();
    let (_lost, lost) = dataset(std::slice::from_ref(&without), 90);
    let (_repeated, repeated) = dataset(&[without, rows.slice(0, 1)], 90);
    let mut ids: Vec<Option<i64>> = rows.column(0).as_primitive::<arrow_array::types::Int64Type>().iter().collect();
    ids[123] = None;
    let changed = batch(vec![("id", Arc::new(Int64Array::from(ids))), ("text", rows.column(1).clone())]);
    let (_changed, changed) = dataset(&[changed], 90);
    for other in [lost, repeated, changed] {
        let report = check(&one, &other, None);
        assert_eq!((report.holds(), report.same_rows), (false, Some(false)));
    }
}

#[test]
fn an_order_is_proven_and_rows_that_break_it_are_named() {
    let rows = rows(10_000);
    let (_one, one) = dataset(&[rows.slice(0, 3000), rows.slice(3000, 7000)], 500);
    let order = Global::new(10_000, 42).unwrap().epoch(0).unwrap();
    let shuffled = ordered(&rows, &*order);
    let (_two, two) = dataset(&[shuffled.slice(0, 2500), shuffled.slice(2500, 7500)], 999);
    let report = check(&one, &two, Some(&order));
    assert_eq!((report.same_rows, report.in_order, &report.wrong), (Some(true), Some(true), &None));
    assert!(!check(&one, &two, Some(&Global::new(10_000, 43).unwrap().epoch(0).unwrap())).holds());
    assert!(!check(&one, &two, Some(&Sequential::new(10_000).unwrap().epoch(0).unwrap())).holds());

    // Two rows are exchanged: the same rows, in another order.
    let position = (0..5000).find(|at| order.row(*at).unwrap() / 2 != order.row(5000).unwrap() / 2).unwrap();
    let mut places: Vec<u64> = (0..10_000).collect();
    places.swap(position as usize, 5000);
    let exchanged = ordered(&shuffled, &*Explicit::new(places, 10_000).unwrap().epoch(0).unwrap());
    let (_three, three) = dataset(&[exchanged], 999);
    let report = check(&one, &three, Some(&order));
    assert_eq!((report.same_rows, report.in_order), (Some(true), Some(false)));
    let wrong = report.wrong.unwrap();
    assert!(wrong.rows.contains(&position) && wrong.rows.end - wrong.rows.start <= 4, "{wrong:?}");
    assert_eq!(wrong.place.unwrap(), ("0.parquet".to_owned(), (position / 999) as u32));

    // The last row is missing.
    let (_four, four) = dataset(&[shuffled.slice(0, 9999)], 999);
    let report = check(&one, &four, Some(&order));
    assert_eq!((report.same_rows, report.in_order), (Some(false), Some(false)));
    assert!(report.wrong.unwrap().rows.contains(&9999));
}

#[test]
fn an_order_that_leaves_rows_out_and_repeats_others_is_proven_as_it_is() {
    let rows = rows(500);
    let (_one, one) = dataset(std::slice::from_ref(&rows), 64);
    let order = Explicit::new(vec![7, 3, 3, 499, 0, 7, 250], 500).unwrap().epoch(0).unwrap();
    let (_two, two) = dataset(&[ordered(&rows, &*order)], 3);
    let report = check(&one, &two, Some(&order));
    assert_eq!((report.same_rows, report.in_order), (None, Some(true)));
    let other = Explicit::new(vec![7, 3, 3, 499, 0, 7, 248], 500).unwrap().epoch(0).unwrap();
    assert_eq!(check(&one, &two, Some(&other)).wrong.unwrap().rows, 6..7);
}

#[test]
fn columns_that_only_one_has_are_left_out_and_others_must_be_of_one_kind() {
    let rows = rows(100);
    let (_one, one) = dataset(std::slice::from_ref(&rows), 64);
    let more = batch(vec![("id", rows.column(0).clone()), ("more", rows.column(1).clone())]);
    let (_two, two) = dataset(&[more], 64);
    let report = check(&one, &two, None);
    assert!(report.holds());
    assert_eq!(report.left_out, ["text", "more"]);
    assert_eq!(report.first.columns.len(), 1);
    let other = batch(vec![("id", rows.column(1).clone()), ("text", rows.column(1).clone())]);
    let (_three, three) = dataset(&[other], 64);
    let error = SameRows::new(&one, &three).check(&|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Schema, Some("id")));
    assert!(error.message().contains("int") && error.message().contains("string"), "{error}");
    let (_four, four) = dataset(&[batch(vec![("x", rows.column(0).clone())])], 64);
    let error = SameRows::new(&one, &four).check(&|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn progress_ends_with_all_rows_and_a_call_that_is_to_stop_stops() {
    let (_one, one) = dataset(&[rows(1000)], 64);
    let (most, all) = (AtomicU64::new(0), AtomicU64::new(0));
    let tell = |progress: RowProgress| {
        most.fetch_max(progress.rows_done, Ordering::Relaxed);
        all.fetch_max(progress.rows, Ordering::Relaxed);
    };
    assert!(SameRows::new(&one, &one).check(&tell).unwrap().holds());
    assert_eq!((most.into_inner(), all.into_inner()), (2000, 2000));
    let _asked = rowdex_base::stop::Asked::new(|| true).enter();
    assert!(one.rows_digest(&|_| ()).is_err());
}
