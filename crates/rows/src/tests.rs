//! The kernel against Arrow's own equality, over arrays of random nested types.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, DictionaryArray, FixedSizeBinaryArray,
    FixedSizeListArray, Int8Array, Int64Array, LargeBinaryArray, LargeListArray, LargeStringArray, ListArray,
    ListViewArray, MapArray, NullArray, PrimitiveArray, RecordBatch, StringArray, StringViewArray, StructArray,
    UInt8Array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema};
use proptest::prelude::*;

use super::gather::gather_runs;
use super::packed::unpack;
use super::picks::PickedRuns;
use super::placing::RowPick;
use super::*;
use rowdex_base::error::ErrorKind;

/// Random numbers of a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn field(&mut self, name: &str, depth: usize) -> FieldRef {
        let data_type = self.data_type(depth);
        let nullable = self.below(3) > 0 || data_type == DataType::Null;
        Arc::new(Field::new(name, data_type, nullable))
    }

    fn data_type(&mut self, depth: usize) -> DataType {
        use DataType::*;
        let leaves = [
            Null,
            Boolean,
            Int8,
            Int16,
            Int64,
            Float64,
            Date32,
            Timestamp(arrow_schema::TimeUnit::Millisecond, Some("Asia/Tokyo".into())),
            Decimal128(30, 2),
            Decimal256(60, 2),
            FixedSizeBinary(3),
            Utf8,
            LargeUtf8,
            Binary,
            LargeBinary,
            Utf8View,
            BinaryView,
        ];
        match if depth == 0 { 9 } else { self.below(12) } {
            0 => List(self.field("item", depth - 1)),
            1 => LargeList(self.field("item", depth - 1)),
            2 => {
                let size = self.below(4) as i32;
                FixedSizeList(self.field("item", depth - 1), size)
            }
            3 => ListView(self.field("item", depth - 1)),
            4 | 5 => Struct((0..1 + self.below(3)).map(|n| self.field(&format!("f{n}"), depth - 1)).collect()),
            6 => {
                let key = Arc::new(Field::new("key", Utf8, false));
                let entries = Fields::from(vec![key, self.field("value", depth - 1)]);
                Map(Arc::new(Field::new("entries", Struct(entries), false)), false)
            }
            7 | 8 => {
                let key = [Int8, Int32, UInt8][self.below(3)].clone();
                Dictionary(Box::new(key), Box::new(leaves[1 + self.below(leaves.len() - 1)].clone()))
            }
            _ => leaves[self.below(leaves.len())].clone(),
        }
    }

    fn nulls(&mut self, rows: usize, nullable: bool) -> Option<NullBuffer> {
        let some = nullable && self.below(3) > 0;
        some.then(|| NullBuffer::new(BooleanBuffer::collect_bool(rows, |_| self.below(3) > 0)))
    }

    fn text(&mut self) -> String {
        let long = if self.below(4) == 0 { " and more of it".len() } else { 0 };
        format!("v{}{}", self.below(5), &" and more of it"[..long])
    }

    fn array(&mut self, field: &Field, rows: usize) -> ArrayRef {
        use DataType::*;
        let nulls = self.nulls(rows, field.is_nullable());
        let mut ints = |most: usize| -> Vec<i64> { (0..rows).map(|_| self.below(most) as i64 - 2).collect() };
        match field.data_type() {
            Null => Arc::new(NullArray::new(rows)),
            Boolean => {
                let bits = BooleanBuffer::collect_bool(rows, |_| self.below(2) == 0);
                Arc::new(BooleanArray::new(bits, nulls))
            }
            Int8 | Int16 | Int64 | Float64 | Timestamp(..) | Decimal128(..) | Decimal256(..) => {
                arrow_cast::cast(&Int64Array::new(ints(100).into(), nulls), field.data_type()).unwrap()
            }
            Date32 => Arc::new(Date32Array::new(ints(10).into_iter().map(|i| i as i32).collect(), nulls)),
            FixedSizeBinary(width) => {
                let bytes: Vec<u8> = (0..rows * *width as usize).map(|_| self.below(3) as u8).collect();
                Arc::new(FixedSizeBinaryArray::try_new_with_len(*width, bytes.into(), nulls, rows).unwrap())
            }
            Utf8 | LargeUtf8 | Binary | LargeBinary | Utf8View | BinaryView => {
                let valid = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                let texts: Vec<Option<String>> = (0..rows).map(|row| valid(row).then(|| self.text())).collect();
                let texts = || texts.iter().map(Option::as_deref);
                match field.data_type() {
                    Utf8 => Arc::new(texts().collect::<StringArray>()),
                    LargeUtf8 => Arc::new(texts().collect::<LargeStringArray>()),
                    Binary => Arc::new(texts().map(|text| text.map(str::as_bytes)).collect::<BinaryArray>()),
                    LargeBinary => Arc::new(texts().map(|text| text.map(str::as_bytes)).collect::<LargeBinaryArray>()),
                    Utf8View => Arc::new(texts().collect::<StringViewArray>()),
                    _ => Arc::new(texts().map(|text| text.map(str::as_bytes)).collect::<BinaryViewArray>()),
                }
            }
            List(item) => {
                let lengths: Vec<usize> = (0..rows).map(|_| self.below(4)).collect();
                let values = self.array(item, lengths.iter().sum());
                let offsets = OffsetBuffer::from_lengths(lengths);
                Arc::new(ListArray::new(item.clone(), offsets, values, nulls))
            }
            LargeList(item) => {
                let lengths: Vec<usize> = (0..rows).map(|_| self.below(4)).collect();
                let values = self.array(item, lengths.iter().sum());
                let offsets = OffsetBuffer::from_lengths(lengths);
                Arc::new(LargeListArray::new(item.clone(), offsets, values, nulls))
            }
            ListView(item) => {
                let values = self.array(item, 10);
                let sizes: Vec<i32> = (0..rows).map(|_| self.below(4) as i32).collect();
                let offsets: Vec<i32> = sizes.iter().map(|_| self.below(7) as i32).collect();
                Arc::new(ListViewArray::new(item.clone(), offsets.into(), sizes.into(), values, nulls))
            }
            FixedSizeList(item, size) => {
                let values = self.array(item, rows * *size as usize);
                Arc::new(FixedSizeListArray::try_new_with_length(item.clone(), *size, values, nulls, rows).unwrap())
            }
            Struct(fields) => {
                let columns = fields.iter().map(|field| self.array(field, rows)).collect();
                Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, rows).unwrap())
            }
            Map(entries, sorted) => {
                let lengths: Vec<usize> = (0..rows).map(|_| self.below(3)).collect();
                let Struct(fields) = entries.data_type() else { panic!() };
                let total = lengths.iter().sum();
                let columns = fields.iter().map(|field| self.array(field, total)).collect();
                let inner = StructArray::try_new_with_length(fields.clone(), columns, None, total).unwrap();
                Arc::new(MapArray::new(entries.clone(), OffsetBuffer::from_lengths(lengths), inner, nulls, *sorted))
            }
            Dictionary(key, values) => {
                let count = 1 + self.below(6);
                let values = self.array(&Field::new("values", values.as_ref().clone(), false), count);
                let keys: Vec<usize> = (0..rows).map(|_| self.below(count)).collect();
                match key.as_ref() {
                    Int8 => {
                        let keys = PrimitiveArray::new(keys.iter().map(|&key| key as i8).collect(), nulls);
                        Arc::new(DictionaryArray::<Int8Type>::new(keys, values))
                    }
                    UInt8 => {
                        let keys = UInt8Array::new(keys.iter().map(|&key| key as u8).collect(), nulls);
                        Arc::new(DictionaryArray::new(keys, values))
                    }
                    _ => {
                        let keys = PrimitiveArray::new(keys.iter().map(|&key| key as i32).collect(), nulls);
                        Arc::new(DictionaryArray::<Int32Type>::new(keys, values))
                    }
                }
            }
            other => panic!("no values of {other}"),
        }
    }

    /// Batches of one schema, some of them parts of larger ones.
    fn batches(&mut self, count: usize) -> Vec<RecordBatch> {
        let schema = Arc::new(Schema::new((0..3).map(|n| self.field(&format!("c{n}"), 3)).collect::<Vec<_>>()));
        self.batches_of(&schema, count)
    }

    fn batches_of(&mut self, schema: &SchemaRef, count: usize) -> Vec<RecordBatch> {
        let batch = |_| {
            let rows = 1 + self.below(20);
            let columns = schema.fields().iter().map(|field| self.array(field, rows)).collect();
            let batch = record_batch(schema, columns, rows).unwrap();
            let start = if self.below(2) == 0 { 0 } else { self.below(rows) };
            batch.slice(start, rows - start)
        };
        (0..count).map(batch).collect()
    }
}

