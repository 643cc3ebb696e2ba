//! Levels, runs of values, and times of columns that the parquet crate decodes. It takes them as they are: a level that
//! cannot be moves values to other rows, a run that says that it is longer than its page has other values, and a time
//! that does not fit in 64 bits becomes another one.

use std::iter::repeat_n;
use std::sync::Arc;

use arrow_schema::TimeUnit;
use bytes::Bytes;
use parquet::basic::{Encoding, Repetition, Type as Physical};

use super::delta::Delta;
use super::is_optional;
use super::leaf::goes_on_empty;
use super::levels::each_level;
use super::pages::{ColumnPages, DataPage, PageStep};
use super::values::references;
use crate::chunks::ColumnChunk;
use crate::errors::{damaged, unsupported};
use crate::guard::FilePage;
use crate::unpack;
use rowdex_base::error::{Error, ErrorKind, Result};

/// Makes sure that levels and runs of these pages of a column can be, and that times of 96 bits can be had in
/// this unit. `rows` is how many rows the column chunk has, if all of its pages are there, and `told` how many begin in
/// the page at a place in the file, if that is known.
pub(crate) fn check_levels(
    column: ColumnChunk<'_>,
    pages: &Arc<[FilePage]>,
    rows: Option<usize>,
    told: &dyn Fn(u64) -> Option<usize>,
    times: Option<TimeUnit>,
) -> Result<()> {
    let highest = column.max_levels();
    // Of what cannot be decompressed here nothing is known.
    let has_none = highest == (0, 0) && rows.is_some() && !column.encodings().any(has_runs);
    if times.is_none() && (has_none || !unpack::knows(column.compression())) {
        return Ok(());
    }
    let mut lists = ListLevels { items: item_levels(column), highest, last: None };
    let mut places = pages.iter().map(|page| page.at);
    let mut walked = ColumnPages::new(column, Arc::clone(pages), Default::default(), 0, None, false);
    let mut begun = 0;
    while let Some(step) = walked.next()? {
        let place = places.next();
        let page = match step {
            PageStep::Data(page) => page,
            PageStep::Dictionary(dictionary, count) => {
                check_times(&dictionary, count, times)?;
                continue;
            }
            PageStep::Group => continue,
        };
        let (starts, values) = if highest.0 > 0 { lists.page(&page)? } else { (page.entries, flat(&page, highest.1)?) };
        if values > page.most_values {
            return Err(damaged("has fewer values than its levels say"));
        }
        check_values(&page, values, column.column_type() == Physical::INT32)?;
        if page.encoding == Encoding::PLAIN {
            check_times(&page.values, values, times)?;
        }
        if let Some(rows) = place.and_then(told).filter(|rows| *rows != starts) {
            return Err(damaged(format!("has a page of {starts} rows where its index says {rows}")));
        }
        begun += starts;
    }
    match rows {
        Some(rows) if rows != begun => Err(damaged(format!("holds {begun} rows where the footer says {rows}"))),
        _ => Ok(()),
    }
}

/// Whether values lie in runs, each of which says how long it is.
fn has_runs(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY | Encoding::DELTA_BINARY_PACKED)
}

/// Makes sure that so many values are there.
fn check_values(page: &DataPage, values: usize, are_short: bool) -> Result<()> {
    let differences = |bits| Delta::new(page.values.clone(), bits)?.each(values, |_| {});
    match page.encoding {
        encoding if values == 0 || !has_runs(encoding) => Ok(()),
        Encoding::DELTA_BINARY_PACKED if are_short && differences(u32::BITS).is_err() => {
            differences(u64::BITS)?;
            let message =
                "has integers of 32 bits whose differences take more bits, which cannot be read at this depth";
            Err(unsupported(message)
                .with_hint("leave the column out, or write it again, with DuckDB as PARQUET_VERSION v1"))
        }
        Encoding::DELTA_BINARY_PACKED => differences(u64::BITS),
        _ => references(page.values.clone())?.skip(values),
    }
}

