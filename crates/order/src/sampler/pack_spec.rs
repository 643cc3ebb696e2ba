//! What a batch of packs is, as users describe it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::Tail;
use crate::{Algorithm, Cost, JoinedLengths, Lengths, Overflow, Pack};
use rowdex_base::error::{Error, Result};

/// By which lengths rows are packed, and how: the value that the command line, C and Python hand over.
///
/// Written and parsed as the name of the lengths and the capacity, and then what is not the default:
/// `tokens:8192,overflow=truncate,extra=2,cost=24576-1`. The names are those of the fields of [`Pack`], and `cost` is
/// written as [`Cost`] is. Of [buckets](Pack::buckets), the word `buckets` stands in the place of the capacity, which
/// is an option: `tokens:buckets,block=4096`. A second limit is `second=images-16`, the name of the second numbers and
/// the most of them; rows that are too long are then refused unless `overflow` is said, and blocks have
/// [`WITHIN`](Pack::WITHIN) positions. The name of the lengths may have any character, colons included.
///
/// ```
/// # mod rowdex { pub use rowdex_base::error::Result; pub use rowdex_order::{self as order, sampler}; }
/// use rowdex::order::{Algorithm, Pack};
/// use rowdex::sampler::PackSpec;
///
/// # fn main() -> rowdex::Result<()> {
/// let spec: PackSpec = "tokens:8192,algorithm=concat,extra=1".parse()?;
/// let pack = Pack { algorithm: Algorithm::Concat, extra: 1, ..Pack::of(8192) };
/// assert_eq!(spec, PackSpec::new("tokens", pack));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PackSpec {
    /// The name that the lengths are recorded by.
    pub lengths: String,
    /// The name that the second numbers are recorded by, of packs with two limits.
    pub second: Option<String>,
    /// How rows are packed.
    pub pack: Pack,
    /// By which cost packs of a step are assigned, if they are.
    pub cost: Option<Cost>,
}

impl PackSpec {
    /// Packs by these lengths, assigned as they come.
    pub fn new(lengths: impl Into<String>, pack: Pack) -> Self {
        Self { lengths: lengths.into(), second: None, pack, cost: None }
    }

    /// The lengths that it names, with the second numbers if it names any: `find` knows those of a name.
    ///
    /// # Errors
    ///
    /// Those of `find`, and of [`JoinedLengths::with_second`].
    pub fn lengths(&self, mut find: impl FnMut(&str) -> Result<Arc<dyn Lengths>>) -> Result<Arc<dyn Lengths>> {
        let lengths = find(&self.lengths)?;
        match &self.second {
            Some(second) => JoinedLengths::with_second(lengths, find(second)?),
            None => Ok(lengths),
        }
    }

    /// What becomes of packs that do not divide evenly, unless something else is asked for: none is lost, and none
    /// comes twice. Of buckets, which are rows, it is what becomes of rows.
    pub fn default_tail(&self) -> Tail {
        if self.pack.is_of_rows() { Tail::default() } else { Tail::Even }
    }

    /// How one algorithm treats rows that are too long, unless something else is asked for: batches of whole rows
    /// refuse them.
    pub fn default_of(algorithm: Algorithm, capacity: u64) -> Pack {
        match algorithm {
            Algorithm::Budget | Algorithm::Padded => Pack::budget(capacity, algorithm == Algorithm::Padded),
            Algorithm::Buckets => Pack { capacity, ..Pack::buckets(Pack::WITHIN) },
            Algorithm::BestFit | Algorithm::Concat => Pack { algorithm, ..Pack::of(capacity) },
        }
    }
}

