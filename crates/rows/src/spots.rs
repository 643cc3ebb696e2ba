//! Where the tokens of packs go.

use serde::{Deserialize, Serialize};

use rowdex_base::error::{Error, ErrorKind};

/// The label of tokens that nothing is to be predicted after, as PyTorch's `cross_entropy` has it.
pub const NO_LABEL: i64 = -100;

/// What comes behind a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Then {
    /// The row ends.
    End,
    /// The row goes on in another piece, with this token.
    Token(i64),
    /// The row has more tokens, which are not served.
    Nothing,
}

/// Where everything goes: pieces, and what fills packs up, which is a piece of no tokens in segment 0.
#[derive(Debug, Default)]
pub(super) struct Spots {
    pub(super) pieces: Vec<Spot>,
    pub(super) ends: Vec<i32>,
    pub(super) lengths: Vec<i32>,
    pub(super) packs: Vec<i32>,
    pub(super) places: usize,
}

/// Where a piece goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    /// Where its tokens begin among all tokens, and how many there are.
    pub(super) source: usize,
    pub(super) tokens: usize,
    /// Its first place, and how many it has.
    pub(super) at: usize,
    pub(super) places: usize,
    pub(super) segment: i32,
    pub(super) bos: bool,
    pub(super) eos: bool,
    pub(super) then: Then,
}

impl Spot {
    /// Places with a token.
    pub(super) fn length(&self) -> usize {
        self.tokens + usize::from(self.bos) + usize::from(self.eos)
    }

    /// The place of its last token, without one that was added behind it.
    pub(super) fn last(&self) -> Option<usize> {
        Some(self.at + (self.tokens + usize::from(self.bos)).checked_sub(1)?)
    }

    /// Whether its tokens may stay where they are, if those of all pieces may.
    pub(super) fn is_as_is(&self) -> bool {
        self.source == self.at && self.places == self.tokens
    }
}

pub(super) fn too_wide() -> Error {
    Error::new(ErrorKind::Schema, "labels of 2^63 or more").with_hint("use tokens of 63 bits")
}

pub(super) fn broken() -> Error {
    Error::new(ErrorKind::Internal, "packs whose pieces are not those of their tokens")
}
