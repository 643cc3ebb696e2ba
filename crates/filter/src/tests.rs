mod casts;
mod nested;

use std::sync::Arc;

use arrow_array::builder::*;
use arrow_array::types::Int32Type;
use arrow_array::*;
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields, Schema};

use super::*;

/// Four rows of every sort of column, with names as people give them.
fn batch() -> RecordBatch {
    let meta_fields: Fields = vec![
        Field::new("lang", DataType::Utf8, true),
        Field::new("Score", DataType::Float64, true),
        Field::new("deep", DataType::Struct(vec![Field::new("x", DataType::Int64, true)].into()), true),
    ]
    .into();
    let deep = StructArray::from(vec![(
        Arc::new(Field::new("x", DataType::Int64, true)),
        Arc::new(Int64Array::from(vec![Some(1), Some(2), None, Some(4)])) as ArrayRef,
    )]);
    let meta = StructArray::new(
        meta_fields,
        vec![
            Arc::new(StringArray::from(vec![Some("en"), Some("de"), Some("en"), None])),
            Arc::new(Float64Array::from(vec![0.5, 1.5, 2.5, 3.5])),
            Arc::new(deep),
        ],
        Some(NullBuffer::from(vec![true, true, true, false])),
    );
    let tokens = ListArray::from_iter_primitive::<Int32Type, _, _>([
        Some(vec![Some(1), Some(2)]),
        Some(vec![]),
        None,
        Some(vec![Some(7)]),
    ]);
    let mut tags = ListBuilder::new(StringBuilder::new());
    for row in [Some(vec!["a", "b"]), Some(vec![]), None, Some(vec!["b"])] {
        match row {
            Some(row) => {
                row.iter().for_each(|tag| tags.values().append_value(tag));
                tags.append(true);
            }
            None => tags.append(false),
        }
    }
    // A field of its items has the name of a column.
    let x = Arc::new(Field::new("x", DataType::Int64, true));
    let items = StructArray::from(vec![
        (Arc::new(Field::new("id", DataType::Int64, true)), Arc::new(Int64Array::from(vec![5, 7, 9])) as ArrayRef),
        (
            Arc::new(Field::new("deep", DataType::Struct(vec![Arc::clone(&x)].into()), true)),
            Arc::new(StructArray::from(vec![(x, Arc::new(Int64Array::from(vec![1, 6, 6])) as ArrayRef)])) as ArrayRef,
        ),
    ]);
    let pairs = ListArray::new(
        Arc::new(Field::new("item", items.data_type().clone(), true)),
        OffsetBuffer::from_lengths([2, 0, 0, 1]),
        Arc::new(items),
        Some(NullBuffer::from(vec![true, true, false, true])),
    );
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from(vec![0, 1, 2, 3]))),
        ("text", Arc::new(StringArray::from(vec![Some("Äbc"), Some("abc"), None, Some("xyz%")]))),
        ("small", Arc::new(Float32Array::from(vec![Some(0.1), Some(0.25), None, Some(-0.5)]))),
        ("x", Arc::new(Float64Array::from(vec![Some(0.0), Some(-0.0), Some(f64::NAN), Some(-f64::NAN)]))),
        ("n", Arc::new(Int32Array::from(vec![Some(10), Some(0), None, Some(-7)]))),
        ("flag", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, Some(true)]))),
        ("day", Arc::new(Date32Array::from(vec![Some(19_723), Some(19_724), None, Some(20_000)]))),
        ("at", Arc::new(TimestampMicrosecondArray::from(vec![1_704_067_200_000_000, 0, 1, 2]))),
        ("us", Arc::new(Time64MicrosecondArray::from(vec![Some(36_000_000_001), Some(1), None, Some(86_399_000_000)]))),
        ("ms", Arc::new(Time32MillisecondArray::from(vec![Some(36_000_000), Some(2), None, Some(5)]))),
        ("price", Arc::new(Decimal128Array::from(vec![1999, 2000, 5, 0]).with_precision_and_scale(10, 2).unwrap())),
        ("big", Arc::new(UInt64Array::from(vec![0, 1, u64::MAX, 3]))),
        ("tokens", Arc::new(tokens)),
        ("tags", Arc::new(tags.finish())),
        ("meta", Arc::new(meta)),
        ("pairs", Arc::new(pairs)),
        ("a.b", Arc::new(Int64Array::from(vec![5, 6, 7, 8]))),
        ("raw", Arc::new(BinaryArray::from(vec![&b"\x00"[..], b"ab", b"", b"z"]))),
        ("kind", Arc::new(["x", "y", "x", "z"].into_iter().collect::<DictionaryArray<Int32Type>>())),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn kept(text: &str) -> Result<Vec<usize>> {
    let batch = batch();
    // As a reader hands it out: the columns of the condition alone.
    let condition = Condition::parse(&[text.to_owned()], &batch.schema())?;
    let chosen: Vec<usize> = batch
        .schema()
        .fields()
        .iter()
        .enumerate()
        .filter(|(_, field)| {
            let below = format!("{}.", field.name());
            condition.columns().iter().any(|column| column == field.name() || column.starts_with(&below))
        })
        .map(|(at, _)| at)
        .collect();
    let chosen = batch.project(&chosen).unwrap();
    let rows = condition.over(&chosen.schema())?.rows(&chosen)?;
    Ok(rows.set_indices().collect())
}

