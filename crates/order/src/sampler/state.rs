//! Where a run stands, so that it can go on elsewhere.

use std::fmt;
use std::str::FromStr;

use xxhash_rust::xxh3::xxh3_64;

use super::deal::{BUCKETS, PACKS};
use super::plan::steps_done;
use super::{DistributedSampler, ReplicationLayout, Shard, Tail, after};
use crate::{Cost, Outline, Pack};
use rowdex_base::error::{Error, ErrorKind, Result};

/// The kind of plan of batches of rows.
pub(super) const ROWS: &str = "rows";

const V1: &str = "rowdex-state-v1";
const V2: &str = "rowdex-state-v2";

/// Where a run stands: everything before is served, nothing after.
///
/// It belongs to the run, not to a rank: every rank has the same state after the same step, and any number of ranks
/// with any batch size can resume from it.
///
/// Written and parsed as one line of printable ASCII that no shell changes, of fields with colons between them:
/// `rowdex-state-v2:<fingerprint>:<epoch>:<consumed>:rows:<order>:<deal>:<check>`. Fingerprint and check are 16
/// hexadecimal digits, epoch and consumed are decimal, `rows`, `packs` or `buckets` is the kind of plan, order is an
/// [`Outline`], and deal says how its positions were assigned ([`Run`]). The check is xxh3-64 of all that comes before
/// its colon. States of version 1, which end after `consumed`, are parsed, too, and written as they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    /// [`Order::fingerprint`](crate::Order::fingerprint) of the run: its order, length and seed.
    pub fingerprint: u64,
    /// The epoch to resume in.
    pub epoch: u64,
    /// How many positions of that epoch's order are served, counted over all ranks: rows, or pieces of packs.
    pub consumed: u64,
    /// What the run was; nothing in a state of version 1. Resuming does not ask for it.
    pub run: Option<Run>,
}

/// What a run was when it wrote a [`State`]: with the rows, all that is needed to say which of them it served when.
///
/// Written and parsed as words with commas between them, `8x256,drop,replicas-2,strided,drop-last-batch,from-4096`: 8
/// ranks with batches of 256, and what is not the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Run {
    /// What its orders are made of, but for [rotation](DistributedSampler::with_rotation).
    pub order: Outline,
    /// Which ranks there were, of which it is the first; and what became of rows that do not divide evenly.
    pub shard: Shard,
    /// Rows, or packs, per step and rank: the most at a step.
    pub batch_size: u64,
    /// Whether a short last batch was left out.
    pub drop_last_batch: bool,
    /// By which cost the packs of a step were assigned, if they were.
    pub cost: Option<Cost>,
    /// How many rows a step of all ranks had in the world that began the epoch, for which its buckets are cut: where
    /// that is not this world's number.
    pub step: Option<u64>,
    /// The position of the state's epoch at which this world took over from another one, or began: mostly 0.
    pub start: u64,
    /// What sort of batches it had.
    kind: &'static str,
}

impl DistributedSampler {
    /// Where the run stands before the current epoch's first batch.
    pub fn state(&self) -> State {
        self.state_at(self.epoch, self.start(self.epoch))
    }

    /// Where the run stands once every rank is done with this step: the same on all of them. After an epoch's last step
    /// that is the beginning of the next epoch.
    ///
    /// # Errors
    ///
    /// `OutOfRange` if the epoch has no such step left.
    pub fn state_after(&self, epoch: u64, step: u64) -> Result<State> {
        let whole = self.whole(epoch)?;
        let left = self.left(epoch)?;
        let done = steps_done(&whole, &left, step)? + 1;
        let (epoch, consumed) = if done == left.steps() {
            (after(epoch)?, 0)
        } else {
            // No overflow: another step follows, so this is the position of a sample.
            (epoch, self.start(epoch) + left.served(done)?)
        };
        Ok(self.state_at(epoch, consumed))
    }

