//! Ways in which files differ from the schema that is served, each told once.

use std::collections::{HashMap, HashSet};
use std::fmt;

use arrow::datatypes::{DataType, FieldRef, Fields, Schema, SchemaRef};

/// A way in which some files of an index differ from the schema that is served, for
/// [`IndexBuilder::with_differences`](super::IndexBuilder::with_differences).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaDifference {
    /// The column by the name that is served, or the dotted path of a field of a struct; `None` for the order.
    pub column: Option<String>,
    /// In what they differ.
    pub kind: DifferenceKind,
    /// How many files do.
    pub files: u64,
    /// The first of them.
    pub first_file: String,
}

/// In what files differ from the schema that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DifferenceKind {
    /// They have another name for the column.
    Name(String),
    /// They lack the column, which is null in their rows.
    Missing,
    /// The column may be null in them, and not in others.
    Nullable,
    /// They have a narrower type, whose values are converted.
    Type {
        /// The type in the files.
        own: DataType,
        /// The type that is served.
        served: DataType,
    },
    /// They have the columns in another order.
    Order,
}

impl fmt::Display for SchemaDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = match self.files {
            1 => format!("in {}", self.first_file),
            files => format!("in {files} files, the first is {}", self.first_file),
        };
        let column = self.column.as_deref().unwrap_or_default();
        match &self.kind {
            DifferenceKind::Name(name) => write!(f, "{column}: called {name} {files}"),
            DifferenceKind::Missing => write!(f, "{column}: missing, so null, {files}"),
            DifferenceKind::Nullable => write!(f, "{column}: may be null {files}"),
            DifferenceKind::Type { own, served } => write!(f, "{column}: served as {served}, and {own} {files}"),
            DifferenceKind::Order => write!(f, "the columns are in another order {files}"),
        }
    }
}

/// How many files, and the first of them.
#[derive(Debug, Default)]
struct FileCount {
    files: u64,
    first: String,
}

impl FileCount {
    fn add(&mut self, files: u64, first: &str) {
        if self.files == 0 {
            first.clone_into(&mut self.first);
        }
        self.files += files;
    }
}

/// What was seen of a column, or of a field of a struct.
#[derive(Debug, Default)]
struct SeenField {
    name: String,
    children: Vec<usize>,
    present: FileCount,
    missing: FileCount,
    nullable: FileCount,
    is_never_null_in_some: bool,
    types: Vec<(DataType, FileCount)>,
    names: Vec<(String, FileCount)>,
}

/// Files that follow each other, and have one schema.
#[derive(Debug)]
struct Alike {
    files: u64,
    first: String,
    schema: SchemaRef,
    renamed: Vec<(String, String)>,
}

/// What the files seen so far have of each column. Takes memory in proportion to columns and types, not to files.
#[derive(Debug, Default)]
pub(super) struct Differences {
    all: FileCount,
    /// In the order that is served.
    roots: Vec<usize>,
    seen: Vec<SeenField>,
    places: HashMap<(Option<usize>, String), usize>,
    reordered: FileCount,
    /// Files with equal schemas are counted together.
    last: Option<Alike>,
}

impl Differences {
    /// Goes on after files that are not looked at, of which this schema is known.
    pub(super) fn start_with(&mut self, schema: &Schema, files: u64, first: &str) {
        self.level(None, schema.fields(), 0, "", files, first, false);
        self.all.add(files, first);
    }

    /// Whether a file is like the one before it.
    pub(super) fn is_like_last(&self, renamed: &[(String, String)]) -> bool {
        self.last.as_ref().is_some_and(|last| last.renamed == renamed)
    }

    /// One more file like the last one.
    pub(super) fn again(&mut self) {
        if let Some(last) = &mut self.last {
            last.files += 1;
        }
    }

    pub(super) fn add(&mut self, path: &str, schema: &SchemaRef, renamed: &[(String, String)]) {
        self.flush();
        let first = path.to_owned();
        let schema = SchemaRef::clone(schema);
        self.last = Some(Alike { files: 1, first, schema, renamed: renamed.to_vec() });
    }

    fn flush(&mut self) {
        let Some(Alike { files, first, schema, renamed }) = self.last.take() else { return };
        let before = self.all.files;
        let first_before = self.all.first.clone();
        let places = self.level(None, schema.fields(), before, &first_before, files, &first, true);
        if !places.is_sorted() {
            self.reordered.add(files, &first);
        }
        for (old, new) in renamed {
            if let Some(&at) = self.places.get(&(None, new)) {
                count_in(&mut self.seen[at].names, old, files, &first);
            }
        }
        self.all.add(files, &first);
    }