#[test]
fn conditions_are_those_that_people_write() {
    let cases: &[(&str, &[usize])] = &[
        ("id > 1", &[2, 3]),
        ("id > 1 AND id < 3", &[2]),
        ("text = 'abc'", &[1]),
        ("\"text\" like 'a%'", &[1]),
        ("text ilike 'ä%'", &[0]),
        ("text ilike 'A%'", &[1]),
        ("text ~ '^[ab]'", &[1]),
        ("regexp_like(text, 'c$')", &[0, 1]),
        ("text like 'xyz\\%'", &[3]),
        ("length(text) = 3", &[0, 1]),
        ("LENGTH(lower(text)) = 3 and lower(text) = 'äbc'", &[0]),
        ("text is null", &[2]),
        ("text is not null and text <> 'abc'", &[0, 3]),
        ("not (text = 'abc')", &[0, 3]),
        ("coalesce(text, 'none') = 'none'", &[2]),
        ("text in ('abc', 'Äbc', null)", &[0, 1]),
        ("n not in (10, 11)", &[1, 3]),
        ("n not in (10, null)", &[]),
        ("n between -7 and 5", &[1, 3]),
        ("abs(n) = 7", &[3]),
        ("n is distinct from 10", &[1, 2, 3]),
        ("(n is distinct from 10) and id < 3", &[1, 2]),
        ("substring(text, 2, 1) = 'b' and position('c' in text) = 3", &[0, 1]),
        ("case when n > 5 then 'high' when n is null then 'none' else 'low' end = 'low'", &[1, 3]),
        ("case n when 10 then true else false end", &[0]),
        ("id > 1 and (text = 'abc' or true)", &[2, 3]),
        ("id = 0 or coalesce(text, 'x') not like '%'", &[0]),
        ("id > 1 or (flag and false)", &[2, 3]),
        ("meta.lang = 'en' and (meta.deep.x = 3 or true)", &[0, 2]),
        ("flag", &[0, 3]),
        ("not flag", &[1]),
        ("flag is not true", &[1, 2]),
        ("flag = true and id = 0", &[0]),
        ("cast(n as double) / 4 = 2.5", &[0]),
        ("n::string = '0'", &[1]),
        ("us < '10:00:00' and ms in ('10:00:00', '00:00:00.002')", &[1]),
        ("n / 3 = 3", &[0]),
        ("case when n <> 0 then 100 / n = 10 else false end", &[0]),
        ("day = '2024-01-01'", &[0]),
        ("day > date '2024-01-01'", &[1, 3]),
        ("day between '2024-01-01' and '2024-01-02'", &[0, 1]),
        ("at = timestamp '2024-01-01 00:00:00'", &[0]),
        ("at >= '2024-01-01'", &[0]),
        ("extract(year from at) = 2024", &[0]),
        ("date_part('year', day) = 2024 and date_trunc('month', at) = '2024-01-01'", &[0]),
        ("day + interval '1 day' = '2024-01-02'", &[0]),
        ("array_length(tokens) > 1", &[0]),
        ("cardinality(tokens) = 1", &[3]),
        ("array_has(tags, 'b')", &[0, 3]),
        ("'a' = any(tags)", &[0]),
        ("tokens[1] = 7", &[3]),
        ("meta.lang = 'en'", &[0, 2]),
        ("meta.lang = 'de' and meta.Score > 1", &[1]),
        ("meta['lang'] = 'de'", &[1]),
        ("meta.deep.x = 2", &[1]),
        ("pairs[1]['id'] = 5", &[0]),
        ("meta is null", &[3]),
        ("meta.lang is null", &[3]),
        ("meta.deep.x is null", &[2, 3]),
        ("meta.deep.x = 4", &[]),
        ("meta.Score > 3", &[]),
        ("\"a.b\" >= 7", &[2, 3]),
        ("small = 0.1", &[]),
        ("small = 0.1::real", &[0]),
        ("small in (0.1::real, -0.5)", &[0, 3]),
        ("n < 2.5 and id >= 0.5", &[1, 3]),
        ("price = 19.99", &[0]),
        ("price > 19.99", &[1]),
        ("price between 0.05 and 19.99", &[0, 2]),
        ("price = 20", &[1]),
        ("big = 18446744073709551615", &[2]),
        ("big > 2", &[2, 3]),
        ("x = 0", &[0, 1]),
        ("x < 0", &[]),
        ("x >= 0.0 and x <= 0.0", &[0, 1]),
        ("x in (0.0, 5.0)", &[0, 1]),
        ("x > 1e300", &[2, 3]),
        ("x < 5", &[0, 1]),
        ("x = 'nan'::double", &[2, 3]),
        ("isnan(x)", &[2, 3]),
        ("raw = x'6162'", &[1]),
        ("kind = 'x'", &[0, 2]),
        ("kind in ('y', 'z')", &[1, 3]),
        ("n = '10'", &[0]),
        ("1 = 1", &[0, 1, 2, 3]),
        ("null", &[]),
        ("id > 1 or null", &[2, 3]),
        ("id = 1 -- the one", &[1]),
    ];
    let mut wrong = Vec::new();
    for (text, rows) in cases {
        match kept(text) {
            Ok(kept) if kept == *rows => {}
            other => wrong.push(format!("{text}: {other:?}, not {rows:?}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_no_condition_is_one_clear_line() {
    let deep = format!("{}id = 1{}", "(".repeat(500), ")".repeat(500));
    let negated = format!("{}flag", "not ".repeat(5000));
    let long = vec!["id = 1"; 5000].join(" or ");
    let sums = format!("id = {}1", "id + ".repeat(900));
    let doubled = format!("{}id{} > 3", "coalesce(".repeat(15), ", id + 1)".repeat(15));
    let cases: &[(&str, &str)] = &[
        (&doubled, "too many operations"),
        ("", "is empty"),
        ("   ", "is empty"),
        ("text similar to 'a%'", "`similar to`"),
        ("id >", "parsed"),
        ("id > 1 and", "parsed"),
        ("id = = 3", "parsed"),
        ("(id = 3", "parsed"),
        ("id = 3)", "does not follow"),
        ("id 3", "does not follow"),
        ("text = 'abc", "parsed"),
        ("\"id = 3", "parsed"),
        ("id = 3; drop table x", "`;`"),
        ("id = 3 order by id", "does not follow"),
        ("select * from x", "does not follow"),
        ("lagn = 'en'", "no such column"),
        ("txt = 'en'", "did you mean \"text\"?"),
        ("Text = 'en'", "did you mean \"text\"?"),
        ("a.b = 6", "a.b"),
        ("n is distinct from 10 + 0", "parentheses"),
        ("meta.lagn = 'en'", "lagn"),
        ("meta['lagn'] = 'en'", "lagn"),
        ("pairs[1].lagn = 5", "lagn"),
        ("id.x = 1", ""),
        ("text = \"en\"", "single quotes"),
        ("id", "of type Int64"),
        ("text", "of type Utf8"),
        ("id + 1", "of type Int64"),
        ("meta", "of type Struct"),
        ("5", "of type Int64"),
        ("id = 'abc'", "abc"),
        ("day = '2024-13-45'", "2024-13-45"),
        ("day = 'yesterday'", "yesterday"),
        ("tokens > 5", "types"),
        ("foo(id) = 3", "foo"),
        ("lenght(text) = 3", "lenght"),
        ("length(text, 3) = 3", "length"),
        ("count(id) > 3", "count"),
        ("count(*) > 3", "count"),
        ("row_number() over (order by id) = 1", ""),
        ("length(text) over () = 1", "several rows"),
        ("flag is distinct from flag and id = 1", "parentheses"),
        ("flag is not distinct from id = 1 or flag", "parentheses"),
        ("id in (select id from x)", ""),
        ("exists (select 1)", ""),
        ("id = (select 1)", ""),
        ("random() < 0.5", "another value each time"),
        ("uuid() = 'x'", "another value each time"),
        ("now() > at", "another value each time"),
        ("current_date > day", "another value each time"),
        ("interval '1 day' = interval '24 hours'", "intervals are not compared"),
        ("at - at > interval '1 month'", "intervals are not compared"),
        ("at - at in (interval '1 day')", "intervals are not compared"),
        ("interval '1 day' between at - at and at - at", "intervals are not compared"),
        ("id = $1", ""),
        ("id = ?", ""),
        ("id = @x", ""),
        ("id = *", ""),
        ("cast(text as nothing) = 3", "nothing"),
        ("cast('abc' as int) = 3", "abc"),
        ("9223372036854775807 + 1 > 0", "verflow"),
        ("unnest(tokens) = 1", "unnest"),
        ("array_transform(tokens, x -> x + 1) = [1]", ""),
        ("{", "parsed"),
        ("\u{0}", "parsed"),
        ("💥", "parsed"),
        (&deep, "levels deep"),
        (&negated, "does not follow"),
        (&long, "operators"),
        (&sums, "operations deep"),
    ];
    let mut wrong = Vec::new();
    for (text, said) in cases {
        match kept(text) {
            Err(error) => {
                let line = error.to_string();
                if error.kind() != ErrorKind::InvalidArgument || line.contains('\n') || !line.contains(said) {
                    wrong.push(format!("{text:.60}: {:?} {line:.300}", error.kind()));
                }
            }
            Ok(rows) => wrong.push(format!("{text:.60}: kept {rows:?}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn values_that_cannot_be_evaluated_are_errors_and_not_rows() {
    for (text, said) in [
        ("id + 9223372036854775807 > 0", "verflow"),
        ("cast(text as int) = 3", "bc"),
        ("n * 9000000000000000000 > 0", "verflow"),
        ("100 / n > 0", "ivide by zero"),
        ("id % n = 3", "ivide by zero"),
        ("text > 5", "bc"),
        ("text ~ '('", "regex"),
    ] {
        let error = kept(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(said), "{text}: {error}");
    }
    assert_eq!(kept("try_cast(text as int) is null").unwrap(), [0, 1, 2, 3]);
}

#[test]
fn a_sign_that_is_turned_never_wraps() {
    fn of<T: arrow_array::ArrowPrimitiveType>(least: T::Native, five: T::Native) -> RecordBatch {
        let column = PrimitiveArray::<T>::from_iter_values([least, five]);
        RecordBatch::try_from_iter([("i", Arc::new(column) as ArrayRef)]).unwrap()
    }
    use arrow_array::types::{Int8Type, Int16Type, Int64Type};
    let kept = |batch: &RecordBatch, text: &str| -> Result<Vec<usize>> {
        let condition = Condition::parse(&[text.to_owned()], &batch.schema())?;
        Ok(condition.over(&batch.schema())?.rows(batch)?.set_indices().collect())
    };
    assert_eq!(kept(&of::<Int16Type>(-7, 5), "-i < 0").unwrap(), [1]);
    assert_eq!(kept(&of::<Int8Type>(-7, 5), "i = -5 or - i = -5").unwrap(), [1]);
    assert!(kept(&of::<Int8Type>(i8::MIN, 5), "-i > 0").is_err());
    let error = kept(&of::<Int64Type>(i64::MIN, 5), "-i > 0").unwrap_err().to_string();
    assert!(error.contains("verflow"), "{error}");
}

#[test]
fn digits_beside_decimals_are_all_there_in_quotes() {
    let whole = 2_500_000_000_000_000_000_000_i128;
    let column = Decimal128Array::from(vec![whole + 25, -whole, 10, whole + 100]);
    let column: ArrayRef = Arc::new(column.with_data_type(DataType::Decimal128(38, 2)));
    let batch = RecordBatch::try_from_iter([("wide", column)]).unwrap();
    let cases: &[(&str, &[usize])] = &[
        ("wide = '25000000000000000000.25'", &[0]),
        ("wide <= '-25000000000000000000.25'", &[]),
        ("wide between '25000000000000000000.25' and '25000000000000000000.26'", &[0]),
        ("wide in ('25000000000000000001', '0.1')", &[2, 3]),
        ("wide = .1", &[2]),
    ];
    for (text, expected) in cases {
        assert_eq!(kept_of(&batch, text).unwrap_or_else(|error| panic!("{text}: {error}")), *expected, "{text}");
    }
}

/// `n` is 10, 0, null and -7.
#[test]
fn lists_of_values_are_null_where_the_value_is_or_where_they_have_a_null() {
    let cases: &[(&str, &[usize])] = &[
        ("not (n in (1, 10) and n in (3, 4))", &[0, 1, 3]),
        ("(n in (1, 2, 3, 10) and n in (4, 5, 6, 7)) is null", &[2]),
        ("not (n in (1, 2) and n not in (1, 2, 3))", &[0, 1, 3]),
        ("not (n in (0, 10, null) and n not in (0, 10))", &[0, 1]),
        ("n in (0, 10) and n not in (3, null)", &[]),
        ("n not in (3, null) or n not in (0, 1)", &[0, 3]),
        ("not ((n = 1 or n = 2 or n = 3 or n = 10) and (n = 5 or n = 6 or n = 7 or n = 8))", &[0, 1, 3]),
        ("n in (id + 10, 5) and n in (10 + id, 6)", &[0]),
        ("case when n in (1, 2) and n in (3, 4) then false else n is null end", &[2]),
        ("not (text ~ '^(abc|b)$' and text ~ '^(c|d)$')", &[0, 1, 3]),
        ("x not in (0.0) or x not in (-0.0)", &[2, 3]),
        ("x in (0.0, 1) and x in (-0.0, 2)", &[0, 1]),
        ("not (n = 10) and not (n in (0, 3))", &[3]),
    ];
    for (text, expected) in cases {
        assert_eq!(kept(text).unwrap_or_else(|error| panic!("{text}: {error}")), *expected, "{text}");
    }
}

#[test]
fn long_chains_and_long_lists_are_evaluated() {
    let chain: Vec<String> = (0..1900).map(|id| format!("id = {}", id * 2)).collect();
    // Each has two operators.
    assert_eq!(kept(&chain[..950].join(" or ")).unwrap(), [0, 2]);
    let list: Vec<String> = (0..10_000).map(|id| (2 - id).to_string()).collect();
    assert_eq!(kept(&format!("id in ({})", list.join(","))).unwrap(), [0, 1, 2]);
}

#[test]
fn only_the_columns_and_fields_of_a_condition_are_needed() {
    let schema = batch().schema();
    let columns = |text: &str| Condition::parse(&[text.to_owned()], &schema).unwrap().columns().to_vec();
    assert_eq!(columns("id > 3 and text = 'x'"), ["id", "text"]);
    assert_eq!(columns("meta.lang = 'x' or meta.deep.x = 3"), ["meta.deep.x", "meta.lang"]);
    assert_eq!(columns("meta.lang = 'x' or meta is null"), ["meta"]);
    assert_eq!(columns("\"a.b\" = 3"), ["a.b"]);
    assert!(columns("1 = 2").is_empty());
    assert_eq!(columns("id > 3 and false"), ["id"]);
}

fn same(expected: Option<bool>, min: i64, max: i64, nulls: Option<bool>, text: &str) {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true)]));
    let predicate = Condition::parse(&[text.to_owned()], &schema).unwrap().over(&schema).unwrap();
    assert_eq!(predicate.terms().len(), 1, "{text}");
    let bounds = Bounds {
        min: Some(ScalarValue::Int64(Some(min))),
        max: Some(ScalarValue::Int64(Some(max))),
        no_null: nulls == Some(false),
        all_null: false,
    };
    assert_eq!(predicate.decided(&[bounds]), expected, "{text} for {min}..={max}");
}

#[test]
fn bounds_decide_what_they_can_and_nothing_else() {
    for (text, expected) in [
        ("id < 10", Some(false)),
        ("id < 11", None),
        ("id < 21", Some(true)),
        ("id <= 20", Some(true)),
        ("id > 20", Some(false)),
        ("id >= 20", None),
        ("10 <= id", Some(true)),
        ("id = 9", Some(false)),
        ("id = 15", None),
        ("id <> 9", Some(true)),
        ("id in (1, 2, 3, 4, 99)", Some(false)),
        ("id in (1, 2, 3, 4, 12)", None),
        ("id not in (1, 2, 3, 4, 99)", Some(true)),
        ("id between 12 and 14", None),
        ("id between 30 and 40", Some(false)),
        ("id < 5 or id > 25", Some(false)),
        ("id > 5 and id < 25", Some(true)),
        ("not (id > 5 and id < 25)", Some(false)),
        ("id > 5 and abs(id) > 3", None),
    ] {
        same(expected, 10, 20, Some(false), text);
    }
    for (text, expected) in [
        ("id < 30", None),
        ("not (id < 30)", Some(false)),
        ("id is null", None),
        ("id is not null or id is null", None),
        ("id is distinct from 10", None),
        ("id is not distinct from 10", None),
        ("id > null or id < 30", None),
        ("id > null", Some(false)),
        ("id between null and 5", Some(false)),
        ("id not between 5 and null", Some(false)),
    ] {
        same(expected, 10, 20, None, text);
    }
    same(Some(true), 7, 7, Some(false), "id = 7");
    same(None, 7, 7, None, "id is distinct from 7");
}

fn kept_of(batch: &RecordBatch, text: &str) -> Result<Vec<usize>> {
    let condition = Condition::parse(&[text.to_owned()], &batch.schema())?;
    Ok(condition.over(&batch.schema())?.rows(batch)?.set_indices().collect())
}

#[test]
fn halves_are_compared_by_value_as_other_floating_point_numbers_are() {
    let values = [0.0, -0.0, f32::NAN, -f32::NAN, 1.5, f32::NEG_INFINITY];
    let halves: Float16Array = values.iter().map(|value| Some(half::f16::from_f32(*value))).collect();
    assert!(halves.value(3).is_sign_negative() && halves.value(1).is_sign_negative());
    let halves: ArrayRef = Arc::new(halves);
    let zeros: Float16Array = values.iter().map(|_| Some(half::f16::NEG_ZERO)).collect();
    let columns = [("h", Arc::clone(&halves)), ("same", halves), ("zero", Arc::new(zeros) as ArrayRef)];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let cases: &[(&str, &[usize])] = &[
        ("h = 0", &[0, 1]),
        ("h = -0.0", &[0, 1]),
        ("h < 0", &[5]),
        ("h >= 0.0", &[0, 1, 2, 3, 4]),
        ("h in (0.0, 1.5)", &[0, 1, 4]),
        ("h not in (-0.0)", &[2, 3, 4, 5]),
        ("h between 0 and 2", &[0, 1, 4]),
        ("h > 1", &[2, 3, 4]),
        ("h < 2", &[0, 1, 4, 5]),
        ("h = zero", &[0, 1]),
        ("h >= zero and same <= zero", &[0, 1]),
        ("h = same and h is not distinct from same", &[0, 1, 2, 3, 4, 5]),
    ];
    for (text, expected) in cases {
        assert_eq!(kept_of(&batch, text).unwrap_or_else(|error| panic!("{text}: {error}")), *expected, "{text}");
    }
}

/// A map of three rows and a null, with keys of a type.
fn map(keys: ArrayRef) -> ArrayRef {
    let entries = StructArray::from(vec![
        (Arc::new(Field::new("key", keys.data_type().clone(), false)), keys),
        (
            Arc::new(Field::new("value", DataType::Utf8, true)),
            Arc::new(StringArray::from(vec![Some("en"), Some("x"), Some("de"), None])) as ArrayRef,
        ),
    ]);
    let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    let nulls = NullBuffer::from(vec![true, true, true, false]);
    Arc::new(MapArray::new(field, OffsetBuffer::from_lengths([2, 1, 1, 0]), entries, Some(nulls), false))
}

#[test]
fn maps_are_asked_for_the_value_of_a_key_and_are_null_where_they_lack_it() {
    let names = vec!["lang", "other", "lang", "other"];
    let meta = |map: ArrayRef| {
        let field = Arc::new(Field::new("attributes", map.data_type().clone(), true));
        Arc::new(StructArray::from(vec![(field, map)])) as ArrayRef
    };
    let map = map(Arc::new(StringArray::from(names)));
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..4));
    let batch = RecordBatch::try_from_iter([("attributes", Arc::clone(&map)), ("meta", meta(map)), ("id", id)]);
    let batch = batch.unwrap();
    for (text, column, expected) in [
        ("attributes['lang'] = 'en'", "attributes", &[0][..]),
        ("attributes['lang'] <> 'en'", "attributes", &[1]),
        ("attributes['lang'] in ('en', 'de')", "attributes", &[0, 1]),
        ("attributes['other'] = 'x'", "attributes", &[0]),
        ("attributes['lang'] is null", "attributes", &[2, 3]),
        ("attributes['lang'] like 'd%'", "attributes", &[1]),
        ("attributes['none'] = 'x'", "attributes", &[]),
        ("meta.attributes['lang'] = 'de'", "meta.attributes", &[1]),
        ("meta['attributes']['lang'] = 'de'", "meta.attributes", &[1]),
    ] {
        let schema = batch.schema();
        let condition = Condition::parse(&[text.to_owned()], &schema).unwrap();
        assert_eq!(condition.columns(), [column], "{text}");
        rowdex_projection::Projection::columns(&schema, condition.columns()).unwrap();
        let predicate = condition.over(&schema).unwrap();
        let rows: Vec<usize> = predicate.rows(&batch).unwrap().set_indices().collect();
        assert_eq!(rows, expected, "{text} of {}", schema.field(0).data_type());
        assert!(predicate.terms().is_empty(), "{text}: {:?}", predicate.terms());
        assert_eq!(predicate.decided(&[]), None, "{text}");
    }
}

#[test]
fn keys_of_maps_of_another_type_are_refused() {
    let map = map(Arc::new(Int32Array::from(vec![7, 8, 7, 8])));
    let batch = RecordBatch::try_from_iter([("attributes", map)]).unwrap();
    for text in ["attributes[7] = 'en'", "attributes['lang'] = 'en'", "attributes[3000000000] = 'en'"] {
        let error = kept_of(&batch, text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}: {error}");
    }
}

#[test]
fn decimals_are_rounded_to_any_number_of_digits() {
    let cents = Decimal128Array::from(vec![Some(1994), Some(1995), Some(-1995), None, Some(2050)]);
    let column: ArrayRef = Arc::new(cents.with_precision_and_scale(10, 2).unwrap());
    let digits: ArrayRef = Arc::new(Int32Array::from(vec![1, 1, 0, 0, 2]));
    let batch = RecordBatch::try_from_iter_with_nullable([("price", column, true), ("k", digits, true)]).unwrap();
    let cases: [(&str, &[usize]); 8] = [
        ("round(price, 1) >= 20", &[1, 4]),
        ("round(price, 1) = 19.9", &[0]),
        ("round(price, 1 + 1) = 19.95", &[1]),
        ("round(price, 0) = 20", &[0, 1]),
        ("round(price) in (20, 21)", &[0, 1, 4]),
        ("round(price, -1) = 20", &[0, 1, 4]),
        ("round(price, k) between 19.9 and 20", &[0, 1]),
        ("abs(round(price, 1)) + 1 > 20.95", &[1, 2, 4]),
    ];
    for (text, expected) in cases {
        let condition = Condition::parse(&[text.to_owned()], &batch.schema());
        let rows = condition.and_then(|condition| condition.over(&batch.schema())?.rows(&batch));
        let rows = rows.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(rows.set_indices().collect::<Vec<_>>(), expected, "{text}");
    }
}

/// Took minutes when planning was told of all columns.
#[test]
fn one_of_a_hundred_thousand_columns_is_asked_for() {
    let name = |at: usize| format!("a column {at:06}");
    let fields: Vec<Field> = (0..100_000).map(|at| Field::new(name(at), DataType::Int64, true)).collect();
    let condition = Condition::parse(&["\"a column 070000\" > 1".to_owned()], &Arc::new(Schema::new(fields))).unwrap();
    assert_eq!(condition.columns(), ["a column 070000"]);
    let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let batch = RecordBatch::try_from_iter([("a column 070000", values)]).unwrap();
    assert_eq!(condition.over(&batch.schema()).unwrap().rows(&batch).unwrap().count_set_bits(), 1);
}
