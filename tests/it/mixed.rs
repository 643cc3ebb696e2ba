//! Several datasets served as one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int8Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Int64Type, Schema};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use rowdex::dataset::MapDataset;
use rowdex::dataset::MixedDataset;
use rowdex::loader::Loadable;
use rowdex::order::Order;
use rowdex::order::{Global, Mixed, MixedPart, Sequential};
use rowdex::{Dataset, DistributedSampler, ErrorKind, Index, IndexBuilder, Loader, Shard};
use tempfile::TempDir;

fn batch(first: i64, rows: i64, nullable: bool, long: usize) -> RecordBatch {
    let ids = first..first + rows;
    let texts = ids.clone().map(|id| (!nullable || id % 7 != 3).then(|| format!("{id} ").repeat(long)));
    let columns: [(&str, ArrayRef); 2] =
        [("id", Arc::new(Int64Array::from_iter_values(ids))), ("text", Arc::new(StringArray::from_iter(texts)))];
    let fields: Vec<Field> =
        columns.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), nullable)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.map(|(_, column)| column).to_vec()).unwrap()
}

fn write(path: &Path, batch: &RecordBatch) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(100)).build();
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn open(folder: &Path) -> Dataset {
    IndexBuilder::new([folder.join("data")]).build(folder.join("i.rdx")).unwrap();
    Dataset::open(folder.join("i.rdx")).unwrap()
}

/// Datasets of 430, 0, 250 and 55 rows with the ids 0, 1000, 2000 and 3000 onwards; some have nulls, some have strings
/// long enough to be decoded in another way.
fn datasets() -> (Vec<TempDir>, Vec<Dataset>) {
    [(0, 430, false, 1), (1000, 0, true, 1), (2000, 250, true, 60), (3000, 55, false, 1)]
        .into_iter()
        .map(|(first, rows, nullable, long)| {
            let folder = TempDir::new().unwrap();
            write(&folder.path().join("data/a.parquet"), &batch(first, rows, nullable, long));
            let dataset = open(folder.path());
            (folder, dataset)
        })
        .unzip()
}

fn expected(mixed: &MixedDataset, row: u64) -> RecordBatch {
    let (dataset, own) = mixed.locate(row).unwrap();
    let (nullable, long) = (dataset == 2, if dataset == 2 { 60 } else { 1 });
    let one = batch(1000 * dataset as i64 + own as i64, 1, nullable, long);
    RecordBatch::try_new(mixed.schema().clone(), one.columns().to_vec()).unwrap()
}

#[test]
fn rows_follow_one_another_over_the_datasets() {
    let (_folders, datasets) = datasets();
    let mixed = MixedDataset::new(datasets).unwrap();
    assert_eq!((mixed.len(), mixed.datasets().len()), (735, 4));
    assert!(mixed.schema().fields().iter().all(|field| field.is_nullable()));
    for (row, place) in [(0, (0, 0)), (429, (0, 429)), (430, (2, 0)), (679, (2, 249)), (680, (3, 0)), (734, (3, 54))] {
        assert_eq!(mixed.locate(row), Some(place));
        let got = mixed.get(row).unwrap();
        assert_eq!((got.schema(), &got), (mixed.schema().clone(), &expected(&mixed, row)));
    }
    assert_eq!(mixed.locate(735), None);
    for error in [mixed.get(735).unwrap_err(), mixed.take(&[0, u64::MAX]).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
    }
}

#[test]
fn a_take_gathers_over_the_datasets_in_the_order_asked() {
    let (_folders, datasets) = datasets();
    let mixed = MixedDataset::new(datasets).unwrap();
    for rows in [vec![], vec![5, 5, 3], vec![734, 0, 430, 0, 679, 680, 429, 734], (0..735).rev().collect()] {
        let taken = MapDataset::take(&mixed, &rows).unwrap();
        let one_by_one: Vec<RecordBatch> = rows.iter().map(|row| expected(&mixed, *row)).collect();
        assert_eq!(taken, concat_batches(mixed.schema(), &one_by_one).unwrap());
    }
}

fn mixture(mixed: &MixedDataset, len: u64) -> Arc<dyn Order> {
    let parts = mixed.datasets().iter().zip([0.5, 0.0, 0.3, 0.2]).enumerate().map(|(seed, (dataset, proportion))| {
        MixedPart::new(Arc::new(Global::new(dataset.len(), seed as u64).unwrap()), dataset.len(), proportion)
    });
    Arc::new(Mixed::new(parts, len, 42).unwrap())
}

#[test]
fn the_loader_serves_a_mixture_as_the_dataset_takes_it() {
    let (_folders, datasets) = datasets();
    let mixed = MixedDataset::new(datasets).unwrap();
    let orders = mixture(&mixed, 600);
    let sampler = |rank| DistributedSampler::new(orders.clone(), Shard::new(rank, 2).unwrap(), 32).unwrap();
    let all: u64 = mixed.datasets().iter().map(Dataset::decoded_bytes).sum();
    for (memory, threads) in [(0, 0), (all / 4, 2), (4 * all, 3)] {
        let builder = Loader::builder(&mixed, sampler(0)).and_ranks([sampler(1)]);
        let loader = builder.memory(memory).threads(threads).epochs(3).build().unwrap();
        let (mut batches, mut rows) = (0, [0; 4]);
        for batch in loader {
            let batch = batch.unwrap();
            let plan = sampler(batch.rank).batch(batch.epoch, batch.step).unwrap();
            assert_eq!(batch.row_ids, plan.rows);
            assert_eq!(batch.records, mixed.take(&batch.row_ids).unwrap());
            let ids = batch.records.column(0).as_primitive::<Int64Type>().values().clone();
            ids.iter().for_each(|id| rows[*id as usize / 1000] += 1);
            batches += 1;
        }
        assert_eq!((batches, rows), (3 * 2 * 300_u64.div_ceil(32), [900, 0, 540, 360]), "{memory} {threads}");
    }
    let prediction = Loader::builder(&mixed, sampler(0)).memory(all / 4).estimate().unwrap();
    assert!(prediction.passes > 0.0);
}

