//! Dictionaries of many sources as one: a batch has one code for one value.
//!
//! Row groups have dictionaries of their own, mostly with the same values. Where all sources have the same one, its
//! codes are copied and it is shared. Otherwise the values that the rows use get new codes, in the order in which
//! they come.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, ArrowPrimitiveType, AsArray, DictionaryArray, PrimitiveArray, downcast_primitive,
    make_array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{ArrowDictionaryKeyType, ArrowNativeType, DataType};
use arrow::error::ArrowError;

use super::flat::copy;
use super::picks::{BatchRow, Picks};
use super::uncopied;
use rowdex_base::error::Result;

/// Comparing dictionaries value by value pays where they have no more values than this for each row.
const COMPARED: usize = 32;

/// The code of a value that is null.
pub(super) const NULL: u32 = u32::MAX;

/// Calls a function for the type of keys.
macro_rules! by_key {
    ($key:expr, $function:ident, $($argument:expr),+) => {
        match $key {
            DataType::Int8 => $function::<arrow::datatypes::Int8Type>($($argument),+),
            DataType::Int16 => $function::<arrow::datatypes::Int16Type>($($argument),+),
            DataType::Int32 => $function::<arrow::datatypes::Int32Type>($($argument),+),
            DataType::Int64 => $function::<arrow::datatypes::Int64Type>($($argument),+),
            DataType::UInt8 => $function::<arrow::datatypes::UInt8Type>($($argument),+),
            DataType::UInt16 => $function::<arrow::datatypes::UInt16Type>($($argument),+),
            DataType::UInt32 => $function::<arrow::datatypes::UInt32Type>($($argument),+),
            DataType::UInt64 => $function::<arrow::datatypes::UInt64Type>($($argument),+),
            other => Err(ArrowError::InvalidArgumentError(format!("{other} is no type of dictionary keys"))),
        }
    };
}

pub(super) use by_key;

pub(super) fn dictionaries<P: Picks>(arrays: &[&dyn Array], runs: &[P]) -> Result<Vec<ArrayRef>, ArrowError> {
    let DataType::Dictionary(key, _) = arrays[0].data_type() else {
        return Err(ArrowError::InvalidArgumentError("not a dictionary".into()));
    };
    by_key!(key.as_ref(), dictionaries_of, arrays, runs)
}

fn dictionaries_of<K: ArrowDictionaryKeyType>(
    arrays: &[&dyn Array],
    runs: &[impl Picks],
) -> Result<Vec<ArrayRef>, ArrowError> {
    let sources: Vec<&DictionaryArray<K>> = arrays.iter().map(|array| array.as_dictionary::<K>()).collect();
    let rows = runs.iter().map(Picks::count).sum();
    if are_same(&sources.iter().map(|source| source.values()).collect::<Vec<_>>(), rows) {
        let keys: Vec<&dyn Array> = sources.iter().map(|source| source.keys() as &dyn Array).collect();
        let share = |keys: ArrayRef| -> Result<ArrayRef, ArrowError> {
            Ok(Arc::new(DictionaryArray::try_new(keys.as_primitive::<K>().clone(), sources[0].values().clone())?))
        };
        return copy(&keys, runs, keys[0].data_type())?.into_iter().map(share).collect();
    }
    // Many sources may have one dictionary, while others have their own.
    let mut met = HashMap::new();
    let mut different = Vec::new();
    let mut numbers = Vec::with_capacity(sources.len());
    for source in &sources {
        let number = *met.entry(Arc::as_ptr(source.values()).cast::<()>()).or_insert(different.len());
        if number == different.len() {
            different.push(source.values().as_ref());
        }
        numbers.push(number);
    }
    let mut codes = Codes::new(&different)?;
    let mut recoded: Vec<ArrayRef> = Vec::with_capacity(runs.len());
    for run in runs {
        let mut keys = Vec::with_capacity(run.count());
        let mut valid = Vec::with_capacity(run.count());
        for (source, row) in run.rows() {
            let own = sources[source].keys();
            let code = if own.is_valid(row) { codes.code(numbers[source], own.values()[row].as_usize()) } else { NULL };
            valid.push(code != NULL);
            let code = if code == NULL { 0 } else { code as usize };
            keys.push(K::Native::from_usize(code).ok_or(ArrowError::DictionaryKeyOverflowError)?);
        }
        let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
        let keys = PrimitiveArray::<K>::new(keys.into(), nulls);
        recoded.push(Arc::new(DictionaryArray::try_new(keys, codes.finish()?)?));
    }
    Ok(recoded)
}

