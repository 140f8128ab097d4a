//! One run of a scenario: its flows with their controllers on its link.

use std::fmt;

use skyhaul_cc::registry::{self, UnknownController};
use skyhaul_cc::units::{Ber, Duration, Time};
use skyhaul_cc::Setup;

use crate::scenario::{Scenario, Threshold};
use crate::world::{Failure, Flow, World};

/// A run that could not begin or could not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlayError {
    /// A controller cannot be built.
    Controller(UnknownController),
    /// No controller was named, neither by the caller nor by the scenario.
    NoController {
        /// The flow that lacks one, counted from 1.
        flow: usize,
    },
    /// The run failed.
    Run(Failure),
}

/// Runs a scenario until every flow has delivered everything or its time is over ([`end`]).
///
/// `controllers` has a name for each flow and begins again if it is shorter. If it is empty, each flow has
/// the controller the scenario gives it, or the first of those the scenario compares. The sweep is left
/// aside: [`Scenario::cells`] makes scenarios without one.
///
/// # Errors
/// When a controller is unknown, missing or misbehaves, or a flow stops making progress.
///
/// ```
/// use skyhaul_sim::{play, scenario::Scenario};
///
/// let scenario = Scenario::find("lan.gigabit-20").unwrap();
/// let world = play(&Scenario { duration: Some(std::time::Duration::from_secs(1)), ..scenario }, &["cubic"], 1).unwrap();
/// assert!(world.outcomes()[0].goodput(world.now()).as_mbit() > 500.0);
/// ```
pub fn play(scenario: &Scenario, controllers: &[&str], seed: u64) -> Result<World, PlayError> {
    let mut world = world(scenario, controllers, seed)?;
    world.run(end(scenario)).map_err(PlayError::Run)?;
    Ok(world)
}

/// The world of [`play`] before it begins, for callers that watch it or stop it themselves.
///
/// # Errors
/// When a controller is unknown or missing.
pub fn world(scenario: &Scenario, controllers: &[&str], seed: u64) -> Result<World, PlayError> {
    let setup = setup(scenario);
    let mut world = World::on(scenario, scenario.data(), seed);
    for (index, plan) in scenario.flow_plans().into_iter().enumerate() {
        let name = match controllers {
            [] => plan.controller.as_deref().or(scenario.controllers.first().map(String::as_str)),
            _ => controllers.get(index % controllers.len()).copied(),
        };
        let name = name.ok_or(PlayError::NoController { flow: index + 1 })?;
        world.add(Flow {
            start: Time::ZERO + plan.start,
            bytes: plan.bytes,
            tcp: scenario.tcp.sender(),
            acks: scenario.tcp.receiver(),
            ..Flow::new(registry::build(name, &setup).map_err(PlayError::Controller)?)
        });
    }
    Ok(world)
}

/// What the controllers of a scenario are told: segment size, payload rate of the link, and where the
/// scenario says so first window and threshold, reference round trip and error rate.
pub fn setup(scenario: &Scenario) -> Setup {
    let tcp = &scenario.tcp;
    let plain = Setup::new(tcp.mss);
    let ber = scenario.direction(scenario.data()).ber;
    Setup {
        initial_window: tcp.initial_window.unwrap_or(plain.initial_window),
        initial_ssthresh: tcp.initial_ssthresh.map(|threshold| match threshold {
            Threshold::Bytes(bytes) => bytes,
            Threshold::Bdp(times) => scenario.payload_rate().scale(times).bdp(scenario.rtt()),
        }),
        link_rate: Some(scenario.payload_rate()),
        reference_rtt: tcp.reference_rtt,
        ber: (ber > Ber::ZERO).then_some(ber),
        ..plain
    }
}

/// When a run is stopped: after the scenario's duration; without one after 30 s if a flow has no end, and
/// else when 100 000 s have not sufficed.
pub fn end(scenario: &Scenario) -> Time {
    let endless = scenario.flow_plans().iter().any(|flow| flow.bytes.is_none());
    Time::ZERO + scenario.duration.unwrap_or(if endless { STREAM } else { TRANSFER })
}

const STREAM: Duration = Duration::from_secs(30);
/// More than the slowest published transfer would take, of 50 MB at 40 kbit/s.
const TRANSFER: Duration = Duration::from_secs(100_000);

impl fmt::Display for PlayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlayError::Controller(error) => error.fmt(f),
            PlayError::NoController { flow } => {
                write!(f, "flow {flow} has no controller; expected one of ")?;
                f.write_str(&registry::names().collect::<Vec<_>>().join(", "))
            }
            PlayError::Run(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for PlayError {}
