//! One end of the accelerator: an endpoint with its peers, their channels and flows, without a socket
//! and without a clock. Datagrams and times come in, datagrams and events go out; live it is driven by
//! sockets, in tests by a virtual clock and simulated links.

mod budget;
mod event;
mod flows;
mod names;
mod roll;
mod sending;

pub use budget::Holdings;
pub use event::{DownReason, Event, FlowId, PeerId};
pub use roll::PipeId;

use crate::auth::tls::{self, RefusedKeys, SERVER_NAME};
use crate::auth::{PublicKey, SecretKey};
use crate::channel::{datagram_size, prepare, Arrival, Channel, ChannelStats, Epoch, Prepared, Tuning};
use crate::limits::{Budget, Bypass, Split};
use crate::rollback::wire::{ChannelName, Word};
use crate::session::{code, Memory, Session, SessionEvent};
use crate::shim::{Header, Kind, HEADER};
use bytes::{Buf, BytesMut};
use names::Names;
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, ConnectionError, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint, EndpointConfig,
    Event as QuicEvent, Incoming, ServerConfig, Transmit,
};
use roll::{Pipe, Rolling};
use skyhaul_cc::{Bytes, Controller, Duration, PathHistory, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Makes a controller for each new connection. It is asked twice: when the connection begins, and when the
/// other end has shown its key; only the second controller carries data.
pub type ControllerFactory = Arc<dyn Fn(&Way) -> Box<dyn Controller> + Send + Sync>;

/// Where a connection leads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    /// The other end's key, once it is proven.
    pub peer: Option<PublicKey>,
    /// The other end's address.
    pub remote: SocketAddr,
    /// What this very connection had learnt of its path before it left it for another.
    pub history: Option<PathHistory>,
}

/// What one end is made of.
#[derive(Clone)]
pub struct Config {
    /// This end's key.
    pub secret: SecretKey,
    /// Keys of the other ends that may connect; for the end that connects, the one it connects to.
    pub peers: Vec<PublicKey>,
    /// The congestion controller of this end's sending direction.
    pub controller: ControllerFactory,
    /// Channel settings.
    pub tuning: Tuning,
    /// Memory for the data of all flows of all channels, see [`crate::limits::budget`].
    pub memory: Bytes,
    /// Seed for what QUIC draws by chance (connection IDs, skipped packet numbers): random numbers of the operating
    /// system, new ones for every start; the same ones where a run is to be repeated to the last packet.
    pub seed: [u8; 32],
}

/// A tunnel that could not be set up.
#[derive(Debug)]
pub struct SetupError(String);

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for SetupError {}

fn setup_error(what: &'static str) -> impl Fn(&dyn fmt::Display) -> SetupError {
    move |error| SetupError(format!("{what}: {error}"))
}

/// Datagrams to send: `segment` bytes each but for the last, in one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Where to.
    pub destination: SocketAddr,
    /// From which of our addresses, if that matters.
    pub source: Option<IpAddr>,
    /// ECN bits.
    pub ecn: Option<EcnCodepoint>,
    /// Size of each datagram but the last, which may be smaller.
    pub segment: usize,
}

struct Peer {
    session: Session,
    handle: ConnectionHandle,
    remote: SocketAddr,
    key: Option<PublicKey>,
    up: bool,
    /// Down was reported; kept until quinn-proto has drained the connection.
    down: bool,
    /// This end connected.
    client: bool,
    /// Until then the handshake must be through.
    deadline: Time,
    rolling: Rolling,
    /// When a datagram of the connection came last.
    heard: Time,
    /// Where the other end sees this one.
    seen_at: Option<SocketAddr>,
    /// What goes there is marked for ECN.
    marks: bool,
}

impl Peer {
    /// Nothing is lost if this end forgets the channel: the other end has to connect, and nothing is carried.
    fn may_be_forgotten(&self) -> bool {
        self.up && !self.down && !self.client && self.session.flow_count() == 0
    }

