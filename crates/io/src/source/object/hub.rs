//! The protocol of the Hugging Face hub: files behind redirects to signed URLs, listings in pages, branches as commits.
//!
//! The token goes to the hub and to nobody else. A file of the hub is at `…/resolve/REVISION/PATH`, which leads to a
//! URL of a store that is signed for a while. It is asked for once and kept, so that a range costs one request and not
//! two; when the store no longer takes it, the hub is asked anew. What a file contains the hub says beside the redirect
//! (`X-Linked-ETag`), in the same words as in its listings: the store's own tags are not looked at.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, StreamExt};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpRequestBody, HttpResponse, HttpService,
};
use reqwest::header::{
    AUTHORIZATION, CONTENT_LENGTH, ETAG, HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED, LINK, RANGE, RETRY_AFTER,
};
use reqwest::{Method, StatusCode, Url};
use tokio::time::Instant;

use super::hub_fault::HubFault;
use super::hub_settings::HubSettings;
use super::transport::{MOST, Refused, client, redirected, with_length};
use crate::source::hub_place::{Repository, is_commit};
use crate::source::percent::percent_encoded;
use crate::source::{FileStat, StoreOptions};

/// A page of a listing has a thousand entries of a few hundred bytes.
const LARGEST_ANSWER: usize = 64 << 20;

const LINKED_TAG: HeaderName = HeaderName::from_static("x-linked-etag");
const LINKED_SIZE: HeaderName = HeaderName::from_static("x-linked-size");
const ERROR_CODE: HeaderName = HeaderName::from_static("x-error-code");

/// One dataset of the hub.
pub(super) struct Hub {
    client: reqwest::Client,
    repository: Repository,
    endpoint: String,
    token: Option<HeaderValue>,
    offline: bool,
    /// Where each file is, by its URL at the hub.
    places: Mutex<HashMap<String, Slot>>,
    /// Until when the hub wants to hear nothing.
    closed: Mutex<Option<Instant>>,
}

type Slot = Arc<tokio::sync::Mutex<Option<HubTarget>>>;

/// Where a file is in a store, and the tag of its content.
#[derive(Clone, PartialEq, Eq)]
struct HubTarget {
    url: Url,
    tag: Option<HeaderValue>,
}

/// What the hub answers.
enum Asked {
    Served(HttpResponse),
    Elsewhere { url: Url, tag: Option<HeaderValue>, size: Option<HeaderValue> },
}

/// A part of a listing, and the query that asks for the next one.
pub(super) struct Page {
    pub(super) files: Vec<(String, FileStat)>,
    pub(super) next: Option<String>,
}

impl Hub {
    pub(super) fn new(
        repository: Repository,
        options: &StoreOptions,
        settings: &ClientOptions,
    ) -> object_store::Result<Self> {
        let failed = |fault: HubFault| object_store::Error::Generic { store: "hub", source: Box::new(fault) };
        let HubSettings { endpoint, token, offline } = HubSettings::of(options).map_err(failed)?;
        let places = Mutex::default();
        let closed = Mutex::default();
        Ok(Self { client: client(settings)?, repository, endpoint, token, offline, places, closed })
    }

    /// The URL that all files of the dataset are below.
    pub(super) fn root(&self) -> String {
        let Repository { name, .. } = &self.repository;
        format!("{}/datasets/{name}/resolve/{}", self.endpoint, self.repository.encoded_revision())
    }

    /// The commit that the revision is of now.
    pub(super) async fn commit(&self) -> Result<String, HttpError> {
        let Repository { name, .. } = &self.repository;
        let revision = self.repository.encoded_revision();
        let url = format!("{}/api/datasets/{name}/revision/{revision}", self.endpoint);
        let (answer, _) = self.json(&url).await?;
        let commit = answer.get("sha").and_then(serde_json::Value::as_str).filter(|sha| is_commit(sha));
        commit.map(str::to_owned).ok_or_else(|| HubFault::Misread("it does not say which commit this is").error())
    }