/// Whether row `at` of one batch is row `row` of another, and how they look if not.
fn differ(ours: &RecordBatch, at: usize, source: &RecordBatch, row: usize) -> Option<String> {
    ours.columns().iter().zip(source.columns()).find_map(|(ours, theirs)| {
        let (ours, theirs) = (ours.slice(at, 1), theirs.slice(row, 1));
        let same = ours.to_data() == theirs.to_data() && ours.is_null(0) == theirs.is_null(0);
        (!same).then(|| format!("{ours:?} for {theirs:?}"))
    })
}

fn check(ours: &RecordBatch, batches: &[RecordBatch], places: &[BatchRow]) {
    assert_eq!(ours.num_rows(), places.len());
    for column in ours.columns() {
        column.to_data().validate_full().unwrap();
    }
    for (at, &(batch, row)) in places.iter().enumerate() {
        let wrong = differ(ours, at, &batches[batch as usize], row as usize);
        assert_eq!(wrong, None, "row {at} of {:?}", ours.schema());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 400 }, ..ProptestConfig::default() })]

    #[test]
    fn rows_of_any_type_are_copied_as_they_are(seed in any::<u64>()) {
        let mut random = Random(seed);
        let count = 1 + random.below(4);
        let batches = random.batches(count);
        let borrowed: Vec<&RecordBatch> = batches.iter().collect();
        let place = |random: &mut Random| {
            let batch = random.below(batches.len());
            (batch as u32, random.below(batches[batch].num_rows()) as u32)
        };
        let places: Vec<BatchRow> = (0..random.below(40)).map(|_| place(&mut random)).collect();
        let gathered = gather(&borrowed, &places, batches[0].schema_ref()).unwrap();
        check(&gathered, &batches, &places);
        let served = with_text(batches[0].schema_ref());
        let as_text = gather(&borrowed, &places, &served).unwrap();
        for (text, column) in as_text.columns().iter().zip(gathered.columns()) {
            prop_assert_eq!(&text.to_data(), &arrow_cast::cast(column, text.data_type()).unwrap().to_data());
        }

        let slots: Vec<u32> = (0..random.below(30)).map(|_| random.below(batches[0].num_rows()) as u32).collect();
        let places: Vec<BatchRow> = slots.iter().map(|&slot| (0, slot)).collect();
        check(&take(&batches[0], &slots).unwrap(), &batches, &places);

        let rows_of = |(batch, rows): (u32, &RecordBatch)| (0..rows.num_rows() as u32).map(move |row| (batch, row));
        let places: Vec<BatchRow> = (0..).zip(&batches).flat_map(rows_of).collect();
        let whole = join_exactly(batches[0].schema_ref(), batches.clone()).unwrap();
        check(&whole, &batches, &places);

        // Runs of many rows, of few, and of both.
        let runs: Vec<Vec<BatchRow>> = (0..1 + random.below(4)).map(|_| {
            let most = 1 + random.below(40);
            let run = |_| {
                let batch = random.below(batches.len());
                let start = random.below(batches[batch].num_rows());
                let end = batches[batch].num_rows().min(start + 1 + random.below(most));
                (start..end).map(move |row| (batch as u32, row as u32))
            };
            (0..3).flat_map(run).collect()
        }).collect();
        let gathered = PickedRuns::of(runs.iter().map(Vec::as_slice));
        let schema = batches[0].schema_ref();
        let columns: Vec<Vec<ArrayRef>> = schema.fields().iter().enumerate().map(|(column, field)| {
            let sources: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(column).as_ref()).collect();
            gather_runs(&sources, &gathered, field.data_type()).unwrap()
        }).collect();
        for (number, places) in runs.iter().enumerate() {
            let own = columns.iter().map(|column| column[number].clone()).collect();
            check(&record_batch(schema, own, places.len()).unwrap(), &batches, places);
        }
    }
}