    /// Where the world of this sampler began to serve the epoch of a state that it goes on from.
    pub(super) fn took_over(&self, state: &State) -> u64 {
        let batch_size = self.batch_size();
        let goes_on = match state.run {
            Some(run) => {
                (run.shard.count(), run.batch_size, run.shard.tail(), run.drop_last_batch)
                    == (self.shard.count(), batch_size, self.shard.tail(), self.drop_last_batch)
            }
            // Nobody knows; but steps of this world can have ended there.
            None => state.consumed.is_multiple_of(batch_size.saturating_mul(self.shard.count().into())),
        };
        if goes_on { state.run.map_or(0, |run| run.start) } else { state.consumed }
    }

    /// How many rows a step had in the world that began the epoch of a state, where its order depends on that; else 0.
    pub(super) fn step_of(&self, state: &State) -> Result<u64> {
        let Some(own) = self.bucket_step() else { return Ok(0) };
        let of_run = |run: Run| run.step.unwrap_or_else(|| run.batch_size.saturating_mul(run.shard.count().into()));
        let step = state.run.map_or(own, of_run);
        if (1..=Pack::MAX_BLOCK).contains(&step) {
            return Ok(step);
        }
        Err(Error::invalid(format!("the state is of buckets of rows in steps of {step}"))
            .with_hint("copy the whole line, or resume from another checkpoint"))
    }

    /// Refuses the state of a run of another kind. Those of version 1 are all of rows.
    pub(super) fn check_kind(&self, state: &State) -> Result<()> {
        let kind = state.run.map_or(ROWS, |run| run.kind);
        let own = self.kind();
        if kind == own {
            return Ok(());
        }
        let message = format!("the state is of a plan of {kind}, and this sampler has a plan of {own}");
        Err(Error::new(ErrorKind::StateMismatch, message).with_hint("make the sampler like that of the run"))
    }

    fn state_at(&self, epoch: u64, consumed: u64) -> State {
        let resumed = self.resumed.filter(|resumed| resumed.epoch == epoch);
        let own = self.bucket_step();
        let run = Run {
            order: self.given.outline(),
            shard: self.shard.first(),
            batch_size: self.batch_size,
            drop_last_batch: self.drop_last_batch,
            cost: self.cost(),
            step: resumed.map(|resumed| resumed.step).filter(|step| own.is_some_and(|own| own != *step)),
            start: resumed.map_or(0, |resumed| resumed.took_over),
            kind: self.kind(),
        };
        State { fingerprint: self.orders.fingerprint_before(epoch, consumed), epoch, consumed, run: Some(run) }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shard = &self.shard;
        write!(f, "{}x{}", shard.world_size(), self.batch_size)?;
        if shard.tail() != Tail::default() {
            write!(f, ",{}", shard.tail())?;
        }
        if shard.replicas() != 1 {
            write!(f, ",replicas-{}", shard.replicas())?;
        }
        if shard.layout() != ReplicationLayout::default() {
            write!(f, ",{}", shard.layout())?;
        }
        if self.drop_last_batch {
            f.write_str(",drop-last-batch")?;
        }
        if let Some(cost) = self.cost {
            write!(f, ",cost-{cost}")?;
        }
        if let Some(step) = self.step {
            write!(f, ",steps-{step}")?;
        }
        if self.start > 0 {
            write!(f, ",from-{}", self.start)?;
        }
        Ok(())
    }
}

impl Run {
    /// Whether its batches were planned by lengths: packs, or buckets.
    pub fn has_packs(&self) -> bool {
        self.kind != ROWS
    }

    /// Whether they were buckets of rows.
    pub fn has_buckets(&self) -> bool {
        self.kind == BUCKETS
    }

