//! Datasets of the Hugging Face hub: pinned to a commit, read where the hub leads to, with a token for the hub alone;
//! and its buckets, whose files change.

use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow::array::RecordBatch;
use rowdex::dataset::DiskCache;
use rowdex::source::StoreOptions;
use rowdex::{Dataset, Error, ErrorKind, Index, IndexBuilder};
use tempfile::TempDir;

use super::hub_server::{FIRST, Hub, SECOND, TOKEN};
use super::{FILES, ROWS, rows, write, write_data};

fn build(url: &str, options: &StoreOptions, index: &Path) -> rowdex::Result<()> {
    let builder = IndexBuilder::new([url]).with_store_options(options.clone()).with_overwrite(true);
    builder.build(index).map(drop)
}

fn open(index: &Path, options: &StoreOptions) -> Dataset {
    Dataset::builder(Index::open(index).unwrap()).with_store_options(options.clone()).open().unwrap()
}

fn all(dataset: &Dataset) -> RecordBatch {
    dataset.take(&(0..dataset.len()).collect::<Vec<_>>()).unwrap()
}

/// A folder with the data, and where an index of it goes.
fn prepared() -> (TempDir, PathBuf, PathBuf) {
    let folder = TempDir::new().unwrap();
    let (data, index) = (folder.path().join("data"), folder.path().join("i.rdx"));
    write_data(&data);
    (folder, data, index)
}

/// An error as users see it, in every way that they can.
fn said(error: &Error) -> String {
    format!("{error} {error:?} {}", error.hint().unwrap_or_default())
}

#[test]
fn a_dataset_of_the_hub_has_the_rows_of_its_files_at_the_commit_of_the_build() {
    let (folder, data, index) = prepared();
    let hub = Hub::start(&data, false);
    let options = hub.options();
    IndexBuilder::new([&data]).build(folder.path().join("local.rdx")).unwrap();
    let local = all(&open(&folder.path().join("local.rdx"), &options));
    for (url, root) in [
        ("hf://datasets/o/n", ""),
        ("hf://datasets/o/n@main/", ""),
        ("hf://datasets/o/n@~parquet/**/*.parquet", ""),
        ("hf://datasets/o/n@my%2Fbranch", ""),
    ] {
        build(url, &options, &index).unwrap();
        let found = Index::open(&index).unwrap();
        assert_eq!(found.root().path, format!("hf://datasets/o/n@{FIRST}/{root}"), "{url}");
        assert_eq!(found.num_files() as usize, FILES.len());
        assert_eq!(all(&open(&index, &options)), local, "{url}");
    }
    build("hf://datasets/o/n/b/c", &options, &index).unwrap();
    assert_eq!(open(&index, &options).len(), 4002);
    build("hf://datasets/o/n/a/1.parquet", &options, &index).unwrap();
    assert_eq!(all(&open(&index, &options)), rows(0, 1000));

    // The branch goes on, and what was indexed stays.
    build("hf://datasets/o/n", &options, &index).unwrap();
    let later = folder.path().join("later");
    write_data(&later);
    write(&later.join("a/1.parquet"), &rows(7000, 10));
    write(&later.join("z.parquet"), &rows(8000, 10));
    hub.set_commit(SECOND, &later);
    hub.set_branch("main", SECOND);
    assert_eq!(all(&open(&index, &options)), local);
    // An update goes to the new commit, and asks for the footers of what is new alone.
    let before = hub.asked("/datasets/o/n/resolve/");
    let updated = IndexBuilder::new(["hf://datasets/o/n"]).with_store_options(options.clone()).with_update(true);
    updated.build(&index).unwrap();
    assert_eq!(hub.asked("/datasets/o/n/resolve/") - before, 2);
    assert_eq!(Index::open(&index).unwrap().root().path, format!("hf://datasets/o/n@{SECOND}/"));
    assert_eq!(open(&index, &options).len(), ROWS - 1000 + 20);
}