/// Whether there is a dictionary in arrays of a type.
pub(super) fn has_dictionary(data_type: &DataType) -> bool {
    use DataType::{Dictionary, FixedSizeList, LargeList, LargeListView, List, ListView, Map, Struct};
    match data_type {
        Dictionary(_, _) => true,
        List(item) | LargeList(item) | ListView(item) | LargeListView(item) => has_dictionary(item.data_type()),
        FixedSizeList(item, _) | Map(item, _) => has_dictionary(item.data_type()),
        Struct(fields) => fields.iter().any(|field| has_dictionary(field.data_type())),
        _ => false,
    }
}

/// The array itself, or the dictionary arrays below it.
pub(super) fn dictionary_arrays(array: &ArrayRef) -> Vec<ArrayRef> {
    fn below(data: &ArrayData) -> Vec<ArrayRef> {
        match data.data_type() {
            DataType::Dictionary(_, _) => vec![make_array(data.clone())],
            other if has_dictionary(other) => data.child_data().iter().flat_map(below).collect(),
            _ => Vec::new(),
        }
    }
    match array.data_type() {
        DataType::Dictionary(_, _) => vec![Arc::clone(array)],
        other if has_dictionary(other) => below(&array.to_data()),
        _ => Vec::new(),
    }
}

/// The values of all dictionaries of an array.
pub(super) fn values_of(array: &ArrayRef) -> Vec<ArrayData> {
    dictionary_arrays(array).iter().map(|array| array.as_any_dictionary().values().to_data()).collect()
}

/// The values of an array as a dictionary with such keys, in which each is once, in the order in which they come.
///
/// # Errors
/// [`ErrorKind::TooLarge`](rowdex_base::error::ErrorKind) if the values are too many for the keys.
pub fn encode(array: &ArrayRef, key: &DataType) -> Result<ArrayRef> {
    fn encode<K: ArrowDictionaryKeyType>(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let bytes = value_bytes(array.as_ref())?;
        let mut codes: HashMap<&[u8], usize> = HashMap::new();
        let mut values = Vec::new();
        let mut keys = Vec::with_capacity(array.len());
        for row in 0..array.len() {
            let code = match array.is_valid(row) {
                true => *codes.entry(bytes(row)).or_insert_with(|| {
                    values.push(row as u32);
                    values.len() - 1
                }),
                false => 0,
            };
            keys.push(K::Native::from_usize(code).ok_or(ArrowError::DictionaryKeyOverflowError)?);
        }
        let keys = PrimitiveArray::<K>::new(keys.into(), array.nulls().cloned());
        let values = copy(&[array.as_ref()], &[&values[..]], array.data_type())?.pop();
        let values = values.ok_or_else(|| ArrowError::ComputeError("a dictionary without values".into()))?;
        Ok(Arc::new(DictionaryArray::try_new(keys, values)?))
    }
    by_key!(key, encode, array).map_err(uncopied)
}

/// Whether all dictionaries have the same values in the same order, as far as finding that out is worth it.
fn are_same(dictionaries: &[&ArrayRef], rows: usize) -> bool {
    let Some((first, others)) = dictionaries.split_first() else { return true };
    let mut data = None;
    let mut is_same = |other: &&ArrayRef, compare: bool| {
        if Arc::ptr_eq(first, other) {
            return true;
        }
        let first = data.get_or_insert_with(|| first.to_data());
        let other = other.to_data();
        first.ptr_eq(&other) || (compare && first.len() == other.len() && *first == other)
    };
    // Chunks of one row group share one, and only where that is not so are values looked at.
    let Some(odd) = others.iter().position(|other| !is_same(other, false)) else { return true };
    let values: usize = dictionaries.iter().map(|values| values.len()).sum();
    values <= rows.saturating_mul(COMPARED) && others[odd..].iter().all(|other| is_same(other, true))
}

