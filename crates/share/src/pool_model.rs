//! Every order in which a reader, two consumers, their forked children and the kernel can act on one file of a pool.
//!
//! The reader lends the file twice, to both consumers, as it does with replicas. A consumer takes over what was
//! sent, maps it, closes it and unmaps it. It may die at any time, and so may its child, which has what it had when it
//! forked; so has a child of the reader. Of the kernel there is what `flock` says: a lock is of an open file, and that
//! ends with the last descriptor, message on its way or map that refers to it.

use std::collections::{HashSet, VecDeque};

/// How often the file is lent.
const TIMES: u8 = 2;

/// Who decides that the file is written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    AsBuilt,
    /// Locks are of the one open file that the reader has and sends.
    OneOpenFile,
    /// The reader does not lock what it sends, and consumers do not lock what they map.
    NoSharedLock,
    /// Consumers say that they are done, and a child says nothing.
    ConsumersSay,
}

/// What the reader does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Lock,
    Write,
    Written,
    Open,
    Unlock,
    Share,
    Send(u8),
    Close,
    Done,
}

/// Open files are bits: that of the first time is 1, that of the second 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Process {
    lives: bool,
    unread: u8,
    files: u8,
    maps: u8,
}

const CONSUMERS: [usize; 2] = [0, 1];
const CHILD: usize = 2;
const CHILD_OF_READER: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct World {
    step: Step,
    /// How often the file was written, or is being written for.
    written: u8,
    is_written: bool,
    exclusive: bool,
    shared: u8,
    /// What the reader has open of what it lends.
    open: u8,
    processes: [Process; 4],
    forked: [bool; 2],
}

impl World {
    fn new() -> Self {
        let consumer = Process { lives: true, ..Process::default() };
        let processes = [consumer, consumer, Process::default(), Process::default()];
        Self {
            step: Step::Lock,
            written: 0,
            is_written: false,
            exclusive: false,
            shared: 0,
            open: 0,
            processes,
            forked: [false; 2],
        }
    }

    /// The open files that anything refers to.
    fn referred(&self) -> u8 {
        let all = self.processes.iter().map(|process| process.unread | process.files | process.maps);
        all.fold(self.open, |all, one| all | one)
    }

    /// Takes off the locks of open files that are gone.
    fn collect(mut self) -> Self {
        self.shared &= self.referred();
        self
    }

    /// Whether a map has other bytes than what was sent with its file.
    fn is_broken(&self) -> bool {
        let maps = self.processes.iter().fold(0, |maps, process| maps | process.maps);
        maps != 0 && (self.is_written || maps != 1 << (self.written - 1))
    }

    /// All that can happen next.
    fn next(&self, rule: Rule) -> Vec<World> {
        let mut found: Vec<World> = self.reader(rule).into_iter().collect();
        for (number, process) in self.processes.iter().enumerate().filter(|(_, process)| process.lives) {
            let mut add = |change: &dyn Fn(&mut Process)| {
                let mut world = *self;
                if let Some(process) = world.processes.get_mut(number) {
                    change(process);
                }
                found.push(world);
            };
            let each = |bits: u8| (0..TIMES).map(|time| 1 << time).filter(move |bit| bits & bit != 0);
            for bit in each(process.unread).take(1).filter(|_| number < CHILD) {
                add(&|process| (process.unread, process.files) = (process.unread & !bit, process.files | bit));
            }
            for bit in each(process.files) {
                add(&|process| process.files &= !bit);
            }
            for bit in each(process.maps) {
                add(&|process| process.maps &= !bit);
            }
            // What is unread is kept by whoever has inherited the socket.
            let socket = number == CONSUMERS[0] && self.processes[CHILD].lives;
            add(&|process| {
                *process = Process { unread: if socket { process.unread } else { 0 }, ..Process::default() }
            });
            if number == CHILD
                && !self.processes[CONSUMERS[0]].lives
                && let Some(last) = found.last_mut()
            {
                last.processes[CONSUMERS[0]].unread = 0;
            }
            for bit in each(process.files).filter(|_| number < CHILD) {
                if self.exclusive && rule != Rule::NoSharedLock {
                    // It is refused, and nothing is mapped.
                    continue;
                }
                let mut world = *self;
                world.processes[number].maps |= bit;
                if rule != Rule::NoSharedLock && rule != Rule::OneOpenFile {
                    world.shared |= bit;
                }
                found.push(world);
            }
        }
        if self.processes[CONSUMERS[0]].lives && !self.forked[0] {
            let mut world = *self;
            world.forked[0] = true;
            world.processes[CHILD] = Process { unread: 0, ..self.processes[CONSUMERS[0]] };
            found.push(world);
        }
        if !self.forked[1] {
            let mut world = *self;
            world.forked[1] = true;
            world.processes[CHILD_OF_READER] = Process { lives: true, files: self.open, ..Process::default() };
            found.push(world);
        }
        found.into_iter().map(World::collect).collect()
    }

