use std::sync::Arc;

use arrow::array::*;
use datafusion_common::ScalarValue;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use crate::{Bounds, Condition};
use rowdex_base::error::Result;

/// Units of a column's values and of what is written, so that both are whole: 10^-9.
const UNIT: i128 = 1_000_000_000;

/// The rows that are kept, and those that bounds which are just the value leave in.
fn kept(column: &ArrayRef, text: &str) -> Result<(Vec<usize>, Vec<usize>)> {
    let batch = RecordBatch::try_from_iter_with_nullable([("c", Arc::clone(column), true)]).unwrap();
    let condition = Condition::parse(&[text.to_owned()], &batch.schema())?;
    let predicate = condition.over(&batch.schema())?;
    let may = |row: &usize| {
        let value = ScalarValue::try_from_array(column, *row).unwrap();
        let is_null = value.is_null();
        let bound = (!is_null).then_some(value);
        let bounds = Bounds { min: bound.clone(), max: bound, no_null: !is_null, all_null: is_null, lacks: None };
        predicate.truth(&vec![bounds; predicate.terms().len()]).may_be_true
    };
    let may = (0..column.len()).filter(may).collect();
    Ok((predicate.rows(&batch)?.set_indices().collect(), may))
}

type Test = fn(i128, i128) -> bool;

/// Every way to compare, with the values in units and what is written as text.
fn agrees(column: &ArrayRef, values: &[Option<i128>], written: &[(&str, i128)]) {
    let ops: [(&str, &str, Test); 6] = [
        ("=", "=", |a, b| a == b),
        ("<>", "<>", |a, b| a != b),
        ("<", ">", |a, b| a < b),
        ("<=", ">=", |a, b| a <= b),
        (">", "<", |a, b| a > b),
        (">=", "<=", |a, b| a >= b),
    ];
    let mut chance = ChaCha8Rng::seed_from_u64(7);
    let mut wrong = Vec::new();
    let mut compare = |text: String, truth: &dyn Fn(Option<i128>) -> Option<bool>| {
        let expected: Vec<usize> = (0..values.len()).filter(|row| truth(values[*row]) == Some(true)).collect();
        match kept(column, &text) {
            Ok((kept, may)) if kept == expected && expected.iter().all(|row| may.contains(row)) => {}
            other => wrong.push(format!("{}: {text}: {other:?} and not {expected:?}", column.data_type())),
        }
    };
    for (text, number) in written {
        for (op, swapped, test) in ops {
            let is = |value: Option<i128>| value.map(|value| test(value, *number));
            compare(format!("c {op} {text}"), &is);
            compare(format!("{text} {swapped} c"), &is);
            compare(format!("not (c {op} {text})"), &|value| is(value).map(|is| !is));
            compare(format!("case when c {op} {text} then false else true end"), &|value| {
                Some(is(value) != Some(true))
            });
        }
        compare(format!("c is distinct from {text}"), &|value| Some(value != Some(*number)));
        compare(format!("c is not distinct from {text}"), &|value| Some(value == Some(*number)));
        compare(format!("case c when {text} then true else false end"), &|value| Some(value == Some(*number)));
        compare(format!("c in ({text})"), &|value| value.map(|value| value == *number));
        compare(format!("c not in ({text})"), &|value| value.map(|value| value != *number));
        compare(format!("c in ({text}, null)"), &|value| value.filter(|value| value == number).map(|_| true));
        for (other, most) in written.iter().filter(|_| chance.random_bool(0.3)) {
            let within = |value: Option<i128>| value.map(|value| *number <= value && value <= *most);
            compare(format!("c between {text} and {other}"), &within);
            compare(format!("c not between {text} and {other}"), &|value| within(value).map(|is| !is));
            compare(format!("not (c in ({text}, {other}))"), &|value| value.map(|v| v != *number && v != *most));
        }
    }
    assert!(wrong.is_empty(), "{} are wrong, such as {:#?}", wrong.len(), &wrong[..wrong.len().min(30)]);
}

