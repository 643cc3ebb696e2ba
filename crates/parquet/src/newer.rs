//! Footers of writers that are newer than the parquet crate, which refuses a footer for one number that it does not
//! know.
//!
//! Such numbers are noted, and are 0 in a copy of the footer, which the crate parses. A column chunk that has one is
//! never decoded.

use parquet::basic::{CompressionCodec, Encoding};
use parquet::errors::Result;
use parquet::file::metadata::{
    ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy,
};

use crate::errors::unsupported;
use crate::thrift::{I32, STRUCT, ThriftReader};
use rowdex_base::error::Error;

/// Why a column chunk cannot be decoded: what has a number that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Undecodable {
    what: &'static str,
    number: i32,
}

/// Column chunks that cannot be decoded, by their place among all of the file.
pub(crate) type UndecodableChunks = Vec<(usize, Undecodable)>;

impl Undecodable {
    /// Of an encoding that is not known.
    pub(crate) fn encoding(number: i32) -> Option<Self> {
        let is_known = Encoding::VARIANTS.iter().any(|known| *known as i32 == number);
        (!is_known).then_some(Self { what: "encoding", number })
    }

    fn codec(number: i32) -> Option<Self> {
        let is_known = CompressionCodec::VARIANTS.iter().any(|known| *known as i32 == number);
        (!is_known).then_some(Self { what: "codec", number })
    }

    /// What it is called.
    pub fn name(self) -> String {
        let Self { what, number } = self;
        let name = if (what, number) == ("encoding", 10) { ", ALP" } else { "" };
        format!("{what} {number}{name}")
    }

    pub(crate) fn error(self) -> Error {
        unsupported(format!("has {}, which this version cannot decode", self.name()))
    }
}

/// Parses a footer, or its copy if the parser refuses it for what is not known, and says which column chunks have that.
/// Statistics of encodings are passed over in any file.
pub fn parse_newer(footer: &[u8], options: ParquetMetaDataOptions) -> Result<(ParquetMetaData, UndecodableChunks)> {
    let options = options.with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll);
    let parse = |footer: &[u8]| ParquetMetaDataReader::decode_metadata_with_options(footer, Some(&options));
    parse(footer).map(|parsed| (parsed, Vec::new())).or_else(|refused| match known(footer) {
        Some(walk) if !walk.found.is_empty() => Ok((parse(&walk.known)?, walk.found)),
        _ => Err(refused),
    })
}

/// Walks through a footer.
fn known(footer: &[u8]) -> Option<FooterWalk<'_>> {
    let reader = ThriftReader::new(footer);
    let mut walk = FooterWalk { reader, known: footer.to_vec(), chunk: 0, found: Vec::new() };
    walk.structure(0).map(|()| walk)
}

/// Goes through a footer once. What it does not expect ends it with `None`.
struct FooterWalk<'a> {
    reader: ThriftReader<'a>,
    /// The copy.
    known: Vec<u8>,
    /// The place of the column chunk.
    chunk: usize,
    found: UndecodableChunks,
}

impl FooterWalk<'_> {
    /// Reads a structure: the file's on level 0, below it a row group, a column chunk, and what is said of that.
    fn structure(&mut self, level: u8) -> Option<()> {
        let mut last = 0;
        while let Some((kind, id)) = self.reader.field(&mut last)? {
            // The parser takes these for what they should be, too, whatever type they say that they have.
            match (level, id) {
                (0, 4) | (1, 1) | (3, 2) => self.list(level)?,
                (2, 3) => self.structure(3)?,
                (3, 4) => self.number(Undecodable::codec)?,
                _ => self.reader.skip_value(kind)?,
            }
        }
        Some(())
    }

    /// Reads the structures below one, or the encodings of a column.
    fn list(&mut self, level: u8) -> Option<()> {
        let (kind, count) = self.reader.list()?;
        for _ in 0..count {
            match kind {
                STRUCT => self.structure(level + 1)?,
                I32 => self.number(Undecodable::encoding)?,
                _ => return None,
            }
            self.chunk += usize::from(level == 1);
        }
        Some(())
    }

    /// Reads a number. One that is not known is noted, and becomes 0 in as many bytes.
    fn number(&mut self, undecodable: fn(i32) -> Option<Undecodable>) -> Option<()> {
        let start = self.reader.at();
        let Some(unknown) = undecodable(self.reader.i32()?) else { return Some(()) };
        let (last, before) = self.known.get_mut(start..self.reader.at())?.split_last_mut()?;
        before.fill(0x80);
        *last = 0;
        if self.found.last().is_none_or(|(chunk, _)| *chunk != self.chunk) {
            self.found.push((self.chunk, unknown));
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use parquet::file::properties::WriterProperties;
    use proptest::collection::vec;
    use proptest::num::u8::ANY;

    use super::*;

    fn footer() -> Vec<u8> {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..90));
        let batch = RecordBatch::try_from_iter([("a", Arc::clone(&numbers)), ("b", numbers)]).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(50)).build();
        let source = crate::tests::write(&batch, properties);
        crate::read_end(&source, "f", 1 << 12, None).unwrap().1.bytes.to_vec()
    }

    #[test]
    fn whatever_number_the_parser_does_not_know_is_noted_alone() {
        let footer = footer();
        let options = ParquetMetaDataOptions::new().with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll);
        let mut seen = Vec::new();
        for place in 0..footer.len() {
            let mut changed = footer.clone();
            changed[place] = 22;
            let parsed = ParquetMetaDataReader::decode_metadata_with_options(&changed, Some(&options));
            let refused = parsed.map(drop).map_err(|error| error.to_string());
            match (refused, parse_newer(&changed, options.clone())) {
                (Ok(()), tolerated) => assert_eq!(tolerated.unwrap().1, []),
                (Err(refused), Ok((_, found))) => {
                    let [(chunk, Undecodable { what, number: 11 })] = found[..] else { panic!("{found:?}") };
                    assert!(refused.to_lowercase().ends_with(&format!("{what} 11")), "{refused}");
                    seen.push((chunk, what));
                }
                (Err(refused), Err(error)) => assert_eq!(error.to_string(), refused),
            }
        }
        let each = |chunk| ["encoding", "encoding", "encoding", "codec"].map(|what| (chunk, what));
        assert_eq!(seen, (0..4).flat_map(each).collect::<Vec<_>>());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2000))]
        #[test]
        fn damaged_footers_lose_their_numbers_alone(
            noise in vec(ANY, 0..99),
            changes in vec((0_usize..999, ANY), 0..6),
        ) {
            let mut damaged = footer();
            let length = damaged.len();
            changes.iter().for_each(|(place, byte)| damaged[place % length] = *byte);
            for bytes in [damaged, noise] {
                let Some(walk) = known(&bytes) else { continue };
                let changed = bytes.iter().zip(&walk.known).filter(|(before, after)| before != after).count();
                proptest::prop_assert!(bytes.len() == walk.known.len() && changed >= walk.found.len());
                proptest::prop_assert_eq!(known(&walk.known).unwrap().found, []);
            }
        }
    }
}
