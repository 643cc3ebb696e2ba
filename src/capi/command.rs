//! The command, for the Python package alone: what it installs as `rowdex` calls this, so that its code is there once.
//!
//! This is no function of the header: a library for C has no command.

use std::ffi::{OsString, c_char};
use std::panic::catch_unwind;

use super::handle;

/// Runs the command as a program is run. The first of the arguments is what the program is called as. Returns the exit
/// status.
///
/// # Safety
///
/// There are `count` strings that end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_command(count: usize, arguments: *const *const c_char) -> u8 {
    // SAFETY: the caller gives that many strings.
    let Ok(strings) = (unsafe { handle::slice(arguments, count, "arguments") }) else { return 2 };
    // SAFETY: as above.
    let paths = strings.iter().map(|string| unsafe { handle::path(*string, "arguments") }.map(OsString::from));
    let Ok(arguments) = paths.collect::<Result<Vec<_>, _>>() else { return 2 };
    // As a program ends that panics; what it is about was written to stderr.
    catch_unwind(|| crate::command::main(&arguments)).unwrap_or(101)
}
