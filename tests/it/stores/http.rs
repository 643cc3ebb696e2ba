//! A small HTTP server of files, with ranges, entity tags and conditions.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::UNIX_EPOCH;

/// What a server can do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Abilities {
    pub(super) ranges: bool,
    pub(super) tags: bool,
}

#[derive(Debug)]
pub(super) struct Http {
    pub(super) address: SocketAddr,
    stop: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Http {
    pub(super) fn start(folder: &Path, abilities: Abilities) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let folder = folder.to_owned();
        let accepting = std::thread::spawn(move || {
            for client in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let folder = folder.clone();
                std::thread::spawn(move || drop(serve(&client.unwrap(), &folder, abilities)));
            }
        });
        Self { address, stop, accepting: Some(accepting) }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        let _ = self.accepting.take().map(JoinHandle::join);
    }
}

fn serve(stream: &TcpStream, folder: &Path, abilities: Abilities) -> std::io::Result<()> {
    // Head and body are written apart, and the second would wait for the first to be acknowledged.
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let mut request = lines[0].split(' ');
        let (method, target) = (request.next().unwrap(), request.next().unwrap());
        let field = |name: &str| {
            let line = lines.iter().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let mut out = stream;
        if !matches!(method, "GET" | "HEAD") {
            write!(out, "HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n")?;
            continue;
        }
        let path = target.trim_start_matches('/').split('?').next().unwrap();
        let path = folder.join(decoded(path));
        let Some((file, size, tag, time)) = open(&path) else {
            write!(out, "HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n")?;
            continue;
        };
        if abilities.tags && field("if-match").is_some_and(|wanted| wanted != tag) {
            write!(out, "HTTP/1.1 412 No\r\ncontent-length: 0\r\n\r\n")?;
            continue;
        }
        let range = field("range").filter(|_| abilities.ranges).and_then(|text| range(&text, size));
        let (status, start, end) = match range {
            Some((start, end)) if start < end => ("206 Part", start, end),
            Some(_) => {
                write!(out, "HTTP/1.1 416 No\r\ncontent-length: 0\r\n\r\n")?;
                continue;
            }
            None => ("200 All", 0, size),
        };
        write!(out, "HTTP/1.1 {status}\r\ncontent-length: {}\r\nlast-modified: {time}\r\n", end - start)?;
        if abilities.tags {
            write!(out, "etag: {tag}\r\n")?;
        }
        if range.is_some() {
            write!(out, "content-range: bytes {start}-{}/{size}\r\n", end - 1)?;
        }
        write!(out, "\r\n")?;
        if method == "GET" {
            let mut file = file;
            file.seek(SeekFrom::Start(start))?;
            std::io::copy(&mut file.take(end - start), &mut out)?;
        }
        if field("connection").is_some_and(|wish| wish == "close") {
            return Ok(());
        }
    }
}

fn open(path: &PathBuf) -> Option<(std::fs::File, u64, String, String)> {
    let file = std::fs::File::open(path).ok()?;
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    let tag = format!("\"{:x}-{:x}\"", modified.as_nanos(), metadata.len());
    let time = chrono_free_date(modified.as_secs());
    Some((file, metadata.len(), tag, time))
}

/// An HTTP date, by the civil-from-days algorithm of Howard Hinnant ("chrono-Compatible Low-Level Date Algorithms").
fn chrono_free_date(seconds: u64) -> String {
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = (if shifted < 10 { shifted + 3 } else { shifted - 9 }) as usize;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][(days % 7) as usize];
    let name = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][month - 1];
    format!("{weekday}, {day:02} {name} {year} {:02}:{:02}:{:02} GMT", rest / 3600, rest / 60 % 60, rest % 60)
}

fn range(text: &str, size: u64) -> Option<(u64, u64)> {
    let (start, end) = text.strip_prefix("bytes=")?.split_once('-')?;
    Some(match (start.parse::<u64>(), end.parse::<u64>()) {
        (Ok(start), Ok(end)) => (start, (end + 1).min(size)),
        (Ok(start), Err(_)) => (start, size),
        (Err(_), Ok(suffix)) => (size.saturating_sub(suffix), size),
        _ => return None,
    })
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}
