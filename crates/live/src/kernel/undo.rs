//! Taking everything back: routes and defaults first, then the controllers themselves, so that no connection is left
//! with one that nobody can see any more.

use super::namespaces::{self, Found};
use super::state::{Held, FOLDER};
use super::{pins, probe, route, KernelError, Law};
use std::fmt;
use std::fs;
use std::path::Path;

/// What to take back.
#[derive(Clone, Debug, Default)]
pub struct Removal {
    /// These controllers; all that are installed, with everything that names any, if empty.
    pub laws: Vec<Law>,
    /// Also where other network namespaces have one as their default.
    pub everywhere: bool,
    /// Keep what was learnt of paths for the next installation.
    pub keep_paths: bool,
}

/// One thing that was done, or that somebody should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A route is as it was; the text is the command.
    Route(String),
    /// A route was changed by somebody since and was left.
    RouteLeft(String),
    /// A route that we did not write names the controller; it means nothing until that is installed again.
    RouteNames(String),
    /// A namespace has another default: who it is, which it had, which it has.
    Default(String, String, String),
    /// A controller is no longer installed.
    Removed(Law),
    /// Connections can choose it all the same, because another program holds it.
    StillHeld(Law),
    /// bpffs, mounted for us, is unmounted.
    Unmounted,
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Route(command) => write!(out, "route restored: {command}"),
            Step::RouteLeft(prefix) => {
                write!(out, "route to {prefix}: changed by somebody since, left as it is")
            }
            Step::RouteNames(line) => {
                write!(out, "route written by somebody else, left as it is and without effect: {line}")
            }
            Step::Default(holder, from, to) => {
                write!(out, "network namespace of {holder}: default {from} replaced by {to}")
            }
            Step::Removed(law) => write!(out, "{law} ({}) removed", law.algorithm()),
            Step::StillHeld(law) => write!(
                out,
                "{law} ({}) is held by another program, such as a lab that runs, until that ends",
                law.algorithm()
            ),
            Step::Unmounted => write!(out, "bpffs unmounted from {}", probe::BPFFS),
        }
    }
}

/// Takes back what [`Removal`] says. Connections that use a controller keep it to their end.
///
/// # Errors
/// Before anything is changed: when none of it is there, when something is [`super::Missing`], or when other namespaces
/// have one of the controllers as their default and `everywhere` is not set. Later: when a step fails; the steps
/// before it are done, and the same call goes on from there.
pub fn remove(removal: &Removal) -> Result<Vec<Step>, KernelError> {
    super::available()?;
    let installed = pins::installed();
    for law in &removal.laws {
        if !installed.contains(law) {
            let names: Vec<&str> = installed.iter().map(|law| law.name()).collect();
            let names = if names.is_empty() { "none is".to_owned() } else { names.join(", ") };
            return Err(KernelError::Request(format!("{law} is not installed; installed: {names}")));
        }
    }
    let laws = if removal.laws.is_empty() { Law::ALL.to_vec() } else { removal.laws.clone() };
    let going = if removal.laws.is_empty() { installed } else { removal.laws.clone() };
    let failed = |path: &str| {
        let path = path.into();
        move |source| KernelError::File { path, source }
    };
    let all = namespaces::all().map_err(failed("/proc"))?;
    let defaults = defaults(&all, &laws);
    if !removal.everywhere {
        refuse_others(&defaults)?;
    }

    let mut steps = Vec::new();
    let ours = |name: &str| laws.iter().any(|law| law.algorithm() == name);
    for namespace in &all {
        let wanted = |route: &super::state::Route| ours(&route.algorithm);
        let recorded =
            route::recorded()?.iter().any(|route| route.namespace == namespace.number && wanted(route));
        if recorded {
            for undone in namespace.run(|| route::undo(wanted)).map_err(failed("/proc"))?? {
                steps.push(match undone {
                    route::Undone::Restored(command) => Step::Route(command),
                    route::Undone::Left(prefix) => Step::RouteLeft(prefix),
                });
            }
        }
    }
    let mut held = Held::open(Path::new(FOLDER))?;
    // What is left of these belongs to namespaces that are gone, and their routes with them.
    held.state.routes.retain(|route| !ours(&route.algorithm));
    for (namespace, has) in defaults {
        let before = held.state.defaults.get(&namespace.number).or(held.state.defaults.get(&all[0].number));
        let before = before.cloned().unwrap_or_else(kernels_own);
        namespace
            .set_default_controller(&before)
            .map_err(failed("/proc/sys/net/ipv4/tcp_congestion_control"))?;
        steps.push(Step::Default(namespace.holder.clone(), has, before));
    }
    steps.extend(route::in_use(&laws)?.into_iter().map(Step::RouteNames));
    let still = pins::remove(&going, removal.keep_paths)?;
    steps.extend(going.iter().map(|law| match still.contains(law) {
        true => Step::StillHeld(*law),
        false => Step::Removed(*law),
    }));
    if pins::installed().is_empty() {
        held.state.defaults.clear();
        if held.state.mounted && !Path::new(pins::FOLDER).exists() {
            // Somebody else's pins keep it; then it is theirs now.
            if nix::mount::umount(probe::BPFFS).is_ok() {
                steps.push(Step::Unmounted);
            }
            held.state.mounted = false;
        }
    }
    held.save()?;
    Ok(steps)
}

