use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::builder::*;
use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::OffsetBuffer;
use arrow_buffer::i256;
use arrow_schema::{Field, Schema};

use super::*;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

fn digests_of(batch: &RecordBatch) -> Vec<u128> {
    let mut digests = Vec::new();
    RowDigests::new(&batch.schema()).unwrap().add(batch, &mut digests).unwrap();
    digests
}

fn digests(array: &ArrayRef) -> Vec<u128> {
    digests_of(&batch(vec![("a", array.clone())]))
}

fn array(array: impl Array + 'static) -> ArrayRef {
    Arc::new(array)
}

fn same(arrays: &[ArrayRef]) {
    let all: Vec<Vec<u128>> = arrays.iter().map(digests).collect();
    for (one, of) in all.iter().zip(arrays) {
        assert_eq!(one, &all[0], "{of:?}");
    }
}

#[test]
fn the_layout_of_strings_does_not_show() {
    let values = [Some("a"), None, Some(""), Some("a string that is too long for a view"), Some("a")];
    let longer = StringArray::from([&[Some("before")], &values[..], &[None]].concat());
    let dictionary: DictionaryArray<Int32Type> = values.into_iter().collect();
    let null_value = DictionaryArray::new(
        Int8Array::from(vec![1, 0, 2, 3, 1]),
        array(StringArray::from(vec![None, Some("a"), Some(""), Some("a string that is too long for a view")])),
    );
    let mut runs = StringRunBuilder::<Int32Type>::new();
    values.iter().for_each(|value| runs.append_option(*value));
    same(&[
        array(StringArray::from(values.to_vec())),
        array(longer.slice(1, 5)),
        array(dictionary),
        array(null_value),
        array(LargeStringArray::from(values.to_vec())),
        array(StringViewArray::from(values.to_vec())),
        array(runs.finish()),
    ]);
}

#[test]
fn the_width_of_integers_and_decimals_does_not_show() {
    same(&[array(Int8Array::from(vec![-1, 7])), array(Int64Array::from(vec![-1, 7]))]);
    same(&[array(UInt8Array::from(vec![255])), array(UInt64Array::from(vec![255]))]);
    same(&[
        array(Decimal32Array::from(vec![-5, 9]).with_precision_and_scale(4, 2).unwrap()),
        array(Decimal64Array::from(vec![-5, 9]).with_precision_and_scale(14, 2).unwrap()),
        array(Decimal128Array::from(vec![-5, 9]).with_precision_and_scale(30, 2).unwrap()),
        array(Decimal256Array::from(vec![i256::from(-5), i256::from(9)]).with_precision_and_scale(60, 2).unwrap()),
    ]);
    let values = [Some(3_i64), None, Some(i64::MIN)];
    let dictionary: DictionaryArray<Int8Type> = {
        let keys = Int8Array::from(vec![Some(1), None, Some(0)]);
        DictionaryArray::new(keys, array(Int64Array::from(vec![i64::MIN, 3])))
    };
    same(&[array(Int64Array::from(values.to_vec())), array(dictionary)]);
}

#[test]
fn the_layout_of_lists_does_not_show() {
    let values = vec![Some(vec![Some(1), None]), None, Some(vec![]), Some(vec![Some(3), Some(4)])];
    let plain = ListArray::from_iter_primitive::<Int32Type, _, _>(values.clone());
    let longer =
        ListArray::from_iter_primitive::<Int32Type, _, _>([vec![Some(vec![Some(9)])], values.clone()].concat());
    // The null has elements below it.
    let field = Arc::new(Field::new_list_field(DataType::Int32, true));
    let elements = Int32Array::from(vec![Some(1), None, Some(8), Some(8), Some(3), Some(4)]);
    let nulls = Some(vec![true, false, true, true].into());
    let below = ListArray::new(
        field.clone(),
        OffsetBuffer::new(vec![0, 2, 4, 4, 6].into()),
        array(elements.clone()),
        nulls.clone(),
    );
    let views = ListViewArray::new(field, vec![0, 2, 4, 4].into(), vec![2, 2, 0, 2].into(), array(elements), nulls);
    same(&[
        array(plain),
        array(LargeListArray::from_iter_primitive::<Int32Type, _, _>(values)),
        array(longer.slice(1, 4)),
        array(below),
        array(views),
    ]);
    let pairs = vec![Some(vec![Some(1), None]), Some(vec![Some(3), Some(4)])];
    let fixed = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(pairs.clone(), 2);
    let variable = ListArray::from_iter_primitive::<Int32Type, _, _>(pairs);
    same(&[array(fixed.clone()), array(variable.clone())]);
    same(&[array(fixed.slice(1, 1)), array(variable.slice(1, 1))]);
}

