use std::io::Cursor;

use proptest::prelude::*;
use zerocopy::little_endian::{U32, U64};

use super::*;
use crate::format::{hash, id};
use crate::tests::{Forgery, full_sample, of_sizes};

const ITEMS: LengthsOf = LengthsOf::Items;

fn new(name: &str, of: LengthsOf) -> NewLengths {
    NewLengths { name: name.to_owned(), of }
}

/// An index with these lengths, pushed so many at a time.
fn with_lengths(base: &[u8], columns: &[(&str, LengthsOf, &[u64])], stride: usize) -> Vec<u8> {
    let index = Index::from_bytes(base.to_vec()).unwrap();
    let names = columns.iter().map(|(name, of, _)| new(name, *of)).collect();
    let mut writer = LengthsWriter::copy(Cursor::new(Vec::new()), &index, names).unwrap();
    let longest = columns.iter().map(|(_, _, lengths)| lengths.len()).max().unwrap_or(0);
    for start in (0..longest).step_by(stride) {
        for (column, (_, _, lengths)) in columns.iter().enumerate() {
            writer.push(column, &lengths[start.min(lengths.len())..(start + stride).min(lengths.len())]).unwrap();
        }
    }
    writer.finish().unwrap().into_inner()
}

fn all(lengths: &RowLengths) -> Vec<u64> {
    let mut read = Vec::new();
    lengths.read(0..lengths.len(), &mut read).unwrap();
    read
}

/// 543 rows, as the sample of an index has them.
fn some() -> Vec<u64> {
    (0..543).map(|row| if row == 77 { 1_000_000 } else { row * row % 200 }).collect()
}

fn of_sample() -> Vec<u8> {
    let halves: Vec<u64> = some().iter().map(|length| length / 2).collect();
    with_lengths(&full_sample(), &[("n_chars", LengthsOf::Numbers, &halves), ("tokens", ITEMS, &some())], 100)
}

#[test]
fn lengths_are_read_back_by_name_and_nothing_else_of_the_index_changes() {
    let plain = Index::from_bytes(full_sample()).unwrap();
    assert_eq!(plain.lengths_columns().unwrap(), [] as [&str; 0]);
    let index = Index::from_bytes(of_sample()).unwrap();
    index.verify().unwrap();
    assert_eq!(index.lengths_columns().unwrap(), ["n_chars", "tokens"]);
    let tokens = index.lengths("tokens").unwrap();
    assert_eq!((tokens.name(), tokens.of(), tokens.len()), ("tokens", ITEMS, 543));
    assert_eq!(all(&tokens), some());
    assert_eq!((tokens.sum(), tokens.longest()), (some().iter().sum(), 1_000_000));
    assert_eq!(tokens.fingerprint(), some().fingerprint());
    assert_eq!(index.lengths("n_chars").unwrap().of(), LengthsOf::Numbers);
    let mut filled = [0; 3];
    tokens.fill(&[77, 542, 0], &mut filled).unwrap();
    assert_eq!(filled, [1_000_000, some()[542], 0]);
    for row in [543, u64::MAX] {
        assert_eq!(tokens.length(row).unwrap_err().kind(), ErrorKind::OutOfRange);
    }
    assert_eq!(index.fingerprint(), plain.fingerprint());
    assert_eq!(index.footer(2).unwrap(), plain.footer(2).unwrap());

    let error = index.lengths("words").unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::InvalidArgument, Some("words")));
    assert!(error.to_string().contains("n_chars, tokens"), "{error}");
    let said = plain.lengths("tokens").unwrap_err().to_string();
    assert!(said.contains("has no lengths") && said.contains("`given`"), "{said}");
}

#[test]
#[cfg_attr(miri, ignore = "zstd is a C library")]
fn the_format_of_lengths_is_frozen() {
    let bytes = of_sample();
    assert_eq!((bytes.len(), hash(&bytes)), (GOLDEN.0, GOLDEN.1));
    let mut forgery = Forgery::new(bytes);
    assert_eq!(forgery.header().minor.get(), 1);
    assert_eq!(forgery.section(id::LENGTHS)[..8], [0, 0, 2, 4, 8, 12, 18, 24]);
    assert_eq!(Forgery::new(full_sample()).header().minor.get(), 0);
}

