//! How requests go out, and to whom. What is secret goes to the place that it is for, and to no other.
//!
//! Requests to S3, GCS and Azure hold secrets, in headers or in the query, and are signed for one place. A redirect of
//! such a store means that the address or the region is wrong, so it is an error and nobody follows it. Nothing that is
//! asked of an HTTP server is secret, and some answer with redirects to the servers that have the bytes. These are
//! followed, and the request that goes there has the range and the condition alone. No request says where it comes from
//! (`Referer`): the URL of an earlier one may be signed.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::net::ToSocketAddrs;
use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderName, IF_MATCH, LOCATION, RANGE};
use reqwest::{ClientBuilder, Method, NoProxy, Proxy, StatusCode, Url, dns, redirect, tls};

/// What a request that follows a redirect takes along.
const KEPT: [HeaderName; 2] = [RANGE, IF_MATCH];

/// Redirects that are followed, one after the other.
pub(super) const MOST: usize = 10;

/// Makes the clients of a store, and those that ask for its credentials.
#[derive(Debug)]
pub(super) struct Transport {
    /// Whether redirects are part of the protocol, and requests hold no secret.
    pub(super) follows: bool,
}

impl HttpConnector for Transport {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Requests { client: client(options)?, follows: self.follows }))
    }
}

#[derive(Debug)]
struct Requests {
    client: reqwest::Client,
    follows: bool,
}

impl HttpService for Requests {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        async move {
            let reads = [Method::GET, Method::HEAD].contains(request.method());
            let answer = if self.follows && reads { self.follow(request).await } else { self.send(request).await };
            answer.map(with_length)
        }
        .boxed()
    }
}

impl Requests {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        HttpService::call(&self.client, request).await
    }

    async fn follow(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let unreadable = |_| Refused::error("the server redirects to what is no URL".to_owned());
        let mut url = Url::parse(&request.uri().to_string()).map_err(unreadable)?;
        let method = request.method().clone();
        let take = |name: HeaderName| Some((name.clone(), request.headers().get(name)?.clone()));
        let kept: Vec<_> = KEPT.into_iter().filter_map(take).collect();
        let mut answer = self.send(request).await?;
        for _ in 0..MOST {
            let Some(next) = redirected(&url, &answer)? else { return Ok(answer) };
            let mut bare = HttpRequest::new(HttpRequestBody::empty());
            *bare.method_mut() = method.clone();
            *bare.uri_mut() = next
                .as_str()
                .parse()
                .map_err(|_| Refused::error("the server redirects to what is no URL".to_owned()))?;
            bare.headers_mut().extend(kept.iter().cloned());
            answer = self.send(bare).await?;
            url = next;
        }
        match redirected(&url, &answer)? {
            None => Ok(answer),
            Some(_) => Err(Refused::error(format!("the server redirects more than {MOST} times"))),
        }
    }
}

/// Where an answer to a request of `url` sends the client, if it does.
pub(super) fn redirected(url: &Url, answer: &HttpResponse) -> Result<Option<Url>, HttpError> {
    const STATUSES: [StatusCode; 5] = [
        StatusCode::MOVED_PERMANENTLY,
        StatusCode::FOUND,
        StatusCode::SEE_OTHER,
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ];
    let Some(location) = answer.headers().get(LOCATION).filter(|_| STATUSES.contains(&answer.status())) else {
        return Ok(None);
    };
    let refused = |what: &str| Err(Refused::error(format!("the server redirects to {what}")));
    let Some(mut next) = location.to_str().ok().and_then(|text| url.join(text).ok()) else {
        return refused("what is no URL");
    };
    next.set_fragment(None);
    match next.scheme() {
        "https" => {}
        "http" if url.scheme() == "http" => {}
        "http" => return refused(&format!("{}, without encryption", next.origin().ascii_serialization())),
        other => return refused(&format!("a URL of the scheme `{other}`")),
    }
    if !next.username().is_empty() || next.password().is_some() {
        return refused("a URL with a user or a password");
    }
    Ok(Some(next))
}

/// A part of a file with its length, which the server may tell by the range alone: it sends chunks then. How many bytes
/// come is counted in any case.
pub(super) fn with_length(mut answer: HttpResponse) -> HttpResponse {
    if answer.status() == StatusCode::PARTIAL_CONTENT
        && !answer.headers().contains_key(CONTENT_LENGTH)
        && let Some(length) = length_of_range(answer.headers())
    {
        answer.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    answer
}

/// Of `bytes 5-9/100` it is 5.
fn length_of_range(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?.trim().strip_prefix("bytes ")?;
    let (first, last) = range.split_once('/')?.0.split_once('-')?;
    last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)
}

/// A redirect that is not followed. The text names no more of its target than scheme, host and port.
#[derive(Debug)]
pub(super) struct Refused(String);

