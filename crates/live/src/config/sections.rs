//! Each section of the config file, in the order of [`Config`]'s fields.

use std::path::Path;

use skyhaul_cc::controller::Policy;
use skyhaul_cc::registry;
use skyhaul_cc::units::{parse_duration, Bytes};
use skyhaul_pep::frame::Class;

use super::loops;
use super::reader::{ConfigError, Entry, File, Place, Section};
use super::rollback::{destination, rollback};
use super::{
    Channel, Config, Destinations, Door, Dscp, Egress, Forward, HostPort, Intercept, Limits, Link,
    PathMemory, Peer, Ports, Prefix, Priorities, Priority, Role, Rollback, Wire, DEFAULT_CONNECT_TIMEOUT,
    DEFAULT_CONTROLLER, DEFAULT_DENY, DEFAULT_FLOWS, DEFAULT_MEMORY, DEFAULT_MTU, DEFAULT_ROUTE_MARK,
    DEFAULT_RTT,
};

/// The whole file.
pub fn config(file: &File<'_>, path: &Path, role: Role) -> Result<Config, ConfigError> {
    let mut top = file.top()?;
    let (channel, wire) = channel(top.section("channel")?, role)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut keys = top.section("keys")?;
    let secret_file = keys.required("secret_file", SECRET_FILE, |entry| {
        entry.text(SECRET_FILE, |text| (!text.is_empty()).then(|| folder.join(text)))
    })?;
    let peers = match role {
        Role::Terminal => {
            let key = keys.required("peer", PUBLIC_KEY, public_key)?;
            vec![Peer { name: "gateway".to_owned(), key, networks: Vec::new() }]
        }
        Role::Gateway => peers(file, &mut top)?,
    };
    keys.close()?;
    let link = link(file, top.section("link")?)?;
    let intercept = match top.take("intercept") {
        Some(entry) => Some(intercept(entry.section()?)?),
        None => None,
    };
    let rollback = rollback(top.section("rollback")?)?;
    let doors = Doors { peers: &peers, channel: &channel, rollback: &rollback, file, role };
    let socks5 = doors.read_all(&mut top, "socks5")?;
    let http_connect = doors.read_all(&mut top, "http_connect")?;
    let forwards = top.sections("forward")?;
    let places: Vec<Place> = forwards.iter().map(Section::place).collect();
    let forward = forwards.into_iter().map(|s| doors.forward(s)).collect::<Result<_, _>>()?;
    let rules = top.sections("priority")?.into_iter().map(|s| priority(file, s)).collect::<Result<_, _>>()?;
    let destinations = top.sections("destination")?.into_iter().map(destination).collect::<Result<_, _>>()?;
    let egress = egress(top.section("egress")?)?;
    let limits = limits(top.section("limits")?)?;
    let memory = memory(top.section("memory")?, folder)?;
    top.close()?;
    let config = Config {
        file: path.to_owned(),
        channel,
        wire,
        secret_file,
        peers,
        link,
        intercept,
        socks5,
        http_connect,
        forward,
        priorities: Priorities(rules),
        rollback,
        destinations: Destinations(destinations),
        egress,
        limits,
        memory,
    };
    loops::check(file, &config, &places)?;
    Ok(config)
}

fn channel(mut section: Section<'_, '_>, role: Role) -> Result<(Channel, Wire), ConfigError> {
    let channel = match role {
        Role::Terminal => Channel::Terminal {
            gateway: section.required("gateway", HOST_PORT, host_port)?,
            bind: section.optional("bind", |entry| entry.text(BIND, |text| text.parse().ok()))?,
        },
        Role::Gateway => Channel::Gateway {
            listen: section
                .required("listen", SOCKET, |entry| entry.text(SOCKET, |text| text.parse().ok()))?,
        },
    };
    let wire = Wire {
        shim: section.optional("shim", Entry::boolean)?.unwrap_or(true),
        repair: section.optional("repair", Entry::boolean)?.unwrap_or(true),
    };
    section.close()?;
    Ok((channel, wire))
}

