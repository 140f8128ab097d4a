//! The plain form, for hosts without reports: round trips and delivery rates are all there is.
//!
//! The same law runs in the kernel, so it is written in whole numbers, once here and once in C:
//!
//! ```text
//! start    the window triples per round trip, above 1024 segments it doubles, until an eighth of a round's answers
//!          have seen a queue of D/16 (4 to 16 ms), or the rate has not grown by a quarter for three rounds, or for
//!          one that lost more than the path does; then W = b (D + d) while the queue drains
//! cruise   per round, q its least round trip less D:
//!          q >= d/2  half of the way to W (D + d) / (D + q); all of it, and then a round's pause, if q > 4 d + 2 ms
//!          q <  d/2  W (1 + g), g = d/D for three rounds, then doubling up to 1/2; W <= 1.5 b (D + d)
//! pace     1.02 W / (D + q)
//! loss     congestion = lost more than noise + 1/16 and eight segments in a round: W = b (D + q), and half of that
//!          queue is what fits from then on, growing back by an eighth per round; else nothing
//! dip      W (1 - 4 q/D), 1/16 to 1/4 of it, for a round where D was not seen for 10 s or the queue was long for
//!          four rounds; what the next three rounds see is D then
//! others   where the queue stays although we give way, a third of what was ours is held
//! timeout  W = b D after the first answer; half, if nothing came between two
//! ```
//!
//! D least round trip, b greatest delivery rate of two rounds with random loss put back, d = 1.2/√b seconds.
//! Losses that the queue does not explain cost nothing, because no rule divides by them: the window is moved by
//! round trips, and the rate only bounds it.

use super::law::{Heard, Law, Stage};
use crate::controller::Setup;
use crate::event::{Ack, Loss, Signal};
use crate::units::{Bytes, Duration, Rate, Time};

/// Shares of the law's rates: segments per microsecond in 2⁻²⁴.
const RATE_ONE: f64 = 16_777_216.0;
/// After so long without anything in flight what is known is old.
const OLD: Duration = Duration::from_secs(600);

/// The plain form beside what only hosts in Rust need.
#[derive(Clone, Debug)]
pub(super) struct Plain {
    law: Law,
    mss: f64,
    /// What is in flight, until the first answer at the given pace.
    known: bool,
    answered: bool,
    busy_at: Option<Time>,
}

impl Plain {
    /// Nothing is known of the path.
    pub fn new(setup: &Setup) -> Self {
        let mss = setup.mss.as_f64().max(1.0);
        let law = Law::new(segments(setup.initial_window.as_f64() / mss));
        Plain { law, mss, known: false, answered: false, busy_at: None }
    }

    /// A rate in packets per second and a round trip in seconds are given.
    pub fn know(&mut self, rate: f64, round_trip: f64) {
        self.known = true;
        self.law.know(segments((rate * round_trip).max(10.0)), micros(round_trip));
    }

    /// A packet leaves; `in_flight` counts it.
    pub fn hear_departure(&mut self, now: Time, bytes: Bytes, in_flight: Bytes) {
        let idle = self.busy_at.replace(now).map_or(Duration::ZERO, |at| now.since(at));
        if in_flight <= bytes && idle > OLD {
            self.law.grow_old();
        }
    }

    /// An answer.
    pub fn hear(&mut self, ack: &Ack) {
        self.answered = true;
        let acked = segments(ack.acked.as_f64() / self.mss + 0.999) as u32;
        self.law.hear(&Heard {
            now_ms: (ack.now.as_nanos() / 1_000_000) as u32,
            rtt: micros(ack.rtt.latest.as_secs_f64()),
            acked,
            flight: (segments(ack.in_flight.as_f64() / self.mss) as u32).saturating_add(acked),
            rate: ack
                .delivery_rate
                .map_or(0, |rate| (rate.bytes_per_second() as f64 / self.mss * RATE_ONE / 1e6) as u64),
            round: ack.round_start,
            app_limited: ack.app_limited,
        });
    }

    /// Packets were lost or marked, or nothing was heard.
    pub fn hear_loss(&mut self, loss: &Loss) {
        match loss.signal {
            Signal::Timeout => self.law.time_out(),
            Signal::Ecn if loss.new_episode => self.law.mark(),
            Signal::Ecn => {}
            Signal::Gap => self.law.lose(segments(loss.lost.as_f64() / self.mss + 0.999) as u32),
        }
    }

    /// What is known before the first answer has yet to be answered.
    pub fn is_unanswered(&self) -> bool {
        self.known && !self.answered
    }

    /// In segments.
    pub fn window(&self) -> f64 {
        self.law.window() as f64 / 256.0
    }

    /// Nothing before the first round trip.
    pub fn pace(&self) -> Option<Rate> {
        let pace = self.law.pace();
        (pace > 0)
            .then(|| Bytes::from_f64(pace as f64 / RATE_ONE * self.mss * 1e6).per(Duration::from_secs(1)))
            .map(|rate| rate.max(Rate::bit(1)))
    }

    /// Rate in packets per second, round trip in seconds and share of packets lost, once the start is over.
    pub fn learnt(&self) -> Option<(f64, f64, f64)> {
        let (rate, least) = self.law.learnt()?;
        let noise = f64::from(self.law.noise()) / 65536.0;
        Some((rate as f64 / RATE_ONE * 1e6 / (1.0 - noise), f64::from(least) / 1e6, noise))
    }

    /// For people.
    pub fn phase(&self) -> &'static str {
        match self.law.stage() {
            _ if self.law.is_silent() => "silence",
            _ if self.law.is_dipping() => "dip",
            Stage::Start => "start",
            Stage::Drain => "drain",
            Stage::Cruise => "cruise",
        }
    }
}

fn segments(count: f64) -> u64 {
    // Not-a-number is none.
    count.clamp(0.0, 4e9) as u64
}

fn micros(seconds: f64) -> u32 {
    (seconds * 1e6).clamp(1.0, 6e7) as u32
}
