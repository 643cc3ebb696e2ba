use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::*;
use arrow_schema::DataType;
use datafusion_common::ScalarValue;

use crate::{Bounds, Condition, Predicate};
use rowdex_base::error::Result;

fn seconds(of: [Option<i64>; 4]) -> TimestampSecondArray {
    TimestampSecondArray::from_iter(of)
}

/// 2024-01-01 00:00:00.
const NEW_YEAR: i64 = 1_704_067_200;

fn batch() -> RecordBatch {
    let half_hour = 1800;
    let at = [Some(NEW_YEAR - half_hour), Some(NEW_YEAR), Some(NEW_YEAR - 3 * half_hour), None];
    let fine = TimestampNanosecondArray::from_iter(at.map(|at| at.map(|at| at * 1_000_000_000)));
    let columns: [(&str, ArrayRef); 10] = [
        (
            "price",
            Arc::new(
                Decimal128Array::from(vec![Some(1999), Some(1900), Some(2004), None])
                    .with_precision_and_scale(10, 2)
                    .unwrap(),
            ),
        ),
        ("n", Arc::new(Int32Array::from(vec![Some(5), Some(6), Some(-7), None]))),
        ("big", Arc::new(Int64Array::from(vec![Some(3_000_000_000), Some(5), Some(6), None]))),
        ("unsigned", Arc::new(UInt8Array::from(vec![Some(200), Some(5), Some(0), None]))),
        ("at", Arc::new(TimestampMicrosecondArray::from_iter(at.map(|at| at.map(|at| at * 1_000_000))))),
        ("whole", Arc::new(seconds(at))),
        ("fine", Arc::new(fine)),
        ("zoned", Arc::new(seconds(at).with_timezone("Europe/Berlin"))),
        ("text", Arc::new(StringArray::from(vec![Some("a\\nb"), Some("nb"), Some("\\frac{n}{\nb}"), None]))),
        ("kind", Arc::new([Some("5"), Some("6"), Some("x"), None].into_iter().collect::<DictionaryArray<Int32Type>>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

fn over(batch: &RecordBatch, text: &str) -> Result<Predicate> {
    Condition::parse(&[text.to_owned()], &batch.schema())?.over(&batch.schema())
}

/// What a condition comes to where bounds are just the values of one row.
fn within(batch: &RecordBatch, predicate: &Predicate, row: usize) -> Option<bool> {
    let bounds = |(path, _): &(Vec<String>, DataType)| {
        let value = ScalarValue::try_from_array(batch.column_by_name(&path[0]).unwrap(), row).unwrap();
        let is_null = value.is_null();
        let bound = (!is_null).then_some(value);
        Bounds { min: bound.clone(), max: bound, no_null: !is_null, all_null: is_null }
    };
    predicate.decided(&predicate.terms().iter().map(bounds).collect::<Vec<_>>())
}

fn are_kept(cases: &[(&str, &[usize])]) {
    let batch = batch();
    let mut wrong = Vec::new();
    for (text, expected) in cases {
        let predicate = over(&batch, text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let kept: Vec<usize> =
            predicate.rows(&batch).unwrap_or_else(|error| panic!("{text}: {error}")).set_indices().collect();
        if kept != *expected {
            wrong.push(format!("{text}: {kept:?}, not {expected:?}"));
        }
        for row in 0..batch.num_rows() {
            let decided = within(&batch, &predicate, row);
            if decided == Some(!expected.contains(&row)) {
                wrong.push(format!("{text}: row {row} is decided wrongly by its bounds: {decided:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn casts_that_change_values_are_of_the_values_and_not_of_what_they_are_compared_with() {
    are_kept(&[
        ("price::int = 19", &[0, 1]),
        ("price::int <> 19", &[2]),
        ("price::int > 19", &[2]),
        ("price::int <= 19", &[0, 1]),
        ("19 < price::int", &[2]),
        ("price::int in (19)", &[0, 1]),
        ("price::int not in (19, 21)", &[2]),
        ("price::int in (1, 2, 3, 4, 19)", &[0, 1]),
        ("price::int between 19 and 19", &[0, 1]),
        ("case price::int when 19 then true else false end", &[0, 1]),
        ("not (price::int = 19)", &[2]),
        ("price::int is distinct from 19", &[2, 3]),
        ("price::int is not distinct from 19", &[0, 1]),
        ("price::decimal(10,1) = 20.0", &[0, 2]),
        ("try_cast(price as bigint) = 19 and n > 0", &[0, 1]),
        ("arrow_cast(price, 'Int32') = 19", &[0, 1]),
        ("arrow_try_cast(price, 'Int32') = 19", &[0, 1]),
        ("coalesce(price::int, 19) = 19", &[0, 1, 3]),
        ("(price::int)::bigint = 19", &[0, 1]),
        ("price::int + 1 = 20", &[0, 1]),
    ]);
}

#[test]
fn what_does_not_fit_the_type_of_a_cast_is_null_or_an_error() {
    are_kept(&[
        ("try_cast(big as int) <> 5", &[2]),
        ("try_cast(big as int) = 5", &[1]),
        ("try_cast(big as int) is null", &[0, 3]),
        ("try_cast(big as int) not in (5, 7)", &[2]),
        ("try_cast(unsigned as tinyint) <> 5", &[2]),
        ("arrow_try_cast(big, 'Int32') <> 5", &[2]),
        ("try_cast(kind as int) > 5", &[1]),
        ("try_cast(kind as int) in (5, 6)", &[0, 1]),
    ]);
    let error = over(&batch(), "big::int <> 5").unwrap().rows(&batch()).unwrap_err();
    assert!(error.to_string().contains("3000000000"), "{error}");
}

#[test]
fn timestamps_are_cast_before_they_are_compared() {
    are_kept(&[
        // The clock of Berlin showed 2024-01-01 00:30 at 23:30 in UTC; `at` is read there, and `zoned` is a moment.
        ("at at time zone 'Europe/Berlin' >= '2024-01-01'", &[1]),
        ("at at time zone 'Europe/Berlin' < '2024-01-01'", &[0, 2]),
        ("zoned >= '2024-01-01'", &[0, 1]),
        ("whole::timestamp(9) = timestamp '2024-01-01 00:00:00.5'", &[]),
        ("whole::timestamp(9) < timestamp '2024-01-01 00:00:00.5'", &[0, 1, 2]),
        ("whole::timestamp(9) >= timestamp '2024-01-01 00:00:00.5'", &[]),
        ("at::date = '2023-12-31'", &[0, 2]),
        ("arrow_cast(fine, 'Timestamp(Second, None)') = '2024-01-01'", &[1]),
    ]);
}

#[test]
fn casts_that_keep_the_order_are_decided_by_bounds() {
    let batch = batch();
    for (text, expected) in [
        ("n > 5", [false, true, false, false]),
        ("n > 5.5", [false, true, false, false]),
        ("n in (5, 7)", [true, false, false, false]),
        ("n::bigint > 5", [false, true, false, false]),
        ("n::decimal(12,2) <= 5.00", [true, false, true, false]),
        ("price < 19.995", [true, true, false, false]),
        ("price::int = 19", [true, true, false, false]),
        ("price::decimal(12,4) = 19.9900", [true, false, false, false]),
        ("arrow_cast(unsigned, 'Int16') < 5", [false, false, true, false]),
        ("whole >= timestamp '2024-01-01 00:00:00'", [false, true, false, false]),
        ("at >= '2024-01-01'", [false, true, false, false]),
        ("kind = '6'", [false, true, false, false]),
    ] {
        let predicate = over(&batch, text).unwrap();
        assert_eq!(predicate.terms().len(), 1, "{text}");
        let rows = predicate.rows(&batch).unwrap();
        for (row, expected) in expected.iter().enumerate() {
            assert_eq!(rows.value(row), *expected, "{text}: row {row}");
            assert_eq!(within(&batch, &predicate, row), Some(*expected), "{text}: row {row}");
        }
    }
}

#[test]
fn regular_expressions_find_backslashes() {
    are_kept(&[
        (r"text ~ '\\n'", &[0]),
        (r"text !~ '\\n'", &[1, 2]),
        (r"regexp_like(text, '\\n')", &[0]),
        (r"regexp_like(text, '\\N', 'i')", &[0]),
        (r"text ~ 'a\\|\\f'", &[0, 2]),
        (r"text ~ case when true then '\\n' else text end", &[0]),
        (r"text ~ '\n'", &[2]),
        (r"regexp_like(text, concat('\', '\n'))", &[0]),
        (r"text ~ null", &[]),
    ]);
}
