//! What to say of a column that is not there.

use arrow_schema::{DataType, Field, Schema};

use super::children;
use rowdex_base::error::{Error, ErrorKind};

/// The error for a column that is not there, with the one that was probably meant and those that exist.
pub fn unknown(schema: &Schema, path: &str) -> Error {
    let mut names = Vec::new();
    schema.fields().iter().for_each(|field| paths(field, "", &mut names));
    let near = names.iter().map(|name| (distance(name, path), name)).min();
    let near = near.filter(|(distance, _)| *distance <= path.chars().count() / 3 + 1);
    let meant = near.map_or(String::new(), |(_, name)| format!("did you mean {name:?}? "));
    let hint = format!("{meant}the columns are: {}", listed(&names));
    Error::new(ErrorKind::InvalidArgument, "there is no such column").with_column(path).with_hint(hint)
}

/// The first of some names.
pub fn listed(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let more = names.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}

/// The error for a path on which several fields side by side have a name.
pub(crate) fn ambiguous(path: &str, name: &str) -> Error {
    let message = format!("it is not said which column is meant: several are called {name:?}");
    Error::new(ErrorKind::InvalidArgument, message)
        .with_column(path)
        .with_hint("serve all columns, or all fields of the struct, or write files in which names differ")
}

/// The paths by which a field and those below it can be asked for.
pub(crate) fn paths(field: &Field, above: &str, names: &mut Vec<String>) {
    let path = if above.is_empty() { field.name().clone() } else { format!("{above}.{}", field.name()) };
    names.push(path.clone());
    let mut data_type = field.data_type();
    loop {
        match data_type {
            DataType::Struct(fields) => {
                fields.iter().for_each(|child| paths(child, &path, names));
                return;
            }
            DataType::Map(entries, _) => match children(entries.data_type()) {
                [_, value] => data_type = value.data_type(),
                _ => return,
            },
            _ => match children(data_type).first() {
                Some(child) => data_type = child.data_type(),
                None => return,
            },
        }
    }
}

/// Edits between two names, letter case aside.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().flat_map(char::to_lowercase).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().flat_map(char::to_lowercase).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
