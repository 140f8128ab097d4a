//! Split TCP without QUIC: connections that pass this host end here and go on as connections of our own, as PEPsal does.
//!
//! ```text
//! client ==[TCP, LAN]== splitter ==[TCP with the link's congestion control]== server
//! ```
//!
//! Only one end of the link needs the program. Both hosts see each other's addresses. The client is connected as soon as
//! its SYN arrives, before the server is: a server that refuses shows as a reset. Each side has a window of its own, so
//! the link's side can have any congestion control of the kernel, whatever the hosts have; losses on the link are still
//! repaired by TCP.
//!
//! Bytes wait in the kernel's socket buffers and in one piece per direction, no more: a slow side slows the other. All
//! pieces come out of one budget, in which every connection has a floor. A connection that breaks on one side is reset on the other; one that ends in order ends in order.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use skyhaul_cc::Bytes;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, LocalSet};
use tracing::{debug, info, warn};

use crate::config::{Intercept, Prefix, Role};
use crate::egress;
use crate::ingress::{transparent, BindError, TransparentPorts};
use crate::intercept::{Forwarding, InterceptError, Interception, Rules};
use crate::relay::error_on;
use crate::room::{Place, Rooms};
use crate::tcp;

/// What a splitter is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Devices on which connections to split arrive: that of the own network, and that of the link for connections
    /// from beyond. Not empty.
    pub interfaces: Vec<String>,
    /// The networks on this side of the link. Not empty: they tell which of a connection's two sides is the link's.
    pub networks: Vec<Prefix>,
    /// Congestion control on the link's side, by the kernel's name for it; the system's if not given.
    pub control: Option<String>,
    /// Connections at once.
    pub flows: usize,
    /// Data of all connections held at once; the kernel's buffers not counted. 4 MiB at least.
    pub memory: Bytes,
    /// Firewall mark, routing table and routing rule.
    pub route_mark: u32,
    /// How long a destination may take to answer.
    pub connect_timeout: Duration,
}

impl Options {
    /// A splitter for connections that arrive on these devices, all else by default.
    pub fn new(interfaces: Vec<String>, networks: Vec<Prefix>) -> Options {
        Options {
            interfaces,
            networks,
            control: None,
            flows: crate::config::DEFAULT_FLOWS,
            memory: crate::config::DEFAULT_MEMORY,
            route_mark: DEFAULT_ROUTE_MARK,
            connect_timeout: crate::config::DEFAULT_CONNECT_TIMEOUT,
        }
    }
}

/// Why a splitter cannot run.
#[derive(Debug)]
pub enum SplitError {
    /// Something it was told cannot be used.
    Options(String),
    /// The kernel does not have the congestion control, or not for us.
    Control {
        /// Its name.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// Its listeners.
    Bind(BindError),
    /// Firewall rules and routes.
    Intercept(InterceptError),
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SplitError::Options(what) => f.write_str(what),
            SplitError::Control { name, source } => write!(
                f,
                "{NO_CONTROL} \"{name}\": {source}; `sysctl net.ipv4.tcp_available_congestion_control` lists \
                 those there are, modprobe tcp_{name} or `skyhaul kernel install` may add it"
            ),
            SplitError::Bind(error) => error.fmt(f),
            SplitError::Intercept(error) => error.fmt(f),
        }
    }
}
impl std::error::Error for SplitError {}

/// A splitter whose listeners and rules are in force. Dropping it removes the rules.
pub struct Splitter {
    options: Rc<Options>,
    doors: Vec<(SocketAddr, TcpListener)>,
    interception: Interception,
}

impl Splitter {
    /// Opens listeners, tries the congestion control and puts the firewall rules in force. Needs a tokio runtime and
    /// root rights.
    ///
    /// # Errors
    /// Names what cannot be used or opened; nothing stays behind.
    pub fn open(options: Options) -> Result<Splitter, SplitError> {
        check(&options)?;
        let doors = transparent::listeners().map_err(SplitError::Bind)?;
        if let Some(name) = &options.control {
            for (_, door) in &doors {
                // Tried here, before a client meets it. What a listener has, its connections have at first.
                SockRef::from(door)
                    .set_tcp_congestion(name.as_bytes())
                    .map_err(|source| SplitError::Control { name: name.clone(), source })?;
            }
        }
        let port = |v4: bool| doors.iter().find(|(at, _)| at.is_ipv4() == v4).map(|(at, _)| at.port());
        let ports = TransparentPorts { v4: port(true), v6: port(false) };
        let arrivals = Intercept {
            interfaces: options.interfaces.clone(),
            preserve_source: true,
            ports: Vec::new(),
            only: Vec::new(),
            exclude: Vec::new(),
        };
        let rules = Rules {
            role: Role::Terminal,
            mark: options.route_mark,
            arrivals: Some((arrivals, ports)),
            destinations: Vec::new(),
            forwarding: Forwarding::here(),
        };
        let interception = Interception::start(&rules).map_err(SplitError::Intercept)?;
        Ok(Splitter { options: Rc::new(options), doors, interception })
    }

