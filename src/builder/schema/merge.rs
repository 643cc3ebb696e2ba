//! Fields that hold what those of two files hold.

use std::sync::Arc;

use arrow_schema::{
    DECIMAL32_MAX_PRECISION, DECIMAL64_MAX_PRECISION, DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType,
    Field, FieldRef, Fields,
};

use super::SchemaMode;
use rowdex_base::error::{Error, ErrorKind};
use rowdex_parquet::widens;
use rowdex_projection::places_of;

/// Where two fields differ, and how.
pub(super) struct Difference {
    path: String,
    what: String,
}

impl Difference {
    /// Why files that differ so from the first one have no schema in common.
    pub(super) fn refused(self, first: &str, mode: SchemaMode) -> Error {
        let error = Error::new(ErrorKind::Schema, format!("{}, compared with {first}", self.what));
        let error = error.with_column(self.path);
        match mode {
            SchemaMode::Strict => {
                error.with_hint("make the files alike, or merge their columns with the schema `union`")
            }
            SchemaMode::Union => error.with_hint("no type holds the values of both: make the files alike"),
        }
    }

    fn at(field: &Field, top: bool, what: &str) -> Self {
        let kind = if top { "the column" } else { "the field" };
        Self { path: field.name().clone(), what: format!("{kind} {what}") }
    }

    fn types(ours: &Field, theirs: &Field) -> Self {
        let what = format!("the type is {} here and {} there", theirs.data_type(), ours.data_type());
        Self { path: ours.name().clone(), what }
    }

    fn below(mut self, field: &Field) -> Self {
        self.path = format!("{}.{}", field.name(), self.path);
        self
    }
}

/// Merges by name, in the order of `ours` and then of `theirs`.
pub(super) fn merge_fields(ours: &Fields, theirs: &Fields, mode: SchemaMode, top: bool) -> Result<Fields, Difference> {
    let mut merged = Vec::with_capacity(ours.len());
    let of_ours = places_of(ours, theirs);
    let of_theirs = places_of(theirs, ours);
    for (field, place) in ours.iter().zip(of_ours) {
        merged.push(match (place.and_then(|place| theirs.get(place)), mode) {
            (Some(other), _) => merge_field(field, other, mode)?,
            (None, SchemaMode::Union) => nullable(field),
            (None, SchemaMode::Strict) => return Err(Difference::at(field, top, "is missing")),
        });
    }
    for (field, _) in theirs.iter().zip(of_theirs).filter(|(_, place)| place.is_none()) {
        match mode {
            SchemaMode::Union => merged.push(nullable(field)),
            SchemaMode::Strict => return Err(Difference::at(field, top, "is new")),
        }
    }
    Ok(merged.into())
}

fn merge_field(ours: &FieldRef, theirs: &FieldRef, mode: SchemaMode) -> Result<FieldRef, Difference> {
    let data_type = merge_types(ours.data_type(), theirs.data_type(), mode)
        .map_err(|difference| difference.map_or_else(|| Difference::types(ours, theirs), |below| below.below(ours)))?;
    let mut metadata = ours.metadata().clone();
    metadata.retain(|key, value| theirs.metadata().get(key) == Some(value));
    let nullable = ours.is_nullable() || theirs.is_nullable();
    Ok(Arc::new(Field::new(ours.name(), data_type, nullable).with_metadata(metadata)))
}

/// `Err(None)` if it is these types themselves that do not fit.
fn merge_types(ours: &DataType, theirs: &DataType, mode: SchemaMode) -> Result<DataType, Option<Difference>> {
    use DataType::{Dictionary, FixedSizeList, LargeList, LargeListView, List, ListView, Map, Struct};
    let field = |a: &FieldRef, b: &FieldRef| {
        // The names of list items say nothing: writers call them element, item or array.
        let b = Arc::new(b.as_ref().clone().with_name(a.name()));
        merge_field(a, &b, mode).map_err(Some)
    };
    match (ours, theirs) {
        _ if ours == theirs => Ok(ours.clone()),
        (Struct(a), Struct(b)) => Ok(Struct(merge_fields(a, b, mode, false).map_err(Some)?)),
        (List(a), List(b)) => Ok(List(field(a, b)?)),
        (LargeList(a), LargeList(b)) => Ok(LargeList(field(a, b)?)),
        (ListView(a), ListView(b)) => Ok(ListView(field(a, b)?)),
        (LargeListView(a), LargeListView(b)) => Ok(LargeListView(field(a, b)?)),
        (FixedSizeList(a, n), FixedSizeList(b, m)) if n == m => Ok(FixedSizeList(field(a, b)?, *n)),
        (Map(a, x), Map(b, y)) if x == y => Ok(Map(field(a, b)?, *x)),
        // Writers choose keys by how many values a file has, so their width is no difference in type.
        (Dictionary(a, values), Dictionary(b, others)) if values == others => {
            Ok(Dictionary(Box::new(wider_keys(a, b)), values.clone()))
        }
        _ if mode == SchemaMode::Union && items(ours).is_some() && items(theirs).is_some() => lists(ours, theirs),
        _ if mode == SchemaMode::Union => wider(ours, theirs).ok_or(None),
        _ => Err(None),
    }
}