/// Length and hash of the sample.
const GOLDEN: (usize, u64) = (3928, 9_518_416_783_280_718_394);

#[test]
#[cfg_attr(miri, ignore = "has too many rows for Miri")]
fn what_is_written_depends_on_the_lengths_alone() {
    let rows = 3 * BLOCK_ROWS + 5;
    let base = of_sizes(&[rows], 1).unwrap();
    let short: Vec<u64> = (0..rows).map(|row| row % 251).collect();
    let mixed: Vec<u64> = (0..rows).map(|row| if row / BLOCK_ROWS == 1 { row } else { 70_000 - row % 3 }).collect();
    let columns: [(&str, LengthsOf, &[u64]); 2] = [("a", ITEMS, &short), ("b", LengthsOf::Given, &mixed)];
    let whole = with_lengths(&base, &columns, rows as usize);
    for stride in [1000, BLOCK_ROWS as usize, 100_001] {
        assert!(with_lengths(&base, &columns, stride) == whole, "{stride} at a time");
    }
    let index = Index::from_bytes(whole).unwrap();
    index.verify().unwrap();
    assert!(all(&index.lengths("a").unwrap()) == short && all(&index.lengths("b").unwrap()) == mixed);
    // The order in which blocks are first read does not matter.
    let b = index.lengths("b").unwrap();
    for row in [rows - 1, 2 * BLOCK_ROWS, 0, BLOCK_ROWS, BLOCK_ROWS - 1, rows - 6] {
        assert_eq!(b.length(row).unwrap(), mixed[row as usize], "row {row}");
    }
    // In turn, or one column behind the other.
    let base = Index::from_bytes(base).unwrap();
    let mut writer =
        LengthsWriter::copy(Cursor::new(Vec::new()), &base, vec![new("a", ITEMS), new("b", LengthsOf::Given)]).unwrap();
    writer.push(1, &mixed).unwrap();
    writer.push(0, &short).unwrap();
    assert!(writer.finish().unwrap().into_inner() == with_lengths(&of_sizes(&[rows], 1).unwrap(), &columns, 7777));
}

#[test]
#[cfg_attr(miri, ignore = "has too many rows for Miri")]
fn lengths_below_64_k_take_at_most_2_2_bytes_a_row() {
    let rows = 4 * BLOCK_ROWS + 7;
    let base = of_sizes(&[rows], 1).unwrap();
    for widest in [u64::from(u16::MAX), 3000] {
        let lengths: Vec<u64> = (0..rows).map(|row| widest - row % 1000).collect();
        let more = with_lengths(&base, &[("tokens", ITEMS, &lengths)], 5000).len() - base.len();
        assert!(more as f64 <= 2.2 * rows as f64, "{more} bytes for {rows} rows");
    }
}

#[test]
fn lengths_go_on_behind_an_index_that_was_just_written() {
    let base = full_sample();
    let index = Index::from_bytes(base.clone()).unwrap();
    let mut out = Cursor::new(base);
    out.set_position(3);
    let names = vec![new("n_chars", LengthsOf::Numbers), new("tokens", ITEMS)];
    let mut writer = LengthsWriter::append(out, &index, names).unwrap();
    writer.push(1, &some()).unwrap();
    writer.push(0, &some().iter().map(|length| length / 2).collect::<Vec<_>>()).unwrap();
    assert_eq!(writer.finish().unwrap().into_inner(), of_sample());
}

#[test]
fn an_index_of_no_rows_has_lengths_of_none() {
    let bytes = with_lengths(&of_sizes(&[], 1).unwrap(), &[("tokens", ITEMS, &[])], 1);
    let index = Index::from_bytes(bytes).unwrap();
    index.verify().unwrap();
    let tokens = index.lengths("tokens").unwrap();
    assert_eq!((tokens.len(), tokens.sum(), tokens.longest()), (0, 0, 0));
    assert!(tokens.length(0).is_err());
}

