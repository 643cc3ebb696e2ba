//! The program `rowdex`.

#[path = "../../src/command/mod.rs"]
mod command;

use std::process::ExitCode;

/// Gives back what is let go, so that a budget is what the process takes; and asks for huge pages, without which random
/// reads of decoded rows wait for the page tables.
#[global_allocator]
static ALLOCATOR: rowdex::MappedBlocks = rowdex::MappedBlocks::new().with_huge_pages();

fn main() -> ExitCode {
    command::main(&std::env::args_os().collect::<Vec<_>>()).into()
}
