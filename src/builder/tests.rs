use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;

use super::found::FilesToIndex;
use super::*;
use rowdex_index::Index;

fn write(path: &Path, batch: &RecordBatch, row_group_rows: usize) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(row_group_rows)).build();
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn ids(first: i64, rows: i64) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + rows));
    RecordBatch::try_from_iter([("id", column)]).unwrap()
}

fn data(folder: &Path, files: &[(&str, i64)]) {
    for (name, rows) in files {
        write(&folder.join(name), &ids(0, *rows), 10);
    }
}

fn paths(index: &Index) -> Vec<&str> {
    index.files().map(|file| file.path()).collect()
}

#[test]
fn folders_files_and_patterns_give_the_same_index_bytes() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("data");
    data(&root, &[("b.parquet", 25), ("a/x.parquet", 5), ("a/y.PARQ", 7)]);
    std::fs::write(root.join("_metadata.parquet"), b"not data").unwrap();
    std::fs::write(root.join("a/.hidden.parquet"), b"not data").unwrap();
    std::fs::write(root.join("notes.txt"), b"not data").unwrap();
    let inputs: [Vec<PathBuf>; 3] = [
        vec![root.clone()],
        vec![root.join("b.parquet"), root.join("a"), root.join("a/x.parquet")],
        vec![root.join("**/*.[pP]*")],
    ];
    let mut built = Vec::new();
    for (number, inputs) in inputs.into_iter().enumerate() {
        let output = folder.path().join(format!("{number}.rdx"));
        let report = IndexBuilder::new(inputs).with_threads(1 + number).build(&output).unwrap();
        assert_eq!((report.files, report.rows, report.row_groups), (3, 37, 5));
        let index = Index::open(&output).unwrap();
        assert_eq!(paths(&index), ["a/x.parquet", "a/y.PARQ", "b.parquet"]);
        assert_eq!(index.root().path, "data");
        assert_eq!(report.index_bytes, index.size_bytes());
        built.push(std::fs::read(output).unwrap());
    }
    assert!(built[0] == built[1] && built[1] == built[2]);
}

#[test]
fn a_folder_of_a_table_format_is_refused_and_its_files_are_not() {
    for (table, mark) in [("delta", "_delta_log/00000000000000000000.json"), ("iceberg", "metadata/v1.metadata.json")] {
        let folder = TempDir::new().unwrap();
        let root = folder.path().join("events");
        data(&root, &[("data/a.parquet", 5)]);
        std::fs::create_dir_all(root.join(mark).parent().unwrap()).unwrap();
        std::fs::write(root.join(mark), b"{}").unwrap();
        let output = folder.path().join("i.rdx");
        for input in [root.clone(), folder.path().to_owned(), root.join("**/*.parquet")] {
            let error = IndexBuilder::new([input]).build(&output).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert_eq!(error.file(), root.to_str(), "{error}");
            assert!(error.to_string().contains(&format!("examples/with_{table}.py")), "{error}");
        }
        assert_eq!(IndexBuilder::new([root.join("data/a.parquet")]).build(&output).unwrap().rows, 5);
    }
}

#[test]
fn an_existing_index_is_kept_unless_overwriting_was_asked_for() {
    let folder = TempDir::new().unwrap();
    data(folder.path(), &[("a.parquet", 5)]);
    let output = folder.path().join("i.rdx");
    std::fs::write(&output, b"precious").unwrap();
    let builder = IndexBuilder::new([folder.path()]);
    let error = builder.build(&output).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.hint().unwrap().starts_with("set `overwrite` or `update`"), "{error}");
    assert_eq!(std::fs::read(&output).unwrap(), b"precious");
    assert_eq!(builder.with_overwrite(true).build(&output).unwrap().rows, 5);
}

