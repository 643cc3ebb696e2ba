//! `rowdex info`: what is in an index.

use std::collections::BTreeMap;

use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use rowdex::index::RootKind;
use rowdex::{Dataset, Index};
use serde_json::{Value, json};

use crate::command::args::{IndexArg, JsonArg};
use crate::command::failure::Failure;
use crate::command::lengths;
use crate::command::output;
use crate::command::view_of;

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    index: IndexArg,

    #[command(flatten)]
    json: JsonArg,
}

pub(crate) fn run(args: &InfoArgs) -> Result<(), Failure> {
    let index = args.index.open()?;
    let decoded_bytes = Dataset::builder(index.clone()).open()?.decoded_bytes();
    let data_bytes: u64 = index.files().map(|file| file.size()).sum();
    if args.json.json { as_json(&index, decoded_bytes, data_bytes) } else { as_text(&index, decoded_bytes, data_bytes) }
}

fn as_json(index: &Index, decoded_bytes: u64, data_bytes: u64) -> Result<(), Failure> {
    let root = index.root();
    let columns = |field: &arrow::datatypes::FieldRef| {
        let (name, kind, nullable) = (field.name(), field.data_type().to_string(), field.is_nullable());
        json!({"name": name, "type": kind, "nullable": nullable})
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
