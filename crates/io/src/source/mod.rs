//! Where bytes come from: ranged reads of whole files, by path.
//!
//! Decoding asks a [`Source`] for byte ranges and never sees a file, so that a local directory, an object store and a
//! buffer in a test are all the same to it.

mod hub_place;
mod local;
#[cfg_attr(not(feature = "object-store"), path = "object_absent.rs")]
mod object;
mod options;
mod pending;
mod percent;
pub mod place;

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::place::Place;
use rowdex_base::error::{Error, ErrorKind, Result};

pub use local::LocalSource;
pub use object::{ObjectSource, ObjectWriter};
pub use options::{StoreOptions, UploadOptions};
pub use pending::{Done, Pending};

/// What identifies the present content of a file, as far as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FileStat {
    /// Length in bytes.
    pub size: u64,
    /// Time of the last modification in nanoseconds since the Unix epoch; `None` where the store has no such time.
    pub mtime_ns: Option<i64>,
    /// The store's own version tag; `None` for local files.
    pub etag: Option<String>,
}

impl FileStat {
    /// Whether a file that looks like `now` may have this content: as long, and with the same tag where both have
    /// one, or else of the same time.
    ///
    /// A file with a tag and one without were not looked at in the same store, so their times say nothing.
    pub fn may_be(&self, now: &Self) -> bool {
        self.size == now.size
            && match (&self.etag, &now.etag) {
                (Some(then), Some(now)) => bare(then) == bare(now),
                (None, None) => self.mtime_ns.is_none() || now.mtime_ns.is_none() || self.mtime_ns == now.mtime_ns,
                _ => true,
            }
    }

    /// Whether tag or time prove that a file that looks like `now` has this content.
    pub fn is_surely(&self, now: &Self) -> bool {
        let same_tag = self.etag.is_some() && now.etag.is_some();
        let same_time = self.mtime_ns.is_some() && self.mtime_ns == now.mtime_ns;
        self.may_be(now) && (same_tag || same_time)
    }
}

/// What is compared of a tag: listings and answers of one store may differ in the quotes, and a server that compresses
/// answers makes the tag of the same file a weak one.
fn bare(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

/// What a source has moved so far, in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Traffic {
    /// Requests sent to a store, repetitions after faults among them.
    pub requests: u64,
    /// Bytes of files received in answer.
    pub bytes: u64,
}

/// How fast a store answers, as measured lately.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// From sending a request to the beginning of its answer.
    pub latency: Duration,
    /// What all requests together brought.
    pub bytes_per_second: f64,
}

impl Link {
    /// Bytes that have to be on their way for the link never to be idle: latency times rate.
    pub fn bandwidth_delay(&self) -> u64 {
        (self.latency.as_secs_f64() * self.bytes_per_second) as u64
    }
}

/// The source of the files below a place.
pub fn open(place: Place, options: &StoreOptions) -> Result<Arc<dyn Source>> {
    Ok(match place {
        Place::Local(folder) => Arc::new(LocalSource::new(folder)),
        Place::Remote(url) => Arc::new(ObjectSource::at(url, options)?),
    })
}

/// What to do about a file that an index has and its root does not.
const VANISHED: &str = "it vanished since the index was built, or the root is another one: restore it, name the root, \
                        or build the index again";

/// Random access to files by `/`-separated paths below one root.
///
/// Implementations are shared by many threads. They hold nothing between two calls that a read could disturb, such as
/// a seek position.
pub trait Source: Debug + Send + Sync {
    /// Size, modification time and version tag of `path` as [`read`](Source::read) would see it now.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such file, [`ErrorKind::Io`] if it cannot be asked for or is not a file.
    fn stat(&self, path: &str) -> Result<FileStat>;

    /// How much of the end of a file to read when the length of its footer is not known, in bytes.
    ///
    /// Where a request costs much, one that is too long is cheaper than a second one.
    fn footer_guess(&self) -> u64 {
        64 << 10
    }

