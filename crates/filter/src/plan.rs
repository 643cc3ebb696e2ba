//! From a parsed condition to a typed expression, and to one that is evaluated.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Schema, SchemaRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, DataFusionError, ScalarValue, SchemaError, TableReference, plan_err};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::expr::{Between, BinaryExpr, InList, ScalarFunction};
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::planner::{ContextProvider, ExprPlanner};
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::sqlparser::ast;
use datafusion_expr::utils::split_binary_owned;
use datafusion_expr::{
    AggregateUDF, ColumnarValue, Expr, ExprSchemable, HigherOrderUDF, Operator, ScalarUDF, TableSource, Volatility,
    WindowUDF, binary_expr, lit,
};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::BinaryExpr as PhysicalBinary;
use datafusion_sql::planner::{ParserOptions, PlannerContext, SqlToRel};

use super::truth::{paths, steps};
use super::{Path, unfit, values, wrong};
use rowdex_base::error::{Error, Result};
use rowdex_base::once::Once;
use rowdex_projection::unknown;

/// Levels of an expression at most, once chains of `and` and `or` are trees: threads evaluate it on their own stacks.
const DEEPEST: usize = 200;

/// Operations at most of what is written out, such as functions as `case`.
const MOST_OPERATIONS: usize = 1 << 16;

/// What becomes another expression before it can be evaluated.
const REWRITTEN: &[&str] =
    &["arrow_cast", "arrow_try_cast", "cast_to_type", "coalesce", "nvl", "nvl2", "try_cast_to_type"];

type Fallible<T> = std::result::Result<T, DataFusionError>;

/// Functions by name, and what else the planner asks for. There are no tables.
struct Functions {
    scalar: HashMap<String, Arc<ScalarUDF>>,
    planners: Vec<Arc<dyn ExprPlanner>>,
    options: ConfigOptions,
}

fn functions() -> &'static Functions {
    static FUNCTIONS: Once<Functions> = Once::new();
    FUNCTIONS.get_or_init(Functions::new)
}

impl Functions {
    fn new() -> Self {
        let mut scalar = HashMap::new();
        let plain = datafusion_functions::all_default_functions();
        for function in plain.into_iter().chain(datafusion_functions_nested::all_default_nested_functions()) {
            for name in function.aliases() {
                scalar.insert(name.clone(), Arc::clone(&function));
            }
            scalar.insert(function.name().to_owned(), function);
        }
        // Of where rows come from, which an index answers and a condition does not know.
        for unknown in ["file_row_index", "input_file_name", "version"] {
            scalar.remove(unknown);
        }
        let planners: Vec<Arc<dyn ExprPlanner>> = vec![
            Arc::new(datafusion_functions::core::planner::CoreFunctionPlanner::default()),
            Arc::new(datafusion_functions_nested::planner::NestedFunctionPlanner),
            Arc::new(datafusion_functions_nested::planner::FieldAccessPlanner),
            Arc::new(datafusion_functions::datetime::planner::DatetimeFunctionPlanner),
            Arc::new(datafusion_functions::unicode::planner::UnicodeFunctionPlanner),
        ];
        let mut options = ConfigOptions::new();
        // Otherwise `timestamptz` would be `timestamp`.
        options.execution.time_zone = Some("+00:00".to_owned());
        Self { scalar, planners, options }
    }
}

impl ContextProvider for Functions {
    fn get_table_source(&self, name: TableReference) -> Fallible<Arc<dyn TableSource>> {
        plan_err!("there is no table {name}")
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.planners
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.scalar.get(name).cloned()
    }

    fn get_higher_order_meta(&self, _: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, _: &str) -> Option<Arc<AggregateUDF>> {
        None
    }