fn peers(file: &File<'_>, top: &mut Section<'_, '_>) -> Result<Vec<Peer>, ConfigError> {
    let mut peers: Vec<Peer> = Vec::new();
    let top_place = top.place();
    for mut section in top.sections("peer")? {
        let place = section.place();
        let peer = Peer {
            name: section.required("name", PEER_NAME, |entry| {
                entry.text(PEER_NAME, |text| (!text.is_empty()).then(|| text.to_owned()))
            })?,
            key: section.required("key", PUBLIC_KEY, public_key)?,
            networks: section.optional("networks", prefixes)?.unwrap_or_default(),
        };
        section.close()?;
        if peers.iter().any(|other| other.name == peer.name) {
            return Err(file.error_at(&place, format!("a second peer \"{}\"", peer.name), "different names"));
        }
        if peers.iter().any(|other| other.key == peer.key) {
            return Err(file.error_at(&place, "the key of another peer", "a key of its own for every peer"));
        }
        peers.push(peer);
    }
    if peers.is_empty() {
        return Err(file.error_at(&top_place, "no [[peer]]", "one [[peer]] for every terminal"));
    }
    Ok(peers)
}

fn link(file: &File<'_>, mut section: Section<'_, '_>) -> Result<Link, ConfigError> {
    let mut place = section.place();
    let controller = section.optional("controller", |entry| {
        place = entry.place();
        let names: Vec<_> = registry::names().collect();
        let expected = format!("one of {}", names.join(", "));
        entry.text(&expected, |text| names.contains(&text).then(|| text.to_owned()))
    })?;
    let controller = controller.unwrap_or_else(|| DEFAULT_CONTROLLER.to_owned());
    let send_rate = section.optional("send_rate", |entry| {
        entry.text(RATE, |text| text.parse().ok().filter(|rate: &skyhaul_cc::Rate| rate.as_bit() > 0))
    })?;
    let policy = section.optional("policy", |entry| {
        entry.text(POLICY, |text| Policy::ALL.into_iter().find(|policy| policy.name() == text))
    })?;
    // Whoever knows the rate of a link has it to himself, more often than not.
    let policy = policy.unwrap_or(if send_rate.is_some() { Policy::Exclusive } else { Policy::Share });
    let rtt = section.optional("rtt", time)?.unwrap_or(DEFAULT_RTT);
    let mtu = section.optional("mtu", |entry| entry.integer(MTU, 1280..9001))?;
    section.close()?;
    if controller == "rate" && send_rate.is_none() {
        return Err(file.error_at(
            &place,
            "\"rate\" without link.send_rate",
            "send_rate = \"150 Mbit/s\" in the same section, or another controller",
        ));
    }
    Ok(Link { controller, send_rate, policy, rtt, mtu: mtu.map_or(DEFAULT_MTU, Bytes) })
}

fn intercept(mut section: Section<'_, '_>) -> Result<Intercept, ConfigError> {
    let read = Intercept {
        interfaces: section.required("interfaces", INTERFACES, |entry| {
            let empty = entry.wants(INTERFACES);
            let list = entry.list(|item| item.text(INTERFACES, interface))?;
            if list.is_empty() {
                Err(empty)
            } else {
                Ok(list)
            }
        })?,
        preserve_source: section.optional("preserve_source", Entry::boolean)?.unwrap_or(false),
        ports: section.optional("ports", ports)?.unwrap_or_default(),
        only: section.optional("only", prefixes)?.unwrap_or_default(),
        exclude: section.optional("exclude", prefixes)?.unwrap_or_default(),
    };
    section.close()?;
    Ok(read)
}

fn priority(file: &File<'_>, mut section: Section<'_, '_>) -> Result<Priority, ConfigError> {
    let place = section.place();
    let read = Priority {
        class: section.required("class", CLASS, |entry| {
            entry.text(CLASS, |text| Class::ALL.into_iter().find(|class| class.to_string() == text))
        })?,
        ports: section.optional("ports", ports)?.unwrap_or_default(),
        dscp: section
            .optional("dscp", |entry| {
                entry.list(|item| item.text_or_number(DSCP, |text| text.parse::<Dscp>().ok()))
            })?
            .unwrap_or_default(),
    };
    section.close()?;
    if read.ports.is_empty() && read.dscp.is_empty() {
        return Err(file.error_at(&place, "a priority for no ports and no marks", PRIORITY));
    }
    Ok(read)
}

