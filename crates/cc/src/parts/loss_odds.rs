//! How likely a packet is lost, given how long nothing was heard of it: the predictive loss judgement of
//! paper 000 §3.2, which says that such a judgement is made from what was learned of the path and not how.
//!
//! For a packet sent `age` ago, which is `longer` than the round trip of the first packet sent later that is
//! answered:
//!
//! ```text
//! s = S_rtt(age)                         nothing sent later is answered
//!     min(S_rtt(age), S_re(longer))      otherwise; not the product, the two depend on each other
//! P = pi / (pi + (1 - pi) s)             Bayes
//! ```
//!
//! | symbol | here | meaning | default |
//! |---|---|---|---|
//! | S_rtt(a) | [`Tail`] of round trips above the smoothed one | share of arriving packets answered later than a | |
//! | S_re(u) | [`Tail`] of differences | share of arriving packets that take more than u longer than one sent later | |
//! | pi | two-state chain (Gilbert) | probability of loss, given the fate of the packet sent just before | |
//! | theta | [`threshold`](LossOddsOptions::threshold) | cost of a needless copy over the sum of both costs | 0.95 |
//! | | [`memory`](LossOddsOptions::memory) | packets remembered | 16,384 |
//! | | [`least_samples`](LossOddsOptions::least_samples) | before them there is no judgement | 200 |
//!
//! The paper gives no equations; these are ours, with two turns:
//!
//! * Round trips count from the smoothed one (weight 1/8, as RFC 6298 has it) and not from the least: while a
//!   queue grows every packet takes longer than all before it, and would be lost by comparison with the least.
//! * `longer` is the time since the later packet was answered and the lead that the earlier one had when they
//!   left. Where packets follow closely the lead is nothing. In a thin flow it is more than any reordering, so
//!   that the time alone would teach that there is none, and a copy sent just before new data would be judged
//!   by that.
//!
//! Of packets in the order they left, the first one open has the greatest `age` and `longer`, so it is the
//! first to cross the threshold, and the fate of the packet before it is known. Hosts need to look at that
//! one only, and to report fates in that order.

use super::Tail;
use crate::units::{Duration, Share};

/// Settings of a [`LossOdds`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossOddsOptions {
    /// A packet at least this likely lost is judged lost: θ = 0.95, where a needless copy costs 19 times
    /// the loss noticed late. Between 0.5 and 0.9999.
    pub threshold: Share,
    /// Packets after which a sample weighs 1/e. 16,384: at 1.2 % loss, θ is crossed where one of 1,600
    /// arriving packets would still come, so that ten of those remembered lie beyond.
    pub memory: f64,
    /// Arrived packets before which nothing is judged: 200, so that at 1.2 % two losses were seen.
    pub least_samples: f64,
}

impl Default for LossOddsOptions {
    fn default() -> Self {
        LossOddsOptions {
            threshold: Share::new(0.95).unwrap_or(Share::ONE),
            memory: 16_384.0,
            least_samples: 200.0,
        }
    }
}

/// What was learned of a path, and what it says about a packet of which nothing was heard.
#[derive(Clone, Debug, PartialEq)]
pub struct LossOdds {
    options: LossOddsOptions,
    /// Least and smoothed round trip.
    round_trip: Option<(Duration, Duration)>,
    slower: Tail,
    overtaken: Tail,
    fates: Fates,
}

/// Where the odds cross the threshold, whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// This long after it was sent.
    pub age: Duration,
    /// This much longer after it was sent than the round trip of the first packet sent later that is answered.
    pub longer: Duration,
}

impl LossOdds {
    /// Nothing learned.
    pub fn new(options: LossOddsOptions) -> Self {
        LossOdds {
            options,
            round_trip: None,
            slower: Tail::new(options.memory),
            overtaken: Tail::new(options.memory),
            fates: Fates::new(options.memory),
        }
    }

