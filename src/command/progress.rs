//! How far a command is: a bar for people at a terminal, a line now and then for a log file.

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex};
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
    log: Option<Arc<Mutex<ProgressLog>>>,
}

impl Progress {
    pub(crate) fn new(what: &'static str, length: u64) -> Self {
        let terminal = io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(length), target).with_message(what);
        let bar = match ProgressStyle::with_template("{msg} [{bar:40}] {human_pos}/{human_len} ({eta})") {
            Ok(style) => bar.with_style(style.progress_chars("=> ")),
            Err(_) => bar,
        };
        Self { bar, log: (!terminal).then(|| Arc::new(Mutex::new(ProgressLog::new(Instant::now())))) }
    }

    pub(crate) fn set_length(&self, length: u64) {
        self.bar.set_length(length);
    }

    /// Makes the whole longer by what is found to be still to do.
    pub(crate) fn lengthen(&self, by: u64) {
        self.set_length(self.bar.length().unwrap_or_default().saturating_add(by));
    }

    pub(crate) fn set_position(&self, position: u64) {
        self.bar.set_position(position);
        self.tell();
    }

    pub(crate) fn set_message(&self, message: String) {
        self.bar.set_message(message);
    }

    pub(crate) fn advance(&self, by: u64) {
        self.bar.inc(by);
        self.tell();
    }

    /// Writes the line that is due, if one is; another thread may be at it.
    fn tell(&self) {
        let Some(Ok(mut log)) = self.log.as_ref().map(|log| log.try_lock()) else { return };
        if log.is_due(Instant::now()) {
            complain(self.line());
        }
    }

    fn line(&self) -> String {
        let done = self.bar.position();
        let all = self.bar.length().unwrap_or_default();
        format!("{}: {} of {}", self.bar.message(), HumanCount(done), HumanCount(all))
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
        let Some(Ok(log)) = self.log.as_ref().map(|log| log.lock()) else { return };
        if log.lines > 0 {
            complain(format!("{}, finished after {}", self.line(), HumanDuration(log.started.elapsed())));
        }
    }
}

/// When the next line is due.
#[derive(Debug)]
struct ProgressLog {
    started: Instant,
    lines: u32,
}

impl ProgressLog {
    fn new(now: Instant) -> Self {
        Self { started: now, lines: 0 }
    }

    /// Whether a line is due; then it counts as written.
    fn is_due(&mut self, now: Instant) -> bool {
        let due = (now.duration_since(self.started).as_secs() / EVERY.as_secs()) as u32;
        let is_due = due > self.lines;
        self.lines = self.lines.max(due);
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_every_thirty_seconds_and_none_is_made_up_for() {
        let start = Instant::now();
        let mut log = ProgressLog::new(start);
        let due: Vec<u64> = (0..200).filter(|second| log.is_due(start + Duration::from_secs(*second))).collect();
        assert_eq!(due, [30, 60, 90, 120, 150, 180]);
        assert!(log.is_due(start + Duration::from_secs(3600)));
        assert!(!log.is_due(start + Duration::from_secs(3601)));
    }

    #[test]
    fn a_line_says_how_far_the_command_is() {
        let progress = Progress::new("checking files", 2000);
        progress.set_position(1024);
        assert_eq!(progress.line(), "checking files: 1,024 of 2,000");
        progress.lengthen(500);
        progress.advance(1);
        assert_eq!(progress.line(), "checking files: 1,025 of 2,500");
    }
}
