//! The protocol of the Hugging Face hub: files behind redirects to signed URLs, listings in pages, branches as commits.
//!
//! The token goes to the hub and to nobody else. It comes from the environment or from its file, and from nowhere else:
//! what a program sets by name may be pickled, logged and sent to workers. A file of the hub is at
//! `…/resolve/REVISION/PATH`, which leads to a URL of a store that is signed for a while. It is asked for once and
//! kept, so that a range costs one request and not two; when the store no longer takes it, the hub is asked anew. What
//! a file contains the hub says beside the redirect (`X-Linked-ETag`), in the same words as in its listings: the
//! store's own tags are not looked at.
//!
//! A bucket has no revisions, and its files change. Its store keeps contents by their hash (`X-Xet-Hash`), so a signed
//! URL leads to one content, whatever becomes of the file.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, ETAG, HeaderMap, HeaderValue, LAST_MODIFIED, LINK, RANGE};
use reqwest::{Method, StatusCode, Url};

use super::fault::{StoreFault, as_it_is};
use super::transport::{Sender, redirected, request, truth, url_of};
use crate::source::hub_place::{Repository, encoded, is_commit};
use crate::source::{FileStat, StoreOptions, place};
use rowdex_base::error::{Error, ErrorKind, Result};

/// Pauses before a listing is asked for again.
const PAUSES: [u64; 4] = [1, 2, 4, 8];

/// One dataset or bucket of the hub.
#[derive(Clone)]
pub(super) struct Hub {
    sender: Sender,
    place: place::Url,
    repository: Repository,
    /// Without a slash at its end.
    endpoint: String,
    /// `Bearer …`
    token: Option<HeaderValue>,
    offline: bool,
    /// Where each file is, by its URL at the hub.
    places: Arc<Mutex<HashMap<Url, Slot>>>,
}

type Slot = Arc<tokio::sync::Mutex<Option<HubTarget>>>;

/// Where a file is in a store, and what the hub says of its content.
#[derive(Clone, PartialEq, Eq)]
struct HubTarget {
    url: Url,
    tag: Option<HeaderValue>,
    size: Option<HeaderValue>,
}