fn words<K: arrow_array::types::ArrowDictionaryKeyType>(words: &[&str]) -> ArrayRef {
    Arc::new(words.iter().copied().collect::<DictionaryArray<K>>())
}

fn only(arrays: &[ArrayRef], places: &[BatchRow]) -> ArrayRef {
    let sources: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    gather_runs(&sources, &PickedRuns::of([places]), arrays[0].data_type()).unwrap().pop().unwrap()
}

#[test]
fn a_dictionary_that_all_sources_share_stays_as_it_is() {
    let one = words::<Int8Type>(&["b", "a", "c"]);
    let again = words::<Int8Type>(&["b", "a", "c"]);
    for arrays in [[one.slice(0, 2), one.slice(1, 2)], [one.clone(), again]] {
        let rows = only(&arrays, &[(0, 1), (1, 0)]);
        let (rows, first) = (rows.as_any_dictionary(), arrays[0].as_any_dictionary());
        assert!(rows.values().to_data().ptr_eq(&first.values().to_data()));
    }
}

#[test]
fn many_dictionaries_become_one_with_the_values_that_are_used() {
    // 40 dictionaries of 64 values do not fit 8 bits one after another.
    let names: Vec<String> = (0..64).map(|n| format!("category {n}")).collect();
    let turned = |by: usize| {
        let names: Vec<&str> = (0..64).map(|n| names[(n + by) % 64].as_str()).collect();
        words::<Int8Type>(&names)
    };
    let arrays: Vec<ArrayRef> = (0..40).map(turned).collect();
    let places: Vec<BatchRow> = (0..40).flat_map(|source| (0..64).map(move |row| (source, row))).collect();
    let rows = only(&arrays, &places);
    let rows = rows.as_any_dictionary();
    assert_eq!(rows.values().len(), 64);
    let few = only(&arrays, &[(3, 0), (7, 60), (9, 0), (3, 6)]);
    let few = few.as_any_dictionary();
    assert_eq!(few.values().len(), 2);
    assert_eq!(few.normalized_keys(), [0, 0, 1, 1]);
}