#[test]
fn the_token_goes_to_the_hub_and_to_nothing_else() {
    let (folder, data, index) = prepared();
    let hub = Hub::start(&data, true);
    let refused = build("hf://datasets/o/n", &hub.options(), &index).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    assert!(said(&refused).contains("set HF_TOKEN"), "{refused}");
    let before = hub.hub.heard().len();

    let options = hub.logged_in();
    build("hf://datasets/o/n", &options, &index).unwrap();
    let disk_cache = folder.path().join("disk_cache");
    let builder = Dataset::builder(Index::open(&index).unwrap()).with_store_options(options.clone());
    let dataset = builder.with_disk_cache(DiskCache::new(&disk_cache, 1 << 30)).open().unwrap();
    all(&dataset);
    let heard = hub.hub.heard();
    assert!(heard.len() > before);
    assert!(heard[before..].iter().all(|head| head.contains(&format!("authorization: Bearer {TOKEN}"))), "{heard:?}");
    let stored = hub.store.heard().concat();
    assert!(stored.contains("range: bytes="), "{stored}");
    assert!(!stored.contains(TOKEN) && !stored.to_lowercase().contains("authorization"), "{stored}");

    let mut written = std::fs::read(&index).unwrap();
    for entry in std::fs::read_dir(&disk_cache).unwrap() {
        written.extend(std::fs::read(entry.unwrap().path()).unwrap());
    }
    for secret in [TOKEN, "X-Amz-Signature"] {
        assert!(!written.windows(secret.len()).any(|window| window == secret.as_bytes()), "{secret}");
        assert!(!format!("{options:?} {dataset:?}").contains(secret));
    }
    let given = StoreOptions::default().with_config("HF_TOKEN", TOKEN);
    let error = build("hf://datasets/o/n", &given, &index).unwrap_err();
    assert!(said(&error).contains("from the environment only") && !said(&error).contains(TOKEN), "{error}");
}

#[test]
fn a_file_is_asked_for_once_and_again_when_its_signature_has_expired() {
    let (_folder, data, index) = prepared();
    let hub = Hub::start(&data, false);
    let options = hub.options();
    build("hf://datasets/o/n", &options, &index).unwrap();
    let before = hub.asked("/datasets/o/n/resolve/");
    let dataset =
        Dataset::builder(Index::open(&index).unwrap()).with_store_options(options).with_cache_bytes(0).open().unwrap();
    let expected = all(&dataset);
    let asked = || hub.asked("/datasets/o/n/resolve/") - before;
    assert_eq!(asked(), FILES.len());
    assert_eq!(all(&dataset), expected);
    assert_eq!(asked(), FILES.len());
    hub.expire();
    assert_eq!(all(&dataset), expected);
    assert_eq!(asked(), 2 * FILES.len());
}

#[test]
fn a_fault_of_the_hub_is_not_where_a_file_is() {
    let (_folder, data, index) = prepared();
    let hub = Hub::start(&data, false);
    let options = hub.options();
    build("hf://datasets/o/n", &options, &index).unwrap();
    let before = hub.asked("/datasets/o/n/resolve/");
    hub.fail_once();
    let dataset =
        Dataset::builder(Index::open(&index).unwrap()).with_store_options(options).with_cache_bytes(0).open().unwrap();
    let expected = all(&dataset);
    let asked = || hub.asked("/datasets/o/n/resolve/") - before;
    assert_eq!(asked(), FILES.len() + 1);
    assert_eq!(all(&dataset), expected);
    assert_eq!(asked(), FILES.len() + 1);
}

#[test]
fn a_hub_that_is_asked_too_often_is_given_the_time_that_it_asks_for() {
    let (_folder, data, index) = prepared();
    let hub = Hub::start(&data, false);
    build("hf://datasets/o/n", &hub.options(), &index).unwrap();
    let needed = hub.hub.heard().len();
    for headers in ["retry-after: 1\r\n", "ratelimit: \"api\";r=0;t=1\r\nratelimit-policy: \"api\";q=500;w=300\r\n"] {
        let before = hub.hub.heard().len();
        hub.limit(1, headers);
        build("hf://datasets/o/n", &hub.options(), &index).unwrap();
        // Nobody asks again before the time is over.
        assert_eq!(hub.hub.heard().len() - before, needed + 1, "{headers}");
    }
    for headers in ["retry-after: 300\r\n", "ratelimit: \"api\";r=0;t=300\r\n"] {
        let before = hub.hub.heard().len();
        hub.limit(u64::MAX, headers);
        let options = hub.options().with_deadline(Duration::from_secs(30));
        let error = build("hf://datasets/o/n", &options, &index).unwrap_err();
        for words in ["too many requests", "wait 300 s", "30 s", "longer deadline", "HF_TOKEN"] {
            assert!(said(&error).contains(words), "{words}: {error}");
        }
        assert_eq!(hub.hub.heard().len() - before, 1);
    }
}

