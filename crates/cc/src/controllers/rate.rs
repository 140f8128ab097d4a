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
//! q         = least RTT of the round - D
//! carried   = acknowledged / duration / (1 - p)        exact while a queue keeps the link busy
//! q > max(5 % D, 10 ms)           queue all round long: if carried < 0.98 L then L = carried
//!                                 g = 0.9 for q / 0.1, at most 2 (D + q), then one round to see
//! queue did not fall, all carried the path became longer: D = D + q, L as before
//! loss > p + 5 % for 2 rounds     L = carried; if the loss stays the same p = loss, L as before
//! L below the given rate          after 4 quiet rounds L *= 1.025, 1.05, then 1.1 per round
//! timeout                         half the window until a packet sent later is acknowledged
//! ```
//!
//! | symbol | here         | unit  | default                                    |
//! |--------|--------------|-------|--------------------------------------------|
//! | L      | `limit`      | bit/s | [`Setup::link_rate`], as the host counts   |
//! | D      | `base`       | s     | least round trip                           |
//! | R0     | `initial_rtt`| s     | [`Setup::initial_rtt`]                     |
//! | g      |              | 1     | 1, or 0.9 while draining                   |
//! | s      | `standing`   | s     | the queue being drained, else 0            |
//! | p      | `noise`      | share | mean loss of rounds without a queue (1/8)  |
//!
//! Origins: 1.25 bandwidth-delay products is the product's definition; 30 ms is an ACK delay of 25 ms
//! (the acknowledgment policy of our tunnel) and its timer's grain; max(5 % D, 10 ms) is the queue the
//! product allows itself; 0.9 takes a threshold's queue away within half a round trip and costs little
//! when the queue was somebody else's; 5 % over two rounds lies above the noise of a small window.
//! Draining for q / (1 - g) removes exactly the queue that was seen: at 540 ms a longer pause would
//! empty the link before its effect can be seen.

