//! `rowdex trace`: which rows a step has, which steps have a row, and all rows of a rank.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use clap::{ArgMatches, Args};
use rowdex::Index;
use rowdex::order::{EpochOrder, Piece, Uses};
use rowdex::sampler::{BatchPlan, EpochPlan, Sample};
use serde_json::{Value, json};

use crate::command::args::{IndexArg, JsonArg, out_of_range};
use crate::command::failure::Failure;
use crate::command::info::locate;
use crate::command::output;
use crate::command::sampling::{self, BatchArg, Rank, RankArg, SamplingArgs};
use crate::command::state_arg::StateArg;

/// Rows of a step that are listed as text.
const LISTED: usize = 40;

/// What is told of a piece.
const PIECE_NAMES: [&str; 3] = ["pack", "offset", "length"];

/// Positions looked at in one go.
const PIECE: usize = 4096;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  rowdex trace train.rdx --state checkpoint.pt --step 1207                 # which rows made the loss spike?
  rowdex trace train.rdx --state checkpoint.pt --epoch 3 --step 1207 --rank 5
  rowdex trace train.rdx --state checkpoint.pt --epochs 2 --row 4711       # when is this row served, and to whom?
  rowdex trace train.rdx --world-size 8 --batch-size 64 --seed 42 --rank 3 # all row ids of a rank, one a line
  rowdex trace train.rdx --state checkpoint.pt --pack tokens:8192 --row 4711   # at which offset of which pack?

World, batch size, order, seed and tail must be those of the job: a state has them all, with its epoch.

Row ids come in the order in which the rank is dealt them, epoch after epoch. With --pack such a line is a piece: row
id, first token, number of tokens, step, and which pack of the batch, with tabs.")]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    index: IndexArg,

    #[command(flatten)]
    sampling: SamplingArgs,

    #[command(flatten)]
    rank: RankArg,

    #[command(flatten)]
    batch: BatchArg,

    #[command(flatten)]
    state: StateArg,

    #[command(flatten)]
    question: Question,

    #[command(flatten)]
    json: JsonArg,
}

#[derive(Debug, Clone, Args)]
#[group(multiple = false)]
struct Question {
    /// The step to list the rows of.
    #[arg(long, value_name = "S")]
    step: Option<u64>,

    /// A row id to find all steps of; may be given several times.
    #[arg(long, value_name = "ID")]
    row: Vec<u64>,
}

pub(crate) fn run(args: &TraceArgs, given: &ArgMatches) -> Result<(), Failure> {
    let mut sampling = args.sampling.clone();
    sampling.rank = args.rank.rank;
    let mut batch = args.batch;
    let of_rank = args.question.step.is_none() && args.question.row.is_empty();
    // Which rows a rank has does not depend on it.
    let batched = !of_rank || sampling.dealing.pack.is_some();
    args.state.settle(&mut sampling, batched.then_some(&mut batch), given)?;
    args.state.tell_what_is_assumed(&sampling, batched.then_some(&batch), given);
    let index = args.index.open()?;
    if let Some(row) = args.question.row.iter().max().filter(|row| **row >= index.len()) {
        return Err(out_of_range(*row, &index));
    }
    if of_rank {
        return ids(args, &sampling, batch, &index);
    }
    let samplers = sampling.samplers(&sampling.orders(&index)?, batch)?;
    let mut served = Vec::new();
    let mut sought = Vec::new();
    for epoch in sampling.epochs()? {
        let plans = sampling::plans(&samplers, epoch)?;
        match args.question.step {
            Some(step) => served.extend(rows_of(step, &plans)?),
            None => sought.extend(uses_of(&args.question.row, &plans, sampling.dealing.pack.is_some())?),
        }
    }
    let json = args.json.json;
    if args.question.step.is_none() {
        let found: Value = sought.iter().map(Sought::to_json).collect();
        return if json { output::print_json(&found) } else { output::print(&table_of_uses(&sought)) };
    }
    let listed = if json { served.len() } else { served.len().min(LISTED) };
    if json {
        return output::print_json(&served[..listed].iter().map(|at| at.to_json(&index)).collect());
    }
    output::print(&table_of_rows(&served[..listed], &index))?;
    match served.len() - listed {
        0 => Ok(()),
        more => output::print(&format!("and {} more (`--json`)\n", output::counted(more as u64, "row"))),
    }
}