impl fmt::Display for PackSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pack { capacity, overflow, algorithm, extra, multiple, max_pieces, second, block, empty } = self.pack;
        let usual = Self::default_of(algorithm, capacity);
        let buckets = self.pack.is_of_rows();
        write!(f, "{}:{}", self.lengths, if buckets { BUCKETS.to_owned() } else { capacity.to_string() })?;
        let said = [
            ("capacity", (buckets && capacity != Pack::MAX_CAPACITY).then(|| capacity.to_string())),
            ("algorithm", (algorithm != Algorithm::default() && !buckets).then(|| algorithm.to_string())),
            ("overflow", (overflow != usual.overflow).then(|| overflow.to_string())),
            ("extra", (extra != usual.extra).then(|| extra.to_string())),
            ("multiple", (multiple != usual.multiple).then(|| multiple.to_string())),
            ("max_pieces", max_pieces.map(|most| most.to_string())),
            ("second", second.map(|most| format!("{}-{most}", self.second.as_deref().unwrap_or_default()))),
            ("block", (block != usual.block).then(|| block.to_string())),
            ("empty", (empty != usual.empty).then(|| empty.to_string())),
            ("cost", self.cost.map(|cost| cost.to_string())),
        ];
        said.into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .try_for_each(|(key, value)| write!(f, ",{key}={value}"))
    }
}

impl FromStr for PackSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        const HINT: &str = "write the name of the lengths, a colon and the capacity, such as tokens:8192, and then \
                            options such as overflow=truncate or extra=2 with commas between them";
        let invalid = |message: String| Error::invalid(message).with_hint(HINT);
        let named = text.rsplit_once(':').filter(|(lengths, _)| !lengths.is_empty());
        let (lengths, said) = named.ok_or_else(|| invalid(format!("{text:?} names no lengths and a capacity")))?;
        let mut words = said.split(',');
        let first = words.next().unwrap_or_default();
        let buckets = first == BUCKETS;
        let capacity = if buckets { Some(Pack::MAX_CAPACITY) } else { first.parse().ok() };
        let capacity = capacity.ok_or_else(|| invalid(format!("{text:?} says no capacity in tokens")))?;
        let mut options = Vec::new();
        for word in words {
            let option = word.split_once('=').ok_or_else(|| invalid(format!("{word:?} is no option of a packing")))?;
            if options.iter().any(|(name, _)| *name == option.0) {
                return Err(invalid(format!("{} is said twice in {text:?}", option.0)));
            }
            options.push(option);
        }
        let said = options.iter().find(|(name, _)| *name == "algorithm");
        let algorithm = said.map_or(Ok(Algorithm::default()), |(_, algorithm)| algorithm.parse())?;
        if buckets != (algorithm == Algorithm::Buckets) && (said.is_some() || !buckets) {
            return Err(invalid(format!("{text:?} says two algorithms, or buckets by another name"))
                .with_hint("write the word in the place of the capacity: tokens:buckets"));
        }
        let algorithm = if buckets { Algorithm::Buckets } else { algorithm };
        let mut spec = Self::new(lengths, Self::default_of(algorithm, capacity));
        // First, as it changes what defaults are.
        options.sort_by_key(|(name, _)| *name != "second");
        for (name, value) in options {
            let number = || value.parse::<u64>().map_err(|_| invalid(format!("{name}={value:?} is no number")));
            let pack = &mut spec.pack;
            match name {
                "algorithm" => {}
                "capacity" if buckets => pack.capacity = number()?,
                "overflow" => pack.overflow = value.parse()?,
                "extra" => pack.extra = number()?,
                "multiple" => pack.multiple = number()?,
                "max_pieces" => pack.max_pieces = Some(pieces(number()?)),
                "second" => {
                    let named = value.rsplit_once('-').and_then(|(name, most)| Some((name, most.parse().ok()?)));
                    let (name, most) = named.ok_or_else(|| invalid(format!("{value:?} is no name and a limit")))?;
                    spec.second = Some(name.to_owned());
                    *pack = Pack { second: Some(most), overflow: Overflow::Error, block: Pack::WITHIN, ..*pack };
                }
                "block" => pack.block = number()?,
                "empty" => pack.empty = value.parse()?,
                "cost" => spec.cost = Some(value.parse()?),
                _ => {
                    return Err(Error::invalid(format!("no option of a packing is {name:?}")).with_hint(
                        "use algorithm, overflow, extra, multiple, max_pieces, second, block, empty or cost",
                    ));
                }
            }
        }
        spec.pack.check()?;
        Ok(spec)
    }
}

/// What is written in the place of the capacity.
const BUCKETS: &str = "buckets";

