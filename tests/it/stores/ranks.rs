//! Ranks on one machine, each a process of its own, before one store with one disk tier: each row group is decoded
//! once between them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use rowdex::dataset::DiskTier;
use rowdex::order::Global;
use rowdex::{Dataset, DistributedSampler, Index, IndexBuilder, Loader, Shard};
use tempfile::TempDir;

use super::http::{Abilities, Http};
use super::{FILES, ROWS, write_data};

const ROW_GROUPS: u64 = 12;
const BATCH: usize = 50;
/// Longer than anything takes that goes on.
const LONG: Duration = Duration::from_secs(60);

/// What a rank says at its end.
#[derive(Debug, Default, Clone, Copy)]
struct Report {
    rows: u64,
    requests: u64,
    bytes: u64,
    decodes: u64,
    writes: u64,
    timeouts: u64,
}

impl Report {
    fn of(line: &str) -> Self {
        let mut numbers = line.split(' ').map(|number| number.parse().unwrap());
        let mut next = || numbers.next().unwrap();
        Self { rows: next(), requests: next(), bytes: next(), decodes: next(), writes: next(), timeouts: next() }
    }

    fn add(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            requests: self.requests + other.requests,
            bytes: self.bytes + other.bytes,
            decodes: self.decodes + other.decodes,
            writes: self.writes + other.writes,
            timeouts: self.timeouts + other.timeouts,
        }
    }
}

/// The rank itself: a step for each line that comes in, and a word or, at the end, the report for each.
#[test]
#[ignore = "the others start it, as a process"]
fn rank() {
    let variable = |name: &str| std::env::var(format!("ROWDEX_RANK_{name}")).unwrap();
    let number = |name: &str| variable(name).parse::<u32>().unwrap();
    let tier = DiskTier::new(variable("TIER"), 1 << 30);
    let tier = tier.with_wait(Duration::from_millis(number("WAIT").into()));
    let dataset =
        Dataset::builder(Index::open(variable("INDEX")).unwrap()).with_disk_tier(tier).with_cache_bytes(0).open();
    let dataset = dataset.unwrap();
    let shard = Shard::new(number("NUMBER"), number("WORLD")).unwrap();
    let sampler = DistributedSampler::new(Arc::new(Global::new(ROWS, 7).unwrap()), shard, BATCH).unwrap();
    let loader = Loader::builder(&dataset, sampler).memory(dataset.decoded_bytes() / 4).epochs(1);
    let mut loader = loader.threads(number("THREADS") as usize).build().unwrap();
    let mut rows = 0;
    let mut out = std::io::stdout();
    for _ in std::io::stdin().lines() {
        let Some(batch) = loader.next() else { break };
        let batch = batch.unwrap();
        let ids = batch.records.column(0).as_primitive::<Int64Type>();
        assert!(ids.values().iter().zip(&batch.row_ids).all(|(id, row)| *id as u64 == *row));
        rows += ids.values().len() as u64;
        // The first word may come behind what the test runner has to say.
        writeln!(out, "\nstep").unwrap();
    }
    let (counters, tier) = (dataset.counters(), dataset.tier_counters());
    assert!(dataset.tier_fault().is_none());
    writeln!(
        out,
        "\nreport {rows} {} {} {} {} {}",
        counters.requests, counters.bytes_fetched, counters.decodes, tier.writes, tier.timeouts
    )
    .unwrap();
}

/// A rank seen from outside.
struct Rank {
    process: Child,
    orders: ChildStdin,
    words: BufReader<ChildStdout>,
}

impl Rank {
    /// Lets it take a step.
    fn go(&mut self) {
        // One that has ended does not listen.
        let _ = writeln!(self.orders, "go");
    }

