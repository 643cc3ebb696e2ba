//! Pieces of rows in packs as the arrays that a model takes: tokens, where sequences begin, positions and labels.

use std::iter::repeat_n;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, Int64Array, PrimitiveArray, RecordBatch, downcast_integer,
};
use arrow_buffer::ArrowNativeType;
use arrow_buffer::ScalarBuffer;

use super::shifted::{self, TokenItems};
use super::spots::{Spot, Spots, Then, broken};
use rowdex_base::error::{Error, ErrorKind, Result};

/// How the arrays of packs are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequencing {
    /// How packs lie.
    pub layout: PackLayout,
    /// Whether labels are made of the tokens where no column has them.
    pub labels: bool,
    /// The token that each row begins with.
    pub bos: Option<i64>,
    /// The token that each row ends with.
    pub eos: Option<i64>,
    /// The token that places without one are filled with.
    pub pad: i64,
}

/// How packs lie. Written and parsed as `flat` and `rows`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PackLayout {
    /// One after the other, as long as each is.
    #[default]
    Flat,
    /// Each takes as many places as its capacity, or as the longest one of the batch, of which those behind its pieces
    /// are filled up.
    Rows,
}

impl FromStr for PackLayout {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "flat" => Ok(Self::Flat),
            "rows" => Ok(Self::Rows),
            _ => Err(Error::new(ErrorKind::InvalidArgument, format!("no layout of packs is called {name:?}"))
                .with_hint("use flat or rows")),
        }
    }
}

impl Default for Sequencing {
    /// Packs as they are, with labels, nothing added.
    fn default() -> Self {
        Self { layout: PackLayout::Flat, labels: true, bos: None, eos: None, pad: 0 }
    }
}

/// A piece of a row: what its tokens lie between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Between {
    /// Whether the row begins with it.
    pub begins: bool,
    /// What follows.
    pub then: Then,
}

/// The tokens of packs, one after the other, and what they lie between.
#[derive(Debug, Clone, Copy)]
pub struct PackTokens<'a> {
    /// The tokens.
    pub tokens: &'a ArrayRef,
    /// Where each piece ends among them.
    pub ends: &'a [usize],
    /// What each piece lies between.
    pub between: &'a [Between],
    /// Where each pack ends among the pieces.
    pub packs: &'a [usize],
    /// How many places a pack was planned with; `None` for as many as the longest one of the batch takes.
    pub capacity: Option<u64>,
    /// What each piece takes is rounded up to a multiple of this.
    pub multiple: u64,
    /// The columns that have an item for each of the tokens.
    pub beside: &'a [TokenItems],
}

/// The arrays of some packs. A *place* is where a token is, or what fills up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sequences {
    /// The tokens of all packs, one after the other, of the type that they have in the column.
    pub tokens: ArrayRef,
    /// The place at which each piece begins, and at last where the last one ends: pieces + 1 numbers.
    pub cu_seqlens: ScalarBuffer<i32>,
    /// The place at which each pack begins, and at last where the last one ends: packs + 1 numbers.
    pub pack_offsets: ScalarBuffer<i32>,
    /// The most places of a piece.
    pub max_seqlen: i32,
    /// How many places of each piece have a token.
    pub lengths: ScalarBuffer<i32>,
    /// For each place its number within the piece, from 0; what fills up a pack is counted as a separate piece.
    pub position_ids: ScalarBuffer<i64>,
    /// For each place the number of its piece within the pack, from 1; 0 for what fills up.
    pub segment_ids: ScalarBuffer<i32>,
    /// For each place the label of the token that follows in its row: what a column of labels has for it, or else the
    /// token itself. [`NO_LABEL`](super::NO_LABEL) where none follows, and where a mask has 0 for it.
    pub labels: Option<ScalarBuffer<i64>>,
    /// For each place what the other columns with an item for each token have for the one that follows in its row, and
    /// 0 where none does.
    pub beside: RecordBatch,
}

impl Sequencing {
    /// The arrays of packs.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] from 2^31 places on, [`ErrorKind::InvalidArgument`] for a token to add that is none of
    /// the column's type; [`ErrorKind::Schema`] if the tokens are no integers, or too large for labels.
    #[doc(hidden)]
    pub fn of(&self, packs: PackTokens<'_>) -> Result<Sequences> {
        let spots = self.spots(&packs)?;
        macro_rules! made {
            ($type:ty) => {
                self.made::<$type>(packs.tokens, packs.beside, &spots)
            };
        }
        downcast_integer! {
            packs.tokens.data_type() => (made),
            other => Err(Error::new(ErrorKind::Schema, format!("tokens of type {other}"))
                .with_hint("tokens are integers"))
        }
    }

