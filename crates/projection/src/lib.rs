//! Which columns to serve.

mod picks;
mod renames;
mod unknown;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};

use rowdex_base::error::{Error, ErrorKind, Result};

use picks::{FieldNames, FieldPick, prune};
pub use renames::Renames;
use unknown::ambiguous;
pub use unknown::{listed, unknown};

/// The columns to serve, resolved once against the dataset's schema.
///
/// Dictionaries with keys of fewer than 32 bits are served with keys of 32.
///
/// A projection knows types and names only. Which bytes of which file it needs is worked out when a row group is
/// decoded, because files of one dataset may hold the columns in another order, or lack some.
#[derive(Debug, Clone)]
pub struct Projection {
    output: SchemaRef,
    internal: SchemaRef,
    /// For every output column, how many columns of the same name precede it in the dataset's schema.
    occurrence: Arc<[usize]>,
}

impl Projection {
    /// Every column, as the dataset's schema has it.
    pub fn all(schema: &SchemaRef) -> Self {
        let columns: Vec<usize> = (0..schema.fields().len()).collect();
        Self::new(schema, schema.fields().iter().cloned(), &columns)
    }

    /// The named columns, in the order named.
    ///
    /// A name is the dotted path of a field: `a`, or `a.b` for one leaf of a struct. Lists and the values of maps are
    /// looked through, so `points.x` is the `x` of a list of structs. A column whose own name has dots is meant first.
    /// Several leaves of one struct come as one column, with the leaves in the order of the schema; a map always keeps
    /// its keys.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if there is no such column or field, if several have the name, or if a name
    /// repeats one that is chosen already.
    pub fn columns(schema: &SchemaRef, columns: &[impl AsRef<str>]) -> Result<Self> {
        let mut chosen: Vec<(usize, FieldPick)> = Vec::with_capacity(columns.len());
        let mut places: HashMap<usize, usize> = HashMap::with_capacity(columns.len());
        let named = FieldNames::new(schema.fields());
        for path in columns {
            let path = path.as_ref();
            let (column, pick) = named.find(path).ok_or_else(|| unknown(schema, path))?;
            if let Some(name) = named.shared(column, &pick) {
                return Err(ambiguous(path, name));
            }
            match places.get(&column).and_then(|at| chosen.get_mut(*at)) {
                None => {
                    places.insert(column, chosen.len());
                    chosen.push((column, pick));
                }
                Some((_, known)) if known.overlaps(&pick) => {
                    return Err(Error::new(ErrorKind::InvalidArgument, "the column is asked for twice")
                        .with_column(path)
                        .with_hint("name each field once; the name of a struct means all of its fields"));
                }
                Some((_, known)) => known.merge(pick),
            }
        }
        let indices: Vec<usize> = chosen.iter().map(|(column, _)| *column).collect();
        let fields = chosen.iter().map(|(column, pick)| prune(&schema.fields()[*column], pick));
        Ok(Self::new(schema, fields, &indices))
    }

    fn new(schema: &SchemaRef, fields: impl Iterator<Item = FieldRef>, columns: &[usize]) -> Self {
        let fields = fields.map(|field| match with_wide_keys(field.data_type()) {
            same if same == *field.data_type() => field,
            wide => Arc::new(field.as_ref().clone().with_data_type(wide)),
        });
        let output = Arc::new(Schema::new_with_metadata(fields.collect::<Fields>(), schema.metadata().clone()));
        let before = occurrences(schema.fields());
        let occurrence = columns.iter().map(|&column| before[column]).collect();
        Self { internal: Arc::clone(&output), output, occurrence }
    }

    /// Decodes the top-level string and binary columns that `wanted` says yes to as views, until
    /// the rows are brought to the schema's own types to be served.
    ///
    /// The choice belongs to the projection and not to the file, so that batches of different files can be put
    /// together.
    #[must_use]
    pub fn with_views(mut self, wanted: impl Fn(&Field) -> bool) -> Self {
        let view = |field: &FieldRef| match view_of(field.data_type()) {
            Some(view) if wanted(field) => Arc::new(field.as_ref().clone().with_data_type(view)),
            _ => Arc::clone(field),
        };
        let fields: Fields = self.output.fields().iter().map(view).collect();
        self.internal = Arc::new(Schema::new_with_metadata(fields, self.output.metadata().clone()));
        self
    }

    /// Serves the top-level string and binary columns as views, whatever their own types.
    #[doc(hidden)]
    pub fn serving_views(self) -> Self {
        let viewed = self.with_views(|_| true);
        Self { output: Arc::clone(&viewed.internal), ..viewed }
    }

