//! What a store's errors mean, in words that hold no secret.
//!
//! The errors of the store's client are not passed on as they are: they may quote signed URLs, and a store that refuses
//! a signature answers with the headers that it was made from, session token included. So what is said is put together
//! from the kind, the status and the store's own error code.

use std::borrow::Cow;
use std::error::Error as StdError;

use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Error as BadPath;

use crate::source::place::{Scheme, Url};
use rowdex_base::error::{Error, ErrorKind};

/// Why a request failed.
#[derive(Debug)]
pub(super) struct StoreFault {
    pub(super) error: Error,
    pub(super) sort: FaultSort,
}

/// What a fault is to whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultSort {
    /// There is nothing to do about it.
    Final,
    /// The range asked for is not there, or not served as one.
    Range,
    /// The store cannot do what was asked.
    Unsupported,
}

/// An error of this crate on its way through the store's client, which neither repeats nor changes it.
pub(super) fn as_it_is(error: Error) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, error)
}

impl StoreFault {
    /// What a user is told.
    pub(super) fn into_error(self) -> Error {
        self.error
    }

    pub(super) fn new(kind: ErrorKind, message: impl Into<String>, hint: impl Into<Cow<'static, str>>) -> Self {
        Self { error: Error::new(kind, message.into()).with_hint(hint), sort: FaultSort::Final }
    }

    /// From an error of the client, on the way to `url`.
    pub(super) fn of(error: &object_store::Error, url: &Url) -> Self {
        use object_store::Error as Store;
        if let Some(own) = causes(error).find_map(|cause| cause.downcast_ref::<Error>()) {
            return Self { error: own.clone(), sort: FaultSort::Final };
        }
        let text = causes(error).map(ToString::to_string).collect::<Vec<_>>().join(" | ");
        let status = status(&text);
        let code = code(&text);
        let sort = match (error, status) {
            (_, Some(416)) => FaultSort::Range,
            (_, Some(405 | 501)) | (Store::NotImplemented { .. }, _) => FaultSort::Unsupported,
            _ => FaultSort::Final,
        };
        let told = |kind, message: &str, hint: &'static str| {
            let message = match (&code, status) {
                (Some(code), _) => format!("{message} ({code})"),
                (None, Some(status)) => format!("{message} (HTTP status {status})"),
                (None, None) => message.to_owned(),
            };
            let error = Error::new(kind, message);
            // Without a hint here, whoever asked knows what to do.
            let error = if hint.is_empty() { error } else { error.with_hint(hint) };
            Self { error, sort }
        };
        match (error, status) {
            // The client takes a request that is not allowed for one of a file that is not there.
            (_, Some(405 | 501)) | (Store::NotImplemented { .. }, _) => {
                told(ErrorKind::Io, "the server does not do this", "")
            }
            _ if matches!(code.as_deref(), Some("NoSuchBucket" | "ContainerNotFound")) => {
                let message = format!("there is no bucket or container `{}`", url.authority);
                told(ErrorKind::NotFound, &message, "check its name, and the endpoint that the environment sets")
            }
            (Store::NotFound { .. }, _) | (_, Some(404 | 410)) => {
                told(ErrorKind::NotFound, "there is no such file in the store", "")
            }
            (Store::AlreadyExists { .. }, _) => told(ErrorKind::AlreadyExists, "it exists already", ""),
            (Store::Precondition { .. } | Store::NotModified { .. }, _) => Self::changed(),
            (Store::PermissionDenied { .. } | Store::Unauthenticated { .. }, _) | (_, Some(401 | 403)) => {
                told(ErrorKind::Io, "the store refuses access", credentials(url.scheme))
            }
            // Paths that are asked for were looked at before, so it is one of a listing.
            (Store::InvalidPath { source: BadPath::EmptySegment { path } | BadPath::BadSegment { path, .. } }, _) => {
                let message =
                    format!("the name `{path}` of an object is no path: it has an empty part, a `.` or a `..`");
                let hint = "rename or remove the object, or name folders, or files, that it is not below";
                told(ErrorKind::InvalidArgument, &message, hint)
            }
            (_, Some(416)) => {
                told(ErrorKind::Io, "the file is shorter than what was asked for", "build the index again")
            }
            (_, Some(300..400)) => told(ErrorKind::Io, "the store redirects to another place", advice(url.scheme).1),
            (_, Some(400)) => told(ErrorKind::Io, "the store refuses the request", credentials(url.scheme)),
            (_, Some(_)) => told(ErrorKind::Io, "the store fails", "try again later, or with fewer requests at once"),
            (_, None) => Self::without_status(error, &text, url),
        }
    }

    /// From an error of the client that says nothing of an answer.
    fn without_status(error: &object_store::Error, text: &str, url: &Url) -> Self {
        let lasting = |message: &str, hint: &str| Self::new(ErrorKind::Io, message, hint.to_owned());
        let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
        if has(&["redirect without LOCATION"]) {
            return lasting("the store redirects to another place", advice(url.scheme).1);
        }
        if has(&["scheme is not allowed"]) {
            let hint = "set AWS_ALLOW_HTTP=true (AZURE_ALLOW_HTTP, GOOGLE_ALLOW_HTTP)";
            return lasting("the endpoint is not encrypted, which must be allowed", hint);
        }
        if has(&["non-partial response", "Content-Range header", "ange request not supported"]) {
            let message = "the server does not serve parts of a file";
            return Self { sort: FaultSort::Range, ..lasting(message, "use a server that supports range requests") };
        }
        if has(&["Content-Length Header missing"]) {
            let hint =
                "have the server, or the proxy before it, send files as they are, neither compressed nor chunked";
            return lasting("the server does not say how long the file is (its answer has no Content-Length)", hint);
        }
        let transport = causes(error).filter_map(|cause| cause.downcast_ref::<HttpError>()).last();
        // The innermost cause names no URL, as a rule.
        let cause = causes(error).last().map(ToString::to_string).filter(|cause| !cause.contains("://"));
        let cause = cause.as_deref().unwrap_or("no reason given");
        match transport.map(HttpError::kind) {
            Some(HttpErrorKind::Connect) => {
                let hint = "check the network, and the endpoint that the environment sets";
                lasting(&format!("cannot connect to the store: {cause}"), hint)
            }
            Some(_) => lasting(&format!("the connection to the store broke: {cause}"), "check the network"),
            None => {
                let hint = "see whether the URL, and the endpoint that is set, are those of such a store";
                lasting("the store's answer is not understood", hint)
            }
        }
    }

    /// What keeps a client from being made. Nothing of the error is shown: it may quote the value that it is about.
    pub(super) fn of_configuration(error: &object_store::Error, url: &Url) -> Self {
        match causes(error).find_map(|cause| cause.downcast_ref::<Error>()) {
            Some(own) => Self { error: own.clone(), sort: FaultSort::Final },
            None => {
                let message = "the store's configuration is not understood, or a file that it names cannot be read";
                Self::new(ErrorKind::Io, message, credentials(url.scheme))
            }
        }
    }

    /// There are no credentials: what the service that gives them answers, if it does.
    pub(super) fn of_credentials(error: Option<&object_store::Error>, url: &Url) -> Self {
        let status = error.and_then(|error| status(&causes(error).map(ToString::to_string).collect::<String>()));
        let answer = match status {
            Some(status) => format!("the service that gives them answers with HTTP status {status}"),
            None => "no service of this machine gives any".to_owned(),
        };
        let message = format!("there are no credentials for the store: none are set that do, and {answer}");
        Self::new(ErrorKind::Io, message, credentials(url.scheme))
    }

    /// The object is not the expected one.
    pub(super) fn changed() -> Self {
        let message = "the file in the store is not the one that was indexed, or changed while it was read";
        let hint = "build the index again, or with `update`";
        Self::new(ErrorKind::Stale, message, hint)
    }
}