    /// Where everything goes.
    fn spots(&self, all: &PackTokens<'_>) -> Result<Spots> {
        let PackTokens { ends, between, packs, .. } = *all;
        let multiple = usize::try_from(all.multiple.max(1)).unwrap_or(usize::MAX);
        let capacity = match all.capacity {
            None if self.layout == PackLayout::Rows => {
                let flat = Self { layout: PackLayout::Flat, ..*self }.spots(all)?;
                flat.packs.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0) as u64
            }
            capacity => capacity.unwrap_or(0),
        };
        let mut spots = Spots { ends: vec![0], packs: vec![0], ..Spots::default() };
        let mut at = 0_usize;
        let mut source = 0;
        let mut piece = 0;
        for (number, &last) in packs.iter().enumerate() {
            let begin = at;
            for segment in 1_i32.. {
                if piece >= last {
                    break;
                }
                let (Some(&end), Some(between)) = (ends.get(piece), between.get(piece)) else { return Err(broken()) };
                let tokens = end.checked_sub(source).ok_or_else(broken)?;
                let bos = self.bos.is_some() && between.begins;
                let eos = self.eos.is_some() && between.then == Then::End;
                let length = tokens + usize::from(bos) + usize::from(eos);
                let places = length.checked_next_multiple_of(multiple).ok_or_else(too_large)?;
                spots.pieces.push(Spot { source, tokens, at, places, segment, bos, eos, then: between.then });
                (at, source, piece) = (at.checked_add(places).ok_or_else(too_large)?, end, piece + 1);
                spots.ends.push(short(at)?);
                spots.lengths.push(short(length)?);
            }
            if self.layout == PackLayout::Rows {
                let end = usize::try_from(capacity).ok().and_then(|places| begin.checked_add(places));
                let left = end.ok_or_else(too_large)?.checked_sub(at).ok_or_else(|| {
                    Error::new(ErrorKind::Internal, format!("pack {number} of a batch has no room for its pieces"))
                })?;
                let fill =
                    Spot { source, tokens: 0, at, places: left, segment: 0, bos: false, eos: false, then: Then::End };
                spots.pieces.push(fill);
                at += left;
            }
            spots.packs.push(short(at)?);
        }
        spots.places = at;
        match piece == ends.len() {
            true => Ok(spots),
            false => Err(broken()),
        }
    }

    fn made<T: ArrowPrimitiveType>(
        &self,
        tokens: &ArrayRef,
        beside: &[TokenItems],
        spots: &Spots,
    ) -> Result<Sequences> {
        let array = tokens.as_primitive_opt::<T>().ok_or_else(broken)?;
        let values = array.values();
        let as_is = spots.places == values.len() && spots.pieces.iter().all(|spot| spot.is_as_is());
        let placed: ArrayRef = match as_is {
            true => Arc::clone(tokens),
            false => Arc::new(PrimitiveArray::<T>::new(self.placed::<T>(values, spots)?.into(), None)),
        };
        let mut labels = match beside.iter().find(|column| shifted::are_labels(column)) {
            Some(given) => Some(shifted::labels(given, spots, self.eos, false)?),
            None if self.labels => {
                let behind = spots.pieces.iter().filter_map(|spot| match spot.then {
                    Then::Token(token) => Some(token),
                    Then::End | Then::Nothing => None,
                });
                let behind: ArrayRef = Arc::new(Int64Array::from_iter_values(behind));
                let own = TokenItems { name: String::new(), items: Arc::clone(tokens), behind };
                Some(shifted::labels(&own, spots, self.eos, true)?)
            }
            None => None,
        };
        let beside = shifted::others(beside, spots)?;
        if let Some(labels) = &mut labels {
            shifted::mask(labels, &beside)?;
        }
        let mut positions = Vec::with_capacity(spots.places);
        let mut segments = Vec::with_capacity(spots.places);
        for spot in &spots.pieces {
            let length = spot.length();
            positions.extend(0..spot.places as i64);
            segments.extend(repeat_n(spot.segment, length).chain(repeat_n(0, spot.places - length)));
        }
        let pieces = spots.pieces.iter().filter(|spot| spot.segment > 0);
        Ok(Sequences {
            tokens: placed,
            max_seqlen: pieces.map(|spot| spot.places as i32).max().unwrap_or(0),
            cu_seqlens: spots.ends.clone().into(),
            pack_offsets: spots.packs.clone().into(),
            lengths: spots.lengths.clone().into(),
            position_ids: positions.into(),
            segment_ids: segments.into(),
            labels: labels.map(ScalarBuffer::from),
            beside,
        })
    }

    /// The token of each place.
    fn placed<T: ArrowPrimitiveType>(&self, values: &[T::Native], spots: &Spots) -> Result<Vec<T::Native>> {
        let mut placed = vec![native::<T>(self.pad)?; spots.places];
        let [bos, eos] = [self.bos, self.eos].map(|token| token.map(native::<T>).transpose());
        let bos = bos?;
        let eos = eos?;
        for spot in &spots.pieces {
            let own = placed.get_mut(spot.at..spot.at + spot.length()).ok_or_else(broken)?;
            let (first, own) = own.split_at_mut(spot.bos.into());
            let (own, last) = own.split_at_mut(spot.tokens);
            own.copy_from_slice(values.get(spot.source..spot.source + spot.tokens).ok_or_else(broken)?);
            first.iter_mut().zip(bos).for_each(|(place, token)| *place = token);
            last.iter_mut().zip(eos).for_each(|(place, token)| *place = token);
        }
        Ok(placed)
    }
}

