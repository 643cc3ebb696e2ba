//! What a view records of itself: written as JSON, and read again to choose by it.

use std::time::{SystemTime, UNIX_EPOCH};

use arrow::temporal_conversions::timestamp_s_to_datetime;
use serde_json::{Map, Value};

use super::Select;
use super::choice::{Choice, List, from_view};
use rowdex_base::error::{Error, ErrorKind, Remedy, Result};
use rowdex_index::Index;
use rowdex_index::build_info::{quoted, renames_member};
use rowdex_io::source::place::{Place, shown};
use rowdex_order::Side;

impl Select {
    /// What the view is made of, as JSON.
    pub(super) fn provenance(&self, output: &Place, steps: &[String], rows: u64) -> String {
        let base = &self.base;
        let time = self.time.unwrap_or_else(SystemTime::now);
        format!(
            concat!(
                r#"{{"rowdex":"{}"{},"view":{{"base":{},"base_fingerprint":"{:016x}","base_rows":{},"#,
                r#""source_rows":{},"choices":[{}],"rows":{},"time":{}}}}}"#
            ),
            env!("CARGO_PKG_VERSION"),
            renames_member(base.renaming()),
            base.path().map_or_else(|| "null".to_owned(), |path| quoted(&from_view(output, path))),
            base.fingerprint(),
            base.len(),
            base.source_rows(),
            steps.join(","),
            rows,
            quoted(&rfc3339(time)),
        )
    }
}

/// What is recorded of a view, as far as its rows can be chosen again by it.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) base_fingerprint: u64,
    pub(super) base_rows: u64,
    pub(super) source_rows: u64,
    pub(super) choices: Vec<Choice>,
    pub(super) conditions: Vec<String>,
    /// What each of the choices left, and then each of the conditions.
    pub(super) left: Vec<Option<Left>>,
}

/// What a choice left, and the rows that it was evaluated for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Left {
    pub(super) rows: u64,
    /// Of conditions only.
    pub(super) evaluated: Option<u64>,
}

impl Record {
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an index that is no view, and for a choice that cannot be made again.
    pub(super) fn of(view: &Index) -> Result<Self> {
        let refused = |message: String| {
            let error = Error::new(ErrorKind::InvalidArgument, message);
            match view.path() {
                Some(path) => error.with_file(shown(path)),
                None => error,
            }
        };
        let no_view = || {
            refused("the index does not record how its rows were chosen".to_owned())
                .with_hint("give a view that was made by selecting rows")
        };
        let info: Value = serde_json::from_str(view.build_info()).map_err(|_| no_view())?;
        let record = info.get("view").ok_or_else(no_view)?;
        let number = |name: &str| record.get(name).and_then(Value::as_u64).ok_or_else(no_view);
        let mut read = Self {
            base_fingerprint: hash(record.get("base_fingerprint")).ok_or_else(no_view)?,
            base_rows: number("base_rows")?,
            source_rows: number("source_rows")?,
            choices: Vec::new(),
            conditions: Vec::new(),
            left: Vec::new(),
        };
        for step in record.get("choices").and_then(Value::as_array).ok_or_else(no_view)? {
            let step = step.as_object().ok_or_else(no_view)?;
            let count = |name: &str| step.get(name).and_then(Value::as_u64);
            read.left.push(count("rows").map(|rows| Left { rows, evaluated: count("evaluated") }));
            if let Some(condition) = step.get("where").and_then(Value::as_str) {
                read.conditions.push(condition.to_owned());
                continue;
            }
            let choice = choice(view, step, read.source_rows).ok_or_else(|| {
                let (name, value) = step
                    .iter()
                    .next()
                    .map_or(("", ""), |(name, value)| (name.as_str(), value.as_str().unwrap_or_default()));
                let (message, hint) = match name {
                    "and" | "or" | "not" => (
                        format!("the view was made with rows of another view, {value}, which cannot be chosen again"),
                        "bring that view up to date, and select anew with it ({})",
                    ),
                    "kept" => (
                        format!("the view was made with rows that a program gave ({value:?}), which are not recorded"),
                        "select anew with these rows and those of new files ({})",
                    ),
                    _ => (
                        format!("the view was made with a choice that cannot be made again: {name} {value}"),
                        "select anew ({})",
                    ),
                };
                refused(message).with_remedies(hint, &[Remedy::Overwrite])
            })?;
            read.choices.push(choice);
        }
        Ok(read)
    }
}

/// A choice that was recorded, if it can be made again.
fn choice(view: &Index, step: &Map<String, Value>, source_rows: u64) -> Option<Choice> {
    let text = |name: &str| step.get(name).and_then(Value::as_str);
    let list = |path: &str| Some(List::known(view.beside(path), source_rows, hash(step.get("list_hash"))?));
    if let Some(path) = text("rows_in") {
        return Some(Choice::Rows(list(path)?));
    }
    if let Some(path) = text("skip") {
        return Some(Choice::Skip(list(path)?));
    }
    let seed = || step.get("seed").and_then(Value::as_u64);
    if let Some(fraction) = fraction(view, step, "sample") {
        return Some(Choice::Sample { fraction, seed: seed()? });
    }
    let side: Side = text("split")?.parse().ok()?;
    let by = text("by").map(str::to_owned);
    Some(Choice::Split { side, fraction: fraction(view, step, "fraction")?, seed: seed()?, by })
}

/// A number from 0 to 1. The parser may be off by the last bit, so the text decides which number was written.
fn fraction(view: &Index, step: &Map<String, Value>, name: &str) -> Option<f64> {
    let near = step.get(name)?.as_f64()?;
    let written = |number: &f64| view.build_info().contains(&format!("\"{name}\":{number},\"seed\""));
    [near, near.next_down(), near.next_up()].into_iter().find(written)
}

fn hash(value: Option<&Value>) -> Option<u64> {
    u64::from_str_radix(value?.as_str()?, 16).ok()
}

/// Like `2026-01-31T12:00:00Z`.
fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let date = i64::try_from(seconds).ok().and_then(timestamp_s_to_datetime);
    date.map_or_else(String::new, |date| format!("{}Z", date.to_string().replace(' ', "T")))
}
