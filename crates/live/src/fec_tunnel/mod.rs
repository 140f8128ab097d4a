//! The tunnel of paper 001's scheme 4: IP packets of the hosts on both sides inside UDP datagrams with error correction,
//! TCP end to end inside.
//!
//! ```text
//! network - [routes] - TUN device - [pep::fec] - [pace] - UDP ===== UDP - [pep::fec] - TUN device - [routes] - network
//! ```
//!
//! The code and all its decisions are [`skyhaul_pep::fec`], the same that the simulator runs. Here are the sockets: a
//! device whose packets go out and come in, routes that lead to it, and a pace that keeps data and repairs below the
//! link's rate, so that packets queue in front of the tunnel and not behind it.
//!
//! It is a baseline for comparisons and carries no secrets: nothing is encrypted or authenticated. The socket is
//! connected to its peer's address, so the kernel hands on that peer's datagrams only; packets from the tunnel must
//! come from the networks behind the peer. On an open network it belongs inside an encrypted tunnel, or use
//! `skyhaul terminal` and `skyhaul gateway`.

pub mod pace;
pub mod packet;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Instant;

use bytes::{Bytes as Data, BytesMut};
use nix::sys::socket::{setsockopt, sockopt};
use skyhaul_cc::units::{Bytes, Duration, Rate, Time};
use skyhaul_pep::fec::{
    self, DecoderOptions, DecoderStats, EncoderOptions, EncoderStats, Order, Redundancy, ROOM,
};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::unix::AsyncFd;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tracing::{debug, info, warn};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::config::Prefix;
use crate::driver::timer::Timer;
use crate::emulate::hurry;
use crate::keys;
use pace::Pace;

/// What one end of a tunnel is told. The other end mirrors addresses and networks; the rest may differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Local UDP address, of the path to the peer.
    pub listen: SocketAddr,
    /// UDP address of the other end.
    pub peer: SocketAddr,
    /// Name of the device.
    pub device: String,
    /// Networks behind the other end: their packets go in, and only theirs come out. Not empty.
    pub networks: Vec<Prefix>,
    /// How many repairs.
    pub redundancy: Redundancy,
    /// Packets per block.
    pub block: usize,
    /// A block is closed so long after its first packet.
    pub block_time: Duration,
    /// Packets behind a gap wait so long for its repair at most.
    pub hold: Duration,
    /// Rate of the link in the direction of the peer, in bytes of IP packets; without it nothing is paced.
    pub rate: Option<Rate>,
    /// Largest IP packet of the path to the peer, 576 to 9000 bytes.
    pub mtu: u16,
    /// Packets that wait in front of the tunnel at most.
    pub queue: u32,
}

impl Options {
    /// A tunnel between two addresses for the networks behind the peer, all else by default: blocks of
    /// [`DEFAULT_BLOCK`] packets, adaptive redundancy, no pace, an MTU of 1500 bytes.
    pub fn new(listen: SocketAddr, peer: SocketAddr, networks: Vec<Prefix>) -> Options {
        Options {
            listen,
            peer,
            device: DEVICE.to_owned(),
            networks,
            redundancy: Redundancy::default(),
            block: DEFAULT_BLOCK,
            block_time: block_time(None, DEFAULT_BLOCK),
            hold: hold(block_time(None, DEFAULT_BLOCK)),
            rate: None,
            mtu: 1500,
            queue: DEFAULT_QUEUE,
        }
    }

    /// Largest IP packet inside the tunnel: 1462 of 1500 bytes over IPv4. An even number, as shards are.
    pub fn inner_mtu(&self) -> u16 {
        let headers = if self.peer.is_ipv4() { 28 } else { 48 };
        self.mtu.saturating_sub(headers + ROOM as u16) & !1
    }