use crate::controller::{Controller, Setup, Snapshot};
use crate::event::{Ack, Loss, Sent, Signal};
use crate::units::{Bytes, Duration, Rate, Time};
use crate::window::Window;

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
/// Pacing gain while draining.
const DRAIN_GAIN: f64 = 0.9;
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
/// Fewer bytes than this many segments in a round tell nothing.
const TELLING_SEGMENTS: u64 = 20;
/// Quiet rounds before L is raised again.
const QUIET_ROUNDS: u32 = 4;
/// First and greatest step up per round.
const STEP_FIRST: f64 = 0.025;
const STEP_MOST: f64 = 0.1;
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
    step: f64,
    /// A timeout happened then; half the window until a later packet is acknowledged.
    halved_at: Option<Time>,
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
    /// The queue at the beginning, as time.
    queue: Duration,
    limit_before: Rate,
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
    queue: Duration,
    rtt: Duration,
    carried: Rate,
    loss: f64,
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
            step: STEP_FIRST,
            halved_at: None,
        }
    }

    fn window(&self) -> Bytes {
        let reach = match (self.base, self.phase) {
            (Some(base), Phase::Cruise) => base,
            (Some(base), Phase::Drain(drain) | Phase::Settle(drain)) => base.saturating_add(drain.queue),
            (None, _) => {
                let elapsed = self.started.map_or(Duration::ZERO, |start| self.last_sent.since(start));
                let spent = elapsed.min(LONGEST_FIRST_ROUND).saturating_add(self.initial_rtt / 4);
                return self.bounded(self.limit.bytes_in(self.initial_rtt.mul_f64(WINDOW_GAIN).max(spent)));
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

    /// Ends a round and begins the next one.
    fn close_round(&mut self, now: Time) -> Option<Finding> {
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
            queue: least.saturating_sub(base),
            rtt: least,
            carried: round.acked.per(now.since(began)).scale(1.0 / (1.0 - noise)),
            loss,
        })
    }

    fn judge(&mut self, finding: &Finding) {
        if self.judge_loss(finding) {
            return;
        }
        let Some(base) = self.base else { return };
        let queued = finding.queue > Self::threshold(base);
        match self.phase {
            Phase::Cruise if queued => self.drain(finding),
            Phase::Cruise => self.quiet(finding),
            Phase::Drain(_) => {}
            Phase::Settle(drain) if finding.first_sent >= drain.until => {
                self.phase = Phase::Cruise;
                let removed = drain.until.since(drain.began).mul_f64(1.0 - DRAIN_GAIN);
                let stayed = finding.queue > drain.queue.saturating_sub(removed / 2);
                let all_carried = finding.carried.as_f64() >= CARRIED_ALL * self.limit.as_f64();
                if stayed && all_carried {
                    // What we took away was not missed: no queue of ours, a longer path.
                    self.base = Some(finding.rtt);
                    self.set_limit(drain.limit_before);
                } else if queued {
                    self.drain(finding);
                }
            }
            Phase::Settle(_) => {}
        }
    }

    fn drain(&mut self, finding: &Finding) {
        let limit_before = self.limit;
        if finding.carried.as_f64() < CARRIED_ALL * self.limit.as_f64() {
            self.set_limit(finding.carried);
        }
        let exact = finding.queue.mul_f64(1.0 / (1.0 - DRAIN_GAIN));
        let length = exact.min(finding.rtt.saturating_mul(2));
        self.quiet_rounds = 0;
        self.step = STEP_FIRST;
        self.phase = Phase::Drain(Drain {
            began: finding.now,
            until: finding.now + length,
            queue: finding.queue,
            limit_before,
        });
    }

    /// A round without a queue: learn the noise, and climb back to the given rate.
    fn quiet(&mut self, finding: &Finding) {
        if finding.loss < self.noise.unwrap_or(0.0) + LOSS_DOUBT && self.quiet_rounds < QUIET_ROUNDS {
            let old = self.noise.unwrap_or(finding.loss);
            self.noise = Some(old + NOISE_WEIGHT * (finding.loss - old));
        }
        if self.limit >= self.link {
            self.quiet_rounds = 0;
            return;
        }
        self.quiet_rounds += 1;
        if self.quiet_rounds > QUIET_ROUNDS && self.trial.is_none() {
            self.set_limit(self.limit.scale(1.0 + self.step));
            self.step = (self.step * 2.0).min(STEP_MOST);
        }
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
        if finding.loss <= self.noise.unwrap_or(0.0) + LOSS_DOUBT {
            self.lossy_rounds = 0;
            return false;
        }
        self.lossy_rounds += 1;
        if self.lossy_rounds < 2 && finding.loss < LOSS_CERTAIN {
            return false;
        }
        self.lossy_rounds = 0;
        self.quiet_rounds = 0;
        self.step = STEP_FIRST;
        self.trial = Some(LossTrial { since: finding.now, loss: finding.loss, limit_before: self.limit });
        if finding.carried < self.limit {
            self.set_limit(finding.carried);
        }
        true
    }

    fn set_limit(&mut self, limit: Rate) {
        self.limit = limit.clamp(self.link.scale(LEAST_SHARE).max(Rate::kbit(1)), self.link);
    }
}

impl Controller for GivenRate {
    fn name(&self) -> &'static str {
        "rate"
    }

    fn on_sent(&mut self, sent: &Sent) {
        self.started.get_or_insert(sent.now);
        self.last_sent = self.last_sent.max(sent.now);
        if let Phase::Drain(drain) = self.phase {
            if sent.now >= drain.until {
                self.phase = Phase::Settle(drain);
            }
        }
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.base = Some(self.base.map_or(ack.rtt.min, |base| base.min(ack.rtt.latest)));
        if self.halved_at.is_some_and(|at| ack.sent_at > at) {
            self.halved_at = None;
        }
        // The ACK that closes a round counts in it: the span it ends is the one its bytes arrived in.
        self.round.acked += ack.acked;
        self.round.app_limited |= ack.app_limited;
        let least = self.round.least_rtt.map_or(ack.rtt.latest, |rtt| rtt.min(ack.rtt.latest));
        self.round.least_rtt = Some(least);
        if ack.round_start {
            if let Some(finding) = self.close_round(ack.now) {
                self.judge(&finding);
            }
            self.round.first_sent = ack.sent_at;
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.round.lost += loss.lost;
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
        let gain = if matches!(self.phase, Phase::Drain(_)) { DRAIN_GAIN } else { 1.0 };
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
