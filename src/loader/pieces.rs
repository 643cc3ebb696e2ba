//! Pieces of rows: what is due of a unit is a list of them, each a whole row or some of its tokens.
//!
//! A plan looks ahead at as many rows as are held, so where rows are a few bytes its lists would take more memory than
//! the rows. A slot has as many bytes as the largest of its unit needs, slots that follow each other are one run, and
//! memory comes in parts that are let go of one after the other.

use std::collections::VecDeque;

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

/// So many slots that follow each other take less as a run.
const RUN: u32 = 16;
/// A part has room for so many slots at least.
const LEAST: usize = 16;
/// And for so many at most.
const MOST: usize = 1 << 14;
/// A slot is written as a whole word, of which only the lower bytes stay.
const WORD: usize = size_of::<u32>();

/// Slots, the first that was added first.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlotList {
    /// Bytes of a slot.
    width: u8,
    /// Where single slots are added.
    tail: Vec<u8>,
    parts: VecDeque<SlotPart>,
    /// Slots taken of the first part.
    taken: usize,
    rows: usize,
    /// Bytes allocated for `parts` together.
    bytes: usize,
}

#[derive(Debug, Clone)]
enum SlotPart {
    Run { start: u32, rows: u32 },
    Each(Vec<u8>),
}

/// How many bytes a slot of a group with so many rows takes.
pub(crate) fn width(rows: u64) -> u8 {
    let bits = u64::BITS - rows.saturating_sub(1).leading_zeros();
    (bits.div_ceil(8) as u8).clamp(1, WORD as u8)
}

impl SlotList {
    /// For slots of a group with so many rows.
    pub(crate) fn new(rows: u64) -> Self {
        Self { width: width(rows), ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.tail.capacity() + self.parts.capacity() * size_of::<SlotPart>()
    }

    /// Adds slots that follow each other.
    pub(crate) fn push(&mut self, start: u32, rows: u32) {
        if rows >= RUN {
            self.push_run(start, rows);
            return;
        }
        let width = usize::from(self.width);
        for slot in start..start.saturating_add(rows) {
            self.rows += 1;
            if self.tail.len() + WORD > self.tail.capacity() {
                self.end_tail();
                let room = (self.rows / 8).clamp(LEAST, MOST);
                self.tail = Vec::with_capacity(room * width + WORD);
            }
            self.tail.extend_from_slice(&slot.to_le_bytes());
            self.tail.truncate(self.tail.len() - WORD + width);
        }
    }

    fn push_run(&mut self, start: u32, rows: u32) {
        self.end_tail();
        self.rows += rows as usize;
        match self.parts.back_mut() {
            Some(SlotPart::Run { start: first, rows: before }) if first.checked_add(*before) == Some(start) => {
                *before += rows
            }
            _ => self.parts.push_back(SlotPart::Run { start, rows }),
        }
    }

    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.bytes += self.tail.capacity();
            self.parts.push_back(SlotPart::Each(std::mem::take(&mut self.tail)));
        }
    }

    /// Takes the first slots off, so many.
    pub(crate) fn split_front(&mut self, rows: usize) -> Self {
        let mut front = Self { width: self.width, ..Self::default() };
        let width = usize::from(self.width);
        while front.rows < rows {
            if self.parts.is_empty() {
                self.end_tail();
            }
            let Some(part) = self.parts.front_mut() else { break };
            let capacity = part.capacity();
            let left = part.rows(width) - self.taken;
            let count = left.min(rows - front.rows);
            let moved = match part {
                SlotPart::Run { start, .. } => SlotPart::Run { start: *start + self.taken as u32, rows: count as u32 },
                SlotPart::Each(bytes) if count == left && self.taken == 0 => SlotPart::Each(std::mem::take(bytes)),
                SlotPart::Each(bytes) => {
                    let taken = bytes.get(self.taken * width..(self.taken + count) * width);
                    SlotPart::Each(taken.unwrap_or_default().to_vec())
                }
            };
            front.bytes += moved.capacity();
            front.parts.push_back(moved);
            front.rows += count;
            self.rows -= count;
            self.taken += count;
            if count == left {
                self.taken = 0;
                self.bytes -= capacity;
                self.parts.pop_front();
            }
        }
        if self.parts.len() < self.parts.capacity() / 4 {
            self.parts.shrink_to(2 * self.parts.len());
        }
        front
    }

    /// All slots, in order.
    pub(crate) fn to_vec(&self) -> Vec<u32> {
        let mut slots = Vec::with_capacity(self.rows);
        for part in &self.parts {
            match part {
                SlotPart::Run { start, rows } => slots.extend(*start..start.saturating_add(*rows)),
                SlotPart::Each(bytes) => self.read(bytes, &mut slots),
            }
        }
        self.read(&self.tail, &mut slots);
        slots.drain(..self.taken.min(slots.len()));
        slots
    }

    fn read(&self, bytes: &[u8], slots: &mut Vec<u32>) {
        match self.width {
            1 => slots.extend(bytes.iter().map(|byte| u32::from(*byte))),
            2 => slots.extend(bytes.as_chunks().0.iter().map(|pair| u32::from(u16::from_le_bytes(*pair)))),
            3 => slots.extend(bytes.as_chunks().0.iter().map(|&[a, b, c]| u32::from_le_bytes([a, b, c, 0]))),
            _ => slots.extend(bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word))),
        }
    }
}

impl SlotPart {
    fn rows(&self, width: usize) -> usize {
        match self {
            Self::Run { rows, .. } => *rows as usize,
            Self::Each(bytes) => bytes.len() / width,
        }
    }

    fn capacity(&self) -> usize {
        match self {
            Self::Run { .. } => 0,
            Self::Each(bytes) => bytes.capacity(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn slots_come_out_as_they_went_in_whatever_is_taken_when(
            rows in prop_oneof![1_u64..300, 1_u64..100_000, 1_u64..1 << 26, Just(u64::from(u32::MAX))],
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), 1_u32..60), 0..200),
        ) {
            let mut list = SlotList::new(rows);
            let mut expected = VecDeque::new();
            for (adds, at, count) in steps {
                if adds {
                    let start = at.index(rows as usize) as u32;
                    let count = u64::from(count).min(rows - u64::from(start)) as u32;
                    list.push(start, count);
                    expected.extend(start..start + count);
                } else {
                    let count = at.index(expected.len() + 1);
                    let front = list.split_front(count);
                    prop_assert_eq!(front.to_vec(), expected.drain(..count).collect::<Vec<_>>());
                }
                prop_assert_eq!(list.len(), expected.len());
                prop_assert_eq!(list.to_vec(), Vec::from(expected.clone()));
            }
            list.split_front(expected.len());
            prop_assert_eq!((list.len(), list.bytes), (0, 0));
        }
    }

    #[test]
    fn a_slot_takes_no_more_bytes_than_its_group_needs_and_a_run_none() {
        for (rows, width) in [(1 << 8, 1), (1 << 16, 2), (1 << 24, 3), ((1 << 24) + 1, 4)] {
            let mut list = SlotList::new(rows);
            (0..100_000).for_each(|slot| list.push((slot * 7 % rows) as u32, 1));
            assert!(list.bytes() <= 100_000 * width * 9 / 8 + 10_000, "{} for {rows} rows", list.bytes());
        }
        let mut list = SlotList::new(1 << 30);
        (0..1 << 20).for_each(|run| list.push(run * 256, 256));
        assert!(list.bytes() < 1000 && list.len() == 1 << 28, "{}", list.bytes());
    }

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
