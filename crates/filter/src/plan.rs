//! From a parsed condition to a typed, simplified expression.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, DataFusionError, ScalarValue, TableReference, plan_err};
use datafusion_expr::expr::{Between, BinaryExpr, InList, ScalarFunction};
use datafusion_expr::planner::{ContextProvider, ExprPlanner};
use datafusion_expr::simplify::SimplifyContext;
use datafusion_expr::sqlparser::ast;
use datafusion_expr::{
    AggregateUDF, Expr, ExprSchemable, HigherOrderUDF, Operator, ScalarUDF, TableSource, Volatility, WindowUDF, lit,
};
use datafusion_sql::planner::{ParserOptions, PlannerContext, SqlToRel};

use super::apart::Simplifier;
use super::bounded::Deadline;
use super::evaluated::{check_depth, compares, levels, planned, worked_out};
use super::truth::term;
use super::written::{UTC, Written, of_one_unit};
use super::{Path, unfit, wrong};
use rowdex_base::error::{Error, Remedy, Result};
use rowdex_base::once::Once;

/// Operations at most, once what is simplified to `case` is written out.
const MOST_WRITTEN_OUT: u64 = 1 << 16;

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
        options.execution.time_zone = Some(UTC.to_owned());
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

/// Plans conditions over batches of one schema.
pub(super) struct Planner {
    own: Arc<DFSchema>,
    /// As the planner is to see it.
    seen: DFSchema,
    simplifier: Simplifier,
    deadline: Deadline,
}

impl Planner {
    pub(super) fn new(schema: &SchemaRef, deadline: Deadline) -> Result<Self> {
        let own = Arc::new(planned(schema)?);
        let seen = DFSchema::try_from(of_one_unit(own.as_arrow()));
        let seen = seen.map_err(|error| unfit("the columns cannot be used", &error))?;
        let simplifier = Simplifier::new(SimplifyContext::builder().with_schema(Arc::clone(&own)).build());
        Ok(Self { own, seen, simplifier, deadline })
    }

    /// One condition: typed, with constants worked out, and simplified.
    pub(super) fn one(&self, condition: &ast::Expr) -> Result<Expr> {
        let Self { own, seen, simplifier, deadline } = self;
        let options = ParserOptions { enable_ident_normalization: false, ..ParserOptions::default() };
        let written = Written::new(condition, own, simplifier.rules());
        let expr = SqlToRel::new_with_options(functions(), options)
            .sql_to_expr(condition.clone(), seen, &mut PlannerContext::new())
            .and_then(|expr| expr.transform_up(unaliased).map(|done| done.data))
            .map_err(|error| unfit("it cannot be understood", &error))?;
        check(&expr, own)?;
        let expr = expr
            .transform_up(|expr| {
                deadline.check()?;
                divided(expr, own)?
                    .transform_data(|expr| negated(expr, own))?
                    .transform_data(|expr| keyed(expr, own))?
                    .transform_data(rounded)?
                    .transform_data(|expr| written.adapt(expr))
            })
            .map(|done| done.data)
            .and_then(|expr| simplifier.rules().coerce(expr, own))
            .map_err(|error| unfit("its types do not fit", &error))?;
        if written_out(&expr) > MOST_WRITTEN_OUT {
            return Err(wrong("it nests `coalesce`, `nullif` or divisions too deep")
                .with_hint("write `case when … then … else … end`"));
        }
        let data_type = expr.get_type(own).map_err(|error| unfit("its types do not fit", &error))?;
        if !matches!(data_type, DataType::Boolean | DataType::Null) {
            return Err(wrong(format!("it is of type {data_type}, and not true or false"))
                .with_hint("compare it with something"));
        }
        let expr = expr
            .transform_down(|expr| {
                deadline.check()?;
                worked_out(expr)
            })
            .map(|done| done.data)
            .map_err(|error| unfit("it cannot be worked out", &error))?;
        check_depth(levels(&expr))?;
        self.simplified(expr)
    }

