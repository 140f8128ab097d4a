//! The way out: connects to a flow's destination, under the client's own address when asked.

use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use skyhaul_pep::frame::{Open, Refusal, Target};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{lookup_host, TcpSocket, TcpStream};
use tokio::time::{timeout_at, Instant};
use tracing::{debug, warn};

use crate::config::{Config, Dscp, Egress, Prefix, DEFAULT_DENY};
use crate::loops::Loops;
use crate::tcp;

/// What may be reached and how long it may take.
#[derive(Clone, Debug)]
pub struct Exit {
    policy: Egress,
    connect_timeout: Duration,
    congestion: Option<Congestion>,
    loops: Rc<Loops>,
}

/// A congestion control of the kernel that is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Congestion {
    name: String,
    /// It was not there, and that was told.
    is_missed: Rc<Cell<bool>>,
}

impl Exit {
    /// The exit for connections of the other end, as `[egress]` describes it.
    pub fn new(config: &Config) -> Exit {
        let (policy, connect_timeout) = (config.egress.clone(), config.limits.connect_timeout);
        Exit { policy, connect_timeout, congestion: None, loops: Rc::default() }
    }

    /// The exit for connections that were taken in here and do not go through the channel: to wherever this host can
    /// reach, but not to itself.
    pub fn direct(config: &Config, loops: Rc<Loops>) -> Exit {
        let all = |blocks: &[&str]| blocks.iter().filter_map(|block| block.parse().ok()).collect();
        let policy = Egress {
            allow: all(&["0.0.0.0/0", "::/0"]),
            deny: all(&DEFAULT_DENY),
            preserve_source: config.intercept.as_ref().is_some_and(|intercept| intercept.preserve_source),
            mark_dscp: false,
        };
        let name = config.rollback.congestion.clone();
        let congestion = name.map(|name| Congestion { name, is_missed: Rc::default() });
        Exit { policy, connect_timeout: config.limits.connect_timeout, congestion, loops }
    }

    /// The same, but never to where `loops` says that this end itself listens.
    pub fn without(self, loops: Rc<Loops>) -> Exit {
        Exit { loops, ..self }
    }

    /// Connects to where `open` wants to go. `speaks_for` are the networks behind the other end: when it has any,
    /// it may name no other source. Without `[egress] preserve_source` the source is ignored.
    ///
    /// # Errors
    /// Why there is no connection, as the other end will be told.
    pub async fn connect(&self, open: &Open, speaks_for: &[Prefix]) -> Result<TcpStream, Refusal> {
        let deadline = Instant::now() + self.connect_timeout;
        let source = open.source.filter(|_| self.policy.preserve_source);
        if source.is_some_and(|source| !may_speak_for(source, speaks_for)) {
            return Err(Refusal::NotAllowed);
        }
        let addresses = timeout_at(deadline, resolve(&open.destination)).await.map_err(|_| TIMED_OUT)??;
        let mut outcome = Err(Refusal::NoSuchName);
        let count = addresses.len();
        for (index, address) in addresses.into_iter().enumerate() {
            if !self.policy.permits(address.ip()) {
                outcome = Err(Refusal::NotAllowed);
                continue;
            }
            if self.loops.leads_here(address) {
                debug!("{address}: this end itself listens there");
                outcome = Err(Refusal::NotAllowed);
                continue;
            }
            // A name's first address must not use up the time of its others.
            let now = Instant::now();
            let share = deadline.saturating_duration_since(now) / (count - index) as u32;
            outcome = match timeout_at(now + share, connect(address, source, self.congestion.as_ref())).await
            {
                Ok(Ok(stream)) => {
                    if self.policy.mark_dscp {
                        mark(&stream, Dscp::for_class(open.class));
                    }
                    return Ok(stream);
                }
                Ok(Err(error)) => Err(refusal(&error)),
                Err(_) => Err(TIMED_OUT),
            };
        }
        outcome
    }
}

/// Whether a peer with these networks may connect in this source's name.
fn may_speak_for(source: SocketAddr, networks: &[Prefix]) -> bool {
    networks.is_empty() || networks.iter().any(|network| network.contains(source.ip()))
}

