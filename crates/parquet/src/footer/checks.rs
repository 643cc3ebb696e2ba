//! What is checked of a footer before it is relied on.

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

use crate::errors::{invalid, unsupported};
use crate::thrift::{BINARY, I32, LIST, STRUCT, ThriftReader};
use rowdex_base::error::{Error, Result};

/// Levels of groups in a schema. The parser calls itself for each, and a stack that overflows ends the process.
const MAX_DEPTH: usize = 100;

/// Looks through the footer for what the parser must not meet: groups nested so deep that its stack overflows, and
/// columns that are encrypted, which it would misread.
pub(super) fn look_ahead(footer: &[u8]) -> Result<()> {
    let damaged = || invalid("the footer is damaged");
    let mut reader = ThriftReader::new(footer);
    let mut last = 0;
    while let Some((kind, id)) = reader.field(&mut last).ok_or_else(damaged)? {
        match (id, kind) {
            (2, LIST) => {
                let depth = schema_depth(&mut reader).ok_or_else(damaged)?;
                if depth > MAX_DEPTH {
                    let message = format!("the schema nests {depth} levels deep, more than {MAX_DEPTH}");
                    return Err(unsupported(message));
                }
            }
            (8, STRUCT) => return Err(encrypted("the file has encrypted columns")),
            (2 | 8, _) => return Err(damaged()),
            _ => reader.skip_value(kind).ok_or_else(damaged)?,
        }
    }
    Ok(())
}

pub(super) fn encrypted(message: &'static str) -> Error {
    unsupported(message).with_hint("encrypted files cannot be read; write the data without encryption")
}

/// Whether these bytes begin with a structure, with no list longer than they are.
pub(super) fn is_structure(bytes: &[u8]) -> bool {
    ThriftReader::new(bytes).skip_value(STRUCT).is_some()
}

/// The deepest nesting of a flattened schema tree, in which every group is followed by as many fields as it counts.
fn schema_depth(reader: &mut ThriftReader<'_>) -> Option<usize> {
    let (kind, count) = reader.list()?;
    if count > 0 && kind != STRUCT {
        return None;
    }
    let mut open: Vec<i32> = Vec::new();
    let mut deepest = 0;
    for _ in 0..count {
        let mut children = 0;
        let mut last = 0;
        while let Some((kind, id)) = reader.field(&mut last)? {
            match (id, kind) {
                (5, I32) => children = reader.i32()?,
                (4, BINARY) => reader.skip_value(BINARY)?,
                (4 | 5, _) => return None,
                _ => reader.skip_value(kind)?,
            }
        }
        while open.last() == Some(&0) {
            open.pop();
        }
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if children > 0 {
            open.push(children);
            deepest = deepest.max(open.len());
            // Deep enough to be refused: no need to let the stack grow with the footer.
            if deepest > 10 * MAX_DEPTH {
                return Some(deepest);
            }
        }
    }
    Some(deepest)
}

/// Checks what the decoder takes for granted.
pub(super) fn check(metadata: &ParquetMetaData, file_size: u64) -> Result<()> {
    let columns = metadata.file_metadata().schema_descr().num_columns();
    for (place, group) in metadata.row_groups().iter().enumerate() {
        let here = |error: Error| error.with_row_group(place as u64);
        if group.num_columns() != columns {
            let message = format!("has {} columns, and the schema {columns}", group.num_columns());
            return Err(here(invalid(message)));
        }
        if !(0..=i64::from(i32::MAX)).contains(&group.num_rows()) {
            return Err(here(invalid(format!("cannot have {} rows", group.num_rows()))));
        }
        for column in group.columns() {
            let here = |error: Error| here(error.with_column(column.column_path().string()));
            if column.num_values() < 0 || column.uncompressed_size() < 0 {
                return Err(here(invalid("declares a negative size")));
            }
            if column.file_path().is_some_and(|path| !path.is_empty()) {
                return Err(here(unsupported("is stored in another file")));
            }
            if let Some(message) = contradiction(column) {
                return Err(here(invalid(message)));
            }
            let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
            let end = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
            if end.and_then(|(start, length)| start.checked_add(length)).is_none_or(|end| end > file_size) {
                let message = format!(
                    "claims {} bytes from byte {start}, and the file has {file_size}",
                    column.compressed_size()
                );
                return Err(here(invalid(message)));
            }
        }
    }
    Ok(())
}

/// In what a column chunk and the schema contradict each other: the schema says what the bytes of the pages mean.
fn contradiction(column: &ColumnChunkMetaData) -> Option<String> {
    let descriptor = column.column_descr();
    let levels = [
        ("definition", column.definition_level_histogram(), descriptor.max_def_level()),
        ("repetition", column.repetition_level_histogram(), descriptor.max_rep_level()),
    ];
    levels.into_iter().find_map(|(kind, counted, highest)| {
        let counted = counted?.values().len();
        let levels = usize::from(highest.unsigned_abs()) + 1;
        // Writers may leave out what has one level, and some then count none.
        (counted != levels && (counted, highest) != (0, 0))
            .then(|| format!("counts {counted} {kind} levels, and has {levels} by the schema"))
    })
}

/// Whether the pages of every column lie one behind the other inside its bytes, each with rows of its own.
pub(super) fn pages_make_sense(metadata: &ParquetMetaData) -> bool {
    let ([group], Some([columns])) = (metadata.row_groups(), metadata.offset_index().map(Vec::as_slice)) else {
        return false;
    };
    group.num_columns() == columns.len()
        && group.columns().iter().zip(columns).all(|(column, index)| {
            let (start, length) = column.byte_range();
            let mut next_byte = start;
            let mut next_row = 0;
            let pages = index.page_locations();
            let ordered = pages.iter().enumerate().all(|(place, page)| {
                let (Ok(offset), Ok(size)) = (u64::try_from(page.offset), u64::try_from(page.compressed_page_size))
                else {
                    return false;
                };
                let row = page.first_row_index;
                // A dictionary lies before the first page, and nothing between pages.
                let in_order = if place == 0 { offset >= next_byte } else { offset == next_byte }
                    && size > 0
                    && row < group.num_rows().max(1)
                    && if place == 0 { row == 0 } else { row > next_row };
                (next_byte, next_row) = (offset + size, row);
                in_order
            });
            ordered && next_byte == start + length && (!pages.is_empty() || group.num_rows() == 0)
        })
}
