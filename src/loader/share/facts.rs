//! What the loaders of a machine must agree on to share a reader.

use serde::{Deserialize, Serialize};

/// Something that decides what is served, or how, as one process has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fact {
    pub(super) name: String,
    pub(super) value: String,
    /// Whether it was chosen. What decides which rows are served counts as chosen, though it may be a default.
    pub(super) said: bool,
}

impl Fact {
    pub(super) fn new(name: &str, value: impl Into<String>, said: bool) -> Self {
        Self { name: name.to_owned(), value: value.into(), said }
    }
}

/// The first of a reader's facts that a rank has otherwise, and what it has. Those count that the rank has chosen.
#[cfg(target_os = "linux")]
pub(super) fn difference<'a>(reader: &'a [Fact], rank: &'a [Fact]) -> Option<(&'a Fact, &'a str)> {
    reader.iter().find_map(|fact| {
        let other = rank.iter().find(|other| other.name == fact.name);
        let is_free = other.is_some_and(|other| !other.said);
        let value = other.map_or("none", |other| &other.value);
        (!is_free && value != fact.value).then_some((fact, value))
    })
}