#[test]
fn what_the_hub_refuses_is_told_apart_with_what_to_do() {
    let (_folder, data, index) = prepared();
    let url = "hf://datasets/o/n";
    let cases: [(bool, u16, &str, ErrorKind, &str); 7] = [
        (false, 401, "GatedRepo", ErrorKind::Io, "accept its terms on its page, and set HF_TOKEN"),
        (false, 401, "RepoNotFound", ErrorKind::NotFound, "or it is private"),
        (true, 404, "", ErrorKind::NotFound, "there is no dataset o/n, or it is private"),
        (true, 401, "", ErrorKind::Io, "set HF_TOKEN to a valid token"),
        (true, 403, "", ErrorKind::Io, "the hub refuses access to the dataset o/n"),
        (false, 404, "RevisionNotFound", ErrorKind::NotFound, "the dataset o/n has no revision \"main\""),
        (false, 418, "", ErrorKind::Io, "HTTP status 418"),
    ];
    for (with_token, status, code, kind, words) in cases {
        let hub = Hub::start(&data, false);
        hub.refuse(status, code);
        let options = if with_token { hub.logged_in() } else { hub.options() };
        let error = build(url, &options, &index).unwrap_err();
        assert_eq!(error.kind(), kind, "{status} {code}: {error}");
        assert!(said(&error).contains(words) && error.hint().is_some(), "{status} {code}: {}", said(&error));
        assert!(error.file().is_some_and(|file| file.starts_with(url)), "{error:?}");
        assert!(!said(&error).contains("canary"), "{error}");
        assert_eq!(hub.hub.heard().len(), 1, "asked again: {error}");
    }
    let hub = Hub::start(&data, false);
    for (url, words) in [
        ("hf://datasets/o/n@nothing", "has no revision \"nothing\""),
        ("hf://datasets/o/n/nothing/", "no Parquet file here"),
        ("hf://datasets/o/n/nothing.parquet", "no such file at revision"),
        ("hf://datasets/o/other", "there is no dataset o/other"),
    ] {
        let error = build(url, &hub.options(), &index).unwrap_err();
        assert!(error.kind() == ErrorKind::NotFound && said(&error).contains(words), "{url}: {}", said(&error));
    }
    let data = data.display().to_string();
    let error = IndexBuilder::new([data]).build("hf://datasets/o/n/i.rdx").unwrap_err();
    assert!(said(&error).contains("read, and not written to"), "{error}");
}

#[test]
fn without_a_network_the_disk_cache_serves_what_it_has() {
    let (folder, data, index) = prepared();
    let hub = Hub::start(&data, false);
    build("hf://datasets/o/n", &hub.options(), &index).unwrap();
    let cached = |options: StoreOptions, disk_cache: &str| {
        let builder = Dataset::builder(Index::open(&index).unwrap()).with_store_options(options);
        builder.with_disk_cache(DiskCache::new(folder.path().join(disk_cache), 1 << 30)).open().unwrap()
    };
    let expected = all(&cached(hub.options(), "full"));
    let heard = (hub.hub.heard().len(), hub.store.heard().len());
    let offline = || hub.options().with_config("hf_hub_offline", "1");
    assert_eq!(all(&cached(offline(), "full")), expected);
    for error in [
        cached(offline(), "empty").take(&[0]).unwrap_err(),
        build("hf://datasets/o/n", &offline(), &index).unwrap_err(),
        build(&format!("hf://datasets/o/n@{FIRST}"), &offline(), &index).unwrap_err(),
    ] {
        assert!(said(&error).contains("HF_HUB_OFFLINE") && error.file().is_some(), "{}", said(&error));
    }
    assert_eq!((hub.hub.heard().len(), hub.store.heard().len()), heard);
}

