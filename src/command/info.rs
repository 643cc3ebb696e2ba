//! `rowdex info`: what is in an index, where its rows are, and a page about it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use rowdex::dataset::Class;
use rowdex::index::RootKind;
use rowdex::{Dataset, Index};
use serde_json::{Value, json};

use crate::command::args::{IndexArg, JsonArg, RowIds, checked};
use crate::command::failure::Failure;
use crate::command::lengths;
use crate::command::output;
use crate::command::report;
use crate::command::size::Memory;
use crate::command::view_of;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rowdex info train.rdx
  rowdex info train.rdx --row 41 99 1000..1010     in which file, row group and row these are
  rowdex info train.rdx --by label                 how many rows each class has
  rowdex info train.rdx --html report.html         sizes, columns, costs, shards, and what is odd, as a page")]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    index: IndexArg,

    /// Say where these row ids are, and ranges of them: 10..20 is 10 to 19.
    #[arg(long, value_name = "ROW", num_args = 1.., conflicts_with_all = ["by", "html"])]
    row: Vec<RowIds>,

    /// Count the rows of each class: rows with equal values in this column are one. It has integers, booleans,
    /// dates, strings or binary.
    #[arg(long, value_name = "COLUMN", conflicts_with = "html")]
    by: Option<String>,

    /// Write a page about the index, from it alone; it needs no network and no other file.
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,

    /// With --html: what a loader may hold, bytes, a size like 4GiB, or a share like 25% when decoded.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", requires = "html")]
    memory: Memory,

    #[command(flatten)]
    json: JsonArg,
}

pub(crate) fn run(args: &InfoArgs) -> Result<(), Failure> {
    let index = args.index.open()?;
    let json = args.json.json;
    if let Some(column) = &args.by {
        return classes(index, column, json);
    }
    if !args.row.is_empty() {
        return rows(&args.row, &index, json);
    }
    if let Some(path) = &args.html {
        return report::write(&index, path, args.memory, json);
    }
    let decoded_bytes = Dataset::builder(index.clone()).open()?.decoded_bytes();
    let data_bytes: u64 = index.files().map(|file| file.size()).sum();
    if json { as_json(&index, decoded_bytes, data_bytes) } else { as_text(&index, decoded_bytes, data_bytes) }
}

/// A place in the files, by the names that lists of rows have.
pub(crate) struct Located<'a> {
    pub(crate) file: &'a str,
    pub(crate) row_group: u32,
    pub(crate) row: u64,
}

pub(crate) fn locate(index: &Index, row_id: u64) -> Option<Located<'_>> {
    let location = index.locate(row_id)?;
    let file = index.file(location.file)?.path();
    Some(Located { file, row_group: location.ordinal, row: location.row })
}

fn rows(ids: &[RowIds], index: &Index, json: bool) -> Result<(), Failure> {
    let located = checked(ids, index)?.filter_map(|row_id| Some((row_id, locate(index, row_id)?)));
    if json {
        let located = located
            .map(|(row_id, at)| json!({"row_id": row_id, "file": at.file, "row_group": at.row_group, "row": at.row}));
        return output::print_json(&located.collect());
    }
    let mut table = vec![["row_id", "row_group", "row", "file"].map(str::to_owned).to_vec()];
    table.extend(located.map(|(row_id, at)| {
        vec![row_id.to_string(), at.row_group.to_string(), at.row.to_string(), at.file.to_owned()]
    }));
    output::print(&output::columns(&table))
}

fn classes(index: Index, column: &str, json: bool) -> Result<(), Failure> {
    let rows = index.len();
    let counts = Dataset::builder(index).with_cache_bytes(0).open()?.column(column).counts()?;
    if json {
        let class = |class: &Option<Class>| match class {
            Some(Class::Bool(bool)) => json!(bool),
            Some(Class::Int(int)) => i64::try_from(*int).map_or_else(|_| json!(int.to_string()), |int| json!(int)),
            Some(other) => json!(other.to_string()),
            None => Value::Null,
        };
        let counts: Vec<_> = counts.iter().map(|(of, count)| json!({"value": class(of), "rows": count})).collect();
        return output::print_json(&json!({"rows": rows, "counts": counts}));
    }
    let mut table = vec![["rows", "share", "value"].map(str::to_owned).to_vec()];
    for (class, count) in counts {
        let share = format!("{:.2}%", 100.0 * count as f64 / rows.max(1) as f64);
        let class = class.map_or_else(|| "null".to_owned(), |class| class.to_string());
        table.push(vec![count.to_string(), share, class.escape_debug().to_string()]);
    }
    output::print(&output::columns(&table))
}

