//! What columns are said to be that Arrow's types know nothing of.

use std::collections::HashMap;

use parquet::basic::{ConvertedType, EdgeInterpolationAlgorithm, LogicalType};
use parquet::schema::types::Type;

use super::footer::FileMetadata;

/// A column as it is served, and what its file says of it and its fields beyond Arrow's types.
#[derive(Debug)]
pub struct Annotated {
    /// What the column is called.
    pub column: String,
    /// Paths, and what is said of each: `JSON`, `BSON`, `ENUM`, `UUID`, `INTERVAL`, `TIME_UTC`, `GEOMETRY` and
    /// `GEOGRAPHY`, perhaps with a colon and the coordinates, and of groups `VARIANT`, perhaps with a colon and the
    /// version.
    pub said: Vec<(String, String)>,
}

impl FileMetadata {
    /// Each column, with what the file says of it and its fields beyond Arrow's types.
    pub fn annotated(&self) -> Vec<Annotated> {
        let mut leaf = 0;
        let served: HashMap<&str, &str> =
            self.renamed().iter().map(|(of_file, served)| (of_file.as_str(), served.as_str())).collect();
        let columns = self.metadata().file_metadata().schema_descr().root_schema().get_fields().iter();
        let columns = columns.map(|column| {
            let name = served.get(column.name()).copied().unwrap_or(column.name());
            let mut said = Vec::new();
            self.annotated_below(column, name, &mut leaf, &mut said);
            Annotated { column: name.to_owned(), said }
        });
        columns.collect()
    }

    /// Adds what is said of a node of the schema, and of those below it. `leaf` columns come before it.
    fn annotated_below(&self, node: &Type, path: &str, leaf: &mut usize, found: &mut Vec<(String, String)>) {
        let info = node.get_basic_info();
        let said = match !node.is_group() && self.plain_intervals().binary_search(leaf).is_ok() {
            true => Some("INTERVAL".to_owned()),
            false => said(info.logical_type_ref(), info.converted_type()),
        };
        found.extend(said.map(|name| (path.to_owned(), name)));
        if !node.is_group() {
            *leaf += 1;
            return;
        }
        for field in node.get_fields() {
            self.annotated_below(field, &format!("{path}.{}", field.name()), leaf, found);
        }
    }
}

fn said(logical: Option<&LogicalType>, converted: ConvertedType) -> Option<String> {
    let with = |name: &str, more: Option<String>| more.map_or(name.to_owned(), |more| format!("{name}:{more}"));
    Some(match (logical, converted) {
        (Some(LogicalType::Json), _) | (None, ConvertedType::JSON) => "JSON".to_owned(),
        (Some(LogicalType::Bson), _) | (None, ConvertedType::BSON) => "BSON".to_owned(),
        (Some(LogicalType::Enum), _) | (None, ConvertedType::ENUM) => "ENUM".to_owned(),
        (Some(LogicalType::Uuid), _) => "UUID".to_owned(),
        (_, ConvertedType::INTERVAL) => "INTERVAL".to_owned(),
        (Some(LogicalType::Time(time)), _) if time.is_adjusted_to_u_t_c => "TIME_UTC".to_owned(),
        (Some(LogicalType::Geometry(of)), _) => with("GEOMETRY", of.crs.clone()),
        (Some(LogicalType::Geography(of)), _)
            if matches!(of.algorithm, None | Some(EdgeInterpolationAlgorithm::SPHERICAL)) =>
        {
            with("GEOGRAPHY", of.crs.clone())
        }
        (Some(LogicalType::Variant(of)), _) => with("VARIANT", of.specification_version.map(|of| of.to_string())),
        _ => return None,
    })
}
