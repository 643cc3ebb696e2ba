//! What a server delivers at most, for measuring: `store_plain ROOT BYTES CONCURRENCY KEY ...` fetches files below a
//! URL of an HTTP server in requests of so many bytes, so many at once, by the `object_store` crate alone, and prints
//! MB/s. Nothing is decoded.

use std::sync::Arc;
use std::time::Instant;

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, http};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [root, size, concurrency, keys @ ..] = arguments.as_slice() else {
        eprintln!("store_plain ROOT BYTES CONCURRENCY KEY ...");
        std::process::exit(2);
    };
    let (size, concurrency): (u64, usize) = (size.parse()?, concurrency.parse()?);
    let client = ClientOptions::new().with_allow_http(true);
    let store: Arc<dyn ObjectStore> =
        Arc::new(http::HttpBuilder::new().with_url(root).with_client_options(client).build()?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut ranges = Vec::new();
        for key in keys {
            let path = Path::parse(key)?;
            let length = store.head(&path).await?.size;
            ranges.extend(
                (0..length).step_by(size as usize).map(|start| (path.clone(), start..length.min(start + size))),
            );
        }
        let began = Instant::now();
        let requests = stream::iter(ranges).map(|(path, range)| {
            let store = Arc::clone(&store);
            // On the runtime's threads, as the library's own requests are.
            tokio::spawn(async move { store.get_range(&path, range).await.map(|bytes| bytes.len()) })
        });
        let fetched: usize = requests
            .buffer_unordered(concurrency)
            .map(|done| Ok::<_, Box<dyn std::error::Error>>(done??))
            .try_fold(0, |sum, bytes| async move { Ok(sum + bytes) })
            .await?;
        println!("{:.0} MB/s", fetched as f64 / 1e6 / began.elapsed().as_secs_f64());
        Ok(())
    })
}
