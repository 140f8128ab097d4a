use super::*;
use crate::testing::{ack, loss, rtt, MSS, RTT};

/// Plays the rounds of a path that carries 10 Mbit/s.
struct Host {
    bbr: Bbr3,
    now: u64,
    /// Whether round trips stay as they are; otherwise they fall by a millionth, so that none is probed.
    steady: bool,
}

const LINK: Rate = Rate::mbit(10);
const STEPS: u64 = 45;

impl Host {
    fn new() -> Self {
        Host { bbr: Bbr3::new(&Setup::new(MSS)), now: 0, steady: false }
    }

    /// Twelve milliseconds: packets leave with `in_flight`, those of a round trip before are answered at
    /// `rate`, and `lost` of them are lost.
    fn step(&mut self, rate: Rate, in_flight: Bytes, lost: Bytes) {
        self.now += RTT.as_millis() as u64 / STEPS;
        let left = self.now.saturating_sub(540);
        self.bbr.on_sent(&Sent { now: Time::from_millis(self.now), bytes: MSS, in_flight });
        if lost > Bytes::ZERO {
            self.bbr.on_loss(&Loss { lost, in_flight, ..loss(self.now, left, Signal::Gap, true) });
        }
        let least = if self.steady { RTT } else { RTT - Duration::from_nanos(self.now) };
        self.bbr.on_ack(&Ack {
            rtt: rtt(least),
            acked: rate.bytes_in(RTT) / STEPS,
            delivery_rate: Some(rate),
            in_flight,
            ..ack(self.now, left, 0)
        });
    }

    fn rounds(&mut self, count: u64, rate: Rate, in_flight: Bytes) {
        (0..count * STEPS).for_each(|_| self.step(rate, in_flight, Bytes::ZERO));
    }

    /// Past start-up and drain.
    fn probing() -> Self {
        let mut host = Host::new();
        host.rounds(6, LINK, Bytes::ZERO);
        assert!(host.bbr.probing_rate(), "{:?}", host.bbr.mode);
        host
    }

    /// On until a mode begins, in at most fifteen seconds.
    fn until(&mut self, phase: &str, in_flight: Bytes) {
        for _ in 0..15_000 / 12 {
            if self.bbr.snapshot().phase == phase {
                return;
            }
            self.step(LINK, in_flight, Bytes::ZERO);
        }
        panic!("{phase} never came, {:?}", self.bbr.mode);
    }
}

#[test]
fn start_up_lasts_while_the_rate_grows_and_ends_after_three_rounds_without() {
    let mut host = Host::new();
    for i in 1..=6 {
        host.rounds(1, Rate::mbit(1 << i), MSS * 10_000);
        assert_eq!(host.bbr.mode, Mode::StartUp, "round {i}");
    }
    let pace = host.bbr.pacing_rate().unwrap().as_f64() / Rate::mbit(64).as_f64();
    assert!((pace - 2.77 * 0.99).abs() < 1e-6, "{pace}");
    host.rounds(4, Rate::mbit(64), MSS * 10_000);
    assert_eq!(host.bbr.snapshot().phase, "drain");
}

#[test]
fn start_up_ends_when_a_second_round_loses_more_than_two_percent() {
    for (lost, ends) in [(MSS, false), (MSS * 4, true)] {
        let mut host = Host::new();
        host.rounds(2, Rate::mbit(5), MSS * 1000);
        for i in 0..3 * STEPS {
            let lost = if i % 5 == 0 { lost } else { Bytes::ZERO };
            host.step(Rate::mbit(10 + i), MSS * 1000, lost);
        }
        // Nine events of 1 or 4 segments a round, of 1000 in flight: 0.9 % or 3.6 %.
        assert_eq!(host.bbr.full.ever, ends, "{lost} at a time");
        assert_eq!(host.bbr.model.long.is_some(), ends);
    }
}

#[test]
fn the_cycle_goes_down_cruises_refills_and_probes_every_two_to_three_seconds() {
    let mut host = Host::probing();
    let bdp = LINK.bdp(RTT);
    for _ in 0..2 {
        host.until("probe up", bdp);
        let began = host.now;
        assert!((host.bbr.pacing_rate().unwrap().as_f64() / LINK.as_f64() - 1.25 * 0.99).abs() < 0.01);
        // Three rounds without growth: the pipe is full.
        host.until("probe down", bdp);
        assert!((1500..=2300).contains(&(host.now - began)), "{}", host.now - began);
        let down = host.now;
        host.until("cruise", Bytes::ZERO);
        host.until("refill", bdp);
        assert!((2000..=3100).contains(&(host.now - down)), "{}", host.now - down);
    }
}

