use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use arrow_array::builder::*;
use arrow_array::cast::*;
use arrow_array::types::Int32Type;
use arrow_array::*;
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;

use super::footer::read_end;
use super::guard::{self, FilePage, Tally, WalkedChunk};
use super::pages::LEFT_TO_PARQUET;
use super::thrift::ThriftReader;
use super::*;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::source::{FileStat, Source};
use rowdex_projection::{Projection, Renames};

/// Files in memory.
#[derive(Debug, Default)]
pub(super) struct Memory(pub(super) Mutex<HashMap<String, Bytes>>);

impl Memory {
    pub(super) fn with(bytes: impl Into<Bytes>) -> Self {
        Self(Mutex::new(HashMap::from([("f".to_owned(), bytes.into())])))
    }
}

impl Source for Memory {
    fn stat(&self, path: &str) -> Result<FileStat> {
        Ok(FileStat { size: self.0.lock().unwrap()[path].len() as u64, ..FileStat::default() })
    }

    fn read(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let file = self.0.lock().unwrap()[path].clone();
        let cut = |range: &Range<u64>| {
            if range.start > range.end || range.end > file.len() as u64 {
                return Err(Error::new(ErrorKind::Io, "beyond the end"));
            }
            Ok(file.slice(range.start as usize..range.end as usize))
        };
        ranges.iter().map(cut).collect()
    }
}

pub(super) fn open(source: &dyn Source, path: &str) -> Result<FileMetadata> {
    let (_, footer) = read_end(source, path, source.footer_guess(), None)?;
    FileMetadata::parse(path, &footer.bytes, footer.file_size, &Renames::default())
}

pub(super) fn write(batch: &RecordBatch, properties: WriterProperties) -> Memory {
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    Memory::with(bytes)
}

pub(super) fn small_pages() -> parquet::file::properties::WriterPropertiesBuilder {
    WriterProperties::builder().set_data_page_row_count_limit(16).set_write_batch_size(16)
}

/// The bytes of a file, and how much of them was read.
pub(super) struct Counted<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) path: &'a str,
    reads: Cell<u64>,
    bytes: Cell<u64>,
}

impl<'a> Counted<'a> {
    pub(super) fn new(source: &'a dyn Source, path: &'a str) -> Self {
        Self { source, path, reads: Cell::default(), bytes: Cell::default() }
    }
}

impl FileBytes for Counted<'_> {
    fn read(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let bytes = self.source.read(self.path, ranges)?;
        self.reads.set(self.reads.get() + 1);
        self.bytes.set(self.bytes.get() + bytes.iter().map(|bytes| bytes.len() as u64).sum::<u64>());
        Ok(bytes)
    }

    fn is_near(&self) -> bool {
        true
    }
}

/// Decoded rows of one row group, and what was read for them.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) batch: RecordBatch,
    bytes_read: u64,
    reads: u64,
}

pub(super) fn decode(
    source: &dyn Source,
    file: &FileMetadata,
    row_group: usize,
    projection: &Projection,
    partitions: &[(&str, Option<&str>)],
    rows: RowsToDecode<'_>,
    max_decoded_bytes: u64,
) -> Result<Decoded> {
    let bytes = Counted::new(source, file.path());
    let mut whole = WholeBatch::default();
    GroupDecoder { file, row_group, projection, partitions, max_decoded_bytes }.decode(rows, &bytes, &mut whole)?;
    Ok(Decoded { batch: whole.into_batch()?, bytes_read: bytes.bytes.get(), reads: bytes.reads.get() })
}

/// Keeps the chunks that come, of so many columns at once, by their first column.
struct InTurns {
    chunk_rows: usize,
    width: usize,
    first: usize,
    turns: Vec<(usize, RecordBatch)>,
}

impl RowSink for InTurns {
    fn chunk_rows(&self) -> usize {
        self.chunk_rows
    }

    fn columns_at_once(&self) -> Option<usize> {
        Some(self.width)
    }

    fn begin_columns(&mut self, first: usize) -> Result<()> {
        self.first = first;
        Ok(())
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        self.turns.push((self.first, chunk));
        Ok(())
    }
}

/// Keeps the chunks that come.
pub(super) struct Collected {
    pub(super) chunk_rows: usize,
    pub(super) chunks: Vec<RecordBatch>,
}

impl RowSink for Collected {
    fn chunk_rows(&self) -> usize {
        self.chunk_rows
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        self.chunks.push(chunk);
        Ok(())
    }
}

fn without_page_index(properties: parquet::file::properties::WriterPropertiesBuilder) -> WriterProperties {
    properties.set_offset_index_disabled(true).set_statistics_enabled(EnabledStatistics::None).build()
}

fn whole(source: &Memory, projection: &Projection) -> Result<RecordBatch> {
    let file = open(source, "f")?;
    decode(source, &file, 0, projection, &[], RowsToDecode::All, MAX_DECODED_BYTES).map(|decoded| decoded.batch)
}

/// Rows of many types, with nulls at all levels.
fn varied(rows: usize) -> RecordBatch {
    let null = |i: usize| i % 7 == 3;
    let ints = Int64Array::from_iter((0..rows).map(|i| (!null(i)).then_some(i as i64)));
    let text = |i: usize| format!("{:>1$}", i, 1 + i % 40);
    let strings = StringArray::from_iter((0..rows).map(|i| (!null(i)).then(|| text(i))));
    let binaries = LargeBinaryArray::from_iter((0..rows).map(|i| (i % 5 != 0).then(|| text(i).into_bytes())));
    let cats: DictionaryArray<Int32Type> = (0..rows).map(|i| (!null(i)).then_some(["x", "yy", "zzz"][i % 3])).collect();
    let flags = BooleanArray::from_iter((0..rows).map(|i| (i % 4 != 0).then_some(i % 3 == 0)));
    let list =
        |i: usize| (!null(i)).then(|| (0..i % 5).map(|j| (j != 2).then_some((i + j) as i32)).collect::<Vec<_>>());
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>((0..rows).map(list));
    let fixed = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
        (0..rows).map(|i| (!null(i)).then(|| [Some(i as i32), (i % 2 == 0).then_some(1), Some(2)])),
        3,
    );
    let fields: Fields = vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Utf8, true)].into();
    let inner: Vec<ArrayRef> = vec![Arc::new(ints.clone()), Arc::new(strings.clone())];
    let validity: Vec<bool> = (0..rows).map(|i| i % 6 != 1).collect();
    let structs = StructArray::new(fields.clone(), inner, Some(validity.into()));
    let offsets = arrow_buffer::OffsetBuffer::from_lengths((0..rows).map(|i| usize::from(i % 3 != 0)));
    let used = (0..rows).filter(|i| i % 3 != 0).count();
    let points = ListArray::new(
        Arc::new(Field::new("element", structs.data_type().clone(), true)),
        offsets,
        Arc::new(structs.slice(0, used)),
        None,
    );
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for i in 0..rows {
        for j in 0..i % 3 {
            maps.keys().append_value(format!("k{j}"));
            maps.values().append_option((i % 2 == 0).then_some(i as i32));
        }
        maps.append(!null(i)).unwrap();
    }
    RecordBatch::try_from_iter_with_nullable([
        ("ints", Arc::new(ints) as ArrayRef, true),
        ("strings", Arc::new(strings), true),
        ("binaries", Arc::new(binaries), true),
        ("cats", Arc::new(cats), true),
        ("flags", Arc::new(flags), true),
        ("lists", Arc::new(lists), true),
        ("fixed", Arc::new(fixed), true),
        ("structs", Arc::new(structs), true),
        ("points", Arc::new(points), true),
        ("maps", Arc::new(maps.finish()), true),
    ])
    .unwrap()
}

