//! What a store's errors mean, in words that hold no secret.
//!
//! The errors of the store's client are not passed on as they are: they may quote signed URLs, and a store that refuses
//! a signature answers with the headers that it was made from, session token included. So what is said is put together
//! from the kind, the status and the store's own error code.

use std::error::Error as StdError;
use std::time::Duration;

use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Error as BadPath;

use super::hub_fault::HubFault;
use super::transport::Refused;
use crate::source::place::{Scheme, Url};
use rowdex_base::error::{Error, ErrorKind};
use rowdex_base::remedy::{Hint, Remedy};

/// Why a request failed.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) error: Error,
    pub(super) sort: Sort,
    /// How long the store asks to wait.
    pub(super) wait: Option<Duration>,
}

/// What to do about a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// It may pass.
    Passing,
    /// Asking again gives the same.
    Lasting,
    /// The range asked for is not there, or not served as one.
    Range,
    /// The store has everything that the name is in, and nothing of this name.
    NoEntry,
    /// There is something already.
    Exists,
    /// The store cannot do what was asked.
    Unsupported,
}

impl Fault {
    pub(super) fn new(sort: Sort, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { error: Error::new(kind, message.into()), sort, wait: None }
    }

    /// From an error of the client, on the way to `url`.
    pub(super) fn of(error: &object_store::Error, url: &Url) -> Self {
        use object_store::Error as Store;
        if let Some(fault) = causes(error).find_map(|cause| cause.downcast_ref::<HubFault>()) {
            return Self::of_hub(fault, url);
        }
        let text = chain(error);
        let code = code(&text);
        let said = |message: &str| match (&code, status(&text)) {
            (Some(code), _) => format!("{message} ({code})"),
            (None, Some(status)) => format!("{message} (HTTP status {status})"),
            (None, None) => message.to_owned(),
        };
        let lasting = |kind, message: &str| Self::new(Sort::Lasting, kind, said(message));
        if url.scheme == Scheme::Gcs && text.contains("/computeMetadata/v1/instance/") {
            // To write, this client asks for credentials even where it was told to go without.
            return Self::no_credentials("", url);
        }
        let missing = matches!(code.as_deref(), Some("NoSuchBucket" | "ContainerNotFound"));
        match (error, status(&text)) {
            // The client takes a request that is not allowed for one of a file that is not there.
            (_, Some(405 | 501)) => Self::new(Sort::Unsupported, ErrorKind::Io, said("the server does not do this")),
            _ if missing => {
                let what = if url.scheme == Scheme::Azure { "container" } else { "bucket" };
                lasting(ErrorKind::NotFound, &format!("there is no {what} `{}`", url.authority))
                    .hint("check its name, and the endpoint that the environment sets")
            }
            (Store::NotFound { .. }, _) | (_, Some(404 | 410)) => {
                lasting(ErrorKind::NotFound, "there is no such file in the store")
            }
            (Store::AlreadyExists { .. }, _) => {
                Self::new(Sort::Exists, ErrorKind::AlreadyExists, said("it exists already"))
            }
            (Store::Precondition { .. } | Store::NotModified { .. }, _) => Self::changed(),
            (Store::PermissionDenied { .. } | Store::Unauthenticated { .. }, _) | (_, Some(401 | 403)) => {
                lasting(ErrorKind::Io, "the store refuses access").hint(credentials(url.scheme, true))
            }
            (Store::NotSupported { .. }, _) if text.contains("ange") => Self::no_ranges(),
            (Store::NotImplemented { .. } | Store::NotSupported { .. }, _) => {
                Self::new(Sort::Unsupported, ErrorKind::Io, "the store cannot do this")
            }
            // Paths that are asked for were looked at before, so it is one of a listing.
            (Store::InvalidPath { source }, _) => {
                let what = match source {
                    BadPath::EmptySegment { path } | BadPath::BadSegment { path, .. } => format!(" `{path}`"),
                    _ => String::new(),
                };
                let message = format!("the name of an object{what} is no path: it has an empty part, a `.` or a `..`");
                Self::new(Sort::Lasting, ErrorKind::InvalidArgument, message)
                    .hint("rename or remove the object, or name folders, or files, that it is not below")
            }
            _ => Self::of_text(error, &text, &said, url),
        }
    }

