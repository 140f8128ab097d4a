//! One direction of a link: queue, serializer, loss, delay.
//!
//! ```text
//! offer -> [drop-tail queue] -> [serializer] -> outage? loss? -> one-way delay + jitter -> arrival
//! ```
//!
//! Everything is first in, first out, so the fate of a packet is known when it is offered. A lost packet
//! has used the link's time like any other. Times are exact to the nanosecond: the last bit leaves when
//! the rate, with all its changes on the way, has sent it; the one-way delay and the loss in force at that
//! moment apply; a packet is lost to an outage if any part of it was sent during one.

mod bottleneck;
pub(crate) mod changes;
mod counters;
mod flight;
mod loss;

use std::fmt;

use skyhaul_cc::units::{Bytes, Duration, Rate, Share, Time};

use crate::rng::Stream;
use crate::scenario::Direction;
use bottleneck::{Bottleneck, LARGEST_PACKET};
use changes::{nanos, Changes};
pub use counters::{Count, Counters};
use flight::Flight;
use loss::Losses;

/// One direction of a link. Pure: time and packet sizes go in, fates come out.
///
/// ```
/// use skyhaul_cc::{Bytes, Duration, Time};
/// use skyhaul_sim::{link::Fate, scenario::{Dir, Scenario}};
///
/// let scenario = Scenario::find("lan.gigabit-20").unwrap();
/// let mut link = scenario.link(Dir::Forward, 1);
/// // 12 µs to send 1500 bytes at 1 Gbit/s, then 10 ms on the way.
/// let fate = link.offer(Time::ZERO, Bytes(1500));
/// assert_eq!(fate, Fate::Delivered { at: Time::from_micros(10_012) });
/// ```
#[derive(Clone, Debug)]
pub struct Link {
    bottleneck: Bottleneck,
    losses: Losses,
    flight: Flight,
    counters: Counters,
    now: Time,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Delivered {
        /// When its last bit is there.
        at: Time,
    },
    /// It does not.
    Dropped(Cause),
}

/// Why a packet does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The queue in front of the serializer had no room.
    QueueFull,
    /// Lost by itself, with the stated probability.
    RandomLoss,
    /// At least one bit was wrong.
    BitError,
    /// Lost by the Gilbert-Elliott process.
    Burst,
    /// Sent, wholly or in part, while the link was out.
    Outage,
}

impl Cause {
    /// All causes, in the order reports list them.
    pub const ALL: [Cause; 5] =
        [Cause::QueueFull, Cause::RandomLoss, Cause::BitError, Cause::Burst, Cause::Outage];
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::QueueFull => "queue full",
            Cause::RandomLoss => "random loss",
            Cause::BitError => "bit error",
            Cause::Burst => "burst",
            Cause::Outage => "outage",
        })
    }
}

impl Link {
    /// A link in its first moment: empty, with the direction's settings at the start.
    ///
    /// The two directions of one run want different seeds; [`crate::scenario::Scenario::link`] sees to it.
    pub fn new(direction: &Direction, seed: u64) -> Link {
        let overhead = direction.rate_base.overhead();
        Link {
            bottleneck: Bottleneck::new(Changes::new(direction), direction.queue.0, overhead.0),
            losses: Losses::new(direction, seed),
            flight: Flight::new(direction, seed),
            counters: Counters::default(),
            now: Time::ZERO,
        }
    }

    /// The same link, but `share` of the packets take a detour of up to `longest`, all lengths equally
    /// likely. They overtake or are overtaken if the direction allows reordering; otherwise they hold up what
    /// follows.
    #[must_use]
    pub fn with_detour(mut self, share: Share, longest: Duration, seed: u64) -> Link {
        let stream = Stream::new(seed, "detour");
        self.flight.detour(share.into(), nanos(longest), stream);
        self
    }

    /// The same link, but what leaves it arrives in frames: at the next multiple of `frame` and not before, as
    /// over a link whose slots come round in turn.
    #[must_use]
    pub fn with_frames(mut self, frame: Duration) -> Link {
        self.flight.gather(nanos(frame));
        self
    }

    /// Offers an IP packet of `size` bytes at `now` and says what becomes of it.
    ///
    /// `now` never decreases between calls; if it does, the latest one counts. A packet finds room if the
    /// bytes already waiting and its own do not exceed the queue; one that finds the serializer idle does
    /// not wait and always finds room.
    pub fn offer(&mut self, now: Time, size: Bytes) -> Fate {
        self.now = self.now.max(now);
        self.counters.offered.add(size);
        let fate = self.decide(size);
        match fate {
            Fate::Delivered { .. } => self.counters.delivered.add(size),
            Fate::Dropped(cause) => self.counters.drop(cause, size),
        }
        fate
    }

    /// Bytes waiting in front of the serializer; the packet in service and those in the air do not count.
    /// For `now` not before the last packet offered.
    pub fn queued(&self, now: Time) -> Bytes {
        Bytes(self.bottleneck.queued(now.as_nanos()))
    }

    /// The rate in force at `now`, counted in bytes of the direction's rate base.
    pub fn rate(&self, now: Time) -> Rate {
        Rate::bit(self.bottleneck.settings(now.as_nanos()).rate)
    }

    /// The one-way delay in force at `now`, without jitter.
    pub fn one_way(&self, now: Time) -> Duration {
        Duration::from_nanos(self.bottleneck.settings(now.as_nanos()).one_way)
    }

    /// Whether the link is out at `now`.
    pub fn is_out(&self, now: Time) -> bool {
        self.bottleneck.settings(now.as_nanos()).out
    }

    /// What became of the packets so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn decide(&mut self, size: Bytes) -> Fate {
        let on_link = size.0.clamp(1, LARGEST_PACKET);
        let Some(departure) = self.bottleneck.enqueue(self.now.as_nanos(), on_link) else {
            return Fate::Dropped(Cause::QueueFull);
        };
        // Every process draws for every packet sent: that keeps their luck independent.
        let lost = self.losses.judge(size, departure.settings.loss);
        let delay = self.flight.delay(departure.settings.one_way);
        if departure.settings.out {
            return Fate::Dropped(Cause::Outage);
        }
        match lost {
            Some(cause) => Fate::Dropped(cause),
            None => Fate::Delivered { at: Time::from_nanos(self.flight.arrive(departure.at, delay)) },
        }
    }
}