fn selections(rows: u32) -> Vec<Vec<u32>> {
    let mut state = 7u32;
    let mut draw = |one_in: u32| -> Vec<u32> {
        let kept = |_: &u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16).is_multiple_of(one_in)
        };
        (0..rows).filter(kept).collect()
    };
    let mut all = vec![draw(2), draw(3), draw(10), draw(50), draw(200)];
    all.extend([vec![], vec![0], vec![rows - 1], vec![0, rows - 1], (0..rows).collect(), (5..rows - 9).collect()]);
    all.extend((0..rows).step_by(37).map(|row| vec![row]));
    all
}

#[test]
fn selected_rows_are_those_of_the_whole_group() {
    let batch = varied(400);
    let writers = [
        small_pages().build(),
        without_page_index(small_pages()),
        small_pages().set_writer_version(WriterVersion::PARQUET_2_0).set_compression(Compression::SNAPPY).build(),
        small_pages().set_dictionary_enabled(false).set_compression(Compression::ZSTD(Default::default())).build(),
        WriterProperties::builder().build(),
    ];
    for properties in writers {
        let source = write(&batch, properties);
        let file = open(&source, "f").unwrap();
        for views in [false, true] {
            let projection = Projection::all(&batch.schema()).with_views(|_| views);
            let all = decode(&source, &file, 0, &projection, &[], RowsToDecode::All, MAX_DECODED_BYTES).unwrap().batch;
            assert_eq!(all.schema_ref(), projection.internal());
            assert_eq!(finish(&all, projection.output()).unwrap(), batch);
            for rows in selections(400) {
                let got = decode(&source, &file, 0, &projection, &[], RowsToDecode::Selected(&rows), MAX_DECODED_BYTES)
                    .unwrap()
                    .batch;
                let want = arrow_select::take::take_record_batch(&batch, &UInt32Array::from(rows.clone())).unwrap();
                assert_eq!(finish(&got, projection.output()).unwrap(), want, "{rows:?}");
            }
        }
    }
}

/// The rows in chunks of so many, and how long each chunk was.
fn in_chunks(
    source: &Memory,
    projection: &Projection,
    rows: RowsToDecode<'_>,
    chunk_rows: usize,
    max_decoded_bytes: u64,
) -> Result<(Vec<usize>, RecordBatch)> {
    let file = &open(source, "f")?;
    let mut sink = Collected { chunk_rows, chunks: Vec::new() };
    let decoder = GroupDecoder { file, row_group: 0, projection, partitions: &[], max_decoded_bytes };
    decoder.decode(rows, &Counted::new(source, "f"), &mut sink)?;
    let chunks = sink.chunks;
    let all = arrow_select::concat::concat_batches(projection.internal(), &chunks).unwrap();
    Ok((chunks.iter().map(RecordBatch::num_rows).collect(), all))
}

#[test]
fn columns_that_are_decoded_in_turns_are_those_of_the_whole_group() {
    let batch = varied(300);
    let source = write(&batch, WriterProperties::builder().set_data_page_row_count_limit(70).build());
    let file = &open(&source, "f").unwrap();
    // Columns that come from elsewhere, and are not in the file, have their turns, too.
    let mut fields: Vec<_> = batch.schema().fields().iter().map(|field| field.as_ref().clone()).collect();
    fields.insert(2, Field::new("day", DataType::Int32, true));
    fields.push(Field::new("missing", DataType::Utf8, true));
    let projection = Projection::all(&Arc::new(Schema::new(fields)));
    let columns = projection.output().fields().len();
    let partitions: &[(&str, Option<&str>)] = &[("day", Some("7"))];
    let all = RowsToDecode::All;
    let expected = decode(&source, file, 0, &projection, partitions, all, MAX_DECODED_BYTES).unwrap();
    let decoder = GroupDecoder { file, row_group: 0, projection: &projection, partitions, max_decoded_bytes: 1 << 20 };
    for (width, chunk_rows) in [(1, 64), (2, 1000), (3, 1), (5, 299), (columns - 1, 150), (columns, 64), (99, 64)] {
        let bytes = Counted::new(&source, "f");
        let mut sink = InTurns { chunk_rows, width, first: 0, turns: Vec::new() };
        decoder.decode(all, &bytes, &mut sink).unwrap();
        let turns: Vec<usize> = (0..columns).step_by(width).collect();
        let chunks = 300_usize.div_ceil(chunk_rows);
        let firsts: Vec<usize> = sink.turns.iter().map(|(first, _)| *first).collect();
        assert_eq!(firsts, turns.iter().flat_map(|first| vec![*first; chunks]).collect::<Vec<_>>(), "{width}");
        let mut found: Vec<ArrayRef> = Vec::new();
        for turn in sink.turns.chunks(chunks) {
            let schema = turn[0].1.schema();
            let whole = arrow_select::concat::concat_batches(&schema, turn.iter().map(|(_, chunk)| chunk)).unwrap();
            found.extend(whole.columns().iter().cloned());
        }
        assert_eq!(found, expected.batch.columns(), "{width}");
        assert_eq!(bytes.bytes.get(), expected.bytes_read, "{width}");
    }
    let some = RowsToDecode::Selected(&[1, 200, 201]);
    let expected = decode(&source, file, 0, &projection, partitions, some, MAX_DECODED_BYTES).unwrap().batch;
    let mut sink = InTurns { chunk_rows: 64, width: 2, first: 0, turns: Vec::new() };
    decoder.decode(some, &Counted::new(&source, "f"), &mut sink).unwrap();
    let found: Vec<ArrayRef> = sink.turns.iter().flat_map(|(_, chunk)| chunk.columns().to_vec()).collect();
    assert_eq!(found, expected.columns());
    // What is due comes whole.
    let mut sink = InTurns { chunk_rows: 64, width: 2, first: 0, turns: Vec::new() };
    decoder.decode(RowsToDecode::Due(&[1, 200]), &Counted::new(&source, "f"), &mut sink).unwrap();
    assert_eq!(sink.turns[0].1.num_columns(), columns);
    // What all columns take together is limited, however many come at once.
    let narrow = GroupDecoder { max_decoded_bytes: 3000, ..decoder };
    let mut sink = InTurns { chunk_rows: 64, width: 1, first: 0, turns: Vec::new() };
    let error = narrow.decode(all, &Counted::new(&source, "f"), &mut sink).unwrap_err();
    assert_eq!((error.kind(), sink.turns.len()), (ErrorKind::TooLarge, 0));
}