#[test]
fn values_that_do_not_fit_the_keys_are_an_error_and_no_panic() {
    let names: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let part = |from: usize| words::<Int8Type>(&names[from..from + 50].iter().map(String::as_str).collect::<Vec<_>>());
    let others: Vec<String> = (100..200).map(|n| n.to_string()).collect();
    let other = words::<Int8Type>(&others.iter().map(String::as_str).collect::<Vec<_>>());
    let batches = [part(0), part(50), other].map(|array| RecordBatch::try_from_iter([("word", array)]).unwrap());
    let batches: Vec<&RecordBatch> = batches.iter().collect();
    let places: Vec<BatchRow> = (0..50).map(|row| (0, row)).chain((0..100).map(|row| (2, row))).collect();
    let error = gather(&batches, &places, batches[0].schema_ref()).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::TooLarge, Some("word")));
    assert_eq!(gather(&batches, &places[..120], batches[0].schema_ref()).unwrap().num_rows(), 120);
}

#[test]
fn a_null_among_the_values_of_a_dictionary_is_a_null_of_the_rows() {
    let holes: ArrayRef = Arc::new(StringArray::from(vec![None, Some("a")]));
    let keys = |keys: Vec<Option<i8>>| Int8Array::from(keys);
    let holes: ArrayRef = Arc::new(DictionaryArray::new(keys(vec![Some(0), Some(1), None, Some(0)]), holes));
    let rows = only(&[holes, words::<Int8Type>(&["b", "a"])], &[(0, 0), (1, 1), (0, 2), (0, 1), (1, 0), (0, 3)]);
    let rows = arrow_cast::cast(&rows, &DataType::Utf8).unwrap();
    let expected = StringArray::from(vec![None, Some("a"), None, Some("a"), Some("b"), None]);
    assert_eq!(rows.to_data(), expected.to_data());
}

#[test]
fn values_become_a_dictionary_in_which_each_is_once() {
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), Some(true)]));
    let rows = encode(&flags, &DataType::Int8).unwrap();
    assert_eq!(rows.as_any_dictionary().values().len(), 2);
    assert_eq!(arrow_cast::cast(&rows, &DataType::Boolean).unwrap().to_data(), flags.to_data());
    let many: ArrayRef = Arc::new(Int64Array::from_iter_values(0..200));
    assert_eq!(encode(&many, &DataType::Int8).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(encode(&many, &DataType::UInt8).unwrap().as_any_dictionary().values().len(), 200);
}

