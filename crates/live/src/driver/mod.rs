//! Drives a [`Tunnel`] with a real socket and a real clock, in one thread: reads datagrams, sends what
//! may leave, waits for the next of both, and tells flows what happened to them.

mod icmp;
mod line;
mod socket;
pub(crate) mod timer;

use crate::exceptions::{Exception, Exceptions};
use crate::relay::{Flows, Incoming};
use skyhaul_cc::{Duration, PathHistory, Rate, Time};
use skyhaul_pep::auth::PublicKey;
use skyhaul_pep::{
    ChannelStats, Config, DownReason, Epoch, Event, PeerId, PipeId, SetupError, Standing, Trouble, Tunnel,
};
use socket::Socket;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;
use timer::Timer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{debug, error, info, warn};

/// How this end finds the others.
#[derive(Clone, Debug)]
pub enum Role {
    /// Waits for them here.
    Listen(SocketAddr),
    /// Connects to the one at this host and port, again and again until it is there.
    Connect {
        /// "host:port"; the name is looked up at each attempt.
        gateway: String,
        /// Local address, if it matters.
        bind: Option<SocketAddr>,
    },
}

/// A driver that could not start.
#[derive(Debug)]
pub enum StartError {
    /// The UDP socket.
    Socket(SocketAddr, io::Error),
    /// Keys or channel settings.
    Setup(SetupError),
    /// The gateway's name.
    Name(String, io::Error),
    /// Something else the system refused.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Socket(address, error) => write!(f, "UDP {address}: {error}"),
            StartError::Setup(error) => write!(f, "{error}"),
            StartError::Name(name, error) => write!(f, "{name}: {error}"),
            StartError::System(error) => write!(f, "{error}"),
        }
    }
}
impl std::error::Error for StartError {}

/// What driver and flows share; one thread, so plain cells.
pub(crate) struct Shared {
    pub(crate) tunnel: RefCell<Tunnel>,
    epoch: Epoch,
    /// A flow has given the tunnel something to do.
    pub(crate) work: Notify,
    pub(crate) flows: RefCell<Flows>,
    pub(crate) incoming: RefCell<std::collections::VecDeque<Incoming>>,
    pub(crate) incoming_ready: Notify,
    peers_changed: Notify,
    closing: Cell<bool>,
    closed: Notify,
    names: BTreeMap<PublicKey, String>,
    /// TCP connections taken in that no task serves yet.
    accepted: RefCell<Vec<(PipeId, TcpStream)>>,
    pub(crate) exceptions: Exceptions,
}

/// A running tunnel, cheap to clone, for tasks of the same thread.
#[derive(Clone)]
pub struct TunnelHandle(pub(crate) Rc<Shared>);

/// A channel that is up.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    /// Its name in the tunnel.
    pub id: PeerId,
    /// The other end's key.
    pub key: PublicKey,
    /// Where the other end is.
    pub remote: SocketAddr,
}

impl TunnelHandle {
    /// Channels that are up.
    pub fn peers(&self) -> Vec<PeerInfo> {
        let peers = self.0.tunnel.borrow().peers();
        peers.into_iter().map(|(id, key, remote)| PeerInfo { id, key, remote }).collect()
    }

    /// Waits until at least one channel is up.
    pub async fn any_peer(&self) -> PeerInfo {
        loop {
            let changed = self.0.peers_changed.notified();
            if let Some(peer) = self.peers().into_iter().next() {
                return peer;
            }
            changed.await;
        }
    }

    /// How a channel fares, while it is up.
    pub fn standing(&self, peer: PeerId) -> Option<Standing> {
        self.0.tunnel.borrow().standing(peer)
    }

    /// Completes when a channel comes up, goes down, or fares otherwise than before.
    pub fn changed(&self) -> impl Future<Output = ()> + '_ {
        // This one hears of every change from now on, not only from its first poll on.
        self.0.peers_changed.notified()
    }

    /// Figures of a channel, while it exists.
    pub fn stats(&self, peer: PeerId) -> Option<ChannelStats> {
        self.0.tunnel.borrow().stats(peer)
    }

    /// What a channel's controller has learnt of its path by now; nothing until it is sure.
    pub fn history(&self, peer: PeerId) -> Option<PathHistory> {
        self.0.tunnel.borrow().history(peer)
    }

    /// Closes all channels, resets all flows and ends the driver; returns when that is done.
    pub async fn shut_down(&self) {
        let closed = self.0.closed.notified();
        self.0.closing.set(true);
        self.0.work.notify_one();
        // The close may get lost on the way; the other end will notice by other means.
        let _ = tokio::time::timeout(Duration::from_secs(2), closed).await;
    }
}

