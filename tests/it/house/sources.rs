//! Reading of Rust sources, as far as tests need it: which paths they name.

/// A source without its comments and without the tests that it ends with.
pub(super) fn code(source: &str) -> String {
    let is_inline = |at: &usize| {
        let item = source[*at..].lines().skip(2).find(|line| !line.starts_with("#["));
        item.is_some_and(|item| item.contains("mod ") && item.contains('{'))
    };
    let tests = source.match_indices("\n#[cfg(test)]\n").map(|(at, _)| at).find(is_inline);
    let lines = source[..tests.unwrap_or(source.len())].lines();
    lines.map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The words and signs of a piece of code; `::` is one sign.
fn tokens(mut code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    while let Some(first) = code.chars().next() {
        let word = code.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(code.len());
        let length = if code.starts_with("::") { 2 } else { word.max(first.len_utf8()) };
        let (token, rest) = code.split_at(length);
        if !token.trim().is_empty() {
            found.push(token);
        }
        code = rest;
    }
    found
}

/// A path as it is written, and the name that what it leads to has from there on.
pub(super) type Named = (Vec<String>, String);

/// Adds the paths that begin at a token, behind `before`: one, or those of a group in braces. Returns the token behind.
fn tree(tokens: &[&str], mut at: usize, before: &[String], found: &mut Vec<Named>) -> usize {
    let mut path = before.to_vec();
    loop {
        match tokens.get(at).copied() {
            Some("{") => {
                at += 1;
                while let Some(&token) = tokens.get(at).filter(|token| **token != "}") {
                    at = if token == "," { at + 1 } else { tree(tokens, at, &path, found).max(at + 1) };
                }
                return at + 1;
            }
            Some(word) if word.starts_with(|c: char| c.is_alphabetic() || c == '_') => path.push(word.to_owned()),
            _ => break,
        }
        at += 1;
        if tokens.get(at) != Some(&"::") {
            break;
        }
        at += 1;
    }
    // `a::{self}` is `a`.
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let other = tokens.get(at + 1).filter(|_| tokens.get(at) == Some(&"as"));
    let name = other.map(|name| (*name).to_owned()).or_else(|| path.last().cloned());
    found.push((path, name.unwrap_or_default()));
    if other.is_some() { at + 2 } else { at }
}

/// The paths in a piece of code that begin with `crate`, `self` or `super`, those of a group in braces one by one.
pub(super) fn paths(code: &str) -> Vec<Vec<String>> {
    let (tokens, mut found, mut at) = (tokens(code), Vec::new(), 0);
    while at < tokens.len() {
        let is_start = matches!(tokens[at], "crate" | "self" | "super") && tokens.get(at + 1) == Some(&"::");
        at = if is_start { tree(&tokens, at, &[], &mut found) } else { at + 1 };
    }
    found.into_iter().map(|(path, _)| path).collect()
}

/// The paths that a piece of code exports again: those of `pub use`, for whomever.
pub(super) fn exports(code: &str) -> Vec<Named> {
    let (tokens, mut found) = (tokens(code), Vec::new());
    for at in (0..tokens.len()).filter(|at| tokens[*at] == "pub") {
        let behind = match tokens.get(at + 1) {
            Some(&"(") => tokens[at..].iter().position(|token| *token == ")").map(|length| at + length + 1),
            _ => Some(at + 1),
        };
        if let Some(behind) = behind.filter(|behind| tokens.get(*behind) == Some(&"use")) {
            tree(&tokens, behind + 1, &[], &mut found);
        }
    }
    found
}

#[test]
fn paths_are_found_in_groups_but_not_in_comments_and_tests() {
    let source = "#[cfg(test)]\nmod tests;\nuse super::{self, a::{B, self}, c as d};\npub(crate) use self::e::F;\n\
                  pub use g::{H as N, i::J};\n// crate::no\nfn f(self) -> crate::K { super::super::l::<crate::M>() }\n\
                  #[cfg(test)]\n#[allow(x)]\nmod n { use crate::O; }\n";
    let found = paths(&code(source)).iter().map(|path| path.join("::")).collect::<Vec<_>>();
    let own = ["super", "super::a::B", "super::a", "super::c", "self::e::F", "crate::K", "super::super::l", "crate::M"];
    assert_eq!(found, own);
    let exported = exports(&code(source)).into_iter().map(|(path, name)| path.join("::") + " as " + &name);
    assert_eq!(exported.collect::<Vec<_>>(), ["self::e::F as F", "g::H as N", "g::i::J as J"]);
}