    /// A page of the files below a folder: the first one, or the one that the last one named.
    pub(super) async fn page(&self, folder: &str, next: Option<&str>) -> Result<Page, HttpError> {
        let Repository { name, .. } = &self.repository;
        let below = if folder.is_empty() { String::new() } else { format!("/{}", percent_encoded(folder)) };
        let revision = self.repository.encoded_revision();
        let query = next.unwrap_or("recursive=true");
        let url = format!("{}/api/datasets/{name}/tree/{revision}{below}?{query}", self.endpoint);
        let (answer, headers) = self.json(&url).await?;
        let misread = || HubFault::Misread("its listing is none").error();
        let entries = answer.as_array().ok_or_else(misread)?;
        let files = entries.iter().filter(|entry| entry.get("type").is_none_or(|kind| kind == "file"));
        let files = files.map(|entry| file_of(entry).ok_or_else(misread)).collect::<Result<_, _>>()?;
        let next = next_query(&headers).filter(|found| found != query);
        Ok(Page { files, next })
    }

    async fn json(&self, url: &str) -> Result<(serde_json::Value, HeaderMap), HttpError> {
        let answer = match self.ask(Method::GET, url_of(url)?, None).await? {
            Asked::Served(answer) => answer,
            Asked::Elsewhere { .. } => return Err(HubFault::Misread("it leads to another server").error()),
        };
        if !answer.status().is_success() {
            let status = answer.status().as_u16();
            return Err(HubFault::Refused { status, code: None, with_token: self.token.is_some() }.error());
        }
        let headers = answer.headers().clone();
        let mut body = BytesMut::new();
        let mut chunks = answer.into_body().bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk: Bytes = chunk?;
            if chunk.len() > LARGEST_ANSWER - body.len() {
                return Err(HubFault::Misread("its answer does not end").error());
            }
            body.extend_from_slice(&chunk);
        }
        let read = serde_json::from_slice(&body).map_err(|_| HubFault::Misread("its answer is no JSON").error())?;
        Ok((read, headers))
    }

    /// A request for a file, which is all that the client of an HTTP server sends.
    async fn file(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let url = request.uri().to_string();
        let range = request.headers().get(RANGE).cloned();
        match *request.method() {
            Method::HEAD => self.head(&url).await,
            Method::GET => self.get(&url, range).await,
            _ => Err(HubFault::ReadOnly.error()),
        }
    }

    async fn head(&self, url: &str) -> Result<HttpResponse, HttpError> {
        match self.ask(Method::HEAD, url_of(url)?, None).await? {
            Asked::Served(answer) => Ok(answer),
            // What is asked for is said beside the redirect.
            Asked::Elsewhere { tag, size: Some(size), .. } => {
                let mut answer = HttpResponse::new(Bytes::new().into());
                answer.headers_mut().insert(CONTENT_LENGTH, size);
                Ok(tagged(answer, tag))
            }
            Asked::Elsewhere { url, tag, size: None } => self.bare(Method::HEAD, &url, None, tag).await,
        }
    }

    async fn get(&self, url: &str, range: Option<HeaderValue>) -> Result<HttpResponse, HttpError> {
        let slot = Arc::clone(lock(&self.places).entry(url.to_owned()).or_default());
        let mut refused = None;
        loop {
            // While one asks the hub, others who want the file wait for the lock.
            let mut place = slot.lock().await;
            let known = place.clone().filter(|known| refused.as_ref() != Some(known));
            let is_fresh = known.is_none();
            let target = match known {
                Some(known) => known,
                None => match self.ask(Method::GET, url_of(url)?, range.clone()).await? {
                    // At the hub itself, which has small files.
                    Asked::Served(answer) => return Ok(answer),
                    Asked::Elsewhere { url, tag, .. } => place.insert(HubTarget { url, tag }).clone(),
                },
            };
            drop(place);
            let answer = self.bare(Method::GET, &target.url, range.clone(), target.tag.clone()).await?;
            if !is_refusal(answer.status()) {
                return Ok(answer);
            }
            if is_fresh {
                *slot.lock().await = None;
                return Err(HubFault::Unsigned { status: answer.status().as_u16() }.error());
            }
            refused = Some(target);
        }
    }

    /// Asks the hub, with the token, and goes where it leads as long as that is the hub.
    async fn ask(&self, method: Method, mut url: Url, range: Option<HeaderValue>) -> Result<Asked, HttpError> {
        if self.offline {
            return Err(HubFault::Offline.error());
        }
        let home = url.origin();
        let mut tag = None;
        for _ in 0..=MOST {
            let left = lock(&self.closed).and_then(|until| until.checked_duration_since(Instant::now()));
            if let Some(left) = left.filter(|left| !left.is_zero()) {
                return Err(HubFault::Limited { wait: Some(left) }.error());
            }
            let mut request = bare_request(&method, &url, range.as_ref())?;
            if let Some(token) = &self.token {
                request.headers_mut().insert(AUTHORIZATION, token.clone());
            }
            let answer = self.send(request).await?;
            if let Some(wait) = limited(&answer) {
                *lock(&self.closed) = wait.map(|wait| Instant::now() + wait);
                return Err(HubFault::Limited { wait }.error());
            }
            if is_refusal(answer.status()) {
                return Err(self.refused(&url, &answer).error());
            }
            let said = answer.headers();
            tag = said.get(LINKED_TAG).or_else(|| said.get(ETAG)).and_then(quoted).or(tag);
            let Some(next) = redirected(&url, &answer)? else { return Ok(Asked::Served(tagged(answer, tag))) };
            if next.origin() != home {
                return Ok(Asked::Elsewhere { url: next, tag, size: said.get(LINKED_SIZE).cloned() });
            }
            url = next;
        }
        Err(Refused::error(format!("the hub redirects more than {MOST} times")))
    }

    /// Asks the store that the hub leads to, which needs to know nothing but the range.
    async fn bare(
        &self,
        method: Method,
        at: &Url,
        range: Option<HeaderValue>,
        tag: Option<HeaderValue>,
    ) -> Result<HttpResponse, HttpError> {
        if self.offline {
            return Err(HubFault::Offline.error());
        }
        let mut at = at.clone();
        for _ in 0..=MOST {
            let answer = self.send(bare_request(&method, &at, range.as_ref())?).await?;
            if let Some(wait) = limited(&answer) {
                return Err(HubFault::Limited { wait }.error());
            }
            match redirected(&at, &answer)? {
                Some(next) => at = next,
                None => return Ok(tagged(answer, tag)),
            }
        }
        Err(Refused::error(format!("the store of the hub redirects more than {MOST} times")))
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        HttpService::call(&self.client, request).await
    }

    /// Of what is below a revision, what is not found is the file, where the hub does not say more.
    fn refused(&self, url: &Url, answer: &HttpResponse) -> HubFault {
        let code = answer.headers().get(ERROR_CODE).and_then(|code| code.to_str().ok());
        let is_word =
            |code: &&str| (1..=40).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_entry = answer.status() == StatusCode::NOT_FOUND && !url.path().contains("/revision/");
        let code = code.filter(is_word).or(is_entry.then_some("EntryNotFound")).map(str::to_owned);
        HubFault::Refused { status: answer.status().as_u16(), code, with_token: self.token.is_some() }
    }
}

