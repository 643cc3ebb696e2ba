//! What texts and bytes are said to be that Arrow's types know nothing of.

use parquet::basic::{ConvertedType, LogicalType};

use super::footer::FileMetadata;

impl FileMetadata {
    /// Leaves of which the file says that they are `JSON`, `BSON`, names of an `ENUM` or `UUID`s: their paths as they
    /// are served, and which.
    pub fn annotated(&self) -> Vec<(String, &'static str)> {
        let leaves = self.metadata().file_metadata().schema_descr().columns().iter();
        let annotated = leaves.filter_map(|leaf| {
            let name = match (leaf.logical_type_ref(), leaf.converted_type()) {
                (Some(LogicalType::Json), _) | (None, ConvertedType::JSON) => "JSON",
                (Some(LogicalType::Bson), _) | (None, ConvertedType::BSON) => "BSON",
                (Some(LogicalType::Enum), _) | (None, ConvertedType::ENUM) => "ENUM",
                (Some(LogicalType::Uuid), _) => "UUID",
                _ => return None,
            };
            let (root, below) = leaf.path().parts().split_first()?;
            let renamed = self.renamed().iter().find(|(of_file, _)| of_file == root);
            let root = renamed.map_or(root, |(_, served)| served);
            let path: Vec<&str> = [root].into_iter().chain(below).map(String::as_str).collect();
            Some((path.join("."), name))
        });
        annotated.collect()
    }
}