#[test]
fn whole_rows_of_hundreds_of_columns_are_those_of_the_file() {
    let few = varied(200);
    let fields = (0..600).map(|at| few.schema().field(at % few.num_columns()).clone().with_name(format!("c{at}")));
    let columns = (0..600).map(|at| Arc::clone(few.column(at % few.num_columns()))).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), columns).unwrap();
    let source = write(&batch, WriterProperties::builder().set_data_page_row_count_limit(70).build());
    let file = &open(&source, "f").unwrap();
    let some: Vec<u32> = (0..200).step_by(3).collect();
    for is_viewed in [false, true] {
        let projection = Projection::all(&batch.schema()).with_views(|_| is_viewed);
        let types = projection.internal().fields().iter();
        let viewed =
            types.zip(batch.columns()).map(|(field, column)| arrow_cast::cast(column, field.data_type()).unwrap());
        let expected = RecordBatch::try_new(Arc::clone(projection.internal()), viewed.collect()).unwrap();
        for (rows, chunk_rows, length) in
            [(RowsToDecode::All, 64, 64), (RowsToDecode::All, 1000, 200), (RowsToDecode::Selected(&some), 50, 50)]
        {
            let bytes = Counted::new(&source, "f");
            let mut sink = Collected { chunk_rows, chunks: Vec::new() };
            let (partitions, max_decoded_bytes) = (&[], MAX_DECODED_BYTES);
            let decoder = GroupDecoder { file, row_group: 0, projection: &projection, partitions, max_decoded_bytes };
            decoder.decode(rows, &bytes, &mut sink).unwrap();
            assert!(bytes.reads.get() > 1, "some columns before the others");
            assert_eq!(sink.chunks[0].num_rows(), length);
            let found = arrow_select::concat::concat_batches(projection.internal(), &sink.chunks).unwrap();
            let slots: Vec<u32> =
                if let RowsToDecode::Selected(rows) = rows { rows.to_vec() } else { (0..200).collect() };
            assert_eq!(found, arrow_select::take::take_record_batch(&expected, &UInt32Array::from(slots)).unwrap());
        }
        // What all columns take together is limited.
        let few = decode(&source, file, 0, &projection, &[], RowsToDecode::All, 200_000).unwrap_err();
        assert_eq!(few.kind(), ErrorKind::TooLarge);
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(48))]
    #[test]
    fn any_chunks_of_any_rows_are_those_of_the_plain_decode(
        rows in 1usize..500,
        page_rows in 1usize..300,
        chunk_rows in 1usize..300,
        // How many times the bytes of the rows are allowed; small ones make the decoder go on in short batches.
        limit in proptest::sample::select(vec![1u64, 2, 3, 5, 1 << 20]),
        one_in in 1u32..60,
        offset in 0u32..60,
        paged in proptest::bool::ANY,
    ) {
        let batch = varied(rows);
        let properties =
            WriterProperties::builder().set_data_page_row_count_limit(page_rows).set_write_batch_size(page_rows.min(7));
        let source = write(&batch, if paged { properties.build() } else { without_page_index(properties) });
        let projection = Projection::all(&batch.schema());
        let wanted: Vec<u32> = (0..rows as u32).filter(|row| (row + offset).is_multiple_of(one_in)).collect();
        let expected = arrow_select::take::take_record_batch(&batch, &UInt32Array::from(wanted.clone())).unwrap();
        let mut allowed = limit * 16_384;
        // The limit is raised until it lets the rows be decoded, which shorter batches must not keep it from.
        let (lengths, found) = loop {
            match in_chunks(&source, &projection, RowsToDecode::Selected(&wanted), chunk_rows, allowed) {
                Err(error) if error.kind() == ErrorKind::TooLarge && allowed < 1 << 30 => allowed += allowed / 4,
                outcome => break outcome.unwrap(),
            }
        };
        proptest::prop_assert_eq!(lengths.len(), wanted.len().div_ceil(chunk_rows).max(1));
        proptest::prop_assert!(lengths.iter().rev().skip(1).all(|&length| length == chunk_rows));
        proptest::prop_assert_eq!(found, expected);
    }
}

#[test]
fn one_row_reads_its_page_and_not_the_group() {
    let batch = varied(4000);
    let source = write(&batch, small_pages().set_dictionary_enabled(false).build());
    let file = open(&source, "f").unwrap();
    let projection = Projection::all(&batch.schema());
    let read = |rows| decode(&source, &file, 0, &projection, &[], rows, MAX_DECODED_BYTES).unwrap();
    let group = read(RowsToDecode::All).bytes_read;
    let cold = read(RowsToDecode::Selected(&[2000]));
    let warm = read(RowsToDecode::Selected(&[2000]));
    assert_eq!((cold.reads, warm.reads), (2, 1));
    assert!(warm.bytes_read < group / 10, "{} of {group}", warm.bytes_read);
}

#[test]
fn rows_that_cannot_be_are_refused() {
    let source = write(&varied(10), WriterProperties::builder().build());
    let file = open(&source, "f").unwrap();
    let projection = Projection::all(file.arrow_schema());
    let kind = |group, rows| {
        let error = decode(&source, &file, group, &projection, &[], rows, MAX_DECODED_BYTES).unwrap_err();
        assert_eq!(error.file(), Some("f"));
        error.kind()
    };
    assert_eq!(kind(1, RowsToDecode::All), ErrorKind::OutOfRange);
    assert_eq!(kind(0, RowsToDecode::Selected(&[10])), ErrorKind::OutOfRange);
    assert_eq!(kind(0, RowsToDecode::Selected(&[3, 3])), ErrorKind::InvalidArgument);
    assert_eq!(kind(0, RowsToDecode::Selected(&[3, 2])), ErrorKind::InvalidArgument);
}

#[test]
fn nested_leaves_are_read_alone() {
    let batch = varied(100);
    let source = write(&batch, WriterProperties::builder().build());
    let projection = Projection::columns(&batch.schema(), &["points.b", "structs.a", "ints"]).unwrap();
    let got = whole(&source, &projection).unwrap();
    assert_eq!(got.schema_ref(), projection.output());
    let structs = batch.column_by_name("structs").unwrap().as_struct();
    let DataType::Struct(fields) = projection.output().field(1).data_type() else { panic!() };
    let want = StructArray::new(fields.clone(), vec![Arc::clone(structs.column(0))], structs.nulls().cloned());
    assert_eq!(got.column(1).as_struct(), &want);
    assert_eq!(got.column(0).as_list::<i32>().values().as_struct().num_columns(), 1);
}

#[test]
fn columns_that_a_file_lacks_or_has_narrower_fit_the_dataset() {
    let structs = StructArray::from(vec![(
        Arc::new(Field::new("x", DataType::Int16, true)),
        Arc::new(Int16Array::from(vec![Some(1), None])) as ArrayRef,
    )]);
    let batch = RecordBatch::try_from_iter([
        ("small", Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef),
        ("real", Arc::new(Float32Array::from(vec![1.5, 2.5]))),
        ("s", Arc::new(structs)),
        ("text", Arc::new(StringArray::from(vec!["a", "b"]))),
    ])
    .unwrap();
    let source = write(&batch, WriterProperties::builder().build());
    let fields: Fields = vec![Field::new("y", DataType::Utf8, true), Field::new("x", DataType::Int64, true)].into();
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("text", DataType::LargeUtf8, true),
        Field::new("gone", DataType::List(Arc::new(Field::new("item", DataType::Int8, true))), true),
        Field::new("s", DataType::Struct(fields), true),
        Field::new("small", DataType::Int64, false),
        Field::new("real", DataType::Float64, true),
    ]));
    let got = whole(&source, &Projection::all(&schema)).unwrap();
    assert_eq!(got.schema(), schema);
    assert_eq!(got.column(0).as_string::<i64>().iter().flatten().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(got.column(1).null_count(), 2);
    let s = got.column(2).as_struct();
    assert_eq!((s.column(0).null_count(), s.column(1).null_count()), (2, 1));
    assert_eq!(got.column(3).as_ref(), &Int64Array::from(vec![1, 2]) as &dyn Array);
    // Only wanted fields that are missing: the struct's own nulls still come from the file.
    let only_missing = Projection::columns(&schema, &["s.y"]).unwrap();
    assert_eq!(whole(&source, &only_missing).unwrap().column(0).as_struct().column(0).null_count(), 2);
}