    /// Notes the columns, or the fields below one, of some files, and returns where they are. Before these there were
    /// files that could have had them, too.
    #[expect(clippy::too_many_arguments, reason = "two counts, and whose they are")]
    fn level(
        &mut self,
        parent: Option<usize>,
        fields: &Fields,
        before: u64,
        first_before: &str,
        files: u64,
        first: &str,
        has_types: bool,
    ) -> Vec<usize> {
        let mut own = Vec::with_capacity(fields.len());
        for field in fields {
            let key = (parent, field.name().clone());
            let at = self.places.get(&key).copied().unwrap_or_else(|| {
                let at = self.seen.len();
                let mut seen = SeenField { name: field.name().clone(), ..SeenField::default() };
                if before > 0 {
                    seen.missing.add(before, first_before);
                }
                self.seen.push(seen);
                match parent {
                    Some(parent) => self.seen[parent].children.push(at),
                    None => self.roots.push(at),
                }
                self.places.insert(key, at);
                at
            });
            own.push(at);
            let seen = &mut self.seen[at];
            let had = seen.present.files;
            let first_had = seen.present.first.clone();
            seen.present.add(files, first);
            match field.is_nullable() {
                // Of files that were not looked at some may be otherwise.
                true if has_types => seen.nullable.add(files, first),
                true => {}
                false => seen.is_never_null_in_some = true,
            }
            match field.data_type() {
                DataType::Struct(below) => {
                    self.level(Some(at), below, had, &first_had, files, first, has_types);
                }
                other if has_types => count_in(&mut seen.types, other.clone(), files, first),
                _ => {}
            }
        }
        let all = parent.map_or(&self.roots, |parent| &self.seen[parent].children);
        let absent: Vec<usize> = if all.len() == own.len() {
            Vec::new()
        } else {
            let own: HashSet<usize> = own.iter().copied().collect();
            all.iter().copied().filter(|at| !own.contains(at)).collect()
        };
        for at in absent {
            self.seen[at].missing.add(files, first);
        }
        own
    }

    /// All differences from the schema that is served, column by column.
    pub(super) fn told(mut self, served: &Schema) -> Vec<SchemaDifference> {
        self.flush();
        let mut told = Vec::new();
        self.tell(&self.roots, "", served.fields(), &mut told);
        if self.reordered.files > 0 {
            told.push(difference(None, DifferenceKind::Order, &self.reordered));
        }
        told
    }

    /// The differences of some columns side by side, which are served as these fields.
    fn tell(&self, columns: &[usize], above: &str, served: &Fields, told: &mut Vec<SchemaDifference>) {
        let by_name: HashMap<&str, &FieldRef> = served.iter().map(|field| (field.name().as_str(), field)).collect();
        for at in columns {
            let seen = &self.seen[*at];
            self.tell_of(seen, above, by_name.get(seen.name.as_str()).copied(), told);
        }
    }

    fn tell_of(&self, seen: &SeenField, above: &str, served: Option<&FieldRef>, told: &mut Vec<SchemaDifference>) {
        let path = if above.is_empty() { seen.name.clone() } else { format!("{above}.{}", seen.name) };
        let column = || Some(path.clone());
        for (name, count) in &seen.names {
            told.push(difference(column(), DifferenceKind::Name(name.clone()), count));
        }
        if seen.missing.files > 0 {
            told.push(difference(column(), DifferenceKind::Missing, &seen.missing));
        }
        if seen.nullable.files > 0 && seen.is_never_null_in_some {
            told.push(difference(column(), DifferenceKind::Nullable, &seen.nullable));
        }
        let Some(field) = served else { return };
        for (own, count) in &seen.types {
            if !own.equals_datatype(field.data_type()) {
                let kind = DifferenceKind::Type { own: own.clone(), served: field.data_type().clone() };
                told.push(difference(column(), kind, count));
            }
        }
        if let DataType::Struct(below) = field.data_type() {
            self.tell(&seen.children, &path, below, told);
        }
    }
}

fn count_in<K: PartialEq>(counts: &mut Vec<(K, FileCount)>, key: K, files: u64, first: &str) {
    match counts.iter_mut().find(|(known, _)| *known == key) {
        Some((_, count)) => count.add(files, first),
        None => {
            let mut count = FileCount::default();
            count.add(files, first);
            counts.push((key, count));
        }
    }
}

