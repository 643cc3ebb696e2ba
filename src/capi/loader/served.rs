//! A loader for several threads: who has it for himself, and where all see it stand.

use std::collections::VecDeque;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::capi::handle::Exclusive;
use crate::loader::{Batch, Control, Loader, Standing, closed};
use rowdex_base::error::Result;

/// The loader, which one thread at a time has for itself, and where it stands, which all threads see.
#[derive(Debug)]
pub(super) struct Served {
    loader: Exclusive<Ahead>,
    control: Control,
    seen: ArcSwap<Seen>,
}

/// A loader, of which batches beyond the next one were looked at: it is past them, and they were not handed out.
#[derive(Debug)]
struct Ahead {
    loader: Loader,
    /// The epoch and the step that were looked at last.
    looked: Option<(u64, u64)>,
    /// Where it stands after each of the batches that it is past, to be published when that is handed out.
    past: VecDeque<Standing>,
    /// Whether it failed at a batch beyond the next one.
    failed_ahead: bool,
}

impl Ahead {
    /// Goes back to the batch after the last one that was handed out.
    fn go_back(&mut self, handed_out: &Standing) -> Result<()> {
        self.looked = None;
        if !self.past.is_empty() || self.failed_ahead {
            // An error that was met is one of a batch that was looked at, and comes again when that is due.
            self.loader.go_back(handed_out.epoch(), handed_out.step)?;
            self.past.clear();
            self.failed_ahead = false;
        }
        Ok(())
    }
}

/// What is published as one: once it was closed, it stands where it stood, whatever another thread is about to hand
/// out.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) standing: Standing,
    closed: bool,
}

impl Served {
    pub(super) fn new(loader: Loader) -> Self {
        let seen = ArcSwap::from_pointee(Seen { standing: loader.standing(), closed: false });
        let control = loader.control();
        Self {
            seen,
            control,
            loader: Exclusive::new(Ahead { loader, looked: None, past: VecDeque::new(), failed_ahead: false }),
        }
    }

    pub(super) fn control(&self) -> &Control {
        &self.control
    }

    /// Where the loader stands after the batch that was handed out last.
    pub(super) fn seen(&self) -> Arc<Seen> {
        self.seen.load_full()
    }

    /// Does something with the loader where the last batch was handed out, and publishes where it stands then.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Loader) -> Result<T>) -> Result<T> {
        let mut ahead = self.loader.lock("loader")?;
        ahead.go_back(&self.seen.load().standing)?;
        let done = work(&mut ahead.loader);
        self.publish(ahead.loader.standing(), done)
    }

    /// As [`with`](Self::with), wherever it stands and whatever ended it.
    pub(super) fn anew(&self, work: impl FnOnce(&mut Loader) -> Result<()>) -> Result<()> {
        let mut ahead = self.loader.lock("loader")?;
        work(&mut ahead.loader)?;
        (ahead.looked, ahead.past, ahead.failed_ahead) = (None, VecDeque::new(), false);
        self.publish(ahead.loader.standing(), Ok(()))
    }

    /// Asks the loader something that changes nothing.
    pub(super) fn ask<T>(&self, question: impl FnOnce(&Loader) -> T) -> Result<T> {
        Ok(question(&self.loader.lock("loader")?.loader))
    }

    pub(super) fn peek(&self, epoch: u64, step: u64, max_rows: usize) -> Result<Option<Batch>> {
        let mut ahead = self.loader.lock("loader")?;
        let seen = self.seen.load();
        let handed_out = &seen.standing;
        let is_next = (handed_out.epoch(), handed_out.step) == (epoch, step);
        if is_next {
            ahead.go_back(handed_out)?;
        }
        if let Some(before) = step.checked_sub(1)
            && ahead.looked == Some((epoch, before))
            && step < handed_out.steps
            // The step does not say which rank's batch it is.
            && handed_out.ranks() == 1
        {
            ahead.looked = None;
            ahead.loader.advance(epoch, before)?;
            let passed = ahead.loader.standing();
            ahead.past.push_back(passed);
        }
        let had_failed = ahead.loader.failure().is_some();
        let found = ahead.loader.peek(epoch, step, max_rows);
        let fails_now = !had_failed && ahead.loader.failure().is_some();
        ahead.failed_ahead |= fails_now && !is_next;
        if let Ok(found) = &found {
            ahead.looked = found.is_some().then_some((epoch, step));
        }
        match ahead.past.is_empty() {
            true => self.publish(ahead.loader.standing(), found),
            false => found,
        }
    }

    pub(super) fn advance(&self, epoch: u64, step: u64) -> Result<()> {
        let mut ahead = self.loader.lock("loader")?;
        let seen = self.seen.load();
        let is_next = (seen.standing.epoch(), seen.standing.step) == (epoch, step);
        let passed = if is_next { ahead.past.pop_front() } else { None };
        if let Some(after) = passed {
            return self.publish(after, Ok(()));
        }
        ahead.go_back(&seen.standing)?;
        let done = ahead.loader.advance(epoch, step);
        self.publish(ahead.loader.standing(), done)
    }

    fn publish<T>(&self, standing: Standing, done: Result<T>) -> Result<T> {
        let before = self.seen.load_full();
        let after = Arc::new(Seen { standing, closed: false });
        // Only closing publishes anything besides this, whose turn it is.
        if before.closed || !Arc::ptr_eq(&self.seen.compare_and_swap(&before, after), &before) {
            return Err(closed());
        }
        done
    }

    pub(super) fn close(&self) {
        self.seen.rcu(|seen| Seen { closed: true, ..Seen::clone(seen) });
        self.control.close();
    }
}
