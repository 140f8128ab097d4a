//! Given rate: our own controller for a link whose rate the operator knows. It sends at that rate
//! from the first packet, takes loss for what it is on such a link (noise), and backs off only from a
//! queue of its own making.
//!
//! ```text
//! pace      = g L                                      L: the given rate until proved too high
//! window    = max(1.25 L (D + s), L (D + s + 30 ms), 10 segments)
//! before the first round-trip sample
//! window    = max(1.25 L R0, L (elapsed + R0 / 4), 10 segments)
//! per packet-timed round
//! q         = min(latest, smoothed RTT) - D
//! carried   = acknowledged / duration / (1 - p)        exact while a queue keeps the link busy
//! q > max(5 % D, 10 ms)           all round long: if carried < 0.98 L then L = carried, and
//!                                 g = 1 - q / T for T = q / 0.1, held between 1 and 2 round trips,
//!                                 then one round at L to see
//! RTT did not fall, all carried   the path became longer: D = RTT, L as before
//! loss > p + 5 % for 2 rounds     L = carried; if the loss stays the same p = loss, L as before
//! L below the given rate          after 4 quiet rounds L *= 1.025; no queue: 1.05, 1.1, … 2;
//!                                 a queue: back to the last good L, and twice as many quiet rounds
//! no ACK for max(D/4, 120 ms)     packets sent until then are not judged
//! timeout                         half the window until a packet sent later is acknowledged
//! ```
//!
//! | symbol | here         | unit  | default                                    |
//! |--------|--------------|-------|--------------------------------------------|
//! | L      | `limit`      | bit/s | [`Setup::link_rate`], as the host counts   |
//! | D      | `base`       | s     | least round trip                           |
//! | R0     | `initial_rtt`| s     | [`Setup::initial_rtt`]                     |
//! | g      | `gain`       | 1     | 1, or 0.5 to 0.95 while draining           |
//! | s      | `standing`   | s     | the queue being drained, else 0            |
//! | p      | `noise`      | share | mean loss of rounds without a queue (1/8)  |
//!
//! Origins: 1.25 bandwidth-delay products is the product's definition; 30 ms is an ACK delay of 25 ms
//! (the acknowledgment policy of our tunnel) and its timer's grain; max(5 % D, 10 ms) is the queue the
//! product allows itself; 5 % over two rounds lies above the noise of a small window. A drain removes
//! exactly the queue that was seen: at 540 ms a longer pause would empty the link before its effect
//! can be seen. One raise of L is judged before the next is made, for the same reason.

use crate::controller::{Controller, Setup, Snapshot};
use crate::event::{Ack, Loss, Sent, Signal};
use crate::parts::scaled;
use crate::units::{Bytes, Duration, Rate, Time};
use crate::window::{segments, Window};

/// Window in bandwidth-delay products.
const WINDOW_GAIN: f64 = 1.25;
/// Acknowledgments may be this late: 25 ms and a timer's grain.
const ACK_SLACK: Duration = Duration::from_millis(30);
/// Least window in segments, the usual initial window (RFC 6928).
const LEAST_SEGMENTS: u64 = 10;
/// The first round trip is not throttled for longer than this without any answer.
const LONGEST_FIRST_ROUND: Duration = Duration::from_secs(4);
/// Share of D that counts as a queue.
const QUEUE_SHARE: u32 = 20;
/// Least queue that counts.
const QUEUE_LEAST: Duration = Duration::from_millis(10);
/// A drain takes away this share of the rate, unless it would last less than one or more than two
/// round trips.
const DRAIN_SHARE: f64 = 0.1;
/// Least pacing gain while draining.
const DRAIN_GAIN_LEAST: f64 = 0.5;
/// Of the round-trip fall a drain should bring between its halves, less than this share is none.
const FELL: f64 = 0.15;
/// Carried below this share of what was sent: the link is slower than L.
const CARRIED_ALL: f64 = 0.98;
/// Loss above the noise that puts L in doubt.
const LOSS_DOUBT: f64 = 0.05;
/// Loss so high that one round of it is enough.
const LOSS_CERTAIN: f64 = 0.5;
/// Weight of a new round in the noise.
const NOISE_WEIGHT: f64 = 0.125;
/// Noise is never taken to be more than this.
const NOISE_MOST: f64 = 0.5;
/// Fewer segments than this in a round tell nothing about a rate.
const TELLING_SEGMENTS: u64 = 8;
/// Fewer lost segments than this tell nothing about loss.
const TELLING_LOSSES: u64 = 4;
/// Quiet rounds before L is raised again, and the most after raises that failed.
const QUIET_ROUNDS: u32 = 4;
const QUIET_ROUNDS_MOST: u32 = 32;
/// First and greatest raise.
const STEP_FIRST: f64 = 0.025;
const STEP_MOST: f64 = 1.0;
/// A raise has failed when it brought this part of the queue that counts.
const RAISE_FAILED: u32 = 3;
/// Shorter rounds are judged together: a host that was busy elsewhere for a moment is no queue.
const LEAST_ROUND: Duration = Duration::from_millis(100);
/// Without an acknowledgment for this long (and for a quarter of D, and for this many packets at L) the
/// path was interrupted: what was sent before the silence ended tells nothing about a rate.
const SILENCE: Duration = Duration::from_millis(120);
const SILENCE_SEGMENTS: u64 = 8;
/// L never falls below this share of the given rate.
const LEAST_SHARE: f64 = 1.0 / 256.0;