    /// A packet was answered `rtt` after it was sent.
    pub fn on_arrived(&mut self, rtt: Duration) {
        let (least, smoothed) = self.round_trip.unwrap_or((rtt, rtt));
        self.slower.add(rtt.saturating_sub(smoothed));
        // tidy: allow(eight): the weight of a round trip, RFC 6298 §2.3.
        let smoothed = smoothed * 7 / 8 + rtt / 8;
        self.round_trip = Some((least.min(rtt), smoothed));
    }

    /// An answered packet took so much longer than the first answered one sent after it; zero where it did
    /// not. Once for each packet, as soon as both are known.
    pub fn on_compared(&mut self, longer: Duration) {
        self.overtaken.add(longer);
    }

    /// The next packet in the order of sending has arrived or is lost.
    pub fn on_fate(&mut self, fate: Fate) {
        self.fates.add(fate);
    }

    /// A packet judged lost was only late. `before`: the fate of the packet sent just before it, as
    /// [`fate_before`](LossOdds::fate_before) told when it was judged.
    pub fn on_acquitted(&mut self, before: Option<Fate>) {
        self.fates.acquit(before);
    }

    /// The order of fates is broken; the next packet's predecessor is not known.
    pub fn forget_order(&mut self) {
        self.fates.before = None;
    }

    /// Fate of the packet last reported.
    pub fn fate_before(&self) -> Option<Fate> {
        self.fates.before
    }

    /// Whether enough was seen to judge.
    pub fn is_ready(&self) -> bool {
        self.slower.count() >= self.options.least_samples
    }

    /// π: probability that the next packet in order is lost, before anything is heard or not heard.
    pub fn prior(&self) -> f64 {
        self.fates.next_lost()
    }

    /// Share of packets lost lately.
    pub fn loss_rate(&self) -> Share {
        Share::new(self.fates.lost()).unwrap_or(Share::ZERO)
    }

    /// P: probability that the first open packet is lost, sent `age` ago, which is `longer` than the round
    /// trip of the first answered one sent later, if there is one.
    pub fn lost(&self, age: Duration, longer: Option<Duration>) -> f64 {
        let (Some((_, smoothed)), scale) = (self.round_trip, self.scale()) else { return self.prior() };
        // An answer takes the smoothed round trip about half of the time; of the lower half of the
        // distribution nothing is kept, because nothing is judged there.
        let mut still = if age >= smoothed { self.slower.beyond(age - smoothed, scale) } else { 1.0 };
        if let Some(longer) = longer {
            still = still.min(self.overtaken.beyond(longer, scale));
        }
        let prior = self.prior();
        prior / (prior + (1.0 - prior) * still)
    }

    /// When the first open packet will be lost with the probability of the threshold; none before there
    /// are enough samples. Never before the least round trip: earlier silence tells nothing.
    pub fn crossing(&self) -> Option<Crossing> {
        let (least, smoothed) = self.round_trip.filter(|_| self.is_ready())?;
        let (prior, threshold) = (self.prior(), self.options.threshold.value().clamp(0.5, 0.9999));
        // P >= theta where s is this or less.
        let still = prior * (1.0 - threshold) / (threshold * (1.0 - prior));
        let scale = self.scale();
        let age = smoothed.saturating_add(self.slower.exceeded_by(still, scale)).max(least);
        Some(Crossing { age, longer: self.overtaken.exceeded_by(still, scale) })
    }

    /// How far beyond everything seen a delay may lie: a 64th of the least round trip, 1 ms at least.
    fn scale(&self) -> Duration {
        self.round_trip.map_or(Duration::ZERO, |(least, _)| least / 64).max(Duration::from_millis(1))
    }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was answered.
    Arrived,
    /// It was judged lost.
    Lost,
}

/// Losses that depend on the fate of the packet before (Gilbert 1960), counted and forgotten.
#[derive(Clone, Debug, PartialEq)]
struct Fates {
    keep: f64,
    before: Option<Fate>,
    /// Packets by the fate of the one before and their own; arrived first.
    counts: [[f64; 2]; 2],
}

