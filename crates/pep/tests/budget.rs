//! One gateway, several terminals, one memory: real channels in virtual time over links that only take their time.

#![allow(clippy::unwrap_used)] // a test may panic

use bytes::{Bytes as Data, BytesMut};
use skyhaul_cc::{registry, Bytes, Duration, Rate, Setup, Time};
use skyhaul_pep::auth::SecretKey;
use skyhaul_pep::frame::{Class, Open, Refusal, Target};
use skyhaul_pep::limits::Split;
use skyhaul_pep::{Config, EcnCodepoint, Epoch, Event, FlowId, PeerId, Read, Tuning, Tunnel};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

const ONE_WAY: Duration = Duration::from_millis(50);

struct Host {
    tunnel: Tunnel,
    address: SocketAddr,
    peer: Option<PeerId>,
    /// Flows that the other end has opened, in order.
    incoming: Vec<FlowId>,
    /// Incoming flows that are not read.
    stopped: BTreeSet<FlowId>,
    /// Flows that somebody writes to without end.
    writing: BTreeSet<FlowId>,
    delivered: BTreeMap<FlowId, u64>,
    refused: Vec<Refusal>,
    reset: usize,
    log: Vec<String>,
}

struct Datagram {
    to: usize,
    from: SocketAddr,
    ecn: Option<EcnCodepoint>,
    data: Data,
}

struct World {
    hosts: Vec<Host>,
    now: Time,
    under_way: BTreeMap<(Time, u64), Datagram>,
    number: u64,
    /// No datagram to or from this host arrives.
    cut: BTreeSet<usize>,
    /// Marks of congestion arrive.
    ecn: bool,
    /// The gateway's memory.
    split: Split,
    flows: usize,
}

