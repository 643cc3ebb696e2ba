//! `rowdex trace`: which rows a step has, which steps have a row, and all rows of a rank.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use clap::{ArgMatches, Args};
use rowdex::Index;
use rowdex::order::{EpochOrder, Piece, Uses};
use rowdex::sampler::{BatchPlan, EpochPlan};
use serde_json::{Value, json};

use crate::command::args::{IndexArg, JsonArg, out_of_range};
use crate::command::failure::Failure;
use crate::command::info::place;
use crate::command::output;
use crate::command::sampling::{self, Chosen, Rank, SamplingArgs};
use crate::command::state_arg::StateArg;

/// Rows of a step that are listed as text.
const LISTED: usize = 40;

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

Row ids come in the order in which the rank gets them, epoch after epoch. With --pack such a line is a piece: row
id, first token, number of tokens, step, and which pack of the batch, with tabs.")]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    index: IndexArg,

    #[command(flatten)]
    sampling: SamplingArgs,

    /// The rank to be, or `all` of them, step by step.
    #[arg(long, value_name = "RANK", default_value = "all")]
    rank: Rank,

    #[command(flatten)]
    state: StateArg,

    /// The step to list the rows of.
    #[arg(long, value_name = "S", conflicts_with = "row")]
    step: Option<u64>,

    /// A row id to find all steps of; may be given several times.
    #[arg(long, value_name = "ID")]
    row: Vec<u64>,

    #[command(flatten)]
    json: JsonArg,
}

pub(crate) fn run(args: &TraceArgs, given: &ArgMatches) -> Result<(), Failure> {
    let mut sampling = args.sampling.clone();
    sampling.rank = args.rank;
    let of_rank = args.step.is_none() && args.row.is_empty();
    // Which rows a rank has does not depend on batches.
    let batched = !of_rank || sampling.dealing.pack.is_some();
    args.state.settle(&mut sampling, batched, given)?;
    args.state.tell_what_is_assumed(&sampling, given);
    let index = args.index.open()?;
    if let Some(row) = args.row.iter().max().filter(|row| **row >= index.len()) {
        return Err(out_of_range(*row, &index));
    }
    let chosen = sampling.orders(&index)?;
    if of_rank {
        return ids(args, &sampling, &chosen);
    }
    let samplers = sampling.samplers(&chosen)?;
    let mut found = Vec::new();
    for epoch in sampling.epochs()? {
        let plans = sampling::plans(&samplers, epoch)?;
        match args.step {
            Some(step) => found.extend(rows_of(step, &plans, &index)?),
            None => found.extend(uses_of(&args.row, &plans, &index)?),
        }
    }
    if args.json.json {
        return output::tell(true, &found.into());
    }
    if args.step.is_none() {
        let uses = |row: &Value| row["uses"].as_array().cloned().unwrap_or_default();
        let uses: Vec<Value> = found.iter().flat_map(uses).collect();
        let remarks: String = found.iter().filter_map(remark).collect();
        return output::print(&(if uses.is_empty() { String::new() } else { output::text(&uses.into()) } + &remarks));
    }
    let more = found.len().saturating_sub(LISTED);
    found.truncate(LISTED);
    output::tell(false, &found.into())?;
    match more {
        0 => Ok(()),
        more => output::print(&format!("and {} more (`--json`)\n", output::counted(more as u64, "row"))),
    }
}

