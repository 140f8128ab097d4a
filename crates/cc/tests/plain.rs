//! The plain form of `skyhaul`, which runs in the kernel as well, on the model link: near the rate, with a small
//! queue, whatever the path loses.

mod model;

use model::{run, Path, Run, MSS};
use skyhaul_cc::{registry, Bytes, Duration, PathHistory, Rate, Setup, Time};

fn plain(path: &Path, seconds: u64) -> Run {
    knowing(path, seconds, None)
}

fn knowing(path: &Path, seconds: u64, history: Option<PathHistory>) -> Run {
    let setup = Setup { history, ..Setup::new(MSS) };
    let mut controller = registry::build("skyhaul", &setup).expect("a known name");
    run(path, &mut *controller, Duration::from_secs(seconds))
}

fn link(mbit: u64, ms: u64) -> Path {
    Path::new(Rate::mbit(mbit), Duration::from_millis(ms))
}

#[test]
fn random_loss_over_a_geostationary_link_costs_no_rate_and_no_queue() {
    for seed in 1..=3 {
        let path = Path::geo(seed);
        let run = plain(&path, 40);
        let used = run.used(path.rate, 10, 40);
        assert!(used > 0.96, "seed {seed}: {used} of the link");
        let worst = run.worst_rtt(15, 40);
        // Acknowledgments come by the fifty or after 25 ms.
        assert!(worst < Duration::from_millis(640), "seed {seed}: {worst:?}");
        assert_eq!(run.dropped(15, 40), 0, "seed {seed}");
    }
}

#[test]
fn a_queue_of_twenty_packets_ends_the_start_and_no_window_runs_away() {
    let path = Path { queue: Bytes(30_000), ..link(10, 540) };
    let run = plain(&path, 60);
    let content = path.rate.bdp(path.rtt).as_f64() / MSS.as_f64();
    let greatest = run.rounds.iter().map(|(_, window)| *window).fold(0.0, f64::max);
    assert!(greatest < 4.0 * content, "{greatest} segments on a path that holds {content}");
    assert!(run.used(path.rate, 15, 60) > 0.95, "{}", run.used(path.rate, 15, 60));
    let later = run.dropped(15, 60);
    assert!(later < run.packets / 50, "{later} of {} packets dropped after the start", run.packets);
}

#[test]
fn a_short_path_without_loss_is_full_with_a_queue_of_milliseconds() {
    let path = link(100, 20);
    let run = plain(&path, 20);
    assert!(run.used(path.rate, 3, 20) > 0.98, "{}", run.used(path.rate, 3, 20));
    assert!(run.worst_rtt(5, 20) < Duration::from_millis(30), "{:?}", run.worst_rtt(5, 20));
}

#[test]
fn after_an_outage_the_rate_is_back_within_seconds() {
    let outages = vec![(Time::from_secs(10), Time::from_secs(14))];
    let path = Path { outages, ..link(20, 300) };
    let run = plain(&path, 40);
    // The timer may have backed off for as long as the outage was.
    let used = run.used(path.rate, 22, 40);
    assert!(used > 0.95, "{used} of the link");
}

#[test]
fn a_link_that_slows_down_and_recovers_is_followed_both_ways() {
    let change = |second, mbit| (Time::from_secs(second), Rate::mbit(mbit), Duration::from_millis(100));
    let path = Path { changes: vec![change(10, 5), change(20, 20)], ..link(20, 100) };
    let run = plain(&path, 40);
    assert!(run.used(Rate::mbit(5), 14, 20) > 0.95, "{}", run.used(Rate::mbit(5), 14, 20));
    assert!(run.worst_rtt(16, 20) < Duration::from_millis(180), "{:?}", run.worst_rtt(16, 20));
    assert!(run.used(path.rate, 25, 40) > 0.95, "{}", run.used(path.rate, 25, 40));
}

#[test]
fn a_remembered_path_is_full_from_the_start_and_a_wrong_memory_is_corrected() {
    let path = link(50, 300);
    let remembered = |mbit| Some(PathHistory::of(Rate::mbit(mbit), path.rtt));
    let (cold, warm) = (plain(&path, 20), knowing(&path, 20, remembered(50)));
    assert!(
        warm.received(0, 3).as_f64() > 1.6 * cold.received(0, 3).as_f64(),
        "{} and {}",
        warm.received(0, 3),
        cold.received(0, 3)
    );
    for mbit in [12, 200] {
        let wrong = knowing(&path, 20, remembered(mbit));
        let used = wrong.used(path.rate, 8, 20);
        assert!(used > 0.95, "remembered {mbit} Mbit/s: {used} of the link");
        let worst = wrong.worst_rtt(10, 20);
        assert!(worst < Duration::from_millis(360), "remembered {mbit} Mbit/s: {worst:?}");
    }
}
