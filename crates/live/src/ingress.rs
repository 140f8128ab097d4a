//! The ways in: listeners that accept clients' connections and find out where they want to go.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use skyhaul_pep::frame::{Class, Open, Refusal, Target};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tracing::{debug, warn};

use crate::config::{Config, HostPort, Priorities};
use crate::exceptions::Exceptions;
use crate::tcp::{self, watch::note_offers};

mod dialogue;
pub mod http_connect;
pub mod socks5;
pub mod syn;
pub(crate) mod transparent;

/// A client's connection and what it is for.
#[derive(Debug)]
pub struct Arrival {
    /// The client's socket, prepared; the proxy dialogue up to the request has been read from it, and no byte more.
    pub client: TcpStream,
    /// Where it shall lead.
    pub open: Open,
    /// How the client learns the outcome.
    pub dialect: Dialect,
    /// How it came in.
    pub entrance: Entrance,
    /// Name of the peer to carry it when the destination does not tell.
    pub peer: Option<String>,
    _place: OwnedSemaphorePermit,
}

/// Whether a client knows that it is connected to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entrance {
    /// It has connected to one of our addresses.
    Door,
    /// It believes to be connected to its destination.
    Wire,
}

/// Why a client gets no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The destination, or the way to it.
    Destination(Refusal),
    /// There is no channel and the destination may only be reached through one.
    NoChannel,
    /// Its destination is this end itself.
    Loop,
}

impl From<Refusal> for Denial {
    fn from(why: Refusal) -> Self {
        Denial::Destination(why)
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Denial::Destination(why) => why.fmt(f),
            Denial::NoChannel => f.write_str("the channel is down, and connections there need it"),
            Denial::Loop => f.write_str("this leads back into the proxy"),
        }
    }
}

/// How a client learns whether its destination was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// It was connected from the start; bad news is a reset.
    Silent,
    /// A SOCKS5 reply.
    Socks5,
    /// An HTTP response.
    HttpConnect,
}

impl Dialect {
    /// What to say to the client before its bytes flow.
    pub fn accepted(self) -> &'static [u8] {
        match self {
            Dialect::Silent => b"",
            Dialect::Socks5 => &socks5::ACCEPTED,
            Dialect::HttpConnect => http_connect::ACCEPTED,
        }
    }

    /// What to say to the client before hanging up (see [`tcp::farewell`]); nothing means a reset.
    pub fn refused(self, why: impl Into<Denial>) -> Vec<u8> {
        let why = why.into();
        match self {
            Dialect::Silent => Vec::new(),
            Dialect::Socks5 => socks5::refused(why).to_vec(),
            Dialect::HttpConnect => http_connect::refused(why),
        }
    }

    /// Tells the client that its destination cannot be reached, and ends the connection.
    pub async fn refuse(self, client: TcpStream, why: impl Into<Denial>) {
        match self.refused(why) {
            word if word.is_empty() => tcp::reset(client),
            word => tcp::farewell(client, &word).await,
        }
    }
}

/// The listeners of one end, bound.
pub struct Ingress {
    exceptions: Exceptions,
    doors: Vec<Bound>,
    priorities: Priorities,
    places: usize,
}

struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    kind: Kind,
    peer: Option<String>,
}

#[derive(Clone)]
enum Kind {
    Transparent { preserve_source: bool },
    Socks5,
    HttpConnect,
    Forward(Target),
}

/// A listener that could not be opened.
#[derive(Debug)]
pub struct BindError {
    section: &'static str,
    address: SocketAddr,
    source: io::Error,
}

/// Ports of the listeners for intercepted connections, on 127.0.0.1 and ::1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransparentPorts {
    /// For IPv4.
    pub v4: Option<u16>,
    /// For IPv6; absent on hosts without it.
    pub v6: Option<u16>,
}

