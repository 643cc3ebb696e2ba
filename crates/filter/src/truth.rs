//! What a condition may come to where only bounds of the values are known.
//!
//! Nothing here guesses: what cannot be told from bounds may be anything. So rows are left out, or kept without being
//! read, only where no value within the bounds would decide otherwise.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::ScalarValue;
use datafusion_expr::expr::{Between, BinaryExpr, InList, Like, ScalarFunction};
use datafusion_expr::{Expr, Operator};

use super::Path;
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
    /// Values that none equals.
    pub lacks: Option<Lacks>,
}

/// Says of a value whether no value in some rows equals it.
#[derive(Clone)]
pub struct Lacks(Arc<dyn Fn(&ScalarValue) -> bool + Send + Sync>);

impl Lacks {
    /// `lacks` is true only of a value that no row has.
    pub fn new(lacks: impl Fn(&ScalarValue) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(lacks))
    }
}

impl fmt::Debug for Lacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lacks")
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
                path.push(text(name)?.to_owned());
            }
            Some(path)
        }
        _ => None,
    }
}

/// The type of what a path leads to; nothing where it does not lead through structs alone.
fn type_of(path: &[String], schema: &SchemaRef) -> Option<DataType> {
    let (first, rest) = path.split_first()?;
    let mut data_type = schema.field_with_name(first).ok()?.data_type();
    for name in rest {
        let DataType::Struct(fields) = data_type else { return None };
        data_type = fields.iter().find(|field| field.name() == name)?.data_type();
    }
    Some(data_type.clone())
}

/// The terms that bounds tell something of.
pub(super) fn terms(expr: &Expr, schema: &SchemaRef) -> Vec<(Path, DataType)> {
    let mut found: Vec<(Path, DataType)> = Vec::new();
    each_tested(expr, &mut |tested| {
        let Some(path) = term(tested) else { return };
        if found.iter().any(|(known, _)| *known == path) {
            return;
        }
        if let Some(data_type) = type_of(&path, schema).filter(|data_type| children(data_type).is_empty()) {
            found.push((path, data_type));
        }
    });
    found
}

/// Which of the terms are compared for equality with constants.
pub(super) fn equal(expr: &Expr, terms: &[(Path, DataType)]) -> Vec<usize> {
    fn walk(expr: &Expr, each: &mut dyn FnMut(&Expr)) {
        match expr {
            Expr::Alias(alias) => walk(&alias.expr, each),
            Expr::Not(inner)
            | Expr::IsTrue(inner)
            | Expr::IsFalse(inner)
            | Expr::IsNotTrue(inner)
            | Expr::IsNotFalse(inner)
            | Expr::IsUnknown(inner)
            | Expr::IsNotUnknown(inner) => walk(inner, each),
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
                walk(left, each);
                walk(right, each);
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq | Operator::NotEq, right }) => {
                each(left);
                each(right);
            }
            Expr::InList(InList { expr, .. }) => each(expr),
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(expr, &mut |tested| {
        let at = term(tested).and_then(|path| terms.iter().position(|(known, _)| *known == path));
        found.extend(at.filter(|at| !found.contains(at)));
    });
    found
}

/// Calls `each` with what is compared.
fn each_tested(expr: &Expr, each: &mut dyn FnMut(&Expr)) {
    match expr {
        Expr::Alias(alias) => each_tested(&alias.expr, each),
        Expr::Not(inner) => each_tested(inner, each),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
            each_tested(left, each);
            each_tested(right, each);
        }
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => {
            each(left);
            each(right);
        }
        Expr::Between(Between { expr, .. }) | Expr::InList(InList { expr, .. }) | Expr::Like(Like { expr, .. }) => {
            each(expr);
        }
        Expr::IsNull(inner) | Expr::IsNotNull(inner) => each(inner),
        Expr::IsTrue(inner)
        | Expr::IsFalse(inner)
        | Expr::IsNotTrue(inner)
        | Expr::IsNotFalse(inner)
        | Expr::IsUnknown(inner)
        | Expr::IsNotUnknown(inner) => each_tested(inner, each),
        other => each(other),
    }
}