    /// One line on what it does.
    pub fn summary(&self) -> String {
        let Options { interfaces, networks, control, .. } = &*self.options;
        let networks: Vec<String> = networks.iter().map(Prefix::to_string).collect();
        let control = control.as_deref().unwrap_or("the system's");
        format!(
            "split ready: connections on {} from or to {}; congestion control on the link: {control}",
            interfaces.join(", "),
            networks.join(", ")
        )
    }

    /// Splits connections until `stop` completes; then rules are removed and open connections reset.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Splitter { options, doors, interception } = self;
        let local = LocalSet::new();
        let rooms = Rooms::own(options.memory, options.flows);
        for (address, door) in doors {
            local.spawn_local(serve(address, door, Rc::clone(&options), rooms.clone()));
        }
        local.spawn_local(crate::status::split_when_asked(rooms));
        local.run_until(stop).await;
        // First the rules: new connections shall take their usual way at once.
        drop(interception);
        drop(local);
        info!("split stopped");
    }
}

fn check(options: &Options) -> Result<(), SplitError> {
    let bad = |what: &str| Err(SplitError::Options(what.to_owned()));
    if options.interfaces.is_empty() {
        return bad("no device to take connections from; name one, such as eth1");
    }
    let named = |name: &String| {
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        (1..=15).contains(&name.len()) && plain
    };
    if let Some(name) = options.interfaces.iter().find(|name| !named(name)) {
        return bad(&format!("found the device name \"{name}\", expected 1 to 15 letters and digits"));
    }
    if options.networks.is_empty() {
        return bad("no network on this side of the link; name one, such as 10.77.1.0/24");
    }
    let name = options.control.as_deref().unwrap_or("reno");
    if !(1..=15).contains(&name.len()) || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return bad(&format!("found the congestion control \"{name}\", expected a name such as bbr"));
    }
    Ok(())
}