impl Ingress {
    /// Opens every listener of a config. Needs a tokio runtime.
    ///
    /// # Errors
    /// Names the listener that could not be opened.
    pub fn bind(config: &Config) -> Result<Ingress, BindError> {
        let mut doors = Vec::new();
        let mut add = |section, listen, kind: Kind, peer: &Option<String>| {
            let error = |source| BindError { section, address: listen, source };
            let listener = listen_at(listen).map_err(error)?;
            let address = listener.local_addr().map_err(error)?;
            doors.push(Bound { listener, address, kind, peer: peer.clone() });
            Ok(())
        };
        for door in &config.socks5 {
            add("socks5", door.listen, Kind::Socks5, &door.peer)?;
        }
        for door in &config.http_connect {
            add("http_connect", door.listen, Kind::HttpConnect, &door.peer)?;
        }
        for forward in &config.forward {
            let to = target(&forward.to);
            add("forward", forward.door.listen, Kind::Forward(to), &forward.door.peer)?;
        }
        if let Some(intercept) = &config.intercept {
            for (address, listener) in transparent::listeners()? {
                let kind = Kind::Transparent { preserve_source: intercept.preserve_source };
                doors.push(Bound { listener, address, kind, peer: None });
            }
        }
        Ok(Ingress {
            exceptions: Exceptions::default(),
            doors,
            priorities: config.priorities.clone(),
            places: config.limits.flows,
        })
    }

    /// Notes there what is wrong with clients' TCP.
    pub fn noting(mut self, exceptions: Exceptions) -> Ingress {
        self.exceptions = exceptions;
        self
    }

    /// Where intercepted connections have to be led.
    pub fn transparent_ports(&self) -> TransparentPorts {
        let mut ports = TransparentPorts::default();
        for door in self.doors.iter().filter(|door| matches!(door.kind, Kind::Transparent { .. })) {
            let slot = if door.address.is_ipv4() { &mut ports.v4 } else { &mut ports.v6 };
            *slot = Some(door.address.port());
        }
        ports
    }

    /// Where all of them listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.doors.iter().map(|door| door.address).collect()
    }

    /// What is listened on, for the line at the start: such as "socks5 127.0.0.1:1080".
    pub fn summary(&self) -> Vec<String> {
        let shown = |door: &Bound| match &door.kind {
            Kind::Transparent { .. } => None,
            Kind::Socks5 => Some(format!("socks5 {}", door.address)),
            Kind::HttpConnect => Some(format!("http_connect {}", door.address)),
            Kind::Forward(to) => Some(format!("forward {} to {}", door.address, Shown(to))),
        };
        self.doors.iter().filter_map(shown).collect()
    }

    /// Accepts connections until dropped, each handed to `handle` in a task of its own. Beyond the limit on
    /// connections new ones are reset at once. Needs a `LocalSet`.
    pub async fn serve<H, F>(self, handle: H)
    where
        H: Fn(Arrival) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        let handle = Rc::new(handle);
        let priorities = Rc::new(self.priorities);
        let places = std::sync::Arc::new(Semaphore::new(self.places));
        let mut loops = JoinSet::new();
        for door in self.doors {
            let (handle, places) = (Rc::clone(&handle), std::sync::Arc::clone(&places));
            let (priorities, exceptions) = (Rc::clone(&priorities), self.exceptions.clone());
            loops.spawn_local(async move {
                let mut guests = JoinSet::new();
                loop {
                    let client = door.accept().await;
                    while guests.try_join_next().is_some() {}
                    let Ok(place) = std::sync::Arc::clone(&places).try_acquire_owned() else {
                        warn!("{}: reset, as many connections as [limits] flows allows", door.address);
                        tcp::reset(client);
                        continue;
                    };
                    let (kind, peer, address) = (door.kind.clone(), door.peer.clone(), door.address);
                    let (handle, priorities) = (Rc::clone(&handle), Rc::clone(&priorities));
                    let syn = syn::read(&client);
                    if let (Some(offers), Ok(from)) = (syn.and_then(|syn| syn.offers), client.peer_addr()) {
                        note_offers(&exceptions, from.ip(), offers);
                    }
                    guests.spawn_local(async move {
                        let dscp = syn.map(|syn| syn.dscp);
                        let classify = |to: &Target| priorities.class(port(to), dscp);
                        if let Some(arrival) = welcome(client, kind, address, peer, place, classify).await {
                            handle(arrival).await;
                        }
                    });
                }
            });
        }
        // The loops never end by themselves; dropping the set ends them and every connection they carry.
        while loops.join_next().await.is_some() {}
        std::future::pending().await
    }
}

