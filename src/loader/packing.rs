//! What a loader knows of the packs that it serves: which rows of a batch are parts, and how long each row is.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::packs::{Packs, Unended};
use super::pieces::TokenRange;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::sampler::{BatchPlan, DistributedSampler};
use rowdex_order::{Algorithm, Lengths, Measure, Overflow, Pack, Packed, Piece};
use rowdex_rows::{Held, Then, TokenColumn, Tokens};

/// What is known of packs.
#[derive(Debug)]
pub(crate) struct ServedPacks {
    lengths: Arc<dyn Lengths>,
    pack: Pack,
    /// By what the length of a row is compared with what was noted, once it is decoded.
    measured: LengthSource,
    /// The tokens among the columns that are served, and what lies beside them.
    tokens: Option<Arc<Tokens>>,
    /// How many pieces there are for each row that has some; of a whole epoch, about.
    pub(crate) pieces_per_row: f64,
    pub(crate) pieces_per_pack: f64,
}

#[derive(Debug)]
enum LengthSource {
    Items(Tokens),
    Numbers(TokenColumn),
    /// Nothing among the columns says it.
    Not,
}

impl ServedPacks {
    /// What is known of the packs of a sampler, if it has some, of which these columns have the tokens and what lies
    /// beside them, if any do.
    pub(crate) fn of(
        sampler: &DistributedSampler,
        columns: &[String],
        decoded: &SchemaRef,
        served: &SchemaRef,
    ) -> Result<Option<Self>> {
        let Some(packed) = sampler.packed() else { return Ok(None) };
        let lengths = packed.lengths();
        let pack = *packed.pack();
        let cuts = matches!(pack.overflow, Overflow::Split | Overflow::Truncate) || pack.algorithm == Algorithm::Concat;
        if columns.is_empty() && cuts {
            let overflow = pack.overflow;
            let message =
                format!("packs that cut rows ({}, {overflow}), of which no column has the tokens", pack.algorithm);
            return Err(invalid(message).with_hint(
                "name the column with the tokens, or serve rows whole: overflow \"drop\" or \"error\", and not concat",
            ));
        }
        let find = |schema: &SchemaRef| (!columns.is_empty()).then(|| Tokens::find(schema, columns)).transpose();
        let measured = match (find(decoded)?, lengths.measure()) {
            (Some(tokens), _) => LengthSource::Items(tokens),
            (None, Some(Measure::Numbers(name))) => {
                TokenColumn::of_integers(decoded, name).map_or(LengthSource::Not, LengthSource::Numbers)
            }
            _ => LengthSource::Not,
        };
        let (pieces_per_row, pieces_per_pack) = shape(packed, sampler.epoch())?;
        let lengths = Arc::clone(lengths);
        let tokens = find(served)?.map(Arc::new);
        Ok(Some(Self { lengths, pack, measured, tokens, pieces_per_row, pieces_per_pack }))
    }

    /// What is due of a row of a batch, unless that is all of it for sure.
    #[inline]
    pub(crate) fn tokens_of(&self, batch: &BatchPlan, place: usize) -> Option<TokenRange> {
        // A row without tokens is whole.
        let piece = batch.pieces.get(place).filter(|piece| piece.length > 0 && self.tokens.is_some())?;
        let is_part = piece.offset > 0
            || piece.length >= self.pack.longest()
            // Rows are cut where a pack is full.
            || (self.pack.algorithm == Algorithm::Concat && batch.packs.binary_search(&(place + 1)).is_ok());
        is_part.then_some(TokenRange { offset: piece.offset, length: piece.length })
    }

    pub(crate) fn tokens(&self) -> Option<&Tokens> {
        match &self.measured {
            LengthSource::Items(tokens) => Some(tokens),
            _ => None,
        }
    }

