//! A disk cache before a store: what is kept is not asked for again, and tells no secret.

use std::path::Path;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use rowdex::dataset::DiskCache;
use rowdex::order::Global;
use rowdex::source::StoreOptions;
use rowdex::{Dataset, DistributedSampler, Index, IndexBuilder, Loader, Shard};
use tempfile::TempDir;

use super::http::{Abilities, Http};
use super::server::{BUCKET, KEY, S3, SECRET};
use super::{FILES, ROWS, write_data};

const ROW_GROUPS: u64 = 12;

/// An epoch with memory for a part of the data; the loader reads ahead.
fn epoch(dataset: &Dataset, seed: u64) {
    let sampler =
        DistributedSampler::new(Arc::new(Global::new(ROWS, seed).unwrap()), Shard::new(0, 1).unwrap(), 64).unwrap();
    let loader = Loader::builder(dataset, sampler).memory(dataset.decoded_bytes() / 4).threads(2).epochs(1);
    let mut rows = 0;
    for batch in loader.build().unwrap() {
        let batch = batch.unwrap();
        let ids = batch.records.column(0).as_primitive::<Int64Type>();
        // Row ids follow the names of the files, as the values do.
        assert!(ids.values().iter().zip(&batch.row_ids).all(|(id, row)| *id as u64 == *row));
        rows += ids.values().len() as u64;
    }
    assert_eq!(rows, ROWS);
}

fn check(index: &Path, options: &StoreOptions, folder: &Path) {
    let disk_cache = folder.join("disk_cache");
    let open = || {
        let builder = Dataset::builder(Index::open(index).unwrap()).with_store_options(options.clone());
        builder.with_disk_cache(DiskCache::new(&disk_cache, 1 << 30)).open().unwrap()
    };
    let stats = Index::open(index).unwrap().files().filter(|file| file.etag().is_none()).count() as u64;
    let first = open();
    epoch(&first, 0);
    assert_eq!(first.disk_cache_counters().writes, ROW_GROUPS);
    let asked = first.counters().requests;
    assert!((ROW_GROUPS..=ROW_GROUPS + stats + 4).contains(&asked), "{asked} requests for {ROW_GROUPS} row groups");
    let second = open();
    epoch(&second, 1);
    assert_eq!((second.disk_cache_counters().misses, second.disk_cache_fault().is_none()), (0, true));
    assert_eq!(second.counters().requests, stats);
    assert_eq!((first.counters().decodes, second.counters().decodes), (ROW_GROUPS, 0));

    for entry in std::fs::read_dir(&disk_cache).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        for secret in [KEY, SECRET] {
            assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()));
        }
    }
}

#[test]
fn another_process_asks_a_store_for_nothing_that_is_kept() {
    let folder = TempDir::new().unwrap();
    write_data(&folder.path().join("data"));
    for tags in [true, false] {
        let http = Http::start(&folder.path().join("data"), Abilities { ranges: true, tags });
        let url = |name: &str| name.replace('%', "%25").replace(' ', "%20").replace('#', "%23");
        let urls: Vec<String> =
            FILES.iter().map(|(name, ..)| format!("http://{}/{}", http.address, url(name))).collect();
        let index = folder.path().join(format!("{tags}.rdx"));
        IndexBuilder::new(urls).build(&index).unwrap();
        check(&index, &StoreOptions::default(), &folder.path().join(format!("disk_cache-{tags}")));
    }
    let Some(s3) = S3::start() else { return };
    write_data(&s3.bucket().join("data"));
    let (index, options) = (folder.path().join("s3.rdx"), S3::options(s3.address));
    IndexBuilder::new([format!("s3://{BUCKET}/data/")]).with_store_options(options.clone()).build(&index).unwrap();
    check(&index, &options, &folder.path().join("disk_cache-s3"));
}