/// Namespaces whose default is one of `laws`, and which.
fn defaults<'a>(all: &'a [Found], laws: &[Law]) -> Vec<(&'a Found, String)> {
    let default = |namespace: &'a Found| {
        let name = namespace.default_controller().ok()?;
        laws.iter().any(|law| law.algorithm() == name).then_some((namespace, name))
    };
    all.iter().filter_map(default).collect()
}

fn refuse_others(defaults: &[(&Found, String)]) -> Result<(), KernelError> {
    let own = namespaces::current().ok().map(|own| own.number);
    let others: Vec<String> = defaults
        .iter()
        .filter(|(namespace, _)| Some(namespace.number) != own)
        .map(|(namespace, name)| format!("that of {} has {name}", namespace.holder))
        .collect();
    let Some((first, _)) = defaults.iter().find(|(namespace, _)| Some(namespace.number) != own) else {
        return Ok(());
    };
    Err(KernelError::Request(format!(
        "other network namespaces have it as their default and would keep it: {}; nothing was removed. Reset them \
         (nsenter --net={} sysctl net.ipv4.tcp_congestion_control=cubic), or have it done: \
         skyhaul kernel remove --everywhere",
        others.join(", "),
        first.path.display()
    )))
}

/// Remembers what installing leaves for us to restore: this namespace's default, should somebody give it one of ours
/// later, and whether bpffs was mounted for us.
pub(super) fn remember(mounted: bool) -> Result<(), KernelError> {
    let own = namespaces::current();
    let own = own.map_err(|source| KernelError::File { path: "/proc/thread-self/ns/net".into(), source })?;
    let mut held = Held::open(Path::new(FOLDER))?;
    if let Ok(name) = own.default_controller() {
        if !Law::ALL.iter().any(|law| law.algorithm() == name) {
            held.state.defaults.insert(own.number, name);
        }
    }
    held.state.mounted |= mounted;
    held.save()
}

/// Forgets that again, when nothing is installed.
pub(super) fn forget() -> Result<(), KernelError> {
    let mut held = Held::open(Path::new(FOLDER))?;
    held.state.defaults.clear();
    held.state.mounted = false;
    held.save()
}

/// The controller that new namespaces get from a kernel without settings, as far as it can be told.
fn kernels_own() -> String {
    let list = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    let has = |name: &str| list.split_whitespace().any(|listed| listed == name);
    ["cubic", "bbr"].into_iter().find(|name| has(name)).unwrap_or("reno").to_owned()
}