#[test]
fn another_content_under_a_name_is_told_by_the_tag_of_the_hub() {
    let (_folder, data, index) = prepared();
    let hub = Hub::start(&data, false);
    let mut bytes = std::fs::read(data.join("a/1.parquet")).unwrap();
    for url in ["hf://datasets/o/n", "hf://buckets/o/n"] {
        build(url, &hub.options(), &index).unwrap();
        let builder = Dataset::builder(Index::open(&index).unwrap()).with_store_options(hub.options());
        let before = builder.with_cache_bytes(0).open().unwrap();
        let expected = all(&before);
        bytes[100] ^= 1;
        std::fs::write(data.join("a/1.parquet"), &bytes).unwrap();
        // What was signed before is the content of before.
        assert_eq!(all(&before), expected, "{url}");
        hub.expire();
        for dataset in [before, open(&index, &hub.options())] {
            let error = dataset.take(&[5]).unwrap_err();
            assert_eq!((error.kind(), error.file()), (ErrorKind::Stale, Some("a/1.parquet")), "{url}: {error}");
        }
    }
}

#[test]
fn a_bucket_has_the_rows_of_its_files_and_no_revision() {
    let (folder, data, index) = prepared();
    let hub = Hub::start(&data, true);
    let local = folder.path().join("local.rdx");
    let one = "ab/=1 a@b+c.parquet";
    write(&data.join(one), &rows(9000, 3));
    for (below, root) in [("", ""), ("a", "a"), ("b/c/", "b/c"), ("a*/*.parquet", ""), (one, "ab")] {
        IndexBuilder::new([data.join(below)]).with_overwrite(true).build(&local).unwrap();
        build(&format!("hf://buckets/o/n/{below}"), &hub.logged_in(), &index).unwrap();
        assert_eq!(Index::open(&index).unwrap().root().path, format!("hf://buckets/o/n/{root}"));
        assert_eq!(all(&open(&index, &hub.logged_in())), all(&open(&local, &hub.options())), "{below}");
    }
    // An index beside the data.
    IndexBuilder::new([&data]).build(data.join("i.rdx")).unwrap();
    let beside = Index::open_with("hf://buckets/o/n/i.rdx", &hub.logged_in()).unwrap();
    let beside = Dataset::builder(beside).with_store_options(hub.logged_in()).open().unwrap();
    assert_eq!(all(&beside), all(&open(&data.join("i.rdx"), &hub.options())));
    let (heard, stored) = (hub.hub.heard(), hub.store.heard().concat().to_lowercase());
    assert!(heard.iter().all(|head| head.contains(&format!("authorization: Bearer {TOKEN}"))), "{heard:?}");
    assert!(stored.contains("range: bytes=") && !stored.contains("authorization"), "{stored}");
}

#[test]
fn what_is_wrong_with_a_bucket_is_told_with_what_to_do() {
    let (_folder, data, index) = prepared();
    let (public, private) = (Hub::start(&data, false), Hub::start(&data, true));
    for (hub, url, words) in [
        (&public, "hf://buckets/o/other", "there is no bucket o/other, or it is private"),
        (&public, "hf://buckets/o/other/a/", "there is no bucket o/other, or it is private"),
        (&public, "hf://buckets/o/n/nothing/", "no Parquet file here"),
        (&public, "hf://buckets/o/n/nothing.parquet", "the bucket o/n has no such file"),
        (&private, "hf://buckets/o/n/a/", "set HF_TOKEN to a token of an account that sees it"),
        (&private, "hf://buckets/o/n/a/1.parquet", "o/n, or it is private and needs a valid HF_TOKEN"),
    ] {
        let error = build(url, &hub.options(), &index).unwrap_err();
        assert!(error.kind() == ErrorKind::NotFound && said(&error).contains(words), "{url}: {}", said(&error));
    }
    let error = IndexBuilder::new([&data]).build("hf://buckets/o/n/i.rdx").unwrap_err();
    assert!(said(&error).contains("read, and not written to"), "{error}");
    public.refuse(403, "");
    let error = build("hf://buckets/o/n", &public.logged_in(), &index).unwrap_err();
    assert!(said(&error).contains("refuses access to the bucket o/n") && !said(&error).contains(TOKEN), "{error}");
}
