//! The plain form's law in whole numbers. `bpf/law_skyhaul.h` is the same line by line, and a test holds the two
//! to equal windows; whoever changes one changes both.
//!
//! Windows count 1/256 segments, rates segments per microsecond in 2⁻²⁴, times microseconds. Every product stays
//! below 2⁶³ because rates, round trips and windows are bounded where they come in.

/// One answer, as a host tells it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard {
    /// Milliseconds of any clock; wraps.
    pub now_ms: u32,
    /// Round trip in microseconds; zero for none.
    pub rtt: u32,
    /// Segments newly acknowledged.
    pub acked: u32,
    /// Segments in flight before this answer.
    pub flight: u32,
    /// Delivery rate; zero for none.
    pub rate: u64,
    /// The answer begins a packet-timed round.
    pub round: bool,
    /// The rate is the application's.
    pub app_limited: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// The window grows by a factor per round trip.
    #[default]
    Start,
    /// The queue of the start drains.
    Drain,
    /// A small queue is kept.
    Cruise,
}

/// The state: 96 bytes in C, of the 104 that the kernel has for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Law {
    window: u64,
    /// The window of the round before: what is answered now was sent under it.
    previous: u64,
    /// Greatest delivery rates of this round and of the one before, and of long ago, fading.
    rate: u64,
    last: u64,
    peak: u64,
    /// D, the least round trip, and the least one of this round; zero for none.
    least: u32,
    round: u32,
    /// Queue of the round before, and the greatest one that is known to fit; zero for unknown.
    queue: u32,
    room: u32,
    /// This round: segments acknowledged, lost, most in flight, most in one answer.
    acked: u32,
    lost: u32,
    flight: u32,
    bundle: u32,
    /// Sum of the round trips above D, in units of 64 µs, and by how much the mean of the round before was above its
    /// least: jitter.
    sum: u32,
    spread: u32,
    /// When D was last seen.
    seen_ms: u32,
    /// What may replace D; zero for nothing.
    replacing: u32,
    /// Share of packets that the path loses without a queue, in 2⁻¹⁶.
    noise: u16,
    /// Growth of the last round, in 2⁻¹².
    growth: u16,
    /// Answers of this round and of the one before.
    samples: u16,
    before: u16,
    /// When the answers with a queue began, and the longest of their round trips in 64 µs.
    hot_ms: u16,
    hot_rtt: u16,
    stage: Stage,
    /// Answers in a row with a queue.
    hot: u8,
    /// Rounds: without growth of the rate, with no queue, with a long one, since the stage began.
    flat: u8,
    empty: u8,
    long: u8,
    rounds: u8,
    /// Rounds until the window is judged again, without acceleration, of a dip.
    skip: u8,
    hold: u8,
    dip: u8,
    /// 1 after the queue has stayed although we gave way.
    others: u8,
    /// Whether the window shrank by more than a sixteenth at the ends of the last rounds; bit 0 is the newest.
    gave: u8,
    /// The same where it grew by more than a sixty-fourth.
    grown: u8,
    /// 1: in this round the application was the limit.
    idle: u8,
    /// Bit 0: silent since a timeout; bit 1: nothing was heard between the last two.
    silent: u8,
}

const SEGMENT: u64 = 256;
const WINDOW_MOST: u64 = (1 << 32) - 1;
const WINDOW_LEAST: u64 = 2 * SEGMENT;
/// Never given up but for a timeout: what RFC 6928 lets anyone begin with.
const TEN: u64 = 10 * SEGMENT;
/// 67 s and 3 Tbit/s: nothing is slower or faster. Rates and windows fit 32 bits, as C keeps them.
const TIME_MOST: u32 = 1 << 26;
const RATE_MOST: u64 = (1 << 32) - 1;
const ONE: u64 = 1 << 16;