#[test]
fn what_cannot_be_noted_is_refused() {
    let index = Index::from_bytes(of_sizes(&[10], 1).unwrap()).unwrap();
    let writer = |names| LengthsWriter::copy(Cursor::new(Vec::new()), &index, names);
    let one = || writer(vec![new("tokens", ITEMS)]).unwrap();
    for names in [
        vec![],
        vec![new("", ITEMS)],
        vec![new("b", ITEMS), new("a", ITEMS)],
        vec![new("a", ITEMS), new("a", ITEMS)],
        vec![new(&"n".repeat(5000), ITEMS)],
    ] {
        assert_eq!(writer(names).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    let mut long = one();
    long.push(0, &[1, 2]).unwrap();
    let error = long.push(0, &[3, 1 << 40]).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::TooLarge, Some("tokens")));
    assert!(error.to_string().contains("row 3 has a length of 1099511627776"), "{error}");
    let mut longest = one();
    longest.push(0, &[(1 << 40) - 1; 10]).unwrap();
    let bytes = longest.finish().unwrap().into_inner();
    assert_eq!(Index::from_bytes(bytes).unwrap().lengths("tokens").unwrap().length(9).unwrap(), (1 << 40) - 1);
    let mut short = one();
    short.push(0, &[1; 9]).unwrap();
    assert_eq!(short.finish().unwrap_err().kind(), ErrorKind::Internal);
    assert!(one().push(0, &[1; 11]).is_err() && one().push(1, &[1]).is_err());
}

#[test]
fn a_reader_that_does_not_know_lengths_passes_over_them() {
    let mut forgery = Forgery::new(of_sample());
    forgery.section_record(id::LENGTHS).id = U32::new(200);
    let index = Index::from_bytes(forgery.seal()).unwrap();
    index.verify().unwrap();
    assert_eq!(index.fingerprint(), Index::from_bytes(full_sample()).unwrap().fingerprint());
    assert!(index.lengths_columns().unwrap().is_empty());
}

#[test]
fn lengths_of_another_index_are_refused() {
    let other = with_lengths(&of_sizes(&[543], 1).unwrap(), &[("tokens", ITEMS, &some())], 1000);
    let section = Forgery::new(other).section(id::LENGTHS).to_vec();
    let mut forgery =
        Forgery::new(with_lengths(&of_sizes(&[500, 43], 2).unwrap(), &[("tokens", ITEMS, &some())], 1000));
    forgery.section(id::LENGTHS).copy_from_slice(&section);
    let index = Index::from_bytes(forgery.seal()).unwrap();
    let error = index.lengths("tokens").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidIndex);
    assert!(error.to_string().contains("LENGTHS is of another index"), "{error}");
    assert!(index.verify().is_err());
}

#[test]
#[cfg_attr(miri, ignore = "has too many rows for Miri")]
fn damage_is_told_when_it_is_met_and_not_before() {
    let rows = 2 * BLOCK_ROWS;
    let lengths: Vec<u64> = (0..rows).map(|row| row % 100).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.rdx");
    let mut forgery = Forgery::new(with_lengths(&of_sizes(&[rows], 1).unwrap(), &[("tokens", ITEMS, &lengths)], 9999));
    forgery.section(id::LENGTHS)[BLOCK_ROWS as usize + 5] ^= 16;
    std::fs::write(&path, &forgery.bytes).unwrap();
    let index = Index::open(&path).unwrap();
    let tokens = index.lengths("tokens").unwrap();
    assert_eq!(tokens.length(BLOCK_ROWS - 1).unwrap(), 35);
    let error = tokens.length(rows - 1).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::InvalidIndex, Some("tokens")));
    let told = error.to_string();
    assert!(told.contains("train.rdx") && told.contains("LENGTHS from row 65536"), "{told}");
    assert!(error.hint().is_some() && index.verify().is_err());
}

#[test]
fn no_flipped_bit_and_no_cut_end_of_the_section_panics_or_goes_unnoticed() {
    let bytes = of_sample();
    let read = |bytes: Vec<u8>| -> Result<Vec<Vec<u64>>> {
        let index = Index::from_bytes(bytes)?;
        let names = index.lengths_columns()?;
        names
            .iter()
            .map(|name| {
                let mut read = Vec::new();
                index.lengths(name)?.read(0..index.len(), &mut read)?;
                Ok(read)
            })
            .collect()
    };
    let right = read(bytes.clone()).unwrap();
    let at = Forgery::new(bytes.clone()).section_record(id::LENGTHS).offset.get() as usize;
    let length = Forgery::new(bytes.clone()).section(id::LENGTHS).len();
    for bit in (0..length * 8).step_by(if cfg!(miri) { 997 } else { 1 }) {
        let mut damaged = bytes.clone();
        damaged[at + bit / 8] ^= 1 << (bit % 8);
        let verified = Index::from_bytes(damaged.clone()).and_then(|index| index.verify());
        assert!(verified.is_err(), "bit {bit} goes unnoticed");
        assert!(!read(damaged).is_ok_and(|lengths| lengths == right), "bit {bit} is not told");
    }
    for cut in (0..length).step_by(if cfg!(miri) { 97 } else { 1 }) {
        let mut forgery = Forgery::new(bytes.clone());
        forgery.section_record(id::LENGTHS).length = U64::new(cut as u64);
        let table = forgery.section_record(id::LENGTHS).offset.get() as usize + cut;
        assert!(read(sealed_up_to(forgery, table)).is_err() || cut == 0, "cut to {cut} bytes");
    }
}

