//! What BBR version 3 believes of the path (§5.5 of the draft).

use super::{BETA, HEADROOM, LEAST_SEGMENTS, ROUND_TRIP_LIFE, ROUND_TRIP_PROBE_EVERY};
use crate::parts::WindowedMax;
use crate::units::{Bytes, Duration, Rate, Time};

/// Rates, volumes and round trips.
#[derive(Clone, Debug)]
pub(super) struct Model {
    mss: Bytes,
    /// max_bw over this cycle of probing and the one before.
    fastest: WindowedMax<Rate>,
    cycle: u64,
    /// bw_shortterm and inflight_shortterm, once a loss has set them.
    pub short: Option<(Rate, Bytes)>,
    /// inflight_longterm, once a probe was too much.
    pub long: Option<Bytes>,
    /// bw_latest and inflight_latest: the best of this round.
    pub latest: (Rate, Bytes),
    /// min_rtt and when it was measured.
    least: Option<(Duration, Time)>,
    /// probe_rtt_min_delay and when it was measured.
    recent: Option<(Duration, Time)>,
}

impl Model {
    pub fn new(mss: Bytes) -> Self {
        Model {
            mss,
            fastest: WindowedMax::new(2),
            cycle: 0,
            short: None,
            long: None,
            latest: (Rate::ZERO, Bytes::ZERO),
            least: None,
            recent: None,
        }
    }

    /// max_bw.
    pub fn fastest(&self) -> Option<Rate> {
        self.fastest.get()
    }

    /// bw: the greatest rate, unless recent losses say less.
    pub fn rate(&self) -> Option<Rate> {
        let short = self.short.map_or(Rate::MAX, |(rate, _)| rate);
        self.fastest.get().map(|fastest| fastest.min(short))
    }

    /// min_rtt.
    pub fn least(&self) -> Option<Duration> {
        self.least.map(|(rtt, _)| rtt)
    }

    /// The bandwidth-delay product of a rate; none before anything is measured.
    pub fn bdp(&self, rate: Option<Rate>) -> Option<Bytes> {
        Some(rate?.bdp(self.least()?))
    }

    pub fn on_rate(&mut self, rate: Rate, app_limited: bool) {
        if !app_limited || self.fastest.get().is_none_or(|best| rate >= best) {
            self.fastest.update(self.cycle, rate);
        }
    }

    /// A cycle of probing is over; samples older than the last one are forgotten.
    pub fn end_cycle(&mut self) {
        self.cycle += 1;
    }

    /// A round with losses in which nothing was probed is over: believe what it delivered, but give up no
    /// more than 1 - β of what was believed.
    pub fn adapt_to_loss(&mut self, window: Bytes) {
        let (rate, flight) = self.short.unwrap_or((self.fastest.get().unwrap_or(Rate::ZERO), window));
        let kept = Bytes::from_f64(flight.as_f64() * BETA);
        self.short = Some((self.latest.0.max(rate.scale(BETA)), self.latest.1.max(kept)));
    }

    /// The volume that leaves room for others; none where no bound is known.
    pub fn with_headroom(&self) -> Option<Bytes> {
        self.long.map(|long| {
            let room = Bytes::from_f64(long.as_f64() * HEADROOM).max(self.mss);
            long.saturating_sub(room).max(self.mss * LEAST_SEGMENTS)
        })
    }

    /// Takes a round-trip sample; says whether it is time to look for a shorter one.
    pub fn on_round_trip(&mut self, now: Time, sample: Duration) -> bool {
        let sample = sample.max(Duration::from_nanos(1));
        let expired = self.recent.is_some_and(|(_, at)| now.since(at) > ROUND_TRIP_PROBE_EVERY);
        let recent = match self.recent {
            Some((rtt, at)) if rtt <= sample && !expired => (rtt, at),
            _ => (sample, now),
        };
        self.recent = Some(recent);
        let stays = self.least.is_some_and(|(rtt, at)| rtt <= recent.0 && now.since(at) <= ROUND_TRIP_LIFE);
        if !stays {
            self.least = Some(recent);
        }
        expired
    }

    /// The look for a shorter round trip is over.
    pub fn end_round_trip_probe(&mut self, now: Time) {
        if let Some((_, at)) = &mut self.recent {
            *at = now;
        }
    }
}
