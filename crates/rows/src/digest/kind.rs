//! What the values of a column are, whatever width, encoding or layout they have in memory.

use arrow_schema::{DataType, FieldRef, IntervalUnit, TimeUnit};

/// The kind of a type's values, as digests are keyed by it.
///
/// # Errors
/// The type that has none.
pub(super) fn kind(data_type: &DataType) -> Result<String, DataType> {
    use DataType as D;
    Ok(match data_type {
        D::Null => "null".to_owned(),
        D::Boolean => "bool".to_owned(),
        D::Int8 | D::Int16 | D::Int32 | D::Int64 => "int".to_owned(),
        D::UInt8 | D::UInt16 | D::UInt32 | D::UInt64 => "uint".to_owned(),
        D::Float16 => "float16".to_owned(),
        D::Float32 => "float32".to_owned(),
        D::Float64 => "float64".to_owned(),
        D::Date32 => "date[d]".to_owned(),
        D::Date64 => "date[ms]".to_owned(),
        D::Time32(unit) | D::Time64(unit) => format!("time[{}]", name(*unit)),
        D::Timestamp(unit, _) => format!("timestamp[{}]", name(*unit)),
        D::Duration(unit) => format!("duration[{}]", name(*unit)),
        D::Interval(IntervalUnit::YearMonth) => "interval[month]".to_owned(),
        D::Interval(IntervalUnit::DayTime) => "interval[day,ms]".to_owned(),
        D::Interval(IntervalUnit::MonthDayNano) => "interval[month,day,ns]".to_owned(),
        D::Decimal32(_, scale) | D::Decimal64(_, scale) | D::Decimal128(_, scale) | D::Decimal256(_, scale) => {
            format!("decimal[{scale}]")
        }
        D::Utf8 | D::LargeUtf8 | D::Utf8View => "string".to_owned(),
        D::Binary | D::LargeBinary | D::BinaryView | D::FixedSizeBinary(_) => "binary".to_owned(),
        D::List(item) | D::LargeList(item) | D::ListView(item) | D::LargeListView(item) | D::FixedSizeList(item, _) => {
            format!("list<{}>", kind(item.data_type())?)
        }
        D::Map(entries, _) => match entries.data_type() {
            D::Struct(fields) if fields.len() == 2 => {
                let kinds: Vec<String> =
                    fields.iter().map(|field| kind(field.data_type())).collect::<Result<_, _>>()?;
                format!("map<{}>", kinds.join(","))
            }
            other => return Err(other.clone()),
        },
        D::Struct(fields) => {
            let field = |at: usize| {
                let Some(field) = fields.get(at) else { return Ok(String::new()) };
                Ok(format!("{}:{}:{}", field.name().len(), field.name(), kind(field.data_type())?))
            };
            let kinds: Vec<String> = by_name(fields).into_iter().map(field).collect::<Result<_, _>>()?;
            format!("struct<{}>", kinds.join(","))
        }
        D::Dictionary(_, values) => kind(values)?,
        D::RunEndEncoded(_, values) => kind(values.data_type())?,
        unknown => return Err(unknown.clone()),
    })
}

/// The places of fields in the order of their names, bytewise: the order in which digests take them.
pub(super) fn by_name(fields: &[FieldRef]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..fields.len()).collect();
    places.sort_by(|a, b| fields.get(*a).map(|field| field.name()).cmp(&fields.get(*b).map(|field| field.name())));
    places
}

fn name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}
