//! `skyhaul kernel`: congestion controllers for the kernel's own TCP.

mod show;
mod watch;

use std::process::ExitCode;

use skyhaul_live::kernel::pins::{self, Change, Manner};
use skyhaul_live::kernel::route::{self, Prefix};
use skyhaul_live::kernel::undo::{self, Removal};
use skyhaul_live::kernel::{KernelError, Law};

use crate::failure::Failure;
use crate::screen::rows::{self, Format};

/// Install satellite congestion controllers into the running kernel, choose where they serve, and take them out again.
///
/// They change this host's side of TCP connections only; the far end needs nothing. Nothing is compiled and no module
/// is loaded: the kernel takes them through BPF. Installed ones serve no connection until a route, a program or a
/// namespace's default names them, and they are gone after a restart.
#[derive(clap::Args)]
#[command(after_help = "Examples, as root:\n  \
    skyhaul kernel probe\n  \
    skyhaul kernel install\n  \
    skyhaul kernel route 203.0.113.0/24 boost --initcwnd 40\n  \
    skyhaul kernel watch\n  \
    skyhaul kernel remove")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Say what this kernel can do and what is missing; exit status 1 if anything is.
    Probe {
        /// How to print it.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Install controllers until they are removed or the host restarts; all or none.
    ///
    /// One that is installed already gets the code of this program: connections keep what they began with, new ones
    /// get the new code.
    Install {
        /// Which; all if none is named.
        #[arg(value_name = "NAME")]
        laws: Vec<String>,
        /// Let every local user choose them, and every container and namespace have them as its default; with names
        /// only those. May be repeated.
        #[arg(
            long,
            value_name = "NAME,...",
            num_args = 0..=1,
            require_equals = true,
            value_delimiter = ',',
            default_missing_value = ALL
        )]
        allow_everybody: Vec<String>,
        /// Mount bpffs at /sys/fs/bpf where it is missing; `remove` unmounts it again.
        #[arg(long)]
        mount_bpffs: bool,
    },
    /// Show all controllers and whether connections can choose them.
    List {
        /// How to print them.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Send connections with hosts of a prefix through a controller; without arguments, show the routes changed so far.
    ///
    /// Prints the `ip route` command and runs it. The route keeps all its other attributes. Where only a larger prefix
    /// has a route, a new one goes the same way. Covers connections in both directions that begin from now on.
    Route {
        /// A network, as in 203.0.113.0/24 or 2001:db8::/48 (0.0.0.0/0 and ::/0: the default route), or one address.
        #[arg(requires = "choice")]
        prefix: Option<Prefix>,
        /// The controller.
        #[arg(value_name = "NAME", group = "choice")]
        law: Option<String>,
        /// Segments that a new connection may send at once; the kernel's 10 if neither this nor the route says more.
        #[arg(long, value_name = "SEGMENTS", value_parser = clap::value_parser!(u32).range(1..=10_000), requires = "law")]
        initcwnd: Option<u32>,
        /// Make the route what it was before.
        #[arg(long, group = "choice")]
        undo: bool,
        /// Print the command and change nothing.
        #[arg(long, requires = "law")]
        dry_run: bool,
        /// How to print the routes changed so far.
        #[arg(long, value_enum, default_value_t = Format::Text, conflicts_with = "prefix")]
        format: Format,
    },
    /// Show or clear what controllers have learnt of paths.
    Paths {
        #[command(subcommand)]
        action: Option<PathsAction>,
        /// How to print the paths.
        #[arg(long, value_enum, default_value_t = Format::Text, global = true)]
        format: Format,
    },
    /// Print what controllers do, a line per event, until interrupted.
    Watch(watch::Args),
    /// Undo routes and defaults, then remove the controllers: the host is as it was.
    ///
    /// Connections that use one keep it to their end. Refuses, and changes nothing, while other network namespaces
    /// have one as their default.
    Remove {
        /// Which; all if none is named.
        #[arg(value_name = "NAME")]
        laws: Vec<String>,
        /// Reset the defaults of other network namespaces too.
        #[arg(long)]
        everywhere: bool,
        /// Keep what was learnt of paths.
        #[arg(long)]
        keep_paths: bool,
    },
}

#[derive(clap::Subcommand)]
enum PathsAction {
    /// Show all paths (the default).
    List,
    /// Forget the path to a network, or all.
    Clear {
        /// As shown; all if not given.
        network: Option<std::net::IpAddr>,
    },
}