#[test]
fn columns_and_fields_count_by_name_and_what_lies_below_nulls_does_not() {
    let (x, y) = (array(Int32Array::from(vec![1, 2])), array(StringArray::from(vec!["p", "q"])));
    let one = digests_of(&batch(vec![("x", x.clone()), ("y", y.clone())]));
    assert_eq!(one, digests_of(&batch(vec![("y", y.clone()), ("x", x.clone())])));
    assert_ne!(one, digests_of(&batch(vec![("y", x.clone()), ("x", y.clone())])));
    assert_ne!(one, digests_of(&batch(vec![("x", x.clone()), ("z", y.clone())])));
    let structs = |fields: Vec<(&str, ArrayRef)>, null: bool| {
        let (fields, columns): (Vec<Field>, Vec<ArrayRef>) = fields
            .into_iter()
            .map(|(name, column)| (Field::new(name, column.data_type().clone(), true), column))
            .unzip();
        array(StructArray::new(fields.into(), columns, Some(vec![true, !null].into())))
    };
    let other = array(Int32Array::from(vec![1, 3]));
    assert_eq!(
        digests(&structs(vec![("x", x.clone()), ("y", y.clone())], true)),
        digests(&structs(vec![("y", y.clone()), ("x", other.clone())], true))
    );
    assert_ne!(
        digests(&structs(vec![("x", x), ("y", y.clone())], false)),
        digests(&structs(vec![("x", other), ("y", y)], false))
    );
}

#[test]
fn values_that_differ_have_digests_that_differ() {
    let lists = |values: Vec<Vec<i32>>| {
        let values = values.into_iter().map(|list| Some(list.into_iter().map(Some).collect::<Vec<_>>()));
        array(ListArray::from_iter_primitive::<Int32Type, _, _>(values))
    };
    let arrays = [
        lists(vec![vec![], vec![0], vec![0, 0], vec![1, 2], vec![2, 1]]),
        array(Int32Array::from(vec![Some(0), Some(1), None])),
        array(UInt32Array::from(vec![0])),
        array(Float32Array::from(vec![0.0, -0.0, f32::NAN, f32::from_bits(0x7fc0_0001)])),
        array(Float64Array::from(vec![0.0])),
        array(BooleanArray::from(vec![false, true])),
        array(StringArray::from(vec!["", "0"])),
        array(BinaryArray::from(vec![&b""[..]])),
        array(TimestampSecondArray::from(vec![0])),
        array(TimestampMillisecondArray::from(vec![0])),
        array(Decimal128Array::from(vec![0]).with_precision_and_scale(9, 1).unwrap()),
        array(Decimal128Array::from(vec![0]).with_precision_and_scale(9, 2).unwrap()),
        array(NullArray::new(1)),
    ];
    let all: Vec<u128> = arrays.iter().flat_map(digests).collect();
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
}

