//! One list of behaviours, over every source.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::Int64Type;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use rowdex::dataset::Staleness;
use rowdex::order::Order;
use rowdex::order::{Global, Sequential};
use rowdex::source::StoreOptions;
use rowdex::{Dataset, DistributedSampler, ErrorKind, Index, IndexBuilder, Loader, Shard};
use tempfile::TempDir;

use super::http::{Abilities, Http};
use super::proxy::{Proxy, Weather};
use super::server::{Azurite, BUCKET, Nginx, Store};
use super::{FILES, ROWS, rows, write, write_data};

/// What the dataset must serve, in its order.
fn expected() -> RecordBatch {
    let mut files = FILES;
    files.sort_by_key(|file| file.0);
    let batches: Vec<_> = files.iter().map(|&(_, first, count)| rows(first, count)).collect();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

fn urls(address: std::net::SocketAddr) -> Vec<String> {
    FILES
        .iter()
        .map(|(name, ..)| {
            format!("http://{address}/{}", name.replace('%', "%25").replace(' ', "%20").replace('#', "%23"))
        })
        .collect()
}

struct Opened {
    dataset: Dataset,
    remote: bool,
}

/// Calls `check` with the data of each kind of source, opened anew.
fn over_every_source(check: impl Fn(Opened)) {
    let folder = TempDir::new().unwrap();
    write_data(&folder.path().join("data"));
    let open = |index: &Path, options: StoreOptions| {
        Dataset::builder(Index::open(index).unwrap()).with_store_options(options).open().unwrap()
    };
    let index = folder.path().join("local.rdx");
    IndexBuilder::new([folder.path().join("data")]).build(&index).unwrap();
    check(Opened { dataset: open(&index, StoreOptions::default()), remote: false });

    for abilities in [Abilities { ranges: true, tags: true }, Abilities { ranges: true, tags: false }] {
        let http = Http::start(&folder.path().join("data"), abilities);
        let index = folder.path().join(format!("http-{}.rdx", abilities.tags));
        IndexBuilder::new(urls(http.address)).build(&index).unwrap();
        check(Opened { dataset: open(&index, StoreOptions::default()), remote: true });
    }

    if let Some(nginx) = Nginx::start(&folder.path().join("data")) {
        let index = folder.path().join("nginx.rdx");
        IndexBuilder::new(urls(nginx.address)).build(&index).unwrap();
        check(Opened { dataset: open(&index, StoreOptions::default()), remote: true });
    }
    let built = |url: String, options: StoreOptions, requests: u64| {
        let index = folder.path().join(format!("{}.rdx", &url[..2]));
        let report = IndexBuilder::new([url]).with_store_options(options.clone()).build(&index).unwrap();
        assert_eq!((report.files, report.rows, report.read_files, report.requests), (4, ROWS, 4, requests));
        check(Opened { dataset: open(&index, options), remote: true });
    };
    if let Some(azurite) = Azurite::start(folder.path()) {
        built(format!("az://{BUCKET}/data/"), azurite.options(), 4);
    }
    for store in Store::each() {
        write_data(&store.bucket.join("data"));
        built(format!("{}/data/", store.url), store.options(), 4);
    }
}

#[test]
fn rows_are_the_same_from_every_source_in_any_order() {
    let all = expected();
    over_every_source(|opened| {
        let ids = opened.dataset.take(&(0..ROWS).collect::<Vec<_>>()).unwrap();
        assert_eq!(ids, all);
        let some: Vec<u64> = (0..200).map(|at| at * 7919 % ROWS).chain([0, 0, ROWS - 1]).collect();
        let taken = opened.dataset.take(&some).unwrap();
        for (at, &row) in some.iter().enumerate() {
            assert_eq!(taken.slice(at, 1), all.slice(row as usize, 1));
        }
        assert_eq!(opened.dataset.get(ROWS).unwrap_err().kind(), ErrorKind::OutOfRange);
    });
}

#[test]
fn a_cold_row_costs_its_pages_and_their_positions() {
    let all = expected();
    over_every_source(|opened| {
        let before = opened.dataset.counters();
        assert_eq!(opened.dataset.get(1234).unwrap(), all.slice(1234, 1));
        let cost = opened.dataset.counters() - before;
        assert!(cost.bytes_read < 20_000, "{cost:?}");
        if opened.remote {
            // The positions; then one request for each column's page. A store without tags is asked once for the time
            // of the file.
            assert!((2..=5).contains(&cost.requests), "{cost:?}");
            assert!(cost.bytes_fetched < cost.bytes_read + (16 << 10), "{cost:?}");
        } else {
            assert_eq!((cost.requests, cost.bytes_fetched), (0, 0));
        }
    });
}

#[test]
fn a_pass_asks_once_for_each_row_group_and_for_hardly_a_byte_more_than_its_columns() {
    over_every_source(|opened| {
        let orders: Arc<dyn Order> = Arc::new(Sequential::new(ROWS).unwrap());
        let sampler = DistributedSampler::new(orders, Shard::new(0, 1).unwrap(), 100).unwrap();
        let mut loader = Loader::builder(&opened.dataset, sampler).epochs(1).build().unwrap();
        let mut served = 0;
        while let Some(batch) = loader.next().transpose().unwrap() {
            served += batch.records.num_rows() as u64;
        }
        let cost = opened.dataset.counters();
        assert_eq!((served, cost.decodes), (ROWS, 12));
        if opened.remote {
            let files = opened.dataset.index().files();
            // A store without tags is asked once for the time of each file.
            let stats = files.filter(|file| file.etag().is_none()).count() as u64;
            assert_eq!(cost.requests, 12 + stats, "{cost:?}");
            assert!(cost.bytes_fetched as f64 <= 1.02 * cost.bytes_read as f64, "{cost:?}");
        }
    });
}

#[test]
fn a_shuffled_epoch_is_the_same_from_every_source_whatever_the_threads() {
    let all = expected();
    let ids = all.column(0).as_primitive::<Int64Type>();
    over_every_source(|opened| {
        for (threads, concurrency) in [(0, 4), (2, 1), (3, 16)] {
            let orders: Arc<dyn Order> = Arc::new(Global::new(ROWS, 7).unwrap());
            let sampler = DistributedSampler::new(orders, Shard::new(1, 2).unwrap(), 64).unwrap();
            let memory = opened.dataset.decoded_bytes() / 4;
            let loader = Loader::builder(&opened.dataset, sampler).memory(memory).threads(threads);
            let mut batches = 0;
            for batch in loader.read_concurrency(concurrency).epochs(2).build().unwrap() {
                let batch = batch.unwrap();
                let served = batch.records.column(0).as_primitive::<Int64Type>();
                for (at, &row) in batch.row_ids.iter().enumerate() {
                    assert_eq!(served.value(at), ids.value(row as usize));
                }
                batches += 1;
            }
            assert_eq!(batches, 2 * (ROWS.div_ceil(2)).div_ceil(64));
        }
    });
}

/// Forty row groups of 2000 rows in four files, with pages of 100 rows.
fn write_wide(folder: &Path) -> Vec<String> {
    std::fs::create_dir_all(folder).unwrap();
    let write = |number: i64| {
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(2000))
            .set_data_page_row_count_limit(100)
            .set_write_batch_size(100)
            .set_dictionary_enabled(false)
            .build();
        let batch = rows(number * 20_000, 20_000);
        let name = format!("{number}.parquet");
        let file = File::create(folder.join(&name)).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        name
    };
    (0..4).map(write).collect()
}

