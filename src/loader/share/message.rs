//! What the loaders of a machine and their reader say to each other.

use super::begun::Begun;
use super::facts::Fact;
use crate::loader::{Batch, LoaderStats, NextBatch, Packs, Substituted, Unended};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::Piece;
use rowdex_order::sampler::State;
use rowdex_rows::Then;
use rowdex_share::{Reader, Writer};
use std::time::Duration;

/// Changes when messages change. Processes with another one are refused.
const PROTOCOL: u64 = 7;
const VERSION: &str = env!("CARGO_PKG_VERSION");

const HELLO: u8 = 1;
const TAKEN: u8 = 2;
const WELCOME: u8 = 3;
const FAILED: u8 = 4;
const BATCHES: u8 = 5;
const LOST: u8 = 6;
const END: u8 = 7;
const BYE: u8 = 8;
const WAITING: u8 = 9;
const AWAY: u8 = 10;
const LEAVING: u8 = 11;
const DIED: u8 = 12;

/// More than any rank.
const NO_RANK: u32 = u32::MAX;

/// The first message of a rank, and the first one of each place that it goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hello {
    /// How many times this end of a connection has said so. What is answered has the same number, so that the rank
    /// knows what was sent to it at a place before.
    pub(super) visit: u64,
    pub(super) rank: u32,
    /// Which of the rank's workers it is, if it is one.
    pub(super) worker: u64,
    /// How many workers the rank has; 0 if it has none.
    pub(super) workers: u64,
    /// The state of the rank's sampler, and that of its own.
    pub(super) state: State,
    pub(super) own: State,
    /// What their runs say of these two's epochs.
    pub(super) begun: [Begun; 2],
    /// The batch to begin with.
    pub(super) place: NextBatch,
    /// The epoch that the run ends before.
    pub(super) end: Option<u64>,
    pub(super) facts: Vec<Fact>,
}

impl Hello {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut message = Writer::tagged(HELLO);
        message.number(PROTOCOL).text(VERSION).number(self.visit).number(self.rank.into());
        message.number(self.worker).number(self.workers);
        for (State { fingerprint, epoch, consumed, .. }, begun) in [self.state, self.own].into_iter().zip(self.begun) {
            message.number(fingerprint).number(epoch).number(consumed);
            message.number(begun.start).number(begun.step.unwrap_or(0));
        }
        message.number(self.place.epoch).number(self.place.batch).number(self.end.unwrap_or(u64::MAX));
        message.number(self.facts.len() as u64);
        for Fact { name, value, said } in &self.facts {
            message.text(name).text(value).number((*said).into());
        }
        message.into_bytes()
    }
}

/// What a rank says to the reader.
#[derive(Debug)]
pub(super) enum Request {
    Hello(Box<Hello>),
    /// So many batches of so many bytes were taken.
    Taken(u64, u64),
    /// It waits for its next batch.
    Waiting,
    /// It goes to another place, and says where when it wants a batch from there.
    Away,
    /// It ends its connection, and does not die.
    Leaving,
}

impl Request {
    pub(super) fn parse(message: &[u8]) -> Result<Self> {
        let mut message = Reader::new(message);
        Ok(match message.tag()? {
            HELLO => {
                let (protocol, version) = (message.number()?, message.text()?);
                if (protocol, version) != (PROTOCOL, VERSION) {
                    let message = format!(
                        "this process has rowdex {version} (protocol {protocol}), and the reader of this machine has \
                         {VERSION} (protocol {PROTOCOL})"
                    );
                    return Err(Error::new(ErrorKind::InvalidArgument, message)
                        .with_hint("install the same version for all ranks"));
                }
                let visit = message.number()?;
                let rank = u32::try_from(message.number()?).unwrap_or(u32::MAX);
                let (worker, workers) = (message.number()?, message.number()?);
                let mut state = || {
                    let fingerprint = message.number()?;
                    let state = State { fingerprint, epoch: message.number()?, consumed: message.number()?, run: None };
                    let start = message.number()?;
                    let step = Some(message.number()?).filter(|step| *step > 0);
                    Ok((state, Begun { start, step }))
                };
                let ((state, of_rank), (own, of_own)) = (state()?, state()?);
                let begun = [of_rank, of_own];
                let place = NextBatch { epoch: message.number()?, batch: message.number()? };
                let end = Some(message.number()?).filter(|end| *end < u64::MAX);
                let facts = (0..message.count()?).map(|_| {
                    let (name, value) = (message.text()?, message.text()?);
                    Ok(Fact::new(name, value, message.number()? != 0))
                });
                let facts = facts.collect::<Result<_>>()?;
                Self::Hello(Box::new(Hello { visit, rank, worker, workers, state, own, begun, place, end, facts }))
            }
            TAKEN => Self::Taken(message.number()?, message.number()?),
            WAITING => Self::Waiting,
            AWAY => Self::Away,
            LEAVING => Self::Leaving,
            _ => return Err(unknown()),
        })
    }
}

