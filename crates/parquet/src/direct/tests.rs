use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::*;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Type as Physical};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::super::pages::LEFT_TO_PARQUET;
use super::super::tests::{Collected, Counted, Memory, open, small_pages, write};
use super::super::{GroupDecoder, MAX_DECODED_BYTES, RowsToDecode};
use super::hybrid::{Hybrid, HybridPiece};
use super::values::ValueNulls;
use super::*;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_projection::Projection;

/// The rows in chunks of so many, as one batch.
fn in_chunks(source: &Memory, schema: &SchemaRef, rows: RowsToDecode<'_>, chunk: usize) -> Result<RecordBatch> {
    let file = open(source, "f")?;
    let projection = Projection::all(schema);
    let mut sink = Collected { chunk_rows: chunk, chunks: Vec::new() };
    let decoder = GroupDecoder {
        file: &file,
        row_group: 0,
        projection: &projection,
        partitions: &[],
        max_decoded_bytes: MAX_DECODED_BYTES,
    };
    decoder.decode(rows, &Counted::new(source, "f"), &mut sink)?;
    let chunks = sink.chunks;
    Ok(arrow_select::concat::concat_batches(schema, &chunks).unwrap())
}

/// What the parquet crate makes of the same rows.
fn left_to_parquet<T>(decode: impl FnOnce() -> T) -> T {
    LEFT_TO_PARQUET.set(true);
    let decoded = decode();
    LEFT_TO_PARQUET.set(false);
    decoded
}

#[test]
fn numbers_texts_lists_and_structs_are_decoded_here() {
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1)]), Some([None])]));
    let field = |array: &ArrayRef| Arc::new(Field::new("of", array.data_type().clone(), false));
    let structs: ArrayRef = Arc::new(StructArray::from(vec![(field(&texts), Arc::clone(&texts))]));
    let lists_in: ArrayRef = Arc::new(StructArray::from(vec![(field(&lists), Arc::clone(&lists))]));
    for (array, is_here) in [(numbers, true), (texts, true), (lists, true), (structs, true), (lists_in, false)] {
        let file =
            open(&write(&RecordBatch::try_from_iter([("c", array)]).unwrap(), small_pages().build()), "f").unwrap();
        let all: Vec<usize> = file.leaves(0).collect();
        let schema = file.metadata().file_metadata().schema_descr();
        let tree = Tree::of(schema, file.leaves(0), &all, file.arrow_schema().field(0));
        assert_eq!(tree.is_some(), is_here, "{}", file.arrow_schema());
    }
}

/// A file with one column of lists that has these levels and values; they need not make sense.
fn with_levels(definitions: &[i16], repetitions: &[i16], fixed: bool) -> (Memory, SchemaRef) {
    let item = Arc::new(Field::new("element", DataType::Int32, true));
    let list = if fixed { DataType::FixedSizeList(item, 2) } else { DataType::List(item) };
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("lists", list, true)]));
    let values: Vec<i32> = (0..definitions.iter().filter(|level| **level == 3).count() as i32).collect();
    let mut properties = WriterProperties::builder().build();
    parquet::arrow::add_encoded_arrow_schema_to_metadata(&schema, &mut properties);
    let message = "message m { optional group lists (LIST) { repeated group list { optional int32 element; } } }";
    let message = Arc::new(parquet::schema::parser::parse_message_type(message).unwrap());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, message, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let typed = column.typed::<parquet::data_type::Int32Type>();
    typed.write_batch(&values, Some(definitions), Some(repetitions)).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    (Memory::with(bytes), schema)
}

#[test]
fn levels_that_make_no_list_are_refused() {
    let attempt = |definitions: &[i16], repetitions: &[i16], fixed: bool| {
        let (source, schema) = with_levels(definitions, repetitions, fixed);
        in_chunks(&source, &schema, RowsToDecode::All, usize::MAX).map(|batch| batch.num_rows())
    };
    assert_eq!(attempt(&[3, 3, 0, 1, 2], &[0, 1, 0, 0, 0], false).unwrap(), 4);
    assert_eq!(attempt(&[3, 2, 0, 3, 3], &[0, 1, 0, 0, 1], true).unwrap(), 3);
    for (definitions, repetitions, fixed) in [
        (&[1i16, 3][..], &[0i16, 1][..], false),
        (&[0, 3], &[0, 1], false),
        (&[3, 3, 1], &[0, 1, 1], false),
        (&[3, 3, 3], &[0, 1, 1], true),
        (&[3, 3, 3, 3], &[0, 0, 1, 1], true),
        (&[1], &[0], true),
    ] {
        let error = attempt(definitions, repetitions, fixed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParquet, "{definitions:?} {repetitions:?}");
        assert_eq!(error.column(), Some("lists"));
    }
}

