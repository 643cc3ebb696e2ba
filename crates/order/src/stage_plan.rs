//! Which weights the sources of a mixture have, from which position of the run on, and where sources end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::quotas::Quotas;
use super::stages::StageSpan;
use super::{MAX_LEN, fingerprint};
use rowdex_base::error::{Error, Result};

/// Of how many steps a linear change consists at most.
const RAMP_STEPS: u64 = 256;

/// How the weights of a mixture change in the course of a run, see [`Staged`](super::Staged).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagePlan {
    /// The name of each source, in the order of the datasets.
    pub sources: Vec<String>,
    /// The first position of each stage, counted through all epochs, and the weights from there on, in relation to each
    /// other. The first stage begins at 0.
    pub stages: Vec<(u64, BTreeMap<String, f64>)>,
    /// How weights become those of the next stage.
    #[serde(default)]
    pub ramp: Ramp,
    /// What happens when a source has been served as often as it may be.
    #[serde(default)]
    pub on_exhausted: OnExhausted,
    /// How often all rows of a source may be served.
    #[serde(default)]
    pub repetitions: BTreeMap<String, f64>,
}

/// How weights become those of the next stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ramp {
    /// At once, where it begins.
    #[default]
    Step,
    /// Linearly, over the whole stage before, in up to 256 equal steps.
    Linear,
}

/// What happens when a source has been served as often as it may be: as its repetitions say, or once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnExhausted {
    /// As [`Renormalise`](Self::Renormalise), and sources without repetitions repeat without end.
    #[default]
    Repeat,
    /// The others continue with the weights they have.
    Renormalise,
    /// The run ends.
    Stop,
}

/// A plan for sources of known sizes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StageSchedule {
    pub(super) spans: Vec<StageSpan>,
    /// Sources that end, and before which position that is.
    pub(super) ends: Vec<(usize, u64)>,
    /// The first position that there is not.
    pub(super) end: u64,
}

impl StageSchedule {
    /// The part of the run that a position is in: of a position where two meet, the later one.
    pub(super) fn span(&self, position: u64) -> &StageSpan {
        &self.spans[self.spans.partition_point(|span| span.start <= position) - 1]
    }
}

impl StagePlan {
    /// Where everything comes, if the sources have so many rows in a pass and orders with these fingerprints.
    pub(super) fn schedule(&self, rows: &[u64], orders: &[u64], seed: u64) -> Result<StageSchedule> {
        self.check(rows)?;
        let mut schedule = StageSchedule { spans: Vec::new(), ends: Vec::new(), end: MAX_LEN };
        let limits: Vec<u64> = self.sources.iter().zip(rows).map(|(name, rows)| self.limit(name, *rows)).collect();
        let mut by_name: Vec<usize> = (0..rows.len()).collect();
        by_name.sort_by_key(|source| &self.sources[*source]);
        let mut before = vec![0; rows.len()];
        let mut debts = vec![0; rows.len()];
        let mut digest = seed;
        for (mut start, until, weights) in self.steps() {
            while start < until {
                let is_served = |source: &usize| weights[*source] > 0.0 && before[*source] < limits[*source];
                let sources: Vec<usize> = by_name.iter().copied().filter(is_served).collect();
                if sources.is_empty() {
                    schedule.end = start;
                    return Ok(schedule);
                }
                let shares: Vec<f64> = sources.iter().map(|source| weights[*source]).collect();
                let quotas = Quotas::new(&shares, "source")?;
                let mut parameters = vec![digest];
                for (source, share) in sources.iter().zip(quotas.as_slice()) {
                    let name = xxh3_64(self.sources[*source].as_bytes());
                    parameters.extend([name, rows[*source], orders[*source], *share]);
                }
                digest = fingerprint("stage", start, &parameters);
                let mut span = StageSpan::new(start, sources.clone(), &quotas, before, &debts, digest, seed);
                let ended = |position| {
                    let counts = span.counts(position);
                    sources.iter().copied().find(|source| counts[*source] >= limits[*source])
                };
                let mut end = until;
                if ended(until).is_some() {
                    // The first position before which a source has all that it may have.
                    while end - start > 1 {
                        let middle = u64::midpoint(start, end);
                        if ended(middle).is_some() { end = middle } else { start = middle }
                    }
                }
                let ended = ended(end);
                start = end;
                before = span.finish(end, &quotas, &mut debts);
                schedule.spans.push(span);
                schedule.ends.extend(ended.map(|source| (source, end)));
                if self.on_exhausted == OnExhausted::Stop && ended.is_some() {
                    schedule.end = end;
                    return Ok(schedule);
                }
            }
        }
        Ok(schedule)
    }

