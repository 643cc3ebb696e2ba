//! What a condition may come to where only bounds of the values are known.
//!
//! Nothing here guesses: what cannot be told from bounds may be anything. So rows are left out, or kept without being
//! read, only where no value within the bounds would decide otherwise.

use std::cmp::Ordering;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::ScalarValue;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::expr::{Between, BinaryExpr, Cast, InList, ScalarFunction};
use datafusion_expr::{Expr, Operator};

use super::Path;
use super::values::constant;
use rowdex_projection::children;

/// What a condition may come to in some rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truth {
    pub(crate) may_be_true: bool,
    pub(crate) may_be_false: bool,
    pub(crate) may_be_null: bool,
}

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

/// What is known of an expression.
#[derive(Clone)]
struct KnownBounds {
    bounds: Bounds,
    /// They are cast from what is never NaN.
    has_no_nan: bool,
}

impl KnownBounds {
    /// What is known of the same values once they are cast.
    fn cast(self, to: &DataType) -> Option<Self> {
        let Bounds { min, max, .. } = self.bounds;
        let from = min.as_ref().or(max.as_ref()).map(ScalarValue::data_type);
        if from.as_ref().is_some_and(|from| !keeps_order(from, to)) {
            return None;
        }
        let bound = |value: Option<ScalarValue>| value.and_then(|value| value.cast_to(to).ok());
        let has_no_nan = self.has_no_nan || from.as_ref().is_some_and(|from| !from.is_floating());
        let bounds = Bounds { min: bound(min), max: bound(max), ..self.bounds };
        Some(Self { bounds, has_no_nan })
    }
}

impl Truth {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { may_be_true: true, may_be_false: true, may_be_null: true };
    const NULL: Self = Self { may_be_true: false, may_be_false: false, may_be_null: true };

    /// No row is kept.
    pub fn is_never(self) -> bool {
        !self.may_be_true
    }

    /// Every row is kept.
    pub fn is_always(self) -> bool {
        !self.may_be_false && !self.may_be_null
    }

    fn of(value: bool) -> Self {
        Self { may_be_true: value, may_be_false: !value, may_be_null: false }
    }

    fn not(self) -> Self {
        Self { may_be_true: self.may_be_false, may_be_false: self.may_be_true, ..self }
    }

    fn and(self, other: Self) -> Self {
        // Null where one is null and the other is not false.
        let passes = |truth: Self| truth.may_be_true || truth.may_be_null;
        Self {
            may_be_true: self.may_be_true && other.may_be_true,
            may_be_false: self.may_be_false || other.may_be_false,
            may_be_null: (self.may_be_null && passes(other)) || (other.may_be_null && passes(self)),
        }
    }

    fn or(self, other: Self) -> Self {
        self.not().and(other.not()).not()
    }
}