#[test]
fn a_column_that_does_not_fit_is_named() {
    let batch =
        RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![Some(1), None])) as ArrayRef)]).unwrap();
    let source = write(&batch, WriterProperties::builder().build());
    let wanted = [
        Field::new("n", DataType::Int64, false),
        Field::new("n", DataType::Int32, true),
        Field::new("n", DataType::Utf8, true),
        Field::new("gone", DataType::Utf8, false),
    ];
    for field in wanted {
        let name = field.name().clone();
        let error = whole(&source, &Projection::all(&Arc::new(Schema::new(vec![field])))).unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Schema, Some(name.as_str())), "{error}");
        assert_eq!(error.row_group(), Some(0));
    }
}

#[test]
fn partition_values_become_columns_of_the_schemas_type() {
    let source = write(&varied(5), WriterProperties::builder().build());
    let file = open(&source, "f").unwrap();
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let schema = Arc::new(Schema::new(vec![
        Field::new("year", DataType::Int32, true),
        Field::new("lang", dictionary, true),
        Field::new("day", DataType::Date32, true),
        Field::new("none", DataType::Utf8, true),
    ]));
    let projection = Projection::all(&schema);
    let values = [("lang", Some("en")), ("year", Some("2024")), ("day", Some("2024-02-29")), ("none", None)];
    let decoded =
        decode(&source, &file, 0, &projection, &values, RowsToDecode::Selected(&[1, 4]), MAX_DECODED_BYTES).unwrap();
    assert_eq!((decoded.reads, decoded.batch.num_rows()), (0, 2));
    assert_eq!(decoded.batch.schema(), schema);
    assert_eq!(decoded.batch.column(0).as_primitive::<Int32Type>().values(), &[2024, 2024]);
    assert_eq!(decoded.batch.column(3).null_count(), 2);
    let error = decode(&source, &file, 0, &projection, &[("year", Some("x"))], RowsToDecode::All, MAX_DECODED_BYTES)
        .unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Schema, Some("year")));
}

#[test]
fn files_that_are_not_parquet_are_told_apart() {
    let good = write(&varied(5), WriterProperties::builder().build()).0.into_inner().unwrap()["f"].clone();
    let tail = |tail: &[u8]| Bytes::from([&good[..good.len() - tail.len()], tail].concat());
    let cases: Vec<(Bytes, ErrorKind, &str)> = vec![
        (Bytes::new(), ErrorKind::InvalidParquet, "empty"),
        (Bytes::from_static(b"PAR1"), ErrorKind::InvalidParquet, "too few"),
        (Bytes::from_static(b"PAR1PAR1PAR1"), ErrorKind::InvalidParquet, "claims"),
        (Bytes::from_static(b"not a parquet file at all"), ErrorKind::InvalidParquet, "not a Parquet file"),
        (tail(b"PARE"), ErrorKind::UnsupportedParquet, "encrypted"),
        (tail(b"PAR2"), ErrorKind::InvalidParquet, "not a Parquet file"),
        (tail(b"\xff\xff\xff\xffPAR1"), ErrorKind::InvalidParquet, "claims"),
        (tail(b"\0\0\0\0PAR1"), ErrorKind::InvalidParquet, "claims"),
        (tail(b"\x01\0\0\0PAR1"), ErrorKind::InvalidParquet, ""),
        (good.slice(..good.len() / 2), ErrorKind::InvalidParquet, "not a Parquet file"),
    ];
    for (bytes, kind, says) in cases {
        let error = open(&Memory::with(bytes), "f").unwrap_err();
        assert_eq!((error.kind(), error.file()), (kind, Some("f")), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_schema_nested_without_end_is_refused_before_it_is_parsed() {
    // A list of 100 000 groups with one child each: name, then number of children.
    let mut footer = vec![0x15, 2, 0x19, 0xfc, 0xa0, 0x8d, 0x06];
    (0..100_000).for_each(|_| footer.extend([0x48, 1, b'g', 0x15, 2, 0]));
    footer.extend([0x16, 0, 0x19, 0x0c, 0]);
    let error = FileMetadata::parse("f", &footer, 1 << 30, &Renames::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedParquet);
    assert!(error.message().contains("deep"), "{error}");
}

fn codecs() -> Vec<Compression> {
    vec![
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::BROTLI(Default::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::ZSTD(Default::default()),
    ]
}

fn chunk(compression: Compression, limit: u64) -> WalkedChunk {
    WalkedChunk { compression, values: 1 << 20, max_levels: (0, 0), has_booleans: false, page_limit: limit, limit }
}

fn zigzag(out: &mut Vec<u8>, value: i64) {
    let mut value = ((value << 1) ^ (value >> 63)) as u64;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A version 1 data page with plain values.
fn page(uncompressed: i64, body: &[u8]) -> Vec<u8> {
    let mut page = vec![0x15, 0, 0x15];
    zigzag(&mut page, uncompressed);
    page.push(0x15);
    zigzag(&mut page, body.len() as i64);
    page.extend([0x2c, 0x15, 2, 0x15, 0, 0x15, 0, 0x15, 0, 0, 0]);
    page.extend(body);
    page
}

/// The pages of a column chunk.
fn walked(bytes: &[u8], chunk: &WalkedChunk) -> Result<Vec<FilePage>> {
    let mut found = Vec::new();
    guard::walk(0, &Bytes::copy_from_slice(bytes), chunk, &mut Tally::default(), &mut found)?;
    Ok(found)
}

#[test]
fn a_page_that_declares_too_much_is_refused_for_every_codec() {
    for codec in codecs() {
        let bytes = page(i64::from(i32::MAX), &[0; 40]);
        let refusal = walked(&bytes, &chunk(codec, 1 << 20)).unwrap_err();
        assert_eq!(refusal.kind(), ErrorKind::TooLarge, "{codec}: {refusal:?}");
        let many: Vec<u8> = (0..20).flat_map(|_| page(100_000, &[])).collect();
        if !matches!(codec, Compression::BROTLI(_)) {
            let refusal = walked(&many, &chunk(codec, 1 << 20)).unwrap_err();
            assert_eq!(refusal.kind(), ErrorKind::TooLarge, "{codec}: {refusal:?}");
        }
    }
}

#[test]
fn a_stream_that_goes_on_beyond_the_declared_size_is_refused() {
    use std::io::Write;
    let zeros = vec![0u8; 8 << 20];
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&zeros).unwrap();
    let mut brotli = Vec::new();
    brotli::CompressorWriter::new(&mut brotli, 4096, 5, 22).write_all(&zeros).unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(&zeros).unwrap();
    let streams = [
        (Compression::GZIP(Default::default()), gzip.finish().unwrap()),
        (Compression::BROTLI(Default::default()), brotli),
        (Compression::LZ4, lz4.finish().unwrap()),
    ];
    for (codec, stream) in streams {
        let walk = |declared| walked(&page(declared, &stream), &chunk(codec, 8 << 20));
        assert_eq!(walk(1000).unwrap_err().kind(), ErrorKind::TooLarge, "{codec}");
        walk(8 << 20).unwrap_or_else(|error| panic!("{codec}: {error}"));
    }
}

#[test]
fn page_headers_of_garbage_are_errors_or_pages_within_their_bytes() {
    let mut state = 1u64;
    let mut refused = 0;
    for _ in 0..50_000 {
        let bytes: Vec<u8> = (0..40)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 59) as u8
            })
            .collect();
        let walked = walked(&bytes, &chunk(Compression::SNAPPY, 1 << 20));
        let mut end = 0;
        for page in walked.iter().flatten() {
            assert!(end <= page.at && page.body.len() < page.size && page.expanded <= 1 << 20, "{page:?}");
            end = page.at + page.size as u64;
        }
        assert!(end <= bytes.len() as u64);
        refused += usize::from(walked.is_err());
    }
    // Few bytes are a whole header, and the pages before them count no values.
    assert!(refused > 49_000, "{refused}");
}

#[test]
fn a_value_repeated_through_a_dictionary_counts_as_often_as_it_appears() {
    let long = "x".repeat(1 << 20);
    let strings = StringArray::from_iter_values((0..200).map(|_| long.as_str()));
    let batch = RecordBatch::try_from_iter([("s", Arc::new(strings) as ArrayRef)]).unwrap();
    let properties = WriterProperties::builder().set_dictionary_page_size_limit(4 << 20).build();
    let source = write(&batch, properties);
    let file = open(&source, "f").unwrap();
    let options = 16 << 20;
    let plain = Projection::all(&batch.schema());
    let error = decode(&source, &file, 0, &plain, &[], RowsToDecode::All, options).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::TooLarge, Some("s")), "{error}");
    assert_eq!(error.row_group(), Some(0));
    // As views the value is there once.
    let views = plain.clone().with_views(|_| true);
    let decoded = decode(&source, &file, 0, &views, &[], RowsToDecode::All, options).unwrap();
    let few = decoded.batch.slice(0, 3);
    assert_eq!(finish(&few, plain.output()).unwrap(), batch.slice(0, 3));
    let some = decode(&source, &file, 0, &plain, &[], RowsToDecode::Selected(&[0, 7]), options).unwrap();
    assert_eq!(some.batch, batch.slice(0, 2));
}

