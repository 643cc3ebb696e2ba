//! Conditions over columns, as people write them in SQL: parsed, typed, and evaluated over record batches.
//!
//! A [`Condition`] is text that was checked against a schema. [`Condition::over`] makes a [`Predicate`] of it for the
//! batches that a reader hands out, whose strings may be views. A predicate says which rows of a batch are kept, and
//! with [`Predicate::truth`] what it may come to where no more is known of columns than their [`Bounds`].
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

use arrow::array::{Array, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Fields, Schema, SchemaRef};
use datafusion_common::DataFusionError;
use datafusion_expr::sqlparser::ast;
use datafusion_expr::{ColumnarValue, Expr};
use datafusion_physical_expr::PhysicalExpr;

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::fork::undivided;

pub use datafusion_common::ScalarValue;
pub use truth::{Bounds, Truth};

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
            let planned = parsed.iter().zip(texts);
            let planned = planned.map(|(one, text)| plan::one(one, &named, schema).map_err(|error| of(text, error)));
            let expr = plan::all(planned.collect::<Result<_>>()?)?;
            plan::physical(&expr, &named).map_err(|error| of(&texts.join(" and "), error))?;
            let columns = plan::columns(&expr, schema);
            Ok(Self { texts: texts.to_vec(), parsed, columns })
        })
    }

    /// The columns that it needs, as paths that a projection takes.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The condition over batches of this schema, which has its columns, and strings perhaps as views.
    pub fn over(&self, schema: &SchemaRef) -> Result<Predicate> {
        let plan = || {
            let planned = self.parsed.iter().map(|condition| plan::one(condition, schema, schema));
            let expr = plan::all(planned.collect::<Result<_>>()?)?;
            let evaluated = plan::physical(&expr, schema)?;
            let terms = truth::terms(&expr, schema);
            Ok(Predicate { expr, evaluated, terms })
        };
        on_a_deep_stack(plan).map_err(|error: Error| of(&self.texts.join(" and "), error))
    }
}

impl Predicate {
    /// What bounds are of use for, with the types that they are to have.
    pub fn terms(&self) -> &[(Path, DataType)] {
        &self.terms
    }

    /// What it may come to in rows whose values are within bounds, which come in the order of
    /// [`terms`](Self::terms).
    pub fn truth(&self, bounds: &[Bounds]) -> Truth {
        let of = |path: &Path| {
            let at = self.terms.iter().position(|(term, _)| term == path)?;
            bounds.get(at)
        };
        undivided(|| truth::truth(&self.expr, &of))
    }

    /// Which rows of a batch it is true in; null is not true.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for values that it cannot be evaluated for: a number that overflows, text that is
    /// cast to a number and is none.
    pub fn rows(&self, batch: &RecordBatch) -> Result<BooleanBuffer> {
        let rows = batch.num_rows();
        let batch = &values::batch(batch).map_err(|error| unfit("cannot be evaluated", &error.into()))?;
        let value =
            undivided(|| self.evaluated.evaluate(batch)).map_err(|error| unfit("cannot be evaluated", &error))?;
        let wrong = || Error::new(ErrorKind::Internal, "a condition gave something else than truth values");
        match value {
            ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))) => Ok(BooleanBuffer::new_set(rows)),
            ColumnarValue::Scalar(ScalarValue::Boolean(_) | ScalarValue::Null) => Ok(BooleanBuffer::new_unset(rows)),
            ColumnarValue::Array(array) if array.len() == rows => {
                let truths = array.as_any().downcast_ref::<BooleanArray>().ok_or_else(wrong)?;
                Ok(match truths.nulls() {
                    Some(valid) => truths.values() & valid.inner(),
                    None => truths.values().clone(),
                })
            }
            _ => Err(wrong()),
        }
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
        DataFusionError::ArrowError(error, _) => error.to_string(),
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
