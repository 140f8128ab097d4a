//! The real accelerator in virtual time: two [`Tunnel`]s, TLS and all, over two simulated links.
//!
//! A minute of a satellite link costs a few seconds of CPU and comes out the same for the same seed, to
//! the last packet.

mod carriage;

pub use carriage::{Filter, Passage, TcpAnswer, TcpModel};

use crate::clock::Events;
use crate::link::{Counters, Fate, Link};
use crate::play::history;
use crate::scenario::{Dir, Scenario};
use bytes::{Bytes as Data, BytesMut};
use carriage::{Conn, Segment};
use skyhaul_cc::registry::{self, Contender, UnknownController};
use skyhaul_cc::{Bytes, Duration, Rate, Setup, Time};
use skyhaul_pep::auth::SecretKey;
use skyhaul_pep::frame::{Class, Open, Refusal, Target};
use skyhaul_pep::{
    Config, Epoch, Event, FlowId, PeerId, Read, SetupError, Standing, Trouble, Tuning, Tunnel,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// IP and UDP headers of one datagram.
const HEADERS: u64 = 28;
/// Length of the test pattern: a prime, so that no power-of-two mistake goes unseen.
const PATTERN: usize = 65_521;

/// One TCP connection to carry.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Which way the data goes; the sending end opens the flow.
    pub data: Dir,
    /// When it is opened; not before the channel is up.
    pub start: Time,
    /// How much is sent; `u64::MAX` never ends.
    pub bytes: u64,
    /// Size of the application's writes.
    pub write: usize,
    /// What the receiving application does.
    pub reader: Reader,
    /// How urgent it is.
    pub class: Class,
}

impl Transfer {
    /// `bytes` at time zero, written in 64 KiB pieces, read at once, of the normal class.
    pub fn new(data: Dir, bytes: u64) -> Self {
        let (write, reader, class) = (64 * 1024, Reader::Eager, Class::Normal);
        Transfer { data, start: Time::ZERO, bytes, write, reader, class }
    }
}

/// What a receiving application does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Reads whatever comes.
    Eager,
    /// Takes a piece when it is done with the one before, at this rate.
    Paced(Rate),
    /// Never reads.
    Stopped,
    /// Refuses the connection.
    Refuses(Refusal),
}

/// What became of a transfer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// The sending end opened the flow.
    pub opened: Option<Time>,
    /// The sending end heard that the destination is connected.
    pub accepted: Option<Time>,
    /// The first byte reached the receiving application.
    pub first_byte: Option<Time>,
    /// The last byte and the end reached the receiving application.
    pub finished: Option<Time>,
    /// The sending end was refused.
    pub refused: Option<Refusal>,
    /// Either end saw the flow reset.
    pub reset: Option<Time>,
    /// Bytes the receiving application has.
    pub delivered: u64,
    /// Bytes the sending application has handed over.
    pub written: u64,
    /// Some byte was wrong.
    pub corrupt: bool,
}

impl Outcome {
    /// Delivered bytes over the time from opening to the end, if it came.
    pub fn goodput(&self) -> Option<skyhaul_cc::Rate> {
        Some(Bytes(self.delivered).per(self.finished? - self.opened?))
    }
}

/// What one run was told.
pub struct Plan {
    /// Terminal side; it connects.
    pub terminal: Config,
    /// Gateway side; it listens.
    pub gateway: Config,
    /// Seed of the links.
    pub seed: u64,
}

impl Plan {
    /// Both ends with the same contender ([`Contender`]: `cubic`, `skyhaul`, `skyhaul/warm`), each told of its
    /// direction what that start says, and the round trip; their memory is 256 MiB, the keys are the same for
    /// every plan.
    ///
    /// # Errors
    /// When there is no such contender.
    pub fn new(scenario: &Scenario, contender: &str, seed: u64) -> Result<Plan, UnknownController> {
        let contender: Contender = contender.parse()?;
        let (terminal, gateway) = (key(1), key(2));
        let rtt = scenario.rtt();
        let config = |secret: &SecretKey, peer: &SecretKey, dir: Dir| -> Result<Config, UnknownController> {
            let rate = scenario.direction(dir).rate;
            let initial_window = PACKET * registry::first_flight(&contender.controller);
            let setup = Setup { initial_rtt: rtt, initial_window, ..Setup::new(PACKET) };
            let setup = contender.setup(setup, rate, history(scenario, dir, rate));
            let controller = registry::build(&contender.controller, &setup)?;
            Ok(Config {
                secret: secret.clone(),
                peers: vec![peer.public()],
                controller: Arc::new(move |_| controller.clone()),
                tuning: Tuning { initial_rtt: rtt, ..Tuning::default() },
                memory: Bytes::mib(256),
                seed: [1 + index(dir) as u8; 32],
            })
        };
        Ok(Plan {
            terminal: config(&terminal, &gateway, Dir::Forward)?,
            gateway: config(&gateway, &terminal, Dir::Back)?,
            seed,
        })
    }
}