    /// What keeps a client from being made. Nothing of the text is shown: it may quote the value that it is about.
    pub(super) fn of_configuration(error: &object_store::Error, url: &Url) -> Self {
        if let Some(fault) = causes(error).find_map(|cause| cause.downcast_ref::<HubFault>()) {
            return Self::of_hub(fault, url);
        }
        let text = chain(error);
        let lasting = |message| Self::new(Sort::Lasting, ErrorKind::Io, message);
        if text.contains("Account must be specified") {
            return lasting("the account of the store is not set").hint("set AZURE_STORAGE_ACCOUNT_NAME");
        }
        if text.contains("Unable to open service account file") {
            return lasting("the file with the store's credentials cannot be read").hint(credentials(url.scheme, true));
        }
        lasting("the store's configuration is not understood").hint(credentials(url.scheme, true))
    }

    /// What keeps credentials from coming, from whom the store's configuration names, or from the machine's own
    /// service, which is the only one that is asked without encryption. `None` if there is no answer; `had` if there
    /// was one earlier, so that there is somebody.
    pub(super) fn of_credentials(error: Option<&object_store::Error>, url: &Url, had: bool) -> Self {
        let text = error.map(chain).unwrap_or_default();
        let own = error.is_none() || asked_openly(&text);
        match (status(&text), error.and_then(transport)) {
            (Some(status), _) if passes(status) => {
                let message = format!("the service that gives credentials for the store fails (HTTP status {status})");
                Self::new(Sort::Passing, ErrorKind::Io, message).hint(credentials(url.scheme, false))
            }
            (Some(status), _) if own => Self::no_credentials(&format!(" (HTTP status {status})"), url),
            (Some(status), _) => {
                let message = format!("the credentials for the store are refused (HTTP status {status})");
                Self::new(Sort::Lasting, ErrorKind::Io, message).hint(credentials(url.scheme, true))
            }
            (None, _) if own && !had => Self::no_credentials("", url),
            (None, Some((_, cause))) => {
                let message = format!("cannot get credentials for the store: {cause}");
                Self::new(Sort::Passing, ErrorKind::Io, message).hint("check the network")
            }
            (None, None) if error.is_none() => Self::new(
                Sort::Passing,
                ErrorKind::Io,
                "the service that gives credentials for the store does not answer",
            ),
            (None, None) => Self::new(Sort::Lasting, ErrorKind::Io, "the credentials for the store cannot be used")
                .hint(credentials(url.scheme, true)),
        }
    }

    fn no_credentials(answer: &str, url: &Url) -> Self {
        let message =
            format!("there are no credentials for the store: none are set, and this machine has none to give{answer}");
        Self::new(Sort::Lasting, ErrorKind::Io, message).hint(credentials(url.scheme, false))
    }

    fn no_ranges() -> Self {
        Self::new(Sort::Range, ErrorKind::Io, "the server does not serve parts of a file")
            .hint("use a server that supports range requests")
    }

    /// The object is not the expected one.
    pub(super) fn changed() -> Self {
        let message = "the file in the store is not the one that was indexed, or changed while it was read";
        Self::new(Sort::Lasting, ErrorKind::Stale, message)
            .hint(Hint::new("build the index again, or update it ({})", vec![Remedy::Update]))
    }

    fn of_hub(fault: &HubFault, url: &Url) -> Self {
        let lasting = |kind, message: String| Self::new(Sort::Lasting, kind, message);
        match fault {
            HubFault::Refused { status, code, with_token } => {
                Self::of_refusal(*status, code.as_deref(), *with_token, url)
            }
            HubFault::Limited { wait } => {
                let fault = Self::new(Sort::Passing, ErrorKind::Io, "the hub gets too many requests (HTTP status 429)");
                let fault = fault.hint("try again later; with HF_TOKEN set, the hub allows more");
                Self { wait: *wait, ..fault }
            }
            HubFault::Unsigned { status } => {
                let message = format!("the hub's store refuses what the hub signed (HTTP status {status})");
                Self::new(Sort::Passing, ErrorKind::Io, message).hint("try again later, and check the clock")
            }
            HubFault::Offline => lasting(
                ErrorKind::Io,
                "HF_HUB_OFFLINE is set, so the hub is not asked, and the disk tier does not have this".to_owned(),
            )
            .hint("unset HF_HUB_OFFLINE, or fill the disk tier while there is a network"),
            HubFault::ReadOnly => lasting(ErrorKind::InvalidArgument, "the hub is read, and not written to".to_owned())
                .hint("write to a local file, and upload it"),
            HubFault::Open => lasting(
                ErrorKind::InvalidArgument,
                "HF_ENDPOINT is not encrypted, and the token would be sent to it".to_owned(),
            )
            .hint("set HF_ENDPOINT to a URL with https, or HF_HUB_DISABLE_IMPLICIT_TOKEN=1 to send no token"),
            HubFault::Misread(what) => lasting(ErrorKind::Io, format!("the hub is not understood: {what}"))
                .hint("check HF_ENDPOINT and HF_TOKEN"),
        }
    }

