//! The config file of an end: one TOML file, every key known, every mistake named by file, line and key.
//!
//! The operator's reference is `docs/operator.md`; `skyhaul pair` writes both ends' files with comments.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use skyhaul_cc::controller::Policy;
use skyhaul_cc::units::{Bytes, Duration, Rate};
use skyhaul_pep::auth::PublicKey;

pub use address::{BadAddress, HostPort, Ports, Prefix};
pub use priority::{Dscp, Priorities, Priority};
pub use reader::ConfigError;
pub use rollback::{Destination, Destinations, Place, Preference, Rollback};

mod address;
mod loops;
mod priority;
mod reader;
mod rollback;
mod sections;

/// Everything an end is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where it was read from, for messages.
    pub file: PathBuf,
    /// `[channel]`: which end this is and how the two find each other.
    pub channel: Channel,
    /// `[channel]`: what the two ends may do beyond plain QUIC.
    pub wire: Wire,
    /// `[keys] secret_file`: this end's secret key, relative to the config file's folder.
    pub secret_file: PathBuf,
    /// Who may be at the other end: `[keys] peer` of a terminal, `[[peer]]` of a gateway. Never empty.
    pub peers: Vec<Peer>,
    /// `[link]`: what is known about the satellite link.
    pub link: Link,
    /// `[intercept]`: connections taken from the wire; `None` takes none.
    pub intercept: Option<Intercept>,
    /// `[[socks5]]`: SOCKS5 proxies.
    pub socks5: Vec<Door>,
    /// `[[http_connect]]`: HTTP CONNECT proxies.
    pub http_connect: Vec<Door>,
    /// `[[forward]]`: local ports that lead to one destination.
    pub forward: Vec<Forward>,
    /// `[[priority]]`: classes of connections that are taken in here, in the order of the file.
    pub priorities: Priorities,
    /// `[rollback]`: what happens while the channel is no good.
    pub rollback: Rollback,
    /// `[[destination]]`: who may, must or must not use the channel, in the order of the file.
    pub destinations: Destinations,
    /// `[egress]`: what the other end may reach through this one.
    pub egress: Egress,
    /// `[limits]`
    pub limits: Limits,
    /// `[memory]`
    pub memory: PathMemory,
}

/// Which of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that opens the channel: at the satellite terminal.
    Terminal,
    /// The end that waits for it: at the gateway, for any number of terminals.
    Gateway,
}

/// How the two ends find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channel {
    /// A terminal sends to its gateway.
    Terminal {
        /// UDP address of the gateway.
        gateway: HostPort,
        /// Local UDP address; by default any address and a free port.
        bind: Option<SocketAddr>,
    },
    /// A gateway waits for its terminals.
    Gateway {
        /// Local UDP address.
        listen: SocketAddr,
    },
}

/// What the two ends may do beyond plain QUIC; each is done when both allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Number every datagram and report when each arrived.
    pub shim: bool,
    /// Repair by code what is lost at the ends of bursts.
    pub repair: bool,
}

/// The other end, or at a gateway one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// For messages and for `[[forward]] peer`.
    pub name: String,
    /// The only key it may show.
    pub key: PublicKey,
    /// The networks behind it.
    pub networks: Vec<Prefix>,
}

/// What is known about the satellite link in the direction this end sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Name of the congestion controller.
    pub controller: String,
    /// IP rate of the link; needed by the controller `rate`.
    pub send_rate: Option<Rate>,
    /// How the controller treats other traffic on the link.
    pub policy: Policy,
    /// Round trip to start from.
    pub rtt: Duration,
    /// Largest IP packet that crosses the path whole, 1280 to 9000 bytes.
    pub mtu: Bytes,
}

/// Connections taken from the wire without the client's knowledge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intercept {
    /// Network devices on which clients' packets arrive. Never empty.
    pub interfaces: Vec<String>,
    /// Asks the other end to connect from the client's own address.
    pub preserve_source: bool,
    /// Destination ports; empty means all.
    pub ports: Vec<Ports>,
    /// Destinations; empty means all at a terminal and the peers' networks at a gateway.
    pub only: Vec<Prefix>,
    /// Connections from or to these are left alone.
    pub exclude: Vec<Prefix>,
}

/// Where a proxy listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    /// Local TCP address.
    pub listen: SocketAddr,
    /// Name of the peer that carries connections to host names and to addresses in no peer's networks.
    pub peer: Option<String>,
}

/// A local port that leads to one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Where it listens, and the peer that carries.
    pub door: Door,
    /// Destination, reached by the other end.
    pub to: HostPort,
}

