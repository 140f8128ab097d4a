//! Terminal and gateway as real processes on their hosts.

use std::path::Path;

use skyhaul_sim::scenario::Scenario;

use super::measure::Usage;
use super::LabError;
use crate::emulate::Hosts;

/// A running terminal and a running gateway with the channel between them; dropping it ends both.
#[derive(Debug)]
pub struct Pair {}

/// What both ends have used.
#[derive(Clone, Copy, Debug)]
pub struct PairUsage {
    /// `skyhaul terminal`.
    pub terminal: Usage,
    /// `skyhaul gateway`.
    pub gateway: Usage,
}

impl PairUsage {
    /// What was used since `earlier`.
    pub fn since(self, earlier: PairUsage) -> PairUsage {
        PairUsage {
            terminal: self.terminal.since(earlier.terminal),
            gateway: self.gateway.since(earlier.gateway),
        }
    }
}

impl Pair {
    /// Starts both ends.
    ///
    /// # Errors
    /// When an end does not start.
    pub fn start(
        _hosts: &Hosts,
        _scenario: &Scenario,
        controller: &str,
        _dir: &Path,
    ) -> Result<Pair, LabError> {
        let what = format!("cannot be started by the lab yet (controller {controller})");
        Err(LabError::Pair { end: "skyhaul terminal", what, said: String::new() })
    }

    /// What both ends have used so far.
    pub fn usage(&self) -> PairUsage {
        PairUsage { terminal: Usage::default(), gateway: Usage::default() }
    }

    /// Ends both. Says so if one had ended by itself.
    pub fn end(self) -> Option<String> {
        None
    }
}