    /// Which of these rows, as they are held, are not as long as was noted, or have other numbers of items beside their
    /// tokens: their places, each with an error.
    pub(crate) fn changed(&self, rows: &[u64], held: &[Held]) -> Result<Vec<(usize, Error)>> {
        let mut beside: &[TokenColumn] = &[];
        let (name, actual) = match &self.measured {
            LengthSource::Items(tokens) => {
                beside = tokens.beside();
                (tokens.name(), lengths(tokens.column(), held)?.into_iter().map(Some).collect())
            }
            LengthSource::Numbers(numbers) => {
                let mut found = Vec::new();
                for held in held {
                    numbers.integers(columns(held)?, (0..held.num_rows()).map(|row| held.place(row)), &mut found)?;
                }
                let length = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
                (numbers.name(), found.into_iter().map(length).collect::<Vec<Option<u64>>>())
            }
            // Nothing among the columns says how long rows are.
            LengthSource::Not => return Ok(Vec::new()),
        };
        let rows = rows.get(..actual.len()).unwrap_or(rows);
        let mut noted = vec![0; rows.len()];
        self.lengths.fill(rows, &mut noted)?;
        let mut changed = Vec::new();
        for (place, ((row, actual), noted)) in rows.iter().zip(&actual).zip(&noted).enumerate() {
            if *actual != Some(*noted) {
                let actual = actual.map_or_else(|| "no length".to_owned(), |actual| format!("a length of {actual}"));
                let error = Error::new(ErrorKind::Stale, format!("row {row} has {actual}, and {noted} was recorded"))
                    .with_hint("record the lengths again");
                changed.push((place, error.with_column(name)));
            }
        }
        for column in beside {
            let items = lengths(column, held)?;
            for (place, ((row, tokens), items)) in rows.iter().zip(actual.iter().flatten()).zip(items).enumerate() {
                if *tokens != items {
                    changed.push((place, unlike(*row, *tokens, name, items, column.name())));
                }
            }
        }
        Ok(changed)
    }

    /// How many columns have an item for each token, the tokens themselves among them.
    pub(crate) fn columns(&self) -> usize {
        self.tokens().map_or(0, |tokens| 1 + tokens.beside().len())
    }

    /// The packs of a batch. `behind` is what comes behind each piece that is a part, by its place, one item of each
    /// column.
    pub(crate) fn packs(&self, plan: &mut BatchPlan, behind: &[(usize, &[u64])]) -> Result<Packs> {
        let mut unended = Vec::new();
        let mut items = Vec::new();
        for (place, behind) in behind {
            let (Some(piece), [token, beside @ ..]) = (plan.pieces.get(*place), *behind) else { continue };
            let end = piece.offset.saturating_add(piece.length);
            let length = self.lengths.length(piece.row)?;
            let served =
                if self.pack.overflow == Overflow::Truncate { length.min(self.pack.longest()) } else { length };
            if end < length {
                let then = if end < served { Then::Token(*token as i64) } else { Then::Nothing };
                unended.push(Unended { place: *place, then });
                items.extend_from_slice(beside);
            }
        }
        Ok(self.packs_of(std::mem::take(&mut plan.pieces), std::mem::take(&mut plan.packs), unended, items))
    }

    /// The packs of these pieces, of which those that do not end their rows have so much behind them beside the token.
    pub(crate) fn packs_of(
        &self,
        pieces: Vec<Piece>,
        ends: Vec<usize>,
        unended: Vec<Unended>,
        behind: Vec<u64>,
    ) -> Packs {
        Packs { pieces, ends, unended, pack: self.pack, behind, tokens: self.tokens.clone() }
    }
}

/// How many items a column has in each row.
fn lengths(column: &TokenColumn, held: &[Held]) -> Result<Vec<u64>> {
    let mut lengths = Vec::new();
    for held in held {
        column.lengths(columns(held)?, (0..held.num_rows()).map(|row| held.place(row)), &mut lengths)?;
    }
    Ok(lengths)
}

/// The columns that rows lie in: rows of packs are not packed one by one.
pub(crate) fn columns(held: &Held) -> Result<&RecordBatch> {
    held.in_columns().ok_or_else(|| Error::new(ErrorKind::Internal, "pieces of rows that lie in no columns"))
}

/// The column with the tokens of packs.
pub(crate) fn column_of<'a>(packed: &'a Packed, given: Option<&'a str>) -> Option<&'a str> {
    given.or_else(|| match packed.lengths().measure() {
        Some(Measure::Items(name)) => Some(name),
        _ => None,
    })
}

/// How many pieces a row has, and a pack.
fn shape(packed: &Packed, epoch: u64) -> Result<(f64, f64)> {
    let planned = packed.packed(epoch)?;
    let pieces = rowdex_order::EpochOrder::len(&*planned) as f64;
    let rows = rowdex_order::Order::len(packed).max(1) as f64;
    // Of rows that are left out there are no pieces, and the others are as many as they were.
    Ok(((pieces / rows).max(1.0), (pieces / (planned.packs() as f64).max(1.0)).max(1.0)))
}

fn unlike(row: u64, tokens: u64, of: &str, items: u64, column: &str) -> Error {
    Error::new(ErrorKind::Schema, format!("row {row} has {tokens} tokens in {of}, and {items} items in {column}"))
        .with_column(column)
        .with_hint("write rows with an item for each token, or call a column otherwise that has something else")
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