impl Refused {
    pub(super) fn error(message: String) -> HttpError {
        HttpError::new(HttpErrorKind::Unknown, Self(message))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// The client that the environment and the options of a store describe. It follows no redirect by itself.
pub(super) fn client(options: &ClientOptions) -> object_store::Result<reqwest::Client> {
    TransportSettings(options).client()
}

/// What the environment and the options of a store say of its client.
struct TransportSettings<'a>(&'a ClientOptions);

impl TransportSettings<'_> {
    fn text(&self, key: ClientConfigKey) -> Option<String> {
        self.0.get_config_value(&key)
    }

    fn read<T>(&self, key: ClientConfigKey, read: impl Fn(&str) -> Option<T>) -> object_store::Result<Option<T>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        // Which option it is is not said, as the value is not: `Fault::of_configuration` shows neither.
        let misread = || object_store::Error::Generic { store: "Config", source: "an option is not understood".into() };
        read(&text).map(Some).ok_or_else(misread)
    }

    fn is(&self, key: ClientConfigKey) -> object_store::Result<bool> {
        Ok(self.read(key, truth)?.unwrap_or(false))
    }

    fn time(&self, key: ClientConfigKey) -> object_store::Result<Option<Duration>> {
        self.read(key, |text| humantime::parse_duration(text).ok())
    }

    fn client(&self) -> object_store::Result<reqwest::Client> {
        use ClientConfigKey as Key;
        let agent = || concat!("rowdex/", env!("CARGO_PKG_VERSION")).to_owned();
        let mut builder = ClientBuilder::new()
            .redirect(redirect::Policy::none())
            .referer(false)
            .user_agent(self.text(Key::UserAgent).unwrap_or_else(agent))
            // What is compressed on the way has another length than the file.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .https_only(!self.is(Key::AllowHttp)?)
            .danger_accept_invalid_certs(self.is(Key::AllowInvalidCertificates)?)
            .http2_keep_alive_interval(self.time(Key::Http2KeepAliveInterval)?)
            .http2_keep_alive_while_idle(self.is(Key::Http2KeepAliveWhileIdle)?)
            .http2_max_frame_size(self.read(Key::Http2MaxFrameSize, |text| text.parse::<u32>().ok())?);
        if let Some(headers) = self.0.get_default_headers() {
            builder = builder.default_headers(headers.clone());
        }
        if self.is(Key::NoSystemCertificates)? {
            builder = builder.tls_certs_only([]);
        }
        let times: [(_, fn(_, _) -> _); 5] = [
            (Key::Timeout, ClientBuilder::timeout),
            (Key::ConnectTimeout, ClientBuilder::connect_timeout),
            (Key::ReadTimeout, ClientBuilder::read_timeout),
            (Key::PoolIdleTimeout, ClientBuilder::pool_idle_timeout::<Duration>),
            (Key::Http2KeepAliveTimeout, ClientBuilder::http2_keep_alive_timeout),
        ];
        for (key, set) in times {
            if let Some(time) = self.time(key)? {
                builder = set(builder, time);
            }
        }
        if let Some(most) = self.read(Key::PoolMaxIdlePerHost, |text| text.parse().ok())? {
            builder = builder.pool_max_idle_per_host(most);
        }
        if self.is(Key::Http1Only)? {
            builder = builder.http1_only();
        }
        if self.is(Key::Http2Only)? {
            builder = builder.http2_prior_knowledge();
        }
        if self.is(Key::RandomizeAddresses)? {
            builder = builder.dns_resolver(Shuffled);
        }
        self.proxied(builder).and_then(ClientBuilder::build).map_err(|error| object_store::Error::Generic {
            store: "HTTP client",
            source: Box::new(error.without_url()),
        })
    }

    fn proxied(&self, builder: ClientBuilder) -> reqwest::Result<ClientBuilder> {
        use ClientConfigKey as Key;
        let Some(url) = self.text(Key::ProxyUrl) else { return Ok(builder) };
        let excluded = self.text(Key::ProxyExcludes).and_then(|names| NoProxy::from_string(&names));
        let certificate = self.text(Key::ProxyCaCertificate);
        let certificate = certificate.map(|text| tls::Certificate::from_pem(text.as_bytes())).transpose()?;
        Ok(builder.tls_certs_merge(certificate).proxy(Proxy::all(url)?.no_proxy(excluded)))
    }
}

/// Yes or no, as the options of a store are written.
pub(super) fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" | "y" => Some(true),
        "0" | "false" | "off" | "no" | "n" => Some(false),
        _ => None,
    }
}

/// Looks up names, and gives the addresses in any order, so that not every connection goes to the first machine.
#[derive(Debug)]
struct Shuffled;

impl dns::Resolve for Shuffled {
    fn resolve(&self, name: dns::Name) -> dns::Resolving {
        async move {
            let look_up = move || (name.as_str(), 0).to_socket_addrs();
            let mut found: Vec<_> = tokio::task::spawn_blocking(look_up).await??.collect();
            let order = RandomState::new();
            found.sort_by_cached_key(|address| order.hash_one(address));
            Ok::<dns::Addrs, _>(Box::new(found.into_iter()))
        }
        .boxed()
    }
}