const NUMBERS: &[(&str, i128)] = &[
    ("0", 0),
    ("-1", -UNIT),
    ("2.5", 5 * UNIT / 2),
    ("-0.5", -UNIT / 2),
    ("127.001", 127 * UNIT + UNIT / 1000),
    ("3.0", 3 * UNIT),
    ("256", 256 * UNIT),
    ("3000000000", 3_000_000_000 * UNIT),
    ("9223372036854775806.5", 9_223_372_036_854_775_806 * UNIT + UNIT / 2),
    ("18446744073709551616", (1 << 64) * UNIT),
    ("-36893488147419103232.5", -(1 << 65) * UNIT - UNIT / 2),
    ("1e300", i128::MAX),
    ("-1e300", i128::MIN),
    ("1e-300", 1),
];

#[test]
fn integers_are_compared_with_numbers_that_their_type_does_not_have() {
    macro_rules! check {
        ($array:ident, $native:ty) => {
            let edges = [<$native>::MIN, <$native>::MIN + 1, <$native>::MAX - 1, <$native>::MAX];
            let values: Vec<Option<$native>> =
                [0, 1, 2, 3, 127].into_iter().chain(edges).map(Some).chain([None]).collect();
            let exact: Vec<_> = values.iter().map(|value| value.map(|value| i128::from(value) * UNIT)).collect();
            agrees(&(Arc::new($array::from(values)) as ArrayRef), &exact, NUMBERS);
        };
    }
    check!(Int32Array, i32);
    check!(Int64Array, i64);
    check!(UInt8Array, u8);
    check!(UInt64Array, u64);
}

#[test]
fn decimals_are_compared_with_numbers_of_more_digits() {
    let numbers = [
        ("19.99", 19_990_000_000),
        ("19.995", 19_995_000_000),
        ("-19.991", -19_991_000_000),
        ("20", 20 * UNIT),
        ("99.99", 99_990_000_000),
        ("99.999", 99_999_000_000),
        ("100", 100 * UNIT),
        ("-1e300", i128::MIN),
        ("1e-300", 1),
    ];
    let values = [Some(1999_i128), Some(2000), Some(-1999), Some(9999), Some(-9999), Some(0), None];
    decimals_agree(&values, &numbers);
}

/// That decimals of two digits behind the point, of both widths, are compared with these numbers by their values.
fn decimals_agree(values: &[Option<i128>], numbers: &[(&str, i128)]) {
    let exact: Vec<_> = values.iter().map(|value| value.map(|value| value * UNIT / 100)).collect();
    let wide = Decimal128Array::from(values.to_vec()).with_precision_and_scale(4, 2).unwrap();
    agrees(&(Arc::new(wide) as ArrayRef), &exact, numbers);
    let small = values.iter().map(|value| value.map(|value| value as i32));
    let small = Decimal32Array::from_iter(small).with_precision_and_scale(4, 2).unwrap();
    agrees(&(Arc::new(small) as ArrayRef), &exact, numbers);
}

#[test]
fn decimals_are_compared_with_the_digits_that_text_has() {
    let numbers = [
        ("'19.99'", 19_990_000_000),
        ("'19.999'", 19_999_000_000),
        ("'19.991'", 19_991_000_000),
        ("'+19.9900'", 19_990_000_000),
        ("'-19.991'", -19_991_000_000),
        ("'20'", 20 * UNIT),
        ("'20.'", 20 * UNIT),
        ("'.001'", 1_000_000),
        ("'1999.1e-2'", 19_991_000_000),
        ("'1.9991E1'", 19_991_000_000),
        ("'99.999'", 99_999_000_000),
        ("'100'", 100 * UNIT),
        ("'-1e300'", i128::MIN),
    ];
    let values = [Some(1999_i128), Some(2000), Some(-1999), Some(9999), Some(-2000), Some(0), None];
    decimals_agree(&values, &numbers);
}

