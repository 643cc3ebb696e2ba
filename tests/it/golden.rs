//! What twelve runs served when they were frozen: their states, the bytes of their indexes, and every batch.
//!
//! A line of `tests/data/golden.txt` changes only with what the formats, orders and values of a run mean, so never.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use rowdex::dataset::MixedDataset;
use rowdex::loader::{Loadable, Share};
use rowdex::order::{Blocks, Global, Mixed, MixedPart, Order, Packed, Torch, Weighted};
use rowdex::{Batch, Dataset, DistributedSampler, Index, IndexBuilder, Loader, Select, Shard};
use tempfile::TempDir;

const RANKS: u32 = 2;
const BATCH: usize = 16;

/// FNV-1a, so that what is frozen depends on no crate.
struct Hash(u64);

impl Hash {
    fn new() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
        }
    }

    fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u64);
        self.bytes(text);
    }

    fn values(&mut self, column: &dyn Array) {
        for row in 0..column.len() {
            if column.is_null(row) {
                self.bytes(b"null");
                continue;
            }
            match column.data_type() {
                DataType::Int32 => self.bytes(&column.as_primitive::<Int32Type>().value(row).to_le_bytes()),
                DataType::Int64 => self.bytes(&column.as_primitive::<Int64Type>().value(row).to_le_bytes()),
                DataType::Utf8 => self.text(column.as_string::<i32>().value(row).as_bytes()),
                DataType::Binary => self.text(column.as_binary::<i32>().value(row)),
                DataType::List(_) => {
                    let list = column.as_list::<i32>().value(row);
                    self.number(list.len() as u64);
                    self.values(&list);
                }
                other => panic!("a golden run serves {other}"),
            }
        }
    }

    fn batch(&mut self, batch: &Batch) {
        for number in [batch.epoch, batch.step, batch.steps, u64::from(batch.rank), batch.pads as u64] {
            self.number(number);
        }
        batch.row_ids.iter().for_each(|row| self.number(*row));
        for piece in batch.packs.iter().flat_map(|packs| &packs.pieces) {
            [piece.row, piece.offset, piece.length].into_iter().for_each(|number| self.number(number));
        }
        for (field, column) in batch.records.schema().fields().iter().zip(batch.records.columns()) {
            self.text(field.name().as_bytes());
            self.values(column);
        }
    }
}

/// Bits that depend on a number alone.
fn mixed_up(number: i64) -> u64 {
    let mut bits = (number as u64).wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

fn tokens(id: i64) -> Option<Vec<Option<i32>>> {
    let bits = mixed_up(id);
    (!bits.is_multiple_of(11)).then(|| (0..bits % 40).map(|at| Some((bits >> (at % 32)) as i32 & 0xFFFF)).collect())
}

fn columns(kind: &str, ids: &[i64]) -> Vec<(String, ArrayRef)> {
    let texts = ids.iter().map(|id| (id % 7 != 3).then(|| format!("{id} ").repeat(mixed_up(*id) as usize % 9)));
    let all = |make: &dyn Fn(i64) -> i32| -> ArrayRef {
        Arc::new(Int32Array::from_iter_values(ids.iter().copied().map(make)))
    };
    let mut columns: Vec<(String, ArrayRef)> = vec![("id".into(), Arc::new(Int64Array::from(ids.to_vec())))];
    match kind {
        "lists" => {
            let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(ids.iter().map(|id| tokens(*id)));
            columns.push(("tokens".into(), Arc::new(lists)));
        }
        "images" => {
            let image = |id: &i64| -> Vec<u8> {
                (0..1000 + mixed_up(*id) % 3000).map(|at| mixed_up(*id + at as i64) as u8).collect()
            };
            columns.push(("image".into(), Arc::new(BinaryArray::from_iter_values(ids.iter().map(image)))));
        }
        "wide" => columns.extend((0..80).map(|at| (format!("c{at}"), all(&|id| mixed_up(id * 80 + at) as i32)))),
        _ => columns.push(("text".into(), Arc::new(StringArray::from_iter(texts)))),
    }
    columns
}

/// Two files of a kind, and their index.
fn index(folder: &Path, kind: &str, group_rows: usize) -> Index {
    let data = folder.join("data");
    fs::create_dir_all(&data).unwrap();
    for (name, ids) in [("a.parquet", 0..310), ("b.parquet", 310..500)] {
        let batch = RecordBatch::try_from_iter(columns(kind, &ids.collect::<Vec<i64>>())).unwrap();
        let properties = WriterProperties::builder()
            .set_created_by("golden".to_owned())
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_max_row_group_row_count(Some(group_rows))
            .build();
        let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
        let file = fs::File::create(data.join(name)).unwrap();
        let mut writer = ArrowWriter::try_new_with_options(&file, batch.schema(), options).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_700_000_000)).unwrap();
    }
    let path = folder.join("i.rdx");
    let lengths = (kind == "lists").then_some("tokens");
    IndexBuilder::new([data]).with_lengths(lengths).with_threads(1).build(&path).unwrap();
    Index::open(path).unwrap()
}

