//! The way out: connects to a flow's destination, under the client's own address when asked.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use skyhaul_pep::frame::{Open, Refusal, Target};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{lookup_host, TcpSocket, TcpStream};
use tokio::time::{timeout_at, Instant};
use tracing::debug;

use crate::config::{Config, Dscp, Egress, Prefix};
use crate::tcp;

/// What may be reached and how long it may take.
#[derive(Clone, Debug)]
pub struct Exit {
    policy: Egress,
    connect_timeout: Duration,
}

impl Exit {
    /// The exit that a config describes.
    pub fn new(config: &Config) -> Exit {
        Exit { policy: config.egress.clone(), connect_timeout: config.limits.connect_timeout }
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
            // A name's first address must not use up the time of its others.
            let now = Instant::now();
            let share = deadline.saturating_duration_since(now) / (count - index) as u32;
            outcome = match timeout_at(now + share, connect(address, source)).await {
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

async fn connect(to: SocketAddr, source: Option<SocketAddr>) -> io::Result<TcpStream> {
    let source = source.filter(|source| source.is_ipv4() == to.is_ipv4());
    let stream = match source {
        None => TcpStream::connect(to).await?,
        Some(source) => match connect_as(to, source).await {
            // The client's port is taken, here or towards this destination: any other port of its address.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse || is_taken(&error) => {
                connect_as(to, SocketAddr::new(source.ip(), 0)).await?
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
async fn connect_as(to: SocketAddr, source: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Several connections of one client port, to different destinations, are as legal here as at the client.
    socket.set_reuse_address(true)?;
    set_transparent(&socket, to.is_ipv4())?;
    socket.bind(&source.into())?;
    TcpSocket::from_std_stream(socket.into()).connect(to).await
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