#[test]
fn text_that_is_no_number_beside_a_decimal_is_refused() {
    let price: ArrayRef = Arc::new(Decimal128Array::from(vec![1999]).with_precision_and_scale(10, 2).unwrap());
    for text in ["c > 'abc'", "c = '1.2.3'", "c in ('1-2')", "c = '.'"] {
        let error = kept(&price, text).unwrap_err();
        assert_eq!(error.kind(), rowdex_base::error::ErrorKind::InvalidArgument, "{text}: {error}");
    }
}

#[test]
fn times_are_compared_with_finer_ones() {
    let hours = |hours: i128| hours * 3600 * UNIT;
    let texts = [
        ("time '12:00'", hours(12)),
        ("time '11:59:59.9999999'", hours(12) - 100),
        ("time '00:00:00.000001'", 1000),
        ("time '23:59:59.999999999'", hours(24) - 1),
    ];
    let exact = [Some(hours(12)), Some(0), None, Some(hours(24) - UNIT), Some(hours(6))];
    let cases: [(ArrayRef, i128); 4] = [
        (Arc::new(Time64MicrosecondArray::from_iter(exact.map(|of| of.map(|of| (of / 1000) as i64)))), 1),
        (Arc::new(Time64NanosecondArray::from_iter(exact.map(|of| of.map(|of| of as i64)))), 1),
        (Arc::new(Time32MillisecondArray::from_iter(exact.map(|of| of.map(|of| (of / 1_000_000) as i32)))), 1),
        (Arc::new(Time32SecondArray::from_iter(exact.map(|of| of.map(|of| (of / UNIT) as i32)))), 1),
    ];
    for (column, _) in cases {
        agrees(&column, &exact, &texts);
    }
}

#[test]
fn timestamps_and_dates_are_compared_with_finer_ones() {
    // 2024-01-01 00:00:00 and 1969-12-31 23:59:59.
    let (day, before) = (1_704_067_200 * UNIT, -UNIT);
    let texts = [
        ("timestamp '2024-01-01 00:00:00'", day),
        ("timestamp '2024-01-01 00:00:00.0000005'", day + 500),
        ("timestamp '1969-12-31 23:59:59.0000005'", before + 500),
        ("timestamp '2024-01-01 12:00:00'", day + 43_200 * UNIT),
        ("'2024-01-01 00:00:00.0005'", day + 500_000),
        ("timestamp '9999-12-31 00:00:00'", 253_402_214_400 * UNIT),
        ("'9999-12-31'", 253_402_214_400 * UNIT),
        ("date '9999-12-31'", 253_402_214_400 * UNIT),
        ("'9999-12-31 00:00:00.0000005'", 253_402_214_400 * UNIT + 500),
        ("'0001-01-01'", -62_135_596_800 * UNIT),
        ("timestamptz '0001-01-01 02:00:00+02:00'", -62_135_596_800 * UNIT),
    ];
    let exact = [Some(day), Some(before), None, Some(0), Some(day + UNIT)];
    for zone in [None, Some("UTC")] {
        let columns: [ArrayRef; 4] = [
            Arc::new(
                TimestampSecondArray::from_iter(exact.map(|of| of.map(|of| (of / UNIT) as i64)))
                    .with_timezone_opt(zone),
            ),
            Arc::new(
                TimestampMillisecondArray::from_iter(exact.map(|of| of.map(|of| (of / 1_000_000) as i64)))
                    .with_timezone_opt(zone),
            ),
            Arc::new(
                TimestampMicrosecondArray::from_iter(exact.map(|of| of.map(|of| (of / 1000) as i64)))
                    .with_timezone_opt(zone),
            ),
            Arc::new(
                TimestampNanosecondArray::from_iter(exact.map(|of| of.map(|of| of as i64))).with_timezone_opt(zone),
            ),
        ];
        for column in columns {
            agrees(&column, &exact, &texts);
        }
    }
    let days = [Some(day), Some(-86_400 * UNIT), None, Some(day + 86_400 * UNIT)];
    let column: ArrayRef = Arc::new(Date32Array::from_iter(days.map(|of| of.map(|of| (of / UNIT / 86_400) as i32))));
    agrees(&column, &days, &texts[..4]);
}

