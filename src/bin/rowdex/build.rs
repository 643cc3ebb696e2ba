//! `rowdex build`: Parquet files to an index.

use std::time::Instant;

use indicatif::{HumanBytes, HumanCount};
use rowdex::IndexBuilder;
use rowdex::source::StoreOptions;
use serde_json::json;

use crate::args::BuildArgs;
use crate::failure::Failure;
use crate::{output, progress};

pub(crate) fn run(args: &BuildArgs) -> Result<(), Failure> {
    let bar = progress::bar("reading footers", 0);
    let started = Instant::now();
    let report = builder(args).with_progress({
        let bar = bar.clone();
        move |progress| {
            bar.set_length(progress.files);
            bar.set_position(progress.files_done);
            bar.set_message(format!("reading footers, {}", HumanBytes(progress.bytes)));
        }
    });
    let report = report.build(&args.output);
    bar.finish_and_clear();
    let report = report?;

    if args.json.json {
        return output::print_json(&json!({
            "output": args.output.display().to_string(),
            "files": report.files,
            "kept_files": report.kept_files,
            "read_files": report.read_files,
            "requests": report.requests,
            "footer_bytes": report.footer_bytes,
            "row_groups": report.row_groups,
            "rows": report.rows,
            "source_rows": report.source_rows,
            "index_bytes": report.index_bytes,
            "seconds": started.elapsed().as_secs_f64(),
        }));
    }
    let mut text = format!(
        "{}: {} rows in {} row groups of {} files, {}\n",
        args.output.display(),
        HumanCount(report.rows),
        HumanCount(report.row_groups),
        HumanCount(report.files),
        HumanBytes(report.index_bytes)
    );
    if report.source_rows != report.rows {
        text.push_str(&format!("{} rows of {} selected\n", HumanCount(report.rows), HumanCount(report.source_rows)));
    }
    if args.update {
        text.push_str(&format!("{} files kept from the index before\n", HumanCount(report.kept_files)));
    }
    output::print(&text)
}

fn builder(args: &BuildArgs) -> IndexBuilder {
    let mut builder = IndexBuilder::new(&args.data)
        .with_schema_mode(args.schema)
        .with_footers(!args.no_footers)
        .with_partitions(!args.no_partitions)
        .with_overwrite(args.force)
        .with_update(args.update)
        .with_store_options(StoreOptions::new().with_concurrency(usize::from(args.concurrency)));
    if let Some(root) = &args.root {
        builder = builder.with_root(root);
    }
    if let Some(rows) = &args.rows {
        builder = builder.with_rows(rows);
    }
    if let Some(threads) = args.threads {
        builder = builder.with_threads(usize::from(threads));
    }
    builder
}
