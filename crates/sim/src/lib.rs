//! Virtual clock, link elements, scenarios, TCP and the channel over simulated links.
//!
//! One link model ([`link::Link`]) and one scenario format ([`scenario::Scenario`]) serve both the
//! simulator and the real-time emulator. Nothing here reads a clock or an unseeded generator.

mod arrivals;
pub mod carrier;
pub mod clock;
pub mod fec;
pub mod link;
pub mod play;
pub mod repairs;
pub mod rng;
pub mod scenario;
pub mod stats;
pub mod tcp;
pub mod trace;
pub mod tunnel;
pub mod world;

pub use play::play;