    /// Stretches of the run with equal weights: their positions, and the weight of each source.
    fn steps(&self) -> Vec<(u64, u64, Vec<f64>)> {
        let shares = |(_, weights): &(u64, BTreeMap<String, f64>)| -> Vec<f64> {
            let sum: f64 = weights.values().sum();
            self.sources.iter().map(|name| weights.get(name).map_or(0.0, |weight| weight / sum)).collect()
        };
        let starts = self.stages.iter().map(|stage| stage.0);
        let ends = starts.clone().skip(1).chain([MAX_LEN]);
        let weights: Vec<Vec<f64>> = self.stages.iter().map(shares).collect();
        let mut steps = Vec::new();
        for (number, (start, end)) in starts.zip(ends).enumerate() {
            let here = &weights[number];
            let next = weights.get(number + 1).filter(|_| self.ramp == Ramp::Linear);
            let positions = end - start;
            let count = if next.is_some() { RAMP_STEPS.min(positions) } else { 1 };
            let place = |step: u64| (u128::from(positions) * u128::from(step) / u128::from(count)) as u64;
            for step in 0..count {
                let from = place(step);
                let to = place(step + 1);
                let middle = (from + to) as f64 / 2.0 / positions as f64;
                let towards = here.iter().zip(next.unwrap_or(here));
                let changed = towards.map(|(here, next)| here + (next - here) * middle).collect();
                steps.push((start + from, start + to, changed));
            }
        }
        steps
    }

    /// How many rows a source may serve.
    fn limit(&self, name: &str, rows: u64) -> u64 {
        match self.repetitions.get(name) {
            Some(repetitions) => (rows as f64 * repetitions) as u64,
            None if self.on_exhausted == OnExhausted::Repeat => u64::MAX,
            None => rows,
        }
    }

    fn check(&self, rows: &[u64]) -> Result<()> {
        if self.sources.len() != rows.len() {
            return Err(Error::invalid(format!("{} names of sources for {} datasets", self.sources.len(), rows.len())));
        }
        let named = |name: &str| self.sources.iter().position(|source| source == name);
        if let Some(name) = self.sources.iter().enumerate().find(|(number, name)| named(name) != Some(*number)) {
            return Err(Error::invalid(format!("two sources are called {:?}", name.1)));
        }
        let mut next = 0;
        for (number, (start, weights)) in self.stages.iter().enumerate() {
            let invalid = |message: String| Error::invalid(format!("stage {number} {message}"));
            if *start < next || *start >= MAX_LEN || number == 0 && *start > 0 {
                return Err(invalid(format!("begins at position {start}"))
                    .with_hint("the first stage begins at 0, and each of the others after the one before it"));
            }
            next = start + 1;
            for (name, weight) in weights {
                let Some(source) = named(name) else {
                    return Err(invalid(format!("has a weight for {name:?}"))
                        .with_hint(format!("the sources are {}", self.sources.join(", "))));
                };
                if !weight.is_finite() || *weight < 0.0 || *weight > 0.0 && rows[source] == 0 {
                    return Err(invalid(format!("gives {name:?}, of {} rows, the weight {weight}", rows[source]))
                        .with_hint("weights are finite and not negative; 0 leaves out, as it must what has no rows"));
                }
            }
            let sum: f64 = weights.values().sum();
            if sum == 0.0 || !sum.is_finite() {
                return Err(invalid(format!("has weights whose sum is {sum}")));
            }
        }
        if next == 0 {
            return Err(Error::invalid("a mixture without stages"));
        }
        for (name, repetitions) in &self.repetitions {
            if named(name).is_none() || !repetitions.is_finite() || *repetitions <= 0.0 {
                return Err(Error::invalid(format!("{name:?} has the repetitions {repetitions}"))
                    .with_hint("use the name of a source, and a number above 0, as 4.0 for four passes"));
            }
        }
        Ok(())
    }
}
