//! Connections between processes of one user on one machine.
//!
//! The sockets keep the bounds of messages and carry open files. Their addresses are in the kernel's abstract
//! namespace: nothing is left behind in any folder, whoever is killed. An end of a connection that waits also watches
//! the process at the other end: a forked child may hold a copy of its socket, so that its end alone would not be
//! noticed. For the same reason a socket is shut down when it is let go of.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    getsockname, listen, recvmsg, sendmsg, shutdown, socket_with,
};
use rustix::process::{PidfdFlags, getuid, pidfd_open};

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop;
use rowdex_io::fs;

/// The most bytes of a message. What is larger travels in a memory file.
pub const MOST_MESSAGE: usize = 64 << 10;

/// Connections that may wait to be accepted: those of all workers of a machine may come at once.
const BACKLOG: i32 = 4096;

/// How long to try to meet the others: an address is free, or somebody answers at it, but for moments.
const MEETING: Duration = Duration::from_secs(30);

/// For so long nobody listens at an address that somebody has just taken.
const TAKING: Duration = Duration::from_millis(500);

/// Wakes whoever waits, once and for all.
#[derive(Debug)]
pub struct Signal(OwnedFd);

impl Signal {
    /// A signal that is not set.
    ///
    /// # Errors
    /// `Io` if the system has no more descriptors.
    pub fn new() -> Result<Self> {
        let made = fs::with_room(|| Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?));
        made.map(Self).map_err(|error| fs::error("cannot make an event", error))
    }

    /// Sets it, for good.
    pub fn set(&self) {
        // It can only fail if it is set already.
        let _ = retry_on_intr(|| rustix::io::write(&self.0, &1_u64.to_ne_bytes()));
    }

    /// Whether it was set.
    pub fn is_set(&self) -> bool {
        is_ready(&self.0)
    }
}

/// Waits until one of these is ready, or so long. Says which are.
fn wait(files: &[(BorrowedFd<'_>, PollFlags)], most: Option<Duration>) -> rustix::io::Result<Vec<bool>> {
    let end = most.map(|most| Instant::now() + most);
    loop {
        let mut polled: Vec<PollFd<'_>> =
            files.iter().map(|(file, flags)| PollFd::from_borrowed_fd(*file, *flags)).collect();
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        match poll(&mut polled, left.as_ref()) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
            Ok(_) => return Ok(polled.iter().map(|file| !file.revents().is_empty()).collect()),
        }
    }
}

fn is_ready(file: &OwnedFd) -> bool {
    wait(&[(file.as_fd(), PollFlags::IN)], Some(Duration::ZERO)).is_ok_and(|ready| ready.contains(&true))
}

fn failed(what: &'static str, error: Errno) -> Error {
    fs::error(what, error.into())
}

/// One end of a connection.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    /// The process at the other end, and what is ready when it has ended. Where the system cannot tell that, the end of
    /// the socket must do.
    peer: i32,
    peer_end: Option<OwnedFd>,
}

/// Inherited copies of the socket end with it. In a forked child nothing of its parent's is dropped.
impl Drop for Connection {
    fn drop(&mut self) {
        self.end();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !self.is_handed_over {
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
    }
}

/// What came of waiting for a message.
#[derive(Debug)]
pub enum Received {
    /// It is the first so many bytes of the buffer.
    Message(usize, Option<File>),
    /// The other end is closed, or its process has ended.
    Gone,
    /// The signal was set.
    Stopped,
    /// Nothing came in time.
    TimedOut,
}

impl Connection {
    /// With the process that has connected, or listens; `None` if that has ended. It is in the PID namespace of this
    /// one, because processes meet at addresses of their namespace: the kernel says 0 of one that cannot be seen from
    /// here, which is no process.
    fn of(socket: OwnedFd) -> Result<Option<Self>> {
        let other = socket_peercred(&socket).map_err(|error| failed("cannot tell who is at the other end", error))?;
        let peer = other.pid.as_raw_nonzero().get();
        if other.uid != getuid() {
            let message = format!(
                "a process of another user (process {peer}, user {}) is at the address where loaders of this job meet",
                other.uid.as_raw()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("give the job another name"));
        }
        let peer_end = match fs::with_room(|| Ok(pidfd_open(other.pid, PidfdFlags::empty())?)) {
            Ok(end) if is_ready(&end) => return Ok(None),
            Ok(end) => Some(end),
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => return Ok(None),
            Err(_) => None,
        };
        Ok(Some(Self { socket, peer, peer_end }))
    }