/// New codes for values of several dictionaries.
struct Codes<'a> {
    dictionaries: Vec<&'a dyn Array>,
    bytes: Vec<ValueBytes<'a>>,
    /// For each value of each dictionary, one more than its code, or 0 before it has one.
    known: Vec<Vec<u32>>,
    /// The code of every value by its bytes.
    codes: HashMap<&'a [u8], u32>,
    /// Where the values that have a code are, in the order of the codes.
    values: Vec<BatchRow>,
    /// The values that have an entry in `known`.
    seen: Vec<BatchRow>,
}

impl<'a> Codes<'a> {
    fn new(dictionaries: &[&'a dyn Array]) -> Result<Self, ArrowError> {
        let bytes = dictionaries.iter().map(|dictionary| value_bytes(*dictionary)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            dictionaries: dictionaries.to_vec(),
            bytes,
            known: dictionaries.iter().map(|dictionary| vec![0; dictionary.len()]).collect(),
            codes: HashMap::new(),
            values: Vec::new(),
            seen: Vec::new(),
        })
    }

    /// The code of a value of one of the dictionaries.
    fn code(&mut self, source: usize, value: usize) -> u32 {
        match self.known[source][value] {
            0 => self.learn(source, value),
            known => known.wrapping_sub(1),
        }
    }

    #[cold]
    fn learn(&mut self, source: usize, value: usize) -> u32 {
        let place = (source as u32, value as u32);
        self.seen.push(place);
        let code = match self.dictionaries[source].is_valid(value) {
            true => *self.codes.entry((self.bytes[source])(value)).or_insert_with(|| {
                self.values.push(place);
                self.values.len() as u32 - 1
            }),
            false => NULL,
        };
        self.known[source][value] = code.wrapping_add(1);
        code
    }

    /// The dictionary of the codes given so far, after which new ones are given.
    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let values = copy(&self.dictionaries, &[&self.values[..]], self.dictionaries[0].data_type())?.pop();
        for (source, value) in self.seen.drain(..) {
            self.known[source as usize][value as usize] = 0;
        }
        self.codes.clear();
        self.values.clear();
        values.ok_or_else(|| ArrowError::ComputeError("a dictionary without values".into()))
    }
}

/// The bytes of each value of an array.
pub type ValueBytes<'a> = Box<dyn Fn(usize) -> &'a [u8] + 'a>;

/// Those of strings and bytes; `None` of other values.
pub fn text_bytes(values: &dyn Array) -> Option<ValueBytes<'_>> {
    macro_rules! bytes {
        ($values:expr) => {{
            let values = $values;
            Box::new(move |at| values.value(at).as_ref())
        }};
    }
    Some(match values.data_type() {
        DataType::Utf8 => bytes!(values.as_string::<i32>()),
        DataType::LargeUtf8 => bytes!(values.as_string::<i64>()),
        DataType::Utf8View => bytes!(values.as_string_view()),
        DataType::Binary => bytes!(values.as_binary::<i32>()),
        DataType::LargeBinary => bytes!(values.as_binary::<i64>()),
        DataType::BinaryView => bytes!(values.as_binary_view()),
        DataType::FixedSizeBinary(_) => bytes!(values.as_fixed_size_binary()),
        _ => return None,
    })
}

/// The bytes of the values of a dictionary, which are equal for equal values.
pub(super) fn value_bytes(values: &dyn Array) -> Result<ValueBytes<'_>, ArrowError> {
    macro_rules! fixed {
        ($type:ty) => {{
            let bytes = values.as_primitive::<$type>().values().inner().as_slice();
            let width = size_of::<<$type as ArrowPrimitiveType>::Native>();
            Some(Box::new(move |at: usize| &bytes[at * width..(at + 1) * width]) as ValueBytes<'_>)
        }};
    }
    let bytes = downcast_primitive! {
        values.data_type() => (fixed),
        DataType::Boolean => {
            let bits = values.as_boolean();
            Some(Box::new(move |at| if bits.value(at) { &[1_u8][..] } else { &[0] }) as ValueBytes<'_>)
        },
        _ => text_bytes(values),
    };
    bytes.ok_or_else(|| {
        let what = format!("dictionaries of {} cannot be brought together", values.data_type());
        ArrowError::NotYetImplemented(what)
    })
}
