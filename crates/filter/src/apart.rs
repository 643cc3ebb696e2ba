//! Simplifying without rules that change what a condition means.
//!
//! DataFusion joins what is tested with lists of values: it makes `false` of `a in (1, 2) and a in (3, 4)`, and `true`
//! of `a not in (1, 2) or a not in (3, 4)`. Both are null where `a` is null, and lists with a null in them or with
//! columns mean something else, too. So each `in` and each `=`, of which DataFusion makes `in`, is simplified by itself
//! and then stands behind a function that no rule knows, until all around it is simplified.
//!
//! Other rules are right for some operands only. They see just those, and the others stand behind such a function from
//! the start:
//!
//! - A cast is taken off a column where the constant beside it has a value of the column's type: `19.99::int = 19`
//!   holds, and `19.99 = 19.00` does not. See [`keeps`].
//! - A regular expression becomes `like`, and a backslash that it is to find escapes what follows it there.
//! - A year becomes the moments between which it lies, which are null where the unit of the column ends before them.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Result, ScalarValue, exec_err};
use datafusion_expr::expr::{BinaryExpr, Cast, InList, ScalarFunction, TryCast};
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::{
    ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;

use super::bounded::Deadline;
use super::evaluated::worked_out;

/// What simplifies expressions over one schema.
pub(super) struct Simplifier {
    rules: ExprSimplifier,
    context: SimplifyContext,
}

impl Simplifier {
    pub(super) fn new(context: SimplifyContext) -> Self {
        Self { rules: ExprSimplifier::new(context.clone()), context }
    }

    /// What gives an expression the types that it is evaluated with.
    pub(super) fn rules(&self) -> &ExprSimplifier {
        &self.rules
    }

    /// The expression simplified, with the same value in every row.
    pub(super) fn simplified(&self, expr: Expr, deadline: Deadline) -> Result<Expr> {
        let veiled = expr.transform_up(|expr| {
            deadline.check()?;
            veil(expr, &self.context)
        })?;
        simplified(veiled.data, &self.rules, deadline)
    }
}

/// The expression simplified, with no list of values joined with another one.
fn simplified(expr: Expr, simplifier: &ExprSimplifier, deadline: Deadline) -> Result<Expr> {
    // Calls within calls are simplified at once: each by itself would be as many times as it is deep.
    let at_once = |expr: Expr| {
        deadline.check()?;
        Ok(match is_call(&expr) && !expr.exists(|part| Ok(may_join(part)))? {
            true => Transformed::new(simplify(simplifier, expr)?, true, TreeNodeRecursion::Jump),
            false => Transformed::no(expr),
        })
    };
    let hidden = expr.transform_down_up(at_once, |expr| {
        deadline.check()?;
        Ok(match expr {
            // Sums may be long, and are simplified with what they are compared with.
            Expr::BinaryExpr(BinaryExpr { op, .. }) if op.is_numerical_operators() || op == Operator::StringConcat => {
                Transformed::no(expr)
            }
            Expr::BinaryExpr(BinaryExpr { op: Operator::And | Operator::Or, .. })
            | Expr::Not(_)
            | Expr::Literal(..)
            | Expr::Column(_) => Transformed::no(expr),
            other => Transformed::yes(simplify(simplifier, other)?.transform_up(hide)?.data),
        })
    })?;
    let simple = simplify(simplifier, hidden.data)?;
    Ok(simple.transform_up(show)?.data)
}

#[cfg(test)]
thread_local! {
    /// How many operations this thread has simplified, those within others counted each time.
    pub(super) static SIMPLIFIED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn simplify(simplifier: &ExprSimplifier, expr: Expr) -> Result<Expr> {
    #[cfg(test)]
    expr.apply(|_| {
        SIMPLIFIED.set(SIMPLIFIED.get() + 1);
        Ok(TreeNodeRecursion::Continue)
    })?;
    simplifier.simplify(expr)
}

fn is_call(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(_) | Expr::Cast(_) | Expr::TryCast(_))
}

/// Whether lists of values might be joined there.
fn may_join(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => !op.is_numerical_operators() && *op != Operator::StringConcat,
        other => !is_call(other) && !matches!(other, Expr::Literal(..) | Expr::Column(_) | Expr::Negative(_)),
    }
}

