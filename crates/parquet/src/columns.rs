//! Which columns of a file the columns of a projection are made of.

use std::collections::HashMap;
use std::ops::Range;

use arrow_schema::{DataType, Field};

use super::FileMetadata;
use super::chunks::ColumnChunk;
use super::types::leaf_count;
use rowdex_projection::{Projection, children, places_of, view_of};

/// Whether a string or binary column is better decoded as views, for [`Projection::with_views`]: if its values are
/// long, or repeat through a dictionary. One file speaks for its dataset.
///
/// Measured per row group of 131 072 rows or 24 MB: 12-byte strings decode in 1.80 ms and as views in 1.95 ms, a
/// dictionary of short words in 0.81 ms and 0.25 ms, images of 24 KB in 6.6 ms and 3.7 ms.
pub fn views_pay(file: &FileMetadata) -> impl Fn(&Field) -> bool {
    const LONG: u64 = 64;
    const REFERENCE: u64 = 4;
    of_texts(file, |columns| {
        let values = columns.iter().map(ColumnChunk::num_values).fold(0, u64::saturating_add).max(1);
        let bytes = columns.iter().map(ColumnChunk::uncompressed_size).fold(0, u64::saturating_add);
        let dictionary = columns.iter().all(|column| column.dictionary().is_some());
        bytes / values >= LONG || (dictionary && bytes / values < REFERENCE)
    })
}

/// Whether the values of a string or binary column take about as little memory one behind the other as views do, by
/// what the file says of their lengths. Rows that are served as they lie are then shown where they were decoded to,
/// while views would be copied to each batch. One file speaks for its dataset.
pub fn views_save_nothing(file: &FileMetadata) -> impl Fn(&Field) -> bool {
    /// With an offset that is a little more than a view.
    const SHORT: u64 = 16;
    of_texts(file, |columns| {
        let values = columns.iter().map(ColumnChunk::num_values).fold(0, u64::saturating_add);
        let bytes = columns.iter().try_fold(0_u64, |sum, column| Some(sum.saturating_add(column.text_bytes()?)));
        bytes.is_some_and(|bytes| bytes <= values.saturating_mul(SHORT))
    })
}

/// What is asked of the column of a file, in all row groups, that has the values of a string or binary field; `false`
/// of any other field.
fn of_texts(file: &FileMetadata, asked: impl Fn(&[ColumnChunk<'_>]) -> bool) -> impl Fn(&Field) -> bool {
    // Of several fields with one name, the first.
    let fields = file.arrow_schema().fields().iter().enumerate().rev();
    let places: HashMap<&str, usize> = fields.map(|(place, field)| (field.name().as_str(), place)).collect();
    move |field| {
        let place = view_of(field.data_type()).and_then(|_| places.get(field.name().as_str()));
        place.is_some_and(|place| {
            let leaf = file.leaves(*place).start;
            asked(&file.groups().map(|group| group.column(leaf)).collect::<Vec<_>>())
        })
    }
}

/// Where an output column comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum ColumnOrigin<'a> {
    Partition(Option<&'a str>),
    /// A field of the file, by its place in the file's schema.
    File(usize),
    Missing,
}

pub(super) fn is_view(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}

/// Where each output column comes from.
pub(super) fn origins<'a>(
    file: &FileMetadata,
    projection: &Projection,
    partitions: &[(&str, Option<&'a str>)],
) -> Vec<ColumnOrigin<'a>> {
    let output = projection.output().fields().iter().zip(projection.places_in(file.arrow_schema().fields()));
    output
        .map(|(field, place)| match partitions.iter().find(|(name, _)| name == field.name()) {
            Some((_, value)) => ColumnOrigin::Partition(*value),
            None => place.map_or(ColumnOrigin::Missing, ColumnOrigin::File),
        })
        .collect()
}

/// The columns of the file that the projection needs, in the file's order.
pub(super) fn leaves_of(
    file: &FileMetadata,
    projection: &Projection,
    partitions: &[(&str, Option<&str>)],
) -> Vec<usize> {
    leaves_from(file, projection, &origins(file, projection, partitions))
}

pub(super) fn leaves_from(file: &FileMetadata, projection: &Projection, origins: &[ColumnOrigin<'_>]) -> Vec<usize> {
    let mut leaves = Vec::new();
    for (origin, field) in origins.iter().zip(projection.output().fields()) {
        if let ColumnOrigin::File(place) = origin {
            let mut at = file.leaves(*place).start;
            select(file.arrow_schema().field(*place).data_type(), field.data_type(), &mut at, &mut leaves);
        }
    }
    leaves.sort_unstable();
    leaves.dedup();
    leaves
}

/// Adds the leaves below `from` that a value of type `want` is made of; `at` is the first of them.
fn select(from: &DataType, want: &DataType, at: &mut usize, leaves: &mut Vec<usize>) {
    match (from, want) {
        (DataType::Struct(have), DataType::Struct(wanted)) => {
            let start = *at;
            let before = leaves.len();
            for (field, place) in have.iter().zip(places_of(have, wanted)) {
                match place.and_then(|place| wanted.get(place)) {
                    Some(child) => select(field.data_type(), child.data_type(), at, leaves),
                    None => *at += leaf_count(field.data_type()),
                }
            }
            // None of the wanted fields is there. Which rows are null still is, in the levels of any leaf.
            if leaves.len() == before {
                leaves.extend(any_readable(from, &mut { start }).unwrap_or_default());
            }
        }
        (DataType::Map(have, _), DataType::Map(wanted, _)) => {
            let have = children(have.data_type());
            let wanted = children(wanted.data_type());
            for (place, field) in have.iter().enumerate() {
                let want = wanted.get(place).map_or(field.data_type(), |child| child.data_type());
                select(field.data_type(), want, at, leaves);
            }
        }
        _ => match (children(from), children(want)) {
            ([have], [wanted]) => select(have.data_type(), wanted.data_type(), at, leaves),
            _ => {
                let end = *at + leaf_count(from);
                leaves.extend(*at..end);
                *at = end;
            }
        },
    }
}

/// A leaf below a type that can be read alone, where `at` is the first one; if all are in maps, which are read whole,
/// those of a map.
fn any_readable(data_type: &DataType, at: &mut usize) -> Option<Range<usize>> {
    let start = *at;
    let below = children(data_type);
    if below.is_empty() || matches!(data_type, DataType::Map(..)) {
        *at += leaf_count(data_type);
        return (start < *at).then_some(start..*at);
    }
    let found: Vec<_> = below.iter().filter_map(|field| any_readable(field.data_type(), at)).collect();
    found.iter().find(|leaves| leaves.len() == 1).or(found.first()).cloned()
}