/// The controller `rate`.
#[derive(Clone, Debug)]
pub struct GivenRate {
    mss: Bytes,
    link: Rate,
    limit: Rate,
    initial_rtt: Duration,
    started: Option<Time>,
    last_sent: Time,
    base: Option<Duration>,
    phase: Phase,
    round: Round,
    noise: Option<f64>,
    lossy_rounds: u32,
    trial: Option<LossTrial>,
    quiet_rounds: u32,
    quiet_wanted: u32,
    step: f64,
    raise: Option<Raise>,
    /// A timeout happened then; half the window until a later packet is acknowledged.
    halved_at: Option<Time>,
    last_ack: Option<Time>,
    /// Packets sent until then met an interruption of the path.
    interrupted_until: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Sending at L.
    Cruise,
    /// Sending below L until then, because of this queue.
    Drain(Drain),
    /// Sending at L again; packets sent after the drain have not been judged yet.
    Settle(Drain),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Drain {
    began: Time,
    until: Time,
    gain: f64,
    /// The queue at the beginning, as time.
    queue: Duration,
    limit_before: Rate,
    /// Least round trips of packets sent in its first and in its second half.
    halves: [Option<Duration>; 2],
}

/// L was raised then, from that; does a queue follow?
#[derive(Clone, Copy, Debug)]
struct Raise {
    at: Time,
    before: Rate,
}

/// What a packet-timed round showed.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    began: Option<Time>,
    acked: Bytes,
    lost: Bytes,
    least_rtt: Option<Duration>,
    /// The oldest packet judged in this round left then.
    first_sent: Time,
    app_limited: bool,
}

/// L was lowered because of loss; does the loss follow?
#[derive(Clone, Copy, Debug)]
struct LossTrial {
    since: Time,
    loss: f64,
    limit_before: Rate,
}

/// A finished round in numbers.
struct Finding {
    now: Time,
    first_sent: Time,
    /// Queue that stood all round long, and at its end.
    least_queue: Duration,
    queue: Duration,
    rtt: Duration,
    carried: Rate,
    loss: f64,
    segments: f64,
}

impl GivenRate {
    /// A controller for a link of `rate`, packets counted as the host counts them. A zero rate
    /// counts as 1 kbit/s, so that something always moves.
    pub fn new(setup: &Setup, rate: Rate) -> Self {
        let link = rate.max(Rate::kbit(1));
        GivenRate {
            mss: setup.mss,
            link,
            limit: link,
            initial_rtt: setup.initial_rtt,
            started: None,
            last_sent: Time::ZERO,
            base: None,
            phase: Phase::Cruise,
            round: Round::default(),
            noise: None,
            lossy_rounds: 0,
            trial: None,
            quiet_rounds: 0,
            quiet_wanted: QUIET_ROUNDS,
            step: STEP_FIRST,
            raise: None,
            halved_at: None,
            last_ack: None,
            interrupted_until: None,
        }
    }