    /// Some of the columns, one behind the other. Their schema has no metadata.
    #[doc(hidden)]
    #[must_use]
    pub fn part(&self, columns: Range<usize>) -> Self {
        let part = |schema: &Schema| -> SchemaRef {
            let fields = schema.fields().get(columns.clone()).unwrap_or_default();
            Arc::new(Schema::new(fields.iter().cloned().collect::<Fields>()))
        };
        let occurrence = self.occurrence.get(columns.clone()).unwrap_or_default().into();
        Self { output: part(&self.output), internal: part(&self.internal), occurrence }
    }

    /// The schema of the batches that the dataset serves.
    pub fn output(&self) -> &SchemaRef {
        &self.output
    }

    /// The schema of decoded batches: as [`output`](Self::output), except for the columns kept as views.
    pub fn internal(&self) -> &SchemaRef {
        &self.internal
    }

    /// For every output column, the place in `fields` of the column that it is served from, if that is there.
    #[doc(hidden)]
    pub fn places_in(&self, fields: &Fields) -> Vec<Option<usize>> {
        places(self.output.fields().iter().zip(self.occurrence.iter().copied()), fields)
    }
}

/// For every wanted field, the place in `fields` of the one with its name, if that is there: of several with one name,
/// the first of the wanted ones is the first of those.
#[doc(hidden)]
pub fn places_of(wanted: &Fields, fields: &Fields) -> Vec<Option<usize>> {
    places(wanted.iter().zip(occurrences(wanted)), fields)
}

/// For every field, how many before it have its name.
fn occurrences(fields: &Fields) -> Vec<usize> {
    let mut seen: HashMap<&str, usize> = HashMap::with_capacity(fields.len());
    let before = fields.iter().map(|field| {
        let seen = seen.entry(field.name()).or_default();
        *seen += 1;
        *seen - 1
    });
    before.collect()
}

fn places<'a>(wanted: impl ExactSizeIterator<Item = (&'a FieldRef, usize)>, fields: &Fields) -> Vec<Option<usize>> {
    /// So few are compared faster than hashed.
    const FEW: usize = 16;
    if fields.len() <= FEW || wanted.len() <= 1 {
        let place = |(field, occurrence): (&FieldRef, usize)| {
            let same_name = fields.iter().enumerate().filter(|(_, known)| known.name() == field.name());
            same_name.map(|(place, _)| place).nth(occurrence)
        };
        return wanted.map(place).collect();
    }
    let mut by_name: HashMap<&str, Vec<usize>> = HashMap::with_capacity(fields.len());
    for (place, field) in fields.iter().enumerate() {
        by_name.entry(field.name()).or_default().push(place);
    }
    wanted.map(|(field, occurrence)| by_name.get(field.name().as_str())?.get(occurrence).copied()).collect()
}

/// The view type that holds the same values, for the types that have one and are not one.
pub fn view_of(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => Some(DataType::Utf8View),
        DataType::Binary | DataType::LargeBinary => Some(DataType::BinaryView),
        _ => None,
    }
}

/// The type with keys of 32 bits for dictionaries with keys of fewer, also below it.
///
/// A batch has rows of many row groups, each with a dictionary of its own, and one code for one value. How many values
/// there are in all of them only the data pages tell, so 8 or 16 bits may turn out too few in any batch, while 32 are
/// enough for as many values as a batch can have rows.
pub fn with_wide_keys(data_type: &DataType) -> DataType {
    use DataType::{Dictionary, Int8, Int16, Int32, UInt8, UInt16};
    match data_type {
        Dictionary(key, values) if matches!(**key, Int8 | Int16 | UInt8 | UInt16) => {
            Dictionary(Box::new(Int32), values.clone())
        }
        other if children(other).is_empty() => other.clone(),
        other => {
            let wide = |field: &FieldRef| {
                let data_type = with_wide_keys(field.data_type());
                Arc::new(field.as_ref().clone().with_data_type(data_type))
            };
            with_children(other, children(other).iter().map(wide).collect())
        }
    }
}

/// The fields directly below a type: a struct's, a list's element, a map's entries.
pub fn children(data_type: &DataType) -> &[FieldRef] {
    match data_type {
        DataType::Struct(fields) => fields,
        DataType::List(child)
        | DataType::LargeList(child)
        | DataType::ListView(child)
        | DataType::LargeListView(child)
        | DataType::FixedSizeList(child, _)
        | DataType::Map(child, _) => std::slice::from_ref(child),
        _ => &[],
    }
}

