//! The client that a store is asked with: its options, its credentials, its transport.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::FutureExt;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig, aws, azure, gcp, http};
use tokio::sync::Semaphore;

use super::fault::Fault;
use super::hub::Hub;
use super::meter::Meter;
use super::requests::{Credentials, Shared};
use super::transport::{Protocol, Transport, truth};
use crate::source::StoreOptions;
use crate::source::place::{Scheme, Url};
use rowdex_base::error::Result;
use rowdex_base::fork::undivided;

/// A server that sends nothing for so long is taken for dead.
const SILENCE: &str = "20 seconds";

/// Gives TLS its cryptography: what the application has installed, otherwise ring, which builds in a fraction of the
/// time of rustls' own default.
fn install_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread was faster.
        let _ = undivided(|| rustls::crypto::ring::default_provider().install_default());
    }
}

/// The client of a store.
pub(super) fn connect(url: &Url, options: &StoreOptions) -> Result<Shared> {
    install_cryptography();
    let transport = Transport { protocol: Protocol::Signed, requests: Arc::default(), deadline: options.deadline };
    let requests = Arc::clone(&transport.requests);
    let unread = |error: object_store::Error| Fault::of_configuration(&error, url).error;
    let mut hub = None;
    let (store, credentials) = match url.scheme {
        Scheme::Http | Scheme::Https | Scheme::Hf => {
            let given = |client: ClientOptions, (key, _, value)| client.with_config(key, value);
            let client = timeouts(options).into_iter().fold(ClientOptions::new(), given);
            // The endpoint of the hub says whether there is encryption, and no token goes out without.
            let client = client.with_allow_http(url.scheme != Scheme::Https);
            if let Some(repository) = url.repository() {
                let sender = transport.sender(&client).map_err(unread)?;
                hub = Some(Arc::new(Hub::new(url, repository, options, sender)?));
            }
            let root = hub.as_ref().map_or_else(|| url.with_key("").to_string(), |hub| hub.root());
            let protocol = hub.clone().map_or(Protocol::Open, |hub| Protocol::Hub(hub));
            let store = http::HttpBuilder::new().with_url(root).with_client_options(client).with_retry(retry(options));
            let store = store.with_http_connector(Transport { protocol, ..transport }).build().map_err(unread)?;
            (Arc::new(store) as Arc<dyn ObjectStore>, None)
        }
        _ => signed(url, options, transport).map_err(unread)?,
    };
    Ok(Shared {
        store,
        credentials,
        had_credentials: AtomicBool::new(false),
        hub,
        url: url.clone(),
        permits: Semaphore::new(options.concurrency.min(Semaphore::MAX_PERMITS)),
        deadline: options.deadline,
        requests,
        bytes: Default::default(),
        meter: Meter::default(),
    })
}

fn retry(options: &StoreOptions) -> RetryConfig {
    let backoff = BackoffConfig { max_backoff: std::time::Duration::from_secs(5), ..BackoffConfig::default() };
    RetryConfig { max_retries: options.retries, retry_timeout: options.deadline, backoff }
}

/// What is set unless the user does: the key, the end of its name, and the value.
fn timeouts(options: &StoreOptions) -> [(ClientConfigKey, &'static str, String); 2] {
    let deadline = format!("{} seconds", options.deadline.as_secs().max(1));
    [
        (ClientConfigKey::Timeout, "TIMEOUT", deadline),
        (ClientConfigKey::ReadTimeout, "READ_TIMEOUT", SILENCE.to_owned()),
    ]
}

/// A store that wants its requests signed, and where its credentials come from, if requests are to have any.
fn signed(
    url: &Url,
    options: &StoreOptions,
    transport: Transport,
) -> object_store::Result<(Arc<dyn ObjectStore>, Option<Credentials>)> {
    let given = |variable: &str| {
        let own = options.config.iter().any(|(name, _)| name.eq_ignore_ascii_case(variable));
        own || std::env::var_os(variable).is_some()
    };
    macro_rules! built {
        ($builder:expr, $keys:ty, $prefix:literal, $named:ident) => {{
            let mut builder = $builder;
            for (key, name, value) in timeouts(options) {
                if !given(&format!("{}_{name}", $prefix)) {
                    builder = builder.with_config(<$keys>::Client(key), value);
                }
            }
            for (name, value) in &options.config {
                if let Ok(key) = name.to_ascii_lowercase().parse() {
                    builder = builder.with_config(key, value);
                }
            }
            let skips = builder.get_config_value(&<$keys>::SkipSignature).and_then(|skips| truth(&skips));
            let builder = builder.with_retry(retry(options)).with_http_connector(transport);
            let store = builder.$named(&url.authority).build()?;
            let provider = Arc::clone(store.credentials());
            let fetch = move || {
                let provider = Arc::clone(&provider);
                async move { provider.get_credential().await.map(drop) }.boxed()
            };
            let credentials: Option<Credentials> = (skips != Some(true)).then(|| Box::new(fetch) as _);
            (Arc::new(store), credentials)
        }};
    }
    Ok(match url.scheme {
        Scheme::Gcs => {
            let builder = gcp::GoogleCloudStorageBuilder::from_env();
            built!(builder, gcp::GoogleConfigKey, "GOOGLE", with_bucket_name)
        }
        Scheme::Azure => {
            let builder = azure::MicrosoftAzureBuilder::from_env();
            built!(builder, azure::AzureConfigKey, "AZURE", with_container_name)
        }
        _ => built!(aws::AmazonS3Builder::from_env(), aws::AmazonS3ConfigKey, "AWS", with_bucket_name),
    })
}
