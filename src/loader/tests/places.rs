//! What is kept of where long values lie, and counted.

use arrow_array::BinaryArray;

use super::*;

const GROUPS: u64 = 4;
const GROUP_ROWS: u64 = 64;
const ROWS: u64 = GROUPS * GROUP_ROWS;
/// A place of four bytes and a length of four.
const PLACE: u64 = 8;

/// Values of about 6,000 bytes that are not compressed, in row groups of 64 rows, and their row ids.
fn images() -> (tempfile::TempDir, Dataset) {
    let value = |row: u64| vec![row as u8; 5500 + row as usize * 7 % 1000];
    let columns: [(&str, ArrayRef); 2] = [
        ("image", Arc::new((0..ROWS).map(|row| (row % 9 != 2).then(|| value(row))).collect::<BinaryArray>())),
        ("id", Arc::new(UInt64Array::from_iter_values(0..ROWS))),
    ];
    one_file(columns, GROUP_ROWS, WriterProperties::builder().set_dictionary_enabled(false))
}

#[test]
fn where_long_values_lie_is_held_as_long_as_the_loader_and_nothing_else_is() {
    for (percent, threads, views) in [(30, 0, false), (30, 2, true), (300, 2, false)] {
        let (_dir, dataset) = images();
        let memory = dataset.decoded_bytes() * percent / 100;
        let sampler = sampler(&orders(true, ROWS), 0, 1, 8, Tail::Wrap);
        let builder = Loader::builder(&dataset, sampler).memory(memory).threads(threads).epochs(3).with_views(views);
        let mut loader = builder.build().unwrap();
        for _ in 0..3 * ROWS / 8 {
            let batch = loader.next().unwrap().unwrap();
            let own = row_group::finish(&batch.records, dataset.schema()).unwrap();
            assert_eq!(own, dataset.take(&batch.row_ids).unwrap());
        }
        // Every batch is handed out, so of rows nothing is held but row groups that stay.
        let stats = loader.stats();
        if percent == 300 {
            assert!(stats.held_bytes > dataset.decoded_bytes() / 2, "{stats:?}");
        } else {
            assert_eq!(stats.held_bytes, ROWS * PLACE, "{threads} threads: {stats:?}");
        }
    }
}

#[test]
fn a_few_rows_of_a_row_group_keep_none_of_its_other_values() {
    for threads in [0, 2] {
        let (_dir, dataset) = images();
        let group = dataset.decoded_bytes() / GROUPS;
        let memory = dataset.decoded_bytes() * 3 / 10;
        // A batch takes all rows of a row group and one or a few of the next.
        let sampler = sampler(&orders(false, ROWS), 0, 1, GROUP_ROWS as usize + 1, Tail::Wrap);
        let loader = Loader::builder(&dataset, sampler).memory(memory).threads(threads).epochs(2);
        let mut loader = loader.build().unwrap();
        while let Some(batch) = loader.try_next().unwrap() {
            assert_eq!(batch.records, dataset.take(&batch.row_ids).unwrap());
            let stats = loader.stats();
            assert!(stats.peak_bytes <= memory + memory / 8 + 3 * group, "{stats:?}, row groups of {group}");
        }
    }
}

#[test]
fn places_are_planned_for_unless_all_row_groups_stay() {
    let (_dir, dataset) = images();
    let units = units_of_dataset(&dataset, false, None);
    let places = units.places_bytes();
    assert_eq!(places, ROWS * PLACE);
    let sizes = &units.sizes;
    let all: u64 = sizes.iter().map(|size| size.bytes).sum();
    let budget = |memory: u64| plan::Budget { memory: memory as f64, batch_rows: 8, cutting: units.cutting() };
    let plan = |memory: u64| plan::Plan::new(sizes, budget(memory), 1, 1);
    for (memory, less) in [(all / 4, places), (all * 3, 0)] {
        let (mut with, without) = (plan(memory), plan(memory - less));
        with.set_aside(places);
        assert_eq!(format!("{with:?}"), format!("{without:?}"));
    }
}

#[test]
fn nothing_is_kept_of_short_or_compressed_values() {
    let (_dir, dataset) = files();
    let units = units_of_dataset(&dataset, false, None);
    assert_eq!(units.places_bytes(), 0);
}