impl Shared {
    pub(crate) fn now(&self) -> Time {
        self.epoch.time(Instant::now())
    }

    pub(crate) fn name(&self, key: &PublicKey) -> String {
        self.names.get(key).cloned().unwrap_or_else(|| key.to_string())
    }
}

/// Owns the socket; [`run`](Driver::run) it in a `LocalSet`.
pub struct Driver {
    shared: Rc<Shared>,
    socket: Socket,
    timer: Timer,
    departures: icmp::Departures,
    client: Option<Client>,
    /// When datagrams were last read.
    last_read: Time,
    /// Do not look for datagrams before then: more will have come.
    read_again: Option<Time>,
    /// When to log next what the channels are doing.
    next_word: Time,
    /// Where TCP connections that carry are taken in; and those there are.
    listener: Option<TcpListener>,
    lines: BTreeMap<PipeId, Rc<line::Signals>>,
    /// Ends with the driver, or others would still believe that somebody is here.
    tasks: JoinSet<()>,
    bound_to: SocketAddr,
}

/// The end that connects.
struct Client {
    gateway: String,
    peer: Option<PeerId>,
    /// When to try next, or to give the present attempt up.
    next: Time,
    pause: Duration,
    is_up: bool,
}

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A handshake takes two round trips; on a bad link, several attempts at each.
const HANDSHAKE_TIME: Duration = Duration::from_secs(20);
/// Datagram batches read before flows get their turn.
const READS_PER_TURN: usize = 8;
/// Waits this short are not slept through while a train leaves.
const SPIN: Duration = Duration::from_micros(300);
/// Between two words in the log about what channels are doing.
const WORD: Duration = Duration::from_millis(250);
/// While datagrams come faster than this, they are read in bunches of this length: a wake-up for each
/// of 12,500 packets per second costs more than all the cryptography. Half of it is the mean price in
/// delay, 0.04 % of a satellite's round trip.
const BUNCH: Duration = Duration::from_micros(400);

impl Driver {
    /// Opens the socket. `names` are what to call peers in the log.
    ///
    /// # Errors
    /// When socket, keys or the gateway's name are no good.
    pub async fn start(
        role: Role,
        config: Config,
        names: BTreeMap<PublicKey, String>,
    ) -> Result<(Driver, TunnelHandle), StartError> {
        let epoch = Epoch::new(Instant::now());
        let (bind, client) = match role {
            Role::Listen(address) => (address, None),
            Role::Connect { gateway, bind } => {
                let bind = match bind {
                    Some(address) => address,
                    None => match look_up(&gateway).await {
                        Ok(remote) => icmp::any_address_for(remote),
                        // It may have an address later, of either family.
                        Err(error) => {
                            warn!("{error}; trying again");
                            either_family()
                        }
                    },
                };
                let client =
                    Client { gateway, peer: None, next: Time::ZERO, pause: FIRST_PAUSE, is_up: false };
                (bind, Some(client))
            }
        };
        let carries = config.tuning.rollback.enabled && config.tuning.rollback.carriage;
        let tunnel = Tunnel::new(config, epoch, client.is_none()).map_err(StartError::Setup)?;
        let (socket, listener) =
            open(bind, client.is_none() && carries).map_err(|error| StartError::Socket(bind, error))?;
        let bound_to = socket.local_addr().map_err(StartError::System)?;
        let shared = Rc::new(Shared {
            tunnel: RefCell::new(tunnel),
            epoch,
            work: Notify::new(),
            flows: RefCell::default(),
            incoming: RefCell::default(),
            incoming_ready: Notify::new(),
            peers_changed: Notify::new(),
            closing: Cell::new(false),
            closed: Notify::new(),
            names,
            accepted: RefCell::default(),
            exceptions: Exceptions::default(),
        });
        let timer = Timer::new().map_err(StartError::System)?;
        let handle = TunnelHandle(shared.clone());
        let driver = Driver {
            shared,
            socket,
            timer,
            departures: icmp::Departures::default(),
            client,
            last_read: Time::ZERO,
            read_again: None,
            next_word: Time::ZERO,
            listener,
            lines: BTreeMap::new(),
            tasks: JoinSet::new(),
            bound_to,
        };
        Ok((driver, handle))
    }

