//! `rowdex build`: Parquet files to an index.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use indicatif::HumanBytes;
use rowdex::index::builder::{LengthsBuilder, SchemaMode};
use rowdex::select::ListOfRows;
use rowdex::{Index, IndexBuilder};
use serde_json::json;

use crate::command::args::{JsonArg, named, warn_of_undecodable};
use crate::command::failure::{Failure, complain};
use crate::command::output;
use crate::command::progress::Progress;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rowdex build data/ -o train.rdx
  rowdex build 'data/2024-*/*.parquet' more/extra.parquet -o train.rdx --root .
  rowdex build data/ -o train.rdx --update
  rowdex build data/ -o train.rdx --lengths tokens                      how long rows are, by a column
  rowdex build data/ -o train.rdx --update --lengths words=lengths.parquet  or by a list, for an index that is there
  rowdex build data/ -o train.rdx --schema union --rename content=text
  rowdex build s3://bucket/data/ -o s3://bucket/train.rdx
  rowdex build hf://datasets/owner/name@main -o train.rdx")]
pub(crate) struct BuildArgs {
    /// Parquet files, folders to search for them, and quoted glob patterns; or URLs of these in one bucket, container
    /// or host (s3, gs, az, http, https). Credentials are taken from the environment.
    #[arg(required = true, value_name = "DATA")]
    data: Vec<PathBuf>,

    /// The index to write, a file or a URL.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Replace the index if there is one.
    #[arg(long)]
    overwrite: bool,

    /// Update the index if there is one: leading files that have not changed keep their row ids, the others follow.
    #[arg(long, conflicts_with = "overwrite")]
    update: bool,

    /// Store paths relative to this directory instead of to the deepest one that contains all files.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// How to bring the schemas together: `strict` wants the same columns in every file, `union` fills missing columns
    /// with nulls and widens types.
    #[arg(
        long,
        value_name = "MODE",
        default_value = "strict",
        value_parser = named::<SchemaMode>(&["strict", "union"])
    )]
    schema: SchemaMode,

    /// Serve column OLD of the files as NEW: files may have either name.
    #[arg(long, value_name = "OLD=NEW", value_parser = rename)]
    rename: Vec<(String, String)>,

    /// Do not store the footers: a smaller index, but everyone who opens it reads them again.
    #[arg(long)]
    no_footers: bool,

    /// Do not make columns of folders named key=value.
    #[arg(long)]
    no_partitions: bool,

    /// Record how long rows are, by the items of a column of lists, or by a column of integers; `a.b` is field b of
    /// column a, and null and empty lists have the length 0. NAME=LIST takes them from a list of every row, as for
    /// `select --rows`, with a column `length`.
    #[arg(long, value_name = "COLUMN|NAME=LIST", value_delimiter = ',')]
    lengths: Vec<String>,

    #[command(flatten)]
    json: JsonArg,
}

/// The column of a list that has the lengths.
const LENGTH: &str = "length";

/// A column, and the name to serve it by.
fn rename(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((old, new)) if !new.contains('=') => Ok((old.to_owned(), new.to_owned())),
        Some(_) => Err(format!("{text:?} has more than one `=`: rename such columns in Python or Rust")),
        None => Err(format!("{text:?} has no new name: write text=content to serve column text as content")),
    }
}

pub(crate) fn run(args: &BuildArgs) -> Result<(), Failure> {
    let bar = Progress::new("reading footers");
    let started = Instant::now();
    let builder = builder(args).with_progress({
        let bar = bar.clone();
        move |progress| {
            bar.set_message(match progress.counts_lengths {
                true => "counting lengths".to_owned(),
                false => format!("reading footers, {}", HumanBytes(progress.bytes)),
            });
            bar.at(progress.files_done, progress.files);
        }
    });
    let report = builder.build(&args.output);
    bar.finish();
    let mut report = report?;
    let given = args.lengths.iter().filter_map(|name| name.split_once('='));
    for (name, list) in given {
        let lengths = ListOfRows::from(list).lengths(&Index::open(&args.output)?, LENGTH)?;
        report.index_bytes = LengthsBuilder::new(&args.output).with_given(name, lengths).write()?;
    }
    if report.repeated_files > 0 {
        complain(format!("{} named again: each is in the index once", output::counted(report.repeated_files, "file")));
    }
    warn_of_undecodable(&report);
    output::tell(
        args.json.json,
        &json!({
            "output": args.output.display().to_string(),
            "files": report.files,
            "kept_files": report.kept_files,
            "read_files": report.read_files,
            "requests": report.requests,
            "footer_bytes": report.footer_bytes,
            "row_groups": report.row_groups,
            "rows": report.rows,
            "index_bytes": report.index_bytes,
            "repeated_files": report.repeated_files,
            "unlike_files": report.unlike_files,
            "unlike_example": report.unlike_example,
            "undecodable_columns": report.undecodable_columns,
            "seconds": started.elapsed().as_secs_f64(),
        }),
    )
}

fn builder(args: &BuildArgs) -> IndexBuilder {
    let mut builder = IndexBuilder::new(&args.data)
        .with_schema_mode(args.schema)
        .with_footers(!args.no_footers)
        .with_partitions(!args.no_partitions)
        .with_renames(args.rename.iter().cloned())
        .with_overwrite(args.overwrite)
        .with_update(args.update)
        .with_lengths(args.lengths.iter().filter(|name| !name.contains('=')));
    if let Some(root) = &args.root {
        builder = builder.with_root(root);
    }
    builder
}
