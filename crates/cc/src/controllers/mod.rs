//! One file per controller; each opens with its citation, its equations, its constants and the
//! places where it departs from its source.

pub mod bbr;
pub mod bbr3;
pub mod boost;
pub mod cubic;
pub mod enhanced;
pub mod hswa;
pub mod hybic;
pub mod hybla;
pub mod newreno;
pub mod rate;
pub mod scps;
pub mod skyhaul;
pub mod veno;
pub mod westwood;

pub use bbr::Bbr;
pub use bbr3::Bbr3;
pub use boost::Boost;
pub use cubic::Cubic;
pub use enhanced::Enhanced;
pub use hswa::Hswa;
pub use hybic::Hybic;
pub use hybla::Hybla;
pub use newreno::NewReno;
pub use rate::GivenRate;
pub use scps::Scps;
pub use skyhaul::Skyhaul;
pub use veno::Veno;
pub use westwood::Westwood;