#[test]
fn levels_are_refused_that_are_too_high_or_too_few() {
    // Six times level 2, where 1 is the highest; eight packed bits where nine are declared; nothing at all.
    for bytes in [&[12, 2][..], &[3, 0xff], &[], &[0, 0, 0], &[12], &[0xff; 12]] {
        let bytes = Bytes::copy_from_slice(bytes);
        assert!(levels::Definitions::new(&bytes, 9, 1).is_err(), "{bytes:?}");
        assert!(levels::starts(&bytes, 9).is_err(), "{bytes:?}");
    }
    // Packed levels of two bits, of which one is 3.
    assert!(levels::Definitions::new(&Bytes::from_static(&[3, 0b11_00_01_10, 0]), 8, 2).is_err());
    assert!(levels::Definitions::new(&Bytes::from_static(&[3, 0b10_00_01_10, 0]), 8, 2).is_ok());
}

/// As DuckDB writes them: eight mini blocks are announced where there is no block, and the differences of values of 32
/// bits are not cut to those.
#[test]
fn delta_encoded_pages_of_few_values_and_of_wide_differences_are_read() {
    let read = |bytes: &[u8]| {
        let mut delta = delta::Delta::new(Bytes::copy_from_slice(bytes), 64).unwrap();
        let (mut found, count) = (Vec::new(), delta.left);
        delta.each(count, |numbers| found.extend(numbers.iter().map(|number| *number as i32))).unwrap();
        assert_eq!(delta.at, bytes.len());
        found
    };
    assert_eq!(read(&[0x80, 0x10, 8, 0, 0]), [0; 0]);
    assert_eq!(read(&[0x80, 0x10, 8, 1, 14]), [7]);
    // The first of three, and the smallest difference, zigzag: 2^32 - 1 and 2^33 - 3.
    let header = [0x80, 1, 4, 3, 0xff, 0xff, 0xff, 0xff, 0x0f, 0xfd, 0xff, 0xff, 0xff, 0x1f, 33, 0, 0, 0];
    let mut packed = [0; 33 / 8 * 32 + 4];
    packed[..8].copy_from_slice(&(2 * u64::from(u32::MAX)).to_le_bytes());
    assert_eq!(read(&[&header[..], &packed].concat()), [i32::MIN, i32::MAX, i32::MIN]);
    assert!(delta::Delta::new(Bytes::from_static(&[0x80, 0x10, 8, 2, 0]), 64).is_err(), "no room for its block");
}

/// pyarrow reads such pages, too.
#[test]
fn a_page_of_nulls_alone_needs_no_references_to_its_dictionary() {
    for (physical, data_type) in [(Physical::INT32, DataType::Int32), (Physical::BYTE_ARRAY, DataType::Utf8)] {
        let mut values = values_of(physical, &data_type, 100).unwrap();
        values.set_dictionary(&Bytes::from_static(&[1, 0, 0, 0, b'a']), 1).unwrap();
        for encoding in [Encoding::RLE_DICTIONARY, Encoding::PLAIN_DICTIONARY] {
            values.set_page(encoding, Bytes::new(), 0).unwrap();
            values.read(0).unwrap();
            values.skip(0).unwrap();
        }
        let there = Some(NullBuffer::new_null(2));
        let array = values.finish(ValueNulls { len: 2, there, is_shown: true }).unwrap();
        assert_eq!((array.len(), array.null_count()), (2, 2));
        assert!(values.read(1).is_err());
    }
}