/// What an expression may come to.
pub(super) fn truth<'a>(expr: &Expr, bounds: &dyn Fn(&Path) -> Option<&'a Bounds>) -> Truth {
    let of = |expr: &Expr| truth(expr, bounds);
    let known = |expr: &Expr| term(expr).and_then(|path| bounds(&path));
    let is = |inner: &Expr, wanted: fn(Truth) -> (bool, bool)| {
        let (may, may_not) = wanted(of(inner));
        Truth { may_be_true: may, may_be_false: may_not, may_be_null: false }
    };
    match expr {
        Expr::Alias(alias) => of(&alias.expr),
        Expr::Literal(ScalarValue::Boolean(Some(value)), _) => Truth::of(*value),
        Expr::Literal(ScalarValue::Boolean(None) | ScalarValue::Null, _) => Truth::NULL,
        Expr::Not(inner) => of(inner).not(),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => of(left).and(of(right)),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => of(left).or(of(right)),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (&**left, &**right) {
            (tested, Expr::Literal(value, _)) => known(tested).map_or(Truth::UNKNOWN, |own| compared(own, *op, value)),
            (Expr::Literal(value, _), tested) => match (op.swap(), known(tested)) {
                (Some(op), Some(own)) => compared(own, op, value),
                _ => Truth::UNKNOWN,
            },
            _ => Truth::UNKNOWN,
        },
        Expr::Between(Between { expr, negated, low, high }) => match (known(expr), &**low, &**high) {
            (Some(own), Expr::Literal(low, _), Expr::Literal(high, _)) => {
                let within = compared(own, Operator::GtEq, low).and(compared(own, Operator::LtEq, high));
                if *negated { within.not() } else { within }
            }
            _ => Truth::UNKNOWN,
        },
        Expr::InList(InList { expr, list, negated }) => {
            let Some(own) = known(expr) else { return Truth::UNKNOWN };
            let mut any = Truth::of(false);
            for value in list {
                let Expr::Literal(value, _) = value else { return Truth::UNKNOWN };
                any = any.or(compared(own, Operator::Eq, value));
            }
            if *negated { any.not() } else { any }
        }
        Expr::Like(Like { negated, expr, pattern, escape_char: None, case_insensitive: false }) => {
            let (Some(own), Expr::Literal(pattern, _)) = (known(expr), &**pattern) else { return Truth::UNKNOWN };
            let like = begins(own, pattern);
            if *negated { like.not() } else { like }
        }
        Expr::IsNull(inner) => is_null(known(inner)),
        Expr::IsNotNull(inner) => is_null(known(inner)).not(),
        Expr::IsTrue(inner) => is(inner, |t| (t.may_be_true, t.may_be_false || t.may_be_null)),
        Expr::IsNotTrue(inner) => is(inner, |t| (t.may_be_false || t.may_be_null, t.may_be_true)),
        Expr::IsFalse(inner) => is(inner, |t| (t.may_be_false, t.may_be_true || t.may_be_null)),
        Expr::IsNotFalse(inner) => is(inner, |t| (t.may_be_true || t.may_be_null, t.may_be_false)),
        Expr::IsUnknown(inner) => is(inner, |t| (t.may_be_null, t.may_be_true || t.may_be_false)),
        Expr::IsNotUnknown(inner) => is(inner, |t| (t.may_be_true || t.may_be_false, t.may_be_null)),
        other => match known(other) {
            Some(own) => compared(own, Operator::Eq, &ScalarValue::Boolean(Some(true))),
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
fn compared(own: &Bounds, op: Operator, value: &ScalarValue) -> Truth {
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
    let lacks = || own.lacks.as_ref().is_some_and(|lacks| lacks.0(plain(value)));
    match op {
        Operator::Eq if may_be_true && lacks() => Truth { may_be_true: false, may_be_false, may_be_null },
        Operator::NotEq if may_be_false && lacks() => Truth { may_be_true, may_be_false: false, may_be_null },
        _ => Truth { may_be_true, may_be_false, may_be_null },
    }
}

/// What `like` may come to for values within bounds: a pattern says what values begin with.
fn begins(own: &Bounds, pattern: &ScalarValue) -> Truth {
    if own.all_null || pattern.is_null() {
        return Truth::NULL;
    }
    let may_be_null = !own.no_null;
    let unknown = Truth { may_be_null, ..Truth::UNKNOWN };
    let Some(pattern) = text(pattern) else { return unknown };
    let Some(wild) = pattern.find(['%', '_', '\\']) else { return unknown };
    let prefix = &pattern.as_bytes()[..wild];
    let head =
        |bound: &ScalarValue| text(bound).map(|bound| bound.as_bytes()[..prefix.len().min(bound.len())].to_vec());
    let least = own.min.as_ref().and_then(head);
    let most = own.max.as_ref().and_then(head);
    let above = least.as_ref().is_some_and(|least| least.as_slice() > prefix);
    let below = most.as_ref().is_some_and(|most| most.as_slice() < prefix);
    let only = least.as_deref() == Some(prefix) && most.as_deref() == Some(prefix) && &pattern[wild..] == "%";
    Truth { may_be_true: !above && !below, may_be_false: !only, may_be_null }
}

fn plain(value: &ScalarValue) -> &ScalarValue {
    match value {
        ScalarValue::Dictionary(_, value) => plain(value),
        other => other,
    }
}

fn text(value: &ScalarValue) -> Option<&str> {
    match plain(value) {
        ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text) => text.as_deref(),
        _ => None,
    }
}

fn bytes(value: &ScalarValue) -> Option<&[u8]> {
    match plain(value) {
        ScalarValue::Binary(bytes)
        | ScalarValue::LargeBinary(bytes)
        | ScalarValue::BinaryView(bytes)
        | ScalarValue::FixedSizeBinary(_, bytes) => bytes.as_deref(),
        _ => None,
    }
}

/// The order of two values of one type; of others nothing is known.
fn order(a: &ScalarValue, b: &ScalarValue) -> Option<Ordering> {
    match (plain(a), plain(b)) {
        (ScalarValue::Float16(a), ScalarValue::Float16(b)) => a.as_ref()?.partial_cmp(b.as_ref()?),
        (ScalarValue::Float32(a), ScalarValue::Float32(b)) => a.as_ref()?.partial_cmp(b.as_ref()?),
        (ScalarValue::Float64(a), ScalarValue::Float64(b)) => a.as_ref()?.partial_cmp(b.as_ref()?),
        (a, b) if text(a).is_some() => Some(text(a)?.as_bytes().cmp(text(b)?.as_bytes())),
        (a, b) if bytes(a).is_some() => Some(bytes(a)?.cmp(bytes(b)?)),
        (a, b) if a.is_null() || b.is_null() || a.data_type() != b.data_type() => None,
        (a, b) => a.partial_cmp(b),
    }
}
