//! What was proven, for people and for programs.

use rowdex::order::Uses;
use rowdex::sampler::Tail;
use serde_json::{Value, json};

use super::{Cover, Proof};
use crate::command::output;
use crate::command::sampling::SamplingArgs;

/// More dropped rows than this are not listed.
const LISTED: usize = 1000;

pub(super) struct Report<'a> {
    pub(super) args: &'a SamplingArgs,
    pub(super) proof: &'a Proof,
    pub(super) seconds: f64,
}

impl Report<'_> {
    /// Each promise, and how it is known to hold.
    fn promises(&self) -> Vec<(&'static str, &'static str)> {
        let proof = self.proof;
        let samples = match self.args.dealing.tail() {
            Tail::Uneven => "samples of any two ranks differ by one at most",
            _ => "every rank has the same number of samples",
        };
        let by = match proof.cover {
            Cover::Counted => "counted",
            Cover::Hashed => "hashed, wrong once in 2^64",
        };
        let mut promises = vec![
            ("every rank takes the same number of steps", "compared"),
            (samples, "compared"),
            ("every position is dealt to one shard, once", "compared"),
            ("pads are the first rows again", "compared"),
        ];
        match proof.promise {
            Uses::Once => promises.push(("every row once, but for dropped rows and pads", by)),
            Uses::AtMostOnce => promises.push(("no row twice, but for pads", by)),
            Uses::Any => {}
        }
        if self.args.dealing.replication.0 > 1 {
            promises.push(("ranks of a replica group are dealt the same", "compared"));
        }
        if proof.workers > 0 {
            promises.push(("the batches of the workers in turn are those of the rank", "compared"));
        }
        promises
    }

    pub(super) fn to_json(&self) -> Value {
        let proof = self.proof;
        let epochs = proof.epochs.iter().map(|epoch| {
            json!({
                "epoch": epoch.epoch,
                "served": epoch.served,
                "pads": epoch.pads,
                "dropped": epoch.dropped.len(),
                "dropped_rows": epoch.dropped.iter().take(LISTED).collect::<Vec<_>>(),
                "min_uses": epoch.uses.map(|uses| uses.0),
                "max_uses": epoch.uses.map(|uses| uses.1),
            })
        });
        let ranks = proof.ranks.iter().enumerate().map(|(rank, found)| {
            json!({
                "rank": rank,
                "steps": found.steps,
                "samples": found.samples,
                "pads": found.pads,
                "row_ids_digest": format!("{:016x}", found.digest),
            })
        });
        let promises = self.promises().into_iter().map(|(promise, how)| json!({"promise": promise, "how": how}));
        json!({
            "rows": proof.rows,
            "positions": proof.positions,
            "fingerprint": format!("{:016x}", proof.fingerprint),
            "world_size": self.args.world_size,
            "shards": proof.shards,
            "workers": proof.workers,
            "steps": proof.ranks.first().map_or(0, |rank| rank.steps),
            "row_ids_digest": format!("{:016x}", proof.digest),
            "ranks": ranks.collect::<Vec<_>>(),
            "epochs": epochs.collect::<Vec<_>>(),
            "promises": promises.collect::<Vec<_>>(),
            "seconds": self.seconds,
        })
    }

    pub(super) fn to_text(&self) -> String {
        let proof = self.proof;
        let mut ranks = vec![["rank", "steps", "samples", "pads", "row ids digest"].map(str::to_owned).to_vec()];
        ranks.extend(proof.ranks.iter().enumerate().map(|(rank, found)| {
            let counts = [rank as u64, found.steps, found.samples, found.pads].map(|count| count.to_string());
            counts.into_iter().chain([format!("{:016x}", found.digest)]).collect()
        }));
        let mut epochs =
            vec![["epoch", "served", "pads", "dropped", "min uses", "max uses"].map(str::to_owned).to_vec()];
        epochs.extend(proof.epochs.iter().map(|epoch| {
            let (least, most) = epoch.uses.unwrap_or_default();
            let counts = [epoch.epoch, epoch.served, epoch.pads, epoch.dropped.len() as u64, least, most];
            counts.iter().map(u64::to_string).collect()
        }));
        let promises = self.promises();
        let width = promises.iter().map(|(promise, _)| promise.len()).max().unwrap_or_default();
        let promises: String =
            promises.iter().map(|(promise, how)| format!("yes  {promise:<width$}  ({how})\n")).collect();
        format!(
            "{}\n{}\n{promises}\n{}, row ids digest {:016x}, {:.1} s\n",
            output::columns(&ranks),
            output::columns(&epochs),
            output::counted(proof.rows, "row"),
            proof.digest,
            self.seconds
        )
    }
}
