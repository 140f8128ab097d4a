//! What `skyhaul kernel` shows: abilities, controllers, routes and learnt paths.

use std::net::IpAddr;
use std::process::ExitCode;

use serde::Serialize;
use skyhaul_live::kernel::pins::{self, Standing};
use skyhaul_live::kernel::probe::Probe;
use skyhaul_live::kernel::{paths, route, Missing};

use crate::failure::Failure;
use crate::screen::numbers::{mbit, span};
use crate::screen::rows::{self, Format};
use crate::screen::table::{Align, Table};

/// One thing that was looked for.
#[derive(Serialize)]
struct Check {
    what: &'static str,
    good: bool,
    found: String,
}

/// `skyhaul kernel probe`.
pub fn probe(format: Format) -> Result<ExitCode, Failure> {
    let probe = Probe::take();
    let checks = checks(&probe);
    match format {
        Format::Json => rows::show(&rows::json(&checks)?)?,
        Format::Csv => rows::show(&rows::csv(&checks)?)?,
        Format::Text => {
            let mut table = Table::new(&[("", Align::Left), ("", Align::Left), ("", Align::Left)]);
            for check in &checks {
                let verdict = if check.good { "ok" } else { "missing" };
                table.row(false, vec![check.what.to_owned(), verdict.to_owned(), check.found.clone()]);
            }
            rows::show(&table.to_string())?;
        }
    }
    match probe.missing_to_install() {
        None => Ok(ExitCode::SUCCESS),
        Some(missing) => Err(Failure::check(missing)),
    }
}

fn checks(probe: &Probe) -> Vec<Check> {
    let yes =
        |good: bool, found: &str, otherwise: &str| (good, if good { found } else { otherwise }.to_owned());
    let remedy = |missing: Missing| missing.to_string();
    let rights = |good: bool, name: &'static str| {
        (good, if good { "held".to_owned() } else { remedy(Missing::Capability(name)) })
    };
    let links = probe.kernel.is_some_and(|kernel| kernel.links);
    let arguments = probe.kernel.map_or(0, |kernel| kernel.cong_control_arguments);
    let rows = [
        ("controllers in this program", yes(probe.built, "embedded", &remedy(Missing::Build))),
        (
            "types of the kernel (BTF)",
            yes(probe.btf, &format!("Linux {}", probe.release), &remedy(Missing::Btf)),
        ),
        (
            "TCP controllers from BPF",
            yes(
                probe.kernel.is_some(),
                &format!("taken; cong_control has {arguments} arguments"),
                &remedy(Missing::StructOps),
            ),
        ),
        (
            "replacing a running one",
            // Not having it is no fault: the loader has another way.
            (
                true,
                if links { "at once (links)" } else { "with a moment without it (kernel before 6.4)" }
                    .to_owned(),
            ),
        ),
        (
            "host's own user namespace",
            yes(probe.initial_user_namespace, "inside", &remedy(Missing::UserNamespace)),
        ),
        ("CAP_BPF", rights(probe.cap_bpf, "CAP_BPF")),
        ("CAP_PERFMON", rights(probe.cap_perfmon, "CAP_PERFMON")),
        (
            "CAP_NET_ADMIN",
            yes(
                probe.cap_net_admin,
                "held",
                "routes and defaults cannot be changed; run as root: sudo skyhaul ...",
            ),
        ),
        ("bpffs at /sys/fs/bpf", yes(probe.bpffs, "mounted", &remedy(Missing::Bpffs))),
    ];
    rows.into_iter().map(|(what, (good, found))| Check { what, good, found }).collect()
}

/// One controller in a flat row.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    algorithm: &'static str,
    installed: bool,
    registered: bool,
    for_everybody: bool,
    age_s: Option<u64>,
    /// Of all hooks together, where the kernel counts.
    calls: Option<u64>,
    mean_ns: Option<f64>,
}

impl Row {
    fn new(standing: &Standing) -> Row {
        let calls: u64 = standing.hooks.iter().map(|hook| hook.calls).sum();
        let time: u64 = standing.hooks.iter().map(|hook| hook.time_ns).sum();
        Row {
            name: standing.law.name(),
            algorithm: standing.law.algorithm(),
            installed: standing.installed,
            registered: standing.registered,
            for_everybody: standing.for_everybody,
            age_s: standing.age.map(|age| age.as_secs()),
            calls: (calls > 0).then_some(calls),
            mean_ns: (calls > 0).then(|| time as f64 / calls as f64),
        }
    }
}

