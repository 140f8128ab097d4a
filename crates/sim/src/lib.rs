//! Virtual clock, link elements, scenarios and the channel over simulated links.
//!
//! Nothing here reads a clock or an unseeded generator.

pub mod clock;
pub mod rng;
pub mod stats;
