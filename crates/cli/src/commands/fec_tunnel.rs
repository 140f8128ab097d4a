//! `skyhaul fec-tunnel`: one end of a UDP tunnel with error correction.

use std::net::SocketAddr;
use std::process::ExitCode;

use skyhaul_cc::units::{parse_duration, Duration, ParseUnitError, Rate};
use skyhaul_live::config::Prefix;
use skyhaul_live::fec_tunnel::{block_time, hold, FecTunnel, Options, DEFAULT_BLOCK, DEFAULT_QUEUE, DEVICE};
use skyhaul_live::testbed::scheme::Repair;

use super::pair::prefix;
use crate::failure::Failure;
use crate::signals::until_told_to_stop;

/// Run one end of a UDP tunnel with error correction: TCP stays end to end inside.
///
/// A network device and routes lead the packets for the networks behind the other end into the tunnel; both vanish with
/// the program, and packets take their old way. It is a baseline for comparisons: nothing is encrypted, and the other
/// end is known by its address alone. On an open network use `skyhaul terminal` and `skyhaul gateway`.
///
/// It runs until it is told to stop (Ctrl-C or SIGTERM). A line on standard error says when it is ready.
#[derive(clap::Args)]
#[command(after_help = "Example, as root at the terminal; the gateway's end mirrors the addresses:\n  \
    skyhaul fec-tunnel --listen 10.77.0.1:4434 --peer 10.77.0.2:4434 --network 10.77.2.0/24 --rate \"150 Mbit/s\"")]
pub struct Args {
    /// Local UDP address.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// UDP address of the other end.
    #[arg(long, value_name = "ADDRESS:PORT")]
    peer: SocketAddr,
    /// Network behind the other end; may be repeated.
    #[arg(long = "network", value_name = "PREFIX", value_parser = prefix, required = true)]
    networks: Vec<Prefix>,
    /// How much is repaired: adaptive, none, or repairs per packet such as 20%.
    #[arg(long, value_name = "HOW", default_value_t = Repair::Adaptive)]
    redundancy: Repair,
    /// IP rate of the link towards the other end, such as "150 Mbit/s"; without it nothing is paced, and repairs may
    /// overflow the link's queue.
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Packets per block.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_BLOCK as u16)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=skyhaul_pep::fec::MOST_DATA as i64))]
    block: u16,
    /// Close a block so long after its first packet [default: what its packets take at the rate, 10 ms at least].
    #[arg(long, value_name = "TIME", value_parser = time)]
    block_time: Option<Duration>,
    /// Keep packets behind a gap so long for its repair [default: the block time and 50 ms]. It should be longer than
    /// the other end's block time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    hold: Option<Duration>,
    /// Largest IP packet of the path to the other end, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    #[arg(value_parser = clap::value_parser!(u16).range(576..=9000))]
    mtu: u16,
    /// Packets that wait in front of the tunnel at most.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_QUEUE)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    queue: u32,
    /// Name of the network device.
    #[arg(long, value_name = "NAME", default_value = DEVICE)]
    device: String,
}

/// Carries the command out.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let block = usize::from(args.block);
    let block_time = args.block_time.unwrap_or_else(|| block_time(args.rate, block));
    let options = Options {
        device: args.device,
        redundancy: args.redundancy.redundancy(),
        block,
        block_time,
        hold: args.hold.unwrap_or_else(|| hold(block_time)),
        rate: args.rate,
        mtu: args.mtu,
        queue: args.queue,
        ..Options::new(args.listen, args.peer, args.networks)
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::request)?;
    runtime.block_on(async {
        let stop = until_told_to_stop().map_err(Failure::request)?;
        let tunnel = FecTunnel::open(options).map_err(Failure::request)?;
        tracing::info!("{}", tunnel.summary());
        tunnel.run(stop).await.map_err(Failure::request)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a time of 1 ms to 10 s.
fn time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error: ParseUnitError| error.to_string())?;
    let sensible = Duration::from_millis(1)..=Duration::from_secs(10);
    sensible.contains(&time).then_some(time).ok_or_else(|| format!("found {text}, expected 1 ms to 10 s"))
}
