//! Which rows are whose.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use serde_json::{Value, json};

use super::error::{call, give, rowdex_error, rowdex_status};
use super::handle::{self, GivenOptions, Snapshot, out_param, require};
use super::kind::{self, AnyHandle};
use super::operands::rowdex_order;
use super::packs::rowdex_pieces;
use ::rowdex_order::Partition;
use ::rowdex_order::sampler::{
    DistributedSampler, EpochPlan, PackSpec, ReplicationLayout, SamplerOptions, Shard, State, Tail,
};
use rowdex_base::error::{Error, ErrorKind, Result};

/// The samples and batches of one rank, epoch after epoch.
///
/// All functions may run at once, those that change it too: each sees it as it was before or after a change.
#[derive(Debug)]
pub struct rowdex_sampler(pub(super) Snapshot<DistributedSampler>);

/// Room enough for any state with its NUL. Into less room a state is written if it fits; else the error says how much
/// it needs.
#[allow(dead_code, reason = "for the header")]
pub const ROWDEX_STATE_CAPACITY: usize = 512;

/// Who gets which rows when. Rank, world size and batch size have no defaults.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_sampler_options {
    /// This rank, counted from 0.
    pub rank: u32,
    /// How many ranks there are.
    pub world_size: u32,
    /// Rows, or packs, per step and rank.
    pub batch_size: u64,
    /// What becomes of rows, or packs, that do not divide evenly: "wrap" (NULL), "drop", "uneven" or "error"; of packs,
    /// "even" (NULL), too.
    pub tail: *const c_char,
    /// Which ranks form a replica group: "consecutive" (NULL) or "strided".
    pub replica_layout: *const c_char,
    /// How many ranks get the same rows, as those of a model-parallel group must. 0: 1.
    pub replication: u32,
    /// 1 leaves out the last batch of an epoch if it is short on any rank.
    pub drop_last_batch: u32,
    /// How positions are assigned to the shards: "strided" (NULL) in turn, or "contiguous" in one consecutive piece for
    /// each.
    pub partition: *const c_char,
    /// Whether orders that are the same in every epoch begin elsewhere each epoch: "needed" (NULL) where rows are
    /// dropped or repeated, which would be the same ones otherwise, "always" or "never".
    pub rotation: *const c_char,
    /// Batches of packs, such as "tokens:8192,overflow=truncate,extra=2". NULL: of rows.
    ///
    /// First the name by which the lengths are recorded in the index of the orders, a colon, and the tokens of a pack,
    /// or "buckets"; then options with commas between them. algorithm: how pieces are put into packs: bfd (the
    /// default), best-fit decreasing; concat, row after row; or, for batches of whole rows of like lengths with at most
    /// this number of tokens, budget, or padded, which counts the padding to the longest row. Buckets are batches of a
    /// fixed number of rows with like lengths: each row is a pack, and every row comes; their option capacity is the
    /// most tokens of a row. overflow: rows that are longer than a pack can hold: split (the default) into pieces,
    /// truncate, drop or error. Batches within a budget, and buckets, are of whole rows: there error is the default,
    /// and split is refused. extra: tokens that each piece takes in addition to its own. multiple: what a piece takes
    /// is rounded up to a multiple of this. max_pieces: the most of a pack. second: images-16 is a second limit, of
    /// numbers that are recorded by this name; rows then stay whole. cost: 24576-1 assigns the packs of a step by what
    /// they cost: the first number times the tokens, and the second one times the sum of the squares of the lengths of
    /// the pieces. block: how many positions of the order are packed together, 131072 by default, or 16384 within a
    /// second limit; of buckets, sorted together, 16384. empty: rows without tokens: skip (the default) or keep as
    /// pieces without tokens. Buckets keep them.
    pub pack: *const c_char,
}

// SAFETY: pointers and integers.
unsafe impl GivenOptions for rowdex_sampler_options {}

