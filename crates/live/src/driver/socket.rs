//! The UDP socket: several datagrams per system call in both directions, ECN, ICMP errors.

use super::icmp;
use bytes::BytesMut;
use nix::sys::socket::{
    recvmmsg, setsockopt, sockopt, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage,
};
use quinn_udp::{EcnCodepoint, Transmit, UdpSockRef, UdpSocketState, BATCH_SIZE};
use skyhaul_pep::Batch;
use socket2::{Domain, Protocol, SockRef, Type};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant, SystemTime};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Kernel buffers: 25 ms of 1 Gbit/s are 3 MB, and the reader may be away for longer.
const KERNEL_BUFFER: usize = 16 << 20;
/// One read of coalesced datagrams (GRO) is at most this long.
const READ_SIZE: usize = 65_535;
/// Datagrams at most in one send: 64 is the kernel's limit, and 32 are 2.5 ms at 150 Mbit/s.
const MAX_SEGMENTS: usize = 32;

/// A datagram as it came.
pub(super) struct Datagram {
    /// When it was read, and how long the kernel had it by then.
    pub(super) read: Instant,
    pub(super) age: Option<Duration>,
    pub(super) from: SocketAddr,
    pub(super) to: Option<IpAddr>,
    pub(super) ecn: Option<skyhaul_pep::EcnCodepoint>,
    pub(super) bytes: BytesMut,
}

/// A receive time further back than this says that a clock was set.
const STALE: Duration = Duration::from_secs(1);

/// Room for what comes beside a datagram.
fn messages() -> Vec<u8> {
    // Receive time, destination, traffic class, size of coalesced datagrams; a socket of both families may show the
    // destination and the class of an IPv4 datagram twice.
    nix::cmsg_space!(
        libc::timespec,
        libc::in6_pktinfo,
        libc::in_pktinfo,
        libc::c_int,
        libc::c_int,
        libc::c_int
    )
}

/// What came beside a datagram.
#[derive(Clone, Copy, Debug, Default)]
struct Beside {
    stamp: Option<SystemTime>,
    to: Option<IpAddr>,
    ecn: Option<skyhaul_pep::EcnCodepoint>,
    /// Several datagrams of this size came as one (GRO).
    segment: Option<usize>,
}

impl Beside {
    fn of(messages: impl Iterator<Item = ControlMessageOwned>) -> Self {
        let mut beside = Beside::default();
        for message in messages {
            match message {
                ControlMessageOwned::ScmTimestampns(stamp) => {
                    beside.stamp = SystemTime::UNIX_EPOCH.checked_add(stamp.into());
                }
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    beside.to = Some(IpAddr::from(info.ipi_addr.s_addr.to_ne_bytes()));
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    beside.to = Some(IpAddr::from(info.ipi6_addr.s6_addr));
                }
                ControlMessageOwned::Ipv4Tos(tos) => {
                    beside.ecn = skyhaul_pep::EcnCodepoint::from_bits(tos & 3);
                }
                ControlMessageOwned::Ipv6TClass(class) => {
                    beside.ecn = skyhaul_pep::EcnCodepoint::from_bits(class as u8 & 3);
                }
                ControlMessageOwned::UdpGroSegments(size) => {
                    beside.segment = usize::try_from(size).ok().filter(|size| *size > 0);
                }
                _ => {}
            }
        }
        beside
    }
}

pub(super) struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
    /// A batch that the kernel would not take yet, and its bytes.
    pending: Option<Batch>,
    out: Vec<u8>,
    reads: Vec<Box<[u8]>>,
}

impl Socket {
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.bind(&address.into())?;
        socket.set_nonblocking(true)?;
        enlarge(&socket);
        let socket = std::net::UdpSocket::from(socket);
        icmp::enable(&socket)?;
        // The controller measures spacings of tens of microseconds, and this thread wakes up much later.
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let reads = (0..BATCH_SIZE).map(|_| vec![0; READ_SIZE].into_boxed_slice()).collect();
        Ok(Socket { io: UdpSocket::from_std(socket)?, state, pending: None, out: Vec::new(), reads })
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    /// Datagrams one send may carry.
    pub(super) fn max_segments(&self) -> usize {
        self.state.max_gso_segments().min(MAX_SEGMENTS)
    }