#[test]
fn a_probe_that_loses_more_than_two_percent_sets_the_long_term_bound_and_one_that_does_not_leaves_it() {
    let bdp = LINK.bdp(RTT);
    for (percent, bounded) in [(1, false), (4, true)] {
        let mut host = Host::probing();
        host.until("probe up", bdp);
        for _ in 0..3 * STEPS {
            host.step(LINK, bdp, Bytes(bdp.0 * percent / 100 / STEPS));
        }
        assert_eq!(host.bbr.model.long.is_some(), bounded, "{percent} %");
        if let Some(long) = host.bbr.model.long {
            let share = long.as_f64() / bdp.as_f64();
            assert!((0.7..=1.0).contains(&share), "{share}");
            assert!(host.bbr.probe.too_high);
            host.until("cruise", Bytes::ZERO);
            host.step(LINK, Bytes::ZERO, Bytes::ZERO);
            assert!(host.bbr.cwnd() <= host.bbr.model.with_headroom().unwrap());
        }
    }
}

#[test]
fn losses_while_cruising_lower_the_rate_to_what_is_delivered_and_a_refill_forgets_them() {
    let mut host = Host::probing();
    let bdp = LINK.bdp(RTT);
    host.until("probe up", bdp);
    host.until("cruise", Bytes::ZERO);
    let slower = LINK.scale(0.9);
    for _ in 0..3 * STEPS {
        host.step(slower, bdp, Bytes(100));
    }
    let rate = host.bbr.model.rate().unwrap().as_f64() / LINK.as_f64();
    assert!((0.89..=0.91).contains(&rate), "{rate}");
    host.until("refill", bdp);
    assert_eq!(host.bbr.model.rate(), Some(LINK));
}

#[test]
fn one_lossy_round_gives_up_three_tenths_at_most() {
    let mut model = Model::new(MSS);
    model.on_rate(LINK, false);
    model.adapt_to_loss(MSS * 100);
    assert_eq!(model.short, Some((LINK.scale(0.7), MSS * 70)));
    model.latest = (LINK.scale(0.95), MSS * 95);
    model.adapt_to_loss(MSS * 100);
    assert_eq!(model.short, Some((LINK.scale(0.95), MSS * 95)));
}

#[test]
fn the_long_term_bound_grows_by_doubling_steps_while_it_holds_the_window() {
    let mut host = Host::probing();
    let bdp = LINK.bdp(RTT);
    host.until("refill", bdp);
    let start = host.bbr.cwnd() / 2;
    host.bbr.model.long = Some(start);
    host.until("probe up", start);
    let mut bounds = Vec::new();
    for _ in 0..4 {
        bounds.push(host.bbr.model.long.unwrap().0 / MSS.0);
        for _ in 0..STEPS {
            let window = host.bbr.cwnd();
            host.step(LINK, window, Bytes::ZERO);
        }
    }
    let grown: Vec<u64> = bounds.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(grown.windows(2).all(|pair| pair[1] > pair[0]), "{grown:?}");
}

#[test]
fn the_round_trip_is_probed_with_half_the_product_every_five_seconds() {
    let mut host = Host::probing();
    let bdp = LINK.bdp(RTT);
    host.steady = true;
    let began = host.now;
    host.until("probe round trip", bdp);
    assert!((5000..=5100).contains(&(host.now - began)), "{}", host.now - began);
    let share = host.bbr.cwnd().as_f64() / bdp.as_f64();
    assert!((share - 0.5).abs() < 0.01, "{share}");
    let began = host.now;
    host.until("cruise", bdp / 2 - MSS);
    assert!((540..=1200).contains(&(host.now - began)), "{}", host.now - began);
}

#[test]
fn the_least_round_trip_lives_ten_seconds_and_is_sought_after_five() {
    let mut model = Model::new(MSS);
    assert!(!model.on_round_trip(Time::from_secs(1), RTT));
    assert!(!model.on_round_trip(Time::from_secs(5), RTT * 2));
    assert!(model.on_round_trip(Time::from_millis(6001), RTT * 2));
    assert_eq!(model.least(), Some(RTT));
    model.on_round_trip(Time::from_millis(11_002), RTT * 2);
    assert_eq!(model.least(), Some(RTT * 2));
}

#[test]
fn the_volume_at_the_loss_is_found_within_the_lost_packets() {
    // 1000 bytes in flight, 10 lost before, 50 now: the 2 % are crossed after 9 of the 50.
    let sample = Sample { in_flight: Bytes(1000), delivered: Bytes::ZERO, lost: Bytes(60) };
    assert_eq!(in_flight_at_loss(&sample, Bytes(50)), Bytes(959));
}

#[test]
fn a_timeout_is_forgotten_with_the_first_new_answer() {
    let mut host = Host::probing();
    host.rounds(2, LINK, Bytes::ZERO);
    let before = host.bbr.cwnd();
    host.bbr.on_loss(&Loss { rtt: rtt(RTT), ..loss(host.now, host.now - 540, Signal::Timeout, true) });
    assert_eq!(host.bbr.cwnd(), MSS * 2);
    host.bbr.on_ack(&ack(host.now + 600, host.now + 1, 2));
    assert!(host.bbr.cwnd() > before / 2, "{} after {before}", host.bbr.cwnd());
}