/// The sampler of one rank, at the beginning of epoch 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_sampler_new(
    orders: Option<&rowdex_order>,
    options: Option<&rowdex_sampler_options>,
    sampler: Option<&mut MaybeUninit<*mut rowdex_sampler>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    give(error, sampler, "sampler", || {
        let of = require(orders, "orders")?;
        let options = GivenOptions::of(options);
        // SAFETY: the conventions of the header.
        let text = |text, name| unsafe { handle::optional_text(text, name) };
        let pack = text(options.pack, "options.pack")?.map(str::parse::<PackSpec>).transpose()?;
        let usual = pack.as_ref().map_or(Tail::default(), PackSpec::default_tail);
        let tail = text(options.tail, "options.tail")?.map_or(Ok(usual), str::parse)?;
        let layout = text(options.replica_layout, "options.replica_layout")?;
        let layout = layout.map_or(Ok(ReplicationLayout::default()), str::parse)?;
        let shard = Shard::new(options.rank, options.world_size)?;
        let shard = shard.with_tail(tail).with_replication(options.replication.max(1), layout)?;
        let partition = text(options.partition, "options.partition")?.map_or(Ok(Partition::default()), str::parse)?;
        let orders = partition.orders(of.orders(), shard.count())?;
        let options = SamplerOptions {
            drop_last_batch: options.drop_last_batch != 0,
            rotation: rotation(text(options.rotation, "options.rotation")?)?,
            ..SamplerOptions::of(shard, options.batch_size as usize)
        };
        let sampler = match pack {
            None => options.sampler(orders)?,
            Some(pack) => options.sampler_of_packs(orders, pack.lengths(|name| of.lengths(name))?, &pack)?,
        };
        Ok(kind::handle(rowdex_sampler(Snapshot::new(sampler))))
    })
}

fn rotation(text: Option<&str>) -> Result<Option<bool>> {
    match text {
        None | Some("needed") => Ok(None),
        Some("always") => Ok(Some(true)),
        Some("never") => Ok(Some(false)),
        Some(other) => {
            Err(handle::invalid(format!("no rotation is called {other:?}")).with_hint("use needed, always or never"))
        }
    }
}

impl AnyHandle for rowdex_sampler {
    fn told(&self) -> Result<Value> {
        let sampler = self.0.load();
        let shard = sampler.shard();
        // Epochs of packs are planned, which may fail. An order of rows is not made for this: it may take seconds, and
        // the one of another epoch may be held.
        if sampler.packed().is_some() {
            sampler.plan(sampler.epoch())?;
        }
        Ok(json!({
            "epoch": sampler.epoch(),
            "len": sampler.len(),
            "steps": sampler.steps(),
            "batch_size": sampler.batch_size(),
            "rank": shard.rank(),
            "world_size": shard.world_size(),
            "shards": shard.count(),
            "shard": shard.index(),
            "fingerprint": sampler.orders().fingerprint(),
            "ends": sampler.given().ends(),
            "samples_left": sampler.samples_left(),
            "steps_left": sampler.steps_left(),
        }))
    }

    fn resume(&self, state: &State) -> Result<()> {
        self.0.change(|sampler| sampler.resume(state))
    }
}

/// Makes `epoch` the current one. An epoch that was resumed stays resumed if it is the current one already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_sampler_set_epoch(
    sampler: *mut rowdex_sampler,
    epoch: u64,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let sampler = unsafe { handle::borrow(sampler, "sampler") }?;
        sampler.0.change(|sampler| {
            sampler.set_epoch(epoch);
            Ok(())
        })
    })
}

/// This rank's samples `first`, `first + 1`, … of an epoch, `len` of them: row ids and, unless `pads` is NULL, 1 for
/// each repeated row and 0 for each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_sampler_fill(
    sampler: Option<&rowdex_sampler>,
    epoch: u64,
    first: u64,
    len: usize,
    rows: *mut u64,
    pads: *mut u8,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let sampler = require(sampler, "sampler")?.0.load();
        // SAFETY: the conventions of the header.
        let rows = unsafe { handle::buffer(rows, len, "rows") }?;
        // SAFETY: as above.
        let pads = unsafe { handle::buffer(pads, if pads.is_null() { 0 } else { len }, "pads") }?;
        let plan = sampler.plan(epoch)?;
        let sample = |p| plan.at(p)?.ok_or_else(|| beyond(p, &plan));
        let samples = (0..len as u64).map(|place| sample(first.saturating_add(place)));
        let samples = samples.collect::<Result<Vec<_>>>()?;
        for (row, sample) in rows.iter_mut().zip(&samples) {
            row.write(sample.row);
        }
        for (pad, sample) in pads.iter_mut().zip(&samples) {
            pad.write(sample.pad.into());
        }
        Ok(())
    })
}

