//! What a rewrite will write, decided once: independent of memory, threads and tasks.

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use super::shape::OutputShape;
use rowdex_base::error::{Error, ErrorKind, Result};

/// How pages of a column are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
        // Digits only: a number is also parsed with a sign.
        let digits = |level: &str| level.bytes().all(|digit| digit.is_ascii_digit()).then(|| level.parse().ok())?;
        let zstd = |level: &str| digits(level).filter(|level| (1..=22).contains(level)).map(Self::Zstd);
        let codec = match text {
            "none" => Some(Self::None),
            "snappy" => Some(Self::Snappy),
            "lz4" => Some(Self::Lz4),
            "zstd" => Some(Self::Zstd(3)),
            other => other.strip_prefix("zstd:").and_then(zstd),
        };
        codec.ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, format!("no compression is called {text:?}"))
                .with_hint("use none, snappy, lz4, zstd, or a level from zstd:1 to zstd:22")
        })
    }
}

/// How a leaf of a column is encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// What all files of the input say that it is beyond its type: `JSON`, `BSON`, `ENUM`, `UUID`, `INTERVAL`,
    /// `TIME_UTC`, `GEOMETRY` or `GEOGRAPHY`, the latter two perhaps with a colon and the coordinates.
    pub logical_type: Option<String>,
}

/// What a rewrite will write, from [`Rewrite::plan`](super::Rewrite::plan): every choice that the files depend on.
///
/// It depends on the rows, their order and the options of the output alone: neither on the memory and the threads nor
/// on how the work is divided into tasks. The output folder has it as `_rewrite.json`.
#[derive(Debug, Clone, PartialEq)]
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
    /// Groups of leaves that all files of the input say are a `VARIANT`, perhaps with a colon and its version: their
    /// paths, and that.
    pub groups: Vec<(String, String)>,
    /// The name of the column with the row ids of the input, if one is written.
    pub origin: Option<String>,
    /// Rows of the sample that it was decided on.
    pub sample_rows: u64,
    /// Bytes that the sample takes in memory.
    pub sample_bytes: u64,
    /// Bytes that it takes in a file.
    pub sample_encoded_bytes: u64,
    /// Bytes that it takes when it is spilled, compressed if that saves half.
    pub sample_spilled_bytes: u64,
}

const VERSION: u64 = 2;

impl RewritePlan {
    pub(super) fn shape(&self) -> OutputShape {
        OutputShape { rows: self.rows, files: self.files.max(1), group_rows: self.row_group_rows.max(1) }
    }

    /// Bytes of a row in memory, about.
    pub(super) fn row_bytes(&self) -> f64 {
        self.of_a_row(self.sample_bytes)
    }

    /// Bytes of a row in a file, about.
    pub(super) fn encoded_row_bytes(&self) -> f64 {
        self.of_a_row(self.sample_encoded_bytes)
    }

    /// Bytes of the output, about.
    pub(super) fn output_bytes(&self) -> u64 {
        (self.rows as f64 * self.encoded_row_bytes()) as u64
    }

    /// Bytes of spilled rows, about.
    pub(super) fn spilled_bytes(&self) -> u64 {
        (self.rows as f64 * (self.of_a_row(self.sample_spilled_bytes) + size_of::<u32>() as f64)) as u64
    }

    /// Whether what is spilled is compressed.
    pub(super) fn compresses_spill(&self) -> bool {
        Self::is_worth_compressing(self.sample_spilled_bytes, self.sample_bytes)
    }

    /// Whether a spill is worth compressing to so many bytes that takes `bytes` otherwise: if that is half. Compressing
    /// and decompressing a gigabyte takes longer than writing and reading a third of it on a local disk.
    pub(super) fn is_worth_compressing(compressed: u64, bytes: u64) -> bool {
        compressed <= bytes / 2
    }

    fn of_a_row(&self, sample: u64) -> f64 {
        sample as f64 / self.sample_rows.max(1) as f64
    }

    /// What an output file is called. Names sort as the files do.
    pub fn file_name(&self, file: u64) -> String {
        let digits = self.files.saturating_sub(1).max(1).ilog10() as usize + 1;
        format!("part-{file:0width$}.parquet", width = digits.max(5))
    }

    /// A hash over all of it.
    pub fn fingerprint(&self) -> u64 {
        xxh3_64(self.to_json().as_bytes())
    }

    /// As JSON, always the same text for the same plan.
    pub fn to_json(&self) -> String {
        let columns = self.columns.iter().map(|column| {
            let mut told = json!({
                "path": column.path,
                "compression": column.compression.to_string(),
                "dictionary": column.dictionary,
                "page_bytes": column.page_bytes,
            });
            if let (Some(told), Some(name)) = (told.as_object_mut(), &column.logical_type) {
                told.insert("logical_type".to_owned(), json!(name));
            }
            told
        });
        let mut plan = json!({
            "rowdex_rewrite": VERSION,
            "source": format!("{:016x}", self.source),
            "rows": self.rows,
            "order": self.order,
            "order_fingerprint": format!("{:016x}", self.order_fingerprint),
            "files": self.files,
            "row_group_rows": self.row_group_rows,
            "chunk_rows": self.chunk_rows,
            "origin": self.origin,
            "sample_rows": self.sample_rows,
            "sample_bytes": self.sample_bytes,
            "sample_encoded_bytes": self.sample_encoded_bytes,
            "sample_spilled_bytes": self.sample_spilled_bytes,
            "columns": columns.collect::<Vec<_>>(),
        });
        if let (false, Some(told)) = (self.groups.is_empty(), plan.as_object_mut()) {
            let groups = self.groups.iter().map(|(path, name)| json!({"path": path, "logical_type": name}));
            told.insert("groups".to_owned(), groups.collect());
        }
        format!("{plan:#}\n")
    }