/// `skyhaul kernel list`.
pub fn list(format: Format) -> Result<(), Failure> {
    let rows: Vec<Row> = pins::list().iter().map(Row::new).collect();
    match format {
        Format::Json => rows::show(&rows::json(&rows)?),
        Format::Csv => rows::show(&rows::csv(&rows)?),
        Format::Text => {
            let mut table = Table::new(&[
                ("controller", Align::Left),
                ("name in the kernel", Align::Left),
                ("", Align::Left),
                ("who may choose it", Align::Left),
                ("loaded", Align::Left),
                ("calls", Align::Point),
                ("ns each", Align::Point),
            ]);
            for row in &rows {
                let standing = match (row.registered, row.installed) {
                    (true, true) => "installed",
                    (true, false) => "in use by a program",
                    (false, true) => "broken: install it again",
                    (false, false) => "-",
                };
                let who = match (row.registered, row.for_everybody) {
                    (false, _) => "",
                    (true, true) => "everybody",
                    (true, false) => "routes, root",
                };
                table.row(
                    false,
                    vec![
                        row.name.to_owned(),
                        row.algorithm.to_owned(),
                        standing.to_owned(),
                        who.to_owned(),
                        row.age_s.map_or_else(String::new, |age| format!("{} ago", span(age as f64))),
                        row.calls.map_or_else(String::new, |calls| calls.to_string()),
                        row.mean_ns.map_or_else(String::new, |ns| format!("{ns:.0}")),
                    ],
                );
            }
            rows::show(&table.to_string())
        }
    }
}

/// A changed route in a flat row.
#[derive(Serialize)]
struct RouteRow {
    prefix: String,
    algorithm: String,
    network_namespace: u64,
    before: Option<String>,
    after: String,
}

/// `skyhaul kernel route` without arguments.
pub fn routes(format: Format) -> Result<(), Failure> {
    let rows: Vec<RouteRow> = route::recorded()?
        .into_iter()
        .map(|route| RouteRow {
            prefix: route.prefix,
            algorithm: route.algorithm,
            network_namespace: route.namespace,
            before: route.before,
            after: route.after,
        })
        .collect();
    match format {
        Format::Json => rows::show(&rows::json(&rows)?),
        Format::Csv => rows::show(&rows::csv(&rows)?),
        Format::Text if rows.is_empty() => rows::show("no route was changed\n"),
        Format::Text => {
            let mut table =
                Table::new(&[("prefix", Align::Left), ("now", Align::Left), ("before", Align::Left)]);
            for row in rows {
                table.row(
                    false,
                    vec![row.prefix, row.after, row.before.unwrap_or_else(|| "no route".to_owned())],
                );
            }
            rows::show(&table.to_string())
        }
    }
}

/// A learnt path in a flat row.
#[derive(Serialize)]
struct PathRow {
    network: IpAddr,
    rate_bit_per_s: u64,
    min_rtt_s: f64,
    loss: f64,
    cwnd_segments: u32,
    connections: u32,
    age_s: u64,
}

/// `skyhaul kernel paths`.
pub fn paths(format: Format) -> Result<(), Failure> {
    let rows: Vec<PathRow> = paths::read()?
        .iter()
        .map(|path| PathRow {
            network: path.network,
            rate_bit_per_s: path.rate.as_bit(),
            min_rtt_s: path.min_rtt.as_secs_f64(),
            loss: path.loss.value(),
            cwnd_segments: path.cwnd,
            connections: path.uses,
            age_s: path.age().as_secs(),
        })
        .collect();
    match format {
        Format::Json => rows::show(&rows::json(&rows)?),
        Format::Csv => rows::show(&rows::csv(&rows)?),
        Format::Text if rows.is_empty() => rows::show("nothing learnt yet\n"),
        Format::Text => {
            let mut table = Table::new(&[
                ("network", Align::Left),
                ("Mbit/s", Align::Point),
                ("RTT ms", Align::Point),
                ("loss %", Align::Point),
                ("window", Align::Point),
                ("connections", Align::Point),
                ("seen", Align::Left),
            ]);
            for row in &rows {
                table.row(
                    false,
                    vec![
                        row.network.to_string(),
                        mbit(row.rate_bit_per_s as f64),
                        format!("{:.1}", row.min_rtt_s * 1e3),
                        format!("{:.2}", row.loss * 1e2),
                        row.cwnd_segments.to_string(),
                        row.connections.to_string(),
                        format!("{} ago", span(row.age_s as f64)),
                    ],
                );
            }
            rows::show(&table.to_string())
        }
    }
}

/// `skyhaul kernel paths clear`.
pub fn clear_paths(network: Option<IpAddr>) -> Result<(), Failure> {
    let cleared = paths::clear(network)?;
    if let (Some(network), 0) = (network, cleared) {
        return Err(Failure::request(format!(
            "nothing is known of {network}; \"skyhaul kernel paths\" shows the networks that are"
        )));
    }
    rows::show(&format!("{cleared} {} forgotten\n", if cleared == 1 { "path" } else { "paths" }))
}