    /// The last `length` bytes of a file, or all of a shorter one, and its [`stat`](Source::stat). Where requests
    /// cost much, it takes one.
    ///
    /// `expected` is what the file was like when it was listed or indexed, if it was. A source that [is
    /// remote](Source::is_remote) gives [`ErrorKind::Stale`] if it is no longer so.
    ///
    /// # Errors
    ///
    /// As for [`stat`](Source::stat).
    fn end(&self, path: &str, length: u64, expected: Option<&FileStat>) -> Result<(FileStat, Bytes)> {
        let _ = expected;
        let stat = self.stat(path)?;
        let range = stat.size.saturating_sub(length)..stat.size;
        let mut bytes = self.read(path, std::slice::from_ref(&range))?;
        let bytes =
            bytes.pop().ok_or_else(|| Error::new(ErrorKind::Internal, "the source answered a read with nothing"))?;
        Ok((stat, bytes))
    }

    /// As [`read`](Source::read), of the content that `then` is of, if it is given: of any other content it gives
    /// [`ErrorKind::Stale`] and no byte.
    ///
    /// Unless a source knows a cheaper way, it reads, and then compares [`stat`](Source::stat).
    ///
    /// # Errors
    ///
    /// As for [`read`](Source::read), and [`ErrorKind::Stale`].
    fn read_unchanged(&self, path: &str, then: Option<&FileStat>, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let read = self.read(path, ranges);
        let Some(then) = then else { return read };
        // A file that is overwritten while it is read may end early, and that it changed is the better advice.
        match self.stat(path) {
            Ok(now) if !then.may_be(&now) => Err(changed(path, then, &now)),
            _ => read,
        }
    }

    /// As [`read_unchanged`](Source::read_unchanged), with separate memory for each range, so that each can be freed
    /// alone.
    ///
    /// # Errors
    ///
    /// As for [`read_unchanged`](Source::read_unchanged).
    fn read_each_unchanged(&self, path: &str, then: Option<&FileStat>, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let each = ranges.iter().map(|range| self.read_unchanged(path, then, std::slice::from_ref(range)));
        each.map(|read| read.map(|read| read.into_iter().next().unwrap_or_default())).collect()
    }

    /// Starts [`read_unchanged`](Source::read_unchanged) and returns at once; `None` where reading ahead gains nothing.
    fn begin(&self, path: &str, stat: &FileStat, ranges: &[Range<u64>]) -> Option<Pending<Vec<Bytes>>> {
        let _ = (path, stat, ranges);
        None
    }

    /// Whether every call is a request that takes long, and [`read_unchanged`](Source::read_unchanged) compares
    /// entity tags.
    fn is_remote(&self) -> bool {
        false
    }

    /// What it has moved so far; zeros where it does not count.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    /// How fast it answers; `None` before anything was read, and where that is no question.
    fn link(&self) -> Option<Link> {
        None
    }

    /// How many requests a [`read`](Source::read) of these ranges takes where nothing fails; 0 where it is none that
    /// anybody counts.
    fn requests(&self, ranges: &[Range<u64>]) -> u64 {
        let _ = ranges;
        0
    }

    /// Where a user finds this file, as messages name it: a path or a URL. `None` if `path` itself says it.
    fn location(&self, path: &str) -> Option<String> {
        let _ = path;
        None
    }