#[test]
fn times_with_an_offset_are_instants_and_others_those_of_the_zone_of_the_column() {
    // 2024-07-01 00:00:00 in UTC, when New York is four hours behind.
    let day = 1_719_792_000 * UNIT;
    let hours = |hours: i128| day + hours * 3600 * UNIT;
    let texts = [
        ("timestamptz '2024-07-01 12:00:00+05:00'", hours(7)),
        ("timestamp '2024-07-01 12:00:00+05:00'", hours(7)),
        ("'2024-07-01 12:00:00+05:00'", hours(7)),
        ("timestamptz '2024-07-01 12:00:00Z'", hours(12)),
        ("timestamptz '2024-07-01 12:00:00'", hours(12)),
        ("cast('2024-07-01 12:00:00.0000005' as timestamptz)", hours(12) + 500),
        ("timestamp '2024-07-01 12:00:00'", hours(16)),
        ("timestamp '2024-07-01 11:00:00' + interval '1 hour'", hours(16)),
        ("'2024-07-01 12:00:00'", hours(16)),
        ("date '2024-07-01'", hours(4)),
        ("'2024-07-01'", hours(4)),
        ("date '9999-12-31'", 253_402_214_400 * UNIT + 5 * 3600 * UNIT),
    ];
    let exact = [0, 4, 7, 8, 12, 13, 16, 17].map(|of| Some(hours(of)));
    let micros = TimestampMicrosecondArray::from_iter(exact.map(|of| of.map(|of| (of / 1000) as i64)));
    let nanos = TimestampNanosecondArray::from_iter(exact.map(|of| of.map(|of| of as i64)));
    agrees(&(Arc::new(micros.clone().with_timezone("America/New_York")) as ArrayRef), &exact, &texts);
    agrees(&(Arc::new(nanos.with_timezone("-04:00")) as ArrayRef), &exact, &texts[..11]);
    // Without a zone a column counts in UTC.
    agrees(&(Arc::new(micros) as ArrayRef), &exact, &texts[..6]);
}

#[test]
fn a_time_that_the_zone_of_the_column_lacks_or_has_twice_is_refused() {
    let micros = TimestampMicrosecondArray::from(vec![0]).with_timezone("America/New_York");
    let column: ArrayRef = Arc::new(micros);
    for text in ["timestamp '2024-03-10 02:30:00'", "'2024-11-03 01:30:00'", "timestamp '2024-11-03 01:30:00'"] {
        let error = kept(&column, &format!("c > {text}")).unwrap_err().to_string();
        assert!(error.contains("America/New_York") && error.contains("offset"), "{text}: {error}");
    }
}

#[test]
fn text_that_is_no_time_of_day_is_refused_beside_one() {
    let columns: [ArrayRef; 3] = [
        Arc::new(Time64MicrosecondArray::from(vec![5])),
        Arc::new(Time64NanosecondArray::from(vec![5])),
        Arc::new(Time32SecondArray::from(vec![5])),
    ];
    for column in columns {
        for text in ["c = '5'", "c > time '43200000000'", "c in ('12:00', '7')", "'3.5' < c", "c = 'noon'"] {
            let error = kept(&column, text).unwrap_err().to_string();
            assert!(error.contains("no time of day"), "{text}: {error}");
        }
    }
}

