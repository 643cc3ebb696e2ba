//! What the loaders of a machine and their reader say to each other.

use serde::{Deserialize, Serialize};

use super::Fact;
use crate::loader::{Batch, LoaderStats, LostGroup, NextBatch, Substituted};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::Piece;
use rowdex_order::sampler::{DistributedSampler, State};
use rowdex_share::MOST_MESSAGE;

/// Of both ends: the bytes of a message are those of one version.
pub(in crate::loader) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A text of an error that does not fit a message is cut.
const MOST_TEXT: usize = 8 << 10;

/// What a rank says to the reader.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// The first message of a connection.
    Hello(Box<Hello>),
    /// So many batches of so many bytes were taken.
    Taken { batches: u64, bytes: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    // First, so that any version reads it.
    pub(super) version: String,
    pub(super) rank: u32,
    /// Which of the rank's workers it is, of how many, if it is one.
    pub(super) worker: Option<(u64, u64)>,
    /// Where the rank's sampler stands, and its own.
    pub(super) state: Standpoint,
    pub(super) own: Standpoint,
    /// The batch to begin with.
    pub(super) place: NextBatch,
    /// The epoch that the run ends before.
    pub(super) end: Option<u64>,
    /// Those that the rank has chosen.
    pub(super) facts: Vec<Fact>,
}

/// A state, for whoever has a sampler like the one that is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Standpoint {
    fingerprint: u64,
    epoch: u64,
    consumed: u64,
    /// Where this world took the epoch over, and for steps of how many rows its buckets are cut.
    run: Option<(u64, Option<u64>)>,
}

impl Standpoint {
    pub(super) fn of(sampler: &DistributedSampler) -> Self {
        let State { fingerprint, epoch, consumed, run } = sampler.state();
        Self { fingerprint, epoch, consumed, run: run.map(|run| (run.start, run.step)) }
    }

    /// Brings a sampler to where the other one stands.
    pub(super) fn bring(self, sampler: &mut DistributedSampler) -> Result<()> {
        let Self { fingerprint, epoch, consumed, run } = self;
        let mut state = State { fingerprint, epoch, consumed, ..sampler.state() };
        if let (Some(own), Some(run)) = (&mut state.run, run) {
            (own.start, own.step) = run;
        }
        sampler.resume(&state)
    }
}

/// What the reader says to a rank where it does not tell an error, after which nothing comes: what a memory file has
/// that comes along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Parcel {
    /// Bytes of the Arrow stream, and of all.
    pub(super) stream: u64,
    pub(super) length: u64,
    pub(super) rows: u64,
    pub(super) batches: u64,
    pub(super) stats: LoaderStats,
}

/// An error in the place of a [`Parcel`], of which the text alone is told if all of it does not fit a message.
pub(in crate::loader) fn failure(error: &Error) -> Vec<u8> {
    let whole = bytes(&Err::<Parcel, _>(error));
    if whole.len() <= MOST_MESSAGE {
        return whole;
    }
    let mut text = error.to_string();
    text.truncate(text.floor_char_boundary(MOST_TEXT));
    bytes(&Err::<Parcel, _>(Error::new(error.kind(), text)))
}

/// What another process of this machine has said.
pub(super) fn parse<'a, T: Deserialize<'a>>(message: &'a [u8]) -> Result<T> {
    postcard::from_bytes(message).map_err(|_| garbled())
}

/// What a rank has said, of whichever version it is.
pub(super) fn parse_request(message: &[u8]) -> Result<Request> {
    if let Ok(((0_u32, version), _)) = postcard::take_from_bytes::<(u32, &str)>(message) {
        check_version(version)?;
    }
    parse(message)
}

/// Refuses what a rank of another version says.
pub(in crate::loader) fn check_version(version: &str) -> Result<()> {
    if version == VERSION {
        return Ok(());
    }
    let message = format!("this process has rowdex {version}, and the reader of this machine has rowdex {VERSION}");
    Err(Error::new(ErrorKind::InvalidArgument, message)
        .with_hint("install the same version for all ranks, and give that program to the share"))
}

