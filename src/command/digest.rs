//! `rowdex digest`: one number for the rows of an index, in any order.

use std::path::Path;

use clap::Args;
use rowdex::digest::{self, DigestProgress, RowsDigest};
use rowdex::source::StoreOptions;
use rowdex::{Dataset, Index};
use serde_json::{Value, json};

use crate::command::args::{IndexArg, JsonArg, RootArg};
use crate::command::failure::Failure;
use crate::command::output;
use crate::command::progress::Progress;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rowdex digest train.rdx                  read all rows, and say their digest
  rowdex digest train.rdx --note           keep it in the index, where `rowdex info` shows it
  rowdex digest train.rdx --columns id,text

A digest is 128 bits a row, added up modulo 2^128: it depends on the values, and not on the order of the rows, on files,
row groups or encodings. docs/digests.md specifies it. After an update of the index, --note reads the rows of new and
changed files alone. Without --note, what was read is compared with what is noted.")]
pub(crate) struct DigestArgs {
    #[command(flatten)]
    index: IndexArg,

    /// Over these columns [default: those of the digest that is noted, or all].
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    columns: Option<Vec<String>>,

    /// Keep the digest in the index; nothing is read of row groups that have one there.
    #[arg(long)]
    note: bool,

    /// Remove the digest from the index.
    #[arg(long, conflicts_with_all = ["note", "columns", "root", "threads"])]
    remove: bool,

    #[command(flatten)]
    root: RootArg,

    /// Read with this many threads [default: one per core, at most eight; 16 for data in a store].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=1024))]
    threads: Option<u16>,

    #[command(flatten)]
    json: JsonArg,
}

pub(crate) fn run(args: &DigestArgs) -> Result<(), Failure> {
    let index = args.index.open()?;
    if args.remove {
        digest::remove(&index, &StoreOptions::default())?;
        return match args.json.json {
            true => output::print_json(&Value::Null),
            false => output::print("no digest is noted\n"),
        };
    }
    let known = digest::noted(&index)?;
    let dataset = args.dataset(index)?;
    let found = with_bar(|tell| match args.note {
        true => dataset.note_digest(&StoreOptions::default(), tell),
        false => dataset.rows_digest(tell),
    })?;
    if let Some(known) = known.filter(|known| !args.note && known.columns == found.columns && *known != found) {
        return Err(Failure::new(format!(
            "the rows have the digest {found}, and {known} is noted in the index: they were changed"
        )));
    }
    if args.json.json { output::print_json(&as_json(&found)) } else { output::print(&format!("{}\n", line(&found))) }
}

impl DigestArgs {
    fn dataset(&self, index: Index) -> Result<Dataset, Failure> {
        let noted = digest::noted_columns(&index)?.map(|(columns, _)| columns);
        let mut builder = Dataset::builder(index).with_cache_bytes(0);
        if let Some(columns) = self.columns.as_ref().or(noted.as_ref()) {
            builder = builder.with_columns(columns);
        }
        if let Some(root) = &self.root.root {
            builder = builder.with_root(root);
        }
        if let Some(threads) = self.threads {
            builder = builder.with_threads(usize::from(threads));
        }
        Ok(builder.open()?)
    }
}

fn with_bar<T>(work: impl FnOnce(&(dyn Fn(DigestProgress) + Sync)) -> rowdex::Result<T>) -> rowdex::Result<T> {
    let bar = Progress::new("rows", 0);
    let done = work(&|progress| {
        bar.set_length(progress.rows);
        bar.set_position(progress.rows_done);
    });
    bar.finish();
    done
}

/// Notes the digest of rows that an update added, if others have one. Says whether there were any.
pub(crate) fn complete(index: &Path) -> Result<bool, Failure> {
    Ok(with_bar(|tell| digest::complete(index, None, &StoreOptions::default(), tell))?)
}

/// A digest in words.
pub(crate) fn line(digest: &RowsDigest) -> String {
    let columns: Vec<&str> = digest.columns.iter().map(|column| column.name.as_str()).collect();
    format!("{digest}  {}, over {}", output::counted(digest.rows, "row"), columns.join(", "))
}

/// A digest as JSON.
pub(crate) fn as_json(digest: &RowsDigest) -> Value {
    let columns = digest.columns.iter().map(|column| json!({"name": column.name, "kind": column.kind}));
    json!({"rows": digest.rows, "rows_digest": digest.to_string(), "columns": columns.collect::<Vec<_>>()})
}
