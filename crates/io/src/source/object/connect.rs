//! The client that a store is asked with: its options, its credentials, its transport.

use std::sync::Arc;

use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::{ClientConfigKey, ClientOptions, ObjectStore, RetryConfig, aws, azure, gcp, http};

use super::credentials::Credentials;
use super::hub::{Hub, HubConnector};
use super::transport::{Transport, truth};
use crate::source::StoreOptions;
use crate::source::place::{Scheme, Url};
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

/// How a store is asked.
pub(super) struct Connection {
    pub(super) store: Arc<dyn ObjectStore>,
    /// The same, where it takes objects in parts.
    pub(super) parts: Option<Arc<dyn MultipartStore>>,
    /// The same, where it lists objects page by page.
    pub(super) pages: Option<Arc<dyn PaginatedListStore>>,
    /// `None` if requests go without any.
    pub(super) credentials: Option<Credentials>,
    /// What the hub alone is asked.
    pub(super) hub: Option<Arc<Hub>>,
}

/// The client of a store.
pub(super) fn connection(url: &Url, options: &StoreOptions) -> object_store::Result<Connection> {
    install_cryptography();
    // Requests are repeated here, where they are counted and a deadline holds for all of it.
    let retry = RetryConfig { max_retries: 0, retry_timeout: options.deadline, ..RetryConfig::default() };
    let given = |variable: &str| {
        let own = options.config.iter().any(|(name, _)| name.eq_ignore_ascii_case(variable));
        own || std::env::var_os(variable).is_some()
    };
    let deadline = format!("{} seconds", options.deadline.as_secs().max(1));
    let timeouts = [
        (ClientConfigKey::Timeout, "TIMEOUT", deadline.as_str()),
        (ClientConfigKey::ReadTimeout, "READ_TIMEOUT", SILENCE),
    ];
    macro_rules! signed {
        ($builder:expr, $keys:ty, $prefix:literal, $named:ident) => {{
            let mut builder = $builder;
            for (key, name, value) in timeouts {
                if !given(&format!("{}_{name}", $prefix)) {
                    builder = builder.with_config(<$keys>::Client(key), value);
                }
            }
            for (name, value) in &options.config {
                if let Ok(key) = name.to_ascii_lowercase().parse() {
                    builder = builder.with_config(key, value);
                }
            }
            let builder = builder.with_retry(retry).with_http_connector(Transport { follows: false });
            let skips = builder.get_config_value(&<$keys>::SkipSignature).and_then(|skips| truth(&skips));
            let store = builder.$named(&url.authority).build()?;
            let credentials = (skips != Some(true)).then(|| Credentials::of(store.credentials()));
            let store = Arc::new(store);
            let parts = Arc::clone(&store);
            let pages = Arc::clone(&store);
            Connection { parts: Some(parts), pages: Some(pages), store, credentials, hub: None }
        }};
    }
    Ok(match url.scheme {
        Scheme::S3 => signed!(aws::AmazonS3Builder::from_env(), aws::AmazonS3ConfigKey, "AWS", with_bucket_name),
        Scheme::Gcs => {
            let builder = gcp::GoogleCloudStorageBuilder::from_env();
            signed!(builder, gcp::GoogleConfigKey, "GOOGLE", with_bucket_name)
        }
        Scheme::Azure => {
            let builder = azure::MicrosoftAzureBuilder::from_env();
            signed!(builder, azure::AzureConfigKey, "AZURE", with_container_name)
        }
        Scheme::Http | Scheme::Https | Scheme::Hf => {
            let client = timeouts
                .into_iter()
                .fold(ClientOptions::new(), |client, (key, _, value)| client.with_config(key, value));
            let hub = match url.repository() {
                // The endpoint says whether there is encryption, and no token goes out without.
                Some(repository) => {
                    Some(Arc::new(Hub::new(repository, options, &client.clone().with_allow_http(true))?))
                }
                None => None,
            };
            let root = hub.as_ref().map_or_else(|| url.with_key("").to_string(), |hub| hub.root());
            let client = client.with_allow_http(url.scheme != Scheme::Https);
            let store = http::HttpBuilder::new().with_url(root).with_client_options(client).with_retry(retry);
            let store = match &hub {
                Some(hub) => store.with_http_connector(HubConnector(Arc::clone(hub))).build()?,
                None => store.with_http_connector(Transport { follows: true }).build()?,
            };
            Connection { store: Arc::new(store), parts: None, pages: None, credentials: None, hub }
        }
    })
}
