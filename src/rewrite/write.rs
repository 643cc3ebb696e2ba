//! The second pass: rows in their places, encoded row group by row group, file by file.

use std::collections::VecDeque;
use std::iter;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;

use arrow_array::UInt64Array;
use parquet::arrow::arrow_writer::ArrowColumnChunk;
use parquet::file::writer::SerializedFileWriter;
use rayon::Scope;

use super::Rewriting;
use super::bucket::Bucket;
use super::encode::{append, unwritten};
use super::output::OutFile;
use super::shape::OutputGroup;
use rowdex_base::error::{Error, Result};
use rowdex_base::stop::{self, Asked};

/// What jobs make on the threads of a pool, in their order. So many are under way at a time, or wait to be taken.
fn ahead<'scope, T: Send + 'scope>(
    scope: &Scope<'scope>,
    most: usize,
    mut jobs: impl Iterator<Item: FnOnce() -> Result<T> + Send + 'scope>,
) -> impl Iterator<Item = Result<T>> {
    let asked = Asked::of_thread();
    let mut begun = VecDeque::new();
    iter::from_fn(move || {
        while begun.len() < most
            && let Some(job) = jobs.next()
        {
            let (sender, made) = sync_channel(1);
            let asked = asked.clone();
            scope.spawn(move |_| {
                let _asked = asked.map(Asked::enter);
                // Behind one that failed nobody waits for it.
                let _ = sender.send(job());
            });
            begun.push_back(made);
        }
        stop::receive(&begun.pop_front()?).transpose().map(Result::flatten)
    })
}

impl Rewriting<'_> {
    /// Writes row groups of files. The threads of the pool load pieces of them, each row of so many bytes, and encode
    /// them, while this thread, which is none of those, puts what they made to files.
    pub(super) fn write(
        &self,
        pieces: Vec<&[OutputGroup]>,
        row_bytes: f64,
        load: impl Fn(Range<u64>) -> Result<Bucket> + Sync,
    ) -> Result<()> {
        let Self { plan, rewrite, .. } = self;
        let longest = pieces.iter().map(|groups| groups.len()).max().unwrap_or_default();
        let rows = longest as f64 * plan.row_group_rows as f64;
        // A quarter of the memory is for them, and two are beside it.
        let fit = rewrite.memory as f64 / 4.0 / (rows * (row_bytes + plan.encoded_row_bytes())).max(1.0);
        let most = (fit as usize).clamp(2, rewrite.threads + 1);
        let load = &load;
        self.pool.in_place_scope(|scope| {
            let encode = pieces.into_iter().map(|groups| {
                move || {
                    let positions = groups[0].positions.start..groups[groups.len() - 1].positions.end;
                    let bucket = load(positions)?;
                    groups.iter().map(|group| Ok((group, self.encode(&bucket, group)?))).collect::<Result<Vec<_>>>()
                }
            });
            let mut file = None;
            for encoded in ahead(scope, most, encode) {
                for (group, encoded) in encoded? {
                    self.put(&mut file, group.file, group.is_last, Some(encoded))?;
                    self.meter.advance(group.rows());
                }
            }
            Ok(())
        })
    }

    /// Encodes the rows of a row group, which the bucket has.
    fn encode(&self, bucket: &Bucket, group: &OutputGroup) -> Result<Vec<ArrowColumnChunk>> {
        self.encoding.group(group.positions.clone(), |column, positions| {
            Ok(match self.columns.plain.fields().get(column) {
                Some(field) => bucket.values(column, positions, field.data_type())?,
                None => Arc::new(UInt64Array::from_iter_values(positions.filter_map(|at| self.order.row(at)))),
            })
        })
    }

    /// Adds a row group to a file, which is begun if none is, and put in its place if this is the last of it.
    pub(super) fn put(
        &self,
        file: &mut Option<SerializedFileWriter<OutFile>>,
        number: u64,
        is_last: bool,
        group: Option<Vec<ArrowColumnChunk>>,
    ) -> Result<()> {
        let Self { plan, output, encoding, meter, .. } = self;
        let name = plan.file_name(number);
        let put = || {
            let mut begun = match file.take() {
                Some(begun) => begun,
                None => {
                    let bytes = plan.rows as f64 * plan.encoded_row_bytes() / plan.files as f64;
                    encoding.file(output.create(&name, bytes)?)?
                }
            };
            if let Some(group) = group {
                append(&mut begun, group).map_err(unwritten)?;
            }
            if is_last {
                stop::check()?;
                let length = begun.into_inner().map_err(unwritten)?.commit()?;
                meter.bytes_written.fetch_add(length, Ordering::Relaxed);
            } else {
                *file = Some(begun);
            }
            Ok(())
        };
        put().map_err(|error: Error| error.with_file(output.shown(&name)))
    }
}
