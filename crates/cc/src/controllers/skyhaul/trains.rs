//! Trains of packets whose spacing at the receiver tells of the path.
//!
//! A *burst* leaves back to back: its spacing at the receiver is the bottleneck's, so it shows the capacity
//! `C`, whatever else goes over the link. A train *paced* at C comes apart when others use the link: traffic
//! at rate x stretches it by s = 1 + x/C, so C (2 - s) is the available rate `A`. A stretch beyond 2.2
//! cannot come from others at up to C: the capacity fell.

use super::path::between;
use crate::event::{Report, Train};
use crate::units::{Bytes, Duration, Rate, Time};
use std::collections::VecDeque;

/// A train takes so much of the link's time: it fits into the queue target.
const LENGTH: f64 = 0.002;
/// Packets of a train. Fewer measure badly, more queue on thin links.
const PACKETS: std::ops::RangeInclusive<f64> = 8.0..=32.0;
/// Trains per round trip, of both kinds together …
const PER_ROUND_TRIP: f64 = 8.0;
/// … the least interval …
const INTERVAL_LEAST: f64 = 0.030;
/// … and the least interval in lengths of a train: the queue that a train makes on a thin link stays rare.
const INTERVAL_LENGTHS: f64 = 14.0;
/// Bursts that are remembered.
const MEMORY: usize = 5;
/// Two bursts in a row that agree this well …
const AGREE: f64 = 0.15;
/// … and part by more than this from what was believed are the truth now.
const APART: f64 = 0.30;
/// Spread of the remembered bursts that is still trusted.
const TRUSTED: f64 = 1.3;
/// A burst that is not stretched by this much met no bottleneck.
const STRETCHED: f64 = 1.3;
/// Stretch of a paced train that speaks of others on the link.
const SHARED: std::ops::Range<f64> = 1.15..2.1;
/// Stretch of a paced train that others cannot cause.
const FELL: f64 = 2.2;
/// A paced train speaks of the available rate if its pace was this close to C.
const PACE_TOLERANCE: f64 = 0.1;
/// Gaps below this share of the mean, and how many of them make a train a clump.
const CLOSE: f64 = 0.25;
const CLUMPED: f64 = 0.3;
/// Trains that may be under way: more than are sent in any round trip.
const UNDER_WAY_MOST: usize = 256;

/// What a train told; rates are packets per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sample {
    /// A burst was spread to this rate.
    Burst {
        /// Packets the sample rests on.
        packets: f64,
        rate: f64,
        /// Both halves agree within 15 %.
        agrees: bool,
        /// Two bursts in a row say so: the capacity changed by this factor.
        changed: Option<f64>,
        /// The train left then.
        sent_at: Time,
    },
    /// This much of the capacity is left to us.
    Available { rate: f64, sent_at: Time },
    /// The capacity fell to less than half.
    Fell,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    number: u32,
    packets: u32,
    /// Nothing for a burst.
    pace: Option<f64>,
}

/// A train of which packets have been reported.
#[derive(Clone, Debug)]
struct Coming {
    /// Times between the arrivals of neighbours.
    gaps: Vec<f64>,
    asked: Asked,
    index: u32,
    first: Option<Place>,
    middle: Option<Place>,
    last: Option<Place>,
    received: u32,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    index: u32,
    sent_at: Time,
    received_at: Time,
}

impl Place {
    /// Packets per second from `from` to here, by send or by receive times; gaps of lost packets count.
    fn rate_since(&self, from: &Place) -> f64 {
        f64::from(self.index - from.index) / between(from.received_at, self.received_at).max(1e-12)
    }
    fn stretch_since(&self, from: &Place) -> f64 {
        between(from.received_at, self.received_at) / between(from.sent_at, self.sent_at).max(1e-12)
    }
}

/// All about trains.
#[derive(Clone, Debug)]
pub(super) struct Trains {
    mss: Bytes,
    last: Option<Time>,
    number: u32,
    paced_next: bool,
    /// Only paced trains until so many have left: a new capacity wants its available rate.
    paced_in_a_row: u32,
    under_way: VecDeque<Asked>,
    coming: Option<Coming>,
    bursts: VecDeque<f64>,
    odd: Option<f64>,
    stretched_before: bool,
    shared_at: Option<Time>,
    clumped: bool,
}

