//! The rowdex command: results on stdout, everything else on stderr; exit 0, 1 when it failed, 2 when it was called
//! wrongly.

mod advice;
mod args;
mod build;
mod carousel;
mod cli;
mod condition;
mod count;
mod demo;
mod demo_data;
mod digest;
mod epoch;
mod failure;
mod get;
mod ids;
mod info;
mod lengths;
mod locate;
mod output;
mod predict;
mod predict_line;
mod predict_packs;
mod progress;
mod prove;
mod quality;
mod report;
mod row_choice;
mod sampling;
mod select;
mod serve;
mod served_digest;
mod shuffle;
mod signals;
mod size;
mod split_args;
mod state_arg;
mod verify;
mod view_of;
mod where_cmd;

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::cli::{Cli, Command};
use crate::failure::Failure;

/// Gives back what is let go, so that a budget is what the process takes; and asks for huge pages, without which random
/// reads of decoded rows wait for the page tables.
#[global_allocator]
static ALLOCATOR: rowdex::MappedBlocks = rowdex::MappedBlocks::new().with_huge_pages();

fn main() -> ExitCode {
    let given = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&given).unwrap_or_else(|error| error.exit());
    let given = given.subcommand().map_or(&given, |(_, given)| given);
    match run(&cli.command, given) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Runs a command; `given` tells which options are there because somebody wrote them.
fn run(command: &Command, given: &ArgMatches) -> Result<(), Failure> {
    match command {
        Command::Build(args) => build::run(args),
        Command::Select(args) => select::run(args),
        Command::Count(args) => count::run(args),
        Command::Info(args) => info::run(args),
        Command::Lengths(args) => lengths::run(args),
        Command::Digest(args) => digest::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Locate(args) => locate::run(args),
        Command::Get(args) => get::run(args),
        Command::Epoch(args) => epoch::run(args, given),
        Command::Serve(args) => serve::run(args),
        Command::Shuffle(args) => shuffle::run(args),
        Command::Predict(args) => predict::run(args, given),
        Command::Plan(args) => {
            failure::complain("`plan` is called `predict` now");
            predict::run(args, given)
        }
        Command::Ids(args) => ids::run(args, given),
        Command::Prove(args) => prove::run(args, given),
        Command::Where(args) => where_cmd::run(args, given),
        Command::Quality(args) => quality::run(args),
        Command::Report(args) => report::run(args),
        Command::Demo(args) => demo::run(args),
    }
}
