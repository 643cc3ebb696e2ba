//! Conditions over columns, as people write them in SQL: parsed, typed, and evaluated over record batches.
//!
//! A [`Condition`] is text that was checked against a schema. [`Condition::over`] makes a [`Predicate`] of it for the
//! batches that a reader hands out, whose strings may be views. A predicate says which rows of a batch are kept, and
//! with [`Predicate::decided`] whether no more need be known of columns for that than their [`Bounds`].
//!
//! DataFusion parses, types and evaluates, and what it defines is the definition. Its simplifier is not run: it only
//! makes conditions faster, and some of its rules are wrong. What it would answer wrongly is refused.

mod plan;
mod sql;
#[cfg(test)]
mod tests;
mod truth;
mod values;

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;

use arrow_array::{Array, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{DataType, Fields, Schema, SchemaRef};
use datafusion_common::DataFusionError;
use datafusion_common::cast::as_boolean_array;
use datafusion_expr::Expr;
use datafusion_expr::sqlparser::ast;
use datafusion_physical_expr::PhysicalExpr;

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::fork::undivided;

pub use datafusion_common::ScalarValue;
pub use truth::Bounds;

/// The stack that a condition is planned on: DataFusion calls itself for each of its operators. Only what is touched
/// takes memory.
const STACK: usize = 256 << 20;

/// Where a value is: a column, and fields of structs below it.
pub type Path = Vec<String>;

/// A condition that was checked against a schema.
#[derive(Debug, Clone)]
pub struct Condition {
    texts: Vec<String>,
    parsed: Vec<ast::Expr>,
    columns: Vec<String>,
}

/// A condition over batches of one schema.
#[derive(Debug, Clone)]
pub struct Predicate {
    expr: Expr,
    evaluated: Arc<dyn PhysicalExpr>,
    terms: Vec<(Path, DataType)>,
}

impl Condition {
    /// Parses conditions, all of which rows have to meet, and finds their columns in the schema.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] with what is wrong, and where it can be known, what to write instead.
    pub fn parse(texts: &[String], schema: &SchemaRef) -> Result<Self> {
        on_a_deep_stack(|| {
            let parsed = texts.iter().map(|text| sql::parse(text).map_err(|error| of(text, error)));
            let parsed = parsed.collect::<Result<Vec<_>>>()?;
            // Planning takes time for each column that it is told of.
            let named = named(&parsed, schema);
            let condition = Self { texts: texts.to_vec(), parsed, columns: Vec::new() };
            let (expr, _) = condition.planned(&named, schema)?;
            Ok(Self { columns: plan::columns(&expr, schema), ..condition })
        })
    }

    /// The columns that it needs, as paths that a projection takes.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The condition over batches of this schema, which has its columns, and strings perhaps as views.
    pub fn over(&self, schema: &SchemaRef) -> Result<Predicate> {
        on_a_deep_stack(|| {
            let (expr, evaluated) = self.planned(schema, schema)?;
            let terms = truth::terms(&expr, schema);
            Ok(Predicate { expr, evaluated, terms })
        })
    }

    /// The condition with types, and as it is evaluated. Of columns that are not among those of the schema an error
    /// says what is like them among all.
    fn planned(&self, schema: &SchemaRef, all: &SchemaRef) -> Result<(Expr, Arc<dyn PhysicalExpr>)> {
        let each = self.parsed.iter().zip(&self.texts);
        let each = each.map(|(parsed, text)| plan::one(parsed, schema, all).map_err(|error| of(text, error)));
        let of_all = |error| of(&self.texts.join(" and "), error);
        let expr = plan::all(each.collect::<Result<_>>()?).map_err(of_all)?;
        let evaluated = plan::physical(&expr, schema).map_err(of_all)?;
        Ok((expr, evaluated))
    }
}

impl Predicate {
    /// What bounds are of use for, with the types that they are to have.
    pub fn terms(&self) -> &[(Path, DataType)] {
        &self.terms
    }

    /// Whether it is true in all rows whose values are within bounds, or in none. Bounds come in the order of
    /// [`terms`](Self::terms).
    pub fn decided(&self, bounds: &[Bounds]) -> Option<bool> {
        let of = |path: &Path| {
            let ((_, data_type), bounds) = self.terms.iter().zip(bounds).find(|((term, _), _)| term == path)?;
            bounds.interval(data_type)
        };
        undivided(|| truth::decided(&self.expr, &of))
    }

    /// Which rows of a batch it is true in; null is not true.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for values that it cannot be evaluated for: a number that overflows, text that is
    /// cast to a number and is none.
    pub fn rows(&self, batch: &RecordBatch) -> Result<BooleanBuffer> {
        let rows = batch.num_rows();
        let batch = &values::batch(batch).map_err(|error| unfit("cannot be evaluated", &error.into()))?;
        let values = undivided(|| self.evaluated.evaluate(batch)?.into_array_of_size(rows));
        let values = values.map_err(|error| unfit("cannot be evaluated", &error))?;
        let truths = as_boolean_array(&values).map_err(|error| unfit("cannot be evaluated", &error))?;
        Ok(match truths.nulls() {
            Some(valid) => truths.values() & valid.inner(),
            None => truths.values().clone(),
        })
    }
}

/// The columns that conditions name.
fn named(conditions: &[ast::Expr], schema: &SchemaRef) -> SchemaRef {
    let names: HashSet<String> = conditions.iter().flat_map(sql::columns).collect();
    let fields = schema.fields().iter().filter(|field| names.contains(field.name()));
    Arc::new(Schema::new(fields.cloned().collect::<Fields>()))
}

/// Runs what calls itself for each level of a condition; a panic of it becomes an error.
fn on_a_deep_stack<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let on_a_thread = || {
        thread::scope(|scope| {
            let deep = thread::Builder::new().name("rowdex-filter".to_owned()).stack_size(STACK);
            let running = deep
                .spawn_scoped(scope, work)
                .map_err(|error| Error::io("cannot start a thread for the condition", error))?;
            running.join().unwrap_or_else(|panic| {
                let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                Err(Error::new(ErrorKind::InvalidArgument, format!("the condition cannot be worked out: {said}")))
            })
        })
    };
    // DataFusion has many statics that it makes at first use.
    undivided(on_a_thread)
}

/// Says which condition an error is of.
fn of(text: &str, error: Error) -> Error {
    const SHOWN: usize = 200;
    let short: String = text.chars().take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let more = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    let place = error.column().map(|column| format!("column {column:?}: ")).unwrap_or_default();
    let told = Error::new(error.kind(), format!("in the condition `{short}{more}`: {place}{}", error.message()));
    match error.hint() {
        Some(hint) => told.with_hint(hint.to_owned()),
        None => told,
    }
}

/// An error of DataFusion as one line.
fn unfit(what: &str, error: &DataFusionError) -> Error {
    const LONGEST: usize = 400;
    let said = match error.find_root() {
        DataFusionError::Internal(said) => said.clone(),
        DataFusionError::SQL(error, _) => error.to_string(),
        other => other.message().into_owned(),
    };
    // Lists of functions that are alike come after an empty line.
    let said = said.split("\n\n").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let said: String = said.chars().take(LONGEST).collect();
    wrong(format!("{what}: {}", said.trim_end_matches(['.', ' '])))
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message.into())
}
