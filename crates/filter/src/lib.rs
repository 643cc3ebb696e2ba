//! Conditions over columns, as people write them in SQL: parsed, typed, and evaluated over record batches.
//!
//! A [`Condition`] is text that was checked against a schema. [`Condition::over`] makes a [`Predicate`] of it for the
//! batches that a reader hands out, whose strings may be views. A predicate says which rows of a batch are kept, and
//! with [`Predicate::truth`] what it may come to where no more is known of columns than their [`Bounds`].
//!
//! DataFusion parses, types, simplifies and evaluates. What it leaves to the engine around it is decided here: which
//! expressions are conditions, how names are found, and what division by zero, NaN and negative zero are.

mod apart;
mod bounded;
mod canonical;
mod evaluated;
mod nullable;
mod plan;
mod sql;
#[cfg(test)]
mod tests;
mod truth;
mod written;

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arrow::array::{Array, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, FieldRef, Fields, Schema, SchemaRef};
use datafusion_common::DataFusionError;
use datafusion_expr::sqlparser::ast;
use datafusion_expr::{ColumnarValue, Expr};
use datafusion_physical_expr::PhysicalExpr;

use self::bounded::{Deadline, LONGEST};
use self::plan::Planner;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::fork::undivided;

pub use datafusion_common::ScalarValue;
pub use truth::{Bounds, Lacks, Truth};

/// The stack that a condition is parsed and typed on, which calls itself for each level of nesting. Only what is
/// touched takes memory.
const STACK: usize = 256 << 20;

/// Where a value is: a column, and fields of structs below it.
pub type Path = Vec<String>;

/// A condition that was checked against a schema.
#[derive(Debug, Clone)]
pub struct Condition {
    texts: Vec<String>,
    parsed: Vec<ast::Expr>,
    schema: SchemaRef,
    columns: Vec<String>,
}

/// A condition over batches of one schema.
#[derive(Debug, Clone)]
pub struct Predicate {
    /// Simplified, before what evaluating adds.
    expr: Expr,
    evaluated: Arc<dyn PhysicalExpr>,
    terms: Vec<(Path, DataType)>,
    /// Which of the terms are compared for equality.
    equal: Vec<usize>,
}

impl Condition {
    /// Parses conditions, all of which rows have to meet, and finds their columns in the schema.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] with what is wrong, and where it can be known, what to write instead.
    pub fn parse(texts: &[String], schema: &SchemaRef) -> Result<Self> {
        Self::parse_within(texts, schema, LONGEST)
    }

    fn parse_within(texts: &[String], schema: &SchemaRef, longest: Duration) -> Result<Self> {
        let parse = |deadline: Deadline| {
            let parsed = texts.iter().map(|text| sql::parse(text, schema, deadline).map_err(|error| of(text, error)));
            let parsed = parsed.collect::<Result<Vec<_>>>()?;
            // Planning takes time for each column that it is told of.
            let named = named(&parsed, schema);
            let planner = Planner::new(&named, deadline)?;
            let planned = parsed.iter().zip(texts).map(|(one, text)| planner.one(one).map_err(|error| of(text, error)));
            let expr = planner.joined(planned.collect::<Result<Vec<_>>>()?)?;
            evaluated::physical(&expr, &named)?;
            let columns = plan::columns(&expr, schema);
            Ok(Self { texts: texts.to_vec(), parsed, schema: named, columns })
        };
        on_a_deep_stack(|| {
            let deadline = Deadline::within(longest);
            let late = |error| if deadline.is_over() { of(&texts.join(" and "), deadline.error()) } else { error };
            parse(deadline).map_err(late)
        })
    }

    /// The columns that it needs, as paths that a projection takes.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The condition over batches of this schema, which has its columns, and strings perhaps as views.
    pub fn over(&self, schema: &SchemaRef) -> Result<Predicate> {
        let plan = |deadline| {
            let planner = Planner::new(&completed(schema, &self.schema), deadline)?;
            let planned = self.parsed.iter().map(|condition| planner.one(condition));
            let expr = planner.joined(planned.collect::<Result<Vec<_>>>()?)?;
            let evaluated = evaluated::physical(&expr, schema)?;
            let terms = truth::terms(&expr, schema);
            let equal = truth::equal(&expr, &terms);
            Ok(Predicate { expr, evaluated, terms, equal })
        };
        let planned = on_a_deep_stack(|| {
            let deadline = Deadline::within(LONGEST);
            plan(deadline).map_err(|error: Error| if deadline.is_over() { deadline.error() } else { error })
        });
        planned.map_err(|error| of(&self.texts.join(" and "), error))
    }
}

impl Predicate {
    /// What bounds are of use for, with the types that they are to have.
    pub fn terms(&self) -> &[(Path, DataType)] {
        &self.terms
    }

    /// Which terms are compared for equality with constants, so that it is of use to know values that they lack.
    pub fn equal(&self) -> &[usize] {
        &self.equal
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
        let batch = &nullable::batch(batch).map_err(|error| unfit("cannot be evaluated", &error.into()))?;
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

/// The columns of batches, and after them those that were not read. A condition may name one that it comes to the same
/// without, and is typed with all of them.
fn completed(read: &SchemaRef, all: &SchemaRef) -> SchemaRef {
    fn fields(read: &Fields, all: &Fields) -> Fields {
        let whole = |field: &FieldRef| match (field.data_type(), all.find(field.name()).map(|(_, of)| of.data_type())) {
            (DataType::Struct(below), Some(DataType::Struct(all))) => {
                let data_type = DataType::Struct(fields(below, all));
                Arc::new(field.as_ref().clone().with_data_type(data_type))
            }
            _ => Arc::clone(field),
        };
        let missing = all.iter().filter(|field| read.find(field.name()).is_none()).cloned();
        read.iter().map(whole).chain(missing).collect()
    }
    Arc::new(Schema::new(fields(read.fields(), all.fields())))
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
    match error.advice() {
        Some(hint) => told.with_hint(hint.clone()),
        None => told,
    }
}

/// An error of DataFusion as one line.
fn unfit(what: &str, error: &DataFusionError) -> Error {
    const LONGEST: usize = 400;
    let mut root = error;
    while let DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) = root {
        root = inner;
    }
    let said = match root {
        DataFusionError::ArrowError(error, _) => error.to_string(),
        DataFusionError::SQL(error, _) => error.to_string(),
        other => other.strip_backtrace(),
    };
    let said = said.split("\n\n").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let said = said.split(" This issue was likely caused by a bug").next().unwrap_or_default();
    let prefixes = [
        "Error during planning: ",
        "Internal error: ",
        "Arrow error: ",
        "Execution error: ",
        "sql parser error: ",
        "This feature is not implemented: ",
    ];
    let said = prefixes.iter().fold(said, |said, prefix| said.strip_prefix(prefix).unwrap_or(said));
    let said: String = said.chars().take(LONGEST).collect();
    Error::new(ErrorKind::InvalidArgument, format!("{what}: {}", said.trim_end_matches(['.', ' '])))
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message.into())
}
