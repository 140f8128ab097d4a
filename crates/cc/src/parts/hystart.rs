//! HyStart++, RFC 9406: leaves slow start when round trips grow, before the queue overflows.

use crate::units::Duration;

/// MIN_RTT_THRESH, RFC 9406 §4.3.
const MIN_THRESHOLD: Duration = Duration::from_millis(4);
/// MAX_RTT_THRESH, RFC 9406 §4.3.
const MAX_THRESHOLD: Duration = Duration::from_millis(16);
/// MIN_RTT_DIVISOR, RFC 9406 §4.3.
const DIVISOR: u32 = 8;
/// N_RTT_SAMPLE, RFC 9406 §4.3.
const SAMPLES: u32 = 8;
/// CSS_GROWTH_DIVISOR, RFC 9406 §4.3.
const CAUTIOUS_DIVISOR: f64 = 4.0;
/// CSS_ROUNDS, RFC 9406 §4.3.
const CAUTIOUS_ROUNDS: u32 = 5;

/// What slow start should do with an ACK.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Advice {
    /// Grow by this share of the usual step: 1, or 1/4 in conservative slow start.
    Grow(f64),
    /// Leave slow start: set the threshold to the window.
    Leave,
}

/// Watches the least round trip of each round. Round trips of seconds make the 16 ms upper bound
/// twitchy, which is why controllers here have it off unless asked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HyStart {
    last_min: Option<Duration>,
    current_min: Option<Duration>,
    samples: u32,
    /// Baseline and rounds spent in conservative slow start.
    cautious: Option<(Duration, u32)>,
}

impl HyStart {
    /// Nothing measured yet.
    pub fn new() -> Self {
        HyStart::default()
    }

    /// Hears a slow-start ACK with its round-trip sample.
    pub fn on_ack(&mut self, round_start: bool, sample: Duration) -> Advice {
        if round_start {
            self.last_min = self.current_min;
            self.current_min = None;
            self.samples = 0;
            if let Some((_, rounds)) = &mut self.cautious {
                *rounds += 1;
                if *rounds >= CAUTIOUS_ROUNDS {
                    return Advice::Leave;
                }
            }
        }
        let current = self.current_min.map_or(sample, |min| min.min(sample));
        self.current_min = Some(current);
        self.samples = self.samples.saturating_add(1);
        if self.samples >= SAMPLES {
            match (self.cautious, self.last_min) {
                (Some((baseline, _)), _) if current < baseline => self.cautious = None,
                (None, Some(last)) => {
                    let threshold = (last / DIVISOR).clamp(MIN_THRESHOLD, MAX_THRESHOLD);
                    if current >= last.saturating_add(threshold) {
                        self.cautious = Some((current, 0));
                    }
                }
                _ => {}
            }
        }
        Advice::Grow(if self.cautious.is_some() { 1.0 / CAUTIOUS_DIVISOR } else { 1.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(hystart: &mut HyStart, sample: Duration) -> Advice {
        let mut advice = hystart.on_ack(true, sample);
        for _ in 0..SAMPLES {
            if advice != Advice::Leave {
                advice = hystart.on_ack(false, sample);
            }
        }
        advice
    }

    #[test]
    fn growing_round_trips_slow_the_start_and_end_it_after_five_rounds() {
        let mut hystart = HyStart::new();
        let ms = Duration::from_millis;
        assert_eq!(round(&mut hystart, ms(100)), Advice::Grow(1.0));
        assert_eq!(round(&mut hystart, ms(101)), Advice::Grow(1.0));
        assert_eq!(round(&mut hystart, ms(114)), Advice::Grow(0.25));
        for _ in 0..4 {
            assert_eq!(round(&mut hystart, ms(120)), Advice::Grow(0.25));
        }
        assert_eq!(round(&mut hystart, ms(120)), Advice::Leave);
    }

    #[test]
    fn a_passing_rise_lets_slow_start_go_on() {
        let mut hystart = HyStart::new();
        let ms = Duration::from_millis;
        round(&mut hystart, ms(100));
        assert_eq!(round(&mut hystart, ms(120)), Advice::Grow(0.25));
        assert_eq!(round(&mut hystart, ms(100)), Advice::Grow(1.0));
    }
}
