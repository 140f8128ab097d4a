//! Trains of packets whose spacing at the receiver tells of the path.
//!
//! A *burst* leaves back to back: its spacing at the receiver is the bottleneck's, so it shows the capacity
//! `C`, whatever else goes over the link. A train *paced* at C comes apart when others use the link: traffic
//! at rate x stretches it by s = 1 + x/C, so C (2 - s) is the available rate `A`. A stretch beyond 2.2
//! cannot come from others at up to C: the capacity fell.
//!
//! Hosts send by the millisecond and read times that are off by some microseconds, so the spacing is that of
//! a line through all arrivals, trains are as long as the noise of the times asks for, and what others put
//! between is counted for the time in which the packets really left.

use super::path::between;
use super::SHARED_GROWTH;
use crate::event::{Report, Trail, Train};
use crate::parts::draw::draw;
use crate::units::{Bytes, Duration, Rate, Time};
use std::collections::VecDeque;

/// A train takes so much of the link's time: it fits into the queue target.
const LENGTH: f64 = 0.002;
/// Packets of a train. Fewer measure badly, more queue on thin links …
const PACKETS: std::ops::RangeInclusive<f64> = 8.0..=32.0;
/// … where a train of so few may do, if more would take longer than this: 10 Mbit/s.
const PACKETS_THIN: f64 = 5.0;
const LENGTH_THIN: f64 = 0.006;
/// Trains per round trip, of both kinds together …
const PER_ROUND_TRIP: f64 = 8.0;
/// … the least interval …
const INTERVAL_LEAST: f64 = 0.030;
/// … and the least interval in lengths of a train, at our own rate: the queue that a train makes on a thin link
/// stays rare, and so does the pause after it, which to others looks like a free link.
const INTERVAL_LENGTHS: f64 = 14.0;
/// Not more of what is sent than this goes in trains: who has little left would send nothing else.
const TRAINS_MOST: f64 = 0.5;
/// Intervals differ by chance: those of others are as long.
const SCATTER: std::ops::Range<f64> = 0.75..1.25;
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
/// Two such of the last three are sure: others pause after a train of their own.
const STRETCHED_OF: u8 = 0b111;
/// Stretch of a paced train that others cannot cause.
const FELL: f64 = 2.2;
/// A paced train speaks of the available rate if its pace was this close to C.
const PACE_TOLERANCE: f64 = 0.1;
/// A paced train whose packets left within less than this share of its time says nothing of others.
const SPREAD_LEAST: f64 = 0.4;
/// Gaps below this share of the mean, and how many of them make a train a clump.
const CLOSE: f64 = 0.1;
const CLUMPED: f64 = 0.5;
/// Packets between the ends of clumps that make a rate.
const CLUMP_PACKETS: u32 = 8;
/// Held back for less than this share of what a burst rests on, its packets show the bottleneck.
const OUTLASTS: f64 = 0.9;
/// Trains are long enough to know a rate to this share in spite of noisy times, within these packets.
const EXACT: f64 = 0.04;
const PACKETS_NOISY: f64 = 128.0;
/// A host that sends a paced train at once is asked for trains twice as long, up to so many times and so
/// many seconds: hosts wake up by the millisecond.
const LONGER_MOST: f64 = 8.0;
const LENGTH_BATCHED: f64 = 0.0025;
/// Standard deviation of the span of a train by a line through it, in those of one time and √packets.
const SPAN_DEVIATION: f64 = 3.5;
/// A burst's time must be so many deviations of one time over √packets, a quarter's error.
const CLEAR: f64 = 4.0 * SPAN_DEVIATION;
/// Deviations that are noise.
const DEVIATIONS: f64 = 2.0;
/// Packets of the first flight that leave as a burst …
const TRAIL_AFTER: u32 = 24;
/// … if so many are left to trail behind.
const TRAIL_LEAST: u32 = 4;
/// A packet of the trail is late if it left so many times the burst's own queue after it …
const LATE: f64 = 1.5;
/// … so many are needed …
const LATE_PACKETS: usize = 2;
/// … and the queue stands if this share of it is there still.
const STANDS: f64 = 0.5;
/// A burst's queue must be so many deviations of its packets' times.
const ROUGH: f64 = 10.0;
/// Where it drains, packets tell how fast that left at least so many times the burst's queue after it and met
/// at least this share of it.
const EARLY: f64 = 0.4;
const REMAINS: f64 = 0.1;
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
        /// It lasted longer than any of its packets was held back.
        outlasts: bool,
        /// The train left then …
        sent_at: Time,
        /// … and its first packet was under way for so many seconds, on two clocks.
        delay: f64,
    },
    /// What the queue of the first burst did afterwards: this share of the capacity is free.
    Room(f64),
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
    /// The packets from this one on leave one by one.
    trail: u32,
}

