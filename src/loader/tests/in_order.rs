//! Rows that are served as they lie in the files.

use super::*;

const GROUPS: u64 = 4;
const GROUP_ROWS: u64 = 1000;
const ROWS: u64 = GROUPS * GROUP_ROWS;

/// Words that repeat, of which some are null, and their row ids.
fn words() -> (tempfile::TempDir, Dataset) {
    let word = |row: u64| (row % 11 != 3).then(|| format!("word {}", row % 7 * 1000));
    let columns: [(&str, ArrayRef); 2] = [
        ("id", Arc::new(UInt64Array::from_iter_values(0..ROWS))),
        ("word", Arc::new((0..ROWS).map(word).collect::<StringArray>())),
    ];
    one_file(columns, GROUP_ROWS, WriterProperties::builder())
}

#[test]
fn words_that_repeat_are_kept_as_views_unless_all_rows_are_served_in_order() {
    let (_dir, dataset) = words();
    let kept = |global: bool, rank: u32, world: u32, views: bool| {
        let sampler = sampler(&orders(global, ROWS), rank, world, 10, Tail::Wrap);
        let builder = Loader::builder(&dataset, sampler).memory(dataset.decoded_bytes()).with_views(views);
        builder.units().unwrap().form.decoded.field(1).data_type().clone()
    };
    assert_eq!(kept(false, 0, 1, false), DataType::Utf8);
    assert_eq!(kept(true, 0, 1, false), DataType::Utf8View);
    assert_eq!(kept(false, 1, 2, false), DataType::Utf8View);
    assert_eq!(kept(false, 0, 1, true), DataType::Utf8View);
}

#[test]
fn rows_in_order_are_what_the_dataset_takes_and_are_shown_where_they_were_decoded_to() {
    let (_dir, dataset) = words();
    let all = dataset.decoded_bytes();
    for (batch, memory, threads) in [(25, all * 2, 0), (25, all * 2, 2), (64, all / 4, 2), (700, 0, 2), (3000, all, 1)]
    {
        let sampler = sampler(&orders(false, ROWS), 0, 1, batch, Tail::Wrap);
        let builder = Loader::builder(&dataset, sampler).memory(memory).threads(threads).epochs(2);
        let mut memories = BTreeSet::new();
        let batches: Vec<Batch> = builder.build().unwrap().map(|batch| batch.unwrap()).collect();
        for batch in &batches {
            assert_eq!(batch.records, dataset.take(&batch.row_ids).unwrap());
            memories.insert(batch.records.column(1).to_data().buffers()[1].as_ptr());
        }
        let rows = batches.iter().flat_map(|batch| &batch.row_ids).copied();
        assert!(rows.eq((0..ROWS).chain(0..ROWS)), "{batch} rows a batch");
        if batch == 25 {
            // What stays of a row group is the memory of all its batches, in both epochs.
            assert!(memories.len() as u64 <= GROUPS, "{} of {} batches", memories.len(), batches.len());
        }
    }
}