    /// # Errors
    /// Names the first thing that cannot be used.
    fn check(&self) -> Result<(), TunnelError> {
        let bad = |what: String| Err(TunnelError::Options(what));
        if self.networks.is_empty() {
            return bad("no network behind the peer; name one, such as 10.77.2.0/24".to_owned());
        }
        if self.listen.is_ipv4() != self.peer.is_ipv4() {
            return bad(format!("{} and {} are of different families", self.listen, self.peer));
        }
        if let Some(network) = self.networks.iter().find(|network| network.contains(self.peer.ip())) {
            return bad(format!(
                "the peer {} lies in {network}: the tunnel would lead into itself",
                self.peer
            ));
        }
        if !(576..=9000).contains(&self.mtu) {
            return bad(format!("found an MTU of {}, expected 576 to 9000 bytes", self.mtu));
        }
        let name = &self.device;
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !(1..=15).contains(&name.len()) || !plain || name.starts_with(['-', '.']) {
            return bad(format!("found the device name \"{name}\", expected 1 to 15 letters and digits"));
        }
        if self.rate.is_some_and(|rate| rate < SLOWEST) {
            return bad(format!(
                "found a rate below {SLOWEST}, expected the link's rate, such as \"150 Mbit/s\""
            ));
        }
        Ok(())
    }
}

/// How long a block may take: as long as its packets take on the link, 5 ms at least; 10 ms if its rate is not known.
/// Closed sooner, blocks of a slow link would be short and their repairs many. Closed later, CUBIC would take the wait
/// for a repair for a queue: 16 ms more than usual end its slow start (HyStart, `tcp_cubic.c`).
pub fn block_time(rate: Option<Rate>, block: usize) -> Duration {
    let full = Bytes(FULL_PACKET * block as u64);
    rate.map_or(BLOCK_TIME, |rate| rate.time_for(full).clamp(LEAST_BLOCK_TIME, GREATEST_BLOCK_TIME))
}

/// How long packets behind a gap wait when the peer's blocks take so long: its rest, its repairs, and jitter.
pub fn hold(block_time: Duration) -> Duration {
    block_time + Duration::from_millis(50)
}

/// Why a tunnel cannot run.
#[derive(Debug)]
pub enum TunnelError {
    /// Something it was told cannot be used.
    Options(String),
    /// The UDP socket.
    Socket {
        /// Its own address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The TUN device.
    Device {
        /// Its name.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// A route to the device.
    Route(String),
    /// The system, when already running.
    System(io::Error),
}

impl fmt::Display for TunnelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TunnelError::Options(what) => f.write_str(what),
            TunnelError::Socket { address, source } => write!(f, "no UDP socket on {address}: {source}"),
            TunnelError::Device { name, source } => write!(
                f,
                "no TUN device \"{name}\": {source}; it needs root rights, /dev/net/tun and a name that is not taken"
            ),
            TunnelError::Route(what) => f.write_str(what),
            TunnelError::System(source) => write!(f, "the tunnel ended: {source}"),
        }
    }
}
impl std::error::Error for TunnelError {}

/// One end of a running tunnel. Dropping it takes the device and with it the routes away: packets take the way they had
/// before.
pub struct FecTunnel {
    options: Options,
    device: AsyncFd<SyncDevice>,
    socket: UdpSocket,
    end: fec::End,
    pace: Pace,
    timer: Timer,
    start: Instant,
    /// Left the encoder and waits for its time or for the socket.
    waiting: Option<Data>,
    /// For packets of the device.
    packet: Box<[u8]>,
    /// For datagrams of the socket; what was read lives as long as the code needs it.
    datagrams: BytesMut,
    counts: Counts,
    next_word: Time,
}

/// What an end has seen besides the code's own figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Packets from the peer with a source that is not behind it, or no IP packets at all.
    strange: u64,
    /// Datagrams the socket would not take.
    unsent: u64,
    /// Packets the device would not take.
    undelivered: u64,
}

