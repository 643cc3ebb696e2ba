use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use proptest::prelude::*;

use crate::Condition;
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
    let words = concat!(
        "array(#case when #case(#cast(#ceil(#coalesce(#convert(#date(#exists(#extract(#floor(#id in (#interval(#",
        "lower(#map(#named_struct('a', #not(#overlay(#point(#position(#struct(#substring(#time(#trim(#try_cast(#(#",
        "[#{#- #+ #not #interval #date #cast(id as array<#id = any(#text like (#id between (#id::#text || (#",
        "(select #case id when #case when id = 1 then #array[#struct<a int>(#x -> (",
    );
    let mut served = Vec::new();
    for word in words.split('#') {
        for times in [12, 49, 101, 1000] {
            for end in ["", "id)", &format!("id{}", ")".repeat(times))] {
                let text = format!("{}{end}", word.repeat(times));
                match kept(&text) {
                    Ok(_) => served.push(text.chars().take(60).collect::<String>()),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                    }
                }
            }
        }
    }
    assert!(served.is_empty(), "{served:#?}");
}

#[test]
fn what_nests_and_is_complete_is_evaluated() {
    let nested =
        |open: &str, inner: &str, close: &str, times| format!("{}{inner}{}", open.repeat(times), close.repeat(times));
    let cases = [
        (nested("cast(", "id", " as bigint)", 45) + " = 1", 1),
        (nested("(", "id = 1", ")", 49), 1),
        (nested("not (", "id = 1", ")", 24), 1),
        (nested("case when id = 1 then ", "true", " else false end", 40), 1),
        (nested("case when id = 7 then 0 else ", "id", " end", 40) + " = 2", 1),
        (nested("- (", "id", ")", 24) + " = 1", 1),
        (nested("(", "id = 1", " between false and true)", 8), 3),
        (nested("lower(", "text", ")", 45) + " = 'ab'", 1),
        (nested("concat(", "text", ", '')", 45) + " = 'ab'", 1),
        (nested("array_has([", "true", "], true)", 20) + " or array_has([0, 1], id) or array_has([1, 2], id)", 3),
        (nested("abs(", "id", ")", 45) + " = 2", 1),
        (nested("[", "id", "]", 40) + " is not null", 3),
        (nested("position('a' in ", "text", ")", 1) + " = 1", 2),
        ("id = 1".to_owned() + &" or id = 1".repeat(900), 1),
        (format!("text <> '{}'", "x".repeat(1 << 20)), 3),
        (format!("id < {}", "90".repeat(8)), 3),
        (format!("id > -1{}", "0".repeat(300)), 3),
        (format!("text not like '{}'", "%a".repeat(1000)), 3),
    ];
    for (text, expected) in cases {
        assert_eq!(kept(&text).map_err(|error| error.to_string()), Ok(expected), "{text:.60}");
    }
}

/// Each level asks what it compares twice.
#[test]
fn ranges_within_each_other_are_refused_before_they_take_for_ever() {
    for not in ["", "not "] {
        let text = format!("{}id = 1{}", "(".repeat(40), format!(" {not}between false and true)").repeat(40));
        assert!(kept(&text).unwrap_err().message().contains("too many operations"));
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

fn word() -> impl Strategy<Value = &'static str> {
    let words = concat!(
        "id|text|(|)|(|)|[|]|,|cast(| as |int|case|when|then|else|end|not|and|or|=|<|-|+|*|/|in (|between|is null|",
        "'a'|1|2.5|1e300|coalesce(|nullif(|interval|extract(|position(|substring(|array|struct|::|like|~|.|null|",
        "true|exists|any(|date|time|trim(|distinct|from|array<|>|lambda|->",
    );
    prop::sample::select(words.split('|').collect::<Vec<_>>())
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