/// Puts what the rules get wrong behind functions.
fn veil(expr: Expr, context: &SimplifyContext) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::Cast(Cast { expr, field }) if !is_kept(&expr, field.data_type(), context) => {
            Transformed::yes(Hidden::Cast(field).of(vec![*expr]))
        }
        Expr::TryCast(TryCast { expr, field }) if !is_kept(&expr, field.data_type(), context) => {
            Transformed::yes(Hidden::TryCast(field).of(vec![*expr]))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_regex(op) && may_escape(&right) => {
            compiles(op, &right)?;
            Transformed::yes(Hidden::Matches(op).of(vec![*left, *right]))
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) => match func.name() {
            // They become casts and `~` at their first step, and casts of one of these rules would be the next.
            "arrow_cast" | "arrow_try_cast" | "cast_to_type" | "try_cast_to_type" | "regexp_like" => {
                match func.simplify(args, context)? {
                    ExprSimplifyResult::Simplified(expr) => Transformed::yes(veil(expr, context)?.data),
                    ExprSimplifyResult::Original(args) => Transformed::yes(Hidden::Call(func).of(args)),
                }
            }
            "date_part" => Transformed::yes(Hidden::Call(func).of(args)),
            _ => Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })),
        },
        other => Transformed::no(other),
    })
}

/// Whether taking the cast off, and casting the constant beside it instead, compares the same values.
fn is_kept(expr: &Expr, to: &DataType, context: &SimplifyContext) -> bool {
    matches!(expr, Expr::Literal(..)) || context.get_data_type(expr).is_ok_and(|from| keeps(&from, to))
}

/// Whether casting gives distinct values for distinct values, in their order and with no error, so that a constant is
/// to be found among them where it is one of theirs.
///
/// Timestamps of a finer unit are not among those: a constant between two seconds is cut off to the first, and there
/// are seconds beyond the last nanosecond. Those with a zone are moments, and those without are readings of a clock.
fn keeps(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Binary, Date32, Date64, Dictionary, FixedSizeBinary, Int8, Int16, Int32, Int64, LargeUtf8, Timestamp, UInt8,
        UInt16, UInt32, UInt64, Utf8, Utf8View,
    };
    match (from, to) {
        _ if from == to => true,
        (Dictionary(_, values), _) => keeps(values, to),
        (_, Dictionary(_, values)) => keeps(from, values),
        (Int8, Int16 | Int32 | Int64) | (Int16, Int32 | Int64) | (Int32, Int64) => true,
        (UInt8, UInt16 | UInt32 | UInt64 | Int16 | Int32 | Int64) => true,
        (UInt16, UInt32 | UInt64 | Int32 | Int64) | (UInt32, UInt64 | Int64) => true,
        // Only their equality with text is asked of the numbers instead, and each is written in one way.
        (of, Utf8 | LargeUtf8 | Utf8View) if of.is_integer() => true,
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View) => true,
        (FixedSizeBinary(_), Binary) | (Date32, Date64) => true,
        (Timestamp(unit, zone), Timestamp(other, another)) => unit == other && zone.is_some() == another.is_some(),
        _ => match (digits(from), digits(to)) {
            (Some((whole, scale)), Some((room, finer))) => to.is_decimal() && room >= whole && finer >= scale,
            _ => false,
        },
    }
}

/// Digits before the point and behind it. There is no rule for scales below zero.
fn digits(data_type: &DataType) -> Option<(i16, i16)> {
    use DataType::{Decimal32, Decimal64, Decimal128, Decimal256};
    Some(match *data_type {
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 => (19, 0),
        DataType::UInt64 => (20, 0),
        Decimal32(precision, scale)
        | Decimal64(precision, scale)
        | Decimal128(precision, scale)
        | Decimal256(precision, scale)
            if scale >= 0 =>
        {
            (i16::from(precision) - i16::from(scale), i16::from(scale))
        }
        _ => return None,
    })
}

fn is_regex(op: Operator) -> bool {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    matches!(op, RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch)
}

/// Whether a regular expression has a backslash, or may have one once it is simplified.
fn may_escape(pattern: &Expr) -> bool {
    match pattern {
        Expr::Literal(value, _) => value.try_as_str().is_none_or(|text| text.is_some_and(|text| text.contains('\\'))),
        _ => true,
    }
}

