//! `skyhaul split`: split TCP at one end of the link, without a program at the other.

use std::process::ExitCode;

use skyhaul_cc::Bytes;
use skyhaul_live::config::{Prefix, DEFAULT_FLOWS, DEFAULT_MEMORY};
use skyhaul_live::split::{Options, Splitter, DEFAULT_ROUTE_MARK};

use super::pair::prefix;
use crate::failure::Failure;
use crate::signals::until_told_to_stop;

/// Split TCP connections at one end of the link: the link's side gets a congestion control of its own.
///
/// Connections that arrive on the named devices end here and go on as connections of this host, under the addresses of
/// client and server. No program is needed at the other end. Firewall rules and routes vanish with the program; what was
/// open is reset then.
///
/// The link's window is bounded by this host's net.ipv4.tcp_wmem and tcp_rmem, and by the far host's tcp_rmem: raise
/// them to two round trips of the link's rate.
///
/// It runs until it is told to stop (Ctrl-C or SIGTERM). A line on standard error says when it is ready.
#[derive(clap::Args)]
#[command(after_help = "Example, as root on the router next to the senders:\n  \
    skyhaul split --interface eth1 --network 10.77.1.0/24 --control bbr")]
pub struct Args {
    /// Device on which connections arrive; may be repeated. Name the link's device too for connections from beyond.
    #[arg(long = "interface", value_name = "DEVICE", required = true)]
    interfaces: Vec<String>,
    /// Network on this side of the link; may be repeated. It tells which side of a connection is the link's.
    #[arg(long = "network", value_name = "PREFIX", value_parser = prefix, required = true)]
    networks: Vec<Prefix>,
    /// Congestion control on the link's side, by the kernel's name; the system's if not given.
    #[arg(long, value_name = "NAME")]
    control: Option<String>,
    /// Connections at once; more are reset.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_FLOWS as u32)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    flows: u32,
    /// Data of all connections held at once, 4 MiB at least; the kernel's buffers come on top. Connections for which
    /// there is no room are reset; SIGUSR1 puts what is held into the log.
    #[arg(long, value_name = "SIZE", default_value_t = DEFAULT_MEMORY, value_parser = memory)]
    memory: Bytes,
    /// Number of the firewall mark, the routing table and the routing rule.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_ROUTE_MARK)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=0x7fff_ffff))]
    route_mark: u32,
}

/// Carries the command out.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let options = Options {
        control: args.control,
        flows: args.flows as usize,
        memory: args.memory,
        route_mark: args.route_mark,
        ..Options::new(args.interfaces, args.networks)
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::request)?;
    runtime.block_on(async {
        let stop = until_told_to_stop().map_err(Failure::request)?;
        let splitter = Splitter::open(options).map_err(Failure::request)?;
        tracing::info!("{}", splitter.summary());
        splitter.run(stop).await;
        Ok::<(), Failure>(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn memory(text: &str) -> Result<Bytes, String> {
    let wants = || format!("found \"{text}\", expected 4 MiB or more, such as \"256 MiB\"");
    text.parse().ok().filter(|bytes| *bytes >= Bytes::mib(4)).ok_or_else(wants)
}
