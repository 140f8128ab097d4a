//! BoostTCP on the model link: the cells of paper 000 and what a controller for real links must survive.

mod model;

use model::{run, share, Path, Run, MSS};
use skyhaul_cc::controllers::boost::{Boost, Variant};
use skyhaul_cc::{
    registry, Ack, Bytes, Controller, Duration, Judgement, Loss, Rate, Sent, Setup, Snapshot, Time,
};
use std::sync::{Arc, Mutex};

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

/// Seconds until 500 MB have arrived, the last second counted in proportion.
fn time_for_500_mb(run: &Run) -> f64 {
    let mut missing = 500e6;
    for (second, entry) in run.seconds.iter().enumerate() {
        let received = entry.received.as_f64();
        if received >= missing {
            return second as f64 + missing / received;
        }
        missing -= received;
    }
    f64::INFINITY
}

/// A cell of paper 000: 1 Gbit/s, a queue of one bandwidth-delay product.
fn paper_000(rtt: u64, loss: f64) -> Path {
    let path = Path::new(Rate::mbit(1000), Duration::from_millis(rtt));
    Path { loss, queue: path.rate.bdp(path.rtt), initial_rtt: path.rtt, ..path }
}

#[test]
fn boost_is_at_least_as_fast_as_bbr_and_ten_times_as_fast_as_reno() {
    for (rtt, loss) in [(20, 0.0), (20, 0.005), (50, 0.0005), (100, 0.0), (100, 0.0005), (100, 0.005)] {
        let path = paper_000(rtt, loss);
        let time = |name| time_for_500_mb(&seconds(name, &path, 9));
        let boost = time("boost");
        let what = format!("{rtt} ms, loss {loss}");
        check(&format!("{what}: boost over BBR"), time("bbr") / boost, 1.0..=1.4);
        // The fact sheet's mean for a start that doubles per round trip, in payload: 1448 of 1538 bytes.
        let doubling = match rtt {
            20 => 908.0,
            50 => 849.0,
            _ => 759.0,
        };
        check(
            &format!("{what}: boost over doubling"),
            4000.0 / boost * (1448.0 / 1538.0) / doubling,
            0.93..=1.1,
        );
        if loss > 0.0 {
            let reno = seconds("newreno", &path, 9);
            let ratio = 500e6 / boost / (reno.received(0, 9).as_f64() / 9.0);
            check(&format!("{what}: boost over NewReno"), ratio, 10.0..=1000.0);
        }
    }
}

#[test]
fn the_literal_reading_falls_as_one_over_the_loss() {
    // The fact sheet: x2, beta 0.8: 672 and 90 Mbit/s at 0.05 and 0.5 %; x3, beta 0.9: 752 and 387.
    let rate = |loss| 4000.0 / time_for_500_mb(&seconds("boost-literal", &paper_000(100, loss), 120));
    let (few, many) = (rate(0.0005), rate(0.005));
    check("Mbit/s at 0.05 %", few, 500.0..=880.0);
    check("Mbit/s at 0.5 %", many, 30.0..=390.0);
}

#[test]
fn boost_fills_lossy_links_of_all_kinds() {
    let ms = Duration::from_millis;
    for (rate, rtt, loss, queue) in [
        (150, 540, 0.012, 5_000_000),
        (150, 800, 0.012, 5_000_000),
        (10, 540, 0.012, 675_000),
        (100, 20, 0.005, 250_000),
        (5, 40, 0.005, 50_000),
        (10, 550, 0.0, 37_500),
    ] {
        let path = Path {
            loss,
            queue: Bytes(queue),
            ..Path { rtt: ms(rtt), rate: Rate::mbit(rate), ..Path::geo(1) }
        };
        let run = seconds("boost", &path, 60);
        let sent = run.received(20, 60).0 / MSS.0 + run.dropped(20, 60);
        check("  of it overflowed", run.dropped(20, 60) as f64 / sent as f64, 0.0..=0.01);
        check(&format!("{rate} Mbit/s, {rtt} ms: link used"), run.used(path.rate, 20, 60), 0.95..=1.001);
    }
}

