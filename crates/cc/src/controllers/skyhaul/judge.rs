//! What a loss means: the path's noise, our own queue running over, or an outage.
//!
//! Random loss is independent of the queue; an overflowing one drops at its top. A round is congestive only
//! if there were more losses than the noise explains *and* they happened where the queue was high. The
//! baseline `p0` is learned in rounds with a low queue only, or an overflow would become "random".

use super::path::between;
use super::round::Finding;
use crate::units::Time;

/// So many consecutive losses, spread over [`OUTAGE_SPAN`], are an outage: nothing else loses everything.
const OUTAGE_PACKETS: f64 = 16.0;
/// Longer than any train takes to leave: a train that meets a full queue is no outage.
const OUTAGE_SPAN: f64 = 0.005;
/// Rounds after an outage in which nothing is decided: they hold its echo.
const OUTAGE_ROUNDS: u32 = 2;
/// The baseline is an average over so many packets …
const MEMORY: f64 = 2_000.0;
/// … and follows a round by this weight at most.
const WEIGHT_MOST: f64 = 0.2;
/// Loss beyond this is not learned and is congestion wherever it happened. The papers' worst link
/// loses 8 %.
const NOISE_MOST: f64 = 0.12;
/// Packets that a remembered baseline stands for.
const REMEMBERED: f64 = 500.0;
/// Losses beyond the noise, in standard deviations, and two to spare.
const DEVIATIONS: f64 = 3.0;
const SPARE: f64 = 2.0;

/// The judge of losses.
#[derive(Clone, Debug, Default)]
pub(super) struct Judge {
    noise: f64,
    /// Packets the baseline rests on.
    learned: f64,
    run: f64,
    run_from: Option<Time>,
    run_to: Option<Time>,
    /// Rounds left in which nothing is decided.
    deaf: u32,
}

/// A run of losses has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Run {
    /// Single losses to be judged with the round.
    Losses(f64),
    /// The path was out.
    Outage,
}

impl Judge {
    /// Of a path that lost this share of the packets when it was last used; it weighs as much as the first
    /// round.
    pub fn expecting(noise: f64) -> Self {
        let noise = noise.min(NOISE_MOST);
        Judge { noise, learned: if noise > 0.0 { REMEMBERED } else { 0.0 }, ..Judge::default() }
    }

    /// `p0`: share of packets that the path loses by itself.
    pub fn noise(&self) -> f64 {
        self.noise
    }

    /// The path itself loses this share, by a comparison.
    pub fn know(&mut self, noise: f64) {
        (self.noise, self.learned) = (noise, MEMORY);
    }

    /// A packet that left then is lost.
    pub fn hear_loss(&mut self, sent_at: Time) {
        self.run += 1.0;
        self.run_from.get_or_insert(sent_at);
        self.run_to = Some(sent_at);
    }

    /// A packet has arrived: the run of losses before it, if there was one.
    pub fn hear_arrival(&mut self) -> Option<Run> {
        let (from, to) = (self.run_from.take()?, self.run_to.take()?);
        let run = std::mem::replace(&mut self.run, 0.0);
        if run >= OUTAGE_PACKETS && between(from, to) >= OUTAGE_SPAN {
            self.deaf = OUTAGE_ROUNDS;
            return Some(Run::Outage);
        }
        Some(Run::Losses(run))
    }

    /// Whether this round still holds the echo of an outage; asked once per round.
    pub fn is_deaf(&mut self) -> bool {
        let deaf = self.deaf > 0;
        self.deaf = self.deaf.saturating_sub(1);
        deaf
    }

    /// Whether the round's losses are congestion; learns the noise if not, where losses of others' making do not count as such (`learns`). `target` is the queue we want.
    pub fn is_congested(&mut self, finding: &Finding, target: f64, learns: bool) -> bool {
        let (n, p) = (finding.packets, self.noise);
        let share = finding.lost / n.max(1.0);
        let excess = finding.lost > n * p + DEVIATIONS * libm::sqrt(n * p * (1.0 - p)) + SPARE;
        let before = finding.before_loss.unwrap_or(0.0);
        let high = before > 1.3 * finding.mean && before > 0.6 * finding.greatest && before > 0.5 * target;
        let congested = excess && (high || finding.least > 2.0 * target || share > NOISE_MOST);
        let low = finding.mean < 4.0 * target + 0.003;
        if learns && !congested && low && share < NOISE_MOST && n > 0.0 {
            // The first rounds count by their packets, later ones by the moving average.
            let weight =
                (n / MEMORY).min(WEIGHT_MOST).max(n / (self.learned + n) * f64::from(self.learned < MEMORY));
            self.noise += weight.min(1.0) * (share - self.noise);
            self.learned += n;
        }
        congested
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(packets: f64, lost: f64, mean: f64, before_loss: f64) -> Finding {
        Finding {
            now: Time::from_secs(1),
            packets,
            lost,
            least: 0.0,
            mean,
            greatest: 2.0 * mean,
            before_loss: Some(before_loss),
            rate: packets,
            clumps: None,
            least_of_all: 0.0,
            steady: packets,
            app_limited: false,
        }
    }

    #[test]
    fn losses_at_the_top_of_the_queue_are_congestion_and_losses_anywhere_are_noise() {
        let mut judge = Judge::default();
        assert!(!judge.is_congested(&finding(6_000.0, 72.0, 0.002, 0.002), 0.002, true));
        assert!((judge.noise() - 0.012).abs() < 1e-9);
        assert!(judge.is_congested(&finding(6_000.0, 400.0, 0.002, 0.0038), 0.002, true));
        assert!((judge.noise() - 0.012).abs() < 1e-9);
    }

    #[test]
    fn heavy_loss_at_a_standing_queue_never_becomes_the_baseline() {
        let mut judge = Judge::default();
        for _ in 0..1_000 {
            judge.is_congested(&finding(6_000.0, 3_400.0, 0.1, 0.1), 0.002, true);
            judge.is_congested(&finding(6_000.0, 600.0, 0.1, 0.1), 0.002, true);
        }
        assert_eq!(judge.noise(), 0.0);
    }

    #[test]
    fn a_long_run_of_losses_is_an_outage_and_a_lost_train_is_not() {
        let mut judge = Judge::default();
        (0..32).for_each(|i| judge.hear_loss(Time::from_nanos(i)));
        assert_eq!(judge.hear_arrival(), Some(Run::Losses(32.0)));
        (0..32).for_each(|i| judge.hear_loss(Time::from_millis(i)));
        assert_eq!(judge.hear_arrival(), Some(Run::Outage));
        assert_eq!([judge.is_deaf(), judge.is_deaf(), judge.is_deaf()], [true, true, false]);
        assert_eq!(judge.hear_arrival(), None);
    }
}