/// Asks the hub for the files of a store's client.
pub(super) struct HubConnector(pub(super) Arc<Hub>);

impl HttpConnector for HubConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Files(Arc::clone(&self.0))))
    }
}

#[derive(Debug)]
struct Files(Arc<Hub>);

impl HttpService for Files {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        async move { self.0.file(request).await.map(with_length) }.boxed()
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("repository", &self.repository).finish_non_exhaustive()
    }
}

impl fmt::Debug for HubConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn url_of(text: &str) -> Result<Url, HttpError> {
    Url::parse(text).map_err(|_| HubFault::Misread("its URL is none").error())
}

fn bare_request(method: &Method, url: &Url, range: Option<&HeaderValue>) -> Result<HttpRequest, HttpError> {
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.method_mut() = method.clone();
    *request.uri_mut() = url.as_str().parse().map_err(|_| HubFault::Misread("it leads to what is no URL").error())?;
    if let Some(range) = range {
        request.headers_mut().insert(RANGE, range.clone());
    }
    Ok(request)
}

/// Whether an answer says that the URL does not lead to a file, or not any more, or not for everybody.
fn is_refusal(status: StatusCode) -> bool {
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::NOT_FOUND, StatusCode::GONE].contains(&status)
}

/// Whether these are too many requests, and how long to wait then, if the server says so.
fn limited(answer: &HttpResponse) -> Option<Option<Duration>> {
    match answer.status() {
        StatusCode::TOO_MANY_REQUESTS => Some(wait_of(answer.headers())),
        StatusCode::SERVICE_UNAVAILABLE => wait_of(answer.headers()).map(Some),
        _ => None,
    }
}