    fn is_late(&self, now: Time) -> bool {
        !self.up && !self.down && now >= self.deadline
    }
}

/// A handshake is two round trips; whoever needs longer than this with all repetitions is not coming.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// With so many handshakes under way, a stranger must first show that it receives at its address
/// (RFC 9000 §8.1.2) …
const VALIDATE_ABOVE: usize = 16;
/// … and with so many, wait.
const HANDSHAKES: usize = 256;

/// One end of the accelerator.
pub struct Tunnel {
    endpoint: Endpoint,
    config: Config,
    epoch: Epoch,
    server_tls: Option<Arc<QuicServerConfig>>,
    refused_keys: RefusedKeys,
    peers: BTreeMap<PeerId, Peer>,
    by_handle: BTreeMap<usize, PeerId>,
    next_peer: u64,
    events: VecDeque<Event>,
    /// Stateless answers (resets, version negotiation, refusals).
    responses: VecDeque<(Transmit, Vec<u8>)>,
    /// A datagram that did not fit into the last batch.
    held_back: Option<(PeerId, Transmit, Vec<u8>)>,
    /// Peers with something to send, in turn.
    active: VecDeque<PeerId>,
    marked: BTreeSet<PeerId>,
    /// Peers that have heard something since the last look: datagrams come in bunches, and one look
    /// after a bunch costs a fraction of one after each.
    unsettled: BTreeSet<PeerId>,
    now: Time,
    /// TCP connections that carry, and whose channel is whose.
    pipes: BTreeMap<PipeId, Pipe>,
    next_pipe: u64,
    by_channel: BTreeMap<ChannelName, PeerId>,
    /// Words outside QUIC that wait to leave by UDP.
    words: VecDeque<(SocketAddr, Vec<u8>)>,
    budget: Budget<PeerId>,
    /// Connections beside the channels.
    bypass: Bypass,
    next_look: Time,
    /// What was turned away.
    counts: Holdings,
}

