//! One TCP connection on this side, watched while it is carried: how much the kernel may hold of what its sender sends
//! (the window controller of paper 000, section 3.4), and what is wrong with the peer's stack (the exception handler).

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use nix::sys::socket::{getsockopt, sockopt};
use skyhaul_cc::{Bytes, Duration};
use skyhaul_pep::exceptions::{ExceptionHandler, Fault, Options, Seen};
use skyhaul_pep::limits::WindowController;
use socket2::SockRef;
use tokio::net::TcpStream;

use super::info::{offered_here, Info};
use crate::exceptions::{Exception, Exceptions};

/// Who made the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// We did: what the peer did not answer is its own.
    Here,
    /// The peer did: its SYN has told what it offers.
    There,
}

/// Watches one connection.
pub struct Watch {
    peer: Option<IpAddr>,
    made: Made,
    controller: WindowController,
    handler: ExceptionHandler,
    noted: BTreeSet<Fault>,
    last: Info,
    looked: Instant,
    /// Bytes read since the last look, and those that waited for the channel then.
    read: Bytes,
    queued: Bytes,
    buffer: Buffer,
    exceptions: Exceptions,
}

/// The kernel's receive buffer of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Buffer {
    /// As the kernel counts, about twice the data that fits.
    size: Bytes,
    /// We have set its size; the kernel makes it grow no more.
    set: bool,
}

/// What to do about a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Keep,
    /// Data for this much must fit, and not much more.
    Shrink(Bytes),
    /// The kernel may make it grow again.
    Release(Bytes),
}

impl Buffer {
    /// The buffer follows what the channel drains: `wanted` is to fit. The kernel's own growing only knows how fast
    /// we read, and never shrinks.
    fn follow(self, wanted: Bytes) -> Change {
        if self.size > wanted * TOO_LARGE {
            Change::Shrink(wanted)
        } else if self.set && wanted * 2 > self.size {
            Change::Release(wanted)
        } else {
            Change::Keep
        }
    }
}

impl Watch {
    /// Begins with a connection that was just made.
    pub fn begin(stream: &TcpStream, made: Made, exceptions: &Exceptions) -> Watch {
        let info = Info::of(stream).unwrap_or_default();
        let offered = match made {
            Made::Here => offered_here(),
            // Told of by its SYN, see [`crate::ingress`].
            Made::There => info.options(),
        };
        let scaled = info.options().window_scaling;
        let limit = if scaled { MOST } else { UNSCALED };
        let mut watch = Watch {
            peer: stream.peer_addr().ok().map(|address| address.ip().to_canonical()),
            made,
            controller: WindowController::new(info.segment, limit),
            handler: ExceptionHandler::new(offered, info.options()),
            noted: BTreeSet::new(),
            last: info,
            looked: Instant::now(),
            read: Bytes::ZERO,
            queued: Bytes::ZERO,
            buffer: Buffer::default(),
            exceptions: exceptions.clone(),
        };
        if !scaled {
            // A window above 64 KiB cannot be told, so larger buffers would never fill.
            let socket = SockRef::from(stream);
            let _ = socket.set_recv_buffer_size(UNSCALED.0 as usize);
            let _ = socket.set_send_buffer_size(UNSCALED.0 as usize);
        }
        watch.note_faults();
        watch
    }

    /// Bytes were read from the connection.
    pub fn read(&mut self, bytes: usize) {
        self.read += Bytes(bytes as u64);
    }

    /// Whether it is time for [`look`](Self::look).
    pub fn is_due(&self) -> bool {
        self.looked.elapsed() >= LOOK
    }

    /// Looks at the connection; `queued` bytes of it wait for the channel.
    pub fn look(&mut self, stream: &TcpStream, queued: Bytes) {
        let time = self.looked.elapsed();
        self.looked = Instant::now();
        let Ok(info) = Info::of(stream) else { return };
        self.look_at_acks(&info, time);
        self.follow_drain(stream, &info, queued, time);
        self.last = info;
    }

    fn follow_drain(&mut self, stream: &TcpStream, info: &Info, queued: Bytes, time: Duration) {
        let read = std::mem::take(&mut self.read);
        let left = (self.queued + read).saturating_sub(queued);
        self.queued = queued;
        if read == Bytes::ZERO {
            return;
        }
        // The sender's answer takes a round trip, and this thread has other things to do.
        let answer = info.rtt.clamp(ANSWERS.0, ANSWERS.1);
        self.controller.arrived(read);
        let _ = self.controller.left(left, time, answer);
        let wanted = self.controller.wanted(answer).max(LEAST);
        let Ok(size) = getsockopt(stream, sockopt::RcvBuf) else { return };
        self.buffer.size = Bytes(size as u64);
        let changed = match self.buffer.follow(wanted) {
            Change::Keep => return,
            Change::Shrink(to) => set_buffer(stream, to).map(|()| true),
            Change::Release(to) => release_buffer(stream, to),
        };
        // Refused is refused: the kernel has bounds of its own.
        self.buffer.set = changed.unwrap_or(self.buffer.set);
    }

