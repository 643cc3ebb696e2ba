//! What a rewrite will write, decided once: independent of memory, threads and tasks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::json;
use xxhash_rust::xxh3::xxh3_64;

use super::RewritePlan;
use super::shape::{Buckets, OutputGroup, row_groups, slice};
use rowdex_base::error::{Error, Result};

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
            Error::invalid(format!("no compression is called {text:?}"))
                .with_hint("use none, snappy, lz4, zstd, or a level from zstd:1 to zstd:22")
        })
    }
}

impl RewritePlan {
    /// The row groups of a file.
    pub(super) fn groups(&self, file: u64) -> impl Iterator<Item = OutputGroup> {
        row_groups(file, slice(self.rows, file, self.files), self.row_group_rows)
    }

    /// Bytes of a row in memory, about.
    pub(super) fn row_bytes(&self) -> f64 {
        self.sample_bytes as f64 / self.sample_rows.max(1) as f64
    }

    /// Bytes of a row in a file, about.
    pub(super) fn encoded_row_bytes(&self) -> f64 {
        self.sample_encoded_bytes as f64 / self.sample_rows.max(1) as f64
    }

    /// The buckets that rows are spilled to, and in how many parts those of so many row groups are: such that what a
    /// part has for a bucket is read well, and that a bucket is small.
    pub(super) fn buckets(&self, row_groups: u64) -> Buckets {
        /// Bytes that a part should have for a bucket.
        const SEGMENT: f64 = (64 << 10) as f64;
        let row_bytes = self.row_bytes().max(1.0);
        let bytes = (self.rows as f64 * row_bytes * SEGMENT).sqrt();
        let groups = (bytes / row_bytes / self.row_group_rows as f64) as usize;
        let starts = (0..self.files).flat_map(|file| self.groups(file)).map(|group| group.positions.start);
        Buckets {
            starts: starts.step_by(groups.max(1)).chain([self.rows]).collect(),
            parts: ((bytes / SEGMENT / 4.0) as u64).clamp(1, row_groups.max(1)),
        }
    }

    /// What an output file is called. Names sort as the files do.
    pub(super) fn file_name(&self, file: u64) -> String {
        let digits = self.files.saturating_sub(1).max(1).ilog10() as usize + 1;
        format!("part-{file:0width$}.parquet", width = digits.max(5))
    }

    /// A hash over all of it.
    pub(super) fn fingerprint(&self) -> u64 {
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