/// How to get access.
fn credentials(scheme: Scheme) -> &'static str {
    advice(scheme).0
}

/// How to get access, and what to set where the store is not at the address that was asked. What is signed for one is
/// sent to no other.
fn advice(scheme: Scheme) -> (&'static str, &'static str) {
    match scheme {
        Scheme::S3 => (
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION, and what they may read \
             or write; for a public bucket set AWS_SKIP_SIGNATURE=true",
            "set AWS_REGION to the region of the bucket, and AWS_ENDPOINT_URL to the address that serves it; what is \
             signed for one address is sent to no other",
        ),
        Scheme::Gcs => (
            "check GOOGLE_APPLICATION_CREDENTIALS, and what it may read or write; for a public bucket set \
             GOOGLE_SKIP_SIGNATURE=true",
            "set GOOGLE_BASE_URL to the address that serves the bucket; the token for one address is sent to no other",
        ),
        Scheme::Azure => (
            "check AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY, and what they \
             may read or write; for a public container set AZURE_SKIP_SIGNATURE=true",
            "set AZURE_STORAGE_ENDPOINT to the address that serves the container; what is signed for one address is \
             sent to no other",
        ),
        Scheme::Hf => ("check HF_TOKEN, and what it may read", "name the URL that the server redirects to"),
        Scheme::Http | Scheme::Https => {
            ("the server must serve the files without a password", "name the URL that the server redirects to")
        }
    }
}

/// An error and its causes, from the outside in.
fn causes(error: &object_store::Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    let outermost: &(dyn StdError + 'static) = error;
    std::iter::successors(Some(outermost), |cause: &&'_ (dyn StdError + 'static)| StdError::source(*cause))
}

fn status(text: &str) -> Option<u16> {
    text.split_once("status code: ")?.1.get(..3)?.parse().ok()
}

/// The store's own name for what is wrong: `NoSuchBucket`.
fn code(text: &str) -> Option<String> {
    let code = text.split_once("<Code>")?.1.split_once("</Code>")?.0;
    (!code.is_empty() && code.len() <= 64 && code.chars().all(|c| c.is_ascii_alphanumeric())).then(|| code.to_owned())
}
