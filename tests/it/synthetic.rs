//! Indexes of any size without any data, for measuring.

#![allow(clippy::unwrap_used)]

use std::io::Cursor;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};

use rowdex::Result;
use rowdex::index::Root;
use rowdex::source::FileStat;
use rowdex_index::writer::{FooterCompressor, IndexWriter, NewFile, NewRowGroup, Summary};
use rowdex_projection::Renames;

const ROW_GROUPS_PER_FILE: u32 = 100;

/// The bytes of an index of `row_groups` row groups of unequal sizes, from half to one and a half of `rows` each.
///
/// `selection`, when given, says which rows of the row group with this many rows are served.
pub(crate) fn index(row_groups: u32, rows: u64, selection: Option<&dyn Fn(u64) -> Vec<u32>>) -> Result<Vec<u8>> {
    let mut writer = IndexWriter::new(Cursor::new(Vec::new()))?;
    let footer = FooterCompressor::new(false).unwrap().footer(b"none").unwrap();
    let stat = FileStat { size: 1 << 30, mtime_ns: None, etag: None };
    for group in 0..row_groups {
        let ordinal = group % ROW_GROUPS_PER_FILE;
        if ordinal == 0 {
            let path = format!("part-{:08}.parquet", group / ROW_GROUPS_PER_FILE);
            let file = NewFile { path: &path, stat: &stat, footer: &footer, partition_values: &[] };
            writer.push_file(file)?;
        }
        let source_rows = rows / 2 + u64::from(group).wrapping_mul(0x9E37_79B9_7F4A_7C15) % rows.max(1);
        let selected = selection.map(|select| select(source_rows));
        let decoded_bytes = source_rows * 100;
        writer.push_row_group(NewRowGroup { ordinal, source_rows, decoded_bytes, selection: selected.as_deref() })?;
    }
    let schema = Schema::new(vec![Arc::new(Field::new("value", DataType::Int64, false))]);
    let root = Root { is_relative: true, path: String::new() };
    let summary = Summary {
        schema: &schema,
        partition_columns: &[],
        renames: &Renames::default(),
        root: &root,
        build_info: "{}",
    };
    Ok(writer.finish(&summary)?.into_inner())
}
