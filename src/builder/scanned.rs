//! A file whose footer is known: read from the file, or as another index has it.

use super::lengths::KnownRows;
use super::unchanged::Unchanged;
use rowdex_base::error::Result;
use rowdex_index::Index;
use rowdex_index::writer::{FooterCompressor, NewFooter};
use rowdex_io::source::FileStat;
use rowdex_parquet::{FileMetadata, Footer};
use rowdex_projection::Renames;

/// A file whose footer is read and parsed.
pub(super) struct Scanned {
    pub(super) stat: FileStat,
    pub(super) metadata: FileMetadata,
    pub(super) footer: NewFooter,
    /// Of the footer as it is in the file.
    pub(super) footer_bytes: u64,
    /// Another index that has the file, and the ids of its rows there.
    pub(super) known: KnownRows,
}

impl Scanned {
    /// From the stored footer of another index; `None` if it has none.
    pub(super) fn known(
        old: &Index,
        now: &Unchanged,
        renames: &Renames,
        compressor: &mut FooterCompressor,
    ) -> Result<Option<Self>> {
        let Some(entry) = old.file(now.file) else { return Ok(None) };
        let Some(bytes) = old.footer(now.file)? else { return Ok(None) };
        let footer = Footer { bytes, hash: entry.footer_hash(), file_size: entry.size() };
        let scanned = Self::parse(entry.path(), now.stat.clone(), footer, renames, compressor)?;
        Ok(Some(Self { known: Some((old.clone(), entry.row_ids())), ..scanned }))
    }

    pub(super) fn parse(
        path: &str,
        stat: FileStat,
        footer: Footer,
        renames: &Renames,
        compressor: &mut FooterCompressor,
    ) -> Result<Self> {
        let metadata = FileMetadata::parse(path, &footer.bytes, footer.file_size, renames)?;
        let footer_bytes = footer.bytes.len() as u64;
        let footer = compressor.footer(&footer.bytes).map_err(|error| error.with_file(path))?;
        Ok(Self { stat, metadata, footer, footer_bytes, known: None })
    }
}