async fn serve(address: SocketAddr, door: TcpListener, options: Rc<Options>, rooms: Rooms) {
    let mut guests = JoinSet::new();
    loop {
        let client = match door.accept().await {
            Ok((client, _)) => client,
            Err(error) => {
                warn!("{address}: accepting failed: {error}");
                // Out of descriptors or memory: time for others to end.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        while guests.try_join_next().is_some() {}
        let Some(place) = rooms.enter() else {
            warn!("{address}: reset, as many connections are open as --flows and --memory allow");
            tcp::reset(client);
            continue;
        };
        guests.spawn_local(one(address, client, Rc::clone(&options), place));
    }
}

/// One connection from its first packet to its end.
async fn one(door: SocketAddr, client: TcpStream, options: Rc<Options>, place: Place) {
    if let Err(error) = split(door, client, &options, &place).await {
        debug!("{error}");
    }
}

/// Whatever goes wrong drops both sockets, and a dropped socket of ours resets (see [`tcp::prepare`]).
async fn split(door: SocketAddr, client: TcpStream, options: &Options, place: &Place) -> io::Result<()> {
    tcp::prepare(&client)?;
    let (source, destination) = transparent::ends(&client, door)?;
    let connect =
        tokio::time::timeout(options.connect_timeout, egress::connect(destination, Some(source), None));
    let server = tokio::select! {
        connected = connect => connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
        error = error_on(&client) => Err(error),
    };
    let server = server.map_err(|error| io::Error::new(error.kind(), format!("{destination}: {error}")))?;
    // The link's side is the one whose far address is not ours.
    let ours = |address: SocketAddr| options.networks.iter().any(|network| network.contains(address.ip()));
    for (stream, far) in [(&client, source), (&server, destination)] {
        set_up(stream, ours(far), options.control.as_deref())?;
    }
    let carried = async { tokio::try_join!(place.carry(&client, &server), place.carry(&server, &client)) };
    tokio::select! {
        carried = carried => carried.map(drop)?,
        error = error_on(&client) => return Err(error),
        error = error_on(&server) => return Err(error),
    }
    tcp::close(client);
    tcp::close(server);
    Ok(())
}

/// Congestion control by the side, and only so many bytes in the kernel that have not been sent yet: what waits for the
/// link shall wait at the sender.
fn set_up(stream: &TcpStream, is_near: bool, control: Option<&str>) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_notsent_lowat(UNSENT)?;
    match control {
        // What every kernel has (RFC 5681): on a LAN they are all the same.
        Some(_) if is_near => socket.set_tcp_congestion(b"reno"),
        Some(name) => socket.set_tcp_congestion(name.as_bytes()),
        None => Ok(()),
    }
}

/// What its last words begin with when the kernel lacks the control.
pub(crate) const NO_CONTROL: &str = "no congestion control";
/// "SI": the one after that of terminal and gateway, so that both can run on a host.
pub const DEFAULT_ROUTE_MARK: u32 = 0x5349;
/// 28 ms of 150 Mbit/s: more than the program is ever away.
const UNSENT: u32 = 512 * 1024;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::tests::connected;
    use tokio::task::spawn_local;

    fn options() -> Options {
        Options::new(vec!["lan".to_owned()], vec!["10.77.1.0/24".parse().unwrap()])
    }

    #[test]
    fn what_cannot_work_is_refused_with_a_reason() {
        type Change = fn(&mut Options);
        let changes: [(Change, &str); 5] = [
            (|o| o.interfaces.clear(), "no device"),
            (|o| o.interfaces.push("a\" ; drop".to_owned()), "device name"),
            (|o| o.networks.clear(), "no network"),
            (|o| o.control = Some(String::new()), "congestion control"),
            (|o| o.control = Some("a name that is long".to_owned()), "congestion control"),
        ];
        assert!(check(&options()).is_ok());
        for (change, reason) in changes {
            let mut options = options();
            change(&mut options);
            let error = check(&options).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    /// Two connections with a splitter's pumps between them, without any interception.
    async fn piped() -> (TcpStream, TcpStream, tokio::task::JoinHandle<io::Result<((), ())>>) {
        let ((client, left), (server, right)) = (connected().await, connected().await);
        for stream in [&left, &right] {
            set_up(stream, true, Some("cubic")).unwrap();
        }
        let place = Rooms::own(Bytes::mib(4), 1).enter().unwrap();
        let pumps = spawn_local(async move {
            let carried = tokio::try_join!(place.carry(&left, &right), place.carry(&right, &left))?;
            tcp::close(left);
            tcp::close(right);
            Ok(carried)
        });
        (client, server, pumps)
    }

    #[tokio::test]
    async fn bytes_pass_both_ways_and_each_way_ends_by_itself() {
        let test = async {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let (mut client, mut server, pumps) = piped().await;
            let sent: Vec<u8> = (0..3_000_000u32).map(|n| n as u8).collect();
            let upload = sent.clone();
            let writer = tokio::spawn(async move {
                client.write_all(&upload).await.unwrap();
                client.shutdown().await.unwrap();
                let mut answer = Vec::new();
                client.read_to_end(&mut answer).await.unwrap();
                answer
            });
            let mut got = Vec::new();
            server.read_to_end(&mut got).await.unwrap();
            assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
            server.write_all(b"thanks").await.unwrap();
            drop(server);
            assert_eq!(writer.await.unwrap(), b"thanks");
            pumps.await.unwrap().unwrap();
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn a_side_that_does_not_read_stops_the_other() {
        let test = async {
            use tokio::io::AsyncWriteExt;
            let (mut client, server, pumps) = piped().await;
            let flood = async {
                let mut sent = 0usize;
                loop {
                    sent += client.write(&[7; 65_536]).await.unwrap();
                    if sent > 256 << 20 {
                        return;
                    }
                }
            };
            let stuck = tokio::time::timeout(Duration::from_millis(500), flood).await;
            assert!(stuck.is_err(), "256 MiB went into buffers");
            drop(server);
            assert!(pumps.await.unwrap().is_err(), "a side that goes is an error of the other");
        };
        LocalSet::new().run_until(test).await;
    }
}