impl Fates {
    fn new(memory: f64) -> Self {
        Fates { keep: 1.0 - 1.0 / memory.max(1.0), before: None, counts: [[0.0; 2]; 2] }
    }

    fn add(&mut self, fate: Fate) {
        self.counts.iter_mut().flatten().for_each(|count| *count *= self.keep);
        let before = self.before.unwrap_or(Fate::Arrived);
        self.counts[before as usize][fate as usize] += 1.0;
        self.before = Some(fate);
    }

    fn acquit(&mut self, before: Option<Fate>) {
        let counts = &mut self.counts[before.unwrap_or(Fate::Arrived) as usize];
        let one = counts[Fate::Lost as usize].min(1.0);
        counts[Fate::Lost as usize] -= one;
        counts[Fate::Arrived as usize] += one;
    }

    /// Of all packets; a thousandth with the weight of a hundred packets before any was seen.
    fn lost(&self) -> f64 {
        let [[calm, first], [last, burst]] = self.counts;
        (first + burst + 0.1) / (calm + first + last + burst + 100.0)
    }

    /// After the fate before: leaning on the share of all with the weight of four packets.
    fn next_lost(&self) -> f64 {
        let all = self.lost();
        match self.before {
            None => all,
            Some(before) => {
                let [arrived, lost] = self.counts[before as usize];
                (lost + 4.0 * all) / (arrived + lost + 4.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// `count` packets at 540 ms, of which each `loss`-th is lost and each `late`-th is overtaken by
    /// 1 to 20 ms.
    fn learned(count: u64, loss: u64, late: u64) -> LossOdds {
        let mut odds = LossOdds::new(LossOddsOptions::default());
        for n in 1..=count {
            if n % loss == 0 {
                odds.on_fate(Fate::Lost);
                continue;
            }
            let behind = if n % late == 0 { n / late % 20 + 1 } else { 0 };
            odds.on_arrived(MS(540 + behind));
            odds.on_compared(MS(behind));
            odds.on_fate(Fate::Arrived);
        }
        odds
    }

    #[test]
    fn nothing_is_judged_before_there_are_samples() {
        assert_eq!(LossOdds::new(LossOddsOptions::default()).crossing(), None);
        assert_eq!(learned(100, 50, u64::MAX).crossing(), None);
        assert!(learned(300, 50, u64::MAX).crossing().is_some());
    }

    #[test]
    fn on_a_path_that_keeps_order_one_later_answer_tells_of_a_loss() {
        let odds = learned(20_001, 80, u64::MAX);
        let crossing = odds.crossing().unwrap();
        assert_eq!(crossing.longer, Duration::ZERO);
        assert!(crossing.age >= MS(540) && crossing.age < MS(541), "{crossing:?}");
        assert!(odds.lost(MS(540), Some(Duration::ZERO)) > 0.95);
        // Nothing is known before the answer can be there.
        assert!(odds.lost(MS(500), None) < 0.02);
    }

    #[test]
    fn on_a_path_that_reorders_by_20_ms_the_judgement_waits_so_long() {
        let crossing = learned(20_001, 80, 20).crossing().unwrap();
        assert!(crossing.longer > MS(19) && crossing.longer < MS(22), "{crossing:?}");
        assert!(crossing.age > MS(558) && crossing.age < MS(564), "{crossing:?}");
    }

    #[test]
    fn a_rare_loss_is_harder_to_believe() {
        let (rare, often) = (learned(20_001, 2000, 20), learned(20_001, 20, 20));
        let at = |odds: &LossOdds| odds.lost(MS(550), Some(MS(10)));
        assert!(at(&rare) < 0.05 && at(&often) > 0.5, "{} {}", at(&rare), at(&often));
        assert!(rare.crossing().unwrap().longer > often.crossing().unwrap().longer);
    }

    #[test]
    fn in_a_burst_the_next_loss_is_likely_and_after_an_arrival_it_is_not() {
        let mut odds = LossOdds::new(LossOddsOptions::default());
        for n in 0..20_000 {
            let lost = n % 1600 < 20;
            odds.on_fate(if lost { Fate::Lost } else { Fate::Arrived });
            if n == 16_009 {
                assert!((odds.prior() - 0.95).abs() < 0.04, "{}", odds.prior());
            }
        }
        assert!((odds.prior() - 1.0 / 1580.0).abs() < 2e-4, "{}", odds.prior());
        assert!((odds.loss_rate().value() - 0.0125).abs() < 0.004, "{:?}", odds.loss_rate());
        odds.forget_order();
        assert!((odds.prior() - 0.0125).abs() < 0.004, "{}", odds.prior());
    }

    #[test]
    fn an_acquitted_packet_counts_as_arrived() {
        let mut odds = learned(1000, 100, 50);
        let before = odds.loss_rate().value();
        let fate = odds.fate_before();
        odds.on_fate(Fate::Lost);
        assert!(odds.loss_rate().value() > before);
        odds.on_acquitted(fate);
        assert!(odds.loss_rate().value() < before);
    }

    #[test]
    fn a_growing_queue_is_not_taken_for_losses() {
        let mut odds = learned(5000, 80, u64::MAX);
        // Every packet takes 0.1 ms longer than the one before, 4000 of them: up to 400 ms more.
        let mut judged = 0;
        for n in 0..4000u64 {
            let rtt = Duration::from_micros(540_000 + n * 100);
            judged += u32::from(odds.crossing().unwrap().age < rtt);
            odds.on_arrived(rtt);
            odds.on_compared(Duration::ZERO);
            odds.on_fate(Fate::Arrived);
        }
        assert!(judged < 40, "{judged}");
    }

    #[test]
    fn a_chain_of_losses_is_never_judged_before_the_answer_can_be_there() {
        let mut odds = learned(1000, 10, u64::MAX);
        (0..5000).for_each(|_| odds.on_fate(Fate::Lost));
        assert!(odds.prior() > 0.95);
        assert!(odds.crossing().unwrap().age >= MS(540));
    }

    proptest! {
        #[test]
        fn odds_rise_with_silence_and_cross_the_threshold_where_it_is_said(
            packets in prop::collection::vec((0..60_000u64, 0..40_000u64, 0..8u8), 250..600),
            threshold in 0.5..0.999f64, a in 0..900_000u64, b in 0..900_000u64, u in 0..90_000u64
        ) {
            let options = LossOddsOptions {
                threshold: Share::new(threshold).unwrap(), ..LossOddsOptions::default()
            };
            let mut odds = LossOdds::new(options);
            for (rtt, behind, kind) in packets {
                if kind == 0 {
                    odds.on_fate(Fate::Lost);
                    continue;
                }
                let behind = if kind < 3 { behind } else { 0 };
                odds.on_arrived(Duration::from_micros(500_000 + rtt));
                odds.on_compared(Duration::from_micros(behind));
                odds.on_fate(Fate::Arrived);
            }
            let us = Duration::from_micros;
            let (young, old) = (us(a.min(b)), us(a.max(b)));
            prop_assert!(odds.lost(young, None) <= odds.lost(old, None));
            prop_assert!(odds.lost(young, Some(us(u))) <= odds.lost(young, Some(us(u + 1000))));
            prop_assert!(odds.lost(young, None) <= odds.lost(young, Some(us(u))) + 1e-12);
            prop_assert!((0.0..=1.0).contains(&odds.lost(old, Some(us(u)))));
            let Some(crossing) = odds.crossing() else { return Ok(()) };
            let eps = 1e-6;
            prop_assert!(odds.lost(crossing.age, None) >= threshold - eps);
            prop_assert!(odds.lost(Duration::ZERO, Some(crossing.longer)) >= threshold - eps);
            let step = us(1);
            if crossing.longer > step {
                prop_assert!(odds.lost(Duration::ZERO, Some(crossing.longer - step)) < threshold + eps);
            }
            if crossing.age > us(560_000) {
                prop_assert!(odds.lost(crossing.age - step, None) < threshold + eps);
            }
        }
    }
}
