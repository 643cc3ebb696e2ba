//! What would let a loader decode less, as the command says it.

use indicatif::HumanBytes;
use rowdex::loader::{Advice, Means};
use serde_json::{Value, json};

/// What to do, what comes of it, and the option that does it.
pub(crate) fn line(advice: &Advice) -> String {
    let Advice { means, passes, bytes_read, .. } = advice;
    let then = format!("{passes:.1} passes and {} an epoch", HumanBytes(*bytes_read));
    match means {
        Means::Memory(bytes) => format!("more memory: {then} with --memory {}MiB", bytes >> 20),
        Means::Blocks(k) => format!("a more local order: {then} with --order blocks({k})"),
        Means::Rewrite => format!("rows written anew in random order (rowdex rewrite): {then} with --order sequential"),
        Means::Share(ranks) => {
            format!(
                "one loader for {ranks} ranks, with the memory of all: {then} for each with --ranks-per-node {ranks}"
            )
        }
        // What a newer library knows, whose name nobody here does.
        _ => then,
    }
}

pub(crate) fn as_json(advice: &Advice) -> Value {
    let (means, value) = match advice.means {
        Means::Memory(bytes) => ("memory", bytes),
        Means::Blocks(k) => ("blocks", k),
        Means::Rewrite => ("rewrite", 1),
        Means::Share(ranks) => ("share", ranks.into()),
        _ => ("other", 0),
    };
    json!({"means": means, "value": value, "passes": advice.passes, "bytes_read": advice.bytes_read})
}
