//! Traffic that would come back to where it came from, told at once instead of going round.
//!
//! What the config file alone shows is refused when it is read (`config/loops.rs`), what this host's addresses and
//! routes show when the end starts, and the rest connection by connection.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::rc::Rc;

use crate::config::{Channel, Config, ConfigError};

/// What connections must not lead to, and whose they must not be.
#[derive(Debug, Default)]
pub struct Loops {
    /// Where this end listens for TCP.
    doors: Vec<SocketAddr>,
    /// Intercepted clients that have connections now, with how many.
    clients: RefCell<BTreeMap<IpAddr, usize>>,
}

/// While it lives, its client is known as one of this side.
#[derive(Debug)]
pub struct Present {
    loops: Rc<Loops>,
    client: Option<IpAddr>,
}

impl Loops {
    /// Of an end that listens on these addresses.
    pub fn new(doors: Vec<SocketAddr>) -> Loops {
        Loops { doors: doors.into_iter().map(canonical).collect(), clients: RefCell::default() }
    }

    /// Whether a connection to this address would end at a listener of this end.
    pub fn leads_here(&self, to: SocketAddr) -> bool {
        let same_port = self.doors.iter().any(|door| door.port() == to.port());
        // Most connections go to other ports, and the system need not be asked for its addresses.
        same_port && leads_to(&self.doors, to, &own_addresses())
    }

    /// Remembers that a client is on this side of the link, if connections are to be made in its name.
    pub fn client(self: &Rc<Self>, source: Option<SocketAddr>) -> Present {
        let client = source.map(|source| source.ip().to_canonical());
        if let Some(client) = client {
            *self.clients.borrow_mut().entry(client).or_insert(0) += 1;
        }
        Present { loops: Rc::clone(self), client }
    }

    /// Whether a client of this side has connections now. The other end cannot ask to connect in its name: such a
    /// connection has gone past it, was taken in there and is on its way back.
    pub fn is_present(&self, client: IpAddr) -> bool {
        self.clients.borrow().contains_key(&client.to_canonical())
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let Some(client) = self.client else { return };
        let mut clients = self.loops.clients.borrow_mut();
        if let Some(count) = clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&client);
            }
        }
    }
}

/// What only this host's addresses and routes show: a forward to an own address and door, interception of the device
/// that leads to the gateway. `gateway` is its address, where known.
///
/// # Errors
/// The first key that would lead traffic into itself.
pub fn check_host(config: &Config, gateway: Option<SocketAddr>) -> Result<(), Box<ConfigError>> {
    let own = own_addresses();
    let doors = config.doors();
    for forward in &config.forward {
        let Some(to) = forward.to.literal() else { continue };
        if !to.ip().is_loopback() && leads_to(&doors, to, &own) {
            let found = format!("\"{}\", where this end itself listens", forward.to);
            return Err(refused(config, "forward.to", found, ELSEWHERE));
        }
    }
    let (Some(intercept), Some(gateway)) = (&config.intercept, gateway) else { return Ok(()) };
    if !intercept.only.is_empty() || is_own(gateway.ip(), &own) {
        return Ok(());
    }
    match device_towards(gateway) {
        Some(device) if intercept.interfaces.contains(&device) => {
            let found = format!("\"{device}\", which leads to the gateway {gateway}");
            Err(refused(config, "intercept.interfaces", found, CLIENTS_ONLY))
        }
        _ => Ok(()),
    }
}

fn refused(config: &Config, key: &str, found: String, expected: &str) -> Box<ConfigError> {
    Box::new(ConfigError {
        file: config.file.clone(),
        line: None,
        key: key.to_owned(),
        found,
        expected: expected.to_owned(),
    })
}

impl Config {
    /// Where this end listens for TCP, as far as the config says: doors, and at a gateway the port that takes the
    /// channel in when it is carried inside TCP.
    pub fn doors(&self) -> Vec<SocketAddr> {
        let proxies = self.socks5.iter().chain(&self.http_connect);
        let mut doors: Vec<_> = proxies.map(|door| door.listen).collect();
        doors.extend(self.forward.iter().map(|forward| forward.door.listen));
        match self.channel {
            Channel::Gateway { listen } if self.rollback.enabled && self.rollback.carriage => {
                doors.push(listen)
            }
            Channel::Gateway { .. } | Channel::Terminal { .. } => {}
        }
        doors
    }
}

