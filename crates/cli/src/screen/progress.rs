//! What is going on, for people who wait: a bar with the time left on a terminal, nothing elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use skyhaul_live::testbed::Progress;

use super::numbers::{mbit, span};

/// A line on standard error that follows one run.
pub struct Line {
    bar: ProgressBar,
    name: String,
}

impl Line {
    /// A line for the run called `name`; it stays invisible if standard error is not a terminal.
    pub fn new(name: &str) -> Line {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr_with_hz(10)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(1000), target);
        if let Ok(style) = ProgressStyle::with_template("{prefix:<24} [{bar:30}] {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(name.to_owned());
        Line { bar, name: name.to_owned() }
    }

    /// Shows where the run is.
    pub fn show(&self, progress: Progress) {
        let (share, message) = describe(progress);
        self.bar.set_position((share.clamp(0.0, 1.0) * 1000.0) as u64);
        self.bar.set_message(message);
    }

    /// Takes the line away.
    pub fn finish(self) {
        tracing::debug!("{} is done", self.name);
        self.bar.finish_and_clear();
    }
}

/// How far a run is, as a share, and what to say about it.
fn describe(progress: Progress) -> (f64, String) {
    match progress {
        Progress::SettingUp => (0.0, "setting up".to_owned()),
        Progress::Checking => (1.0, "comparing the files".to_owned()),
        Progress::Object { bytes } => (0.0, format!("objects of {bytes}")),
        Progress::Streaming { elapsed, limit } => {
            let left = limit.saturating_sub(elapsed);
            (part(elapsed, limit), format!("{} left", span(left.as_secs_f64().ceil())))
        }
        Progress::Moving { received, total, elapsed, limit } => {
            let share = received.as_f64() / total.as_f64().max(1.0);
            let rate = if elapsed.is_zero() { 0.0 } else { received.per(elapsed).as_f64() };
            // Whatever comes first: the last byte at this rate, or the time limit.
            let until_stop = limit.saturating_sub(elapsed).as_secs_f64();
            let until_end = (total - received).bits() as f64 / rate;
            let left = until_end.min(until_stop).ceil();
            (share.max(part(elapsed, limit)), format!("{} Mbit/s, {left:.0} s left", mbit(rate)))
        }
    }
}

fn part(elapsed: Duration, whole: Duration) -> f64 {
    elapsed.as_secs_f64() / whole.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skyhaul_cc::units::Bytes;

    #[test]
    fn the_time_left_follows_the_rate_or_the_limit_whichever_ends_first() {
        let moving = |received, elapsed| Progress::Moving {
            received: Bytes(received),
            total: Bytes(10_000_000),
            elapsed: Duration::from_secs(elapsed),
            limit: Duration::from_secs(20),
        };
        let (share, text) = describe(moving(5_000_000, 4));
        assert_eq!((share, text.as_str()), (0.5, "10.0 Mbit/s, 4 s left"));
        let (_, text) = describe(moving(1_000, 5));
        assert!(text.ends_with("15 s left"), "{text}");
        let (_, text) = describe(moving(0, 0));
        assert!(text.ends_with("20 s left"), "{text}");
    }
}