pub(super) fn taken(batches: u64, bytes: u64) -> Vec<u8> {
    let mut message = Writer::tagged(TAKEN);
    message.number(batches).number(bytes);
    message.into_bytes()
}

pub(super) fn waiting() -> Vec<u8> {
    Writer::tagged(WAITING).into_bytes()
}

pub(super) fn away() -> Vec<u8> {
    Writer::tagged(AWAY).into_bytes()
}

pub(super) fn leaving() -> Vec<u8> {
    Writer::tagged(LEAVING).into_bytes()
}

/// What the reader says to a rank.
#[derive(Debug)]
pub(super) enum Answer {
    /// The rank that the reader is with, unless it is with none.
    Welcome(Option<u32>),
    /// Nothing comes after it.
    Failed(Error),
    /// A file with batches comes along.
    Batches(Parcel),
    /// A row group is lost.
    Lost(u32, Error),
    /// Another rank has died, and nobody is to go on without it. It is for a rank wherever that goes.
    Died(Error),
    /// The run is over.
    End,
    /// The reader ends, and so many ranks may meet again.
    Bye(u32),
}

/// What a memory file has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parcel {
    /// Bytes of the Arrow stream, and of all.
    pub(super) stream: u64,
    pub(super) length: u64,
    pub(super) rows: u64,
    pub(super) batches: u64,
    pub(super) stats: LoaderStats,
}

impl Answer {
    /// To a rank at a visit, which comes last in the message: before it is what a rank must understand to know why it
    /// is refused.
    pub(super) fn to_bytes(&self, visit: u64) -> Vec<u8> {
        let mut message = match self {
            Self::Welcome(rank) => {
                let mut message = Writer::tagged(WELCOME);
                message.number(rank.unwrap_or(NO_RANK).into());
                message
            }
            Self::Failed(error) => {
                let mut message = Writer::tagged(FAILED);
                message.error(error);
                message
            }
            Self::Batches(parcel) => {
                let mut message = Writer::tagged(BATCHES);
                message.number(parcel.stream).number(parcel.length).number(parcel.rows).number(parcel.batches);
                for number in numbers(&parcel.stats) {
                    message.number(number);
                }
                message
            }
            Self::Lost(row_group, error) => {
                let mut message = Writer::tagged(LOST);
                message.number((*row_group).into()).error(error);
                message
            }
            Self::Died(error) => {
                let mut message = Writer::tagged(DIED);
                message.error(error);
                message
            }
            Self::End => Writer::tagged(END),
            Self::Bye(left) => {
                let mut message = Writer::tagged(BYE);
                message.number((*left).into());
                message
            }
        };
        message.number(visit);
        message.into_bytes()
    }

    /// An answer, and the visit that it is for.
    pub(super) fn parse(message: &[u8]) -> Result<(u64, Self)> {
        let mut message = Reader::new(message);
        let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let answer = match message.tag()? {
            WELCOME => Self::Welcome(Some(short(message.number()?)).filter(|rank| *rank != NO_RANK)),
            FAILED => Self::Failed(message.error()?),
            BATCHES => {
                let (stream, length) = (message.number()?, message.number()?);
                let (rows, batches) = (message.number()?, message.number()?);
                let mut numbers = [0; NUMBERS];
                for number in &mut numbers {
                    *number = message.number()?;
                }
                Self::Batches(Parcel { stream, length, rows, batches, stats: stats(numbers) })
            }
            LOST => Self::Lost(short(message.number()?), message.error()?),
            DIED => Self::Died(message.error()?),
            END => Self::End,
            BYE => Self::Bye(short(message.number()?)),
            _ => return Err(unknown()),
        };
        Ok((message.number()?, answer))
    }
}

const NUMBERS: usize = 12;