/// Whether one of these listeners would get a connection to `to`, on a host with these addresses.
fn leads_to(doors: &[SocketAddr], to: SocketAddr, own: &BTreeSet<IpAddr>) -> bool {
    let to = canonical(to);
    doors.iter().filter(|door| door.port() == to.port()).any(|door| {
        if door.ip().is_unspecified() {
            is_own(to.ip(), own)
        } else {
            // A connection to the unspecified address is one to loopback.
            door.ip().to_canonical() == to.ip() || to.ip().is_unspecified() && door.ip().is_loopback()
        }
    })
}

fn is_own(ip: IpAddr, own: &BTreeSet<IpAddr>) -> bool {
    let ip = ip.to_canonical();
    ip.is_loopback() || ip.is_unspecified() || own.contains(&ip)
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The addresses of this host's devices; none if the system does not say.
fn own_addresses() -> BTreeSet<IpAddr> {
    interfaces().map(|(_, address)| address).collect()
}

fn interfaces() -> impl Iterator<Item = (String, IpAddr)> {
    let all = nix::ifaddrs::getifaddrs().ok().into_iter().flatten();
    all.filter_map(|one| {
        let address = one.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let v6 = address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()));
        Some((one.interface_name, v4.or(v6)?))
    })
}

/// The device on which packets to `remote` leave: the one with the address that they would leave from.
fn device_towards(remote: SocketAddr) -> Option<String> {
    let any: SocketAddr = if remote.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).ok()?;
    // Connecting a UDP socket sends nothing; it looks the route up.
    socket.connect(remote).ok()?;
    let from = socket.local_addr().ok()?.ip();
    interfaces().find(|(_, address)| *address == from).map(|(name, _)| name)
}

const ELSEWHERE: &str = "a destination other than this end's own listeners";
const CLIENTS_ONLY: &str =
    "devices on which only clients' packets arrive, or intercept.only with the networks \
                            behind the gateway";

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_door_is_recognised_under_every_address_that_leads_to_it() {
        let own = BTreeSet::from(["10.77.1.1".parse().unwrap(), "fd77:1::1".parse().unwrap()]);
        let doors = [address("0.0.0.0:1080"), address("127.0.0.1:8080"), address("[::]:4433")];
        for (to, expected) in [
            ("10.77.1.1:1080", true),
            ("127.0.0.1:1080", true),
            ("[::ffff:10.77.1.1]:1080", true),
            ("10.77.1.2:1080", false),
            ("10.77.1.1:1081", false),
            ("127.0.0.1:8080", true),
            ("0.0.0.0:8080", true),
            ("10.77.1.1:8080", false),
            ("[fd77:1::1]:4433", true),
            ("10.77.1.1:4433", true),
            ("[fd77:1::2]:4433", false),
        ] {
            assert_eq!(leads_to(&doors, address(to), &own), expected, "{to}");
        }
    }

    #[test]
    fn this_host_knows_its_own_loopback_and_where_a_route_leads() {
        assert!(own_addresses().contains(&"127.0.0.1".parse().unwrap()));
        assert_eq!(device_towards(address("127.0.0.1:9")).as_deref(), Some("lo"));
        let loops = Loops::new(vec![address("127.0.0.1:1080")]);
        assert!(loops.leads_here(address("127.0.0.1:1080")) && !loops.leads_here(address("127.0.0.1:1081")));
    }

    #[test]
    fn a_client_is_present_until_its_last_connection_ends() {
        let loops = Rc::new(Loops::default());
        let ip = "10.77.1.2".parse().unwrap();
        let first = loops.client(Some(address("10.77.1.2:5000")));
        let second = loops.client(Some(address("10.77.1.2:5001")));
        let _nobody = loops.client(None);
        drop(first);
        assert!(loops.is_present(ip));
        drop(second);
        assert!(!loops.is_present(ip));
    }
}
