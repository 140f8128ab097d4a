//! The UDP/FEC tunnel of paper 001's scheme 4: end-to-end TCP inside datagrams of [`skyhaul_pep::fec`].
//!
//! Both ways are protected, and both ends are the real ones, with real bytes: a packet's content is its
//! flow and number, its length the real one. A tunnel's packets are longer than those inside, so flows in
//! it want smaller segments ([`FecTunnel::mss`]).

use std::collections::VecDeque;

use bytes::Bytes as Data;
use skyhaul_cc::units::{Bytes, Time};
use skyhaul_pep::fec::{DecoderStats, EncoderStats, End, ROOM};
pub use skyhaul_pep::fec::{Options, Order, Redundancy};

use crate::carrier::{Carrier, Links, Packet};
use crate::clock::Events;
use crate::link::{Cause, Fate};
use crate::scenario::Dir;
use crate::tcp::TcpOptions;

/// IP and UDP headers of one datagram.
const HEADERS: u64 = 28;
/// Largest IP packet of the path.
const MTU: u64 = 1500;

/// Two ends of error correction and what is under way between them.
pub struct FecTunnel {
    /// At the sender of data, and at its receiver.
    ends: [End; 2],
    /// Datagrams under way, with the end they go to.
    air: Events<(usize, Data)>,
    /// What each end has sent. Datagrams carry a packet's number.
    packets: [Packets; 2],
    out: VecDeque<Packet>,
    /// When the ends want to be woken.
    wake: Time,
}

impl FecTunnel {
    /// A tunnel whose ends have the same settings.
    pub fn new(options: Options) -> Self {
        FecTunnel {
            ends: [End::new(options), End::new(options)],
            air: Events::new(),
            packets: Default::default(),
            out: VecDeque::new(),
            wake: Time::MAX,
        }
    }

    /// The payload of a full segment in the tunnel, in bytes: 1410 where it is 1448 outside.
    pub fn mss(tcp: &TcpOptions) -> Bytes {
        Bytes(MTU - HEADERS - ROOM as u64).saturating_sub(tcp.headers)
    }

    /// What the sending half of an end has done: data goes forward.
    pub fn sent(&self, dir: Dir) -> &EncoderStats {
        self.ends[sender(dir)].encoder().stats()
    }

    /// What the receiving half has seen of that direction.
    pub fn received(&self, dir: Dir) -> &DecoderStats {
        self.ends[1 - sender(dir)].decoder().stats()
    }

    /// A packet's number as bytes of the packet's length.
    fn pack(&mut self, packet: Packet, size: Bytes) -> Vec<u8> {
        let number = self.packets[sender(packet.dir())].push(packet);
        let mut bytes = Vec::with_capacity(size.0 as usize);
        bytes.extend_from_slice(&number.to_be_bytes());
        bytes.resize((size.0 as usize).max(bytes.len()), 0);
        bytes
    }

    /// Sends what an end has to send. The first datagram's cause, if it is dropped.
    fn transmit(&mut self, side: usize, now: Time, links: &mut Links<'_>) -> Option<Cause> {
        let mut first = None;
        while let Some(datagram) = self.ends[side].poll_transmit() {
            let fate = links.of(dir(side)).offer(now, Bytes(datagram.len() as u64 + HEADERS));
            if let Fate::Delivered { at } = fate {
                self.air.schedule(at, (1 - side, datagram));
            }
            first.get_or_insert(fate);
        }
        self.wake = self.ends.iter().filter_map(End::timeout).min().unwrap_or(Time::MAX);
        match first {
            Some(Fate::Dropped(cause)) => Some(cause),
            _ => None,
        }
    }

    fn collect(&mut self, side: usize) {
        while let Some(bytes) = self.ends[side].poll_deliver() {
            let number = bytes.first_chunk().copied().map(u64::from_be_bytes);
            self.out.extend(number.and_then(|number| self.packets[1 - side].get(number)));
        }
    }
}

impl Carrier for FecTunnel {
    fn offer(&mut self, now: Time, packet: Packet, size: Bytes, links: &mut Links<'_>) -> Option<Cause> {
        let side = sender(packet.dir());
        let bytes = self.pack(packet, size);
        // Packets of flows are never longer than a datagram may be.
        self.ends[side].push(now, &bytes).ok();
        self.transmit(side, now, links)
    }

    fn next_at(&self) -> Time {
        self.air.next_at().unwrap_or(Time::MAX).min(self.wake)
    }

    fn advance(&mut self, now: Time, links: &mut Links<'_>) {
        while let Some((at, (side, datagram))) = self.air.pop_until(now) {
            // A refused datagram is lost.
            let _ = self.ends[side].handle_datagram(at, datagram);
            self.collect(side);
        }
        for side in [0, 1] {
            self.ends[side].handle_timeout(now);
            self.collect(side);
            self.transmit(side, now, links);
        }
    }

    fn poll(&mut self) -> Option<Packet> {
        self.out.pop_front()
    }
}

fn sender(dir: Dir) -> usize {
    match dir {
        Dir::Forward => 0,
        Dir::Back => 1,
    }
}

fn dir(side: usize) -> Dir {
    match side {
        0 => Dir::Forward,
        _ => Dir::Back,
    }
}

/// The last packets sent one way, by number.
#[derive(Default)]
struct Packets {
    first: u64,
    last: VecDeque<Packet>,
}

impl Packets {
    fn push(&mut self, packet: Packet) -> u64 {
        if self.last.len() >= MOST_UNDER_WAY {
            self.last.pop_front();
            self.first += 1;
        }
        self.last.push_back(packet);
        self.first + self.last.len() as u64 - 1
    }

    fn get(&self, number: u64) -> Option<Packet> {
        self.last.get(usize::try_from(number.checked_sub(self.first)?).ok()?).cloned()
    }
}

/// More than is ever under way: 800 ms of 1.9 Gbit/s in full packets.
const MOST_UNDER_WAY: usize = 1 << 17;
