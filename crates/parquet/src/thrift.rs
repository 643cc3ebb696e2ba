//! Just enough of Thrift's compact protocol to look at a header before a real parser acts on it.
//!
//! Reading past the end, a number too long or a structure too deep is `None`. Nothing is allocated, and every step
//! takes at least one byte, so no input can make it loop.

/// A field's type, as the low four bits of its header say.
pub(super) const TRUE: u8 = 1;
pub(super) const FALSE: u8 = 2;
pub(super) const I32: u8 = 5;
pub(super) const I64: u8 = 6;
pub(super) const BINARY: u8 = 8;
pub(super) const LIST: u8 = 9;
pub(super) const STRUCT: u8 = 12;

/// How many structures may lie inside each other.
const DEPTH: usize = 32;

/// A cursor over the bytes of one structure.
#[derive(Debug, Clone)]
pub(super) struct ThriftReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ThriftReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    pub(super) fn skip(&mut self, count: u64) -> Option<()> {
        let end = self.at.checked_add(usize::try_from(count).ok()?)?;
        self.at = (end <= self.bytes.len()).then_some(end)?;
        Some(())
    }

    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn zigzag(&mut self) -> Option<i64> {
        self.varint().map(|value| (value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.zigzag().and_then(|value| i32::try_from(value).ok())
    }

    /// The next field's type and id, or `Some(None)` at the end of the structure. `last` is the id before it.
    pub(super) fn field(&mut self, last: &mut i16) -> Option<Option<(u8, i16)>> {
        let header = self.byte()?;
        if header & 0x0f == 0 {
            return Some(None);
        }
        *last = match header >> 4 {
            0 => i16::try_from(self.zigzag()?).ok()?,
            delta => last.checked_add(i16::from(delta))?,
        };
        Some(Some((header & 0x0f, *last)))
    }

    /// A list's element type and length.
    pub(super) fn list(&mut self) -> Option<(u8, u64)> {
        let header = self.byte()?;
        let count = match header >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        Some((header & 0x0f, count))
    }

    /// Skips a field's value.
    pub(super) fn skip_value(&mut self, kind: u8) -> Option<()> {
        self.skip_nested(kind, DEPTH)
    }

    fn skip_nested(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            TRUE | FALSE => Some(()),
            3 => self.skip(1),
            4..=6 => self.varint().map(drop),
            7 => self.skip(8),
            BINARY => {
                let length = self.varint()?;
                self.skip(length)
            }
            LIST | 10 => {
                let (kind, count) = self.list()?;
                self.skip_elements(kind, count, depth)
            }
            11 => match self.varint()? {
                0 => Some(()),
                count => {
                    let kinds = self.byte()?;
                    for _ in 0..count {
                        self.skip_elements(kinds >> 4, 1, depth)?;
                        self.skip_elements(kinds & 0x0f, 1, depth)?;
                    }
                    Some(())
                }
            },
            STRUCT => {
                let mut last = 0;
                while let Some((kind, _)) = self.field(&mut last)? {
                    self.skip_nested(kind, depth)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    fn skip_elements(&mut self, kind: u8, count: u64, depth: usize) -> Option<()> {
        match kind {
            // Inside a list or map a boolean has a byte of its own.
            TRUE | FALSE => self.skip(count),
            _ => (0..count).try_for_each(|_| self.skip_nested(kind, depth)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_longer_than_its_bytes_ends_early() {
        let mut reader = ThriftReader::new(&[0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        assert_eq!(reader.skip_value(LIST), None);
    }

    #[test]
    fn structures_inside_each_other_without_end_are_refused() {
        assert_eq!(ThriftReader::new(&[0x1c; 4096]).skip_value(STRUCT), None);
    }
}