#[test]
fn values_of_a_dictionary_are_measured_as_they_are_and_not_as_they_could_be() {
    let long = "x".repeat(1 << 20);
    let word = |row: usize| match row % 50 {
        7 => Some(long.clone()),
        9 => None,
        _ => Some(format!("word {}", row % 3)),
    };
    let strings: ArrayRef = Arc::new((0..200).map(word).collect::<StringArray>());
    let batch = RecordBatch::try_from_iter_with_nullable([("s", strings, true)]).unwrap();
    let properties = WriterProperties::builder().set_dictionary_page_size_limit(4 << 20).build();
    let source = write(&batch, properties);
    let file = open(&source, "f").unwrap();
    let plain = Projection::all(&batch.schema());
    for left_to_parquet in [false, true] {
        LEFT_TO_PARQUET.set(left_to_parquet);
        // The longest value is 200 MiB in as many rows, and 4 MiB in those that have it.
        let decoded = decode(&source, &file, 0, &plain, &[], RowsToDecode::All, 16 << 20).unwrap();
        assert_eq!(decoded.batch, batch);
        let error = decode(&source, &file, 0, &plain, &[], RowsToDecode::All, 3 << 20).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        for rows in [RowsToDecode::Selected(&[7, 57]), RowsToDecode::Due(&[7, 57])] {
            let some = decode(&source, &file, 0, &plain, &[], rows, 16 << 20).unwrap();
            assert_eq!(some.batch.column(0).len(), 2);
            assert_eq!(some.batch.column(0).as_string::<i32>().value(1), long);
        }
    }
    LEFT_TO_PARQUET.set(false);
}

#[test]
fn views_are_kept_for_long_or_repeated_values_only() {
    let rows = 0..1000;
    let short = StringArray::from_iter_values(rows.clone().map(|i| format!("{i:012}")));
    let long = StringArray::from_iter_values(rows.clone().map(|i| format!("{i:0200}")));
    let same = StringArray::from_iter_values(rows.map(|i| format!("{:012}", i % 5)));
    let columns = [("short", short), ("long", long), ("same", same)];
    let columns = columns.map(|(name, array)| (name, Arc::new(array) as ArrayRef));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = open(&write(&batch, WriterProperties::builder().build()), "f").unwrap();
    let pays: Vec<bool> = batch.schema().fields().iter().map(|field| views_pay(&file)(field)).collect();
    assert_eq!(pays, [false, true, true]);
    let save_nothing = |file: &FileMetadata| -> Vec<bool> {
        batch.schema().fields().iter().map(|field| views_save_nothing(file)(field)).collect()
    };
    assert_eq!(save_nothing(&file), [true, false, true]);
    // Of a file that does not tell the lengths of its values nothing is known.
    let untold = WriterProperties::builder().set_statistics_enabled(EnabledStatistics::None).build();
    assert_eq!(save_nothing(&open(&write(&batch, untold), "f").unwrap()), [false; 3]);
}

#[test]
fn selected_rows_do_not_hold_on_to_whole_pages() {
    let strings = StringArray::from_iter_values((0..1000).map(|i| format!("{i:01000}")));
    let batch = RecordBatch::try_from_iter([("s", Arc::new(strings) as ArrayRef)]).unwrap();
    let source = write(&batch, WriterProperties::builder().set_dictionary_enabled(false).build());
    let file = open(&source, "f").unwrap();
    let projection = Projection::all(&batch.schema()).with_views(|_| true);
    let decoded =
        decode(&source, &file, 0, &projection, &[], RowsToDecode::Selected(&[5, 900]), MAX_DECODED_BYTES).unwrap();
    assert!(decoded.batch.get_array_memory_size() < 20_000, "{}", decoded.batch.get_array_memory_size());
}

#[test]
fn a_prefix_repeated_through_delta_encoding_counts_as_often_as_it_appears() {
    let long = "x".repeat(1 << 18);
    let strings = StringArray::from_iter_values((0..200).map(|_| long.as_str()));
    let batch = RecordBatch::try_from_iter([("s", Arc::new(strings) as ArrayRef)]).unwrap();
    for codec in codecs().into_iter().filter(|codec| *codec != Compression::LZ4) {
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::DELTA_BYTE_ARRAY)
            .set_compression(codec)
            .build();
        let source = write(&batch, properties);
        let file = open(&source, "f").unwrap();
        let projection = Projection::all(&batch.schema());
        let run = |limit| {
            let options = limit;
            decode(&source, &file, 0, &projection, &[], RowsToDecode::All, options).map(|decoded| decoded.batch)
        };
        assert_eq!(run(16 << 20).unwrap_err().kind(), ErrorKind::TooLarge, "{codec}");
        assert_eq!(run(128 << 20).unwrap(), batch, "{codec}");
    }
}

