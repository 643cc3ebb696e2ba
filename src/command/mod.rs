//! The rowdex command: results on stdout, everything else on stderr; exit 0, 1 when it failed, 2 when it was called
//! wrongly.
//!
//! It is a module of the program `rowdex`, and of the library of the Python package, which so has all code once.

mod args;
mod build;
mod carousel;
mod cli;
mod demo;
mod demo_data;
mod epoch;
mod estimate;
mod estimate_packs;
mod failure;
mod get;
mod info;
mod lengths;
mod order_arg;
mod output;
mod progress;
mod report;
mod rewrite;
mod sampling;
mod select;
mod serve;
mod signals;
mod size;
mod split_arg;
mod state_arg;
mod trace;
mod verify;
mod view_of;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgMatches, FromArgMatches};

use crate::command::cli::{Cli, Command};
use crate::command::failure::Failure;

/// Runs what the arguments say, the first of which is what the program was called as. Returns the exit status.
pub(crate) fn main(arguments: &[OsString]) -> u8 {
    let status = match parsed(arguments) {
        #[cfg(target_os = "linux")]
        _ if arguments.iter().skip(1).eq(["serve", "--socket"]) => {
            serve::at_socket().map_or_else(Failure::report, |()| 0)
        }
        Ok((cli, given)) => {
            let given = given.subcommand().map_or(&given, |(_, given)| given);
            let program = arguments.first().map_or("rowdex".into(), |program| program.to_string_lossy());
            run(&cli.command, given, &program).map_or_else(Failure::report, |()| 0)
        }
        Err(error) => {
            // If that fails there is nobody left to tell.
            let _ = error.print();
            u8::try_from(error.exit_code()).unwrap_or(2)
        }
    };
    // A program writes what is left when it ends, and a library does not. Whoever writes results looks after errors.
    let _ = io::stdout().flush();
    status
}

fn parsed(arguments: &[OsString]) -> Result<(Cli, ArgMatches), clap::Error> {
    let mut arguments = arguments.to_vec();
    let mut command = cli::command();
    // What is missing on the command line may be in the file.
    let seen = command.clone().ignore_errors(true).try_get_matches_from(&arguments);
    if let Some((name, seen)) = seen.ok().as_ref().and_then(ArgMatches::subcommand)
        && let Some((of, Some(file))) = command.find_subcommand(name).zip(seen.try_get_one::<PathBuf>("run").ok())
    {
        match cli::described(of, file) {
            Ok(described) => arguments.extend(described),
            Err(message) => return Err(command.error(ErrorKind::ValueValidation, message)),
        }
    }
    let given = command.try_get_matches_from(arguments)?;
    Ok((Cli::from_arg_matches(&given)?, given))
}

/// Runs a command; `given` says which options were written on the command line.
fn run(command: &Command, given: &ArgMatches, program: &str) -> Result<(), Failure> {
    match command {
        Command::Build(args) => build::run(args),
        Command::Info(args) => info::run(args),
        Command::Get(args) => get::run(args),
        Command::Select(args) => select::run(args),
        Command::Epoch(args) => epoch::run(args, given),
        Command::Estimate(args) => estimate::run(args, given),
        Command::Trace(args) => trace::run(args, given),
        Command::Rewrite(args) => rewrite::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Verify(args) => verify::run(args, given),
        Command::Demo(args) => demo::run(args, program),
    }
}