/// Writes the row ids of a rank, one a line, for any other program to compare or to follow.
fn ids(args: &TraceArgs, sampling: &SamplingArgs, chosen: &Chosen) -> Result<(), Failure> {
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
    let sampler = sampling.sampler(chosen, rank)?;
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

/// One row of a batch: when it is served, to whom, and where it is; of packs, which of its tokens, too.
fn served(plan: &EpochPlan, batch: &BatchPlan, slot: usize, index: &Index) -> Value {
    let row = batch.rows.get(slot).copied().unwrap_or_default();
    let mut served = json!({
        "epoch": batch.epoch,
        "step": batch.step,
        "rank": plan.shard().rank(),
        "slot": slot,
        "position": batch.first + slot as u64 * batch.stride,
        "pad": slot + batch.pads >= batch.rows.len(),
    });
    let piece = piece(batch, slot).map(|(at, pack)| json!({"pack": pack, "offset": at.offset, "length": at.length}));
    if let Value::Object(served) = &mut served {
        for part in [Some(place(index, row)), piece].into_iter().flatten() {
            served.extend(part.as_object().cloned().unwrap_or_default());
        }
    }
    served
}

/// The piece at a place of a batch of packs, and the pack that has it.
fn piece(batch: &BatchPlan, slot: usize) -> Option<(Piece, u64)> {
    let pack = batch.packs.partition_point(|end| *end <= slot) as u64;
    batch.pieces.get(slot).map(|piece| (*piece, pack))
}

/// The rows of a step on every rank.
fn rows_of(step: u64, plans: &[EpochPlan], index: &Index) -> Result<Vec<Value>, Failure> {
    let mut found = Vec::new();
    for plan in plans {
        if step < plan.first_step() {
            return Err(Failure::new(format!(
                "step {step} of epoch {} was before these ranks took over, at step {}: give the state that they \
                 resumed from",
                plan.epoch(),
                plan.first_step()
            )));
        }
        let batch = plan.batch(step)?;
        found.extend((0..batch.rows.len()).map(|slot| served(plan, &batch, slot, index)));
    }
    Ok(found)
}

/// Where each row is in one epoch: its uses; the positions at which the order has it and no rank serves it, or that
/// others served before these ranks took over; and how often other ranks than the chosen ones serve it.
fn uses_of(rows: &[u64], plans: &[EpochPlan], index: &Index) -> Result<Vec<Value>, Failure> {
    let Some(plan) = plans.first() else { return Ok(Vec::new()) };
    let order = plan.order();
    let positions = positions(&**order, rows);
    let end = if plan.dropped().is_empty() { plan.repeated().end } else { plan.dropped().start };
    let mut all = Vec::new();
    for row in rows {
        let firsts = positions.get(row).map(Vec::as_slice).unwrap_or_default();
        let dropped: Vec<&u64> = firsts.iter().filter(|first| **first >= end).collect();
        let before: Vec<&u64> = firsts.iter().filter(|first| **first < plan.start()).collect();
        // The position itself and, as pads, those that wrap around to it.
        let again = firsts.iter().flat_map(|first| (*first..end).step_by(order.len().max(1) as usize));
        let mut uses = Vec::new();
        let mut elsewhere = 0;
        for position in again.filter(|position| *position >= plan.start()) {
            let known = uses.len();
            for plan in plans {
                let at = plan.sample_at(position).and_then(|sample| plan.step_of(sample));
                let Some((step, slot)) = at else { continue };
                uses.push(served(plan, &plan.batch(step)?, slot as usize, index));
            }
            elsewhere += u64::from(uses.len() == known);
        }
        all.push(json!({
            "row_id": row,
            "epoch": plan.epoch(),
            "uses": uses,
            "dropped": dropped,
            "before": before,
            "elsewhere": elsewhere,
        }));
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

/// What there is to say of a row in addition to its uses.
fn remark(found: &Value) -> Option<String> {
    let at = |name: &str| found[name].get(0).map(|position| format!("at position {position} "));
    let what = match (at("before"), at("dropped")) {
        (Some(at), _) => at + "was served before these ranks took over",
        (None, Some(at)) => at + "is dropped with the tail",
        _ if found["uses"].get(0).is_some() => return None,
        _ if found["elsewhere"] != 0 => "is served to other ranks".to_owned(),
        _ => "is not in the order".to_owned(),
    };
    Some(format!("row {} {what} in epoch {}\n", found["row_id"], found["epoch"]))
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