impl Trains {
    pub fn new(mss: Bytes) -> Self {
        Trains {
            mss,
            last: None,
            number: 0,
            paced_next: false,
            paced_in_a_row: 0,
            under_way: VecDeque::new(),
            coming: None,
            bursts: VecDeque::new(),
            odd: None,
            stretched_before: false,
            shared_at: None,
            clumped: false,
        }
    }

    /// `C` in packets per second: the median of the remembered bursts.
    pub fn capacity(&self) -> Option<f64> {
        let mut sorted: Vec<f64> = self.bursts.iter().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }

    /// Whether the remembered bursts agree.
    pub fn is_trusted(&self) -> bool {
        let least = self.bursts.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.bursts.iter().copied().fold(0.0, f64::max);
        !self.bursts.is_empty() && most < TRUSTED * least
    }

    /// How many bursts are remembered.
    pub fn bursts(&self) -> usize {
        self.bursts.len()
    }

    /// Half the distance of the remembered bursts' extremes, as a share of their median.
    pub fn spread(&self) -> f64 {
        let least = self.bursts.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.bursts.iter().copied().fold(0.0, f64::max);
        self.capacity().map_or(0.0, |median| 0.5 * (most - least) / median.max(1e-9))
    }

    /// When trains last spoke of others on the link.
    pub fn shared_at(&self) -> Option<Time> {
        self.shared_at
    }

    /// Whether the newest train arrived in clumps: its times are noise.
    pub fn are_clumped(&self) -> bool {
        self.clumped
    }

    /// Packets of a train at this rate.
    pub fn length(rate: f64) -> f64 {
        (LENGTH * rate).clamp(*PACKETS.start(), *PACKETS.end()).floor()
    }

    /// The first flight is one burst.
    pub fn first(&mut self, now: Time, packets: f64) -> Option<Train> {
        self.begin(now, packets, None)
    }

    /// A train, if one is due; `rate` is what we send at, `round_trip` D.
    pub fn poll(&mut self, now: Time, rate: f64, round_trip: f64) -> Option<Train> {
        let capacity = self.capacity();
        let sent_at = capacity.unwrap_or(rate);
        let length = INTERVAL_LENGTHS * Self::length(sent_at) / sent_at.max(1e-9);
        let interval = (round_trip / PER_ROUND_TRIP).max(INTERVAL_LEAST).max(length.min(round_trip));
        if self.last.is_some_and(|last| between(last, now) < interval) {
            return None;
        }
        let paced = self.paced_next || self.paced_in_a_row > 0;
        self.paced_in_a_row = self.paced_in_a_row.saturating_sub(1);
        let pace = capacity.filter(|_| paced);
        self.paced_next = pace.is_none();
        self.begin(now, Self::length(capacity.unwrap_or(rate)), pace)
    }

    /// The next trains are paced ones.
    pub fn pace_next(&mut self, count: u32) {
        self.paced_in_a_row = count;
        self.last = None;
    }

    fn begin(&mut self, now: Time, packets: f64, pace: Option<f64>) -> Option<Train> {
        self.last = Some(now);
        self.number = self.number.wrapping_add(1);
        let asked = Asked { number: self.number, packets: packets as u32, pace };
        if self.under_way.len() >= UNDER_WAY_MOST {
            self.under_way.pop_front();
        }
        self.under_way.push_back(asked);
        let pace = pace.map(|pace| rate(pace, self.mss));
        Some(Train { number: asked.number, packets: asked.packets, pace })
    }

    /// Hears of every packet; the sample of the train that ends with it or before it.
    pub fn hear(&mut self, report: &Report) -> Option<Sample> {
        let mut ended = None;
        if self.coming.as_ref().is_some_and(|coming| report.train != Some(coming.asked.number)) {
            ended = self.coming.take();
        }
        if let Some(number) = report.train {
            if self.coming.is_none() {
                while self.under_way.front().is_some_and(|asked| asked.number != number) {
                    self.under_way.pop_front();
                }
                self.coming = self.under_way.pop_front().map(|asked| Coming {
                    gaps: Vec::new(),
                    asked,
                    index: 0,
                    first: None,
                    middle: None,
                    last: None,
                    received: 0,
                });
            }
            if let Some(coming) = &mut self.coming {
                coming.hear(report);
                if coming.index >= coming.asked.packets {
                    ended = self.coming.take();
                }
            }
        }
        ended.and_then(|coming| self.judge(&coming))
    }

    /// What the train coming in shows so far: packets, rate and whether its halves agree.
    pub fn so_far(&self) -> Option<(f64, f64, bool)> {
        self.coming.as_ref().and_then(Coming::dispersion)
    }

