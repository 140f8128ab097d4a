//! What is going on, for people who wait: a bar with the time left on a terminal, nothing elsewhere.

use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use skyhaul_lab::experiment;
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
        let bar = ProgressBar::with_draw_target(Some(1000), target());
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

/// A line on standard error that follows many runs of the lab, counted by what each is expected to cost.
pub struct Jobs {
    bar: ProgressBar,
    work: Arc<Mutex<Work>>,
}

/// How much there is to do, in the unit of the costs.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    planned: f64,
    done: f64,
    /// Time since the start when the last run was over.
    at: Duration,
    /// Parts of the work whose runs are not planned yet.
    parts_to_come: usize,
    /// Parts whose runs are planned.
    parts_known: usize,
}

impl Jobs {
    /// A line called `name` for work that is planned in so many parts; it stays invisible if standard error is not
    /// a terminal.
    pub fn new(name: &str, parts: usize) -> Jobs {
        let bar = ProgressBar::with_draw_target(Some(1000), target());
        let work = Arc::new(Mutex::new(Work { parts_to_come: parts, ..Work::default() }));
        let seen = Arc::clone(&work);
        let left = move |state: &ProgressState, out: &mut dyn Write| {
            if let Some(left) = lock(&seen).left(state.elapsed()) {
                // Writing to the screen's own buffer cannot fail.
                let _ = write!(out, ", {} left", whole_span(left));
            }
        };
        let elapsed = |state: &ProgressState, out: &mut dyn Write| {
            let _ = out.write_str(&whole_span(state.elapsed()));
        };
        if let Ok(style) =
            ProgressStyle::with_template("{prefix:<24} [{bar:30}] {percent:>3} %, {past}{left}")
        {
            bar.set_style(style.progress_chars("=> ").with_key("left", left).with_key("past", elapsed));
        }
        bar.set_prefix(name.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        Jobs { bar, work }
    }

    /// Takes the line away.
    pub fn finish(self) {
        self.bar.finish_and_clear();
    }

    fn show(&self, work: &Work) {
        self.bar.set_position((work.share() * 1000.0) as u64);
    }
}

impl experiment::Progress for Jobs {
    fn planned(&self, cost: f64) {
        let mut work = lock(&self.work);
        work.planned += cost;
        work.parts_known += 1;
        work.parts_to_come = work.parts_to_come.saturating_sub(1);
        self.show(&work);
    }

    fn done(&self, cost: f64) {
        let mut work = lock(&self.work);
        work.done += cost;
        work.at = self.bar.elapsed();
        self.show(&work);
    }
}

impl Work {
    /// What there is to do, parts that are still to come taken to be like those that are known.
    fn expected(&self) -> f64 {
        self.planned * (1.0 + self.parts_to_come as f64 / self.parts_known.max(1) as f64)
    }

    fn share(&self) -> f64 {
        let share = self.done / self.expected();
        if share.is_finite() {
            share.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// The time left if the rest goes on at the speed so far; nothing before the first run is over.
    fn left(&self, elapsed: Duration) -> Option<Duration> {
        let share = self.share();
        let whole = (share > 0.0).then(|| self.at.as_secs_f64() / share)?;
        Duration::try_from_secs_f64((whole - elapsed.as_secs_f64()).max(0.0)).ok()
    }
}

/// A panic elsewhere does not matter here: every state of the numbers can be shown.
fn lock(work: &Mutex<Work>) -> MutexGuard<'_, Work> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whole seconds up to two minutes, then the unit people would choose.
fn whole_span(time: Duration) -> String {
    match time.as_secs_f64().ceil() {
        seconds if seconds < 120.0 => format!("{seconds} s"),
        seconds => span(seconds),
    }
}

fn target() -> ProgressDrawTarget {
    if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr_with_hz(10)
    } else {
        ProgressDrawTarget::hidden()
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

    #[test]
    fn jobs_count_by_their_cost_and_parts_to_come_are_expected_to_be_like_the_others() {
        use skyhaul_lab::experiment::Progress;
        let jobs = Jobs::new("test", 3);
        assert_eq!(lock(&jobs.work).left(Duration::from_secs(1)), None);
        jobs.planned(6.0);
        jobs.done(3.0);
        let mut work = *lock(&jobs.work);
        assert_eq!((work.expected(), work.share()), (18.0, 1.0 / 6.0));
        work.at = Duration::from_secs(10);
        let left = work.left(Duration::from_secs(12)).unwrap();
        assert!((left.as_secs_f64() - 48.0).abs() < 1e-6, "{left:?}");
        assert_eq!(work.left(Duration::from_secs(90)), Some(Duration::ZERO));
        assert_eq!(whole_span(left), "48 s");
        assert_eq!(whole_span(Duration::from_secs(600)), "10 min");
        jobs.planned(0.0);
        jobs.planned(0.0);
        jobs.done(3.0);
        assert_eq!(lock(&jobs.work).share(), 1.0);
        jobs.finish();
    }
}