/// What the other end may reach through this one. A denied block counts more than an allowed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Egress {
    /// Destinations that may be reached.
    pub allow: Vec<Prefix>,
    /// Destinations that may not.
    pub deny: Vec<Prefix>,
    /// Connects from the client's own address when the other end asks for it.
    pub preserve_source: bool,
    /// Marks packets to destinations with their connection's class.
    pub mark_dscp: bool,
}

/// Bounds on what an end uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Data of all connections of all channels held at once, in either direction.
    pub memory: Bytes,
    /// Connections at once.
    pub flows: usize,
    /// How long a destination may take to answer.
    pub connect_timeout: Duration,
    /// Number of the firewall mark, the routing table and the routing rule for intercepted packets.
    pub route_mark: u32,
}

/// Whether and where an end remembers what its paths were like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMemory {
    /// Off: every connection starts cold, nothing is written.
    pub enabled: bool,
    /// The store, relative to the config file's folder; [`crate::memory::default_file`] if nothing is said.
    pub file: Option<PathBuf>,
}

impl PathMemory {
    /// No memory.
    pub const OFF: PathMemory = PathMemory { enabled: false, file: None };
}

impl Default for PathMemory {
    /// On, at the usual place.
    fn default() -> Self {
        PathMemory { enabled: true, file: None }
    }
}

impl Config {
    /// Reads an end's config file.
    ///
    /// # Errors
    /// Names file, line and key of the first thing that cannot be used, what was found and what was expected.
    pub fn load(path: &Path, role: Role) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
            file: path.to_owned(),
            line: None,
            key: String::new(),
            found: error.to_string(),
            expected: format!("a config file; `skyhaul pair` writes one for a {role}"),
        })?;
        Config::parse(&text, path, role)
    }

    /// Reads a config from text; `path` names it in messages and is what `secret_file` is relative to.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, path: &Path, role: Role) -> Result<Config, ConfigError> {
        sections::config(&reader::File::new(path, text), path, role)
    }

    /// Which end this is.
    pub fn role(&self) -> Role {
        match self.channel {
            Channel::Terminal { .. } => Role::Terminal,
            Channel::Gateway { .. } => Role::Gateway,
        }
    }

    /// The peer of that name.
    pub fn peer_named(&self, name: &str) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.name == name)
    }

    /// The peer in whose networks an address lies; of several, the one with the smallest block around it.
    pub fn peer_around(&self, address: IpAddr) -> Option<&Peer> {
        let known = self.peers.iter().filter_map(|peer| {
            let blocks = peer.networks.iter().filter(|block| block.contains(address));
            blocks.map(Prefix::bits).max().map(|bits| (bits, peer))
        });
        known.max_by_key(|&(bits, _)| bits).map(|(_, peer)| peer)
    }

    /// The peer, if there is just one.
    pub fn only_peer(&self) -> Option<&Peer> {
        match self.peers.as_slice() {
            [peer] => Some(peer),
            _ => None,
        }
    }

    /// Whether connections are taken from the wire or made under other hosts' addresses: both need root and routes.
    pub fn is_transparent(&self) -> bool {
        self.intercept.is_some() || self.egress.preserve_source
    }
}

impl Egress {
    /// Whether the other end may reach this address.
    pub fn permits(&self, address: IpAddr) -> bool {
        let in_any = |blocks: &[Prefix]| blocks.iter().any(|block| block.contains(address));
        in_any(&self.allow) && !in_any(&self.deny)
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Role::Terminal => "terminal",
            Role::Gateway => "gateway",
        })
    }
}

/// The port when none is given: that of QUIC experiments and of our examples.
pub const DEFAULT_PORT: u16 = 4433;
/// Controller when the file names none.
pub const DEFAULT_CONTROLLER: &str = "skyhaul";
/// A geostationary round trip with the terminal's own access time.
pub const DEFAULT_RTT: Duration = Duration::from_millis(600);
/// Ethernet.
pub const DEFAULT_MTU: Bytes = Bytes(1500);
/// Three eighths of it hold what was received: several windows of a 150 Mbit/s link at 540 ms (10 MB each).
pub const DEFAULT_MEMORY: Bytes = Bytes::mib(256);
/// Connections of a few hundred hosts.
pub const DEFAULT_FLOWS: usize = 4096;
/// Four SYNs at 0, 1, 3 and 7 s have a chance to be answered.
pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// "SH" in ASCII; as the priority of a routing rule it comes before the main table's 32766.
pub const DEFAULT_ROUTE_MARK: u32 = 0x5348;
/// What nobody behind the other end should reach by default: this host itself, link-local addresses (among them
/// the metadata services of clouds) and addresses that are no single host.
pub const DEFAULT_DENY: [&str; 8] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/3",
    "::/128",
    "::1/128",
    "fe80::/10",
    "ff00::/8",
];

#[cfg(test)]
mod tests;