struct Doors<'a, 'f> {
    file: &'a File<'f>,
    peers: &'a [Peer],
    channel: &'a Channel,
    rollback: &'a Rollback,
    role: Role,
}

impl Doors<'_, '_> {
    fn read_all(&self, top: &mut Section<'_, '_>, key: &'static str) -> Result<Vec<Door>, ConfigError> {
        let sections = top.sections(key)?;
        sections
            .into_iter()
            .map(|mut section| {
                let door = self.door(&mut section)?;
                section.close()?;
                Ok(door)
            })
            .collect()
    }

    fn door(&self, section: &mut Section<'_, '_>) -> Result<Door, ConfigError> {
        let listen = section.required("listen", SOCKET, |entry| {
            let taken = entry.wants(loops::NOT_THE_CHANNELS);
            let listen = entry.text(SOCKET, |text| text.parse().ok())?;
            if loops::is_channels(listen, self.channel, self.rollback) {
                Err(taken)
            } else {
                Ok(listen)
            }
        })?;
        // A terminal has one peer and no choice.
        let peer = match self.role {
            Role::Terminal => None,
            Role::Gateway => section.optional("peer", |entry| self.peer(entry))?,
        };
        Ok(Door { listen, peer })
    }

    fn forward(&self, mut section: Section<'_, '_>) -> Result<Forward, ConfigError> {
        let place: Place = section.place();
        let door = self.door(&mut section)?;
        let to = section.required("to", HOST_PORT, host_port)?;
        section.close()?;
        let known = to
            .literal()
            .is_some_and(|to| self.peers.iter().any(|p| p.networks.iter().any(|n| n.contains(to.ip()))));
        if door.peer.is_none() && self.peers.len() > 1 && !known {
            let found = format!("a forward to {to}, which lies in no peer's networks");
            return Err(self.file.error_at(&place, found, "peer = \"NAME\" in this section"));
        }
        Ok(Forward { door, to })
    }

    fn peer(&self, entry: Entry<'_, '_>) -> Result<String, ConfigError> {
        let names: Vec<_> = self.peers.iter().map(|peer| peer.name.as_str()).collect();
        let expected = format!("the name of a [[peer]]: {}", names.join(", "));
        entry.text(&expected, |text| names.contains(&text).then(|| text.to_owned()))
    }
}

fn egress(mut section: Section<'_, '_>) -> Result<Egress, ConfigError> {
    let all = |blocks: &[&str]| blocks.iter().filter_map(|block| block.parse().ok()).collect();
    let read = Egress {
        allow: section.optional("allow", prefixes)?.unwrap_or_else(|| all(&["0.0.0.0/0", "::/0"])),
        deny: section.optional("deny", prefixes)?.unwrap_or_else(|| all(&DEFAULT_DENY)),
        preserve_source: section.optional("preserve_source", Entry::boolean)?.unwrap_or(false),
        mark_dscp: section.optional("mark_dscp", Entry::boolean)?.unwrap_or(false),
    };
    section.close()?;
    Ok(read)
}

fn limits(mut section: Section<'_, '_>) -> Result<Limits, ConfigError> {
    let memory = section.optional("memory", |entry| {
        entry.text(MEMORY, |text| text.parse().ok().filter(|&bytes: &Bytes| bytes >= LEAST_MEMORY))
    })?;
    let flows = section.optional("flows", |entry| entry.integer(FLOWS, 1..1_000_001))?;
    let read = Limits {
        memory: memory.unwrap_or(DEFAULT_MEMORY),
        flows: flows.map_or(DEFAULT_FLOWS, |flows| flows as usize),
        connect_timeout: section.optional("connect_timeout", time)?.unwrap_or(DEFAULT_CONNECT_TIMEOUT),
        route_mark: section
            .optional("route_mark", |entry| entry.integer(ROUTE_MARK, 1..32_001))?
            .map_or(DEFAULT_ROUTE_MARK, |mark| mark as u32),
    };
    section.close()?;
    Ok(read)
}