/// Writes the row ids of a rank, one a line, for any other program to compare or to follow.
fn ids(args: &TraceArgs, sampling: &SamplingArgs, batch: BatchArg, index: &Index) -> Result<(), Failure> {
    if args.json.json {
        return Err(Failure::usage("--json is for the rows of a --step or the steps of a --row"));
    }
    let rank = match sampling.rank {
        Rank::One(rank) => rank,
        Rank::All if sampling.world_size == 1 => 0,
        Rank::All => {
            let ranks = sampling.world_size;
            return Err(Failure::usage(format!("one rank at a time: choose one (`--rank`) of the {ranks}")));
        }
    };
    // Where a short last batch is left out, it does depend.
    let of_run = sampling.run.and_then(|state| state.run).filter(|run| run.drop_last_batch);
    let size = of_run.and_then(|run| usize::try_from(run.batch_size).ok()).unwrap_or(batch.batch_size);
    let sampler = sampling.sampler(&sampling.orders(index)?, rank, size)?;
    let mut stdout = BufWriter::new(io::stdout().lock());
    let mut batch = BatchPlan::default();
    for epoch in sampling.epochs()? {
        let plan = sampler.plan(epoch)?;
        for step in plan.first_step()..plan.steps() {
            plan.fill(step, &mut batch)?;
            for (slot, row) in batch.rows.iter().enumerate() {
                match piece(&batch, slot) {
                    Some((at, pack)) => writeln!(stdout, "{row}\t{}\t{}\t{step}\t{pack}", at.offset, at.length)?,
                    None => writeln!(stdout, "{row}")?,
                }
            }
        }
    }
    Ok(stdout.flush()?)
}

/// One row served: when, to whom, and at which place of its batch.
#[derive(Debug, Clone, Copy)]
struct ServedRow {
    epoch: u64,
    step: u64,
    rank: u32,
    slot: u64,
    sample: Sample,
    /// Of packs: the tokens that are served, and which pack of the batch they are in.
    piece: Option<(Piece, u64)>,
}

impl ServedRow {
    /// The `p`-th sample of a rank, if it has one that is left.
    fn new(plan: &EpochPlan, p: u64, packed: bool) -> rowdex::Result<Option<Self>> {
        let epoch = plan.epoch();
        let rank = plan.shard().rank();
        let Some((sample, (step, slot))) = plan.at(p)?.zip(plan.step_of(p)) else { return Ok(None) };
        let piece = if packed { piece(&plan.batch(step)?, slot as usize) } else { None };
        Ok(Some(Self { epoch, step, rank, slot, sample, piece }))
    }

    fn to_json(self, index: &Index) -> Value {
        let place = locate(index, self.sample.row);
        let mut told = json!({
            "epoch": self.epoch,
            "step": self.step,
            "rank": self.rank,
            "slot": self.slot,
            "position": self.sample.position,
            "row_id": self.sample.row,
            "pad": self.sample.pad,
            "file": place.as_ref().map(|place| place.file),
            "row_group": place.as_ref().map(|place| place.row_group),
            "row": place.as_ref().map(|place| place.row),
        });
        self.tell_piece(&mut told);
        told
    }

    fn tell_piece(&self, told: &mut Value) {
        if let (Some((piece, pack)), Some(told)) = (self.piece, told.as_object_mut()) {
            for (name, number) in PIECE_NAMES.into_iter().zip([pack, piece.offset, piece.length]) {
                told.insert(name.to_owned(), number.into());
            }
        }
    }

    /// Which pack of the batch, first token, number of tokens.
    fn piece_cells(&self) -> Vec<String> {
        let cells = |(piece, pack): (Piece, u64)| [pack, piece.offset, piece.length].map(|number| number.to_string());
        self.piece.map_or_else(Vec::new, |piece| cells(piece).to_vec())
    }
}

/// The piece at a place of a batch of packs, and the pack that has it.
fn piece(batch: &BatchPlan, slot: usize) -> Option<(Piece, u64)> {
    let pack = batch.packs.partition_point(|end| *end <= slot) as u64;
    batch.pieces.get(slot).map(|piece| (*piece, pack))
}

