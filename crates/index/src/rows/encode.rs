//! Writing the rows of a row group that a selection left, in the container that takes the fewest bytes.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::{BLOCK_WORDS, MAX_SOURCE_ROWS, StoredRun, WORD_BITS, container_len, kind, words};
use crate::format::RowSetRecord;
use rowdex_base::error::{Error, Result};

/// Appends the smallest container of `rows` to `data`, and returns the record that describes it.
///
/// The choice depends on the rows alone, so that equal selections are equal bytes.
pub(crate) fn encode(rows: &[u32], source_rows: u64, data: &mut Vec<u8>) -> Result<RowSetRecord> {
    let increasing = rows.iter().zip(rows.iter().skip(1)).all(|(a, b)| a < b);
    if !increasing || rows.last().is_some_and(|&last| u64::from(last) >= source_rows) {
        return Err(Error::invalid("selected rows must increase and lie in their row group"));
    }
    let served = rows.len() as u64;
    let offset = U64::new(data.len() as u64);
    let record = |kind: u32, runs: usize| RowSetRecord {
        source_rows: U64::new(source_rows),
        offset,
        kind: U32::new(kind),
        runs: U32::new(runs as u32),
    };
    if served == source_rows {
        return Ok(record(kind::ALL, 0));
    }
    if source_rows > MAX_SOURCE_ROWS {
        return Err(Error::invalid(format!(
            "a row group of {source_rows} rows cannot be served in part, at most 2^32 rows can"
        )));
    }
    let runs = rows.chunk_by(|&a, &b| a.checked_add(1) == Some(b));
    let run_count = runs.clone().count();
    let size = |record: &RowSetRecord| container_len(record, served).unwrap_or(u64::MAX);
    let candidates = [record(kind::RUNS, run_count), record(kind::OFFSETS, 0), record(kind::BITMAP, 0)];
    let best = candidates.into_iter().min_by_key(size).unwrap_or_else(|| record(kind::BITMAP, 0));

    match best.kind.get() {
        kind::RUNS => {
            let mut end = 0_u32;
            for run in runs {
                end = end.saturating_add(run.len() as u32);
                let start = U32::new(run.first().copied().unwrap_or_default());
                data.extend_from_slice(StoredRun { start, end: U32::new(end) }.as_bytes());
            }
        }
        kind::OFFSETS => data.extend(rows.iter().flat_map(|row| row.to_le_bytes())),
        _ => encode_bitmap(rows, source_rows, data),
    }
    Ok(best)
}

fn encode_bitmap(rows: &[u32], source_rows: u64, data: &mut Vec<u8>) {
    let mut bits = vec![0_u64; words(source_rows) as usize];
    for &row in rows {
        if let Some(word) = bits.get_mut((u64::from(row) / WORD_BITS) as usize) {
            *word |= 1 << (u64::from(row) % WORD_BITS);
        }
    }
    let mut rank = 0_u32;
    for block in bits.chunks(BLOCK_WORDS as usize) {
        data.extend_from_slice(&rank.to_le_bytes());
        rank = block.iter().map(|word| word.count_ones()).fold(rank, u32::saturating_add);
    }
    data.extend(bits.iter().flat_map(|word| word.to_le_bytes()));
}