/// Below this window the start triples, because what it overshoots by is repaired in no time; above it doubles.
const TRIPLE: u64 = 1024 * SEGMENT;
/// Pace of a start that triples and of one that doubles, in 2⁻⁸ windows per round trip: f ln f / (f - 1).
const PACE_TRIPLE: u64 = 422;
const PACE_DOUBLE: u64 = 355;
/// Pace otherwise: a little above one, so that the window decides.
const PACE: u64 = 261;
/// Window of the start, in what went through: more is not answered by more.
const START_MOST: u64 = 7;
/// Growth of the rate by a quarter per round is growth; three rounds without are the end of the start (BBR).
const FLAT: u8 = 3;
/// The start ends at a queue of D/16, at least 4 ms and at most 16 ms, as in HyStart++ (RFC 9406 §4.3) …
const HOT_LEAST: u32 = 4_000;
const HOT_MOST: u32 = 16_000;
/// … that an eighth of a round's answers have seen without a break, eight of them at most, and for D/16; and it must not
/// shrink meanwhile, as that of packets does which were held up for a moment.
const HOT_ANSWERS: (u16, u16) = (2, 8);
/// Queue wanted, in µs times the root of segments per second: 1.2/√B seconds, twice that of the rich form because
/// round trips are coarser than one-way delays. The root makes unlike flows want unlike queues, so that equal
/// queues mean equal rates.
const TARGET: u64 = 1_200_000;
const TARGET_LEAST: u32 = 1_000;
const TARGET_MOST: u32 = 2_000;
/// Lost beyond the noise: a thirty-second of the round and eight segments.
const LOST_SHIFT: u32 = 5;
const LOST_FEW: u32 = 8;
/// Rounds with hardly a queue before growth doubles from round to round, at most to one half.
const EMPTY: u8 = 3;
const GROWTH_MOST: u64 = 1 << 11;
/// Rounds without acceleration after losses by the queue.
const HOLD: u8 = 8;
/// Growth within three rounds shows in the losses.
const GROWN: u8 = 7;
/// Window in cruise, in halves of what goes through.
const CRUISE_MOST: u64 = 3;
/// A least round trip not seen for so long is looked for, and after so many rounds of a long queue.
const UNSEEN_MS: u32 = 10_000;
const LONG: u8 = 4;
/// Rounds of a dip: one with a smaller window, and two until its answers are in.
const DIP: u8 = 3;
/// Rounds without a queue until others are thought to be gone.
const QUIET: u8 = 16;
/// Jitter allowed for.
const SPREAD_MOST: u32 = 20_000;
/// Delays of bundled answers that are allowed for.
const BUNDLE_MOST: u64 = 100_000;

/// A round trip in 64 µs, up to 4 s.
fn coarse(rtt: u32) -> u16 {
    u16::try_from(rtt >> 6).unwrap_or(u16::MAX)
}

impl Law {
    /// A window of so many segments.
    pub fn new(segments: u64) -> Self {
        let mut law = Law::default();
        law.set(segments.min(1 << 24) * SEGMENT);
        law
    }

    /// What is known before the first answer: `window` segments for a path of this round trip.
    pub fn know(&mut self, segments: u64, least: u32) {
        self.set(segments.min(1 << 24) * SEGMENT);
        self.replacing = least.clamp(1, TIME_MOST);
        self.stage = Stage::Drain;
    }

    /// Segments were lost.
    pub fn lose(&mut self, lost: u32) {
        self.lost = self.lost.saturating_add(lost);
    }

    /// A mark (ECN), once per round trip: seven eighths remain.
    pub fn mark(&mut self) {
        // tidy: allow(eight): eighths of a window or of a time, no bits.
        self.set(self.window - self.window / 8);
        self.growth = 0;
        self.hold = HOLD;
    }

    /// Nothing was heard for a timeout. What is known stays unless nothing was heard since the last one either.
    pub fn time_out(&mut self) {
        if self.silent & 2 != 0 {
            self.set(self.window / 2);
        } else if self.least > 0 {
            let pipe = self.pipe(self.through(), self.least);
            if pipe > 0 {
                self.set(self.window.min(pipe.max(TEN)));
            }
        }
        self.silent = 3;
        self.growth = 0;
        self.others = 0;
        self.dip = 0;
    }

    /// Nothing was in flight for ten minutes: what is known is old.
    pub fn grow_old(&mut self) {
        self.set(self.window / 2);
    }