    /// What the hub refuses, and what can be done about it.
    fn of_refusal(status: u16, code: Option<&str>, with_token: bool, url: &Url) -> Self {
        let Some(repository) = url.repository() else {
            return Self::new(Sort::Lasting, ErrorKind::Io, format!("the hub refuses access (HTTP status {status})"));
        };
        let name = &repository.name;
        let revision = &repository.revision;
        let told = |kind, message: String| Self::new(Sort::Lasting, kind, message);
        match (code, status) {
            (Some("GatedRepo"), _) => {
                let do_this = format!("accept its terms at https://huggingface.co/datasets/{name}, ");
                let then = if with_token { "as the account of the token" } else { "and set HF_TOKEN to a token" };
                told(ErrorKind::Io, format!("the dataset {name} is gated")).hint(do_this + then)
            }
            (Some("RevisionNotFound"), _) => {
                told(ErrorKind::NotFound, format!("the dataset {name} has no revision {revision:?}"))
                    .hint("name a branch, a tag or a commit that it has")
            }
            (Some("EntryNotFound"), _) => {
                let message = format!("the dataset {name} has no such file at revision {revision:?}");
                let fault = Self::new(Sort::NoEntry, ErrorKind::NotFound, message);
                fault.hint("check the path, or build the index again")
            }
            (Some("RepoNotFound"), _) | (None, 404) if with_token => {
                told(ErrorKind::NotFound, format!("the account of the token sees no dataset {name}"))
                    .hint("check the name, and which account HF_TOKEN is of")
            }
            (Some("RepoNotFound"), _) | (None, 401 | 404) if !with_token => {
                told(ErrorKind::NotFound, format!("there is no dataset {name}, or it is private"))
                    .hint("check the name; for a private dataset set HF_TOKEN")
            }
            (_, 401) => told(ErrorKind::Io, "the hub does not take the token".to_owned())
                .hint("set HF_TOKEN to a token that is valid, or unset it for a public dataset"),
            (_, status) if passes(status) => {
                let message = format!("the hub fails (HTTP status {status})");
                Self::new(Sort::Passing, ErrorKind::Io, message).hint("try again later")
            }
            (_, 403) => told(ErrorKind::Io, format!("the hub refuses access to the dataset {name} (HTTP status 403)"))
                .hint("accept its terms if it has any, and let HF_TOKEN be a token that may read it"),
            (_, status) => told(ErrorKind::Io, format!("the hub refuses the request (HTTP status {status})"))
                .hint("check the URL, and HF_ENDPOINT"),
        }
    }

    fn of_text(error: &object_store::Error, text: &str, said: &dyn Fn(&str) -> String, url: &Url) -> Self {
        let lasting = |message: &str| Self::new(Sort::Lasting, ErrorKind::Io, said(message));
        if text.contains("scheme is not allowed") {
            return Self::new(Sort::Lasting, ErrorKind::Io, "the endpoint is not encrypted, which must be allowed")
                .hint("set AWS_ALLOW_HTTP=true (AZURE_ALLOW_HTTP, GOOGLE_ALLOW_HTTP)");
        }
        if let Some(refused) = causes(error).find_map(|cause| cause.downcast_ref::<Refused>()) {
            return Self::new(Sort::Lasting, ErrorKind::Io, refused.to_string())
                .hint("see where the URL leads (`curl -IL URL`), and name one that serves the file itself");
        }
        if text.contains("redirect without LOCATION") || matches!(status(text), Some(300..400)) {
            return lasting("the store redirects to another place").hint(address(url.scheme));
        }
        if text.contains("non-partial response") || text.contains("Content-Range header not present") {
            return Self::no_ranges();
        }
        if text.contains("Content-Length Header missing") {
            return lasting("the server does not say how long the file is (its answer has no Content-Length)").hint(
                "have the server, or the proxy before it, send files as they are, neither compressed nor chunked",
            );
        }
        match (status(text), transport(error)) {
            (Some(416), _) => Self::new(Sort::Range, ErrorKind::Io, "the file is shorter than what was asked for")
                .hint("the file is shorter than when it was indexed; build the index again"),
            (Some(status), _) if passes(status) || text.contains("<Code>RequestTimeout</Code>") => {
                let message = said("the store fails");
                Self::new(Sort::Passing, ErrorKind::Io, message).hint("try again later, or with fewer requests at once")
            }
            (Some(400), _) => lasting("the store refuses the request").hint(credentials(url.scheme, true)),
            (Some(_), _) => lasting("the store refuses the request"),
            (None, Some((HttpErrorKind::Connect, cause))) => {
                Self::new(Sort::Passing, ErrorKind::Io, format!("cannot connect to the store: {cause}"))
                    .hint("check the network, and the endpoint that the environment sets")
            }
            (None, Some((HttpErrorKind::Timeout, _))) => {
                Self::new(Sort::Passing, ErrorKind::Io, "the store does not answer in time")
            }
            (None, Some((_, cause))) => {
                Self::new(Sort::Passing, ErrorKind::Io, format!("the connection to the store broke: {cause}"))
            }
            (None, None) if text.contains("Configuration") => {
                Self::new(Sort::Lasting, ErrorKind::Io, "the store's configuration is not understood")
                    .hint("check the environment variables of the store")
            }
            (None, None) if text.contains("issing") || text.contains("arse") => {
                Self::new(Sort::Lasting, ErrorKind::Io, "the store's answer is not understood")
                    .hint("see whether the URL, and the endpoint that is set, are those of such a store")
            }
            (None, None) => Self::new(Sort::Passing, ErrorKind::Io, "the store's answer is not as it should be"),
        }
    }