    fn get_window_meta(&self, _: &str) -> Option<Arc<WindowUDF>> {
        None
    }

    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.options
    }

    fn udf_names(&self) -> Vec<String> {
        self.scalar.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A condition over batches of a schema, or of a part of it: typed, with constants worked out.
pub(super) fn one(condition: &ast::Expr, schema: &SchemaRef, all: &SchemaRef) -> Result<Expr> {
    let own = known(schema)?;
    // Names are those of the columns, in their case.
    let options = ParserOptions::new().with_enable_ident_normalization(false);
    let expr = SqlToRel::new_with_options(functions(), options)
        .sql_to_expr(condition.clone(), &own, &mut PlannerContext::new())
        .and_then(|expr| expr.transform_up(unaliased).map(|done| done.data))
        .map_err(|error| match error.find_root() {
            DataFusionError::SchemaError(missing, _) if let SchemaError::FieldNotFound { field, .. } = &**missing => {
                let name = field.flat_name();
                let known = unknown(all, &name);
                let hint = known.hint().map_or_else(String::new, |hint| format!("{hint}; "));
                let error = Error::new(known.kind(), known.message().to_owned()).with_column(&name);
                error.with_hint(format!("{hint}strings are in single quotes"))
            }
            _ => unfit("it cannot be understood", &error),
        })?;
    let context = SimplifyContext::builder().with_schema(Arc::clone(&own)).build();
    let coerced = |expr: Expr| {
        let typed = ExprSimplifier::new(context.clone()).coerce(balanced(expr), &own);
        typed.map_err(|error| unfit("its types do not fit", &error))
    };
    let worked_out = |expr: Expr| {
        let done = expr.transform_down(worked_out).map_err(|error| unfit("it cannot be worked out", &error))?;
        Ok::<_, Error>(done.data)
    };
    let expr = coerced(expr)?;
    check(&expr, &own)?;
    let mut operations = 0;
    let expr = expr.transform_up(|expr| evaluable(expr, &context, &mut operations));
    let expr = worked_out(expr.map_err(|error| unfit("it cannot be worked out", &error))?.data)?;
    // By constants functions may have other types.
    let expr = worked_out(coerced(expr)?)?;
    match expr.get_type(&own).map_err(|error| unfit("its types do not fit", &error))? {
        DataType::Boolean => Ok(expr),
        DataType::Null => Ok(lit(ScalarValue::Boolean(None))),
        other => {
            Err(wrong(format!("it is of type {other}, and not true or false")).with_hint("compare it with something"))
        }
    }
}

/// Conditions, all of which rows have to meet, as one.
pub(super) fn all(conditions: Vec<Expr>) -> Result<Expr> {
    let all = conditions.into_iter().reduce(Expr::and).map_or_else(|| lit(true), balanced);
    match depth(&all) {
        deep if deep > DEEPEST => Err(wrong(format!("it is {deep} operations deep, more than {DEEPEST}"))),
        _ => Ok(all),
    }
}

/// The expression as it is evaluated, with errors for numbers that overflow.
pub(super) fn physical(expr: &Expr, schema: &SchemaRef) -> Result<Arc<dyn PhysicalExpr>> {
    let own = known(schema)?;
    created(expr, &own).map_err(|error| unfit("it cannot be evaluated", &error))
}

fn known(schema: &SchemaRef) -> Result<Arc<DFSchema>> {
    let known = DFSchema::try_from(Arc::clone(schema));
    known.map(Arc::new).map_err(|error| unfit("the columns cannot be used", &error))
}

fn created(expr: &Expr, schema: &DFSchema) -> Fallible<Arc<dyn PhysicalExpr>> {
    let context = PhysicalPlanningContext::default();
    let plain = datafusion_physical_expr::create_physical_expr(expr, schema, &ExecutionProps::new(), &context)?;
    let strict = plain.transform_up(|node| {
        let binary = (&*node as &dyn Any).downcast_ref::<PhysicalBinary>();
        let overflows = |binary: &&PhysicalBinary| {
            matches!(binary.op(), Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide)
        };
        Ok(match binary.filter(overflows) {
            Some(binary) => {
                let left = Arc::clone(binary.left());
                let right = Arc::clone(binary.right());
                let strict = PhysicalBinary::new(left, *binary.op(), right).with_fail_on_overflow(true);
                Transformed::yes(Arc::new(strict) as Arc<dyn PhysicalExpr>)
            }
            None => Transformed::no(node),
        })
    })?;
    Ok(strict.data)
}

fn unaliased(expr: Expr) -> Fallible<Transformed<Expr>> {
    Ok(match expr {
        Expr::Alias(alias) => Transformed::yes(*alias.expr),
        other => Transformed::no(other),
    })
}

/// Writes out what is not evaluated itself, or more than once: functions as what they stand for, `between` as two
/// comparisons. Subtracts from zero instead of turning a sign, which would leave the least integer negative.
fn evaluable(expr: Expr, context: &SimplifyContext, operations: &mut usize) -> Fallible<Transformed<Expr>> {
    let written = match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) if REWRITTEN.contains(&func.name()) => {
            match func.simplify(args, context)? {
                ExprSimplifyResult::Simplified(expr) => expr,
                ExprSimplifyResult::Original(args) => return Ok(Transformed::no(func.call(args))),
            }
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let within = (*expr).clone().gt_eq(*low).and(expr.lt_eq(*high));
            if negated { Expr::Not(Box::new(within)) } else { within }
        }
        Expr::Negative(of) => match context.get_data_type(&of)? {
            of_type if of_type.is_signed_integer() && !matches!(*of, Expr::Literal(..)) => {
                binary_expr(lit(ScalarValue::new_zero(&of_type)?), Operator::Minus, *of)
            }
            _ => return Ok(Transformed::no(Expr::Negative(of))),
        },
        other => return Ok(Transformed::no(other)),
    };
    written.apply(|_| {
        *operations += 1;
        match *operations > MOST_OPERATIONS {
            true => plan_err!("`coalesce`, `between` and the like within each other become too many operations"),
            false => Ok(TreeNodeRecursion::Continue),
        }
    })?;
    Ok(Transformed::yes(written))
}