/// Makes sure that the first `count` times of 96 bits, if it is such that these bytes have, can be had in 64 bits.
fn check_times(bytes: &[u8], count: usize, unit: Option<TimeUnit>) -> Result<()> {
    /// Of 1970-01-01.
    const JULIAN_DAY: i32 = 2_440_588;
    const DAY: i128 = 86_400_000_000_000;
    let (length, name) = match unit {
        None => return Ok(()),
        Some(TimeUnit::Second) => (1_000_000_000, "seconds"),
        Some(TimeUnit::Millisecond) => (1_000_000, "milliseconds"),
        Some(TimeUnit::Microsecond) => (1000, "microseconds"),
        Some(TimeUnit::Nanosecond) => (1, "nanoseconds"),
    };
    for time in bytes.chunks_exact(12).take(count) {
        let (Some((nanoseconds, _)), Some((_, day))) = (time.split_first_chunk(), time.split_last_chunk()) else {
            break;
        };
        let nanoseconds = i64::from_le_bytes(*nanoseconds);
        let day = i32::from_le_bytes(*day);
        let since = (i128::from(day) - i128::from(JULIAN_DAY)) * (DAY / length) + i128::from(nanoseconds) / length;
        if i64::try_from(since).is_err() {
            let message = format!("has an INT96 timestamp on Julian day {day}, which 64 bits of {name} do not reach");
            return Err(Error::new(ErrorKind::Schema, message).with_hint(
                "leave the column out, or write it again as microseconds, which Spark does with \
                 spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS",
            ));
        }
    }
    Ok(())
}

/// Values of a page without lists.
fn flat(page: &DataPage, highest: i16) -> Result<usize> {
    let mut values = 0;
    let highest = u32::from(highest.unsigned_abs());
    if highest == 0 {
        return Ok(page.entries);
    }
    each_level(&page.definition, page.entries, highest, |level, times| {
        values += if level == highest { times } else { 0 };
    })?;
    Ok(values)
}

/// What is known of lists from page to page.
struct ListLevels {
    /// For each level of lists, the definition level of their items; nothing where the schema does not tell.
    items: Vec<u32>,
    highest: (i16, i16),
    /// Definition level of the entry before.
    last: Option<u32>,
}

impl ListLevels {
    /// How many rows begin in a page, and how many values it has.
    fn page(&mut self, page: &DataPage) -> Result<(usize, usize)> {
        let all = |bytes: &Bytes, highest: i16| -> Result<Vec<u16>> {
            let mut levels = Vec::with_capacity(page.entries);
            let highest = u32::from(highest.unsigned_abs());
            each_level(bytes, page.entries, highest, |level, times| levels.extend(repeat_n(level as u16, times)))?;
            Ok(levels)
        };
        let repetition = all(&page.repetition, self.highest.0)?;
        let definition = all(&page.definition, self.highest.1)?;
        let mut starts = 0;
        let mut values = 0;
        for (repeated, defined) in repetition.into_iter().zip(definition) {
            let defined = u32::from(defined);
            if repeated == 0 {
                starts += 1;
            } else {
                let last = self.last.ok_or_else(|| damaged("begins inside a list"))?;
                let item = self.items.get(usize::from(repeated) - 1).copied().unwrap_or(0);
                if last < item || defined < item {
                    return Err(goes_on_empty());
                }
            }
            values += usize::from(defined == u32::from(self.highest.1.unsigned_abs()));
            self.last = Some(defined);
        }
        Ok((starts, values))
    }
}

/// For each level of lists that a column is in, the definition level of their items.
pub(super) fn item_levels(column: ColumnChunk<'_>) -> Vec<u32> {
    let mut node = column.root();
    let mut level = 0;
    let mut items = Vec::new();
    for part in column.column_descr().path().parts().iter().skip(1).map(Some).chain([None]) {
        let info = node.get_basic_info();
        let is_repeated = info.has_repetition() && info.repetition() == Repetition::REPEATED;
        level += u32::from(is_repeated || is_optional(node));
        if is_repeated {
            items.push(level);
        }
        let Some(part) = part else { break };
        let mut named = node.get_fields().iter().filter(|field| field.name() == part);
        match (named.next(), named.next()) {
            (Some(below), None) => node = below,
            _ => return Vec::new(),
        }
    }
    items
}
