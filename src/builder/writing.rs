//! An index that is written file by file.

use std::collections::{BTreeMap, HashSet};
use std::io::{Seek, SeekFrom};

use arrow_schema::SchemaRef;

use super::lengths::KnownRows;
use super::partition::Partitions;
use super::scanned::Scanned;
use super::schema::Merged;
use super::unchanged::Unchanged;
use super::{BuildReport, IndexBuilder};
use rowdex_base::error::{Error, Result};
use rowdex_index::build_info::{renames_member, undecodable_member};
use rowdex_index::output::Output;
use rowdex_index::writer::{FooterCompressor, IndexWriter, NewFile, NewFooter, NewRowGroup, Summary};
use rowdex_index::{FileEntry, Index, Root};
use rowdex_io::source::{FileStat, Source};
use rowdex_parquet::read_end;
use rowdex_projection::{Projection, Renames, children, unknown};

/// An index being written.
pub(super) struct Build<'a> {
    pub(super) writer: IndexWriter<&'a mut Output>,
    pub(super) merged: Merged,
    pub(super) partitions: &'a Partitions,
    pub(super) renames: &'a Renames,
    /// The names of columns that were found in files and are served by others.
    pub(super) renamed: HashSet<String>,
    /// The columns that cannot be decoded, each with the number of the first file that has it so.
    pub(super) undecodable: BTreeMap<String, u32>,
    /// For footers of files that are kept.
    pub(super) compressor: FooterCompressor,
    pub(super) report: BuildReport,
    /// For each file, where it was met before.
    pub(super) known: Vec<KnownRows>,
}

impl Build<'_> {
    pub(super) fn add(&mut self, file: Scanned) -> Result<()> {
        let path = file.metadata.path();
        let renamed = file.metadata.renamed();
        self.merged.add(path, file.metadata.arrow_schema(), renamed, self.partitions)?;
        for (old, _) in renamed {
            if !self.renamed.contains(old) {
                self.renamed.insert(old.clone());
            }
        }
        for column in file.metadata.undecodable_columns() {
            self.undecodable.entry(column.to_owned()).or_insert(self.report.files as u32);
        }
        self.push_file(path, &file.stat, &file.footer)?;
        self.known.push(file.known);
        let groups = 0..file.metadata.num_row_groups();
        for ordinal in groups {
            let source_rows = u64::from(file.metadata.row_group_rows(ordinal));
            let decoded_bytes = file.metadata.decoded_bytes(ordinal, None);
            self.push_row_group(NewRowGroup { ordinal: ordinal as u32, source_rows, decoded_bytes, selection: None })?;
        }
        Ok(())
    }

    /// Takes a file over from the index that is updated.
    pub(super) fn keep(
        &mut self,
        old: &Index,
        entry: &FileEntry<'_>,
        now: &Unchanged,
        source: &dyn Source,
    ) -> Result<()> {
        let footer = match old.footer(entry.index())? {
            Some(raw) => self.compressor.footer(&raw)?,
            None => {
                let (_, footer) = read_end(source, entry.path(), source.footer_guess(), Some(&now.stat))?;
                self.report.read_files += 1;
                self.report.footer_bytes += footer.bytes.len() as u64;
                self.compressor.footer(&footer.bytes)?
            }
        };
        self.push_file(entry.path(), &now.stat, &footer)?;
        self.known.push(Some((old.clone(), entry.row_ids())));
        for group in entry.row_groups().filter_map(|group| old.row_group(group)) {
            self.push_row_group(NewRowGroup {
                ordinal: group.ordinal(),
                source_rows: group.source_rows(),
                decoded_bytes: group.decoded_bytes(),
                selection: None,
            })?;
        }
        Ok(())
    }

    fn push_file(&mut self, path: &str, stat: &FileStat, footer: &NewFooter) -> Result<()> {
        let values = self.partitions.values_of(path)?;
        let values: Vec<Option<&str>> = values.iter().map(Option::as_deref).collect();
        self.writer.push_file(NewFile { path, stat, footer, partition_values: &values })?;
        self.report.files += 1;
        Ok(())
    }

    fn push_row_group(&mut self, group: NewRowGroup<'_>) -> Result<()> {
        let source_rows = group.source_rows;
        self.writer.push_row_group(group)?;
        self.report.rows += source_rows;
        self.report.row_groups += 1;
        Ok(())
    }

    pub(super) fn finish(mut self, root: &Root, builder: &IndexBuilder) -> Result<(BuildReport, Vec<KnownRows>)> {
        let schema = self.merged.finish(self.partitions);
        self.check_renames(&schema, builder)?;
        self.report.unlike_files = self.merged.unlike_files;
        self.report.unlike_example = self.merged.unlike_example;
        // Only what the index follows from belongs here: a time of day would make equal builds unequal.
        let info = format!(
            r#"{{"rowdex":"{}","schema":"{}","footers":{},"partitions":{},"selected":false{}{}}}"#,
            env!("CARGO_PKG_VERSION"),
            builder.schema_mode,
            builder.footers,
            builder.partitions,
            renames_member(self.renames),
            undecodable_member(&self.undecodable)
        );
        let summary = Summary {
            schema: &schema,
            partition_columns: self.partitions.names(),
            renames: self.renames,
            root,
            build_info: &info,
        };
        let out = self.writer.finish(&summary)?;
        self.report.undecodable_columns = self.undecodable.into_keys().collect();
        self.report.index_bytes =
            out.seek(SeekFrom::End(0)).map_err(|error| Error::io("cannot write the index", error))?;
        Ok((self.report, self.known))
    }

    /// Refuses names that no file has, and new ones that lead elsewhere.
    fn check_renames(&self, schema: &SchemaRef, builder: &IndexBuilder) -> Result<()> {
        let refuse = |name: &str, message: &'static str, hint: &str| {
            Err(Error::invalid(message).with_column(name).with_hint(hint.to_owned()))
        };
        for (old, new) in &builder.renames {
            if let Some((above, _)) = new.split_once('.')
                && schema.field_with_name(above).is_ok_and(|field| !children(field.data_type()).is_empty())
            {
                return refuse(new, "the new name is that of a field of a column", "give a name without dots");
            }
            if self.renamed.contains(old) {
                continue;
            }
            if self.partitions.names().contains(old) {
                let message = "the column comes from the names of folders, and only columns of files can be renamed";
                return refuse(old, message, "rename the folders");
            }
            if Projection::columns(schema, &[old]).is_ok() {
                let message = "it is a field of a column, and only whole columns can be renamed";
                return refuse(old, message, "leave it out");
            }
            let near = unknown(schema, old);
            return refuse(old, "no file has the column that is to be renamed", near.hint().unwrap_or_default());
        }
        Ok(())
    }
}
