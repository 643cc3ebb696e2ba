//! Who shares a reader, and where each of them is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Inner;
use crate::loader::LoaderStats;
use crate::loader::deliver::Watched;
use crate::loader::recovery::Faults;
use crate::loader::share::lanes::Lane;
use rowdex_base::error::Error;
use rowdex_order::sampler::DistributedSampler;
use rowdex_share::Connection;

/// How long ranks that go to another place together may take, one after the other.
const STRAGGLERS: Duration = Duration::from_millis(200);

/// Who is there, and what was decided for them.
#[derive(Debug)]
pub(super) struct Roster {
    pub(super) stop: bool,
    pub(super) members: BTreeMap<u64, Member>,
    pub(super) joined: u64,
    /// Connections, whether they are of ranks that have joined or not.
    pub(super) connected: usize,
    /// When the last one ended.
    pub(super) left: Instant,
    /// Why nobody is to go on.
    pub(super) died: Option<Error>,
    pub(super) engine: Option<Weak<dyn Watched>>,
    /// What the engines before this one did.
    pub(super) before: LoaderStats,
    pub(super) listeners: Vec<JoinHandle<()>>,
    /// What was lost for those who are there: whoever comes after them may find it repaired.
    pub(super) faults: Arc<Faults>,
    pub(super) gathering: Gathering,
}

/// Whom an engine is started for.
#[derive(Debug)]
pub(super) struct Gathering {
    /// An engine was started. Nobody is waited for any more who was not there.
    pub(super) begun: bool,
    /// A rank came since the engine was started.
    pub(super) new: bool,
    /// The engine is to be started anew without waiting for anyone.
    pub(super) again: bool,
    /// When the last rank came.
    pub(super) since: Instant,
}

impl Roster {
    /// What the ranks are to get, and which ranks get the same.
    fn lanes(&self) -> (Vec<Lane>, Vec<Vec<u64>>) {
        let (mut lanes, mut members): (Vec<Lane>, Vec<Vec<u64>>) = (Vec::new(), Vec::new());
        for (id, member) in &self.members {
            // Batches on their way will be taken; those that were planned for it come anew.
            let lane = &member.lane;
            let same = |other: &Lane| {
                (other.sampler.shard().index(), other.sampler.state(), other.epoch, other.next, other.end)
                    == (lane.sampler.shard().index(), lane.sampler.state(), lane.epoch, lane.next, lane.end)
            };
            match lanes.iter().position(same).and_then(|at| members.get_mut(at)) {
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
    pub(super) worker: u64,
    pub(super) connection: Arc<Connection>,
    pub(super) lane: Lane,
    /// Batches that were sent and not taken, and their bytes.
    pub(super) batches: u64,
    pub(super) bytes: u64,
    /// It waits for its next batch.
    pub(super) waits: bool,
    /// Row groups that it was told are lost.
    pub(super) lost: BTreeSet<u32>,
}

impl Member {
    pub(super) fn has_room(&self, batches: u64, bytes: u64, drift: u64, window: u64) -> bool {
        self.batches == 0 || (self.batches + batches <= drift && self.bytes + bytes <= window)
    }

    /// The step of its rank that it takes next, counted over epochs of so many steps.
    pub(super) fn taken(&self, steps: u64) -> u64 {
        self.counted(steps).saturating_sub(self.batches.saturating_mul(workers(&self.lane.sampler)))
    }

    /// The epoch and the step of its rank that it is sent next.
    pub(super) fn sent(&self) -> (u64, u64) {
        self.lane.place()
    }

    /// The step of its rank that it is sent next, counted over epochs of so many steps: a measure of how far ranks are
    /// apart, if it is the same number for all of them.
    fn counted(&self, steps: u64) -> u64 {
        let (epoch, step) = self.sent();
        epoch.saturating_mul(steps).saturating_add(step)
    }
}

impl Inner {
    /// Waits until the engine is to be started; `None` if the reader ends. Says which ranks have which lane.
    pub(super) fn wait_for_ranks(&self) -> Option<(Vec<Lane>, Vec<Vec<u64>>)> {
        let mut roster = self.lock();
        loop {
            if roster.stop {
                return None;
            }
            if roster.members.is_empty() {
                roster.gathering.again = false;
            }
            if !(roster.gathering.new || roster.gathering.again) || roster.members.is_empty() {
                roster = self.changed.wait(roster).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (most, waited) = (self.patience(&roster), roster.gathering.since.elapsed());
            if roster.gathering.again || waited >= most {
                break;
            }
            roster = self.changed.wait_timeout(roster, most - waited).unwrap_or_else(PoisonError::into_inner).0;
        }
        let gathering = &mut roster.gathering;
        (gathering.new, gathering.again, gathering.begun) = (false, false, true);
        Some(roster.lanes())
    }

    /// How long to wait after the last rank has come.
    fn patience(&self, roster: &Roster) -> Duration {
        let most = self.seat.group.wait;
        let few = most.min(STRAGGLERS);
        let ranks = roster.members.values().map(|member| self.seat.group.consumers(&member.lane.sampler)).max();
        if roster.members.len() < ranks.unwrap_or(0) {
            // Whoever was there, and is on the way to another place, has left.
            return if roster.gathering.begun { few } else { most };
        }
        let steps = roster.steps();
        let places = || roster.members.values().map(|member| member.counted(steps));
        let spread = places().max().unwrap_or(0) - places().min().unwrap_or(0);
        // Ranks that are on their way to another place, and have not left the old one yet, are far from the others and
        // do not wait for a batch.
        let workers = roster.members.values().map(|member| workers(&member.lane.sampler)).max().unwrap_or(1);
        let drift = self.seat.group.drift.saturating_mul(workers);
        let are_on_their_way = spread > drift && !roster.members.values().all(|member| member.waits);
        if are_on_their_way { few } else { Duration::ZERO }
    }
}

/// Among how many workers the steps of a rank are dealt.
fn workers(sampler: &DistributedSampler) -> u64 {
    sampler.part_of().map_or(1, |part| part.workers)
}
