//! Controllers by the name users type.

use crate::controller::{Controller, Setup};
use crate::controllers::boost::{Boost, Variant};
use crate::controllers::enhanced::{Enhanced, Reading};
use crate::controllers::skyhaul::{Policy, Start};
use crate::controllers::{
    Bbr, Bbr3, Cubic, GivenRate, Hswa, Hybic, Hybla, NewReno, Scps, Skyhaul, Veno, Westwood,
};
use std::fmt;

type Constructor = fn(&Setup) -> Option<Box<dyn Controller>>;

/// Every controller, in the order lists show them. A constructor answers nothing when the set-up
/// lacks the link rate it needs.
const CONTROLLERS: [(&str, Constructor); 16] = [
    ("newreno", |setup| Some(Box::new(NewReno::new(setup)))),
    ("cubic", |setup| Some(Box::new(Cubic::new(setup)))),
    ("hybla", |setup| Some(Box::new(Hybla::new(setup)))),
    ("veno", |setup| Some(Box::new(Veno::new(setup)))),
    ("westwood", |setup| Some(Box::new(Westwood::new(setup)))),
    ("scps", |setup| Some(Box::new(Scps::new(setup)))),
    ("hswa", |setup| Some(Box::new(Hswa::new(setup)))),
    ("enhanced", |setup| Some(Box::new(Enhanced::new(setup, Reading::Resolved)))),
    ("enhanced-literal", |setup| Some(Box::new(Enhanced::new(setup, Reading::Literal)))),
    ("hybic", |setup| Some(Box::new(Hybic::new(setup)))),
    ("bbr", |setup| Some(Box::new(Bbr::new(setup)))),
    ("bbr3", |setup| Some(Box::new(Bbr3::new(setup)))),
    ("boost", |setup| Some(Box::new(Boost::new(setup, Variant::Discriminating)))),
    ("boost-literal", |setup| Some(Box::new(Boost::new(setup, Variant::Literal)))),
    ("skyhaul", |setup| Some(Box::new(Skyhaul::new(setup, Start::Cold, Policy::Share)))),
    ("rate", |setup| {
        Some(Box::new(GivenRate::new(setup, setup.link_rate.filter(|rate| rate.as_bit() > 0)?)))
    }),
];

/// No such controller, or not with this set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownController {
    /// No controller has this name.
    Name(String),
    /// The controller of this name wants [`Setup::link_rate`] above zero.
    WantsLinkRate(&'static str),
}

impl fmt::Display for UnknownController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnknownController::Name(name) => {
                write!(f, "no controller is called \"{name}\"; known are ")?;
                for (i, known) in names().enumerate() {
                    write!(f, "{}{known}", if i == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            UnknownController::WantsLinkRate(name) => {
                write!(
                    f,
                    "controller \"{name}\" needs the rate of the link in this direction, and none is given"
                )
            }
        }
    }
}

impl std::error::Error for UnknownController {}

/// The names users may type.
pub fn names() -> impl Iterator<Item = &'static str> {
    CONTROLLERS.iter().map(|(name, _)| *name)
}

/// The controller of that name.
///
/// # Errors
/// When there is none, or when it needs the link's rate and `setup` has none.
pub fn build(name: &str, setup: &Setup) -> Result<Box<dyn Controller>, UnknownController> {
    let (name, constructor) = CONTROLLERS
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| UnknownController::Name(name.to_owned()))?;
    constructor(setup).ok_or(UnknownController::WantsLinkRate(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Bytes, Rate};

    #[test]
    fn every_name_builds_a_controller_that_calls_itself_so() {
        let setup = Setup { link_rate: Some(Rate::mbit(150)), ..Setup::new(Bytes(1500)) };
        for name in names() {
            assert_eq!(build(name, &setup).unwrap().name(), name);
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let message = build("vegas", &Setup::new(Bytes(1500))).unwrap_err().to_string();
        for name in names() {
            assert!(message.contains("\"vegas\"") && message.contains(name), "{message}");
        }
    }

    #[test]
    fn the_given_rate_must_be_given() {
        for rate in [None, Some(Rate::ZERO)] {
            let error = build("rate", &Setup { link_rate: rate, ..Setup::new(Bytes(1500)) }).unwrap_err();
            assert_eq!(error, UnknownController::WantsLinkRate("rate"));
            assert!(error.to_string().contains("rate of the link"), "{error}");
        }
    }
}
