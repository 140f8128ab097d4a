//! The learning state machine: the smoothed rate B and the growth mode its changes lead to.
//!
//! | B against B'                           | mode                                             |
//! |----------------------------------------|--------------------------------------------------|
//! | above by more than γ                   | exponential                                      |
//! | above by γ or less                     | linear (appendix; the text is silent)            |
//! | below, once or twice in a row          | linear (appendix; the text is silent)            |
//! | below three times in a row             | linear if SRTT <= η RTTmin, else termination     |
//!
//! The text applies the last test where the falls add up to δ or more, the appendix where they are less;
//! the same test serves both. The appendix never resets its counter of falls; here any rise does.

use crate::units::Rate;

/// α: weight of a new sample. The paper has a constant in (0, 1]; ours.
pub const ALPHA: f64 = 0.125;
/// γ: growth of B, as a share of B', that keeps growth exponential: ours.
pub const GAMMA: f64 = 0.02;
/// δ: fall of B over three round trips, as a share of B', that the paper treats apart: ours. Both sides of
/// it lead to the same test; it is kept for the record.
pub const DELTA: f64 = 0.05;
/// Falls in a row that count, paper 000.
const FALLS: u32 = 3;

/// GM, the growth mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// By the factor ε per round trip.
    Exponential,
    /// By ζ segments per round trip.
    Linear,
    /// Not at all.
    Termination,
}

impl Growth {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Growth::Exponential => "exponential",
            Growth::Linear => "linear",
            Growth::Termination => "termination",
        }
    }
}

/// B, B' and what follows from them.
#[derive(Clone, Debug)]
pub(super) struct Learning {
    rate: Option<f64>,
    previous: Option<f64>,
    falls: u32,
    growth: Growth,
}

impl Learning {
    pub(super) fn new() -> Self {
        Learning { rate: None, previous: None, falls: 0, growth: Growth::Exponential }
    }

    /// B in bit/s; zero before the first sample.
    pub(super) fn rate(&self) -> f64 {
        self.rate.unwrap_or(0.0)
    }

    pub(super) fn growth(&self) -> Growth {
        self.growth
    }

    /// Exponential again, as at the start and after recovery; B is kept.
    pub(super) fn restart(&mut self) {
        self.growth = Growth::Exponential;
        self.falls = 0;
        self.previous = None;
    }

    pub(super) fn on_sample(&mut self, sample: Rate) {
        let sample = sample.as_f64();
        self.rate = Some(self.rate.map_or(sample, |rate| (1.0 - ALPHA) * rate + ALPHA * sample));
    }

    /// A round trip is over; `calm` says that SRTT <= η RTTmin.
    pub(super) fn on_round(&mut self, calm: bool) {
        let Some(rate) = self.rate else { return };
        if let Some(previous) = self.previous {
            self.falls = if rate < previous { self.falls.saturating_add(1) } else { 0 };
            self.growth = if rate > previous * (1.0 + GAMMA) {
                Growth::Exponential
            } else if self.falls < FALLS || calm {
                Growth::Linear
            } else {
                Growth::Termination
            };
        }
        self.previous = Some(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The modes after each of these values of B, in Mbit/s.
    fn modes(rates: &[f64], calm: bool) -> Vec<Growth> {
        let mut learning = Learning::new();
        let step = |rate: &f64| {
            learning.rate = Some(rate * 1e6);
            learning.on_round(calm);
            learning.growth()
        };
        rates.iter().map(step).collect()
    }

    #[test]
    fn growth_above_gamma_is_exponential_and_below_linear() {
        use Growth::{Exponential, Linear};
        assert_eq!(
            modes(&[100.0, 110.0, 111.0, 120.0], true),
            [Exponential, Exponential, Linear, Exponential]
        );
    }

    #[test]
    fn three_falls_in_a_row_end_growth_only_where_a_queue_stands() {
        use Growth::{Exponential, Linear, Termination};
        let falling = [100.0, 99.0, 98.0, 97.0, 96.0];
        assert_eq!(modes(&falling, false), [Exponential, Linear, Linear, Termination, Termination]);
        assert_eq!(modes(&falling, true)[4], Linear);
    }

    #[test]
    fn a_rise_forgets_the_falls() {
        assert!(!modes(&[100.0, 99.0, 98.0, 98.5, 98.0, 97.0], false).contains(&Growth::Termination));
    }

    #[test]
    fn a_sample_weighs_one_eighth() {
        let mut learning = Learning::new();
        learning.on_sample(Rate::mbit(80));
        learning.on_sample(Rate::mbit(160));
        assert_eq!(learning.rate(), 90e6);
    }
}