impl FecTunnel {
    /// Opens socket, device and routes. Needs a tokio runtime and root rights.
    ///
    /// # Errors
    /// Names what cannot be used or opened; nothing stays behind.
    pub fn open(options: Options) -> Result<FecTunnel, TunnelError> {
        options.check()?;
        let socket =
            socket(&options).map_err(|source| TunnelError::Socket { address: options.listen, source })?;
        let device = device(&options)
            .map_err(|source| TunnelError::Device { name: options.device.clone(), source })?;
        for network in &options.networks {
            lead(network, &options.device)?;
        }
        let fec = fec::Options {
            encoder: EncoderOptions {
                block: options.block,
                time_limit: options.block_time,
                redundancy: options.redundancy,
                // By chance: the peer shall not take a restarted end for its former self.
                first: u32::from_ne_bytes(keys::by_chance().map_err(TunnelError::System)?),
            },
            decoder: DecoderOptions {
                order: Order::Hold(options.hold),
                small: SMALL,
                ..DecoderOptions::default()
            },
        };
        Ok(FecTunnel {
            device,
            socket,
            end: fec::End::new(fec),
            pace: Pace::new(options.rate),
            timer: Timer::new().map_err(TunnelError::System)?,
            start: Instant::now(),
            waiting: None,
            packet: vec![0; LARGEST].into(),
            datagrams: BytesMut::new(),
            counts: Counts::default(),
            next_word: Time::ZERO + WORD,
            options,
        })
    }

    /// One line on what it does.
    pub fn summary(&self) -> String {
        let Options { listen, peer, device, networks, .. } = &self.options;
        let networks: Vec<String> = networks.iter().map(Prefix::to_string).collect();
        let rate = self.options.rate.map_or("not paced".to_owned(), |rate| format!("paced at {rate}"));
        format!(
            "fec-tunnel ready: {} through {device}, {listen} to {peer}, packets of {} bytes, {rate}; not encrypted",
            networks.join(", "),
            self.options.inner_mtu()
        )
    }

    /// What the sending and the receiving half have done.
    pub fn stats(&self) -> (EncoderStats, DecoderStats) {
        (*self.end.encoder().stats(), *self.end.decoder().stats())
    }

