//! The lengths of values in delta-encoded pages of strings, before they are decoded.

use super::direct::Delta;

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

/// Hands over each of the lengths that such a page begins with: their sum, and where they end. `None` if they are
/// malformed, negative, or more of them than `values`.
fn delta_sum(data: &[u8], values: u64, each: &mut dyn FnMut(u32)) -> Option<(u64, usize)> {
    let mut delta = Delta::new(data, i32::BITS).ok().filter(|delta| delta.left() as u64 <= values)?;
    let mut sum = Some(0_u64);
    let take = |numbers: &[i64]| {
        for number in numbers {
            // The decoder's arithmetic is of 32 bits, and wraps.
            let length = u32::try_from(*number as i32).ok();
            sum = sum.zip(length).and_then(|(sum, length)| sum.checked_add(length.into()));
            each(length.unwrap_or(0));
        }
    };
    delta.each(delta.left(), take).ok()?;
    Some((sum?, delta.end()))
}