    /// Conditions that were planned, all of which rows have to meet, as one.
    pub(super) fn joined(&self, conditions: impl IntoIterator<Item = Expr>) -> Result<Expr> {
        let all = conditions.into_iter().reduce(Expr::and).unwrap_or_else(|| lit(true));
        self.simplified(balanced(all)).map(balanced)
    }

    fn simplified(&self, expr: Expr) -> Result<Expr> {
        let simple = self.simplifier.simplified(expr, self.deadline);
        simple.map_err(|error| unfit("it cannot be simplified", &error))
    }
}

/// How many operations there are once functions that become `case` are written out: each repeats what it is of, so that
/// nested ones double with each level.
fn written_out(expr: &Expr) -> u64 {
    let mut below = 0_u64;
    let walked = expr.apply_children(|child| {
        below = below.saturating_add(written_out(child));
        Ok(TreeNodeRecursion::Continue)
    });
    drop(walked);
    match expr {
        // Lists of values are long and repeat nothing.
        Expr::Literal(..) => 0,
        Expr::ScalarFunction(ScalarFunction { func, .. })
            if matches!(func.name(), "coalesce" | "nvl" | "nvl2" | "nullif" | "greatest" | "least") =>
        {
            below.saturating_mul(2).saturating_add(1)
        }
        _ => below.saturating_add(1),
    }
}

fn unaliased(expr: Expr) -> Fallible<Transformed<Expr>> {
    Ok(match expr {
        Expr::Alias(alias) => Transformed::yes(*alias.expr),
        other => Transformed::no(other),
    })
}

/// Refuses what types alone do not tell.
fn check(expr: &Expr, schema: &DFSchema) -> Result<()> {
    let mut found = None;
    let walked = expr.apply(|expr| {
        found = refusal(expr, schema);
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    walked.map_err(|error| unfit("it cannot be understood", &error))?;
    found.map_or(Ok(()), Err)
}

fn refusal(expr: &Expr, schema: &DFSchema) -> Option<Error> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, .. }) if func.signature().volatility != Volatility::Immutable => {
            let said = wrong(format!("`{}` gives another value each time", func.name()));
            Some(
                said.with_remedies(
                    "write the value itself; for a random share of the rows there is {}",
                    &[Remedy::Sample],
                ),
            )
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(*op) => incomparable(left, right, schema),
        Expr::Between(Between { expr, low, high, .. }) => {
            incomparable(expr, low, schema).or_else(|| incomparable(expr, high, schema))
        }
        Expr::InList(InList { expr, list, .. }) => list.iter().find_map(|value| incomparable(expr, value, schema)),
        Expr::AggregateFunction(_) | Expr::WindowFunction(_) => {
            Some(wrong("it looks at more than one row, and a condition is of one row"))
        }
        Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_) => {
            Some(wrong("a query within the condition").with_hint("run it elsewhere and use a list of rows"))
        }
        Expr::SimilarTo(_) => Some(
            wrong("`similar to` is not what SQL means by it")
                .with_hint("write `like`, or a regular expression: s ~ '^1'"),
        ),
        Expr::ScalarVariable(_, names) => Some(wrong(format!("`{}` is no column", names.join(".")))),
        Expr::Placeholder(_) | Expr::OuterReferenceColumn(..) | Expr::Unnest(_) | Expr::GroupingSet(_) => {
            Some(wrong(format!("`{expr}` is no value of a row")))
        }
        _ => None,
    }
}

