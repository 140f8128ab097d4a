//! What `skyhaul terminal` and `skyhaul gateway` share: running one end of the accelerator.

use std::path::PathBuf;
use std::process::ExitCode;

use skyhaul_live::config::{Config, Role};
use skyhaul_live::end::End;
use tracing::info;

use crate::failure::Failure;
use crate::signals::until_told_to_stop;

/// Options of both ends.
#[derive(clap::Args)]
pub struct Options {
    /// Config file; `skyhaul pair` writes one for each end.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only check the config and the key, open nothing.
    #[arg(long)]
    check: bool,
}

/// Runs the end, or checks its config.
pub fn run(role: Role, options: Options) -> Result<ExitCode, Failure> {
    let config = Config::load(&options.config, role).map_err(Failure::request)?;
    let end = End::new(config).map_err(Failure::request)?;
    if options.check {
        println!("{}: good for a {role} with key {}", options.config.display(), end.public_key());
        return Ok(ExitCode::SUCCESS);
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::request)?;
    runtime.block_on(async {
        let stop = until_told_to_stop().map_err(Failure::request)?;
        end.run(stop, |line| info!("{line}")).await.map_err(Failure::request)
    })?;
    Ok(ExitCode::SUCCESS)
}
