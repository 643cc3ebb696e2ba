//! What columns are said to be that Arrow's types know nothing of.

use parquet::basic::{ConvertedType, EdgeInterpolationAlgorithm, LogicalType};
use parquet::schema::types::Type;

use super::footer::FileMetadata;

impl FileMetadata {
    /// Columns and fields of which the file says more than Arrow's types do: their paths as they are served, and what:
    /// `JSON`, `BSON`, `ENUM`, `UUID`, `INTERVAL`, `TIME_UTC`, `GEOMETRY` and `GEOGRAPHY`, perhaps with a colon and the
    /// coordinates, and of groups `VARIANT`, perhaps with a colon and the version.
    pub fn annotated(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for field in self.metadata().file_metadata().schema_descr().root_schema().get_fields() {
            let renamed = self.renamed().iter().find(|(of_file, _)| of_file == field.name());
            annotated(field, renamed.map_or(field.name(), |(_, served)| served), &mut found);
        }
        found
    }
}

/// Adds what is said of a node of a schema, and of those below it.
fn annotated(node: &Type, path: &str, found: &mut Vec<(String, String)>) {
    let info = node.get_basic_info();
    found.extend(said(info.logical_type_ref(), info.converted_type()).map(|name| (path.to_owned(), name)));
    if node.is_group() {
        node.get_fields().iter().for_each(|field| annotated(field, &format!("{path}.{}", field.name()), found));
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
