//! A foul network: rows come exact, or an error that says what is wrong, in time.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rowdex::dataset::Staleness;
use rowdex::{Dataset, ErrorKind, Index, IndexBuilder};
use tempfile::TempDir;

use super::answers::Answers;
use super::proxy::{Proxy, Weather};
use super::server::{BUCKET, S3, SECRET};
use super::{ROWS, write_data};

/// Operations of the storm; `ROWDEX_STORES_OPS` asks for more, as `tools/check.sh` does.
const OPERATIONS: u64 = 600;

fn indexed(s3: &S3) -> (TempDir, Index) {
    write_data(&s3.bucket().join("data"));
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("i.rdx");
    IndexBuilder::new([format!("s3://{BUCKET}/data/")])
        .with_store_options(S3::options(s3.address))
        .build(&path)
        .unwrap();
    (folder, Index::open(&path).unwrap())
}

fn opened(index: &Index, address: SocketAddr, deadline: Duration, retries: usize) -> Dataset {
    let options = S3::options(address).with_deadline(deadline).with_retries(retries);
    Dataset::builder(index.clone()).with_store_options(options).with_cache_bytes(0).open().unwrap()
}

#[test]
fn in_a_storm_every_row_is_exact_or_an_error_in_time() {
    let Some(s3) = S3::start() else { return };
    let (_folder, index) = indexed(&s3);
    let calm = opened(&index, s3.address, Duration::from_secs(60), 0).take(&(0..ROWS).collect::<Vec<_>>()).unwrap();
    let operations = std::env::var("ROWDEX_STORES_OPS").ok().and_then(|text| text.parse().ok()).unwrap_or(OPERATIONS);
    // With retries nearly all succeed; without, a good part fails.
    for (seed, retries, fewest, most) in [(1, 10, 1.0, 1.0), (2, 0, 0.2, 0.95)] {
        let proxy = Proxy::start(s3.address, Weather { faults_per_mille: 150, seed, ..Weather::default() }).unwrap();
        let deadline = Duration::from_secs(30);
        let dataset = opened(&index, proxy.address, deadline, retries);
        let (next, good) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..24 {
                scope.spawn(|| {
                    while let operation = next.fetch_add(1, Ordering::Relaxed)
                        && operation < operations / 2
                    {
                        let row = operation * 7919 % ROWS;
                        let began = Instant::now();
                        let outcome = if operation % 10 == 0 {
                            dataset.take(&[row, (row + 2000) % ROWS])
                        } else {
                            dataset.get(row)
                        };
                        assert!(began.elapsed() < deadline + Duration::from_secs(5));
                        match outcome {
                            Ok(rows) => {
                                assert_eq!(rows.slice(0, 1), calm.slice(row as usize, 1));
                                good.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                                assert!(error.file().is_some(), "{error}");
                                assert!(!error.to_string().contains(SECRET));
                            }
                        }
                    }
                });
            }
        });
        assert!(proxy.faults() > operations / 50, "{} faults", proxy.faults());
        let share = good.into_inner() as f64 / (operations / 2) as f64;
        assert!((fewest..=most).contains(&share), "{share} with {retries} retries");
    }
}

#[test]
fn a_store_that_only_fails_is_given_up_at_the_deadline() {
    let Some(s3) = S3::start() else { return };
    let (_folder, index) = indexed(&s3);
    let failing = Answers::start(false, |_| b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n".to_vec());
    let dataset = opened(&index, failing.address, Duration::from_secs(2), 1000);
    let began = Instant::now();
    let error = dataset.get(7).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("gave up after 2 s"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_store_that_is_not_there_is_an_error_that_says_so() {
    let Some(s3) = S3::start() else { return };
    let (_folder, index) = indexed(&s3);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = opened(&index, nobody, Duration::from_secs(60), 1).get(7).unwrap_err();
    assert!(error.to_string().contains("cannot connect to the store"), "{error}");
}

#[test]
fn no_secret_is_in_an_error_an_index_or_a_debug_text() {
    let Some(s3) = S3::start() else { return };
    let (folder, index) = indexed(&s3);
    let written = std::fs::read(folder.path().join("i.rdx")).unwrap();
    assert!(!written.windows(SECRET.len()).any(|bytes| bytes == SECRET.as_bytes()));
    let options = S3::options(s3.address)
        .with_config("aws_secret_access_key", "canary-wrong-secret")
        .with_config("aws_session_token", "canary-session-token");
    let dataset = Dataset::builder(index.clone()).with_store_options(options.clone()).with_check(Staleness::Footer);
    let mut said = format!("{dataset:?} {options:?}");
    let dataset = dataset.open().unwrap();
    let error = dataset.get(0).unwrap_err();
    assert!(error.to_string().contains("AWS_SECRET_ACCESS_KEY"), "{error}");
    said += &format!("{dataset:?} {error} {error:?}");
    let builder = IndexBuilder::new([format!("s3://{BUCKET}/data/")]).with_store_options(options);
    let error = builder.build(folder.path().join("x.rdx")).unwrap_err();
    said += &format!("{builder:?} {error} {error:?}");
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        said += &format!(" {next} {next:?}");
        cause = next.source();
    }
    assert!(!said.contains("canary"), "{said}");
}
