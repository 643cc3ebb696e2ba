//! Footers of writers that are newer than the parquet crate, which refuses a footer for one number that it does not
//! know.
//!
//! Such numbers are noted, and are 0 in a copy of the footer, which the crate parses. A column chunk that has one is
//! never decoded.

use parquet::basic::{CompressionCodec, Encoding};

use crate::errors::unsupported;
use crate::thrift::{I32, LIST, STRUCT, ThriftReader};
use rowdex_base::error::Error;

/// What to do about such a column, where it is not known which others there are.
pub(crate) const CHOOSE_OTHERS: &str = "choose other `columns`";

/// Why a column chunk cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undecodable {
    /// An encoding with this number.
    Encoding(i32),
    /// A compression with this number.
    Codec(i32),
}

impl Undecodable {
    /// Of an encoding that is not known.
    pub(crate) fn encoding(number: i32) -> Option<Self> {
        let is_known = Encoding::VARIANTS.iter().any(|known| *known as i32 == number);
        (!is_known).then_some(Self::Encoding(number))
    }

    fn codec(number: i32) -> Option<Self> {
        let is_known = CompressionCodec::VARIANTS.iter().any(|known| *known as i32 == number);
        (!is_known).then_some(Self::Codec(number))
    }

    pub(crate) fn error(self) -> Error {
        let what = match self {
            Self::Encoding(10) => "encoding 10 (ALP)".to_owned(),
            Self::Encoding(number) => format!("encoding {number}"),
            Self::Codec(number) => format!("compression codec {number}"),
        };
        unsupported(format!("has {what}, which this version cannot decode"))
    }
}

/// What `parse` makes of a footer: of its copy, where it refuses the footer for what is not known. And the column
/// chunks that have that, by their place among all of the file.
pub fn parse_newer<T, E>(
    footer: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, E>,
) -> Result<(T, Vec<(usize, Undecodable)>), E> {
    let refused = match parse(footer) {
        Ok(parsed) => return Ok((parsed, Vec::new())),
        Err(refused) => refused,
    };
    let reader = ThriftReader::new(footer);
    let mut walk = FooterWalk { reader, known: footer.to_vec(), chunk: 0, found: Vec::new() };
    match walk.fields(FooterWalk::file) {
        Some(()) if !walk.found.is_empty() => Ok((parse(&walk.known)?, walk.found)),
        _ => Err(refused),
    }
}

/// Goes through a footer once. What it does not expect ends it with `None`.
struct FooterWalk<'a> {
    reader: ThriftReader<'a>,
    /// The copy.
    known: Vec<u8>,
    /// The place of the column chunk.
    chunk: usize,
    found: Vec<(usize, Undecodable)>,
}