/// The same type with other fields directly below it, one for one except in a struct.
pub fn with_children(data_type: &DataType, mut fields: Vec<FieldRef>) -> DataType {
    if let DataType::Struct(_) = data_type {
        return DataType::Struct(fields.into());
    }
    let Some(child) = fields.pop() else { return data_type.clone() };
    match data_type {
        DataType::List(_) => DataType::List(child),
        DataType::LargeList(_) => DataType::LargeList(child),
        DataType::ListView(_) => DataType::ListView(child),
        DataType::LargeListView(_) => DataType::LargeListView(child),
        DataType::FixedSizeList(_, size) => DataType::FixedSizeList(child, *size),
        DataType::Map(_, sorted) => DataType::Map(child, *sorted),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, data_type: DataType) -> Field {
        Field::new(name, data_type, true)
    }

    fn schema() -> SchemaRef {
        let xy = || vec![field("x", DataType::Int32), field("y", DataType::Int32)];
        let point = DataType::Struct(xy().into());
        let entries =
            DataType::Struct(vec![Field::new("key", DataType::Utf8, false), field("value", point.clone())].into());
        Arc::new(Schema::new(vec![
            field("a", DataType::Int64),
            field("s", DataType::Struct(vec![field("b", DataType::Utf8), field("c", point.clone())].into())),
            field("s.b", DataType::Int8),
            field("tokens", DataType::List(Arc::new(field("item", DataType::Int32)))),
            field("points", DataType::LargeList(Arc::new(field("element", point.clone())))),
            field(
                "deep",
                DataType::List(Arc::new(field("l", DataType::FixedSizeList(Arc::new(field("l", point)), 2)))),
            ),
            field("m", DataType::Map(Arc::new(Field::new("entries", entries, false)), false)),
        ]))
    }

    fn shown(paths: &[&str]) -> String {
        let projection = Projection::columns(&schema(), paths).unwrap();
        let mut text = Vec::new();
        for field in projection.output().fields() {
            let mut names = Vec::new();
            crate::unknown::paths(field, "", &mut names);
            text.push(names.join(" "));
        }
        text.join(" | ")
    }

    #[test]
    fn a_path_means_the_field_it_spells() {
        let cases: &[(&[&str], &str)] = &[
            (&["a"], "a"),
            (&["tokens", "a"], "tokens | a"),
            (&["s"], "s s.b s.c s.c.x s.c.y"),
            (&["s.c"], "s s.c s.c.x s.c.y"),
            (&["s.c.y"], "s s.c s.c.y"),
            (&["s.c.y", "a", "s.c.x"], "s s.c s.c.x s.c.y | a"),
            // The column that has the dot in its own name hides the leaf of the struct.
            (&["s.b"], "s.b"),
            (&["points.x"], "points points.x"),
            (&["points.y", "points.x"], "points points.x points.y"),
            (&["deep.y"], "deep deep.y"),
            (&["m.x"], "m m.x"),
            (&["m.y", "a", "m.x"], "m m.x m.y | a"),
        ];
        for (paths, want) in cases {
            assert_eq!(&shown(paths), want, "{paths:?}");
        }
    }

    #[test]
    fn a_pruned_map_keeps_its_keys() {
        for paths in [&["m.x"][..], &["m.x", "m.y"]] {
            let projection = Projection::columns(&schema(), paths).unwrap();
            let DataType::Map(entries, false) = projection.output().field(0).data_type() else { panic!() };
            let names: Vec<_> = children(entries.data_type()).iter().map(|field| field.name().as_str()).collect();
            assert_eq!(names, ["key", "value"]);
        }
    }

    #[test]
    fn an_unknown_column_is_named_with_what_exists() {
        for (path, meant) in [("A", "a"), ("tokns", "tokens"), ("points.z", "points.x"), ("s.c.yy", "s.c.y")] {
            let error = Projection::columns(&schema(), &[path]).unwrap_err();
            assert_eq!((error.kind(), error.column()), (ErrorKind::InvalidArgument, Some(path)));
            assert!(error.to_string().contains(&format!("did you mean {meant:?}")), "{error}");
        }
        for path in ["", ".", "a.", ".a", "a.b", "tokens.", "tokens.list", "nothing like it at all"] {
            let error = Projection::columns(&schema(), &[path]).unwrap_err();
            assert!(error.to_string().contains("the columns are: a, s, "), "{error}");
        }
    }

    #[test]
    fn a_name_of_several_columns_is_refused_and_all_columns_are_not() {
        let twins =
            || field("t", DataType::Struct(vec![field("x", DataType::Int8), field("x", DataType::Int8)].into()));
        let schema = Arc::new(Schema::new(vec![
            field("a", DataType::Int8),
            twins(),
            field("a", DataType::Struct(vec![field("b", DataType::Int8)].into())),
        ]));
        for (path, name) in [("a", "a"), ("a.b", "a"), ("t.x", "x")] {
            let error = Projection::columns(&schema, &[path]).unwrap_err();
            assert_eq!((error.kind(), error.column()), (ErrorKind::InvalidArgument, Some(path)));
            assert!(error.to_string().contains(&format!("several are called {name:?}")), "{error}");
            assert!(error.hint().unwrap().contains("serve all columns"), "{error}");
        }
        assert_eq!(Projection::columns(&schema, &["t"]).unwrap().output().fields().len(), 1);
        assert_eq!(Projection::all(&schema).output().fields().len(), 3);
    }

    #[test]
    fn a_column_asked_for_twice_is_refused() {
        let cases: &[&[&str]] = &[
            &["a", "a"],
            &["s", "s.c"],
            &["s.c.x", "s"],
            &["s.c.x", "s.c.x"],
            &["points.x", "points.x"],
            &["m.x", "m"],
            &["m", "m.x"],
            &["m.x", "m.y", "m.x"],
        ];
        for paths in cases {
            let error = Projection::columns(&schema(), paths).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{paths:?}");
            assert_eq!(error.column(), paths.last().copied(), "{paths:?}");
        }
    }

    #[test]
    fn of_columns_with_one_name_each_keeps_its_turn() {
        let schema = Arc::new(Schema::new(vec![field("a", DataType::Int8), field("a", DataType::Int16)]));
        let projection = Projection::all(&schema);
        assert_eq!(projection.places_in(schema.fields()), [Some(0), Some(1)]);
    }

    #[test]
    fn columns_are_found_by_name_and_turn_however_many_there_are() {
        for (len, names) in [(5, 3), (16, 16), (17, 17), (40, 40), (60, 7), (300, 100)] {
            let named = |place: usize| format!("c{}", place * 37 % names);
            let fields: Vec<FieldRef> =
                (0..len).map(|place| Arc::new(Field::new(named(place), DataType::Int8, true))).collect();
            let projection = Projection::all(&Arc::new(Schema::new(fields.clone())));
            // Files have them in another order, and lack some.
            let file: Fields = fields.iter().rev().skip(len / 10).cloned().collect();
            let (mut turns, mut expected) = (HashMap::new(), Vec::new());
            for field in &fields {
                let turn = turns.entry(field.name()).or_insert(0);
                let places = (0..file.len()).filter(|place| file[*place].name() == field.name());
                expected.push(places.collect::<Vec<_>>().get(*turn).copied());
                *turn += 1;
            }
            assert_eq!(projection.places_in(&file), expected, "{len} {names}");
        }
    }

    #[test]
    fn no_columns_at_all_may_be_asked_for() {
        assert_eq!(Projection::columns(&schema(), &[] as &[&str]).unwrap().output().fields().len(), 0);
    }

    #[test]
    fn views_change_the_internal_schema_only() {
        let schema = Arc::new(Schema::new(vec![field("t", DataType::Utf8), field("b", DataType::LargeBinary)]));
        let projection = Projection::all(&schema).with_views(|field| field.name() == "b");
        assert_eq!(projection.output().as_ref(), schema.as_ref());
        assert_eq!(projection.internal().field(0).data_type(), &DataType::Utf8);
        assert_eq!(projection.internal().field(1).data_type(), &DataType::BinaryView);
    }

    /// Took minutes when each name was looked for among all columns.
    #[test]
    fn a_hundred_thousand_columns_are_found_by_name() {
        let name = |at: usize| format!("a.column.{at:06}");
        let fields: Vec<Field> = (0..100_000).map(|at| field(&name(at), DataType::Int64)).collect();
        let schema = Arc::new(Schema::new(fields));
        let names: Vec<String> = (0..100_000).rev().map(name).collect();
        let projection = Projection::columns(&schema, &names).unwrap();
        assert_eq!(projection.output().field(0).name(), "a.column.099999");
        assert_eq!(projection.output().fields().len(), 100_000);
    }
}
