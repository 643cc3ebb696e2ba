//! Hive-style folders: `year=2024/part-0.parquet` gives every row of the file a column `year`.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};

use rowdex_base::error::{Error, ErrorKind, Result};

/// How Hive spells null in a folder name.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// The columns that the folders of all files make.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    names: Vec<String>,
    /// Whether every value seen is an integer.
    integers: Vec<bool>,
}

impl Partitions {
    /// Finds the columns; every file must have the same ones, in the same order.
    pub(super) fn of<'a>(paths: impl Iterator<Item = &'a str>) -> Result<Self> {
        let mut paths = paths.peekable();
        let Some(first) = paths.peek().copied() else { return Ok(Self::default()) };
        let names: Vec<String> = pairs(first).map(|(key, _)| key).collect();
        if let Some(repeated) = (1..names.len()).find(|&at| names[..at].contains(&names[at])) {
            return Err(Error::new(ErrorKind::Schema, "two folders of the path give the same column")
                .with_file(first)
                .with_column(names[repeated].clone()));
        }
        let mut integers = vec![true; names.len()];
        for path in paths {
            let own: Vec<(String, Option<String>)> = pairs(path).collect();
            if own.len() != names.len() || own.iter().zip(&names).any(|((key, _), name)| key != name) {
                let keys = own.into_iter().map(|(key, _)| key).collect::<Vec<_>>().join(", ");
                return Err(Error::new(
                    ErrorKind::Schema,
                    format!("its folders give the columns [{keys}], those of {first} give [{}]", names.join(", ")),
                )
                .with_file(path)
                .with_hint("give all files the same key=value folders, or leave partitions out"));
            }
            for (integer, (_, value)) in integers.iter_mut().zip(own) {
                // Other readers take a sign before it for a text: a time zone, a number of a telephone.
                *integer &= value.is_none_or(|value| !value.starts_with('+') && value.parse::<i64>().is_ok());
            }
        }
        Ok(Self { names, integers })
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// 64-bit integers where every value is one, strings otherwise.
    pub(super) fn fields(&self) -> impl Iterator<Item = FieldRef> {
        self.names.iter().zip(&self.integers).map(|(name, &integer)| {
            Arc::new(Field::new(name, if integer { DataType::Int64 } else { DataType::Utf8 }, true))
        })
    }

    /// The values of one file, one for each column.
    pub(super) fn values_of(&self, path: &str) -> Result<Vec<Option<String>>> {
        if self.names.is_empty() {
            return Ok(Vec::new());
        }
        let values: Vec<Option<String>> = pairs(path).map(|(_, value)| value).collect();
        if values.len() == self.names.len() {
            return Ok(values);
        }
        Err(Error::new(ErrorKind::Internal, "the folders of a file changed while it was indexed").with_file(path))
    }
}

/// The `key=value` folders of a path.
fn pairs(path: &str) -> impl Iterator<Item = (String, Option<String>)> {
    let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders);
    folders.split('/').filter_map(|folder| folder.split_once('=')).filter(|(key, _)| !key.is_empty()).map(
        |(key, value)| {
            let value = (value != NULL).then(|| decode(value));
            (decode(key), value)
        },
    )
}

/// Undoes the percent-encoding that Hive and Spark give to special characters; what is not valid stays as it is.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = (byte == b'%').then(|| bytes.get(at + 1..at + 3)).flatten();
        // Numbers may have a sign, and no escape has.
        let value = escaped
            .filter(|hex| hex.iter().all(u8::is_ascii_hexdigit))
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        decoded.push(value.unwrap_or(byte));
        at += if value.is_some() { 3 } else { 1 };
    }
    String::from_utf8(decoded).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_become_columns_with_integers_where_all_values_are() {
        let paths = ["year=2024/lang=en/a.parquet", "year=2025/lang=__HIVE_DEFAULT_PARTITION__/a.parquet"];
        let partitions = Partitions::of(paths.into_iter()).unwrap();
        assert_eq!(partitions.names(), ["year", "lang"]);
        let types: Vec<DataType> = partitions.fields().map(|field| field.data_type().clone()).collect();
        assert_eq!(types, [DataType::Int64, DataType::Utf8]);
        assert_eq!(partitions.values_of(paths[1]).unwrap(), [Some("2025".to_owned()), None]);
    }

    #[test]
    fn a_plus_makes_a_value_a_string_and_a_minus_does_not() {
        for (value, wanted) in [("+02", DataType::Utf8), ("-2", DataType::Int64)] {
            let paths = [format!("zone={value}/a.parquet"), "zone=7/a.parquet".to_owned()];
            let partitions = Partitions::of(paths.iter().map(String::as_str)).unwrap();
            assert_eq!(partitions.fields().next().unwrap().data_type(), &wanted, "{value}");
        }
    }

    #[test]
    fn values_are_percent_decoded() {
        assert_eq!(decode("a%2Fb%20c"), "a/b c");
        assert_eq!(decode("100%"), "100%");
        assert_eq!(decode("%zz%ff"), "%zz%ff");
        assert_eq!(decode("100%+5%2B5"), "100%+5+5");
    }

    #[test]
    fn files_with_other_folders_are_refused_naming_both() {
        let error = Partitions::of(["a=1/x.parquet", "b=1/y.parquet"].into_iter()).unwrap_err();
        assert!(error.to_string().contains("b=1/y.parquet") && error.to_string().contains("a=1/x.parquet"), "{error}");
    }

    #[test]
    fn a_file_name_with_an_equals_sign_is_no_partition() {
        assert!(Partitions::of(["a=b.parquet"].into_iter()).unwrap().names().is_empty());
    }
}
