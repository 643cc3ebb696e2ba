//! Booleans.

use arrow_array::builder::BooleanBufferBuilder;
use arrow_array::{ArrayRef, BooleanArray};
use bytes::Bytes;
use parquet::basic::Encoding;

use super::hybrid::{Hybrid, HybridPiece};
use super::values::{ColumnValues, ValueNulls, short, unknown, unspread};
use crate::errors::damaged;
use rowdex_base::error::Result;

#[derive(Debug)]
pub(super) struct Flags {
    page: FlagPage,
    values: BooleanBufferBuilder,
}

#[derive(Debug)]
enum FlagPage {
    Plain { bytes: Bytes, at: usize },
    Runs(Hybrid),
}

impl Default for Flags {
    fn default() -> Self {
        Self { page: FlagPage::Plain { bytes: Bytes::new(), at: 0 }, values: BooleanBufferBuilder::new(0) }
    }
}

impl ColumnValues for Flags {
    fn set_dictionary(&mut self, _: &Bytes, _: usize) -> Result<()> {
        Err(damaged("has a dictionary of booleans"))
    }

    fn forget_dictionary(&mut self) {}

    fn set_page(&mut self, encoding: Encoding, bytes: Bytes, _: usize) -> Result<()> {
        self.page = match encoding {
            Encoding::PLAIN => FlagPage::Plain { bytes, at: 0 },
            Encoding::RLE => {
                let (length, rest) = bytes.split_first_chunk().ok_or_else(short)?;
                let length = u32::from_le_bytes(*length) as usize;
                if length > rest.len() {
                    return Err(short());
                }
                FlagPage::Runs(Hybrid::new(bytes.slice(4..4 + length), 1)?)
            }
            other => return Err(unknown(other)),
        };
        Ok(())
    }

    fn reserve(&mut self, count: usize) {
        self.values.reserve(count);
    }

    fn read(&mut self, count: usize) -> Result<()> {
        let values = &mut self.values;
        match &mut self.page {
            FlagPage::Plain { bytes, at } => {
                let end = at.checked_add(count).filter(|end| *end <= bytes.len() * 8).ok_or_else(short)?;
                values.append_packed_range(*at..end, bytes);
                *at = end;
                Ok(())
            }
            FlagPage::Runs(runs) => runs.each(count, |piece| {
                match piece {
                    HybridPiece::Repeated(value @ 2.., _) => return Err(damaged(format!("has a boolean of {value}"))),
                    HybridPiece::Repeated(value, times) => values.append_n(times, value == 1),
                    HybridPiece::Packed(packed) => {
                        values.append_packed_range(packed.first..packed.first + packed.count, packed.bytes);
                    }
                }
                Ok(())
            }),
        }
    }

    fn skip(&mut self, count: usize) -> Result<()> {
        match &mut self.page {
            FlagPage::Plain { bytes, at } => {
                *at = at.checked_add(count).filter(|end| *end <= bytes.len() * 8).ok_or_else(short)?;
                Ok(())
            }
            FlagPage::Runs(runs) => runs.skip(count),
        }
    }

    fn finish(&mut self, nulls: ValueNulls) -> Result<ArrayRef> {
        let mut values = self.values.finish();
        if let Some(there) = &nulls.there {
            if values.len() != there.len() - there.null_count() {
                return Err(unspread());
            }
            let mut spread = BooleanBufferBuilder::new(there.len());
            spread.append_n(there.len(), false);
            there.valid_indices().zip(values.iter()).for_each(|(place, value)| spread.set_bit(place, value));
            values = spread.finish();
        }
        if values.len() != nulls.len {
            return Err(unspread());
        }
        Ok(std::sync::Arc::new(BooleanArray::new(values, nulls.shown())))
    }
}
