//! The process that reads: started by the rank that finds none.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Seat;
use super::message::garbled;
#[cfg(test)]
use super::reader::Server;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_share::Listener;

/// How long a process that has closed its sockets may take to end.
const ENDING: Duration = Duration::from_secs(2);

/// Starts a reader that listens here.
pub(super) fn reader(seat: &Seat, listener: Listener) -> Result<Option<Child>> {
    let group = &seat.group;
    #[cfg(test)]
    if group.program.is_empty() {
        thread(seat.clone(), listener);
        return Ok(None);
    }
    let told = group.job.as_deref().ok_or_else(garbled)?.told(group.ranks)?;
    let job = rowdex_share::sealed("rowdex-share-job", &[&told])?;
    let program = group.program.first().map_or(OsStr::new("rowdex"), OsString::as_os_str);
    let mut command = Command::new(program);
    command.args(group.program.iter().skip(1)).args(["serve", "--socket"]).stdin(listener.hand_over()?).stdout(job);
    // In a group of its own, so that what ends the ranks does not end it while one of them goes on.
    command.stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().map_err(|error| {
        Error::io(format!("cannot start the reader that ranks share, {}", program.display()), error)
            .with_hint("install the command `rowdex`, or give the share its `program`")
    })?;
    Ok(Some(child))
}

/// In the tests of this library, which has no command there: a thread with the same reader.
#[cfg(test)]
fn thread(seat: Seat, listener: Listener) {
    std::thread::spawn(move || {
        if let Ok(reader) = Server::at(seat, listener) {
            while !reader.is_over(Duration::from_millis(20)) {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    });
}

/// Fails if a reader has failed, and says what it said.
pub(super) fn check(child: Option<Child>) -> Result<()> {
    let Some(mut child) = child else { return Ok(()) };
    let began = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if began.elapsed() < ENDING => std::thread::sleep(Duration::from_millis(2)),
            _ => {
                reap(Some(child));
                return Ok(());
            }
        }
    };
    if status.code().is_none_or(|code| code == 0) {
        return Ok(());
    }
    let mut said = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(2000).read_to_string(&mut said);
    }
    let message = format!("the reader that ranks share has failed ({status}): {}", said.trim());
    Err(Error::new(ErrorKind::Io, message).with_hint("give the share the `program` of this version of rowdex"))
}

/// Takes note of a process that ends by itself, so that it leaves nothing behind then. Nobody reads what it says.
pub(super) fn reap(child: Option<Child>) {
    static LEFT: Mutex<Vec<Child>> = Mutex::new(Vec::new());
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.extend(child.map(|mut child| {
        child.stderr = None;
        child
    }));
    left.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}
