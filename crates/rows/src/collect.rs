//! Columns of batches, out of rows that were held.

use std::ops::Range;

use arrow_array::{Array, ArrayRef, new_empty_array};
use arrow_schema::{Field, SchemaRef};

use super::flat::only;
use super::gather::gather_runs;
use super::held::Held;
use super::nested::copy;
use super::packed::{PackedRows, unpack};
use super::picks::{BatchRow, PickedRuns, Spans};
use super::uncopied;
use super::views::is_view;
use rowdex_base::error::{Error, ErrorKind, Result};

/// A batch that shows rows where they lie keeps at most so many times its rows in memory.
pub const MOST_SHOWN: usize = 64;

/// Rows that become columns of their own: a range of places.
#[derive(Debug, Clone)]
pub struct Stretch {
    /// Which of the places.
    pub places: Range<usize>,
    /// Where they begin, if they lie one after the other.
    pub together: Option<Together>,
}

/// Where rows begin that lie one after the other in columns.
#[derive(Debug, Clone, Copy)]
pub struct Together {
    held: u32,
    row: u32,
    /// Whether they are a large enough part of what they lie in to be shown there, rather than copied.
    shown: bool,
}

impl Together {
    /// Where rows begin, if they do.
    pub fn of(places: &[BatchRow], held: &[Held]) -> Option<Self> {
        let (&(first, row), &(last, last_row)) = (places.first()?, places.last()?);
        let piece = held.get(first as usize).filter(|piece| piece.is_contiguous() && piece.in_columns().is_some())?;
        let close = first == last && u64::from(last_row) == u64::from(row) + places.len() as u64 - 1;
        let shown = places.len().saturating_mul(MOST_SHOWN) >= piece.of_rows();
        let in_order = close && (row..).zip(places).all(|(row, place)| *place == (first, row));
        in_order.then_some(Self { held: first, row, shown })
    }

    /// Whether `next` begins behind `rows` rows of this.
    pub fn goes_on(&self, rows: usize, next: &Self) -> bool {
        let behind = u64::from(self.row) + rows as u64;
        self.held == next.held && self.shown == next.shown && behind == u64::from(next.row)
    }
}

/// Brings all of these to columns, unless all are packed alike.
///
/// # Errors
/// As [`take`](super::take).
pub fn make_alike(held: &mut [Held], schema: &SchemaRef) -> Result<()> {
    if all_packed(held).is_none() {
        for held in held {
            if let Some(columns) = held.unpacked(schema)? {
                *held = columns;
            }
        }
    }
    Ok(())
}

/// The columns of each stretch of these places, of rows that are [alike](make_alike). `schema` is that of decoded rows.
/// Columns have the `served` type where a copy can give them that, and otherwise their own.
///
/// # Errors
/// As [`gather`](super::gather).
pub fn collect(
    held: &[Held],
    places: &[BatchRow],
    stretches: &[Stretch],
    schema: &SchemaRef,
    served: &SchemaRef,
) -> Result<Vec<Vec<ArrayRef>>> {
    if let Some(packed) = all_packed(held) {
        return stretches.iter().map(|stretch| unpack(&packed, &places[stretch.places.clone()], served)).collect();
    }
    let scattered = stretches.iter().filter(|stretch| stretch.together.is_none());
    let scattered = PickedRuns::of(scattered.map(|stretch| &places[stretch.places.clone()]));
    let mut columns: Vec<Vec<ArrayRef>> = vec![Vec::with_capacity(schema.fields().len()); stretches.len()];
    for (column, (field, wanted)) in schema.fields().iter().zip(served.fields()).enumerate() {
        let may_show = field.data_type() == wanted.data_type() && !is_view(wanted.data_type());
        let mut copied = scattered_column(held, &scattered, column, wanted)?.into_iter();
        for (columns, stretch) in columns.iter_mut().zip(stretches) {
            let array = match stretch.together {
                Some(together) => column_together(held, together, stretch.places.len(), column, wanted, may_show)?,
                None => copied.next().ok_or_else(|| Error::new(ErrorKind::Internal, "a batch without a column"))?,
            };
            columns.push(array);
        }
    }
    Ok(columns)
}

/// The packed rows of all of these, if all are, and alike.
fn all_packed(held: &[Held]) -> Option<Vec<&PackedRows>> {
    let packed: Option<Vec<&PackedRows>> = held.iter().map(Held::in_rows).collect();
    packed.filter(|packed| packed.first().is_some_and(|first| packed.iter().all(|other| other.is_like(first))))
}

/// One column of rows that lie one after the other.
fn column_together(
    held: &[Held],
    Together { held: number, row, shown }: Together,
    rows: usize,
    column: usize,
    wanted: &Field,
    may_show: bool,
) -> Result<ArrayRef> {
    let whole = held.get(number as usize).and_then(|held| held.in_columns()?.columns().get(column));
    let whole = whole.ok_or_else(no_column)?;
    let row = row as usize;
    if may_show && shown {
        return Ok(whole.slice(row, rows));
    }
    let mut span = Spans::with_capacity(1);
    span.push(0, row..row + rows);
    let copied = copy(&[whole.as_ref()], &[&span], wanted.data_type()).and_then(only);
    copied.map_err(|error| uncopied(error).with_column(wanted.name()))
}

/// One column of rows that lie anywhere, an array for each run.
fn scattered_column(held: &[Held], runs: &PickedRuns<'_>, column: usize, wanted: &Field) -> Result<Vec<ArrayRef>> {
    if held.is_empty() || runs.in_spans.is_empty() {
        return Ok(vec![new_empty_array(wanted.data_type()); runs.in_spans.len()]);
    }
    let arrays = held.iter().map(|held| held.in_columns()?.columns().get(column).map(AsRef::as_ref));
    let sources: Option<Vec<&dyn Array>> = arrays.collect();
    let gathered = gather_runs(&sources.ok_or_else(no_column)?, runs, wanted.data_type());
    gathered.map_err(|error| error.with_column(wanted.name()))
}

fn no_column() -> Error {
    Error::new(ErrorKind::Internal, "rows without a column")
}
