//! The commands, as types that the command line is parsed into.

use clap::{Parser, Subcommand};

use crate::command::build::BuildArgs;
use crate::command::demo::DemoArgs;
use crate::command::epoch::EpochArgs;
use crate::command::estimate::EstimateArgs;
use crate::command::get::GetArgs;
use crate::command::info::InfoArgs;
use crate::command::rewrite::RewriteArgs;
use crate::command::select::SelectArgs;
use crate::command::serve::ServeArgs;
use crate::command::trace::TraceArgs;
use crate::command::verify::VerifyArgs;

/// Parquet files as a map-style dataset for distributed training.
///
/// `build` reads the footers of Parquet files and writes an index, in which every row has a number. All other commands
/// take that index: they say where a row is, fetch rows, or run whole epochs as the ranks of a training job would.
#[derive(Debug, Parser)]
#[command(name = "rowdex", version, propagate_version = true, after_help = CLI_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const CLI_HELP: &str = "\
Examples:
  rowdex demo
  rowdex build data/ -o train.rdx
  rowdex get train.rdx 0 41 99
  rowdex epoch train.rdx --world-size 8 --batch-size 256
  rowdex estimate train.rdx --world-size 8 --memory 4GiB

Results go to stdout, everything else to stderr. Exit status: 0 done, 1 failed, 2 called wrongly.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Index Parquet files, with the lengths of their rows if they are wanted.
    Build(BuildArgs),
    /// Say what is in an index, and where its rows are; or write a page about it.
    Info(InfoArgs),
    /// Fetch rows by their ids, in the order asked.
    Get(GetArgs),
    /// Choose rows of an index, and write them as another index of the same files; or count them.
    Select(SelectArgs),
    /// Read whole epochs as the ranks of a training job would, and report what each rank got.
    Epoch(EpochArgs),
    /// Say what an epoch would cost within a memory budget, from the index alone.
    Estimate(EstimateArgs),
    /// Say which rows a step of a run has, which steps have a row, or which rows a rank is dealt.
    Trace(TraceArgs),
    /// Write the rows anew as Parquet files, in an order that is read at full speed ever after.
    Rewrite(RewriteArgs),
    /// Read for the ranks of a training job on this machine, in a process of its own.
    Serve(ServeArgs),
    /// Check an index and its files, what all ranks are dealt, or that two datasets have the same rows.
    Verify(VerifyArgs),
    /// Make a small dataset, index it and train on it for show.
    Demo(DemoArgs),
}
