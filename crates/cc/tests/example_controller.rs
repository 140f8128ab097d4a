//! The example controller of CONTRIBUTING.md is the one compiled here, and it does what it says.

#[path = "example/gentle.rs"]
mod gentle;
mod model;

use gentle::Gentle;
use model::{run, Path, MSS};
use skyhaul_cc::{Duration, Rate, Setup};

#[test]
fn contributing_shows_the_example_that_is_tested() {
    let page = include_str!("../../../CONTRIBUTING.md");
    let quoted = page.split("```rust\n").find(|block| block.starts_with("//! Gentle")).expect("it is quoted");
    let quoted = quoted.split("\n```").next().unwrap_or_default();
    assert_eq!(
        quoted,
        include_str!("example/gentle.rs").trim_end(),
        "CONTRIBUTING.md differs from the example"
    );
}

#[test]
fn the_example_keeps_the_window_that_its_head_promises() {
    for seed in 1..=3 {
        let path = Path { loss: 1e-3, seed, ..Path::new(Rate::mbit(200), Duration::from_millis(50)) };
        let mean = run(&path, &mut Gentle::new(&Setup::new(MSS)), Duration::from_secs(600)).mean_window;
        let ratio = mean / f64::sqrt(7.5 / path.loss);
        assert!((0.85..=1.15).contains(&ratio), "seed {seed}: {ratio} of the law");
    }
}