/// Values of 0.1, 3e38, infinity, NaN, 0.0, -infinity, null.
#[test]
fn floats_are_compared_in_double_where_their_type_ends() {
    let values = [Some(0.1), Some(3e38), Some(f64::INFINITY), Some(f64::NAN), Some(0.0), Some(f64::NEG_INFINITY), None];
    let single: ArrayRef = Arc::new(Float32Array::from_iter(values.map(|of| of.map(|of| of as f32))));
    let half = values.map(|of| of.map(|of: f64| if of == 3e38 { 60_000.0 } else { of }));
    let half: ArrayRef = Arc::new(half.into_iter().map(|of| of.map(half::f16::from_f64)).collect::<Float16Array>());
    let cases: &[(&str, &[usize])] = &[
        ("c > 1e300", &[2, 3]),
        ("c = 1e300", &[]),
        ("not (c > 1e300)", &[0, 1, 4, 5]),
        ("c < -1e300", &[5]),
        ("c <> 1e300", &[0, 1, 2, 3, 4, 5]),
        ("c in (0.1, 1e300)", &[0]),
        ("c not in (0.1, 1e300)", &[1, 2, 3, 4, 5]),
        ("c between 0.1 and 1e300", &[0, 1]),
        ("case c when 1e300 then true else false end", &[]),
        ("case c when 0.1 then true else false end", &[0]),
        ("c > 1e-300", &[0, 1, 2, 3]),
        ("c = 1e-300", &[]),
        ("c = 0.1", &[0]),
        ("1e300 < c", &[2, 3]),
        ("c < 100000000000000000000000000000000000000000", &[0, 1, 4, 5]),
    ];
    for column in [single, half] {
        for (text, expected) in cases {
            let (found, may) = kept(&column, text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(found, *expected, "{}: {text}", column.data_type());
            assert!(expected.iter().all(|row| may.contains(row)), "{}: {text}: {may:?}", column.data_type());
        }
    }
}

#[test]
fn durations_are_compared_with_intervals_whose_days_have_24_hours() {
    let hour = 3600 * UNIT;
    let intervals = [
        ("interval '1 day'", 24 * hour),
        ("interval '24 hours'", 24 * hour),
        ("interval '2 days'", 48 * hour),
        ("interval '1 day 1 second'", 24 * hour + UNIT),
        ("interval '1 hour 0.5 seconds'", hour + UNIT / 2),
        ("interval '-1 hours'", -hour),
        ("(interval '1 day' + interval '1 hour')", 25 * hour),
    ];
    let exact = [Some(hour), Some(48 * hour), None, Some(60 * 24 * hour), Some(24 * hour), Some(-hour), Some(0)];
    let counted = |unit: i128| exact.map(|of| of.map(|of| (of / unit) as i64));
    let columns: [ArrayRef; 4] = [
        Arc::new(DurationSecondArray::from_iter(counted(UNIT))),
        Arc::new(DurationMillisecondArray::from_iter(counted(UNIT / 1000))),
        Arc::new(DurationMicrosecondArray::from_iter(counted(UNIT / 1_000_000))),
        Arc::new(DurationNanosecondArray::from_iter(counted(1))),
    ];
    for column in columns {
        agrees(&column, &exact, &intervals);
    }
}

/// Rows that are kept of these columns.
fn kept_of<const N: usize>(columns: [(&str, ArrayRef); N], text: &str) -> Result<Vec<usize>> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let condition = Condition::parse(&[text.to_owned()], &batch.schema())?;
    Ok(condition.over(&batch.schema())?.rows(&batch)?.set_indices().collect())
}

