use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use proptest::prelude::*;

use super::{Deadline, LONGEST};
use crate::apart::SIMPLIFIED;
use crate::plan::Planner;
use crate::sql::parse;
use crate::{Condition, on_a_deep_stack};
use rowdex_base::error::{ErrorKind, Result};

fn batch() -> RecordBatch {
    let columns: [(&str, ArrayRef); 2] = [
        ("id", Arc::new(Int64Array::from(vec![0, 1, 2]))),
        ("text", Arc::new(StringArray::from(vec!["a", "b", "ab"]))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn kept(text: &str) -> Result<usize> {
    let batch = batch();
    let condition = Condition::parse(&[text.to_owned()], &batch.schema())?;
    Ok(condition.over(&batch.schema())?.rows(&batch)?.count_set_bits())
}

#[test]
fn calls_that_are_nested_and_not_complete_are_refused() {
    let words = [
        "array(",
        "case when ",
        "case(",
        "cast(",
        "ceil(",
        "coalesce(",
        "convert(",
        "date(",
        "exists(",
        "extract(",
        "floor(",
        "id in (",
        "interval(",
        "lower(",
        "map(",
        "named_struct('a', ",
        "not(",
        "overlay(",
        "point(",
        "position(",
        "struct(",
        "substring(",
        "time(",
        "trim(",
        "try_cast(",
        "(",
        "[",
        "{",
        "- ",
        "+ ",
        "not ",
        "interval ",
        "date ",
        "cast(id as array<",
        "id = any(",
        "text like (",
        "id between (",
        "id::",
        "text || (",
        "(select ",
        "case id when ",
        "case when id = 1 then ",
        "array[",
        "struct<a int>(",
        "x -> (",
    ];
    let mut served = Vec::new();
    for word in words {
        for times in [12, 99, 101, 3000] {
            for end in ["", "id)"] {
                let text = format!("{}{end}", word.repeat(times));
                match kept(&text) {
                    Ok(_) => served.push(text.chars().take(60).collect::<String>()),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                        assert!(!error.to_string().contains("not worked out within"), "{text:.60}: {error}");
                    }
                }
            }
        }
    }
    assert!(served.is_empty(), "{served:#?}");
}

#[test]
fn the_error_of_a_nested_call_is_the_first_one_that_was_met() {
    let error = kept(&format!("{}id{} = 1", "cast(".repeat(60), ")".repeat(60))).unwrap_err().to_string();
    assert!(error.contains("Expected: AS, found: )"), "{error}");
    let error = kept(&"cast(".repeat(140)).unwrap_err().to_string();
    assert!(error.contains("levels deep"), "{error}");
}

#[test]
fn what_nests_and_is_complete_is_evaluated() {
    let nested =
        |open: &str, inner: &str, close: &str, times| format!("{}{inner}{}", open.repeat(times), close.repeat(times));
    let cases = [
        (nested("cast(", "id", " as bigint)", 80) + " = 1", 1),
        (nested("(", "id = 1", ")", 95), 1),
        (nested("not (", "id = 1", ")", 40), 1),
        (nested("case when id = 1 then ", "true", " else false end", 40), 1),
        (nested("case when id = 7 then 0 else ", "id", " end", 40) + " = 2", 1),
        (nested("- (", "id", ")", 40) + " = 1", 1),
        (nested("lower(", "text", ")", 80) + " = 'ab'", 1),
        (nested("concat(", "text", ", '')", 80) + " = 'ab'", 1),
        (nested("array_has([", "true", "], true)", 20) + " or array_has([0, 1], id) or array_has([1, 2], id)", 3),
        (nested("abs(", "id", ")", 80) + " = 2", 1),
        (nested("[", "id", "]", 40) + " is not null", 3),
        (nested("position('a' in ", "text", ")", 1) + " = 1", 2),
        ("id = 1".to_owned() + &" or id = 1".repeat(900), 1),
        (format!("text <> '{}'", "x".repeat(1 << 20)), 3),
        (format!("id < {}", "9".repeat(1000)), 3),
        (format!("id > -{}", "9".repeat(1000)), 3),
        (format!("text not like '{}'", "%a".repeat(1000)), 3),
    ];
    for (text, expected) in cases {
        assert_eq!(kept(&text).map_err(|error| error.to_string()), Ok(expected), "{text:.60}");
    }
}

#[test]
fn a_list_of_a_hundred_thousand_numbers_is_evaluated_and_as_many_operators_are_refused() {
    let numbers: Vec<String> = (0..100_000).map(|number| (number * 2).to_string()).collect();
    assert_eq!(kept(&format!("id in ({})", numbers.join(", "))).unwrap(), 2);
    let words: Vec<String> = (0..100_000).map(|number| format!("'{number}'")).collect();
    assert_eq!(kept(&format!("text not in ({})", words.join(", "))).unwrap(), 3);
    let error = kept(&vec!["id = 1"; 100_000].join(" or ")).unwrap_err();
    assert!(
        error.to_string().contains("operators") && error.hint().is_some_and(|hint| hint.contains("in (")),
        "{error}"
    );
}

#[test]
fn a_regular_expression_too_large_for_a_machine_is_an_error() {
    let error = kept("text ~ '((((a{1,1000}){1,1000}){1,1000}){1,1000})'").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().ends_with("did not compile: CompiledTooBig(10485760)"), "{error}");
}

#[test]
fn planning_ends_when_its_time_is_over() {
    let schema = batch().schema();
    for text in ["id = 1", "cast(cast(", "id in (1, 2, 3)"] {
        let error = Condition::parse_within(&[text.to_owned()], &schema, Duration::ZERO).unwrap_err();
        assert!(
            error.to_string().contains(&format!("in the condition `{text}`: it is not worked out within 0 s of")),
            "{error}"
        );
        assert!(error.hint().is_some());
    }
}

#[test]
fn calls_within_calls_are_simplified_a_few_times_however_deep_they_are() {
    let schema = batch().schema();
    let simplified = |levels: usize| {
        let text = format!("{}text{} = 'a'", "concat(".repeat(levels), ", 'b')".repeat(levels));
        let plan = || {
            let deadline = Deadline::within(LONGEST);
            let before = SIMPLIFIED.get();
            Planner::new(&schema, deadline)?.one(&parse(&text, &schema, deadline)?)?;
            Ok(SIMPLIFIED.get() - before)
        };
        on_a_deep_stack(plan).unwrap()
    };
    // Each time, operations are the calls, their constants, the comparison and its sides.
    let most = |levels: usize| 8 * (2 * levels + 3);
    for levels in [10, 20, 80] {
        assert!(simplified(levels) <= most(levels), "{} of {} operations", simplified(levels), levels);
    }
}

/// Other systems do not tell how long a thread was working.
#[cfg(target_os = "linux")]
#[test]
fn the_time_of_other_threads_is_none_of_planning() {
    use super::worked;

    let deadline = Deadline::within(Duration::from_millis(200));
    let working = std::thread::spawn(|| {
        let until = worked().unwrap() + Duration::from_millis(300);
        while worked().unwrap() < until {}
    });
    working.join().unwrap();
    assert!(!deadline.is_over());
    while worked().unwrap() < deadline.worked.unwrap() + Duration::from_millis(201) {}
    assert!(deadline.is_over());
}

fn word() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "id",
        "text",
        "(",
        ")",
        "(",
        ")",
        "[",
        "]",
        ",",
        "cast(",
        " as ",
        "int",
        "case",
        "when",
        "then",
        "else",
        "end",
        "not",
        "and",
        "or",
        "=",
        "<",
        "-",
        "+",
        "*",
        "/",
        "in (",
        "between",
        "is null",
        "'a'",
        "1",
        "2.5",
        "1e300",
        "coalesce(",
        "nullif(",
        "interval",
        "extract(",
        "position(",
        "substring(",
        "array",
        "struct",
        "::",
        "like",
        "~",
        ".",
        "null",
        "true",
        "exists",
        "any(",
        "date",
        "time",
        "trim(",
        "distinct",
        "from",
        "array<",
        ">",
        "lambda",
        "->",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn conditions_of_random_words_end(words in prop::collection::vec(word(), 1..60)) {
        if let Err(error) = kept(&words.join(" ")) {
            prop_assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            prop_assert!(!error.message().contains('\n'), "{}", error);
        }
    }
}