/// Largest IP packet of the path.
const PACKET: Bytes = Bytes(1500);

/// A key that protects nothing: an Ed25519 seed of one byte repeated, in PKCS#8 (RFC 8410 §7).
fn key(byte: u8) -> SecretKey {
    let mut der = vec![0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    der.extend_from_slice(&[byte; 32]);
    SecretKey::from_pkcs8(&der).expect("a well-formed key")
}

struct End {
    tunnel: Tunnel,
    address: SocketAddr,
    peer: Option<PeerId>,
    up: Option<Time>,
    down: Option<String>,
    /// Its program is gone …
    dead: bool,
    /// … and its system answers nobody.
    mute: bool,
    /// When ICMP first said to it that nobody listens at the other end.
    rejected: Option<Time>,
    /// When and why its channel fared differently.
    standings: Vec<(Time, Standing, Trouble)>,
    flows: BTreeMap<FlowId, (usize, Part)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Sends,
    Receives,
}

/// What an end hears of.
enum Arrival {
    /// A datagram, and the address it seems to come from.
    Datagram(SocketAddr, Vec<u8>),
    /// ICMP port unreachable.
    Icmp,
    /// Of a TCP connection.
    Tcp(usize, Segment),
}

/// Holds a datagram back: direction and number of the datagram in that direction to extra delay.
pub type Meddler = Box<dyn FnMut(Dir, u64) -> Duration>;

/// When the machine that both ends and the link's emulator run on goes on, if it stands still at this time.
pub type Stillness = Box<dyn FnMut(Time) -> Time>;

/// Two ends and the links between them.
pub struct Pair {
    ends: [End; 2],
    /// Of which an end that starts again is made.
    configs: [Config; 2],
    epoch: Epoch,
    links: [Link; 2],
    air: Events<(usize, Arrival)>,
    /// Pieces that paced readers are at: end, flow, transfer and bytes.
    at_readers: Events<(usize, FlowId, usize, Data)>,
    /// Transfers whose reader is at a piece.
    reading: BTreeSet<usize>,
    now: Time,
    transfers: Vec<Transfer>,
    outcomes: Vec<Outcome>,
    pattern: Data,
    meddler: Option<Meddler>,
    stillness: Option<Stillness>,
    datagrams: [u64; 2],
    peak_held: [u64; 2],
    filter: Option<Filter>,
    tcp: TcpModel,
    conns: Vec<Conn>,
    carried: [u64; 2],
}

/// Two messages of ICMP this far apart are believed.
const CONFIRM: Duration = Duration::from_millis(300);

const TERMINAL: usize = 0;
const GATEWAY: usize = 1;

impl Pair {
    /// Builds both ends and begins the handshake at time zero.
    ///
    /// # Errors
    /// When an end cannot be set up with its keys.
    pub fn new(scenario: &Scenario, plan: Plan, transfers: Vec<Transfer>) -> Result<Self, SetupError> {
        // tidy: allow(pure): quinn-proto wants an `Instant`; only differences of it are ever used.
        #[allow(clippy::disallowed_methods)]
        let epoch = Epoch::new(std::time::Instant::now());
        let address = |n| SocketAddr::from((Ipv4Addr::new(10, 77, 0, n), 4433));
        let configs = [plan.terminal, plan.gateway];
        let end = |side: usize, n| -> Result<End, SetupError> {
            let tunnel = Tunnel::new(configs[side].clone(), epoch, side == GATEWAY)?;
            let (address, flows, standings) = (address(n), BTreeMap::new(), Vec::new());
            let (peer, up, down, rejected) = (None, None, None, None);
            let (dead, mute) = (false, false);
            Ok(End { tunnel, address, peer, up, down, dead, mute, rejected, standings, flows })
        };
        let mut ends = [end(TERMINAL, 1)?, end(GATEWAY, 2)?];
        ends[TERMINAL].tunnel.connect(Time::ZERO, address(2))?;
        let outcomes = vec![Outcome::default(); transfers.len()];
        let pattern: Vec<u8> =
            (0..2 * PATTERN).map(|i| ((i % PATTERN).wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut pair = Pair {
            ends,
            configs,
            epoch,
            links: [scenario.link(Dir::Forward, plan.seed), scenario.link(Dir::Back, plan.seed)],
            air: Events::new(),
            at_readers: Events::new(),
            reading: BTreeSet::new(),
            now: Time::ZERO,
            transfers,
            outcomes,
            pattern: pattern.into(),
            meddler: None,
            stillness: None,
            datagrams: [0; 2],
            peak_held: [0; 2],
            filter: None,
            tcp: TcpModel {
                rates: [scenario.forward.rate.scale(0.9), scenario.back.rate.scale(0.9)],
                answer: TcpAnswer::Accepts,
            },
            conns: Vec::new(),
            carried: [0; 2],
        };
        pair.transmit(TERMINAL);
        Ok(pair)
    }

    /// Lets `meddler` hold datagrams back from now on.
    pub fn meddle(&mut self, meddler: Meddler) {
        self.meddler = Some(meddler);
    }

    /// Lets the machine stand still from time to time: whatever was due then happens when it goes on.
    pub fn stand_still(&mut self, stillness: Stillness) {
        self.stillness = Some(stillness);
    }

    /// Runs until `until`, or until every transfer has ended.
    pub fn run(&mut self, until: Time) {
        while !self.all_ended() {
            let arrival = self.air.next_at();
            let wakes = [TERMINAL, GATEWAY].map(|side| {
                let end = &mut self.ends[side];
                if end.dead {
                    None
                } else {
                    end.tunnel.poll_timeout()
                }
            });
            let start = self.next_start();
            let read = self.at_readers.next_at();
            let next = [arrival, wakes[0], wakes[1], start, read].into_iter().flatten().min();
            let Some(next) = next.filter(|&next| next <= until) else { break };
            self.now = self.now.max(next);
            if let Some(stillness) = &mut self.stillness {
                self.now = self.now.max(stillness(self.now));
            }
            if arrival == Some(next) {
                if let Some((_, (side, arrival))) = self.air.pop() {
                    self.arrived(side, arrival);
                }
                continue;
            }
            if read == Some(next) {
                if let Some((_, (side, flow, index, data))) = self.at_readers.pop() {
                    self.reading.remove(&index);
                    self.deliver(side, flow, index, &data);
                    self.read(side, flow, index);
                    self.settle(side);
                }
                continue;
            }
            for side in [TERMINAL, GATEWAY] {
                if wakes[side].is_some_and(|at| at <= self.now) {
                    self.ends[side].tunnel.handle_timeout(self.now);
                    self.settle(side);
                }
            }
            self.start_due();
        }
        if !self.all_ended() {
            self.now = self.now.max(until);
        }
    }

    fn arrived(&mut self, side: usize, arrival: Arrival) {
        if self.ends[side].dead && !matches!(arrival, Arrival::Tcp(_, Segment::Syn)) {
            if matches!(arrival, Arrival::Datagram(..)) && !self.ends[side].mute {
                let back = self.now + self.links[side].one_way(self.now);
                self.air.schedule(back, (1 - side, Arrival::Icmp));
            }
            return;
        }
        match arrival {
            Arrival::Datagram(from, bytes) => {
                self.ends[side].rejected = None;
                let data = BytesMut::from(&bytes[..]);
                self.ends[side].tunnel.handle_datagram(self.now, None, from, None, None, data);
            }
            Arrival::Icmp => {
                let (now, end) = (self.now, &mut self.ends[side]);
                let first = *end.rejected.get_or_insert(now);
                if let Some(peer) = end.peer.filter(|_| now >= first + CONFIRM) {
                    end.tunnel.unreachable(now, peer);
                }
            }
            Arrival::Tcp(conn, segment) => self.tcp_arrived(side, conn, segment),
        }
        self.settle(side);
    }

    fn all_ended(&self) -> bool {
        !self.outcomes.is_empty()
            && self.outcomes.iter().all(|o| o.finished.is_some() || o.refused.is_some() || o.reset.is_some())
    }

    /// When the next transfer that can start does.
    fn next_start(&self) -> Option<Time> {
        let due = self.transfers.iter().zip(&self.outcomes).filter(|(_, outcome)| outcome.opened.is_none());
        due.filter_map(|(transfer, _)| Some(transfer.start.max(self.ends[sender(transfer)].up?))).min()
    }

    fn start_due(&mut self) {
        for index in 0..self.transfers.len() {
            let transfer = self.transfers[index];
            let side = sender(&transfer);
            let end = &mut self.ends[side];
            let ready = end.up.is_some_and(|up| up.max(transfer.start) <= self.now);
            let (true, None, Some(peer)) = (ready, self.outcomes[index].opened, end.peer) else { continue };
            let destination = Target::Address(SocketAddr::from(([10, 77, 2, 2], index as u16)));
            self.outcomes[index].opened = Some(self.now);
            match end.tunnel.open(peer, &Open { destination, source: None, class: transfer.class }) {
                Ok(flow) => {
                    end.flows.insert(flow, (index, Part::Sends));
                    self.write(side, flow, index);
                }
                Err(why) => self.outcomes[index].refused = Some(why),
            }
            self.settle(side);
        }
    }

    fn piece(&self, offset: u64, length: usize) -> Data {
        let start = (offset % PATTERN as u64) as usize;
        self.pattern.slice(start..start + length.min(PATTERN))
    }

    fn write(&mut self, side: usize, flow: FlowId, index: usize) {
        let Transfer { bytes, write, .. } = self.transfers[index];
        loop {
            let written = self.outcomes[index].written;
            let left = bytes - written;
            if left == 0 {
                self.ends[side].tunnel.finish(flow);
                return;
            }
            let room = self.ends[side].tunnel.writable(flow);
            let length = room.min(write).min(PATTERN).min(usize::try_from(left).unwrap_or(usize::MAX));
            if length == 0 {
                return;
            }
            let piece = self.piece(written, length);
            self.outcomes[index].written += length as u64;
            self.ends[side].tunnel.write(flow, piece);
        }
    }

    fn read(&mut self, side: usize, flow: FlowId, index: usize) {
        let reader = self.transfers[index].reader;
        if !matches!(reader, Reader::Eager | Reader::Paced(_)) || self.reading.contains(&index) {
            return;
        }
        loop {
            match self.ends[side].tunnel.read(flow) {
                Read::Data(data) => {
                    if let Reader::Paced(rate) = reader {
                        self.reading.insert(index);
                        let done = self.now + rate.time_for(Bytes(data.len() as u64));
                        return self.at_readers.schedule(done, (side, flow, index, data));
                    }
                    self.deliver(side, flow, index, &data);
                }
                Read::End => {
                    self.ends[side].tunnel.end_consumed(flow);
                    self.ends[side].tunnel.finish(flow);
                    self.outcomes[index].finished.get_or_insert(self.now);
                    return;
                }
                Read::Pending | Read::Reset => return,
            }
        }
    }

    /// The receiving application has done with a piece.
    fn deliver(&mut self, side: usize, flow: FlowId, index: usize, data: &[u8]) {
        let mut offset = self.outcomes[index].delivered;
        for part in data.chunks(PATTERN) {
            self.outcomes[index].corrupt |= self.piece(offset, part.len()) != part;
            offset += part.len() as u64;
        }
        self.outcomes[index].delivered = offset;
        self.outcomes[index].first_byte.get_or_insert(self.now);
        self.ends[side].tunnel.consumed(flow, data.len());
    }

    /// Works off events and sends until nothing changes.
    fn settle(&mut self, side: usize) {
        if self.ends[side].dead {
            return;
        }
        loop {
            while let Some(event) = self.ends[side].tunnel.poll_event() {
                self.event(side, event);
            }
            let sent = [self.transmit(side), self.transmit_tcp(side)];
            if sent == [false, false] {
                break;
            }
        }
        self.peak_held[side] = self.peak_held[side].max(self.ends[side].tunnel.held().0 .0);
    }

    fn event(&mut self, side: usize, event: Event) {
        let end = &mut self.ends[side];
        match event {
            Event::Up { peer, .. } => {
                end.peer = Some(peer);
                end.up = Some(self.now);
                self.start_due();
            }
            Event::Down { reason, .. } => end.down = Some(reason.to_string()),
            Event::KeyRefused { .. } => {}
            Event::Standing { standing, why, .. } => end.standings.push((self.now, standing, why)),
            Event::Dial { pipe, .. } => self.dial(pipe),
            Event::HangUp { pipe } => self.hang_up(side, pipe),
            Event::Moved { .. } | Event::SeenAt { .. } | Event::EcnLost { .. } => {}
            Event::Opened { flow, open } => {
                assert!(end.up.is_some(), "a flow was heard of before its channel");
                let Target::Address(destination) = open.destination else {
                    return end.tunnel.refuse(flow, Refusal::NoSuchName);
                };
                let index = usize::from(destination.port());
                end.flows.insert(flow, (index, Part::Receives));
                match self.transfers[index].reader {
                    Reader::Refuses(why) => end.tunnel.refuse(flow, why),
                    _ => end.tunnel.accept(flow),
                }
            }
            Event::Accepted { flow } => {
                if let Some(&(index, _)) = end.flows.get(&flow) {
                    self.outcomes[index].accepted = Some(self.now);
                }
            }
            Event::Refused { flow, why } => {
                if let Some(&(index, _)) = end.flows.get(&flow) {
                    self.outcomes[index].refused = Some(why);
                }
            }
            Event::Readable { flow } => match end.flows.get(&flow) {
                Some(&(index, Part::Receives)) => self.read(side, flow, index),
                Some(&(_, Part::Sends)) => {
                    if matches!(end.tunnel.read(flow), Read::End) {
                        end.tunnel.end_consumed(flow);
                    }
                }
                None => {}
            },
            Event::Writable { flow } => {
                if let Some(&(index, Part::Sends)) = end.flows.get(&flow) {
                    self.write(side, flow, index);
                }
            }
            Event::Reset { flow } => {
                if let Some(&(index, _)) = end.flows.get(&flow) {
                    self.outcomes[index].reset.get_or_insert(self.now);
                }
            }
        }
    }

    /// Sends everything that may leave now; true if anything did.
    fn transmit(&mut self, side: usize) -> bool {
        let mut out = Vec::new();
        let mut sent = false;
        while let Some(batch) = self.ends[side].tunnel.poll_transmit(self.now, 16, &mut out) {
            sent = true;
            for datagram in out.chunks(batch.segment) {
                let number = self.datagrams[side];
                self.datagrams[side] += 1;
                let size = Bytes(datagram.len() as u64 + HEADERS);
                let to_old = side == GATEWAY && batch.destination != self.ends[TERMINAL].address;
                let passage = match &mut self.filter {
                    _ if to_old => Passage::Drop,
                    Some(filter) => filter(self.now, Dir::ALL[side], datagram),
                    None => Passage::Pass,
                };
                if let Fate::Delivered { at } = self.links[side].offer(self.now, size) {
                    let extra = self
                        .meddler
                        .as_mut()
                        .map_or(Duration::ZERO, |meddler| meddler(Dir::ALL[side], number));
                    self.deliver_datagram(side, at + extra, datagram.to_vec(), passage);
                }
            }
        }
        sent
    }

    fn deliver_datagram(&mut self, side: usize, at: Time, mut datagram: Vec<u8>, passage: Passage) {
        let from = self.ends[side].address;
        let mut arrive = |at, bytes| self.air.schedule(at, (1 - side, Arrival::Datagram(from, bytes)));
        match passage {
            Passage::Pass => arrive(at, datagram),
            Passage::Drop => {}
            Passage::Reject => self.air.schedule(at, (side, Arrival::Icmp)),
            Passage::Twice => {
                arrive(at, datagram.clone());
                arrive(at, datagram);
            }
            Passage::Corrupt => {
                let middle = datagram.len() / 2;
                datagram[middle] ^= 1;
                arrive(at, datagram);
            }
            Passage::Late(by) => arrive(at + by, datagram),
        }
    }

    /// When and why the channel fared differently at the sender of that direction.
    pub fn standings(&self, sender_of: Dir) -> &[(Time, Standing, Trouble)] {
        &self.ends[index(sender_of)].standings
    }

    /// Virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// What became of the transfers, in their order.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// What a link did.
    pub fn counters(&self, dir: Dir) -> &Counters {
        self.links[index(dir)].counters()
    }

    /// The link of that direction.
    pub fn link(&self, dir: Dir) -> &Link {
        &self.links[index(dir)]
    }

    /// One end: the sender of that direction.
    pub fn tunnel(&mut self, sender_of: Dir) -> &mut Tunnel {
        &mut self.ends[index(sender_of)].tunnel
    }

    /// When the channel came up at the sender of that direction.
    pub fn up(&self, sender_of: Dir) -> Option<Time> {
        self.ends[index(sender_of)].up
    }

    /// Why the channel ended at the sender of that direction, if it did.
    pub fn down(&self, sender_of: Dir) -> Option<&str> {
        self.ends[index(sender_of)].down.as_deref()
    }

    /// The channel at the sender of that direction.
    pub fn peer(&self, sender_of: Dir) -> Option<PeerId> {
        self.ends[index(sender_of)].peer
    }

    /// The most flow data that one end held at any time for its readers.
    pub fn peak_held(&self, sender_of: Dir) -> Bytes {
        Bytes(self.peak_held[index(sender_of)])
    }
}

fn index(dir: Dir) -> usize {
    match dir {
        Dir::Forward => TERMINAL,
        Dir::Back => GATEWAY,
    }
}

fn sender(transfer: &Transfer) -> usize {
    index(transfer.data)
}
