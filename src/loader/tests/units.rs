//! Small row groups that are read, decoded and held as one.

use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use arrow_array::StructArray;
use bytes::Bytes;

use super::*;
use crate::dataset::MixedDataset;
use rowdex_io::source::{FileStat, LocalSource, Source};

const GROUPS: u64 = 60;
const GROUP_ROWS: u64 = 20;

/// A file of small row groups with ids, texts and lists, of which some are null.
fn write(path: &Path, first: u64) {
    let ids: Vec<u64> = (first..first + GROUPS * GROUP_ROWS).collect();
    let text = |id: &u64| (!id.is_multiple_of(7)).then(|| format!("{id} ").repeat((id % 40) as usize));
    let mut lists = ListBuilder::new(Int32Builder::new());
    ids.iter().for_each(|id| lists.append_option((!id.is_multiple_of(5)).then(|| (0..*id as i32 % 9).map(Some))));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(UInt64Array::from(ids.clone()))),
        ("text", Arc::new(StringArray::from_iter(ids.iter().map(text)))),
        ("list", Arc::new(lists.finish())),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(GROUP_ROWS as usize)).build();
    let out = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(out, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Two files of small row groups, and their dataset.
fn small() -> (tempfile::TempDir, Dataset) {
    let dir = tempfile::tempdir().unwrap();
    for file in 0..2 {
        write(&dir.path().join(format!("{file}.parquet")), file * GROUPS * GROUP_ROWS);
    }
    let index = dir.path().join("data.rdx");
    IndexBuilder::new([dir.path()]).build(&index).unwrap();
    let dataset = Dataset::open(index).unwrap();
    (dir, dataset)
}

#[test]
fn batches_of_units_are_what_the_dataset_takes() {
    let (_dir, dataset) = small();
    let all = dataset.decoded_bytes();
    for (most, units) in [(all / 30, 20..60), (all, 2..3)] {
        for (name, orders) in sorts(dataset.len()) {
            for (memory, threads, views) in [(all / 5, 2, false), (all / 2, 0, true), (all * 2, 2, false)] {
                let groups = units_of_dataset(&dataset, views, Some(most));
                assert!(units.contains(&groups.count()), "{} units", groups.count());
                let samplers = vec![sampler(&orders, 0, 1, 30, Tail::Wrap)];
                let mut loader = Loader::new(groups, samplers.clone(), options(memory, threads, 1)).unwrap();
                for epoch in 0..1 {
                    for expected in samplers[0].plan(epoch).unwrap().batches() {
                        let batch = loader.try_next().unwrap().unwrap();
                        assert_eq!(batch.row_ids, expected.unwrap().rows, "{name}");
                        let own = row_group::finish(&batch.records, dataset.schema()).unwrap();
                        assert_eq!(own, dataset.take(&batch.row_ids).unwrap(), "{name}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_unit_counts_the_row_groups_that_are_decoded_of_it() {
    let (_dir, dataset) = small();
    let all = dataset.decoded_bytes();
    for (global, memory, passes) in [(true, all * 2, 1), (false, all / 5, 1), (true, all / 4, 6)] {
        let fresh = Dataset::builder(dataset.index().clone()).with_cache_bytes(0).open().unwrap();
        let samplers = vec![sampler(&orders(global, fresh.len()), 0, 1, 16, Tail::Wrap)];
        let groups = units_of_dataset(&fresh, false, Some(all / 60));
        let mut loader = Loader::new(groups, samplers, options(memory, 0, 1)).unwrap();
        while loader.try_next().unwrap().is_some() {
            assert_eq!(loader.stats().decodes, fresh.counters().decodes);
        }
        let decodes = fresh.counters().decodes;
        assert!((2 * GROUPS..=2 * GROUPS * passes + 2 * GROUPS / 5).contains(&decodes), "{decodes}");
    }
}

#[test]
fn a_prediction_for_units_comes_true() {
    let blocks = |rows: u64| -> Arc<dyn Order> { Arc::new(Blocks::new(&vec![25; rows as usize / 25], 1, 7).unwrap()) };
    for (part, order) in
        [(0.1, "global"), (0.25, "global"), (0.8, "global"), (1.2, "global"), (0.1, "sequential"), (0.1, "blocks")]
    {
        let fake = Arc::new(Fake::new(&[25; 2400]));
        let memory = (60_000.0 * ROW_BYTES as f64 * 1.03 * part) as u64;
        let orders = match order {
            "blocks" => blocks(60_000),
            order => orders(order == "global", 60_000),
        };
        let samplers = vec![sampler(&orders, 0, 1, 50, Tail::Wrap)];
        let groups = units_of(&fake, Some(memory / 32 / ROW_BYTES));
        assert!(groups.count() < 800, "{}", groups.count());
        let told = estimate::estimate(&groups, &samplers.clone().into(), memory, 2).unwrap();
        assert_eq!(told.units, u64::from(groups.count()));
        let mut loader = Loader::new(groups, samplers, options(memory, 2, 5)).unwrap();
        let mut decodes = Vec::new();
        for _ in 0..4 {
            let before = loader.stats().decodes;
            assert_eq!(loader.epoch().filter(Result::is_ok).count(), 1200);
            decodes.push((loader.stats().decodes - before) as f64);
        }
        let steady = decodes[1..4].iter().sum::<f64>() / 3.0;
        let what = format!("{part} {order}: {told:?} {decodes:?}");
        assert!((steady - told.decodes).abs() <= told.decodes * 0.1 + 50.0, "{what}");
        assert!((decodes[0] / 2400.0 - told.first_passes).abs() <= told.first_passes * 0.1 + 0.2, "{what}");
        assert!((told.passes - told.decodes / 2400.0).abs() < 1e-9, "{what}");
        assert!(fake.decodes.load(Ordering::Relaxed).abs_diff(loader.stats().decodes) <= 400, "{what}");
    }
}

/// Reads local files, and counts the reads.
#[derive(Debug)]
struct Counting {
    files: LocalSource,
    reads: AtomicU64,
}

impl Source for Counting {
    fn stat(&self, path: &str) -> Result<FileStat> {
        self.files.stat(path)
    }

    fn read(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.files.read(path, ranges)
    }
}

#[test]
fn the_bytes_of_a_unit_are_read_together() {
    let (dir, dataset) = small();
    let source = Arc::new(Counting { files: LocalSource::new(dir.path()), reads: AtomicU64::new(0) });
    let counted = Dataset::builder(dataset.index().clone()).with_source(source.clone()).open().unwrap();
    let samplers = vec![sampler(&orders(true, counted.len()), 0, 1, 16, Tail::Wrap)];
    let all = counted.decoded_bytes();
    let groups = units_of_dataset(&counted, false, Some(all / 10));
    let units = u64::from(groups.count());
    let loader = Loader::new(groups, samplers, options(all * 2, 0, 2)).unwrap();
    assert_eq!(loader.filter(Result::is_ok).count(), 300);
    assert!((10..=20).contains(&units), "{units}");
    assert_eq!(source.reads.load(Ordering::Relaxed), units);
    let bytes: u64 = std::fs::read_dir(dir.path())
        .unwrap()
        .filter_map(|file| Some(file.unwrap()).filter(|file| file.path().extension().is_some_and(|e| e == "parquet")))
        .map(|file| file.metadata().unwrap().len())
        .sum();
    assert!(counted.counters().bytes_read < bytes);
}

/// Overwrites all pages of a row group of the second file.
fn damage(dir: &Path, row_group: usize) {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let path = dir.join("1.parquet");
    let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    let (start, length) = reader.metadata().row_group(row_group).column(0).byte_range();
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    let mut file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut bytes = vec![0; length as usize];
    file.seek(SeekFrom::Start(start)).unwrap();
    file.read_exact(&mut bytes).unwrap();
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
    file.seek(SeekFrom::Start(start)).unwrap();
    file.write_all(&bytes).unwrap();
    file.set_modified(modified).unwrap();
}

#[test]
fn a_damaged_row_group_of_a_unit_is_named_and_lost_alone() {
    for threads in [0, 2] {
        for percent in [20, 200] {
            let (dir, dataset) = small();
            damage(dir.path(), 33);
            let (memory, len) = (dataset.decoded_bytes() * percent / 100, dataset.len());
            let bad = (GROUPS + 33) * GROUP_ROWS..(GROUPS + 34) * GROUP_ROWS;
            let orders = orders(true, len);
            let samplers = vec![sampler(&orders, 0, 1, 1, Tail::Wrap)];
            let groups = || units_of_dataset(&dataset, false, Some(dataset.decoded_bytes() / 12));
            assert!(groups().count() <= 26);

            let mut loader = Loader::new(groups(), samplers.clone(), options(memory, threads, 1)).unwrap();
            let order = orders.epoch(0).unwrap();
            let first = (0..len).find(|q| bad.contains(&order.row(*q).unwrap())).unwrap();
            for q in 0..first {
                assert_eq!(loader.try_next().unwrap().unwrap().row_ids, [order.row(q).unwrap()]);
            }
            let error = loader.try_next().unwrap_err();
            assert_eq!((error.file(), error.row_group()), (Some("1.parquet"), Some(33)), "{error}");

            let lost = Options { fault: Fault::Substitute { seed: 3 }, ..options(memory, threads, 2) };
            let mut loader = Loader::new(groups(), samplers, lost).unwrap();
            let mut replaced = BTreeSet::new();
            for step in 0..2 * len {
                let batch = loader.try_next().unwrap().unwrap();
                assert!(!bad.contains(&batch.row_ids[0]), "step {step}");
                assert_eq!(batch.records, dataset.take(&batch.row_ids).unwrap());
                replaced.extend(batch.substituted.iter().map(|told| told.lost));
            }
            assert!(replaced.into_iter().eq(bad));
            let lost = loader.lost_groups();
            assert_eq!(lost.iter().map(|lost| u64::from(lost.row_group)).collect::<Vec<_>>(), [GROUPS + 33]);
            assert_eq!(lost[0].error.row_group(), Some(33));
        }
    }
}

#[test]
fn units_end_where_a_file_or_a_dataset_does() {
    let (_dir, dataset) = small();
    let (_other, other) = small();
    let mixed = MixedDataset::new([dataset.clone(), other]).unwrap();
    let groups = DatasetGroups::new(mixed.datasets(), mixed.schema(), false);
    let units = Units::new(Arc::new(groups), Some(u64::MAX));
    assert_eq!((units.count(), u64::from(units.groups.count())), (4, 4 * GROUPS));
    let rows = GROUPS * GROUP_ROWS;
    for unit in 0..4 {
        assert_eq!(units.first_row(unit), u64::from(unit) * rows);
        assert_eq!(units.locate(u64::from(unit) * rows + 777), Some((unit, 777)));
        assert_eq!(units.row_group_of(unit, 777), unit * GROUPS as u32 + 777 / GROUP_ROWS as u32);
        let mut batch = row_group::WholeBatch::default();
        assert_eq!(units.read(unit, Slots::Some(&[5, 777]), None, &mut batch).unwrap(), 2);
        let batch = batch.into_batch().unwrap();
        let expected = [u64::from(unit % 2) * rows + 5, u64::from(unit % 2) * rows + 777];
        assert_eq!(batch.column(0).as_primitive::<UInt64Type>().values(), &expected[..]);
    }
    assert_eq!(units.locate(4 * rows), None);
    // Row groups that are large enough, or memory that is too small, change nothing.
    assert_eq!(units_of_dataset(&dataset, false, Some(0)).count(), dataset.index().num_row_groups());
}

#[test]
fn row_groups_are_not_joined_where_strings_in_structs_repeat_that_are_copied_when_decoded() {
    for (length, units) in [(1000, 10), (8, 1)] {
        let words = StringArray::from_iter_values((0..5000).map(|_| "z".repeat(length)));
        let field = Arc::new(Field::new("word", DataType::Utf8, false));
        let column: ArrayRef = Arc::new(StructArray::from(vec![(field, Arc::new(words) as ArrayRef)]));
        let (_dir, dataset) = one_file([("s", column)], 500, WriterProperties::builder());
        assert!(dataset.decoded_bytes() < 5000 * 100, "the footers know nothing of values that repeat");
        assert_eq!(units_of_dataset(&dataset, false, Some(1 << 20)).count(), units, "of {length} bytes");
    }
}

#[test]
fn rows_under_other_names_are_other_rows_to_ranks_that_share_a_reader() {
    let (dir, dataset) = small();
    let renamed = dir.path().join("renamed.rdx");
    IndexBuilder::new([dir.path()]).with_renames([("text", "words")]).build(&renamed).unwrap();
    let renamed = Dataset::open(renamed).unwrap();
    assert_eq!(dataset.index().fingerprint(), renamed.index().fingerprint());
    let of = |datasets: &[&Dataset]| groups::fingerprint(&datasets.iter().copied().cloned().collect::<Vec<_>>());
    assert_eq!(of(&[&dataset]), dataset.index().fingerprint());
    assert_ne!(of(&[&dataset]), of(&[&renamed]));
    assert_ne!(of(&[&dataset, &dataset]), of(&[&renamed, &dataset]));
}
