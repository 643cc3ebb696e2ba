//! The Arrow schema as an encapsulated Arrow IPC message, which every Arrow library can read.

use std::panic::catch_unwind;
use std::sync::Arc;

use arrow_buffer::Buffer;
use arrow_ipc::convert::try_schema_from_ipc_buffer;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow_schema::{Schema, SchemaRef};

use super::stored::invalid;
use rowdex_base::error::{Error, ErrorKind, Result};

/// The schema as an Arrow message.
///
/// # Errors
/// `Schema` for a type that Arrow cannot write.
pub fn encode(schema: &Schema) -> Result<Vec<u8>> {
    let options = IpcWriteOptions::default();
    let mut dictionaries = DictionaryTracker::new(false);
    let message =
        IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(schema, &mut dictionaries, &options);
    let mut bytes = Vec::new();
    write_message(&mut bytes, message, &options).map_err(|error| {
        Error::new(ErrorKind::Schema, format!("cannot store the schema: {error}")).with_source(error)
    })?;
    Ok(bytes)
}

pub(super) fn decode(bytes: &[u8]) -> Result<SchemaRef> {
    // The copy gives the alignment that the flatbuffer needs, wherever the index lies in memory.
    let aligned = Buffer::from(bytes);
    // The decoder panics on types that it does not know, and a crafted index can hold any.
    match catch_unwind(|| try_schema_from_ipc_buffer(aligned.as_slice())) {
        Ok(Ok(schema)) => Ok(Arc::new(schema)),
        Ok(Err(error)) => Err(invalid(format!("SCHEMA is not an Arrow schema: {error}")).with_source(error)),
        Err(_) => Err(invalid("SCHEMA is not an Arrow schema of types that this rowdex knows")),
    }
}