impl Hub {
    /// From options, and for what they do not say from the environment, under the names of Hugging Face's own library.
    ///
    /// # Errors
    /// `InvalidArgument` for an endpoint that is none, and where the token would go out without encryption.
    pub(super) fn new(
        place: &place::Url,
        repository: Repository,
        options: &StoreOptions,
        sender: Sender,
    ) -> Result<Self> {
        let own = |name: &str| options.config.iter().rev().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let text = |name: &str| {
            let value = own(name).map(|(_, value)| value.clone()).or_else(|| std::env::var(name).ok());
            value.filter(|value| !value.is_empty())
        };
        let refuse = |message: &'static str, hint: &'static str| {
            Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint))
        };
        if own("HF_TOKEN").is_some() {
            return refuse("a token is taken from the environment only", "set HF_TOKEN there");
        }
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let at = Url::parse(&endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(at) = at.filter(|url| url.username().is_empty() && url.password().is_none() && url.query().is_none())
        else {
            return refuse("HF_ENDPOINT is no URL of a server", "write `https://HOST`");
        };
        let file = || {
            let home = || std::env::home_dir().map(|home| home.join(".cache/huggingface"));
            let home = || text("HF_HOME").map(PathBuf::from).or_else(home);
            text("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(home()?.join("token")))
        };
        let token = text("HF_TOKEN").or_else(|| std::fs::read_to_string(file()?).ok());
        let token = token.as_deref().map(str::trim).filter(|token| !token.is_empty());
        if token.is_some() && at.scheme() == "http" && !is_here(&at) {
            let hint = "set HF_ENDPOINT to a URL with https";
            return refuse("HF_ENDPOINT is not encrypted, and the token would be sent to it", hint);
        }
        let mut token = token.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
        token.iter_mut().for_each(|token| token.set_sensitive(true));
        let offline = text("HF_HUB_OFFLINE").as_deref().and_then(truth) == Some(true);
        Ok(Self { sender, place: place.clone(), repository, endpoint, token, offline, places: Arc::default() })
    }

    /// The URL that all files are below.
    pub(super) fn root(&self) -> String {
        format!("{}/{}", self.endpoint, self.repository.path("resolve"))
    }

    /// The commit that the revision is of now.
    pub(super) async fn commit(&self) -> Result<String> {
        let (answer, _) = self.json("revision", "").await?;
        let commit = answer.get("sha").and_then(serde_json::Value::as_str).filter(|sha| is_commit(sha));
        commit.map(str::to_owned).ok_or_else(|| misread("it does not say which commit this is"))
    }

    /// All files below a folder; none of what is no folder. The hub lists all of a bucket whose paths begin so, as
    /// text.
    pub(super) async fn list(&self, folder: &str) -> Result<Vec<(String, FileStat)>> {
        let below = if folder.is_empty() { String::new() } else { format!("/{}", encoded(folder)) };
        let has_folders = self.repository.revision.is_some() && !folder.is_empty();
        let mut listed = Vec::new();
        let mut query = "recursive=true".to_owned();
        loop {
            let (page, headers) = match self.json("tree", &format!("{below}?{query}")).await {
                // A bucket has prefixes and no folders, so it is the bucket that is missing.
                Err(error) if error.kind() == ErrorKind::NotFound && has_folders => return Ok(listed),
                page => page?,
            };
            let entries = page.as_array().ok_or_else(|| misread("its listing is none"))?;
            let files = entries.iter().filter(|entry| entry.get("type").is_none_or(|kind| kind == "file"));
            for file in files {
                listed.push(file_of(file).ok_or_else(|| misread("its listing is none"))?);
            }
            match next_query(&headers) {
                Some(next) if next != query => query = next,
                _ => break,
            }
        }
        listed.retain(|(path, _)| {
            folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        });
        Ok(listed)
    }

    /// What the hub's API says of the revision, asked again after a fault that may pass.
    async fn json(&self, what: &str, rest: &str) -> Result<(serde_json::Value, HeaderMap)> {
        let url = format!("{}/api/{}{rest}", self.endpoint, self.repository.path(what));
        let mut pauses = PAUSES.into_iter();
        loop {
            let answer = self.try_json(&url).await;
            let passes = match &answer {
                Ok((status, ..)) => status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS,
                Err(error) => error.kind() != HttpErrorKind::Unknown,
            };
            if passes && let Some(pause) = pauses.next() {
                tokio::time::sleep(Duration::from_secs(pause)).await;
                continue;
            }
            let fault = |error| object_store::Error::Generic { store: "hub", source: Box::new(error) };
            let (status, headers, body) = answer.map_err(|error| StoreFault::of(&fault(error), &self.place).error)?;
            if !status.is_success() {
                return Err(misread(&format!("it answers with HTTP status {}", status.as_u16())));
            }
            return Ok((serde_json::from_slice(&body).map_err(|_| misread("its answer is no JSON"))?, headers));
        }
    }

    async fn try_json(&self, url: &str) -> Result<(StatusCode, HeaderMap, Bytes), HttpError> {
        match self.ask(&Method::GET, url_of(url)?, &HeaderMap::new()).await? {
            Ok(_) => Err(as_it_is(misread("it leads to another server"))),
            Err(answer) => {
                let (parts, body) = answer.into_parts();
                Ok((parts.status, parts.headers, body.bytes().await?))
            }
        }
    }

    /// A request for a file, which is all that the client of an HTTP server sends.
    async fn answer(&self, asked: &HttpRequest) -> Result<HttpResponse, HttpError> {
        if ![Method::GET, Method::HEAD].contains(asked.method()) {
            let error = Error::new(ErrorKind::InvalidArgument, "the hub is read, and not written to");
            return Err(as_it_is(error.with_hint("write to a local file, and upload it")));
        }
        let url = url_of(&asked.uri().to_string())?;
        let range: HeaderMap = asked.headers().get(RANGE).map(|range| (RANGE, range.clone())).into_iter().collect();
        if asked.method() == Method::HEAD {
            // What a file is like may have changed since its place was asked for.
            return match self.ask(asked.method(), url, &range).await? {
                Ok(HubTarget { tag, size: Some(size), .. }) => {
                    let mut answer = HttpResponse::new(Bytes::new().into());
                    answer.headers_mut().insert(CONTENT_LENGTH, size);
                    Ok(tagged(answer, tag))
                }
                Ok(_) => Err(as_it_is(misread("it does not say how long a file is"))),
                // The hub has small files itself.
                Err(answer) => Ok(answer),
            };
        }
        let slot =
            Arc::clone(self.places.lock().unwrap_or_else(PoisonError::into_inner).entry(url.clone()).or_default());
        for _ in 0..2 {
            // While one asks the hub, others who want the file wait for the lock.
            let mut place = slot.lock().await;
            let target = match &*place {
                Some(known) => known.clone(),
                None => match self.ask(asked.method(), url.clone(), &range).await? {
                    Ok(target) => place.insert(target).clone(),
                    Err(answer) => return Ok(answer),
                },
            };
            drop(place);
            let answer = self.sender.follow(asked.method(), target.url.clone(), &range).await?;
            if !is_refusal(answer.status()) {
                return Ok(tagged(answer, target.tag));
            }
            // It is signed for a while only.
            let mut place = slot.lock().await;
            if *place == Some(target) {
                *place = None;
            }
        }
        let error = Error::new(ErrorKind::Io, "the hub's store refuses what the hub signed");
        Err(as_it_is(error.with_hint("try again later, and check the clock")))
    }

    /// Asks the hub, with the token, and goes where it leads as long as that is the hub: the place of a file elsewhere,
    /// or the answer of the hub itself.
    async fn ask(
        &self,
        method: &Method,
        mut url: Url,
        range: &HeaderMap,
    ) -> Result<Result<HubTarget, HttpResponse>, HttpError> {
        if self.offline {
            let message = "HF_HUB_OFFLINE is set, so the hub is not asked, and the disk cache does not have this";
            let error = Error::new(ErrorKind::Io, message);
            return Err(as_it_is(error.with_hint("unset it, or fill the disk cache while there is a network")));
        }
        let home = url.origin();
        let mut headers = range.clone();
        headers.extend(self.token.clone().map(|token| (AUTHORIZATION, token)));
        let mut tag = None;
        // A redirect of a name leads to one more.
        for _ in 0..5 {
            let answer = self.sender.send(request(method, &url, &headers)?).await?;
            if is_refusal(answer.status()) {
                return Err(as_it_is(self.refused(&answer)));
            }
            let said = answer.headers();
            let hash = match self.repository.revision {
                Some(_) => said.get("x-linked-etag").or_else(|| said.get(ETAG)),
                None => said.get("x-xet-hash"),
            };
            tag = hash.and_then(quoted).or(tag);
            let Some(next) = redirected(&url, &answer)? else { return Ok(Err(tagged(answer, tag))) };
            if next.origin() != home {
                if tag.is_none() && self.repository.revision.is_none() {
                    return Err(as_it_is(misread("it does not say what the file contains")));
                }
                return Ok(Ok(HubTarget { url: next, tag, size: said.get("x-linked-size").cloned() }));
            }
            url = next;
        }
        Err(as_it_is(misread("it redirects to itself")))
    }

    /// What the hub refuses, and what can be done about it. No text of the hub is in it.
    fn refused(&self, answer: &HttpResponse) -> Error {
        let Repository { name, revision } = &self.repository;
        // `dataset OWNER/NAME` or `bucket OWNER/NAME`
        let what = name.replacen("s/", " ", 1);
        let revision = revision.as_ref().map(|revision| format!(" revision {revision:?}")).unwrap_or_default();
        let status = answer.status();
        let code = answer.headers().get("x-error-code").and_then(|code| code.to_str().ok()).unwrap_or_default();
        let (kind, message, hint) = match code {
            "GatedRepo" => (
                ErrorKind::Io,
                format!("the {what} is gated"),
                "accept its terms on its page, and set HF_TOKEN to a token of that account",
            ),
            "RevisionNotFound" => (
                ErrorKind::NotFound,
                format!("the {what} has no{revision}"),
                "name a branch, a tag or a commit that it has",
            ),
            "EntryNotFound" => (
                ErrorKind::NotFound,
                format!("the {what} has no such file{}{revision}", if revision.is_empty() { "" } else { " at" }),
                "check the path, or build the index again",
            ),
            code if code == "RepoNotFound" || status == StatusCode::NOT_FOUND => (
                ErrorKind::NotFound,
                format!("there is no {what}, or it is private and needs a valid HF_TOKEN"),
                "check the name; if it is private, set HF_TOKEN to a token of an account that sees it",
            ),
            _ => (
                ErrorKind::Io,
                format!("the hub refuses access to the {what} (HTTP status {})", status.as_u16()),
                "set HF_TOKEN to a valid token that may read it, or unset it if everybody may",
            ),
        };
        Error::new(kind, message).with_hint(hint)
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("repository", &self.repository).finish_non_exhaustive()
    }
}