fn memory(mut section: Section<'_, '_>, folder: &Path) -> Result<PathMemory, ConfigError> {
    let read = PathMemory {
        enabled: section.optional("enabled", Entry::boolean)?.unwrap_or(true),
        file: section.optional("file", |entry| {
            entry.text(STORE, |text| (!text.is_empty()).then(|| folder.join(text)))
        })?,
    };
    section.close()?;
    Ok(read)
}

fn host_port(entry: Entry<'_, '_>) -> Result<HostPort, ConfigError> {
    entry.text(HOST_PORT, |text| text.parse().ok())
}

fn public_key(entry: Entry<'_, '_>) -> Result<skyhaul_pep::auth::PublicKey, ConfigError> {
    entry.text(PUBLIC_KEY, |text| text.parse().ok())
}

fn prefixes(entry: Entry<'_, '_>) -> Result<Vec<Prefix>, ConfigError> {
    entry.list(|item| item.text(PREFIX, |text| text.parse().ok()))
}

pub(super) fn ports(entry: Entry<'_, '_>) -> Result<Vec<Ports>, ConfigError> {
    entry.list(|item| item.text_or_number(PORTS, |text| text.parse().ok()))
}

pub(super) fn time(entry: Entry<'_, '_>) -> Result<skyhaul_cc::Duration, ConfigError> {
    entry.text(TIME, |text| parse_duration(text).ok().filter(|time| !time.is_zero()))
}

/// A network device's name as it may stand in a firewall rule.
fn interface(name: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    // 15 characters: IFNAMSIZ less the final zero.
    ((1..=15).contains(&name.len()) && name.bytes().all(plain)).then(|| name.to_owned())
}

/// Less does not hold one stream's pieces at both of its directions.
const LEAST_MEMORY: Bytes = Bytes::mib(4);

const HOST_PORT: &str = "\"HOST:PORT\", such as \"gw.example.net:4433\", \"10.0.0.1:22\" or \"[fd00::1]:22\"";
const SOCKET: &str = "an address and port, such as \"0.0.0.0:4433\", \"127.0.0.1:1080\" or \"[::]:4433\"";
const BIND: &str = "an address and port of this host, such as \"0.0.0.0:0\"";
const SECRET_FILE: &str = "the name of a file written by `skyhaul pair`";
const PUBLIC_KEY: &str = "the other end's public key, \"skyhaul-ed25519:...\", as `skyhaul pair` wrote it";
const PEER_NAME: &str = "a name for this terminal";
const RATE: &str = "a bit rate with its unit, such as \"150 Mbit/s\"";
const TIME: &str = "a time with its unit, such as \"540 ms\"";
const POLICY: &str = "\"exclusive\", \"share\" or \"scavenge\"";
const CLASS: &str = "\"interactive\", \"normal\", \"bulk\" or \"background\"";
const DSCP: &str = "marks such as [\"ef\", \"cs1\", 46]: names of RFC 4594 and 8622, or numbers from 0 to 63";
const PRIORITY: &str = "ports = [22], dscp = [\"ef\"] or both in this section";
const MTU: &str = "a number of bytes from 1280 to 9000";
const INTERFACES: &str = "a list of one or more network devices, such as [\"lan\"]";
const PORTS: &str = "ports such as [80, \"5000-6000\"]";
const PREFIX: &str = "blocks of addresses such as [\"10.77.1.0/24\", \"fd77:1::/64\"]";
const MEMORY: &str = "an amount of data of at least 4 MiB, such as \"128 MiB\"";
const FLOWS: &str = "a number of connections from 1 to 1000000";
const STORE: &str = "the name of a file that this end may write, such as \"/var/lib/skyhaul/paths.redb\"";
const ROUTE_MARK: &str = "a number from 1 to 32000";