#[test]
fn packed_integers_of_every_width_are_unpacked() {
    for width in 0..=32u32 {
        let mask = if width == 32 { u32::MAX } else { (1 << width) - 1 };
        let values: Vec<u32> = (0..104u32).map(|i| i.wrapping_mul(0x9e37_79b9) & mask).collect();
        let mut bytes = vec![(13 << 1) | 1u8];
        let (mut word, mut bits) = (0u64, 0);
        for value in &values {
            word |= u64::from(*value) << bits;
            bits += width;
            while bits >= 8 {
                bytes.push(word as u8);
                (word, bits) = (word >> 8, bits - 8);
            }
        }
        for steps in [&[104][..], &[1, 31, 32, 40], &[33, 7, 64], &[5; 20]] {
            let mut runs = Hybrid::new(Bytes::from(bytes.clone()), width).unwrap();
            let mut found = Vec::new();
            for &count in steps {
                let take = |piece: HybridPiece<'_>| match piece {
                    HybridPiece::Repeated(value, times) => {
                        found.extend(std::iter::repeat_n(value, times));
                        Ok(())
                    }
                    HybridPiece::Packed(packed) => packed.each(|values| {
                        found.extend(values);
                        Ok(())
                    }),
                };
                runs.each(count, take).unwrap();
            }
            assert_eq!(found, values[..found.len()], "{width}");
        }
    }
}

#[test]
fn packed_integers_may_lack_what_follows_the_last_value_and_no_more() {
    for (groups, bytes, is_read) in [(1, 5, true), (1, 2, true), (2, 6, true), (2, 5, false), (988, 5, false)] {
        let (low, high) = (((groups << 1) | 1) as u8 | 0x80, (groups >> 6) as u8);
        let page = [&[low, high], &[0; 10][..bytes]].concat();
        let mut runs = Hybrid::new(Bytes::from(page), 5).unwrap();
        assert_eq!(runs.skip(3).is_ok(), is_read, "{groups} groups in {bytes} bytes");
    }
}

#[test]
fn a_run_of_no_values_is_none() {
    for width in [0, 1, 5] {
        // What begins at a wrong byte often looks like one, and with no bits a value whatever follows would do.
        for page in [[1, 3, 0x48, 0], [0, 3, 0x48, 0]] {
            let mut runs = Hybrid::new(Bytes::copy_from_slice(&page), width).unwrap();
            assert!(runs.skip(3).is_err(), "{width} bits, {page:?}");
        }
    }
}

fn pick<T: Copy>(draw: &mut ChaCha8Rng, choices: &[T]) -> T {
    choices[draw.random_range(0..choices.len())]
}

/// Which of so many values are there: all, nearly all, few, none, or all of them up to some place.
fn some_nulls(draw: &mut ChaCha8Rng, len: usize) -> NullBuffer {
    let (one_in, end) = (draw.random_range(1..12), draw.random_range(0..=len));
    let kind = draw.random_range(0..6);
    let there = (0..len).map(|place| match kind {
        0 => true,
        1 => false,
        2 => place < end,
        3 => !draw.random_ratio(1, one_in),
        4 => draw.random_ratio(1, one_in),
        _ => draw.random(),
    });
    NullBuffer::from(there.collect::<Vec<bool>>())
}

/// Numbers that make all kinds of runs, with few or many different values.
fn some_numbers(draw: &mut ChaCha8Rng, len: usize) -> Vec<i64> {
    let (kind, spread) = (draw.random_range(0..4), 1_i64 << draw.random_range(0..40));
    let mut last = 0;
    let number = |place| match kind {
        0 => draw.random(),
        1 => draw.random_range(0..spread),
        2 => place as i64 * spread,
        _ => {
            if draw.random_ratio(1, 20) {
                last = draw.random_range(-spread..spread);
            }
            last
        }
    };
    (0..len).map(number).collect()
}

/// Values of a type without types below.
fn some_values(draw: &mut ChaCha8Rng, data_type: &DataType, len: usize, nullable: bool) -> ArrayRef {
    let nulls = nullable.then(|| some_nulls(draw, len));
    let numbers = some_numbers(draw, len);
    let buffer = match data_type {
        DataType::Boolean => {
            let bits = numbers.iter().map(|number| number & 1 == 1).collect::<Vec<bool>>();
            return Arc::new(BooleanArray::new(bits.into(), nulls));
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
            let text = |number: &i64| "öx"[..2 + (number & 1) as usize].repeat((number & 31) as usize);
            let texts = StringArray::new(
                OffsetBuffer::from_lengths(numbers.iter().map(|number| text(number).len())),
                numbers.iter().map(text).collect::<String>().into_bytes().into(),
                nulls,
            );
            return arrow_cast::cast(&texts, data_type).unwrap();
        }
        other => match other.primitive_width().unwrap() {
            1 => Buffer::from_vec(numbers.iter().map(|number| *number as i8).collect()),
            2 => Buffer::from_vec(numbers.iter().map(|number| *number as i16).collect()),
            4 => Buffer::from_vec(numbers.iter().map(|number| *number as i32).collect()),
            _ => Buffer::from_vec(numbers),
        },
    };
    numbers::array(data_type, len, buffer, nulls).unwrap()
}

