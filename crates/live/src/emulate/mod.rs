//! The emulated satellite link in real time: the link model of the simulator between two network namespaces.
//!
//! Each end is a TUN device; one thread per direction moves the packets. The model says at once what becomes of a
//! packet, so all the emulator does is wait, and it measures how well it waits: see [`Report::invalid`].

mod direction;
mod disturb;
mod hosts;
mod lateness;
mod report;
mod store;
mod tun;

pub(crate) use direction::hurry;
pub use disturb::Disturbance;
pub use hosts::{Hosts, CLIENT, GATEWAY, SERVER, TERMINAL};
pub use lateness::Lateness;
pub use report::{DirectionReport, Report};
pub use tun::{DEVICE, MTU};

use crate::netns::{Namespace, NetnsError};
use direction::Direction;
use lateness::ProcessorTime;
use skyhaul_sim::scenario::{Dir, Scenario};
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};
use tun::End;

/// A running link between two namespaces. Dropping it takes the devices down.
pub struct Emulator {
    forward: Direction,
    back: Direction,
    processors: Mutex<ProcessorTime>,
}

impl Emulator {
    /// Joins `a` (the terminal's side) and `b` (the gateway's side) by the scenario's link: a device named
    /// [`DEVICE`] in each, up and without an address. Time 0 of the scenario is now.
    ///
    /// Fails when the devices cannot be made.
    pub fn start(
        a: &Namespace,
        b: &Namespace,
        scenario: &Scenario,
        seed: u64,
    ) -> Result<Emulator, EmulateError> {
        let (near, far) = (End::open(a)?, End::open(b)?);
        let start = |name, dir, entry: &End, exit: &End| {
            Direction::start(name, entry.clone(), exit.clone(), scenario.link(dir, seed))
                .map_err(EmulateError::Thread)
        };
        Ok(Emulator {
            forward: start("link-forward", Dir::Forward, &near, &far)?,
            back: start("link-back", Dir::Back, &far, &near)?,
            processors: Mutex::new(ProcessorTime::now()),
        })
    }

    /// Makes now the scenario's time 0: the changes of the scenario start over, the queue is empty, chance starts
    /// from the seed again and all counters are zero. Packets under way arrive as planned and count nowhere.
    pub fn restart_clock(&self) {
        self.forward.restart();
        self.back.restart();
        *self.processors.lock().unwrap_or_else(PoisonError::into_inner) = ProcessorTime::now();
    }

    /// From now on the packets of a direction suffer this beside what the scenario says, until told otherwise. Those
    /// under way arrive as planned.
    pub fn disturb(&self, dir: Dir, what: Disturbance) {
        match dir {
            Dir::Forward => self.forward.disturb(what),
            Dir::Back => self.back.disturb(what),
        }
    }

    /// What happened since the start or the last restart of the clock.
    pub fn report(&self) -> Report {
        let since = *self.processors.lock().unwrap_or_else(PoisonError::into_inner);
        Report {
            forward: self.forward.report().unwrap_or_else(DirectionReport::dead),
            back: self.back.report().unwrap_or_else(DirectionReport::dead),
            stolen: ProcessorTime::now().stolen_since(since),
        }
    }

    /// Takes the link away and tells what happened.
    pub fn stop(self) -> Report {
        self.report()
    }
}

/// Why a link cannot be emulated.
#[derive(Debug)]
pub enum EmulateError {
    /// A namespace or an address could not be set up.
    Namespace(NetnsError),
    /// The TUN device could not be made.
    Device {
        /// Name of the namespace.
        namespace: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A thread could not be started.
    Thread(io::Error),
}

impl fmt::Display for EmulateError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmulateError::Namespace(error) => error.fmt(out),
            EmulateError::Device { namespace, source } => write!(
                out,
                "in namespace {namespace}: no TUN device \"{DEVICE}\": {source}; it needs root rights, \
                 /dev/net/tun and a name that is not taken"
            ),
            EmulateError::Thread(source) => write!(out, "no thread for the emulator: {source}"),
        }
    }
}

impl std::error::Error for EmulateError {}

impl From<NetnsError> for EmulateError {
    fn from(error: NetnsError) -> EmulateError {
        EmulateError::Namespace(error)
    }
}
