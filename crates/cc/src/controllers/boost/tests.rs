use super::*;
use crate::testing::{ack, loss, rtt, MSS, RTT};

fn new(variant: Variant) -> Boost {
    Boost::new(&Setup::new(MSS), variant)
}

/// A round trip in which the whole window is acknowledged in one go, at the rate it was sent or that of a link.
fn round(boost: &mut Boost, now: u64, link: Rate) {
    let flight = boost.cwnd();
    let mut one = ack(now, now - 540, 0);
    (one.acked, one.round_start) = (flight, true);
    one.delivery_rate = Some(flight.per(RTT).min(link));
    boost.on_ack(&one);
}

#[test]
fn the_window_triples_per_round_trip_while_the_rate_grows() {
    for variant in [Variant::Literal, Variant::Discriminating] {
        let mut boost = new(variant);
        (1..=4).for_each(|i| round(&mut boost, i * 540, Rate::MAX));
        assert_eq!(boost.cwnd(), MSS * 810, "{variant:?}");
    }
}

#[test]
fn the_three_modes_keep_what_the_appendix_says() {
    for (mode, kept) in [(Mode::Maximum, 90), (Mode::Normal, 80), (Mode::Conservative, 60)] {
        let setup = Setup { initial_window: MSS * 100, ..Setup::new(MSS) };
        let mut boost = Boost::new(&setup, Variant::Literal).in_mode(mode);
        boost.on_loss(&loss(1000, 400, Signal::Gap, true));
        boost.on_loss(&loss(1001, 401, Signal::Gap, false));
        assert_eq!(boost.cwnd(), MSS * kept, "{mode:?}");
    }
}

#[test]
fn literal_growth_rests_in_recovery_and_is_exponential_after_it() {
    let mut boost = new(Variant::Literal);
    (1..=3).for_each(|i| round(&mut boost, i * 540, Rate::MAX));
    boost.on_loss(&loss(1700, 1600, Signal::Gap, true));
    let cut = boost.cwnd();
    boost.on_ack(&ack(2000, 1500, 50));
    assert_eq!((boost.cwnd(), boost.snapshot().phase), (cut, "recovery"));
    boost.on_ack(&ack(2300, 1701, 50));
    assert_eq!(boost.cwnd(), cut + MSS * 100);
}

#[test]
fn a_random_loss_costs_the_discriminating_variant_nothing_and_an_overflow_does() {
    let mut boost = new(Variant::Discriminating);
    (1..=3).for_each(|i| round(&mut boost, i * 540, Rate::MAX));
    let before = boost.cwnd();
    boost.on_loss(&loss(1700, 1600, Signal::Gap, true));
    assert_eq!((boost.cwnd(), boost.judgement()), (before, Some(Judgement::Random)));
    boost.on_ack(&Ack { rtt: rtt(RTT * 3 / 2), ..ack(2400, 1590, 1) });
    boost.on_loss(&loss(2400, 1800, Signal::Gap, true));
    assert!(boost.cwnd() < before);
    assert_eq!(boost.judgement(), Some(Judgement::Congestion));
}

#[test]
fn a_queue_ends_the_first_growth_at_what_the_path_holds() {
    let mut boost = new(Variant::Discriminating);
    let link = Rate::mbit(10);
    (1..=5).for_each(|i| round(&mut boost, i * 540, link));
    let mut late = ack(3300, 2500, 10);
    late.rtt.latest = RTT * 3 / 2;
    (late.delivery_rate, late.round_start) = (Some(link), true);
    boost.on_ack(&late);
    let pipes = boost.cwnd().as_f64() / link.bdp(RTT).as_f64();
    // A quarter for the estimate, up to a quarter of queue, 100 ms for ACKs in bundles.
    assert!((1.0..=1.75).contains(&pipes), "{pipes} pipes");
    assert_eq!(boost.snapshot().phase, "balance");
}

#[test]
fn the_wanted_queue_falls_with_the_root_of_the_rate() {
    let mut boost = new(Variant::Discriminating);
    for (rate, share) in [(2, 0.25), (50, 0.1), (200, 0.05), (800, 0.025), (100_000, 0.01)] {
        boost.learning = Learning::new();
        boost.learning.on_sample(Rate::mbit(rate));
        assert!((boost.queue_share() - share).abs() < 1e-9, "{rate} Mbit/s: {}", boost.queue_share());
    }
}
