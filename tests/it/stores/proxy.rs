//! A proxy on loopback that is as slow and as faulty as it is told to be, the same way each time for a seed.
//!
//! It passes HTTP/1.1 requests on, one connection for each, so it can stand before any server. Standard library only.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// What to do to requests.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weather {
    /// Before a request is passed on.
    pub(super) latency: Duration,
    /// Of a thousand requests, so many meet a fault.
    pub(super) faults_per_mille: u64,
    pub(super) seed: u64,
}

/// Faults that requests meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// An answer with this status, and nothing done.
    Status(u16),
    /// The connection closes without an answer.
    Reset,
    /// The connection closes in the middle of the body.
    Cut,
    /// Half of the body, declared as all of it.
    Short,
    /// An answer after a second.
    Slow,
}

const FAULTS: [Fault; 8] = [
    Fault::Status(500),
    Fault::Status(503),
    Fault::Status(429),
    Fault::Status(504),
    Fault::Reset,
    Fault::Cut,
    Fault::Short,
    Fault::Slow,
];

/// A running proxy, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    weather: Weather,
    requests: AtomicU64,
    under_way: AtomicU64,
    most_under_way: AtomicU64,
    faults: AtomicU64,
    stop: AtomicBool,
}

impl Proxy {
    pub(super) fn start(upstream: SocketAddr, weather: Weather) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        Self::serve(listener, upstream, weather)
    }

    pub(super) fn serve(listener: TcpListener, upstream: SocketAddr, weather: Weather) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream,
            weather,
            requests: AtomicU64::new(0),
            under_way: AtomicU64::new(0),
            most_under_way: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let accepting = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                for client in listener.incoming() {
                    if shared.stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let (Ok(client), shared) = (client, Arc::clone(&shared)) else { continue };
                    // A client that goes away is no error of the proxy.
                    std::thread::spawn(move || drop(shared.pass(client)));
                }
            })
        };
        Ok(Self { address, shared, accepting: Some(accepting) })
    }

    /// Requests that came, repetitions among them.
    pub(super) fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// The most requests that were under way at once.
    pub(super) fn most_at_once(&self) -> u64 {
        self.shared.most_under_way.load(Ordering::Relaxed)
    }

    /// Faults that were made.
    pub(super) fn faults(&self) -> u64 {
        self.shared.faults.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

impl Shared {
    fn pass(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        client.set_read_timeout(Some(Duration::from_secs(30)))?;
        let (head, rest) = read_head(&mut client)?;
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let under_way = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_under_way.fetch_max(under_way, Ordering::Relaxed);
        let passed = self.pass_on(number, client, &head, rest);
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        passed
    }

    fn pass_on(&self, number: u64, mut client: TcpStream, head: &[u8], rest: Vec<u8>) -> io::Result<()> {
        std::thread::sleep(self.weather.latency);
        let fault = self.fault(number);
        self.faults.fetch_add(u64::from(fault.is_some()), Ordering::Relaxed);
        match fault {
            Some(Fault::Status(status)) => {
                let body = "<Error><Code>Stormy</Code></Error>";
                write!(
                    client,
                    "HTTP/1.1 {status} Stormy\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                )?;
                return client.shutdown(Shutdown::Write);
            }
            Some(Fault::Reset) => return Ok(()),
            Some(Fault::Slow) => std::thread::sleep(Duration::from_secs(1)),
            _ => {}
        }
        let mut server = TcpStream::connect(self.upstream)?;
        server.set_nodelay(true)?;
        let head_text = String::from_utf8_lossy(head).into_owned();
        server.write_all(head_text.trim_end_matches("\r\n").as_bytes())?;
        server.write_all(b"\r\nconnection: close\r\n\r\n")?;
        server.write_all(&rest)?;
        let length: u64 = field(&head_text, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        io::copy(&mut Read::by_ref(&mut client).take(length.saturating_sub(rest.len() as u64)), &mut server)?;
        match fault {
            Some(Fault::Cut | Fault::Short) => {
                let (head, mut body) = read_head(&mut server)?;
                server.read_to_end(&mut body)?;
                let mut head = String::from_utf8_lossy(&head).into_owned();
                let half = body.len() / 2;
                if fault == Some(Fault::Short)
                    && let Some(declared) = field(&head, "content-length")
                {
                    head = head.replace(&format!("content-length: {declared}"), &format!("content-length: {half}"));
                }
                client.write_all(head.as_bytes())?;
                client.write_all(&body[..half])?;
            }
            _ => pump(&mut server, &mut client)?,
        }
        client.shutdown(Shutdown::Write)
    }

    fn fault(&self, number: u64) -> Option<Fault> {
        let drawn = mixed(self.weather.seed ^ mixed(number));
        (drawn % 1000 < self.weather.faults_per_mille).then(|| FAULTS[(drawn >> 32) as usize % FAULTS.len()])
    }
}

/// In large pieces: the proxy shares the cores with what is measured through it.
pub(super) fn pump(from: &mut TcpStream, to: &mut TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            count => to.write_all(&buffer[..count])?,
        }
    }
}

/// Everything up to the empty line, and what came after it.
pub(super) fn read_head(stream: &mut impl Read) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Ok((bytes, rest));
        }
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

pub(super) fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
    Some(line.split_once(':')?.1.trim())
}

/// The finisher of splitmix64.
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
