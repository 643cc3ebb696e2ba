//! What `rowdex epoch` says of what it read.

use indicatif::{HumanBytes, HumanCount};
use rowdex::dataset::TierCounters;
use rowdex::loader::LostGroup;
use rowdex::order::PackCounts;
use rowdex::sampler::{RowIds, State};
use serde_json::{Value, json};

use super::served::{Coverage, TokenCoverage};
use crate::command::failure::said;
use crate::command::output;

/// What was served and what it cost. Counts of rows are of one epoch, the last; costs and digests are of all of them.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) rows: u64,
    pub(crate) world_size: u32,
    pub(crate) steps: u64,
    pub(crate) ranks: Vec<RankReport>,
    pub(crate) coverage: Coverage,
    pub(crate) tokens: Option<TokenCoverage>,
    pub(crate) decodes: u64,
    pub(crate) passes: f64,
    pub(crate) bytes_read: u64,
    pub(crate) requests: u64,
    pub(crate) bytes_fetched: u64,
    pub(crate) tier: TierCounters,
    pub(crate) seconds: f64,
    pub(crate) rows_per_second: f64,
    pub(crate) peak_held_bytes: u64,
    /// Rows that stood in for others.
    pub(crate) substituted: u64,
    pub(crate) lost: Vec<LostGroup>,
    /// Where to go on.
    pub(crate) state: Option<State>,
    pub(crate) epochs: Vec<EpochReport>,
}

#[derive(Debug)]
pub(crate) struct RankReport {
    pub(crate) rank: u32,
    pub(crate) steps: u64,
    pub(crate) samples: u64,
    pub(crate) pads: u64,
    /// Of the rows, in any order, if it was asked for: the sum of their digests.
    pub(crate) digest: Option<u128>,
    /// Of the row ids alone, as `rowdex verify --shards` computes it.
    pub(crate) row_ids_digest: u64,
}

/// So many of the dropped and of the repeated rows of an epoch are named.
const MOST_NAMED: usize = 100;

#[derive(Debug)]
pub(crate) struct EpochReport {
    pub(crate) epoch: u64,
    /// What no rank serves, chosen or not.
    pub(crate) dropped: NamedRows,
    /// What ranks serve as pads.
    pub(crate) repeated: NamedRows,
    pub(crate) decodes: u64,
    pub(crate) passes: f64,
    pub(crate) bytes_read: u64,
    pub(crate) seconds: f64,
    pub(crate) rows_per_second: f64,
}

/// Some rows, the first of them by their ids.
#[derive(Debug, Default)]
pub(crate) struct NamedRows {
    pub(crate) count: u64,
    pub(crate) first: Vec<u64>,
}

impl NamedRows {
    pub(super) fn new(rows: RowIds) -> rowdex::Result<Self> {
        Ok(Self { count: rows.left(), first: rows.take(MOST_NAMED).collect::<rowdex::Result<_>>()? })
    }

    fn to_json(&self) -> Value {
        json!({ "count": self.count, "row_ids": self.first })
    }
}

/// So often each row group was decoded on average.
pub(super) fn passes(decodes: u64, groups: usize) -> f64 {
    if groups == 0 { 0.0 } else { decodes as f64 / groups as f64 }
}

impl Report {
    pub(super) fn to_json(&self) -> Value {
        let rank = |rank: &RankReport| {
            json!({
                "rank": rank.rank,
                "steps": rank.steps,
                "samples": rank.samples,
                "pads": rank.pads,
                "rows_digest": rank.digest.map(|digest| format!("{digest:032x}")),
                "row_ids_digest": format!("{:016x}", rank.row_ids_digest),
            })
        };
        let epoch = |epoch: &EpochReport| {
            json!({
                "epoch": epoch.epoch,
                "dropped": epoch.dropped.to_json(),
                "repeated": epoch.repeated.to_json(),
                "decodes": epoch.decodes,
                "passes": epoch.passes,
                "bytes_read": epoch.bytes_read,
                "seconds": epoch.seconds,
                "rows_per_second": epoch.rows_per_second,
            })
        };
        let Coverage { served, distinct, repeated, missing } = self.coverage;
        let coverage = match &self.tokens {
            // A row is served as often as it has pieces.
            Some(tokens) => json!({ "distinct": distinct, "missing": missing, "tokens": tokens_json(tokens) }),
            None => json!({ "served": served, "distinct": distinct, "repeated": repeated, "missing": missing }),
        };
        let lost = |lost: &LostGroup| json!({ "row_group": lost.row_group, "error": said(&lost.error) });
        json!({
            "rows": self.rows,
            "world_size": self.world_size,
            "steps": self.steps,
            "ranks": self.ranks.iter().map(rank).collect::<Vec<_>>(),
            "coverage": coverage,
            "decodes": self.decodes,
            "passes": self.passes,
            "bytes_read": self.bytes_read,
            "requests": self.requests,
            "bytes_fetched": self.bytes_fetched,
            "tier": {
                "hits": self.tier.hits,
                "misses": self.tier.misses,
                "writes": self.tier.writes,
                "bytes_written": self.tier.bytes_written,
                "evictions": self.tier.evictions,
                "bytes_evicted": self.tier.bytes_evicted,
                "discards": self.tier.discards,
                "timeouts": self.tier.timeouts,
            },
            "seconds": self.seconds,
            "rows_per_second": self.rows_per_second,
            "peak_held_bytes": self.peak_held_bytes,
            "substituted": self.substituted,
            "lost_row_groups": self.lost.iter().map(lost).collect::<Vec<_>>(),
            "state": self.state.map(|state| state.to_string()),
            "epochs": self.epochs.iter().map(epoch).collect::<Vec<_>>(),
        })
    }