fn as_json(index: &Index, decoded_bytes: u64, data_bytes: u64) -> Result<(), Failure> {
    let root = index.root();
    let columns = |field: &arrow::datatypes::FieldRef| {
        let kind = field.data_type().to_string();
        json!({"name": field.name(), "type": kind, "nullable": field.is_nullable()})
    };
    output::print_json(&json!({
        "rows": index.len(),
        "files": index.num_files(),
        "row_groups": index.num_row_groups(),
        "index_bytes": index.size_bytes(),
        "decoded_bytes": decoded_bytes,
        "data_bytes": data_bytes,
        "source_rows": index.source_rows(),
        "footers": index.files().all(|file| file.has_footer()),
        "root": {"relative_to": relative_to(root.kind), "path": root.path},
        "partition_columns": index.partition_columns(),
        "renamed": index.renames().collect::<BTreeMap<_, _>>(),
        "schema": index.schema().fields().iter().map(columns).collect::<Vec<_>>(),
        "fingerprint": format!("{:016x}", index.fingerprint()),
        "lengths": lengths::as_json(index)?,
        "build": build_info(index),
    }))
}

fn as_text(index: &Index, decoded_bytes: u64, data_bytes: u64) -> Result<(), Failure> {
    let root = index.root();
    let mut lines = vec![
        ("rows", HumanCount(index.len()).to_string()),
        ("files", HumanCount(index.num_files().into()).to_string()),
        ("row groups", HumanCount(index.num_row_groups().into()).to_string()),
        ("index", HumanBytes(index.size_bytes()).to_string()),
        ("data", format!("{}, about {} decoded", HumanBytes(data_bytes), HumanBytes(decoded_bytes))),
    ];
    if index.source_rows() != index.len() {
        lines.push(("selected", format!("from {} rows", HumanCount(index.source_rows()))));
    }
    lines.push((
        "root",
        match root.kind {
            RootKind::RelativeToIndex if root.path.is_empty() => "the folder of the index".to_owned(),
            RootKind::RelativeToIndex => format!("{} from the folder of the index", root.path),
            RootKind::Absolute => root.path.clone(),
        },
    ));
    if !index.partition_columns().is_empty() {
        lines.push(("partitions", index.partition_columns().join(", ")));
    }
    if index.renames().len() > 0 {
        let renames = index.renames().map(|(old, new)| format!("{old} is served as {new}"));
        lines.push(("renamed", renames.collect::<Vec<_>>().join(", ")));
    }
    lines.push(("fingerprint", format!("{:016x}", index.fingerprint())));
    match view_of::record(index) {
        Some(_) => lines.extend(view_of::lines(index)),
        None => lines.push(("built by", index.build_info().to_owned())),
    }

    let mut text: String = lines.into_iter().map(|(name, value)| format!("{name:<11}  {value}\n")).collect();
    text.push_str("\ncolumns\n");
    let width = index.schema().fields().iter().map(|field| field.name().chars().count()).max().unwrap_or_default();
    for field in index.schema().fields() {
        let nulls = if field.is_nullable() { "" } else { ", never null" };
        text.push_str(&format!("  {:<width$}  {}{nulls}\n", field.name(), field.data_type()));
    }
    let lengths = lengths::as_text(index)?;
    if !lengths.is_empty() {
        text.push_str(&format!("\n{lengths}"));
    }
    output::print(&text)
}

fn relative_to(kind: RootKind) -> Option<&'static str> {
    match kind {
        RootKind::RelativeToIndex => Some("index"),
        RootKind::Absolute => None,
    }
}

/// What is recorded is JSON, but an index from elsewhere may hold any text.
fn build_info(index: &Index) -> Value {
    let text = index.build_info();
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}
