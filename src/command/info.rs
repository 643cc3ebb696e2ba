//! `rowdex info`: what is in an index, where its rows are, and a page about it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use rowdex::dataset::Class;
use rowdex::{Dataset, Index};
use serde_json::{Value, json};

use crate::command::args::{IndexArg, JsonArg, RowIds, checked, decodable};
use crate::command::failure::Failure;
use crate::command::lengths;
use crate::command::output;
use crate::command::report;

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

    #[command(flatten)]
    json: JsonArg,
}

pub(crate) fn run(args: &InfoArgs) -> Result<(), Failure> {
    let index = args.index.open()?;
    if let Some(path) = &args.html {
        if args.json.json {
            return Err(Failure::usage("a page is no JSON; leave out --json or --html"));
        }
        return report::write(&args.index.index, &index, figures(&index)?, path);
    }
    let found = match &args.by {
        Some(column) => classes(index, column)?,
        None if args.row.is_empty() => figures(&index)?,
        None => checked(&args.row, &index)?.map(|row_id| place(&index, row_id)).collect(),
    };
    output::tell(args.json.json, &found)
}

/// Where a row is in the files, by the names that lists of rows have.
pub(crate) fn place(index: &Index, row_id: u64) -> Value {
    let location = index.locate(row_id);
    let file = location.and_then(|at| index.file(at.file));
    json!({
        "row_id": row_id,
        "file": file.map(|file| file.path()),
        "row_group": location.map(|at| at.ordinal),
        "row": location.map(|at| at.row),
    })
}

fn classes(index: Index, column: &str) -> Result<Value, Failure> {
    let rows = index.len();
    let counts = Dataset::builder(index).with_columns(None::<&str>).open()?.column(column).counts()?;
    let class = |class: &Option<Class>| match class {
        Some(Class::Bool(bool)) => json!(bool),
        Some(Class::Int(int)) => i64::try_from(*int).map_or_else(|_| json!(int.to_string()), |int| json!(int)),
        Some(other) => json!(other.to_string()),
        None => Value::Null,
    };
    let share = |count: u64| count as f64 / rows.max(1) as f64;
    let counts = counts.iter().map(|(of, count)| json!({"value": class(of), "rows": count, "share": share(*count)}));
    Ok(json!({"rows": rows, "counts": counts.collect::<Vec<_>>()}))
}

/// What is in an index.
fn figures(index: &Index) -> Result<Value, Failure> {
    let root = index.root();
    let columns = |field: &arrow_schema::FieldRef| {
        let kind = field.data_type().to_string();
        json!({"name": field.name(), "type": kind, "nullable": field.is_nullable()})
    };
    Ok(json!({
        "rows": index.len(),
        "files": index.num_files(),
        "row_groups": index.num_row_groups(),
        "index_bytes": index.size_bytes(),
        "decoded_bytes": decodable(index)?.decoded_bytes(),
        "data_bytes": index.files().map(|file| file.size()).sum::<u64>(),
        "source_rows": index.source_rows(),
        "footers": index.files().all(|file| file.has_footer()),
        "root": {"relative_to": root.is_relative.then_some("index"), "path": root.path},
        "partition_columns": index.partition_columns(),
        "renamed": index.renames().collect::<BTreeMap<_, _>>(),
        "schema": index.schema().fields().iter().map(columns).collect::<Vec<_>>(),
        "fingerprint": format!("{:016x}", index.fingerprint()),
        "lengths": lengths::told(index)?,
        // What is recorded is JSON, but an index from elsewhere may hold any text.
        "build": serde_json::from_str(index.build_info()).unwrap_or_else(|_| json!(index.build_info())),
    }))
}
