//! What is known before the first packet, and what is sent before the first answer.

use super::judge::Judge;
use super::path::between;
use super::trains::packets;
use super::Skyhaul;
use crate::controller::{PathHistory, Setup};
use crate::units::{Bytes, Duration, Rate};

/// Share of a remembered rate to begin with.
const WARM: f64 = 0.85;
/// Longest time a start with a given rate sends without an answer.
const UNANSWERED_MOST: f64 = 3.0;

/// What is known of the path before the first packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// Nothing: the first flight measures it.
    Cold,
    /// What path memory has: sends at 0.85 of the rate at once, less with little confidence; the first train
    /// validates.
    Warm(PathHistory),
    /// The operator gives the rate: sends at it from the first packet on.
    Known(Rate),
}

impl Start {
    /// The rate if it is given, else the history if there is one.
    pub fn of(setup: &Setup) -> Self {
        match (setup.link_rate, setup.history) {
            (Some(rate), _) => Start::Known(rate),
            (None, Some(history)) => Start::Warm(history),
            (None, None) => Start::Cold,
        }
    }

    /// The rate to begin with, in packets per second, and the round trip to reckon with until one is measured.
    pub(super) fn given(&self, setup: &Setup, mss: Bytes) -> (Option<f64>, Duration) {
        match self {
            Start::Cold => (None, setup.initial_rtt),
            Start::Warm(history) => {
                (Some(history.start_share(WARM) * packets(history.rate, mss)), history.min_rtt)
            }
            Start::Known(rate) => (Some(packets(*rate, mss)), setup.initial_rtt),
        }
    }

    pub(super) fn judge(&self) -> Judge {
        match self {
            Start::Warm(history) => Judge::expecting(history.loss.value()),
            Start::Cold | Start::Known(_) => Judge::default(),
        }
    }
}

impl Skyhaul {
    /// The window before the first answer, where a rate is given: what the time has allowed so far.
    pub(super) fn unanswered(&self, rate: f64) -> f64 {
        let spent = self.started.map_or(0.0, |start| between(start, self.now)).min(UNANSWERED_MOST);
        (rate * spent.max(self.given_rtt) * 1.25).max(self.window.segments())
    }
}
