//! Which paths an index may name.

use rowdex_base::error::{Error, Result};

/// The longest path that an index may hold, in bytes.
pub(crate) const MAX_PATH: usize = 4096;

/// Refuses a path that could lead out of the root it is joined to.
///
/// An index may come from a stranger, so it names files only below the root that the caller chose: `/`-separated,
/// relative, with no `.`, `..` or empty component, no NUL, no scheme and no drive, at most 4096 bytes. A `:` or a `\`
/// inside a name is an ordinary character to Unix and to object stores.
pub fn check_path(path: &str) -> Result<()> {
    let problem = if path.is_empty() {
        "is empty"
    } else if path.len() > MAX_PATH {
        "is longer than 4096 bytes"
    } else if path.contains('\0') {
        "contains a NUL"
    } else if path.starts_with('/') {
        "is absolute"
    } else if has_scheme(path) {
        "has a scheme"
    } else if has_drive(path) {
        "has a drive"
    } else if path.split('/').any(|part| part == "..") {
        "contains `..`"
    } else if path.split('/').any(|part| part.is_empty() || part == ".") {
        "has an empty component or a `.`"
    } else {
        return Ok(());
    };
    let shown: String = path.chars().take(200).collect();
    Err(Error::invalid(format!("the path {shown:?} {problem}"))
        .with_hint("an index names files by clean relative paths below its root"))
}

fn has_scheme(path: &str) -> bool {
    path.split_once("://").is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    })
}

/// `C:`, `C:/x` or `C:\x`; `C:x` could be a file.
fn has_drive(path: &str) -> bool {
    let mut chars = path.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic())
        && chars.next() == Some(':')
        && matches!(chars.next(), None | Some('/' | '\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_pass() {
        for path in [
            "a",
            "a.parquet",
            "year=2024/month=01/part-0.parquet",
            "...",
            "..a/b..",
            "naïve/数据.parquet",
            "with space/new\nline",
            "12:30:00.parquet",
            "x:y",
            "back\\slash",
            "a@b?c#d%2e%2e",
            &"x".repeat(MAX_PATH),
        ] {
            assert!(check_path(path).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn hostile_names_are_refused() {
        for path in [
            "",
            "/etc/shadow",
            "//server/share",
            "../x",
            "a/../../x",
            "a/..",
            "..",
            ".",
            "./a",
            "a/./b",
            "a//b",
            "a/",
            "a\0b",
            "s3://bucket/key",
            "http://169.254.169.254/latest",
            "file:///etc/shadow",
            "C:",
            "C:/x",
            "c:\\x",
            &"x".repeat(MAX_PATH + 1),
        ] {
            assert!(check_path(path).is_err(), "{path:?}");
        }
    }
}