    fn judge(&mut self, coming: &Coming) -> Option<Sample> {
        let (first, last) = (coming.first?, coming.last?);
        if f64::from(coming.received) < *PACKETS.start() / 2.0 {
            return None;
        }
        self.clumped = coming.is_clumped();
        if self.clumped && !self.bursts.is_empty() {
            return None;
        }
        let Some(pace) = coming.asked.pace else {
            let (packets, rate, agrees) = coming.dispersion()?;
            let changed = self.learn(rate);
            return Some(Sample::Burst { packets, rate, agrees, changed, sent_at: first.sent_at });
        };
        // What left more slowly than it was told to says nothing.
        let left_at = f64::from(last.index - first.index) / between(first.sent_at, last.sent_at).max(1e-12);
        if (left_at / pace - 1.0).abs() > PACE_TOLERANCE {
            return None;
        }
        let stretch = last.stretch_since(&first);
        let stretched = SHARED.contains(&stretch);
        if stretched && self.stretched_before {
            self.shared_at = Some(first.sent_at);
        }
        self.stretched_before = stretched;
        if stretch > FELL {
            return Some(Sample::Fell);
        }
        let capacity = self.capacity()?;
        if (pace / capacity - 1.0).abs() > PACE_TOLERANCE {
            return None;
        }
        let rate = (pace * (2.0 - stretch)).clamp(0.0, pace);
        Some(Sample::Available { rate, sent_at: first.sent_at })
    }

    /// Remembers a burst; by what factor the capacity has changed if this one makes it certain.
    fn learn(&mut self, rate: f64) -> Option<f64> {
        let near = |a: f64, b: f64, by: f64| (a / b - 1.0).abs() <= by;
        if let Some(before) = self.capacity().filter(|&median| !near(rate, median, APART)) {
            if self.odd.replace(rate).is_some_and(|odd| near(rate, odd, AGREE)) {
                self.bursts.clear();
                self.bursts.extend(self.odd.take().into_iter().chain([rate]));
                return Some(rate / before);
            }
            return None;
        }
        self.odd = None;
        if self.bursts.len() >= MEMORY {
            self.bursts.pop_front();
        }
        self.bursts.push_back(rate);
        None
    }
}

impl Coming {
    fn hear(&mut self, report: &Report) {
        let index = self.index;
        self.index += 1;
        let Some(received_at) = report.received_at else { return };
        let place = Place { index, sent_at: report.sent_at, received_at };
        self.received += 1;
        if let Some(last) = self.last.filter(|last| last.index + 1 == index) {
            self.gaps.push(between(last.received_at, received_at));
        }
        self.first.get_or_insert(place);
        self.last = Some(place);
        if self.middle.is_none() && index >= self.asked.packets / 2 {
            self.middle = Some(place);
        }
    }

    /// Whether many packets arrived closer together than any bottleneck lets them out, even between the
    /// packets of others: something behind it holds them back and lets them go together.
    fn is_clumped(&self) -> bool {
        let mean = self.gaps.iter().sum::<f64>() / (self.gaps.len() as f64).max(1.0);
        let close = self.gaps.iter().filter(|gap| **gap < CLOSE * mean).count();
        close as f64 > CLUMPED * self.gaps.len() as f64
    }

    fn dispersion(&self) -> Option<(f64, f64, bool)> {
        let (first, last) = (self.first?, self.last?);
        if last.index == first.index || last.stretch_since(&first) < STRETCHED {
            return None;
        }
        let agrees = self.middle.is_some_and(|middle| {
            let halves = (middle.index > first.index && last.index > middle.index)
                .then(|| middle.rate_since(&first) / last.rate_since(&middle));
            halves.is_some_and(|ratio| (ratio - 1.0).abs() <= AGREE)
        });
        Some((f64::from(self.received), last.rate_since(&first), agrees))
    }
}

/// Packets per second as a rate of bits.
pub(super) fn rate(packets_per_second: f64, mss: Bytes) -> Rate {
    // At least a packet in 100 s, so that something always moves.
    let bytes = (packets_per_second.max(0.01) * mss.as_f64().max(1.0)).max(1.0);
    Bytes::from_f64(bytes).per(Duration::from_secs(1)).max(Rate::bit(1))
}

/// A rate of bits as packets per second.
pub(super) fn packets(rate: Rate, mss: Bytes) -> f64 {
    rate.bytes_in(Duration::from_secs(1)).as_f64() / mss.as_f64().max(1.0)
}
