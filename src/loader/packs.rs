//! The packs of a batch.

use std::sync::Arc;

use arrow::array::RecordBatch;

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::{Algorithm, Pack, Piece};
use rowdex_rows::{Between, Room, Sequences, Sequencing, Then, Tokens};

/// The packs of a batch. Each row of its [`records`](super::Batch::records) is a piece: of the column with the tokens
/// it has those of the piece, of all other columns the values of the row.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Packs {
    /// The piece that each row is.
    pub pieces: Vec<Piece>,
    /// How many of the pieces there are up to the end of each pack.
    pub ends: Vec<usize>,
    /// The pieces behind which their row goes on, in rising order.
    pub unended: Vec<Unended>,
    /// How they were packed.
    pub pack: Pack,
    pub(crate) tokens: Option<Arc<Tokens>>,
}

impl Packs {
    /// The column with the tokens, or its path; `None` if no column has them, and rows are served whole.
    pub fn column(&self) -> Option<&str> {
        self.tokens.as_deref().map(Tokens::name)
    }

    /// As [`Batch::sequences`](super::Batch::sequences), of the pieces that these are.
    pub(super) fn sequences(&self, pieces: &RecordBatch, how: &Sequencing) -> Result<Sequences> {
        let invalid = |message: String| Error::new(ErrorKind::InvalidArgument, message);
        let Some(tokens) = &self.tokens else {
            return Err(invalid("sequences of packs of which no column has the tokens".to_owned())
                .with_hint("name the column with the tokens when the loader is made"));
        };
        let added = u64::from(how.bos.is_some()) + u64::from(how.eos.is_some());
        if added > self.pack.extra {
            let extra = self.pack.extra;
            let message = format!("{added} tokens are added to each row, and packs reserve {extra} extra ones");
            return Err(invalid(message).with_hint("plan packs with as many extra tokens as are added"));
        }
        let (values, ends) = tokens.all(pieces)?;
        let mut unended = self.unended.iter().peekable();
        let between = self.pieces.iter().enumerate().map(|(place, piece)| {
            let then = unended.next_if(|unended| unended.place == place).map_or(Then::End, |unended| unended.then);
            Between { begins: piece.offset == 0, then }
        });
        // Of buckets the longest row of a batch says how long it is.
        let capacity = (self.pack.algorithm != Algorithm::Buckets).then_some(self.pack.capacity);
        let room = Room { capacity, multiple: self.pack.multiple };
        how.of(&values, &ends, &between.collect::<Vec<_>>(), (&self.ends, room))
    }
}

/// A piece behind which its row goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unended {
    /// Which of the pieces of the batch, from 0.
    pub place: usize,
    /// What comes behind it.
    pub then: Then,
}