    /// Where the next batch is written; then [`queue`](Self::queue) it.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    pub(super) fn queue(&mut self, batch: Batch) {
        self.pending = Some(batch);
    }

    /// Sends the queued batch; false if the kernel's buffer is full.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        let Some(batch) = self.pending else { return Ok(true) };
        let transmit = Transmit {
            destination: batch.destination,
            ecn: batch.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
            contents: &self.out,
            segment_size: (batch.segment < self.out.len()).then_some(batch.segment),
            src_ip: batch.source,
        };
        let sent =
            self.io.try_io(Interest::WRITABLE, || self.state.try_send(UdpSockRef::from(&self.io), &transmit));
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            // Unreachable, refused (an ICMP message for an earlier datagram), too large, no buffer: the
            // datagram is lost like any other, and recovery will notice.
            _ => {
                self.pending = None;
                Ok(true)
            }
        }
    }

    /// Waits until there is something to read, or room to write if asked for.
    pub(super) async fn ready(&self, for_write: bool) -> io::Result<()> {
        let interest = if for_write { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        self.io.ready(interest | Interest::ERROR).await.map(|_| ())
    }

    /// Reads one batch; false if there was none.
    pub(super) fn receive(&mut self, mut take: impl FnMut(Datagram)) -> io::Result<bool> {
        // New headers each time: nix leaves in used ones the lengths that the last messages had.
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(self.reads.len(), Some(messages()));
        let (io, reads) = (&self.io, &mut self.reads);
        let read = io.try_io(Interest::READABLE, || {
            let mut slices: Vec<[IoSliceMut<'_>; 1]> =
                reads.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
            let received =
                recvmmsg(io.as_raw_fd(), &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)?;
            let (read, clock) = (Instant::now(), SystemTime::now());
            let mut count = 0;
            for message in received {
                count += 1;
                let Some(from) = message.address.as_ref().and_then(icmp::address_of) else { continue };
                // One that cannot be read must not lose those after it.
                let beside = message.cmsgs().map(Beside::of).unwrap_or_default();
                let age = beside.stamp.and_then(|stamp| clock.duration_since(stamp).ok());
                for bytes in message.iovs() {
                    // One exact allocation per datagram: a slice of a large shared buffer would keep all of
                    // it alive while a single packet waits behind a hole.
                    for bytes in bytes.chunks(beside.segment.unwrap_or(usize::MAX)) {
                        let bytes = BytesMut::from(bytes);
                        let Beside { to, ecn, .. } = beside;
                        take(Datagram { read, age: age.filter(|age| *age < STALE), from, to, ecn, bytes });
                    }
                }
            }
            Ok(count)
        });
        read.map_or_else(|error| hard(error).map(|()| false), |count| Ok(count > 0))
    }

    /// Peers whose port turned out to be closed since the last call.
    pub(super) fn unreachable(&self) -> Vec<SocketAddr> {
        // tokio forgets readiness only when told; the error queue has a readiness of its own.
        let found = self.io.try_io(Interest::ERROR, || match icmp::unreachable_ports(&self.io) {
            found if found.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            found => Ok(found),
        });
        found.unwrap_or_default()
    }
}

/// Errors that say something about a datagram or a peer pass; others are about the socket itself.
fn hard(error: io::Error) -> io::Result<()> {
    use io::ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkUnreachable, WouldBlock,
    };
    match error.kind() {
        WouldBlock | Interrupted | ConnectionRefused | ConnectionReset | HostUnreachable
        | NetworkUnreachable => Ok(()),
        _ => match error.raw_os_error() {
            Some(libc::EMSGSIZE | libc::ENOBUFS | libc::ENETDOWN | libc::EHOSTDOWN | libc::EPERM) => Ok(()),
            _ => Err(error),
        },
    }
}

/// As large as allowed: CAP_NET_ADMIN may go beyond net.core.rmem_max.
fn enlarge(socket: &socket2::Socket) {
    let reference = SockRef::from(socket);
    if setsockopt(socket, sockopt::RcvBufForce, &KERNEL_BUFFER).is_err() {
        // Smaller buffers are a matter of speed, not of function.
        let _ = reference.set_recv_buffer_size(KERNEL_BUFFER);
    }
    if setsockopt(socket, sockopt::SndBufForce, &KERNEL_BUFFER).is_err() {
        let _ = reference.set_send_buffer_size(KERNEL_BUFFER);
    }
}
