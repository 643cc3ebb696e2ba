//! What is odd, and what to do about it.

use indicatif::{HumanBytes, HumanCount};
use rowdex::Index;

use super::columns::ColumnReports;
use super::spread;
use crate::command::epoch::MANY_PASSES;

/// Decoded bytes of a row group below which it costs several times more a row, and rows that say the same.
const SMALL_GROUP: u64 = 1 << 20;
const FEW_ROWS: u64 = 1000;

/// Each odd thing, with what to do about it. `passes` is what an epoch takes with the memory.
pub(super) fn of(
    index: &Index,
    columns: &ColumnReports,
    memory: u64,
    passes: Option<f64>,
) -> Vec<(String, &'static str)> {
    if index.is_empty() {
        return vec![("there are no rows".to_owned(), "look at what the index was built from")];
    }
    let [_, rows, _] = spread(index.row_groups().map(|group| group.rows()).collect());
    let [_, bytes, most] = spread(index.row_groups().map(|group| group.decoded_bytes()).collect());
    let share = |part: u64| format!("{:.0} %", part as f64 * 100.0 / columns.chunks.max(1) as f64);
    let found = [
        (rows <= FEW_ROWS && bytes < SMALL_GROUP && index.num_row_groups() > 1).then(|| {
            let what = format!("half of the row groups have at most {} rows ({})", HumanCount(rows), HumanBytes(bytes));
            (what, "rewrite the files with larger ones: rowdex rewrite, with --order sequential to keep the order")
        }),
        (most / 4 > memory).then(|| {
            let what = format!("the largest row group has {} decoded", HumanBytes(most));
            (what, "give memory for four of them at least, or rewrite the files with smaller ones (rowdex rewrite)")
        }),
        (!index.files().all(|file| file.has_footer())).then(|| {
            let remedy = "build it without --no-footers, so that they are not read again; columns are not listed here";
            ("the index has no footers".to_owned(), remedy)
        }),
        (columns.without_page_index > 0).then(|| {
            let what = format!("{} of the column chunks have no page index", share(columns.without_page_index));
            (what, "rewrite the files with it (rowdex rewrite): without it, a single row costs its row group")
        }),
        (columns.without_statistics > 0).then(|| {
            let what = format!("{} of the column chunks have no statistics", share(columns.without_statistics));
            (what, "write the files with them, if rows are chosen by conditions: nothing can be left out without")
        }),
        passes.filter(|passes| *passes > MANY_PASSES).map(|passes| {
            let memory = HumanBytes(memory);
            let what = format!("with {memory} each row group is decoded {passes:.1} times an epoch");
            (what, "give it more memory (the page says below what that saves), or see rowdex estimate")
        }),
    ];
    found.into_iter().flatten().collect()
}