#[test]
fn rows_without_columns_are_counted() {
    let schema = Arc::new(Schema::empty());
    let batch = record_batch(&schema, Vec::new(), 7).unwrap();
    assert_eq!(gather(&[&batch, &batch], &[(0, 3), (1, 6)], &schema).unwrap().num_rows(), 2);
    assert_eq!(take(&batch, &[1, 1, 1]).unwrap().num_rows(), 3);
    assert_eq!(gather(&[], &[], &schema).unwrap().num_rows(), 0);
}

#[test]
fn pieces_share_one_copy_of_the_values_that_repeat_in_them() {
    let words: Vec<String> = (0..10).map(|word| format!("word number {word:04} of a dictionary")).collect();
    // Ten words, which two chunks show a thousand times each, behind bytes that nobody shows.
    let chunk = |from: usize| -> ArrayRef {
        let bytes = arrow_buffer::Buffer::from_vec(format!("unseen{}", words.concat()).into_bytes());
        let length = words[0].len();
        let view = |row: usize| {
            let word = (from + row) % 12;
            // Two of them are short and in their views, and every 7th is null.
            match (row % 7, word) {
                (0, _) => 0,
                (_, 10 | 11) => arrow_array::builder::make_view(b"short", 0, 0),
                _ => arrow_array::builder::make_view(words[word].as_bytes(), 0, (6 + word * length) as u32),
            }
        };
        let views: Vec<u128> = (0..1000).map(view).collect();
        let nulls = NullBuffer::new(BooleanBuffer::collect_bool(1000, |row| row % 7 != 0));
        Arc::new(StringViewArray::try_new(views.into(), vec![bytes], Some(nulls)).unwrap())
    };
    let chunks: Vec<RecordBatch> =
        [0, 5].map(|from| RecordBatch::try_from_iter_with_nullable([("word", chunk(from), true)]).unwrap()).into();
    let sources: Vec<&RecordBatch> = chunks.iter().collect();
    let places: Vec<BatchRow> = (0..2000).map(|row| (row % 2, row * 7 % 1000)).collect();
    let taken = |places: &[BatchRow]| gather(&sources, places, chunks[0].schema_ref()).unwrap();
    let expected = taken(&places);
    let pieces = compact_pieces(places.chunks(100).map(taken).collect()).unwrap();
    let joined = arrow_select::concat::concat_batches(chunks[0].schema_ref(), &pieces).unwrap();
    assert_eq!(joined, expected);
    let mut footprint = Footprint::default();
    let bytes: u64 = pieces.iter().map(|piece| footprint.add(piece)).sum();
    assert!(bytes <= 2000 * 16 + 2000 / 8 + 64 * 20 + 1000, "{bytes}");
    let shown = pieces.iter().map(|piece| piece.column(0).as_string_view().data_buffers()[0].as_ptr());
    assert!(chunks.iter().all(|chunk| {
        let own = chunk.column(0).as_string_view().data_buffers()[0].as_ptr();
        shown.clone().all(|shown| shown != own)
    }));
    // Values that do not repeat are copied alone.
    let few = compact_pieces(vec![taken(&places[..4])]).unwrap();
    assert_eq!(few[0], taken(&places[..4]));
    assert!(bytes_of(&few[0]) < 512, "{}", bytes_of(&few[0]));
}

/// The schema with strings in the place of views of them.
fn with_text(schema: &Schema) -> SchemaRef {
    let field = |field: &FieldRef| match field.data_type() {
        DataType::Utf8View => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8)),
        _ => Arc::clone(field),
    };
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Fields>()))
}

/// Batches of columns that may be packed.
fn narrow(random: &mut Random) -> Vec<RecordBatch> {
    use DataType::*;
    let decimals = [Decimal128(30, 2), Decimal256(60, 2)];
    let others = [Boolean, Int8, Int16, Utf8View, Date32, Utf8, Int64, LargeBinary, FixedSizeBinary(3)];
    let types = others.into_iter().chain(decimals);
    let nulls = random.below(2) == 0;
    let schema = Schema::new(types.map(|data_type| Field::new("c", data_type, nulls)).collect::<Vec<_>>());
    random.batches_of(&Arc::new(schema), 4)
}

