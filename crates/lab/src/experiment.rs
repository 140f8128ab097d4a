//! Runs over all cores, their results in a fixed order.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use skyhaul_cc::registry::UnknownController;
use skyhaul_sim::scenario::ScenarioError;
use skyhaul_sim::world::Failure;

/// How much is run, and with which luck.
#[derive(Clone, Copy)]
pub struct Effort<'a> {
    /// Runs per cell, with seeds one after the other.
    pub seeds: u32,
    /// The first seed.
    pub first_seed: u64,
    /// A look instead of a measurement: fewer cells, shorter runs. Figures say what they left out.
    pub quick: bool,
    /// Threads that run at the same time; results do not depend on it.
    pub threads: NonZeroUsize,
    /// Who wants to know how far it is.
    pub progress: Option<&'a dyn Progress>,
}

/// Hears how far the runs are, from any thread.
pub trait Progress: Sync {
    /// More work has become known, in the units of `done`.
    fn planned(&self, cost: f64);
    /// A run is over.
    fn done(&self, cost: f64);
}

/// Why there is no figure.
#[derive(Debug)]
pub enum LabError {
    /// A scenario of the catalogue cannot be used.
    Scenario(ScenarioError),
    /// A controller is missing.
    Controller(UnknownController),
    /// A run failed, with controller and seed.
    Run(Failure),
    /// Something else went wrong in a run.
    Other(String),
    /// A table of published values is wrong.
    Values {
        /// Whose table.
        paper: &'static str,
        /// What is wrong.
        why: String,
    },
    /// There is no such figure.
    NoFigure {
        /// The paper.
        paper: &'static str,
        /// What was asked for.
        asked: String,
        /// What there is.
        known: String,
    },
    /// A figure answers a value that is not in the table of published values.
    NeverPublished {
        /// The paper.
        paper: &'static str,
        /// The id it answers.
        row: String,
    },
}

impl Effort<'_> {
    /// As much as a comparison wants: five seeds from 1 on, every cell, all cores.
    pub fn full() -> Self {
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Effort { seeds: 5, first_seed: 1, quick: false, threads, progress: None }
    }

    /// Two seeds and short runs.
    pub fn quick() -> Self {
        Effort { seeds: 2, quick: true, ..Effort::full() }
    }

    /// The same with a single seed if it is only a look: for runs that cost much and vary little.
    pub fn once_if_quick(&self) -> Self {
        Effort { seeds: if self.quick { 1 } else { self.seeds }, ..*self }
    }

    /// The seeds to run.
    pub fn each_seed(&self) -> impl Iterator<Item = u64> + Clone {
        let first = self.first_seed;
        (0..u64::from(self.seeds)).map(move |i| first.wrapping_add(i))
    }
}

impl fmt::Debug for Effort<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Effort { seeds, first_seed, quick, threads, .. } = self;
        write!(f, "Effort {{ seeds: {seeds} from {first_seed}, quick: {quick}, threads: {threads} }}")
    }
}

/// Runs `one` for every job, the costliest first, and returns the results in the order of the jobs.
/// `cost` is in any unit that is the same for all figures; seconds of a core are a good one.
pub fn run<J, R>(
    jobs: &[J],
    effort: &Effort<'_>,
    cost: impl Fn(&J) -> f64 + Sync,
    one: impl Fn(&J) -> R + Sync,
) -> Vec<R>
where
    J: Sync,
    R: Send,
{
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by(|&a, &b| cost(&jobs[b]).total_cmp(&cost(&jobs[a])));
    if let Some(progress) = effort.progress {
        progress.planned(jobs.iter().map(&cost).sum());
    }
    let results: Vec<Mutex<Option<R>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = one(&jobs[index]);
            *results[index].lock().expect("a result is written once") = Some(result);
            if let Some(progress) = effort.progress {
                progress.done(cost(&jobs[index]));
            }
        }
    };
    // tidy: allow(pure): results stand in a fixed order, whatever the threads do
    std::thread::scope(|scope| {
        for _ in 1..effort.threads.get().min(jobs.len()) {
            scope.spawn(work);
        }
        work();
    });
    let result = |slot: Mutex<Option<R>>| slot.into_inner().expect("a result is written once");
    results.into_iter().map(|slot| result(slot).expect("every job was run")).collect()
}

