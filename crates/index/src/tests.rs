//! The index as a whole: what is written is read back, and nothing else is.

use std::io::Cursor;
use std::mem::offset_of;
use std::sync::{Arc, OnceLock};

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use proptest::prelude::*;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::format::*;
use super::writer::*;
use super::*;
use rowdex_base::error::ErrorKind;
use rowdex_io::source::FileStat;
use rowdex_projection::Renames;

static NO_RENAMES: OnceLock<Renames> = OnceLock::new();

fn schema() -> Schema {
    let fields = vec![
        Field::new("id", DataType::Int64, false),
        Field::new("when", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
        Field::new("tags", DataType::List(Arc::new(Field::new("item", DataType::Utf8, true))), true),
        Field::new("kind", DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)), true),
        Field::new("year", DataType::Int32, true),
    ];
    Schema::new_with_metadata(fields, [("b".to_owned(), "2".to_owned()), ("a".to_owned(), "1".to_owned())].into())
}

fn summary<'a>(schema: &'a Schema, partition_columns: &'a [String], root: &'a Root) -> Summary<'a> {
    let renames = NO_RENAMES.get_or_init(Renames::default);
    Summary { schema, partition_columns, renames, root, build_info: "{\"version\":\"0.1.0\"}" }
}

fn relative_root() -> Root {
    Root { is_relative: true, path: "../data".to_owned() }
}

fn footer(file: usize) -> Vec<u8> {
    (0..400_u32).flat_map(|i| (i % 7 + file as u32).to_le_bytes()).collect()
}

/// Ordinal, source rows, selection.
type Group<'a> = (u32, u64, Option<&'a [u32]>);

/// Three files, the second without row groups; six row groups, two of them empty, and every container.
fn sample(selected: bool, footers: bool, partitions: bool) -> Vec<u8> {
    let mut writer = IndexWriter::new(Cursor::new(Vec::new())).unwrap();
    let names = ["year=2023/a.parquet", "year=2023/empty.parquet", "year=__null__/ü.parquet"];
    let years = [Some("2023"), Some("2023"), None];
    let even: Vec<u32> = (0..600).step_by(2).collect();
    let run: Vec<u32> = (10..200).collect();
    let groups: [&[Group<'_>]; 3] = [
        &[(0, 600, Some(&even)), (1, 300, Some(&run)), (4, 0, None)],
        &[],
        &[(0, 50, None), (1, 1000, Some(&[3, 500, 999])), (2, 9, Some(&[]))],
    ];
    for (file, groups) in groups.iter().enumerate() {
        let raw = footer(file);
        let footer = FooterCompressor::new(footers).unwrap().footer(&raw).unwrap();
        let entry = NewFile {
            path: names[file],
            stat: &FileStat {
                size: 1000 + file as u64,
                mtime_ns: (file != 1).then_some(-5),
                etag: (file == 1).then(|| "\"abc\"".to_owned()),
            },
            footer: &footer,
            partition_values: if partitions { &years[file..=file] } else { &[] },
        };
        assert_eq!(writer.push_file(entry).unwrap(), file as u32);
        for &(ordinal, source_rows, selection) in *groups {
            let selection = selection.filter(|_| selected);
            writer.push_row_group(NewRowGroup { ordinal, source_rows, decoded_bytes: 77, selection }).unwrap();
        }
    }
    let columns = if partitions { vec!["year".to_owned()] } else { Vec::new() };
    writer.finish(&summary(&schema(), &columns, &relative_root())).unwrap().into_inner()
}

pub(crate) fn full_sample() -> Vec<u8> {
    // Footers are compressed by a C library, which Miri does not run.
    sample(true, !cfg!(miri), true)
}

/// An index of row groups of these sizes, `per_file` to a file.
pub(crate) fn of_sizes(sizes: &[u64], per_file: usize) -> Result<Vec<u8>> {
    let mut writer = IndexWriter::new(Cursor::new(Vec::new()))?;
    for (number, sizes) in sizes.chunks(per_file).enumerate() {
        let footer = FooterCompressor::new(false)?.footer(b"")?;
        let path = format!("{number}");
        let file = NewFile {
            path: &path,
            stat: &FileStat { size: 0, mtime_ns: None, etag: None },
            footer: &footer,
            partition_values: &[],
        };
        writer.push_file(file)?;
        for (ordinal, &source_rows) in (0..).zip(sizes) {
            writer.push_row_group(NewRowGroup { ordinal, source_rows, decoded_bytes: 0, selection: None })?;
        }
    }
    Ok(writer.finish(&summary(&schema(), &[], &relative_root()))?.into_inner())
}

/// Corrupts what checksums protect, and makes the checksums right again.
pub(crate) struct Forgery {
    pub(crate) bytes: Vec<u8>,
}

impl Forgery {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    pub(crate) fn header(&mut self) -> &mut IndexHeader {
        IndexHeader::mut_from_prefix(&mut self.bytes).unwrap().0
    }

    fn table(&mut self) -> &mut [SectionRecord] {
        let header = *self.header();
        let start = header.table_offset.get() as usize;
        <[SectionRecord]>::mut_from_prefix_with_elems(&mut self.bytes[start..], header.table_count.get() as usize)
            .unwrap()
            .0
    }

    pub(crate) fn section_record(&mut self, id: u32) -> &mut SectionRecord {
        self.table().iter_mut().find(|record| record.id.get() == id).unwrap()
    }

    pub(crate) fn section(&mut self, id: u32) -> &mut [u8] {
        let record = *self.section_record(id);
        let start = record.offset.get() as usize;
        &mut self.bytes[start..start + record.length.get() as usize]
    }

    fn records<T: FromBytes + IntoBytes + Immutable>(&mut self, id: u32) -> &mut [T] {
        let bytes = self.section(id);
        <[T]>::mut_from_bytes(bytes).unwrap_or_else(|_| panic!("section {id} has other records"))
    }

    pub(crate) fn seal(mut self) -> Vec<u8> {
        let ids: Vec<u32> = self.table().iter().map(|record| record.id.get()).collect();
        for (at, _) in ids.iter().enumerate() {
            let record = self.table()[at];
            let start = record.offset.get() as usize;
            let content = self.bytes.get(start..start.saturating_add(record.length.get() as usize));
            if let Some(content) = content {
                let hash = hash(content);
                self.table()[at].hash = U64::new(hash);
            }
        }
        let table_hash = hash(self.table().as_bytes());
        self.header().table_hash = U64::new(table_hash);
        let header_hash = hash(&self.header().as_bytes()[..offset_of!(IndexHeader, header_hash)]);
        self.header().header_hash = U64::new(header_hash);
        self.bytes
    }
}

fn assert_refused(bytes: Vec<u8>, kind: ErrorKind, message: &str) {
    let error = Index::from_bytes(bytes).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(message), "{error:?} does not say {message:?}");
    assert!(error.hint().is_some(), "{error:?} gives no advice");
}