#[test]
fn what_cannot_be_packed_is_left_in_columns() {
    let field = |name: &str, data_type: DataType| Field::new(name, data_type, true);
    let layout = |types: &[DataType]| {
        let schema = Schema::new(types.iter().map(|data_type| field("c", data_type.clone())).collect::<Vec<_>>());
        Layout::of(&schema, &schema)
    };
    let list = DataType::List(Arc::new(field("item", DataType::Int32)));
    assert!(layout(&[DataType::Int32, DataType::Utf8, DataType::Boolean]).is_some());
    assert!(layout(&[DataType::Int32]).is_none(), "one column is packed as it is");
    assert!(layout(&[DataType::Int32, DataType::Boolean]).is_none(), "a bit is no value of a row");
    assert!(layout(&[DataType::Int32, DataType::Int32, list]).is_none());
    assert!(
        layout(&[DataType::Int32, DataType::Utf8View, DataType::Int8]).is_none(),
        "views that are served show them"
    );
    let (own, served) = (Schema::new(vec![field("a", DataType::Int32), field("b", DataType::Int32)]), |wanted| {
        Schema::new(vec![field("a", DataType::Int32), field("b", wanted)])
    });
    assert!(Layout::of(&own, &served(DataType::Int32)).is_some());
    assert!(Layout::of(&own, &served(DataType::Date32)).is_none(), "served as another type");
}

#[test]
fn packed_rows_take_what_their_values_do() {
    let packed = |long: &str| {
        let rows = 1000;
        let numbers: ArrayRef = Arc::new(arrow_array::Int64Array::from_iter_values(0..rows));
        let words = (0..rows).map(|row| if row == 7 { long.to_owned() } else { format!("{row}") });
        let words: ArrayRef = Arc::new(words.map(Some).collect::<arrow_array::StringArray>());
        let batch = RecordBatch::try_from_iter([("number", numbers), ("word", words)]).unwrap();
        let rows = rows as usize;
        let mut packer = Placer::new(Layout::of(batch.schema_ref(), batch.schema_ref()).unwrap(), rows, rows);
        packer.push(&batch).unwrap();
        assert_eq!(packer_error(&batch), ErrorKind::Internal, "of other columns");
        packer.whole().unwrap().bytes()
    };
    // Eight bytes and a view for each row, and the value that does not fit its view.
    assert_eq!((packed("short"), packed("one of sixteen..")), (24_000, 24_016));
}

#[test]
fn strings_that_would_take_much_more_memory_as_views_are_not_worth_packing() {
    let is_worth = |length: usize, numbers: usize| {
        let text = std::iter::repeat_n(Some("x".repeat(length)), 100);
        let text: ArrayRef = Arc::new(text.collect::<arrow_array::StringArray>());
        let number: ArrayRef = Arc::new(arrow_array::Int64Array::from_iter_values(0..100));
        let columns = std::iter::once(text).chain(std::iter::repeat_n(number, numbers));
        let batch = RecordBatch::try_from_iter(columns.map(|column| ("c", column))).unwrap();
        Layout::of(batch.schema_ref(), batch.schema_ref()).unwrap().is_worth(&batch)
    };
    // Lengths of strings beside so many numbers of eight bytes: a view has sixteen, and an offset four.
    assert_eq!([12, 11, 2, 13].map(|length| is_worth(length, 2)), [true, true, false, false]);
    assert_eq!([2, 13].map(|length| is_worth(length, 24)), [true, true]);
}

