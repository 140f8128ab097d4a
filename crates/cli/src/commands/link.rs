//! `skyhaul link`: runs a command behind an emulated link.

use crate::failure::Failure;
use crate::signals::Held;
use clap::ValueEnum;
use nix::unistd::Pid;
use skyhaul_live::emulate::{EmulateError, Hosts, CLIENT, GATEWAY, SERVER, TERMINAL};
use skyhaul_live::netns::{ensure_privileged, Namespace};
use skyhaul_sim::scenario::Scenario;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Run a command behind an emulated satellite link.
///
/// The command sees a network of its own with the link as the only way out. The far side's addresses are
/// printed at the start and are in the command's environment: SKYHAUL_FAR (IPv4), SKYHAUL_FAR6 (IPv6);
/// SKYHAUL_NEAR and SKYHAUL_NEAR6 are its own. The clock of the scenario starts with the command.
///
/// The exit status is the command's. At the end a report on standard error tells what the link did and whether
/// the emulator kept up.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    skyhaul link p1.down-270 -- ping -c 5 10.77.0.2\n  \
    skyhaul link lan.gigabit-20 --far 'iperf3 -s' -- iperf3 -c 10.77.0.2\n  \
    skyhaul link my-link.toml                # a shell behind the link")]
pub struct Args {
    /// Scenario: an id of the catalogue or a path to a TOML file.
    scenario: String,
    /// Number that decides the luck of the packets.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the command runs: at the end of the link, or on a host of its own behind it (then the far side is
    /// the server behind the other end).
    #[arg(long, value_enum, default_value_t = Side::Terminal)]
    from: Side,
    /// Shell command to run on the far side meanwhile, such as a server. COMMAND starts as soon as it listens on
    /// a port, at the latest after two seconds.
    #[arg(long, value_name = "COMMAND")]
    far: Option<String>,
    /// What to run; a shell if nothing is given.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Side {
    /// 10.77.0.1, the far side is the gateway 10.77.0.2.
    Terminal,
    /// 10.77.1.2, the far side is the server 10.77.2.2.
    Client,
}

/// Carries the command out.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let scenario = Scenario::find(&args.scenario).map_err(Failure::request)?;
    ensure_privileged()?;
    let signals = Held::hold().map_err(Failure::request)?;
    let hosts = Hosts::new()?;
    let link = hosts.link(&scenario, args.seed)?;
    let (near, near_addresses, far, far_addresses) = match args.from {
        Side::Terminal => (&hosts.terminal, TERMINAL, &hosts.gateway, GATEWAY),
        Side::Client => (&hosts.client, CLIENT, &hosts.server, SERVER),
    };
    eprintln!(
        "link {}: here {} and {}, the far side {} and {}",
        scenario.id, near_addresses.0, near_addresses.1, far_addresses.0, far_addresses.1
    );
    let environment = [
        ("SKYHAUL_NEAR", near_addresses.0.to_string()),
        ("SKYHAUL_NEAR6", near_addresses.1.to_string()),
        ("SKYHAUL_FAR", far_addresses.0.to_string()),
        ("SKYHAUL_FAR6", far_addresses.1.to_string()),
    ];

    let mut server = args.far.as_deref().map(|command| start_far(far, command)).transpose()?;
    let shell = || vec![std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned())];
    let words = if args.command.is_empty() { shell() } else { args.command };
    let mut command = near.command(&words[0]);
    command.args(&words[1..]).envs(environment);

    link.restart_clock();
    let mut child = start(command, &words[0])?;
    signals.pass_on(Pid::from_raw(child.id() as i32));
    let status = child.wait().map_err(|error| Failure::request(format!("{}: {error}", words[0])))?;
    if let Some(server) = &mut server {
        let _ = server.kill();
        let _ = server.wait();
    }
    eprintln!("\nlink {}\n{}", scenario.id, link.stop());
    Ok(exit_code(status))
}

/// The command's own status, or 128 and the signal that ended it, as shells do.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

fn start(mut command: Command, program: &str) -> Result<Child, Failure> {
    command.spawn().map_err(|error| Failure::request(format!("cannot run \"{program}\": {error}")))
}

/// Starts the far side's command and waits until it listens.
fn start_far(far: &Namespace, shell_command: &str) -> Result<Child, Failure> {
    let before = listeners(far);
    let mut command = far.command("sh");
    // Results on standard output are the near command's alone.
    let errors = io::stderr().as_fd().try_clone_to_owned().map_err(Failure::request)?;
    command.args(["-c", shell_command]).stdin(Stdio::null()).stdout(errors);
    let mut child = start(command, "sh")?;
    let patience = Instant::now() + Duration::from_secs(2);
    while Instant::now() < patience && listeners(far).is_subset(&before) {
        if let Ok(Some(status)) = child.try_wait() {
            if !status.success() {
                return Err(Failure::request(format!(
                    "on the far side, `{shell_command}` ended at once: {status}"
                )));
            }
            break;
        }
        sleep(Duration::from_millis(10));
    }
    Ok(child)
}

/// TCP sockets that listen and UDP sockets that are bound, by table and local address: proc(5), /proc/net/tcp.
fn listeners(namespace: &Namespace) -> BTreeSet<String> {
    const LISTEN: &str = "0A";
    const UNCONNECTED: &str = "07";
    let tables = ["tcp", "tcp6", "udp", "udp6"];
    let texts = namespace.run(|| {
        tables.map(|table| fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default())
    });
    let mut found = BTreeSet::new();
    for (table, text) in tables.iter().zip(&texts) {
        for line in text.lines().skip(1) {
            let words: Vec<_> = line.split_whitespace().take(4).collect();
            if let [_, local, _, LISTEN | UNCONNECTED] = words[..] {
                found.insert(format!("{table} {local}"));
            }
        }
    }
    found
}

impl From<EmulateError> for Failure {
    fn from(error: EmulateError) -> Failure {
        Failure::request(error)
    }
}
