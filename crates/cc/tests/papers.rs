//! What the papers' own controllers promise, on the model link: the figures that closed forms give.

mod model;

use model::{run, Path, Run, MSS};
use skyhaul_cc::controllers::enhanced::{self, Enhanced, Reading};
use skyhaul_cc::controllers::{Hswa, Hybic, Hybla};
use skyhaul_cc::{registry, Ber, Bytes, Controller, Duration, Rate, Setup};

fn build(name: &str) -> Box<dyn Controller> {
    registry::build(name, &Setup::new(MSS)).expect("a known name")
}

fn seconds(name: &str, path: &Path, length: u64) -> Run {
    run(path, &mut *build(name), Duration::from_secs(length))
}

fn check(what: &str, value: f64, range: std::ops::RangeInclusive<f64>) {
    println!("{what}: {value:.3}");
    assert!(range.contains(&value), "{what}: {value} is outside {range:?}");
}

/// The mean over seeds 1 to 3.
fn mean(value: impl Fn(u64) -> f64) -> f64 {
    (1..=3).map(value).sum::<f64>() / 3.0
}

#[test]
fn veno_under_random_loss_keeps_the_square_root_of_three_times_newrenos_window() {
    // sqrt(4.5 / p) over sqrt(1.5 / p), queue empty.
    let ratio = mean(|seed| {
        let path = Path { loss: 1e-3, seed, ..Path::new(Rate::mbit(100), Duration::from_millis(100)) };
        seconds("veno", &path, 1000).mean_window / seconds("newreno", &path, 1000).mean_window
    });
    check("Veno over NewReno", ratio, 1.58..=1.88);
}

#[test]
fn westwood_loses_little_to_random_losses_and_gives_way_to_queues() {
    let path = Path { loss: 1e-3, ..Path::new(Rate::mbit(20), Duration::from_millis(100)) };
    let used = |name| seconds(name, &path, 300).used(path.rate, 60, 300);
    check("Westwood+ over NewReno under random loss", used("westwood") / used("newreno"), 1.7..=10.0);
    // Without random loss only the queue's end cuts: to what the link holds, so that it stays busy.
    let clean = Path { loss: 0.0, queue: path.rate.bdp(path.rtt), ..path };
    check("link used without loss", seconds("westwood", &clean, 120).used(clean.rate, 20, 120), 0.98..=1.001);
}

/// The geostationary link of paper 003: 100 Mbit/s, 500 ms, bit errors, segments of 1000 bytes. The model's
/// have 1500, so all rates are half as high again and the loss is that of 1000 bytes.
fn paper_003(ber: f64, seed: u64) -> Path {
    let loss = Ber::new(ber).expect("a share").packet_error(Bytes(1000)).value();
    let path = Path::new(Rate::mbit(150), Duration::from_millis(500));
    Path { loss, queue: path.rate.bdp(path.rtt), seed, initial_rtt: path.rtt, ..path }
}

/// Goodput in Mbit/s of 1000-byte segments.
fn goodput_003(run: &Run, length: u64) -> f64 {
    run.received(0, length as usize).bits() as f64 / 1.5 / length as f64 / 1e6
}

#[test]
fn scps_on_a_geo_link_with_few_bit_errors_gets_two_percent_of_it() {
    // sqrt(1.5 / 8e-5) = 137 segments per 500 ms: 2.19 Mbit/s; the fact sheet's run gave 2.39.
    let goodput = mean(|seed| goodput_003(&seconds("scps", &paper_003(1e-8, seed), 3000), 3000));
    check("Mbit/s at 1e-8", goodput, 2.0..=2.6);
}

#[test]
fn hswa_beats_scps_by_the_square_root_of_its_step() {
    // sqrt(80) = 8.9 and sqrt(50) = 7.1. The fact sheet asks for 10 at 1e-5, where SCPS-TP loses
    // retransmissions and waits for timeouts; this model sends each packet once and cannot show that.
    for (ber, length, least) in [(1e-8, 500, 7.0), (1e-5, 500, 5.0)] {
        let ratio = mean(|seed| {
            let path = paper_003(ber, seed);
            let mut hswa = Hswa::new(&Setup { ber: Ber::new(ber), ..Setup::new(MSS) });
            let hswa = run(&path, &mut hswa, Duration::from_secs(length));
            goodput_003(&hswa, length) / goodput_003(&seconds("scps", &path, length), length)
        });
        check(&format!("HSWA over SCPS at {ber}"), ratio, least..=12.0);
    }
}