fn samplers(order: &Arc<dyn Order>) -> Vec<DistributedSampler> {
    let shard = |rank| Shard::new(rank, RANKS).unwrap();
    (0..RANKS).map(|rank| DistributedSampler::new(order.clone(), shard(rank), BATCH).unwrap()).collect()
}

fn line(name: &str, state: &str, batches: &[Batch]) -> String {
    let mut hash = Hash::new();
    batches.iter().for_each(|batch| hash.batch(batch));
    let rows: usize = batches.iter().map(|batch| batch.row_ids.len()).sum();
    format!("run {name}: {} batches, {rows} rows, {:016x}\nstate {name}: {state}\n", batches.len(), hash.0)
}

/// Two epochs of all ranks in one process, in a quarter of what the rows take.
fn run(name: &str, dataset: &impl Loadable, bytes: u64, samplers: Vec<DistributedSampler>) -> String {
    let state = samplers[1].state_after(1, 3).unwrap().to_string();
    let mut samplers = samplers.into_iter();
    let builder = Loader::builder(dataset, samplers.next().unwrap()).and_ranks(samplers);
    let loader = builder.memory(bytes / 4).threads(2).epochs(2).build().unwrap();
    line(name, &state, &loader.map(Result::unwrap).collect::<Vec<_>>())
}

fn alone(name: &str, index: Index, order: Arc<dyn Order>) -> String {
    let dataset = Dataset::builder(index).open().unwrap();
    run(name, &dataset, dataset.decoded_bytes(), samplers(&order))
}

fn packed(index: Index) -> String {
    let lengths = Arc::new(index.lengths("tokens").unwrap());
    let packs = "tokens:64".parse::<rowdex::sampler::PackSpec>().unwrap().pack;
    let order = Arc::new(Packed::new(Arc::new(Global::new(500, 6).unwrap()), lengths, packs).unwrap());
    let shard = |rank| Shard::new(rank, RANKS).unwrap();
    let sampler = |rank| DistributedSampler::of_packs(order.clone(), shard(rank), 4, None).unwrap();
    let dataset = Dataset::builder(index).open().unwrap();
    let builder = Loader::builder(&dataset, sampler(0)).and_ranks([sampler(1)]).tokens("tokens");
    let batches: Vec<Batch> = builder.epochs(2).build().unwrap().map(Result::unwrap).collect();
    line("packed", &sampler(1).state_after(1, 3).unwrap().to_string(), &batches)
}

