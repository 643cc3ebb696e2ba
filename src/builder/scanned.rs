//! A file whose footer is known: read from the file, or as another index has it.

use super::lengths::KnownRows;
use super::unchanged::Unchanged;
use rowdex_base::error::Result;
use rowdex_index::Index;
use rowdex_index::writer::{FooterCompressor, StoredFooter};
use rowdex_io::source::{FileStat, Source};
use rowdex_parquet::{FileMetadata, Footer, read_end};
use rowdex_projection::Renames;

/// A file whose footer is read and parsed.
pub(super) struct Scanned {
    pub(super) stat: FileStat,
    pub(super) footer: Footer,
    pub(super) metadata: FileMetadata,
    /// `None` for an index without footers.
    pub(super) stored: Option<StoredFooter>,
    /// Another index that has the file, and the ids of its rows there.
    pub(super) known: KnownRows,
}

impl Scanned {
    pub(super) fn read(
        source: &dyn Source,
        path: &str,
        guess: u64,
        listed: Option<&FileStat>,
        renames: &Renames,
        compressor: Option<&mut FooterCompressor>,
    ) -> Result<Self> {
        let (stat, footer) = read_end(source, path, guess, listed)?;
        Self::parse(path, stat, footer, renames, compressor)
    }

    /// From the stored footer of another index; `None` if it has none.
    pub(super) fn known(
        old: &Index,
        now: &Unchanged,
        renames: &Renames,
        compressor: Option<&mut FooterCompressor>,
    ) -> Result<Option<Self>> {
        let Some(entry) = old.file(now.file) else { return Ok(None) };
        let Some(bytes) = old.footer(now.file)? else { return Ok(None) };
        let footer = Footer { bytes, hash: entry.footer_hash(), file_size: entry.size() };
        let scanned = Self::parse(entry.path(), now.stat.clone(), footer, renames, compressor)?;
        Ok(Some(Self { known: Some((old.clone(), entry.row_ids())), ..scanned }))
    }

    fn parse(
        path: &str,
        stat: FileStat,
        footer: Footer,
        renames: &Renames,
        compressor: Option<&mut FooterCompressor>,
    ) -> Result<Self> {
        let metadata = FileMetadata::parse(path, &footer.bytes, footer.file_size, renames)?;
        let stored = compressor.map(|compressor| compressor.compress(&footer.bytes)).transpose();
        Ok(Self { stat, footer, metadata, stored: stored.map_err(|error| error.with_file(path))?, known: None })
    }
}