impl Bound {
    async fn accept(&self) -> TcpStream {
        loop {
            match self.listener.accept().await {
                Ok((client, _)) => match tcp::prepare(&client) {
                    Ok(()) => return client,
                    // The client has gone again.
                    Err(error) => debug!("{}: {error}", self.address),
                },
                Err(error) => {
                    warn!("{}: accepting failed: {error}", self.address);
                    // Out of descriptors or memory: time for others to end.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Finds out what a new client wants; `None` if it gets nothing (and has been told).
async fn welcome(
    mut client: TcpStream,
    kind: Kind,
    door: SocketAddr,
    peer: Option<String>,
    place: OwnedSemaphorePermit,
    classify: impl Fn(&Target) -> Class,
) -> Option<Arrival> {
    let entrance = if matches!(kind, Kind::Transparent { .. }) { Entrance::Wire } else { Entrance::Door };
    let arrival = |client, destination, source, dialect| {
        let class = classify(&destination);
        Some(Arrival {
            client,
            open: Open { destination, source, class },
            dialect,
            entrance,
            peer,
            _place: place,
        })
    };
    match kind {
        Kind::Transparent { preserve_source } => match transparent::ends(&client, door) {
            Ok((source, destination)) => {
                let source = preserve_source.then_some(source);
                arrival(client, Target::Address(destination), source, Dialect::Silent)
            }
            Err(error) => {
                debug!("{door}: {error}");
                None
            }
        },
        Kind::Forward(to) => arrival(client, to, None, Dialect::Silent),
        Kind::Socks5 | Kind::HttpConnect => {
            let dialect = if matches!(kind, Kind::Socks5) { Dialect::Socks5 } else { Dialect::HttpConnect };
            let talk = dialogue::run(&mut client, dialect);
            match tokio::time::timeout(DIALOGUE_TIME, talk).await {
                Ok(Ok(destination)) => arrival(client, destination, None, dialect),
                Ok(Err(dialogue::Ended::Rejected(word))) => {
                    tcp::farewell(client, &word).await;
                    None
                }
                Ok(Err(dialogue::Ended::Broken(error))) => {
                    debug!("{door}: {error}");
                    None
                }
                Err(_) => {
                    debug!("{door}: a client did not finish its request in {DIALOGUE_TIME:?}");
                    None
                }
            }
        }
    }
}

fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket =
        if address.is_ipv4() { tokio::net::TcpSocket::new_v4()? } else { tokio::net::TcpSocket::new_v6()? };
    // Without the kernel's help every client is of unknown mark.
    let _ = syn::keep(&socket);
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A host as text becomes an address where it is one, so that the far end need not guess.
pub(crate) fn target(to: &HostPort) -> Target {
    match to.literal() {
        Some(address) => Target::Address(address),
        None => Target::Name { host: to.host.clone(), port: to.port },
    }
}

fn port(target: &Target) -> u16 {
    match target {
        Target::Address(address) => address.port(),
        Target::Name { port, .. } => *port,
    }
}

/// A target for people.
pub(crate) struct Shown<'a>(pub &'a Target);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Target::Address(address) => address.fmt(f),
            Target::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] cannot listen on {}: {}", self.section, self.address, self.source)?;
        match self.source.kind() {
            io::ErrorKind::PermissionDenied => f.write_str("; root would do"),
            io::ErrorKind::AddrInUse => f.write_str("; another program listens there, choose another port"),
            _ => Ok(()),
        }
    }
}
impl std::error::Error for BindError {}

/// What the kernel allows by default (net.core.somaxconn since Linux 5.4): long enough that a burst does not fall
/// back to SYN cookies, which a transparent listener cannot serve.
const BACKLOG: u32 = 4096;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// For a client to finish its proxy request.
const DIALOGUE_TIME: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests;
