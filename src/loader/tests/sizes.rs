//! Rows that take more in batches than where they are held, and rows that differ from one row group to the next.

use parquet::file::properties::EnabledStatistics;

use super::*;

/// The batches of an epoch from a step on are those of the sampler; returns the most bytes that were counted.
fn peak(dataset: &Dataset, global: bool, batch: usize, memory: u64, threads: usize, step: u64) -> u64 {
    let orders = orders(global, dataset.len());
    let mut sampler = sampler(&orders, 0, 1, batch, Tail::Wrap);
    let state = sampler.state_after(0, step).unwrap();
    sampler.resume(&state).unwrap();
    let plan = sampler.plan(0).unwrap();
    let builder = Loader::builder(dataset, sampler).memory(memory).threads(threads).epochs(1);
    let mut loader = builder.build().unwrap();
    let mut peak = 0;
    for step in plan.first_step()..plan.steps() {
        let batch = loader.next().unwrap().unwrap();
        assert_eq!(batch.row_ids, plan.batch(step).unwrap().rows);
        assert_eq!(batch.records, dataset.take(&batch.row_ids).unwrap());
        peak = peak.max(loader.stats().peak_bytes);
    }
    assert!(loader.next().is_none());
    peak
}

#[test]
fn strings_that_repeat_are_not_made_into_more_batches_at_once_than_the_memory_has_room_for() {
    let words: Vec<String> = ('a'..='t').map(|letter| letter.to_string().repeat(10_000)).collect();
    let texts = StringArray::from_iter_values((0..20_000).map(|row| &words[row % words.len()]));
    let untold = WriterProperties::builder().set_statistics_enabled(EnabledStatistics::None);
    let (_dir, dataset) = one_file([("text", Arc::new(texts))], 2000, untold);
    assert!(dataset.decoded_bytes() < 4 << 20, "the footer knows nothing of values that repeat");
    for (threads, step) in [(0, 0), (2, 0), (2, 171)] {
        let peak = peak(&dataset, true, 16, 32 << 20, threads, step);
        assert!(peak < 36 << 20, "{peak} bytes with {threads} threads");
    }
}

#[test]
fn an_order_that_comes_to_larger_rows_makes_no_more_of_them_at_once_than_the_memory_has_room_for() {
    let value = |row: u64| vec![row as u8; if row < 60_000 { 6 } else { 1 << 20 }];
    let values = LargeBinaryArray::from_iter_values((0..60_060).map(value));
    let plain = WriterProperties::builder().set_dictionary_enabled(false);
    let dir = tempfile::tempdir().unwrap();
    for (name, rows, group_rows) in [("0", 0..60_000, 20_000), ("1", 60_000..60_060, 4)] {
        let column: ArrayRef = Arc::new(values.slice(rows.start, rows.end - rows.start));
        let batch = RecordBatch::try_from_iter([("value", column)]).unwrap();
        let properties = plain.clone().set_max_row_group_row_count(Some(group_rows)).build();
        let out = std::fs::File::create(dir.path().join(format!("{name}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(out, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
    IndexBuilder::new([dir.path()]).build(dir.path().join("rows.rdx")).unwrap();
    let dataset = Dataset::open(dir.path().join("rows.rdx")).unwrap();
    for threads in [0, 2] {
        let peak = peak(&dataset, false, 2, 16 << 20, threads, 0);
        assert!(peak < 32 << 20, "{peak} bytes with {threads} threads");
    }
}