/// The longest time that is asked for, in seconds: by `Retry-After`, or by the draft `httpapi-ratelimit-headers`, which
/// the hub follows (`"api";r=0;t=55`).
fn wait_of(headers: &HeaderMap) -> Option<Duration> {
    /// Nobody waits longer, and a time from now on that is far away is none.
    const MOST_SECONDS: u64 = 365 * 86_400;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let after = text(RETRY_AFTER.as_str()).and_then(|after| after.trim().parse::<u64>().ok());
    let spent = text("ratelimit").into_iter().flat_map(|policies| policies.split(',')).filter_map(|policy| {
        let parameter = |name: &str| policy.split(';').find_map(|part| part.trim().strip_prefix(name)?.parse().ok());
        parameter("t=").filter(|_| parameter("r=") == Some(0_u64))
    });
    spent.chain(after).max().map(|seconds| Duration::from_secs(seconds.min(MOST_SECONDS)))
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

/// A file of a listing, with the tag that its answer will have: the hash of the content, or that of git where git has
/// the file itself.
fn file_of(entry: &serde_json::Value) -> Option<(String, FileStat)> {
    let path = entry.get("path")?.as_str()?;
    let hash = entry.get("lfs").and_then(|lfs| lfs.get("oid")).or_else(|| entry.get("oid"));
    let etag = hash.and_then(serde_json::Value::as_str).map(|hash| format!("\"{hash}\""));
    let stat = FileStat { size: entry.get("size")?.as_u64()?, mtime_ns: None, etag };
    Some((path.to_owned(), stat))
}

/// The query of the next page. Its address is not looked at: the next page is asked for where this one was.
fn next_query(headers: &HeaderMap) -> Option<String> {
    let links = headers.get_all(LINK).into_iter().filter_map(|link| link.to_str().ok());
    let next = links.flat_map(|links| links.split(", ")).find_map(|link| {
        let (url, rest) = link.trim().strip_prefix('<')?.split_once('>')?;
        let says_next = |part: &str| part.trim().eq_ignore_ascii_case("rel=\"next\"") || part.trim() == "rel=next";
        rest.split(';').any(says_next).then_some(url)
    })?;
    Some(next.split_once('?')?.1.split('#').next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_that_a_server_asks_for_is_waited() {
        for (headers, seconds) in [
            (&[][..], None),
            (&[("retry-after", "7")], Some(7)),
            (&[("retry-after", "soon")], None),
            (&[("ratelimit", "\"api\";r=12;t=55")], None),
            (&[("ratelimit", "\"api\";r=3;t=5, \"resolvers\";r=0;t=41")], Some(41)),
            (&[("retry-after", "2"), ("ratelimit", "\"api\";r=0;t=55")], Some(55)),
            (&[("retry-after", "18446744073709551615")], Some(365 * 86_400)),
        ] {
            let pair = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            let wait = wait_of(&headers.iter().map(pair).collect());
            assert_eq!(wait.map(|wait| wait.as_secs()), seconds, "{headers:?}");
        }
    }
}
