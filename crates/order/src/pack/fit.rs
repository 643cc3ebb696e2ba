//! Which pieces share a pack, by runs of equal sizes.

/// No pack.
const NONE: u32 = u32::MAX;

/// Puts pieces into packs with a place of `units`, each into the fullest pack that it fits into: of several with the
/// same place left, into the one that came to it last; into a new pack where it fits into none. A pack of `most` pieces
/// is closed.
///
/// `runs` has sizes, from 1 to `units`, and numbers of pieces of that size: larger sizes first. For one run of pieces
/// after the other, `put` is told of the pack that gets the next ones, and how many. Packs are numbered as they are
/// opened; the number of them is returned.
///
/// Whatever fits the fullest pack makes it fuller, so the next piece of the same size goes into it, too, if it fits.
/// That is why runs give just the packs that pieces one by one would give.
pub(super) fn best_fit(
    units: u32,
    most: u32,
    runs: impl IntoIterator<Item = (u32, u32)>,
    mut put: impl FnMut(u32, u32),
) -> u32 {
    let mut open = Open::new(units);
    let mut packs: Vec<InPack> = Vec::new();
    for (size, mut count) in runs {
        while count > 0 {
            let (left, pack) = open.take_fullest(size, &packs).unwrap_or_else(|| {
                packs.push(InPack { pieces: 0, below: NONE });
                (units, packs.len() as u32 - 1)
            });
            let inside = &mut packs[pack as usize];
            let fitting = (left / size).min(count).min(most - inside.pieces);
            put(pack, fitting);
            count -= fitting;
            inside.pieces += fitting;
            let left = left - fitting * size;
            if left > 0 && inside.pieces < most {
                inside.below = open.put(left, pack);
            }
        }
    }
    packs.len() as u32
}

/// Puts pieces into one pack after the other, as many into each as it holds: so many that their sizes come to no more
/// than `units`, or, if `padded`, that their number times the size of the first one does. Takes and tells what
/// [`best_fit`] does.
pub(super) fn next_fit(
    units: u32,
    most: u32,
    padded: bool,
    runs: impl IntoIterator<Item = (u32, u32)>,
    mut put: impl FnMut(u32, u32),
) -> u32 {
    // What is left of the last pack: units, or pieces.
    let mut packs = 0;
    let mut left = 0;
    let mut pieces = 0;
    for (size, mut count) in runs {
        while count > 0 {
            let fitting = (if padded { left } else { left / size }).min(most - pieces).min(count);
            if fitting == 0 {
                (packs, left, pieces) = (packs + 1, if padded { units / size } else { units }, 0);
                continue;
            }
            put(packs - 1, fitting);
            (count, pieces) = (count - fitting, pieces + fitting);
            left -= if padded { fitting } else { fitting * size };
        }
    }
    packs
}

/// Puts pieces one by one into packs, each into the first that has enough left of every limit, with what the piece
/// takes of each. Tells and returns what [`best_fit`] does.
pub(super) fn first_fit(
    limits: [u32; 3],
    pieces: impl IntoIterator<Item = [u32; 3]>,
    mut put: impl FnMut(u32, u32),
) -> u32 {
    let mut packs: Vec<[u32; 3]> = Vec::new();
    for takes in pieces {
        let fits = |left: &[u32; 3]| left.iter().zip(takes).all(|(left, takes)| *left >= takes);
        let pack = packs.iter().position(fits).unwrap_or(packs.len());
        if pack == packs.len() {
            packs.push(limits);
        }
        for (left, takes) in packs[pack].iter_mut().zip(takes) {
            *left -= takes;
        }
        put(pack as u32, 1);
    }
    packs.len() as u32
}

/// A pack that is open, and the one below it on the stack of those with the same place left.
struct InPack {
    pieces: u32,
    below: u32,
}

/// A stack of open packs for each place that can be left, and trees of bits that say which of them have any.
struct Open {
    tops: Vec<u32>,
    /// Bit `i` of the first level is for place `i`; of each next level, for word `i` of the one below.
    levels: Vec<Vec<u64>>,
}

impl Open {
    fn new(units: u32) -> Self {
        let mut levels = Vec::new();
        let mut bits = units as usize + 1;
        loop {
            bits = bits.div_ceil(64);
            levels.push(vec![0; bits]);
            if bits == 1 {
                return Self { tops: vec![NONE; units as usize + 1], levels };
            }
        }
    }