/// This rank's batch at a step of an epoch: row ids, `len` of them, of which the last `pads` are repeated.
///
/// `rows` has room for `capacity` ids, at least the number that the batch has. Of rows the batch size is always enough.
/// A batch of packs has a row id for each piece: with `rows` NULL and a capacity of 0, only `len` and `pads` are
/// written.
///
/// Which tokens of the rows are served, and in which packs, is written to `pieces` unless that is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_sampler_batch(
    sampler: Option<&rowdex_sampler>,
    epoch: u64,
    step: u64,
    rows: *mut u64,
    capacity: usize,
    len: Option<&mut MaybeUninit<usize>>,
    pads: Option<&mut MaybeUninit<usize>>,
    pieces: Option<&rowdex_pieces>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let sampler = require(sampler, "sampler")?.0.load();
        // SAFETY: the conventions of the header.
        let rows = unsafe { handle::buffer(rows, capacity, "rows") }?;
        let len = out_param(len, "len")?;
        let batch = sampler.batch(epoch, step)?;
        let only_told = rows.is_empty() && sampler.packed().is_some() && pieces.is_none();
        if !only_told {
            let Some(rows) = rows.get_mut(..batch.rows.len()) else {
                let message = format!("room for {capacity} row ids, and the batch has {}", batch.rows.len());
                return Err(handle::invalid(message)
                    .with_hint("make room for as many as the batch size, or as many pieces as packs have"));
            };
            if let Some(pieces) = pieces {
                // SAFETY: as above.
                unsafe { pieces.write(&batch, capacity, sampler.kind()) }?;
            }
            rows.write_copy_of_slice(&batch.rows);
        }
        len.write(batch.rows.len());
        if let Some(pads) = pads {
            pads.write(batch.pads);
        }
        Ok(())
    })
}

/// Where the run stands once every rank is done with all steps of an epoch before this one, the same on all of them, as
/// text of one line with a NUL. For the first step that is left: where the epoch begins. For the number of steps: where
/// the next epoch begins.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_sampler_state(
    sampler: Option<&rowdex_sampler>,
    epoch: u64,
    step: u64,
    buffer: *mut c_char,
    capacity: usize,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let sampler = require(sampler, "sampler")?.0.load();
        // SAFETY: the conventions of the header.
        let buffer = unsafe { handle::buffer(buffer.cast(), capacity, "buffer") }?;
        let mut at = DistributedSampler::clone(&sampler);
        at.set_epoch(epoch);
        let first = at.first_step(at.epoch());
        let state = match step.checked_sub(1) {
            Some(before) if step != first => at.state_after(epoch, before)?,
            None if first > 0 => {
                let message = format!("step 0 of an epoch that was resumed at step {first}");
                return Err(Error::new(ErrorKind::OutOfRange, message));
            }
            _ => at.state(),
        };
        handle::write_text(&state.to_string(), buffer)
    })
}

/// The batches of one of `workers` workers of a rank, those whose step is `worker` modulo `workers`, as a separate
/// sampler: its step `i` is step `worker + i * workers` of the rank's. A loader of it plans for just what that worker
/// serves.
///
/// It begins with the first step of the current epoch. Steps in which the rank has no rows are left out. It reports the
/// rank, as a rowdex_batch_info of its batches does.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_sampler_worker(
    sampler: Option<&rowdex_sampler>,
    worker: u64,
    workers: u64,
    own: Option<&mut MaybeUninit<*mut rowdex_sampler>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    give(error, own, "own", || {
        let worker = require(sampler, "sampler")?.0.load().worker(worker, workers)?;
        Ok(kind::handle(rowdex_sampler(Snapshot::new(worker))))
    })
}

fn beyond(p: u64, plan: &EpochPlan) -> Error {
    let first = plan.first_sample();
    let len = plan.len();
    let message = match first {
        0 => format!("sample {p} of a rank that has {len} in this epoch"),
        first => {
            format!("sample {p} of a rank that has samples {first} to {} left of this epoch", len.saturating_sub(1))
        }
    };
    Error::new(ErrorKind::OutOfRange, message)
}
