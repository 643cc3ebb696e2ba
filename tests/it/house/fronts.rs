//! Each front says what to do in its own words: no message of the library, the C API or the command names what only
//! another of them has.

use std::fs;

use rowdex::error::Remedy;

use super::{files, read};

/// The texts in a piece of Rust, without those of comments.
fn texts(source: &str) -> Vec<String> {
    let (mut found, mut chars, mut last) = (Vec::new(), source.chars().peekable(), ' ');
    while let Some(c) = chars.next() {
        if c == '/' && chars.peek() == Some(&'/') {
            chars.by_ref().find(|c| *c == '\n');
        } else if c == '"' && !matches!(last, '\'' | '\\') {
            let mut text = String::new();
            while let Some(c) = chars.next().filter(|c| *c != '"') {
                text.push(c);
                if c == '\\' {
                    text.extend(chars.next());
                }
            }
            found.push(text);
        }
        last = c;
    }
    found
}

/// A source without the tests that it ends with.
fn without_tests(source: &str) -> &str {
    source.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}

/// Options of the command and its other commands; `rowdex serve` is what another process is.
fn is_of_the_command(text: &str) -> bool {
    let option = text.match_indices("--").any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + 2..]);
        !before.ends_with('-') && after.starts_with(|c: char| c.is_ascii_lowercase())
    });
    (option || text.contains("`rowdex ")) && !text.contains("`rowdex serve`")
}

/// Calls of builders, and variants of enums.
fn is_of_rust(text: &str) -> bool {
    text.contains("`with_") || text.contains("Builder::") || text.contains("::Union")
}

/// Fields of the structs of options, and pointers.
fn is_of_c(text: &str) -> bool {
    text.contains("options.") || text.contains("NULL")
}

/// Keyword arguments and values.
fn is_of_python(text: &str) -> bool {
    ["=True", "=False", "='", "rowdex.build(", "rowdex.select("].iter().any(|word| text.contains(word))
}

/// What the tables of words have, which are right there, and what a server says of its own options.
fn is_a_table(path: &str) -> bool {
    ["base/src/remedy.rs", "loader/share/facts.rs", "command/failure.rs"].iter().any(|end| path.ends_with(end))
}

#[test]
fn no_front_names_the_words_of_another() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for path in files("src").into_iter().chain(files("crates")) {
        let name = path.display().to_string();
        let is_test = name.contains("/tests") || name.ends_with("_tests.rs");
        if is_test || is_a_table(&name) || path.extension().is_none_or(|kind| kind != "rs") {
            continue;
        }
        let (is_command, is_c) = (name.contains("/src/command/"), name.contains("/src/capi/"));
        for text in texts(without_tests(&fs::read_to_string(&path).unwrap())).iter().filter(|text| text.contains(' ')) {
            seen += 1;
            let of_another = (!is_command && is_of_the_command(text))
                || is_of_rust(text)
                || (!is_c && is_of_c(text))
                || is_of_python(text) && !text.contains("lang =");
            if of_another {
                wrong.push(format!("{name}: {text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 1000, "texts are not found: {seen}");
}

#[test]
fn a_text_of_a_hint_has_a_place_for_each_remedy() {
    let mut seen = 0;
    for path in files("src").into_iter().chain(files("crates")) {
        if path.extension().is_none_or(|kind| kind != "rs") {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        let source = without_tests(&source);
        for call in source.split(".with_remedies(").skip(1).filter(|call| call.trim_start().starts_with('"')) {
            let call = &call[..call.find(']').unwrap()];
            let (places, remedies) = (call.matches("{}").count(), call.matches("Remedy::").count());
            assert!(places == remedies && places > 0, "{}: {call}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 12, "hints with remedies are not found: {seen}");
}

/// The names in the arms of `match` for all remedies in a source, which lie behind `Remedy::`.
fn worded(source: &str) -> Vec<(String, String)> {
    let arms = source.lines().filter_map(|line| line.trim().strip_prefix("Remedy::")?.split_once(" => "));
    arms.map(|(remedy, word)| (remedy.to_owned(), word.trim_matches(['"', ',', '`']).to_owned())).collect()
}

#[test]
fn every_front_has_a_word_for_every_remedy() {
    let (command, c) = (worded(&read("src/command/failure.rs")), worded(&read("src/capi/error.rs")));
    let python: String = files("python/rowdex")
        .into_iter()
        .filter(|path| path.extension().is_some_and(|kind| kind == "py"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    for remedy in Remedy::ALL {
        let name = format!("{remedy:?}");
        let option = command.iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("{name}: no option"));
        let field = c.iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("{name}: no field"));
        let is_command = ["--", "rowdex "].iter().any(|begin| option.1.starts_with(begin));
        assert!(is_command || is_of_the_command(&option.1), "{name}: {}", option.1);
        // A field of a struct, a function, or a field of a description.
        let header = read("include/rowdex.h");
        let is_there = [";", "(", ": "].iter().any(|end| header.contains(&format!("{}{end}", field.1)));
        assert!(is_there, "{name}: C has no {}", field.1);
        assert!(python.contains(&format!("\"{}\": \"", field.1)), "{name}: Python has no word for `{}`", field.1);
        assert!(!remedy.in_rust().is_empty(), "{name}");
    }
}

#[test]
fn texts_are_found_and_told_apart() {
    let source = r#"f("a \"b\" `--overwrite`"); // "no"
                    let c = '"'; g("with x//", '"');"#;
    assert_eq!(texts(source), [r#"a \"b\" `--overwrite`"#, "with x//"]);
    assert!(
        is_of_the_command("do `--overwrite`") && is_of_the_command("`rowdex build` it") && !is_of_the_command("a -- b")
    );
    assert!(!is_of_the_command("start `rowdex serve` with `--ranks`"));
    assert!(is_of_rust("ask `with_root`") && is_of_c("set options.share") && is_of_python("overwrite=True"));
}
