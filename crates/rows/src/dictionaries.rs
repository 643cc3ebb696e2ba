//! Dictionaries of rows that wait: one for all units that have the same, and of any other what the rows use.
//!
//! A row group comes with a dictionary of its own, of all of its values, and often that of any other row group is the
//! same. A few rows that wait would each time keep all of it in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_data::ArrayData;
use arrow_schema::ArrowError;
use arrow_schema::{DataType, Schema};
use xxhash_rust::xxh3::Xxh3;

use super::dictionary::{Codes, NULL, coded, has_dictionary, value_bytes};
use super::memory::{Elsewhere, bytes_of_data, bytes_of_part};
use super::nested::{dictionary_arrays, values_of, with_dictionaries};
use super::views::change_columns;
use super::{record_batch, take_rows, uncopied};
use rowdex_base::error::Result;

/// Dictionaries that several units have. Each is in memory once, for as long as this is.
#[derive(Debug)]
pub struct Dictionaries {
    most: u64,
    known: Mutex<SharedDictionaries>,
}

#[derive(Debug, Default)]
struct SharedDictionaries {
    /// Dictionaries that were met, by their hashes: the unit of each, and the copy that is shared once another unit has
    /// the same.
    met: HashMap<u64, (u32, Option<ArrayRef>)>,
    elsewhere: Elsewhere,
    bytes: u64,
}

impl Dictionaries {
    /// For so much memory of rows with dictionaries.
    pub fn within(memory: u64) -> Self {
        Self { most: memory / 4 * 3, known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, SharedDictionaries> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are shared, which count as [so many bytes](Self::bytes).
    pub fn elsewhere(&self) -> Elsewhere {
        self.lock().elsewhere.clone()
    }

    /// Bytes of all that are shared.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Looks for dictionaries of the chunks of a unit.
    pub fn of_unit(&self, unit: u32) -> Sharing<'_> {
        Sharing { all: self, unit, last: Vec::new() }
    }

    /// The shared one that is the same, if there is one, or is now: of what has come in another unit as well.
    ///
    /// It stays for good. So it must leave room for as many rows, of so many bytes besides, as it has values: with
    /// fewer the values that they use would take less.
    fn find(&self, values: &ArrayRef, unit: u32, row: u64) -> Result<Option<ArrayRef>> {
        /// So many are told apart, so that what is known of them is small.
        const MOST: usize = 1 << 12;
        let data = values.to_data();
        let hash = hash_of(&data);
        let mut known = self.lock();
        let shared = match known.met.get(&hash).cloned() {
            Some((_, Some(shared))) => shared,
            Some((other, None)) if other != unit => {
                let bytes = bytes_of_data(&data);
                let needed = bytes.saturating_add(row.saturating_mul(values.len() as u64));
                if known.bytes.saturating_add(needed) > self.most {
                    return Ok(None);
                }
                let all: Vec<u32> = (0..values.len() as u32).collect();
                let shared = take_rows(values.as_ref(), &all)?;
                known.bytes += bytes;
                known.elsewhere = known.elsewhere.clone().and(&shared.to_data());
                known.met.insert(hash, (other, Some(Arc::clone(&shared))));
                shared
            }
            Some(_) => return Ok(None),
            None => {
                if known.met.len() < MOST {
                    known.met.insert(hash, (unit, None));
                }
                return Ok(None);
            }
        };
        drop(known);
        Ok((shared.to_data() == data).then_some(shared))
    }
}

/// Puts shared dictionaries in the place of those that chunks of one unit have.
#[derive(Debug)]
pub struct Sharing<'a> {
    all: &'a Dictionaries,
    unit: u32,
    /// The dictionaries of the last chunk, and the shared ones that are the same.
    last: Vec<(ArrayRef, Option<ArrayRef>)>,
}

impl Sharing<'_> {
    /// The same rows.
    ///
    /// # Errors
    /// As [`take`](super::take), without the column.
    pub fn share(&mut self, chunk: RecordBatch) -> Result<RecordBatch> {
        if chunk.num_rows() == 0 || !chunk.columns().iter().any(|column| has_dictionary(column.data_type())) {
            return Ok(chunk);
        }
        let mut last = std::mem::take(&mut self.last).into_iter();
        let mut columns = chunk.columns().to_vec();
        for column in columns.iter_mut().filter(|column| has_dictionary(column.data_type())) {
            let mut found = Vec::new();
            for own in dictionary_arrays(column) {
                let values = Arc::clone(own.as_any_dictionary().values());
                let before = last.next().filter(|(before, _)| before.to_data().ptr_eq(&values.to_data()));
                let shared = match before {
                    Some((_, shared)) => shared,
                    None => self.all.find(&values, self.unit, row_bytes(&chunk))?,
                };
                found.push(shared.as_ref().map(|shared| own.as_any_dictionary().with_values(Arc::clone(shared))));
                self.last.push((values, shared));
            }
            if found.iter().any(Option::is_some) {
                *column = with_dictionaries(column, &mut found.into_iter()).map_err(uncopied)?;
            }
        }
        record_batch(chunk.schema_ref(), columns, chunk.num_rows()).map_err(uncopied)
    }
}

