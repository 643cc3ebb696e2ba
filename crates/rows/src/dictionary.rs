//! Dictionaries of many sources as one: a batch has one code for one value.
//!
//! Row groups have dictionaries of their own, mostly with the same values. Where all sources have the same one, its
//! codes are copied and it is shared. Otherwise the values that the rows use get new codes, in the order in which
//! they come.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{AnyDictionaryArray, Array, ArrayRef, UInt32Array, make_array};
use arrow_cast::{CastOptions, cast, cast_with_options};
use arrow_schema::ArrowError;
use arrow_schema::DataType;

use super::flat::{copy, native_values, only};
use super::picks::{BatchRow, Picks};
use super::uncopied;
use rowdex_base::error::Result;

/// Comparing dictionaries value by value pays where they have no more values than this for each row.
const COMPARED: usize = 32;

/// The code of a value that is null.
pub(super) const NULL: u32 = u32::MAX;

/// An array for each run, of dictionaries.
pub(super) fn dictionaries<P: Picks>(arrays: &[&dyn Array], runs: &[P]) -> Result<Vec<ArrayRef>, ArrowError> {
    let sources: Vec<&dyn AnyDictionaryArray> = arrays.iter().map(|array| array.as_any_dictionary()).collect();
    let keys: Vec<&dyn Array> = sources.iter().map(|source| source.keys()).collect();
    let keys = copy(&keys, runs, keys[0].data_type())?;
    let rows = runs.iter().map(Picks::count).sum();
    if are_same(&sources.iter().map(|source| source.values()).collect::<Vec<_>>(), rows) {
        return keys.iter().map(|keys| with_keys(keys, sources[0].values())).collect();
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
    for (run, keys) in runs.iter().zip(&keys) {
        let wide = cast(keys, &DataType::UInt32)?;
        let own = run.rows().zip(wide.as_primitive::<UInt32Type>());
        let code = |((source, _), key): ((usize, usize), Option<u32>)| {
            key.map_or(NULL, |key| codes.code(numbers[source], key as usize))
        };
        let own: Vec<u32> = own.map(code).collect();
        recoded.push(coded(keys.data_type(), &own, &codes.finish()?)?);
    }
    Ok(recoded)
}

/// A dictionary array of these codes, with keys of this type.
pub(super) fn coded(key: &DataType, codes: &[u32], values: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let wide: UInt32Array = codes.iter().map(|code| (*code != NULL).then_some(*code)).collect();
    let exactly = CastOptions { safe: false, ..CastOptions::default() };
    let keys = cast_with_options(&wide, key, &exactly).map_err(|_| ArrowError::DictionaryKeyOverflowError)?;
    with_keys(&keys, values)
}

fn with_keys(keys: &ArrayRef, values: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let [key, value] = [keys, values].map(|array| Box::new(array.data_type().clone()));
    let keys = keys.to_data().into_builder().data_type(DataType::Dictionary(key, value));
    let array = make_array(keys.child_data(vec![values.to_data()]).build()?);
    // Arrays of one dictionary have the same one, by which that is seen.
    Ok(array.as_any_dictionary().with_values(Arc::clone(values)))
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

/// The values of an array as a dictionary with such keys, in which each is once, in the order in which they come.
///
/// # Errors
/// [`ErrorKind::TooLarge`](rowdex_base::error::ErrorKind) if the values are too many for the keys.
pub fn encode(array: &ArrayRef, key: &DataType) -> Result<ArrayRef> {
    let encoded = || {
        let mut codes = Codes::new(&[array.as_ref()])?;
        let own: Vec<u32> = (0..array.len()).map(|row| codes.code(0, row)).collect();
        let values = codes.finish()?;
        coded(key, &own, &values)
    };
    encoded().map_err(uncopied)
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
pub(super) struct Codes<'a> {
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
    pub(super) fn new(dictionaries: &[&'a dyn Array]) -> Result<Self, ArrowError> {
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
    pub(super) fn code(&mut self, source: usize, value: usize) -> u32 {
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
    pub(super) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let values = copy(&self.dictionaries, &[&self.values[..]], self.dictionaries[0].data_type())?;
        for (source, value) in self.seen.drain(..) {
            self.known[source as usize][value as usize] = 0;
        }
        self.codes.clear();
        self.values.clear();
        only(values)
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
    let bytes = match (values.data_type().primitive_width(), values.as_boolean_opt()) {
        (Some(width), _) => {
            let bytes: &[u8] = native_values(values);
            Some(Box::new(move |at: usize| &bytes[at * width..(at + 1) * width]) as ValueBytes<'_>)
        }
        (_, Some(flags)) => {
            let bits = flags.values();
            Some(Box::new(move |at: usize| if bits.value(at) { &[1_u8][..] } else { &[0] }) as ValueBytes<'_>)
        }
        _ => text_bytes(values),
    };
    bytes.ok_or_else(|| {
        let what = format!("dictionaries of {} cannot be brought together", values.data_type());
        ArrowError::NotYetImplemented(what)
    })
}