#[test]
fn hswas_window_obeys_the_square_root_law_given_or_estimating_the_error_rate() {
    for (ber, step, given) in
        [(1e-8, 80.0, true), (1e-8, 80.0, false), (1e-7, 70.0, true), (1e-7, 70.0, false)]
    {
        let ratio = mean(|seed| {
            let path = paper_003(ber, seed);
            let ber = Ber::new(ber).filter(|_| given);
            let mut hswa = Hswa::new(&Setup { ber, ..Setup::new(MSS) });
            let window = run(&path, &mut hswa, Duration::from_secs(400)).mean_window;
            window / libm::sqrt(1.5 * step / path.loss)
        });
        check(&format!("{ber}, given: {given}: window over the law"), ratio, 0.85..=1.15);
    }
}

/// The geostationary link of paper 002, whose rate it does not print: 10 Mbit/s, 550 ms.
fn paper_002(ber: f64, queue: Bytes, seed: u64) -> Path {
    let loss = Ber::new(ber).expect("a share").packet_error(MSS).value();
    let path = Path::new(Rate::mbit(10), Duration::from_millis(550));
    Path { loss, queue, seed, initial_rtt: path.rtt, ..path }
}

/// A threshold of one bandwidth-delay product of [`paper_002`], as Hybla and its kin want.
fn setup_002() -> Setup {
    Setup { initial_ssthresh: Some(Rate::mbit(10).bdp(Duration::from_millis(550))), ..Setup::new(MSS) }
}

#[test]
fn enhanced_beats_hybla_of_the_same_reference_by_the_square_root_of_three_and_not_the_real_one() {
    let big = Bytes::mib(4);
    let over = |rtt0| {
        mean(|seed| {
            let path = paper_002(1e-6, big, seed);
            let mut enhanced = Enhanced::new(&setup_002(), Reading::Resolved);
            let mut hybla = Hybla::new(&Setup { reference_rtt: Some(rtt0), ..setup_002() });
            let length = Duration::from_secs(600);
            let enhanced = run(&path, &mut enhanced, length).received(0, 600).as_f64();
            enhanced / run(&path, &mut hybla, length).received(0, 600).as_f64()
        })
    };
    check("enhanced over Hybla of 75 ms", over(enhanced::RTT0), 1.6..=2.1);
    // The paper says "slightly above"; sqrt(3) * 25 / 75 = 0.58, the fact sheet's run gave 0.75.
    check("enhanced over Hybla of 25 ms", over(Duration::from_millis(25)), 0.5..=0.85);
}

#[test]
fn enhanced_is_far_above_newreno_where_the_queue_holds_25_packets() {
    let path = paper_002(1e-7, Bytes(37_500), 1);
    let bytes = |controller: &mut dyn Controller| {
        run(&path, controller, Duration::from_secs(600)).received(0, 600).as_f64()
    };
    let enhanced = bytes(&mut Enhanced::new(&setup_002(), Reading::Resolved));
    let literal = bytes(&mut Enhanced::new(&setup_002(), Reading::Literal));
    let hybla = bytes(&mut Hybla::new(&setup_002()));
    let newreno = bytes(&mut *build("newreno"));
    println!("Mbit/s: {:?}", [enhanced, literal, hybla, newreno].map(|bytes| bytes * 8.0 / 600.0 / 1e6));
    check("enhanced over NewReno", enhanced / newreno, 2.0..=12.0);
    // The fact sheet's run has 3.5 here, with bursts that such a queue cannot hold; ours are both paced.
    check("enhanced over Hybla of 25 ms", enhanced / hybla, 0.8..=5.0);
    check("literal over resolved reading", literal / enhanced, 0.8..=1.2);
}

#[test]
fn hybic_without_loss_reaches_eighty_thousand_segments_in_a_minute() {
    // Paper 004: 5 Gbit/s, 2287 ms. The curve with K = 0 from 2927 segments after the first round trip
    // has a mean of 20.7 thousand over the minute and ends at 82 thousand.
    let rtt = Duration::from_millis(2287);
    let path = Path { initial_rtt: rtt, ..Path::new(Rate::mbit(5000), rtt) };
    let run = run(&path, &mut Hybic::new(&Setup::new(MSS)), Duration::from_secs(60));
    check("mean window in thousands", run.mean_window / 1000.0, 18.6..=22.8);
    let (_, last) = run.rounds[run.rounds.len() - 1];
    check("last window in thousands", last / 1000.0, 70.0..=86.0);
    // The paper's table says 3 Gbit/s, which divides the window by the reference round trip.
    check("goodput in Gbit/s", run.received(0, 60).bits() as f64 / 60e9, 0.08..=0.12);
}