fn packer_error(batch: &RecordBatch) -> ErrorKind {
    let other = Schema::new(vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Int32, true)]);
    Placer::new(Layout::of(&other, &other).unwrap(), 1, 1).push(batch).unwrap_err().kind()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 300 }, ..ProptestConfig::default() })]

    #[test]
    fn rows_that_are_packed_where_they_are_due_come_in_that_order(seed in any::<u64>()) {
        let mut random = Random(seed);
        let chunks = narrow(&mut random);
        let schema = chunks[0].schema();
        let served = with_text(&schema);
        let layout = Layout::of(&schema, &served).unwrap();
        let whole = arrow_select::concat::concat_batches(&schema, &chunks).unwrap();
        // The slots of the rows in the order in which they are due, some more than once.
        let slots: Vec<u32> = (0..if whole.num_rows() == 0 { 0 } else { random.below(200) })
            .map(|_| random.below(whole.num_rows()) as u32).collect();
        let piece = 1 + random.below(80);
        let mut placer = Placer::new(Arc::clone(&layout), slots.len(), piece);
        let width = 1 + random.below(schema.fields().len());
        for first in (0..schema.fields().len()).step_by(width) {
            placer.begin_columns(first);
            let mut start = 0;
            for chunk in &chunks {
                let end = start + chunk.num_rows() as u32;
                let due = (0..).zip(&slots).filter(|(_, slot)| (start..end).contains(*slot));
                let picks: Vec<RowPick> = due.map(|(due, slot)| (slot - start, due)).collect();
                placer.put(&columns_of(chunk, first, width), &picks).unwrap();
                start = end;
            }
        }
        let pieces = placer.finish();
        prop_assert!(pieces.iter().all(|piece| piece.is_like(&pieces[0])));
        prop_assert!(pieces.iter().rev().skip(1).all(|packed| packed.num_rows() == piece));
        let places: Vec<BatchRow> = (0..slots.len()).map(|row| ((row / piece) as u32, (row % piece) as u32)).collect();
        let columns = unpack(&pieces.iter().collect::<Vec<_>>(), &places, &served).unwrap();
        let ours = record_batch(&served, columns, places.len()).unwrap();
        let picked: Vec<BatchRow> = slots.iter().map(|slot| (0, *slot)).collect();
        prop_assert_eq!(&ours, &gather(&[&whole], &picked, &served).unwrap());
        let (first, due) = (&pieces[0], &slots[..piece.min(slots.len())]);
        let all: Vec<u32> = (0..due.len() as u32).collect();
        prop_assert_eq!(first.take(&all, &schema).unwrap(), take(&whole, due).unwrap());
        ours.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
    }
}

#[test]
fn words_that_repeat_are_there_once_for_all_pieces() {
    let words: Vec<String> = (0..50).map(|word| format!("a word that is number {word:02}")).collect();
    let batch = in_views(&words, 10_000);
    let layout = Layout::of(batch.schema_ref(), &served_as_text()).unwrap();
    let bytes = |rows: u32| {
        let mut placer = Placer::new(Arc::clone(&layout), rows as usize, rows.div_ceil(4) as usize);
        placer.put(&batch, &(0..rows).map(|row| (row, rows - 1 - row)).collect::<Vec<RowPick>>()).unwrap();
        let mut seen = std::collections::HashSet::new();
        placer.finish().iter().map(|piece| piece.bytes_but(&mut seen)).sum::<u64>()
    };
    let all = words.concat().len() as u64;
    assert_eq!(bytes(10_000), 10_000 * 24 + all);
    // A few values are less than all words.
    assert_eq!(bytes(4), 4 * 24 + words[..4].concat().len() as u64);
}