    /// What is written so; it may be written in another way, too.
    fn parse(kind: &'static str, order: &str, deal: &str) -> Option<Self> {
        let mut words = deal.split(',');
        let (world_size, batch_size) = words.next()?.split_once('x')?;
        let mut tail = Tail::default();
        let mut replicas = 1;
        let mut layout = ReplicationLayout::default();
        let mut run = Self {
            order: Outline::parse(order)?,
            shard: Shard::new(0, world_size.parse().ok()?).ok()?,
            batch_size: batch_size.parse().ok()?,
            drop_last_batch: false,
            cost: None,
            step: None,
            start: 0,
            kind,
        };
        for word in words {
            match word.split_once('-') {
                Some(("replicas", given)) => replicas = given.parse().ok()?,
                Some(("cost", cost)) => run.cost = Some(cost.parse().ok()?),
                Some(("steps", step)) => run.step = Some(step.parse().ok()?),
                Some(("from", start)) => run.start = start.parse().ok()?,
                Some(_) if word == "drop-last-batch" => run.drop_last_batch = true,
                _ => match word.parse() {
                    Ok(given) => tail = given,
                    Err(_) => layout = word.parse().ok()?,
                },
            }
        }
        run.shard = run.shard.with_tail(tail).with_replication(replicas, layout).ok()?;
        Some(run)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fingerprint, epoch, consumed, run } = self;
        let Some(run) = run else { return write!(f, "{V1}:{fingerprint:016x}:{epoch}:{consumed}") };
        let text = format!("{V2}:{fingerprint:016x}:{epoch}:{consumed}:{}:{}:{run}", run.kind, run.order);
        write!(f, "{text}:{:016x}", xxh3_64(text.as_bytes()))
    }
}

impl FromStr for State {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let state = match text.split_once(':') {
            Some((V1, place)) => Self::place(place),
            Some((V2, _)) => checked(text)?,
            _ => None,
        };
        // Writing it again refuses signs, leading zeros and anything after the last field in one go.
        state.filter(|state| state.to_string() == text).ok_or_else(|| {
            Error::invalid(format!("{text:?} is not the state of a sampler")).with_hint(
                "a state is one line and reads rowdex-state-v2:..., or rowdex-state-v1:... of earlier versions",
            )
        })
    }
}

impl State {
    /// Three fields, and a state that says no more.
    fn place(text: &str) -> Option<Self> {
        let mut fields = text.split(':');
        let fingerprint = u64::from_str_radix(fields.next()?, 16).ok()?;
        let epoch = fields.next()?.parse().ok()?;
        Some(Self { fingerprint, epoch, consumed: fields.next()?.parse().ok()?, run: None })
    }
}

/// A state of version 2, of which every character counts.
fn checked(text: &str) -> Result<Option<State>> {
    let Some((said, check)) = text.rsplit_once(':') else { return Ok(None) };
    if format!("{:016x}", xxh3_64(said.as_bytes())) != check {
        return Err(Error::invalid(format!(
            "{text:?} is not as it was written: its last field does not match the others"
        ))
        .with_hint("copy the whole line, or resume from another checkpoint"));
    }
    let mut fields = said.split(':').skip(4);
    let Some(plan) = fields.next() else { return Ok(None) };
    let Some(kind) = [ROWS, PACKS, BUCKETS].into_iter().find(|kind| *kind == plan) else {
        let known = format!("{ROWS}, {PACKS} and {BUCKETS}");
        return Err(newer(format!("a state of a plan of {plan}, and this version has plans of {known}")));
    };
    let run = fields.next().zip(fields.next()).filter(|_| fields.next().is_none());
    let run = run.and_then(|(order, deal)| Run::parse(kind, order, deal));
    let run = run.ok_or_else(|| newer(format!("{text:?} says more than this version knows")))?;
    let place = said.strip_prefix(V2).and_then(|rest| State::place(rest.strip_prefix(':')?));
    Ok(place.map(|state| State { run: Some(run), ..state }))
}

