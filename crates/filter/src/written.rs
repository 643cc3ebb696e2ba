//! What is written in a condition beside values of another type: numbers, times of day, timestamps.
//!
//! It is compared as what it is. A type that has no such value has neighbours of it, and comparing with one of those
//! comes to the same: `n < 2.5` is `n <= 2` for integers. What lies beyond all values of the type decides alone, but
//! for nulls. So nothing is cast to a type that cannot hold it, values of columns are not cast at all, and bounds of
//! columns decide what evaluating would.
//!
//! Floating-point numbers are the exception, because hardly any number that is written is one of them: it is the
//! nearest one of the column's type, unless that type ends before it.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::compute::kernels::cast_utils::{string_to_datetime, string_to_time_nanoseconds};
use arrow::datatypes::{DataType, FieldRef, Fields, IntervalUnit, Schema, TimeUnit, i256};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, DataFusionError, ScalarValue, plan_err};
use datafusion_expr::expr::{Between, BinaryExpr, Case, Cast, InList};
use datafusion_expr::sqlparser::ast;
use datafusion_expr::{Expr, ExprSchemable, Operator, cast, lit};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;

use super::evaluated::{compares, worked_out};
use super::truth::term;

/// What is an instant without saying of which zone, and the zone of columns without one.
pub(super) const UTC: &str = "+00:00";

type Fallible<T> = Result<T, DataFusionError>;

/// A condition whose literals are brought to the types that they are compared with.
pub(super) struct Written<'a> {
    schema: &'a DFSchema,
    simplifier: &'a ExprSimplifier,
    digits: Digits,
}

/// Numbers as they are written in a condition, by the bits of the 64-bit float that the planner makes of them.
type Digits = HashMap<u64, Vec<String>>;

/// Where something lies among the values of a type.
#[derive(Debug, PartialEq)]
enum Among {
    /// It is one of them.
    At(ScalarValue),
    /// Between one of them and the next, if there is one.
    Between(ScalarValue, Option<ScalarValue>),
    /// Less than all.
    Below,
    /// Greater than all.
    Above,
}

impl<'a> Written<'a> {
    pub(super) fn new(condition: &ast::Expr, schema: &'a DFSchema, simplifier: &'a ExprSimplifier) -> Self {
        Self { schema, simplifier, digits: digits(condition) }
    }

