//! `rowdex demo`: the whole job on a small dataset, step by step.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Command, FromArgMatches};
use indicatif::{HumanBytes, HumanCount};
use rowdex::sampler::Tail;
use rowdex::{DistributedSampler, Error, ErrorKind, Index, IndexBuilder, Shard};
use serde_json::Value;

use crate::command::epoch::{self, EpochArgs};
use crate::command::failure::Failure;
use crate::command::sampling::SamplingArgs;
use crate::command::{demo_data, output};

/// What four ranks are given. The batch size leaves a short last batch and the world size some repeated rows, because
/// loaders go wrong there; the memory is enough for all rows, as it is for most datasets of this kind.
const PLAN: &str = "--world-size 4 --batch-size 384 --epochs 2 --seed 42 --memory 256MiB --threads 2";

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Keep the dataset and its index in this new folder, instead of a temporary one that is removed at the end.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// `program` is what the command was called as.
pub(crate) fn run(args: &DemoArgs, program: &str) -> Result<(), Failure> {
    let temporary = tempfile::Builder::new().prefix("rowdex-demo-").tempdir();
    let temporary = temporary.map_err(|error| cannot_make(&std::env::temp_dir(), error))?;
    let folder = match &args.keep {
        Some(folder) => kept(folder)?,
        None => temporary.path(),
    };
    let data = folder.join("data");
    let index = folder.join("train.rdx");
    std::fs::create_dir(&data).map_err(|error| cannot_make(&data, error))?;

    output::print("1. Writing Parquet files ...\n")?;
    demo_data::write(&data)?;

    output::print("2. Indexing them; only their footers are read ...\n")?;
    let started = Instant::now();
    let report = IndexBuilder::new([&data]).build(&index)?;
    output::print(&format!(
        "   {} rows in {} row groups of {} files; the index has {} and took {:.0} ms\n",
        HumanCount(report.rows),
        report.row_groups,
        report.files,
        HumanBytes(report.index_bytes),
        started.elapsed().as_secs_f64() * 1e3
    ))?;

    output::print(&format!("3. Running `{program} epoch {PLAN}` on them ...\n\n"))?;
    let plan = [OsStr::new("epoch"), index.as_os_str()].into_iter().chain(PLAN.split(' ').map(OsStr::new));
    let given = EpochArgs::augment_args(Command::new("epoch")).try_get_matches_from(plan).map_err(Failure::usage)?;
    let plan = EpochArgs::from_arg_matches(&given).map_err(Failure::usage)?;
    let report = epoch::report(&plan, &given)?;
    output::tell(false, &report)?;
    output::print(&format!("\n{}\n", verdict(&report)?))?;

    output::print("\n4. Stopping in the middle of an epoch and resuming with three ranks ...\n")?;
    output::print(&resume(&plan.sampling, &Index::open(&index)?)?)?;

    output::print(&next(args.keep.as_deref(), &index, program))
}

/// The promises, as they turned out.
fn verdict(report: &Value) -> Result<String, Failure> {
    let ranks = || report["ranks"].as_array().into_iter().flatten();
    let steps = &report["steps"];
    let samples = ranks().next().map_or(&Value::Null, |rank| &rank["samples"]);
    let equal = ranks().all(|rank| rank["steps"] == *steps && rank["samples"] == *samples);
    if equal && report["coverage"]["missing"] == 0 {
        return Ok(format!("Every rank took {steps} steps with {samples} samples, and no row was left out."));
    }
    Err(Failure::new("the ranks were not served equally, which is a defect; please report it"))
}

/// Only positions and row ids are needed to see that nothing is lost or repeated.
fn resume(plan: &SamplingArgs, index: &Index) -> Result<String, Failure> {
    const BEFORE: u32 = 4;
    const AFTER: u32 = 3;
    let orders = plan.orders(index)?.orders;
    let sampler = |rank: u32, world_size: u32| {
        let shard = Shard::new(rank, world_size)?.with_tail(Tail::Uneven);
        DistributedSampler::new(orders.clone(), shard, plan.dealing.batch_size)
    };
    let mut times = vec![0_u8; index.len() as usize];
    let mut count = |rows: &[u64]| {
        for &row in rows {
            if let Some(times) = times.get_mut(row as usize) {
                *times = times.saturating_add(1);
            }
        }
    };
    let stop = sampler(0, BEFORE)?.steps() / 2;
    for rank in 0..BEFORE {
        for batch in sampler(rank, BEFORE)?.batches()?.take(stop as usize + 1) {
            count(&batch?.rows);
        }
    }
    let state = sampler(0, BEFORE)?.state_after(0, stop)?;
    for rank in 0..AFTER {
        let mut resumed = sampler(rank, AFTER)?;
        resumed.resume(&state.to_string().parse()?)?;
        for batch in resumed.batches()? {
            count(&batch?.rows);
        }
    }
    if times.iter().any(|&times| times != 1) {
        return Err(Failure::new("rows were lost or repeated when resuming, which is a defect; please report it"));
    }
    let rows = HumanCount(index.len());
    Ok(format!("   checkpoint {state}\n   before and after it together, each of {rows} rows was served exactly once\n"))
}

/// Lines that can be pasted, for a program that is called so.
fn next(kept: Option<&Path>, index: &Path, program: &str) -> String {
    let mut text = "\nWhat to try next:\n".to_owned();
    let index = match kept {
        Some(_) => index.display().to_string(),
        None => {
            text.push_str(&format!("  {program} demo --keep rowdex-demo\n"));
            "rowdex-demo/train.rdx".to_owned()
        }
    };
    for line in [
        format!("info {index}"),
        format!("get {index} 7 77777 --columns label,text"),
        format!("epoch {index} --world-size 7 --batch-size 64 --tail uneven"),
        "build YOUR/DATA -o train.rdx".to_owned(),
    ] {
        text.push_str(&format!("  {program} {line}\n"));
    }
    text
}

/// Makes a folder that is not there yet.
fn kept(path: &Path) -> Result<&Path, Failure> {
    if path.symlink_metadata().is_ok() {
        return Err(Error::new(ErrorKind::AlreadyExists, "the folder exists already")
            .with_file(path.display().to_string())
            .with_hint("remove it, or keep the demo in another one")
            .into());
    }
    std::fs::create_dir_all(path).map_err(|error| cannot_make(path, error))?;
    Ok(path)
}

fn cannot_make(path: &Path, error: std::io::Error) -> Failure {
    Error::io("cannot make a folder", error).with_file(path.display().to_string()).into()
}