fn native<T: ArrowPrimitiveType>(token: i64) -> Result<T::Native> {
    let size = usize::try_from(token.unsigned_abs()).ok().and_then(T::Native::from_usize);
    let found = if token < 0 { size.and_then(|size| size.neg_checked().ok()) } else { size };
    found.filter(|found| found.to_i64() == Some(token)).ok_or_else(|| {
        let message = format!("a token {token} in a column of type {}", T::DATA_TYPE);
        Error::new(ErrorKind::InvalidArgument, message).with_hint("use a token that the column's type has")
    })
}

fn short(places: usize) -> Result<i32> {
    i32::try_from(places).map_err(|_| too_large())
}

fn too_large() -> Error {
    Error::new(ErrorKind::TooLarge, "a batch of 2^31 tokens or more").with_hint("use fewer packs a batch")
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int8Type;
    use arrow_array::{Int8Array, UInt64Array};

    use super::*;
    use crate::NO_LABEL;

    const ALONE: Between = Between { begins: true, then: Then::End };

    fn of<'a>(tokens: &'a ArrayRef, ends: &'a [usize], between: &'a [Between], packs: &'a [usize]) -> PackTokens<'a> {
        PackTokens { tokens, ends, between, packs, capacity: Some(4), multiple: 1, beside: &[] }
    }

    fn made(how: Sequencing, tokens: ArrayRef) -> Result<Sequences> {
        how.of(of(&tokens, &[tokens.len()], &[ALONE], &[1]))
    }

    #[test]
    fn more_tokens_than_int32_counts_are_refused_before_any_is_copied() {
        let tokens: ArrayRef = Arc::new(Int8Array::from(vec![1]));
        let ends = [1 << 30, 1 << 31];
        let error = Sequencing::default().of(of(&tokens, &ends, &[ALONE; 2], &[1, 2])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(error.hint().unwrap().contains("use fewer packs a batch"));
    }

    #[test]
    fn tokens_that_do_not_fit_are_refused_and_all_others_are_served() {
        let bytes: ArrayRef = Arc::new(Int8Array::from(vec![-3, 127]));
        let with_bos = |bos| Sequencing { bos: Some(bos), ..Sequencing::default() };
        for bos in [128, -200, i64::MAX, i64::MIN] {
            let error = made(with_bos(bos), Arc::clone(&bytes)).unwrap_err();
            assert!(error.to_string().contains(&format!("token {bos} in a column of type Int8")), "{error}");
        }
        let found = made(with_bos(-1), Arc::clone(&bytes)).unwrap();
        assert_eq!(found.tokens.as_primitive::<Int8Type>().values()[..], [-1, -3, 127]);
        let unsigned: ArrayRef = Arc::new(UInt64Array::from(vec![1]));
        assert!(made(with_bos(-1), unsigned).is_err());
        let found = made(with_bos(127), bytes).unwrap();
        assert_eq!(found.labels.unwrap(), [-3, 127, NO_LABEL]);
        let large: ArrayRef = Arc::new(UInt64Array::from(vec![1, u64::MAX]));
        assert_eq!(made(Sequencing::default(), Arc::clone(&large)).unwrap_err().kind(), ErrorKind::Schema);
        let found = made(Sequencing { labels: false, ..Sequencing::default() }, Arc::clone(&large)).unwrap();
        assert_eq!(&found.tokens, &large);
    }

    #[test]
    fn a_batch_without_packs_or_with_empty_pieces_has_arrays_of_just_that() {
        let none: ArrayRef = Arc::new(Int8Array::from(Vec::<i8>::new()));
        let found = Sequencing::default().of(of(&none, &[], &[], &[])).unwrap();
        assert_eq!((found.cu_seqlens.to_vec(), found.pack_offsets.to_vec(), found.max_seqlen), (vec![0], vec![0], 0));
        let found = Sequencing { layout: PackLayout::Rows, ..Sequencing::default() };
        let found = found.of(of(&none, &[0, 0], &[ALONE; 2], &[2])).unwrap();
        assert_eq!((found.cu_seqlens.to_vec(), found.pack_offsets.to_vec()), (vec![0, 0, 0], vec![0, 4]));
        assert_eq!((found.position_ids.to_vec(), found.segment_ids.to_vec()), (vec![0, 1, 2, 3], vec![0; 4]));
    }
}
