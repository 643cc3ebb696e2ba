//! Rows of which only a part is due.

use std::collections::VecDeque;

/// Which of a row's tokens are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Cuts, by the places of their rows among those that are due.
#[derive(Debug, Default)]
pub(crate) struct CutList {
    /// Places are counted from the first row that was ever due.
    cuts: VecDeque<(u64, Cut)>,
    first: u64,
}

impl CutList {
    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.cuts.capacity() * size_of::<(u64, Cut)>()
    }

    /// Adds the cut of a row that is due after so many others.
    pub(crate) fn push(&mut self, others: usize, cut: Cut) {
        self.cuts.push_back((self.first + others as u64, cut));
    }

    /// Takes those of the first rows off, so many, with their places among these.
    pub(crate) fn split_front(&mut self, rows: usize) -> Vec<(usize, Cut)> {
        let (first, end) = (self.first, self.first + rows as u64);
        self.first = end;
        let taken = self.cuts.partition_point(|(place, _)| *place < end);
        let front = self.cuts.drain(..taken).map(|(place, cut)| ((place - first) as usize, cut)).collect();
        if self.cuts.len() < self.cuts.capacity() / 4 {
            self.cuts.shrink_to(2 * self.cuts.len());
        }
        front
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_stay_with_their_rows_however_these_are_taken() {
        let cut = |row: u64| Cut { offset: row, length: row + 1 };
        let mut list = CutList::default();
        let (mut due, mut taken) = (0, 0);
        for (more, less) in [(7, 3), (0, 0), (5, 9), (20, 1), (0, 19)] {
            for place in 0..more {
                if (taken + due + place) % 3 == 0 {
                    list.push((due + place) as usize, cut(taken + due + place));
                }
            }
            due += more;
            let expected = (taken..taken + less).filter(|row| row % 3 == 0);
            let expected: Vec<_> = expected.map(|row| ((row - taken) as usize, cut(row))).collect();
            assert_eq!(list.split_front(less as usize), expected);
            (due, taken) = (due - less, taken + less);
        }
        assert_eq!(due, 0);
        assert!(list.cuts.is_empty() && list.bytes() < 24 * 20);
    }
}
