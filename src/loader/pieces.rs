//! Pieces of rows: what is due of a unit is a list of them, each a whole row or some of its tokens.

use std::collections::VecDeque;

use super::slot_list::SlotList;

/// Which of a row's tokens are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenRange {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Pieces of a unit's rows in the order in which they are due. A whole row takes the bytes of its slot alone.
#[derive(Debug, Default)]
pub(crate) struct PieceList {
    pub(crate) slots: SlotList,
    /// The tokens of pieces that are no whole rows. Their places are counted from the first piece that was ever due.
    parts: VecDeque<(u64, TokenRange)>,
    /// How many pieces were taken off.
    first: u64,
}

impl PieceList {
    /// For pieces of a unit with so many rows.
    pub(crate) fn new(rows: u64) -> Self {
        Self { slots: SlotList::new(rows), ..Self::default() }
    }

    /// How many pieces.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.bytes() + self.parts.capacity() * size_of::<(u64, TokenRange)>()
    }

    /// Adds whole rows that follow each other, or these tokens of a row.
    pub(crate) fn push(&mut self, slot: u32, rows: u32, tokens: Option<TokenRange>) {
        if let Some(tokens) = tokens {
            self.parts.push_back((self.first + self.slots.len() as u64, tokens));
        }
        self.slots.push(slot, rows);
    }

    /// Takes the first pieces off, so many.
    pub(crate) fn split_front(&mut self, pieces: usize) -> Self {
        let slots = self.slots.split_front(pieces);
        let first = self.first;
        self.first += pieces as u64;
        let taken = self.parts.partition_point(|(place, _)| *place < self.first);
        let parts = self.parts.drain(..taken).map(|(place, tokens)| (place - first, tokens)).collect();
        if self.parts.len() < self.parts.capacity() / 4 {
            self.parts.shrink_to(2 * self.parts.len());
        }
        Self { slots, parts, first: 0 }
    }

    /// The places of pieces that are no whole rows, with their tokens, of a list of which nothing was taken off.
    pub(crate) fn parts(&self) -> impl ExactSizeIterator<Item = (usize, TokenRange)> {
        self.parts.iter().map(|(place, tokens)| (*place as usize, *tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_with_their_rows_however_these_are_taken() {
        let tokens = |row: u64| row.is_multiple_of(3).then_some(TokenRange { offset: row, length: row + 1 });
        let mut list = PieceList::new(1 << 10);
        let mut due = 0;
        let mut taken = 0;
        for (more, less) in [(7, 3), (0, 0), (5, 9), (20, 1), (0, 19)] {
            for row in taken + due..taken + due + more {
                list.push(row as u32, 1, tokens(row));
            }
            due += more;
            let front = list.split_front(less as usize);
            let expected = (taken..taken + less).filter_map(|row| Some(((row - taken) as usize, tokens(row)?)));
            assert!(front.parts().eq(expected));
            assert!(front.slots.to_vec().into_iter().eq(taken as u32..(taken + less) as u32));
            due -= less;
            taken += less;
        }
        assert_eq!(due, 0);
        assert!(list.parts.is_empty() && list.bytes() < 24 * 20);
    }
}