#[test]
fn the_requests_of_an_epoch_are_foretold() {
    let folder = TempDir::new().unwrap();
    let names = write_wide(&folder.path().join("data"));
    for tags in [true, false] {
        let http = Http::start(&folder.path().join("data"), Abilities { ranges: true, tags });
        let index = folder.path().join(format!("{tags}.rdx"));
        IndexBuilder::new(names.iter().map(|name| format!("http://{}/{name}", http.address))).build(&index).unwrap();
        // The columns, the share of memory in thousandths, and the world: row groups that are read whole, and by pages.
        for (columns, memory, world, gap) in [
            (&["id", "text", "blob"][..], 2000, 1, 0),
            (&["id", "text", "blob"], 250, 1, 0),
            (&["id", "blob"], 250, 1, 0),
            (&["id", "blob"], 250, 1, 1 << 20),
            (&["id", "text", "blob"], 400, 32, 0),
            (&["id", "blob"], 300, 64, 0),
        ]
        .into_iter()
        .take(if tags { 6 } else { 1 })
        {
            let dataset = Dataset::builder(Index::open(&index).unwrap())
                .with_columns(columns.iter().copied())
                .with_store_options(StoreOptions::default().with_gap(gap))
                .open()
                .unwrap();
            let orders: Arc<dyn Order> = Arc::new(Global::new(dataset.len(), 7).unwrap());
            let sampler = DistributedSampler::new(orders, Shard::new(0, world).unwrap(), 16).unwrap();
            let memory = dataset.decoded_bytes() * memory / 1000 / u64::from(world);
            let builder = Loader::builder(&dataset, sampler).memory(memory).threads(0).epochs(3);
            let told = builder.estimate().unwrap();
            let mut loader = builder.build().unwrap();
            let mut spent = vec![dataset.counters()];
            for _ in 0..2 {
                assert!(loader.epoch().all(|batch| batch.is_ok()));
                spent.push(dataset.counters());
            }
            let (first, later) = (spent[1] - spent[0], spent[2] - spent[1]);
            let real = (first.requests as f64, later.requests as f64);
            let what = format!(
                "{columns:?}, {memory} bytes, a rank of {world}, gaps of {gap}, tags {tags}: {told:?}, {real:?}, \
                 {later:?}"
            );
            let near = |told: u64, real: f64| (told as f64 - real).abs() <= real * 0.1 + 2.0;
            assert!(near(told.first_requests, real.0), "{what}");
            assert!(near(told.requests, real.1), "{what}");
        }
    }
}