/// An index whose last section ends where it says by now.
fn sealed_up_to(mut forgery: Forgery, end: usize) -> Vec<u8> {
    let table = forgery.header().table_offset.get() as usize;
    let rest = forgery.bytes.split_off(table);
    forgery.bytes.truncate(end);
    forgery.bytes.resize(end.next_multiple_of(64), 0);
    let (at, length) = (forgery.bytes.len() as u64, (forgery.bytes.len() + rest.len()) as u64);
    forgery.bytes.extend(rest);
    let trailer = forgery.bytes.len() - 16;
    forgery.bytes[trailer..trailer + 8].copy_from_slice(&length.to_le_bytes());
    forgery.header().table_offset = U64::new(at);
    forgery.header().file_len = U64::new(length);
    forgery.seal()
}

#[test]
fn records_that_contradict_each_other_are_refused_whatever_the_hashes_say() {
    let bytes = of_sample();
    let length = Forgery::new(bytes.clone()).section(id::LENGTHS).len();
    let values = 543 + 543 + 12;
    for at in (values..length - 8).step_by(if cfg!(miri) { 31 } else { 1 }) {
        for change in [0x00, 0x01, 0x7f, 0xff] {
            let mut forgery = Forgery::new(bytes.clone());
            let section = forgery.section(id::LENGTHS);
            section[at] = change;
            let sealed = hash(&section[values..length - 8]);
            section[length - 8..].copy_from_slice(&sealed.to_le_bytes());
            let index = Index::from_bytes(forgery.seal()).unwrap();
            for name in index.lengths_columns().unwrap_or_default() {
                let lengths = index.lengths(name).unwrap();
                assert_eq!(lengths.len(), 543);
                let mut read = Vec::new();
                let readable = lengths.read(0..543, &mut read).is_ok();
                for row in [0, 77, 542] {
                    let length = lengths.length(row).ok();
                    assert!(!readable || length == read.get(row as usize).copied(), "byte {at} as {change}: row {row}");
                }
                for row in [543, u64::MAX] {
                    assert_eq!(lengths.length(row).unwrap_err().kind(), ErrorKind::OutOfRange);
                }
                if index.verify().is_ok() {
                    let told = (lengths.sum(), lengths.longest());
                    assert_eq!((read.iter().sum(), read.iter().copied().max().unwrap()), told, "byte {at} as {change}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 32 }))]
    #[test]
    fn any_lengths_are_read_back(lengths in prop::collection::vec(prop_oneof![
        0..300_u64, 60_000..70_000_u64, (1_u64 << 32) - 3..(1 << 32) + 3, Just((1 << 40) - 1),
    ], 0..2000)) {
        let base = of_sizes(&[lengths.len() as u64], 1).unwrap();
        let index = Index::from_bytes(with_lengths(&base, &[("tokens", ITEMS, &lengths)], 333)).unwrap();
        index.verify().unwrap();
        let tokens = index.lengths("tokens").unwrap();
        // Twice: of blocks that are not checked yet, and of checked ones.
        for _ in 0..2 {
            let rows: Vec<u64> = (0..lengths.len() as u64).rev().collect();
            let mut filled = vec![0; rows.len()];
            tokens.fill(&rows, &mut filled).unwrap();
            filled.reverse();
            prop_assert_eq!(&filled, &lengths);
            prop_assert_eq!(tokens.length(lengths.len() as u64).unwrap_err().kind(), ErrorKind::OutOfRange);
        }
        prop_assert_eq!(all(&tokens), lengths);
    }
}