    /// Where the socket is bound.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Runs until [`TunnelHandle::shut_down`].
    ///
    /// # Errors
    /// When the socket or the timer fails for good.
    pub async fn run(mut self) -> io::Result<()> {
        let shared = self.shared.clone();
        if let Some(listener) = self.listener.take() {
            self.tasks.spawn_local(line::accept(shared.clone(), listener));
        }
        let mut closing = false;
        loop {
            if shared.closing.get() && !std::mem::replace(&mut closing, true) {
                let mut tunnel = shared.tunnel.borrow_mut();
                for (peer, ..) in tunnel.peers() {
                    tunnel.close(shared.now(), peer, "the other end shuts down");
                }
            }
            if !closing {
                self.connect().await;
            }
            self.dispatch();
            let writable = self.transmit()?;
            self.dispatch();
            self.tend_lines();
            if closing && writable {
                shared.closed.notify_waiters();
                return Ok(());
            }
            self.tell();
            self.set_timer()?;
            tokio::select! {
                ready = self.socket.ready(!writable), if self.read_again.is_none() || !writable => {
                    ready?;
                    self.receive()?;
                }
                fired = self.timer.fired() => {
                    fired?;
                    if self.read_again.is_some_and(|at| at <= shared.now()) {
                        self.receive()?;
                    }
                    shared.tunnel.borrow_mut().handle_timeout(shared.now());
                }
                () = shared.work.notified() => {}
            }
            self.dispatch();
            // Flows read and write between two turns of ours.
            tokio::task::yield_now().await;
        }
    }

    /// Serves TCP connections that were taken in, and lets all look whether they have something to send.
    fn tend_lines(&mut self) {
        for (pipe, stream) in self.shared.accepted.borrow_mut().drain(..) {
            let signals = Rc::<line::Signals>::default();
            self.lines.insert(pipe, signals.clone());
            self.tasks.spawn_local(line::carry(self.shared.clone(), pipe, stream, signals));
        }
        while self.tasks.try_join_next().is_some() {}
        // A task that has ended holds its signals no more.
        self.lines.retain(|_, signals| Rc::strong_count(signals) > 1);
        self.lines.values().for_each(|signals| signals.kick.notify_one());
    }

    /// Logs what the channels are doing, now and then, for whoever asked for it.
    fn tell(&mut self) {
        let now = self.shared.now();
        if now < self.next_word || !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        self.next_word = now + WORD;
        let tunnel = self.shared.tunnel.borrow();
        for (peer, key, _) in tunnel.peers() {
            let Some(stats) = tunnel.stats(peer) else { continue };
            let rate = |rate: Option<Rate>| rate.map_or("-".to_owned(), |rate| rate.to_string());
            debug!(
                "{}: {}, window {}, in flight {}, pace {}, capacity {}, free {}, queue {:?}, round trip {:?}, \
                 {} of {} packets lost, {:?}",
                self.shared.name(&key),
                stats.controller.phase,
                stats.controller.cwnd,
                stats.in_flight,
                rate(stats.controller.pacing_rate),
                rate(stats.estimates.capacity),
                rate(stats.estimates.available),
                stats.estimates.queue.unwrap_or_default(),
                stats.rtt.latest,
                stats.packets_lost,
                stats.packets_lost + stats.packets_acked,
                stats.path,
            );
        }
    }

    fn set_timer(&mut self) -> io::Result<()> {
        let tunnel = self.shared.tunnel.borrow_mut().poll_timeout();
        let client = self.client.as_ref().filter(|client| !client.is_up).map(|client| client.next);
        let at = [tunnel, client, self.read_again].into_iter().flatten().min();
        self.timer.set(at, self.shared.now())
    }