    /// An answer.
    pub fn hear(&mut self, heard: &Heard) {
        self.silent &= !1;
        self.idle |= u8::from(heard.app_limited);
        if heard.round {
            self.end_round(heard.now_ms, heard.app_limited);
            self.silent = 0;
        }
        self.take_round_trip(heard);
        let rate = heard.rate.min(RATE_MOST);
        if !heard.app_limited || rate > self.rate.max(self.last) {
            self.rate = self.rate.max(rate);
        }
        self.acked = self.acked.saturating_add(heard.acked);
        self.flight = self.flight.max(heard.flight);
        self.bundle = self.bundle.max(heard.acked);
        match self.stage {
            Stage::Start => self.start(heard),
            Stage::Drain if heard.app_limited => {}
            Stage::Drain => self.set(self.window.max(self.full())),
            Stage::Cruise => {}
        }
    }

    /// Segments that may be in flight, in 1/256.
    pub fn window(&self) -> u64 {
        if self.silent & 1 != 0 {
            return self.window.min(2 * WINDOW_LEAST);
        }
        if self.dip == DIP {
            return (self.window - self.window / self.depth()).max(self.window.min(TEN));
        }
        self.window
    }

    /// Pace; zero before the first round trip.
    pub fn pace(&self) -> u64 {
        if self.least == 0 {
            return 0;
        }
        let gain = match self.stage {
            Stage::Start if self.window < TRIPLE => PACE_TRIPLE,
            Stage::Start => PACE_DOUBLE,
            Stage::Drain | Stage::Cruise => PACE,
        };
        let queue = match self.stage {
            Stage::Cruise if self.round > 0 => self.queue.min(self.round.saturating_sub(self.least)),
            Stage::Cruise => self.queue,
            Stage::Start | Stage::Drain => 0,
        };
        ((self.window() << 16) / u64::from(self.least + queue) * gain / 256).max(1)
    }

    /// Greatest delivery rate of late and least round trip, once the start is over.
    pub fn learnt(&self) -> Option<(u64, u32)> {
        (self.stage == Stage::Cruise && self.through() > 0).then_some((self.through(), self.least))
    }

    /// Share lost without a queue, in 2⁻¹⁶.
    pub fn noise(&self) -> u16 {
        self.noise
    }

    pub fn is_silent(&self) -> bool {
        self.silent & 1 != 0
    }

    pub fn stage(&self) -> Stage {
        self.stage
    }

    pub fn is_dipping(&self) -> bool {
        self.dip == DIP
    }

    fn set(&mut self, window: u64) {
        self.window = window.clamp(WINDOW_LEAST, WINDOW_MOST);
    }

    fn through(&self) -> u64 {
        self.rate.max(self.last)
    }

    /// Segments that a path of this rate and round trip holds, random loss put back.
    fn pipe(&self, rate: u64, time: u32) -> u64 {
        ((rate * u64::from(time)) >> 16) * ONE / (ONE - u64::from(self.noise))
    }

    /// Answers come in bundles: twice the greatest is in flight although no queue holds it.
    fn bundles(&self) -> u64 {
        (2 * u64::from(self.bundle) * SEGMENT).min((self.through() * BUNDLE_MOST) >> 16)
    }

    /// What path, wanted queue and bundles hold.
    fn full(&self) -> u64 {
        self.pipe(self.through(), self.least.saturating_add(self.target())) + self.bundles()
    }

    /// The wanted queue.
    fn target(&self) -> u32 {
        let per_second = (self.through() * 1_000_000) >> 24;
        let wanted = (TARGET * 16 / root(per_second.max(1) * 256).max(1)).min(u64::from(TIME_MOST)) as u32;
        let wanted = wanted.max(self.least / 64).max(TARGET_LEAST);
        // tidy: allow(eight): eighths of a window or of a time, no bits.
        let wanted = wanted.min((self.least / 8).max(TARGET_MOST)).min(self.fits());
        wanted + self.spread.min(self.least / 4)
    }

    /// The greatest queue that is known to fit, half of D as long as nothing is known.
    fn fits(&self) -> u32 {
        if self.room == 0 {
            (self.least / 2).max(TARGET_MOST)
        } else {
            self.room
        }
    }