    pub(crate) fn to_text(&self) -> String {
        let mut ranks = vec![["rank", "steps", "samples", "pads", "row ids digest"].map(str::to_owned).to_vec()];
        if let (Some(head), true) = (ranks.first_mut(), self.ranks.iter().any(|rank| rank.digest.is_some())) {
            head.push("rows digest".to_owned());
        }
        ranks.extend(self.ranks.iter().map(|rank| {
            let counts =
                [rank.rank.to_string(), rank.steps.to_string(), rank.samples.to_string(), rank.pads.to_string()];
            counts
                .into_iter()
                .chain([format!("{:016x}", rank.row_ids_digest)])
                .chain(rank.digest.map(|digest| format!("{digest:032x}")))
                .collect()
        }));
        let mut epochs = vec![["epoch", "seconds", "rows/s", "decodes", "passes", "read"].map(str::to_owned).to_vec()];
        epochs.extend(self.epochs.iter().map(|epoch| {
            vec![
                epoch.epoch.to_string(),
                format!("{:.2}", epoch.seconds),
                HumanCount(epoch.rows_per_second as u64).to_string(),
                epoch.decodes.to_string(),
                format!("{:.2}", epoch.passes),
                HumanBytes(epoch.bytes_read).to_string(),
            ]
        }));
        let substituted = match self.substituted {
            0 => String::new(),
            rows => format!(
                "{} served in the place of rows of {} that cannot be read\n",
                output::counted(rows, "row"),
                output::counted(self.lost.len() as u64, "row group")
            ),
        };
        let tier = match self.tier {
            TierCounters { hits: 0, misses: 0, .. } => String::new(),
            tier => format!(
                "{} from the disk tier, {} not in it, {} kept there\n",
                output::counted(tier.hits, "row group"),
                HumanCount(tier.misses),
                HumanBytes(tier.bytes_written)
            ),
        };
        let shared = match self.ranks.len() {
            0 | 1 => String::new(),
            ranks => format!(", by {ranks} ranks on one loader (`rowdex estimate --ranks-per-node {ranks}`)"),
        };
        let state = self.state.map(|state| format!("to go on: --resume {state}\n")).unwrap_or_default();
        format!(
            "{}\n{}\n{}\n{} read, {} decoded held at most{shared}\n{tier}{substituted}{state}",
            output::columns(&ranks),
            self.covered(),
            output::columns(&epochs),
            HumanBytes(self.bytes_read),
            HumanBytes(self.peak_held_bytes)
        )
    }

    /// Which rows were served, and which tokens if there are packs.
    fn covered(&self) -> String {
        let Coverage { served, distinct, repeated, missing } = self.coverage;
        let rows = output::counted(self.rows, "row");
        let number = |number: u64| HumanCount(number).to_string();
        let Some(tokens) = &self.tokens else {
            let [served, distinct, repeated, missing] = [served, distinct, repeated, missing].map(number);
            return format!("{rows}: {served} served, {distinct} distinct, {repeated} repeated, {missing} missing\n");
        };
        let PackCounts { tokens_truncated, tokens_dropped, rows_split, rows_empty, .. } = tokens.planned;
        let mut causes = vec![format!("{} left out", number(tokens.left_out()))];
        causes.extend((tokens_truncated > 0).then(|| format!("{} truncated", number(tokens_truncated))));
        causes.extend((tokens_dropped > 0).then(|| format!("{} dropped", number(tokens_dropped))));
        format!(
            "{rows}: {} distinct in {}, {} missing, {} split, {} without tokens\n\
             {} served, {} of them repeated; {}; {} of padding\n",
            number(distinct),
            output::counted(tokens.pieces, "piece"),
            number(missing),
            number(rows_split),
            number(rows_empty),
            output::counted(tokens.served, "token"),
            number(tokens.repeated),
            causes.join(", "),
            output::counted(tokens.padding(), "place"),
        )
    }
}

fn tokens_json(tokens: &TokenCoverage) -> Value {
    let PackCounts { rows_split, rows_dropped, rows_truncated, rows_empty, .. } = tokens.planned;
    json!({
        "served": tokens.served,
        "repeated": tokens.repeated,
        "left_out": tokens.left_out(),
        "truncated": tokens.planned.tokens_truncated,
        "dropped": tokens.planned.tokens_dropped,
        "padding": tokens.padding(),
        "pieces": tokens.pieces,
        "rows_split": rows_split,
        "rows_dropped": rows_dropped,
        "rows_truncated": rows_truncated,
        "rows_empty": rows_empty,
    })
}
