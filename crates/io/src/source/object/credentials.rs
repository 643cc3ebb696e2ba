//! Credentials, which may come from another server than the objects do.
//!
//! They are asked for before the request that needs them, so that an error says which of the two servers it was, and so
//! that a machine without any is told so at once: on one that is no cloud's there is nobody to ask, and the wait for an
//! answer would be a long one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use object_store::CredentialProvider;

use super::fault::Fault;
use crate::source::place::Url;

/// How long credentials may take. A machine's own service answers in milliseconds, and may be asked under two names.
const WAIT: Duration = Duration::from_secs(10);

type Fetch = dyn Fn() -> BoxFuture<'static, object_store::Result<()>> + Send + Sync;

/// Where a store's client gets its credentials from. It keeps them until shortly before they expire, so to ask costs
/// nothing as a rule.
pub(super) struct Credentials {
    fetch: Box<Fetch>,
    had: AtomicBool,
}

impl Credentials {
    pub(super) fn of<C: 'static>(provider: &Arc<dyn CredentialProvider<Credential = C>>) -> Self {
        let provider = Arc::clone(provider);
        let fetch = move || {
            let provider = Arc::clone(&provider);
            async move { provider.get_credential().await.map(drop) }.boxed()
        };
        Self { fetch: Box::new(fetch), had: AtomicBool::new(false) }
    }

    /// Waits until there are some, for no longer than a request has left.
    pub(super) async fn ready(&self, url: &Url, left: Duration) -> Result<(), Fault> {
        let had = self.had.load(Ordering::Relaxed);
        match tokio::time::timeout(WAIT.min(left), (self.fetch)()).await {
            Ok(Ok(())) => {
                self.had.store(true, Ordering::Relaxed);
                Ok(())
            }
            Ok(Err(error)) => Err(Fault::of_credentials(Some(&error), url, had)),
            Err(_) => Err(Fault::of_credentials(None, url, had)),
        }
    }
}
