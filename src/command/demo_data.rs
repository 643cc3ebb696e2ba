//! A small dataset such as people train on: labels, reviews, numbers and embeddings.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{Float32Builder, ListBuilder};
use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use rowdex::{Error, ErrorKind};

use crate::command::failure::Failure;

const FILES: u64 = 8;
const GROUPS_PER_FILE: u64 = 4;
const ROWS_PER_GROUP: u64 = 6250;

/// Writes the files, the same bytes every time.
pub(crate) fn write(folder: &Path) -> Result<(), Failure> {
    for number in 0..FILES {
        let path = folder.join(format!("part-{number:02}.parquet"));
        let named = |error: Error| Failure::from(error.with_file(path.display().to_string()));
        let file = File::create(&path).map_err(|error| named(Error::io("cannot create the file", error)))?;
        write_file(file, number)
            .map_err(|error| named(Error::new(ErrorKind::Io, format!("cannot write the file: {error}"))))?;
    }
    Ok(())
}

fn write_file(file: File, number: u64) -> Result<(), ParquetError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(Default::default()))
        .set_max_row_group_row_count(Some(ROWS_PER_GROUP as usize))
        .build();
    let mut random = Random(number);
    let first = number * ROWS_PER_GROUP * GROUPS_PER_FILE;
    let batch = rows(first, &mut random)?;
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    for group in 1..GROUPS_PER_FILE {
        writer.write(&rows(first + group * ROWS_PER_GROUP, &mut random)?)?;
    }
    writer.close()?;
    Ok(())
}

fn rows(first: u64, random: &mut Random) -> Result<RecordBatch, arrow_schema::ArrowError> {
    const LABELS: [&str; 5] = ["awful", "poor", "fair", "good", "great"];
    const WORDS: [&str; 16] = [
        "the", "coffee", "was", "cold", "but", "service", "quick", "and", "friendly", "again", "never", "we", "waited",
        "table", "window", "perfect",
    ];
    const DIMENSIONS: usize = 8;
    const START_MS: i64 = 1_700_000_000_000;

    let ids = first..first + ROWS_PER_GROUP;
    let mut labels = Vec::new();
    let mut texts = Vec::new();
    let mut prices = Vec::new();
    let mut times = Vec::new();
    let mut embeddings = ListBuilder::new(Float32Builder::new());
    for id in ids.clone() {
        labels.push(random.pick(&LABELS));
        let words: Vec<&str> = (0..4 + random.below(24)).map(|_| random.pick(&WORDS)).collect();
        texts.push(words.join(" "));
        // Prices are not always known.
        prices.push((random.below(20) > 0).then(|| random.below(10_000) as f32 / 100.0));
        times.push(START_MS + id as i64 * 1000);
        for _ in 0..DIMENSIONS {
            embeddings.values().append_value(random.below(1 << 16) as f32 / 32768.0 - 1.0);
        }
        embeddings.append(true);
    }
    let columns: [(&str, ArrayRef); 6] = [
        ("id", Arc::new(ids.map(|id| id as i64).collect::<Int64Array>())),
        ("label", Arc::new(StringArray::from(labels))),
        ("text", Arc::new(StringArray::from(texts))),
        ("price", Arc::new(Float32Array::from(prices))),
        ("time", Arc::new(TimestampMillisecondArray::from(times).with_timezone("UTC"))),
        ("embedding", Arc::new(embeddings.finish())),
    ];
    RecordBatch::try_from_iter(columns)
}

/// SplitMix64 (Steele, Lea and Flood, 2014): enough for show, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices.get(self.below(choices.len() as u64) as usize).copied().unwrap_or_default()
    }
}
