//! Values of a column that rows are told apart by.

use std::fmt;

/// The class of every row, from [`Column::labels`](super::Column::labels).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels {
    codes: Vec<u32>,
    classes: Vec<Class>,
}

/// A value that rows are of one class by, or belong together by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Class {
    /// A truth value.
    Bool(bool),
    /// An integer, or the days of a date.
    Int(i128),
    /// A string.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// One value, borrowed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Bool(bool),
    Int(i128),
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl Value<'_> {
    /// Writes the canonical bytes over `key`: the same for equal values of whatever width or encoding, and different
    /// for others. Splits hash them, so they are frozen.
    pub(super) fn write(self, key: &mut Vec<u8>) {
        key.clear();
        match self {
            Self::Int(int) => {
                key.push(1);
                key.extend_from_slice(&int.to_le_bytes());
            }
            Self::Bool(bool) => key.extend_from_slice(&[2, u8::from(bool)]),
            Self::Text(text) => {
                key.push(3);
                key.extend_from_slice(text.as_bytes());
            }
            Self::Bytes(bytes) => {
                key.push(4);
                key.extend_from_slice(bytes);
            }
        }
    }

    pub(super) fn to_class(self) -> Class {
        match self {
            Self::Bool(bool) => Class::Bool(bool),
            Self::Int(int) => Class::Int(int),
            Self::Text(text) => Class::Text(text.to_owned()),
            Self::Bytes(bytes) => Class::Bytes(bytes.to_owned()),
        }
    }
}

impl Labels {
    /// With the classes in the order of their values, so that the code of a class does not depend on which row has it
    /// first.
    pub(super) fn sorted(mut codes: Vec<u32>, mut classes: Vec<Class>) -> Self {
        let mut by_value: Vec<u32> = (0..classes.len() as u32).collect();
        by_value.sort_by(|a, b| classes.get(*a as usize).cmp(&classes.get(*b as usize)));
        let mut code_of = vec![0; classes.len()];
        for (new, old) in (0..).zip(&by_value) {
            if let Some(code) = code_of.get_mut(*old as usize) {
                *code = new;
            }
        }
        for code in &mut codes {
            *code = code_of.get(*code as usize).copied().unwrap_or_default();
        }
        classes.sort();
        Self { codes, classes }
    }

    /// The class of every row that was read, in order, as its place in [`classes`](Self::classes).
    pub fn codes(&self) -> &[u32] {
        &self.codes
    }

    /// The classes, ascending by value.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// Codes and classes, for whoever takes them over.
    #[cfg(feature = "capi")]
    pub(crate) fn into_parts(self) -> (Vec<u32>, Vec<Class>) {
        (self.codes, self.classes)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(bool) => bool.fmt(f),
            Self::Int(int) => int.fmt(f),
            Self::Text(text) => f.pad(text),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}