impl FooterWalk<'_> {
    fn file(&mut self, id: i16, kind: u8) -> Option<()> {
        match id {
            4 => self.each(kind, STRUCT, |walk| walk.fields(Self::row_group)),
            _ => self.reader.skip_value(kind),
        }
    }

    fn row_group(&mut self, id: i16, kind: u8) -> Option<()> {
        let chunk = |walk: &mut Self| {
            walk.fields(Self::chunk)?;
            walk.chunk += 1;
            Some(())
        };
        match id {
            1 => self.each(kind, STRUCT, chunk),
            _ => self.reader.skip_value(kind),
        }
    }

    fn chunk(&mut self, id: i16, kind: u8) -> Option<()> {
        match (id, kind) {
            (3, STRUCT) => self.fields(Self::column),
            (3, _) => None,
            _ => self.reader.skip_value(kind),
        }
    }

    fn column(&mut self, id: i16, kind: u8) -> Option<()> {
        match (id, kind) {
            (2, _) => self.each(kind, I32, |walk| walk.number(Undecodable::encoding)),
            (4, I32) => self.number(Undecodable::codec),
            (4, _) => None,
            _ => self.reader.skip_value(kind),
        }
    }

    /// Reads the fields of a structure, which are in the order of their ids.
    fn fields(&mut self, read: fn(&mut Self, i16, u8) -> Option<()>) -> Option<()> {
        let mut last = 0;
        loop {
            let before = last;
            let Some((kind, id)) = self.reader.field(&mut last)? else { return Some(()) };
            if id <= before {
                return None;
            }
            read(self, id, kind)?;
        }
    }

    /// Reads a value of the type `kind`, which must be a list of `elements`.
    fn each(&mut self, kind: u8, elements: u8, read: fn(&mut Self) -> Option<()>) -> Option<()> {
        let (found, count) = if kind == LIST { self.reader.list()? } else { return None };
        if count > 0 && found != elements {
            return None;
        }
        (0..count).try_for_each(|_| read(self))
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

    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;
    use parquet::errors::ParquetError;
    use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
    use parquet::file::properties::WriterProperties;

    use super::*;

    /// Of two row groups with two columns.
    fn footer() -> Vec<u8> {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..90));
        let words: ArrayRef = Arc::new(StringArray::from_iter_values((0..90).map(|row| format!("{}", row % 5))));
        let batch = RecordBatch::try_from_iter([("numbers", numbers), ("words", words)]).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(50)).build();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        let file = writer.into_inner().unwrap();
        let (before, tail) = file.split_last_chunk::<8>().unwrap();
        let length = u32::from_le_bytes(*tail.first_chunk().unwrap()) as usize;
        before[before.len() - length..].to_vec()
    }

    fn parse(footer: &[u8]) -> Result<ParquetMetaData, ParquetError> {
        let options = parquet::file::metadata::ParquetMetaDataOptions::new()
            .with_encoding_stats_policy(parquet::file::metadata::ParquetStatisticsPolicy::SkipAll);
        ParquetMetaDataReader::decode_metadata_with_options(footer, Some(&options))
    }

    #[test]
    fn whatever_number_the_parser_does_not_know_is_the_only_one_lost() {
        let footer = footer();
        let (original, found) = parse_newer(&footer, parse).unwrap();
        assert_eq!(found, []);
        let chunks = |of: &ParquetMetaData| -> Vec<_> {
            of.row_groups().iter().flat_map(|group| group.columns().to_vec()).collect()
        };
        let mut seen = Vec::new();
        for place in 0..footer.len() {
            let mut changed = footer.clone();
            changed[place] = 22;
            let refused = match parse(&changed) {
                Err(refused) => refused.to_string(),
                Ok(_) => continue,
            };
            match parse_newer(&changed, parse) {
                Ok((parsed, found)) => {
                    let [(chunk, what)] = found[..] else { panic!("{found:?}") };
                    let told = match what {
                        Undecodable::Encoding(number) => format!("Unexpected Encoding {number}"),
                        Undecodable::Codec(number) => format!("Unexpected CompressionCodec {number}"),
                    };
                    assert!(refused.ends_with(&told), "{refused}");
                    let others = chunks(&parsed).into_iter().zip(chunks(&original)).enumerate();
                    others.filter(|(at, _)| *at != chunk).for_each(|(_, (new, old))| assert_eq!(new, old));
                    seen.push((chunk, matches!(what, Undecodable::Codec(_))));
                }
                Err(error) => assert_eq!(error.to_string(), refused, "what has nothing unknown is refused as before"),
            }
        }
        let each = |chunk| [(chunk, false), (chunk, false), (chunk, false), (chunk, true)];
        assert_eq!(seen, (0..4).flat_map(each).collect::<Vec<_>>());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 4000 }))]
        #[test]
        fn damaged_footers_change_nothing_but_their_numbers(
            changes in proptest::collection::vec((0_usize..1000, proptest::num::u8::ANY), 0..6),
            end in 0_usize..3000,
            noise in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
            is_noise in proptest::bool::weighted(0.2),
        ) {
            let mut bytes = if is_noise { noise } else { footer() };
            bytes.truncate(end);
            for (place, byte) in changes {
                let length = bytes.len().max(1);
                bytes.get_mut(place % length).into_iter().for_each(|changed| *changed = byte);
            }
            // The parser refuses all: what the walk makes of the bytes is looked at, however many they are.
            let seen = std::cell::RefCell::new(Vec::new());
            let parsed = parse_newer(&bytes, |footer| {
                seen.borrow_mut().push(footer.to_vec());
                if seen.borrow().len() > 1 { Ok(()) } else { Err(()) }
            });
            let seen = seen.into_inner();
            match parsed {
                Ok(((), found)) => {
                    let changed = seen[0].iter().zip(&seen[1]).filter(|(before, after)| before != after).count();
                    proptest::prop_assert!(seen[0].len() == seen[1].len() && changed >= found.len());
                    proptest::prop_assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0));
                    // In the copy everything is known.
                    proptest::prop_assert!(parse_newer(&seen[1], |_| Err::<(), ()>(())).is_err());
                }
                Err(()) => proptest::prop_assert_eq!(seen.len(), 1),
            }
        }
    }
}
