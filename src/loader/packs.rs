//! The packs of a batch.

use std::sync::Arc;

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::{Algorithm, Pack, Piece};
use rowdex_rows::{Between, PackTokens, Sequences, Sequencing, Then, TokenColumn, TokenItems, Tokens, items_of};

/// The packs of a batch. Each row of its [`records`](super::Batch::records) is a piece: of the column with the tokens,
/// and of the other columns with an item for each, it has those of the piece, of all other columns the values of the
/// row.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Packs {
    /// The piece that each row is.
    pub pieces: Vec<Piece>,
    /// How many of the pieces there are up to the end of each pack.
    pub ends: Vec<usize>,
    /// The pieces after which their row continues, in ascending order.
    pub unended: Vec<Unended>,
    /// How they were packed.
    pub pack: Pack,
    /// What columns beside the tokens have behind each of the unended pieces, as 64 bits.
    pub(crate) behind: Vec<u64>,
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
        let (values, ends) = tokens.column().all(pieces)?;
        let mut unended = self.unended.iter().peekable();
        let between = self.pieces.iter().enumerate().map(|(place, piece)| {
            let then = unended.next_if(|unended| unended.place == place).map_or(Then::End, |unended| unended.then);
            Between { begins: piece.offset == 0, then }
        });
        let beside = tokens.beside().iter().enumerate().map(|(number, column)| self.beside(pieces, column, number));
        // Of buckets the longest row of a batch says how long it is.
        let capacity = (self.pack.algorithm != Algorithm::Buckets).then_some(self.pack.capacity);
        how.of(PackTokens {
            tokens: &values,
            ends: &ends,
            between: &between.collect::<Vec<_>>(),
            packs: &self.ends,
            capacity,
            multiple: self.pack.multiple,
            beside: &beside.collect::<Result<Vec<_>>>()?,
        })
    }

    /// A column beside the tokens of these pieces, the one of this number.
    fn beside(&self, pieces: &RecordBatch, column: &TokenColumn, number: usize) -> Result<TokenItems> {
        let (items, _) = column.all(pieces)?;
        let columns = self.tokens.as_ref().map_or(1, |tokens| tokens.beside().len().max(1));
        let goes_on = |(unended, behind): (&Unended, &[u64])| match unended.then {
            Then::Token(_) => behind.get(number).copied(),
            _ => None,
        };
        let behind = self.unended.iter().zip(self.behind.chunks(columns)).filter_map(goes_on).collect();
        Ok(TokenItems { name: column.name().to_owned(), behind: items_of(behind, items.data_type())?, items })
    }
}

/// A piece after which its row continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unended {
    /// Which of the pieces of the batch, from 0.
    pub place: usize,
    /// What comes behind it.
    pub then: Then,
}