/// Carries the command out.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    match args.action {
        Action::Probe { format } => return show::probe(format),
        Action::Install { laws, allow_everybody, mount_bpffs } => {
            let laws = named(&laws)?;
            let for_everybody = &among(&laws, &allow_everybody)?;
            install(&laws, Manner { for_everybody, mount: mount_bpffs })?;
        }
        Action::List { format } => show::list(format)?,
        Action::Route { prefix: None, format, .. } => show::routes(format)?,
        Action::Route { prefix: Some(prefix), law: Some(law), initcwnd, dry_run, .. } => {
            change_route(prefix, one(&law)?, initcwnd, dry_run)?;
        }
        Action::Route { prefix: Some(prefix), law: None, .. } => undo_route(prefix)?,
        Action::Paths { action: None | Some(PathsAction::List), format } => show::paths(format)?,
        Action::Paths { action: Some(PathsAction::Clear { network }), .. } => show::clear_paths(network)?,
        Action::Watch(args) => watch::run(&args)?,
        Action::Remove { laws, everywhere, keep_paths } => {
            let laws = laws.iter().map(|name| one(name)).collect::<Result<_, _>>()?;
            remove(&Removal { laws, everywhere, keep_paths })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl From<KernelError> for Failure {
    fn from(error: KernelError) -> Failure {
        Failure::request(error)
    }
}

fn one(name: &str) -> Result<Law, Failure> {
    Ok(name.parse::<Law>()?)
}

/// The controllers of these names, each once; all that there are if none is named.
fn named(names: &[String]) -> Result<Vec<Law>, Failure> {
    let mut laws = Vec::new();
    for name in names {
        let law = one(name)?;
        if !laws.contains(&law) {
            laws.push(law);
        }
    }
    Ok(if laws.is_empty() { Law::built() } else { laws })
}

/// What `--allow-everybody` without names stands for.
const ALL: &str = "all";

/// Those of `laws` that are named; all of them for [`ALL`].
fn among(laws: &[Law], names: &[String]) -> Result<Vec<Law>, Failure> {
    if names.iter().any(|name| name == ALL) {
        return Ok(laws.to_vec());
    }
    let chosen = |name: &String| {
        let law = one(name)?;
        match laws.contains(&law) {
            true => Ok(law),
            false => Err(Failure::request(format!(
                "--allow-everybody={law}: {law} is not among the controllers to install, which are {}",
                list(laws)
            ))),
        }
    };
    names.iter().map(chosen).collect()
}

fn list(laws: &[Law]) -> String {
    laws.iter().map(|law| law.name()).collect::<Vec<_>>().join(", ")
}

fn install(laws: &[Law], manner: Manner<'_>) -> Result<(), Failure> {
    let mut text = String::new();
    for (law, change) in pins::install(laws, manner)? {
        let what = match change {
            Change::New => "installed",
            Change::Replaced => "brought up to date; connections that use it keep the code they began with",
        };
        text += &format!("{law} ({}): {what}\n", law.algorithm());
    }
    text += "No connection uses them yet. Choose where, for example: \
             skyhaul kernel route 203.0.113.0/24 boost --initcwnd 40\n";
    if laws.iter().all(|law| manner.for_everybody.contains(law)) {
        text += "Every local user and container may choose them.\n";
    } else if !manner.for_everybody.is_empty() {
        text += &format!("Every local user and container may choose {}.\n", list(manner.for_everybody));
    }
    rows::show(&text)
}

fn change_route(prefix: Prefix, law: Law, initcwnd: Option<u32>, dry_run: bool) -> Result<(), Failure> {
    let listed = pins::list().into_iter().any(|standing| standing.law == law && standing.registered);
    if !listed {
        return Err(Failure::request(format!(
            "{law} is not installed, and the kernel takes no route with a controller it does not know; \
             install it first: skyhaul kernel install {law}"
        )));
    }
    let plan = route::plan(prefix, law, initcwnd)?;
    rows::show(&format!("{}\n", plan.command()))?;
    if dry_run {
        return Ok(());
    }
    plan.carry_out()?;
    // A window larger than the send buffer may become is never reached, whatever the controller says.
    if let Some(most) = largest_send_buffer().filter(|most| *most < ENOUGH_BUFFER) {
        eprintln!(
            "skyhaul: a connection's send buffer may grow to {most} bytes here (net.ipv4.tcp_wmem), which caps its \
             window; for a long path: sysctl -w net.ipv4.tcp_wmem=\"4096 16384 {ENOUGH_BUFFER}\" (and tcp_rmem at the \
             receiver)"
        );
    }
    Ok(())
}

/// Twice the bytes in flight of 150 Mbit/s over 600 ms: the kernel counts what surrounds the payload too.
const ENOUGH_BUFFER: u64 = 33_554_432;

/// Third number of tcp_wmem.
fn largest_send_buffer() -> Option<u64> {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").ok()?.split_whitespace().nth(2)?.parse().ok()
}

fn undo_route(prefix: Prefix) -> Result<(), Failure> {
    let text = prefix.to_string();
    let undone = route::undo(|route| route.prefix == text)?;
    if undone.is_empty() {
        return Err(Failure::request(format!(
            "the route to {prefix} was not changed by skyhaul in this network namespace; \"skyhaul kernel route\" lists \
             those that were"
        )));
    }
    for one in undone {
        rows::show(&match one {
            route::Undone::Restored(command) => format!("{command}\n"),
            route::Undone::Left(prefix) => {
                format!("route to {prefix}: changed by somebody since, left as it is\n")
            }
        })?;
    }
    Ok(())
}

fn remove(removal: &Removal) -> Result<(), Failure> {
    let steps = undo::remove(removal)?;
    let mut text: String = steps.iter().map(|step| format!("{step}\n")).collect();
    if steps.is_empty() {
        text += "nothing is installed\n";
    }
    rows::show(&text)
}