    fn look_at_acks(&mut self, info: &Info, time: Duration) {
        let acks = info.segments_in.saturating_sub(self.last.segments_in);
        let delivered = info.delivered.saturating_sub(self.last.delivered);
        let waited = info.window_limited.saturating_sub(self.last.window_limited);
        if delivered == 0 || acks == 0 {
            return;
        }
        let seen = Seen {
            packets: delivered / acks,
            repeats: false,
            blocks: false,
            // The kernel hands neither SACK blocks nor timestamps on: what was agreed is believed.
            timestamp: true,
            window: info.send_window,
            window_full: waited * 2 > time,
        };
        (0..acks.min(ACKS_PER_LOOK)).for_each(|_| self.handler.on_ack(&seen));
        self.note_faults();
    }

    fn note_faults(&mut self) {
        let Some(peer) = self.peer else { return };
        for fault in self.handler.faults() {
            if self.noted.insert(fault) {
                let whose = if self.made == Made::Here { "server" } else { "client" };
                self.exceptions.note(Exception::Peer(fault), &format!("{whose} {peer}"));
            }
        }
    }
}

/// Notes what a client's SYN does not offer.
pub(crate) fn note_offers(exceptions: &Exceptions, client: IpAddr, offers: Options) {
    for fault in ExceptionHandler::new(offered_here(), offers).faults() {
        exceptions.note(Exception::Peer(fault), &format!("client {}", client.to_canonical()));
    }
}

fn set_buffer(socket: &impl AsFd, to: Bytes) -> io::Result<()> {
    SockRef::from(socket).set_recv_buffer_size(to.0 as usize)
}

/// Gives the buffer back to the kernel's own judgement; says whether we still hold its size.
fn release_buffer(socket: &impl AsFd, to: Bytes) -> io::Result<bool> {
    match unlock_buffers(socket) {
        Ok(()) => Ok(false),
        // Before Linux 5.14 nobody unlocks a size that was set: a larger one must do.
        Err(_) => set_buffer(socket, to * TOO_LARGE).map(|()| true),
    }
}

/// Which buffer sizes were set by hand (linux/socket.h `SO_BUF_LOCK`, Linux 5.14); the same number on all but old
/// architectures that nobody runs this on.
const SO_BUF_LOCK: libc::c_int = 72;

fn unlock_buffers(socket: &impl AsFd) -> io::Result<()> {
    let none: libc::c_int = 0;
    // SAFETY: the descriptor is borrowed and open, and the kernel reads an int from a place that holds one.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_BUF_LOCK,
            (&raw const none).cast(),
            size_of_val(&none) as libc::socklen_t,
        )
    };
    nix::errno::Errno::result(outcome).map(drop).map_err(io::Error::from)
}

/// Between two looks: many round trips of a LAN, short beside what fills a buffer.
const LOOK: Duration = Duration::from_millis(250);
/// A buffer is shrunk that is so many times what is wanted, as the kernel counts (twice the data).
const TOO_LARGE: u64 = 4;
/// What the kernel may always hold of one connection: a round trip of 5 ms at 100 Mbit/s.
const LEAST: Bytes = Bytes::kib(64);
/// And at most: two round trips of 5 ms at 1.6 Gbit/s, of 20 ms at 400 Mbit/s.
const MOST: Bytes = Bytes::mib(2);
/// All that a window without scaling can tell (RFC 9293 §3.1).
const UNSCALED: Bytes = Bytes(65_535);
/// Bounds of how long a sender on this side takes to answer.
const ANSWERS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// ACKs of one look that are looked at: those of a quarter of a second are all alike.
const ACKS_PER_LOOK: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_shrunk_when_the_channel_drains_slowly_and_released_when_it_is_fast_again() {
        let grown = Buffer { size: Bytes::mib(6), set: false };
        assert_eq!(grown.follow(LEAST), Change::Shrink(LEAST));
        let shrunk = Buffer { size: LEAST * 2, set: true };
        assert_eq!(shrunk.follow(LEAST), Change::Keep);
        assert_eq!(shrunk.follow(Bytes::mib(1)), Change::Release(Bytes::mib(1)));
        // What the kernel has chosen and is not too much stays as it is.
        assert_eq!(Buffer { size: Bytes::kib(128), set: false }.follow(LEAST), Change::Keep);
        assert_eq!(Buffer { size: Bytes::mib(2), set: false }.follow(Bytes::mib(1)), Change::Keep);
    }

    #[test]
    fn the_kernel_shrinks_a_buffer_and_lets_it_grow_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        set_buffer(&socket, LEAST).unwrap();
        assert_eq!(getsockopt(&socket, sockopt::RcvBuf).unwrap() as u64, LEAST.0 * 2);
        let still_set = release_buffer(&socket, LEAST * 4).unwrap();
        let size = getsockopt(&socket, sockopt::RcvBuf).unwrap() as u64;
        assert!(!still_set || size > LEAST.0 * 2, "{size}");
    }
}
