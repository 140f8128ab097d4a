//! One file per controller; each opens with its citation, its equations, its constants and the
//! places where it departs from its source.

pub mod bbr;
pub mod cubic;
pub mod hybla;
pub mod newreno;
pub mod rate;
pub mod veno;
pub mod westwood;

pub use bbr::Bbr;
pub use cubic::Cubic;
pub use hybla::Hybla;
pub use newreno::NewReno;
pub use rate::GivenRate;
pub use veno::Veno;
pub use westwood::Westwood;