#[test]
fn many_row_groups_are_on_their_way_at_once_unless_told_otherwise() {
    let folder = TempDir::new().unwrap();
    write_data(&folder.path().join("data"));
    let http = Http::start(&folder.path().join("data"), Abilities { ranges: true, tags: true });
    let weather = Weather { latency: Duration::from_millis(50), ..Weather::default() };
    let index = folder.path().join("i.rdx");
    IndexBuilder::new(urls(http.address)).build(&index).unwrap();
    let most_at_once = |row_groups: Option<usize>| {
        let proxy = Proxy::start(http.address, weather).unwrap();
        let dataset = Dataset::builder(Index::open(&index).unwrap()).with_root(format!("http://{}/", proxy.address));
        let dataset = dataset.open().unwrap();
        let orders: Arc<dyn Order> = Arc::new(Sequential::new(ROWS).unwrap());
        let sampler = DistributedSampler::new(orders, Shard::new(0, 1).unwrap(), 100).unwrap();
        let loader = Loader::builder(&dataset, sampler).threads(1).epochs(1);
        let loader = row_groups.into_iter().fold(loader, |loader, count| loader.read_concurrency(count));
        assert!(loader.build().unwrap().all(|batch| batch.is_ok()));
        proxy.most_at_once()
    };
    // How many exactly depends on how soon the proxy sees that an answer was read.
    let (alone, ahead) = (most_at_once(Some(0)), most_at_once(None));
    assert!(ahead >= 3 && alone < ahead, "{alone} {ahead}");
}

#[test]
fn verifying_finds_nothing_wrong_with_sound_files() {
    over_every_source(|opened| {
        for level in Staleness::ALL {
            let report = opened.dataset.verify(level, &|_| ()).unwrap();
            assert!(report.problems.is_empty(), "{level}: {:?}", report.problems);
        }
    });
}

#[test]
fn an_index_in_a_store_opens_with_one_request_and_its_files_with_none() {
    for store in Store::each() {
        write_data(&store.bucket.join("data"));
        let url = format!("{}/indexes/train.rdx", store.url);
        let builder = IndexBuilder::new([format!("{}/data/", store.url)]).with_store_options(store.options());
        builder.build(&url).unwrap();
        let again = builder.build(&url).unwrap_err();
        assert_eq!((again.kind(), again.file()), (ErrorKind::AlreadyExists, Some(url.as_str())));
        builder.with_overwrite(true).build(&url).unwrap();

        let proxy = Proxy::start(store.address, Weather::default()).unwrap();
        let index = Index::open_with(&url, &store.options_at(proxy.address)).unwrap();
        let options = store.options_at(proxy.address);
        let dataset = Dataset::builder(index).with_store_options(options).open().unwrap();
        assert_eq!((dataset.len(), proxy.requests()), (ROWS, 1));
    }
}