/// A type of dictionary keys that holds those of both.
fn wider_keys(a: &DataType, b: &DataType) -> DataType {
    [a, b].into_iter().find(|both| widens(a, both) && widens(b, both)).cloned().unwrap_or(DataType::Int64)
}

/// The items of lists that are brought to lists of another kind, and whether offsets have 64 bits.
fn items(data_type: &DataType) -> Option<(&FieldRef, bool)> {
    match data_type {
        DataType::List(field) | DataType::FixedSizeList(field, _) => Some((field, false)),
        DataType::LargeList(field) => Some((field, true)),
        _ => None,
    }
}

/// A list that holds those of two kinds, of items that hold those of both.
fn lists(ours: &DataType, theirs: &DataType) -> Result<DataType, Option<Difference>> {
    let (Some((a, large)), Some((b, larger))) = (items(ours), items(theirs)) else { return Err(None) };
    let named = Arc::new(b.as_ref().clone().with_name(a.name()));
    let item = merge_field(a, &named, SchemaMode::Union).map_err(Some)?;
    Ok(if large || larger { DataType::LargeList(item) } else { DataType::List(item) })
}

/// A type that holds the values of both.
fn wider(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{Float32, Float64, Int16, Int32, Int64};
    if let (Some(ours), Some(theirs)) = (decimal(a), decimal(b)) {
        return common_decimal(ours, theirs);
    }
    if widens(a, b) {
        return Some(b.clone());
    }
    if widens(b, a) {
        return Some(a.clone());
    }
    [Int16, Int32, Int64, Float32, Float64].into_iter().find(|both| widens(a, both) && widens(b, both))
}

/// The digits of a decimal, those of them behind the point, and how many its width has room for.
fn decimal(data_type: &DataType) -> Option<(i16, i16, i16)> {
    let (precision, scale, room) = match *data_type {
        DataType::Decimal32(precision, scale) => (precision, scale, DECIMAL32_MAX_PRECISION),
        DataType::Decimal64(precision, scale) => (precision, scale, DECIMAL64_MAX_PRECISION),
        DataType::Decimal128(precision, scale) => (precision, scale, DECIMAL128_MAX_PRECISION),
        DataType::Decimal256(precision, scale) => (precision, scale, DECIMAL256_MAX_PRECISION),
        _ => return None,
    };
    Some((precision.into(), scale.into(), room.into()))
}

/// The decimal with the digits of both before the point and behind it, no narrower than either. Which file is first
/// makes no difference.
fn common_decimal(ours: (i16, i16, i16), theirs: (i16, i16, i16)) -> Option<DataType> {
    type Width = fn(u8, i8) -> DataType;
    let (p, s, room) = ours;
    let (q, t, other) = theirs;
    let scale = s.max(t);
    let precision = (p - s).max(q - t) + scale;
    let room = precision.max(room).max(other);
    let precision = u8::try_from(precision).ok()?;
    let scale = i8::try_from(scale).ok()?;
    let widths: [(u8, Width); 4] = [
        (DECIMAL32_MAX_PRECISION, DataType::Decimal32),
        (DECIMAL64_MAX_PRECISION, DataType::Decimal64),
        (DECIMAL128_MAX_PRECISION, DataType::Decimal128),
        (DECIMAL256_MAX_PRECISION, DataType::Decimal256),
    ];
    widths.into_iter().find(|(most, _)| i16::from(*most) >= room).map(|(_, of)| of(precision, scale))
}

fn nullable(field: &FieldRef) -> FieldRef {
    if field.is_nullable() { field.clone() } else { Arc::new(field.as_ref().clone().with_nullable(true)) }
}