/// Bytes of a row besides dictionaries.
fn row_bytes(chunk: &RecordBatch) -> u64 {
    let dictionaries = chunk.columns().iter().flat_map(values_of);
    let bytes: u64 = dictionaries.map(|values| bytes_of_data(&values)).sum();
    bytes_of_part(chunk).saturating_sub(bytes) / chunk.num_rows().max(1) as u64
}

fn hash_of(values: &ArrayData) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&(values.len() as u64).to_le_bytes());
    values.buffers().iter().for_each(|buffer| hash.update(buffer.as_slice()));
    hash.digest()
}

/// Whether a column has a dictionary, or something below it.
pub fn has_dictionaries(schema: &Schema) -> bool {
    schema.fields().iter().any(|field| has_dictionary(field.data_type()))
}

/// Leaves the values that no row uses out of the dictionaries of these pieces of one batch, where that saves memory.
/// Those that count elsewhere stay as they are.
pub(super) fn shrink(pieces: Vec<RecordBatch>, elsewhere: &Elsewhere) -> Result<Vec<RecordBatch>, ArrowError> {
    change_columns(pieces, has_dictionary, &mut |arrays| {
        let own: Vec<Vec<ArrayRef>> = arrays.iter().map(dictionary_arrays).collect();
        let mut others: Vec<Vec<Option<ArrayRef>>> = own.iter().map(|own| vec![None; own.len()]).collect();
        for number in 0..own.first().map_or(0, Vec::len) {
            let of_pieces: Vec<ArrayRef> = own.iter().map(|own| Arc::clone(&own[number])).collect();
            let shrunk = shrunk(&of_pieces, elsewhere)?.into_iter().flatten();
            others.iter_mut().zip(shrunk).for_each(|(others, shrunk)| others[number] = Some(shrunk));
        }
        for (array, others) in arrays.iter_mut().zip(others) {
            *array = with_dictionaries(array, &mut others.into_iter())?;
        }
        Ok(())
    })
}

/// The same dictionary arrays with fewer values, if they share a dictionary of which most can be left out.
///
/// Each piece has a dictionary for itself, which is let go with it, or all of them have one: whichever takes less on
/// average, as what pieces share goes with the last of them.
fn shrunk(arrays: &[ArrayRef], elsewhere: &Elsewhere) -> Result<Option<Vec<ArrayRef>>, ArrowError> {
    let dictionaries: Vec<_> = arrays.iter().map(|array| array.as_any_dictionary()).collect();
    let Some(values) = dictionaries.first().map(|dictionary| dictionary.values()) else { return Ok(None) };
    let data = values.to_data();
    let is_one = dictionaries.iter().all(|other| other.values().to_data().ptr_eq(&data));
    if values.is_empty() || !is_one || elsewhere.has(&data) {
        return Ok(None);
    }
    let Ok(bytes) = value_bytes(values.as_ref()) else { return Ok(None) };
    let size = |value: u32| bytes(value as usize).len() as u64 + size_of::<u32>() as u64;
    let keys: Vec<Vec<u32>> = arrays.iter().map(keys_of).collect();
    let mut met = vec![0_u32; values.len()];
    let mut alone = 0;
    let mut together = 0;
    for (piece, keys) in (1..).zip(&keys) {
        for &key in keys.iter().filter(|key| **key != NULL) {
            let met = &mut met[key as usize];
            if *met != piece {
                alone += size(key);
                together += if *met == 0 { size(key) } else { 0 };
                *met = piece;
            }
        }
    }
    let all = bytes_of_data(&data);
    let alone = if arrays.len() > 1 { alone / 2 } else { alone };
    if alone.min(together) > all / 8 * 7 {
        return Ok(None);
    }
    let DataType::Dictionary(key, _) = arrays[0].data_type() else { return Ok(None) };
    let mut codes = Codes::new(&[values.as_ref()])?;
    let mut found = Vec::with_capacity(arrays.len());
    for pieces in keys.chunks(if together <= alone { keys.len() } else { 1 }) {
        let mut code = |key: &u32| if *key == NULL { NULL } else { codes.code(0, *key as usize) };
        let pieces: Vec<Vec<u32>> = pieces.iter().map(|keys| keys.iter().map(&mut code).collect()).collect();
        let values = codes.finish()?;
        for codes in pieces {
            found.push(coded(key, &codes, &values)?);
        }
    }
    Ok(Some(found))
}

