//! Controllers by the name users type, and contenders: a controller and what it is told of the path.

use crate::controller::{Controller, PathHistory, Setup};
use crate::controllers::boost::{Boost, Variant};
use crate::controllers::enhanced::{Enhanced, Reading};
use crate::controllers::skyhaul::Start;
use crate::controllers::{
    Bbr, Bbr3, Cubic, GivenRate, Hswa, Hybic, Hybla, NewReno, Scps, Skyhaul, Veno, Westwood,
};
use crate::units::Rate;
use std::fmt;
use std::str::FromStr;

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
    ("boost", |setup| Some(Box::new(boost(setup)))),
    ("boost-literal", |setup| Some(Box::new(Boost::new(setup, Variant::Literal)))),
    ("skyhaul", |setup| Some(Box::new(Skyhaul::new(setup, Start::of(setup), setup.policy)))),
    (RATE, |setup| Some(Box::new(GivenRate::new(setup, setup.link_rate.filter(|rate| rate.as_bit() > 0)?)))),
];

fn boost(setup: &Setup) -> Boost {
    let boost = Boost::new(setup, Variant::Discriminating);
    match &setup.history {
        Some(history) => boost.remembering(history),
        None => boost,
    }
}

/// What a controller is told of the path before the first packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StartMode {
    /// Nothing.
    #[default]
    Cold,
    /// What an earlier connection left ([`Setup::history`]).
    Warm,
    /// The rate of the link ([`Setup::link_rate`]).
    Known,
}

impl StartMode {
    /// All of them.
    pub const ALL: [StartMode; 3] = [StartMode::Cold, StartMode::Warm, StartMode::Known];

    /// The name users type.
    pub const fn name(self) -> &'static str {
        match self {
            StartMode::Cold => "cold",
            StartMode::Warm => "warm",
            StartMode::Known => "known",
        }
    }
}

/// A controller and how it starts, written `skyhaul`, `skyhaul/warm` or `skyhaul/known`; the plain name and
/// `/cold` are the same. Reading one checks that the controller exists and makes something of the start.
///
/// ```
/// use skyhaul_cc::registry::{Contender, StartMode};
///
/// let contender: Contender = "skyhaul/warm".parse().unwrap();
/// assert_eq!((contender.controller.as_str(), contender.start), ("skyhaul", StartMode::Warm));
/// assert!("cubic/warm".parse::<Contender>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Contender {
    /// Name of the controller, as in [`names`].
    pub controller: String,
    /// What it is told.
    pub start: StartMode,
}

impl Contender {
    /// What it is to be told before the first packet, on a path in whose direction the link has this `rate` and of
    /// which an earlier connection would have left this `history`; `setup` has the rest. The controller `rate`
    /// gets the rate whatever the start, since it cannot be without.
    pub fn setup(&self, setup: Setup, rate: Rate, history: PathHistory) -> Setup {
        let known = self.start == StartMode::Known || self.controller == RATE;
        Setup {
            link_rate: known.then_some(rate),
            history: (self.start == StartMode::Warm).then_some(history),
            ..setup
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.start {
            StartMode::Cold => f.write_str(&self.controller),
            start => write!(f, "{}/{}", self.controller, start.name()),
        }
    }
}

impl FromStr for Contender {
    type Err = UnknownController;

    fn from_str(text: &str) -> Result<Self, UnknownController> {
        let (name, start) = text.split_once('/').unwrap_or((text, StartMode::Cold.name()));
        let controller = names().find(|known| *known == name);
        let controller = controller.ok_or_else(|| UnknownController::Name(name.to_owned()))?;
        let start = StartMode::ALL
            .into_iter()
            .find(|known| known.name() == start)
            .ok_or_else(|| UnknownController::Start(text.to_owned()))?;
        if !starts(controller).contains(&start) {
            return Err(UnknownController::StartsAlike(controller, start));
        }
        Ok(Contender { controller: controller.to_owned(), start })
    }
}

/// Packets of the first flight through a tunnel: ten (RFC 6928, RFC 9002 §7.2), or for a controller that measures the
/// path with them as many as make a good train. 32 packets are 38 ms of a link of 10 Mbit/s.
pub fn first_flight(name: &str) -> u64 {
    match name {
        "skyhaul" => 32,
        _ => 10,
    }
}

/// The starts that a controller tells apart.
pub fn starts(name: &str) -> &'static [StartMode] {
    match name {
        "skyhaul" => &StartMode::ALL,
        "boost" => &[StartMode::Cold, StartMode::Warm],
        _ => &[StartMode::Cold],
    }
}