#[test]
fn boost_survives_a_fade_an_outage_and_a_longer_path() {
    let (ms, s) = (Duration::from_millis, Time::from_secs);
    let full = Rate::mbit(150);
    let fade =
        Path { changes: vec![(s(10), Rate::kbit(37_500), ms(540)), (s(20), full, ms(540))], ..Path::geo(1) };
    let run = seconds("boost", &fade, 60);
    check("faded to a quarter", run.used(Rate::kbit(37_500), 11, 20), 0.9..=1.002);
    check("20 s after the fade", run.used(full, 40, 60), 0.9..=1.002);

    let outage = Path { outages: vec![(s(10), s(13))], ..Path::geo(1) };
    let run = seconds("boost", &outage, 30);
    check("7 s after an outage of 3 s", run.used(full, 20, 30), 0.9..=1.002);

    let longer = Path { changes: vec![(s(10), full, ms(800))], ..Path::geo(1) };
    let run = seconds("boost", &longer, 60);
    check("on the longer path", run.used(full, 30, 60), 0.9..=1.002);
}

#[test]
fn three_boost_flows_share_a_link_equally_from_the_fortieth_second_on() {
    // Paper 000, section 4.2.2, figures 10 to 12: flows begin at 0, 10 and 20 s; 100 ms, no loss.
    for rate in [100, 1000] {
        let path = Path {
            rate: Rate::mbit(rate),
            queue: Rate::mbit(rate).bdp(Duration::from_millis(100)),
            ..paper_000(100, 0.0)
        };
        let mut flows: Vec<_> = (0..3).map(|i| (Time::from_secs(i * 10), build("boost"))).collect();
        let received = share(&path, &mut flows, Duration::from_secs(60));
        let rates: Vec<f64> = received
            .iter()
            .map(|flow| flow[40..60].iter().map(|b| b.bits()).sum::<u64>() as f64 / 20.0)
            .collect();
        let sum: f64 = rates.iter().sum();
        let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
        check(&format!("{rate} Mbit/s: Jain's index"), sum * sum / (3.0 * squares), 0.95..=1.0);
        check(&format!("{rate} Mbit/s: link used"), sum / path.rate.as_f64(), 0.9..=1.001);
    }
}

/// Boost with a list of what its packet loss monitor said, one entry per episode.
#[derive(Clone, Debug)]
struct Watched {
    boost: Boost,
    verdicts: Arc<Mutex<Vec<Judgement>>>,
}

impl Controller for Watched {
    fn name(&self) -> &'static str {
        self.boost.name()
    }
    fn on_sent(&mut self, sent: &Sent) {
        self.boost.on_sent(sent);
    }
    fn on_ack(&mut self, ack: &Ack) {
        self.boost.on_ack(ack);
    }
    fn on_loss(&mut self, loss: &Loss) {
        self.boost.on_loss(loss);
        if loss.new_episode {
            self.verdicts.lock().expect("nobody panics with it").extend(self.boost.judgement());
        }
    }
    fn cwnd(&self) -> Bytes {
        self.boost.cwnd()
    }
    fn pacing_rate(&self) -> Option<Rate> {
        self.boost.pacing_rate()
    }
    fn snapshot(&self) -> Snapshot {
        self.boost.snapshot()
    }
    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

/// Share of the episodes that the monitor took for congestion.
fn congested_share(path: &Path, length: u64) -> f64 {
    let verdicts = Arc::default();
    let boost = Boost::new(&Setup::new(MSS), Variant::Discriminating);
    let mut watched = Watched { boost, verdicts: Arc::clone(&verdicts) };
    run(path, &mut watched, Duration::from_secs(length));
    let verdicts = verdicts.lock().expect("nobody panics with it");
    assert!(!verdicts.is_empty(), "no loss at all");
    verdicts.iter().filter(|cause| **cause == Judgement::Congestion).count() as f64 / verdicts.len() as f64
}

#[test]
fn the_loss_monitor_tells_random_losses_from_overflow() {
    for (rtt, loss) in [(100, 0.001), (100, 0.05), (540, 0.012)] {
        let path = Path { loss, ..Path::new(Rate::mbit(150), Duration::from_millis(rtt)) };
        check(
            &format!("{rtt} ms, random loss {loss}: judged congestion"),
            congested_share(&path, 60),
            0.0..=0.05,
        );
    }
    // No random loss: what is lost, the first growth lost to the queue's end.
    let path = paper_000(100, 0.0);
    check("queue's end: judged congestion", congested_share(&path, 5), 0.9..=1.0);
}