pub(in crate::loader) fn bytes(value: &impl Serialize) -> Vec<u8> {
    // Plain values into memory: nothing that can fail.
    postcard::to_allocvec(value).unwrap_or_default()
}

pub(in crate::loader) fn garbled() -> Error {
    Error::new(ErrorKind::Internal, "another process of this machine sent what is no message of rowdex")
}

/// A batch without its rows, as a memory file has it behind them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) epoch: u64,
    pub(super) step: u64,
    pub(super) steps: u64,
    pub(super) row_ids: Vec<u64>,
    pub(super) positions: Vec<u64>,
    pub(super) substituted: Vec<Substituted>,
    pub(super) pads: usize,
    pub(super) packs: Option<PacksSent>,
}

/// Packs without what both sides know of them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PacksSent {
    pub(super) pieces: Vec<Piece>,
    pub(super) ends: Vec<usize>,
    pub(super) unended: Vec<crate::loader::Unended>,
    pub(super) behind: Vec<u64>,
}

/// What a memory file says of its batches, and of the row groups that are lost.
pub(super) fn describe(batches: &[Batch], lost: &[LostGroup]) -> Vec<u8> {
    let about = batches.iter().map(|batch| About {
        epoch: batch.epoch,
        step: batch.step,
        steps: batch.steps,
        row_ids: batch.row_ids.clone(),
        positions: batch.positions.clone(),
        substituted: batch.substituted.clone(),
        pads: batch.pads,
        packs: batch.packs.as_ref().map(|packs| PacksSent {
            pieces: packs.pieces.clone(),
            ends: packs.ends.clone(),
            unended: packs.unended.clone(),
            behind: packs.behind.clone(),
        }),
    });
    bytes(&(lost, about.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(version: &str) -> Hello {
        Hello {
            version: version.to_owned(),
            rank: 3,
            worker: Some((9, 11)),
            state: Standpoint { fingerprint: 1, epoch: 2, consumed: 3, run: None },
            own: Standpoint { fingerprint: 4, epoch: 5, consumed: 6, run: Some((5, Some(7))) },
            place: NextBatch { epoch: 4, batch: 5 },
            end: Some(7),
            facts: vec![Fact { name: "memory".to_owned(), value: "7".to_owned(), said: true }],
        }
    }

    #[test]
    fn another_version_is_refused_by_name() {
        let sent = |version| bytes(&Request::Hello(Box::new(hello(version))));
        let error = parse_request(&sent("9.8.7")).unwrap_err();
        assert!(error.to_string().contains("rowdex 9.8.7") && error.to_string().contains(VERSION), "{error}");
        let Request::Hello(read) = parse_request(&sent(VERSION)).unwrap() else { panic!() };
        assert_eq!(*read, hello(VERSION));
    }

    #[test]
    fn an_error_arrives_as_it_was_or_cut() {
        let error = Error::new(ErrorKind::InvalidParquet, "a page is damaged")
            .with_file("a/b.parquet")
            .with_location("a/b.parquet", || Some("/data/a/b.parquet".to_owned()))
            .with_row_group(3)
            .with_column("text")
            .with_hint("write it again");
        let arrived = |error: &Error| parse::<Result<Parcel>>(&failure(error)).unwrap().unwrap_err();
        let read = arrived(&error);
        assert_eq!((read.kind(), read.to_string()), (error.kind(), error.to_string()));
        assert_eq!((read.file(), read.row_group(), read.column()), (error.file(), error.row_group(), error.column()));
        let long = Error::new(ErrorKind::Io, "ä".repeat(MOST_MESSAGE));
        let cut = arrived(&long).to_string();
        assert!(cut.len() >= MOST_TEXT - 1 && long.to_string().starts_with(&cut[..MOST_TEXT - 2]));
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for message in [&[][..], &[9], &[255, 1, 2], &[0, 1]] {
            assert!(parse::<Result<Parcel>>(message).is_err());
            assert!(parse_request(message).is_err(), "{message:?}");
        }
    }
}