/// An error for a regular expression that is none, as the rules have for those that they see.
fn compiles(op: Operator, pattern: &Expr) -> Result<()> {
    if let Expr::Literal(value, _) = pattern {
        let none = Expr::Literal(ScalarValue::from("").cast_to(&value.data_type())?, None);
        worked_out(Expr::BinaryExpr(BinaryExpr::new(Box::new(none), op, Box::new(pattern.clone()))))?;
    }
    Ok(())
}

fn hide(expr: Expr) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            Transformed::yes(Hidden::Equals.of(vec![*left, *right]))
        }
        Expr::InList(InList { expr, list, negated }) => {
            let args = std::iter::once(*expr).chain(list).collect();
            let hidden = Hidden::IsIn.of(args);
            Transformed::yes(if negated { Expr::Not(Box::new(hidden)) } else { hidden })
        }
        other => Transformed::no(other),
    })
}

/// Undoes [`hide`] and [`veil`]. What is negated comes after what is in it.
fn show(expr: Expr) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) => {
            match (&**func.inner() as &dyn Any).downcast_ref::<Apart>() {
                Some(apart) => Transformed::yes(apart.hidden.shown(args)?),
                None => Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })),
            }
        }
        Expr::Not(inner) => match *inner {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
                Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(left, Operator::NotEq, right)))
            }
            Expr::InList(InList { expr, list, negated }) => {
                Transformed::yes(Expr::InList(InList::new(expr, list, !negated)))
            }
            other => Transformed::no(Expr::Not(Box::new(other))),
        },
        other => Transformed::no(other),
    })
}

/// What stands behind a function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Hidden {
    Equals,
    IsIn,
    Matches(Operator),
    Cast(FieldRef),
    TryCast(FieldRef),
    Call(Arc<ScalarUDF>),
}

impl Hidden {
    fn of(self, args: Vec<Expr>) -> Expr {
        let signature = Signature::variadic_any(Volatility::Volatile);
        ScalarUDF::from(Apart { hidden: self, signature }).call(args)
    }

    fn shown(&self, mut args: Vec<Expr>) -> Result<Expr> {
        let pair = |op: Operator, args: Vec<Expr>| match <[Expr; 2]>::try_from(args) {
            Ok([left, right]) => Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))),
            Err(_) => exec_err!("two values are compared"),
        };
        let one = |args: Vec<Expr>| match <[Expr; 1]>::try_from(args) {
            Ok([expr]) => Ok(Box::new(expr)),
            Err(_) => exec_err!("one value is cast"),
        };
        Ok(match self {
            Self::Equals => pair(Operator::Eq, args)?,
            Self::Matches(op) => pair(*op, args)?,
            Self::IsIn if args.is_empty() => return exec_err!("a value is compared with a list"),
            Self::IsIn => {
                let expr = Box::new(args.remove(0));
                Expr::InList(InList::new(expr, args, false))
            }
            Self::Cast(field) => Expr::Cast(Cast { expr: one(args)?, field: Arc::clone(field) }),
            Self::TryCast(field) => Expr::TryCast(TryCast { expr: one(args)?, field: Arc::clone(field) }),
            Self::Call(func) => func.call(args),
        })
    }
}

/// A function that no rule knows. It is gone before anything is evaluated: what is called volatile is not worked out
/// beforehand.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Apart {
    hidden: Hidden,
    signature: Signature,
}

impl ScalarUDFImpl for Apart {
    fn name(&self) -> &str {
        match &self.hidden {
            Hidden::Equals => "equals",
            Hidden::IsIn => "is in",
            Hidden::Matches(_) => "matches",
            Hidden::Cast(_) => "cast to",
            Hidden::TryCast(_) => "try cast to",
            Hidden::Call(_) => "call of",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match &self.hidden {
            Hidden::Equals | Hidden::IsIn | Hidden::Matches(_) => Ok(DataType::Boolean),
            Hidden::Cast(field) | Hidden::TryCast(field) => Ok(field.data_type().clone()),
            Hidden::Call(func) => func.return_type(types),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        if let Hidden::Call(func) = &self.hidden {
            return func.return_field_from_args(args);
        }
        Ok(Arc::new(Field::new(self.name(), self.return_type(&[])?, true)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("`{}` is not for evaluation", self.name())
    }
}