    fn window(&self) -> Bytes {
        let reach = match (self.base, self.phase) {
            (Some(base), Phase::Cruise) => base,
            (Some(base), Phase::Drain(drain) | Phase::Settle(drain)) => base.saturating_add(drain.queue),
            (None, _) => {
                let elapsed = self.started.map_or(Duration::ZERO, |start| self.last_sent.since(start));
                let spent = elapsed.min(LONGEST_FIRST_ROUND).saturating_add(self.initial_rtt / 4);
                return self.bounded(self.limit.bytes_in(scaled(self.initial_rtt, WINDOW_GAIN).max(spent)));
            }
        };
        let late = self.limit.bytes_in(reach.saturating_add(ACK_SLACK));
        self.bounded(late.max(Bytes::from_f64(self.limit.bdp(reach).as_f64() * WINDOW_GAIN)))
    }

    fn bounded(&self, window: Bytes) -> Bytes {
        let window = window.max(self.mss * LEAST_SEGMENTS);
        let window = if self.halved_at.is_some() { window / 2 } else { window };
        Window::from_bytes(window, self.mss).bytes(self.mss)
    }

    fn threshold(base: Duration) -> Duration {
        (base / QUEUE_SHARE).max(QUEUE_LEAST)
    }

    /// Notices that the path was silent although it had something to say.
    fn hear_silence(&mut self, now: Time) {
        let longest = SILENCE
            .max(self.base.unwrap_or(self.initial_rtt) / 4)
            .max(self.limit.time_for(self.mss * SILENCE_SEGMENTS));
        if self.last_ack.is_some_and(|last| now.since(last) > longest) {
            self.interrupted_until = Some(now);
            self.round = Round::default();
        }
        self.last_ack = Some(now);
    }

    fn was_interrupted(&self, sent_at: Time) -> bool {
        self.interrupted_until.is_some_and(|until| sent_at <= until)
    }

    /// Ends a round and begins the next one.
    fn close_round(&mut self, ack: &Ack) -> Option<Finding> {
        let now = ack.now;
        let round = std::mem::take(&mut self.round);
        self.round.began = Some(now);
        let (began, least, base) = (round.began?, round.least_rtt?, self.base?);
        let sent = round.acked + round.lost;
        let telling = !round.app_limited && sent >= self.mss * TELLING_SEGMENTS && now > began;
        let loss = round.lost.as_f64() / sent.as_f64().max(1.0);
        let noise = self.noise.unwrap_or(0.0).min(NOISE_MOST);
        telling.then(|| Finding {
            now,
            first_sent: round.first_sent,
            least_queue: least.saturating_sub(base),
            queue: ack.rtt.latest.min(ack.rtt.smoothed).max(least).saturating_sub(base),
            rtt: ack.rtt.latest.min(ack.rtt.smoothed).max(least),
            // The host's own sample is finer where a round has only a few ACKs.
            carried: round
                .acked
                .per(now.since(began))
                .max(ack.delivery_rate.unwrap_or(Rate::ZERO))
                .scale(1.0 / (1.0 - noise)),
            loss,
            segments: segments(sent, self.mss),
        })
    }

    fn judge(&mut self, finding: &Finding) {
        if self.judge_loss(finding) {
            return;
        }
        let Some(base) = self.base else { return };
        let queued = finding.least_queue > Self::threshold(base);
        match self.phase {
            Phase::Cruise if queued => self.drain(finding),
            Phase::Cruise => self.quiet(finding, base),
            Phase::Settle(drain) if finding.first_sent >= drain.until => {
                self.phase = Phase::Cruise;
                let all_carried = finding.carried.as_f64() >= CARRIED_ALL * self.limit.as_f64();
                match drain.rtt_that_stayed() {
                    // What we took away was not missed: no queue of ours, a longer path.
                    Some(rtt) if queued && all_carried => {
                        self.base = Some(rtt);
                        self.set_limit(drain.limit_before);
                    }
                    _ if queued => self.drain(finding),
                    _ => {}
                }
            }
            Phase::Drain(_) | Phase::Settle(_) => {}
        }
    }