    fn reader(&self, rule: Rule) -> Option<World> {
        let mut world = *self;
        let bit = 1 << self.written.saturating_sub(1);
        world.step = match self.step {
            Step::Lock => {
                let is_free = match rule {
                    Rule::ConsumersSay => CONSUMERS.iter().all(|number| {
                        let Process { unread, files, maps, .. } = self.processes[*number];
                        unread | files | maps == 0
                    }),
                    _ => self.shared == 0,
                };
                if !is_free {
                    return None;
                }
                world.exclusive = true;
                Step::Write
            }
            Step::Write => {
                (world.written, world.is_written) = (self.written + 1, true);
                Step::Written
            }
            Step::Written => {
                world.is_written = false;
                Step::Open
            }
            Step::Open => {
                world.open = bit;
                Step::Unlock
            }
            Step::Unlock => {
                world.exclusive = false;
                Step::Share
            }
            Step::Share => {
                if !matches!(rule, Rule::NoSharedLock | Rule::OneOpenFile) {
                    world.shared |= bit;
                }
                Step::Send(0)
            }
            Step::Send(to) => {
                let consumer = &mut world.processes[usize::from(to)];
                if consumer.lives {
                    consumer.unread |= bit;
                }
                if to == 0 { Step::Send(1) } else { Step::Close }
            }
            Step::Close => {
                world.open = 0;
                if self.written == TIMES { Step::Done } else { Step::Lock }
            }
            Step::Done => return None,
        };
        Some(world)
    }
}

/// All worlds that there can be, or one in which a map has changed.
fn explore(rule: Rule) -> Result<HashSet<World>, World> {
    let (mut seen, mut left) = (HashSet::from([World::new()]), VecDeque::from([World::new()]));
    while let Some(world) = left.pop_front() {
        if world.is_broken() {
            return Err(world);
        }
        left.extend(world.next(rule).into_iter().filter(|next| seen.insert(*next)));
    }
    Ok(seen)
}

#[test]
fn in_no_order_of_events_is_a_file_written_that_anybody_maps() {
    let worlds = explore(Rule::AsBuilt).unwrap();
    assert!(worlds.len() > 4_000, "{}", worlds.len());
    let maps = |world: &World| world.processes.map(|process| process.maps != 0);
    assert!(worlds.iter().any(|world| world.written == TIMES && maps(world) == [true, true, true, false]));
    for world in &worlds {
        // Nobody is refused who maps what was sent, and the reader goes on once nobody has the file.
        let sent = CONSUMERS.iter().any(|number| world.processes[*number].files != 0);
        assert!(!(sent && world.exclusive), "{world:?}");
        let waits = world.step == Step::Lock && world.reader(Rule::AsBuilt).is_none();
        assert!(!waits || world.referred() != 0, "{world:?}");
    }
}

#[test]
fn other_rules_are_found_to_be_wrong() {
    for rule in [Rule::OneOpenFile, Rule::NoSharedLock, Rule::ConsumersSay] {
        assert!(explore(rule).is_err(), "{rule:?}");
    }
}