fn misread(what: &str) -> Error {
    Error::new(ErrorKind::Io, format!("the hub is not understood: {what}")).with_hint("check HF_ENDPOINT and HF_TOKEN")
}

/// Whether a server is on this machine, where nobody listens on the way.
fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Whether an answer says that the URL does not lead to a file, or not any more, or not for everybody.
fn is_refusal(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 403 | 404 | 410)
}

/// The answer with the hub's tag for its content. Times are those of the store, which copies files when it likes.
fn tagged(mut answer: HttpResponse, tag: Option<HeaderValue>) -> HttpResponse {
    answer.headers_mut().remove(LAST_MODIFIED);
    if let Some(tag) = tag {
        answer.headers_mut().insert(ETAG, tag);
    }
    answer
}

/// A tag as listings have it, in quotes. The hub calls some of them weak, though each stands for one content.
fn quoted(tag: &HeaderValue) -> Option<HeaderValue> {
    let bare = tag.to_str().ok()?.trim_start_matches("W/").trim_matches('"');
    HeaderValue::try_from(format!("\"{bare}\"")).ok().filter(|_| !bare.is_empty())
}

impl HttpConnector for Hub {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

impl HttpService for Hub {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        async move { self.answer(&request).await }.boxed()
    }
}

/// A file of a listing, with the tag that its answer will have: the hash of the content, or that of git where git has
/// the file itself; of a bucket, that of its store.
fn file_of(entry: &serde_json::Value) -> Option<(String, FileStat)> {
    let path = entry.get("path")?.as_str()?;
    let hash = entry.get("lfs").and_then(|lfs| lfs.get("oid")).or_else(|| entry.get("oid"));
    let hash = hash.or_else(|| entry.get("xetHash"));
    let etag = hash.and_then(serde_json::Value::as_str).map(|hash| format!("\"{hash}\""));
    let stat = FileStat { size: entry.get("size")?.as_u64()?, mtime_ns: None, etag };
    Some((path.to_owned(), stat))
}

/// The query of the next page. Its address is not looked at: the next page is asked for where this one was.
fn next_query(headers: &HeaderMap) -> Option<String> {
    let links = headers.get_all(LINK).into_iter().filter_map(|link| link.to_str().ok());
    let next = links.flat_map(|links| links.split(", ")).find(|link| link.contains("rel=\"next\""))?;
    Some(next.split_once('?')?.1.split('>').next()?.to_owned())
}
