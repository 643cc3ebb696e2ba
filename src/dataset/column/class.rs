//! Values of a column that rows are told apart by.

use std::fmt;

/// The class of every row, from [`Column::labels`](super::Column::labels).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Labels {
    /// The class of every row that was read, in order, as its place in `classes`.
    pub codes: Vec<u32>,
    /// The classes, ascending by value.
    pub classes: Vec<Class>,
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

/// The canonical bytes of values begin with one of these: they are the same for equal values of whatever width or
/// encoding, and different for others. Splits hash them, so they are frozen.
pub(super) const INT: u8 = 1;
pub(super) const BOOL: u8 = 2;
pub(super) const TEXT: u8 = 3;
pub(super) const BYTES: u8 = 4;

impl Class {
    /// The value with these canonical bytes.
    pub(super) fn of(key: &[u8]) -> Self {
        match key {
            [INT, int @ ..] => Self::Int(int.first_chunk().map_or(0, |int| i128::from_le_bytes(*int))),
            [BOOL, bit @ ..] => Self::Bool(bit == [1]),
            [TEXT, text @ ..] => Self::Text(String::from_utf8_lossy(text).into_owned()),
            key => Self::Bytes(key.get(1..).unwrap_or_default().to_owned()),
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