/// The rows of a step on every rank.
fn rows_of(step: u64, plans: &[EpochPlan]) -> Result<Vec<ServedRow>, Failure> {
    let mut served = Vec::new();
    for plan in plans {
        if step < plan.first_step() {
            return Err(Failure::new(format!(
                "step {step} of epoch {} was before these ranks took over, at step {}: ask by the state that they went \
                 on from",
                plan.epoch(),
                plan.first_step()
            )));
        }
        let batch = plan.batch(step)?;
        let first_pad = batch.rows.len() - batch.pads;
        served.extend(batch.rows.iter().enumerate().map(|(slot, row)| {
            let position = batch.first + slot as u64 * batch.stride;
            let sample = Sample { position, row: *row, pad: slot >= first_pad };
            let rank = plan.shard().rank();
            let piece = piece(&batch, slot);
            ServedRow { epoch: batch.epoch, step, rank, slot: slot as u64, sample, piece }
        }));
    }
    Ok(served)
}

/// Where one row is in one epoch.
#[derive(Debug, Default)]
struct Sought {
    row: u64,
    epoch: u64,
    uses: Vec<ServedRow>,
    /// Positions at which the order has the row, and which no rank serves.
    dropped: Vec<u64>,
    /// Positions that others served before these ranks took over.
    before: Vec<u64>,
    /// How often other ranks than the chosen ones serve it.
    elsewhere: u64,
}

fn uses_of(rows: &[u64], plans: &[EpochPlan], packed: bool) -> Result<Vec<Sought>, Failure> {
    let Some(plan) = plans.first() else { return Ok(Vec::new()) };
    let order = plan.order();
    let positions = positions(&**order, rows);
    let end = order.len() - plan.dropped().left() + plan.repeated().left();
    let mut all = Vec::new();
    for row in rows {
        let mut sought = Sought { row: *row, epoch: plan.epoch(), ..Sought::default() };
        for &first in positions.get(row).into_iter().flatten() {
            if first >= end {
                sought.dropped.push(first);
            }
            if first < plan.start() {
                sought.before.push(first);
            }
            // The position itself and, as pads, those that wrap around to it.
            let mut position = first;
            while position < end {
                if position >= plan.start() {
                    sought.add(position, plans, packed)?;
                }
                position += order.len();
            }
        }
        all.push(sought);
    }
    Ok(all)
}

/// All positions of each row: asked for where the order serves no row twice, else looked for in the whole order.
fn positions(order: &dyn EpochOrder, rows: &[u64]) -> BTreeMap<u64, Vec<u64>> {
    if order.uses() != Uses::Any {
        return rows.iter().map(|row| (*row, order.position(*row).into_iter().collect())).collect();
    }
    let mut found: BTreeMap<u64, Vec<u64>> = rows.iter().map(|row| (*row, Vec::new())).collect();
    let mut piece = vec![0; PIECE];
    for first in (0..order.len()).step_by(PIECE) {
        let count = order.fill(first, &mut piece);
        for (position, row) in (first..).zip(piece.iter().take(count)) {
            if let Some(positions) = found.get_mut(row) {
                positions.push(position);
            }
        }
    }
    found
}

impl Sought {
    /// Adds the ranks that serve a position.
    fn add(&mut self, position: u64, plans: &[EpochPlan], packed: bool) -> Result<(), Failure> {
        let mut any = false;
        for plan in plans {
            let Some(p) = plan.sample_at(position) else { continue };
            let served = ServedRow::new(plan, p, packed)?;
            let served = served.filter(|at| at.sample.position == position && at.sample.row == self.row);
            self.uses.push(served.ok_or_else(|| {
                Failure::new(format!("position {position} is not where row {} is; the order is at fault", self.row))
            })?);
            any = true;
        }
        self.elsewhere += u64::from(!any);
        Ok(())
    }

