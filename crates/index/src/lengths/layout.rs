//! LENGTHS as bytes: the records, and the values of a block.
//!
//! ```text
//! blocks       of each 2^16 rows, for each column: values, then escapes
//! columns      one record each, by name
//! blocks       one record each, in the order in which they lie
//! names        UTF-8
//! tail         one record
//! ```

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Rows of a block; the last one may have fewer.
pub(crate) const BLOCK_ROWS: u64 = 1 << 16;

/// No row is as long as this.
pub(crate) const MAX_LENGTH: u64 = 1 << 40;

/// At most one row in so many is an escape, or the block takes wider values: what is long is found by bisection.
const ESCAPED_ONE_IN: usize = 256;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct LengthsRecord {
    /// Where its name is among the names.
    pub(crate) name_offset: U32,
    pub(crate) name_length: U32,
    /// What the lengths are of.
    pub(crate) kind: U32,
    pub(crate) reserved: U32,
    /// Of all lengths.
    pub(crate) sum: U64,
    pub(crate) longest: U64,
    /// Over the number of rows and all lengths, as 8 bytes each.
    pub(crate) fingerprint: U64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct BlockRecord {
    /// Where it ends in the section; it begins where the one before ends.
    pub(crate) end: U64,
    /// Bytes of a value: 1, 2 or 4.
    pub(crate) width: U32,
    pub(crate) escapes: U32,
    pub(crate) hash: U64,
}

/// A row that is too long for the values of its block, which have all bits set there.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Escape {
    /// The row within the block.
    pub(crate) slot: U32,
    pub(crate) length: U64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct LengthsTail {
    pub(crate) rows: U64,
    /// What index the lengths are of.
    pub(crate) index: U64,
    pub(crate) columns: U32,
    pub(crate) names_length: U32,
    /// Over the records of columns and blocks, the names, and this record up to here.
    pub(crate) hash: U64,
}

/// The widest value of so many bytes.
pub(crate) fn widest(width: u32) -> u64 {
    match width {
        1 => u64::from(u8::MAX),
        2 => u64::from(u16::MAX),
        _ => u64::from(u32::MAX),
    }
}

/// One of these values of so many bytes.
#[inline]
pub(crate) fn value(values: &[u8], width: u32, slot: usize) -> Option<u64> {
    Some(match width {
        1 => u64::from(*values.get(slot)?),
        2 => u64::from(u16::from_le_bytes(*values.as_chunks().0.get(slot)?)),
        _ => u64::from(u32::from_le_bytes(*values.as_chunks().0.get(slot)?)),
    })
}

/// Appends the block of these lengths, and returns the width of its values and the number of its escapes.
///
/// Both follow from the lengths alone, so that equal lengths are equal bytes. Without escapes the widest value is a
/// value like any other.
pub(crate) fn encode(lengths: &[u64], bytes: &mut Vec<u8>) -> (u32, u32) {
    let escapes_of = |width: u32| {
        let widest = widest(width);
        match lengths.iter().any(|length| *length > widest) {
            true => lengths.iter().filter(|length| **length >= widest).count(),
            false => 0,
        }
    };
    let fits = |width: &u32| escapes_of(*width).saturating_mul(ESCAPED_ONE_IN) <= lengths.len();
    let width = [1, 2].into_iter().find(fits).unwrap_or(4);
    let escapes = escapes_of(width);
    let widest = widest(width);
    for length in lengths {
        bytes.extend((*length).min(widest).to_le_bytes().iter().take(width as usize));
    }
    if escapes > 0 {
        for (slot, length) in (0_u32..).zip(lengths).filter(|(_, length)| **length >= widest) {
            bytes.extend_from_slice(Escape { slot: U32::new(slot), length: U64::new(*length) }.as_bytes());
        }
    }
    (width, escapes as u32)
}

/// The values of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LengthBlock<'a> {
    values: &'a [u8],
    width: u32,
    escapes: &'a [Escape],
}

impl<'a> LengthBlock<'a> {
    /// The block of so many rows that these bytes are; `None` if they are not as many as it takes.
    pub(crate) fn new(bytes: &'a [u8], rows: u64, record: &BlockRecord) -> Option<Self> {
        let width = record.width.get();
        if !matches!(width, 1 | 2 | 4) {
            return None;
        }
        let values = usize::try_from(rows.checked_mul(u64::from(width))?).ok()?;
        let (values, escapes) = bytes.split_at_checked(values)?;
        let escapes = <[Escape]>::ref_from_bytes(escapes).ok()?;
        (escapes.len() == record.escapes.get() as usize).then_some(Self { values, width, escapes })
    }