/// The gateway and so many terminals.
fn world(terminals: usize, memory: Bytes, flows: u32) -> World {
    let key = |n: usize| {
        let mut der = vec![0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
        der.extend_from_slice(&[n as u8 + 1; 32]);
        SecretKey::from_pkcs8(&der).unwrap()
    };
    let setup =
        Setup { link_rate: Some(Rate::mbit(200)), initial_rtt: ONE_WAY * 2, ..Setup::new(Bytes(1500)) };
    let config = |n: usize, peers: Vec<usize>, memory| Config {
        secret: key(n),
        peers: peers.into_iter().map(|peer| key(peer).public()).collect(),
        controller: Arc::new(move |_| registry::build("rate", &setup).unwrap()),
        tuning: Tuning { initial_rtt: ONE_WAY * 2, flows, ..Tuning::default() },
        memory,
        seed: [n as u8; 32],
    };
    // quinn-proto wants an `Instant`; only differences of it are ever used.
    #[allow(clippy::disallowed_methods)]
    let epoch = Epoch::new(Instant::now());
    let host = |n: usize, config: Config| Host {
        tunnel: Tunnel::new(config, epoch, n == 0).unwrap(),
        address: SocketAddr::from(([10, 0, 0, n as u8], 4433)),
        peer: None,
        incoming: Vec::new(),
        stopped: BTreeSet::new(),
        writing: BTreeSet::new(),
        delivered: BTreeMap::new(),
        refused: Vec::new(),
        reset: 0,
        log: Vec::new(),
    };
    let mut hosts = vec![host(0, config(0, (1..=terminals).collect(), memory))];
    hosts.extend((1..=terminals).map(|n| host(n, config(n, vec![0], Bytes::mib(64)))));
    World {
        hosts,
        now: Time::ZERO,
        under_way: BTreeMap::new(),
        number: 0,
        cut: BTreeSet::new(),
        ecn: true,
        split: Split::of(memory, flows as usize),
        flows: flows as usize,
    }
}

impl World {
    fn connect(&mut self, n: usize) {
        let gateway = self.hosts[0].address;
        self.hosts[n].tunnel.connect(self.now, gateway).unwrap();
        let limit = self.now + Duration::from_secs(5);
        while self.hosts[n].peer.is_none() && self.now < limit {
            self.run(ONE_WAY);
        }
        assert!(self.hosts[n].peer.is_some(), "{:?} {:?}", self.hosts[n].log, self.hosts[0].log);
    }

    /// A terminal opens a flow and writes to it for ever.
    fn upload(&mut self, n: usize) -> Result<FlowId, Refusal> {
        let to = SocketAddr::from(([192, 0, 2, 1], n as u16));
        let open = Open { destination: Target::Address(to), source: None, class: Class::Normal };
        let host = &mut self.hosts[n];
        let flow = host.tunnel.open(host.peer.unwrap(), &open)?;
        host.writing.insert(flow);
        Ok(flow)
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            for n in 0..self.hosts.len() {
                self.turn(n);
            }
            let holdings = self.hosts[0].tunnel.holdings();
            let floors = self.split.floor * holdings.flows as u64;
            assert!(holdings.promised <= self.split.pools, "{holdings:?}");
            assert!(holdings.received <= self.split.pools + floors, "{holdings:?}");
            for host in &self.hosts {
                let holdings = host.tunnel.holdings();
                let split = Split::of(holdings.memory, self.flows);
                let floors = split.queue_floor * holdings.flows as u64;
                assert!(holdings.queued <= split.queue + floors, "{holdings:?}");
                assert!(holdings.retained <= split.retained && holdings.kept <= split.kept, "{holdings:?}");
            }
            let arrival = self.under_way.first_key_value().map(|((at, _), _)| *at);
            let wake = self.hosts.iter_mut().filter_map(|host| host.tunnel.poll_timeout()).min();
            let next = [arrival, wake].into_iter().flatten().min().map_or(until, |at| at.max(self.now));
            if next >= until {
                self.now = until;
                return;
            }
            self.now = next;
            while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let Datagram { to, from, ecn, data } = entry.remove();
                let tunnel = &mut self.hosts[to].tunnel;
                tunnel.handle_datagram(self.now, None, from, None, ecn, BytesMut::from(&data[..]));
            }
            for host in &mut self.hosts {
                host.tunnel.handle_timeout(self.now);
            }
        }
    }

    fn turn(&mut self, n: usize) {
        let addresses: Vec<SocketAddr> = self.hosts.iter().map(|host| host.address).collect();
        let host = &mut self.hosts[n];
        while let Some(event) = host.tunnel.poll_event() {
            match event {
                Event::Up { peer, .. } => host.peer = Some(peer),
                Event::Down { peer, reason, .. } => {
                    host.log.push(reason.to_string());
                    host.peer = host.peer.filter(|up| *up != peer);
                }
                Event::Opened { flow, .. } => {
                    host.incoming.push(flow);
                    host.tunnel.accept(flow);
                }
                Event::EcnLost { .. } => host.log.push("marks are lost".to_owned()),
                Event::Moved { from, to, .. } => host.log.push(format!("moved from {from} to {to}")),
                Event::SeenAt { before: Some(before), address, .. } => {
                    host.log.push(format!("seen at {address} and no more at {before}"));
                }
                Event::Refused { why, .. } => host.refused.push(why),
                Event::Reset { flow } => {
                    host.reset += 1;
                    host.writing.remove(&flow);
                }
                _ => {}
            }
        }
        for flow in host.incoming.iter().filter(|flow| !host.stopped.contains(flow)) {
            while let Read::Data(data) = host.tunnel.read(*flow) {
                host.tunnel.consumed(*flow, data.len());
                *host.delivered.entry(*flow).or_default() += data.len() as u64;
            }
        }
        for flow in &host.writing {
            let room = host.tunnel.writable(*flow);
            if room > 0 {
                host.tunnel.write(*flow, Data::from(vec![7; room]));
            }
        }
        let mut out = Vec::new();
        while let Some(batch) = host.tunnel.poll_transmit(self.now, 32, &mut out) {
            let Some(to) = addresses.iter().position(|address| *address == batch.destination) else {
                continue;
            };
            if self.cut.contains(&n) || self.cut.contains(&to) {
                continue;
            }
            for datagram in out.chunks(batch.segment) {
                let at = self.now + ONE_WAY;
                let ecn = batch.ecn.filter(|_| self.ecn);
                let data = Data::copy_from_slice(datagram);
                self.under_way.insert((at, self.number), Datagram { to, from: host.address, ecn, data });
                self.number += 1;
            }
        }
    }
}