/// Bytes that anything may have happened to give rows or an error; a panic that escapes fails the test.
fn survives(bytes: Vec<u8>) {
    let source = Memory::with(bytes);
    let Ok(file) = open(&source, "f") else { return };
    let projection = Projection::all(file.arrow_schema());
    let options = 64 << 20;
    for group in 0..file.num_row_groups() {
        for rows in [RowsToDecode::All, RowsToDecode::Selected(&[1, 17])] {
            if let Err(error) = decode(&source, &file, group, &projection, &[], rows, options) {
                assert_eq!(error.file(), Some("f"), "{error}");
            }
        }
    }
}

#[test]
fn damaged_files_give_rows_or_errors() {
    let batch = varied(40);
    for (place, codec) in codecs().into_iter().enumerate() {
        let version = if place % 2 == 0 { WriterVersion::PARQUET_1_0 } else { WriterVersion::PARQUET_2_0 };
        let source = write(&batch, small_pages().set_writer_version(version).set_compression(codec).build());
        let good = source.0.into_inner().unwrap()["f"].to_vec();
        // A step that is prime visits other bytes in every file.
        for at in (place..good.len()).step_by(11) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            survives(bad);
        }
    }
}

/// A file whose footer gives another number of rows for the whole file than its row groups add up to.
fn with_declared_rows(batch: &RecordBatch, row_group_rows: usize, declared: u8) -> Memory {
    let properties = small_pages().set_max_row_group_row_count(Some(row_group_rows)).build();
    let source = write(batch, properties);
    let mut bytes = source.0.lock().unwrap()["f"].to_vec();
    let footer = read_end(&source, "f", source.footer_guess(), None).unwrap().1.bytes;
    let mut reader = ThriftReader::new(&footer);
    let mut last = 0;
    while let Some((kind, id)) = reader.field(&mut last).unwrap() {
        if id == 3 {
            break;
        }
        reader.skip_value(kind).unwrap();
    }
    let at = bytes.len() - 8 - footer.len() + reader.at();
    // The number is an integer in zigzag encoding; below 64 it takes one byte.
    assert_eq!(bytes[at], 2 * batch.num_rows() as u8);
    bytes[at] = 2 * declared;
    Memory::with(bytes)
}

#[test]
fn the_row_groups_are_believed_where_the_footer_counts_other_rows_for_the_file() {
    let rows: ArrayRef = Arc::new(arrow_array::Int64Array::from_iter_values(0..50));
    let rows = RecordBatch::try_from_iter([("id", rows)]).unwrap();
    for declared in [0, 1, 49, 50, 63] {
        let source = with_declared_rows(&rows, 20, declared);
        let file = open(&source, "f").unwrap();
        let found: u32 = (0..file.num_row_groups()).map(|group| file.row_group_rows(group)).sum();
        assert_eq!((found, file.num_row_groups()), (50, 3), "{declared}");
        let projection = Projection::all(file.arrow_schema());
        for (group, first, count) in [(0, 0, 20), (1, 20, 20), (2, 40, 10)] {
            let read = |wanted: RowsToDecode<'_>| {
                decode(&source, &file, group, &projection, &[], wanted, MAX_DECODED_BYTES).unwrap().batch
            };
            assert_eq!(read(RowsToDecode::All), rows.slice(first, count), "{declared}");
            assert_eq!(read(RowsToDecode::Selected(&[1, 7])).num_rows(), 2, "{declared}");
        }
    }
}

#[test]
fn a_footer_tells_decoded_bytes_to_a_twentieth() {
    let rows = 20_000;
    let words = |row: usize| (!row.is_multiple_of(7)).then(|| format!("word {}", row * 7919 % 100_003));
    let lists = |row: usize| (!row.is_multiple_of(5)).then(|| (0..row as i32 % 4).map(Some).collect::<Vec<_>>());
    let columns: [(&str, ArrayRef); 5] = [
        ("number", Arc::new(Int64Array::from_iter_values((0..rows as i64).map(|row| row * row)))),
        ("sparse", Arc::new(Int32Array::from_iter((0..rows as i32).map(|row| (row % 3 != 0).then_some(row))))),
        ("word", Arc::new(StringArray::from_iter((0..rows).map(words)))),
        (
            "bytes",
            Arc::new(BinaryArray::from_iter_values(
                (0..rows).map(|row| format!("{row:>width$}", width = 6 + row % 50)),
            )),
        ),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>((0..rows).map(lists)))),
    ];
    for (name, array) in columns {
        let batch = RecordBatch::try_from_iter_with_nullable([(name, array, true)]).unwrap();
        let real = rowdex_rows::bytes_of_part(&batch);
        let source = write(&batch, WriterProperties::builder().build());
        let told = open(&source, "f").unwrap().decoded_bytes(0, None);
        assert!((told as f64 / real as f64 - 1.0).abs() <= 0.05, "{name}: told {told}, was {real}");
    }
}

#[test]
fn intervals_keep_their_months_where_no_arrow_type_was_noted() {
    let months: ArrayRef = Arc::new(IntervalYearMonthArray::from(vec![Some(14), None, Some(-1)]));
    let days: ArrayRef = Arc::new(IntervalDayTimeArray::from(vec![
        Some(arrow_buffer::IntervalDayTime::new(3, 5)),
        None,
        Some(arrow_buffer::IntervalDayTime::new(-1, 7)),
    ]));
    let inner: ArrayRef = Arc::new(StructArray::from(vec![(
        Arc::new(Field::new("months", months.data_type().clone(), true)),
        Arc::clone(&months),
    )]));
    let batch =
        RecordBatch::try_from_iter([("m", Arc::clone(&months)), ("d", Arc::clone(&days)), ("s", inner)]).unwrap();
    // As the format has them: months, days and milliseconds, each a little-endian number of 32 bits.
    let bytes = |months: i32, days: i32, ms: i32| -> Vec<u8> {
        [months, days, ms].into_iter().flat_map(i32::to_le_bytes).collect()
    };
    for noted in [false, true] {
        let mut file = Vec::new();
        let options = parquet::arrow::arrow_writer::ArrowWriterOptions::new().with_skip_arrow_metadata(!noted);
        let mut writer = ArrowWriter::try_new_with_options(&mut file, batch.schema(), options).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let source = Memory::with(file);
        let projection = Projection::all(open(&source, "f").unwrap().arrow_schema());
        let found = whole(&source, &projection).unwrap();
        if noted {
            assert_eq!(found.column(0), &months);
            assert_eq!(found.column(1), &days);
            continue;
        }
        for (column, wanted) in [(0, [bytes(14, 0, 0), bytes(-1, 0, 0)]), (1, [bytes(0, 3, 5), bytes(0, -1, 7)])] {
            let found = found.column(column).as_fixed_size_binary();
            assert_eq!((found.value(0), found.is_null(1), found.value(2)), (&wanted[0][..], true, &wanted[1][..]));
        }
        let inner = found.column(2).as_struct().column(0).as_fixed_size_binary();
        assert_eq!(inner.value(0), bytes(14, 0, 0));
    }
}