    /// Ends it for both sides, and for whoever has inherited a copy.
    pub fn end(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// The process at the other end.
    pub fn peer(&self) -> i32 {
        self.peer
    }

    /// Sends a message, with a file if one is given. Waits while the other end has too many to read, until the signal
    /// is set, or the call is to stop. Says whether it was sent: not if the other end is gone.
    pub fn send(&self, message: &[u8], file: Option<BorrowedFd<'_>>, stop: &Signal) -> Result<bool> {
        let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !files.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(&files));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.socket, &[IoSlice::new(message)], &mut control, flags) {
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::TOOMANYREFS) => {
                    // More files on their way than the process may have open; they become fewer as others read.
                    let waited = self.wait(PollFlags::OUT, stop, Some(Duration::from_millis(10)))?;
                    if matches!(waited, Some(Received::Stopped | Received::Gone)) {
                        return Ok(false);
                    }
                    stop::check()?;
                }
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => return Ok(false),
                Err(error) => return Err(failed("cannot send to another process of this machine", error)),
            }
        }
    }

    /// Waits for a message and writes it over `buffer`, which is large enough for all.
    pub fn receive(&self, buffer: &mut Vec<u8>, stop: &Signal, most: Option<Duration>) -> Result<Received> {
        buffer.resize(MOST_MESSAGE, 0);
        let mut reset = false;
        let mut ended = false;
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            match recvmsg(&self.socket, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
                Ok(read) if read.bytes == 0 => return Ok(Received::Gone),
                Ok(read) => {
                    if read.flags.contains(ReturnFlags::TRUNC) {
                        let message = "another process of this machine sent what is no message of rowdex";
                        return Err(Error::new(ErrorKind::Internal, message));
                    }
                    if read.flags.contains(ReturnFlags::CTRUNC) {
                        return Err(fs::error("cannot take over a batch", Errno::MFILE.into()));
                    }
                    let file = control.drain().find_map(|message| match message {
                        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
                        _ => None,
                    });
                    return Ok(Received::Message(read.bytes, file.map(File::from)));
                }
                Err(Errno::INTR) => {}
                // The other end was closed before it had read everything. What it sent is here nevertheless.
                Err(Errno::CONNRESET) if !reset => reset = true,
                Err(Errno::CONNRESET | Errno::NOTCONN) => return Ok(Received::Gone),
                Err(Errno::AGAIN) if ended => return Ok(Received::Gone),
                Err(Errno::AGAIN) => match self.wait(PollFlags::IN, stop, most)? {
                    None => {}
                    // It may have sent something before.
                    Some(Received::Gone) => ended = true,
                    Some(nothing) => return Ok(nothing),
                },
                Err(error) => return Err(failed("cannot receive from another process of this machine", error)),
            }
        }
    }

    /// Waits until it may be sent to, or read from; else says what came before that.
    fn wait(&self, ready: PollFlags, stop: &Signal, most: Option<Duration>) -> Result<Option<Received>> {
        let mut files = vec![(self.socket.as_fd(), ready), (stop.0.as_fd(), PollFlags::IN)];
        files.extend(self.peer_end.as_ref().map(|end| (end.as_fd(), PollFlags::IN)));
        let found = wait(&files, most).map_err(|error| failed("cannot wait for another process", error))?;
        Ok(match found[..] {
            [_, true, ..] => Some(Received::Stopped),
            [true, ..] => None,
            [_, _, true] => Some(Received::Gone),
            _ => Some(Received::TimedOut),
        })
    }
}

/// The end that others connect to.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    address: SocketAddrUnix,
    is_handed_over: bool,
}

impl Listener {
    /// The socket, for the process that is to listen: [`of`](Self::of) takes it over there.
    ///
    /// # Errors
    /// `Io` if the system has no more descriptors.
    pub fn hand_over(mut self) -> Result<OwnedFd> {
        self.is_handed_over = true;
        self.socket.try_clone().map_err(|error| fs::error("cannot hand over a socket", error))
    }

    /// A socket that another process has made. Whoever connects from now on sees this process at its end.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no socket that listens.
    pub fn of(socket: OwnedFd) -> Result<Self> {
        let address = getsockname(&socket).and_then(SocketAddrUnix::try_from);
        let address = address.and_then(|address| listen(&socket, BACKLOG).map(|()| address)).map_err(|error| {
            Error::new(ErrorKind::InvalidArgument, format!("no socket at which the loaders of a job meet: {error}"))
        })?;
        Ok(Self { socket, address, is_handed_over: false })
    }

