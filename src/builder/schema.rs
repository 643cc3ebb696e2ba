//! One schema for all files.

mod merge;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow_schema::{Fields, Schema, SchemaRef};

use self::merge::merge_fields;
use super::partition::Partitions;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_index::Index;
use rowdex_projection::places_of;

/// How the schemas of many files are brought together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum SchemaMode {
    /// Every file has the same columns with the same types. Their order, whether they may be null, and key-value
    /// metadata may differ.
    #[default]
    Strict,
    /// Columns that a file lacks are null in its rows, and types are widened to one that holds the values of both:
    /// integers, floats, decimals, strings, and all others that Arrow converts without loss.
    Union,
}

impl fmt::Display for SchemaMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strict => "strict",
            Self::Union => "union",
        })
    }
}

impl FromStr for SchemaMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "strict" => Ok(Self::Strict),
            "union" => Ok(Self::Union),
            _ => Err(Error::invalid(format!("{text:?} is no way to merge schemas")).with_hint("use strict or union")),
        }
    }
}

/// The schema of the files seen so far.
#[derive(Debug)]
pub(super) struct Merged {
    mode: SchemaMode,
    /// With the file that it began with, for messages.
    schema: Option<(String, Schema)>,
    /// Files in a row mostly have equal schemas, which need no merging again.
    last: Option<SchemaRef>,
    /// The schema that others are compared with: of the first file, or of the index that is updated.
    first: Option<SchemaRef>,
    /// How many files have a schema that is not the first one, although both have one in common.
    pub(super) unlike_files: u64,
    /// The first of them, and in what it differs.
    pub(super) unlike_example: Option<String>,
    last_is_unlike: bool,
}

impl Merged {
    pub(super) fn new(mode: SchemaMode) -> Self {
        Self {
            mode,
            schema: None,
            last: None,
            first: None,
            unlike_files: 0,
            unlike_example: None,
            last_is_unlike: false,
        }
    }

    /// Goes on from an index of which `kept` files stay.
    pub(super) fn start_with(&mut self, old: &Index, kept: usize, partitions: &Partitions) -> Result<()> {
        if kept == 0 {
            return Ok(());
        }
        if old.partition_columns() != partitions.names() {
            return Err(Error::new(ErrorKind::Schema, "the index has other partition columns than the files now give")
                .with_hint("build it again with `overwrite`"));
        }
        let own = old.schema().fields().iter().filter(|field| !partitions.names().contains(field.name())).cloned();
        let schema = Schema::new_with_metadata(own.collect::<Fields>(), old.schema().metadata().clone());
        let first = old.file(0).map_or_else(String::new, |file| file.path().to_owned());
        self.first = Some(Arc::new(schema.clone()));
        self.schema = Some((first, schema));
        Ok(())
    }

    /// Adds the schema of a file, whose columns were renamed from these names to these.
    pub(super) fn add(
        &mut self,
        path: &str,
        schema: &SchemaRef,
        renamed: &[(String, String)],
        partitions: &Partitions,
    ) -> Result<()> {
        if self.last.as_ref().is_some_and(|last| last == schema) {
            self.unlike_files += u64::from(self.last_is_unlike);
            return Ok(());
        }
        if let Some(name) = partitions.names().iter().find(|name| schema.column_with_name(name).is_some()) {
            return Err(Error::new(ErrorKind::Schema, "the column is in the file and in the name of its folder")
                .with_file(path)
                .with_column(name)
                .with_hint("leave partitions out"));
        }
        if let Some(repeated) = repeated(schema.fields()) {
            return Err(named_twice(repeated, renamed).with_file(path));
        }
        match &mut self.schema {
            None => self.schema = Some((path.to_owned(), schema.as_ref().clone())),
            Some((first, merged)) => {
                let fields = merge_fields(merged.fields(), schema.fields(), self.mode, true)
                    .map_err(|difference| difference.refused(first, self.mode).with_file(path))?;
                let mut metadata = merged.metadata().clone();
                metadata.retain(|key, value| schema.metadata().get(key) == Some(value));
                *merged = Schema::new_with_metadata(fields, metadata);
            }
        }
        let difference = unlike(self.first.get_or_insert_with(|| schema.clone()), schema);
        self.last_is_unlike = difference.is_some();
        self.unlike_files += u64::from(self.last_is_unlike);
        let of_file = |difference| format!("{path}: {difference}");
        self.unlike_example = self.unlike_example.take().or(difference.map(of_file));
        self.last = Some(schema.clone());
        Ok(())
    }

    /// The schema of the index: the columns of the files, then those of their folders.
    pub(super) fn finish(&self, partitions: &Partitions) -> SchemaRef {
        let (fields, metadata) = match &self.schema {
            Some((_, schema)) => (schema.fields.clone(), schema.metadata.clone()),
            None => (Fields::empty(), Default::default()),
        };
        let fields: Fields = fields.iter().cloned().chain(partitions.fields()).collect();
        Arc::new(Schema::new_with_metadata(fields, metadata))
    }
}

