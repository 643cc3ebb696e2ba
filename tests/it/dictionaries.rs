//! Columns of dictionaries in a loader: what they cost in passes and in memory.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Int32Type, Int64Type};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use rowdex::loader::Estimate;
use rowdex::order::Global;
use rowdex::{Dataset, DistributedSampler, IndexBuilder, Loader, Shard};

/// A column of labels, beside one of row numbers.
#[derive(Debug, Clone, Copy)]
struct Labels {
    values: usize,
    length: usize,
    group_rows: usize,
    groups: usize,
    /// Whether all row groups have the same dictionary.
    alike: bool,
}

impl Labels {
    /// The number of the label of a row.
    fn of(&self, row: usize) -> usize {
        ((row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize % self.values
    }

    fn word(&self, label: usize) -> String {
        let number = format!("{label:08x}");
        number.repeat(self.length.div_ceil(8))[..self.length].to_owned()
    }

    fn rows(&self) -> usize {
        self.groups * self.group_rows
    }

    /// Bytes of a row group in memory.
    fn group_bytes(&self) -> u64 {
        (self.group_rows * 12 + self.values * (self.length + 4)) as u64
    }

    /// Bytes of all rows, if each had its label for itself.
    fn spelled_out(&self) -> u64 {
        (self.rows() * (self.length + 12)) as u64
    }

    fn written(&self, folder: &Path) -> Dataset {
        let (path, index) = (folder.join("a.parquet"), folder.join("a.rdx"));
        let properties = WriterProperties::builder().set_dictionary_page_size_limit(64 << 20);
        let properties = properties.set_max_row_group_row_count(Some(self.group_rows)).build();
        let mut writer = None;
        for group in 0..self.groups {
            // The same labels, in another order where the dictionaries differ.
            let turn = if self.alike { 0 } else { group * 7 };
            let words: Vec<String> = (0..self.values).map(|code| self.word((code + turn) % self.values)).collect();
            let rows = group * self.group_rows..(group + 1) * self.group_rows;
            let code = |row: usize| ((self.of(row) + self.values * 7 * self.groups - turn) % self.values) as i32;
            let codes = Int32Array::from_iter_values(rows.clone().map(code));
            let labels = DictionaryArray::new(codes, Arc::new(StringArray::from(words)));
            let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.map(|row| row as i64)));
            let batch = RecordBatch::try_from_iter([("id", ids), ("label", Arc::new(labels) as ArrayRef)]).unwrap();
            let properties = properties.clone();
            let writer = writer.get_or_insert_with(|| {
                ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), Some(properties)).unwrap()
            });
            writer.write(&batch).unwrap();
            writer.flush().unwrap();
        }
        writer.unwrap().close().unwrap();
        IndexBuilder::new([path]).build(&index).unwrap();
        Dataset::open(index).unwrap()
    }

    fn check(&self, batch: &RecordBatch) {
        let ids = batch.column(0).as_primitive::<Int64Type>();
        let labels = batch.column(1).as_dictionary::<Int32Type>();
        let words = labels.values().as_string::<i32>();
        for (id, code) in ids.values().iter().zip(labels.keys().values()) {
            assert_eq!(words.value(*code as usize), self.word(self.of(*id as usize)));
        }
    }
}

/// Passes of an epoch that is not the first, the most bytes held, and what was told of both.
fn served(labels: &Labels, memory: u64) -> (f64, u64, Estimate) {
    let folder = tempfile::tempdir().unwrap();
    let dataset = labels.written(folder.path());
    let orders = Arc::new(Global::new(dataset.len(), 1).unwrap());
    let sampler = DistributedSampler::new(orders, Shard::new(0, 1).unwrap(), 64).unwrap();
    let builder = Loader::builder(&dataset, sampler).memory(memory).threads(2).epochs(3);
    let (told, mut loader) = (builder.estimate().unwrap(), builder.build().unwrap());
    let (mut decodes, mut peak) = (Vec::new(), 0);
    while let Some(batch) = loader.try_next().unwrap() {
        labels.check(&batch.records);
        decodes.resize(batch.epoch as usize + 1, 0);
        decodes[batch.epoch as usize] = loader.stats().decodes;
        peak = loader.stats().peak_bytes.max(peak);
    }
    // Nothing is read for an epoch behind the last.
    ((decodes[1] - decodes[0]) as f64 / labels.groups as f64, peak, told)
}

const FEW: Labels = Labels { values: 10, length: 8, group_rows: 1_000, groups: 40, alike: true };
const MANY: Labels = Labels { values: 500, length: 64, ..FEW };
const LONG: Labels = Labels { values: 2_000, length: 480, group_rows: 500, groups: 40, alike: true };

#[test]
fn a_dictionary_column_takes_the_passes_that_are_foretold() {
    let mut missed = Vec::new();
    for alike in [true, false] {
        // A row group whose dictionary takes half of the memory or more is read more often than is foretold.
        for (labels, parts) in [(FEW, &[20, 8, 3][..]), (MANY, &[20, 8, 3]), (LONG, &[20, 10, 3])] {
            let labels = Labels { alike, ..labels };
            for &part in parts {
                let memory = labels.spelled_out() / part;
                let (passes, peak, told) = served(&labels, memory);
                let law = part as f64 / 2.0;
                let most = memory + memory / 8 + 2 * labels.group_bytes() + (8 << 10);
                println!("{labels:?} 1/{part}: {passes} passes, {law} by the law, {} told", told.passes);
                println!("    {peak} bytes of {most}, {} told", told.peak_bytes);
                if passes > law.max(told.passes) * 1.1 || peak > most {
                    missed.push((labels, part, passes, law, told.passes, peak, most));
                }
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
