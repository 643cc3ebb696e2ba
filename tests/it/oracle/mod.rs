//! rowdex serves what pyarrow reads, row by row, and refuses what nobody should read.
//!
//! Two corpora: one that pyarrow generates here (`tools/oracle`), and the public one of the Parquet project if it is at
//! hand. Without a Python that can install pyarrow these tests say what they leave out and pass, unless `ROWDEX_ORACLE`
//! is `required`.

#![allow(clippy::unwrap_used, clippy::panic)]

mod bad;
mod compare;
mod damaged;
mod lengths;
mod python;
mod rewritten;
mod serve;
mod torch;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use python::{oracle, public_corpus, say};
use serve::{Known, Served, Ways};
use tempfile::TempDir;

/// Where rowdex does not do as pyarrow does with a file of the public corpus, and why.
const PUBLIC: &[(&str, Known)] = &[
    // Its writer gave a field of its own the number that the format has since given to the length of bloom filters, so
    // the parquet crate cannot parse the footer.
    ("dict-page-offset-zero.parquet", Known::Refused("the footer cannot be decoded")),
    // The keys of its map may be null, which the format forbids. None is, so what rowdex reads is what was written.
    (
        "incorrect_map_schema.parquet",
        Known::PyarrowRefuses("Map keys must be annotated as required", &["{parent: another, name: report}"]),
    ),
    // A day of the year 290 000, which wraps in 64 bits of nanoseconds.
    ("int96_from_spark.parquet", Known::NoValues("column \"a\": has an INT96 timestamp on Julian day")),
];

#[test]
fn every_generated_file_is_served_as_pyarrow_reads_it() {
    let Some(oracle) = oracle() else { return };
    let files = parquet_files(&oracle.corpus.join("good"));
    let served = serve::all(&files, &oracle.corpus, &oracle.expected, &[], Ways::Rows);
    report("generated corpus", &served);
    assert!(served.files > 300, "{}", served.files);
}

/// The seed is that of the time, or `ROWDEX_RANDOM_SEED`. `ROWDEX_RANDOM_FILES` asks for more files than the gate has
/// time for.
#[test]
fn random_files_are_served_as_pyarrow_reads_them_in_every_way_there_is() {
    let Some(oracle) = oracle() else { return };
    let seed = number("ROWDEX_RANDOM_SEED").unwrap_or_else(now);
    let count = number("ROWDEX_RANDOM_FILES").unwrap_or(12);
    say(&format!("random files: ROWDEX_RANDOM_SEED={seed} ROWDEX_RANDOM_FILES={count}"));
    let folder = TempDir::new().unwrap();
    let (files, expected) = (folder.path().join("files"), folder.path().join("expected"));
    oracle.random_files(seed, count, &files).unwrap();
    oracle.expect(&files, &expected).unwrap();
    let served = serve::all(&parquet_files(&files), &files, &expected, &[], Ways::All);
    assert_eq!(served.files as u64, count);
    report(&format!("random files of seed {seed}"), &served);
}

/// Hundreds of files, always the same, or thousands with `ROWDEX_LONG`, whose seed is that of the time. Or as
/// `ROWDEX_DAMAGED_FILES` and `ROWDEX_DAMAGED_SEED` say.
#[test]
fn damaged_files_are_refused_or_served_as_pyarrow_reads_them() {
    let Some(oracle) = oracle() else { return };
    let is_long = std::env::var_os("ROWDEX_LONG").is_some();
    let usual = if is_long { 5000 } else { 300 };
    let count = number("ROWDEX_DAMAGED_FILES").unwrap_or(usual) as usize;
    let seed = number("ROWDEX_DAMAGED_SEED").unwrap_or_else(|| if is_long { now() } else { 1 });
    damaged::compare(oracle, seed, count);
    // References to a dictionary, and differences, the headers of which ask for more bytes than their page has; schemas
    // with fewer levels, and with booleans where the columns have dictionaries.
    // A run of no references, behind levels that are one byte short.
    for seed in
        [1795488699024572984, 1795491107389450886, 1795491466672523852, 1795491466672524595, 1795503943525256093]
    {
        damaged::compare(oracle, seed, 1);
    }
}

#[test]
fn every_sound_file_of_the_public_corpus_is_served_as_pyarrow_reads_it() {
    let (Some(corpus), Some(oracle)) = (public_corpus(), oracle()) else { return };
    let expected = TempDir::new().unwrap();
    oracle.expect(&corpus, expected.path()).unwrap();
    let files: Vec<_> =
        parquet_files(&corpus.join("data")).into_iter().filter(|file| !bad::is_bad_by_name(file)).collect();
    let served = serve::all(&files, &corpus, expected.path(), PUBLIC, Ways::Rows);
    report("public corpus", &served);
}

#[test]
fn every_bad_generated_file_is_refused_with_its_name_and_little_memory() {
    let Some(oracle) = oracle() else { return };
    bad::check(&parquet_files(&oracle.corpus.join("bad")), bad::GENERATED);
}

#[test]
fn every_bad_file_of_the_public_corpus_is_refused_with_its_name_and_little_memory() {
    let Some(corpus) = public_corpus() else { return };
    let files = parquet_files(&corpus);
    bad::check(&files.into_iter().filter(|file| bad::is_bad_by_name(file)).collect::<Vec<_>>(), bad::PUBLIC);
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Files below a folder, by path.
fn parquet_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(parquet_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "parquet") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn report(what: &str, served: &Served) {
    let Served { files, rows, columns, values, wrong } = served;
    say(&format!("{what}: {files} files, {rows} rows, {columns} columns, {values} values compared"));
    assert!(wrong.is_empty(), "{} of {files} files:\n{}", wrong.len(), wrong.join("\n"));
}