fn assert_forgery_is_refused(message: &str, forge: impl FnOnce(&mut Forgery)) {
    let mut forgery = Forgery::new(full_sample());
    forge(&mut forgery);
    assert_refused(forgery.seal(), ErrorKind::InvalidIndex, message);
}

#[test]
fn a_section_of_digests_is_passed_over() {
    let plain = Index::from_bytes(full_sample()).unwrap();
    let envelope = format::Envelope::parse(&plain.inner.bytes).unwrap();
    let mut out = sections::SectionWriter::resume(std::io::Cursor::new(full_sample()), &envelope).unwrap();
    out.begin().unwrap();
    out.write(b"whatever they are").unwrap();
    out.end(id::DIGESTS, format::DEFERRED, 1);
    let bytes = out.close().unwrap().into_inner();
    let index = Index::from_bytes(bytes.clone()).unwrap();
    index.verify().unwrap();
    assert_eq!((index.fingerprint(), index.len()), (plain.fingerprint(), plain.len()));
    assert_eq!(Forgery::new(bytes).header().minor.get(), 2);
}

#[test]
fn what_was_written_is_read_back() {
    let index = Index::from_bytes(full_sample()).unwrap();
    index.verify().unwrap();
    assert_eq!((index.len(), index.source_rows()), (300 + 190 + 50 + 3, 600 + 300 + 50 + 1000 + 9));
    assert_eq!((index.num_files(), index.num_row_groups()), (3, 6));
    assert_eq!(**index.schema(), schema());
    assert_eq!(index.partition_columns(), ["year"]);
    assert_eq!(*index.root(), relative_root());
    assert_eq!(index.build_info(), "{\"version\":\"0.1.0\"}");
    assert_eq!(index.path(), None);

    let files: Vec<_> = index.files().collect();
    assert_eq!(files[0].path(), "year=2023/a.parquet");
    assert_eq!(files[2].path(), "year=__null__/ü.parquet");
    assert_eq!((files[0].size(), files[0].mtime_ns(), files[0].etag()), (1000, Some(-5), None));
    assert_eq!((files[1].size(), files[1].mtime_ns(), files[1].etag()), (1001, None, Some("\"abc\"")));
    assert_eq!(files.iter().map(|file| file.row_groups()).collect::<Vec<_>>(), [0..3, 3..3, 3..6]);
    assert_eq!(files.iter().map(|file| file.row_ids()).collect::<Vec<_>>(), [0..490, 490..490, 490..543]);
    assert_eq!(files.iter().map(|file| file.rows()).collect::<Vec<_>>(), [490, 0, 53]);
    let years: Vec<Vec<_>> = files.iter().map(|file| file.partition_values().collect()).collect();
    assert_eq!(years, [[Some("2023")], [Some("2023")], [None]]);
    for file in 0..3 {
        assert_eq!(index.footer(file).unwrap().unwrap(), footer(file as usize));
        assert_eq!(files[file as usize].footer_hash(), hash(&footer(file as usize)));
    }
    assert!(index.file(3).is_none() && index.row_group(6).is_none() && index.footer(3).unwrap().is_none());

    let groups: Vec<_> = index.row_groups().collect();
    assert_eq!(groups.iter().map(|group| group.file()).collect::<Vec<_>>(), [0, 0, 0, 2, 2, 2]);
    assert_eq!(groups.iter().map(|group| group.ordinal()).collect::<Vec<_>>(), [0, 1, 4, 0, 1, 2]);
    assert_eq!(groups.iter().map(|group| group.rows()).collect::<Vec<_>>(), [300, 190, 0, 50, 3, 0]);
    assert_eq!(groups.iter().map(|group| group.source_rows()).collect::<Vec<_>>(), [600, 300, 0, 50, 1000, 9]);
    assert_eq!(groups.iter().map(|group| group.first_row()).collect::<Vec<_>>(), [0, 300, 490, 490, 540, 543]);
    assert!(groups[2].selection().is_none() && groups[3].selection().is_none());
    assert!(groups[5].selection().unwrap().is_empty());
    assert_eq!(groups[4].selection().unwrap().iter().collect::<Vec<_>>(), [3, 500, 999]);
    assert_eq!(groups[1].selection().unwrap().runs().next(), Some(10..200));

    let at = |row_group, file, ordinal, row, slot| Some(Location { row_group, file, ordinal, row, slot });
    assert_eq!(index.locate(0), at(0, 0, 0, 0, 0));
    assert_eq!(index.locate(299), at(0, 0, 0, 598, 299));
    assert_eq!(index.locate(300), at(1, 0, 1, 10, 0));
    assert_eq!(index.locate(490), at(3, 2, 0, 0, 0));
    assert_eq!(index.locate(542), at(4, 2, 1, 999, 2));
    assert_eq!(index.locate(543), None);
    assert_eq!(index.locate(u64::MAX), None);
}

