//! How far a command is: a bar for people at a terminal, a line now and then for a log file.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::command::failure::complain;

/// Between two lines of a log.
const EVERY: Duration = Duration::from_secs(30);

/// A bar on stderr if that is a terminal. It is gone once it is dropped or finished, so that errors and results stand
/// alone. Otherwise a line every 30 seconds and at the end, and none at all for what takes less.
#[derive(Clone)]
pub(crate) struct Progress {
    bar: ProgressBar,
    is_logged: bool,
    started: Instant,
    lines: Arc<AtomicU64>,
}

impl Progress {
    pub(crate) fn new(what: &'static str) -> Self {
        let is_logged = !io::stderr().is_terminal();
        let target = if is_logged { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(0), target).with_message(what);
        let bar = match ProgressStyle::with_template("{msg} [{bar:40}] {human_pos}/{human_len} ({eta})") {
            Ok(style) => bar.with_style(style.progress_chars("=> ")),
            Err(_) => bar,
        };
        Self { bar, is_logged, started: Instant::now(), lines: Arc::default() }
    }

    /// Says how much is done, and of how much.
    pub(crate) fn at(&self, done: u64, all: u64) {
        self.bar.set_length(all);
        self.bar.set_position(done);
        self.tell(self.started.elapsed());
    }

    pub(crate) fn set_message(&self, message: String) {
        self.bar.set_message(message);
    }

    /// Makes the whole longer by what is found to be still to do.
    pub(crate) fn lengthen(&self, by: u64) {
        self.bar.inc_length(by);
    }

    pub(crate) fn advance(&self, by: u64) {
        self.bar.inc(by);
        self.tell(self.started.elapsed());
    }

    /// Writes a line, if it is time for one.
    fn tell(&self, elapsed: Duration) {
        if self.is_logged && self.is_due(elapsed) {
            complain(self.line());
        }
    }

    /// Whether it is time for a line; then it counts as written.
    fn is_due(&self, elapsed: Duration) -> bool {
        let due = elapsed.as_secs() / EVERY.as_secs();
        self.lines.fetch_max(due, Ordering::Relaxed) < due
    }

    fn line(&self) -> String {
        let all = self.bar.length().unwrap_or_default();
        format!("{}: {} of {}", self.bar.message(), HumanCount(self.bar.position()), HumanCount(all))
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
        if self.lines.load(Ordering::Relaxed) > 0 {
            complain(format!("{}, finished after {}", self.line(), HumanDuration(self.started.elapsed())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_every_thirty_seconds_and_none_is_made_up_for() {
        let progress = Progress::new("rows");
        let due: Vec<u64> = (0..200).filter(|second| progress.is_due(Duration::from_secs(*second))).collect();
        assert_eq!(due, [30, 60, 90, 120, 150, 180]);
        assert!(progress.is_due(Duration::from_secs(3600)));
        assert!(!progress.is_due(Duration::from_secs(3601)));
    }

    #[test]
    fn a_line_says_how_far_the_command_is() {
        let progress = Progress::new("checking files");
        progress.at(1024, 2000);
        assert_eq!(progress.line(), "checking files: 1,024 of 2,000");
        progress.lengthen(500);
        progress.advance(1);
        assert_eq!(progress.line(), "checking files: 1,025 of 2,500");
    }
}
