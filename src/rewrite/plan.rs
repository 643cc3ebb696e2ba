//! What a rewrite will write, decided once: independent of memory, threads and tasks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::json;
use xxhash_rust::xxh3::xxh3_64;

use super::shape::OutputShape;
use rowdex_base::error::{Error, ErrorKind, Result};

/// How pages of a column are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Codec {
    /// Not at all: a value that is wanted alone is read alone.
    None,
    /// Snappy.
    Snappy,
    /// LZ4, as `LZ4_RAW`.
    Lz4,
    /// Zstandard of this level, from 1 to 22.
    Zstd(u8),
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Snappy => f.write_str("snappy"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

impl FromStr for Codec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let levels = || (1..=22).map(Self::Zstd);
        let mut all = [Self::None, Self::Snappy, Self::Lz4].into_iter().chain(levels());
        let text = if text == "zstd" { "zstd:3" } else { text };
        all.find(|codec| codec.to_string() == text).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, format!("no compression is called {text:?}"))
                .with_hint("use none, snappy, lz4, zstd, or a level from zstd:1 to zstd:22")
        })
    }
}

/// How a leaf of a column is encoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ColumnPlan {
    /// Its path in the Parquet schema, with dots.
    pub path: String,
    /// How its pages are compressed.
    pub compression: Codec,
    /// Whether its values go to a dictionary, for as long as that stays small.
    pub dictionary: bool,
    /// Bytes of values after which a page ends.
    pub page_bytes: u64,
}

/// What a rewrite will write, from [`Rewrite::plan`](super::Rewrite::plan): every choice that the files depend on.
///
/// It depends on the rows, their order and the options of the output alone: neither on the memory and the threads nor
/// on how the work is divided into tasks. The output folder has it as `_rewrite.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RewritePlan {
    /// A hash over the rows that are written and the footers of their files.
    pub source: u64,
    /// Rows that are written.
    pub rows: u64,
    /// What the order is made of, as an outline: `global,seed-42`.
    pub order: String,
    /// The fingerprint of the order, which covers its seed and the rows that it leaves out.
    pub order_fingerprint: u64,
    /// How many files there will be.
    pub files: u64,
    /// Rows of a row group; the last one of a file may have fewer.
    pub row_group_rows: u64,
    /// Rows that are encoded at once.
    pub chunk_rows: u64,
    /// How each leaf of the columns is encoded.
    pub columns: Vec<ColumnPlan>,
    /// What all files of the input say that a leaf or group is beyond its type, by path: `JSON`, `BSON`, `ENUM`,
    /// `UUID`, `INTERVAL`, `TIME_UTC`, `GEOMETRY` or `GEOGRAPHY`, these two perhaps with a colon and the coordinates,
    /// and `VARIANT`, perhaps with a colon and its version.
    pub logical_types: Vec<(String, String)>,
    /// The name of the column with the row ids of the input, if one is written.
    pub origin: Option<String>,
    /// Rows of the sample that it was decided on.
    pub sample_rows: u64,
    /// Bytes that the sample takes in memory.
    pub sample_bytes: u64,
    /// Bytes that it takes in a file.
    pub sample_encoded_bytes: u64,
    /// Whether rows that are spilled are compressed: it halves the sample.
    pub spill_compressed: bool,
}

impl RewritePlan {
    pub(super) fn shape(&self) -> OutputShape {
        OutputShape { rows: self.rows, files: self.files.max(1), group_rows: self.row_group_rows.max(1) }
    }

    /// Bytes of a row in memory, about.
    pub(super) fn row_bytes(&self) -> f64 {
        self.sample_bytes as f64 / self.sample_rows.max(1) as f64
    }

    /// Bytes of a row in a file, about.
    pub(super) fn encoded_row_bytes(&self) -> f64 {
        self.sample_encoded_bytes as f64 / self.sample_rows.max(1) as f64
    }

    /// What an output file is called. Names sort as the files do.
    pub fn file_name(&self, file: u64) -> String {
        let digits = self.files.saturating_sub(1).max(1).ilog10() as usize + 1;
        format!("part-{file:0width$}.parquet", width = digits.max(5))
    }

    /// A hash over all of it.
    pub fn fingerprint(&self) -> u64 {
        xxh3_64(json!(self).to_string().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressions_come_back_from_their_names() {
        for codec in [Codec::None, Codec::Snappy, Codec::Lz4, Codec::Zstd(1), Codec::Zstd(22)] {
            assert_eq!(codec.to_string().parse::<Codec>().unwrap(), codec);
        }
        assert_eq!("zstd".parse::<Codec>().unwrap(), Codec::Zstd(3));
        for text in ["", "zstd:", "zstd:0", "zstd:23", "gzip", "zstd:+3", "zstd:03"] {
            assert!(text.parse::<Codec>().is_err(), "{text}");
        }
    }
}