/// In what a schema differs from another one, if it does.
fn unlike(first: &Schema, other: &Schema) -> Option<String> {
    let places = places_of(first.fields(), other.fields());
    for (field, place) in first.fields().iter().zip(&places) {
        let name = field.name();
        let Some(own) = place.and_then(|place| other.fields().get(place)) else {
            return Some(format!("{name} is missing"));
        };
        if own.data_type() != field.data_type() {
            return Some(format!("{name} is {} and not {}", own.data_type(), field.data_type()));
        }
        if own.is_nullable() != field.is_nullable() {
            return Some(format!("{name} {}", if own.is_nullable() { "may be null" } else { "is never null" }));
        }
    }
    let more = places_of(other.fields(), first.fields()).iter().position(Option::is_none);
    match more.and_then(|at| other.fields().get(at)) {
        Some(field) => Some(format!("{} is new", field.name())),
        None => (!places.is_sorted()).then(|| "the columns are in another order".to_owned()),
    }
}

/// What is wrong where two columns of a file are called the same, perhaps only since they were renamed.
fn named_twice(name: &str, renamed: &[(String, String)]) -> Error {
    let mut old = renamed.iter().filter(|(_, new)| new == name).map(|(old, _)| old);
    let (message, hint) = match (old.next(), old.next()) {
        (None, _) => ("two columns have this name".to_owned(), "write the file with distinct column names".to_owned()),
        (Some(first), other) => {
            let message = match other {
                Some(second) => {
                    format!("the file has the columns {first:?} and {second:?}, which both get this name")
                }
                None => format!("the file has this column, and another one, {first:?}, that gets its name"),
            };
            (message, format!("rename {first:?} to a name that no file has, or not at all"))
        }
    };
    Error::new(ErrorKind::Schema, message).with_column(name).with_hint(hint)
}

