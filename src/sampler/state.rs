//! Where a run stands, so that it can go on elsewhere.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};

const PREFIX: &str = "rowdex-state-v1";

/// Where a run stands: everything before is served, nothing after.
///
/// It belongs to the run, not to a rank: every rank has the same state after the same step, and any number of ranks
/// with any batch size can go on from it. Written and parsed as one line,
/// `rowdex-state-v1:<fingerprint>:<epoch>:<consumed>`, the fingerprint as 16 hexadecimal digits and the others in
/// decimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    /// [`Order::fingerprint`](crate::order::Order::fingerprint) of the run: its order, length and seed.
    pub fingerprint: u64,
    /// The epoch to go on with.
    pub epoch: u64,
    /// How many positions of that epoch's order are served, counted over all ranks.
    pub consumed: u64,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}:{:016x}:{}:{}", self.fingerprint, self.epoch, self.consumed)
    }
}

impl FromStr for State {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let fields = || -> Option<Self> {
            let mut fields = text.split(':');
            fields.next().filter(|prefix| *prefix == PREFIX)?;
            let fingerprint = u64::from_str_radix(fields.next()?, 16).ok()?;
            let epoch = fields.next()?.parse().ok()?;
            let consumed = fields.next()?.parse().ok()?;
            Some(Self { fingerprint, epoch, consumed })
        };
        // Writing it again refuses signs, leading zeros and anything after the last field in one go.
        fields().filter(|state| state.to_string() == text).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, format!("{text:?} is not the state of a sampler"))
                .with_hint("a state reads rowdex-state-v1:<16 hexadecimal digits>:<epoch>:<consumed>")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_parsed_as_it_is_written() {
        let state = State { fingerprint: 0xabc, epoch: 12, consumed: 34_560 };
        assert_eq!(state.to_string(), "rowdex-state-v1:0000000000000abc:12:34560");
        let extreme = State { fingerprint: u64::MAX, epoch: u64::MAX, consumed: u64::MAX };
        for state in [state, extreme, State { fingerprint: 0, epoch: 0, consumed: 0 }] {
            assert_eq!(state.to_string().parse::<State>().unwrap(), state);
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "rowdex-state-v1",
            "rowdex-state-v2:0000000000000abc:12:34560",
            "rowdex-state-v1:abc:12:34560",
            "rowdex-state-v1:0000000000000ABC:12:34560",
            "rowdex-state-v1:+000000000000abc:12:34560",
            "rowdex-state-v1:0000000000000abc:+12:34560",
            "rowdex-state-v1:0000000000000abc:012:34560",
            "rowdex-state-v1:0000000000000abc:12:-1",
            "rowdex-state-v1:0000000000000abc:12:18446744073709551616",
            "rowdex-state-v1:0000000000000abc:12",
            "rowdex-state-v1:0000000000000abc:12:34560:",
            "rowdex-state-v1:0000000000000abc:12:34560\n",
            "rowdex-state-v1:0000000000000é:12:34560",
        ] {
            assert_eq!(text.parse::<State>().unwrap_err().kind(), ErrorKind::InvalidArgument, "{text:?}");
        }
    }
}