impl Tunnel {
    /// An end that waits for others to connect if `listen`, and can connect in any case.
    ///
    /// # Errors
    /// When the keys cannot be used.
    pub fn new(config: Config, epoch: Epoch, listen: bool) -> Result<Self, SetupError> {
        let refused_keys = RefusedKeys::default();
        // Both derive from the secret key, so that a restarted end recognises what its former self
        // has begun and ends it at once with a stateless reset (RFC 9000 §10.3).
        let derived = ring::digest::digest(&ring::digest::SHA256, config.secret.pkcs8());
        let derived = derived.as_ref();
        let reset_key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, derived);
        let (name_key, seed) = (reset_key.clone(), config.seed);
        let mut endpoint_config = EndpointConfig::new(Arc::new(reset_key));
        endpoint_config
            .cid_generator(move || Box::new(Names::new(&name_key, &seed)))
            .rng_seed(Some(seed))
            // The bit tells QUIC from datagrams of the shim (RFC 9287 would make it vary).
            .grease_quic_bit(false)
            .max_udp_payload_size(datagram_size(config.tuning.mtu, false))
            .map_err(|error| setup_error("mtu")(&error))?;
        let server_tls = if listen {
            let tls = tls::server(&config.secret, &config.peers, &refused_keys)
                .map_err(|error| setup_error("keys")(&error))?;
            Some(Arc::new(QuicServerConfig::try_from(tls).map_err(|error| setup_error("keys")(&error))?))
        } else {
            None
        };
        let server = server_tls.clone().map(|tls| Arc::new(ServerConfig::with_crypto(tls)));
        let endpoint = Endpoint::new(Arc::new(endpoint_config), server, false, Some(seed));
        let split = Split::of(config.memory, config.tuning.flows as usize);
        Ok(Tunnel {
            budget: Budget::new(split, config.peers.len()),
            bypass: Bypass::default(),
            next_look: Time::ZERO,
            counts: Holdings::default(),
            endpoint,
            config,
            epoch,
            server_tls,
            refused_keys,
            peers: BTreeMap::new(),
            by_handle: BTreeMap::new(),
            next_peer: 0,
            events: VecDeque::new(),
            responses: VecDeque::new(),
            held_back: None,
            active: VecDeque::new(),
            marked: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            now: Time::ZERO,
            pipes: BTreeMap::new(),
            next_pipe: 0,
            by_channel: BTreeMap::new(),
            words: VecDeque::new(),
        })
    }

    /// Begins a channel to `remote`, whose key is the first of the configured peers.
    ///
    /// # Errors
    /// When there is no such key or the address cannot be one of a peer.
    pub fn connect(&mut self, now: Time, remote: SocketAddr) -> Result<PeerId, SetupError> {
        let key = *self.config.peers.first().ok_or_else(|| SetupError("no peer key".to_owned()))?;
        let tls = tls::client(&self.config.secret, key, &self.refused_keys)
            .map_err(|error| setup_error("keys")(&error))?;
        let tls = QuicClientConfig::try_from(tls).map_err(|error| setup_error("keys")(&error))?;
        let prepared = prepare(&self.config.tuning, is_v6(remote));
        let mut client = ClientConfig::new(Arc::new(tls));
        client.transport_config(prepared.transport.clone());
        let (handle, conn) = self
            .endpoint
            .connect(self.epoch.instant(now), client, remote, SERVER_NAME)
            .map_err(|error| setup_error("connect")(&error))?;
        Ok(self.add(now, handle, conn, prepared, true))
    }

    fn add(
        &mut self,
        now: Time,
        handle: ConnectionHandle,
        conn: quinn_proto::Connection,
        prepared: Prepared,
        client: bool,
    ) -> PeerId {
        let peer = PeerId(self.next_peer);
        self.next_peer += 1;
        let remote = conn.remote_address();
        let controller = (self.config.controller)(&Way { peer: None, remote, history: None });
        let channel = Channel::new(conn, prepared, controller, self.config.tuning, self.epoch);
        // Strangers have none; see `begin_session`.
        let session = Session::new(channel, Memory { floor: 0, pool: 0 });
        self.by_handle.insert(handle.0, peer);
        self.peers.insert(
            peer,
            Peer {
                session,
                handle,
                remote,
                key: None,
                up: false,
                down: false,
                client,
                deadline: now + HANDSHAKE,
                rolling: Rolling::default(),
                heard: now,
                seen_at: None,
                marks: true,
            },
        );
        self.mark(peer);
        peer
    }

    fn mark(&mut self, peer: PeerId) {
        if self.marked.insert(peer) {
            self.active.push_back(peer);
        }
    }

    /// A datagram came in; `received_at` is when the system says it did, where that is known better than
    /// by `now`.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        received_at: Option<Time>,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        ecn: Option<EcnCodepoint>,
        mut data: BytesMut,
    ) {
        let mut response = Vec::new();
        self.now = self.now.max(now);
        let mut arrival = None;
        if Word::is_there(&data) {
            return self.handle_word(now, remote, &data);
        }
        if Header::is_there(&data) {
            let Some(header) = Header::decode(&data) else { return };
            // A copy says nothing of the packet that it is a copy of.
            if header.kind == Kind::Packet {
                arrival = Some(Arrival { header, at: received_at.unwrap_or(now) });
            }
            data.advance(HEADER);
        }
        let instant = self.epoch.instant(now);
        match self.endpoint.handle(instant, remote, local_ip, ecn, data, &mut response) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let Some(&peer) = self.by_handle.get(&handle.0) else { return };
                if let Some(entry) = self.peers.get_mut(&peer) {
                    entry.rolling.heard(now, false);
                    entry.heard = now;
                    entry.session.handle_event(now, event, arrival);
                    self.unsettled.insert(peer);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.welcome(now, incoming),
            Some(DatagramEvent::Response(transmit)) => self.respond(transmit, response),
            None => {}
        }
    }

    fn respond(&mut self, transmit: Transmit, bytes: Vec<u8>) {
        // Answers to strangers are worth little; a flood of them is worth nothing.
        if self.responses.len() < 256 {
            self.responses.push_back((transmit, bytes));
        }
    }

    fn welcome(&mut self, now: Time, incoming: Incoming) {
        let mut response = Vec::new();
        let Some(tls) = self.server_tls.clone() else {
            self.endpoint.ignore(incoming);
            return;
        };
        let under_way = self.peers.values().filter(|entry| !entry.up && !entry.down).count();
        if under_way >= HANDSHAKES {
            self.endpoint.ignore(incoming);
            return;
        }
        if under_way >= VALIDATE_ABOVE && !incoming.remote_address_validated() && incoming.may_retry() {
            if let Ok(transmit) = self.endpoint.retry(incoming, &mut response) {
                self.respond(transmit, response);
            }
            return;
        }
        let prepared = prepare(&self.config.tuning, is_v6(incoming.remote_address()));
        let mut server = ServerConfig::with_crypto(tls);
        server.transport_config(prepared.transport.clone());
        match self.endpoint.accept(incoming, self.epoch.instant(now), &mut response, Some(Arc::new(server))) {
            Ok((handle, conn)) => {
                let peer = self.add(now, handle, conn, prepared, false);
                self.after(now, peer);
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.respond(transmit, response);
                }
            }
        }
    }

    /// Time passed: call when [`poll_timeout`](Self::poll_timeout) says so, early calls do no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        let all: Vec<PeerId> = self.peers.keys().copied().collect();
        for peer in all {
            if let Some(entry) = self.peers.get_mut(&peer) {
                entry.session.channel().handle_timeout(now);
                if entry.is_late(now) {
                    self.abandon(now, peer, "the handshake did not end in time".to_owned());
                }
                self.after(now, peer);
            }
        }
        self.dismiss_strangers(now);
        self.look(now);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) and [`poll_transmit`](Self::poll_transmit)
    /// next, if nothing else happens.
    pub fn poll_timeout(&mut self) -> Option<Time> {
        let strangers = self.strangers_due();
        let look = self.look_at();
        let wakes = self.peers.values_mut().filter_map(|entry| entry.next_wake(&self.pipes));
        wakes.chain(strangers).chain(look).min()
    }

    /// Works off what connections have to say since the last look.
    fn settle(&mut self) {
        while let Some(peer) = self.unsettled.pop_first() {
            self.after(self.now, peer);
        }
    }

    /// Works off what a connection has to say.
    fn after(&mut self, now: Time, peer: PeerId) {
        self.mark(peer);
        while let Some(entry) = self.peers.get_mut(&peer) {
            let Some(event) = entry.session.channel().conn().poll() else { break };
            match event {
                QuicEvent::Connected => {
                    let identity = entry.session.channel().conn_ref().crypto_session().peer_identity();
                    entry.key = identity.and_then(|identity| peer_key(identity.as_ref()));
                    self.begin_session(now, peer);
                }
                QuicEvent::ConnectionLost { reason } => {
                    let client = entry.client;
                    let reason = self.why(reason, client);
                    self.down(peer, reason);
                }
                QuicEvent::Stream(event) => entry.session.handle_stream(event),
                QuicEvent::DatagramReceived => entry.session.handle_messages(now),
                _ => {}
            }
        }
        self.follow_peer(now, peer);
        self.session_events(now, peer);
        self.watch_over(now, peer);
        self.endpoint_events(peer);
        let refused: Vec<String> =
            std::mem::take(&mut *self.refused_keys.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        for offered in refused {
            self.events.push_back(Event::KeyRefused { offered });
        }
    }

    fn endpoint_events(&mut self, peer: PeerId) {
        let Some(entry) = self.peers.get_mut(&peer) else { return };
        while let Some(event) = entry.session.channel().conn().poll_endpoint_events() {
            let drained = event.is_drained();
            if let Some(event) = self.endpoint.handle_event(entry.handle, event) {
                entry.session.channel().conn().handle_event(event);
            }
            if drained {
                self.by_handle.remove(&entry.handle.0);
                if let Some(name) = entry.rolling.name() {
                    self.by_channel.remove(&name);
                }
                self.peers.remove(&peer);
                return;
            }
        }
    }

    fn session_events(&mut self, now: Time, peer: PeerId) {
        while let Some(entry) = self.peers.get_mut(&peer) {
            let Some(event) = entry.session.poll_event() else { return };
            let flow = |stream| FlowId { peer, stream };
            let event = match event {
                SessionEvent::Ready => {
                    self.ready(now, peer);
                    continue;
                }
                SessionEvent::Violated { what } => {
                    self.down(peer, DownReason::Violation(what));
                    continue;
                }
                SessionEvent::Kept { sequence, pool } => {
                    self.heard_kept(now, peer, sequence, pool);
                    continue;
                }
                SessionEvent::SeenAt { address } => {
                    self.seen_at(peer, address);
                    continue;
                }
                SessionEvent::Opened { stream, .. } if !self.greet_flow(peer, stream) => continue,
                SessionEvent::Opened { stream, open } => Event::Opened { flow: flow(stream), open },
                SessionEvent::Accepted { stream } => Event::Accepted { flow: flow(stream) },
                SessionEvent::Refused { stream, why } => Event::Refused { flow: flow(stream), why },
                SessionEvent::Readable { stream } => Event::Readable { flow: flow(stream) },
                SessionEvent::Writable { stream } => Event::Writable { flow: flow(stream) },
                SessionEvent::Reset { stream } => Event::Reset { flow: flow(stream) },
            };
            if self.peers.get(&peer).is_some_and(|entry| !entry.down) {
                self.events.push_back(event);
            }
        }
    }

    fn ready(&mut self, now: Time, peer: PeerId) {
        let Some(entry) = self.peers.get_mut(&peer) else { return };
        let Some(key) = entry.key else {
            entry.session.channel().close(now, code::VIOLATION, "no key");
            return self.down(peer, DownReason::Violation("no key"));
        };
        entry.up = true;
        let remote = entry.remote;
        if !entry.client {
            entry.session.tell_address(remote);
        }
        let way = Way { peer: Some(key), remote, history: None };
        entry.session.channel().begin_with((self.config.controller)(&way));
        entry.rolling =
            Rolling::begin(now, entry.session.channel(), self.config.tuning.rollback, entry.client);
        if let Some(name) = entry.rolling.name() {
            self.by_channel.insert(name, peer);
        }
        self.events.push_back(Event::Up { peer, key, remote });
        // A peer that connects anew has lost its old channel, whatever we think of it.
        let old: Vec<PeerId> = (self.peers.iter())
            .filter(|(&id, other)| id != peer && other.key == Some(key) && !other.down)
            .map(|(&id, _)| id)
            .collect();
        for id in old {
            if let Some(entry) = self.peers.get_mut(&id) {
                entry.session.channel().close(now, code::REPLACED, "connected anew");
            }
            self.down(id, DownReason::Replaced);
        }
    }

    fn down(&mut self, peer: PeerId, reason: DownReason) {
        let Some(entry) = self.peers.get_mut(&peer) else { return };
        if std::mem::replace(&mut entry.down, true) {
            return;
        }
        entry.up = false;
        let remote = entry.remote;
        for stream in entry.session.streams() {
            self.events.push_back(Event::Reset { flow: FlowId { peer, stream } });
        }
        self.events.push_back(Event::Down { peer, remote, reason });
        self.end_pipe(peer);
        self.end_session(peer);
        self.mark(peer);
    }

    fn why(&self, reason: ConnectionError, client: bool) -> DownReason {
        match reason {
            ConnectionError::ApplicationClosed(close) => {
                DownReason::ClosedByPeer(String::from_utf8_lossy(&close.reason).into_owned())
            }
            ConnectionError::ConnectionClosed(close) if is_alert(close.error_code) => {
                DownReason::KeyRefused(if client {
                    "the other end does not know this end's key".to_owned()
                } else {
                    "the other end expects another key than this end's".to_owned()
                })
            }
            ConnectionError::TransportError(error) if is_alert(error.code) => {
                DownReason::KeyRefused("the key offered is not among the peers configured here".to_owned())
            }
            ConnectionError::Reset => DownReason::PeerRestarted,
            ConnectionError::LocallyClosed => DownReason::Closed,
            other => DownReason::Failed(other.to_string()),
        }
    }

    /// Closes a channel; its flows are reset.
    pub fn close(&mut self, now: Time, peer: PeerId, reason: &'static str) {
        if let Some(entry) = self.peers.get_mut(&peer) {
            entry.session.channel().close(now, code::DONE, reason);
            self.down(peer, DownReason::Closed);
            self.after(now, peer);
        }
    }

    /// Closes a channel whose other end is known to be gone: nothing is sent to it any more.
    pub fn abandon(&mut self, now: Time, peer: PeerId, why: String) {
        self.down(peer, DownReason::Failed(why));
        if let Some(entry) = self.peers.get_mut(&peer) {
            entry.session.channel().close(now, code::DONE, "gone");
        }
    }

    /// What happened since the last call.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.settle();
        self.events.pop_front()
    }

    /// Channels that are up.
    pub fn peers(&self) -> Vec<(PeerId, PublicKey, SocketAddr)> {
        (self.peers.iter())
            .filter(|(_, entry)| entry.up)
            .filter_map(|(&id, entry)| Some((id, entry.key?, entry.remote)))
            .collect()
    }

    /// Figures of a channel, while it exists.
    pub fn stats(&self, peer: PeerId) -> Option<ChannelStats> {
        (self.peers.get(&peer))
            .map(|entry| ChannelStats { rollback: entry.rolling.stats(), ..entry.session.stats() })
    }

    /// What a channel's controller has learnt of its path by now, for the next connection there; nothing
    /// until it is sure.
    pub fn history(&self, peer: PeerId) -> Option<PathHistory> {
        self.peers.get(&peer).and_then(|entry| entry.session.history())
    }

    /// Flow data in memory here, over all channels: received and not passed on, taken and not sent.
    pub fn held(&self) -> (Bytes, Bytes) {
        let sums = self.peers.values().map(|entry| entry.session.held());
        let (held, queued) = sums.fold((0, 0), |(a, b), (held, queued)| (a + held, b + queued));
        (Bytes(held), Bytes(queued))
    }

    /// Flows open on all channels.
    pub fn flow_count(&self) -> usize {
        self.peers.values().filter(|entry| !entry.down).map(|entry| entry.session.flow_count()).sum()
    }
}

fn batch(transmit: &Transmit) -> Batch {
    Batch {
        destination: transmit.destination,
        source: transmit.src_ip,
        ecn: transmit.ecn,
        segment: transmit.size,
    }
}

fn is_v6(address: SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.to_ipv4_mapped().is_none(),
    }
}

/// TLS alerts travel as QUIC errors 0x100 to 0x1ff (RFC 9001 §4.8).
fn is_alert(code: quinn_proto::TransportErrorCode) -> bool {
    (0x100..0x200).contains(&u64::from(code))
}

fn peer_key(identity: &dyn std::any::Any) -> Option<PublicKey> {
    let certificates = identity.downcast_ref::<Vec<rustls::pki_types::CertificateDer<'static>>>()?;
    PublicKey::from_spki(certificates.first()?).ok()
}
