//! A server that answers as the Hugging Face hub does, and the store that it sends its clients to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rowdex::source::StoreOptions;
use serde_json::json;
use tempfile::TempDir;

use super::answers::Answers;
use super::proxy::field;

pub(super) const TOKEN: &str = "hf_canaryOfTheTest";
pub(super) const FIRST: &str = "1111111111111111111111111111111111111111";
pub(super) const SECOND: &str = "2222222222222222222222222222222222222222";

/// What the hub is like at the moment.
pub(super) struct HubState {
    /// The folder of each commit.
    commits: Mutex<BTreeMap<String, PathBuf>>,
    /// The commit of each branch.
    branches: Mutex<BTreeMap<String, String>>,
    /// What the store has, by its hash.
    contents: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Signatures from this one on are good.
    good: AtomicU64,
    signed: AtomicU64,
    /// So many requests are answered with 429, and these headers.
    limited: Mutex<(u64, String)>,
    /// The next request is answered with 502.
    fails: AtomicBool,
    /// What the hub refuses everything with: a status and its own word.
    refusal: Mutex<Option<(u16, &'static str)>>,
    private: bool,
}

pub(super) struct Hub {
    pub(super) hub: Answers,
    pub(super) store: Answers,
    pub(super) state: Arc<HubState>,
    home: TempDir,
}

impl Hub {
    /// A dataset `o/n` and a bucket `o/n` with the files of a folder, in listings of two files a page.
    pub(super) fn start(folder: &Path, private: bool) -> Self {
        let state = Arc::new(HubState {
            commits: Mutex::new(BTreeMap::from([(FIRST.to_owned(), folder.to_owned())])),
            branches: Mutex::default(),
            contents: Mutex::default(),
            good: AtomicU64::new(0),
            signed: AtomicU64::new(0),
            limited: Mutex::default(),
            fails: AtomicBool::new(false),
            refusal: Mutex::default(),
            private,
        });
        let (kept, served) = (Arc::clone(&state), Arc::clone(&state));
        let store = Answers::start(false, move |head| stored(&kept, head));
        let place = format!("http://localhost:{}", store.address.port());
        let hub = Answers::start(false, move |head| answered(&served, head, &place));
        let found = Self { hub, store, state, home: TempDir::new().unwrap() };
        for branch in ["main", "refs/convert/parquet", "my/branch"] {
            found.set_branch(branch, FIRST);
        }
        found
    }

    pub(super) fn set_branch(&self, branch: &str, commit: &str) {
        self.state.branches.lock().unwrap().insert(branch.to_owned(), commit.to_owned());
    }

    pub(super) fn set_commit(&self, commit: &str, folder: &Path) {
        self.state.commits.lock().unwrap().insert(commit.to_owned(), folder.to_owned());
    }