    /// A dip gives up one in so many: four times the queue, a sixteenth at least, a quarter at most.
    fn depth(&self) -> u64 {
        (u64::from(self.least) / (4 * u64::from(self.queue) + 1)).clamp(4, 16)
    }

    fn take_round_trip(&mut self, heard: &Heard) {
        let rtt = heard.rtt.min(TIME_MOST);
        if rtt == 0 {
            return;
        }
        if self.least == 0 || rtt <= self.least + self.least / 128 + 250 {
            self.seen_ms = heard.now_ms;
        }
        if self.least == 0 || rtt < self.least {
            self.confirm(rtt);
            self.least = rtt;
        }
        self.round = if self.round == 0 { rtt } else { self.round.min(rtt) };
        if self.dip > 0 {
            self.replacing = if self.replacing == 0 { rtt } else { self.replacing.min(rtt) };
        }
        self.samples = self.samples.saturating_add(1);
        self.sum = self.sum.saturating_add((rtt - self.least) >> 6);
        if self.stage != Stage::Start {
            return;
        }
        let hot = (self.least / 16).clamp(HOT_LEAST, HOT_MOST) + self.spread;
        if rtt <= self.least + hot {
            self.hot = 0;
            return;
        }
        if self.hot == 0 {
            (self.hot_ms, self.hot_rtt) = (heard.now_ms as u16, 0);
        }
        self.hot_rtt = self.hot_rtt.max(coarse(rtt));
        self.hot = self.hot.saturating_add(1);
    }

    /// The first round trip of a path that was known: a quarter more or less is another path.
    fn confirm(&mut self, rtt: u32) {
        if self.least == 0 && self.stage == Stage::Drain {
            let known = self.replacing;
            self.replacing = 0;
            if rtt > known + known / 4 || known > rtt + rtt / 4 {
                self.stage = Stage::Start;
                self.set(self.window.min(TEN));
            }
        }
    }

    fn start(&mut self, heard: &Heard) {
        // tidy: allow(eight): eighths of a count or of a time, no bits.
        let enough = (self.before / 8).clamp(HOT_ANSWERS.0, HOT_ANSWERS.1);
        let lasted = (heard.now_ms as u16).wrapping_sub(self.hot_ms);
        if u16::from(self.hot) >= enough && u32::from(lasted) >= (self.least / 16) >> 10 {
            if u32::from(coarse(heard.rtt)) + (self.least >> 12) >= u32::from(self.hot_rtt) {
                self.end_start();
                return;
            }
            self.hot = 0;
        }
        if heard.app_limited || u64::from(heard.flight) * 2 * SEGMENT < self.window {
            return;
        }
        let factor = if self.window < TRIPLE { 2 } else { 1 };
        let grown = self.window + u64::from(heard.acked) * factor * SEGMENT;
        let rate = self.through();
        if rate == 0 || self.least == 0 {
            self.set(grown);
        } else {
            let most = self.pipe(rate, self.least) * START_MOST / 2 + self.bundles();
            self.set(grown.min(most.max(self.window)));
        }
    }

    fn end_start(&mut self) {
        self.stage = Stage::Drain;
        self.rounds = 0;
        self.flat = 0;
        if self.least > 0 && self.through() > 0 {
            self.set(self.window.min(self.full().max(TEN)));
        }
    }