/// Works out what has no column, with errors for numbers that overflow.
fn worked_out(expr: Expr) -> Fallible<Transformed<Expr>> {
    let value = match expr {
        Expr::Literal(value, metadata) => {
            return Ok(Transformed::yes(Expr::Literal(values::constant(value), metadata)));
        }
        expr if expr.exists(|expr| Ok(matches!(expr, Expr::Column(_))))? => return Ok(Transformed::no(expr)),
        expr => {
            let none = Arc::new(Schema::empty());
            let one_row = RecordBatchOptions::new().with_row_count(Some(1));
            let batch = RecordBatch::try_new_with_options(Arc::clone(&none), Vec::new(), &one_row)?;
            match created(&expr, &DFSchema::try_from(none)?)?.evaluate(&batch)? {
                ColumnarValue::Scalar(value) => value,
                ColumnarValue::Array(values) => ScalarValue::try_from_array(&values, 0)?,
            }
        }
    };
    Ok(Transformed::new(Expr::Literal(values::constant(value), None), true, TreeNodeRecursion::Jump))
}

/// Refuses what would be answered wrongly, or differently each time.
fn check(expr: &Expr, schema: &DFSchema) -> Result<()> {
    let mut found = None;
    let walked = expr.apply(|expr| {
        found = refusal(expr, schema);
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    // Nothing that is visited is an error of DataFusion's.
    drop(walked);
    found.map_or(Ok(()), Err)
}

fn refusal(expr: &Expr, schema: &DFSchema) -> Option<Error> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, .. }) if func.signature().volatility != Volatility::Immutable => {
            let error = wrong(format!("`{}` gives another value each time", func.name()));
            Some(error.with_hint("write the value itself; for a random share of rows there is `sample`"))
        }
        Expr::SimilarTo(_) => Some(
            wrong("`similar to` is not what SQL means by it")
                .with_hint("write `like`, or a regular expression: s ~ '^1'"),
        ),
        // Intervals are compared by their months, then their days, then the rest: forty days are less than a month.
        Expr::BinaryExpr(BinaryExpr { op, .. }) if !op.supports_propagation() => None,
        Expr::BinaryExpr(BinaryExpr { left: of, .. })
        | Expr::Between(Between { expr: of, .. })
        | Expr::InList(InList { expr: of, .. }) => {
            let error = wrong("intervals are not compared with each other");
            matches!(of.get_type(schema), Ok(DataType::Interval(_)))
                .then(|| error.with_hint("compare times: later > earlier + interval '1 day'"))
        }
        _ => None,
    }
}

fn depth(expr: &Expr) -> usize {
    let mut deepest = 0;
    let below = expr.apply_children(|child| {
        deepest = deepest.max(depth(child));
        Ok(TreeNodeRecursion::Continue)
    });
    drop(below);
    deepest + 1
}

/// Chains of `and` and of `or` as trees, which are not as deep.
fn balanced(expr: Expr) -> Expr {
    let Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) = expr else { return expr };
    let all: Vec<Expr> = split_binary_owned(expr, op).into_iter().map(balanced).collect();
    halved(all, op)
}

fn halved(mut all: Vec<Expr>, op: Operator) -> Expr {
    if all.len() == 1 {
        return all.remove(0);
    }
    let right = all.split_off(all.len() / 2);
    binary_expr(halved(all, op), op, halved(right, op))
}

/// The columns that an expression needs, as paths for a projection: fields of structs alone where that is enough.
pub(super) fn columns(expr: &Expr, schema: &SchemaRef) -> Vec<String> {
    let mut paths = paths(expr);
    for path in &mut paths {
        path.truncate(steps(path, schema).len());
        // A dot in a name would make the path of another column of it.
        let start = format!("{}.", path[0]);
        if path.iter().any(|name| name.contains('.')) || schema.fields().iter().any(|of| of.name().starts_with(&start))
        {
            path.truncate(1);
        }
    }
    paths.sort();
    // A path sorts behind those that it begins with.
    let mut kept: Vec<Path> = Vec::new();
    for path in paths {
        if !kept.iter().any(|known| path.starts_with(known)) {
            kept.push(path);
        }
    }
    kept.iter().map(|path| path.join(".")).collect()
}
