//! Values behind an `Arc`, as data: serde's own way is a feature that all who depend on serde would compile again.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<T: Serialize + ?Sized, S: Serializer>(value: &Arc<T>, to: S) -> Result<S::Ok, S::Error> {
    T::serialize(value, to)
}

pub(crate) fn deserialize<'de, T: ?Sized, D: Deserializer<'de>>(from: D) -> Result<Arc<T>, D::Error>
where
    Box<T>: Deserialize<'de>,
{
    Box::<T>::deserialize(from).map(Arc::from)
}