async fn resolve(target: &Target) -> Result<Vec<SocketAddr>, Refusal> {
    let addresses = match target {
        Target::Address(address) => vec![*address],
        Target::Name { host, port } => match host.parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, *port)],
            Err(_) => {
                let found = lookup_host((host.as_str(), *port)).await;
                found.map_err(|_| Refusal::NoSuchName)?.collect()
            }
        },
    };
    // ::ffff:a.b.c.d is IPv4 in disguise; the policy and the socket shall see the same address.
    Ok(addresses
        .into_iter()
        .map(|address| SocketAddr::new(address.ip().to_canonical(), address.port()))
        .collect())
}

/// Connects, under `source` if it is of the destination's family: with its port if that is free.
pub(crate) async fn connect(
    to: SocketAddr,
    source: Option<SocketAddr>,
    congestion: Option<&Congestion>,
) -> io::Result<TcpStream> {
    let source = source.filter(|source| source.is_ipv4() == to.is_ipv4());
    let stream = match source {
        None => {
            let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            choose(&socket, congestion);
            socket.connect(to).await?
        }
        Some(source) => match connect_as(to, source, congestion).await {
            // The client's port is taken, here or towards this destination: any other port of its address.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse || is_taken(&error) => {
                connect_as(to, SocketAddr::new(source.ip(), 0), congestion).await?
            }
            other => other?,
        },
    };
    tcp::prepare(&stream)?;
    Ok(stream)
}

fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
}

/// Connects from an address that need not be this host's (ip(7), IP_TRANSPARENT). The answers come back to us by
/// the firewall's `socket transparent` rule, see [`crate::intercept`].
async fn connect_as(
    to: SocketAddr,
    source: SocketAddr,
    congestion: Option<&Congestion>,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Several connections of one client port, to different destinations, are as legal here as at the client.
    socket.set_reuse_address(true)?;
    set_transparent(&socket, to.is_ipv4())?;
    choose(&socket, congestion);
    socket.bind(&source.into())?;
    TcpSocket::from_std_stream(socket.into()).connect(to).await
}

/// Has the kernel send by a congestion control; by its usual one if it has none of that name, which is told once.
fn choose(socket: &impl AsFd, congestion: Option<&Congestion>) {
    let Some(Congestion { name, is_missed }) = congestion else { return };
    if let Err(error) = setsockopt(socket, sockopt::TcpCongestion, &OsString::from(name)) {
        if !is_missed.replace(true) {
            warn!(
                "rollback.congestion: found \"{name}\" ({error}), expected one that `sysctl \
                 net.ipv4.tcp_available_congestion_control` shows; direct connections use the usual one. \
                 `modprobe tcp_{name}` may add it"
            );
        }
    }
}

/// Marks what is sent from now on; the SYN has left without.
fn mark(stream: &TcpStream, dscp: Dscp) {
    let byte = i32::from(dscp.to_byte());
    let is_ipv4 = stream.local_addr().is_ok_and(|address| address.is_ipv4());
    let marked = if is_ipv4 {
        setsockopt(stream, sockopt::Ipv4Tos, &byte)
    } else {
        setsockopt(stream, sockopt::Ipv6TClass, &byte)
    };
    if let Err(error) = marked {
        debug!("cannot mark a connection as {dscp}: {error}");
    }
}

/// Lets a socket use addresses of other hosts. Needs CAP_NET_ADMIN.
pub(crate) fn set_transparent(socket: &Socket, ipv4: bool) -> io::Result<()> {
    if ipv4 {
        socket.set_ip_transparent_v4(true)
    } else {
        socket.set_ip_transparent_v6(true)
    }
}

/// What the other end is told about a failed connect.
fn refusal(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Refusal::Refused,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Refusal::Unreachable,
        io::ErrorKind::TimedOut => Refusal::TimedOut,
        // A firewall's "administratively prohibited".
        io::ErrorKind::PermissionDenied => Refusal::NotAllowed,
        _ => Refusal::Failed,
    }
}

const TIMED_OUT: Refusal = Refusal::TimedOut;

#[cfg(test)]
mod tests;