    /// Begins or gives up attempts to connect.
    async fn connect(&mut self) {
        let now = self.shared.now();
        let Some(client) = self.client.as_mut().filter(|client| !client.is_up && client.next <= now) else {
            return;
        };
        if let Some(peer) = client.peer.take() {
            warn!("{}: no answer to the handshake for {} s", client.gateway, HANDSHAKE_TIME.as_secs());
            self.shared.tunnel.borrow_mut().abandon(now, peer, "no answer".to_owned());
        }
        match look_up(&client.gateway).await {
            Ok(remote) => {
                let own = self.socket.local_addr();
                let remote = own.map_or(remote, |own| icmp::as_seen_by(own, remote));
                let mut tunnel = self.shared.tunnel.borrow_mut();
                match tunnel.connect(now, remote) {
                    Ok(peer) => {
                        debug!("connecting to {remote}");
                        client.peer = Some(peer);
                        client.next = now + HANDSHAKE_TIME;
                    }
                    Err(error) => {
                        error!("{}: {error}", client.gateway);
                        client.next = now + LONGEST_PAUSE;
                    }
                }
            }
            Err(error) => {
                warn!("{error}; trying again in {} s", LONGEST_PAUSE.as_secs());
                client.next = now + LONGEST_PAUSE;
            }
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        let shared = &self.shared;
        let began = shared.now();
        let (mut read, mut drained) = (false, false);
        for _ in 0..READS_PER_TURN {
            let mut tunnel = shared.tunnel.borrow_mut();
            let departures = &mut self.departures;
            let any = self.socket.receive(|datagram| {
                departures.heard_from(datagram.from);
                let now = shared.epoch.time(datagram.read);
                let came = datagram.age.map(|age| now - age);
                tunnel.handle_datagram(now, came, datagram.from, datagram.to, datagram.ecn, datagram.bytes);
            })?;
            if !any {
                drained = true;
                break;
            }
            read = true;
        }
        self.read_again = (read && drained && began - self.last_read < BUNCH * 2).then(|| began + BUNCH);
        if read {
            self.last_read = began;
        }
        let now = shared.now();
        for gone in self.socket.unreachable() {
            if self.departures.closed(gone, now) {
                self.departures.forget(gone);
                let mut tunnel = shared.tunnel.borrow_mut();
                let peers = tunnel.peers();
                for (peer, _, remote) in peers {
                    if icmp::canonical(remote) == icmp::canonical(gone) {
                        tunnel.unreachable(now, peer);
                    }
                }
            }
        }
        Ok(())
    }

    /// Sends what may leave; false if the socket is full.
    fn transmit(&mut self) -> io::Result<bool> {
        let mut tunnel = self.shared.tunnel.borrow_mut();
        loop {
            if !self.socket.flush()? {
                return Ok(false);
            }
            let now = self.shared.now();
            let segments = self.socket.max_segments();
            if let Some(batch) = tunnel.poll_transmit(now, segments, self.socket.buffer()) {
                self.socket.queue(batch);
                continue;
            }
            let Some(at) = tunnel.train_departure().filter(|at| *at <= now + SPIN) else {
                return Ok(true);
            };
            // No timer wakes this thread on time: 80 us apart are the packets of a train at 150 Mbit/s, and it would
            // sleep twice as long. A train takes 2 ms, four times per round trip.
            while self.shared.now() < at {
                std::hint::spin_loop();
            }
            tunnel.handle_timeout(self.shared.now());
        }
    }

    /// Tells everybody what happened.
    fn dispatch(&mut self) {
        let shared = self.shared.clone();
        loop {
            let Some(event) = shared.tunnel.borrow_mut().poll_event() else { return };
            match event {
                Event::Up { peer, key, remote } => {
                    info!("channel to {} at {} is up", shared.name(&key), icmp::canonical(remote));
                    if let Some(client) = self.client.as_mut().filter(|client| client.peer == Some(peer)) {
                        client.is_up = true;
                        client.pause = FIRST_PAUSE;
                    }
                    shared.peers_changed.notify_waiters();
                }
                Event::Down { peer, remote, reason } => self.down(peer, remote, &reason),
                Event::Standing { peer, standing, why } => {
                    let key = shared.tunnel.borrow().peers().into_iter().find(|(id, ..)| *id == peer);
                    let name = key.map_or_else(String::new, |(_, key, _)| shared.name(&key));
                    if why != Trouble::Healthy {
                        shared.exceptions.note(Exception::Channel(why), &name);
                    }
                    match standing {
                        Standing::Up => info!("channel to {name}: {why}; it is {standing}"),
                        _ => warn!("channel to {name}: {why}; it is {standing}"),
                    }
                    shared.peers_changed.notify_waiters();
                }
                Event::Dial { pipe, remote } => {
                    let signals = Rc::<line::Signals>::default();
                    self.lines.insert(pipe, signals.clone());
                    let from = self.bound_to.ip();
                    self.tasks.spawn_local(line::dial(shared.clone(), pipe, remote, Some(from), signals));
                }
                Event::HangUp { pipe } => {
                    if let Some(signals) = self.lines.remove(&pipe) {
                        signals.over.set(true);
                        signals.kick.notify_one();
                    }
                }
                Event::EcnLost { peer } => {
                    let key = shared.tunnel.borrow().peers().into_iter().find(|(id, ..)| *id == peer);
                    let name = key.map_or_else(String::new, |(_, key, _)| shared.name(&key));
                    shared.exceptions.note(Exception::EcnLost, &format!("channel to {name}"));
                }
                Event::Moved { peer, from, to } => self.moved(peer, from, to),
                Event::SeenAt { before, address, .. } => {
                    let address = icmp::canonical(address);
                    match before.map(icmp::canonical) {
                        Some(before) if before != address => info!(
                            "this end's address, as the other sees it, has changed from {before} to {address}; \
                             the channel goes on"
                        ),
                        _ => debug!("the other end sees this one at {address}"),
                    }
                }
                Event::KeyRefused { offered } => {
                    warn!("refused a peer with unknown key {offered}");
                }
                Event::Opened { flow, open } => {
                    let key = shared.tunnel.borrow().peers().into_iter().find(|(id, ..)| *id == flow.peer);
                    let Some((_, key, _)) = key else { continue };
                    shared.flows.borrow_mut().add(flow);
                    let incoming = Incoming::new(TunnelHandle(shared.clone()), flow, open, key);
                    shared.incoming.borrow_mut().push_back(incoming);
                    shared.incoming_ready.notify_one();
                }
                Event::Accepted { flow } => shared.flows.borrow_mut().verdict(flow, Ok(())),
                Event::Refused { flow, why } => shared.flows.borrow_mut().verdict(flow, Err(why)),
                Event::Readable { flow } => shared.flows.borrow_mut().readable(flow),
                Event::Writable { flow } => shared.flows.borrow_mut().writable(flow),
                Event::Reset { flow } => shared.flows.borrow_mut().reset(flow),
            }
        }
    }

    /// A peer's NAT has given it another address, or it has another way to the network.
    fn moved(&mut self, peer: PeerId, from: SocketAddr, to: SocketAddr) {
        // What ICMP says of the old address is no news of the peer any more.
        self.departures.forget(from);
        let key = self.shared.tunnel.borrow().peers().into_iter().find(|(id, ..)| *id == peer);
        let name = key.map_or_else(|| "a peer".to_owned(), |(_, key, _)| self.shared.name(&key));
        let (from, to) = (icmp::canonical(from), icmp::canonical(to));
        self.shared.exceptions.note(Exception::Moved, &name);
        info!("{name} has moved from {from} to {to}; its channel goes on");
        self.shared.peers_changed.notify_waiters();
    }

    fn down(&mut self, peer: PeerId, remote: SocketAddr, reason: &DownReason) {
        let remote = icmp::canonical(remote);
        match reason {
            DownReason::Closed => info!("channel to {remote} is down: {reason}"),
            DownReason::KeyRefused(_) => error!("channel to {remote} is down: {reason}"),
            _ => warn!("channel to {remote} is down: {reason}"),
        }
        self.shared.peers_changed.notify_waiters();
        let now = self.shared.now();
        if let Some(client) = self.client.as_mut().filter(|client| client.peer == Some(peer)) {
            client.peer = None;
            client.is_up = false;
            client.next = now + client.pause;
            client.pause = (client.pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Where to listen when the other end's family is not known: for both, on a host that has both.
fn either_family() -> SocketAddr {
    let both = SocketAddr::from(([0u16; 8], 0));
    match std::net::UdpSocket::bind(both) {
        Ok(_) => both,
        Err(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
    }
}

/// Opens UDP and, where asked for, the TCP port of the same number for the roll back's connections; without
/// the latter, channels have UDP only. When the system chooses the number, it is one that is free for both.
fn open(bind: SocketAddr, takes_tcp: bool) -> io::Result<(Socket, Option<TcpListener>)> {
    let mut attempts = if bind.port() == 0 { 16 } else { 1 };
    loop {
        let socket = Socket::bind(bind)?;
        if !takes_tcp {
            return Ok((socket, None));
        }
        let address = socket.local_addr()?;
        attempts -= 1;
        match line::listen(address) {
            Ok(listener) => return Ok((socket, Some(listener))),
            Err(_) if attempts > 0 => {}
            Err(error) => {
                warn!("TCP {address}: {error}; channels have no way round where UDP is blocked");
                return Ok((socket, None));
            }
        }
    }
}

async fn look_up(gateway: &str) -> Result<SocketAddr, StartError> {
    let name = |error| StartError::Name(gateway.to_owned(), error);
    let mut found = tokio::net::lookup_host(gateway).await.map_err(name)?;
    found.next().ok_or_else(|| name(io::Error::other("the name has no address")))
}
