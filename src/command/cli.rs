//! The commands, as types that the command line is parsed into, and files that describe them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, CommandFactory, Parser, Subcommand};
use serde_json::{Map, Value};

use crate::command::build::BuildArgs;
use crate::command::demo::DemoArgs;
use crate::command::epoch::EpochArgs;
use crate::command::estimate::EstimateArgs;
use crate::command::get::GetArgs;
use crate::command::info::InfoArgs;
use crate::command::rewrite::RewriteArgs;
use crate::command::select::SelectArgs;
use crate::command::serve::ServeArgs;
use crate::command::state_arg;
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
    /// Say which rows a step of a run has, which steps have a row, or which rows a rank gets.
    Trace(TraceArgs),
    /// Write the rows again as Parquet files, in an order that is then read at full speed.
    Rewrite(RewriteArgs),
    /// Read for the ranks of a training job on this machine, in a separate process.
    Serve(ServeArgs),
    /// Check an index and its files, the shards of all ranks, or that two datasets have the same rows.
    Verify(VerifyArgs),
    /// Make a small dataset, index it and train on it for show.
    Demo(DemoArgs),
}

/// The command, which takes the options of what can be described from a file, too.
pub(crate) fn command() -> clap::Command {
    let file = || {
        let help = "Take options from this file, too: a JSON object that has them by their names, {\"world_size\": 8}; \
                    or a checkpoint, for the run whose state it has";
        Arg::new("run").long("run").value_name("FILE").help(help).value_parser(clap::value_parser!(PathBuf))
    };
    let described = ["build", "epoch", "estimate", "rewrite", "select", "trace"];
    described.iter().fold(Cli::command(), |all, name| all.mut_subcommand(name, |one| one.arg(file())))
}

/// What a file says, as the command line would.
pub(crate) fn described(command: &clap::Command, path: &Path) -> Result<Vec<OsString>, String> {
    let wrong = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let known = |name: &str| command.get_arguments().find(|of| of.get_long().unwrap_or(of.get_id().as_str()) == name);
    let state =
        ["state", "resume"].into_iter().find(|name| known(name).is_some_and(|of| of.get_action().takes_values()));
    let text = std::fs::read(path).map_err(|error| wrong(&error))?;
    let fields = serde_json::from_slice::<Map<String, Value>>(&text);
    let says_it = |fields: &Map<String, Value>| state.is_some_and(|name| fields.contains_key(name));
    if let Some(name) = state
        && !fields.as_ref().is_ok_and(says_it)
        && let Ok(state) = state_arg::read(&path.to_string_lossy())
    {
        return Ok(vec![format!("--{name}={state}").into()]);
    }
    let mut arguments = Vec::new();
    for (name, value) in fields.map_err(|error| wrong(&error))? {
        let name = name.replace('_', "-");
        let option = known(&name).filter(|_| name != "run").ok_or_else(|| wrong(&format!("unknown field `{name}`")))?;
        let list = if let Value::Array(list) = value { list } else { vec![value] };
        for value in list {
            let value = match value {
                Value::Null | Value::Bool(false) => continue,
                Value::Bool(true) => {
                    arguments.push(format!("--{name}").into());
                    continue;
                }
                Value::String(text) => text,
                Value::Object(_) | Value::Array(_) => return Err(wrong(&format!("`{name}` is no value of an option"))),
                value => value.to_string(),
            };
            arguments.push(if option.is_positional() { value } else { format!("--{name}={value}") }.into());
        }
    }
    Ok(arguments)
}
