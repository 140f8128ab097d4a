//! `skyhaul gateway`: one end of the accelerator.

use std::process::ExitCode;

use skyhaul_live::config::Role;

use super::end;
use crate::failure::Failure;

/// Run the gateway's end: near the servers, it waits for its terminals.
///
/// It runs until it is told to stop (Ctrl-C or SIGTERM); then open connections are reset and firewall rules and
/// routes are removed. A line on standard error says when it is ready and names its public key.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  skyhaul gateway --config pair/gateway.toml")]
pub struct Args {
    #[command(flatten)]
    options: end::Options,
}

/// Carries the command out.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    end::run(Role::Gateway, args.options)
}