    /// Waits for the next process of this user that connects; `None` once the signal is set, or after so long.
    pub fn accept(&self, stop: &Signal, most: Option<Duration>) -> Result<Option<Connection>> {
        loop {
            let files = [(self.socket.as_fd(), PollFlags::IN), (stop.0.as_fd(), PollFlags::IN)];
            let ready = wait(&files, most).map_err(|error| failed("cannot wait for other ranks", error))?;
            if !matches!(ready[..], [true, false]) {
                return Ok(None);
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let accepted = fs::with_room(|| Ok(accept_with(&self.socket, flags)?));
            match accepted {
                // Others have no business here, and get no answer.
                Ok(socket) => {
                    if let Ok(Some(connection)) = Connection::of(socket) {
                        return Ok(Some(connection));
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(fs::error("cannot accept another rank of this machine", error)),
            }
        }
    }

    /// A connection of this process to itself.
    pub fn connect(&self) -> Result<Connection> {
        let own = connect_to(&self.address)?.ok().map(Connection::of).transpose()?.flatten();
        own.ok_or_else(|| Error::new(ErrorKind::Internal, "a socket that listens cannot be connected to"))
    }
}

/// How processes meet: the first to come waits for the others.
#[derive(Debug)]
pub enum Met {
    /// Nobody was there: this process listens.
    First(Listener),
    /// Connected with whoever listens.
    Joined(Connection),
}

/// Meets the others at an address.
///
/// A process that does not listen any more may have left its socket to a forked child that knows nothing of it.
/// Everybody then goes on to the next address, which all find in the same way.
///
/// # Errors
/// `Closed` if the call is to stop.
pub fn meet(address: &str, signal: &Signal) -> Result<Option<Met>> {
    let began = Instant::now();
    let mut tried = began;
    let mut attempt = 0_u32;
    // Processes of different PID namespaces never meet: they could not watch each other, and what the system says of a
    // process that cannot be seen from here is no process. Where the system does not tell, all are of one.
    let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
    while !signal.is_set() {
        stop::check()?;
        let name = format!("{address}/{namespace}/{attempt}");
        let name = SocketAddrUnix::new_abstract_name(name.as_bytes())
            .map_err(|error| failed("cannot make an address for the loaders of this machine", error))?;
        let socket = socket()?;
        match bind(&socket, &name) {
            Ok(()) => {
                listen(&socket, BACKLOG).map_err(|error| failed("cannot wait for other ranks", error))?;
                return Ok(Some(Met::First(Listener { socket, address: name, is_handed_over: false })));
            }
            Err(Errno::ADDRINUSE) => {}
            Err(error) => return Err(failed("cannot make an address for the loaders of this machine", error)),
        }
        match connect_to(&name)? {
            Ok(socket) => match Connection::of(socket)? {
                Some(connection) => return Ok(Some(Met::Joined(connection))),
                None => (attempt, tried) = (attempt + 1, Instant::now()),
            },
            Err(_) if began.elapsed() > MEETING => {
                let message = "no answer at the address where the loaders of this job meet";
                return Err(Error::new(ErrorKind::Io, message).with_hint("give the job another name"));
            }
            // It has no room. Elsewhere nobody would be met: whoever listens here is only slow.
            Err(Errno::AGAIN) => {
                tried = Instant::now();
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(_) if tried.elapsed() > TAKING => (attempt, tried) = (attempt + 1, Instant::now()),
            // Whoever has the address does not listen yet, or any more.
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    Ok(None)
}

fn socket() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let made = fs::with_room(|| Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?));
    made.map_err(|error| fs::error("cannot make a socket", error))
}

/// A socket of whoever listens at an address; `AGAIN` if that has too many connections to accept, `CONNREFUSED` if
/// there is nobody.
fn connect_to(address: &SocketAddrUnix) -> Result<std::result::Result<OwnedFd, Errno>> {
    let socket = socket()?;
    match retry_on_intr(|| connect(&socket, address)) {
        Ok(()) => Ok(Ok(socket)),
        Err(busy @ (Errno::AGAIN | Errno::CONNREFUSED)) => Ok(Err(busy)),
        Err(error) => Err(failed("cannot connect to the reader of this machine", error)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    fn pair(address: &str) -> (Listener, Connection, Connection) {
        let stop = Signal::new().unwrap();
        let Some(Met::First(listener)) = meet(address, &stop).unwrap() else { panic!("somebody is there") };
        let Some(Met::Joined(one)) = meet(address, &stop).unwrap() else { panic!("nobody is there") };
        let other = listener.accept(&stop, None).unwrap().unwrap();
        (listener, one, other)
    }

    fn address(of: &str) -> String {
        format!("rowdex-test/{}/{of}", std::process::id())
    }

    #[test]
    fn the_first_to_come_waits_for_the_others() {
        let (listener, one, other) = pair(&address("first"));
        assert_eq!((one.peer(), other.peer()), (std::process::id() as i32, std::process::id() as i32));
        drop(listener);
        let stop = Signal::new().unwrap();
        assert!(matches!(meet(&address("first"), &stop).unwrap(), Some(Met::First(_))), "the address is free again");
    }

    #[test]
    fn an_address_that_a_forked_child_holds_is_passed_by() {
        let (listener, one, other) = pair(&address("held"));
        // What a child inherits.
        let copies = [&listener.socket, &one.socket].map(|socket| socket.try_clone().unwrap());
        drop((listener, one));
        let (stop, mut buffer) = (Signal::new().unwrap(), Vec::new());
        assert!(matches!(other.receive(&mut buffer, &stop, None).unwrap(), Received::Gone));
        let (_listener, one, other) = pair(&address("held"));
        assert!(one.send(b"x", None, &stop).unwrap());
        assert!(matches!(other.receive(&mut buffer, &stop, None).unwrap(), Received::Message(1, None)));
        drop(copies);
    }

    #[test]
    fn whoever_finds_a_crowd_waits_at_the_same_address_until_there_is_room() {
        let stop = Signal::new().unwrap();
        let Some(Met::First(listener)) = meet(&address("crowd"), &stop).unwrap() else { panic!("somebody is there") };
        listen(&listener.socket, 1).unwrap();
        let mut waiting = Vec::new();
        while let Ok(socket) = connect_to(&listener.address).unwrap() {
            waiting.push(socket);
        }
        std::thread::scope(|scope| {
            let met = scope.spawn(|| meet(&address("crowd"), &stop).unwrap());
            std::thread::sleep(2 * TAKING);
            assert!(!met.is_finished(), "it went elsewhere");
            for _ in 0..=waiting.len() {
                assert!(listener.accept(&stop, None).unwrap().is_some());
            }
            assert!(matches!(met.join().unwrap(), Some(Met::Joined(_))));
        });
    }

    #[test]
    fn a_message_arrives_whole_and_with_its_file() {
        let (_listener, one, other) = pair(&address("file"));
        let stop = Signal::new().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"rows").unwrap();
        assert!(one.send(b"first", Some(file.as_fd()), &stop).unwrap());
        assert!(one.send(b"second", None, &stop).unwrap());
        let mut buffer = Vec::new();
        let Received::Message(5, Some(mut got)) = other.receive(&mut buffer, &stop, None).unwrap() else { panic!() };
        assert_eq!(&buffer[..5], b"first");
        got.rewind().unwrap();
        let mut text = String::new();
        got.read_to_string(&mut text).unwrap();
        assert_eq!(text, "rows");
        assert!(matches!(other.receive(&mut buffer, &stop, None).unwrap(), Received::Message(6, None)));
        assert_eq!(&buffer[..6], b"second");
    }

    #[test]
    fn whoever_waits_to_send_or_to_meet_ends_when_the_call_is_to_stop() {
        let address = address("call");
        let (_listener, one, _other) = pair(&address);
        let signal = Signal::new().unwrap();
        let _told = stop::Asked::new(|| true).enter();
        let full = std::iter::repeat_with(|| one.send(b"a batch", None, &signal)).find_map(Result::err).unwrap();
        assert_eq!(full.kind(), ErrorKind::Closed);
        assert_eq!(meet(&address, &signal).unwrap_err().kind(), ErrorKind::Closed);
    }

    #[test]
    fn whoever_waits_is_woken_by_a_signal_a_time_and_the_end() {
        let (_listener, one, other) = pair(&address("wake"));
        let (stop, mut buffer) = (Signal::new().unwrap(), Vec::new());
        let short = Some(Duration::from_millis(5));
        assert!(matches!(other.receive(&mut buffer, &stop, short).unwrap(), Received::TimedOut));
        std::thread::scope(|scope| {
            scope.spawn(|| stop.set());
            assert!(matches!(other.receive(&mut buffer, &stop, None).unwrap(), Received::Stopped));
        });
        let stop = Signal::new().unwrap();
        assert!(other.send(b"unread", None, &stop).unwrap());
        assert!(one.send(b"last", None, &stop).unwrap());
        drop(one);
        assert!(matches!(other.receive(&mut buffer, &stop, None).unwrap(), Received::Message(4, None)));
        assert!(matches!(other.receive(&mut buffer, &stop, None).unwrap(), Received::Gone));
        assert!(!other.send(b"x", None, &stop).unwrap());
    }
}