    /// Carries packets until `stop` completes.
    ///
    /// # Errors
    /// When device or socket fail for good.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), TunnelError> {
        tokio::pin!(stop);
        // A tunnel that waits for a processor looks like a queue: 16 ms end the slow start of CUBIC inside.
        hurry(1);
        loop {
            let turn = self.turn().map_err(TunnelError::System)?;
            let wait = self.wait(turn);
            tokio::select! {
                () = &mut stop => break,
                woken = wait => woken.map_err(TunnelError::System)?,
            }
        }
        info!("fec-tunnel stopped: {}", self.word());
        Ok(())
    }

    /// Does all that can be done now.
    fn turn(&mut self) -> io::Result<Turn> {
        let mut turn = Turn::default();
        for _ in 0..TURNS {
            let now = self.now();
            self.receive(now)?;
            self.end.handle_timeout(now);
            self.deliver();
            turn.blocked = self.transmit(now)?;
            // What cannot leave yet stays in the device's queue.
            turn.full = self.waiting.is_some();
            if turn.full || !self.take_in(now)? {
                break;
            }
        }
        self.tell();
        Ok(turn)
    }

    /// Waits for the next thing to do.
    async fn wait(&mut self, turn: Turn) -> io::Result<()> {
        let now = self.now();
        let departure = self.waiting.as_ref().filter(|_| !turn.blocked).and_then(|_| self.pace.next(now));
        let at = [self.end.timeout(), departure].into_iter().flatten().min();
        self.timer.set(at, now)?;
        let (socket, device) = (&self.socket, &self.device);
        tokio::select! {
            ready = socket.readable() => ready,
            ready = socket.writable(), if turn.blocked => ready,
            ready = device.readable(), if !turn.full => ready.map(|mut ready| ready.retain_ready()),
            fired = self.timer.fired() => fired,
        }
    }

    /// Device to encoder; whether there was anything.
    fn take_in(&mut self, now: Time) -> io::Result<bool> {
        let buffer = &mut self.packet;
        let read = self.device.try_io(Interest::READABLE, |device| device.recv(buffer));
        let length = match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            other => other?,
        };
        let packet = &mut self.packet[..length];
        // Neighbour discovery and the like of the device itself stay here.
        if packet::source(packet).is_none_or(is_local) {
            return Ok(true);
        }
        packet::clamp_mss(packet, self.options.inner_mtu());
        if let Err(error) = self.end.push(now, packet) {
            debug!("from {}: {error}", self.options.device);
        }
        Ok(true)
    }

    /// Encoder to socket, as the pace allows. Whether the socket has no room.
    fn transmit(&mut self, now: Time) -> io::Result<bool> {
        loop {
            let Some(datagram) = self.waiting.take().or_else(|| self.end.poll_transmit()) else {
                return Ok(false);
            };
            if !self.pace.may_send(now) {
                self.waiting = Some(datagram);
                return Ok(false);
            }
            match self.socket.try_send(&datagram) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.waiting = Some(datagram);
                    return Ok(true);
                }
                Err(error) => self.unsent(&error)?,
            }
            let headers = if self.options.peer.is_ipv4() { 28 } else { 48 };
            self.pace.sent(now, Bytes(datagram.len() as u64 + headers));
        }
    }

    /// The peer is not there yet, or the network has a moment: that is loss. Anything else is final.
    fn unsent(&mut self, error: &io::Error) -> io::Result<()> {
        if !is_passing(error) {
            return Err(io::Error::new(error.kind(), format!("sending to {}: {error}", self.options.peer)));
        }
        self.counts.unsent += 1;
        let first = self.counts.unsent == 1;
        if first && error.raw_os_error() == Some(libc::EMSGSIZE) {
            warn!("datagrams to {} do not fit the path: {error}; try a smaller --mtu", self.options.peer);
        } else if first {
            debug!("sending to {}: {error}", self.options.peer);
        }
        Ok(())
    }

    /// Socket to decoder.
    fn receive(&mut self, now: Time) -> io::Result<()> {
        for _ in 0..BATCH {
            if self.datagrams.capacity() < LARGEST {
                self.datagrams = BytesMut::with_capacity(ROOM_TO_READ);
            }
            match self.socket.try_recv_buf(&mut self.datagrams) {
                Ok(_) => {
                    let datagram = self.datagrams.split().freeze();
                    // A refused datagram is lost, and counted by the decoder.
                    let _ = self.end.handle_datagram(now, datagram);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // An ICMP answer to what was sent.
                Err(error) if is_passing(&error) => debug!("from {}: {error}", self.options.peer),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Decoder to device.
    fn deliver(&mut self) {
        while let Some(packet) = self.end.poll_deliver() {
            let behind = packet::source(&packet)
                .is_some_and(|source| self.options.networks.iter().any(|network| network.contains(source)));
            if !behind {
                self.counts.strange += 1;
                if self.counts.strange == 1 {
                    warn!("a packet from {} is from none of the networks behind it", self.options.peer);
                }
                continue;
            }
            let sent = self.device.get_ref().send(&packet);
            self.counts.undelivered += u64::from(sent.is_err());
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    /// Logs how it goes, now and then.
    fn tell(&mut self) {
        let now = self.now();
        if now >= self.next_word && tracing::enabled!(tracing::Level::DEBUG) {
            self.next_word = now + WORD;
            debug!("{}", self.word());
        }
    }

    fn word(&self) -> String {
        let (sent, got) = self.stats();
        format!(
            "sent {} packets and {} repairs, loss {:.3} %, {} repaired and {} lost for good there; received {} packets, \
             {} repaired, {} lost for good; {} unsent, {} strange, {} not taken",
            sent.data,
            sent.repairs,
            sent.loss.percent(),
            sent.repaired,
            sent.lost,
            got.delivered,
            got.repaired,
            got.lost,
            self.counts.unsent,
            self.counts.strange,
            self.counts.undelivered,
        )
    }
}

/// What a turn leaves to wait for.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// The socket has no room.
    blocked: bool,
    /// Something waits to leave, so nothing more is taken in.
    full: bool,
}

fn socket(options: &Options) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(options.listen), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    // Root may have more than the system's limit; what anybody may have is the second best.
    if setsockopt(&socket, sockopt::RcvBufForce, &KERNEL_BUFFER).is_err() {
        socket.set_recv_buffer_size(KERNEL_BUFFER)?;
    }
    socket.bind(&options.listen.into())?;
    socket.connect(&options.peer.into())?;
    UdpSocket::from_std(socket.into())
}

fn device(options: &Options) -> io::Result<AsyncFd<SyncDevice>> {
    let device = DeviceBuilder::new().name(&options.device).mtu(options.inner_mtu()).build_sync()?;
    device.set_nonblocking(true)?;
    let name = &options.device;
    ip(&format!("link set {name} txqueuelen {}", options.queue.max(1)))?;
    ip(&format!("link set {name} up"))?;
    // SAFETY: a device owns its descriptor, always names the same one and closes it only when dropped.
    let device = unsafe { AsyncFd::register_with_interest(device, Interest::READABLE) }?;
    Ok(device)
}

/// A route for a network to the device, in front of the one there may be: that one serves again when the device is
/// gone.
fn lead(network: &Prefix, device: &str) -> Result<(), TunnelError> {
    let command = match network.is_ipv4() {
        true => format!("-4 route prepend {network} dev {device}"),
        // Routes without a metric have 1024 in IPv6; the least wins.
        false => format!("-6 route add {network} dev {device} metric 1"),
    };
    ip(&command).map_err(|error| TunnelError::Route(error.to_string()))
}

fn ip(args: &str) -> io::Result<()> {
    let output = Command::new("ip").args(args.split_whitespace()).stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| io::Error::other(format!("`ip {args}`: {error}; install iproute2")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(io::Error::other(format!("`ip {args}` says: {said}")))
}

/// Addresses that mean this device alone.
fn is_local(source: std::net::IpAddr) -> bool {
    match source {
        std::net::IpAddr::V4(v4) => v4.is_link_local() || v4.is_unspecified(),
        std::net::IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_unspecified(),
    }
}

/// Errors after which a datagram is lost and the next may get through.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::ENOBUFS
                | libc::EMSGSIZE
                | libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::EHOSTDOWN
                | libc::ENETDOWN
                | libc::EPERM
                | libc::EINTR
        )
    )
}

/// Name of the device if none is given.
pub const DEVICE: &str = "fec";
/// Packets per block if nothing is said: 5 ms of 150 Mbit/s, and 7 repairs for 1.2 % loss.
pub const DEFAULT_BLOCK: usize = 64;
/// Packets in front of the tunnel if nothing is said: 6 MB, a third of a second at 150 Mbit/s.
pub const DEFAULT_QUEUE: u32 = 4_000;
const FULL_PACKET: u64 = 1500;
/// As [`skyhaul_pep::fec`] has by default.
const BLOCK_TIME: Duration = Duration::from_millis(10);
/// A wait for a repair is not noticed among a host's own delays.
const LEAST_BLOCK_TIME: Duration = Duration::from_millis(5);
/// An acknowledgment with time stamp and three SACK blocks: 80 bytes in IPv4, 100 in IPv6.
const SMALL: usize = 100;
/// 64 full packets at 1.5 Mbit/s; a slower link gets shorter blocks.
const GREATEST_BLOCK_TIME: Duration = Duration::from_millis(500);
/// A full packet takes 12 s at this rate.
const SLOWEST: Rate = Rate::kbit(1);
/// Longer than any packet of the path.
const LARGEST: usize = 9_216;
/// Datagrams share a buffer of this length.
const ROOM_TO_READ: usize = 1 << 18;
/// Datagrams read before others get their turn.
const BATCH: usize = 64;
/// Packets taken in before others get their turn.
const TURNS: usize = 64;
/// 50 ms of 600 Mbit/s.
const KERNEL_BUFFER: usize = 4 << 20;
/// Between two words in the log.
const WORD: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
