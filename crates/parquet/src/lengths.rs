//! The lengths of values in delta-encoded pages of strings, before they are decoded.

use super::thrift::ThriftReader;

/// Bytes of all values of a delta-encoded page of strings; `None` if their lengths do not make sense. `values` is how
/// many the page declares.
pub(super) fn spelled_out(data: &[u8], values: u64, prefixed: bool) -> Option<u64> {
    if !prefixed {
        return delta_sum(data, values, &mut |_| {}).map(|(sum, _)| sum);
    }
    let mut prefixes = Vec::new();
    let (first, at) = delta_sum(data, values, &mut |prefix| prefixes.push(prefix))?;
    let rest = data.get(at..)?;
    let mut last = 0_u64;
    let mut known = prefixes.iter();
    let mut fits = true;
    let mut each = |length: u32| {
        let prefix = known.next().copied().map_or(u64::MAX, u64::from);
        fits &= prefix <= last;
        last = prefix.saturating_add(length.into());
    };
    let (second, _) = delta_sum(rest, values, &mut each)?;
    if !fits || known.next().is_some() {
        return None;
    }
    first.checked_add(second)
}

/// Walks a `DELTA_BINARY_PACKED` run of lengths, and hands over each: their sum, and where the run ends. `None` if it
/// is malformed, has a negative length, or more of them than `values`.
fn delta_sum(data: &[u8], values: u64, each: &mut dyn FnMut(u32)) -> Option<(u64, usize)> {
    let mut reader = ThriftReader::new(data);
    let block = reader.varint()?;
    let minis = reader.varint()?;
    let count = reader.varint()?;
    let mut value = reader.zigzag()?;
    if count > values || minis == 0 || block == 0 || block % 128 != 0 || block % minis != 0 || (block / minis) % 32 != 0
    {
        return None;
    }
    if count == 0 {
        return Some((0, reader.at()));
    }
    let per_mini = block / minis;
    let mut sum = u64::from(u32::try_from(value).ok()?);
    each(value as u32);
    let mut left = count - 1;
    while left > 0 {
        let smallest = reader.zigzag()?;
        let widths_at = reader.at();
        reader.skip(minis)?;
        for mini in 0..minis as usize {
            if left == 0 {
                break;
            }
            let width = u64::from(data[widths_at + mini]);
            let packed_at = reader.at();
            let taken = left.min(per_mini);
            if width > 32 {
                return None;
            }
            // Some writers cut the last run off, just behind its last value.
            let whole = width.checked_mul(per_mini)? / 8;
            let here = (data.len() - packed_at) as u64;
            if here < whole && here != (width * taken).div_ceil(8) {
                return None;
            }
            reader.skip(whole.min(here))?;
            let packed = &data[packed_at..];
            for index in 0..taken {
                let delta = smallest.wrapping_add(unpack(packed, index * width, width) as i64);
                // Lengths are 32-bit, and so is the decoder's arithmetic: it wraps.
                value = i64::from((value as i32).wrapping_add(delta as i32));
                sum = sum.checked_add(u64::try_from(value).ok()?)?;
                each(value as u32);
            }
            left -= taken;
        }
    }
    Some((sum, reader.at()))
}

/// The `width` bits, at most 32, that start at bit `at`.
fn unpack(packed: &[u8], at: u64, width: u64) -> u64 {
    let first = (at / 8) as usize;
    let mut word = [0; 8];
    let end = packed.len().min(first + 8);
    word[..end - first].copy_from_slice(&packed[first..end]);
    (u64::from_le_bytes(word) >> (at % 8)) & ((1 << width) - 1)
}
