//! Rows of like lengths in batches of as many rows.

use rowdex_base::error::{Error, Result};

use super::block::{InBlock, PackBlock, Seeds};
use super::{Algorithm, Empty, Overflow, Pack};

/// Keeps the random numbers of buckets apart from all others.
const TAG: &[u8; 16] = b"rowdex buckets1\0";

impl Pack {
    /// Refuses what would make windows of rows that divide into no whole steps.
    pub(super) fn check_buckets(&self) -> Result<()> {
        if matches!(self.overflow, Overflow::Split | Overflow::Drop) {
            return Err(Error::invalid(format!("buckets of rows, of which long ones are to {}", self.overflow))
                .with_hint("use overflow \"truncate\" or \"error\": each row is served once"));
        }
        if self.empty == Empty::Skip {
            return Err(Error::invalid("buckets of rows without those that have no tokens")
                .with_hint("use empty \"keep\": each row is served once"));
        }
        if self.max_pieces.is_some() {
            return Err(
                Error::invalid("buckets with a limit of pieces").with_hint("leave max_pieces out: use the batch size")
            );
        }
        Ok(())
    }

    /// The same for steps of so many rows: with the positions that are sorted together, at least one step.
    pub(super) fn in_steps(self, rows: u64) -> Self {
        let rows = rows.max(1);
        Self { block: (self.block.saturating_add(rows / 2) / rows).max(1).saturating_mul(rows), ..self }
    }

    /// Sorts the rows of a block by their lengths, cuts them every `step` rows, and shuffles these steps. What is no
    /// whole step at the end of the order stays behind all others, so which rows that is depends on no length.
    pub(super) fn bucketed(&self, rows: Vec<u64>, lengths: &[u64], seeds: Seeds, step: u64) -> Result<PackBlock> {
        let mut cut = Vec::with_capacity(rows.len());
        self.cut(&rows, lengths, |at, offset, length, _| {
            cut.push(InBlock { offset, length: length as u32, at });
        })?;
        let step = usize::try_from(step).unwrap_or(usize::MAX).max(1);
        let whole = cut.len() - cut.len() % step;
        let (sorted, rest) = cut.split_at_mut(whole);
        // Rows of one length stay as they come.
        sorted.sort_by_key(|piece| piece.length);
        rest.sort_by_key(|piece| piece.length);
        let mut pieces = Vec::with_capacity(cut.len());
        for number in seeds.permuted(TAG, (whole / step) as u64) {
            pieces.extend_from_slice(&cut[number as usize * step..][..step]);
        }
        pieces.extend_from_slice(&cut[whole..]);
        let ends = (1..=pieces.len() as u32).collect();
        Ok(PackBlock::as_cut(rows, pieces, ends))
    }

    /// Whether each row is a pack of its own.
    pub(crate) fn is_of_rows(&self) -> bool {
        self.algorithm == Algorithm::Buckets
    }
}
