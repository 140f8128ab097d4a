//! One run of a scenario: its flows with their controllers on its link.

use std::fmt;

use skyhaul_cc::registry::{self, Contender, UnknownController};
use skyhaul_cc::units::{Ber, Duration, Rate, Share, Time};
use skyhaul_cc::{PathHistory, Setup};

use crate::scenario::{Dir, Scenario, Threshold};
use crate::world::{Failure, Flow, World};

/// A run that could not begin or could not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlayError {
    /// A contender is none, or its controller cannot be built.
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
/// `controllers` has a contender ([`Contender`]: `cubic`, `skyhaul`, `skyhaul/warm`) for each flow and begins
/// again if it is shorter. If it is empty, each flow has the one the scenario gives it, or the first of those
/// the scenario compares. The sweep is left aside: [`Scenario::cells`] makes scenarios without one.
///
/// # Errors
/// When a contender is unknown, missing or misbehaves, or a flow stops making progress.
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
    let contenders = contenders(scenario, controllers)?;
    let mut world = World::on(scenario, scenario.data(), seed);
    for (plan, contender) in scenario.flow_plans().into_iter().zip(&contenders) {
        let setup = setup(scenario, contender);
        let controller = registry::build(&contender.controller, &setup).map_err(PlayError::Controller)?;
        world.add(Flow {
            start: Time::ZERO + plan.start,
            bytes: plan.bytes,
            tcp: scenario.tcp.sender(),
            acks: scenario.tcp.receiver(),
            ..Flow::new(controller)
        });
    }
    Ok(world)
}

/// Who sends each flow of [`play`], in the order of the flows.
///
/// # Errors
/// When a contender is unknown or missing.
pub fn contenders(scenario: &Scenario, controllers: &[&str]) -> Result<Vec<Contender>, PlayError> {
    let plans = scenario.flow_plans().into_iter().enumerate();
    let contender = |(index, plan): (usize, crate::scenario::FlowPlan)| {
        let name = match controllers {
            [] => plan.controller.as_deref().or(scenario.controllers.first().map(String::as_str)),
            _ => controllers.get(index % controllers.len()).copied(),
        };
        name.ok_or(PlayError::NoController { flow: index + 1 })?.parse().map_err(PlayError::Controller)
    };
    plans.map(contender).collect()
}

/// What a contender in a scenario is told: segment size, and where the scenario says so first window and
/// threshold, reference round trip and error rate; the payload rate of the link or what an earlier connection
/// would have left, if its start says so.
pub fn setup(scenario: &Scenario, contender: &Contender) -> Setup {
    let tcp = &scenario.tcp;
    let plain = Setup::new(tcp.mss);
    let ber = scenario.direction(scenario.data()).ber;
    let setup = Setup {
        initial_window: tcp.initial_window.unwrap_or(plain.initial_window),
        initial_ssthresh: tcp.initial_ssthresh.map(|threshold| match threshold {
            Threshold::Bytes(bytes) => bytes,
            Threshold::Bdp(times) => scenario.payload_rate().scale(times).bdp(scenario.rtt()),
        }),
        reference_rtt: tcp.reference_rtt,
        ber: (ber > Ber::ZERO).then_some(ber),
        ..plain
    };
    let rate = scenario.payload_rate();
    contender.setup(setup, rate, history(scenario, scenario.data(), rate))
}

/// What an earlier connection would have left about one direction of a scenario's path, whose link has this
/// rate as the host counts packets: nothing but the truth, and full confidence in it.
pub fn history(scenario: &Scenario, dir: Dir, rate: Rate) -> PathHistory {
    let direction = scenario.direction(dir);
    let full = scenario.tcp.packet();
    let bursts = direction.burst.map_or(0.0, |burst| burst.average().value());
    let errors = direction.ber_unit.packet_error(direction.ber, full).value();
    let kept = (1.0 - direction.loss.value()) * (1.0 - bursts) * (1.0 - errors);
    let loss = Share::new(1.0 - kept).unwrap_or_default();
    PathHistory { loss, ..PathHistory::of(rate, scenario.rtt()) }
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