    /// A comparison with what is written as its values have it; other expressions as they are.
    pub(super) fn adapt(&self, expr: Expr) -> Fallible<Transformed<Expr>> {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
                Transformed::yes(self.compared(*left, op, *right)?)
            }
            Expr::Between(between) => Transformed::yes(self.between(between)?),
            Expr::InList(list) => Transformed::yes(self.listed(list)?),
            // One comparison for each value, if it costs nothing to ask for the operand again.
            Expr::Case(Case { expr: Some(operand), when_then_expr, else_expr }) if term(&operand).is_some() => {
                let each = when_then_expr
                    .into_iter()
                    .map(|(when, then)| Ok((Box::new(self.compared((*operand).clone(), Operator::Eq, *when)?), then)));
                let when_then_expr = each.collect::<Fallible<_>>()?;
                Transformed::yes(Expr::Case(Case { expr: None, when_then_expr, else_expr }))
            }
            other => Transformed::no(other),
        })
    }

    fn compared(&self, mut left: Expr, op: Operator, mut right: Expr) -> Fallible<Expr> {
        if let Some(among) = self.among(&mut right, || self.type_of(&left))? {
            return Ok(comparison(left, op, among));
        }
        if let Some(among) = self.among(&mut left, || self.type_of(&right))? {
            return Ok(comparison(right, op.swap().unwrap_or(op), among));
        }
        self.alike([&mut left, &mut right]);
        Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))))
    }

    fn between(&self, Between { mut expr, negated, low, high }: Between) -> Fallible<Expr> {
        /// What bounds values, if any does; `None` if no value is within.
        fn bound(written: Expr, among: Option<Among>, is_low: bool) -> Option<Option<Expr>> {
            match among {
                None => Some(Some(written)),
                Some(Among::At(value)) => Some(Some(lit(value))),
                Some(Among::Between(value, next)) => Some(Some(lit(if is_low { next? } else { value }))),
                Some(Among::Below) => is_low.then_some(None),
                Some(Among::Above) => (!is_low).then_some(None),
            }
        }
        let data_type = self.type_of(&expr);
        let (mut low, mut high) = (*low, *high);
        let least = self.among(&mut low, || data_type.clone())?;
        let most = self.among(&mut high, || data_type.clone())?;
        let within = match (bound(low, least, true), bound(high, most, false)) {
            (Some(Some(mut low)), Some(Some(mut high))) => {
                self.alike([&mut *expr, &mut low, &mut high]);
                return Ok(Expr::Between(Between::new(expr, negated, Box::new(low), Box::new(high))));
            }
            (Some(Some(low)), Some(None)) => self.compared(*expr, Operator::GtEq, low)?,
            (Some(None), Some(Some(high))) => self.compared(*expr, Operator::LtEq, high)?,
            (Some(None), Some(None)) => always(*expr),
            (None, _) | (_, None) => never(*expr),
        };
        Ok(if negated { Expr::Not(Box::new(within)) } else { within })
    }

    fn listed(&self, InList { mut expr, list, negated }: InList) -> Fallible<Expr> {
        let data_type = self.type_of(&expr);
        let mut kept = Vec::with_capacity(list.len());
        for mut value in list {
            match self.among(&mut value, || data_type.clone())? {
                Some(Among::At(value)) => kept.push(lit(value)),
                Some(_) => {}
                None => kept.push(value),
            }
        }
        if kept.is_empty() {
            return Ok(if negated { always(*expr) } else { never(*expr) });
        }
        self.alike(std::iter::once(&mut *expr).chain(&mut kept));
        Ok(Expr::InList(InList::new(expr, kept, negated)))
    }

    /// Where what is written lies among the values of the type that it is compared with. Beside floating-point numbers
    /// it becomes one of them instead.
    fn among(&self, written: &mut Expr, beside: impl FnOnce() -> Option<DataType>) -> Fallible<Option<Among>> {
        let is_number = match written {
            Expr::Literal(value, _) if value.is_null() => return Ok(None),
            Expr::Literal(ScalarValue::Float64(_) | ScalarValue::Int64(_) | ScalarValue::UInt64(_), _) => true,
            other if other.exists(|expr| Ok(matches!(expr, Expr::Column(_))))? => return Ok(None),
            _ => false,
        };
        let Some(data_type) = beside() else { return Ok(None) };
        match (&*written, &data_type) {
            (Expr::Literal(value, _), DataType::Float16 | DataType::Float32) if is_number => {
                if let Some(value) = nearest(value, &data_type) {
                    *written = lit(value);
                } else if let Ok(value) = value.cast_to(&DataType::Float64) {
                    *written = lit(value);
                }
                Ok(None)
            }
            (Expr::Literal(value, _), _) if is_number => self.number(value, &data_type),
            (Expr::Literal(value, _), _) if data_type.is_decimal() => {
                Ok(value.try_as_str().flatten().and_then(|text| among_text(text, &data_type)))
            }
            _ => self.time(written, &data_type),
        }
    }

    /// The type that an expression has when it is evaluated, and that of its values if it is a dictionary.
    fn type_of(&self, expr: &Expr) -> Option<DataType> {
        let found = match expr {
            Expr::Column(_) | Expr::Literal(..) => expr.get_type(self.schema),
            other => self.simplifier.coerce(other.clone(), self.schema).and_then(|expr| expr.get_type(self.schema)),
        };
        found.ok().map(|found| match found {
            DataType::Dictionary(_, values) => *values,
            other => other,
        })
    }

    fn number(&self, value: &ScalarValue, data_type: &DataType) -> Fallible<Option<Among>> {
        let among = |digits: &str, is_negative| Ok(among_numbers(digits, is_negative, data_type));
        match *value {
            ScalarValue::Int64(Some(value)) => among(&value.unsigned_abs().to_string(), value < 0),
            ScalarValue::UInt64(Some(value)) => among(&value.to_string(), false),
            ScalarValue::Float64(Some(value)) if value.is_finite() => {
                let is_negative = value.is_sign_negative();
                let Some((one, others)) = self.digits.get(&value.abs().to_bits()).and_then(|known| known.split_first())
                else {
                    return among(&value.abs().to_string(), is_negative);
                };
                let among = among_numbers(one, is_negative, data_type);
                for other in others {
                    if among_numbers(other, is_negative, data_type) != among {
                        let as_text =
                            if data_type.is_decimal() { "put them in single quotes" } else { "leave out parts" };
                        return plan_err!("the numbers {one} and {other} are told apart only as text: {as_text}");
                    }
                }
                Ok(among)
            }
            _ => Ok(None),
        }
    }

    /// Of what has no column and is a time, or text that is one beside it. What has no zone is of the column's.
    fn time(&self, written: &Expr, data_type: &DataType) -> Fallible<Option<Among>> {
        use DataType::{Date32, Duration, Time32, Time64, Timestamp};
        let zone = match data_type {
            Timestamp(_, zone) => zone.as_deref(),
            Date32 | Duration(_) | Time32(_) | Time64(_) => None,
            _ => return Ok(None),
        };
        // Text is read as it is written: nanoseconds of 64 bits end in the year 2262, and have lost an offset.
        let (text, of) = match written {
            Expr::Cast(Cast { expr, field }) if matches!(**expr, Expr::Literal(ScalarValue::Utf8(_), _)) => {
                match field.data_type() {
                    of @ (Timestamp(TimeUnit::Nanosecond, _) | Time64(TimeUnit::Nanosecond)) => (&**expr, Some(of)),
                    _ => (written, None),
                }
            }
            _ => (written, None),
        };
        let Ok(Transformed { data: Expr::Literal(value, _), .. }) = worked_out(text.clone()) else { return Ok(None) };
        let ticks = match (value.try_as_str().flatten(), of, data_type) {
            (Some(text), None | Some(Time64(_)), Time32(_) | Time64(_)) => match string_to_time_nanoseconds(text) {
                Ok(ticks) => Some(ticks.into()),
                Err(_) => return plan_err!("'{text}' is no time of day: write one like '12:00' or '23:59:59.5'"),
            },
            (Some(text), None, Timestamp(..)) => read(text, zone)?,
            (Some(text), Some(Timestamp(_, own)), Timestamp(..) | Date32) => read(text, own.as_deref().or(zone))?,
            (Some(_), ..) => None,
            (None, ..) => match (value.data_type(), data_type, zone) {
                (Date32 | Timestamp(_, None), Timestamp(..), Some(zone)) => local(&value, zone)?,
                (Time32(_) | Time64(_), Time32(_) | Time64(_), _)
                | (Date32, Timestamp(..), _)
                | (Timestamp(..), Timestamp(..) | Date32, _)
                | (Duration(_), Duration(_), _) => ticks(&value),
                (DataType::Interval(_), Duration(_), _) => Some(of_interval(&value)?),
                _ => None,
            },
        };
        let unit = i128::from(unit(data_type));
        let floor = |ticks: i128| i256::from_i128(ticks.div_euclid(unit));
        Ok(ticks.map(|ticks| among(floor(ticks), ticks.rem_euclid(unit) == 0, data_type)))
    }

    /// Brings times of day to nanoseconds where they are not all of one unit: DataFusion compares none of different
    /// units. Brings dates to the unit of the timestamps that they are compared with: DataFusion brings both to
    /// nanoseconds, which end in the year 2262.
    fn alike<'b>(&self, compared: impl IntoIterator<Item = &'b mut Expr>) {
        use DataType::{Date32, Time32, Time64, Timestamp};
        let compared: Vec<(&mut Expr, DataType)> =
            compared.into_iter().filter_map(|expr| expr.get_type(self.schema).ok().map(|of| (expr, of))).collect();
        let stamps: Vec<DataType> =
            compared.iter().filter(|(_, of)| matches!(of, Timestamp(_, None))).map(|(_, of)| of.clone()).collect();
        if let Some(stamp) = stamps.first().filter(|first| stamps.iter().all(|of| of == *first))
            && stamps.len() < compared.len()
            && compared.iter().all(|(_, of)| of == stamp || *of == Date32)
        {
            for (expr, _) in compared.into_iter().filter(|(_, of)| *of == Date32) {
                *expr = cast(std::mem::take(expr), stamp.clone());
            }
            return;
        }
        let times: Vec<_> = compared.into_iter().filter(|(_, of)| matches!(of, Time32(_) | Time64(_))).collect();
        let is_one = times.windows(2).all(|two| matches!(two, [(_, a), (_, b)] if a == b));
        let finest = Time64(TimeUnit::Nanosecond);
        for (expr, _) in times.into_iter().filter(|(_, of)| !is_one && *of != finest) {
            *expr = cast(std::mem::take(expr), finest.clone());
        }
    }
}