#[test]
fn an_index_that_lies_beside_its_data_finds_it_in_the_store_too() {
    for store in Store::each() {
        write_data(&store.bucket.join("data"));
        IndexBuilder::new([store.bucket.join("data")]).build(store.bucket.join("data/i.rdx")).unwrap();
        let index = Index::open_with(format!("{}/data/i.rdx", store.url), &store.options()).unwrap();
        let dataset = Dataset::builder(index).with_store_options(store.options()).open().unwrap();
        assert_eq!(dataset.take(&[5, 2000]).unwrap().num_rows(), 2);
        assert!(dataset.counters().requests > 0);
    }
}

#[test]
fn an_update_reads_only_the_footers_of_files_that_changed() {
    for store in Store::each() {
        write_data(&store.bucket.join("data"));
        let folder = TempDir::new().unwrap();
        let index = folder.path().join("i.rdx");
        let builder =
            IndexBuilder::new([format!("{}/data/", store.url)]).with_store_options(store.options()).with_update(true);
        assert_eq!(builder.build(&index).unwrap().read_files, 4);
        let before = std::fs::read(&index).unwrap();
        let report = builder.build(&index).unwrap();
        assert_eq!((report.read_files, report.requests, report.kept_files), (0, 0, 4));
        assert_eq!(std::fs::read(&index).unwrap(), before);
        write(&store.bucket.join("data/a/1.parquet"), &rows(0, 900));
        let report = builder.build(&index).unwrap();
        assert_eq!((report.read_files, report.kept_files, report.files), (1, 0, 4));
        assert_eq!(Index::open(&index).unwrap().len(), ROWS - 100);
    }
}

#[test]
fn a_file_that_changed_in_the_store_is_an_error_that_names_it() {
    let folder = TempDir::new().unwrap();
    for tags in [true, false] {
        let data = folder.path().join(format!("data-{tags}"));
        write_data(&data);
        let http = Http::start(&data, Abilities { ranges: true, tags });
        let index = folder.path().join(format!("{tags}.rdx"));
        IndexBuilder::new(urls(http.address)).build(&index).unwrap();
        let dataset = Dataset::open(&index).unwrap();
        let (name, first, count) = FILES[2];
        let changed = data.join(name);
        let untouched = std::fs::metadata(&changed).unwrap();
        write(&changed, &rows(first + 7, count));
        assert_eq!(std::fs::metadata(&changed).unwrap().len(), untouched.len(), "the same length, another content");
        let later = untouched.modified().unwrap() + std::time::Duration::from_secs(5);
        std::fs::File::options().write(true).open(&changed).unwrap().set_modified(later).unwrap();
        let error = dataset.get(first as u64).unwrap_err();
        assert_eq!((error.kind(), error.file()), (ErrorKind::Stale, Some(name)), "{error}");
        assert_eq!(dataset.take(&[4000]).unwrap().num_rows(), 1);
        let report = dataset.verify(Staleness::Stat, &|_| ()).unwrap();
        assert_eq!(report.problems.iter().map(|problem| problem.file()).collect::<Vec<_>>(), [Some(name)]);
    }
}

#[test]
fn a_server_that_does_not_serve_ranges_is_refused_with_advice() {
    let folder = TempDir::new().unwrap();
    write_data(folder.path());
    let http = Http::start(folder.path(), Abilities { ranges: false, tags: true });
    let error = IndexBuilder::new(urls(http.address)).build(folder.path().join("i.rdx")).unwrap_err();
    assert!(error.hint().is_some_and(|hint| hint.contains("range requests")), "{error}");
    let listing = IndexBuilder::new([format!("http://{}/", http.address)]).build(folder.path().join("i.rdx"));
    assert!(listing.unwrap_err().hint().is_some_and(|hint| hint.contains("name each file")));
}

#[test]
fn data_in_two_places_is_refused() {
    let folder = TempDir::new().unwrap();
    write_data(folder.path());
    let local = folder.path().display().to_string();
    for inputs in [["s3://a/x/", "s3://b/x/"], ["s3://a/x/", "gs://a/x/"], ["s3://a/x/", &local]] {
        let error = IndexBuilder::new(inputs).build(folder.path().join("i.rdx")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{inputs:?}: {error}");
    }
}