fn repeated(fields: &Fields) -> Option<&str> {
    let mut names = std::collections::HashSet::new();
    fields.iter().map(|field| field.name().as_str()).find(|name| !names.insert(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    use arrow_array::{Array, ArrayRef, Decimal128Array, ListArray, RecordBatch, new_null_array};
    use arrow_buffer::OffsetBuffer;
    use arrow_cast::display::array_value_to_string;
    use arrow_schema::{DataType, Field};

    fn merge(mode: SchemaMode, schemas: &[Vec<Field>]) -> Result<SchemaRef> {
        let mut merged = Merged::new(mode);
        for (number, fields) in schemas.iter().enumerate() {
            let schema = Arc::new(Schema::new(fields.clone()));
            merged.add(&format!("{number}.parquet"), &schema, &[], &Partitions::default())?;
        }
        Ok(merged.finish(&Partitions::default()))
    }

    fn field(name: &str, data_type: DataType, nullable: bool) -> Field {
        Field::new(name, data_type, nullable)
    }

    #[test]
    fn order_and_nullability_may_differ_and_the_first_file_gives_the_order() {
        let a = vec![field("x", DataType::Int32, false), field("y", DataType::Utf8, false)];
        let b = vec![field("y", DataType::Utf8, true), field("x", DataType::Int32, false)];
        let schema = merge(SchemaMode::Strict, &[a, b]).unwrap();
        assert_eq!(schema.field(0), &field("x", DataType::Int32, false));
        assert_eq!(schema.field(1), &field("y", DataType::Utf8, true));
    }

    #[test]
    fn a_difference_names_both_files_and_the_nested_field() {
        let point = |data_type| DataType::Struct(vec![field("x", data_type, true)].into());
        let a = vec![field("p", point(DataType::Int32), true)];
        let b = vec![field("p", point(DataType::Utf8), true)];
        let error = merge(SchemaMode::Strict, &[a, b]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert_eq!((error.file(), error.column()), (Some("1.parquet"), Some("p.x")));
        assert!(error.to_string().contains("0.parquet") && error.to_string().contains("Utf8"), "{error}");
    }

    #[test]
    fn missing_and_new_columns_are_refused_when_strict_and_null_in_a_union() {
        let a = vec![field("x", DataType::Int32, false), field("y", DataType::Int8, false)];
        let b = vec![field("x", DataType::Int32, false), field("z", DataType::Int8, false)];
        assert_eq!(merge(SchemaMode::Strict, &[a.clone(), b.clone()]).unwrap_err().column(), Some("y"));
        let schema = merge(SchemaMode::Union, &[a, b]).unwrap();
        let names: Vec<_> = schema.fields().iter().map(|field| (field.name().as_str(), field.is_nullable())).collect();
        assert_eq!(names, [("x", false), ("y", true), ("z", true)]);
    }

    #[test]
    fn keys_of_dictionaries_may_differ_and_their_values_may_not() {
        use DataType::{Int8, Int16, Int64, LargeUtf8, UInt32, Utf8};
        let words = |key, values| vec![field("x", DataType::Dictionary(Box::new(key), Box::new(values)), true)];
        for (a, b, both) in [(Int8, Int16, Int16), (Int16, Int8, Int16), (Int8, Int8, Int8), (UInt32, Int8, Int64)] {
            let schema = merge(SchemaMode::Strict, &[words(a, Utf8), words(b, Utf8)]).unwrap();
            assert_eq!(schema.field(0), &words(both, Utf8)[0]);
        }
        let error = merge(SchemaMode::Strict, &[words(Int8, Utf8), words(Int8, LargeUtf8)]).unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Schema, Some("x")));
    }

    #[test]
    fn a_union_widens_to_a_type_that_holds_both() {
        use DataType::*;
        for (a, b, both) in [
            (Int8, Int64, Int64),
            (UInt32, Int32, Int64),
            (Float32, Float64, Float64),
            (Int32, Float32, Float64),
            (Utf8, LargeUtf8, LargeUtf8),
        ] {
            let schema = merge(SchemaMode::Union, &[vec![field("x", a, true)], vec![field("x", b, true)]]).unwrap();
            assert_eq!(schema.field(0).data_type(), &both);
        }
        let error = merge(SchemaMode::Union, &[vec![field("x", Int64, true)], vec![field("x", Utf8, true)]]);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Schema);
    }

    /// The type that a union has in every order of the files, or the error that it has in every order.
    fn union(types: &[DataType]) -> Result<DataType> {
        let of = |types: &[DataType]| {
            let schemas: Vec<_> = types.iter().map(|of| vec![field("x", of.clone(), true)]).collect();
            merge(SchemaMode::Union, &schemas).map(|schema| schema.field(0).data_type().clone())
        };
        let both = of(types);
        for first in 0..types.len() {
            let mut turned = types.to_vec();
            turned.rotate_left(first);
            for _ in 0..2 {
                let other = of(&turned);
                match (&both, &other) {
                    (Ok(both), Ok(other)) => assert_eq!(both, other, "{turned:?}"),
                    (Err(_), Err(error)) => assert_eq!(error.kind(), ErrorKind::Schema),
                    _ => panic!("{types:?}: {both:?}, and {turned:?}: {other:?}"),
                }
                turned.reverse();
            }
        }
        if let Ok(both) = &both {
            let served = Arc::new(Schema::new(vec![field("x", both.clone(), true)]));
            for own in types {
                let batch = RecordBatch::try_from_iter_with_nullable([("x", new_null_array(own, 2), true)]).unwrap();
                let read = rowdex_parquet::finish(&batch, &served).unwrap();
                assert_eq!(read.column(0).null_count(), 2, "{own} as {both}");
            }
        }
        both
    }

    #[test]
    fn a_union_of_decimals_has_the_digits_of_all_in_every_order() {
        use DataType::*;
        for (types, both) in [
            (&[Decimal128(10, 2), Decimal128(12, 4)][..], Decimal128(12, 4)),
            (&[Decimal128(10, 2), Decimal128(8, 4)], Decimal128(12, 4)),
            (&[Decimal128(10, 2), Decimal128(8, 4), Decimal128(20, 0)], Decimal128(24, 4)),
            (&[Decimal128(38, 2), Decimal128(30, 10)], Decimal256(46, 10)),
            (&[Decimal32(9, 2), Decimal64(12, 6)], Decimal64(13, 6)),
            (&[Decimal32(9, 0), Decimal32(9, 9)], Decimal64(18, 9)),
            (&[Decimal32(7, 4), Decimal128(5, 2)], Decimal128(7, 4)),
            (&[Decimal64(7, 4), Decimal32(7, 4)], Decimal64(7, 4)),
            (&[Decimal128(5, -2), Decimal128(5, 2)], Decimal128(9, 2)),
        ] {
            assert_eq!(union(types).unwrap(), both, "{types:?}");
        }
        let error = union(&[Decimal256(76, 0), Decimal256(76, 2), Decimal128(5, 2)]).unwrap_err();
        assert!(error.to_string().contains("Decimal256(76, 2)") && error.column() == Some("x"), "{error}");
    }

    #[test]
    fn a_union_of_lists_of_two_kinds_is_of_the_items_of_both() {
        use DataType::{Decimal128, FixedSizeList, Int32, Int64, LargeList, List, Struct, Utf8};
        let item = |of: &DataType| Arc::new(field("item", of.clone(), true));
        let list = |of: &DataType| List(item(of));
        let large = |of: &DataType| LargeList(item(of));
        let fixed = |of: &DataType| FixedSizeList(item(of), 3);
        let (narrow, fine) = (Decimal128(10, 2), Decimal128(8, 4));
        for (types, both) in [
            (&[list(&Int64), large(&Int32)][..], large(&Int64)),
            (&[list(&Int32), large(&Int64)], large(&Int64)),
            (&[list(&narrow), large(&fine)], large(&Decimal128(12, 4))),
            (&[fixed(&Int64), list(&Int32)], list(&Int64)),
            (&[fixed(&Int64), list(&Int32), large(&Int32)], large(&Int64)),
            (&[fixed(&Int64), FixedSizeList(item(&Int64), 4), list(&Int32)], list(&Int64)),
        ] {
            assert_eq!(union(types).unwrap(), both, "{types:?}");
        }
        let point = |names: &[&str]| Struct(names.iter().map(|name| field(name, Int32, true)).collect());
        for (one, other) in [(&["x"][..], &["x"][..]), (&["x"], &["x", "y"]), (&["x", "y"], &["x"])] {
            assert_eq!(union(&[list(&point(one)), large(&point(other))]).unwrap(), large(&point(one.max(other))));
            assert_eq!(union(&[fixed(&point(one)), list(&point(other))]).unwrap(), list(&point(one.max(other))));
        }
        let error = union(&[list(&Int64), large(&Utf8)]).unwrap_err();
        assert!(error.hint().is_some_and(|hint| hint.contains("no type holds the values of both")), "{error}");
    }

    #[test]
    fn files_that_are_unlike_the_first_are_counted_and_one_is_told() {
        let told = |files: &[Vec<Field>]| {
            let mut merged = Merged::new(SchemaMode::Union);
            for (number, fields) in files.iter().enumerate() {
                let schema = Arc::new(Schema::new(fields.clone()));
                merged.add(&number.to_string(), &schema, &[], &Partitions::default()).unwrap();
            }
            (merged.unlike_files, merged.unlike_example)
        };
        let text = |nullable| field("text", DataType::Utf8, nullable);
        let number = |data_type| field("n", data_type, false);
        let first = || vec![text(true), number(DataType::Int64)];
        assert_eq!(told(&[first(), first()]), (0, None));
        for (other, example) in [
            (vec![text(true)], "1: n is missing"),
            (vec![text(true), number(DataType::Int32)], "1: n is Int32 and not Int64"),
            (vec![text(false), number(DataType::Int64)], "1: text is never null"),
            ([first(), vec![field("more", DataType::Int8, true)]].concat(), "1: more is new"),
            (vec![number(DataType::Int64), text(true)], "1: the columns are in another order"),
        ] {
            assert_eq!(told(&[first(), other.clone(), other, first()]), (2, Some(example.to_owned())));
        }
    }

    /// Took minutes when each column was looked for among all of the schema.
    #[test]
    fn a_hundred_thousand_columns_are_compared() {
        let fields = |nullable: bool| -> Vec<Field> {
            (0..100_000).map(|at| field(&format!("{at:06}"), DataType::Int64, nullable && at == 50_007)).collect()
        };
        let mut merged = Merged::new(SchemaMode::Strict);
        for nullable in [false, true] {
            merged.add("x", &Arc::new(Schema::new(fields(nullable))), &[], &Partitions::default()).unwrap();
        }
        assert_eq!(merged.unlike_example.unwrap(), "x: 050007 may be null");
    }

    #[test]
    fn files_are_read_with_the_types_of_a_union() {
        let decimals = Decimal128Array::from(vec![Some(1999), None, Some(-5)]).with_precision_and_scale(10, 2).unwrap();
        let lists = ListArray::new(
            Arc::new(field("item", decimals.data_type().clone(), true)),
            OffsetBuffer::from_lengths([2, 0, 1]),
            Arc::new(decimals.clone()),
            None,
        );
        let (fine, item) = (DataType::Decimal128(38, 10), field("item", DataType::Decimal128(38, 10), true));
        for (own, other, shown) in [
            (Arc::new(decimals) as ArrayRef, fine, ["19.9900000000", "", "-0.0500000000"]),
            (Arc::new(lists), DataType::LargeList(Arc::new(item)), ["[19.9900000000, ]", "[]", "[-0.0500000000]"]),
        ] {
            let types = [own.data_type().clone(), other];
            let served = Arc::new(Schema::new(vec![field("x", union(&types).unwrap(), true)]));
            let batch = RecordBatch::try_from_iter_with_nullable([("x", own, true)]).unwrap();
            let read = rowdex_parquet::finish(&batch, &served).unwrap();
            let text = |row| array_value_to_string(read.column(0), row).unwrap();
            assert_eq!([text(0), text(1), text(2)], shown);
        }
    }
}