    fn end_round(&mut self, now_ms: u32, app_limited: bool) {
        let sent = u64::from(self.acked) + u64::from(self.lost);
        if self.least == 0 || self.round == 0 || sent == 0 {
            return;
        }
        let before = self.window;
        let queue = self.round.saturating_sub(self.least);
        let mean =
            ((u64::from(self.sum) << 6) / u64::from(self.samples.max(1))).min(u64::from(TIME_MOST)) as u32;
        let expected = (sent * u64::from(self.noise)) >> 16;
        let lost = u64::from(self.lost);
        let excess = lost > expected + (sent >> LOST_SHIFT) + u64::from(LOST_FEW);
        let grew = self.rate * 4 >= self.peak * 5;
        // The least of the round may be from before the queue grew; twice the mean less the least is its top. Without
        // a queue, and with no more sent than before, losses are the path's however many.
        let top = mean.max(queue) * 2 - queue;
        self.grown = (self.grown << 1) | u8::from(self.window > self.previous + self.previous / 64);
        let overflow = excess && (self.grown & GROWN != 0 || top > self.target() / 2);
        if (queue < self.target() && !overflow) || (self.stage == Stage::Start && grew) {
            self.learn_noise(lost, sent);
        }
        match self.stage {
            Stage::Start => {
                let used = self.idle == 0 && u64::from(self.flight) * 2 * SEGMENT >= self.window;
                if grew {
                    self.peak = self.rate;
                    self.flat = 0;
                } else if used {
                    self.flat += 1;
                }
                if self.flat >= FLAT || (excess && self.flat > 0) {
                    self.end_start();
                }
            }
            Stage::Drain => {
                if lost * 4 > sent && self.rate > 0 {
                    // What was remembered of the path was too much.
                    self.set(self.window.min(self.pipe(self.rate, self.least).max(TEN)));
                }
                self.rounds += 1;
                if self.rounds >= 2 {
                    self.stage = Stage::Cruise;
                    self.peak = self.through();
                    self.skip = 0;
                    self.growth = 0;
                    self.empty = 0;
                }
            }
            Stage::Cruise => {
                let fades = if self.others == 0 { 256 } else { 4096 };
                self.peak = (self.peak - self.peak / fades).max(self.through());
                self.cruise(queue, if overflow { Some(top) } else { None }, lost * 4 > sent, now_ms);
            }
        }
        self.previous = before;
        if self.dip == 0 || self.dip == DIP {
            // During a dip the queue before it is remembered.
            self.queue = queue;
        }
        self.last = self.rate;
        self.rate = 0;
        // What the queue grew by within the round is no jitter, but shows only for a round.
        let spread = mean.saturating_sub(queue).min(SPREAD_MOST);
        self.spread = spread.min(self.spread + self.spread / 2 + 500);
        self.sum = 0;
        self.idle = u8::from(app_limited);
        self.before = self.samples;
        (self.acked, self.lost, self.flight, self.bundle, self.samples, self.round) = (0, 0, 0, 0, 0, 0);
    }

    /// What this round lost counts by an eighth while the rate grows, later by a sixteenth: less, so that a queue that
    /// overflows now and then is not taken for noise, and by a half if it is less than was thought. Short rounds
    /// count little, and more than a quarter is no noise.
    fn learn_noise(&mut self, lost: u64, sent: u64) {
        let share = (lost * ONE / sent).min(ONE / 4);
        let noise = u64::from(self.noise);
        let shift = match self.stage {
            _ if sent < 64 => 6,
            Stage::Start => 3,
            _ if share < noise => 2,
            _ => 4,
        };
        self.noise = (noise + (share >> shift) - (noise >> shift)) as u16;
    }