fn difference(column: Option<String>, kind: DifferenceKind, count: &FileCount) -> SchemaDifference {
    SchemaDifference { column, kind, files: count.files, first_file: count.first.clone() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Field;

    use super::*;
    use crate::builder::SchemaMode;
    use crate::builder::partition::Partitions;
    use crate::builder::schema::Merged;
    use rowdex_base::error::Result;

    fn field(name: &str, data_type: DataType, nullable: bool) -> Field {
        Field::new(name, data_type, nullable)
    }

    /// A file: which of its columns are renamed, and what it has.
    type Of<'a> = (&'a [(&'a str, &'a str)], Vec<Field>);

    fn told(schemas: &[Of<'_>]) -> Result<Vec<String>> {
        let mut merged = Merged::new(SchemaMode::Union);
        for (number, (renamed, fields)) in schemas.iter().enumerate() {
            let renamed: Vec<_> = renamed.iter().map(|(old, new)| ((*old).to_owned(), (*new).to_owned())).collect();
            let schema = Arc::new(Schema::new(fields.clone()));
            merged.add(&number.to_string(), &schema, &renamed, &Partitions::default())?;
        }
        let schema = merged.finish(&Partitions::default())?;
        Ok(merged.differences(&schema).iter().map(ToString::to_string).collect())
    }

    #[test]
    fn each_difference_is_told_once_with_its_files() {
        use DataType::{Int32, Int64, Struct, Utf8};
        let meta = |fields: Vec<Field>| field("meta", Struct(fields.into()), true);
        let (lang, score) = (field("lang", Utf8, true), field("score", Int32, false));
        let wide = vec![field("words", Utf8, true), field("n", Int64, false), meta(vec![lang.clone(), score.clone()])];
        let narrow = vec![field("n", Int32, true), field("words", Utf8, true), meta(vec![lang.clone()])];
        let text: &[(&str, &str)] = &[("text", "words")];
        let short = vec![field("n", Int64, false), field("more", Utf8, true)];
        let files: [Of<'_>; 7] = [
            (text, wide.clone()),
            (text, wide.clone()),
            (&[("content", "words")][..], wide.clone()),
            (&[], narrow.clone()),
            (&[], narrow),
            (&[], short),
            (text, wide),
        ];
        let expected = [
            "words: called text in 3 files, the first is 0",
            "words: called content in 2",
            "words: missing, so null, in 5",
            "n: may be null in 2 files, the first is 3",
            "n: served as Int64, and Int32 in 2 files, the first is 3",
            "meta: missing, so null, in 5",
            "meta.score: missing, so null, in 2 files, the first is 3",
            "more: missing, so null, in 6 files, the first is 0",
            "the columns are in another order in 2 files, the first is 3",
        ];
        assert_eq!(told(&files).unwrap(), expected);
    }

    #[test]
    fn files_that_are_alike_differ_in_nothing() {
        let fields = vec![field("a", DataType::Utf8, true), field("b", DataType::Int8, false)];
        assert_eq!(told(&[(&[], fields.clone()), (&[], fields)]).unwrap(), [] as [&str; 0]);
    }

    #[test]
    fn of_files_that_are_kept_the_merged_schema_is_known() {
        let old = Schema::new(vec![field("a", DataType::Int64, true), field("b", DataType::Utf8, false)]);
        let mut differences = Differences::default();
        differences.start_with(&old, 4, "k");
        let fields = vec![field("a", DataType::Int32, false), field("b", DataType::Utf8, true)];
        let new = Arc::new(Schema::new([fields, vec![field("c", DataType::Int8, true)]].concat()));
        differences.add("x", &new, &[]);
        let b = field("b", DataType::Utf8, true);
        let served = Schema::new(vec![field("a", DataType::Int64, true), b, field("c", DataType::Int8, true)]);
        let told: Vec<String> = differences.told(&served).iter().map(ToString::to_string).collect();
        let expected = [
            "a: served as Int64, and Int32 in x",
            "b: may be null in x",
            "c: missing, so null, in 4 files, the first is k",
        ];
        assert_eq!(told, expected);
    }

    /// Took minutes when each column was looked for among all of the schema.
    #[test]
    fn a_hundred_thousand_columns_are_compared() {
        let fields = |nullable: bool| -> Vec<Field> {
            let name = |at: usize| format!("a column {at:06}");
            (0..100_000).map(|at| field(&name(at), DataType::Int64, nullable && at % 50_000 == 7)).collect()
        };
        let mut merged = Merged::new(SchemaMode::Strict);
        for (path, nullable) in [("a.parquet", false), ("b.parquet", true)] {
            merged.add(path, &Arc::new(Schema::new(fields(nullable))), &[], &Partitions::default()).unwrap();
        }
        let schema = merged.finish(&Partitions::default()).unwrap();
        let found = merged.differences(&schema);
        let columns: Vec<_> = found.iter().filter_map(|found| found.column.as_deref()).collect();
        assert_eq!(columns, ["a column 000007", "a column 050007"]);
    }
}
