//! What changes while the clock runs: fade (rate, loss), handover (one-way delay) and outage.
//!
//! The settings in force at a moment are a pure function of that moment, so a link that slept for an hour
//! catches up in one step however often its changes repeat.

use skyhaul_cc::units::Duration;

use crate::rng::Chance;
use crate::scenario::Direction;

/// What holds at one moment. Times are nanoseconds, the rate is bit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub rate: u64,
    pub one_way: u64,
    pub loss: Chance,
    /// Nothing that is being sent now arrives.
    pub out: bool,
}

/// A direction's settings over time.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    start: Settings,
    steps: Vec<Step>,
}

/// One change, compiled to whole nanoseconds.
#[derive(Clone, Debug)]
struct Step {
    at: u64,
    every: Option<u64>,
    rate: Option<u64>,
    one_way: Option<u64>,
    loss: Option<Chance>,
    outage: Option<u64>,
}

impl Changes {
    pub fn new(direction: &Direction) -> Self {
        let start = Settings {
            rate: direction.rate.as_bit().max(1),
            one_way: nanos(direction.one_way),
            loss: direction.loss.into(),
            out: false,
        };
        let steps = direction
            .changes
            .iter()
            .map(|change| Step {
                at: nanos(change.at),
                every: change.every.map(|every| nanos(every).max(1)),
                rate: change.rate.map(|rate| rate.as_bit().max(1)),
                one_way: change.one_way.map(nanos),
                loss: change.loss.map(Chance::from),
                outage: change.outage.map(nanos),
            })
            .collect();
        Changes { start, steps }
    }

    /// The settings at `now`, changes due at `now` included. Of two changes due at once the later one in
    /// the scenario wins.
    pub fn at(&self, now: u64) -> Settings {
        let mut settings = self.start;
        let (mut rate_since, mut one_way_since, mut loss_since) = (0, 0, 0);
        for step in &self.steps {
            let Some(began) = step.latest(now) else { continue };
            if let Some(rate) = step.rate.filter(|_| began >= rate_since) {
                (settings.rate, rate_since) = (rate, began);
            }
            if let Some(one_way) = step.one_way.filter(|_| began >= one_way_since) {
                (settings.one_way, one_way_since) = (one_way, began);
            }
            if let Some(loss) = step.loss.filter(|_| began >= loss_since) {
                (settings.loss, loss_since) = (loss, began);
            }
            settings.out |= step.outage.is_some_and(|length| now < began.saturating_add(length));
        }
        settings
    }

    /// The first moment after `now` at which anything may change; the greatest number for never.
    pub fn next_after(&self, now: u64) -> u64 {
        self.steps.iter().map(|step| step.next_after(now)).min().unwrap_or(u64::MAX)
    }
}

impl Step {
    /// When this change last happened, `now` included.
    fn latest(&self, now: u64) -> Option<u64> {
        let passed = now.checked_sub(self.at)?;
        Some(self.every.map_or(self.at, |every| now - passed % every))
    }

    fn next_after(&self, now: u64) -> u64 {
        let Some(began) = self.latest(now) else { return self.at };
        let again = self.every.map_or(u64::MAX, |every| began.saturating_add(every));
        match self.outage.map(|length| began.saturating_add(length)) {
            Some(end) if end > now => end.min(again),
            _ => again,
        }
    }
}

/// Whole nanoseconds; 584 years at most.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
