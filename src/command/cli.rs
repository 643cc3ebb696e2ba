//! The commands, as types that the command line is parsed into.

use clap::{Parser, Subcommand};

use crate::command::build::BuildArgs;
use crate::command::count::CountArgs;
use crate::command::demo::DemoArgs;
use crate::command::epoch::EpochArgs;
use crate::command::get::GetArgs;
use crate::command::ids::IdsArgs;
use crate::command::info::InfoArgs;
use crate::command::lengths::LengthsArgs;
use crate::command::locate::LocateArgs;
use crate::command::predict::PredictArgs;
use crate::command::prove::ProveArgs;
use crate::command::quality::QualityArgs;
use crate::command::report::ReportArgs;
use crate::command::select::SelectArgs;
use crate::command::serve::ServeArgs;
use crate::command::shuffle::ShuffleArgs;
use crate::command::verify::VerifyArgs;
use crate::command::where_cmd::WhereArgs;

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
  rowdex predict train.rdx --world-size 8 --memory 4GiB

Results go to stdout, everything else to stderr. Exit status: 0 done, 1 failed, 2 called wrongly.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Index Parquet files.
    Build(BuildArgs),
    /// Choose rows of an index, and write them as another index of the same files.
    Select(SelectArgs),
    /// Count rows: those that meet a condition, and those of each class.
    Count(CountArgs),
    /// Say what is in an index.
    Info(InfoArgs),
    /// Note in an index how long its rows are, in tokens or whatever else, and show it.
    Lengths(LengthsArgs),
    /// Check an index, and the files it is of.
    Verify(VerifyArgs),
    /// Say in which file, row group and row a row id is.
    Locate(LocateArgs),
    /// Fetch rows by their ids, in the order asked.
    Get(GetArgs),
    /// Read whole epochs as the ranks of a training job would, and report what each rank got.
    Epoch(EpochArgs),
    /// Read for the ranks of a training job on this machine, in a process of its own.
    Serve(ServeArgs),
    /// Write the rows anew as Parquet files, in an order that is read at full speed ever after.
    Shuffle(ShuffleArgs),
    /// Say what an epoch would cost within a memory budget, from the index alone.
    Predict(PredictArgs),
    /// What `predict` was called.
    #[command(hide = true)]
    Plan(PredictArgs),
    /// Write the row ids that a rank is dealt, one a line.
    Ids(IdsArgs),
    /// Go through all that every rank is dealt, and show that shards are equal, disjoint and complete; or show that two
    /// datasets have the same rows.
    Prove(ProveArgs),
    /// Say which rows a step of a run has, or which steps have a row.
    Where(WhereArgs),
    /// Compare orders: how far they shuffle, and what their batches are made of.
    Quality(QualityArgs),
    /// Write a page about indexes, from them alone: sizes, columns, costs, shards, and what is odd.
    Report(ReportArgs),
    /// Make a small dataset, index it and train on it for show.
    Demo(DemoArgs),
}