/// Text that is not written in the condition would be cast to numbers row by row, and most text is none. Intervals are
/// compared by their months, then their days, then the rest, in which a day is less than 25 hours and more than none.
fn incomparable(a: &Expr, b: &Expr, schema: &DFSchema) -> Option<Error> {
    let typed = |expr: &Expr| {
        expr.get_type(schema).ok().map(|data_type| match data_type {
            DataType::Dictionary(_, values) => *values,
            other => other,
        })
    };
    let (first, second) = (typed(a)?, typed(b)?);
    let has_column = |expr: &Expr| expr.exists(|expr| Ok(matches!(expr, Expr::Column(_)))).unwrap_or(true);
    match (&first, &second) {
        (DataType::Interval(_), DataType::Duration(_)) if !has_column(a) => return None,
        (DataType::Duration(_), DataType::Interval(_)) if !has_column(b) => return None,
        (DataType::Interval(_), _) | (_, DataType::Interval(_)) if !first.is_null() && !second.is_null() => {
            return Some(
                wrong("intervals are not compared with each other")
                    .with_hint("compare times: later > earlier + interval '1 day'"),
            );
        }
        _ => {}
    }
    let is_text = |expr: &Expr, of: &DataType| {
        matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) && !matches!(expr, Expr::Literal(..))
    };
    let is_number = |of: &DataType| of.is_numeric() || *of == DataType::Boolean;
    let (text, number, to) = if is_text(a, &first) && is_number(&second) {
        (a, b, second)
    } else if is_text(b, &second) && is_number(&first) {
        (b, a, first)
    } else {
        return None;
    };
    let hint = format!("put the value in single quotes, or cast the text: try_cast({text} as double)");
    Some(wrong(format!("{text} is text, and {number} is of type {to}")).with_hint(hint))
}

/// Makes division by zero null.
fn divided(expr: Expr, schema: &DFSchema) -> Fallible<Transformed<Expr>> {
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Divide | Operator::Modulo), right })
            if right.get_type(schema).is_ok_and(|data_type| data_type.is_integer() || data_type.is_decimal()) =>
        {
            let safe = matches!(&*right, Expr::Literal(value, _) if !value.is_null() && value != &zero_of(value));
            let right = if safe { *right } else { datafusion_functions::core::nullif().call(vec![*right, lit(0_i64)]) };
            Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(left, op, Box::new(right))))
        }
        other => Transformed::no(other),
    })
}

/// Subtracts from zero instead of turning the sign, which would leave the least integer negative.
fn negated(expr: Expr, schema: &DFSchema) -> Fallible<Transformed<Expr>> {
    Ok(match expr {
        Expr::Negative(of)
            if !matches!(*of, Expr::Literal(..))
                && of.get_type(schema).is_ok_and(|data_type| data_type.is_signed_integer()) =>
        {
            Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(Box::new(lit(0_i64)), Operator::Minus, of)))
        }
        other => Transformed::no(other),
    })
}

/// What maps are asked for becomes a value of the type of their keys: only those are compared with one another.
fn keyed(expr: Expr, schema: &DFSchema) -> Fallible<Transformed<Expr>> {
    let Expr::ScalarFunction(ScalarFunction { func, mut args }) = expr else { return Ok(Transformed::no(expr)) };
    if func.name() != "get_field" {
        return Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })));
    }
    let mut names = args.iter_mut();
    let mut data_type = names.next().and_then(|of| of.get_type(schema).ok()).unwrap_or(DataType::Null);
    for name in names {
        let Expr::Literal(value, _) = name else { break };
        let below = match &data_type {
            DataType::Struct(fields) => {
                let name = value.try_as_str().flatten();
                name.and_then(|name| fields.find(name)).map(|(_, field)| field.data_type().clone())
            }
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(both) if both.len() == 2 => {
                    *value = key(value, both[0].data_type())?;
                    Some(both[1].data_type().clone())
                }
                _ => None,
            },
            _ => None,
        };
        let Some(below) = below else { break };
        data_type = below;
    }
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
}

