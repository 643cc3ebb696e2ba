//! The client that a store is asked with: its options, its credentials, its transport.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::FutureExt;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig, aws, azure, gcp, http};
use tokio::sync::Semaphore;

use super::fault::StoreFault;
use super::hub::Hub;
use super::requests::{Credentials, Requests};
use super::transport::{Transport, truth};
use crate::source::StoreOptions;
use crate::source::place::{Scheme, Url};
use rowdex_base::error::Result;
use rowdex_base::fork::undivided;

/// Gives TLS its cryptography: what the application has installed, otherwise ring, which builds in a fraction of the
/// time of rustls' own default.
fn install_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread was faster.
        let _ = undivided(|| rustls::crypto::ring::default_provider().install_default());
    }
}

/// The client of a store.
pub(super) fn connect(url: &Url, options: &StoreOptions) -> Result<Requests> {
    install_cryptography();
    let transport = Transport { is_open: false, requests: Arc::default(), deadline: options.deadline };
    let requests = Arc::clone(&transport.requests);
    let unread = |error: object_store::Error| StoreFault::of_configuration(&error, url).error;
    let mut hub = None;
    let (store, credentials) = match url.scheme {
        Scheme::Http | Scheme::Https | Scheme::Hf => {
            // The endpoint of the hub says whether there is encryption, and no token goes out without.
            let client = ClientOptions::new().with_allow_http(url.scheme != Scheme::Https);
            if let Some(repository) = url.repository() {
                let sender = transport.sender(&client).map_err(unread)?;
                hub = Some(Hub::new(url, repository, options, sender)?);
            }
            let store = http::HttpBuilder::new().with_client_options(client).with_retry(retry(options));
            let store = match hub.clone() {
                Some(hub) => store.with_url(hub.root()).with_http_connector(hub),
                None => {
                    let transport = Transport { is_open: true, ..transport };
                    store.with_url(url.with_key("").to_string()).with_http_connector(transport)
                }
            };
            (Arc::new(store.build().map_err(unread)?) as Arc<dyn ObjectStore>, None)
        }
        _ => signed(url, options, transport).map_err(unread)?,
    };
    Ok(Requests {
        store,
        credentials,
        had_credentials: AtomicBool::new(false),
        hub,
        url: url.clone(),
        permits: Semaphore::new(options.concurrency.min(Semaphore::MAX_PERMITS)),
        deadline: options.deadline,
        requests,
        bytes: Default::default(),
        meter: Default::default(),
    })
}

fn retry(options: &StoreOptions) -> RetryConfig {
    let backoff = BackoffConfig { max_backoff: std::time::Duration::from_secs(5), ..BackoffConfig::default() };
    RetryConfig { max_retries: options.retries, retry_timeout: options.deadline, backoff }
}

/// A store that wants its requests signed, and where its credentials come from, if requests are to have any.
fn signed(
    url: &Url,
    options: &StoreOptions,
    transport: Transport,
) -> object_store::Result<(Arc<dyn ObjectStore>, Option<Credentials>)> {
    macro_rules! built {
        ($builder:expr, $keys:ty, $named:ident) => {{
            let mut builder = $builder;
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
            built!(builder, gcp::GoogleConfigKey, with_bucket_name)
        }
        Scheme::Azure => {
            let builder = azure::MicrosoftAzureBuilder::from_env();
            built!(builder, azure::AzureConfigKey, with_container_name)
        }
        _ => built!(aws::AmazonS3Builder::from_env(), aws::AmazonS3ConfigKey, with_bucket_name),
    })
}