    fn to_json(&self) -> Value {
        let uses = self.uses.iter().map(|at| {
            let mut told = json!({
                "step": at.step,
                "rank": at.rank,
                "slot": at.slot,
                "position": at.sample.position,
                "pad": at.sample.pad,
            });
            at.tell_piece(&mut told);
            told
        });
        json!({
            "row_id": self.row,
            "epoch": self.epoch,
            "uses": uses.collect::<Vec<_>>(),
            "dropped": self.dropped,
            "before": self.before,
            "elsewhere": self.elsewhere,
        })
    }

    /// What there is to say beside the uses.
    fn remark(&self) -> Option<String> {
        let Self { row, epoch, .. } = self;
        if let Some(position) = self.before.first() {
            return Some(format!(
                "row {row} at position {position} of epoch {epoch} was served before these ranks took over"
            ));
        }
        match (self.uses.is_empty(), self.elsewhere, self.dropped.as_slice()) {
            (_, _, [position, ..]) => {
                Some(format!("row {row} at position {position} is dropped with the tail of epoch {epoch}"))
            }
            (true, 0, []) => Some(format!("row {row} is not in the order of epoch {epoch}")),
            (true, _, []) => Some(format!("row {row} is served to other ranks in epoch {epoch}")),
            (false, _, []) => None,
        }
    }
}

fn table_of_rows(served: &[ServedRow], index: &Index) -> String {
    let names = ["epoch", "step", "rank", "slot", "position", "row_id", "row_group", "row", "pad", "file"];
    let mut table = vec![head(&names, served.iter())];
    table.extend(served.iter().map(|at| {
        let place = locate(index, at.sample.row);
        let (row_group, row, file) = place
            .map_or_else(Default::default, |place| (place.row_group.to_string(), place.row.to_string(), place.file));
        let numbers = [at.epoch, at.step, u64::from(at.rank), at.slot, at.sample.position, at.sample.row];
        let cells = numbers.into_iter().map(|number| number.to_string());
        let cells = cells.chain([row_group, row, pad(at).to_owned(), file.to_owned()]);
        cells.chain(at.piece_cells()).collect()
    }));
    output::columns(&table)
}

fn table_of_uses(sought: &[Sought]) -> String {
    let names = ["row_id", "epoch", "step", "rank", "slot", "position", "pad"];
    let mut table = vec![head(&names, sought.iter().flat_map(|row| &row.uses))];
    for row in sought {
        table.extend(row.uses.iter().map(|at| {
            let numbers = [row.row, at.epoch, at.step, u64::from(at.rank), at.slot, at.sample.position];
            let cells = numbers.iter().map(u64::to_string).chain([pad(at).to_owned()]);
            cells.chain(at.piece_cells()).collect()
        }));
    }
    let uses = if table.len() > 1 { output::columns(&table) } else { String::new() };
    let remarks = sought.iter().filter_map(Sought::remark).map(|remark| remark + "\n");
    remarks.fold(uses, |text, remark| text + &remark)
}

/// The names of the cells of a row, which has three more where there are packs.
fn head<'a>(names: &[&str], mut served: impl Iterator<Item = &'a ServedRow>) -> Vec<String> {
    let more = served.next().and_then(|at| at.piece).map_or(&[][..], |_| &PIECE_NAMES);
    names.iter().chain(more).map(|name| (*name).to_owned()).collect()
}

fn pad(at: &ServedRow) -> &'static str {
    if at.sample.pad { "pad" } else { "-" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves row `q mod 3` at position `q`, and says of each row only the first position.
    #[derive(Debug)]
    struct Thirds(u64);

    impl EpochOrder for Thirds {
        fn len(&self) -> u64 {
            self.0
        }

        fn row(&self, position: u64) -> Option<u64> {
            (position < self.0).then_some(position % 3)
        }

        fn position(&self, row: u64) -> Option<u64> {
            (row < 3 && row < self.0).then_some(row)
        }
    }

    #[test]
    fn all_positions_are_found_where_an_order_may_repeat_rows() {
        for len in [0, 1, 7, 3 * PIECE as u64 + 2] {
            let found = positions(&Thirds(len), &[2, 0, 3]);
            assert_eq!(found[&2], (2..len).step_by(3).collect::<Vec<_>>());
            assert_eq!(found[&0], (0..len).step_by(3).collect::<Vec<_>>());
            assert_eq!(found[&3], Vec::<u64>::new());
        }
    }
}
