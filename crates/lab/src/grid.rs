//! Transfers of a scenario's cells, each with several controllers and seeds.

use skyhaul_sim::play::{play, PlayError};
use skyhaul_sim::scenario::Cell;

use crate::experiment::{run_seeds, Effort, LabError};
use crate::figure::Spread;

/// What one transfer gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Delivered bytes over the time from the start to the last of them, bit/s.
    pub goodput: f64,
    /// From the start to the last byte, or to the end of the run, in seconds.
    pub seconds: f64,
    /// Mean window in segments.
    pub window: f64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Segments that were sent again, of all sent.
    pub again: f64,
    /// Packets the queue had no room for.
    pub overflows: u64,
}

/// Samples of every seed, by cell and controller.
#[derive(Clone, Debug)]
pub struct Grid<'a> {
    /// The cells.
    pub cells: &'a [Cell],
    /// Names of the controllers.
    pub controllers: &'a [&'a str],
    samples: Vec<Vec<Sample>>,
}

impl<'a> Grid<'a> {
    /// Runs one flow per cell, controller and seed. `cost` estimates the time of a run, in seconds of a core.
    ///
    /// # Errors
    /// When a controller is unknown or a run fails.
    pub fn run(
        cells: &'a [Cell],
        controllers: &'a [&'a str],
        effort: &Effort<'_>,
        cost: impl Fn(&Cell) -> f64 + Sync,
    ) -> Result<Grid<'a>, LabError> {
        let jobs: Vec<(&Cell, &str)> =
            cells.iter().flat_map(|cell| controllers.iter().map(move |name| (cell, *name))).collect();
        let one = |(cell, name): &(&Cell, &str), seed| sample(cell, name, seed);
        let samples = run_seeds(&jobs, effort, |(cell, _)| cost(cell), one)?;
        Ok(Grid { cells, controllers, samples })
    }

    /// The samples of a cell and a controller, in the order of the seeds.
    ///
    /// # Panics
    /// When the grid has no such cell or controller: a mistake of the caller.
    pub fn samples(&self, cell: usize, controller: &str) -> &[Sample] {
        let column = self.controllers.iter().position(|name| *name == controller);
        let column = column.expect("the caller names controllers of the grid");
        &self.samples[cell * self.controllers.len() + column]
    }

    /// A measure of a cell and a controller.
    pub fn values(&self, cell: usize, controller: &str, of: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.samples(cell, controller).iter().map(of).collect()
    }

    /// Goodput over the seeds, bit/s.
    pub fn goodput(&self, cell: usize, controller: &str) -> Spread {
        Spread::of(&self.values(cell, controller, |sample| sample.goodput))
    }

    /// Goodput of one controller over that of another, seed by seed.
    pub fn ratio(&self, cell: usize, above: &str, below: &str) -> Spread {
        let of = |name| self.values(cell, name, |sample| sample.goodput);
        Spread::of_ratios(&of(above), &of(below))
    }
}

/// One flow in one cell.
pub(crate) fn sample(cell: &Cell, controller: &str, seed: u64) -> Result<Sample, LabError> {
    let world = play(&cell.scenario, &[controller], seed)?;
    let outcome = world.outcomes().pop().ok_or_else(|| LabError::Other("a run without a flow".to_owned()))?;
    let counters = &outcome.counters;
    Ok(Sample {
        goodput: outcome.goodput(world.now()).as_f64(),
        seconds: outcome.finished.unwrap_or(world.now()).since(outcome.start).as_secs_f64(),
        window: counters.mean_window().unwrap_or(0.0),
        timeouts: counters.timeouts,
        again: counters.again as f64 / counters.sent.max(1) as f64,
        overflows: world.forward().counters().queue_full.packets,
    })
}

impl From<PlayError> for LabError {
    fn from(error: PlayError) -> Self {
        match error {
            PlayError::Run(failure) => LabError::Run(failure),
            PlayError::Controller(unknown) => LabError::Controller(unknown),
            PlayError::NoController { .. } => LabError::Other(error.to_string()),
        }
    }
}
