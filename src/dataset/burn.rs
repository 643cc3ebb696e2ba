//! The dataset trait of the burn ecosystem.

use burn_dataset::DatasetError;
use serde::de::DeserializeOwned;

use super::{Dataset, MapDataset};

/// Items are typed rows, as [`MapDataset::get_as`] makes them.
///
/// A row id beyond the end is an error here, where burn's own datasets panic: a damaged sampler state must not end a
/// training run without a word.
impl<T: DeserializeOwned> burn_dataset::Dataset<T> for Dataset {
    fn get(&self, index: usize) -> Result<T, DatasetError> {
        self.get_as(index as u64).map_err(DatasetError::new)
    }

    fn get_many(&self, indexes: Vec<usize>) -> Result<Vec<T>, DatasetError> {
        let rows: Vec<u64> = indexes.into_iter().map(|index| index as u64).collect();
        self.take_as(&rows).map_err(DatasetError::new)
    }

    fn len(&self) -> usize {
        usize::try_from(Dataset::len(self)).unwrap_or(usize::MAX)
    }
}