fn numbers(stats: &LoaderStats) -> [u64; NUMBERS] {
    let LoaderStats { decodes, extractions, substituted, rows, held_bytes, peak_bytes, .. } = *stats;
    let [planning, decoding, extracting, assembling] =
        [stats.planning, stats.decoding, stats.extracting, stats.assembling].map(|time| time.as_nanos() as u64);
    let (drift, window) = (stats.drift, stats.window_bytes);
    [
        decodes,
        extractions,
        substituted,
        rows,
        held_bytes,
        peak_bytes,
        planning,
        decoding,
        extracting,
        assembling,
        drift,
        window,
    ]
}

fn stats(numbers: [u64; NUMBERS]) -> LoaderStats {
    let [
        decodes,
        extractions,
        substituted,
        rows,
        held_bytes,
        peak_bytes,
        planning,
        decoding,
        extracting,
        assembling,
        drift,
        window_bytes,
    ] = numbers;
    let [planning, decoding, extracting, assembling] =
        [planning, decoding, extracting, assembling].map(Duration::from_nanos);
    LoaderStats {
        decodes,
        extractions,
        substituted,
        rows,
        held_bytes,
        peak_bytes,
        planning,
        decoding,
        extracting,
        assembling,
        drift,
        window_bytes,
    }
}

/// What a memory file says of its batches, behind their rows.
pub(super) fn describe(batches: &[Batch]) -> Vec<u8> {
    let mut about = Writer::default();
    for batch in batches {
        about.number(batch.epoch).number(batch.step).number(batch.steps).number(batch.row_ids.len() as u64);
        about.number(batch.pads as u64).number(batch.substituted.len() as u64);
        for row in &batch.substituted {
            about.number(row.place as u64).number(row.lost);
        }
        for row in &batch.row_ids {
            about.number(*row);
        }
        describe_packs(&mut about, batch.packs.as_ref());
    }
    about.into_bytes()
}

const ROWS: u64 = 0;
const PACKS: u64 = 1;

/// The packs of a batch, whose row ids are those of the pieces.
fn describe_packs(about: &mut Writer, packs: Option<&Packs>) {
    let Some(packs) = packs else {
        about.number(ROWS);
        return;
    };
    about.number(PACKS).number(packs.ends.len() as u64).number(packs.unended.len() as u64);
    packs.ends.iter().for_each(|end| {
        about.number(*end as u64);
    });
    about.number(packs.behind.len() as u64);
    packs.behind.iter().for_each(|item| {
        about.number(*item);
    });
    for piece in &packs.pieces {
        about.number(piece.offset).number(piece.length);
    }
    for Unended { place, then } in &packs.unended {
        let (is_served, token) = match then {
            Then::Token(token) => (true, *token),
            _ => (false, 0),
        };
        about.number(*place as u64).number(is_served.into()).number(token as u64);
    }
}

/// Packs as they were described, of pieces of these rows.
fn parse_packs(about: &mut Reader<'_>, rows: &[u64]) -> Result<Option<PacksSent>> {
    if about.number()? == ROWS {
        return Ok(None);
    }
    let (packs, unended) = (about.count()?, about.count()?);
    if unended > rows.len() {
        return Err(unknown());
    }
    let ends = (0..packs).map(|_| about.count()).collect::<Result<Vec<_>>>()?;
    let behind = (0..about.count()?).map(|_| about.number()).collect::<Result<Vec<_>>>()?;
    let piece = |row: &u64| Ok(Piece { row: *row, offset: about.number()?, length: about.number()? });
    let pieces = rows.iter().map(piece).collect::<Result<Vec<_>>>()?;
    let unended = (0..unended).map(|_| {
        let (place, is_served, token) = (about.count()?, about.number()? != 0, about.number()? as i64);
        Ok(Unended { place, then: if is_served { Then::Token(token) } else { Then::Nothing } })
    });
    let unended = unended.collect::<Result<Vec<_>>>()?;
    let is_sound = ends.is_sorted() && ends.last().is_none_or(|last| *last == rows.len());
    match is_sound && unended.is_sorted_by(|a, b| a.place < b.place) {
        true => Ok(Some(PacksSent { pieces, ends, unended, behind })),
        false => Err(unknown()),
    }
}

/// Packs without what both sides know of them.
#[derive(Debug)]
pub(super) struct PacksSent {
    pub(super) pieces: Vec<Piece>,
    pub(super) ends: Vec<usize>,
    pub(super) unended: Vec<Unended>,
    pub(super) behind: Vec<u64>,
}

/// A batch without its rows.
#[derive(Debug)]
pub(super) struct About {
    pub(super) epoch: u64,
    pub(super) step: u64,
    pub(super) steps: u64,
    pub(super) row_ids: Vec<u64>,
    pub(super) substituted: Vec<Substituted>,
    pub(super) pads: usize,
    pub(super) packs: Option<PacksSent>,
}

