use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::quotas::Quotas;
use crate::{Global, OnExhausted, Ramp, conformance};

type Weights<'a> = &'a [(&'a str, f64)];

fn plan(sources: &[&str], stages: &[(u64, Weights<'_>)]) -> StagePlan {
    let weights = |weights: Weights<'_>| weights.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
    StagePlan {
        sources: sources.iter().map(|name| (*name).to_owned()).collect(),
        stages: stages.iter().map(|(start, given)| (*start, weights(given))).collect(),
        ramp: Ramp::Step,
        on_exhausted: OnExhausted::Repeat,
        repetitions: BTreeMap::new(),
    }
}

fn random_plan(weights: &[Vec<u8>], spans: &[u64], sources: usize) -> StagePlan {
    let names: Vec<String> = (0..sources).map(|number| format!("{number}")).collect();
    let mut start = 0;
    let mut stages = Vec::new();
    for (weights, span) in weights.iter().zip(spans) {
        let mut cubes: BTreeMap<String, f64> =
            names.iter().cloned().zip(weights.iter().map(|weight| f64::from(*weight).powi(3))).collect();
        *cubes.get_mut("0").unwrap() += 1e-6;
        stages.push((start, cubes));
        start += span;
    }
    StagePlan { sources: names, stages, ..plan(&[], &[]) }
}

fn staged(plan: &StagePlan, rows: &[u64], len: u64) -> Result<Staged> {
    let orders =
        plan.sources.iter().zip(rows).map(|(name, rows)| -> Arc<dyn Order> {
            Arc::new(Global::new(*rows, u64::from(name.as_bytes()[0])).unwrap())
        });
    Staged::new(plan, orders.collect(), rows, len, 42)
}

/// The source of each position of the run, and its row there.
fn served(plan: &StagePlan, rows: &[u64], len: u64, epochs: u64) -> Vec<(String, u64)> {
    let staged = staged(plan, rows, len).unwrap();
    let mut ids = vec![0; len as usize];
    let mut all = Vec::new();
    for epoch in 0..epochs {
        assert_eq!(staged.epoch(epoch).unwrap().fill(0, &mut ids), ids.len());
        for id in &ids {
            let source = staged.parts.partition_point(|part| part.first <= *id) - 1;
            all.push((plan.sources[source].clone(), id - staged.parts[source].first));
        }
    }
    all
}

/// How many rows each source has exactly before a position: whole ones by integers, so that 10^12 are no less exact.
fn exact(plan: &StagePlan, position: u64) -> Vec<f64> {
    let mut counts = vec![0.0; plan.sources.len()];
    for (number, (start, weights)) in plan.stages.iter().enumerate() {
        let end = plan.stages.get(number + 1).map_or(position, |next| next.0.min(position));
        let weights: Vec<f64> = plan.sources.iter().map(|name| weights[name]).collect();
        let quotas = Quotas::new(&weights, "source").unwrap();
        let total: u128 = quotas.as_slice().iter().map(|share| u128::from(*share)).sum();
        for (count, share) in counts.iter_mut().zip(quotas.as_slice()) {
            let product = u128::from(end.saturating_sub(*start)) * u128::from(*share);
            *count += (product / total) as f64 + (product % total) as f64 / total as f64;
        }
    }
    counts
}

fn check(plan: &StagePlan, counts: &[u64], position: u64) {
    assert_eq!(counts.iter().sum::<u64>(), position);
    let depth = usize::BITS - (counts.len() - 1).leading_zeros();
    let most = if depth < 2 { 1.0 } else { f64::from(depth + 1) };
    for (count, exact) in counts.iter().zip(exact(plan, position)) {
        assert!((*count as f64 - exact).abs() < most + 1e-3, "{count} of {exact} at {position}");
    }
}

proptest! {
    #[test]
    fn counts_follow_the_weights_at_every_position(
        weights in prop::collection::vec(prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 20), 1..6),
        sources in prop_oneof![Just(2), 1_usize..20], spans in prop::collection::vec(1_u64..150, 6), seed: u64,
    ) {
        let plan = random_plan(&weights, &spans, sources);
        let rows = vec![1 << 40; sources];
        let schedule = plan.schedule(&rows, &rows, seed).unwrap();
        let mut counts = vec![0; sources];
        for position in 0..plan.stages.last().unwrap().0 + 200 {
            prop_assert_eq!(&schedule.span(position).counts(position), &counts);
            check(&plan, &counts, position);
            let mut place = [StagePlace { slot: 0, rows: position }];
            schedule.span(position).assign(&mut place, &mut [StagePlace::default()], &mut |source, places| {
                assert_eq!(places[0].rows, counts[source]);
                counts[source] += 1;
            });
        }
    }

    #[test]
    fn counts_follow_the_weights_in_the_longest_runs(
        weights in prop::collection::vec(prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 50), 10),
        sources in prop_oneof![Just(2), 1_usize..=50], spans in prop::collection::vec(1_u64..100_000_000_000, 10),
        places in prop::collection::vec(0..1_000_000_000_000_u64, 20), seed: u64,
    ) {
        let plan = random_plan(&weights, &spans, sources);
        let rows = vec![1 << 40; sources];
        let schedule = plan.schedule(&rows, &rows, seed).unwrap();
        for position in places {
            check(&plan, &schedule.span(position).counts(position), position);
        }
    }

    #[test]
    fn the_contract_is_kept(
        weights in prop::collection::vec(prop::collection::vec(any::<u8>(), 6), 1..4),
        rows in prop::collection::vec(20_u64..60, 1..6), len in 60_u64..200,
    ) {
        let plan = random_plan(&weights, &[100, 70, 90], rows.len());
        conformance::check(&staged(&plan, &rows, len).unwrap(), [0, 3]).unwrap();
    }
}

#[test]
fn each_source_ends_after_exactly_what_it_may_serve() {
    let given = plan(&["a", "b", "c"], &[(0, &[("a", 0.5), ("b", 0.3), ("c", 0.2)]), (40, &[("a", 1.0), ("c", 0.1)])]);
    let rows = [60, 50, 20];
    let mut counts = BTreeMap::new();
    let once = StagePlan { on_exhausted: OnExhausted::Renormalise, ..given.clone() };
    // No stage wants the rest of b.
    let all = staged(&once, &rows, 1).unwrap();
    let end = all.schedule.end;
    for row in served(&once, &rows, end, 1) {
        *counts.entry(row).or_insert(0) += 1;
    }
    assert!(counts.values().all(|times| *times == 1));
    assert_eq!(all.before(end), [60, end - 80, 20]);
    assert_eq!(all.ends().iter().map(|(source, _)| *source).collect::<Vec<_>>(), [0, 2]);
    let repetitions = BTreeMap::from([("a".to_owned(), 2.5)]);
    let more = staged(&StagePlan { repetitions, ..given.clone() }, &rows, 10_000).unwrap();
    let (source, position) = more.ends()[0];
    assert_eq!((source, more.before(position)[0], more.before(position - 1)[0]), (0, 150, 149));
    let stop = StagePlan { on_exhausted: OnExhausted::Stop, ..given };
    let error = staged(&stop, &rows, 1000).unwrap_err();
    assert!(error.to_string().contains("goes beyond position 84"), "{error}");
    let stopped = staged(&stop, &rows, 70).unwrap();
    assert_eq!(stopped.epoch(1).unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[test]
fn other_futures_and_other_sources_change_nothing_before() {
    let first: (u64, Weights<'_>) = (0, &[("web", 0.7), ("code", 0.3)]);
    let one = plan(&["web", "code"], &[first, (300, &[("code", 1.0)])]);
    let other = plan(&["math", "code", "web"], &[first, (250, &[("math", 0.5), ("web", 0.5)])]);
    let ours = served(&one, &[90, 70], 100, 4);
    let theirs = served(&other, &[33, 70, 90], 100, 4);
    assert_eq!(ours[..250], theirs[..250]);
    assert_ne!(ours[250..], theirs[250..]);
    let [ours, theirs] =
        [(one, vec![90, 70]), (other, vec![33, 70, 90])].map(|(plan, rows)| staged(&plan, &rows, 100).unwrap());
    for (epoch, position, same) in [(0, 0, true), (2, 50, true), (2, 51, false), (3, 0, false)] {
        assert_eq!(ours.fingerprint_before(epoch, position) == theirs.fingerprint_before(epoch, position), same);
    }
    assert_ne!(ours.fingerprint(), theirs.fingerprint());
    let larger = staged(&plan(&["web", "code"], &[first]), &[91, 70], 100).unwrap();
    assert_ne!(larger.fingerprint_before(0, 1), ours.fingerprint_before(0, 1));
    assert_eq!(larger.fingerprint_before(0, 0), ours.fingerprint_before(0, 0));
}

#[test]
fn weights_change_linearly_along_a_ramp() {
    let stages: &[(u64, Weights<'_>)] = &[(0, &[("a", 1.0)]), (1000, &[("b", 4.0)])];
    let ramp = StagePlan { ramp: Ramp::Linear, ..plan(&["a", "b"], stages) };
    let ramp = staged(&ramp, &[100, 100], 100).unwrap();
    for position in 0..1000 {
        let exact = (position * position) as f64 / 2000.0;
        assert!(
            (ramp.before(position)[1] as f64 - exact).abs() <= 1.01,
            "{position}: {:?} of {exact}",
            ramp.before(position)
        );
    }
    assert_eq!(ramp.before(3000)[0], ramp.before(1000)[0]);
}

#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn each_rank_has_its_share_of_every_source() {
    let shares = [("a", 0.5), ("b", 0.25), ("c", 0.125), ("d", 0.125)];
    let sources: Vec<String> = served(&plan(&["a", "b", "c", "d"], &[(0, &shares)]), &[9; 4], 100_000, 1)
        .into_iter()
        .map(|row| row.0)
        .collect();
    for world in [1, 2, 4, 8, 64] {
        for rank in 0..world {
            let own: Vec<&String> = sources.iter().skip(rank).step_by(world).collect();
            for (name, share) in shares {
                let n = own.len() as f64;
                let found = own.iter().filter(|source| **source == name).count() as f64;
                let z = (found - n * share) / (n * share * (1.0 - share)).sqrt();
                assert!(z.abs() < 5.0, "{name} on rank {rank} of {world}: {z}");
            }
        }
    }
}

#[test]
fn plans_that_cannot_be_are_refused_by_name() {
    let refused = |stages: &[(u64, Weights<'_>)], word: &str| {
        let error = staged(&plan(&["web", "code", "none"], stages), &[5, 5, 0], 10).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(word), "{error}");
    };
    let web: Weights<'_> = &[("web", 1.0)];
    refused(&[], "without stages");
    refused(&[(1, web)], "stage 0 begins at position 1");
    refused(&[(0, web), (5, web), (5, web)], "stage 2 begins at position 5");
    refused(&[(0, &[("wep", 1.0)])], "stage 0 has a weight for \"wep\"");
    refused(&[(0, &[("web", f64::NAN)])], "\"web\", of 5 rows, the weight NaN");
    refused(&[(0, web), (3, &[("none", 1.0)])], "stage 1 gives \"none\", of 0 rows");
    refused(&[(0, &[("web", 0.0)])], "stage 0 has weights whose sum is 0");
    let twice = staged(&plan(&["web", "web"], &[(0, web)]), &[5, 5], 10).unwrap_err();
    assert!(twice.to_string().contains("two sources are called \"web\""), "{twice}");
    let repetitions = BTreeMap::from([("web".to_owned(), 0.1)]);
    let nothing = StagePlan { repetitions, ..plan(&["web"], &[(0, web)]) };
    assert!(staged(&nothing, &[5], 10).unwrap_err().to_string().contains("goes beyond position 0"));
}

#[test]
fn version_1_is_frozen() {
    let stages: &[(u64, Weights<'_>)] =
        &[(0, &[("web", 0.7), ("code", 0.3)]), (12, &[("web", 0.2), ("code", 0.3), ("books", 0.5)])];
    let plan = plan(&["web", "code", "books"], stages);
    let orders = staged(&plan, &[9, 5, 3], 16).unwrap();
    let rows = |epoch| (0..16).map(|position| orders.epoch(epoch).unwrap().row(position).unwrap()).collect::<Vec<_>>();
    assert_eq!(rows(0), [5, 6, 12, 0, 13, 4, 1, 8, 9, 2, 7, 3, 11, 16, 14, 10]);
    assert_eq!(rows(2), [9, 15, 14, 12, 6, 16, 9, 14, 1, 15, 15, 13, 11, 16, 14, 10]);
    assert_eq!(orders.fingerprint(), 0x0ea5_4a9e_b865_599c);
    assert_eq!(orders.before(1_000_000_000_001), [200_000_000_006, 300_000_000_000, 499_999_999_995]);
}
