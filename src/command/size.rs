//! Sizes as people write them: `4GiB`, `512MB`, `25%`.

use std::str::FromStr;

/// How many bytes of decoded rows may be held.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Memory {
    Bytes(u64),
    /// A share of the decoded size of the chosen columns, 0.25 being a quarter.
    Share(f64),
}

impl Memory {
    pub(crate) fn bytes(self, decoded: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => (decoded as f64 * share) as u64,
        }
    }
}

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().strip_suffix('%') {
            None => bytes(text).map(Self::Bytes),
            Some(percent) => {
                let percent = number(percent).ok_or_else(|| format!("{text:?} is not a percentage"))?;
                Ok(Self::Share(percent / 100.0))
            }
        }
    }
}

/// A part of something: `1%` or `0.01`, from 0 to 1.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let share = match text.trim().strip_suffix('%') {
        None => number(text),
        Some(percent) => number(percent).map(|percent| percent / 100.0),
    };
    let share = share.filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("{text:?} is not a share: write 1% or 0.01"))
}

/// A number of bytes with an optional unit: `kB` is 1000 bytes, `KiB` is 1024, and so on; a bare `K` is `KiB`.
fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (amount, unit) = text.split_at(digits);
    let bad = || format!("{text:?} is not a size: write bytes, or a unit as in 4GiB or 512MB");
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "mb" => 1000_u64.pow(2),
        "gb" => 1000_u64.pow(3),
        "tb" => 1000_u64.pow(4),
        "k" | "ki" | "kib" => 1 << 10,
        "m" | "mi" | "mib" => 1 << 20,
        "g" | "gi" | "gib" => 1 << 30,
        "t" | "ti" | "tib" => 1 << 40,
        _ => return Err(bad()),
    };
    let too_large = || format!("{text:?} is more bytes than there can be");
    let amount = amount.replace('_', "");
    if let Ok(whole) = amount.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(too_large);
    }
    if !amount.contains('.') && !amount.is_empty() {
        return Err(too_large());
    }
    let product = number(&amount).ok_or_else(bad)? * factor as f64;
    if product >= u64::MAX as f64 { Err(too_large()) } else { Ok(product as u64) }
}

/// A plain decimal number; the standard parser would also take `inf`, `nan`, `-1` and `1e9`.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let plain = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.parse().ok().filter(|number: &f64| plain && number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages_or_fractions() {
        for (text, share) in [("1%", 0.01), ("0.01", 0.01), ("100%", 1.0), ("0", 0.0), (" 12.5 % ", 0.125), ("1", 1.0)]
        {
            assert_eq!(super::share(text), Ok(share), "{text}");
        }
        for text in ["", "%", "2", "101%", "-1%", "1e-3", "nan", "x%"] {
            assert!(share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_bytes_with_units_of_either_sort() {
        let cases = [
            ("0", 0),
            ("123", 123),
            ("1_000", 1000),
            ("7B", 7),
            ("1k", 1024),
            ("512MB", 512_000_000),
            ("4GiB", 4 << 30),
            ("4gib", 4 << 30),
            ("1.5 KiB", 1536),
            ("2T", 2 << 40),
            ("4Gi", 4 << 30),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(Memory::Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn a_share_is_of_what_is_decoded() {
        assert_eq!("25%".parse::<Memory>().unwrap().bytes(1000), 250);
        assert_eq!("12.5 %".parse::<Memory>().unwrap().bytes(1000), 125);
        assert_eq!("200%".parse::<Memory>().unwrap().bytes(u64::MAX), u64::MAX);
        assert_eq!("1GiB".parse::<Memory>().unwrap().bytes(0), 1 << 30);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "GiB", "-1", "1e9", "4 GiBs", "inf", "nan%", "-5%", "%", "1.2.3", "99999999999TB", "0x10", "."]
        {
            assert!(text.parse::<Memory>().is_err(), "{text:?}");
        }
    }
}
