//! How requests go out, and to whom. What is secret goes to the place that it is for, and to no other.
//!
//! Requests to S3, GCS and Azure hold secrets, in headers or in the query, and are signed for one place. A redirect of
//! such a store means that the address or the region is wrong, so it is an error and nobody follows it. Nothing that is
//! asked of an HTTP server is secret, and some answer with redirects to the servers that have the bytes. These are
//! followed, and the request that goes there has the range and the condition alone. No request says where it comes from
//! (`Referer`): the URL of an earlier one may be signed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpRequestBody, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::header::{HeaderMap, HeaderName, IF_MATCH, LOCATION, RANGE, RETRY_AFTER};
use reqwest::{ClientBuilder, Method, StatusCode, Url, redirect};

use super::fault::as_it_is;
use rowdex_base::error::{Error, ErrorKind};

/// What a request that follows a redirect takes along.
const KEPT: [HeaderName; 2] = [RANGE, IF_MATCH];

/// How long a connection may take to come about.
const CONNECTING: Duration = Duration::from_secs(5);

/// A server that sends nothing for so long is taken for dead.
const SILENCE: Duration = Duration::from_secs(20);

/// Redirects that are followed, one after the other.
const MOST: usize = 10;

/// Makes the clients of a store, and those that ask for its credentials.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    /// Requests hold no secret, so redirects are followed.
    pub(super) is_open: bool,
    /// Requests so far.
    pub(super) requests: Arc<AtomicU64>,
    /// How long a request may take.
    pub(super) deadline: Duration,
}

/// Sends requests, each as it is, and counts them.
#[derive(Debug, Clone)]
pub(super) struct Sender {
    client: reqwest::Client,
    transport: Transport,
}

impl HttpConnector for Transport {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.sender(options)?))
    }
}

impl HttpService for Sender {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        async move {
            if !self.transport.is_open || ![Method::GET, Method::HEAD].contains(request.method()) {
                return self.send(request).await;
            }
            let take = |name: HeaderName| Some((name.clone(), request.headers().get(name)?.clone()));
            let url = url_of(&request.uri().to_string())?;
            self.follow(request.method(), url, &KEPT.into_iter().filter_map(take).collect()).await
        }
        .boxed()
    }
}

impl Transport {
    pub(super) fn sender(&self, options: &ClientOptions) -> object_store::Result<Sender> {
        Ok(Sender { client: client(options, self.deadline)?, transport: self.clone() })
    }
}

impl Sender {
    /// One request. Before the answer that there are too many, it waits as long as the server asks for: the client will
    /// ask again.
    pub(super) async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.transport.requests.fetch_add(1, Ordering::Relaxed);
        let answer = HttpService::call(&self.client, request).await?;
        if matches!(answer.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
            && let Some(seconds) = wait_of(answer.headers())
        {
            let deadline = self.transport.deadline;
            if seconds >= deadline.as_secs() {
                let limit = deadline.as_secs_f64();
                let message =
                    format!("too many requests: the server asks to wait {seconds} s, and a request may take {limit} s");
                let hint = "give a longer deadline, or try again later; with HF_TOKEN set, the hub allows more";
                return Err(as_it_is(Error::new(ErrorKind::Io, message).with_hint(hint)));
            }
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
        Ok(answer)
    }

    /// A request that is sent on to where the answer leads.
    pub(super) async fn follow(
        &self,
        method: &Method,
        mut url: Url,
        headers: &HeaderMap,
    ) -> Result<HttpResponse, HttpError> {
        for _ in 0..=MOST {
            let answer = self.send(request(method, &url, headers)?).await?;
            let Some(next) = redirected(&url, &answer)? else { return Ok(answer) };
            url = next;
        }
        Err(refused(&format!("more than {MOST} times")))
    }
}

/// A request with these headers alone.
pub(super) fn request(method: &Method, url: &Url, headers: &HeaderMap) -> Result<HttpRequest, HttpError> {
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.method_mut() = method.clone();
    *request.uri_mut() = url.as_str().parse().map_err(|_| refused("to what is no URL"))?;
    *request.headers_mut() = headers.clone();
    Ok(request)
}

pub(super) fn url_of(text: &str) -> Result<Url, HttpError> {
    Url::parse(text).map_err(|_| refused("to what is no URL"))
}

/// Where an answer to a request of `url` sends the client, if it does.
pub(super) fn redirected(url: &Url, answer: &HttpResponse) -> Result<Option<Url>, HttpError> {
    let is_redirect = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = answer.headers().get(LOCATION).filter(|_| is_redirect) else { return Ok(None) };
    let Some(mut next) = location.to_str().ok().and_then(|text| url.join(text).ok()) else {
        return Err(refused("to what is no URL"));
    };
    next.set_fragment(None);
    match next.scheme() {
        "https" => {}
        "http" if url.scheme() == "http" => {}
        "http" => {
            return Err(refused(&format!("to {}, without encryption", next.origin().ascii_serialization())));
        }
        other => return Err(refused(&format!("to a URL of the scheme `{other}`"))),
    }
    if !next.username().is_empty() || next.password().is_some() {
        return Err(refused("to a URL with a user or a password"));
    }
    Ok(Some(next))
}

/// A redirect that is not followed. The text names no more of its target than scheme, host and port.
fn refused(what: &str) -> HttpError {
    let hint = "see where the URL leads (`curl -IL URL`), and name one that serves the file itself";
    as_it_is(Error::new(ErrorKind::Io, format!("the server redirects {what}")).with_hint(hint))
}

/// The seconds that a server asks to wait: by `Retry-After`, or by the draft `httpapi-ratelimit-headers`, which the hub
/// follows (`"api";r=0;t=55`).
fn wait_of(headers: &HeaderMap) -> Option<u64> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    text(RETRY_AFTER.as_str()).or_else(|| Some(text("ratelimit")?.rsplit_once("t=")?.1))?.trim().parse().ok()
}

/// The client that the environment and the options of a store describe. It follows no redirect by itself.
fn client(options: &ClientOptions, deadline: Duration) -> object_store::Result<reqwest::Client> {
    use ClientConfigKey as Key;
    let is = |key| options.get_config_value(&key).as_deref().and_then(truth).unwrap_or(false);
    let mut builder = ClientBuilder::new()
        .redirect(redirect::Policy::none())
        .referer(false)
        // What is compressed on the way has another length than the file.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .user_agent(concat!("rowdex/", env!("CARGO_PKG_VERSION")))
        .https_only(!is(Key::AllowHttp))
        .danger_accept_invalid_certs(is(Key::AllowInvalidCertificates))
        .timeout(deadline.max(Duration::from_secs(1)))
        .connect_timeout(CONNECTING)
        .read_timeout(SILENCE.min(deadline));
    if let Some(headers) = options.get_default_headers() {
        builder = builder.default_headers(headers.clone());
    }
    if is(Key::Http1Only) {
        builder = builder.http1_only();
    }
    builder
        .build()
        .map_err(|error| object_store::Error::Generic { store: "HTTP client", source: Box::new(error.without_url()) })
}

/// Yes or no, as the options of a store are written.
pub(super) fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" | "y" => Some(true),
        "0" | "false" | "off" | "no" | "n" => Some(false),
        _ => None,
    }
}