/// More pieces than a pack can have are no limit.
fn pieces(most: u64) -> u32 {
    u32::try_from(most).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Empty;
    use rowdex_base::error::ErrorKind;

    proptest! {
        #[test]
        fn a_packing_is_parsed_as_it_is_written(
            lengths in "[a-z.:, =]{1,12}",
            algorithm in prop::sample::select(vec!["bfd", "concat", "budget", "padded", "buckets"]),
            overflow in prop::sample::select(vec![Overflow::Truncate, Overflow::Drop, Overflow::Error]),
            capacity in 100_u64..100_000,
            (extra, multiple, block) in (0_u64..50, 1_u64..40, 1_u64..1 << 20),
            max_pieces in prop::option::of(1_u32..),
            cost in prop::option::of((any::<u64>(), any::<u64>())),
            keep in any::<bool>(),
        ) {
            let pack = PackSpec::default_of(algorithm.parse().unwrap(), capacity);
            let empty = if keep { Empty::Keep } else { Empty::Skip };
            let (empty, max_pieces) = if pack.is_of_rows() { (Empty::Keep, None) } else { (empty, max_pieces) };
            let pack = Pack { overflow, extra, multiple, max_pieces, block, empty, ..pack };
            let cost = cost.map(|(linear, quadratic)| Cost { linear, quadratic });
            let spec = PackSpec { cost, ..PackSpec::new(lengths, pack) };
            prop_assume!(pack.check().is_ok());
            prop_assert_eq!(spec.to_string().parse::<PackSpec>().unwrap(), spec);
        }
    }

    #[test]
    fn what_is_the_default_is_not_written() {
        for text in [
            "tokens:buckets",
            "tokens:buckets,capacity=4096,overflow=truncate,block=512",
            "tokens:8192",
            "tokens:65536,algorithm=padded",
            "tokens:8192,overflow=drop,second=im-ages-16,block=512",
            "a:b:7,overflow=drop,extra=2,cost=24576-1",
        ] {
            assert_eq!(text.parse::<PackSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_packing_is_refused_with_what_is_wrong_about_it() {
        for (text, word) in [
            ("", "names no lengths"),
            ("tokens", "names no lengths"),
            (":8192", "names no lengths"),
            ("tokens:", "capacity"),
            ("tokens:many", "capacity"),
            ("tokens:0", "capacity of 0"),
            ("tokens:-1", "capacity"),
            ("tokens:2147483648", "2147483648"),
            ("tokens:8192,", "no option"),
            ("tokens:8192,extra", "no option"),
            ("tokens:8192,width=3", "width"),
            ("tokens:8192,extra=x", "extra"),
            ("tokens:8192,extra=1,extra=2", "twice"),
            ("tokens:8,extra=8", "leave no place"),
            ("tokens:8,multiple=0", "multiple"),
            ("tokens:8,multiple=9", "multiple"),
            ("tokens:8,max_pieces=0", "0 pieces"),
            ("tokens:8,block=0", "blocks of 0"),
            ("tokens:8,second=images", "name and a limit"),
            ("tokens:8,overflow=split,second=images-4", "two limits"),
            ("tokens:8,second=images-4,algorithm=concat", "two limits"),
            ("tokens:8,overflow=spill", "spill"),
            ("tokens:8,algorithm=worst", "worst"),
            ("tokens:8,algorithm=budget,overflow=split", "split"),
            ("tokens:8,empty=maybe", "maybe"),
            ("tokens:8,cost=1", "cost"),
            ("tokens:8,algorithm=buckets", "buckets"),
            ("tokens:buckets,algorithm=bfd", "two algorithms"),
            ("tokens:8,capacity=9", "capacity"),
            ("tokens:buckets,overflow=split", "split"),
            ("tokens:buckets,overflow=drop", "drop"),
            ("tokens:buckets,empty=skip", "without"),
            ("tokens:buckets,max_pieces=4", "limit of pieces"),
            ("tokens:buckets,block=0", "blocks of 0"),
        ] {
            let error = text.parse::<PackSpec>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
            assert!(error.to_string().contains(word) && error.hint().is_some(), "{text}: {error}");
        }
    }
}