/// The column or field of structs that an expression is.
pub(super) fn term(expr: &Expr) -> Option<Path> {
    match expr {
        Expr::Column(column) => Some(vec![column.name.clone()]),
        Expr::Alias(alias) => term(&alias.expr),
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

fn known<'a>(expr: &Expr, bounds: &dyn Fn(&Path) -> Option<&'a Bounds>) -> Option<KnownBounds> {
    match expr {
        Expr::Cast(Cast { expr, field }) => known(expr, bounds)?.cast(field.data_type()),
        other => {
            let bounds = term(other).and_then(|path| bounds(&path))?.clone();
            Some(KnownBounds { bounds, has_no_nan: false })
        }
    }
}

/// Whether casting keeps the order of values, though it may make different ones equal.
fn keeps_order(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Date64, Dictionary, LargeUtf8, Time32, Time64, Timestamp, Utf8, Utf8View};
    let is_exact = |of: &DataType| of.is_integer() || of.is_decimal();
    match (from, to) {
        (Dictionary(_, from), to) => keeps_order(from, to),
        _ if from == to => true,
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View) => true,
        (Time32(_) | Time64(_), Time32(_) | Time64(_)) | (Date32, Date64 | Timestamp(_, None)) => true,
        (Timestamp(_, from), Timestamp(_, to)) => from.is_some() == to.is_some(),
        (from, to) if from.is_floating() => to.is_floating() && from.primitive_width() < to.primitive_width(),
        (from, to) => is_exact(from) && (is_exact(to) || to.is_floating()),
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

/// What an expression may come to.
pub(super) fn truth<'a>(expr: &Expr, bounds: &dyn Fn(&Path) -> Option<&'a Bounds>) -> Truth {
    let of = |expr: &Expr| truth(expr, bounds);
    let known = |expr: &Expr| known(expr, bounds);
    match expr {
        Expr::Alias(alias) => of(&alias.expr),
        Expr::Literal(ScalarValue::Boolean(Some(value)), _) => Truth::of(*value),
        Expr::Literal(ScalarValue::Boolean(None) | ScalarValue::Null, _) => Truth::NULL,
        Expr::Not(inner) => of(inner).not(),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => of(left).and(of(right)),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => of(left).or(of(right)),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (&**left, &**right) {
            (tested, Expr::Literal(value, _)) => known(tested).map_or(Truth::UNKNOWN, |own| compared(&own, *op, value)),
            (Expr::Literal(value, _), tested) => match (op.swap(), known(tested)) {
                (Some(op), Some(own)) => compared(&own, op, value),
                _ => Truth::UNKNOWN,
            },
            _ => Truth::UNKNOWN,
        },
        Expr::Between(Between { expr, negated, low, high }) => match (known(expr), &**low, &**high) {
            (Some(own), Expr::Literal(low, _), Expr::Literal(high, _)) => {
                let within = compared(&own, Operator::GtEq, low).and(compared(&own, Operator::LtEq, high));
                if *negated { within.not() } else { within }
            }
            _ => Truth::UNKNOWN,
        },
        Expr::InList(InList { expr, list, negated }) => {
            let Some(own) = known(expr) else { return Truth::UNKNOWN };
            let mut any = Truth::of(false);
            for value in list {
                let Expr::Literal(value, _) = value else { return Truth::UNKNOWN };
                any = any.or(compared(&own, Operator::Eq, value));
            }
            if *negated { any.not() } else { any }
        }
        Expr::IsNull(inner) => is_null(known(inner).as_ref().map(|known| &known.bounds)),
        Expr::IsNotNull(inner) => is_null(known(inner).as_ref().map(|known| &known.bounds)).not(),
        other => match known(other) {
            Some(own) => compared(&own, Operator::Eq, &ScalarValue::Boolean(Some(true))),
            None => Truth::UNKNOWN,
        },
    }
}

fn is_null(own: Option<&Bounds>) -> Truth {
    match own {
        Some(own) if own.all_null => Truth::of(true),
        Some(own) if own.no_null => Truth::of(false),
        _ => Truth { may_be_null: false, ..Truth::UNKNOWN },
    }
}

/// What comparing values within bounds with another one may come to.
fn compared(known: &KnownBounds, op: Operator, value: &ScalarValue) -> Truth {
    let own = &known.bounds;
    if !matches!(op, Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq) {
        return Truth::UNKNOWN;
    }
    if own.all_null || value.is_null() {
        return Truth::NULL;
    }
    let may_be_null = !own.no_null;
    // NaN is above all numbers, and no bound speaks of it.
    let (nan, is_nan) = match plain(value) {
        ScalarValue::Float16(of) => (true, of.is_some_and(|of| of.is_nan())),
        ScalarValue::Float32(of) => (true, of.is_some_and(f32::is_nan)),
        ScalarValue::Float64(of) => (true, of.is_some_and(f64::is_nan)),
        _ => (false, false),
    };
    if is_nan {
        return Truth { may_be_null, ..Truth::UNKNOWN };
    }
    let nan = nan && !known.has_no_nan;
    let least = own.min.as_ref().and_then(|min| order(min, value));
    let most = own.max.as_ref().and_then(|max| order(max, value));
    use Ordering::{Equal, Greater, Less};
    let all_less = most == Some(Less);
    let all_up_to = matches!(most, Some(Less | Equal));
    let all_greater = least == Some(Greater);
    let all_from = matches!(least, Some(Greater | Equal));
    let (may_be_true, may_be_false) = match op {
        Operator::Lt => (!all_from, !all_less || nan),
        Operator::LtEq => (!all_greater, !all_up_to || nan),
        Operator::Gt => (!all_up_to || nan, !all_greater),
        Operator::GtEq => (!all_less || nan, !all_from),
        Operator::Eq => (!all_less && !all_greater, !(all_from && all_up_to) || nan),
        _ => (!(all_from && all_up_to) || nan, !all_less && !all_greater),
    };
    Truth { may_be_true, may_be_false, may_be_null }
}

fn plain(value: &ScalarValue) -> &ScalarValue {
    match value {
        ScalarValue::Dictionary(_, value) => plain(value),
        other => other,
    }
}

/// The order of two values of one type; of others nothing is known.
fn order(a: &ScalarValue, b: &ScalarValue) -> Option<Ordering> {
    let a = constant(plain(a).clone());
    let b = constant(plain(b).clone());
    if a.is_null() || b.is_null() || a.data_type() != b.data_type() { None } else { a.partial_cmp(&b) }
}
