//! Long values that are not compressed, read one by one where they lie in the file.
//!
//! An image of some kilobytes is read in a microsecond or two, and most of a row group of images is not due when some
//! of it is. Where its values lie is noted when a row group is decoded for the first time: eight bytes for each.

use std::sync::Arc;

use arrow_array::builder::make_view;
use arrow_array::{ArrayRef, BinaryViewArray, StringViewArray};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::DataType;
use parquet::basic::{Compression, Encoding, Type};

use super::levels::Definitions;
use super::pages::{cut, levels, sum};
use crate::chunks::ColumnChunk;
use crate::errors::{cannot_be, damaged, internal};
use crate::guard::{FilePage, PageKind};
use crate::{FileBytes, as_asked};
use rowdex_base::error::Result;

/// Shorter values, on average, come with their pages: a call for each would take longer.
const LONG: u64 = 4 << 10;

/// The length of a null. No value is as long, because its page would be longer.
const NULL: u32 = u32::MAX;

/// Bytes in front of each value, which say how long it is.
const PREFIX: u64 = 4;

/// Bytes that are kept of where a value lies.
pub(crate) const PLACE: u64 = size_of::<(u32, u32)>() as u64;

/// Whether the values of a column chunk may be read one by one, according to the footer.
pub(crate) fn may_be_read_alone(column: ColumnChunk<'_>) -> bool {
    let bytes = column.byte_range().1;
    column.column_type() == Type::BYTE_ARRAY
        && column.compression() == Compression::UNCOMPRESSED
        && column.max_levels().0 == 0
        && column.dictionary().is_none()
        && column.num_values() > 0
        && bytes >= column.num_values().saturating_mul(LONG)
        && bytes < u64::from(NULL)
}

/// Where the values of a column chunk lie.
#[derive(Debug)]
pub(crate) struct ValuePlaces {
    /// Where the column chunk begins in the file.
    start: u64,
    /// Of every row, where its value begins behind that, and how long it is.
    values: Vec<(u32, u32)>,
}

impl ValuePlaces {
    /// Finds the values in all pages of a column chunk. `None` if there is something about the pages that decoding them
    /// will tell, or if the values are not stored as they are.
    pub(crate) fn find(column: ColumnChunk<'_>, pages: &[FilePage]) -> Option<Self> {
        let highest = column.max_levels().1;
        let start = column.byte_range().0;
        let mut values = Vec::with_capacity(usize::try_from(column.num_values()).ok()?);
        for page in pages {
            let body = &page.body;
            let place = page.at + (page.size - body.len()) as u64;
            let mut rest = body.clone();
            let definition = match page.kind {
                PageKind::Dictionary => return None,
                PageKind::First => levels(&mut rest, highest, Encoding::RLE).ok()?,
                PageKind::Second { repetition_bytes, definition_bytes, .. } => {
                    cut(&mut rest, repetition_bytes).ok()?;
                    cut(&mut rest, definition_bytes).ok()?
                }
            };
            if page.encoding != Encoding::PLAIN || page.checksum.is_some_and(|checksum| checksum != sum(body)) {
                return None;
            }
            let definitions = Definitions::new(&definition, page.values, highest).ok()?;
            let there = definitions.reaching(highest);
            let front = place + (body.len() - rest.len()) as u64 - start;
            let mut at = 0_usize;
            for entry in 0..page.values {
                if there.is_some_and(|there| !there.value(entry)) {
                    values.push((0, NULL));
                    continue;
                }
                let (length, behind) = rest.get(at..)?.split_first_chunk()?;
                let length = u32::from_le_bytes(*length);
                if length as usize > behind.len() {
                    return None;
                }
                at += PREFIX as usize;
                values.push((u32::try_from(front + at as u64).ok()?, length));
                at += length as usize;
            }
        }
        (values.len() as u64 == column.num_values()).then_some(Self { start, values })
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        self.values.len()
    }

    /// Bytes of memory that this takes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.values.capacity() as u64).saturating_mul(PLACE)
    }

    /// The values of these rows, as views of what is read for them. Each is read to memory of its own, so that it can
    /// be let go alone.
    pub(crate) fn read(&self, rows: &[u32], bytes: &dyn FileBytes, data_type: &DataType) -> Result<ArrayRef> {
        let beyond = || internal("a row beyond its column chunk");
        let mut places = Vec::with_capacity(rows.len());
        for row in rows {
            places.push(*self.values.get(*row as usize).ok_or_else(beyond)?);
        }
        let there: Vec<bool> = places.iter().map(|(_, length)| *length != NULL).collect();
        places.retain(|(_, length)| *length != NULL);
        let range = |&(at, length): &(u32, u32)| {
            let start = self.start + u64::from(at);
            start - PREFIX..start + u64::from(length)
        };
        let ranges: Vec<_> = places.iter().map(range).collect();
        let mut read = (0..).zip(as_asked(bytes.read_each(&ranges)?, &ranges)?.into_iter().zip(places));
        let mut buffers: Vec<Buffer> = Vec::with_capacity(ranges.len());
        let mut views = Vec::with_capacity(rows.len());
        for is_there in &there {
            if !is_there {
                views.push(0);
                continue;
            }
            let (number, (read, (_, length))) = read.next().ok_or_else(beyond)?;
            let (prefix, value) = read.split_first_chunk().ok_or_else(beyond)?;
            if u32::from_le_bytes(*prefix) != length {
                return Err(damaged("has another value where one was when it was last decoded"));
            }
            views.push(make_view(value, number, PREFIX as u32));
            buffers.push(Buffer::from(read));
        }
        let nulls = there.contains(&false).then(|| NullBuffer::from(there));
        Ok(match data_type {
            DataType::Utf8View => Arc::new(StringViewArray::try_new(views.into(), buffers, nulls).map_err(cannot_be)?),
            _ => Arc::new(BinaryViewArray::try_new(views.into(), buffers, nulls).map_err(cannot_be)?),
        })
    }
}