    /// The end of its step; its report if there was none left.
    fn wait(&mut self) -> Option<Report> {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.words.read_line(&mut line).unwrap() > 0, "the rank failed");
            match line.trim_end() {
                "step" => return None,
                line => {
                    if let Some(report) = line.strip_prefix("report ") {
                        return Some(Report::of(report));
                    }
                }
            }
        }
    }

    /// All steps that are left.
    fn finish(&mut self) -> Report {
        loop {
            self.go();
            if let Some(report) = self.wait() {
                return report;
            }
        }
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.process.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A store that takes a while to answer, with an index, and room for a tier.
struct Fixture {
    folder: TempDir,
    http: Http,
    /// Of all row groups.
    bytes: u64,
    /// How long ranks wait for each other.
    wait: Duration,
}

impl Fixture {
    fn new(wait: Duration) -> Self {
        let folder = TempDir::new().unwrap();
        write_data(&folder.path().join("data"));
        let abilities = Abilities { ranges: true, tags: true };
        let http = Http::start_slow(&folder.path().join("data"), abilities, Duration::from_millis(30));
        let name = |name: &str| name.replace('%', "%25").replace(' ', "%20").replace('#', "%23");
        let urls = FILES.iter().map(|(file, ..)| format!("http://{}/{}", http.address, name(file)));
        IndexBuilder::new(urls.collect::<Vec<_>>()).build(folder.path().join("i.rdx")).unwrap();
        let mut place = Self { folder, http, bytes: 0, wait };
        // What one process alone asks for.
        let mut alone = place.rank("alone", 0, 1, 2);
        let report = alone.finish();
        assert_eq!((report.rows, report.requests, report.writes), (ROWS, ROW_GROUPS, ROW_GROUPS));
        place.bytes = report.bytes;
        place
    }

    fn index(&self) -> PathBuf {
        self.folder.path().join("i.rdx")
    }

    fn rank(&self, tier: &str, number: u32, world: u32, threads: usize) -> Rank {
        let variable = |name: &str| format!("ROWDEX_RANK_{name}");
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "stores::ranks::rank", "--nocapture", "--test-threads=1"])
            .env(variable("INDEX"), self.index())
            .env(variable("TIER"), self.tier(tier))
            .env(variable("WAIT"), self.wait.as_millis().to_string())
            .env(variable("NUMBER"), number.to_string())
            .env(variable("WORLD"), world.to_string())
            .env(variable("THREADS"), threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (orders, words) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Rank { process, orders, words }
    }

    fn tier(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Files other than entries.
fn litter(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_none_or(|suffix| suffix != "rdxt")).collect()
}

#[test]
fn two_ranks_in_step_decode_each_row_group_once_between_them() {
    let place = Fixture::new(LONG);
    for (number, threads) in [2, 2, 1, 0].into_iter().enumerate() {
        let tier = format!("step-{number}");
        let mut ranks: Vec<Rank> = (0..2).map(|rank| place.rank(&tier, rank, 2, threads)).collect();
        let began = place.http.requests();
        let reports = loop {
            // Nobody takes a step before all have taken the last one.
            ranks.iter_mut().for_each(Rank::go);
            let ends: Vec<Option<Report>> = ranks.iter_mut().map(Rank::wait).collect();
            if let Some(reports) = ends.into_iter().collect::<Option<Vec<_>>>() {
                break reports;
            }
        };
        let all = reports.iter().copied().fold(Report::default(), Report::add);
        let what = format!("{threads}: {reports:?}");
        assert!(all.rows >= ROWS, "{what}");
        assert!(all.requests <= 2 * ROW_GROUPS && all.bytes <= 2 * place.bytes, "{what}");
        assert_eq!(place.http.requests() - began, all.requests, "{what}");
        assert_eq!((all.writes, all.timeouts), (ROW_GROUPS, 0), "{what}");
        assert_eq!(all.decodes, ROW_GROUPS, "{what}");

        // Each has reported, and ends by itself: what is killed may leave a lock.
        for mut rank in ranks {
            assert!(rank.process.wait().unwrap().success());
        }
        assert!(litter(&place.tier(&tier)).is_empty(), "{:?}", litter(&place.tier(&tier)));
    }
}

#[test]
fn a_rank_that_pauses_holds_the_other_up_with_nothing() {
    let place = Fixture::new(LONG);
    let tier = "pause".to_owned();
    let mut ranks: Vec<Rank> = (0..2).map(|rank| place.rank(&tier, rank, 2, 2)).collect();
    ranks[0].go();
    assert!(ranks[0].wait().is_none());
    // It has read ahead what it is not going to use before the other is done.
    let second = ranks[1].finish();
    let first = ranks[0].finish();
    let all = first.add(second);
    assert_eq!((all.timeouts, all.writes, all.decodes), (0, ROW_GROUPS, ROW_GROUPS));
}

#[test]
fn a_rank_that_is_killed_or_stopped_keeps_no_row_from_the_other() {
    for (signal, wait) in [("-KILL", LONG), ("-STOP", Duration::from_millis(500))] {
        let place = Fixture::new(wait);
        for pause in [0, 35] {
            let tier = format!("{signal}-{pause}");
            let mut ranks: Vec<Rank> = (0..2).map(|rank| place.rank(&tier, rank, 2, 2)).collect();
            ranks[0].go();
            // Somewhere between its first request and its last.
            let before = place.http.requests();
            let began = Instant::now();
            while place.http.requests() == before {
                assert!(began.elapsed() < LONG);
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(pause));
            ranks[0].signal(signal);
            let report = ranks[1].finish();
            let what = format!("{signal} {pause}: {report:?}");
            assert!(report.rows >= ROWS / 2, "{what}");
            // What was read ahead, and was an entry by then, is fetched in vain.
            assert!(report.requests <= 2 * ROW_GROUPS && report.bytes <= 2 * place.bytes, "{what}");
            // Nobody waits for a lock of a process that is gone.
            assert!(report.timeouts <= if signal == "-KILL" { 0 } else { ROW_GROUPS }, "{what}");
        }
    }
}
