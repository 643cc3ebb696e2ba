//! What columns take in the files, by the footers that the index keeps.

use std::collections::{BTreeMap, BTreeSet};

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaDataOptions};
use rowdex::dataset::parse_newer;
use rowdex::{Error, ErrorKind, Index};
use serde_json::{Value, json};

use crate::command::failure::Failure;

/// How many column chunks are looked at, about: of more, a sample of the files is.
const MOST_CHUNKS: u64 = 1 << 18;

/// The most columns of data that are listed.
const MOST_COLUMNS: usize = 40;

/// What the footers say, of files evenly spread over all.
#[derive(Default)]
pub(super) struct ColumnReports {
    pub(super) chunks: u64,
    pub(super) without_page_index: u64,
    pub(super) without_statistics: u64,
    /// Leaves, the one with the most bytes first.
    columns: Vec<ColumnReport>,
}

/// A leaf of the schema, over all row groups that were looked at.
#[derive(Default)]
struct ColumnReport {
    name: String,
    kind: String,
    stored: u64,
    unpacked: u64,
    codecs: BTreeSet<String>,
    has_dictionary: bool,
}

impl ColumnReports {
    pub(super) fn of(index: &Index) -> Result<Self, Failure> {
        let mut found = Self::default();
        let mut leaves: BTreeMap<String, ColumnReport> = BTreeMap::new();
        let files = u64::from(index.num_files());
        let chunks = u64::from(index.num_row_groups()) * index.schema().fields().len().max(1) as u64;
        let wanted = if chunks <= MOST_CHUNKS { files } else { (files * MOST_CHUNKS / chunks).max(1) };
        for at in 0..wanted.min(files) {
            let file = (u128::from(at) * u128::from(files) / u128::from(wanted)) as u32;
            let Some(footer) = index.footer(file)? else { continue };
            let (metadata, undecodable) = parse_newer(&footer, ParquetMetaDataOptions::new()).map_err(|error| {
                let path = index.file(file).map(|file| file.path().to_owned()).unwrap_or_default();
                Error::new(ErrorKind::InvalidIndex, format!("a footer that is stored in it: {error}")).with_file(path)
            })?;
            let mut undecodable = undecodable.into_iter().peekable();
            let chunks = metadata.row_groups().iter().flat_map(|group| group.columns());
            for (number, chunk) in chunks.enumerate() {
                let why = undecodable.next_if(|(place, _)| *place == number);
                let codec = why.map_or_else(|| chunk.compression().to_string(), |(_, why)| why.name());
                found.add(chunk, &codec, &mut leaves);
            }
        }
        found.columns = leaves.into_values().collect();
        found.columns.sort_by_key(|column| std::cmp::Reverse(column.stored));
        Ok(found)
    }

    fn add(&mut self, chunk: &ColumnChunkMetaData, codec: &str, leaves: &mut BTreeMap<String, ColumnReport>) {
        self.chunks += 1;
        self.without_page_index += u64::from(chunk.offset_index_offset().is_none());
        self.without_statistics += u64::from(chunk.statistics().is_none());
        let name = chunk.column_path().string();
        let column = leaves.entry(name).or_insert_with_key(|name| ColumnReport {
            name: name.clone(),
            kind: chunk.column_type().to_string(),
            ..ColumnReport::default()
        });
        column.stored += u64::try_from(chunk.compressed_size()).unwrap_or_default();
        column.unpacked += u64::try_from(chunk.uncompressed_size()).unwrap_or_default();
        // `ZSTD(ZstdLevel(1))`: a level is what a writer chose, and no footer tells it.
        column.codecs.insert(codec.split('(').next().unwrap_or_default().to_ascii_lowercase());
        column.has_dictionary |= chunk.dictionary_page_offset().is_some();
    }

    pub(super) fn told(&self) -> Vec<Value> {
        let all: u64 = self.columns.iter().map(|column| column.stored).sum();
        let told = |column: &ColumnReport| {
            json!({
                "column": column.name,
                "type": column.kind,
                "stored_bytes": column.stored,
                "share": column.stored as f64 / all.max(1) as f64,
                "unpacked_bytes": column.unpacked,
                "codec": column.codecs,
                "dictionary": column.has_dictionary,
            })
        };
        self.columns.iter().take(MOST_COLUMNS).map(told).collect()
    }
}