/// The schema as the planner is to see it: it types what is below `not` before times of different units are alike.
pub(super) fn of_one_unit(schema: &Schema) -> Schema {
    fn field(of: &FieldRef) -> FieldRef {
        let data_type = match of.data_type() {
            DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Nanosecond),
            DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
            _ => return Arc::clone(of),
        };
        Arc::new(of.as_ref().clone().with_data_type(data_type))
    }
    Schema::new(schema.fields().iter().map(field).collect::<Fields>())
}

fn comparison(expr: Expr, op: Operator, among: Among) -> Expr {
    use Operator::{Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    let with = |expr: Expr, op: Operator, value: ScalarValue| {
        Expr::BinaryExpr(BinaryExpr::new(Box::new(expr), op, Box::new(lit(value))))
    };
    match (among, op) {
        (Among::At(value), _) => with(expr, op, value),
        (_, IsDistinctFrom) => lit(true),
        (_, IsNotDistinctFrom) => lit(false),
        (Among::Between(value, _), Lt | LtEq) => with(expr, LtEq, value),
        (Among::Between(value, _), Gt | GtEq) => with(expr, Gt, value),
        (Among::Above, Lt | LtEq) | (Among::Below, Gt | GtEq) | (_, NotEq) => always(expr),
        _ => never(expr),
    }
}

/// False, and null where the expression is.
fn never(expr: Expr) -> Expr {
    Expr::IsNull(Box::new(expr)).and(lit(ScalarValue::Boolean(None)))
}

/// True, and null where the expression is.
fn always(expr: Expr) -> Expr {
    Expr::IsNotNull(Box::new(expr)).or(lit(ScalarValue::Boolean(None)))
}

fn digits(condition: &ast::Expr) -> Digits {
    let mut found = Digits::new();
    let walked: ControlFlow<()> = ast::visit_expressions(condition, |expr| {
        if let ast::Expr::Value(value) = expr
            && let ast::Value::Number(text, _) = &value.value
            && let Some(number) = text.parse::<f64>().ok().filter(|number| number.is_finite())
            && let Some(exact) = expanded(text)
        {
            let known = found.entry(number.to_bits()).or_default();
            if !known.contains(&exact) {
                known.push(exact);
            }
        }
        ControlFlow::Continue(())
    });
    debug_assert!(walked.is_continue());
    found
}

/// Where a number lies that is written as text, with or without an exponent. Casting the text would round it.
fn among_text(text: &str, data_type: &DataType) -> Option<Among> {
    let is_negative = text.starts_with('-');
    among_numbers(&expanded(text.strip_prefix(['-', '+']).unwrap_or(text))?, is_negative, data_type)
}

/// All digits of a number without a sign, and a point among them.
fn expanded(number: &str) -> Option<String> {
    let (number, exponent) = match number.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i16>().ok()?),
        None => (number, 0),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let mut digits = format!("{whole}{part}");
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // Zeros make room for the point, which the exponent moves.
    let moved = usize::from(exponent.unsigned_abs());
    let mut point = whole.len();
    if exponent < 0 {
        digits.insert_str(0, &"0".repeat(moved));
    } else {
        digits.push_str(&"0".repeat(moved));
        point += moved;
    }
    let (whole, part) = digits.split_at(point);
    Some(format!("{}.{}", whole.trim_start_matches('0'), part.trim_end_matches('0')))
}

