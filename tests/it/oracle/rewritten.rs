//! What pyarrow reads of rewritten files is what it reads of their inputs: values in the order that was asked for,
//! types, nulls and metadata.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rowdex::order::Explicit;
use rowdex::rewrite::Rewrite;
use rowdex::{Dataset, ErrorKind, IndexBuilder};
use tempfile::TempDir;

use super::python::{Oracle, say};
use super::{now, number, parquet_files};

/// All numbers below `rows` in an order that owes nothing to the library.
fn shuffled(rows: u64, seed: u64) -> Vec<u64> {
    let (mut order, mut random): (Vec<u64>, _) = ((0..rows).collect(), seed | 1);
    for at in (1..order.len()).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(at, (random >> 33) as usize % (at + 1));
    }
    order
}

/// Rewrites a file, little memory or much; `None` for a file that nothing can be read of.
fn rewrite(file: &Path, case: &Path, memory: u64) -> Option<()> {
    fs::create_dir_all(case).unwrap();
    fs::copy(file, case.join("input.parquet")).unwrap();
    let index = case.join("input.rdx");
    IndexBuilder::new([case.join("input.parquet")]).build(&index).ok()?;
    let dataset = Dataset::open(&index).unwrap();
    let order = shuffled(dataset.len(), memory);
    let lines: String = order.iter().map(|row| format!("{row}\n")).collect();
    fs::write(case.join("order.txt"), lines).unwrap();
    let order = Arc::new(Explicit::new(order, dataset.len()).unwrap());
    let files = dataset.len().clamp(1, 2);
    let rewrite = Rewrite::new(&dataset, order, case.join("output")).with_memory(memory).with_files(files);
    match rewrite.with_threads(2).run() {
        Ok(_) => Some(()),
        Err(error) if error.kind() == ErrorKind::UnsupportedParquet => {
            say(&format!("{}: {error}", file.display()));
            None
        }
        Err(error) => panic!("{}: {error}", file.display()),
    }
}

/// Compares rewritten files; at least so many parts of a hundred have to be rewritten.
fn compare(oracle: &Oracle, what: &str, files: &[PathBuf], least: usize) {
    let folder = TempDir::new().unwrap();
    let mut rewritten = 0;
    for (number, file) in files.iter().enumerate() {
        let case = folder.path().join(format!("{number:04}-{}", file.file_stem().unwrap().to_str().unwrap()));
        // The places of listed rows take a quarter of it at most.
        let memory = if number % 2 == 0 { 1 << 20 } else { 64 << 20 };
        match rewrite(file, &case, memory) {
            Some(()) => rewritten += 1,
            None => fs::remove_dir_all(&case).unwrap(),
        }
    }
    say(&format!("{what}: {rewritten} of {} files rewritten", files.len()));
    let wrong = oracle.rewritten(folder.path()).unwrap();
    assert!(wrong.is_empty(), "{wrong}");
    assert!(rewritten * 100 >= files.len() * least, "{rewritten} of {}", files.len());
}

/// The seed is that of the time, or `ROWDEX_RANDOM_SEED`.
#[test]
fn random_files_are_rewritten_as_pyarrow_reads_them() {
    let Some(oracle) = super::oracle() else { return };
    let seed = number("ROWDEX_RANDOM_SEED").unwrap_or_else(now);
    let count = number("ROWDEX_RANDOM_FILES").unwrap_or(12);
    say(&format!("random files to rewrite: ROWDEX_RANDOM_SEED={seed} ROWDEX_RANDOM_FILES={count}"));
    let folder = TempDir::new().unwrap();
    let files = folder.path().join("files");
    oracle.random_files(seed, count, &files).unwrap();
    compare(oracle, "random files", &parquet_files(&files), 100);
}

#[test]
fn every_sound_file_of_the_public_corpus_is_rewritten_as_pyarrow_reads_it() {
    let (Some(corpus), Some(oracle)) = (super::python::public_corpus(), super::oracle()) else { return };
    // It has a day that nanoseconds do not reach: see the list of known differences.
    let known = "int96_from_spark.parquet";
    let sound = |file: &PathBuf| !super::bad::is_bad_by_name(file) && !file.ends_with(known);
    let files: Vec<_> = parquet_files(&corpus.join("data")).into_iter().filter(sound).collect();
    compare(oracle, "public corpus", &files, 90);
}