    pub(super) fn hint(mut self, hint: impl Into<Hint>) -> Self {
        self.error = self.error.with_hint(hint);
        self
    }
}

/// How to get access; `given` when there were credentials, which did not do.
fn credentials(scheme: Scheme, given: bool) -> &'static str {
    match (scheme, given) {
        (Scheme::S3, true) => {
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION, and what they may read \
             or write"
        }
        (Scheme::S3, false) => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket"
        }
        (Scheme::Gcs, true) => "check GOOGLE_APPLICATION_CREDENTIALS, and what it may read or write",
        (Scheme::Gcs, false) => "set GOOGLE_APPLICATION_CREDENTIALS, or GOOGLE_SKIP_SIGNATURE=true for a public bucket",
        (Scheme::Azure, true) => {
            "check AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY, and what they \
             may read or write"
        }
        (Scheme::Azure, false) => {
            "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_SKIP_SIGNATURE=true for a public \
             container"
        }
        (Scheme::Hf, _) => "check HF_TOKEN, and what it may read",
        (Scheme::Http | Scheme::Https, _) => "the server must serve the files without a password",
    }
}

/// What to set where the store is not at the address that was asked.
fn address(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::S3 => {
            "set AWS_REGION to the region of the bucket, and AWS_ENDPOINT_URL to the address that serves it; what is \
             signed for one address is sent to no other"
        }
        Scheme::Gcs => {
            "set GOOGLE_BASE_URL to the address that serves the bucket; the token for one address is sent to no other"
        }
        Scheme::Azure => {
            "set AZURE_STORAGE_ENDPOINT to the address that serves the container; what is signed for one address is \
             sent to no other"
        }
        Scheme::Hf => "set HF_ENDPOINT to the address of the hub",
        Scheme::Http | Scheme::Https => "name the URL that the server redirects to",
    }
}

/// An error and its causes, from the outside in.
fn causes(error: &object_store::Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    let outermost: &(dyn StdError + 'static) = error;
    std::iter::successors(Some(outermost), |cause: &&'_ (dyn StdError + 'static)| StdError::source(*cause))
}

/// All that an error and its causes say, for looking things up in. Not for showing.
fn chain(error: &object_store::Error) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(" | ")
}

/// Whether a request that is told of went to an `http:` URL: `Error performing GET http://...`.
fn asked_openly(text: &str) -> bool {
    text.split("Error performing ")
        .any(|request| request.split(' ').nth(1).is_some_and(|url| url.starts_with("http://")))
}

/// Whether a request that is answered with this status may succeed when it is repeated.
fn passes(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..)
}

fn status(text: &str) -> Option<u16> {
    text.split_once("status code: ")?.1.get(..3)?.parse().ok()
}

/// The store's own name for what is wrong: `NoSuchBucket`.
fn code(text: &str) -> Option<String> {
    let code = text.split_once("<Code>")?.1.split_once("</Code>")?.0;
    (!code.is_empty() && code.len() <= 64 && code.chars().all(|c| c.is_ascii_alphanumeric())).then(|| code.to_owned())
}

/// What broke below HTTP, and the innermost cause, which names no URL.
fn transport(error: &object_store::Error) -> Option<(HttpErrorKind, String)> {
    let kind = causes(error).filter_map(|cause| cause.downcast_ref::<HttpError>()).last()?.kind();
    let cause = causes(error).last()?.to_string();
    Some((kind, if cause.contains("://") { "no reason given".to_owned() } else { cause }))
}