/// Where digits with a point lie among integers or decimals.
fn among_numbers(digits: &str, is_negative: bool, data_type: &DataType) -> Option<Among> {
    let scale = match data_type {
        of if of.is_integer() => 0,
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => usize::try_from(*scale).ok()?,
        _ => return None,
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let (kept, rest) = part.split_at(part.len().min(scale));
    let is_exact = rest.bytes().all(|digit| digit == b'0');
    let Some(magnitude) = i256::from_string(&format!("0{whole}{kept:0<scale$}")) else {
        return Some(if is_negative { Among::Below } else { Among::Above });
    };
    let rest = if is_exact { i256::ZERO } else { i256::ONE };
    let floor = if is_negative { i256::ZERO.wrapping_sub(magnitude).wrapping_sub(rest) } else { magnitude };
    Some(among(floor, is_exact, data_type))
}

/// The place of a number, rounded down, of the units that a type counts in.
fn among(floor: i256, is_exact: bool, data_type: &DataType) -> Among {
    match held(floor, data_type) {
        Some(value) if is_exact => Among::At(value),
        Some(value) => Among::Between(value, floor.checked_add(i256::ONE).and_then(|next| held(next, data_type))),
        None if floor.is_negative() => Among::Below,
        None => Among::Above,
    }
}

/// So many units as a value of a type, which may not reach so far.
fn held(units: i256, data_type: &DataType) -> Option<ScalarValue> {
    use ScalarValue as V;
    fn number<T: TryFrom<i128>>(units: i256) -> Option<Option<T>> {
        T::try_from(units.to_i128()?).ok().map(Some)
    }
    let has_digits = |precision: u8| {
        let end = i256::from_i128(10).checked_pow(precision.into());
        end.is_none_or(|end| i256::ZERO.wrapping_sub(end) < units && units < end)
    };
    Some(match data_type {
        DataType::Int8 => V::Int8(number(units)?),
        DataType::Int16 => V::Int16(number(units)?),
        DataType::Int32 => V::Int32(number(units)?),
        DataType::Int64 => V::Int64(number(units)?),
        DataType::UInt8 => V::UInt8(number(units)?),
        DataType::UInt16 => V::UInt16(number(units)?),
        DataType::UInt32 => V::UInt32(number(units)?),
        DataType::UInt64 => V::UInt64(number(units)?),
        DataType::Decimal32(digits, scale) if has_digits(*digits) => V::Decimal32(number(units)?, *digits, *scale),
        DataType::Decimal64(digits, scale) if has_digits(*digits) => V::Decimal64(number(units)?, *digits, *scale),
        DataType::Decimal128(digits, scale) if has_digits(*digits) => V::Decimal128(number(units)?, *digits, *scale),
        DataType::Decimal256(digits, scale) if has_digits(*digits) => V::Decimal256(Some(units), *digits, *scale),
        DataType::Date32 => V::Date32(number(units)?),
        DataType::Time32(TimeUnit::Second) => V::Time32Second(number(units)?),
        DataType::Time32(_) => V::Time32Millisecond(number(units)?),
        DataType::Time64(TimeUnit::Microsecond) => V::Time64Microsecond(number(units)?),
        DataType::Time64(_) => V::Time64Nanosecond(number(units)?),
        DataType::Duration(TimeUnit::Second) => V::DurationSecond(number(units)?),
        DataType::Duration(TimeUnit::Millisecond) => V::DurationMillisecond(number(units)?),
        DataType::Duration(TimeUnit::Microsecond) => V::DurationMicrosecond(number(units)?),
        DataType::Duration(TimeUnit::Nanosecond) => V::DurationNanosecond(number(units)?),
        DataType::Timestamp(TimeUnit::Second, zone) => V::TimestampSecond(number(units)?, zone.clone()),
        DataType::Timestamp(TimeUnit::Millisecond, zone) => V::TimestampMillisecond(number(units)?, zone.clone()),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => V::TimestampMicrosecond(number(units)?, zone.clone()),
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => V::TimestampNanosecond(number(units)?, zone.clone()),
        _ => return None,
    })
}

/// The nearest floating-point number of a type; none where only infinity or zero would be left of it.
fn nearest(value: &ScalarValue, data_type: &DataType) -> Option<ScalarValue> {
    let number = |value: &ScalarValue| match value.cast_to(&DataType::Float64) {
        Ok(ScalarValue::Float64(number)) => number,
        _ => None,
    };
    let near = value.cast_to(data_type).ok()?;
    let (written, held) = (number(value)?, number(&near)?);
    (held.is_finite() && (held == 0.0) == (written == 0.0)).then_some(near)
}

/// The nanoseconds since 1970 of text, in a zone if it has no offset; nothing if it is no timestamp.
fn read(text: &str, zone: Option<&str>) -> Fallible<Option<i128>> {
    let zone = zone.unwrap_or(UTC);
    let found = string_to_datetime(&zone.parse::<Tz>()?, text);
    if found.is_err() && string_to_datetime(&UTC.parse::<Tz>()?, text).is_ok() {
        return not_one(text, zone);
    }
    let second = i128::from(nanoseconds(TimeUnit::Second));
    Ok(found.ok().map(|at| i128::from(at.timestamp()) * second + i128::from(at.timestamp_subsec_nanos())))
}

/// The nanoseconds since 1970 of a date or time of a zone.
fn local(value: &ScalarValue, zone: &str) -> Fallible<Option<i128>> {
    let Some(ticks) = ticks(value) else { return Ok(None) };
    let second = i128::from(nanoseconds(TimeUnit::Second));
    let Ok(seconds) = i64::try_from(ticks.div_euclid(second)) else { return Ok(None) };
    let there = DataType::Timestamp(TimeUnit::Second, Some(zone.into()));
    match ScalarValue::TimestampSecond(Some(seconds), None).cast_to(&there) {
        Ok(ScalarValue::TimestampSecond(Some(at), _)) => Ok(Some(i128::from(at) * second + ticks.rem_euclid(second))),
        _ => not_one(&value.to_string(), zone),
    }
}

fn not_one<T>(time: &str, zone: &str) -> Fallible<T> {
    plan_err!(
        "the clocks of {zone} never show {time}, or twice: write it with an offset, as in \
         timestamptz '2024-01-31 12:00:00+02:00'"
    )
}

/// The nanoseconds of an interval, whose days have 24 hours.
fn of_interval(value: &ScalarValue) -> Fallible<i128> {
    let months = DataType::Interval(IntervalUnit::MonthDayNano);
    match value.cast_to(&months) {
        Ok(ScalarValue::IntervalMonthDayNano(Some(of))) if of.months == 0 => {
            Ok(i128::from(of.days) * i128::from(unit(&DataType::Date32)) + i128::from(of.nanoseconds))
        }
        _ => plan_err!("a month has no length of its own: write days, or compare with a time plus the interval"),
    }
}

/// The nanoseconds of a date, time, timestamp or duration.
fn ticks(value: &ScalarValue) -> Option<i128> {
    match value.cast_to(&DataType::Int64) {
        Ok(ScalarValue::Int64(Some(count))) => Some(i128::from(count) * i128::from(unit(&value.data_type()))),
        _ => None,
    }
}

/// The nanoseconds of what dates, times and timestamps count.
fn unit(of: &DataType) -> i64 {
    match of {
        DataType::Time32(unit) | DataType::Time64(unit) | DataType::Timestamp(unit, _) | DataType::Duration(unit) => {
            nanoseconds(*unit)
        }
        _ => 86_400 * nanoseconds(TimeUnit::Second),
    }
}

fn nanoseconds(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}