/// The keys of a dictionary array, which has values.
fn keys_of(array: &ArrayRef) -> Vec<u32> {
    let keys = array.as_any_dictionary().normalized_keys();
    let is_valid = |row| array.nulls().is_none_or(|nulls| nulls.is_valid(row));
    keys.into_iter().enumerate().map(|(row, key)| if is_valid(row) { key as u32 } else { NULL }).collect()
}

#[cfg(test)]
mod tests {
    use arrow_array::{DictionaryArray, Int32Array, ListArray, StringArray, StructArray};
    use arrow_buffer::OffsetBuffer;
    use arrow_schema::{Field, Fields};

    use super::*;
    use crate::Held;

    fn labels(words: &[String], codes: &[Option<i32>]) -> ArrayRef {
        let words = Arc::new(StringArray::from_iter_values(words));
        Arc::new(DictionaryArray::new(Int32Array::from(codes.to_vec()), words))
    }

    fn words(count: usize, length: usize) -> Vec<String> {
        (0..count).map(|word| format!("{word:0length$}")).collect()
    }

    /// Labels, lists of them, and structs of both, for as many rows as there are codes.
    fn batch(words: &[String], codes: &[Option<i32>]) -> RecordBatch {
        let label = labels(words, codes);
        let item = Arc::new(Field::new_list_field(label.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths((0..codes.len()).map(|_| 1));
        let lists: ArrayRef = Arc::new(ListArray::new(item, offsets, Arc::clone(&label), None));
        let fields = [("label", &label), ("list", &lists)]
            .map(|(name, array)| Field::new(name, array.data_type().clone(), true));
        let both = StructArray::new(Fields::from(fields.to_vec()), vec![Arc::clone(&label), Arc::clone(&lists)], None);
        let columns: [(&str, ArrayRef); 3] = [("label", label), ("list", lists), ("both", Arc::new(both))];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
    }

    fn values(batch: &RecordBatch) -> ArrayRef {
        Arc::clone(batch.column(0).as_any_dictionary().values())
    }

    #[test]
    fn units_with_equal_dictionaries_share_one() {
        let other = words(50, 41);
        let words = words(50, 40);
        let all = Dictionaries::within(1 << 20);
        let share = |unit, words: &[String]| {
            let chunk = batch(words, &[Some(3), None, Some(49)]);
            let shared = all.of_unit(unit).share(chunk.clone()).unwrap();
            assert_eq!(shared, chunk);
            values(&shared)
        };
        let first = share(7, &words);
        let second = share(8, &words);
        let third = share(9, &words);
        assert!(!all.elsewhere().has(&first.to_data()) && all.elsewhere().has(&second.to_data()));
        assert!(Arc::ptr_eq(&second, &third) && Arc::ptr_eq(&third, &share(7, &words)));
        assert!((50 * 44..50 * 44 + 64).contains(&all.bytes()), "{}", all.bytes());
        assert!(!all.elsewhere().has(&share(7, &other).to_data()));
    }

    #[test]
    fn a_dictionary_that_leaves_no_room_for_rows_is_not_shared() {
        let words = words(1000, 100);
        let all = Dictionaries::within(100 << 10);
        for unit in 0..3 {
            all.of_unit(unit).share(batch(&words, &[Some(1)])).unwrap();
        }
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn rows_that_wait_keep_of_a_dictionary_what_they_use() {
        let words = words(1000, 100);
        let codes: Vec<Option<i32>> = (0..200).map(|row| (row % 7 > 0).then_some(row * 37 % 100 + 500)).collect();
        let batch = batch(&words, &codes);
        let slots: Vec<u32> = (0..200).rev().collect();
        for most in [1, 64] {
            let held = Held::copied(&batch, &slots, most, &Elsewhere::default()).unwrap();
            let bytes: u64 = held.iter().map(Held::bytes).sum();
            // Four dictionaries of a hundred values, and codes.
            assert!(bytes < 4 * 100 * 104 * 2 + 200 * 40, "{bytes}");
            let pieces: Vec<&RecordBatch> = held.iter().filter_map(Held::in_columns).collect();
            let found = arrow_select::concat::concat_batches(batch.schema_ref(), pieces).unwrap();
            assert_eq!(found, crate::take(&batch, &slots).unwrap());
        }
        // What counts elsewhere stays as it is, and takes nothing.
        let elsewhere = Elsewhere::default().and_dictionaries_of(&batch);
        let held = Held::copied(&batch, &slots, 1, &elsewhere).unwrap();
        assert!(held[0].bytes() < 200 * 40 && Arc::ptr_eq(&values(held[0].in_columns().unwrap()), &values(&batch)));
        let nothing = Held::copied(&super::tests::batch(&words, &[None, None]), &[1, 0], 1, &Elsewhere::default());
        assert_eq!(nothing.unwrap()[0].in_columns().unwrap().column(0).null_count(), 2);
    }
}
