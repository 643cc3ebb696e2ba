//! What holds for the sources themselves: imports point down the floors of `docs/architecture.md`, no modules are in a
//! circle, lines are short, and each package has its licences.

#![allow(clippy::unwrap_used, clippy::panic)]

mod circles;
mod sources;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use sources::{code, paths};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn read(path: impl AsRef<Path>) -> String {
    let path = Path::new(ROOT).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a folder of the repository.
fn files(folder: &str) -> Vec<PathBuf> {
    walkdir::WalkDir::new(Path::new(ROOT).join(folder))
        .sort_by_file_name()
        .into_iter()
        .map(Result::unwrap)
        .filter(|entry| entry.file_type().is_file())
        .map(walkdir::DirEntry::into_path)
        .collect()
}

/// The names in the first column of the table in `docs/architecture.md` whose head begins so, in order.
fn table(head: &str) -> Vec<String> {
    let text = read("docs/architecture.md");
    let rows = text.split(&format!("| {head} |")).nth(1).unwrap().lines().skip(2);
    let rows = rows.take_while(|line| line.starts_with("| `"));
    rows.map(|row| row.split('`').nth(1).unwrap().to_owned()).collect()
}

/// The floor of each module at the top of `src`, counted from the ground.
fn floors() -> HashMap<String, usize> {
    table("module").into_iter().enumerate().map(|(floor, module)| (module, floor)).collect()
}

/// The name that a path begins with.
fn head(path: &str) -> &str {
    let path = path.trim_start();
    path.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// What a source file names below `crate::`, without its comments and its tests.
fn imports(source: &str) -> Vec<String> {
    let below = |path: Vec<String>| (path.first()? == "crate").then(|| path.get(1).cloned())?;
    paths(&code(source)).into_iter().filter_map(below).collect()
}

#[test]
fn packages_depend_on_those_above_them_in_the_architecture() {
    let packages = table("package");
    let mut there: Vec<String> = fs::read_dir(Path::new(ROOT).join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut listed = packages.clone();
    there.sort();
    listed.sort();
    assert_eq!(there, listed, "docs/architecture.md lists other packages than there are");
    for (floor, package) in packages.iter().enumerate() {
        let manifest = read(format!("crates/{package}/Cargo.toml"));
        let needs = manifest.lines().filter_map(|line| line.strip_prefix("rowdex-"));
        for needed in needs.map(|line| head(line).to_owned()) {
            let below = packages.iter().position(|package| *package == needed).unwrap();
            assert!(below < floor, "rowdex-{package} depends on rowdex-{needed}, which docs/architecture.md has below");
        }
    }
}

#[test]
fn imports_point_down_the_floors_of_the_architecture() {
    let floors = floors();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for file in files("src") {
        let path = file.strip_prefix(Path::new(ROOT).join("src")).unwrap();
        let module = path.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        let name = path.file_name().unwrap();
        if module == "lib" || module == "bin" || name == "tests.rs" || path.extension().is_none_or(|kind| kind != "rs")
        {
            continue;
        }
        let Some(&floor) = floors.get(module) else {
            panic!("docs/architecture.md has no floor for `{module}`");
        };
        for import in imports(&fs::read_to_string(&file).unwrap()) {
            seen += 1;
            let is_below = floors.get(&import).is_some_and(|&below| below <= floor);
            // A name of the crate page says not where it comes from.
            if !is_below {
                wrong.push(format!("{} imports `crate::{import}`", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 30, "imports are not found: {seen}");
    for module in floors.keys().filter(|module| !module.contains('/')) {
        let there = ["", "/mod"].iter().any(|end| Path::new(ROOT).join(format!("src/{module}{end}.rs")).exists());
        assert!(there, "docs/architecture.md has a floor for `{module}`, which is not there");
    }
}

#[test]
fn imports_are_found_in_groups_and_paths_but_not_in_comments_and_tests() {
    let source = "use crate::error::Result;\nuse crate::{order::{Order, Split}, Error, index};\n// crate::nothing\n\
                  fn f() { crate::bits::mix(1) }\n#[cfg(test)]\nmod tests { use crate::loader::Loader; }\n";
    assert_eq!(imports(source), ["error", "order", "order", "Error", "index", "bits"]);
}

/// The most columns of a line: `max_width` of `rustfmt.toml`.
fn max_width() -> usize {
    let found = read("rustfmt.toml");
    let width = found.lines().find_map(|line| line.strip_prefix("max_width = "));
    width.unwrap().trim().parse().unwrap()
}

/// Whether a line may be as long as it is: it is a row of a table, or an address does not fit.
fn may_be_long(line: &str, width: usize) -> bool {
    let text = line.trim_start().trim_start_matches(['/', '!', '#', '*']).trim_start();
    let address = line.split_whitespace().find(|word| word.contains("://"));
    let rest = address.map(|address| line.chars().count() - address.chars().count());
    text.starts_with('|') || rest.is_some_and(|rest| rest <= width)
}

/// The lines of a file that are too long, with their numbers.
fn long_lines(text: &str, width: usize) -> Vec<usize> {
    let lines = text.lines().enumerate();
    let long = lines.filter(|(_, line)| line.chars().count() > width && !may_be_long(line, width));
    long.map(|(number, _)| number + 1).collect()
}

#[test]
fn no_line_of_a_file_that_people_write_is_longer_than_rustfmt_allows() {
    if !Path::new(ROOT).join(".git").exists() {
        return; // An unpacked archive, whose files nobody edits.
    }
    let listed = std::process::Command::new("git").args(["-C", ROOT, "ls-files", "-z"]).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let (width, mut wrong, mut seen) = (max_width(), Vec::new(), 0);
    for path in String::from_utf8(listed.stdout).unwrap().split_terminator('\0') {
        // Programs write these.
        if path.starts_with("tests/data/") || [".lock", ".svg", ".ipynb"].iter().any(|end| path.ends_with(end)) {
            continue;
        }
        // A file that is deleted and not committed yet is listed; one that is no text is an index or a picture.
        let Some(text) = fs::read(Path::new(ROOT).join(path)).ok().and_then(|bytes| String::from_utf8(bytes).ok())
        else {
            continue;
        };
        seen += 1;
        wrong.extend(long_lines(&text, width).into_iter().map(|line| format!("{path}:{line}")));
    }
    assert!(wrong.is_empty(), "lines of more than {width} columns:\n{}", wrong.join("\n"));
    assert!(seen > 300, "files are not found: {seen}");
}

#[test]
fn long_lines_are_found_but_for_tables_and_addresses() {
    let word = "ä".repeat(30);
    let text =
        format!("{word}\n{word}b\n| {word}\n//! | {word}\nsee https://{word}\n{word} https://a\n{word}b https://a\n");
    assert_eq!(long_lines(&text, 30), [2, 6, 7]);
}

#[test]
fn no_value_is_made_at_first_use_behind_a_lock_that_a_forked_child_may_inherit() {
    let is_own = |path: &PathBuf| !path.to_string_lossy().contains("src/command/");
    for path in files("src").into_iter().chain(files("crates")).filter(is_own) {
        let code = code(&read(&path));
        let is_test = path.to_string_lossy().contains("tests");
        let found = code.lines().find(|line| line.contains("OnceLock") || line.contains("LazyLock"));
        assert!(is_test || found.is_none(), "{}: `{}`: use `Once`", path.display(), found.unwrap_or_default());
    }
}

#[test]
fn each_package_has_the_licences_as_files_of_its_own() {
    let crates = fs::read_dir(Path::new(ROOT).join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let folders: Vec<_> = crates.chain([Path::new(ROOT).join("python")]).collect();
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        // Links are lost by some of the tools that copy a tree, and then a file has nothing but a name.
        let differs = |folder: &&PathBuf| read(folder.join(licence)) != read(licence);
        assert_eq!(folders.iter().find(differs), None, "{licence}");
    }
    assert!(folders.len() > 9);
}
