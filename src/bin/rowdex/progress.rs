//! Progress bars, for people only: a log file gets none.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on stderr if that is a terminal, else one that does nothing. It is gone once it is dropped or cleared, so that
/// errors and results stand alone.
pub(crate) fn bar(what: &'static str, length: u64) -> ProgressBar {
    let target = match io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(length), target).with_message(what);
    match ProgressStyle::with_template("{msg} [{bar:40}] {human_pos}/{human_len} ({eta})") {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}
