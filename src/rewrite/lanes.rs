//! Row groups that are encoded beside each other while the rows of the next one come.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::sync::mpsc::{Receiver, sync_channel};

use arrow::array::RecordBatch;
use rayon::{Scope, ThreadPool};

use super::encode::{EncodedGroup, Encoding};
use super::shape::Group;
use super::within;
use super::write::{Writer, Writing};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop::{self, Asked};

/// Row groups on their way from rows, which come in order, to files.
pub(super) struct Lanes<'s, 'scope, 'a: 'scope> {
    pool: &'a ThreadPool,
    scope: &'s Scope<'scope>,
    encoding: &'a Encoding,
    writer: Writer<'a>,
    most: usize,
    /// Rows of a row group of which some have not come.
    rows: Vec<RecordBatch>,
    encoded: VecDeque<(Group, Receiver<Result<EncodedGroup>>)>,
}

impl<'s, 'scope, 'a: 'scope> Lanes<'s, 'scope, 'a> {
    /// Encodes at most so many row groups at once, of which all rows are in memory. One that would be alone is encoded
    /// as its rows come, which takes less.
    pub(super) fn new(pool: &'a ThreadPool, scope: &'s Scope<'scope>, writing: &'a Writing<'a>, most: usize) -> Self {
        let (writer, rows, encoded) = (Writer::new(writing), Vec::new(), VecDeque::new());
        Self { pool, scope, encoding: writing.encoding, writer, most, rows, encoded }
    }

    /// Takes the rows at the next positions, which are of this row group.
    pub(super) fn add(&mut self, group: Group, positions: Range<u64>, rows: RecordBatch) -> Result<()> {
        if self.most < 2 {
            return within(self.pool, || self.writer.add_rows(&group, positions, rows));
        }
        self.rows.push(rows);
        if positions.end < group.positions.end {
            return Ok(());
        }
        if self.encoded.len() >= self.most {
            self.put()?;
        }
        let (sender, receiver) = sync_channel(1);
        let (rows, encoding, asked) = (mem::take(&mut self.rows), self.encoding, Asked::of_thread());
        self.scope.spawn(move |_| {
            let _asked = asked.map(Asked::enter);
            // After an error nobody waits for it.
            let _ = sender.send(encode(encoding, rows));
        });
        self.encoded.push_back((group, receiver));
        Ok(())
    }

    /// Writes the row groups that are left.
    pub(super) fn finish(mut self) -> Result<()> {
        while !self.encoded.is_empty() {
            self.put()?;
        }
        Ok(())
    }

    fn put(&mut self) -> Result<()> {
        let Some((group, encoded)) = self.encoded.pop_front() else { return Ok(()) };
        let lost = |_| Error::new(ErrorKind::Internal, "encoding rows has panicked");
        self.writer.put(&group, encoded.recv().map_err(lost)??)
    }
}

fn encode(encoding: &Encoding, rows: Vec<RecordBatch>) -> Result<EncodedGroup> {
    let mut encoder = encoding.group()?;
    for rows in rows {
        stop::check()?;
        encoder.add(rows)?;
    }
    encoder.finish()
}