fn newer(message: String) -> Error {
    Error::invalid(message).with_hint("use the version of rowdex that wrote it, or a later one")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Contiguous, Global, Sequential};

    const FIRST: &str = "rowdex-state-v1:0000000000000abc:12:34560";

    fn sampler(seed: u64) -> DistributedSampler {
        let orders = Arc::new(Global::new(1_000_000, seed).unwrap());
        DistributedSampler::new(orders, Shard::new(3, 8).unwrap(), 256).unwrap()
    }

    /// With its right check.
    fn written(text: &str) -> String {
        format!("{text}:{:016x}", xxh3_64(text.as_bytes()))
    }

    #[test]
    fn a_state_of_version_1_is_parsed_as_it_is_written() {
        let state = State { fingerprint: 0xabc, epoch: 12, consumed: 34_560, run: None };
        assert_eq!(state.to_string(), FIRST);
        let extreme = State { fingerprint: u64::MAX, epoch: u64::MAX, consumed: u64::MAX, run: None };
        for state in [state, extreme, State { fingerprint: 0, epoch: 0, consumed: 0, run: None }] {
            assert_eq!(state.to_string().parse::<State>().unwrap(), state);
        }
    }

    /// Changing these refuses states that people have saved.
    #[test]
    fn states_of_version_2_are_frozen() {
        let golden = |state: State, text: &str| {
            assert_eq!(state.to_string(), text);
            assert_eq!(text.parse::<State>().unwrap(), state);
        };
        golden(sampler(42).state(), "rowdex-state-v2:fea8faa353f26a03:0:0:rows:global,seed-42:8x256:4fca29ef7a753cad");
        golden(
            sampler(42).state_after(2, 7).unwrap(),
            "rowdex-state-v2:fea8faa353f26a03:2:16384:rows:global,seed-42:8x256:66e1b20188e98750",
        );
        let orders = Contiguous::new(Arc::new(Sequential::new(1000).unwrap()), 4).unwrap();
        let shard =
            Shard::new(0, 8).unwrap().with_tail(Tail::Drop).with_replication(2, ReplicationLayout::Strided).unwrap();
        let of = |batch| DistributedSampler::new(Arc::new(orders.clone()), shard, batch).unwrap();
        let sampler = of(10);
        let mut resumed = of(7).with_drop_last_batch(true);
        resumed.resume(&sampler.state_after(1, 3).unwrap()).unwrap();
        golden(
            resumed.state_after(1, 5).unwrap(),
            "rowdex-state-v2:5246ced47ea3b753:1:188:rows:sequential,pieces-4:\
             8x7,drop,replicas-2,strided,drop-last-batch,from-160:f50b22cb16d2e5a5",
        );
    }

    #[test]
    fn ranks_have_the_same_state_and_worlds_that_took_over_say_where() {
        let first = sampler(1);
        let other = first.with_shard(Shard::new(7, 8).unwrap()).unwrap();
        assert_eq!(first.state_after(4, 9).unwrap(), other.state_after(4, 9).unwrap());
        let state = first.state_after(4, 9).unwrap();
        // Who goes on as the run was is of the same run.
        let mut same = sampler(1);
        same.resume(&state).unwrap();
        assert_eq!((same.state(), same.state_after(4, 12).unwrap()), (state, first.state_after(4, 12).unwrap()));
        same.resume(&State { run: None, ..state }).unwrap();
        assert_eq!(same.state(), state);
        let mut fewer = DistributedSampler::new(first.orders().clone(), Shard::new(0, 3).unwrap(), 100).unwrap();
        fewer.resume(&state).unwrap();
        let steps = fewer.steps();
        let first_left = steps - fewer.steps_left();
        let run = fewer.state_after(4, first_left).unwrap().run.unwrap();
        assert_eq!((run.shard.world_size(), run.batch_size, run.start), (3, 100, state.consumed));
        assert_eq!(fewer.state_after(4, steps - 1).unwrap().run.unwrap().start, 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "tries too many texts for Miri")]
    fn no_changed_character_is_taken() {
        for state in [sampler(42).state_after(1, 41).unwrap(), sampler(u64::MAX).state()] {
            let text = state.to_string();
            assert!(text.len() < 128, "callers that were compiled for version 1 have no more room: {text}");
            for at in 0..text.len() {
                for other in (b' '..=b'~').filter(|other| *other != text.as_bytes()[at]) {
                    let mut changed = text.clone().into_bytes();
                    changed[at] = other;
                    let changed = String::from_utf8(changed).unwrap();
                    assert!(changed.parse::<State>().is_err(), "{changed}");
                }
                assert!(text[..at].parse::<State>().is_err() && text[at + 1..].parse::<State>().is_err());
            }
        }
    }

    #[test]
    fn the_longest_state_fits_what_the_header_says() {
        let shard = Shard::new(0, u32::MAX).unwrap().with_tail(Tail::Uneven);
        let text = format!("weighted-once,seed-{0},kept,size-{0},paired,pieces-{1}", u64::MAX, u32::MAX);
        let run = Run {
            order: Outline::parse(&text).unwrap(),
            shard: shard.with_replication(u32::MAX, ReplicationLayout::Strided).unwrap(),
            batch_size: u64::MAX,
            drop_last_batch: true,
            cost: Some(Cost { linear: u64::MAX, quadratic: u64::MAX }),
            step: Some(u64::MAX),
            start: u64::MAX,
            kind: PACKS,
        };
        let state = State { fingerprint: u64::MAX, epoch: u64::MAX, consumed: u64::MAX, run: Some(run) };
        let text = state.to_string();
        assert!(text.len() + 32 < 512, "{text}");
        assert_eq!(text.parse::<State>().unwrap(), state);
    }

    #[test]
    fn what_a_later_version_may_write_is_refused_by_name() {
        for (text, word) in [
            ("rowdex-state-v2:0000000000000abc:1:2:heaps:global,seed-1:8x256", "heaps"),
            ("rowdex-state-v2:0000000000000abc:1:2:rows:spiral,seed-1:8x256", "spiral"),
            ("rowdex-state-v2:0000000000000abc:1:2:rows:global,seed-1:8x256,backwards", "backwards"),
            ("rowdex-state-v2:0000000000000abc:1:2:rows:global,seed-1:8x256:more", "more"),
        ] {
            let error = written(text).parse::<State>().unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("version of rowdex"), "{error}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let twice = "rowdex-state-v2:0000000000000abc:12:34560:rows:global,seed-042:8x256";
        for text in [
            "",
            "rowdex-state-v1",
            "rowdex-state-v2",
            "rowdex-state-v2:0000000000000abc:12:34560",
            "rowdex-state-v3:0000000000000abc:12:34560",
            &written("rowdex-state-v2:0000000000000abc:12:34560"),
            &written(twice),
            &written("rowdex-state-v2:0000000000000abc:012:34560:rows:global,seed-42:8x256"),
            "rowdex-state-v1:abc:12:34560",
            "rowdex-state-v1:0000000000000ABC:12:34560",
            "rowdex-state-v1:+000000000000abc:12:34560",
            "rowdex-state-v1:0000000000000abc:+12:34560",
            "rowdex-state-v1:0000000000000abc:012:34560",
            "rowdex-state-v1:0000000000000abc:12:-1",
            "rowdex-state-v1:0000000000000abc:12:18446744073709551616",
            "rowdex-state-v1:0000000000000abc:12",
            "rowdex-state-v1:0000000000000abc:12:34560:",
            "rowdex-state-v1:0000000000000abc:12:34560\n",
            "rowdex-state-v1:0000000000000é:12:34560",
        ] {
            assert_eq!(text.parse::<State>().unwrap_err().kind(), ErrorKind::InvalidArgument, "{text:?}");
        }
    }
}