#[test]
fn terminals_share_the_gateways_memory_and_what_one_does_not_use_the_busy_ones_have() {
    let mut world = world(3, Bytes::mib(32), 64);
    for n in 1..=3 {
        world.connect(n);
    }
    let gateway_peers: Vec<PeerId> = world.hosts[0].tunnel.peers().iter().map(|(id, ..)| *id).collect();
    let pools =
        |world: &World| gateway_peers.iter().map(|id| world.hosts[0].tunnel.pool(*id).0).collect::<Vec<_>>();
    let least = pools(&world)[1];
    // The first came first and has most; the third becomes busy and gets what the others do not need.
    world.upload(3).unwrap();
    world.run(Duration::from_secs(3));
    let now = pools(&world);
    assert!(now[2] > world.split.pools.0 / 2 && now[0] <= least && now[1] <= least, "{now:?}");
    // Two busy ones have the same.
    world.upload(2).unwrap();
    world.run(Duration::from_secs(3));
    let now = pools(&world);
    assert!(now[1].abs_diff(now[2]) <= now[1] / 4 && now[1] > world.split.pools.0 / 3, "{now:?}");
    assert_eq!((world.hosts[0].reset, world.hosts[2].reset, world.hosts[3].reset), (0, 0, 0));
}

#[test]
fn stopped_readers_of_one_terminal_neither_overfill_the_gateway_nor_stop_another_terminal() {
    let mut world = world(2, Bytes::mib(32), 64);
    world.connect(1);
    world.connect(2);
    for _ in 0..8 {
        world.upload(1).unwrap();
    }
    world.run(Duration::from_millis(500));
    world.hosts[0].stopped = world.hosts[0].incoming.iter().copied().collect();
    world.run(Duration::from_secs(4));
    let full = world.hosts[0].tunnel.holdings().received;
    assert!(full > world.split.pools / 2, "{full}");
    let flow = world.upload(2).unwrap();
    world.run(Duration::from_secs(5));
    let incoming = *world.hosts[0].incoming.last().unwrap();
    assert!(!world.hosts[0].stopped.contains(&incoming));
    let delivered = world.hosts[0].delivered[&incoming];
    // A floor per round trip would be 64 KiB x 50; the second terminal's share carries far more.
    assert!(delivered > 20 << 20, "{delivered} bytes of {flow}");
    // Now the stopped ones go on where they were.
    world.hosts[0].stopped.clear();
    world.run(Duration::from_secs(2));
    assert!(world.hosts[0].tunnel.holdings().received < full / 2);
    assert_eq!(world.hosts[0].reset + world.hosts[1].reset + world.hosts[2].reset, 0);
}

#[test]
fn one_flow_too_many_is_refused_as_busy_and_those_before_it_go_on() {
    let mut world = world(1, Bytes::mib(4), 1000);
    world.connect(1);
    let most = world.split.flows;
    for _ in 0..most {
        world.upload(1).unwrap();
    }
    // Both ends count alike only if they have the same memory: this terminal has more.
    world.run(Duration::from_secs(1));
    for _ in 0..3 {
        world.upload(1).unwrap();
    }
    world.run(Duration::from_secs(2));
    assert_eq!(world.hosts[1].refused, [Refusal::Busy; 3]);
    let holdings = world.hosts[0].tunnel.holdings();
    assert_eq!((holdings.refused_flows, holdings.flows), (3, most));
    let gateway = &world.hosts[0];
    assert!(
        gateway.incoming.len() == most && gateway.incoming.iter().all(|flow| gateway.delivered[flow] > 0)
    );
    assert_eq!(gateway.reset, 0);
}