/// Types that are decoded here, and some that are not.
fn some_type(draw: &mut ChaCha8Rng) -> DataType {
    use DataType::*;
    let second = TimeUnit::Second;
    pick(
        draw,
        &[
            &Int8,
            &Int16,
            &Int32,
            &Int64,
            &UInt8,
            &UInt16,
            &UInt32,
            &UInt64,
            &Float32,
            &Float64,
            &Date32,
            &Date64,
            &Time32(second),
            &Time32(TimeUnit::Millisecond),
            &Time64(TimeUnit::Nanosecond),
            &Duration(second),
            &Timestamp(TimeUnit::Microsecond, None),
            &Timestamp(second, None),
            &Boolean,
            &Utf8,
            &LargeUtf8,
            &Binary,
            &Decimal32(9, 2),
            &Decimal64(18, 4),
        ],
    )
    .clone()
}

/// A column of a random shape, with the paths of its leaves.
fn some_column(
    draw: &mut ChaCha8Rng,
    name: &str,
    rows: usize,
    deep: bool,
) -> (Field, ArrayRef, Vec<(String, DataType)>) {
    let nullable = draw.random();
    match draw.random_range(0..if deep { 6 } else { 3 }) {
        0..3 => {
            let data_type = some_type(draw);
            let array = some_values(draw, &data_type, rows, nullable);
            (Field::new(name, data_type.clone(), nullable), array, vec![(name.to_owned(), data_type)])
        }
        3 | 4 => {
            let (data_type, fixed) = (some_type(draw), draw.random_ratio(1, 4));
            let longest = pick(draw, &[1, 3, 20, 200]);
            let size = draw.random_range(1..4);
            let nulls = nullable.then(|| some_nulls(draw, rows));
            let there = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            let lengths: Vec<usize> =
                (0..rows).map(|row| if there(row) { draw.random_range(0..=longest) } else { 0 }).collect();
            let len = if fixed { rows * size } else { lengths.iter().sum() };
            let nullable_item = draw.random();
            let items = some_values(draw, &data_type, len, nullable_item);
            let item = Arc::new(Field::new("element", data_type.clone(), nullable_item));
            let array: ArrayRef = if fixed {
                Arc::new(FixedSizeListArray::new(item, size as i32, items, nulls))
            } else if draw.random() {
                Arc::new(ListArray::new(item, OffsetBuffer::from_lengths(lengths), items, nulls))
            } else {
                Arc::new(LargeListArray::new(item, OffsetBuffer::from_lengths(lengths), items, nulls))
            };
            (
                Field::new(name, array.data_type().clone(), nullable),
                array,
                vec![(format!("{name}.list.element"), data_type)],
            )
        }
        _ => {
            let nulls = nullable.then(|| some_nulls(draw, rows));
            let (mut fields, mut arrays, mut leaves) = (Vec::new(), Vec::new(), Vec::new());
            for child in ["a", "b", "c"].into_iter().take(draw.random_range(1..4)) {
                let nested = draw.random_ratio(1, 3);
                let (field, array, below) = match nested {
                    true => some_struct_of_one(draw, child, rows),
                    false => some_column(draw, child, rows, false),
                };
                fields.push(field);
                arrays.push(array);
                leaves.extend(below.into_iter().map(|(path, data_type)| (format!("{name}.{path}"), data_type)));
            }
            let array = StructArray::new(fields.into(), arrays, nulls);
            (Field::new(name, array.data_type().clone(), nullable), Arc::new(array), leaves)
        }
    }
}

fn some_struct_of_one(draw: &mut ChaCha8Rng, name: &str, rows: usize) -> (Field, ArrayRef, Vec<(String, DataType)>) {
    let nullable: bool = draw.random();
    let (field, array, leaves) = some_column(draw, "only", rows, false);
    let nulls = nullable.then(|| some_nulls(draw, rows));
    let array = StructArray::new(vec![field].into(), vec![array], nulls);
    let leaves = leaves.into_iter().map(|(path, data_type)| (format!("{name}.{path}"), data_type)).collect();
    (Field::new(name, array.data_type().clone(), nullable), Arc::new(array), leaves)
}

