//! What the papers' own controllers promise, on the model link: the figures that closed forms give.

mod model;

use model::{run, Path, Run, MSS};
use skyhaul_cc::{registry, Controller, Duration, Rate, Setup};

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