    fn drain(&mut self, finding: &Finding) {
        let limit_before = self.limit;
        if let Some(raise) = self.raise.take() {
            self.raise_failed(raise);
        }
        if finding.carried.as_f64() < CARRIED_ALL * self.limit.as_f64() {
            self.set_limit(finding.carried);
        }
        self.quiet_rounds = 0;
        self.begin_drain(finding, limit_before);
    }

    fn begin_drain(&mut self, finding: &Finding, limit_before: Rate) {
        let longest = finding.rtt.saturating_mul(2);
        let length = scaled(finding.queue, 1.0 / DRAIN_SHARE).clamp(finding.rtt.min(longest), longest);
        let share = finding.queue.as_secs_f64() / length.as_secs_f64().max(1e-9);
        self.phase = Phase::Drain(Drain {
            began: finding.now,
            until: finding.now + length,
            gain: (1.0 - share).max(DRAIN_GAIN_LEAST),
            queue: finding.queue,
            limit_before,
            halves: [None; 2],
        });
    }

    /// A round without a queue: learn the noise, and climb back to the given rate.
    fn quiet(&mut self, finding: &Finding, base: Duration) {
        if let Some(raise) = self.raise {
            if finding.first_sent < raise.at {
                return;
            }
            self.raise = None;
            if finding.queue > Self::threshold(base) / RAISE_FAILED || self.overflows(finding) {
                self.raise_failed(raise);
                return self.begin_drain(finding, self.limit);
            }
            self.step = (self.step * 2.0).min(STEP_MOST);
            self.quiet_wanted = QUIET_ROUNDS;
            if self.limit < self.link {
                return self.raise(finding.now);
            }
        }
        let steady = self.limit >= self.link || self.quiet_rounds < QUIET_ROUNDS;
        if steady && finding.loss < self.noise.unwrap_or(0.0) + LOSS_DOUBT {
            let old = self.noise.unwrap_or(finding.loss);
            self.noise = Some(old + NOISE_WEIGHT * (finding.loss - old));
        }
        if self.limit >= self.link {
            self.quiet_rounds = 0;
            self.step = STEP_FIRST;
            return;
        }
        self.quiet_rounds += 1;
        if self.quiet_rounds > self.quiet_wanted && self.trial.is_none() {
            self.raise(finding.now);
        }
    }

    /// A raise beyond the link with a queue too short to be seen loses what it added. Half of that
    /// must show, and three standard deviations of the noise.
    fn overflows(&self, finding: &Finding) -> bool {
        let noise = self.noise.unwrap_or(0.0);
        let deviation = libm::sqrt(noise.max(1.0 / finding.segments) / finding.segments);
        finding.loss > noise + (self.step / 2.0).max(3.0 * deviation)
    }

    fn raise(&mut self, now: Time) {
        self.raise = Some(Raise { at: now, before: self.limit });
        self.set_limit(self.limit.scale(1.0 + self.step));
    }

    fn raise_failed(&mut self, raise: Raise) {
        self.set_limit(raise.before);
        self.step = STEP_FIRST;
        self.quiet_rounds = 0;
        self.quiet_wanted = (self.quiet_wanted * 2).min(QUIET_ROUNDS_MOST);
    }

    /// Loss far above the noise; true when it decided something.
    fn judge_loss(&mut self, finding: &Finding) -> bool {
        if let Some(trial) = self.trial {
            if finding.first_sent >= trial.since {
                self.trial = None;
                if finding.loss > 0.75 * trial.loss {
                    // Sending less lost as much: it is the link's own loss.
                    self.noise = Some(finding.loss.min(NOISE_MOST));
                    self.set_limit(trial.limit_before);
                }
            }
            return false;
        }
        let few = finding.loss * finding.segments < TELLING_LOSSES as f64;
        if few || finding.loss <= self.noise.unwrap_or(0.0) + LOSS_DOUBT {
            self.lossy_rounds = 0;
            return false;
        }
        self.lossy_rounds += 1;
        if self.lossy_rounds < 2 && finding.loss < LOSS_CERTAIN {
            return false;
        }
        self.lossy_rounds = 0;
        self.quiet_rounds = 0;
        if let Some(raise) = self.raise.take() {
            self.raise_failed(raise);
        }
        self.trial = Some(LossTrial { since: finding.now, loss: finding.loss, limit_before: self.limit });
        if finding.carried < self.limit {
            self.set_limit(finding.carried);
        }
        true
    }