/// Properties under which a writer makes pages of all kinds.
fn some_properties(draw: &mut ChaCha8Rng, leaves: &[(String, DataType)]) -> WriterProperties {
    let codecs =
        [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::LZ4_RAW, Compression::ZSTD(Default::default())];
    let mut properties = WriterProperties::builder()
        .set_writer_version(pick(draw, &[WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0]))
        .set_compression(pick(draw, &codecs))
        .set_data_page_row_count_limit(pick(draw, &[1, 7, 64, 300, 20_000]))
        .set_write_batch_size(pick(draw, &[1, 16, 100, 1024]))
        .set_offset_index_disabled(draw.random())
        .set_data_page_size_limit(pick(draw, &[100, 4000, 1 << 20]))
        // A dictionary that grows too large is followed by plain pages.
        .set_dictionary_page_size_limit(pick(draw, &[50, 400, 1 << 20]));
    for (path, data_type) in leaves {
        let path = ColumnPath::from(path.split('.').map(str::to_owned).collect::<Vec<_>>());
        properties = properties.set_column_dictionary_enabled(path.clone(), draw.random());
        let encodings: &[Encoding] = match data_type {
            DataType::Boolean => &[Encoding::PLAIN, Encoding::RLE],
            DataType::Float32 | DataType::Float64 => &[Encoding::PLAIN, Encoding::BYTE_STREAM_SPLIT],
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                &[Encoding::PLAIN, Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY]
            }
            _ => &[Encoding::PLAIN, Encoding::DELTA_BINARY_PACKED, Encoding::BYTE_STREAM_SPLIT],
        };
        properties = properties.set_column_encoding(path, pick(draw, encodings));
    }
    properties.build()
}

fn some_rows(draw: &mut ChaCha8Rng, rows: u32) -> Vec<u32> {
    match draw.random_range(0..4) {
        0 => vec![draw.random_range(0..rows)],
        1 => {
            let start = draw.random_range(0..rows);
            (start..draw.random_range(start..rows) + 1).collect()
        }
        kind => {
            let one_in = if kind == 2 { 1 + rows / 8 } else { draw.random_range(1..10) };
            (0..rows).filter(|_| draw.random_ratio(1, one_in)).collect()
        }
    }
}

/// The file with some byte before its footer changed, or a few, and where.
fn damaged_file(draw: &mut ChaCha8Rng, good: &[u8]) -> (Memory, usize) {
    let footer = u32::from_le_bytes(*good[..good.len() - 4].last_chunk().unwrap()) as usize;
    let end = good.len() - 8 - footer;
    let mut bad = good.to_vec();
    let at = draw.random_range(4..end);
    match draw.random_range(0..3) {
        0 => bad[at] = draw.random(),
        1 => bad[at] ^= 1 << draw.random_range(0..8),
        _ => bad[at..(at + 5).min(end)].fill(pick(draw, &[0, 0xff])),
    }
    (Memory::with(bad), at)
}