    /// No URL that was signed up to now is good any more.
    pub(super) fn expire(&self) {
        self.state.good.store(self.state.signed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(super) fn limit(&self, requests: u64, headers: &str) {
        *self.state.limited.lock().unwrap() = (requests, headers.to_owned());
    }

    pub(super) fn fail_once(&self) {
        self.state.fails.store(true, Ordering::Relaxed);
    }

    pub(super) fn refuse(&self, status: u16, code: &'static str) {
        *self.state.refusal.lock().unwrap() = Some((status, code));
    }

    /// What reaches it, as somebody who has not logged in.
    pub(super) fn options(&self) -> StoreOptions {
        let home = self.home.path().join("nobody");
        StoreOptions::default()
            .with_config("hf_endpoint", format!("http://{}", self.hub.address))
            .with_config("hf_home", home.to_str().unwrap())
            .with_config("hf_hub_offline", "0")
    }

    /// What reaches it, as somebody who has logged in, whose token is in a file.
    pub(super) fn logged_in(&self) -> StoreOptions {
        std::fs::write(self.home.path().join("token"), format!("{TOKEN}\n")).unwrap();
        self.options().with_config("hf_home", self.home.path().to_str().unwrap())
    }

    /// Requests that the hub got whose path begins so.
    pub(super) fn asked(&self, path: &str) -> usize {
        self.hub.heard().iter().filter(|head| target(head).starts_with(path)).count()
    }
}

fn target(head: &str) -> &str {
    head.split(' ').nth(1).unwrap()
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A hash that depends on every byte, as long as those of the hub (FNV-1a).
fn hash(bytes: &[u8]) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:064x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

fn decoded(text: &str) -> String {
    rowdex_io::source::place::percent_decoded(text).unwrap()
}

fn answered(state: &HubState, head: &str, store: &str) -> Vec<u8> {
    if state.fails.swap(false, Ordering::Relaxed) {
        return answer("502 Bad Gateway", "", b"");
    }
    let mut limited = state.limited.lock().unwrap();
    if limited.0 > 0 {
        limited.0 -= 1;
        return answer("429 Too Many Requests", &limited.1, b"slow down");
    }
    drop(limited);
    let refused = |status: u16, code: &str| {
        answer(&format!("{status} No"), &format!("x-error-code: {code}\r\nx-error-message: canary\r\n"), b"{}")
    };
    if let Some((status, code)) = *state.refusal.lock().unwrap() {
        return refused(status, code);
    }
    let token = field(head, "authorization");
    match token {
        Some(token) if token != format!("Bearer {TOKEN}") => return refused(401, ""),
        None if state.private => return refused(401, "RepoNotFound"),
        _ => {}
    }
    let (path, query) = target(head).split_once('?').unwrap_or((target(head), ""));
    if let Some(revision) = path.strip_prefix("/api/datasets/o/n/revision/") {
        return match state.branches.lock().unwrap().get(&decoded(revision)) {
            Some(commit) => answer("200 OK", "", json!({"id": "o/n", "sha": commit}).to_string().as_bytes()),
            None => refused(404, "RevisionNotFound"),
        };
    }
    // A bucket is a folder, too, and it has no commit.
    let is_bucket = path.contains("buckets/o/n/");
    let path = ["tree", "resolve"].iter().fold(path.to_owned(), |path, what| {
        path.replace(&format!("buckets/o/n/{what}"), &format!("datasets/o/n/{what}/{FIRST}"))
    });
    let below = |prefix: &str| {
        let (commit, rest) = path.strip_prefix(prefix)?.split_at_checked(40)?;
        let folder = state.commits.lock().unwrap().get(commit)?.clone();
        Some((folder, rest.trim_start_matches('/').to_owned()))
    };
    if let Some((folder, path)) = below("/api/datasets/o/n/tree/") {
        assert!(!path.contains('/'), "it is not encoded as one part: {path}");
        let page = page(&folder, &decoded(&path), query, target(head), is_bucket);
        return page.unwrap_or_else(|| refused(404, "EntryNotFound"));
    }
    let Some((folder, name)) = below("/datasets/o/n/resolve/") else { return refused(404, "RepoNotFound") };
    let name = decoded(&name);
    let Ok(bytes) = std::fs::read(folder.join(&name)) else { return refused(404, "EntryNotFound") };
    let signature = state.signed.fetch_add(1, Ordering::Relaxed) + 1;
    let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let (hash, size) = (hash(&bytes), bytes.len());
    let headers = match is_bucket {
        true => format!("x-xet-hash: {hash}\r\nx-linked-etag: \"of another kind\"\r\n"),
        false => format!("x-linked-etag: \"{hash}\"\r\nx-linked-size: {size}\r\n"),
    };
    if is_bucket && head.starts_with("HEAD ") {
        return format!("HTTP/1.1 200 OK\r\n{headers}content-length: {size}\r\n\r\n").into_bytes();
    }
    let headers = format!("{headers}location: {store}/{hash}/{encoded}?X-Amz-Signature={signature}\r\n");
    state.contents.lock().unwrap().insert(hash, bytes);
    answer("302 Found", &headers, b"")
}

/// Two entries of a listing, the folder itself among them as the hub has it; of a bucket, files whose names begin so.
fn page(folder: &Path, path: &str, query: &str, target: &str, is_bucket: bool) -> Option<Vec<u8>> {
    assert!(query.split('&').any(|part| part == "recursive=true"), "{target}");
    let start = folder.join(if is_bucket { "" } else { path });
    if !start.is_dir() {
        return None;
    }
    let mut entries = Vec::new();
    let mut folders = vec![start];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let place = entry.unwrap().path();
            let name = place.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            if place.is_dir() {
                entries.push((name.clone(), json!({"type": "directory", "oid": "0", "size": 0, "path": name})));
                folders.push(place);
            } else {
                let bytes = std::fs::read(&place).unwrap();
                let mut file = json!({"type": "file", "size": bytes.len(), "path": name, "xetHash": hash(&bytes)});
                if !is_bucket {
                    file["lfs"] = json!({"oid": hash(&bytes), "size": bytes.len(), "pointerSize": 130});
                    (file["oid"], file["xetHash"]) = (json!("git"), json!("of another kind"));
                }
                entries.push((name, file));
            }
        }
    }
    entries.retain(|(name, entry)| !is_bucket || name.starts_with(path) && entry["type"] == "file");
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    let from = query.split('&').find_map(|part| part.strip_prefix("cursor=")).map_or(0, |at| at.parse().unwrap());
    let page: Vec<_> = entries.iter().skip(from).take(2).map(|entry| &entry.1).collect();
    let path = target.split('?').next().unwrap();
    let link = match entries.len() > from + 2 {
        // Its name as the world knows it, which need not be that of the endpoint.
        true => format!("link: <https://hub.invalid{path}?recursive=true&cursor={}>; rel=\"next\"\r\n", from + 2),
        false => String::new(),
    };
    Some(answer("200 OK", &link, json!(page).to_string().as_bytes()))
}

/// The store: it takes a signature, and neither tokens nor conditions.
fn stored(state: &HubState, head: &str) -> Vec<u8> {
    if ["authorization", "cookie", "referer", "if-match"].iter().any(|name| field(head, name).is_some()) {
        return answer("400 Bad Request", "", b"");
    }
    let (path, query) = target(head).split_once('?').unwrap();
    let signature: u64 = query.strip_prefix("X-Amz-Signature=").unwrap().parse().unwrap();
    if signature < state.good.load(Ordering::Relaxed) {
        return answer("403 Forbidden", "", b"<Code>AccessDenied</Code>");
    }
    let bytes = state.contents.lock().unwrap()[path.split('/').nth(1).unwrap()].clone();
    let headers = "etag: \"of the store\"\r\nlast-modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    let Some(range) = field(head, "range").and_then(|range| range.strip_prefix("bytes=")) else {
        return answer("200 OK", headers, &bytes);
    };
    let (first, last) = range.split_once('-').unwrap();
    let (start, end) = match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), Ok(last)) => (first, (last + 1).min(bytes.len())),
        (Ok(first), Err(_)) => (first, bytes.len()),
        (Err(_), Ok(length)) => (bytes.len().saturating_sub(length), bytes.len()),
        (Err(_), Err(_)) => return answer("416 No", "", b""),
    };
    let headers = format!("{headers}content-range: bytes {start}-{}/{}\r\n", end - 1, bytes.len());
    answer("206 Partial Content", &headers, &bytes[start..end])
}
