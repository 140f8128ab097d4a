//! `skyhaul paths`: what an end remembers of its paths.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use skyhaul_live::config::{Config, Peer, Role};
use skyhaul_live::memory::{default_file, unix_now, Store};
use skyhaul_pep::auth::PublicKey;
use skyhaul_pep::memory::{PathKey, Record};

use crate::failure::Failure;
use crate::screen::numbers::{mbit, percent, span};
use crate::screen::rows::{self, Format};
use crate::screen::table::{Align, Table};

/// Show or clear what the ends of this host remember of their paths.
///
/// An end keeps rate, round trip and losses of every path it has sent over, so that the next connection starts at
/// that rate; it checks them with its first packets. Works while ends are running: they notice within seconds.
/// An end whose connection is up begins a new record when its old one is cleared.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    skyhaul paths\n  \
    skyhaul paths --config /etc/skyhaul/gateway.toml --format json\n  \
    skyhaul paths clear ship --config /etc/skyhaul/gateway.toml")]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Config file of the end: says where its memory is and what its peers are called.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// The memory itself; where the config says if not given, or where ends keep it by default.
    #[arg(long, value_name = "FILE", global = true)]
    memory: Option<PathBuf>,
    /// How to print the paths.
    #[arg(long, value_enum, default_value_t = Format::Text, global = true)]
    format: Format,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Show all paths (the default).
    List,
    /// Forget the paths to a peer, or all.
    Clear {
        /// The peer's key, or its name in the config file; all peers if not given.
        peer: Option<String>,
    },
}

/// One path.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    /// The peer's name in the config file, where one is given and knows it.
    name: Option<String>,
    peer: String,
    interface: String,
    network: String,
    /// IP rate of the link in the direction in which this end sends, or of our share of it.
    rate_bit_per_s: u64,
    rate_variation: f64,
    min_rtt_s: f64,
    loss: f64,
    jitter_s: f64,
    reordered: f64,
    /// Connections it was learnt from.
    connections: u32,
    /// Since it was last confirmed; nothing if that lies ahead by the clock of this host.
    age_s: Option<u64>,
    /// How much the next connection over this path builds on it.
    confidence: f64,
}

/// Carries the command out.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let config = args.config.as_deref().map(load).transpose()?;
    let peers: &[Peer] = config.as_ref().map_or(&[], |config| &config.peers);
    let configured = config.as_ref().and_then(|config| config.memory.file.clone());
    let Some(file) = args.memory.or(configured).or_else(default_file) else {
        return Err(Failure::request(
            "no folder for the memory of this user; name the file with --memory FILE",
        ));
    };
    if let Some(config) = config.as_ref().filter(|config| !config.memory.enabled) {
        eprintln!("skyhaul: the memory of this {} is off ([memory] enabled = false)", config.role());
    }
    let store = Store::new(file);
    match args.action {
        None | Some(Action::List) => list(&store, peers, args.format),
        Some(Action::Clear { peer }) => clear(&store, peers, peer.as_deref()),
    }
}

/// A config file of either end.
fn load(path: &std::path::Path) -> Result<Config, Failure> {
    let terminal = Config::load(path, Role::Terminal);
    match (terminal, Config::load(path, Role::Gateway)) {
        (Ok(config), _) | (Err(_), Ok(config)) => Ok(config),
        // The one that was read farther is the one that is meant.
        (Err(terminal), Err(gateway)) => {
            Err(Failure::request(if gateway.line > terminal.line { gateway } else { terminal }))
        }
    }
}

fn list(store: &Store, peers: &[Peer], format: Format) -> Result<ExitCode, Failure> {
    let contents = store.read().map_err(Failure::request)?;
    if contents.refused > 0 {
        eprintln!("skyhaul: {} damaged records are left out", contents.refused);
    }
    let rows: Vec<Row> = contents.records.iter().map(|(path, record)| row(path, record, peers)).collect();
    match format {
        Format::Text => rows::show(&text(&rows, store))?,
        Format::Json => rows::show(&rows::json(&rows)?)?,
        Format::Csv => rows::show(&rows::csv(&rows)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn clear(store: &Store, peers: &[Peer], peer: Option<&str>) -> Result<ExitCode, Failure> {
    let key = match peer {
        None => None,
        Some(text) => Some(named(text, peers).ok_or_else(|| {
            let names: Vec<&str> = peers.iter().map(|peer| peer.name.as_str()).collect();
            let names = if names.is_empty() { "none without --config".to_owned() } else { names.join(", ") };
            Failure::request(format!(
                "no peer is called \"{text}\" ({names}); expected a name of the config file or a key, skyhaul-ed25519:..."
            ))
        })?),
    };
    let cleared = store.clear(key).map_err(Failure::request)?;
    let paths = if cleared.records == 1 { "path" } else { "paths" };
    rows::show(&format!("{}: {} {paths} forgotten\n", store.file().display(), cleared.records))?;
    Ok(ExitCode::SUCCESS)
}

fn named(text: &str, peers: &[Peer]) -> Option<PublicKey> {
    let by_name = peers.iter().find(|peer| peer.name == text).map(|peer| peer.key);
    by_name.or_else(|| text.parse().ok())
}

fn row(path: &PathKey, record: &Record, peers: &[Peer]) -> Row {
    let now = unix_now();
    let history = record.recall(now, true);
    Row {
        name: peers.iter().find(|peer| peer.key == path.peer).map(|peer| peer.name.clone()),
        peer: path.peer.to_string(),
        interface: path.interface.name().to_owned(),
        network: path.network.to_string(),
        rate_bit_per_s: history.rate.as_bit(),
        rate_variation: history.rate_variation.value(),
        min_rtt_s: history.min_rtt.as_secs_f64(),
        loss: history.loss.value(),
        jitter_s: history.jitter.as_secs_f64(),
        reordered: history.reordered.value(),
        connections: record.observations(),
        age_s: now.since(record.seen()).map(|age| age.as_secs()),
        confidence: history.confidence.value(),
    }
}

fn text(rows: &[Row], store: &Store) -> String {
    let file = store.file().display();
    if rows.is_empty() {
        return format!("{file}: no paths\n");
    }
    let mut table = Table::new(&[
        ("peer", Align::Left),
        ("interface", Align::Left),
        ("network", Align::Left),
        ("Mbit/s", Align::Point),
        ("± %", Align::Point),
        ("RTT ms", Align::Point),
        ("loss %", Align::Point),
        ("jitter ms", Align::Point),
        ("connections", Align::Point),
        ("seen", Align::Left),
        ("sure %", Align::Point),
    ]);
    for row in rows {
        let seen =
            row.age_s.map_or_else(|| "in the future".to_owned(), |age| format!("{} ago", span(age as f64)));
        table.row(
            false,
            vec![
                row.name.clone().unwrap_or_else(|| row.peer.clone()),
                row.interface.clone(),
                row.network.clone(),
                mbit(row.rate_bit_per_s as f64),
                percent(row.rate_variation),
                format!("{:.1}", row.min_rtt_s * 1e3),
                format!("{:.2}", row.loss * 1e2),
                format!("{:.2}", row.jitter_s * 1e3),
                row.connections.to_string(),
                seen,
                percent(row.confidence),
            ],
        );
    }
    format!("{file}\n{table}")
}
