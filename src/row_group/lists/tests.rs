use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::*;
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{ArrowPrimitiveType, Field, SchemaRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::{WriterProperties, WriterVersion};
use proptest::prelude::*;

use super::super::tests::{Collected, Counted, Memory, open, small_pages, write};
use super::super::{GroupDecoder, MAX_DECODED_BYTES, Rows};
use super::*;
use crate::projection::Projection;

/// What a list is made of: nothing where it is null, and of each item whether it is there and its value.
type List = Option<Vec<(bool, i64)>>;

fn items<A: ArrowPrimitiveType>(
    values: &[(bool, i64)],
    nullable: bool,
    convert: impl Fn(i64) -> A::Native,
) -> ArrayRef {
    let item = |&(there, value): &(bool, i64)| (there || !nullable).then(|| convert(value));
    Arc::new(PrimitiveArray::<A>::from_iter(values.iter().map(item)))
}

/// These lists with items of every type, as lists, large lists and, of their first items, as lists of two.
fn batch(lists: &[List], nullable_lists: bool, nullable_items: bool) -> RecordBatch {
    let there: Vec<bool> = lists.iter().map(|list| list.is_some() || !nullable_lists).collect();
    let nulls = nullable_lists.then(|| NullBuffer::from(there));
    let flat: Vec<(bool, i64)> = lists.iter().flatten().flatten().copied().collect();
    let lengths = || lists.iter().map(|list| list.as_ref().map_or(0, Vec::len));
    let of_two = |list: &List| {
        let mut items = list.iter().flatten().copied().chain([(true, 1), (false, 2)]);
        [items.next(), items.next()]
    };
    let pairs: Vec<(bool, i64)> = lists.iter().flat_map(of_two).flatten().collect();
    let arrays = |values: &[(bool, i64)]| -> Vec<ArrayRef> {
        vec![
            items::<Int8Type>(values, nullable_items, |value| value as _),
            items::<Int16Type>(values, nullable_items, |value| value as _),
            items::<Int32Type>(values, nullable_items, |value| value as _),
            items::<Int64Type>(values, nullable_items, |value| value),
            items::<UInt8Type>(values, nullable_items, |value| value as _),
            items::<UInt16Type>(values, nullable_items, |value| value as _),
            items::<UInt32Type>(values, nullable_items, |value| value as _),
            items::<UInt64Type>(values, nullable_items, |value| value as _),
            items::<Float32Type>(values, nullable_items, |value| value as f32 / 8.0),
            items::<Float64Type>(values, nullable_items, |value| value as f64 / 8.0),
        ]
    };
    let mut columns: Vec<(String, ArrayRef, bool)> = Vec::new();
    for (items, pairs) in arrays(&flat).into_iter().zip(arrays(&pairs)) {
        let item = Arc::new(Field::new("element", items.data_type().clone(), nullable_items));
        let list = ListArray::new(item.clone(), OffsetBuffer::from_lengths(lengths()), items.clone(), nulls.clone());
        let large = LargeListArray::new(item.clone(), OffsetBuffer::from_lengths(lengths()), items, nulls.clone());
        let pairs = FixedSizeListArray::new(item, 2, pairs, nulls.clone());
        let arrays: [ArrayRef; 3] = [Arc::new(list), Arc::new(large), Arc::new(pairs)];
        for array in arrays {
            columns.push((format!("{}", array.data_type()), array, nullable_lists));
        }
    }
    // Something that is not decoded here, in the middle of what is.
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..lists.len() as i64));
    columns.insert(5, ("numbers".into(), numbers, false));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn in_chunks(source: &Memory, schema: &SchemaRef, chunk: usize) -> Result<RecordBatch> {
    let file = open(source, "f")?;
    let projection = Projection::all(schema);
    let mut sink = Collected { chunk_rows: chunk, chunks: Vec::new() };
    let decoder = GroupDecoder {
        file: &file,
        row_group: 0,
        projection: &projection,
        partitions: &[],
        max_decoded_bytes: MAX_DECODED_BYTES,
    };
    decoder.decode(Rows::All, &Counted::new(source, "f"), &mut sink)?;
    let chunks = sink.chunks;
    Ok(arrow::compute::concat_batches(schema, &chunks).unwrap())
}

fn count_decoded_here(source: &Memory) -> usize {
    let file = open(source, "f").unwrap();
    let schema = file.metadata().file_metadata().schema_descr();
    let fields = file.arrow_schema().fields().iter().enumerate();
    fields
        .filter(|(root, field)| Shape::of(schema, *root, file.leaves(*root).start, field.data_type()).is_some())
        .count()
}

