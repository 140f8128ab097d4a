//! The `skyhaul` command.
//!
//! Results go to standard output; progress, warnings and logs go to standard error. The exit status is 0 when
//! all is well, 1 when a check failed and 2 when the request could not be carried out.

mod commands;
mod failure;
mod screen;
mod signals;

use clap::Parser;
use failure::Failure;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Carries TCP over satellite links at the speed of the link.
///
/// Logs go to standard error; SKYHAUL_LOG chooses how much (error, warn, info, debug, trace, or per module as
/// in "warn,skyhaul_live=debug"; default info for terminal, gateway, fec-tunnel and split, else warn).
#[derive(Parser)]
#[command(name = "skyhaul", version, arg_required_else_help = true)]
#[command(after_help = "First command to try, as root:\n  skyhaul link p1.down-270 -- ping -c 5 10.77.0.2")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// One variant per command; each lives in `commands/NAME.rs`.
#[derive(clap::Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one command per run")]
enum Command {
    Run(commands::run::Args),
    Paper(commands::paper::Args),
    Report(commands::report::Args),
    Bench(commands::bench::Args),
    Faults(commands::faults::Args),
    Demo(commands::demo::Args),
    Link(commands::link::Args),
    Terminal(commands::terminal::Args),
    Gateway(commands::gateway::Args),
    Pair(commands::pair::Args),
    FecTunnel(commands::fec_tunnel::Args),
    Split(commands::split::Args),
    Paths(commands::paths::Args),
    Kernel(commands::kernel::Args),
    List(commands::list::Args),
    Replay(commands::replay::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // A service says when its channel goes up and down; a command that is watched keeps to its results.
    let level = match cli.command {
        Command::Terminal(_) | Command::Gateway(_) | Command::FecTunnel(_) | Command::Split(_) => "info",
        _ => "warn",
    };
    let outcome = start_log(level).and_then(|()| match cli.command {
        Command::Run(args) => commands::run::run(args),
        Command::Paper(args) => commands::paper::run(args),
        Command::Report(args) => commands::report::run(args),
        Command::Bench(args) => commands::bench::run(args),
        Command::Faults(args) => commands::faults::run(args),
        Command::Demo(args) => commands::demo::run(args),
        Command::Link(args) => commands::link::run(args),
        Command::Terminal(args) => commands::terminal::run(args),
        Command::Gateway(args) => commands::gateway::run(args),
        Command::Pair(args) => commands::pair::run(args),
        Command::FecTunnel(args) => commands::fec_tunnel::run(args),
        Command::Split(args) => commands::split::run(args),
        Command::Paths(args) => commands::paths::run(args),
        Command::Kernel(args) => commands::kernel::run(args),
        Command::List(args) => commands::list::run(args),
        Command::Replay(args) => commands::replay::run(args),
    });
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("skyhaul: {failure}");
            failure.exit_code()
        }
    }
}

/// Sends the log to standard error, as much of it as SKYHAUL_LOG asks for.
fn start_log(level: &str) -> Result<(), Failure> {
    let wanted = std::env::var("SKYHAUL_LOG").unwrap_or_default();
    let wanted = if wanted.is_empty() { level } else { wanted.as_str() };
    let filter = EnvFilter::try_new(wanted).map_err(|error| {
        Failure::request(format!("SKYHAUL_LOG wants a level such as \"info\", has \"{wanted}\": {error}"))
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}
