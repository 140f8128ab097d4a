//! What becomes of a transfer when something breaks in the middle of it: real programs, a real pair, one fault.

mod list;
mod trial;

pub use list::{matrix, Fault, Kind};
pub use trial::{Place, Verdict};

use serde::Serialize;

/// The result of one fault. Field names, units and meaning are a contract for scripts; times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the fault.
    pub fault: String,
    /// What happens, in words.
    pub what: String,
    /// What was under way.
    pub workload: String,
    /// How long the fault lasted; none for one that stays.
    pub lasts_seconds: Option<f64>,
    /// Goodput before the fault, bit/s.
    pub before_bit_per_s: f64,
    /// From the fault to the first word about it in the log of an end that lives.
    pub detected_seconds: Option<f64>,
    /// That word.
    pub detected_by: Option<String>,
    /// From the fault to the start of the first new connection that brought an object within four round trips; none
    /// while there is no way at all from client to server.
    pub new_connection_seconds: Option<f64>,
    /// Until the client was told that its transfer has failed, from the fault.
    pub told_seconds: Option<f64>,
    /// From the end of the fault until bytes arrived at 90 % of the goodput before. From its start, if it stays, until
    /// they arrived at a tenth: what carries them then has a rate of its own.
    pub recovered_seconds: Option<f64>,
    /// Until the last byte, from the fault.
    pub complete_seconds: Option<f64>,
    /// Bytes that the programs at the ends took for delivered and that were not, or were others.
    pub bytes_lost: u64,
    /// What became of the transfer.
    pub verdict: Verdict,
    /// What of the goals was missed, in words; nothing if the row passes.
    pub missed: Vec<String>,
}

impl Row {
    /// Whether all goals were met.
    pub fn passed(&self) -> bool {
        self.missed.is_empty()
    }
}
