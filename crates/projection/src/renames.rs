//! Columns that files call otherwise than they are served.

use std::sync::Arc;

use arrow_schema::{Field, Fields, Schema, SchemaRef};

use rowdex_base::error::{Error, ErrorKind, Result};

/// For columns at the top level, the names that files have for them and the names that they are served by.
///
/// A file may have either name, or neither. Names are replaced all at once, so none is replaced twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renames {
    /// Sorted, so that equal renames are written as equal bytes.
    pairs: Arc<[(String, String)]>,
}

impl Renames {
    /// From pairs of the name in the files and the name to serve.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if a name has two new ones, or is the new name of another column.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        let mut pairs: Vec<(String, String)> = pairs.into_iter().collect();
        pairs.sort_unstable();
        let refuse =
            |message: String, hint: String| Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint));
        if let Some((old, new)) = pairs.iter().find(|(old, new)| new.is_empty() || old == new) {
            let message = format!("the column {old:?} is renamed to {new:?}");
            return refuse(message, "give another new name, or leave it out".to_owned());
        }
        if let Some([(old, first), (_, second)]) = pairs.array_windows().find(|[(a, _), (b, _)]| a == b) {
            let message = format!("the column {old:?} is renamed to {first:?} and to {second:?}");
            return refuse(message, "give each column one new name".to_owned());
        }
        for (old, new) in &pairs {
            if let Ok(at) = pairs.binary_search_by(|(name, _)| name.cmp(new)) {
                let last = &pairs[at].1;
                let message = format!("the column {old:?} is renamed to {new:?}, which is renamed itself, to {last:?}");
                let hint = match last == old {
                    true => "two columns cannot change names: give both of them new ones".to_owned(),
                    false => format!("give the name that is served: rename {old:?} to {last:?}"),
                };
                return refuse(message, hint);
            }
        }
        Ok(Self { pairs: pairs.into() })
    }

    /// Whether every column is served by its own name.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Pairs of the name in the files and the name that is served.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// A file's schema by the names that are served, and the pairs that this took.
    pub fn apply(&self, schema: &SchemaRef) -> (SchemaRef, Vec<(String, String)>) {
        let renamed =
            |name: &String| self.pairs.binary_search_by(|(old, _)| old.cmp(name)).ok().map(|at| &self.pairs[at]);
        let applied: Vec<(String, String)> =
            schema.fields().iter().filter_map(|field| renamed(field.name())).cloned().collect();
        if applied.is_empty() {
            return (Arc::clone(schema), applied);
        }
        let fields: Fields = schema
            .fields()
            .iter()
            .map(|field| match renamed(field.name()) {
                Some((_, new)) => Arc::new(Field::clone(field).with_name(new)),
                None => Arc::clone(field),
            })
            .collect();
        (Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())), applied)
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::DataType;

    use super::*;

    fn renames(pairs: &[(&str, &str)]) -> Result<Renames> {
        Renames::new(pairs.iter().map(|(old, new)| ((*old).to_owned(), (*new).to_owned())))
    }

    #[test]
    fn names_are_replaced_in_their_places_and_others_are_left() {
        let field = |name: &str| Field::new(name, DataType::Int32, false);
        let schema = Arc::new(Schema::new(vec![field("a"), field("b"), field("c")]));
        let (renamed, applied) = renames(&[("c", "z"), ("b", "y"), ("q", "x")]).unwrap().apply(&schema);
        assert_eq!(renamed.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["a", "y", "z"]);
        assert_eq!(applied, [("b".to_owned(), "y".to_owned()), ("c".to_owned(), "z".to_owned())]);
        assert_eq!(renames(&[]).unwrap().apply(&schema), (schema, Vec::new()));
    }

    #[test]
    fn two_names_may_become_one_and_one_may_not_become_two() {
        assert!(renames(&[("a", "x"), ("b", "x")]).is_ok());
        for (pairs, said) in [
            (&[("a", "x"), ("a", "y")][..], r#""a" is renamed to "x" and to "y""#),
            (&[("a", "x"), ("a", "x")], "one new name"),
            (&[("a", "a")], "another new name"),
            (&[("a", "")], "another new name"),
            (&[("a", "b"), ("b", "c")], r#"rename "a" to "c""#),
            (&[("a", "b"), ("b", "a")], "give both of them new ones"),
        ] {
            let error = renames(pairs).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let text = format!("{error} {}", error.hint().unwrap());
            assert!(text.contains(said), "{text}");
        }
    }
}