impl About {
    /// Of a file with so many rows.
    pub(super) fn parse(about: &mut Reader<'_>, rows: usize) -> Result<Self> {
        let (epoch, step, steps) = (about.number()?, about.number()?, about.number()?);
        let (own, pads, replaced) = (about.count()?, about.count()?, about.count()?);
        if own > rows || pads > own || replaced > own {
            return Err(unknown());
        }
        let substituted = (0..replaced).map(|_| Ok(Substituted { place: about.count()?, lost: about.number()? }));
        let substituted = substituted.collect::<Result<Vec<_>>>()?;
        let row_ids = (0..own).map(|_| about.number()).collect::<Result<Vec<_>>>()?;
        if substituted.iter().any(|row| row.place >= own) {
            return Err(unknown());
        }
        let packs = parse_packs(about, &row_ids)?;
        Ok(Self { epoch, step, steps, row_ids, substituted, pads, packs })
    }
}

fn unknown() -> Error {
    Error::new(ErrorKind::Internal, "another process of this machine sent what is no message of rowdex")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            visit: 6,
            rank: 3,
            worker: 9,
            workers: 11,
            state: State { fingerprint: 1, epoch: 2, consumed: 3, run: None },
            own: State { fingerprint: 4, epoch: 5, consumed: 6, run: None },
            begun: [Begun { start: 2, step: None }, Begun { start: 5, step: Some(7) }],
            place: NextBatch { epoch: 4, batch: 5 },
            end: None,
            facts: vec![Fact::new("memory", "7", true), Fact::new("threads", "2", false)],
        }
    }

    #[test]
    fn a_rank_is_understood() {
        for hello in [hello(), Hello { end: Some(7), facts: Vec::new(), ..hello() }] {
            let Request::Hello(read) = Request::parse(&hello.to_bytes()).unwrap() else { panic!() };
            assert_eq!(*read, hello);
        }
        assert!(matches!(Request::parse(&taken(3, 4)).unwrap(), Request::Taken(3, 4)));
        assert!(matches!(Request::parse(&waiting()).unwrap(), Request::Waiting));
        assert!(matches!(Request::parse(&away()).unwrap(), Request::Away));
        assert!(matches!(Request::parse(&leaving()).unwrap(), Request::Leaving));
    }

    #[test]
    fn another_version_is_refused_by_name() {
        let mut message = hello().to_bytes();
        message[1] = 9;
        let error = Request::parse(&message).unwrap_err();
        assert!(error.to_string().contains("protocol 9"), "{error}");
        assert!(error.to_string().contains(VERSION), "{error}");
    }

    #[test]
    fn an_answer_is_understood() {
        let numbers = std::array::from_fn(|number| number as u64 + 1);
        let parcel = Parcel { stream: 1, length: 2, rows: 3, batches: 4, stats: stats(numbers) };
        assert_eq!(self::numbers(&parcel.stats), numbers);
        let there_and_back = |answer: Answer| Answer::parse(&answer.to_bytes(8)).unwrap();
        let (8, Answer::Batches(read)) = there_and_back(Answer::Batches(parcel.clone())) else { panic!() };
        assert_eq!(read, parcel);
        for rank in [Some(2), None] {
            let (8, Answer::Welcome(read)) = there_and_back(Answer::Welcome(rank)) else { panic!() };
            assert_eq!(read, rank);
        }
        assert!(matches!(there_and_back(Answer::Bye(2)), (8, Answer::Bye(2))));
        assert!(matches!(there_and_back(Answer::End), (8, Answer::End)));
        let error = || Error::new(ErrorKind::Stale, "x").with_file("y");
        let (8, Answer::Lost(7, lost)) = there_and_back(Answer::Lost(7, error())) else { panic!() };
        let (8, Answer::Failed(failed)) = there_and_back(Answer::Failed(error())) else { panic!() };
        let (8, Answer::Died(died)) = there_and_back(Answer::Died(error())) else { panic!() };
        assert_eq!(died.to_string(), failed.to_string());
        assert_eq!((lost.to_string(), failed.to_string()), (error().to_string(), error().to_string()));
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for message in [&[][..], &[0], &[255, 1, 2], &[BATCHES, 1]] {
            assert!(Answer::parse(message).is_err() && Request::parse(message).is_err(), "{message:?}");
        }
    }
}