#[test]
fn lists_of_structs_with_fields_that_are_never_null_are_read_in_every_layout() {
    let never_null = |name: &str, data_type: &DataType| Arc::new(Field::new(name, data_type.clone(), false));
    let words: ArrayRef = Arc::new(StringArray::from(vec!["x", "", "y", "", ""]));
    let inner: ArrayRef = Arc::new(StructArray::from(vec![(never_null("b", words.data_type()), words)]));
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 0, 2, 0, 0]));
    let fields = [never_null("a", numbers.data_type()), never_null("s", inner.data_type())];
    let nulls = NullBuffer::from(vec![true, false, true, false, false]);
    let items: ArrayRef = Arc::new(StructArray::new(Fields::from_iter(fields), vec![numbers, inner], Some(nulls)));
    let item = Arc::new(Field::new("element", items.data_type().clone(), true));
    let nulls = Some(NullBuffer::from(vec![true, false, true, true, true]));
    let lengths = || [2, 0, 0, 2, 1];
    let short =
        ListArray::new(Arc::clone(&item), OffsetBuffer::from_lengths(lengths()), Arc::clone(&items), nulls.clone());
    let long = LargeListArray::new(item, OffsetBuffer::from_lengths(lengths()), items, nulls);
    let layouts: [ArrayRef; 4] = [
        Arc::new(ListViewArray::from(short.clone())),
        Arc::new(LargeListViewArray::from(long.clone())),
        Arc::new(short),
        Arc::new(long),
    ];
    for array in layouts {
        let batch = RecordBatch::try_from_iter_with_nullable([("l", array, true)]).unwrap();
        let source = write(&batch, WriterProperties::builder().build());
        let projection = Projection::all(open(&source, "f").unwrap().arrow_schema());
        let found = whole(&source, &projection).unwrap();
        assert_eq!(found, batch);
        found.column(0).to_data().validate_full().unwrap();
        let copied = arrow_select::take::take_record_batch(&found, &UInt32Array::from(vec![3, 0])).unwrap();
        assert_eq!(copied.column(0).slice(1, 1).as_ref(), batch.column(0).slice(0, 1).as_ref());
    }
}

#[test]
fn a_struct_that_lacks_a_field_is_read_for_its_nulls_wherever_its_maps_are() {
    let field = |name: &str, data_type: &DataType| Arc::new(Field::new(name, data_type.clone(), true));
    let number = || -> ArrayRef { Arc::new(Int32Array::from(vec![1, 2])) };
    // The first of two rows has no struct, and neither has an entry.
    let map = |values: ArrayRef| -> ArrayRef {
        let keys: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
        let key = Arc::new(Field::new("keys", DataType::Utf8, false));
        let entries = StructArray::from(vec![(key, keys), (field("values", values.data_type()), values)]).slice(0, 0);
        let entry = Arc::new(Field::new("entries", entries.data_type().clone(), false));
        Arc::new(MapArray::new(entry, OffsetBuffer::from_lengths([0, 0]), entries, None, false))
    };
    let of = |columns: Vec<(&str, ArrayRef)>| -> ArrayRef {
        let fields = columns.iter().map(|(name, column)| field(name, column.data_type()));
        let (fields, nulls) = (Fields::from_iter(fields), NullBuffer::from(vec![false, true]));
        Arc::new(StructArray::new(fields, columns.into_iter().map(|(_, column)| column).collect(), Some(nulls)))
    };
    let structs = [
        of(vec![("tags", map(number()))]),
        of(vec![("tags", map(number())), ("n", number())]),
        of(vec![("n", number()), ("tags", map(number()))]),
        of(vec![("inner", of(vec![("tags", map(number()))])), ("more", map(number()))]),
        of(vec![("tags", map(map(number())))]),
        of(vec![("tags", map(of(vec![("deep", map(number()))]))), ("inner", of(vec![("n", number())]))]),
    ];
    for array in structs {
        let wider = |data_type: &DataType| {
            let DataType::Struct(fields) = data_type else { panic!() };
            DataType::Struct(fields.iter().cloned().chain([field("lang", &DataType::Utf8)]).collect())
        };
        let list = ListArray::new(
            field("element", array.data_type()),
            OffsetBuffer::from_lengths([1, 1]),
            Arc::clone(&array),
            None,
        );
        let known = array.data_type().to_string();
        let lists = DataType::List(field("element", &wider(array.data_type())));
        let schema = Schema::new(vec![field("meta", &wider(array.data_type())), field("list", &lists)]);
        let columns: [(&str, ArrayRef, bool); 2] = [("meta", array, true), ("list", Arc::new(list), true)];
        let source =
            write(&RecordBatch::try_from_iter_with_nullable(columns).unwrap(), WriterProperties::builder().build());
        let projection = Projection::columns(&Arc::new(schema), &["meta.lang", "list.lang"]).unwrap();
        let found = whole(&source, &projection).unwrap_or_else(|error| panic!("{known}: {error}"));
        for found in [found.column(0).as_struct(), found.column(1).as_list::<i32>().values().as_struct()] {
            assert_eq!((found.is_null(0), found.is_null(1)), (true, false), "{known}");
            assert_eq!((found.num_columns(), found.column(0).null_count()), (1, 2), "{known}");
        }
    }
}

/// As DuckDB writes them: the differences of values of 32 bits are not cut to those.
#[test]
fn wide_differences_of_short_integers_are_read_or_refused_with_a_way_out() {
    let numbers: ArrayRef = Arc::new(UInt32Array::from(vec![0, 3_000_000_000]));
    let field = Arc::new(Field::new("a", DataType::UInt32, true));
    let structs: ArrayRef = Arc::new(StructArray::from(vec![(field, Arc::clone(&numbers))]));
    let item = Arc::new(Field::new("element", structs.data_type().clone(), true));
    let lists: ArrayRef = Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([2]), structs, None));
    let read = |array: &ArrayRef| {
        let batch = RecordBatch::try_from_iter_with_nullable([("l", Arc::clone(array), true)]).unwrap();
        let properties = WriterProperties::builder().set_dictionary_enabled(false);
        let source = write(&batch, properties.set_encoding(Encoding::DELTA_BINARY_PACKED).build());
        let (mut cut, mut whole_difference) = (Vec::new(), Vec::new());
        zigzag(&mut cut, 3_000_000_000 - (1 << 32));
        zigzag(&mut whole_difference, 3_000_000_000);
        let mut bytes = source.0.lock().unwrap()["f"].to_vec();
        let at = bytes.windows(cut.len()).position(|window| window == cut).unwrap();
        bytes[at..at + cut.len()].copy_from_slice(&whole_difference);
        whole(&Memory::with(bytes), &Projection::all(&batch.schema()))
    };
    assert_eq!(read(&numbers).unwrap().column(0), &numbers);
    let error = read(&lists).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::UnsupportedParquet, Some("l.list.element.a")), "{error}");
    assert!(error.hint().unwrap().contains("DuckDB"), "{error}");
}