/// A random file, decoded both ways: whole and in parts, sound and damaged.
fn compare_both_ways(seed: u64) {
    let draw = &mut ChaCha8Rng::seed_from_u64(seed);
    let rows = pick(draw, &[1, 2, 30, 333, 1500]);
    let (mut fields, mut arrays, mut leaves) = (Vec::new(), Vec::new(), Vec::new());
    for place in 0..draw.random_range(1..6) {
        let (field, array, below) = some_column(draw, &format!("c{place}"), rows, true);
        fields.push(field);
        arrays.push(array);
        leaves.extend(below);
    }
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
    let source = write(&batch, some_properties(draw, &leaves));
    let file = open(&source, "f").unwrap();
    let schema = file.arrow_schema();
    let chunk = pick(draw, &[1, 10, 100, 1000, 1 << 20]);
    let selected = some_rows(draw, rows as u32);
    let sound = |rows: RowsToDecode<'_>| match rows {
        RowsToDecode::All => batch.clone(),
        RowsToDecode::Selected(rows) | RowsToDecode::Due(rows) => {
            arrow_select::take::take_record_batch(&batch, &UInt32Array::from(rows.to_vec())).unwrap()
        }
    };
    for rows in [RowsToDecode::All, RowsToDecode::Selected(&selected), RowsToDecode::Due(&selected)] {
        let ours = in_chunks(&source, schema, rows, chunk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(same(&ours, &sound(rows)), "seed {seed}");
        // The crate cannot pass by rows where delta-encoded integers differ by much.
        if let Ok(theirs) = left_to_parquet(|| in_chunks(&source, schema, rows, chunk)) {
            assert_eq!(ours, theirs, "seed {seed}");
        }
        ours.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
    }
    let good = source.0.into_inner().unwrap()["f"].to_vec();
    for _ in 0..8 {
        let (source, at) = damaged_file(draw, &good);
        for rows in [RowsToDecode::All, RowsToDecode::Selected(&selected), RowsToDecode::Due(&selected)] {
            match in_chunks(&source, schema, rows, chunk) {
                Ok(ours) => {
                    let theirs = left_to_parquet(|| in_chunks(&source, schema, rows, chunk));
                    // It cannot pass by some numbers, and takes no differences of more bits than the values have.
                    let is_stricter = |error: &Error| {
                        let limits =
                            ["overflow in skip", "'min_delta' too large", "first value too large", "bit width"];
                        limits.iter().any(|limit| error.to_string().contains(limit))
                    };
                    let agrees = theirs.as_ref().map_or_else(is_stricter, |theirs| same(theirs, &ours));
                    assert!(agrees || same(&sound(rows), &ours), "seed {seed}, byte {at}, {rows:?}: {theirs:?}");
                }
                Err(error) => assert!(error.file().is_some(), "seed {seed}, byte {at}: {error}"),
            }
        }
    }
}

/// What a decoder makes of all row groups of a file: as one, or one after the other.
fn all_groups(source: &Memory, schema: &SchemaRef, chunk: usize, as_one: bool) -> Result<Option<RecordBatch>> {
    let file = open(source, "f")?;
    let projection = Projection::all(schema);
    let decoder = |row_group| GroupDecoder {
        file: &file,
        row_group,
        projection: &projection,
        partitions: &[],
        max_decoded_bytes: MAX_DECODED_BYTES,
    };
    let groups: Vec<usize> = (0..file.num_row_groups()).collect();
    let bytes = Counted::new(source, "f");
    let mut sink = Collected { chunk_rows: chunk, chunks: Vec::new() };
    if !as_one {
        groups.iter().try_for_each(|group| decoder(*group).decode(RowsToDecode::All, &bytes, &mut sink).map(drop))?;
    } else if decoder(0).decode_run(&groups, &bytes, &mut sink)?.is_none() {
        assert!(sink.chunks.is_empty());
        return Ok(None);
    } else {
        let (last, before) = sink.chunks.split_last().unwrap();
        assert!(before.iter().all(|part| part.num_rows() == chunk) && last.num_rows() <= chunk);
    }
    Ok(Some(arrow_select::concat::concat_batches(schema, &sink.chunks).unwrap()))
}

/// A random file of several row groups, sound and damaged. Tells how often they were decoded as one, and refused.
fn compare_row_groups(seed: u64) -> (usize, usize) {
    let draw = &mut ChaCha8Rng::seed_from_u64(seed);
    let rows = pick(draw, &[2, 30, 333, 1500]);
    let (mut fields, mut arrays, mut leaves) = (Vec::new(), Vec::new(), Vec::new());
    let deep = draw.random_ratio(1, 3);
    for place in 0..draw.random_range(1..5) {
        let (field, array, below) = some_column(draw, &format!("c{place}"), rows, deep);
        fields.push(field);
        arrays.push(array);
        leaves.extend(below);
    }
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
    let mut good = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut good, batch.schema(), Some(some_properties(draw, &leaves))).unwrap();
    let longest = pick(draw, &[2, 20, 200]);
    let mut start = 0;
    while start < rows {
        let length = draw.random_range(1..=longest).min(rows - start);
        writer.write(&batch.slice(start, length)).unwrap();
        writer.flush().unwrap();
        start += length;
    }
    writer.close().unwrap();
    let source = Memory::with(good.clone());
    let file = open(&source, "f").unwrap();
    let schema = file.arrow_schema();
    let chunk = pick(draw, &[1, 10, 100, 1000, 1 << 20]);
    let (mut as_one, mut refused) = (0, 0);
    if let Some(found) = all_groups(&source, schema, chunk, true).unwrap_or_else(|e| panic!("seed {seed}: {e}")) {
        assert!(same(&found, &batch), "seed {seed}");
        as_one += 1;
    }
    for _ in 0..12 {
        let (source, at) = damaged_file(draw, &good);
        let each = all_groups(&source, schema, chunk, false);
        match all_groups(&source, schema, chunk, true) {
            Ok(None) => {}
            Ok(Some(found)) => {
                as_one += 1;
                let each = each.unwrap_or_else(|error| panic!("seed {seed}, byte {at}: {error}")).unwrap();
                assert!(same(&found, &each), "seed {seed}, byte {at}");
            }
            Err(error) => {
                refused += 1;
                assert!(each.is_err(), "seed {seed}, byte {at}: {error}");
            }
        }
    }
    (as_one, refused)
}