#[test]
#[cfg_attr(miri, ignore = "has rows too long for Miri")]
fn long_rows_have_the_digest_that_they_would_have_if_they_were_written() {
    let long = "x".repeat(BYTES + 1);
    let many: Vec<Option<i32>> = (0..BYTES as i32 / 4).map(|value| (value % 7 != 3).then_some(value)).collect();
    let texts: Vec<Option<String>> = (0..40_000).map(|at| (at % 5 != 0).then(|| format!("text {at}"))).collect();
    let strings = |long: bool| {
        let mut lists = ListBuilder::new(StringBuilder::new());
        lists.append_value(if long { texts.clone() } else { vec![] });
        lists.append_null();
        lists.append_value([Some("a"), None]);
        array(lists.finish())
    };
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(many), None, Some(vec![Some(1)])]);
    let columns = batch(vec![
        ("a", array(StringArray::from(vec![Some(&*long), None, Some("short")]))),
        ("b", array(lists)),
        ("c", strings(true)),
        ("d", array([Some("word"), None, Some("word")].into_iter().collect::<DictionaryArray<Int8Type>>())),
        ("e", array(Int64Array::from(vec![None, Some(2), Some(3)]))),
    ]);
    let digests = digests_of(&columns);
    let mut digester = RowDigests::new(&columns.schema()).unwrap();
    let encoders = digester.encoders(&columns).unwrap();
    for (row, digest) in digests.iter().enumerate() {
        let size = encoders.iter().map(|encoder| encoder.size(row)).sum();
        let (mut bytes, mut place) = (vec![0; size], 0);
        encoders.iter().for_each(|encoder| encoder.put(row, &mut bytes, &mut place));
        assert_eq!(place, size);
        assert_eq!(*digest, xxh3_128_with_seed(&bytes, digester.key), "row {row}");
    }
    // Rows behind a long one are those that they are before it.
    let mut again = Vec::new();
    let order = [2, 0, 1].map(|row| columns.slice(row, 1));
    order.iter().for_each(|row| digester.add(row, &mut again).unwrap());
    assert_eq!(again, [digests[2], digests[0], digests[1]]);
}

#[test]
fn what_has_no_digest_is_refused_by_name() {
    let fields = [(0, Arc::new(Field::new("i", DataType::Int32, true)))].into_iter().collect();
    let union = DataType::Union(fields, arrow_schema::UnionMode::Dense);
    let item = Arc::new(Field::new_list_field(union, true));
    let error = RowDigests::new(&Schema::new(vec![Field::new("odd", DataType::List(item), true)])).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Schema, Some("odd")));
    assert!(error.hint().is_some());
}

#[test]
fn digests_are_the_same_for_ever() {
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![])]);
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Float32Builder::new());
    maps.keys().append_value("k");
    maps.values().append_value(0.5);
    maps.append(true).unwrap();
    maps.append(false).unwrap();
    maps.append(true).unwrap();
    let structs = StructArray::from(vec![
        (Arc::new(Field::new("z", DataType::Boolean, true)), array(BooleanArray::from(vec![None, Some(true), None]))),
        (Arc::new(Field::new("b", DataType::Date32, true)), array(Date32Array::from(vec![-1, 0, 19_000]))),
    ]);
    let columns = batch(vec![
        ("float", array(Float64Array::from(vec![0.5, f64::NAN, -0.0]))),
        ("int", array(Int32Array::from(vec![Some(-1), None, Some(i32::MAX)]))),
        ("list", array(lists)),
        ("map", array(maps.finish())),
        ("money", array(Decimal128Array::from(vec![-12_345, 0, 1]).with_precision_and_scale(9, 2).unwrap())),
        ("struct", array(structs)),
        ("text", array(StringArray::from(vec!["", "a", "a string that is longer than sixteen bytes"]))),
        ("time", array(TimestampMicrosecondArray::from(vec![None, Some(1), Some(-1)]).with_timezone("Europe/Rome"))),
    ]);
    let kinds: Vec<String> =
        RowDigests::new(&columns.schema()).unwrap().columns().iter().map(|column| column.kind.clone()).collect();
    assert_eq!(
        kinds,
        [
            "float64",
            "int",
            "list<int>",
            "map<string,float32>",
            "decimal[2]",
            "struct<1:b:date[d],1:z:bool>",
            "string",
            "timestamp[us]"
        ]
    );
    let told: Vec<String> = digests_of(&columns).iter().map(|digest| format!("{digest:032x}")).collect();
    assert_eq!(told, GOLDEN);
}

/// As `python/tests/row_digests.py` computes them from the specification.
const GOLDEN: [&str; 3] =
    ["aa93fc4d8e5edf507c6ecab9eb542549", "a05a9a91f88ffa5e1ba5036c75b0cfad", "e1675a74d90a80dd4314e742853a765a"];
