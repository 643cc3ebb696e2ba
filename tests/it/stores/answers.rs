//! A server that answers as a function says, with or without TLS, and keeps what it heard.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::proxy::{field, read_head};

/// The certificate of `localhost` and `127.0.0.1`, and its key.
pub(super) fn certificate() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/data/localhost.pem")
}

/// From the head of a request to all that is sent in answer.
type Answer = dyn Fn(&str) -> Vec<u8> + Send + Sync;

/// A running server, which ends when it is dropped. Each connection has one request.
pub(super) struct Answers {
    pub(super) address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Answers {
    pub(super) fn start(tls: bool, answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (heard, stop) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicBool>::default());
        let (tls, answer): (_, Arc<Answer>) = (tls.then(with_tls), Arc::new(answer));
        let (ends, hears) = (Arc::clone(&stop), Arc::clone(&heard));
        let accepting = std::thread::spawn(move || {
            for client in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(client) = client else { continue };
                let (tls, answer, heard) = (tls.clone(), Arc::clone(&answer), Arc::clone(&hears));
                // A client that goes away is no error of the server.
                std::thread::spawn(move || drop(serve(client, tls, &*answer, &heard)));
            }
        });
        Self { address, heard, stop, accepting: Some(accepting) }
    }

    /// One that sends everybody to the same path elsewhere.
    pub(super) fn redirecting(tls: bool, status: u16, place: String) -> Self {
        Self::start(tls, move |head| {
            let path = head.split(' ').nth(1).unwrap();
            format!("HTTP/1.1 {status} There\r\nlocation: {place}{path}\r\ncontent-length: 0\r\n\r\n").into_bytes()
        })
    }

    /// One that passes requests on to another.
    pub(super) fn before(tls: bool, upstream: SocketAddr) -> Self {
        Self::start(tls, move |head| {
            let mut server = TcpStream::connect(upstream).unwrap();
            write!(server, "{}\r\nconnection: close\r\n\r\n", head.trim_end()).unwrap();
            let mut answer = Vec::new();
            server.read_to_end(&mut answer).unwrap();
            answer
        })
    }

    /// The heads of all requests.
    pub(super) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        let _ = self.accepting.take().map(JoinHandle::join);
    }
}

fn with_tls() -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let chain = vec![CertificateDer::from_pem_file(certificate()).unwrap()];
    let key = PrivateKeyDer::from_pem_file(certificate()).unwrap();
    Arc::new(versions.with_no_client_auth().with_single_cert(chain, key).unwrap())
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

fn serve(
    client: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    answer: &Answer,
    heard: &Mutex<Vec<String>>,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    client.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut stream: Box<dyn Stream> = match tls {
        Some(tls) => Box::new(StreamOwned::new(ServerConnection::new(tls).map_err(io::Error::other)?, client)),
        None => Box::new(client),
    };
    let (head, rest) = read_head(&mut stream)?;
    let head = String::from_utf8_lossy(&head).into_owned();
    heard.lock().unwrap().push(head.clone());
    let length: u64 = field(&head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    io::copy(&mut Read::by_ref(&mut stream).take(length.saturating_sub(rest.len() as u64)), &mut io::sink())?;
    let answer = answer(&head);
    let end = answer.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    stream.write_all(&[&answer[..end], b"connection: close\r\n", &answer[end..]].concat())?;
    stream.flush()
}
