//! Simplifying without joining lists of values.
//!
//! DataFusion joins what is tested with lists of values: it makes `false` of `a in (1, 2) and a in (3, 4)`, and `true`
//! of `a not in (1, 2) or a not in (3, 4)`. Both are null where `a` is null, and lists with a null in them or with
//! columns mean something else, too. So each `in` and each `=`, of which DataFusion makes `in`, is simplified by itself
//! and then stands behind a function that no rule knows, until all around it is simplified.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Result, exec_err};
use datafusion_expr::expr::{BinaryExpr, InList, ScalarFunction};
use datafusion_expr::{
    ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;

use super::bounded::Deadline;
use rowdex_base::once::Once;

fn is_in() -> &'static Arc<ScalarUDF> {
    static IS_IN: Once<Arc<ScalarUDF>> = Once::new();
    IS_IN.get_or_init(|| Arc::new(ScalarUDF::from(Apart::new("is in"))))
}

fn equals() -> &'static Arc<ScalarUDF> {
    static EQUALS: Once<Arc<ScalarUDF>> = Once::new();
    EQUALS.get_or_init(|| Arc::new(ScalarUDF::from(Apart::new("equals"))))
}

/// The expression simplified, with no list of values joined with another one.
pub(super) fn simplified(expr: Expr, simplifier: &ExprSimplifier, deadline: Deadline) -> Result<Expr> {
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

fn hide(expr: Expr) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            Transformed::yes(equals().call(vec![*left, *right]))
        }
        Expr::InList(InList { expr, list, negated }) => {
            let args = std::iter::once(*expr).chain(list).collect();
            let hidden = is_in().call(args);
            Transformed::yes(if negated { Expr::Not(Box::new(hidden)) } else { hidden })
        }
        other => Transformed::no(other),
    })
}

/// Undoes [`hide`]. What is negated comes after what is in it.
fn show(expr: Expr) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) if func == *equals() => match <[Expr; 2]>::try_from(args) {
            Ok([left, right]) => {
                Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), Operator::Eq, Box::new(right))))
            }
            Err(_) => return exec_err!("two values are compared"),
        },
        Expr::ScalarFunction(ScalarFunction { func, mut args }) if func == *is_in() && !args.is_empty() => {
            let expr = Box::new(args.remove(0));
            Transformed::yes(Expr::InList(InList::new(expr, args, false)))
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

/// A comparison that no rule knows. It is gone before anything is evaluated: what is called volatile is not worked out
/// beforehand.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Apart {
    name: &'static str,
    signature: Signature,
}

impl Apart {
    fn new(name: &'static str) -> Self {
        Self { name, signature: Signature::variadic_any(Volatility::Volatile) }
    }
}

impl ScalarUDFImpl for Apart {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("`{}` is not for evaluation", self.name)
    }
}