/// To how many digits decimals are rounded, as the number that the function wants: it makes their type by it, and does
/// not see it through a cast, which is taken away only when that type is known.
fn rounded(expr: Expr) -> Fallible<Transformed<Expr>> {
    Ok(match expr {
        Expr::ScalarFunction(ScalarFunction { func, mut args }) if func.name() == "round" && args.len() == 2 => {
            let digits = worked_out(args[1].clone()).ok().map(|digits| digits.data);
            if let Some(Expr::Literal(digits, _)) = digits
                && let Ok(digits) = digits.cast_to(&DataType::Int32)
            {
                args[1] = lit(digits);
            }
            Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args }))
        }
        other => Transformed::no(other),
    })
}

/// The key of a map as it is written, in the type of its keys.
fn key(written: &ScalarValue, data_type: &DataType) -> Fallible<ScalarValue> {
    let plain = match data_type {
        DataType::Dictionary(_, values) => values.as_ref(),
        other => other,
    };
    // A number that is rounded would be another key.
    let is_same = |key: &ScalarValue| {
        !written.data_type().is_numeric() || key.cast_to(&written.data_type()).is_ok_and(|back| back == *written)
    };
    match written.cast_to(plain).ok().filter(is_same) {
        Some(key) => Ok(key),
        None => plan_err!("the keys of the map are of type {plain}, and {written} is none"),
    }
}

fn zero_of(value: &ScalarValue) -> ScalarValue {
    ScalarValue::new_zero(&value.data_type()).unwrap_or(ScalarValue::Null)
}

/// Chains of `and` and of `or` as trees, which are not as deep.
fn balanced(expr: Expr) -> Expr {
    let (op, all) = match &expr {
        Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => (*op, chain(expr.clone(), *op)),
        _ => return expr,
    };
    let mut level: Vec<Expr> = all.into_iter().map(balanced).collect();
    while level.len() > 1 {
        let mut next = Vec::with_capacity(level.len().div_ceil(2));
        let mut pairs = level.into_iter();
        while let Some(left) = pairs.next() {
            next.push(match pairs.next() {
                Some(right) => Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))),
                None => left,
            });
        }
        level = next;
    }
    level.pop().unwrap_or(expr)
}

fn chain(expr: Expr, op: Operator) -> Vec<Expr> {
    let (mut left, mut found) = (vec![expr], Vec::new());
    while let Some(expr) = left.pop() {
        match expr {
            Expr::BinaryExpr(pair) if pair.op == op => {
                left.push(*pair.right);
                left.push(*pair.left);
            }
            other => found.push(other),
        }
    }
    found
}

/// The columns that an expression needs, as paths for a projection: fields of structs alone where that is enough.
pub(super) fn columns(expr: &Expr, schema: &SchemaRef) -> Vec<String> {
    let mut paths: Vec<Path> = Vec::new();
    let walked = expr.apply(|expr| {
        Ok(match term(expr) {
            Some(path) => {
                paths.push(path);
                TreeNodeRecursion::Jump
            }
            None => TreeNodeRecursion::Continue,
        })
    });
    drop(walked);
    for path in &mut paths {
        path.truncate(through_structs(path, schema));
    }
    // A dot in a name would make the path of another column of it.
    let plain = |path: &Path| {
        let start = format!("{}.", path[0]);
        !path.iter().any(|name| name.contains('.'))
            && !schema.fields().iter().any(|field| field.name().starts_with(&start))
    };
    for path in &mut paths {
        if !plain(path) {
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

/// How many steps of a path lead through structs: what is asked of a map is no column of its own.
fn through_structs(path: &[String], schema: &SchemaRef) -> usize {
    let Some((first, rest)) = path.split_first() else { return 0 };
    let mut data_type = schema.field_with_name(first).ok().map(|field| field.data_type());
    let below = rest.iter().take_while(|name| {
        data_type = match data_type {
            Some(DataType::Struct(fields)) => fields.find(name).map(|(_, field)| field.data_type()),
            _ => None,
        };
        data_type.is_some()
    });
    1 + below.count()
}
