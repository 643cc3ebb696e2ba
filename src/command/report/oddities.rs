//! What is odd, and what to do about it.

use std::ops::Range;

use indicatif::{HumanBytes, HumanCount};

use super::columns::{ColumnReport, ColumnReports};
use super::costs::Costs;
use super::facts::Facts;
use crate::command::epoch::MANY_PASSES;

/// Decoded bytes of a row group below which it costs several times more a row, and rows that say the same.
const SMALL_GROUP: u64 = 1 << 20;
const FEW_ROWS: u64 = 1000;
/// How many times as large as the median the largest row group is where they are called unequal.
const SKEW: u64 = 20;
/// The part of all bytes from which on one column decides, and beyond which it is the data itself.
const WIDE: Range<f64> = 0.5..0.95;

/// A thing that was found.
pub(super) struct Oddity {
    pub(super) what: String,
    pub(super) remedy: String,
}

pub(super) fn of(facts: &Facts, columns: &ColumnReports, costs: &Costs) -> Vec<Oddity> {
    let mut found = Vec::new();
    let mut add = |what: String, remedy: &str| found.push(Oddity { what, remedy: remedy.to_owned() });
    if facts.rows == 0 {
        add("there are no rows".to_owned(), "look at what the index was built from");
        return found;
    }
    groups(facts, costs, &mut add);
    footers(facts, columns, &mut add);
    if let Some(here) = costs.here.filter(|here| here.passes > MANY_PASSES) {
        let passes = here.passes;
        add(
            format!("with {} each row group is decoded {passes:.1} times an epoch", HumanBytes(here.memory)),
            "give it more memory (the page says below what that saves), or see rowdex estimate",
        );
    }
    found
}

fn groups(facts: &Facts, costs: &Costs, add: &mut impl FnMut(String, &str)) {
    let rows = &facts.group_rows;
    let bytes = &facts.group_bytes;
    if rows.median <= FEW_ROWS && bytes.median < SMALL_GROUP && facts.row_groups > 1 {
        add(
            format!(
                "half of the row groups have at most {} rows ({})",
                HumanCount(rows.median),
                HumanBytes(bytes.median)
            ),
            "write the files anew with larger ones: rowdex rewrite, with --order sequential to keep the order",
        );
    }
    if bytes.most / 4 > costs.memory {
        add(
            format!("the largest row group has {} decoded", HumanBytes(bytes.most)),
            "give memory for four of them at least, or write the files anew with smaller ones (rowdex rewrite)",
        );
    }
    if bytes.median > 0 && bytes.most / bytes.median >= SKEW {
        add(
            format!("the largest row group has {} times as many bytes as the median", bytes.most / bytes.median),
            "write the files anew with row groups of one size (rowdex rewrite); shards are equal all the same",
        );
    }
    if rows.least == 0 && facts.source_rows == facts.rows {
        add("there are row groups without rows".to_owned(), "nothing: they cost a record in the index");
    }
}

fn footers(facts: &Facts, columns: &ColumnReports, add: &mut impl FnMut(String, &str)) {
    if !facts.has_footers {
        add(
            "the index has no footers".to_owned(),
            "build it without --no-footers, so that nobody reads them again; columns are not told here",
        );
    }
    let share = |part: u64| format!("{:.0} %", part as f64 * 100.0 / columns.chunks.max(1) as f64);
    if columns.without_page_index > 0 {
        add(
            format!("{} of the column chunks have no page index", share(columns.without_page_index)),
            "write the files anew with it (rowdex rewrite): without it, a single row costs its row group",
        );
    }
    if columns.without_statistics > 0 {
        add(
            format!("{} of the column chunks have no statistics", share(columns.without_statistics)),
            "write the files with them, if rows are chosen by conditions: nothing can be left out without",
        );
    }
    let part = |column: &ColumnReport| column.stored as f64 / columns.stored().max(1) as f64;
    if let Some(widest) = columns.columns.first().filter(|column| WIDE.contains(&part(column))) {
        add(
            format!("{} takes {:.0} % of the bytes", widest.name, part(widest) * 100.0),
            "nothing, if it is what training needs; else leave it out (columns=)",
        );
    }
}