#[test]
fn parts_that_are_not_needed_are_left_out() {
    let index = Index::from_bytes(sample(false, false, false)).unwrap();
    index.verify().unwrap();
    assert_eq!(index.len(), index.source_rows());
    assert!(index.row_groups().all(|group| group.selection().is_none()));
    assert!(index.files().all(|file| file.partition_values().len() == 0 && !file.has_footer()));
    assert_eq!(index.footer(0).unwrap(), None);
    assert_eq!(index.file(0).unwrap().footer_hash(), hash(&footer(0)));
    let mut forgery = Forgery::new(sample(false, false, false));
    assert_eq!(forgery.table().len(), 8);
}

#[test]
fn an_index_of_nothing_is_an_index() {
    for sizes in [&[][..], &[0], &[0, 0, 0]] {
        let index = Index::from_bytes(of_sizes(sizes, 2).unwrap()).unwrap();
        index.verify().unwrap();
        assert!(index.is_empty());
        assert_eq!(index.locate(0), None);
        assert_eq!(index.num_row_groups() as usize, sizes.len());
    }
}

#[test]
fn row_counts_near_the_limit_are_located() {
    let sizes = [1, (1 << 62) - 2, 0, 1, 1 << 61];
    let index = Index::from_bytes(of_sizes(&sizes, 2).unwrap()).unwrap();
    for (row, group) in [(0, 0), (1, 1), ((1 << 62) - 2, 1), ((1 << 62) - 1, 3), (1 << 62, 4), (index.len() - 1, 4)] {
        assert_eq!(index.locate(row).unwrap().row_group, group, "row {row}");
    }
    assert_eq!(of_sizes(&[1 << 62, 1 << 62], 2).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(of_sizes(&[u64::MAX, 2], 2).unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn equal_input_is_equal_bytes() {
    assert_eq!(full_sample(), full_sample());
}

#[test]
fn the_fingerprint_is_of_what_row_ids_mean_and_nothing_else() {
    let fingerprint = |bytes| Index::from_bytes(bytes).unwrap().fingerprint();
    let full = fingerprint(full_sample());
    assert_eq!(full, fingerprint(sample(true, false, false)), "footers and partitions do not matter");
    assert_ne!(full, fingerprint(sample(false, !cfg!(miri), true)), "selections matter");
    let sized = |sizes: &[u64], per_file| fingerprint(of_sizes(sizes, per_file).unwrap());
    assert_ne!(sized(&[5, 6], 2), sized(&[6, 5], 2), "sizes matter");
    assert_ne!(sized(&[5, 6], 2), sized(&[5, 6], 1), "files matter");
    assert_eq!(sized(&[5, 6, 0], 3), sized(&[5, 6], 2), "empty row groups have no row id");
    let mut forgery = Forgery::new(full_sample());
    forgery.records::<FileRecord>(id::FILES)[0].mtime_ns = 9.into();
    forgery.records::<RowGroupRecord>(id::ROW_GROUPS)[0].decoded_bytes = 9.into();
    assert_eq!(fingerprint(forgery.seal()), full, "times and estimates do not matter");
    let mut forgery = Forgery::new(full_sample());
    forgery.section(id::STRINGS)[0] = b'Y';
    assert_ne!(fingerprint(forgery.seal()), full, "paths matter");
}

#[test]
fn an_index_costs_at_most_32_bytes_for_a_row_group() {
    let base = of_sizes(&[7], 1_000_000).unwrap().len();
    for count in [1_usize, 2, 3, 100, 1000, 4097].into_iter().take(if cfg!(miri) { 4 } else { 6 }) {
        for size in [1, 3, 64, 1000, 131_072] {
            let sizes: Vec<u64> = (0..count as u64).map(|i| size + i % 3).collect();
            let length = of_sizes(&sizes, 1_000_000).unwrap().len();
            assert!(length <= base + 32 * count + 128, "{length} bytes for {count} row groups of {size} rows");
        }
    }
}

#[test]
fn every_truncation_is_reported() {
    let bytes = full_sample();
    for length in (0..bytes.len()).step_by(if cfg!(miri) { 61 } else { 1 }) {
        let error = Index::from_bytes(bytes[..length].to_vec()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidIndex, "{length} bytes: {error}");
    }
    assert_refused(Vec::new(), ErrorKind::InvalidIndex, "empty");
    assert_refused(bytes[..40].to_vec(), ErrorKind::InvalidIndex, "truncated: 40 bytes long");
    let message = format!("truncated: 1000 bytes long, {} when written", bytes.len());
    assert_refused(bytes[..1000].to_vec(), ErrorKind::InvalidIndex, &message);
    let mut longer = bytes;
    longer.push(0);
    assert_refused(longer, ErrorKind::InvalidIndex, "followed by other bytes");
}

#[test]
fn every_flipped_bit_is_reported() {
    for bytes in [full_sample(), sample(false, false, false)] {
        for bit in (0..bytes.len() * 8).step_by(if cfg!(miri) { 997 } else { 1 }) {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let found = Index::from_bytes(damaged).and_then(|index| index.verify());
            assert!(found.is_err(), "bit {} of byte {} went unnoticed", bit % 8, bit / 8);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "zstd is a C library")]
fn a_damaged_footer_does_not_keep_the_index_from_opening() {
    let mut forgery = Forgery::new(full_sample());
    let first = forgery.section(id::FOOTERS);
    first[10] ^= 4;
    let index = Index::from_bytes(forgery.bytes).unwrap();
    let error = index.footer(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidIndex);
    assert!(error.to_string().contains("footer of year=2023/a.parquet"), "{error}");
    assert!(index.footer(2).is_ok());
    assert!(index.verify().is_err());
}

#[test]
#[cfg_attr(miri, ignore = "zstd is a C library")]
fn a_footer_that_grows_when_decompressed_is_cut_off() {
    let bomb = vec![0; 50_000_000];
    let mut writer = IndexWriter::new(Cursor::new(Vec::new())).unwrap();
    let footer = FooterCompressor::new(true).unwrap().footer(&bomb).unwrap();
    let file = NewFile {
        path: "a",
        stat: &FileStat { size: 0, mtime_ns: None, etag: None },
        footer: &footer,
        partition_values: &[],
    };
    writer.push_file(file).unwrap();
    let bytes = writer.finish(&summary(&schema(), &[], &relative_root())).unwrap().into_inner();
    assert_eq!(Index::from_bytes(bytes.clone()).unwrap().footer(0).unwrap().unwrap().len(), bomb.len());
    for declared in [0, 100, bomb.len() as u32 - 1, bomb.len() as u32 + 1] {
        let mut forgery = Forgery::new(bytes.clone());
        forgery.records::<FileRecord>(id::FILES)[0].footer_raw_length = U32::new(declared);
        let index = Index::from_bytes(forgery.seal()).unwrap();
        assert_eq!(index.footer(0).unwrap_err().kind(), ErrorKind::InvalidIndex);
    }
}

#[test]
fn bytes_may_start_at_any_alignment() {
    let bytes = full_sample();
    let mut padded = vec![0; 64];
    padded.extend_from_slice(&bytes);
    for offset in 0..64 {
        let mut moved = padded[..offset].to_vec();
        moved.extend_from_slice(&bytes);
        let index = Index::from_bytes(Bytes::from(moved).slice(offset..)).unwrap();
        assert_eq!(index.locate(299).unwrap().row, 598);
        index.verify().unwrap();
    }
}

#[test]
fn a_file_and_a_buffer_give_the_same_index() {
    let bytes = full_sample();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.rdx");
    std::fs::write(&path, &bytes).unwrap();
    let mapped = Index::open(&path).unwrap();
    let read = Index::from_bytes(bytes.clone()).unwrap();
    assert_eq!(mapped.path(), Some(path.as_path()));
    assert_eq!(mapped.size_bytes(), bytes.len() as u64);
    assert_eq!(mapped.fingerprint(), read.fingerprint());
    for row in 0..mapped.len() {
        assert_eq!(mapped.locate(row), read.locate(row));
    }
    std::fs::remove_file(&path).unwrap();
    mapped.verify().unwrap();
}

#[test]
fn an_error_names_the_index_file_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing.rdx");
    let error = Index::open(&missing).unwrap_err();
    assert_eq!((error.kind(), error.file()), (ErrorKind::NotFound, missing.to_str()));
    assert_eq!(error.hint(), Some("check the path, or build the index first"));
    assert_eq!(Index::open(dir.path()).unwrap_err().kind(), ErrorKind::InvalidIndex);

    let path = dir.path().join("bad.rdx");
    std::fs::write(&path, b"").unwrap();
    assert_eq!(Index::open(&path).unwrap_err().kind(), ErrorKind::InvalidIndex);
    let mut forgery = Forgery::new(full_sample());
    forgery.records::<FileRecord>(id::FILES)[2].first_row_group = U32::new(0);
    std::fs::write(&path, forgery.seal()).unwrap();
    let error = Index::open(&path).unwrap_err();
    assert_eq!(error.file(), path.to_str());
    assert!(error.to_string().contains("ü.parquet: its row groups do not follow"), "{error}");
    assert!(error.to_string().ends_with("build the index again"), "{error}");
}

#[test]
fn other_files_are_told_from_damaged_indexes() {
    let mangled = |from: &[u8], to: &[u8]| {
        let bytes = full_sample();
        let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
        [&bytes[..at], to, &bytes[at + from.len()..]].concat()
    };
    assert_refused(mangled(b"\r\n", b"\n"), ErrorKind::InvalidIndex, "text mode");
    assert_refused(mangled(b"\n\x1a\n", b"\n\x1a\r\n"), ErrorKind::InvalidIndex, "text mode");
    assert_refused(mangled(b"\x89RDX", b"\x09RDX"), ErrorKind::InvalidIndex, "text mode");
    assert_refused(b"PAR1 and so on".to_vec(), ErrorKind::InvalidIndex, "a Parquet file");
    assert_refused(b"hello".to_vec(), ErrorKind::InvalidIndex, "not a rowdex index");
}

#[test]
fn a_newer_index_asks_for_an_upgrade() {
    let refused = |message: &str, forge: fn(&mut Forgery)| {
        let mut forgery = Forgery::new(full_sample());
        forge(&mut forgery);
        assert_refused(forgery.seal(), ErrorKind::UnsupportedIndex, message);
    };
    refused("newer rowdex (format 2.0, this one reads 1.x); upgrade rowdex", |f| f.header().major = U16::new(2));
    refused("features that this rowdex does not know (bits 0x8)", |f| f.header().incompatible = U32::new(8));
    refused("needs section 99", |f| f.section_record(id::ROOT).id = U32::new(99));
    refused("flags that this rowdex does not know", |f| f.section_record(id::ROOT).flags = U32::new(CRITICAL | 4));
}

#[test]
fn what_a_newer_minor_version_adds_is_passed_over() {
    let mut forgery = Forgery::new(full_sample());
    forgery.header().minor = U16::new(7);
    forgery.header().compatible = U32::new(0xF0);
    forgery.section_record(id::BUILD_INFO).id = U32::new(99);
    let index = Index::from_bytes(forgery.seal()).unwrap();
    assert_eq!(index.build_info(), "");
    index.verify().unwrap();
}

#[test]
fn renames_that_contradict_themselves_are_refused() {
    let bytes = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(old, new)| ((*old).to_owned(), (*new).to_owned()));
        let (schema, root, renames) = (schema(), relative_root(), Renames::new(pairs).unwrap());
        let summary = Summary { renames: &renames, ..summary(&schema, &[], &root) };
        IndexWriter::new(Cursor::new(Vec::new())).unwrap().finish(&summary).unwrap().into_inner()
    };
    let pairs = [("a", "tags"), ("b", "kind"), ("c", "kind")];
    let index = Index::from_bytes(bytes(&pairs)).unwrap();
    assert_eq!(index.renames().collect::<Vec<_>>(), pairs);
    let refused = |message: &str, change: &dyn Fn(&mut [StringRef])| {
        let mut forgery = Forgery::new(bytes(&pairs));
        change(<[StringRef]>::mut_from_bytes(forgery.section(id::RENAMES)).unwrap());
        assert_refused(forgery.seal(), ErrorKind::InvalidIndex, message);
    };
    refused("has no name", &|names| names[2] = StringRef::NONE);
    refused("not in STRINGS", &|names| names[5].length = U32::new(1 << 20));
    refused("is renamed to", &|names| {
        let (old, new) = (names[2], names[3]);
        (names[4], names[5]) = (old, new);
    });
    refused(r#"renamed to "a""#, &|names| names[1] = names[0]);
    refused("renamed itself", &|names| names[1] = names[2]);
    refused(r#"renamed to """#, &|names| names[1].length = U32::new(0));
    let mut forgery = Forgery::new(bytes(&pairs));
    forgery.section_record(id::RENAMES).length -= U64::new(8);
    assert!(Index::from_bytes(forgery.seal()).is_err());
}

#[test]
fn sections_that_do_not_fit_the_file_are_refused() {
    assert_forgery_is_refused("not aligned", |f| f.section_record(id::FILES).offset += U64::new(1));
    assert_forgery_is_refused("FILES starts at byte", |f| {
        let before = f.section_record(id::STRINGS).offset;
        f.section_record(id::FILES).offset = before;
    });
    assert_forgery_is_refused("not padding", |f| f.section_record(id::FILES).offset += U64::new(64));
    assert_forgery_is_refused("runs out of the file", |f| f.section_record(id::FILES).length = U64::new(1 << 40));
    assert_forgery_is_refused("runs out of the file", |f| f.section_record(id::FILES).length = U64::new(u64::MAX));
    assert_forgery_is_refused("there twice", |f| f.section_record(id::ROOT).id = U32::new(id::FILES));
    assert_forgery_is_refused("no META section", |f| {
        let record = f.section_record(id::META);
        (record.id, record.flags) = (U32::new(99), U32::new(0));
    });
    assert_forgery_is_refused("not padding", |f| f.table().swap(3, 4));
    assert_forgery_is_refused("trailer", |f| *f.bytes.last_mut().unwrap() = 0);

    // The table itself is out of place, so that no checksum of it can be made right.
    for offset in [0, 1, 1 << 20, 1 << 63, u64::MAX] {
        let mut forgery = Forgery::new(full_sample());
        forgery.header().table_offset = U64::new(offset);
        let sealed = hash(&forgery.header().as_bytes()[..offset_of!(IndexHeader, header_hash)]);
        forgery.header().header_hash = U64::new(sealed);
        assert_refused(forgery.bytes, ErrorKind::InvalidIndex, "section table");
    }
    for count in [0, 1, 200, 1 << 20, u32::MAX] {
        let mut forgery = Forgery::new(full_sample());
        forgery.header().table_count = U32::new(count);
        let sealed = hash(&forgery.header().as_bytes()[..offset_of!(IndexHeader, header_hash)]);
        forgery.header().header_hash = U64::new(sealed);
        assert_refused(forgery.bytes, ErrorKind::InvalidIndex, "sections");
    }
}

#[test]
fn counts_that_do_not_fit_their_sections_are_refused() {
    for count in [0, 2, 4, u32::MAX] {
        assert_forgery_is_refused("FILES is", |f| f.records::<MetaRecord>(id::META)[0].files = U32::new(count));
    }
    for count in [7, u32::MAX] {
        assert_forgery_is_refused("row groups", |f| {
            f.records::<MetaRecord>(id::META)[0].row_groups = U32::new(count);
        });
    }
    assert_forgery_is_refused("elements of 71 bytes", |f| {
        f.section_record(id::FILES).element_size = U32::new(71);
    });
    assert_forgery_is_refused("ROW_GROUPS is", |f| {
        let record = f.section_record(id::ROW_GROUPS);
        record.length -= U64::new(1);
    });
    assert_forgery_is_refused("the index 544", |f| f.records::<MetaRecord>(id::META)[0].rows = U64::new(544));
    assert_forgery_is_refused("fewer than 2^63", |f| f.records::<MetaRecord>(id::META)[0].rows = U64::new(1 << 63));
    assert_forgery_is_refused("source rows", |f| f.records::<MetaRecord>(id::META)[0].source_rows = U64::new(1));
    assert_forgery_is_refused("buckets of 2^64 rows", |f| {
        f.records::<MetaRecord>(id::META)[0].guide_shift = U32::new(64);
    });
    assert_forgery_is_refused("GUIDE is", |f| f.records::<MetaRecord>(id::META)[0].guide_shift = U32::new(2));
}

#[test]
#[cfg_attr(miri, ignore = "zstd is a C library")]
fn footers_that_are_not_where_the_table_says_are_refused() {
    let refused = |reason, change: fn(&mut FileRecord)| {
        assert_forgery_is_refused(reason, |f| change(&mut f.records::<FileRecord>(id::FILES)[2]));
    };
    refused("not in FOOTERS", |file| file.footer_offset = U64::new(u64::MAX));
    refused("not in FOOTERS", |file| file.footer_length = U32::new(u32::MAX));
    refused("larger than 1 GiB", |file| file.footer_raw_length = U32::new(u32::MAX));
    refused("a place for one", |file| file.flags = U32::new(FileRecord::HAS_MTIME));
}

#[test]
fn tables_that_contradict_each_other_are_refused() {
    fn groups(f: &mut Forgery) -> &mut [RowGroupRecord] {
        f.records::<RowGroupRecord>(id::ROW_GROUPS)
    }
    assert_forgery_is_refused("go back from 300 to 299", |f| groups(f)[1].end = U64::new(299));
    assert_forgery_is_refused("543", |f| groups(f)[5].end = U64::new(544));
    assert_forgery_is_refused("says that it is of file 1", |f| groups(f)[0].file = U32::new(1));
    assert_forgery_is_refused("says that it is of file 4294967295", |f| groups(f)[5].file = U32::new(u32::MAX));
    assert_forgery_is_refused("row group 0 of file 0 is out of order", |f| groups(f)[1].ordinal = U32::new(0));
    assert_forgery_is_refused("the guide leads", |f| f.records::<U32>(id::GUIDE)[1] = U32::new(5));
    assert_forgery_is_refused("the guide leads", |f| f.records::<U32>(id::GUIDE)[0] = U32::new(u32::MAX));

    fn files(f: &mut Forgery) -> &mut [FileRecord] {
        f.records::<FileRecord>(id::FILES)
    }
    assert_forgery_is_refused("do not follow", |f| files(f)[1].first_row_group = U32::new(2));
    assert_forgery_is_refused("more row groups than the index", |f| files(f)[2].row_groups = U32::new(4));
    assert_forgery_is_refused("have 5 row groups, the index 6", |f| files(f)[2].row_groups = U32::new(2));
    assert_forgery_is_refused("unknown flags", |f| files(f)[2].flags = U32::new(4));
    assert_forgery_is_refused("no path", |f| files(f)[2].path = StringRef::NONE);
    assert_forgery_is_refused("not in STRINGS", |f| files(f)[2].path.offset = U32::new(100_000));
    assert_forgery_is_refused("not in STRINGS", |f| files(f)[1].etag.offset = U32::new(u32::MAX));
}

#[test]
fn hostile_paths_and_texts_are_refused() {
    let overwrite = |at: usize, with: &'static [u8]| {
        move |f: &mut Forgery| f.section(id::STRINGS)[at..at + with.len()].copy_from_slice(with)
    };
    assert_forgery_is_refused("contains `..`", overwrite(0, b"../"));
    assert_forgery_is_refused("is absolute", overwrite(0, b"/etc"));
    assert_forgery_is_refused("contains a NUL", overwrite(3, b"\0"));
    assert_forgery_is_refused("has a scheme", overwrite(0, b"s3://x"));
    assert_forgery_is_refused("STRINGS is not UTF-8", overwrite(3, b"\xff"));
    assert_forgery_is_refused("BUILD_INFO is not UTF-8", |f| f.section(id::BUILD_INFO)[0] = 0xC0);
    assert_forgery_is_refused("is empty", |f| f.records::<FileRecord>(id::FILES)[0].path.length = U32::new(0));
    assert_forgery_is_refused("unknown kind 2", |f| f.records::<RootRecord>(id::ROOT)[0].kind = U32::new(2));
    assert_forgery_is_refused("not in the schema", |f| {
        let path = f.records::<FileRecord>(id::FILES)[0].path;
        f.records::<StringRef>(id::PARTITIONS)[0] = path;
    });
    assert_forgery_is_refused("has no name", |f| f.records::<StringRef>(id::PARTITIONS)[0] = StringRef::NONE);
    assert_forgery_is_refused("do not divide by 3 files", |f| {
        f.section(id::PARTITIONS)[24..].fill(0);
        f.section_record(id::PARTITIONS).length -= U64::new(8);
    });
}

#[test]
fn hostile_schemas_are_refused_without_a_panic() {
    // Every forgery either is another schema or an error; none may end the process.
    let sound = Index::from_bytes(full_sample()).unwrap();
    let (mut refused, mut others, mut kinds, mut served) = (0, 0, Vec::new(), Vec::new());
    let length = Forgery::new(full_sample()).section(id::SCHEMA).len();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let places = (0..length).step_by(if cfg!(miri) { 31 } else { 1 });
    for at in places.clone() {
        for value in [0, 0x7F, 0xFF] {
            let mut forgery = Forgery::new(full_sample());
            forgery.section(id::SCHEMA)[at] = value;
            match Index::from_bytes(forgery.seal()) {
                Ok(index) => {
                    others += usize::from(index.schema() != sound.schema());
                    served.push((index.len(), index.locate(0)));
                }
                Err(error) => {
                    refused += usize::from(error.kind() == ErrorKind::InvalidIndex);
                    kinds.push(error.kind());
                }
            }
        }
    }
    std::panic::set_hook(hook);
    assert!(kinds.len() == refused && refused > places.len(), "{refused} of {} in {length} bytes", kinds.len());
    assert!(others > 0 && served.iter().all(|rows| *rows == (sound.len(), sound.locate(0))), "{others}");
}

#[test]
fn hostile_selections_are_refused() {
    fn sets(f: &mut Forgery) -> &mut [RowSetRecord] {
        f.records::<RowSetRecord>(id::ROW_SETS)
    }
    assert_forgery_is_refused("does not follow", |f| sets(f)[1].offset += U64::new(4));
    assert_forgery_is_refused("serves 300 of its 299 rows", |f| sets(f)[0].source_rows = U64::new(299));
    assert_forgery_is_refused("unknown way 9", |f| sets(f)[0].kind = U32::new(9));
    assert_forgery_is_refused("not in ROW_SET_DATA", |f| sets(f)[1].runs = U32::new(u32::MAX));
    assert_forgery_is_refused("2^32", |f| sets(f)[0].source_rows = U64::new(u64::MAX));
    assert_forgery_is_refused("miscounted", |f| f.section(id::ROW_SET_DATA)[9] ^= 1);
    assert_forgery_is_refused("no ROW_SET_DATA", |f| {
        let record = f.section_record(id::ROW_SET_DATA);
        (record.id, record.flags) = (U32::new(99), U32::new(0));
    });
}

#[test]
fn misuse_of_the_writer_is_an_error() {
    let writer = || IndexWriter::new(Cursor::new(Vec::new())).unwrap();
    let footer = FooterCompressor::new(false).unwrap().footer(b"").unwrap();
    let file = |path| NewFile {
        path,
        stat: &FileStat { size: 0, mtime_ns: None, etag: None },
        footer: &footer,
        partition_values: &[],
    };
    let group = |ordinal| NewRowGroup { ordinal, source_rows: 5, decoded_bytes: 0, selection: None };

    assert!(writer().push_row_group(group(0)).is_err());
    assert_eq!(writer().push_file(file("../a")).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let mut out_of_order = writer();
    out_of_order.push_file(file("a")).unwrap();
    out_of_order.push_row_group(group(1)).unwrap();
    assert!(out_of_order.push_row_group(group(1)).is_err());
    let mut no_values = writer();
    no_values.push_file(file("a")).unwrap();
    assert!(no_values.finish(&summary(&schema(), &["year".to_owned()], &relative_root())).is_err());
    assert!(writer().finish(&summary(&schema(), &["nope".to_owned()], &relative_root())).is_err());
    for secret in ["s3://key:secret@bucket/x", "https://host/x?sig=secret", "s3://user@bucket"] {
        let root = Root { is_relative: false, path: secret.to_owned() };
        let error = writer().finish(&summary(&schema(), &[], &root)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let root = Root { is_relative: false, path: "s3://bucket/a@b".to_owned() };
    assert!(writer().finish(&summary(&schema(), &[], &root)).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]
    #[test]
    fn locate_agrees_with_counting(
        sizes in prop::collection::vec(prop_oneof![2 => Just(0_u64), 5 => 1..50_u64, 1 => 1000..5000_u64], 0..60),
        per_file in 1..8_usize,
    ) {
        let index = Index::from_bytes(of_sizes(&sizes, per_file).unwrap()).unwrap();
        let mut row = 0;
        for (group, &size) in sizes.iter().enumerate() {
            for slot in 0..size {
                let expected = Location {
                    row_group: group as u32,
                    file: (group / per_file) as u32,
                    ordinal: (group % per_file) as u32,
                    row: slot,
                    slot,
                };
                prop_assert_eq!(index.locate(row), Some(expected));
                row += 1;
            }
        }
        prop_assert_eq!(index.len(), row);
        prop_assert_eq!(index.locate(row), None);
    }

    #[test]
    fn locate_maps_slots_to_selected_rows(
        groups in prop::collection::vec((0..300_u32, any::<u64>(), 0..5_u32), 1..20),
    ) {
        let mut writer = IndexWriter::new(Cursor::new(Vec::new())).unwrap();
        let footer = FooterCompressor::new(false).unwrap().footer(b"").unwrap();
        let stat = FileStat { size: 0, mtime_ns: None, etag: None };
        let file = NewFile { path: "a", stat: &stat, footer: &footer, partition_values: &[] };
        writer.push_file(file).unwrap();
        let mut expected = Vec::new();
        for (ordinal, &(rows, seed, density)) in groups.iter().enumerate() {
            let selected: Vec<u32> = (0..rows)
                .filter(|row| (seed.wrapping_mul(u64::from(*row) + 1) >> 33) % 5 <= u64::from(density))
                .collect();
            let ordinal = ordinal as u32;
            let source_rows = u64::from(rows);
            let selection = (density < 4).then_some(selected.as_slice());
            writer.push_row_group(NewRowGroup { ordinal, source_rows, decoded_bytes: 0, selection }).unwrap();
            let served = selection.map_or_else(|| (0..rows).collect(), <[u32]>::to_vec);
            expected.extend(served.iter().zip(0..).map(|(&row, slot)| (ordinal, u64::from(row), slot)));
        }
        let bytes = writer.finish(&summary(&schema(), &[], &relative_root())).unwrap().into_inner();
        let index = Index::from_bytes(bytes).unwrap();
        index.verify().unwrap();
        let located: Vec<_> =
            (0..index.len()).map(|row| index.locate(row).unwrap()).map(|at| (at.ordinal, at.row, at.slot)).collect();
        prop_assert_eq!(located, expected);
    }

    #[test]
    fn no_bytes_make_opening_panic(patches in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6)) {
        let mut forgery = Forgery::new(full_sample());
        let schema = {
            let record = *forgery.section_record(id::SCHEMA);
            record.offset.get() as usize..(record.offset.get() + record.length.get()) as usize
        };
        let (table_start, length) = (forgery.header().table_offset.get() as usize, forgery.bytes.len());
        for &(at, value) in &patches {
            // Beyond the checksums: anywhere but in header, table and trailer; schemas have a test of their own.
            let at = 64 + at % (table_start - 64);
            if at < length && !schema.contains(&at) {
                forgery.bytes[at] = value;
            }
        }
        if let Ok(index) = Index::from_bytes(forgery.seal()) {
            for row in 0..index.len().min(2000) {
                let at = index.locate(row).unwrap();
                prop_assert!(at.row < index.row_group(at.row_group).unwrap().source_rows());
            }
            // Footers are compressed, and looked into when they are asked for.
            if let Err(error) = index.verify() {
                prop_assert_eq!(error.kind(), ErrorKind::InvalidIndex);
            }
            prop_assert_eq!(index.fingerprint(), index.clone().fingerprint());
        }
    }
}
