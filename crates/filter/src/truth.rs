//! What a condition comes to where only bounds of the values are known.
//!
//! Nothing here guesses: what cannot be told from bounds may be anything. So rows are left out, or kept without being
//! read, only where no value within the bounds would decide otherwise. Intervals, and what comparing them comes to, are
//! DataFusion's.

use arrow_cast::CastOptions;
use arrow_schema::{DataType, SchemaRef};
use datafusion_common::ScalarValue;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::expr::{BinaryExpr, Cast, InList, ScalarFunction};
use datafusion_expr::interval_arithmetic::{Interval, NullableInterval};
use datafusion_expr::{Expr, Operator};

use super::Path;
use super::values::constant;
use rowdex_projection::children;

/// What is known of the values of a term in some rows.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    /// No value is less. Nothing is known if there is none.
    pub min: Option<ScalarValue>,
    /// No value is greater, but for NaN, which no bound covers.
    pub max: Option<ScalarValue>,
    /// No row has null.
    pub no_null: bool,
    /// Every row has null.
    pub all_null: bool,
}

impl Bounds {
    /// The values of a type that are within them.
    pub(super) fn interval(&self, of: &DataType) -> Option<NullableInterval> {
        let of: &DataType = match of {
            DataType::Dictionary(_, of) => of,
            of => of,
        };
        if self.all_null {
            return Some(NullableInterval::Null { datatype: of.clone() });
        }
        let bound = |value: &Option<ScalarValue>| match value {
            Some(value) => Some(plain(value)),
            None => ScalarValue::try_from(of).ok(),
        };
        // NaN is above all numbers.
        let max = if of.is_floating() { &None } else { &self.max };
        let within = Interval::try_new(bound(&self.min)?, bound(max)?);
        let values = within.or_else(|_| Interval::make_unbounded(of)).ok()?;
        Some(match self.no_null {
            true => NullableInterval::NotNull { values },
            false => NullableInterval::MaybeNull { values },
        })
    }
}

/// Whether all rows are kept, or none, where values are within intervals; nothing where that takes the values.
pub(super) fn decided(expr: &Expr, intervals: &dyn Fn(&Path) -> Option<NullableInterval>) -> Option<bool> {
    match within(expr, intervals)? {
        NullableInterval::Null { .. } => Some(false),
        known if known.is_certainly_true() => Some(true),
        known => (known.values()? == &Interval::FALSE).then_some(false),
    }
}

/// The values that an expression may have, if anything is known of them.
fn within(expr: &Expr, intervals: &dyn Fn(&Path) -> Option<NullableInterval>) -> Option<NullableInterval> {
    use Operator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or};
    let of = |expr: &Expr| within(expr, intervals);
    match expr {
        Expr::Literal(value, _) => Some(plain(value).into()),
        Expr::Not(inner) => of(inner)?.not().ok(),
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (And | Or), right }) => {
            let any = |expr: &Expr| of(expr).unwrap_or(NullableInterval::ANY_TRUTH_VALUE);
            any(left).apply_operator(op, &any(right)).ok()
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Eq | NotEq | Lt | LtEq | Gt | GtEq), right }) => {
            of(left)?.apply_operator(op, &of(right)?).ok()
        }
        Expr::InList(InList { expr, list, negated }) => {
            let own = of(expr)?;
            let is_any = list.iter().try_fold(NullableInterval::FALSE, |any, value| {
                any.or(own.apply_operator(&Eq, &of(value)?).ok()?).ok()
            })?;
            if *negated { is_any.not().ok() } else { Some(is_any) }
        }
        Expr::IsNull(inner) => Some(is_null(&of(inner)?)),
        Expr::IsNotNull(inner) => is_null(&of(inner)?).not().ok(),
        Expr::Cast(Cast { expr, field }) => cast(of(expr)?, field.data_type()),
        other => intervals(&term(other)?),
    }
}

fn is_null(values: &NullableInterval) -> NullableInterval {
    match values {
        NullableInterval::Null { .. } => NullableInterval::TRUE,
        NullableInterval::MaybeNull { .. } => NullableInterval::TRUE_OR_FALSE,
        NullableInterval::NotNull { .. } => NullableInterval::FALSE,
    }
}

/// What is known of the same values once they are cast, which may make different ones equal.
fn cast(known: NullableInterval, to: &DataType) -> Option<NullableInterval> {
    if !keeps_order(&known.data_type(), to) {
        return None;
    }
    let cast = |values: Interval| values.cast_to(to, &CastOptions::default()).ok();
    Some(match known {
        NullableInterval::Null { .. } => NullableInterval::Null { datatype: to.clone() },
        NullableInterval::MaybeNull { values } => NullableInterval::MaybeNull { values: cast(values)? },
        NullableInterval::NotNull { values } => NullableInterval::NotNull { values: cast(values)? },
    })
}

fn keeps_order(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Date64, LargeUtf8, Time32, Time64, Timestamp, Utf8, Utf8View};
    let is_exact = |of: &DataType| of.is_integer() || of.is_decimal();
    match (from, to) {
        _ if from == to => true,
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View) => true,
        (Time32(_) | Time64(_), Time32(_) | Time64(_)) | (Date32, Date64 | Timestamp(_, None)) => true,
        (Timestamp(_, from), Timestamp(_, to)) => from.is_some() == to.is_some(),
        (from, to) if from.is_floating() => to.is_floating() && from.primitive_width() < to.primitive_width(),
        (from, to) => is_exact(from) && (is_exact(to) || to.is_floating()),
    }
}

/// A value as it is compared, whatever stands for it.
fn plain(value: &ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Dictionary(_, value) => plain(value),
        other => constant(other.clone()),
    }
}

/// The column or field of structs that an expression is.
fn term(expr: &Expr) -> Option<Path> {
    match expr {
        Expr::Column(column) => Some(vec![column.name.clone()]),
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == "get_field" => {
            let (of, names) = args.split_first()?;
            let mut path = term(of)?;
            for name in names {
                let Expr::Literal(name, _) = name else { return None };
                path.push(name.try_as_str()??.to_owned());
            }
            Some(path)
        }
        _ => None,
    }
}

/// The types of the steps of a path, as far as it leads through structs: what is asked of a map is no column.
pub(super) fn steps<'a>(path: &[String], schema: &'a SchemaRef) -> Vec<&'a DataType> {
    let mut fields = schema.fields();
    let mut found = Vec::new();
    for name in path {
        let Some((_, field)) = fields.find(name) else { break };
        found.push(field.data_type());
        let DataType::Struct(below) = field.data_type() else { break };
        fields = below;
    }
    found
}

/// The columns and fields of structs that an expression asks for, sorted.
pub(super) fn paths(expr: &Expr) -> Vec<Path> {
    let mut paths = Vec::new();
    let walked = expr.apply(|expr| {
        Ok(match term(expr) {
            Some(path) => {
                paths.push(path);
                TreeNodeRecursion::Jump
            }
            None => TreeNodeRecursion::Continue,
        })
    });
    // Nothing that is visited is an error.
    drop(walked);
    paths.sort();
    paths.dedup();
    paths
}

/// The terms that bounds tell something of.
pub(super) fn terms(expr: &Expr, schema: &SchemaRef) -> Vec<(Path, DataType)> {
    let typed = |path: Path| {
        let data_type = (*steps(&path, schema).get(path.len() - 1)?).clone();
        children(&data_type).is_empty().then_some((path, data_type))
    };
    paths(expr).into_iter().filter_map(typed).collect()
}
