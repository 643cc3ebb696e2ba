use super::*;

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
        source.read_unchanged("a", Some(&stat), &[0..1]).unwrap_err(),
    ];
    for error in listed {
        assert_eq!((error.kind(), error.file()), (ErrorKind::NotFound, Some("a")));
        assert!(error.to_string().contains("vanished since the index was built"), "{error}");
    }
}

#[test]
fn requests_are_foretold_by_the_rule_that_makes_them() {
    let source = |options| ObjectSource::new("s3://bucket", &options).unwrap();
    let mib = |from: u64, to: u64| from << 20..to << 20;
    let usual = source(StoreOptions::default());
    assert_eq!(usual.requests(&[]), 0);
    assert_eq!(usual.requests(&[0..10, 16_394..16_400, 5..5]), 1);
    assert_eq!(usual.requests(&[0..10, 16_395..16_400]), 2);
    assert_eq!(usual.requests(&[mib(0, 8), mib(16, 33)]), 4);
    let columns: Vec<_> = (0..8).map(|column| mib(2 * column, 2 * column + 1)).collect();
    assert_eq!(usual.requests(&columns), 8);
    assert_eq!(source(StoreOptions::default().with_gap(1 << 20)).requests(&columns), 2);
}

#[test]
fn a_client_that_could_not_be_made_is_made_at_a_later_call() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key.json");
    let options = StoreOptions::default()
        .with_config("google_service_account", key.to_str().unwrap())
        .with_config("google_base_url", empty_server())
        .with_config("google_allow_http", "true");
    let source = ObjectSource::new("gs://bucket", &options).unwrap();
    let told = source.stat("a").unwrap_err();
    assert!(told.message().contains("cannot be read"), "{told}");
    std::fs::write(
        &key,
        r#"{"gcs_base_url": "", "disable_oauth": true, "client_email": "", "private_key_id": "", "private_key": ""}"#,
    )
    .unwrap();
    assert_eq!(source.stat("a").unwrap_err().kind(), ErrorKind::NotFound);
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