    /// Whether each escape belongs to a value that has one, the other way round, and none is too long.
    pub(crate) fn check(&self) -> bool {
        let widest = widest(self.width);
        let rows = (self.values.len() as u64).checked_div(u64::from(self.width)).unwrap_or(0);
        let mut escapes = self.escapes.iter();
        let escaped = (0..rows).filter(|slot| !self.escapes.is_empty() && self.value(*slot) == Some(widest));
        let mut each = escaped.map(|slot| (slot, escapes.next()));
        let match_values = each.all(|(slot, escape)| {
            escape.is_some_and(|escape| {
                let length = escape.length.get();
                u64::from(escape.slot.get()) == slot && (widest..MAX_LENGTH).contains(&length)
            })
        });
        match_values && escapes.next().is_none()
    }

    fn value(&self, slot: u64) -> Option<u64> {
        value(self.values, self.width, usize::try_from(slot).ok()?)
    }

    /// The length of a row; `None` behind the last one.
    pub(crate) fn length(&self, slot: u64) -> Option<u64> {
        let value = self.value(slot)?;
        if self.escapes.is_empty() || value != widest(self.width) {
            return Some(value);
        }
        let at = self.escapes.binary_search_by_key(&slot, |escape| u64::from(escape.slot.get())).ok()?;
        self.escapes.get(at).map(|escape| escape.length.get())
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn encoded(lengths: &[u64]) -> (BlockRecord, Vec<u8>) {
        let mut bytes = Vec::new();
        let (width, escapes) = encode(lengths, &mut bytes);
        let end = U64::new(bytes.len() as u64);
        (BlockRecord { end, width: U32::new(width), escapes: U32::new(escapes), hash: U64::new(0) }, bytes)
    }

    #[test]
    fn a_block_has_the_lengths_that_it_was_made_of_in_as_few_bytes_as_they_need() {
        let short: Vec<u64> = (0..1000).map(|row| row % 255).collect();
        let with = |change: &[(usize, u64)]| {
            let mut lengths = short.clone();
            change.iter().for_each(|(at, length)| lengths[*at] = *length);
            lengths
        };
        let cases = [
            (short.clone(), 1, 0),
            (with(&[(7, 255)]), 1, 0),
            // What is as wide as a value can be is an escape where something is wider.
            (with(&[(7, 255), (9, 256), (999, 1 << 39)]), 1, 3),
            (with(&[(7, 255), (9, 256), (11, 300), (12, 65_535)]), 2, 0),
            (with(&(0..500).map(|at| (at, 65_535)).collect::<Vec<_>>()), 2, 0),
            (with(&(0..500).map(|at| (at, 65_536)).collect::<Vec<_>>()), 4, 0),
            (with(&(0..500).map(|at| (at, MAX_LENGTH - 1)).collect::<Vec<_>>()), 4, 500),
            (Vec::new(), 1, 0),
        ];
        for (lengths, width, escapes) in cases {
            let (record, bytes) = encoded(&lengths);
            assert_eq!((record.width.get(), record.escapes.get()), (width, escapes));
            assert_eq!(bytes.len(), lengths.len() * width as usize + 12 * escapes as usize);
            let block = LengthBlock::new(&bytes, lengths.len() as u64, &record).unwrap();
            assert!(block.check());
            let read: Vec<u64> = (0..lengths.len() as u64).map(|slot| block.length(slot).unwrap()).collect();
            assert_eq!(read, lengths);
            assert_eq!((block.length(lengths.len() as u64), block.length(u64::MAX)), (None, None));
        }
    }

    #[test]
    fn a_block_whose_escapes_are_not_those_of_its_values_is_refused() {
        let mut lengths = vec![3; 1000];
        (lengths[5], lengths[700]) = (70_000, 300);
        let (record, bytes) = encoded(&lengths);
        assert_eq!(record.escapes.get(), 2);
        for bit in (0..bytes.len() * 8).step_by(if cfg!(miri) { 997 } else { 1 }) {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let block = LengthBlock::new(&damaged, 1000, &record).unwrap();
            let read: Vec<_> = (0..1001).map(|slot| block.length(slot)).collect();
            if block.check() {
                assert!(read[..1000].iter().all(|length| length.is_some_and(|length| length < MAX_LENGTH)));
            }
        }
        assert!(LengthBlock::new(&bytes[..bytes.len() - 1], 1000, &record).is_none());
        assert!(LengthBlock::new(&bytes, 1001, &record).is_none());
    }
}
