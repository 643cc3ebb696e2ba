//! Listings: of several pages and with faults between them, and what a name means beside a pattern.

use std::collections::BTreeMap;
use std::sync::Arc;

use rowdex::source::{ObjectSource, Source, StoreOptions};
use rowdex::{ErrorKind, Index, IndexBuilder};
use tempfile::TempDir;

use super::answers::Answers;
use super::proxy::field;
use super::server::{BUCKET, S3};
use super::{rows, write};

/// A bucket as S3 serves it, read only, with two objects to a page of a listing.
struct Bucket(BTreeMap<String, Vec<u8>>);

impl Bucket {
    /// With files of five rows, and objects without a byte.
    fn of(files: &[&str], empty: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("file");
        write(&path, &rows(0, 5));
        let bytes = std::fs::read(&path).unwrap();
        let files = files.iter().map(|key| ((*key).to_owned(), bytes.clone()));
        Self(files.chain(empty.iter().map(|key| ((*key).to_owned(), Vec::new()))).collect())
    }

    fn answer(&self, head: &str) -> Vec<u8> {
        let target = head.split(' ').nth(1).unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if query.contains("list-type=2") {
            return answer("200 All", "", self.page(query).as_bytes());
        }
        let key = decoded(path.strip_prefix(&format!("/{BUCKET}/")).unwrap());
        let Some(bytes) = self.0.get(&key) else { return answer("404 No", "", b"") };
        let size = bytes.len();
        let about = format!("etag: \"{key}\"\r\nlast-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n");
        if head.starts_with("HEAD") {
            return format!("HTTP/1.1 200 All\r\n{about}content-length: {size}\r\n\r\n").into_bytes();
        }
        let Some(range) = field(head, "range") else { return answer("200 All", &about, bytes) };
        let (start, end) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (start, end): (usize, usize) = match (start.parse(), end.parse::<usize>()) {
            (Ok(start), Ok(last)) => (start, (last + 1).min(size)),
            (_, length) => (size.saturating_sub(length.unwrap()), size),
        };
        let part = format!("{about}content-range: bytes {start}-{}/{size}\r\n", end - 1);
        answer("206 Part", &part, &bytes[start..end])
    }

    fn page(&self, query: &str) -> String {
        let asked = |name: &str| query.split('&').find_map(|part| part.strip_prefix(name)).map(decoded);
        let prefix = asked("prefix=").unwrap_or_default();
        let start: usize = asked("continuation-token=").map_or(0, |token| token.parse().unwrap());
        let found: Vec<_> = self.0.iter().filter(|(key, _)| key.starts_with(&prefix)).skip(start).collect();
        let one = |(key, bytes): &(&String, &Vec<u8>)| {
            let (time, size) = ("2026-01-01T00:00:00.000Z", bytes.len());
            format!("<Contents><Key>{key}</Key><LastModified>{time}</LastModified><Size>{size}</Size></Contents>")
        };
        let mut page: String = found.iter().take(2).map(one).collect();
        if found.len() > 2 {
            page += &format!("<NextContinuationToken>{}</NextContinuationToken>", start + 2);
        }
        format!("<ListBucketResult>{page}</ListBucketResult>")
    }
}

fn answer(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 {status}\r\n{fields}content-length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

fn decoded(text: &str) -> String {
    rowdex_io::source::place::percent_decoded(text).unwrap()
}

/// The paths of the index of this, by the root of the bucket.
fn indexed(server: &Answers, input: &str) -> rowdex::Result<Vec<String>> {
    let folder = TempDir::new().unwrap();
    let index = folder.path().join("i.rdx");
    let url = |key: &str| format!("s3://{BUCKET}/{key}");
    let builder = IndexBuilder::new([url(input)]).with_root(url("")).with_store_options(S3::options(server.address));
    builder.build(&index)?;
    Ok(Index::open(&index)?.files().map(|file| file.path().to_owned()).collect())
}

#[test]
fn an_object_of_the_very_name_wins_over_the_pattern() {
    let bucket = Bucket::of(&["a[b].parquet", "a{.parquet", "ab.parquet", "x[1]/c.parquet", "x1/c.parquet"], &[]);
    let server = Answers::start(false, move |head| bucket.answer(head));
    for (input, paths) in [
        ("a[b].parquet", vec!["a[b].parquet"]),
        ("a{.parquet", vec!["a{.parquet"]),
        ("[a]b.parquet", vec!["ab.parquet"]),
        ("a*.parquet", vec!["a[b].parquet", "ab.parquet", "a{.parquet"]),
        ("x[1]/", vec!["x[1]/c.parquet"]),
        ("x[1]/*", vec!["x1/c.parquet"]),
    ] {
        assert_eq!(indexed(&server, input).unwrap(), paths, "{input}");
    }
}

#[test]
fn an_empty_object_that_stands_for_a_folder_is_no_file() {
    let bucket = Bucket::of(&["data/t.parquet/1.parquet", "data/u.parquet"], &["data/t.parquet/", "data/"]);
    let server = Answers::start(false, move |head| bucket.answer(head));
    for input in ["data/", "data/**/*.parquet"] {
        assert_eq!(indexed(&server, input).unwrap(), ["data/t.parquet/1.parquet", "data/u.parquet"], "{input}");
    }
}

#[test]
fn a_key_that_is_no_path_is_named() {
    let bucket = Bucket::of(&["data/1.parquet", "data//2.parquet"], &[]);
    let server = Answers::start(false, move |head| bucket.answer(head));
    let error = indexed(&server, "data/").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("`data//2.parquet`") && error.hint().unwrap().contains("rename"), "{error}");
}

#[test]
fn a_server_that_refuses_to_tell_of_a_file_has_not_lost_it() {
    let server = Answers::start(false, |_| answer("405 No", "", b""));
    let source = ObjectSource::new(&format!("http://{}", server.address), &StoreOptions::default()).unwrap();
    let error = source.stat("a.parquet").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.message().contains("does not do this (HTTP status 405)"), "{error}");
}

#[test]
fn a_large_object_is_written_in_parts_and_over_another() {
    let Some(s3) = S3::start() else { return };
    let source = ObjectSource::new(&format!("s3://{BUCKET}/large"), &S3::options(s3.address)).unwrap();
    let source = Arc::new(source);
    let bytes = |seed: u8| (0..65_u32 << 20).map(|at| (at / 999) as u8 ^ seed).collect::<Vec<u8>>();
    let large = bytes(0);
    source.put("x", large.clone().into(), false).unwrap();
    assert_eq!(source.put("x", bytes(1).into(), false).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(source.get_whole("x").unwrap() == large);
    // A range is read in parts of 8 MiB, and comes in one piece.
    let range = 1000..60_000_001;
    assert!(source.read("x", std::slice::from_ref(&range)).unwrap()[0] == large[1000..60_000_001]);
    source.put("x", bytes(1).into(), true).unwrap();
    assert!(source.get_whole("x").unwrap() == bytes(1));
}