/// A train of which packets have been reported.
#[derive(Clone, Debug)]
struct Coming {
    asked: Asked,
    /// Packets told of, lost ones counted.
    told: u32,
    /// The burst before a trail has told what it can.
    judged: bool,
    places: Vec<Place>,
}

/// A packet of a train that has arrived: its number there, and its times in seconds since the train's first.
#[derive(Clone, Copy, Debug)]
struct Place {
    index: u32,
    sent_at: Time,
    sent: f64,
    received_at: Time,
    received: f64,
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
    /// What is remembered may be old: one burst suffices to change it.
    doubted: bool,
    next_at_once: bool,
    /// Whether the last paced trains were stretched, the newest in the lowest bit.
    stretched: u8,
    shared_at: Option<Time>,
    clumped: bool,
    /// Trains are this many times longer, because the host sends many packets at once.
    longer: f64,
    leaving: Option<Leaving>,
}

/// A paced train that is being sent.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    from: Option<Time>,
    left: u32,
    /// How long it should take.
    told: f64,
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
            doubted: false,
            next_at_once: false,
            stretched: 0,
            shared_at: None,
            clumped: false,
            longer: 1.0,
            leaving: None,
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

    /// Something else speaks of others on the link.
    pub fn hear_of_others(&mut self, now: Time) {
        self.shared_at = Some(now);
    }

    /// Trains speak of noise, and so they did before.
    pub fn forget_others(&mut self) {
        self.shared_at = None;
        self.stretched = 0;
    }

    /// Whether the newest train arrived in clumps: its times are noise.
    pub fn are_clumped(&self) -> bool {
        self.clumped
    }

    /// Packets of a train at this rate.
    pub fn length(rate: f64) -> f64 {
        let least = (LENGTH_THIN * rate).clamp(PACKETS_THIN, *PACKETS.start());
        (LENGTH * rate).clamp(least, *PACKETS.end()).floor()
    }

    /// Packets of a train at this rate where times are off by so many seconds.
    fn length_in_noise(&self, rate: f64, noise: f64) -> f64 {
        let exact = libm::pow(SPAN_DEVIATION * noise * rate / EXACT, 2.0 / 3.0).min(PACKETS_NOISY);
        Self::length(rate).max(exact).floor()
    }

    /// By what share one train may be off where times are off by so many seconds.
    pub fn unsure(&self, noise: f64) -> f64 {
        let rate = self.capacity().unwrap_or(0.0);
        let packets = self.length_in_noise(rate, noise).max(1.0);
        SPAN_DEVIATION * noise * rate / (packets * libm::sqrt(packets))
    }

    /// The first flight is one burst; where it has packets to spare and `time` is given, the last ones trail
    /// behind it for about so many seconds.
    pub fn first(&mut self, now: Time, packets: f64, time: Option<f64>) -> Option<Train> {
        let mut train = self.begin(now, packets, None)?;
        let Some(time) = time.filter(|_| train.packets >= TRAIL_AFTER + TRAIL_LEAST) else {
            return Some(train);
        };
        let gaps = libm::pow(2.0, f64::from(train.packets - TRAIL_AFTER)) - 1.0;
        train.trail =
            Duration::try_from_secs_f64(time / gaps).ok().map(|gap| Trail { after: TRAIL_AFTER, gap });
        if let Some(asked) = self.under_way.back_mut().filter(|_| train.trail.is_some()) {
            asked.trail = TRAIL_AFTER;
        }
        Some(train)
    }

    /// A train paced at a rate that is no more than believed.
    pub fn paced_at(&mut self, now: Time, rate: f64) -> Option<Train> {
        self.begin(now, Self::length(rate), Some(rate))
    }

    /// A train, if one is due; `rate` is what we send at, `round_trip` D, `noise` that of times.
    pub fn poll(&mut self, now: Time, rate: f64, round_trip: f64, noise: f64) -> Option<Train> {
        let capacity = self.capacity();
        let sent_at = capacity.unwrap_or(rate);
        let packets = self.length_in_noise(sent_at, noise);
        let length = INTERVAL_LENGTHS * packets / sent_at.min(rate).max(1e-9);
        let interval = (round_trip / PER_ROUND_TRIP).max(INTERVAL_LEAST).max(length.min(round_trip));
        let interval = interval.max(packets / (TRAINS_MOST * rate).max(1e-9));
        if self.last.is_some_and(|last| between(last, now) < interval * scattered(last)) {
            return None;
        }
        let paced = self.paced_next || self.paced_in_a_row > 0;
        self.paced_in_a_row = self.paced_in_a_row.saturating_sub(1);
        let pace = capacity.filter(|_| paced);
        let packets = match pace {
            Some(pace) => packets.max((packets * self.longer).min(LENGTH_BATCHED * pace)).floor(),
            None => packets,
        };
        self.paced_next = pace.is_none();
        let train = self.begin(now, packets, pace);
        if std::mem::take(&mut self.next_at_once) {
            self.last = None;
        }
        train
    }

    /// The next trains are paced ones.
    pub fn pace_next(&mut self, count: u32) {
        self.paced_in_a_row = count;
        self.last = None;
    }

    /// What bursts have told is not true.
    pub fn forget(&mut self) {
        self.bursts.clear();
        self.odd = None;
    }

    /// After a pause: the next train is a burst and is believed alone, a paced one follows it at once.
    pub fn doubt(&mut self) {
        self.doubted = true;
        self.next_at_once = true;
        self.odd = None;
        self.paced_next = false;
        self.paced_in_a_row = 0;
        self.last = None;
    }

    fn begin(&mut self, now: Time, packets: f64, pace: Option<f64>) -> Option<Train> {
        self.last = Some(now);
        self.number = self.number.wrapping_add(1);
        let packets = packets as u32;
        let asked = Asked { number: self.number, packets, pace, trail: packets };
        if self.under_way.len() >= UNDER_WAY_MOST {
            self.under_way.pop_front();
        }
        self.under_way.push_back(asked);
        self.leaving = pace.map(|pace| Leaving {
            from: None,
            left: packets,
            told: f64::from(packets.saturating_sub(1)) / pace.max(1e-9),
        });
        let pace = pace.map(|pace| rate(pace, self.mss));
        Some(Train { number: asked.number, packets, pace, trail: None })
    }

    /// A packet left. A paced train that the host sent at once says nothing: the next ones are longer.
    pub fn hear_departure(&mut self, now: Time) {
        let Some(mut leaving) = self.leaving.take() else { return };
        let from = *leaving.from.get_or_insert(now);
        leaving.left = leaving.left.saturating_sub(1);
        if leaving.left > 0 {
            self.leaving = Some(leaving);
        } else if between(from, now) < SPREAD_LEAST * leaving.told && self.longer < LONGER_MOST {
            self.longer *= 2.0;
            self.pace_next(self.paced_in_a_row.max(1));
        }
    }

    /// Hears of every packet; the sample of the train that ends with it or before it. Times are off by about
    /// `noise`.
    pub fn hear(&mut self, report: &Report, noise: f64) -> Option<Sample> {
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
                    asked,
                    told: 0,
                    judged: false,
                    places: Vec::new(),
                });
            }
            if let Some(coming) = &mut self.coming {
                coming.hear(report);
                if coming.told >= coming.asked.packets {
                    ended = self.coming.take();
                } else if coming.told == coming.asked.trail {
                    ended = Some(coming.clone());
                    coming.judged = true;
                }
            }
        }
        let coming = ended?;
        if coming.judged {
            return coming.room().map(Sample::Room);
        }
        self.judge(&coming, noise)
    }

    /// What the train coming in shows so far: packets, rate and whether its halves agree.
    pub fn so_far(&self) -> Option<(f64, f64, bool)> {
        self.coming.as_ref().and_then(Coming::dispersion)
    }

    fn judge(&mut self, coming: &Coming, noise: f64) -> Option<Sample> {
        let (first, last) = (coming.places.first()?, coming.places.last()?);
        if (coming.places.len() as f64) < *PACKETS.start() / 2.0 {
            return None;
        }
        self.clumped = coming.is_clumped();
        let Some(pace) = coming.asked.pace else {
            let (packets, rate, agrees) = coming.dispersion()?;
            let changed = self.learn(rate, agrees);
            let outlasts = packets / rate > OUTLASTS * coming.longest_gap();
            let (sent_at, delay) = (first.sent_at, between(first.sent_at, first.received_at));
            return Some(Sample::Burst { packets, rate, agrees, changed, outlasts, sent_at, delay });
        };
        let capacity = self.capacity()?;
        let steps = f64::from(last.index - first.index);
        // What left more slowly than it was told to says nothing, and what left at once neither.
        let (left, told) = (last.sent - first.sent, steps / pace);
        if !(SPREAD_LEAST * told..=(1.0 + PACE_TOLERANCE) * told).contains(&left) {
            return None;
        }
        let arrived = steps * coming.spacing()?.1;
        let fell = arrived > FELL * told.max(left);
        // What stands between the packets came while they left; by themselves they take this long.
        let alone = left.max(steps / capacity);
        let stretch = 1.0 + (arrived - alone) / left;
        let unsure = DEVIATIONS * SPAN_DEVIATION * noise / libm::sqrt(steps + 1.0) / left;
        let stretched = stretch > SHARED.start + unsure && stretch < SHARED.end + unsure;
        self.stretched = (self.stretched << 1 | u8::from(stretched)) & STRETCHED_OF;
        // Two in a row tell of others; who knows of them hears them by two of three, unless times are noise.
        let known = self.shared_at.is_some_and(|at| between(at, first.sent_at) < SHARED_GROWTH);
        let two = self.stretched & 0b11 == 0b11;
        let sure = two || (known && unsure < 0.02 && self.stretched.count_ones() > 1);
        if stretched && sure {
            self.shared_at = Some(first.sent_at);
        }
        if fell {
            return Some(Sample::Fell);
        }
        if (pace / capacity - 1.0).abs() > PACE_TOLERANCE {
            return None;
        }
        let stretch = if stretch < 1.0 + unsure { 1.0 } else { stretch };
        let rate = (pace * (2.0 - stretch)).clamp(0.0, pace);
        Some(Sample::Available { rate, sent_at: first.sent_at })
    }

    /// Remembers a burst; by what factor the capacity has changed if this one makes it certain.
    fn learn(&mut self, rate: f64, agrees: bool) -> Option<f64> {
        let near = |a: f64, b: f64, by: f64| (a / b - 1.0).abs() <= by;
        let alone = std::mem::take(&mut self.doubted) && agrees;
        if let Some(before) = self.capacity().filter(|&median| !near(rate, median, APART)) {
            if alone {
                self.bursts.clear();
                self.bursts.push_back(rate);
                return Some(rate / before);
            }
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

/// A factor of the time from this train to the next one, differing from flow to flow: who always sends into the
/// pauses that others make after their trains finds too much free.
fn scattered(last: Time) -> f64 {
    SCATTER.start + (SCATTER.end - SCATTER.start) * draw(last) as f64 / f64::from(u32::MAX)
}

impl Coming {
    fn hear(&mut self, report: &Report) {
        let index = self.told;
        self.told = self.told.saturating_add(1);
        let Some(received_at) = report.received_at else { return };
        let (sent_from, from) = self
            .places
            .first()
            .map_or((report.sent_at, received_at), |first| (first.sent_at, first.received_at));
        self.places.push(Place {
            index,
            sent_at: report.sent_at,
            sent: between(sent_from, report.sent_at),
            received_at,
            received: between(from, received_at),
        });
    }

    /// The packets that left as a burst, not those that trail behind.
    fn burst(&self) -> &[Place] {
        &self.places[..self.places.partition_point(|at| at.index < self.asked.trail)]
    }

    /// The share of the capacity that is free, by what trails behind the burst. The queue that the burst made
    /// drains as fast as others leave the link alone; where it stands, they do not. Nothing if the last packets
    /// left too early to tell.
    fn room(&self) -> Option<f64> {
        let burst = self.burst();
        let (first, last) = (burst.first()?, burst.last()?);
        let spacing = line(burst)?;
        let delay = |at: &Place| at.received - at.sent;
        let made = delay(last) - delay(first);
        let later: Vec<&Place> = self.places[burst.len()..].iter().collect();
        let late = || later.iter().filter(|at| at.sent - last.sent > LATE * made);
        // Times this rough say nothing of a queue this short.
        let rough = ROUGH * self.noise(spacing);
        if made <= rough || late().count() < LATE_PACKETS {
            return None;
        }
        let own = |at: &Place| spacing * f64::from(at.index - last.index);
        let free = |at: &Place| {
            let drained = delay(last) + own(at) - delay(at);
            (drained / (at.sent - last.sent)).clamp(0.0, 1.0)
        };
        let stands = |at: &&&Place, share: f64| delay(at) - delay(first) > share * made;
        // Others' bursts and pauses are shorter than all that: what is seen to the end counts.
        if late().all(|at| stands(&at, STANDS)) {
            return late().next_back().map(|at| free(at));
        }
        // The last packet that met something of it tells how fast it drains.
        let early = later.iter().filter(|at| at.sent - last.sent > EARLY * made);
        Some(early.take_while(|at| stands(at, REMAINS)).last().map_or(1.0, |at| free(at)))
    }

    /// Whether most packets arrived together with their neighbours: something behind the bottleneck holds
    /// them back and lets them go together, or the clock that saw them is coarse.
    fn is_clumped(&self) -> bool {
        let places = self.burst();
        let Some((first, last)) = places.first().zip(places.last()) else { return false };
        let mean = (last.received - first.received) / f64::from((last.index - first.index).max(1));
        let gaps = places.windows(2).map(|pair| (pair[1].received - pair[0].received).abs());
        let close = gaps.filter(|gap| *gap <= CLOSE * mean).count();
        close as f64 > CLUMPED * (places.len() - 1) as f64
    }

    /// Longest time without an arrival.
    fn longest_gap(&self) -> f64 {
        self.places.windows(2).map(|pair| pair[1].received - pair[0].received).fold(0.0, f64::max)
    }

    /// Seconds from packet to packet at the receiver, and the packets they rest on.
    fn spacing(&self) -> Option<(f64, f64)> {
        let places = self.burst();
        if !self.is_clumped() {
            return line(places).map(|spacing| (places.len() as f64, spacing));
        }
        // Only the last packet of a clump arrived when it was seen; the last clump is cut off.
        let ends: Vec<Place> = places
            .windows(2)
            .filter(|pair| pair[1].received > pair[0].received)
            .map(|pair| pair[0])
            .collect();
        let steps = ends.last()?.index - ends.first()?.index;
        line(&ends).filter(|_| steps >= CLUMP_PACKETS).map(|spacing| (f64::from(steps), spacing))
    }

    /// Standard deviation of the receive times from the line.
    fn noise(&self, spacing: f64) -> f64 {
        let places = self.burst();
        let n = places.len() as f64;
        let offsets = || places.iter().map(|at| at.received - spacing * f64::from(at.index));
        let mean = offsets().sum::<f64>() / n;
        libm::sqrt(offsets().map(|offset| (offset - mean) * (offset - mean)).sum::<f64>() / n)
    }

    /// Packets, their rate if the path spread them, and whether both halves agree.
    fn dispersion(&self) -> Option<(f64, f64, bool)> {
        let places = self.burst();
        let (first, last) = (places.first()?, places.last()?);
        let (packets, spacing) = self.spacing()?;
        // What arrived in a moment by a clock this noisy may be anything.
        if !self.is_clumped() && spacing * packets < CLEAR * self.noise(spacing) / libm::sqrt(packets) {
            return None;
        }
        if spacing * f64::from(last.index - first.index) < STRETCHED * (last.sent - first.sent) {
            return None;
        }
        let (early, late) = places.split_at(places.len() / 2);
        let agrees = !self.is_clumped()
            && line(early).zip(line(late)).is_some_and(|(a, b)| (a / b - 1.0).abs() <= AGREE);
        Some((packets, 1.0 / spacing, agrees))
    }
}

/// Seconds per packet by the straight line that fits best; nothing if it does not rise.
fn line(places: &[Place]) -> Option<f64> {
    let n = places.len() as f64;
    let (sum, time) =
        places.iter().fold((0.0, 0.0), |(sum, time), at| (sum + f64::from(at.index), time + at.received));
    let (mean, middle) = (sum / n, time / n);
    let (product, square) = places.iter().fold((0.0, 0.0), |(product, square), at| {
        let index = f64::from(at.index) - mean;
        (product + index * (at.received - middle), square + index * index)
    });
    (product > 0.0 && square > 0.0).then(|| product / square)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_is_two_milliseconds_of_the_link_and_on_a_thin_one_hardly_longer_than_it_must_be() {
        let length = |mbit: f64| Trains::length(mbit * 1e6 / 12_000.0);
        assert_eq!([1.0, 10.0, 20.0, 60.0, 150.0, 1_000.0].map(length), [5.0, 5.0, 8.0, 10.0, 25.0, 32.0]);
    }

    /// A burst of 24 packets and its trail over a link of 1000 packets per second of which others use a share.
    fn room(others: f64) -> Option<f64> {
        let mut trains = Trains::new(Bytes(1000));
        let train = trains.first(Time::ZERO, 32.0, Some(0.2))?;
        let (mut sent, mut queue) = (0.0, if others >= 1.0 { 0.01 } else { 0.0 });
        let mut told = None;
        for number in 0..train.packets {
            queue += 0.001;
            let at = |seconds: f64| Time::from_nanos((seconds * 1e9) as u64);
            let report = Report {
                now: at(sent + 1.0),
                sent_at: at(sent),
                received_at: Some(at(sent + queue + 0.05)),
                bytes: Bytes(1000),
                train: Some(train.number),
            };
            if let Some(Sample::Room(room)) = trains.hear(&report, 0.0) {
                told = Some(room);
            }
            let gap = train.gap(number, Bytes(1000)).as_secs_f64();
            sent += gap;
            queue = f64::max(queue - (1.0 - others) * gap, if others >= 1.0 { 0.01 } else { 0.0 });
        }
        assert!((trains.capacity()? / 1000.0 - 1.0).abs() < 0.01);
        told
    }

    #[test]
    fn the_trail_of_the_first_burst_tells_a_busy_link_from_a_free_one() {
        let free = room(0.0).unwrap_or_default();
        assert!(free > 0.95, "{free}");
        let half = room(0.5).unwrap_or_default();
        assert!((half - 0.5).abs() < 0.15, "{half}");
        let busy = room(1.0).unwrap_or(1.0);
        assert!(busy < 0.1, "{busy}");
    }

    #[test]
    fn a_short_first_flight_has_no_trail() {
        let mut trains = Trains::new(Bytes(1000));
        assert_eq!(trains.first(Time::ZERO, 10.0, Some(0.2)).and_then(|train| train.trail), None);
    }
}
