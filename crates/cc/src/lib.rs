//! Congestion controllers as pure state machines.
//!
//! A controller hears [`Sent`], [`Ack`] and [`Loss`] and answers with a window and a pacing rate; a host
//! whose far end reports receive times adds a [`Report`] per packet. It
//! owns no clock, no socket and no random numbers, so one file serves the simulator, the QUIC channel
//! and, as integer C, the kernel's TCP.

pub mod controller;
pub mod controllers;
pub mod event;
pub mod parts;
pub mod registry;
pub mod tape;
#[cfg(test)]
mod testing;
pub mod units;
pub mod window;

pub use controller::{Controller, Estimates, PathHistory, Policy, Setup, Snapshot};
pub use event::{Ack, Judgement, Loss, Report, Rtt, Sent, Signal, Trail, Train};
pub use registry::{Contender, StartMode};
pub use units::{Ber, Bytes, Duration, ParseUnitError, Rate, Share, Time};
pub use window::Window;
