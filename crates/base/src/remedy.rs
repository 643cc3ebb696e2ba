//! What a hint may name that each front has a word of its own for.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Something that a user can ask for to get past an error: an option of the command line, a call of a builder in Rust,
/// a field of a struct in C, a keyword argument in Python.
///
/// New ones may be added, so a `match` needs a `_` arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Remedy {
    /// Replacing a file that is there.
    Overwrite,
    /// Bringing an index up to date with its files.
    Update,
    /// An index without the footers of its files.
    NoFooters,
    /// No columns from the names of folders.
    NoPartitions,
    /// Columns that a file lacks are null there.
    UnionSchema,
    /// The folder or URL that paths are relative to.
    Root,
    /// A random share of the rows.
    Sample,
    /// Noting, or removing, how long rows are.
    Lengths,
}

impl Remedy {
    /// All of them; their places are their numbers in messages, so new ones go to the end.
    pub const ALL: [Self; 8] = [
        Self::Overwrite,
        Self::Update,
        Self::NoFooters,
        Self::NoPartitions,
        Self::UnionSchema,
        Self::Root,
        Self::Sample,
        Self::Lengths,
    ];

    /// What it is called in Rust.
    pub fn in_rust(self) -> &'static str {
        match self {
            Self::Overwrite => "`with_overwrite(true)`",
            Self::Update => "`IndexBuilder::with_update(true)`",
            Self::NoFooters => "`with_footers(false)`",
            Self::NoPartitions => "`with_partitions(false)`",
            Self::UnionSchema => "`SchemaMode::Union`",
            Self::Root => "`with_root`",
            Self::Sample => "`Select::sample`",
            Self::Lengths => "`LengthsBuilder`",
        }
    }
}

/// What to do about an error: a sentence, in which each `{}` stands for a remedy if there are any.
///
/// A text with remedies is written in a source, so it has no other braces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    form: Cow<'static, str>,
    remedies: Vec<Remedy>,
    in_rust: Cow<'static, str>,
}

impl Hint {
    /// A hint whose text has as many `{}` as there are remedies.
    #[doc(hidden)]
    pub fn new(form: impl Into<Cow<'static, str>>, remedies: Vec<Remedy>) -> Self {
        let form = form.into();
        let in_rust = match remedies.is_empty() {
            true => form.clone(),
            false => filled(&form, &remedies, Remedy::in_rust).into(),
        };
        Self { form, remedies, in_rust }
    }

    /// The text with a `{}` for each remedy.
    pub fn form(&self) -> &str {
        &self.form
    }

    /// What the text names, in its order.
    pub fn remedies(&self) -> &[Remedy] {
        &self.remedies
    }

    /// The text in the words of Rust.
    pub fn text(&self) -> &str {
        &self.in_rust
    }

    /// The text in the words of a front.
    pub fn in_words(&self, word: fn(Remedy) -> &'static str) -> String {
        filled(&self.form, &self.remedies, word)
    }
}

/// A hint that names nothing that fronts call otherwise.
impl<T: Into<Cow<'static, str>>> From<T> for Hint {
    fn from(text: T) -> Self {
        Self::new(text, Vec::new())
    }
}

fn filled(form: &str, remedies: &[Remedy], word: fn(Remedy) -> &'static str) -> String {
    let mut pieces = form.splitn(remedies.len() + 1, "{}");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for (piece, remedy) in pieces.zip(remedies) {
        text.push_str(word(*remedy));
        text.push_str(piece);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_names_its_remedies_in_the_words_of_each_front() {
        let hint = Hint::new("overwrite it ({}), or update it ({})", vec![Remedy::Overwrite, Remedy::Update]);
        assert_eq!(
            hint.text(),
            "overwrite it (`with_overwrite(true)`), or update it (`IndexBuilder::with_update(true)`)"
        );
        let shout = |remedy| if remedy == Remedy::Update { "UPDATE" } else { "{}" };
        assert_eq!(hint.in_words(shout), "overwrite it ({}), or update it (UPDATE)");
    }

    #[test]
    fn braces_of_a_hint_without_remedies_are_its_own() {
        let hint = Hint::from("rename {} or {a}".to_owned());
        assert_eq!((hint.text(), hint.in_words(Remedy::in_rust).as_str()), ("rename {} or {a}", "rename {} or {a}"));
    }

    #[test]
    fn a_hint_with_fewer_places_than_remedies_loses_no_text() {
        let hint = Hint::new("a {} b", vec![Remedy::Root, Remedy::Sample]);
        assert_eq!(hint.text(), "a `with_root` b");
        assert_eq!(Hint::new("a {} b {} c", vec![Remedy::Root]).text(), "a `with_root` b {} c");
    }
}
