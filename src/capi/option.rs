//! Numbers of options, of which 0 stands for the default.

use super::handle;
use super::version::ROWDEX_NONE;
use rowdex_base::error::Result;

/// A number of which 0 stands for the default and [`ROWDEX_NONE`] for 0.
pub(super) enum Count {
    Default,
    Exactly(usize),
}

pub(super) fn count(option: u64, name: &str) -> Result<Count> {
    match option {
        0 => Ok(Count::Default),
        ROWDEX_NONE => Ok(Count::Exactly(0)),
        more => match usize::try_from(more) {
            Ok(more) => Ok(Count::Exactly(more)),
            Err(_) => Err(handle::invalid(format!("`{name}` is {more}"))),
        },
    }
}

/// A number of bytes of which 0 stands for the default and [`ROWDEX_NONE`] for 0.
pub(super) fn bytes(option: u64) -> Option<u64> {
    match option {
        0 => None,
        ROWDEX_NONE => Some(0),
        more => Some(more),
    }
}