#[test]
fn an_index_never_takes_the_place_of_a_parquet_file() {
    let folder = TempDir::new().unwrap();
    data(folder.path(), &[("a.parquet", 5), ("b.parquet", 5)]);
    std::fs::write(folder.path().join("encrypted"), b"PARE and so on").unwrap();
    let builder = IndexBuilder::new([folder.path().join("a.parquet")]).with_overwrite(true);
    for name in ["a.parquet", "b.parquet", "encrypted"] {
        let output = folder.path().join(name);
        let before = std::fs::read(&output).unwrap();
        let error = builder.build(&output).unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::InvalidArgument, "the index would replace a Parquet file")
        );
        assert!(error.file().unwrap().ends_with(name) && error.hint().unwrap().contains("train.rdx"), "{error}");
        assert_eq!(std::fs::read(&output).unwrap(), before);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn an_index_never_takes_the_place_of_an_object_that_it_is_of() {
    let place = |url: &str| Place::of(url).unwrap();
    let paths = vec!["a.parquet".to_owned(), "b/c.parquet".to_owned()];
    let found = FilesToIndex { root: place("s3://bucket/data"), paths, repeated: 0, listed: HashMap::new() };
    assert!(found.has(&place("s3://bucket/data/a.parquet")) && found.has(&place("s3://bucket/data/b/c.parquet")));
    for other in ["s3://bucket/a.parquet", "s3://bucket/data/a.rdx", "gs://bucket/data/a.parquet", "/data/a.parquet"] {
        assert!(!found.has(&place(other)), "{other}");
    }
}

