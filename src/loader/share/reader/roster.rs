//! Who shares a reader, and where each of them is.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::Inner;
use crate::loader::LoaderStats;
use crate::loader::deliver::Watched;
use crate::loader::recovery::Faults;
use crate::loader::share::lanes::Lane;
use rowdex_share::Connection;

/// How long ranks that go to another place together may take, one after the other.
const STRAGGLERS: Duration = Duration::from_millis(200);

/// Who is there, and what was decided for them.
#[derive(Debug)]
pub(super) struct Roster {
    pub(super) members: BTreeMap<u64, Member>,
    pub(super) joined: u64,
    /// Connections, whether they are of ranks that have joined or not.
    pub(super) connected: usize,
    /// When the last one ended.
    pub(super) left: Instant,
    pub(super) engine: Option<Weak<dyn Watched>>,
    /// What the last engine did.
    pub(super) stats: LoaderStats,
    /// What was lost for those who are there: whoever comes after them may find it repaired.
    pub(super) faults: Arc<Faults>,
    /// An engine was started. Nobody is waited for any more who was not there.
    pub(super) has_begun: bool,
    /// A rank came since the engine was started, or one was let go of because of an error.
    pub(super) is_to_start: bool,
    /// When the last rank came.
    pub(super) since: Instant,
}

impl Roster {
    /// What the ranks are to get, and which ranks get the same.
    fn lanes(&self) -> (Vec<Lane>, Vec<Vec<u64>>) {
        let mut lanes: Vec<Lane> = Vec::new();
        let mut members: Vec<Vec<u64>> = Vec::new();
        for (id, member) in &self.members {
            // Batches on their way will be taken; those that were planned for it come anew.
            let lane = &member.lane;
            let what =
                |lane: &Lane| (lane.sampler.shard().index(), lane.sampler.state(), lane.epoch, lane.next, lane.end);
            match lanes.iter().position(|other| what(other) == what(lane)).and_then(|at| members.get_mut(at)) {
                Some(members) => members.push(*id),
                None => {
                    lanes.push(lane.clone());
                    members.push(vec![*id]);
                }
            }
        }
        (lanes, members)
    }

    /// About how many steps an epoch has: one number for all ranks, because epochs of packs differ, and ranks began
    /// with different ones.
    pub(super) fn steps(&self) -> u64 {
        self.members.values().map(|member| member.lane.steps()).max().unwrap_or(0)
    }
}

/// A rank, and the place up to which batches were sent to it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) rank: u32,
    pub(super) worker: Option<(u64, u64)>,
    pub(super) connection: Arc<Connection>,
    pub(super) lane: Lane,
    /// Batches that were sent and not taken, and their bytes.
    pub(super) batches: u64,
    pub(super) bytes: u64,
}

impl Member {
    pub(super) fn has_room(&self, batches: u64, bytes: u64, drift: u64, window: u64) -> bool {
        self.batches == 0 || (self.batches + batches <= drift && self.bytes + bytes <= window)
    }

    /// The step of its rank that it takes next, counted over epochs of so many steps: a measure of how far ranks are
    /// apart, if it is the same number for all of them.
    pub(super) fn taken(&self, steps: u64) -> u64 {
        let (epoch, step) = self.lane.place();
        let workers = self.lane.sampler.part_of().map_or(1, |part| part.workers);
        let sent = epoch.saturating_mul(steps).saturating_add(step);
        sent.saturating_sub(self.batches.saturating_mul(workers))
    }
}

impl Inner {
    /// Waits until the engine is to be started; `None` if the reader ends. Says which ranks have which lane.
    pub(super) fn wait_for_ranks(&self) -> Option<(Vec<Lane>, Vec<Vec<u64>>)> {
        let mut roster = self.lock();
        loop {
            if self.stop.is_set() {
                return None;
            }
            if !roster.is_to_start || roster.members.is_empty() {
                roster = self.changed.wait(roster).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let most = self.patience(&roster);
            let waited = roster.since.elapsed();
            if waited >= most {
                break;
            }
            roster = self.changed.wait_timeout(roster, most - waited).unwrap_or_else(PoisonError::into_inner).0;
        }
        roster.is_to_start = false;
        roster.has_begun = true;
        Some(roster.lanes())
    }

    /// How long to wait after the last rank has come.
    fn patience(&self, roster: &Roster) -> Duration {
        let most = self.seat.group.wait;
        let few = most.min(STRAGGLERS);
        let ranks = roster.members.values().map(|member| self.seat.group.consumers(&member.lane.sampler)).max();
        if roster.members.len() < ranks.unwrap_or(0) {
            // Whoever was there, and is on the way to another place, has left.
            return if roster.has_begun { few } else { most };
        }
        // Whoever has not taken all that was sent to it may be on its way to another place, and not have left yet.
        let may_leave = roster.members.values().any(|member| member.batches > 0);
        if may_leave { few } else { Duration::ZERO }
    }
}
