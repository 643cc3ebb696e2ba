//! Serves a file in all the ways rowdex has, and compares each with what pyarrow read.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rand::rngs::ChaCha8Rng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use rowdex::dataset::{DatasetBuilder, DiskCache};
use rowdex::order::Order;
use rowdex::order::{Global, Sequential};
use rowdex::{Dataset, DistributedSampler, Index, IndexBuilder, Loader, Shard};
use tempfile::TempDir;

use super::compare::{batch_of, nested_paths, plain_batch, prune, rows_of, type_differences, value_difference};
use super::lengths;

/// Files of at most so many values have each of their rows read alone.
const SMALL: usize = 6000;

/// Of larger files, so many rows are.
const SAMPLE: usize = 60;

/// Of more columns than this, so many are read alone; others of the same types in another file.
const FEW: usize = 8;

/// How a file is known to differ.
#[derive(Debug, Clone, Copy)]
pub(super) enum Known {
    /// rowdex refuses it, saying this.
    Refused(&'static str),
    /// pyarrow refuses it, saying this; rowdex has these rows.
    PyarrowRefuses(&'static str, &'static [&'static str]),
    /// pyarrow serves other values than were written, and rowdex none, saying this.
    NoValues(&'static str),
}

/// What was compared.
#[derive(Debug, Default)]
pub(super) struct Served {
    pub(super) files: usize,
    pub(super) rows: u64,
    pub(super) columns: usize,
    /// Top-level values, each as often as it was read.
    pub(super) values: u64,
    pub(super) wrong: Vec<String>,
}

/// How to serve a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ways {
    /// By row ids.
    Rows,
    /// By row ids, by loaders within any memory, and as prefetched.
    All,
}

/// Serves all files, whose expectations lie at the same paths below `expected` as they do below `root`.
pub(super) fn all(files: &[PathBuf], root: &Path, expected: &Path, known: &[(&str, Known)], ways: Ways) -> Served {
    let serve = |path: &PathBuf, served: &mut Served| {
        let name = path.strip_prefix(root).unwrap();
        let expected = expected.join(name);
        let known = known.iter().find(|(file, _)| name.ends_with(file)).map(|(_, known)| *known);
        served.files += 1;
        if let Err(difference) = one(path, &expected, known, ways, served) {
            served.wrong.push(format!("{}: {difference}", name.display()));
        }
    };
    let next = AtomicUsize::new(0);
    let work = || {
        let mut served = Served::default();
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            serve(path, &mut served);
        }
        served
    };
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let parts = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<Served>>()
    });
    parts.into_iter().reduce(Served::plus).unwrap_or_default()
}

impl Served {
    fn plus(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            rows: self.rows + other.rows,
            columns: self.columns + other.columns,
            values: self.values + other.values,
            wrong: [self.wrong, other.wrong].concat(),
        }
    }
}

fn one(path: &Path, expected: &Path, known: Option<Known>, ways: Ways, served: &mut Served) -> Result<(), String> {
    let folder = TempDir::new().unwrap();
    let index = folder.path().join("i.rdx");
    let built = IndexBuilder::new([path]).with_partitions(false).with_threads(1).build(&index);
    if let Some(Known::Refused(reason)) = known {
        let crate_refuses = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).is_err();
        return match built {
            Err(error) if error.to_string().contains(reason) && crate_refuses => Ok(()),
            other => Err(format!("is known to be refused because {reason}, and gives {other:?}")),
        };
    }
    let fail = |error: rowdex::Error| error.to_string();
    built.map_err(fail)?;
    let index = Index::open(&index).map_err(fail)?;
    let dataset = Dataset::builder(index.clone()).with_threads(2).open().map_err(fail)?;
    let file = with_extension(expected, "arrows");
    if !file.exists() {
        let refusal = std::fs::read_to_string(with_extension(expected, "error")).unwrap();
        let rows: Vec<String> = (0..dataset.len()).map(|row| shown(&dataset.get(row).unwrap())).collect();
        return match known {
            Some(Known::PyarrowRefuses(reason, known)) if refusal.contains(reason) && rows == known => Ok(()),
            _ => Err(format!("pyarrow refuses it: {refusal}; rowdex reads {rows:?}")),
        };
    }
    if let Some(Known::NoValues(reason)) = known {
        return match dataset.get(0) {
            Err(error) if error.to_string().contains(reason) => Ok(()),
            other => Err(format!("is known to have no values because {reason}, and gives {other:?}")),
        };
    }
    let (schema, want) = expectation(&file);
    if dataset.len() != want.num_rows() as u64 {
        return Err(format!("{} rows, pyarrow has {}", dataset.len(), want.num_rows()));
    }
    let differences = type_differences(dataset.schema().fields(), schema.fields());
    if !differences.is_empty() {
        return Err(format!("types: {}", differences.join(" | ")));
    }
    if let Some(path) = index.path() {
        lengths::check(path, &want)?;
    }
    let rng = ChaCha8Rng::seed_from_u64(7);
    served.rows += dataset.len();
    served.columns += want.num_columns();
    let mut reader = Reader { index, want, schema, served, rng };
    reader.rows(&dataset)?;
    reader.pages()?;
    reader.kept(folder.path())?;
    if ways == Ways::All {
        reader.loaders()?;
    }
    reader.columns()
}