#[test]
fn a_failed_build_leaves_the_old_index_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    data(folder.path(), &[("a.parquet", 5)]);
    let output = folder.path().join("i.rdx");
    IndexBuilder::new([folder.path()]).build(&output).unwrap();
    let before = std::fs::read(&output).unwrap();
    std::fs::write(folder.path().join("b.parquet"), b"PAR1 and then nothing").unwrap();
    let error = IndexBuilder::new([folder.path()]).with_overwrite(true).build(&output).unwrap_err();
    assert_eq!((error.kind(), error.file()), (ErrorKind::InvalidParquet, Some("b.parquet")));
    assert_eq!(std::fs::read(&output).unwrap(), before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn inputs_that_are_not_there_are_named() {
    let folder = TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    for input in ["missing", "empty", "*.parquet"] {
        let error = IndexBuilder::new([folder.path().join(input)]).build(folder.path().join("i.rdx")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.file().unwrap().ends_with(input), "{error}");
    }
    let none = IndexBuilder::new(Vec::<PathBuf>::new()).build(folder.path().join("i.rdx")).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn what_can_be_no_file_of_the_data_fails_no_build() {
    use std::os::unix::fs::symlink;
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("data");
    data(&root, &[("a.parquet", 5), ("sub/b.parquet", 5)]);
    for name in [".#notes", "README", "_old.parquet"] {
        symlink("nowhere", root.join(name)).unwrap();
    }
    let built = |inputs: &[PathBuf]| {
        let output = folder.path().join("i.rdx");
        IndexBuilder::new(inputs).with_overwrite(true).build(&output).map(|report| report.files)
    };
    assert_eq!(built(std::slice::from_ref(&root)).unwrap(), 2);
    symlink("nowhere", root.join("c.parquet")).unwrap();
    let error = built(std::slice::from_ref(&root)).unwrap_err();
    assert_eq!(error.file(), Some(root.join("c.parquet").to_str().unwrap()), "{error}");
    assert!(error.message().starts_with("the link leads to nothing"), "{error}");
    std::fs::remove_file(root.join("c.parquet")).unwrap();
    // A folder that nothing can be found in, below those that the pattern is of.
    symlink("..", root.join("sub/round")).unwrap();
    assert_eq!(built(&[root.join("*.parquet")]).unwrap(), 1);
    assert!(built(&[root.join("**/*.parquet")]).is_err());
    assert!(built(&[root.join("*/*.parquet")]).is_err());
}

#[test]
fn folders_are_named_by_the_way_to_their_parents_too() {
    let folder = TempDir::new().unwrap();
    data(&folder.path().join("d"), &[("a.parquet", 5)]);
    data(&folder.path().join("extra"), &[("b.parquet", 5)]);
    std::os::unix::fs::symlink("d", folder.path().join("link")).unwrap();
    let d = folder.path().join("d");
    let output = folder.path().join("i.rdx");
    for inputs in [[d.clone(), d.join("../extra")], [d.join("../link/../d/a.parquet"), d.join("../extra/*.parquet")]] {
        IndexBuilder::new(&inputs).with_overwrite(true).build(&output).unwrap();
        assert_eq!(paths(&Index::open(&output).unwrap()), ["d/a.parquet", "extra/b.parquet"], "{inputs:?}");
    }
    let builder = IndexBuilder::new([&d]).with_overwrite(true).with_root(d.join(".."));
    builder.build(&output).unwrap();
    assert_eq!(paths(&Index::open(&output).unwrap()), ["d/a.parquet"]);
}

#[test]
fn a_file_outside_the_root_is_refused() {
    let folder = TempDir::new().unwrap();
    data(folder.path(), &[("in/a.parquet", 5), ("out/b.parquet", 5)]);
    let builder = IndexBuilder::new([folder.path()]).with_root(folder.path().join("in"));
    let error = builder.build(folder.path().join("i.rdx")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.file().unwrap().ends_with("b.parquet"), "{error}");
}

#[test]
fn an_update_keeps_the_ids_of_unchanged_leading_files_and_appends() {
    let folder = TempDir::new().unwrap();
    let output = folder.path().join("i.rdx");
    data(folder.path(), &[("b.parquet", 5), ("c.parquet", 6), ("d.parquet", 7)]);
    let builder = IndexBuilder::new([folder.path()]).with_update(true);
    assert_eq!(builder.build(&output).unwrap().kept_files, 0);
    let fresh = std::fs::read(&output).unwrap();
    // Nothing changed: nothing is read, and the bytes are the same.
    assert_eq!(builder.build(&output).unwrap().kept_files, 3);
    assert_eq!(std::fs::read(&output).unwrap(), fresh);
    // A file that sorts first is appended all the same.
    data(folder.path(), &[("a.parquet", 8)]);
    let report = builder.build(&output).unwrap();
    assert_eq!((report.kept_files, report.files, report.rows), (3, 4, 26));
    assert_eq!(paths(&Index::open(&output).unwrap()), ["b.parquet", "c.parquet", "d.parquet", "a.parquet"]);
    // Behind the first change everything is read again.
    data(folder.path(), &[("c.parquet", 9)]);
    let report = builder.build(&output).unwrap();
    assert_eq!((report.kept_files, report.rows), (1, 29));
    let index = Index::open(&output).unwrap();
    assert_eq!(paths(&index), ["b.parquet", "a.parquet", "c.parquet", "d.parquet"]);
    index.verify().unwrap();
    let strange: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let strange = RecordBatch::try_from_iter([("id", strange)]).unwrap();
    write(&folder.path().join("e.parquet"), &strange, 10);
    let error = builder.build(&output).unwrap_err();
    assert_eq!(error.file(), Some("e.parquet"));
    assert!(error.to_string().starts_with(folder.path().join("e.parquet").to_str().unwrap()), "{error}");
}

#[test]
fn an_update_of_a_copied_dataset_keeps_the_ids_of_unchanged_leading_files() {
    let folder = TempDir::new().unwrap();
    let (data_folder, output) = (folder.path().join("data"), folder.path().join("i.rdx"));
    data(&data_folder, &[("b.parquet", 5), ("c.parquet", 6), ("d.parquet", 7)]);
    IndexBuilder::new([&data_folder]).build(&output).unwrap();
    data(&data_folder, &[("a.parquet", 8)]);
    IndexBuilder::new([&data_folder]).with_update(true).build(&output).unwrap();
    let copy = |to: &Path| {
        std::fs::create_dir_all(to).unwrap();
        for name in ["a", "b", "c", "d"] {
            let name = format!("{name}.parquet");
            std::fs::copy(data_folder.join(&name), to.join(&name)).unwrap();
            let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
            std::fs::File::options().write(true).open(to.join(&name)).unwrap().set_modified(later).unwrap();
        }
    };
    // With its index, so that the recorded root is the same; and to another folder, which the index is updated for.
    let moved = folder.path().join("moved");
    copy(&moved.join("data"));
    std::fs::copy(&output, moved.join("i.rdx")).unwrap();
    copy(&folder.path().join("elsewhere"));
    for (root, output) in [(moved.join("data"), moved.join("i.rdx")), (folder.path().join("elsewhere"), output)] {
        let builder = IndexBuilder::new([&root]).with_update(true);
        let report = builder.build(&output).unwrap();
        assert_eq!((report.kept_files, report.read_files, report.rows), (4, 0, 26), "{}", root.display());
        let index = Index::open(&output).unwrap();
        assert_eq!(paths(&index), ["b.parquet", "c.parquet", "d.parquet", "a.parquet"]);
        // It knows the copies by their own times from now on.
        let now = std::fs::metadata(root.join("c.parquet")).unwrap().modified().unwrap();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64;
        assert_eq!(index.file(1).unwrap().mtime_ns(), Some(now));
        data(&root, &[("c.parquet", 9)]);
        let report = builder.build(&output).unwrap();
        assert_eq!((report.kept_files, report.rows), (1, 29), "a changed file and those behind it are read");
    }
}

#[test]
fn progress_counts_files_up_to_all_of_them() {
    let folder = TempDir::new().unwrap();
    let names: Vec<String> = (0..70).map(|number| format!("{number:02}.parquet")).collect();
    data(folder.path(), &names.iter().map(|name| (name.as_str(), 3)).collect::<Vec<_>>());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = seen.clone();
    IndexBuilder::new([folder.path()])
        .with_threads(1)
        .with_progress(move |progress| {
            record.lock().unwrap().push((progress.files_done, progress.files, progress.rows))
        })
        .build(folder.path().join("i.rdx"))
        .unwrap();
    assert_eq!(*seen.lock().unwrap(), [(0, 70, 0), (32, 70, 96), (64, 70, 192), (70, 70, 210)]);
}

#[test]
fn files_without_rows_and_datasets_without_rows_are_fine() {
    let folder = TempDir::new().unwrap();
    data(folder.path(), &[("a.parquet", 0)]);
    let output = folder.path().join("i.rdx");
    assert_eq!(IndexBuilder::new([folder.path()]).build(&output).unwrap().rows, 0);
    let dataset = crate::Dataset::open(&output).unwrap();
    assert!(dataset.is_empty());
    assert_eq!(dataset.take(&[]).unwrap().num_columns(), 1);
    assert_eq!(dataset.get(0).unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[test]
fn an_index_is_found_built_once_and_built_again_for_other_files() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("data");
    data(&root, &[("a.parquet", 25), ("b.parquet", 5)]);
    let path = folder.path().join("train.rdx");
    let builder = || IndexBuilder::new([&root]);
    assert_eq!(builder().find(Some(&path)).unwrap_err().kind(), ErrorKind::NotFound);

    let found = || builder().find_or_build(Some(&path)).unwrap();
    let built: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| usize::from(found().built.is_some()))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(built, 1);
    let first = builder().find(Some(&path)).unwrap();

    data(&root, &[("c.parquet", 7)]);
    assert_eq!(builder().find(Some(&path)).unwrap_err().kind(), ErrorKind::NotFound);
    let again = builder().find_or_build(Some(&path)).unwrap();
    assert!(again.is_rebuilt);
    assert_eq!(again.built.map(|built| (built.rows, built.kept_files)), Some((37, 2)));
    assert_eq!((first.len(), again.index.len()), (30, 37));

    let longer = builder().with_lengths(["id"]).find_or_build(Some(&path)).unwrap();
    assert!(longer.built.is_some() && !longer.is_rebuilt);

    // What was torn is no index, and one of chosen rows is another.
    std::fs::write(&path, b"ROWDEX").unwrap();
    let mended = found().index;
    assert_eq!(mended.len(), 37);
    let view = folder.path().join("view.rdx");
    crate::Select::new(mended).sample(0.5, 1).write(&view).unwrap();
    std::fs::rename(&view, &path).unwrap();
    let error = builder().find_or_build(Some(&path)).unwrap_err();
    assert!(error.to_string().contains("selected rows"), "{error}");
    let lock = path.with_extension("rdx.lock");
    assert!(!lock.exists());
}

#[test]
fn an_input_that_is_an_index_is_opened() {
    let folder = TempDir::new().unwrap();
    data(folder.path(), &[("a.parquet", 25)]);
    for name in ["train.rdx", "train.index"] {
        let path = folder.path().join(name);
        IndexBuilder::new([folder.path()]).build(&path).unwrap();
        let found = IndexBuilder::new([&path]).find_or_build(None).unwrap();
        assert_eq!((found.index.path(), found.built), (Some(&*path), None));
    }
    let missing = IndexBuilder::new([folder.path().join("other.rdx")]).find_or_build(None).unwrap_err();
    assert!(missing.to_string().contains("cannot open the index"), "{missing}");
}