/// Every job with every seed: the results of a job stand together, in the order of the seeds.
///
/// # Errors
/// The first failure in the order of the jobs.
pub fn run_seeds<J, R>(
    jobs: &[J],
    effort: &Effort<'_>,
    cost: impl Fn(&J) -> f64 + Sync,
    one: impl Fn(&J, u64) -> Result<R, LabError> + Sync,
) -> Result<Vec<Vec<R>>, LabError>
where
    J: Sync,
    R: Send,
{
    let each: Vec<(&J, u64)> =
        jobs.iter().flat_map(|job| effort.each_seed().map(move |seed| (job, seed))).collect();
    let results = run(&each, effort, |(job, _)| cost(job), |(job, seed)| one(job, *seed));
    let mut results = results.into_iter();
    jobs.iter().map(|_| results.by_ref().take(effort.seeds as usize).collect()).collect()
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::Scenario(error) => error.fmt(f),
            LabError::Controller(error) => error.fmt(f),
            LabError::Run(error) => error.fmt(f),
            LabError::Other(error) => f.write_str(error),
            LabError::Values { paper, why } => write!(f, "papers/{paper}.csv: {why}"),
            LabError::NoFigure { paper, asked, known } => {
                write!(f, "paper \"{paper}\" has no figure \"{asked}\" here; it has {known}")
            }
            LabError::NeverPublished { paper, row } => {
                write!(f, "a figure answers \"{row}\", which is not in papers/{paper}.csv")
            }
        }
    }
}

impl std::error::Error for LabError {}

impl From<ScenarioError> for LabError {
    fn from(error: ScenarioError) -> Self {
        LabError::Scenario(error)
    }
}

impl From<UnknownController> for LabError {
    fn from(error: UnknownController) -> Self {
        LabError::Controller(error)
    }
}

impl From<Failure> for LabError {
    fn from(error: Failure) -> Self {
        LabError::Run(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(threads: usize) -> Effort<'static> {
        Effort { threads: NonZeroUsize::new(threads).unwrap(), ..Effort::quick() }
    }

    #[test]
    fn results_stand_in_the_order_of_the_jobs_whatever_the_threads_and_costs() {
        let jobs: Vec<u64> = (0..100).collect();
        for threads in [1, 2, 7, 200] {
            let results = run(&jobs, &with(threads), |job| (job * 37 % 11) as f64, |job| job * 2);
            assert_eq!(results, jobs.iter().map(|job| job * 2).collect::<Vec<_>>());
        }
        assert!(run(&[] as &[u64], &with(3), |_| 1.0, |job| *job).is_empty());
    }

    #[test]
    fn seeds_of_a_job_stand_together_and_a_failure_is_the_first_of_the_jobs() {
        let one = |job: &u64, seed| {
            if *job < 3 {
                Ok(job * 10 + seed)
            } else {
                Err(LabError::Other(job.to_string()))
            }
        };
        let results = run_seeds(&[1, 2], &with(2), |_| 1.0, one).unwrap();
        assert_eq!(results, [[11, 12], [21, 22]]);
        let error = run_seeds(&[1, 4, 3], &with(2), |_| 1.0, one).unwrap_err();
        assert_eq!(error.to_string(), "4");
    }

    #[test]
    fn progress_hears_of_all_the_work() {
        #[derive(Default)]
        struct Sum(Mutex<(f64, f64)>);
        impl Progress for Sum {
            fn planned(&self, cost: f64) {
                self.0.lock().unwrap().0 += cost;
            }
            fn done(&self, cost: f64) {
                self.0.lock().unwrap().1 += cost;
            }
        }
        let sum = Sum::default();
        let effort = Effort { progress: Some(&sum), ..with(2) };
        run(&[1.0, 2.0, 3.5], &effort, |job| *job, |_| ());
        assert_eq!(*sum.0.lock().unwrap(), (6.5, 6.5));
    }
}
