//! Answers that send a client elsewhere: no secret goes there, and of plain HTTP the bytes come from there.

use std::path::Path;
use std::process::{Command, Stdio};

use rowdex::source::{ObjectSource, Source, StoreOptions};
use rowdex::{Dataset, Index, IndexBuilder};
use tempfile::TempDir;

use super::answers::{Answers, certificate};
use super::http::{Abilities, Http};
use super::server::configured;
use super::{rows, write};

const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];
const SECRET: &str = "canary";
const ACCOUNT_KEY: &str = "Y2FuYXJ5LWNhbmFyeQ==";

type Variables = Vec<(&'static str, String)>;

/// Everything that signs its requests in some way, talking to the server at a base: its name, a URL, its settings, and
/// what must be nowhere but there.
fn signing(base: &str) -> Vec<(&'static str, Variables, &'static [&'static str])> {
    let owned = |name, value: &str| (name, value.to_owned());
    let azure = |name, value| {
        vec![
            owned("azure_storage_account_name", "account"),
            owned("azure_storage_endpoint", base),
            owned("azure_allow_http", "true"),
            owned("azure_allow_invalid_certificates", "true"),
            owned(name, value),
        ]
    };
    let s3 = vec![
        owned("aws_endpoint_url", base),
        owned("aws_allow_http", "true"),
        owned("aws_allow_invalid_certificates", "true"),
        owned("aws_access_key_id", "AKIDCANARY"),
        owned("aws_secret_access_key", "canary-secret"),
        owned("aws_session_token", "canary-session"),
        owned("aws_region", "eu-west-1"),
    ];
    let gs = vec![
        owned("google_base_url", base),
        owned("google_allow_http", "true"),
        owned("google_allow_invalid_certificates", "true"),
        owned("google_bearer_token", "canary-token"),
    ];
    vec![
        ("s3://bucket", s3, &["canary-session", "AKIDCANARY"]),
        ("gs://bucket", gs, &["canary-token"]),
        ("az://container", azure("azure_storage_sas_key", "sv=2022-11-02&sp=r&sig=canary-signature"), &[SECRET]),
        ("az://container", azure("azure_storage_account_key", ACCOUNT_KEY), &["SharedKey account:"]),
        ("az://container", azure("azure_storage_token", "canary-bearer"), &["canary-bearer"]),
    ]
}

/// What every kind of request to a store comes to.
fn errors(url: &str, options: &StoreOptions) -> Vec<rowdex::Error> {
    let folder = TempDir::new().unwrap();
    let source = ObjectSource::new(url, options).unwrap();
    let build = |inputs: String, output: &Path| {
        IndexBuilder::new([inputs]).with_store_options(options.clone()).with_overwrite(true).build(output).unwrap_err()
    };
    write(&folder.path().join("a.parquet"), &rows(0, 3));
    vec![
        source.stat("x.parquet").unwrap_err(),
        source.end("x.parquet", 100, None).unwrap_err(),
        source.read("x.parquet", std::slice::from_ref(&(0..10))).unwrap_err(),
        Index::open_with(format!("{url}/i.rdx"), options).unwrap_err(),
        build(format!("{url}/folder/"), &folder.path().join("i.rdx")),
        build(folder.path().display().to_string(), Path::new(&format!("{url}/i.rdx"))),
    ]
}

#[test]
fn a_store_that_wants_secrets_and_redirects_is_an_error_and_nobody_else_is_asked() {
    for tls in [false, true] {
        for status in STATUSES {
            let other = Answers::start(false, |_| b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n".to_vec());
            // Another name, and another port of the same; for a store with TLS, another scheme.
            for name in ["localhost", "127.0.0.1"] {
                let place = format!("http://{name}:{}", other.address.port());
                let store = Answers::redirecting(tls, status, place);
                let base = format!("{}://{}", if tls { "https" } else { "http" }, store.address);
                for (url, variables, secrets) in signing(&base) {
                    for error in errors(url, &configured(variables)) {
                        let said = format!("{error} {error:?}");
                        assert!(said.contains("redirects to another place"), "{url} {status}: {said}");
                        assert!(error.hint().is_some_and(|hint| hint.contains("sent to no other")), "{said}");
                        assert!(!said.contains(SECRET) && !said.contains("sig="), "{said}");
                    }
                    let heard = store.heard().concat();
                    assert!(secrets.iter().all(|secret| heard.contains(secret)), "{url} sends none to its own store");
                    assert!(!heard.to_lowercase().contains("referer:"), "{heard}");
                }
                assert_eq!(other.heard(), [""; 0], "{status}");
            }
        }
    }
}

#[test]
fn an_http_server_may_redirect_and_its_files_are_read_from_there() {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("a b.parquet"), &rows(0, 1200));
    let files = Http::start(folder.path(), Abilities { ranges: true, tags: true });
    for status in STATUSES {
        // Twice, so that a second one could learn of the first one's URL.
        let end = Answers::before(false, files.address);
        let middle = Answers::redirecting(false, status, format!("http://localhost:{}", end.address.port()));
        let from = middle.address;
        let hub = Answers::start(false, move |head| {
            let path = head.split(' ').nth(1).unwrap();
            let signed = format!("http://{from}{path}?X-Amz-Signature=canary#canary");
            format!(
                "HTTP/1.1 {status} There\r\nlocation: {signed}\r\nset-cookie: a=canary\r\ncontent-length: 0\r\n\r\n"
            )
            .into_bytes()
        });
        let index = folder.path().join(format!("{status}.rdx"));
        IndexBuilder::new([format!("http://{}/a%20b.parquet", hub.address)]).build(&index).unwrap();
        let dataset = Dataset::open(&index).unwrap();
        assert_eq!(dataset.take(&[1100, 3]).unwrap().slice(1, 1), rows(3, 1));
        let reads = end.heard();
        assert!(reads.iter().any(|head| head.contains("if-match:") && head.contains("range: bytes=")), "{reads:?}");
        for head in end.heard().iter().chain(&middle.heard()) {
            let head = head.to_lowercase();
            let names = ["referer:", "cookie:", "authorization:", "#canary"];
            assert!(!names.iter().any(|name| head.contains(name)), "{head}");
        }
        // The second redirect repeats the path with its query, so this is not ours to hide.
        assert!(middle.heard().iter().all(|head| head.contains("?X-Amz-Signature=canary ")));
    }
}

#[test]
fn a_redirect_that_leads_nowhere_good_is_refused_by_what_is_wrong_with_it() {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("a.parquet"), &rows(0, 3));
    let other = Answers::start(false, |_| b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n".to_vec());
    let cases = [
        ("file:///etc".to_owned(), "a URL of the scheme `file`"),
        ("ftp://host".to_owned(), "a URL of the scheme `ftp`"),
        (format!("http://user:canary@{}", other.address), "a user or a password"),
        (format!("//canary@{}", other.address), "a user or a password"),
        ("http://[canary".to_owned(), "what is no URL"),
        // To itself.
        (String::new(), "more than 10 times"),
    ];
    for (place, words) in cases {
        let server = Answers::redirecting(false, 302, place);
        let source = ObjectSource::new(&format!("http://{}", server.address), &StoreOptions::default()).unwrap();
        let error = source.stat("a.parquet").unwrap_err();
        let said = format!("{error} {error:?}");
        assert!(said.contains(words) && error.hint().is_some() && !said.contains(SECRET), "{said}");
        // Asked once, and not again as after a fault that may pass.
        assert!(server.heard().len() <= 11, "{:?}", server.heard());
    }
    assert_eq!(other.heard(), [""; 0]);
    // What is written is not sent to whoever is named.
    let server = Answers::redirecting(false, 308, format!("http://{}", other.address));
    let output = format!("http://{}/i.rdx", server.address);
    let error = IndexBuilder::new([folder.path()]).with_overwrite(true).build(&output).unwrap_err();
    assert!(error.to_string().contains("name the URL that the server redirects to"), "{error}");
    assert_eq!(other.heard(), [""; 0]);
}

/// Runs the command in a folder, trusting the certificate of the tests.
fn run(folder: &TempDir, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowdex"));
    command.args(arguments).current_dir(folder.path()).stdin(Stdio::null()).env("SSL_CERT_FILE", certificate());
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn what_is_asked_for_with_encryption_is_not_fetched_without() {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("a.parquet"), &rows(0, 1200));
    let files = Http::start(folder.path(), Abilities { ranges: true, tags: true });
    let open = Answers::before(false, files.address);
    let sealed = Answers::before(true, files.address);
    for status in STATUSES {
        let hub = Answers::redirecting(true, status, format!("http://localhost:{}", open.address.port()));
        let (done, said) = run(&folder, &["build", &format!("https://{}/a.parquet", hub.address), "-o", "no.rdx"]);
        let place = format!("http://localhost:{}, without encryption", open.address.port());
        assert!(!done && said.contains(&place), "{said}");

        let hub = Answers::redirecting(true, status, format!("https://localhost:{}", sealed.address.port()));
        let index = format!("{status}.rdx");
        let (done, said) = run(&folder, &["build", &format!("https://{}/a.parquet", hub.address), "-o", &index]);
        assert!(done, "{said}");
        let (done, said) = run(&folder, &["get", &index, "1100", "--columns", "id"]);
        assert!(done && said.contains("1100"), "{said}");
    }
    assert_eq!(open.heard(), [""; 0]);
}
