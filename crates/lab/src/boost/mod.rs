//! Paper 000: BoostTCP. Figures 5 to 9 are single transfers over loss and delay, figures 10 to 15 flows that
//! share a link.

mod modules;
mod predictor;
mod sharing;
mod throughput;

use crate::{Maker, Paper};

/// The paper.
pub const PAPER: Paper = Paper {
    name: "boost",
    prefix: "p0",
    title: "A TCP Acceleration Algorithm for Aerospace-Ground Service Networks",
    published_in: "Sensors 2022, 22, 9187",
    values: include_str!("../../papers/boost.csv"),
    makers: &[
        Maker { figures: &["5", "6", "7", "8"], make: throughput::against_loss },
        Maker { figures: &["9"], make: throughput::against_delay },
        Maker { figures: &["10", "11", "12"], make: sharing::fairness },
        Maker { figures: &["13", "14", "15"], make: sharing::preemption },
        Maker { figures: &["modules"], make: modules::modules },
        Maker { figures: &["field"], make: throughput::field },
    ],
};