#[test]
fn row_groups_that_are_decoded_as_one_have_the_rows_that_each_has() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match (number("ROWDEX_DECODE_SEED"), number("ROWDEX_DECODE_SECONDS")) {
        (Some(seed), None) => seed..seed + 1,
        (None, None) => 0..60,
        (seed, Some(_)) => seed.unwrap_or(0)..u64::MAX,
    };
    let (began, seconds) = (std::time::Instant::now(), number("ROWDEX_DECODE_SECONDS").unwrap_or(u64::MAX));
    let in_time = seeds.clone().take_while(|_| began.elapsed().as_secs() < seconds);
    let (as_one, refused) = in_time.map(compare_row_groups).fold((0, 0), |sum, (a, b)| (sum.0 + a, sum.1 + b));
    assert!(seeds.end - seeds.start < 60 || as_one > 100 && refused > 100, "{as_one} as one, {refused} refused");
}

/// A page that refers to a dictionary which its row group has not must not find that of the row group before.
#[test]
fn no_dictionary_reaches_beyond_its_row_group() {
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("x", DataType::Int32, false)]));
    let column = |first: i32| {
        let values: ArrayRef = Arc::new(Int32Array::from_iter_values((0..40).map(|row| first + row % 4)));
        RecordBatch::try_new(Arc::clone(&schema), vec![values]).unwrap()
    };
    let mut bytes = Vec::new();
    let properties = WriterProperties::builder().set_compression(Compression::UNCOMPRESSED).build();
    let mut writer = ArrowWriter::try_new(&mut bytes, Arc::clone(&schema), Some(properties)).unwrap();
    for first in [0, 100] {
        writer.write(&column(first)).unwrap();
        writer.flush().unwrap();
    }
    let metadata = writer.close().unwrap();
    let second = metadata.row_group(1).column(0);
    let start = second.dictionary_page_offset().unwrap() as usize;
    let header = &mut bytes[start..second.data_page_offset() as usize];
    assert_eq!(header[..2], [0x15, 4], "the field that says that the page is a dictionary");
    // An index page, which says nothing of values.
    header[1] = 2;
    let source = Memory::with(bytes);
    for as_one in [false, true] {
        let error = all_groups(&source, &schema, 1000, as_one).unwrap_err();
        assert!(error.to_string().contains("dictionary"), "{error}");
    }
}

/// Whether two batches have the same bits; NaN is unlike itself.
fn same(a: &RecordBatch, b: &RecordBatch) -> bool {
    a == b || format!("{a:?}") == format!("{b:?}")
}

/// The seeds are fixed, so that the gate compares the same files each time. `ROWDEX_DECODE_SEED` compares another one,
/// and with `ROWDEX_DECODE_SECONDS` those behind it for so long.
#[test]
fn random_files_are_decoded_as_the_parquet_crate_decodes_them() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let began = std::time::Instant::now();
    match (number("ROWDEX_DECODE_SEED"), number("ROWDEX_DECODE_SECONDS")) {
        // Damage behind the last row that is due, or of a header that counts rows, which has moved values before.
        (None, None) => (0..80).chain([5070, 5218, 9105, 9392, 20332, 20428, 21079, 70013]).for_each(compare_both_ways),
        (Some(seed), None) => compare_both_ways(seed),
        (seed, Some(seconds)) => {
            let seeds = seed.unwrap_or(0)..;
            seeds.take_while(|_| began.elapsed().as_secs() < seconds).for_each(compare_both_ways);
        }
    }
}
