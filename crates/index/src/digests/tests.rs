use std::io::Cursor;

use proptest::prelude::*;
use zerocopy::little_endian::U32;

use super::*;
use crate::format::{hash, id};
use crate::tests::{Forgery, full_sample, of_sizes};

fn some(index: &Index) -> NotedDigests {
    let sums = (0..u128::from(index.num_row_groups())).map(|group| Some(group * 0x1234_5678_9abc_def0_1234_5678 + 1));
    let rows = index.row_groups().map(|group| group.rows());
    let sums = sums.zip(rows).map(|(sum, rows)| if rows == 0 { Some(0) } else { sum });
    NotedDigests {
        columns: vec![("a".to_owned(), "int".to_owned()), ("é".to_owned(), "list<string>".to_owned())],
        sums: sums.collect(),
    }
}

fn noted(bytes: &[u8], digests: Option<&NotedDigests>) -> Vec<u8> {
    let index = Index::from_bytes(bytes.to_vec()).unwrap();
    with_digests(Cursor::new(Vec::new()), &index, digests).unwrap().into_inner()
}

fn of_sample() -> Vec<u8> {
    noted(&full_sample(), Some(&some(&Index::from_bytes(full_sample()).unwrap())))
}

#[test]
fn digests_are_read_back_and_nothing_else_of_the_index_changes() {
    let plain = Index::from_bytes(full_sample()).unwrap();
    assert_eq!(plain.noted_digests().unwrap(), None);
    let index = Index::from_bytes(of_sample()).unwrap();
    index.verify().unwrap();
    assert_eq!(index.noted_digests().unwrap(), Some(some(&plain)));
    assert_eq!(index.fingerprint(), plain.fingerprint());
    let total = some(&plain).sums.iter().fold(0_u128, |total, sum| total.wrapping_add(sum.unwrap()));
    assert_eq!(index.noted_digests().unwrap().unwrap().total(), Some(total));
    let mut forgery = Forgery::new(of_sample());
    assert_eq!(forgery.header().minor.get(), 2);
    // Without them it is what it was.
    assert_eq!(noted(&of_sample(), None), full_sample());
    // Behind an index that was just written they are the same bytes.
    let mut out = Cursor::new(full_sample());
    out.set_position(5);
    assert_eq!(add_digests(out, &plain, &some(&plain)).unwrap().into_inner(), of_sample());
}

#[test]
fn sums_that_are_not_known_are_told_and_leave_no_total() {
    let plain = Index::from_bytes(full_sample()).unwrap();
    let mut digests = some(&plain);
    let group = plain.row_groups().find(|group| group.rows() > 0).unwrap().index() as usize;
    digests.sums[group] = None;
    let index = Index::from_bytes(noted(&full_sample(), Some(&digests))).unwrap();
    let read = index.noted_digests().unwrap().unwrap();
    assert_eq!((&read, read.total(), read.says_something(&index)), (&digests, None, true));
    digests.sums.fill(None);
    assert!(!digests.says_something(&index));
}

#[test]
fn a_reader_that_does_not_know_digests_passes_over_them() {
    let mut forgery = Forgery::new(of_sample());
    forgery.section_record(id::DIGESTS).id = U32::new(200);
    let index = Index::from_bytes(forgery.seal()).unwrap();
    index.verify().unwrap();
    assert_eq!(index.fingerprint(), Index::from_bytes(full_sample()).unwrap().fingerprint());
    assert_eq!(index.noted_digests().unwrap(), None);
}

#[test]
fn digests_of_another_index_are_refused() {
    let other = of_sizes(&[250, 293], 1).unwrap();
    let mut section = Forgery::new(noted(&other, Some(&some(&Index::from_bytes(other.clone()).unwrap()))));
    let section = section.section(id::DIGESTS).to_vec();
    let own = of_sizes(&[500, 43], 2).unwrap();
    let mut forgery = Forgery::new(noted(&own, Some(&some(&Index::from_bytes(own.clone()).unwrap()))));
    forgery.section(id::DIGESTS).copy_from_slice(&section);
    let index = Index::from_bytes(forgery.seal()).unwrap();
    let error = index.noted_digests().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidIndex);
    assert!(error.to_string().contains("DIGESTS is of another index"), "{error}");
    assert_eq!(error.remedies(), [Remedy::Digest]);
    assert!(index.verify().is_err());
}

#[test]
fn no_flipped_bit_of_the_section_panics_or_goes_unnoticed() {
    let bytes = of_sample();
    let at = Forgery::new(bytes.clone()).section_record(id::DIGESTS).offset.get() as usize;
    let length = Forgery::new(bytes.clone()).section(id::DIGESTS).len();
    for bit in (0..length * 8).step_by(if cfg!(miri) { 97 } else { 1 }) {
        let mut damaged = bytes.clone();
        damaged[at + bit / 8] ^= 1 << (bit % 8);
        let index = Index::from_bytes(damaged).unwrap();
        assert!(index.noted_digests().is_err() && index.verify().is_err(), "bit {bit} goes unnoticed");
    }
}

#[test]
fn records_that_contradict_each_other_are_refused_whatever_the_hashes_say() {
    let bytes = of_sample();
    let length = Forgery::new(bytes.clone()).section(id::DIGESTS).len();
    let right = Index::from_bytes(bytes.clone()).unwrap().noted_digests().unwrap();
    for at in (0..length - 8).step_by(if cfg!(miri) { 31 } else { 1 }) {
        for change in [0x00, 0x01, 0x7f, 0xff] {
            let mut forgery = Forgery::new(bytes.clone());
            let section = forgery.section(id::DIGESTS);
            section[at] = change;
            let sealed = hash(&section[..length - 8]);
            section[length - 8..].copy_from_slice(&sealed.to_le_bytes());
            let index = Index::from_bytes(forgery.seal()).unwrap();
            // What a hash vouches for may be another sum or name, and is never another shape.
            if let Ok(Some(read)) = index.noted_digests() {
                assert_eq!(read.sums.len(), index.num_row_groups() as usize);
                assert_eq!(read.columns.len(), right.as_ref().unwrap().columns.len());
            }
        }
    }
}

#[test]
fn what_cannot_be_noted_is_refused() {
    let index = Index::from_bytes(full_sample()).unwrap();
    let right = some(&index);
    let (mut short, mut unsorted, mut none) = (right.clone(), right.clone(), right);
    short.sums.pop();
    unsorted.columns.reverse();
    none.columns.clear();
    for wrong in [short, unsorted, none] {
        let error = with_digests(Cursor::new(Vec::new()), &index, Some(&wrong)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
    }
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "its regular expression takes minutes")]
    fn any_digests_come_back(
        sums in prop::collection::vec(any::<Option<u128>>(), 0..40),
        names in prop::collection::btree_set("\\PC{0,9}", 1..5),
    ) {
        let base = of_sizes(&vec![7; sums.len()], 1).unwrap();
        let digests = NotedDigests { columns: names.into_iter().map(|name| (name.clone(), name)).collect(), sums };
        let index = Index::from_bytes(noted(&base, Some(&digests))).unwrap();
        index.verify().unwrap();
        prop_assert_eq!(index.noted_digests().unwrap(), Some(digests));
    }
}
