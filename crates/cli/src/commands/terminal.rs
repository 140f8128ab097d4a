//! `skyhaul terminal`: one end of the accelerator.

use std::process::ExitCode;

use skyhaul_live::config::Role;

use super::end;
use crate::failure::Failure;

/// Run the terminal's end: near the clients, it opens the channel.
///
/// It runs until it is told to stop (Ctrl-C or SIGTERM); then open connections are reset and firewall rules and
/// routes are removed. A line on standard error says when it is ready and names its public key.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  skyhaul terminal --config pair/terminal.toml")]
pub struct Args {
    #[command(flatten)]
    options: end::Options,
}

/// Carries the command out.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    end::run(Role::Terminal, args.options)
}
