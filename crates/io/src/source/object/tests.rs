use std::ops::Range;

use proptest::prelude::*;

use super::*;

fn mib(from: u64, to: u64) -> Range<u64> {
    from << 20..to << 20
}

#[test]
fn ranges_are_joined_over_gaps_that_cost_less_than_a_request() {
    type Ranges<'a> = &'a [Range<u64>];
    let cases: &[(Ranges<'_>, Ranges<'_>)] = &[
        (&[], &[]),
        (&[5..5], &[]),
        (&[mib(0, 1), mib(1, 20)], &[mib(0, 20)]),
        // 16 KiB are always read over, and no more of few bytes.
        (&[0..10, 16_394..16_400], &[0..16_400]),
        (&[0..10, 16_395..16_400], &[0..10, 16_395..16_400]),
        // The smallest gaps first: together at most a fiftieth of 100 MiB, and none above 1 MiB.
        (&[mib(0, 50), mib(52, 100), mib(101, 103)], &[mib(0, 50), mib(52, 103)]),
        (&[mib(0, 50), mib(51, 76), mib(77, 101), mib(102, 103)], &[mib(0, 101), mib(102, 103)]),
    ];
    for (ranges, reads) in cases {
        assert_eq!(join(ranges, 0), *reads, "{ranges:?}");
    }
}

#[test]
fn gaps_that_are_permitted_are_read_over_however_many() {
    let columns: Vec<_> = (0..8).map(|column| mib(2 * column, 2 * column + 1)).collect();
    assert_eq!(join(&columns, 0).len(), 8);
    assert_eq!(join(&columns, (1 << 20) - 1).len(), 8);
    assert_eq!(join(&columns, 1 << 20), [mib(0, 15)]);
    // What is permitted does not use up what may be wasted anyway.
    assert_eq!(join(&[mib(0, 50), mib(51, 100), mib(102, 103)], 1 << 20), [mib(0, 100), mib(102, 103)]);
}

/// Answers every request with 404, at this address.
fn empty_server() -> String {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
            let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    format!("http://{address}/data")
}

#[test]
fn a_mistyped_address_did_not_vanish() {
    let url = empty_server();
    let source = ObjectSource::new(&url, &StoreOptions::default()).unwrap();
    let stat = FileStat { size: 1, ..FileStat::default() };
    let named = [source.get_whole("").unwrap_err(), source.stat("").unwrap_err()];
    for error in named {
        assert_eq!((error.kind(), error.file()), (ErrorKind::NotFound, Some(url.as_str())));
        assert_eq!(error.hint(), Some("check the address"));
    }
    let listed = [
        source.stat("a").unwrap_err(),
        source.end("a", 1, None).unwrap_err(),
        source.read("a", &[0..1]).unwrap_err(),
        source.read_unchanged("a", &stat, &[0..1]).unwrap_err(),
    ];
    for error in listed {
        assert_eq!((error.kind(), error.file()), (ErrorKind::NotFound, Some("a")));
        assert!(error.to_string().contains("vanished since the index was built"), "{error}");
    }
}

#[test]
fn requests_are_foretold_by_the_rule_that_makes_them() {
    let source = ObjectSource::new("s3://bucket", &StoreOptions::default().with_gap(100)).unwrap();
    assert_eq!(source.requests(&[]), 0);
    assert_eq!(source.requests(&[0..10, 110..120, 5..5]), 1);
    assert_eq!(source.requests(&[mib(0, 8), mib(16, 33)]), 4);
}

proptest! {
    #[test]
    fn joined_reads_cover_all_ranges_and_waste_little(
        starts in prop::collection::vec((0u64..1 << 30, 1u64..1 << 22), 1..40),
    ) {
        let ranges: Vec<_> = starts.iter().map(|&(start, length)| start..start + length).collect();
        let reads = join(&ranges, 0);
        prop_assert!(reads.windows(2).all(|pair| pair[0].end < pair[1].start));
        let within = |range: &Range<u64>, read: &Range<u64>| read.start <= range.start && range.end <= read.end;
        prop_assert!(ranges.iter().all(|range| reads.iter().any(|read| within(range, read))));
        let total = |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        let needed = total(&super::super::coalesce(&ranges, 0, u64::MAX));
        prop_assert!(total(&reads) - needed <= (needed / 50).max(FREE_GAPS));
    }

    #[test]
    fn parts_make_up_the_read_and_are_glued_without_a_copy(start in 0u64..1000, length in 1u64..30 << 20) {
        let parts = parts(&(start..start + length), true, &Buffers::keeping(0));
        prop_assert_eq!(parts.len() as u64, length.div_ceil(PART));
        prop_assert_eq!((parts[0].range.start, parts[parts.len() - 1].range.end), (start, start + length));
        prop_assert!(parts.windows(2).all(|pair| pair[0].range.end == pair[1].range.start));
        let first = parts[0].body.as_ptr();
        let bodies: Vec<_> = parts.into_iter().enumerate().map(|(number, mut part)| {
            part.body.resize((part.range.end - part.range.start) as usize, number as u8);
            part.body
        }).collect();
        let whole = glue(bodies.into_iter());
        prop_assert_eq!((whole.as_ptr(), whole.len() as u64), (first, length));
    }
}

#[test]
fn a_client_that_could_not_be_made_is_made_at_a_later_call() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key.json");
    let options = StoreOptions::default().with_config("google_service_account", key.to_str().unwrap());
    let source = ObjectSource::new("gs://bucket", &options).unwrap();
    let said = || source.stat("a").unwrap_err().message().to_owned();
    assert!(said().contains("credentials cannot be read"), "{}", said());
    std::fs::write(&key, "no key").unwrap();
    assert!(!said().contains("credentials cannot be read"), "{}", said());
}

#[test]
fn a_tag_is_the_same_in_quotes_without_and_weak() {
    let tagged = |tag: &str| FileStat { size: 1, mtime_ns: None, etag: Some(tag.to_owned()) };
    let tags = ["x", "\"x\"", "W/\"x\""];
    for (one, other) in tags.iter().flat_map(|one| tags.iter().map(move |other| (one, other))) {
        assert!(tagged(one).is_surely(&tagged(other)), "{one} {other}");
        assert!(!tagged(one).may_be(&tagged("W/\"y\"")), "{one}");
    }
}

#[test]
fn nothing_is_started_before_the_first_call_nor_shown_of_secrets() {
    let options = StoreOptions::default().with_config("aws_secret_access_key", "canary");
    let source = ObjectSource::new("s3://bucket/prefix/", &options).unwrap();
    assert_eq!(source.traffic(), Traffic::default());
    let shown = format!("{source:?}");
    assert!(shown.contains("s3://bucket/prefix") && !shown.contains("canary"), "{shown}");
    assert_eq!(source.key("a b/c"), "prefix/a b/c");
    assert_eq!(ObjectSource::new("data/", &options).unwrap_err().kind(), ErrorKind::InvalidArgument);
}