#[test]
fn datasets_of_other_columns_or_types_are_refused() {
    let (folders, datasets) = datasets();
    let index = || Index::open(folders[3].path().join("i.rdx")).unwrap();
    let says = |columns: &[&str], words: &[&str]| {
        let other = Dataset::builder(index()).with_columns(columns.iter().copied()).open().unwrap();
        let error = MixedDataset::new([datasets[0].clone(), other]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    };
    says(&["id"], &["2 columns in dataset 0", "1 in dataset 1"]);
    says(&["text", "id"], &["\"id\"", "\"text\" in dataset 1"]);
    let folder = TempDir::new().unwrap();
    let floats: ArrayRef = Arc::new(arrow::array::Float64Array::from(vec![1.0]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    write(
        &folder.path().join("data/a.parquet"),
        &RecordBatch::try_from_iter([("id", floats), ("text", texts)]).unwrap(),
    );
    let error = MixedDataset::new([datasets[0].clone(), open(folder.path())]).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Schema, Some("id")));
    assert!(error.message().contains("Int64") && error.message().contains("Float64"), "{error}");
    assert_eq!(MixedDataset::new([]).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn an_error_names_the_dataset_and_the_file() {
    let (folders, datasets) = datasets();
    let mixed = MixedDataset::new(datasets).unwrap();
    let file = folders[2].path().join("data/a.parquet");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes.push(0);
    std::fs::write(&file, bytes).unwrap();
    let orders = Arc::new(Sequential::new(mixed.len()).unwrap());
    let sampler = DistributedSampler::new(orders, Shard::new(0, 1).unwrap(), 43).unwrap();
    let mut loader = Loader::builder(&mixed, sampler).epochs(1).build().unwrap();
    let by_loader = loader.by_ref().find_map(Result::err).unwrap();
    for error in [mixed.get(430).unwrap_err(), mixed.take(&[0, 430]).unwrap_err(), by_loader] {
        assert_eq!((error.kind(), error.file()), (ErrorKind::Stale, Some("a.parquet")));
        assert!(error.message().contains("in dataset 2"), "{error}");
    }
    assert_eq!(mixed.get(429).unwrap().num_rows(), 1);
}

/// So many rows of four hundred narrow columns, with nulls or without.
fn wide(rows: i64, nullable: bool) -> RecordBatch {
    let column = |number: i64| -> ArrayRef {
        let value = move |row: i64| (!nullable || (row + number) % 5 > 0).then_some(row * 400 + number);
        match number % 4 {
            0 => Arc::new((0..rows).map(|row| value(row).map(|value| value as i8)).collect::<Int8Array>()),
            1 => Arc::new((0..rows).map(|row| value(row).map(|value| value as i32)).collect::<Int32Array>()),
            2 => Arc::new((0..rows).map(|row| value(row).map(|value| value % 3 > 0)).collect::<BooleanArray>()),
            _ => Arc::new((0..rows).map(value).collect::<Int64Array>()),
        }
    };
    RecordBatch::try_from_iter_with_nullable((0..400).map(|number| (format!("c{number}"), column(number), nullable)))
        .unwrap()
}

#[test]
fn rows_of_hundreds_of_columns_are_served_as_the_dataset_takes_them_alone_and_in_a_mixture() {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let datasets: Vec<Dataset> = folders
        .iter()
        .zip([(5000, false), (3000, true)])
        .map(|(folder, (rows, nullable))| {
            let (path, batch) = (folder.path().join("data/a.parquet"), wide(rows, nullable));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let properties = WriterProperties::builder().set_max_row_group_row_count(Some(2000)).build();
            let file = std::fs::File::create(path).unwrap();
            let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
            open(folder.path())
        })
        .collect();
    let mixed = MixedDataset::new(datasets.clone()).unwrap();
    serves_what_it_takes(&datasets[0]);
    serves_what_it_takes(&datasets[1]);
    serves_what_it_takes(&mixed);
}

fn serves_what_it_takes(dataset: &(impl Loadable + MapDataset)) {
    // Row groups go, some stay, all stay.
    for (memory, threads) in [(1 << 20, 0), (8 << 20, 2), (64 << 20, 2)] {
        let orders = Arc::new(Global::new(dataset.len(), 1).unwrap());
        let sampler = DistributedSampler::new(orders, Shard::new(0, 1).unwrap(), 100).unwrap();
        let mut loader = Loader::builder(dataset, sampler).memory(memory).threads(threads).build().unwrap();
        for _ in 0..dataset.len() / 100 * 3 / 2 {
            let batch = loader.next().unwrap().unwrap();
            assert_eq!(batch.records, dataset.take(&batch.row_ids).unwrap(), "{memory}");
        }
    }
}
