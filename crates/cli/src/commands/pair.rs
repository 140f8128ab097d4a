//! `skyhaul pair`: keys and config files for both ends.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use skyhaul_cc::units::{parse_duration, Duration, ParseUnitError, Rate};
use skyhaul_live::config::{HostPort, PathMemory, Prefix};
use skyhaul_live::keys::Replace;
use skyhaul_live::pair::Plan;

use crate::failure::Failure;

/// Make the keys and config files of a terminal and its gateway.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  skyhaul pair --gateway gw.example.net:4433 --out pair --terminal-lan eth1"
)]
pub struct Args {
    /// Address under which the terminal reaches the gateway (UDP).
    #[arg(long, value_name = "HOST:PORT", value_parser = host_port)]
    gateway: HostPort,
    /// Folder for terminal.toml, terminal.key, gateway.toml and gateway.key.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Name of the terminal in the gateway's messages.
    #[arg(long, default_value = "terminal")]
    name: String,
    /// Network behind the terminal, such as 10.77.1.0/24; may be repeated.
    #[arg(long = "network", value_name = "PREFIX", value_parser = prefix)]
    networks: Vec<Prefix>,
    /// Intercept connections that arrive at the terminal on this network device.
    #[arg(long, value_name = "DEVICE")]
    terminal_lan: Option<String>,
    /// Intercept connections to the terminal's networks that arrive at the gateway on this network device.
    #[arg(long, value_name = "DEVICE")]
    gateway_lan: Option<String>,
    /// Let destinations see the client's own address (needs routes back through the far end).
    #[arg(long)]
    preserve_source: bool,
    /// Congestion controller of both ends.
    #[arg(long, default_value = skyhaul_live::config::DEFAULT_CONTROLLER)]
    controller: String,
    /// IP rate of the link from the terminal to the gateway, such as "10 Mbit/s".
    #[arg(long, value_name = "RATE")]
    terminal_rate: Option<Rate>,
    /// IP rate of the link from the gateway to the terminal, such as "150 Mbit/s".
    #[arg(long, value_name = "RATE")]
    gateway_rate: Option<Rate>,
    /// Round trip of the link.
    #[arg(long, value_name = "TIME", default_value = "600 ms", value_parser = duration)]
    rtt: Duration,
    /// Where the terminal's SOCKS5 proxy listens.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:1080")]
    socks5: SocketAddr,
    /// Leave the SOCKS5 proxy out.
    #[arg(long)]
    no_socks5: bool,
    /// Where the terminal's HTTP CONNECT proxy listens.
    #[arg(long, value_name = "ADDRESS:PORT")]
    http_connect: Option<SocketAddr>,
    /// Replace files that are there already. The old keys are lost.
    #[arg(long)]
    force: bool,
}

/// Carries the command out.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let plan = Plan {
        gateway: args.gateway,
        name: args.name,
        networks: args.networks,
        terminal_lan: args.terminal_lan,
        gateway_lan: args.gateway_lan,
        preserve_source: args.preserve_source,
        controller: args.controller,
        terminal_rate: args.terminal_rate,
        gateway_rate: args.gateway_rate,
        rtt: args.rtt,
        socks5: (!args.no_socks5).then_some(args.socks5),
        http_connect: args.http_connect,
        memory: PathMemory::default(),
    };
    let replace = if args.force { Replace::Existing } else { Replace::Never };
    let pair = plan.write(&args.out, replace).map_err(Failure::request)?;
    println!("Wrote the terminal's end:  {} and {}", pair.terminal.display(), pair.terminal_key.display());
    println!("Wrote the gateway's end:   {} and {}", pair.gateway.display(), pair.gateway_key.display());
    println!("Copy the gateway's two files to the gateway, look through both .toml files, then start");
    println!("  skyhaul gateway --config {}", pair.gateway.display());
    println!("  skyhaul terminal --config {}", pair.terminal.display());
    Ok(ExitCode::SUCCESS)
}

fn host_port(text: &str) -> Result<HostPort, String> {
    let expected = "expected HOST:PORT, such as gw.example.net:4433 or [fd77::2]:4433";
    text.parse().map_err(|_| expected.to_owned())
}

/// Reads a block of addresses.
pub fn prefix(text: &str) -> Result<Prefix, String> {
    text.parse().map_err(|_| "expected a block of addresses, such as 10.77.1.0/24 or fd77:1::/64".to_owned())
}

fn duration(text: &str) -> Result<Duration, ParseUnitError> {
    parse_duration(text)
}