#[test]
fn the_time_between_two_timestamps_is_compared_with_an_interval_as_a_duration_or_refused() {
    let hour = 3_600_000_000;
    let stamps = |stamps: [i64; 3]| Arc::new(TimestampMicrosecondArray::from(stamps.to_vec())) as ArrayRef;
    let kept = |text: &str| kept_of([("a", stamps([0; 3])), ("b", stamps([hour, 48 * hour, 60 * 24 * hour]))], text);
    let cases: &[(&str, &[usize])] = &[
        ("b - a > interval '1 day'", &[1, 2]),
        ("interval '1 day' < b - a", &[1, 2]),
        ("b - a = interval '2 days'", &[1]),
        ("b - a between interval '1 hour' and interval '48 hours'", &[0, 1]),
        ("b - a in (interval '60 days', interval '1 hour')", &[0, 2]),
        ("b > a + interval '1 month'", &[2]),
    ];
    for (text, expected) in cases {
        assert_eq!(kept(text).unwrap_or_else(|error| panic!("{text}: {error}")), *expected, "{text}");
    }
    for (text, said) in [
        ("b - a > interval '1 month'", "a month has no length of its own"),
        ("interval '1 day' = interval '24 hours'", "intervals are not compared"),
    ] {
        let error = kept(text).unwrap_err().to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[test]
fn decimals_of_256_bits_are_compared_with_all_digits_that_are_written() {
    use arrow::datatypes::{DataType, i256};
    let ten = |power: u32| i256::from_i128(10).checked_pow(power).unwrap();
    let one = i256::ONE;
    let values = [ten(45), ten(45).wrapping_add(one), i256::from_i128(2), ten(45).wrapping_neg()];
    let of = |scale: i8| {
        let array = Decimal256Array::from(values.to_vec()).with_data_type(DataType::Decimal256(76, scale));
        Arc::new(array) as ArrayRef
    };
    let kept = |text: &str| {
        let found = kept_of([("whole", of(0)), ("part", of(38))], text);
        found.unwrap_or_else(|error| panic!("{text}: {error}"))
    };
    let large = format!("1{}", "0".repeat(45));
    let one_more = format!("1{}1", "0".repeat(44));
    for quote in ["", "'"] {
        let q = |text: &str| format!("{quote}{text}{quote}");
        assert_eq!(kept(&format!("whole = {}", q(&large))), [0]);
        assert_eq!(kept(&format!("whole > {}", q(&large))), [1]);
        assert_eq!(kept(&format!("whole >= {}", q(&format!("{large}.5")))), [1]);
        assert_eq!(kept(&format!("whole in ({}, 2)", q(&one_more))), [1, 2]);
        assert_eq!(kept(&format!("whole <= -{large}")), [3]);
        assert_eq!(kept(&format!("whole < {}", q(&"9".repeat(90)))), [0, 1, 2, 3]);
        assert_eq!(kept(&format!("part = {}", q(&format!("10000000.{}", "0".repeat(38))))), [0]);
        assert_eq!(kept(&format!("part > {}", q("10000000"))), [1]);
    }
    assert_eq!(kept("whole = 1e45"), [0]);
}

#[test]
fn numbers_with_an_exponent_have_all_their_digits() {
    let whole = Arc::new(Int64Array::from(vec![9_007_199_254_740_992, 9_007_199_254_740_993])) as ArrayRef;
    assert_eq!(kept_of([("n", Arc::clone(&whole))], "n = 9.007199254740993e15").unwrap(), [1]);
    assert_eq!(kept_of([("n", whole)], "n < 9007199254740993000e-3").unwrap(), [0]);
}

#[test]
fn dates_are_compared_with_timestamps_beyond_what_nanoseconds_reach() {
    let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(2_932_896), Some(19_723), None]));
    let at = vec![Some(1_704_067_200_000_000), Some(1_704_067_200_000_000), Some(0)];
    let at: ArrayRef = Arc::new(TimestampMicrosecondArray::from(at));
    for (text, expected) in [
        ("at <= day", &[0, 1][..]),
        ("at = day", &[1]),
        ("day > at", &[0]),
        ("day between at and at", &[1]),
        ("day in (at, date '9999-12-31')", &[0, 1]),
    ] {
        let found = kept_of([("day", Arc::clone(&days)), ("at", Arc::clone(&at))], text);
        assert_eq!(found.unwrap_or_else(|error| panic!("{text}: {error}")), expected, "{text}");
    }
}