    fn end_drain(&mut self, now: Time) {
        if let Phase::Drain(drain) = self.phase {
            if now >= drain.until {
                self.phase = Phase::Settle(drain);
            }
        }
    }

    fn set_limit(&mut self, limit: Rate) {
        self.limit = limit.clamp(self.link.scale(LEAST_SHARE).max(Rate::kbit(1)), self.link);
    }
}

impl Drain {
    /// Notes the round trip of a packet sent during the drain.
    fn hear(&mut self, sent_at: Time, rtt: Duration) {
        if sent_at < self.began || sent_at > self.until {
            return;
        }
        let half = usize::from(sent_at.since(self.began) * 2 > self.until.since(self.began));
        self.halves[half] = Some(self.halves[half].map_or(rtt, |least| least.min(rtt)));
    }

    /// The round trip, if it did not fall as a queue would have made it fall: between the least of
    /// the halves lies half of what the drain takes away.
    fn rtt_that_stayed(&self) -> Option<Duration> {
        let [first, second] = self.halves;
        let (first, second) = (first?, second?);
        let taken = scaled(self.until.since(self.began), 1.0 - self.gain);
        (first.saturating_sub(second) < scaled(taken, FELL)).then_some(second)
    }
}

impl Controller for GivenRate {
    fn name(&self) -> &'static str {
        "rate"
    }

    fn on_sent(&mut self, sent: &Sent) {
        self.started.get_or_insert(sent.now);
        self.last_sent = self.last_sent.max(sent.now);
        self.end_drain(sent.now);
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.base = Some(self.base.map_or(ack.rtt.min, |base| base.min(ack.rtt.latest)));
        if self.halved_at.is_some_and(|at| ack.sent_at > at) {
            self.halved_at = None;
        }
        self.end_drain(ack.now);
        self.hear_silence(ack.now);
        if let Phase::Drain(drain) | Phase::Settle(drain) = &mut self.phase {
            drain.hear(ack.sent_at, ack.rtt.latest);
        }
        // The ACK that closes a round counts in it: the span it ends is the one its bytes arrived in.
        self.round.acked += ack.acked;
        self.round.app_limited |= ack.app_limited;
        let least = self.round.least_rtt.map_or(ack.rtt.latest, |rtt| rtt.min(ack.rtt.latest));
        self.round.least_rtt = Some(least);
        let long_enough = self.round.began.is_none_or(|began| ack.now.since(began) >= LEAST_ROUND);
        if ack.round_start && long_enough {
            if let Some(finding) = self.close_round(ack) {
                if !self.was_interrupted(finding.first_sent) {
                    self.judge(&finding);
                }
            }
            self.round.first_sent = ack.sent_at;
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        if !self.was_interrupted(loss.sent_at) {
            self.round.lost += loss.lost;
        }
        if loss.signal == Signal::Timeout {
            self.halved_at = Some(loss.now);
            // A round with a silence in it measures the silence.
            self.round = Round::default();
        }
    }

    fn cwnd(&self) -> Bytes {
        self.window()
    }

    fn pacing_rate(&self) -> Option<Rate> {
        let gain = if let Phase::Drain(drain) = self.phase { drain.gain } else { 1.0 };
        Some(self.limit.scale(gain).max(Rate::bit(1)))
    }

    fn snapshot(&self) -> Snapshot {
        let phase = if self.halved_at.is_some() {
            "after a timeout"
        } else if self.base.is_none() {
            "first round trip"
        } else if matches!(self.phase, Phase::Drain(_)) {
            "draining"
        } else if self.limit < self.link {
            "link slower than given"
        } else {
            "given rate"
        };
        Snapshot { cwnd: self.cwnd(), ssthresh: None, pacing_rate: self.pacing_rate(), phase }
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ack, loss, rtt, MSS, RTT};

    fn new() -> GivenRate {
        GivenRate::new(&Setup::new(MSS), Rate::mbit(150))
    }

    /// A second of rounds at a round trip and a delivered rate; returns the end in ms.
    fn rounds(rate: &mut GivenRate, from: u64, count: u64, round_trip: u64, delivered: Rate) -> u64 {
        let mut now = from;
        for _ in 0..count {
            for part in 1..=10 {
                let at = now + round_trip * part / 10;
                let mut one = ack(at, at - round_trip, 0);
                one.acked = delivered.bytes_in(Duration::from_millis(round_trip) / 10);
                one.rtt = rtt(Duration::from_millis(round_trip));
                one.rtt.min = RTT;
                one.round_start = part == 10;
                rate.on_ack(&one);
            }
            now += round_trip;
        }
        now
    }

    #[test]
    fn the_first_round_trip_is_never_throttled_below_the_rate() {
        let mut rate = new();
        let link = Rate::mbit(150);
        let mut in_flight = Bytes::ZERO;
        let gap = link.time_for(MSS);
        // No answer for a second, three times the round trip that was assumed.
        for i in 0..(1_000_000_000 / gap.as_nanos() as u64) {
            in_flight += MSS;
            assert!(in_flight <= rate.cwnd(), "{in_flight} at {} µs", i * 80);
            assert_eq!(rate.pacing_rate(), Some(link));
            rate.on_sent(&Sent { now: Time::from_nanos(i * gap.as_nanos() as u64), bytes: MSS, in_flight });
        }
    }

    #[test]
    fn the_window_is_a_quarter_above_the_bandwidth_delay_product() {
        let mut rate = new();
        rate.on_ack(&ack(540, 0, 10));
        let ratio = rate.cwnd().as_f64() / Rate::mbit(150).bdp(RTT).as_f64();
        assert!((ratio - 1.25).abs() < 1e-3, "{ratio}");
    }

    #[test]
    fn a_short_path_leaves_room_for_late_acks() {
        let mut rate = new();
        rate.on_ack(&Ack { rtt: rtt(Duration::from_millis(4)), ..ack(10, 6, 10) });
        assert_eq!(rate.cwnd().0, Rate::mbit(150).bytes_in(Duration::from_millis(34)).0);
    }

    #[test]
    fn losses_change_nothing() {
        let mut rate = new();
        rate.on_ack(&ack(540, 0, 10));
        let before = rate.snapshot();
        (0..100).for_each(|i| rate.on_loss(&loss(600 + i, i, Signal::Gap, true)));
        assert_eq!(rate.snapshot(), before);
    }

    #[test]
    fn a_queue_of_a_whole_round_slows_the_pace_by_as_much_as_drains_it() {
        let mut rate = new();
        let now = rounds(&mut rate, 1000, 3, 540, Rate::mbit(150));
        assert_eq!(rate.snapshot().phase, "given rate");
        rounds(&mut rate, now, 1, 580, Rate::mbit(150));
        assert_eq!(rate.snapshot().phase, "draining");
        // 40 ms in one round trip of 580 ms.
        let gain = rate.pacing_rate().unwrap().as_f64() / 150e6;
        assert!((gain - (1.0 - 40.0 / 580.0)).abs() < 0.002, "{gain}");
    }

    #[test]
    fn a_queue_below_five_percent_is_left_alone() {
        let mut rate = new();
        rounds(&mut rate, 1000, 20, 565, Rate::mbit(150));
        assert_eq!(rate.snapshot().phase, "given rate");
    }

    #[test]
    fn data_arriving_slower_than_sent_behind_a_queue_tell_the_true_rate() {
        let mut rate = new();
        let now = rounds(&mut rate, 1000, 3, 540, Rate::mbit(150));
        rounds(&mut rate, now, 2, 600, Rate::mbit(100));
        let limit = rate.limit.as_mbit();
        assert!((limit - 100.0).abs() < 2.0, "{limit}");
    }

    #[test]
    fn a_timeout_halves_the_window_until_a_later_packet_is_answered() {
        let mut rate = new();
        rate.on_ack(&ack(540, 0, 10));
        let before = rate.cwnd();
        rate.on_loss(&loss(3000, 500, Signal::Timeout, true));
        assert!(rate.cwnd() <= before / 2 + MSS);
        assert_eq!(rate.snapshot().phase, "after a timeout");
        rate.on_ack(&ack(3100, 2560, 1));
        assert!(rate.cwnd() < before);
        rate.on_ack(&ack(3600, 3060, 1));
        assert_eq!(rate.cwnd(), before);
    }
}
