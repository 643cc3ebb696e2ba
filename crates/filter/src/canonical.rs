//! One NaN and one zero, so that comparing floating-point numbers goes by their values.
//!
//! Arrow compares them by the total order of IEEE 754, in which -0.0 is less than 0.0, and NaN is above or below all
//! numbers depending on its sign, which no user sees. With one zero and one NaN the same kernels give what databases
//! give: -0.0 equals 0.0, NaN equals NaN and is above all numbers.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float16Type, Float32Type, Float64Type};
use datafusion_common::{Result, ScalarValue, exec_err};
use datafusion_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use rowdex_base::once::Once;

type Half = <Float16Type as ArrowPrimitiveType>::Native;

fn of_one() -> &'static Arc<ScalarUDF> {
    static OF_ONE: Once<Arc<ScalarUDF>> = Once::new();
    let new = || ScalarUDF::from(Canonical { signature: Signature::any(1, Volatility::Immutable) });
    OF_ONE.get_or_init(|| Arc::new(new()))
}

/// The same number with one NaN and one zero; other types as they are.
pub(super) fn canonical(expr: Expr, data_type: &DataType) -> Expr {
    match expr {
        expr if !data_type.is_floating() => expr,
        Expr::Literal(value, metadata) => Expr::Literal(one(value), metadata),
        expr => of_one().call(vec![expr]),
    }
}

fn one(value: ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Float64(Some(value)) => {
            ScalarValue::Float64(Some(if value.is_nan() { f64::NAN } else { value + 0.0 }))
        }
        ScalarValue::Float32(Some(value)) => {
            ScalarValue::Float32(Some(if value.is_nan() { f32::NAN } else { value + 0.0 }))
        }
        ScalarValue::Float16(Some(value)) => {
            ScalarValue::Float16(Some(if value.is_nan() { Half::NAN } else { value + Half::ZERO }))
        }
        other => other,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Canonical {
    signature: Signature,
}

impl ScalarUDFImpl for Canonical {
    fn name(&self) -> &str {
        "canonical"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [own] => Ok(own.clone()),
            _ => exec_err!("one number is wanted"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match args.args.into_iter().next() {
            Some(ColumnarValue::Scalar(value)) => ColumnarValue::Scalar(one(value)),
            Some(ColumnarValue::Array(values)) => {
                let values: ArrayRef = match values.data_type() {
                    DataType::Float64 => {
                        let one = |value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 };
                        Arc::new(values.as_primitive::<Float64Type>().unary::<_, Float64Type>(one))
                    }
                    DataType::Float32 => {
                        let one = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
                        Arc::new(values.as_primitive::<Float32Type>().unary::<_, Float32Type>(one))
                    }
                    DataType::Float16 => {
                        let one = |value: Half| if value.is_nan() { Half::NAN } else { value + Half::ZERO };
                        Arc::new(values.as_primitive::<Float16Type>().unary::<_, Float16Type>(one))
                    }
                    _ => values,
                };
                ColumnarValue::Array(values)
            }
            None => return exec_err!("one number is wanted"),
        })
    }
}