fn some_lists() -> impl Strategy<Value = Vec<List>> {
    let list = prop::collection::vec((prop::bool::weighted(0.9), any::<i64>()), 0..7);
    prop::collection::vec(prop::option::weighted(0.9, list), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn lists_are_those_that_were_written(
        lists in some_lists(),
        nullable in any::<(bool, bool)>(),
        second_version in any::<bool>(),
        dictionary in any::<bool>(),
        chunk in 1usize..150,
    ) {
        let batch = batch(&lists, nullable.0, nullable.1);
        let version = if second_version { WriterVersion::PARQUET_2_0 } else { WriterVersion::PARQUET_1_0 };
        let properties = small_pages().set_writer_version(version).set_dictionary_enabled(dictionary).build();
        let source = write(&batch, properties);
        prop_assert_eq!(count_decoded_here(&source), 30);
        prop_assert_eq!(in_chunks(&source, &batch.schema(), chunk).unwrap(), batch);
    }
}

#[test]
fn levels_that_make_no_list_are_refused() {
    let shape = |list: DataType, item: &FieldRef| Shape { list, item: Arc::clone(item), empty: 1, value: 3 };
    let item: FieldRef = Arc::new(Field::new("element", DataType::Int32, true));
    let list = shape(DataType::List(Arc::clone(&item)), &item);
    let pairs = shape(DataType::FixedSizeList(Arc::clone(&item), 2), &item);
    let attempt = |shape: &Shape, definitions: &[i16], repetitions: &[i16], values: Vec<i32>, rows: usize| {
        let (definitions, repetitions) = (&mut definitions.to_vec(), &mut repetitions.to_vec());
        let levels = Levels { definitions, repetitions, left: &mut 0, most_pages: 0 };
        assemble::<Int32Type>(shape, &levels, values, rows)
    };
    assert_eq!(attempt(&list, &[3, 3, 0, 1, 2], &[0, 1, 0, 0, 0], vec![1, 2], 4).unwrap().len(), 4);
    assert_eq!(attempt(&pairs, &[3, 2, 0, 3, 3], &[0, 1, 0, 0, 1], vec![1, 2, 3], 3).unwrap().len(), 3);
    for (shape, definitions, repetitions, values, rows) in [
        (&list, &[3i16, 3, 3][..], &[0i16, 1, 0][..], vec![1, 2, 3], 3),
        (&list, &[3, 3, 3], &[0, 1, 0], vec![1, 2], 2),
        (&list, &[3, 2, 3], &[0, 1, 0], vec![1, 2, 3], 2),
        (&list, &[1, 3], &[0, 1], vec![1], 1),
        (&list, &[0, 3], &[0, 1], vec![1], 1),
        (&list, &[4], &[0], vec![1], 1),
        (&list, &[-1], &[0], vec![1], 1),
        (&pairs, &[3, 3, 3], &[0, 1, 1], vec![1, 2, 3], 1),
        (&pairs, &[3, 3, 3, 3], &[0, 0, 1, 1], vec![1, 2, 3, 4], 2),
        (&pairs, &[1], &[0], vec![], 1),
    ] {
        let error = attempt(shape, definitions, repetitions, values, rows).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParquet, "{definitions:?} {repetitions:?}");
    }
}

/// The parquet crate's own reader of the same bytes.
fn reference(bytes: &Bytes) -> Result<RecordBatch, String> {
    let read = || -> Result<RecordBatch, Box<dyn std::error::Error>> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes.clone())?.with_batch_size(1 << 20).build()?;
        let batches = reader.collect::<Result<Vec<_>, _>>()?;
        let first = batches.first().ok_or("no batch")?;
        Ok(arrow::compute::concat_batches(&first.schema(), &batches)?)
    };
    let read = catch_unwind(AssertUnwindSafe(|| read().map_err(|error| error.to_string())));
    read.unwrap_or_else(|_| Err("a panic".into()))
}

#[test]
fn what_is_read_of_damaged_pages_is_what_the_parquet_crate_reads_of_them() {
    let lists: Vec<List> =
        (0..60i64).map(|i| (i % 9 != 4).then(|| (0..i % 5).map(|j| (j != 2, i * j)).collect())).collect();
    let (mut both, mut neither) = (0, 0);
    for (lists, version) in [(&lists[..], WriterVersion::PARQUET_1_0), (&lists[..], WriterVersion::PARQUET_2_0)] {
        let batch = batch(lists, true, true).project(&[0, 2, 4]).unwrap();
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_compression(parquet::basic::Compression::UNCOMPRESSED);
        let good = write(&batch, properties.build()).0.into_inner().unwrap()["f"].to_vec();
        let end =
            good.len() - 8 - u32::from_le_bytes(good[good.len() - 8..good.len() - 4].try_into().unwrap()) as usize;
        for (at, bit) in (4..end).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            let bad = Bytes::from(bad);
            let theirs = reference(&bad);
            match in_chunks(&Memory::with(bad), &batch.schema(), usize::MAX) {
                Ok(ours) => {
                    both += 1;
                    assert_eq!(Ok(ours), theirs, "byte {at}, bit {bit}");
                }
                Err(_) => neither += usize::from(theirs.is_err()),
            }
        }
    }
    assert!(both > 100 && neither > 100, "{both} {neither}");
}