    /// The bytes of every range, in the order asked. Neighbouring ranges are fetched together.
    ///
    /// Each buffer is exactly as long as its range: a file that ends early returns an error, never a short buffer.
    ///
    /// # Errors
    ///
    /// As for [`stat`](Source::stat), and [`ErrorKind::Io`] if a range reaches beyond the end of the file.
    fn read(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>>;
}

/// The error of a file that is not like `then` any more.
pub fn changed(path: &str, then: &FileStat, now: &FileStat) -> Error {
    let message = match then.size == now.size {
        true => "it was modified after it was opened".to_owned(),
        false => format!("it is {} bytes long, and was {} when it was opened", now.size, then.size),
    };
    Error::new(ErrorKind::Stale, message)
        .with_file(path)
        .with_hint("write data to new files while others are read; then build the index again, or update it")
}

/// Joins ranges into fewer, larger reads: two ranges with at most `gap` bytes between them become one, unless that
/// makes a read longer than `max`. A range that is itself longer than `max` stays whole.
///
/// The result is sorted, and every non-empty range lies inside exactly one of its members. Empty ranges need no read
/// and are left out.
pub fn coalesce(ranges: &[Range<u64>], gap: u64, max: u64) -> Vec<Range<u64>> {
    let mut sorted: Vec<Range<u64>> = ranges.iter().filter(|range| range.start < range.end).cloned().collect();
    sorted.sort_unstable_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match joined.last_mut() {
            // Overlapping ranges are joined whatever `max` says, because a range must not be split over two reads.
            Some(last)
                if range.start < last.end
                    || (range.start - last.end <= gap && range.end.saturating_sub(last.start) <= max) =>
            {
                last.end = last.end.max(range.end);
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// Cuts `ranges` out of what was `fetched` for `reads`, sorted and disjoint.
pub fn cut(reads: &[Range<u64>], fetched: &[Bytes], ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
    let cut = |range: &Range<u64>| {
        if range.start >= range.end {
            return Ok(Bytes::new());
        }
        let place = reads.partition_point(|read| read.start <= range.start).checked_sub(1);
        place
            .and_then(|place| {
                let start = usize::try_from(range.start - reads[place].start).ok()?;
                let end = usize::try_from(range.end - reads[place].start).ok()?;
                (end <= fetched[place].len()).then(|| fetched[place].slice(start..end))
            })
            .ok_or_else(|| Error::new(ErrorKind::Internal, format!("the coalesced reads do not cover {range:?}")))
    };
    ranges.iter().map(cut).collect()
}

fn short_read(range: &Range<u64>, got: usize) -> Error {
    Error::new(ErrorKind::Io, format!("bytes {} to {} asked for, only {got} of them are there", range.start, range.end))
        .with_hint("the file is shorter than when it was indexed; build the index again")
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one range is a list of ranges here")]
mod tests {
    use super::*;

    #[test]
    fn near_ranges_are_joined_up_to_the_gap_and_the_maximum() {
        type Ranges = &'static [Range<u64>];
        let cases: &[(Ranges, u64, u64, Ranges)] = &[
            (&[], 8, 100, &[]),
            (&[5..5], 8, 100, &[]),
            (&[0..4, 4..8], 0, 100, &[0..8]),
            (&[0..4, 5..8], 0, 100, &[0..4, 5..8]),
            (&[0..4, 12..16], 8, 100, &[0..16]),
            (&[0..4, 13..16], 8, 100, &[0..4, 13..16]),
            (&[12..16, 0..4], 8, 100, &[0..16]),
            (&[0..60, 60..120], 8, 100, &[0..60, 60..120]),
            (&[0..200, 200..201], 8, 100, &[0..200, 200..201]),
            (&[0..60, 10..20, 50..120], 8, 100, &[0..120]),
            (&[0..4, 0..4], 0, 100, &[0..4]),
            (&[u64::MAX - 2..u64::MAX, 0..1], u64::MAX, 8, &[0..1, u64::MAX - 2..u64::MAX]),
        ];
        for (ranges, gap, max, want) in cases {
            assert_eq!(&coalesce(ranges, *gap, *max), want, "{ranges:?} with gap {gap} and at most {max}");
        }
    }

    #[test]
    fn every_range_comes_back_whole_and_in_the_order_asked() {
        let file: Bytes = (0..=255u8).collect::<Vec<_>>().into();
        let ranges = [200..210, 3..3, 0..10, 5..20, 250..256, 21..30];
        let reads = coalesce(&ranges, 2, 64);
        assert_eq!(reads.len(), 3);
        let of_file = |range: &Range<u64>| file.slice(range.start as usize..range.end as usize);
        let fetched: Vec<Bytes> = reads.iter().map(of_file).collect();
        let got = cut(&reads, &fetched, &ranges).unwrap();
        for (range, bytes) in ranges.iter().zip(got) {
            assert_eq!(bytes, file.slice(range.start as usize..range.end as usize));
        }
    }
}