#[test]
fn a_dead_terminals_channel_is_forgotten_when_it_carried_nothing_and_makes_room_when_it_did() {
    // One configured peer, so all memory is the channel's; its terminal dies with flows open and comes again.
    let mut world = world(1, Bytes::mib(32), 64);
    world.connect(1);
    world.upload(1).unwrap();
    world.run(Duration::from_secs(1));
    world.hosts[0].stopped = world.hosts[0].incoming.iter().copied().collect();
    world.run(Duration::from_secs(2));
    assert!(world.hosts[0].tunnel.holdings().received > Bytes::mib(1));
    // The terminal's program is another one now: it knows nothing of the channel.
    world.hosts[1].peer = None;
    world.hosts[1].writing.clear();
    world.connect(1);
    let holdings = world.hosts[0].tunnel.holdings();
    assert_eq!((holdings.received, holdings.flows), (Bytes::ZERO, 0));
    assert_eq!(world.hosts[0].tunnel.pool(world.hosts[0].peer.unwrap()), world.split.pools);
    // Silent, with nothing to carry: given up after two minutes, and not before one.
    world.cut.insert(1);
    world.run(Duration::from_secs(60));
    assert_eq!(world.hosts[0].tunnel.peers().len(), 1);
    world.run(Duration::from_secs(65));
    assert_eq!(world.hosts[0].tunnel.peers().len(), 0, "{:?}", world.hosts[0].log);
    assert_eq!(world.hosts[0].tunnel.holdings().silent_channels, 1);
}

#[test]
fn marks_that_a_router_clears_are_missed_once_and_not_sent_any_more() {
    for ecn in [true, false] {
        let mut world = world(1, Bytes::mib(32), 64);
        world.connect(1);
        world.ecn = ecn;
        world.upload(1).unwrap();
        world.run(Duration::from_secs(2));
        let lost: Vec<String> = if ecn { vec![] } else { vec!["marks are lost".to_owned()] };
        assert_eq!(world.hosts[1].log, lost);
        assert_eq!(world.hosts[1].tunnel.marks(world.hosts[1].peer.unwrap()), ecn);
    }
}

/// A terminal moves twice while its flow carries data one way.
fn moving(downwards: bool) {
    let mut world = world(1, Bytes::mib(32), 64);
    world.connect(1);
    let (sender, receiver) = if downwards { (0, 1) } else { (1, 0) };
    world.upload(sender).unwrap();
    world.run(Duration::from_secs(2));
    let carried = |world: &World| world.hosts[receiver].delivered.values().sum::<u64>();
    // A NAT gives it another port, and later another address.
    let places =
        ["10.0.0.1:4433", "10.0.0.1:9999", "10.9.9.9:1"].map(|place| place.parse::<SocketAddr>().unwrap());
    for pair in places.windows(2) {
        world.hosts[1].address = pair[1];
        world.hosts[0].log.clear();
        world.hosts[1].log.clear();
        let before = carried(&world);
        world.run(Duration::from_secs(2));
        assert_eq!(world.hosts[0].log, [format!("moved from {} to {}", pair[0], pair[1])]);
        assert_eq!(world.hosts[1].log, [format!("seen at {} and no more at {}", pair[1], pair[0])]);
        assert_eq!(world.hosts[0].tunnel.peers()[0].2, pair[1]);
        // Two seconds of 200 Mbit/s, less some round trips of 100 ms.
        let more = carried(&world) - before;
        assert!(more > 30_000_000, "{more} bytes, downwards: {downwards}");
    }
    let stats = world.hosts[0].tunnel.stats(world.hosts[0].peer.unwrap()).unwrap();
    assert_eq!(stats.loss_disagreements, 0);
    assert_eq!(world.hosts[0].reset + world.hosts[1].reset, 0);
}

#[test]
fn a_terminal_whose_address_changes_goes_on_sending_and_both_ends_hear_of_it_once() {
    moving(false);
}

#[test]
fn a_terminal_whose_address_changes_goes_on_receiving_and_both_ends_hear_of_it_once() {
    moving(true);
}