#[test]
fn rows_and_places_that_are_not_there_are_refused() {
    let number: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10));
    let batch = RecordBatch::try_from_iter([("a", Arc::clone(&number)), ("b", number)]).unwrap();
    let layout = Layout::of(batch.schema_ref(), batch.schema_ref()).unwrap();
    let put = |pick: RowPick| Placer::new(Arc::clone(&layout), 4, 2).put(&batch, &[pick]).map_err(|error| error.kind());
    assert_eq!(put((9, 3)), Ok(()));
    assert_eq!([put((10, 0)), put((0, 4))], [Err(ErrorKind::Internal); 2]);
    let more = batch.project(&[0, 1, 0]).unwrap();
    let error = Placer::new(layout, 4, 2).put(&more, &[(0, 0)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
}

/// At most so many columns of a batch, from this one on.
fn columns_of(batch: &RecordBatch, first: usize, width: usize) -> RecordBatch {
    let columns: Vec<usize> = (first..batch.num_columns().min(first + width)).collect();
    batch.project(&columns).unwrap()
}

/// Rows that show these words in turn, which lie in a buffer of their own, with a number each.
fn in_views(words: &[String], rows: usize) -> RecordBatch {
    in_views_of(words.concat().into_bytes().into(), words[0].len(), rows)
}

/// As [`in_views`], of words of one length that lie one after the other.
fn in_views_of(page: arrow_buffer::Buffer, length: usize, rows: usize) -> RecordBatch {
    let mut view = arrow_array::builder::StringViewBuilder::new();
    let words = page.len() / length;
    let block = view.append_block(page);
    for row in 0..rows {
        view.try_append_view(block, (row % words * length) as u32, length as u32).unwrap();
    }
    let number: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
    RecordBatch::try_from_iter([("word", Arc::new(view.finish()) as ArrayRef), ("number", number)]).unwrap()
}

fn served_as_text() -> Schema {
    Schema::new(vec![Field::new("word", DataType::Utf8, true), Field::new("number", DataType::Int64, true)])
}

/// Memory that one page after the other lies in.
#[derive(Clone, Default)]
struct Reused(Arc<std::sync::Mutex<Vec<u8>>>);

struct InReused(Vec<u8>, Reused);

impl Reused {
    fn page(&self, bytes: &[u8]) -> bytes::Bytes {
        let mut page = std::mem::take(&mut *self.0.lock().unwrap());
        page.clear();
        page.extend_from_slice(bytes);
        bytes::Bytes::from_owner(InReused(page, self.clone()))
    }
}

impl AsRef<[u8]> for InReused {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for InReused {
    fn drop(&mut self) {
        *self.1.0.lock().unwrap() = std::mem::take(&mut self.0);
    }
}

#[test]
#[cfg_attr(miri, ignore = "has too many rows for Miri")]
fn pages_of_chunks_that_are_gone_are_told_from_those_that_come() {
    let (chunks, rows, count) = (5_u32, 14_000_u32, 6000);
    let words =
        |chunk: u32| (0..count).map(|word| format!("word {word:04} of the chunk {chunk:02}")).collect::<Vec<_>>();
    let pages = Reused::default();
    let layout = Layout::of(in_views(&words(0), 1).schema_ref(), &served_as_text()).unwrap();
    let mut placer = Placer::new(layout, (chunks * rows) as usize, 500);
    for chunk in 0..chunks {
        // The memory of the page before, which nobody has any more.
        let text = words(chunk).concat();
        let batch = in_views_of(pages.page(text.as_bytes()).into(), text.len() / count, rows as usize);
        placer.put(&batch, &(0..rows).map(|row| (row, chunk * rows + row)).collect::<Vec<RowPick>>()).unwrap();
    }
    let pieces = placer.finish();
    let places: Vec<BatchRow> = (0..chunks * rows).map(|row| (row / 500, row % 500)).collect();
    let columns = unpack(&pieces.iter().collect::<Vec<_>>(), &places, &served_as_text()).unwrap();
    let expected = (0..chunks).flat_map(|chunk| words(chunk).into_iter().cycle().take(rows as usize));
    assert!(columns[0].as_string::<i32>().iter().flatten().eq(expected));
}

#[test]
fn of_a_dictionary_no_more_is_held_than_thrice_and_of_pages_no_more_than_is_due() {
    let words: Vec<String> = (0..50).map(|word| format!("a word that is number {word:02}")).collect();
    let length = words.concat().len() as u64;
    let bytes = |chunks: &[RecordBatch], due: u32| {
        let layout = Layout::of(chunks[0].schema_ref(), &served_as_text()).unwrap();
        let rows = chunks.len() as u32 * due;
        let mut placer = Placer::new(layout, rows as usize, rows.div_ceil(4) as usize);
        for (chunk, batch) in (0..).zip(chunks) {
            placer.put(batch, &(0..due).map(|row| (row, chunk * due + row)).collect::<Vec<RowPick>>()).unwrap();
        }
        let mut seen = std::collections::HashSet::new();
        placer.finish().iter().map(|piece| piece.bytes_but(&mut seen)).sum::<u64>() - u64::from(rows) * 24
    };
    let dictionary = in_views(&words, 40);
    let found = bytes(&vec![dictionary; 100], 10);
    assert!((length..=3 * length).contains(&found), "{found}");
    // Each chunk has a page of its own, of which a fifth is due.
    let pages: Vec<RecordBatch> = (0..100).map(|_| in_views(&words, 50)).collect();
    assert_eq!(bytes(&pages, 10), 100 * length / 5);
}
