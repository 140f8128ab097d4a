//! What may stand between the flows of a [`World`](crate::world::World) and its links: a tunnel, say.

use std::any::Any;

use skyhaul_cc::units::{Bytes, Time};

use crate::link::{Cause, Link};
use crate::scenario::Dir;
use crate::tcp::AckPacket;

/// A packet of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A data segment, which goes forward.
    Data {
        /// Number of the flow in its world.
        flow: u32,
        /// Number of the segment in its flow.
        seq: u64,
        /// Number of the transmission among all of its flow, from 1.
        transmission: u64,
    },
    /// An acknowledgment, which goes back.
    Ack {
        /// Number of the flow in its world.
        flow: u32,
        /// What it says.
        ack: AckPacket,
        /// How many arrivals the flow's receiver has reported up to here, where it does.
        reported: u64,
    },
}

impl Packet {
    /// Which way it goes, data being forward.
    pub fn dir(&self) -> Dir {
        match self {
            Packet::Data { .. } => Dir::Forward,
            Packet::Ack { .. } => Dir::Back,
        }
    }
}

/// The two links of a world, data going forward.
#[derive(Debug)]
pub struct Links<'a> {
    /// The link of the data.
    pub forward: &'a mut Link,
    /// The link of the acknowledgments.
    pub back: &'a mut Link,
}

impl Links<'_> {
    /// One of them.
    pub fn of(&mut self, dir: Dir) -> &mut Link {
        match dir {
            Dir::Forward => self.forward,
            Dir::Back => self.back,
        }
    }
}

/// Takes packets at one side of the links and lets them out at the other. Pure, like the links: time is an
/// argument.
pub trait Carrier: Any {
    /// Takes an IP packet of `size` bytes. Says why its first copy does not arrive, if it does not; the
    /// carrier may still repair it.
    fn offer(&mut self, now: Time, packet: Packet, size: Bytes, links: &mut Links<'_>) -> Option<Cause>;

    /// When [`advance`](Carrier::advance) has something to do; [`Time::MAX`] for never.
    fn next_at(&self) -> Time;

    /// Does what is due at `now`.
    fn advance(&mut self, now: Time, links: &mut Links<'_>);

    /// The next packet that came out on its other side.
    fn poll(&mut self) -> Option<Packet>;
}
