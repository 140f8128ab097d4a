//! `skyhaul link`: runs a command behind an emulated link.

use crate::failure::Failure;
use std::process::ExitCode;

/// Run a command behind an emulated satellite link.
#[derive(clap::Args)]
pub struct Args {
    /// Scenario: an id of the catalogue or a path to a TOML file.
    scenario: String,
}

/// Carries the command out.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    skyhaul_live::netns::ensure_privileged()?;
    Err(Failure::request(format!("link {}: the emulator is not part of this build yet", args.scenario)))
}