    /// Puts a pack onto the stack of a place, and returns the one below.
    fn put(&mut self, left: u32, pack: u32) -> u32 {
        let below = std::mem::replace(&mut self.tops[left as usize], pack);
        if below == NONE {
            let mut bit = left as usize;
            for level in &mut self.levels {
                let word = &mut level[bit / 64];
                let had_any = *word != 0;
                *word |= 1 << (bit % 64);
                if had_any {
                    break;
                }
                bit /= 64;
            }
        }
        below
    }

    /// The pack with the least place left that is `size` at least, and that place.
    fn take_fullest(&mut self, size: u32, packs: &[InPack]) -> Option<(u32, u32)> {
        let left = self.first_from(size as usize)?;
        let pack = self.tops[left];
        let below = packs[pack as usize].below;
        self.tops[left] = below;
        if below == NONE {
            let mut bit = left;
            for level in &mut self.levels {
                let word = &mut level[bit / 64];
                *word &= !(1 << (bit % 64));
                if *word != 0 {
                    break;
                }
                bit /= 64;
            }
        }
        Some((left as u32, pack))
    }

    /// The first bit from `at` on that is set on the first level.
    fn first_from(&self, mut at: usize) -> Option<usize> {
        for (height, level) in self.levels.iter().enumerate() {
            let word = level.get(at / 64)? >> (at % 64);
            if word != 0 {
                at += word.trailing_zeros() as usize;
                for below in self.levels[..height].iter().rev() {
                    at = at * 64 + below[at].trailing_zeros() as usize;
                }
                return Some(at);
            }
            at = at / 64 + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Piece by piece, with nothing but the rule: (place left, when it came to it, pieces) of each pack.
    fn one_by_one(units: u32, most: u32, sizes: &[u32]) -> Vec<u32> {
        let mut packs: Vec<(u32, usize, u32)> = Vec::new();
        let mut of = Vec::new();
        for (now, size) in sizes.iter().enumerate() {
            let fits = |(left, _, pieces): &(u32, usize, u32)| left >= size && *pieces < most;
            let best = (0..packs.len()).filter(|i| fits(&packs[*i])).min_by_key(|i| {
                let (left, since, _) = packs[*i];
                (left, usize::MAX - since)
            });
            let pack = best.unwrap_or_else(|| {
                packs.push((units, 0, 0));
                packs.len() - 1
            });
            packs[pack] = (packs[pack].0 - size, now, packs[pack].2 + 1);
            of.push(pack as u32);
        }
        of
    }

    fn by_runs(units: u32, most: u32, sizes: &[u32]) -> (Vec<u32>, u32) {
        let mut of = Vec::new();
        let runs = sizes.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u32));
        let packs = best_fit(units, most, runs, |pack, count| of.extend(std::iter::repeat_n(pack, count as usize)));
        (of, packs)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 600 }))]
        #[test]
        fn runs_are_packed_just_as_their_pieces_would_be_one_by_one(
            (units, sizes) in (1_u32..300)
                .prop_flat_map(|units| (Just(units), prop::collection::vec(1..=units, 0..300))),
            small: bool, most in prop_oneof![Just(u32::MAX), 1_u32..6],
        ) {
            let smaller = |size: u32| if small { size.div_ceil(5) } else { size };
            let mut sizes: Vec<u32> = sizes.into_iter().map(smaller).collect();
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            let (of, packs) = by_runs(units, most, &sizes);
            let expected = one_by_one(units, most, &sizes);
            prop_assert_eq!(packs, expected.iter().max().map_or(0, |last| last + 1));
            prop_assert_eq!(of, expected);
        }
    }

    #[test]
    fn places_of_several_levels_are_found() {
        let mut open = Open::new(1 << 20);
        let packs: Vec<InPack> = (0..3).map(|_| InPack { pieces: 0, below: NONE }).collect();
        for (pack, left) in [(0, 5), (1, 70_000), (2, 1 << 20)] {
            assert_eq!(open.put(left, pack), NONE);
        }
        assert_eq!(open.take_fullest(6, &packs), Some((70_000, 1)));
        assert_eq!(open.take_fullest(6, &packs), Some((1 << 20, 2)));
        assert_eq!(open.take_fullest(6, &packs), None);
        assert_eq!(open.take_fullest(5, &packs), Some((5, 0)));
    }
}