/// The controller that sends at a given rate, whatever happens.
const RATE: &str = "rate";

/// No such controller, or not with this set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownController {
    /// No controller has this name.
    Name(String),
    /// The controller of this name wants [`Setup::link_rate`] above zero.
    WantsLinkRate(&'static str),
    /// What follows the "/" of this is no way to start.
    Start(String),
    /// The controller of this name makes nothing of such a start.
    StartsAlike(&'static str, StartMode),
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
            UnknownController::Start(text) => {
                write!(f, "\"{text}\" names no start; expected \"/cold\", \"/warm\", \"/known\" or nothing after the name")
            }
            UnknownController::StartsAlike(name, start) => {
                let own: Vec<&str> = names().filter(|name| starts(name).contains(start)).collect();
                let (start, own) = (start.name(), own.join(" and "));
                write!(f, "\"{name}/{start}\": {name} makes nothing of a {start} start; expected {name}, or {own} with /{start}")
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
    fn contenders_are_read_as_they_are_written() {
        for name in names() {
            for start in starts(name) {
                let contender = Contender { controller: name.to_owned(), start: *start };
                assert_eq!(contender.to_string().parse(), Ok(contender));
            }
        }
        assert_eq!("skyhaul/cold".parse::<Contender>().unwrap().to_string(), "skyhaul");
        for (text, message) in [
            ("vegas/warm", "no controller is called \"vegas\""),
            ("skyhaul/hot", "\"skyhaul/hot\" names no start; expected \"/cold\", \"/warm\", \"/known\""),
            ("skyhaul/warm/known", "\"skyhaul/warm/known\" names no start"),
            (
                "cubic/warm",
                "cubic makes nothing of a warm start; expected cubic, or boost and skyhaul with /warm",
            ),
            ("boost/known", "boost makes nothing of a known start; expected boost, or skyhaul with /known"),
        ] {
            let error = text.parse::<Contender>().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn a_contender_is_told_what_its_start_says_and_no_more() {
        let (rate, plain) = (Rate::mbit(150), Setup::new(Bytes(1500)));
        let history = PathHistory::of(Rate::mbit(100), plain.initial_rtt);
        for (text, link_rate, told) in [
            ("skyhaul", None, None),
            ("skyhaul/warm", None, Some(history)),
            ("skyhaul/known", Some(rate), None),
            ("rate", Some(rate), None),
            ("cubic", None, None),
        ] {
            let contender: Contender = text.parse().unwrap();
            let setup = contender.setup(Setup { link_rate: Some(rate), ..plain }, rate, history);
            assert_eq!((setup.link_rate, setup.history), (link_rate, told), "{text}");
            assert_eq!(build(&contender.controller, &setup).unwrap().name(), contender.controller);
        }
    }

    #[test]
    fn a_given_rate_goes_before_a_remembered_one_and_that_before_nothing() {
        let plain = Setup::new(Bytes(1500));
        let history = Some(PathHistory::of(Rate::mbit(100), plain.initial_rtt));
        let pace = |setup: Setup| build("skyhaul", &setup).unwrap().pacing_rate();
        assert_eq!(pace(plain), None);
        assert_eq!(pace(Setup { history, ..plain }), Some(Rate::mbit(85)));
        assert_eq!(pace(Setup { history, link_rate: Some(Rate::mbit(150)), ..plain }), Some(Rate::mbit(150)));
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