/// A file of a column of 96-bit times, in lists or not, which notes this Arrow type.
fn write_int96(times: &[(u32, u64)], lists: bool, noted: Option<DataType>, properties: WriterProperties) -> Memory {
    use parquet::data_type::{Int96, Int96Type};
    let field = |data_type| Field::new("t", data_type, true);
    let columns = if lists {
        "OPTIONAL GROUP t (LIST) { REPEATED GROUP list { OPTIONAL INT96 element; } }"
    } else {
        "OPTIONAL INT96 t;"
    };
    let schema = parquet::schema::parser::parse_message_type(&format!("message schema {{ {columns} }}")).unwrap();
    let noted = noted.map(|noted| {
        let noted = field(if lists { DataType::new_list(noted, true) } else { noted });
        let value = parquet::arrow::encode_arrow_schema(&Schema::new(vec![noted]));
        vec![parquet::file::metadata::KeyValue::new(parquet::arrow::ARROW_SCHEMA_META_KEY.into(), value)]
    });
    let properties = properties.into_builder().set_key_value_metadata(noted).build();
    let mut file = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut file, Arc::new(schema), Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let values: Vec<Int96> = times
        .iter()
        .map(|(day, nanoseconds)| vec![*nanoseconds as u32, (nanoseconds >> 32) as u32, *day].into())
        .collect();
    // A null behind them, and as lists of two.
    let mut defined = vec![if lists { 3 } else { 1 }; values.len()];
    defined.push(0);
    let repeated: Option<Vec<i16>> =
        lists.then(|| (0..defined.len()).map(|place| i16::from(place % 2 == 1 && place < values.len())).collect());
    column.typed::<Int96Type>().write_batch(&values, Some(&defined), repeated.as_deref()).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    Memory::with(file)
}

#[test]
fn times_of_96_bits_are_served_as_they_are_or_refused() {
    const EPOCH: u32 = 2_440_588;
    const DAY: u64 = 86_400_000_000_000;
    let first = (EPOCH - 106_752, (i128::from(i64::MIN) + 106_752 * i128::from(DAY)) as u64);
    let last = (EPOCH + 106_751, (i128::from(i64::MAX) - 106_751 * i128::from(DAY)) as u64);
    let (spark, before) = ((EPOCH + 2_932_896, DAY - 1), (first.0, first.1 - 1));
    let noted = |unit| Some(DataType::Timestamp(unit, None));
    for (lists, dictionary) in [(false, false), (false, true), (true, false), (true, true)] {
        for codec in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::LZ4] {
            let properties =
                || WriterProperties::builder().set_dictionary_enabled(dictionary).set_compression(codec).build();
            let read = |times: &[(u32, u64)], unit: Option<DataType>, rows: RowsToDecode<'_>| {
                let source = write_int96(times, lists, unit, properties());
                let file = open(&source, "f").unwrap();
                let projection = Projection::all(file.arrow_schema());
                let found = decode(&source, &file, 0, &projection, &[], rows, MAX_DECODED_BYTES)?.batch;
                let column = found.column(0);
                let column = if lists { column.as_list::<i32>().values() } else { column };
                let numbers = arrow_cast::cast(column, &DataType::Int64).unwrap();
                Ok(numbers.as_primitive::<arrow_array::types::Int64Type>().iter().flatten().collect::<Vec<_>>())
            };
            let known = format!("{lists} {dictionary} {codec}");
            let fits = [(EPOCH, 5), first, last, (EPOCH + 1, 0)];
            assert_eq!(read(&fits, None, RowsToDecode::All).unwrap(), [5, i64::MIN, i64::MAX, DAY as i64], "{known}");
            for wrong in [spark, before, (last.0, last.1 + 1), (u32::MAX, 0), (0, 0)] {
                let times = [(EPOCH, 5), wrong];
                for rows in [RowsToDecode::All, RowsToDecode::Selected(&[0])] {
                    let error: Error = read(&times, None, rows).unwrap_err();
                    let column = if lists { "t.list.element" } else { "t" };
                    assert_eq!((error.kind(), error.column()), (ErrorKind::Schema, Some(column)), "{known} {error}");
                    assert_eq!((error.file(), error.row_group()), (Some("f"), Some(0)), "{known}");
                    assert!(error.hint().unwrap().contains("microseconds"), "{known}");
                }
            }
            let micros = noted(arrow_schema::TimeUnit::Microsecond);
            let expected = [5, 253_402_300_799_999_999];
            assert_eq!(read(&[(EPOCH, 5000), spark], micros.clone(), RowsToDecode::All).unwrap(), expected, "{known}");
            let error: Error = read(&[(i32::MAX as u32, 0)], micros, RowsToDecode::All).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Schema, "{known} {error}");
        }
    }
}

#[test]
fn long_values_that_are_not_compressed_are_read_one_by_one_once_they_were_found() {
    let value = |row: usize| (row % 7 != 3).then(|| vec![row as u8; 3000 + row * 971 % 9000]);
    let images: BinaryArray = (0..200).map(value).collect();
    let ids = Int64Array::from_iter_values(0..200);
    let columns: [(&str, ArrayRef); 2] = [("image", Arc::new(images)), ("id", Arc::new(ids))];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap();
    let due: Vec<u32> = (0..200).filter(|row| row % 5 == 1 || (60..64).contains(row)).collect();
    for (version, names) in [
        (WriterVersion::PARQUET_1_0, &["image", "id"][..]),
        (WriterVersion::PARQUET_2_0, &["image", "id"]),
        (WriterVersion::PARQUET_1_0, &["image"]),
    ] {
        let properties = small_pages()
            .set_writer_version(version)
            .set_dictionary_enabled(false)
            .set_column_encoding("image".into(), Encoding::PLAIN)
            .set_offset_index_disabled(true);
        let source = write(&batch, properties.build());
        let file = open(&source, "f").unwrap();
        let chosen =
            batch.project(&names.iter().map(|name| batch.schema().index_of(name).unwrap()).collect::<Vec<_>>());
        let chosen = chosen.unwrap();
        let projection = Projection::all(&chosen.schema()).with_views(|_| true);
        let read = || decode(&source, &file, 0, &projection, &[], RowsToDecode::Due(&due), MAX_DECODED_BYTES);
        let (first, second) = (read().unwrap(), read().unwrap());
        assert_eq!(first.batch, second.batch);
        let expected = arrow_select::take::take_record_batch(&chosen, &UInt32Array::from(due.clone())).unwrap();
        let binary = arrow_cast::cast(second.batch.column(0), &DataType::Binary).unwrap();
        assert_eq!(&binary, expected.column(0));
        assert_eq!(second.batch.columns()[1..], expected.columns()[1..]);
        let all: u64 = due.iter().filter_map(|row| value(*row as usize)).map(|value| value.len() as u64 + 4).sum();
        assert!(second.bytes_read < all + (4 << 10), "{} of {}", second.bytes_read, first.bytes_read);
        assert!(first.bytes_read > 3 * all);
        assert!(second.reads > 20);
        // Bytes that changed are no value.
        let mut bytes = source.0.lock().unwrap()["f"].to_vec();
        let mut start = 3971_u32.to_le_bytes().to_vec();
        start.extend([1; 9]);
        let at = bytes.windows(start.len()).position(|window| window == start).unwrap();
        bytes[at] += 1;
        source.0.lock().unwrap().insert("f".to_owned(), bytes.into());
        let error = read().unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::InvalidParquet, Some("image")));
    }
}