    fn cruise(&mut self, queue: u32, overflow: Option<u32>, flooded: bool, now_ms: u32) {
        if self.dip > 0 {
            self.dip -= 1;
            if self.dip == 0 {
                if self.replacing > 0 {
                    self.end_dip();
                }
                self.replacing = 0;
                self.seen_ms = now_ms;
            }
            return;
        }
        let target = self.target();
        let long = queue > 4 * target + 2_000;
        self.long = if long { self.long.saturating_add(1) } else { 0 };
        // What we gave away two rounds ago shows now, if the queue was ours.
        // tidy: allow(eight): eighths of a count or of a time, no bits.
        let ours = self.gave & 2 == 0 || u64::from(queue) * 8 < u64::from(self.queue) * 7;
        if long && !ours {
            self.others = 1;
        } else if self.empty > QUIET {
            self.others = 0;
        }
        self.gave <<= 1;
        if let Some(top) = overflow {
            self.congested(queue, top, long);
            return;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        if self.long >= LONG || now_ms.wrapping_sub(self.seen_ms) > UNSEEN_MS {
            (self.dip, self.replacing, self.long) = (DIP, 0, 0);
            return;
        }
        let (window, least) = (self.window, u64::from(self.least));
        let (longer, wanted) = (least + u64::from(queue), least + u64::from(target));
        self.hold = self.hold.saturating_sub(1);
        let used = self.idle == 0 && u64::from(self.flight) * 4 * SEGMENT >= window * 3;
        // What was sent under the window before shows this queue, so that window tells what the path holds.
        let balanced = self.previous * wanted / longer;
        self.empty = if queue >= target / 2 { 0 } else { self.empty.saturating_add(1) };
        if self.empty <= EMPTY || self.hold > 0 {
            self.growth = 0;
            if used && self.others > 0 && self.through() * 2 < self.peak && !flooded {
                self.set(window + (window / 64).max(SEGMENT));
            } else if long && !ours {
                // It stays for whatever reason; less from us would not help.
            } else if long {
                self.give_way(balanced.min(window), queue, flooded);
            } else if balanced <= window || used {
                self.give_way((window + balanced) / 2 + SEGMENT / 2, queue, flooded);
            }
            return;
        }
        if !used {
            return;
        }
        let step = (u64::from(target) * 4096 / least).clamp(64, GROWTH_MOST);
        let growth = 2 * u64::from(self.growth);
        let most = (u64::from(self.fits()) * 4096 / least).min(GROWTH_MOST).max(step);
        self.growth = growth.clamp(step, most) as u16;
        if self.room > 0 {
            // tidy: allow(eight): eighths of a count or of a time, no bits.
            self.room = self.room + self.room / 8 + 1;
            if self.room > self.least / 2 {
                self.room = 0;
            }
        }
        let grown = window + ((window * u64::from(self.growth)) >> 12) + SEGMENT;
        let most = self.full() * CRUISE_MOST / 2 + self.bundles();
        self.set(grown.min(most.max(window)));
    }

    /// A queue of ours shrinks by what a dip holds back, or is gone. One that does not is somebody else's, or no queue,
    /// and then the path is as long as it seems.
    fn end_dip(&mut self) {
        let before = self.least + self.queue;
        let expected = (u64::from(before) / self.depth()).min(u64::from(self.queue)) as u32;
        let ours = before.saturating_sub(self.replacing) >= expected / 2;
        if self.queue > self.target() / 2 {
            self.others = u8::from(!ours);
        }
        if !ours || self.queue <= expected {
            self.least = self.replacing;
        }
    }

    /// More was lost than the path loses: what goes through, and a queue of half of what overflowed.
    fn congested(&mut self, queue: u32, top: u32, long: bool) {
        if top < self.least / 2 {
            self.room = (top / 2).max(500).min(self.fits());
        }
        let rate = if self.rate > 0 { self.rate } else { self.last };
        let target = self.target();
        let mut pipe = self.pipe(rate, self.least.saturating_add(queue.min(target)));
        if long {
            let (wanted, longer) = (self.least + target, self.least + queue);
            pipe = pipe.min(self.previous * u64::from(wanted) / u64::from(longer));
        }
        self.set(self.window.min(pipe.max(TEN)));
        (self.skip, self.hold, self.growth, self.empty) = (1, HOLD, 0, 0);
    }

    /// Sets the window, but beside others not below a third of what was ours, unless the queue is flooded.
    fn give_way(&mut self, window: u64, queue: u32, flooded: bool) {
        let mut least = self.window.min(TEN);
        if self.others > 0 && !flooded {
            least = least.max(self.pipe(self.peak / 3, self.least.saturating_add(queue)).min(self.window));
        }
        let window = window.max(least);
        self.gave |= u8::from(window < self.window - self.window / 16);
        self.set(window);
    }
}

/// The square root of a number from 1 to 2⁴⁰, within one. Five Newton steps from a power of two above it.
fn root(number: u64) -> u64 {
    let mut root = 2 << (number.max(1).ilog2() >> 1);
    for _ in 0..5 {
        root = (root + number / root) >> 1;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_within_one() {
        for n in (1..100_000).chain([1 << 40, (1 << 40) - 1, 1 << 38, (1 << 38) - 1, 999_999_999_999]) {
            let root = root(n);
            assert!((root - 1) * (root - 1) <= n && (root + 1) * (root + 1) > n, "{root} of {n}");
        }
    }
}
