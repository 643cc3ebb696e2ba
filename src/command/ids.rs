//! `rowdex ids`: the row ids of a rank, for any other program to compare or to follow.

use std::io::{self, Write};
use std::ops::Range;

use clap::{ArgMatches, Args};
use rowdex::sampler::BatchPlan;
use rowdex::{DistributedSampler, Error, ErrorKind};

use crate::command::failure::Failure;
use crate::command::sampling::{BatchArg, Rank, RowsOfArgs, SamplingArgs, batch_size};
use crate::command::state_arg::StateArg;

/// Samples asked for at a time. What a rank is dealt does not depend on how it is cut into batches.
const PIECE: usize = 4096;

/// Bytes handed to the operating system at a time.
const BUFFER: usize = 256 << 10;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  rowdex ids train.rdx --state checkpoint.pt --rank 3 --limit 10
  rowdex ids train.rdx --world-size 8 --rank 3 --epoch 2 --limit 10
  rowdex ids --len 1000000 --order global --seed 42 --world-size 8 --rank 0 --pads
  rowdex ids train.rdx --pack tokens:8192 --batch-size 2 --world-size 8 --rank 3 --limit 10

One row id a line, in the order in which the rank is dealt them, epoch after epoch. The number of rows per step has no
influence on them, so there is no --batch-size without --pack.

With --pack a line is a piece: row id, first token, number of tokens, step, and which pack of the batch, with tabs.")]
pub(crate) struct IdsArgs {
    #[command(flatten)]
    rows_of: RowsOfArgs,

    #[command(flatten)]
    sampling: SamplingArgs,

    #[command(flatten)]
    state: StateArg,

    /// With --pack: packs per step and rank, 1 unless the --state says it.
    #[arg(long, value_name = "B", requires = "pack", value_parser = batch_size)]
    batch_size: Option<usize>,

    /// Leave out the rank's first P samples.
    #[arg(long, value_name = "P", default_value_t = 0)]
    from: u64,

    /// Write at most this many.
    #[arg(long, value_name = "L")]
    limit: Option<u64>,

    /// Mark the rows that are served only to give every rank as many: a tab and `pad` follow them.
    #[arg(long)]
    pads: bool,
}

pub(crate) fn run(args: &IdsArgs, given: &ArgMatches) -> Result<(), Failure> {
    let mut sampling = args.sampling.clone();
    let mut batch = BatchArg { batch_size: args.batch_size.unwrap_or(1) };
    // Which packs are whose depends on it.
    let packs = sampling.dealing.pack.is_some();
    args.state.settle(&mut sampling, packs.then_some(&mut batch), given)?;
    if args.rows_of.is_index() {
        args.state.tell_what_is_assumed(&sampling, None, given);
    }
    let rank = match sampling.rank {
        Rank::One(rank) => rank,
        Rank::All if sampling.world_size == 1 => 0,
        Rank::All => {
            return Err(Failure::usage(format!(
                "one rank at a time: choose one (`--rank`) of the {}",
                sampling.world_size
            )));
        }
    };
    let epochs = sampling.epochs()?;
    let (chosen, _) = args.rows_of.orders(&sampling)?;
    // Where a short last batch is left out, it does depend.
    let of_run = sampling.run.and_then(|state| state.run).filter(|run| run.drop_last_batch);
    let size = of_run.and_then(|run| usize::try_from(run.batch_size).ok()).unwrap_or(PIECE);
    let sampler = sampling.sampler(&chosen, rank, if packs { batch.batch_size } else { size })?;
    if packs {
        return pieces(&sampler, epochs, args);
    }
    // All of them, in an epoch that was resumed, too.
    let each = sampler.len();
    let total = u128::from(each) * u128::from(epochs.end - epochs.start);
    if u128::from(args.from) > total {
        let message = format!("--from {} is beyond the {total} samples of rank {rank}", args.from);
        return Err(Error::new(ErrorKind::OutOfRange, message).into());
    }
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut lines = Lines { stdout: io::stdout().lock(), buffer: Vec::with_capacity(BUFFER + 64), pads: args.pads };
    let whole = args.from.checked_div(each).unwrap_or(0);
    let mut from = args.from.checked_rem(each).unwrap_or(0);
    for epoch in epochs.start + whole..epochs.end {
        if left == 0 || each == 0 {
            break;
        }
        // Other ranks were dealt what comes before the place where these took over.
        from = from.max(sampler.plan(epoch)?.first_sample());
        let count = left.min(each - from);
        write(&sampler, epoch, from..from + count, &mut lines)?;
        left -= count;
        from = 0;
    }
    lines.flush()
}

/// Writes the pieces of a rank. Epochs have different numbers of them.
fn pieces(sampler: &DistributedSampler, epochs: Range<u64>, args: &IdsArgs) -> Result<(), Failure> {
    let (mut skip, mut left) = (args.from, args.limit.unwrap_or(u64::MAX));
    let mut lines = Lines { stdout: io::stdout().lock(), buffer: Vec::with_capacity(BUFFER + 128), pads: args.pads };
    for epoch in epochs {
        let plan = sampler.plan(epoch)?;
        let mut batch = BatchPlan::default();
        for step in plan.first_step()..plan.steps() {
            if left == 0 {
                return lines.flush();
            }
            plan.fill(step, &mut batch)?;
            let real = batch.rows.len() - batch.pads;
            let begin = usize::try_from(skip).unwrap_or(usize::MAX).min(batch.pieces.len());
            skip -= begin as u64;
            for (at, piece) in batch.pieces.iter().enumerate().skip(begin) {
                if left == 0 {
                    break;
                }
                let pack = batch.packs.partition_point(|end| *end <= at) as u64;
                for number in [piece.row, piece.offset, piece.length, step] {
                    lines.put(number, b"\t");
                }
                lines.write(pack, at >= real)?;
                left -= 1;
            }
        }
    }
    if skip > 0 {
        let message = format!("--from {} is beyond the {} pieces of the rank", args.from, args.from - skip);
        return Err(Error::new(ErrorKind::OutOfRange, message).into());
    }
    lines.flush()
}

/// Writes some of the samples of an epoch.
fn write(sampler: &DistributedSampler, epoch: u64, samples: Range<u64>, lines: &mut Lines) -> Result<(), Failure> {
    let plan = sampler.plan(epoch)?;
    let mut batch = BatchPlan::default();
    let Some((mut step, slot)) = plan.step_of(samples.start) else { return Ok(()) };
    let mut first = samples.start - slot;
    while first < samples.end {
        plan.fill(step, &mut batch)?;
        let within = |sample: u64| sample.saturating_sub(first).min(batch.rows.len() as u64) as usize;
        let real = batch.rows.len() - batch.pads;
        for (at, row) in batch.rows.iter().enumerate().take(within(samples.end)).skip(within(samples.start)) {
            lines.write(*row, at >= real)?;
        }
        (step, first) = (step + 1, first + batch.rows.len() as u64);
    }
    Ok(())
}

struct Lines {
    stdout: io::StdoutLock<'static>,
    buffer: Vec<u8>,
    pads: bool,
}

impl Lines {
    fn put(&mut self, number: u64, end: &[u8]) {
        self.buffer.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.buffer.extend_from_slice(end);
    }

    fn write(&mut self, row: u64, pad: bool) -> Result<(), Failure> {
        self.put(row, if pad && self.pads { b"\tpad\n" } else { b"\n" });
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.stdout.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(self.stdout.flush()?)
    }
}