fn shown(batch: &RecordBatch) -> String {
    let options = FormatOptions::new().with_null("null");
    let value = |column| ArrayFormatter::try_new(column, &options).unwrap().value(0).to_string();
    batch.columns().iter().map(|column| value(column.as_ref())).collect::<Vec<_>>().join(", ")
}

struct Reader<'a> {
    index: Index,
    want: RecordBatch,
    schema: Arc<Schema>,
    served: &'a mut Served,
    rng: ChaCha8Rng,
}

impl Reader<'_> {
    /// All rows in any order and some twice, then rows one by one.
    fn rows(&mut self, dataset: &Dataset) -> Result<(), String> {
        let len = dataset.len();
        let mut rows: Vec<u64> = (0..len).collect();
        rows.extend((0..len / 4).map(|_| self.rng.random_range(0..len)));
        rows.shuffle(&mut self.rng);
        let want = self.want.clone();
        self.take("take", dataset, &rows, &want)?;
        let mut rows: Vec<u64> = (0..len).collect();
        rows.shuffle(&mut self.rng);
        rows.truncate(if self.want.num_columns() * len as usize <= SMALL { len as usize } else { SAMPLE });
        // A dataset of its own, so that reading begins with pages and goes on with row groups.
        let dataset = open(Dataset::builder(self.index.clone()))?;
        self.get("get", &dataset, &rows, &want)
    }

    /// With nothing kept, so that every read is one of single pages.
    fn pages(&mut self) -> Result<(), String> {
        let dataset = open(Dataset::builder(self.index.clone()).with_cache_bytes(0).with_threads(0))?;
        let want = self.want.clone();
        let rows = self.some_rows(3);
        self.get("get without cache", &dataset, &rows, &want)?;
        for _ in 0..2 {
            let rows = self.some_rows(3);
            self.take("take without cache", &dataset, &rows, &want)?;
        }
        Ok(())
    }

    /// By way of a disk cache, into it and out of it.
    fn kept(&mut self, folder: &Path) -> Result<(), String> {
        let disk_cache = DiskCache::new(folder.join("disk_cache"), 1 << 40);
        for how in ["into", "out of"] {
            let how = format!("{how} a disk_cache");
            let builder = Dataset::builder(self.index.clone()).with_cache_bytes(0).with_threads(0);
            let dataset = open(builder.with_disk_cache(disk_cache.clone()))?;
            let mut rows: Vec<u64> = (0..dataset.len()).collect();
            rows.shuffle(&mut self.rng);
            let want = self.want.clone();
            self.take(&how, &dataset, &rows, &want)?;
            let rows = self.some_rows(20);
            self.get(&how, &dataset, &rows, &want)?;
            if let Some(fault) = dataset.disk_cache_fault() {
                return Err(format!("{how}: {fault}"));
            }
        }
        Ok(())
    }

    /// Batches of loaders that hold next to nothing, a part or all, and the same rows as prefetched.
    fn loaders(&mut self) -> Result<(), String> {
        let dataset = open(Dataset::builder(self.index.clone()).with_cache_bytes(0).with_threads(0))?;
        let (len, want) = (dataset.len(), self.want.clone());
        let fail = |how: &str, error: rowdex::Error| format!("{how}: {error}");
        for memory in [1, dataset.decoded_bytes() / 3 + 1, 1 << 30] {
            let orders: [(&str, Arc<dyn Order>); 2] = [
                ("rows in order", Arc::new(Sequential::new(len).unwrap())),
                ("rows shuffled", Arc::new(Global::new(len, 5).unwrap())),
            ];
            for (what, orders) in orders {
                for views in [false, true] {
                    let how = format!("{what} within {memory} bytes, views {views}");
                    let sampler = DistributedSampler::new(Arc::clone(&orders), Shard::new(0, 1).unwrap(), 37).unwrap();
                    let loader = Loader::builder(&dataset, sampler).memory(memory).threads(1).with_views(views);
                    let mut loader = loader.epochs(1).build().map_err(|error| fail(&how, error))?;
                    let schema = loader.schema();
                    let mut rows = 0;
                    for batch in loader.epoch() {
                        let batch = batch.map_err(|error| fail(&how, error))?;
                        rows += batch.row_ids.len() as u64;
                        self.compare(&how, &schema, &batch.records, &batch.row_ids, &want)?;
                    }
                    if rows != len {
                        return Err(format!("{how}: {rows} of {len} rows"));
                    }
                }
            }
            let how = format!("rows prefetched within {memory} bytes");
            let mut rows: Vec<u64> = (0..len).collect();
            rows.shuffle(&mut self.rng);
            let mut prefetched = dataset.prefetch(rows.clone(), memory).map_err(|error| fail(&how, error))?;
            for rows in rows.chunks(41) {
                let got = prefetched.take(rows).map_err(|error| fail(&how, error))?;
                self.compare(&how, dataset.schema(), &got, rows, &want)?;
            }
        }
        Ok(())
    }

    /// Columns alone, nested fields alone, and half of the columns in another order.
    fn columns(&mut self) -> Result<(), String> {
        let schema = Arc::clone(&self.schema);
        let mut alone: Vec<(String, usize, Vec<usize>)> = Vec::new();
        let mut nested: Vec<(String, usize, Vec<usize>)> = Vec::new();
        for (place, field) in schema.fields().iter().enumerate() {
            alone.push((field.name().clone(), place, Vec::new()));
            // A name with dots is found as a whole, so what lies below it is another's.
            let below = if field.name().contains('.') { Vec::new() } else { nested_paths(field) };
            nested.extend(below.into_iter().map(|(path, places)| (path, place, places)));
        }
        for mut paths in [alone, nested] {
            if schema.fields().len() > FEW {
                paths.shuffle(&mut self.rng);
                paths.truncate(FEW);
            }
            for (path, place, places) in paths {
                self.chosen(&[&path], vec![prune(self.want.column(place), &places)])?;
            }
        }
        let mut places: Vec<usize> = (0..schema.fields().len()).collect();
        places.shuffle(&mut self.rng);
        places.truncate(places.len().div_ceil(2));
        let names: Vec<&str> = places.iter().map(|&place| schema.field(place).name().as_str()).collect();
        let columns = places.iter().map(|&place| Arc::clone(self.want.column(place))).collect();
        self.chosen(&names, columns)
    }

    fn chosen(&mut self, paths: &[&str], columns: Vec<ArrayRef>) -> Result<(), String> {
        let what = format!("columns {paths:?}");
        let builder = Dataset::builder(self.index.clone()).with_threads(0).with_columns(paths.iter().copied());
        let dataset = open(builder).map_err(|error| format!("{what}: {error}"))?;
        let want = batch_of(paths.iter().copied(), columns, self.want.num_rows());
        let rows = self.some_rows(1);
        self.get(&what, &dataset, &rows, &want)?;
        let rows = self.some_rows(30);
        self.take(&what, &dataset, &rows, &want)
    }

    fn some_rows(&mut self, count: usize) -> Vec<u64> {
        let all: Vec<u64> = (0..self.want.num_rows() as u64).collect();
        (0..count).filter_map(|_| all.choose(&mut self.rng).copied()).collect()
    }

    fn take(&mut self, how: &str, dataset: &Dataset, rows: &[u64], want: &RecordBatch) -> Result<(), String> {
        let got = dataset.take(rows).map_err(|error| format!("{how}: {error}"))?;
        self.compare(how, dataset.schema(), &got, rows, want)
    }

    fn get(&mut self, how: &str, dataset: &Dataset, rows: &[u64], want: &RecordBatch) -> Result<(), String> {
        let get = |&row: &u64| dataset.get(row).map_err(|error| format!("{how} {row}: {error}"));
        let got: Vec<RecordBatch> = rows.iter().map(get).collect::<Result<_, _>>()?;
        if let Some(wrong) = got.iter().find(|batch| batch.num_rows() != 1) {
            return Err(format!("{how}: {} rows", wrong.num_rows()));
        }
        for (got, row) in got.iter().zip(rows) {
            self.compare(how, dataset.schema(), got, std::slice::from_ref(row), want)?;
        }
        Ok(())
    }

    fn compare(
        &mut self,
        how: &str,
        schema: &SchemaRef,
        got: &RecordBatch,
        rows: &[u64],
        want: &RecordBatch,
    ) -> Result<(), String> {
        if got.schema_ref() != schema {
            return Err(format!("{how}: {:?} is not the schema of the dataset", got.schema_ref()));
        }
        self.served.values += (got.num_rows() * got.num_columns()) as u64;
        match value_difference(&plain_batch(got), &rows_of(want, rows)) {
            Some(difference) => Err(format!("{how}: {difference}")),
            None => Ok(()),
        }
    }
}

fn open(builder: DatasetBuilder) -> Result<Dataset, String> {
    builder.open().map_err(|error| error.to_string())
}

/// What pyarrow read: the schema, and the plain rows as one batch.
pub(super) fn expectation(path: &Path) -> (SchemaRef, RecordBatch) {
    let reader = StreamReader::try_new_buffered(File::open(path).unwrap(), None).unwrap();
    let schema = reader.schema();
    // Dictionaries differ between batches, and those below lists cannot be joined by everybody.
    let empty = plain_batch(&RecordBatch::new_empty(Arc::clone(&schema)));
    let batches: Vec<RecordBatch> = reader.map(|batch| plain_batch(&batch.unwrap())).collect();
    (schema, concat_batches(empty.schema_ref(), &batches).unwrap())
}

pub(super) fn with_extension(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}
