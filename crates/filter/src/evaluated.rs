//! From a typed expression to one that can be evaluated: by value, no deeper than a stack has room for, and with errors
//! for numbers that overflow.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, DataFusionError, ScalarValue};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::expr::{Between, BinaryExpr, InList};
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{ColumnarValue, Expr, ExprSchemable, Operator};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::BinaryExpr as PhysicalBinary;

use super::canonical::canonical;
use super::{nullable, unfit, wrong};
use rowdex_base::error::Result;

/// Levels of an expression at most, once chains of `and` and `or` are trees: threads evaluate it on their own stacks.
const DEEPEST: usize = 200;

type Fallible<T> = std::result::Result<T, DataFusionError>;

/// The schema as the planner knows it: without columns of the same name, which no condition can mean.
pub(super) fn planned(schema: &SchemaRef) -> Result<DFSchema> {
    let fields = schema.fields().iter();
    let once = |field: &&Arc<Field>| fields.clone().filter(|other| other.name() == field.name()).count() == 1;
    let unique: Vec<Arc<Field>> = fields.clone().filter(once).map(nullable::field).collect();
    DFSchema::try_from(Schema::new(unique)).map_err(|error| unfit("the columns cannot be used", &error))
}

/// The expression as it is evaluated: floating-point numbers compared by value, and overflow an error.
pub(super) fn physical(expr: &Expr, schema: &SchemaRef) -> Result<Arc<dyn PhysicalExpr>> {
    let own = planned(schema)?;
    let by_value = expr.clone().transform_up(|expr| by_value(expr, &own)).map(|done| done.data);
    let by_value = by_value.map_err(|error| unfit("its types do not fit", &error))?;
    check_depth(depth(&by_value))?;
    evaluable(&by_value, &own).map_err(|error| unfit("it cannot be evaluated", &error))
}

fn evaluable(expr: &Expr, schema: &DFSchema) -> Fallible<Arc<dyn PhysicalExpr>> {
    let (props, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
    let plain = datafusion_physical_expr::create_physical_expr(expr, schema, &props, &context)?;
    let strict = plain.transform_up(|node| {
        let binary = (&*node as &dyn Any).downcast_ref::<PhysicalBinary>();
        let overflows = |binary: &&PhysicalBinary| {
            matches!(binary.op(), Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide)
        };
        Ok(match binary.filter(overflows) {
            Some(binary) => {
                let (left, right) = (Arc::clone(binary.left()), Arc::clone(binary.right()));
                let strict = PhysicalBinary::new(left, *binary.op(), right).with_fail_on_overflow(true);
                Transformed::yes(Arc::new(strict) as Arc<dyn PhysicalExpr>)
            }
            None => Transformed::no(node),
        })
    })?;
    Ok(strict.data)
}

fn by_value(expr: Expr, schema: &DFSchema) -> Fallible<Transformed<Expr>> {
    let one = |expr: Expr| match expr.get_type(schema) {
        Ok(data_type) => canonical(expr, &data_type),
        Err(_) => expr,
    };
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
            Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(Box::new(one(*left)), op, Box::new(one(*right)))))
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let (low, high) = (Box::new(one(*low)), Box::new(one(*high)));
            Transformed::yes(Expr::Between(Between::new(Box::new(one(*expr)), negated, low, high)))
        }
        Expr::InList(InList { expr, list, negated }) => {
            let list = list.into_iter().map(one).collect();
            Transformed::yes(Expr::InList(InList::new(Box::new(one(*expr)), list, negated)))
        }
        other => Transformed::no(other),
    })
}

/// Works out what has no column, with errors for numbers that overflow.
pub(super) fn worked_out(expr: Expr) -> Fallible<Transformed<Expr>> {
    if matches!(expr, Expr::Literal(..)) || expr.exists(|expr| Ok(matches!(expr, Expr::Column(_))))? {
        return Ok(Transformed::no(expr));
    }
    let none = Arc::new(Schema::empty());
    let schema = DFSchema::try_from(Arc::clone(&none))?;
    let one_row = RecordBatchOptions::new().with_row_count(Some(1));
    let batch = RecordBatch::try_new_with_options(none, Vec::new(), &one_row)?;
    let value = match evaluable(&expr, &schema)?.evaluate(&batch)? {
        ColumnarValue::Scalar(value) => value,
        ColumnarValue::Array(values) => ScalarValue::try_from_array(&values, 0)?,
    };
    Ok(Transformed::new(Expr::Literal(value, None), true, TreeNodeRecursion::Jump))
}

pub(super) fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

pub(super) fn check_depth(deep: usize) -> Result<()> {
    if deep > DEEPEST {
        return Err(wrong(format!("it is {deep} operations deep, more than {DEEPEST}")));
    }
    Ok(())
}

/// As [`depth`], where chains of `and` and `or` count as nothing: they are not trees yet.
pub(super) fn levels(expr: &Expr) -> usize {
    let mut deepest = 0;
    let below = expr.apply_children(|child| {
        deepest = deepest.max(levels(child));
        Ok(TreeNodeRecursion::Continue)
    });
    drop(below);
    let is_chain = matches!(expr, Expr::BinaryExpr(BinaryExpr { op: Operator::And | Operator::Or, .. }));
    deepest + usize::from(!is_chain)
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
