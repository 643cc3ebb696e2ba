//! Progress bars, for people only: a log file gets none.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use rowdex::{Counters, Dataset};

use crate::epoch::rate;

/// A bar on stderr if that is a terminal, else one that does nothing; its prefix comes last. It is gone once it is dropped or cleared, so that
/// errors and results stand alone.
pub(crate) fn bar(what: &'static str, length: u64) -> ProgressBar {
    let target = match io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(length), target).with_message(what);
    match ProgressStyle::with_template("{msg} [{bar:40}] {human_pos}/{human_len} ({eta}) {prefix}") {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

/// The bar of a run, with rows per second and passes of the current epoch.
pub(crate) struct EpochBar<'a> {
    dataset: &'a Dataset,
    bar: ProgressBar,
    epoch: u64,
    before: Counters,
    started: Instant,
    shown: Instant,
}

impl<'a> EpochBar<'a> {
    pub(crate) fn new(dataset: &'a Dataset) -> Self {
        let now = Instant::now();
        let before = dataset.counters();
        Self { dataset, bar: bar("steps", 0), epoch: 0, before, started: now, shown: now }
    }

    /// An epoch of so many steps, the first of so many epochs that are left.
    pub(crate) fn start_epoch(&mut self, epoch: u64, steps: u64, epochs: u64) {
        (self.epoch, self.before, self.started) = (epoch, self.dataset.counters(), Instant::now());
        self.bar.set_length(self.bar.position().saturating_add(steps.saturating_mul(epochs)));
    }

    pub(crate) fn step(&mut self, rows: u64, passes: &impl Fn(u64) -> f64) {
        const EVERY: Duration = Duration::from_millis(200);
        self.bar.inc(1);
        if !self.bar.is_hidden() && self.shown.elapsed() >= EVERY {
            self.shown = Instant::now();
            let rows = HumanCount(rate(rows, self.started.elapsed().as_secs_f64()) as u64);
            let passes = passes((self.dataset.counters() - self.before).decodes);
            self.bar.set_prefix(format!("epoch {}: {rows} rows/s, {passes:.2} passes", self.epoch));
        }
    }

    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}