fn shared(index: Index) -> String {
    let dataset = Dataset::builder(index).open().unwrap();
    let order: Arc<dyn Order> = Arc::new(Global::new(500, 7).unwrap());
    let serve = |sampler: DistributedSampler| {
        let share = Share::machine().job(format!("golden-{}", std::process::id())).name("golden").ranks(RANKS);
        let share = share.program([env!("CARGO_BIN_EXE_rowdex")]);
        let loader = Loader::builder(&dataset, sampler).epochs(2).share(share).build().unwrap();
        loader.map(Result::unwrap).collect::<Vec<Batch>>()
    };
    let state = samplers(&order)[1].state_after(1, 3).unwrap().to_string();
    let batches = thread::scope(|scope| {
        let ranks: Vec<_> = samplers(&order).into_iter().map(|sampler| scope.spawn(|| serve(sampler))).collect();
        ranks.into_iter().flat_map(|rank| rank.join().unwrap()).collect::<Vec<Batch>>()
    });
    line("shared", &state, &batches)
}

fn mixed(first: Index, second: Index) -> String {
    let datasets = [first, second].map(|index| Dataset::builder(index).open().unwrap());
    let bytes = datasets.iter().map(Dataset::decoded_bytes).sum();
    let part = |seed, proportion| MixedPart::new(Arc::new(Global::new(500, seed).unwrap()), 500, proportion);
    let order: Arc<dyn Order> = Arc::new(Mixed::new([part(1, 0.7), part(2, 0.3)], 640, 8).unwrap());
    run("mixed", &MixedDataset::new(datasets).unwrap(), bytes, samplers(&order))
}

fn index_line(name: &str, path: &Path) -> String {
    let bytes = fs::read(path).unwrap();
    let mut hash = Hash::new();
    hash.bytes(&bytes);
    format!("index {name}: {} bytes, {:016x}\n", bytes.len(), hash.0)
}

#[test]
fn twelve_runs_are_what_they_were() {
    let folders = [(); 6].map(|()| TempDir::new().unwrap());
    let kinds = [("plain", 100), ("plain", 3), ("lists", 90), ("images", 40), ("wide", 120), ("plain", 60)];
    let at = |set: usize| Index::open(folders[set].path().join("i.rdx")).unwrap();
    for (folder, (kind, group_rows)) in folders.iter().zip(kinds) {
        index(folder.path(), kind, group_rows);
    }
    let view = folders[0].path().join("view.rdx");
    let kept = rowdex::order::IdSet::filter(500, |row| row % 3 != 1 && !(200..260).contains(&row)).unwrap();
    let select = Select::new(at(0)).kept(kept, "kept").with_time(UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    let view_rows = select.write(&view).unwrap().rows;
    let global = |rows, seed| -> Arc<dyn Order> { Arc::new(Global::new(rows, seed).unwrap()) };
    let group_rows: Vec<u64> = at(0).row_groups().map(|group| group.rows()).collect();
    let weights: Vec<f64> = (0..500).map(|row| f64::from(row % 5)).collect();

    let mut got = String::new();
    got += &index_line("plain", &folders[0].path().join("i.rdx"));
    got += &index_line("lists", &folders[2].path().join("i.rdx"));
    got += &index_line("view", &view);
    got += &alone("global", at(0), global(500, 1));
    got += &alone("blocks", at(0), Arc::new(Blocks::new(&group_rows, 2, 2).unwrap()));
    got += &alone("torch", at(0), Arc::new(Torch::new(500, 3).unwrap()));
    got += &alone("weighted", at(0), Arc::new(Weighted::with_replacement(&weights, 450, 4).unwrap()));
    got += &mixed(at(0), at(5));
    got += &packed(at(2));
    got += &shared(at(0));
    got += &alone("view", Index::open(&view).unwrap(), global(view_rows, 9));
    got += &alone("wide", at(4), global(500, 10));
    got += &alone("lists", at(2), global(500, 11));
    got += &alone("images", at(3), global(500, 12));
    got += &alone("small groups", at(1), global(500, 13));
    let frozen = include_str!("../data/golden.txt");
    let other: Vec<&str> = got.lines().filter(|line| !frozen.lines().any(|frozen| frozen == *line)).collect();
    assert!(got == frozen, "not what was frozen: {other:#?}");
}