    /// From what [`to_json`](Self::to_json) gives.
    ///
    /// # Errors
    /// `InvalidArgument` for anything else, or for a plan of a newer version.
    pub fn from_json(text: &str) -> Result<Self> {
        let wrong = || {
            Error::new(ErrorKind::InvalidArgument, "this is no plan of a rewrite of this version of rowdex")
                .with_hint("choose another folder, or remove this file and what was written beside it")
        };
        let plan: Value = serde_json::from_str(text).map_err(|error| wrong().with_source(error))?;
        let parse = || {
            let number = |name: &str| plan.get(name)?.as_u64();
            let hash = |name: &str| u64::from_str_radix(plan.get(name)?.as_str()?, 16).ok();
            // The first version had the same fields, and another hash of the input.
            (1..=VERSION).contains(&number("rowdex_rewrite")?).then_some(())?;
            let column = |column: &Value| {
                Some(ColumnPlan {
                    path: column.get("path")?.as_str()?.to_owned(),
                    compression: column.get("compression")?.as_str()?.parse().ok()?,
                    dictionary: column.get("dictionary")?.as_bool()?,
                    page_bytes: column.get("page_bytes")?.as_u64()?,
                    logical_type: column.get("logical_type").and_then(Value::as_str).map(str::to_owned),
                })
            };
            let group = |group: &Value| {
                let text = |name: &str| group.get(name)?.as_str().map(str::to_owned);
                Some((text("path")?, text("logical_type")?))
            };
            Some(Self {
                source: hash("source")?,
                rows: number("rows")?,
                order: plan.get("order")?.as_str()?.to_owned(),
                order_fingerprint: hash("order_fingerprint")?,
                files: number("files")?,
                row_group_rows: number("row_group_rows")?,
                chunk_rows: number("chunk_rows")?,
                columns: plan.get("columns")?.as_array()?.iter().map(column).collect::<Option<_>>()?,
                groups: match plan.get("groups") {
                    Some(groups) => groups.as_array()?.iter().map(group).collect::<Option<_>>()?,
                    None => Vec::new(),
                },
                origin: plan.get("origin")?.as_str().map(str::to_owned),
                sample_rows: number("sample_rows")?,
                sample_bytes: number("sample_bytes")?,
                sample_encoded_bytes: number("sample_encoded_bytes")?,
                sample_spilled_bytes: number("sample_spilled_bytes")?,
            })
        };
        parse().ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> RewritePlan {
        let column = |path: &str, compression| ColumnPlan {
            path: path.to_owned(),
            compression,
            dictionary: true,
            page_bytes: 1 << 17,
            logical_type: (path == "a").then(|| "JSON".to_owned()),
        };
        RewritePlan {
            source: 1,
            rows: 1000,
            order: "global".to_owned(),
            order_fingerprint: u64::MAX,
            files: 3,
            row_group_rows: 100,
            chunk_rows: 64,
            columns: vec![column("a", Codec::Zstd(3)), column("b.list.element", Codec::None)],
            groups: vec![("v".to_owned(), "VARIANT:1".to_owned())],
            origin: Some("row_id".to_owned()),
            sample_rows: 8000,
            sample_bytes: 98_765,
            sample_encoded_bytes: 4321,
            sample_spilled_bytes: u64::MAX,
        }
    }

    #[test]
    fn a_plan_comes_back_from_its_text() {
        let plan = plan();
        assert_eq!(RewritePlan::from_json(&plan.to_json()).unwrap(), plan);
        let older = plan.to_json().replace("\"rowdex_rewrite\": 2", "\"rowdex_rewrite\": 1");
        assert_eq!(RewritePlan::from_json(&older).unwrap(), plan);
        let newer = plan.to_json().replace("\"rowdex_rewrite\": 2", "\"rowdex_rewrite\": 3");
        for text in ["", "{}", "[1]", &newer, &plan.to_json()[1..]] {
            assert_eq!(RewritePlan::from_json(text).unwrap_err().kind(), ErrorKind::InvalidArgument, "{text}");
        }
    }

    #[test]
    fn names_of_files_sort_as_their_numbers() {
        let named = |files| RewritePlan { files, ..plan() };
        assert_eq!(named(3).file_name(2), "part-00002.parquet");
        assert_eq!(named(100_001).file_name(2), "part-000002.parquet");
        assert_eq!(named(100_000).file_name(99_999), "part-99999.parquet");
    }

    #[test]
    fn compressions_come_back_from_their_names() {
        for codec in [Codec::None, Codec::Snappy, Codec::Lz4, Codec::Zstd(1), Codec::Zstd(22)] {
            assert_eq!(codec.to_string().parse::<Codec>().unwrap(), codec);
        }
        for text in ["", "zstd:", "zstd:0", "zstd:23", "gzip", "zstd:+3"] {
            assert!(text.parse::<Codec>().is_err(), "{text}");
        }
    }
}
