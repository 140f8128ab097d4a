//! Sending the connections to a prefix through a controller, by the route that leads there: `ip route ... congctl`.
//! It covers connections in both directions, leaves all others alone, and falls back to the namespace's default by
//! itself when the controller is gone. What was changed is remembered, so that it can be undone.

use super::state::{Held, Route, FOLDER};
use super::{namespaces, KernelError, Law};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::str::FromStr;

mod line;

use line::Line;

/// Destinations: a network or one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    network: IpAddr,
    length: u8,
}

impl Prefix {
    fn family(self) -> &'static str {
        if self.network.is_ipv4() {
            "-4"
        } else {
            "-6"
        }
    }
}

impl FromStr for Prefix {
    type Err = KernelError;

    /// `203.0.113.0/24`, `2001:db8::/48` or an address alone. Bits behind the prefix must be zero.
    fn from_str(text: &str) -> Result<Prefix, KernelError> {
        let wrong = || {
            KernelError::Request(format!(
                "\"{text}\" is no prefix; expected a network as in 203.0.113.0/24 or 2001:db8::/48, or an address"
            ))
        };
        let (network, length) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let network: IpAddr = network.parse().map_err(|_| wrong())?;
        let most = if network.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(most), |length| length.parse().map_err(|_| wrong()))?;
        if length > most {
            return Err(wrong());
        }
        let bits = match network {
            IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
            IpAddr::V6(v6) => v6.to_bits(),
        };
        if bits.checked_shl(u32::from(length)).unwrap_or(0) != 0 {
            return Err(KernelError::Request(format!(
                "{text} has bits set behind its prefix of {length}; expected zeros there, or /{most} for one host"
            )));
        }
        Ok(Prefix { network, length })
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.network, self.length)
    }
}

/// A change of a route that has not been made yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    prefix: Prefix,
    law: Law,
    before: Option<Line>,
    command: Vec<String>,
}

/// Plans to send the connections to `prefix` through `law`, with a first window of `initcwnd` segments if given. A
/// route to exactly this prefix keeps all its other attributes; without one, a new route goes the way that connections
/// take now.
///
/// # Errors
/// When there is no such way, or it is one that cannot be written down again.
pub fn plan(prefix: Prefix, law: Law, initcwnd: Option<u32>) -> Result<Plan, KernelError> {
    let exact = show(prefix.family(), &["exact", &prefix.to_string()])?;
    let (before, base) = match exact.into_iter().next() {
        Some(line) => (Some(line.clone()), line),
        None => {
            let covering = show(prefix.family(), &["match", &prefix.to_string()])?;
            let best =
                covering.into_iter().reduce(|best, line| if line.is_better(&best) { line } else { best });
            let best = best.ok_or_else(|| {
                KernelError::Request(format!(
                    "no route in the main table leads to {prefix}; add one first: ip route add {prefix} via GATEWAY"
                ))
            })?;
            (None, best.beneath(&prefix.to_string()))
        }
    };
    base.check().map_err(|found| {
        KernelError::Request(format!(
            "the route to {prefix} {found}; set the controller by hand: add \"congctl {}\" to it",
            law.algorithm()
        ))
    })?;
    let wanted = base.with(law.algorithm(), initcwnd);
    let mut command = vec![prefix.family().to_owned(), "route".to_owned(), "replace".to_owned()];
    command.extend(wanted.words());
    Ok(Plan { prefix, law, before, command })
}

impl Plan {
    /// The command that makes the change.
    pub fn command(&self) -> String {
        format!("ip {}", self.command.join(" "))
    }

    /// Makes the change and remembers it.
    ///
    /// # Errors
    /// When it cannot be remembered or `ip` refuses; nothing has changed then.
    pub fn carry_out(self) -> Result<(), KernelError> {
        let namespace = here()?;
        let mut held = Held::open(Path::new(FOLDER))?;
        let (family, prefix) = (self.prefix.family().to_owned(), self.prefix.to_string());
        let same = |route: &Route| route.namespace == namespace && route.prefix == prefix;
        // What was there before our first change counts.
        let earlier = held.state.routes.iter().position(same).map(|at| held.state.routes.remove(at));
        let before = match &earlier {
            Some(earlier) if self.before.as_ref().is_some_and(|now| now.is(&earlier.after)) => {
                earlier.before.clone()
            }
            _ => self.before.as_ref().map(Line::to_string),
        };
        ip(&self.command)?;
        let algorithm = self.law.algorithm();
        let lines = show(&family, &["exact", &prefix])?;
        let after = lines.iter().find(|line| line.controller() == Some(algorithm));
        let recorded = after.map_or_else(
            || {
                Err(KernelError::Request(format!(
                    "the kernel took `{}` and does not show the controller in it",
                    self.command()
                )))
            },
            |after| {
                held.state.routes.push(Route {
                    namespace,
                    family,
                    prefix: prefix.clone(),
                    algorithm: algorithm.to_owned(),
                    before,
                    after: after.to_string(),
                });
                held.save()
            },
        );
        if recorded.is_err() {
            // Without a record it could not be undone later, so it is undone now.
            let family = self.prefix.family();
            restore(family, &prefix, self.before.as_ref())?;
        }
        recorded
    }
}

/// What became of a route that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undone {
    /// It is as it was before; the text is the command.
    Restored(String),
    /// Somebody has changed it since, so it was left; the text is the prefix.
    Left(String),
}

/// Undoes the changes to routes in this namespace for which `wanted` holds, the newest first.
///
/// # Errors
/// When `ip` refuses; what has been undone until then is no longer on record.
pub fn undo(wanted: impl Fn(&Route) -> bool) -> Result<Vec<Undone>, KernelError> {
    let namespace = here()?;
    let mut held = Held::open(Path::new(FOLDER))?;
    let mut undone = Vec::new();
    while let Some(at) =
        held.state.routes.iter().rposition(|route| route.namespace == namespace && wanted(route))
    {
        let route = held.state.routes.remove(at);
        let lines = show(&route.family, &["exact", &route.prefix])?;
        if lines.iter().any(|line| line.is(&route.after)) {
            let before = route.before.as_deref().map(Line::read);
            undone.push(Undone::Restored(restore(&route.family, &route.prefix, before.as_ref())?));
        } else {
            undone.push(Undone::Left(route.prefix));
        }
        held.save()?;
    }
    held.save()?;
    Ok(undone)
}

/// The changes on record, of all namespaces.
///
/// # Errors
/// When the record cannot be read.
pub fn recorded() -> Result<Vec<Route>, KernelError> {
    if !Path::new(FOLDER).exists() {
        return Ok(Vec::new());
    }
    Ok(Held::open(Path::new(FOLDER))?.state.routes)
}

/// Routes of this namespace that name a controller of ours, whoever wrote them, as `ip route` prints them.
///
/// # Errors
/// When `ip` fails.
pub fn in_use(laws: &[Law]) -> Result<Vec<String>, KernelError> {
    let mut found = Vec::new();
    for family in ["-4", "-6"] {
        for line in show(family, &["table", "all"])? {
            if laws.iter().any(|law| line.controller() == Some(law.algorithm())) {
                found.push(line.to_string());
            }
        }
    }
    Ok(found)
}

/// Makes a route what it was and returns the command.
fn restore(family: &str, prefix: &str, before: Option<&Line>) -> Result<String, KernelError> {
    let mut command = vec![family.to_owned(), "route".to_owned()];
    match before {
        Some(line) => {
            command.push("replace".to_owned());
            command.extend(line.words());
        }
        None => command.extend(["del".to_owned(), prefix.to_owned()]),
    }
    ip(&command)?;
    Ok(format!("ip {}", command.join(" ")))
}

fn here() -> Result<u64, KernelError> {
    let found = namespaces::current();
    found
        .map(|found| found.number)
        .map_err(|source| KernelError::File { path: "/proc/thread-self/ns/net".into(), source })
}

/// What `ip route show` prints of the main table, in the order in which the kernel looks.
fn show(family: &str, selector: &[&str]) -> Result<Vec<Line>, KernelError> {
    let mut words = vec!["-o".to_owned(), family.to_owned(), "route".to_owned(), "show".to_owned()];
    words.extend(selector.iter().map(|word| (*word).to_owned()));
    Ok(ip(&words)?.lines().map(Line::read).collect())
}

/// Runs `ip` and returns what it prints.
fn ip(words: &[String]) -> Result<String, KernelError> {
    let shown = format!("ip {}", words.join(" "));
    let output = Command::new("ip").args(words).stdin(Stdio::null()).output().map_err(|error| {
        KernelError::Request(format!(
            "`{shown}`: {error}; routes take the program ip: apt-get install iproute2"
        ))
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    let rights = if said.contains("not permitted") {
        "; it takes CAP_NET_ADMIN in this network namespace: sudo skyhaul ..."
    } else {
        ""
    };
    Err(KernelError::Request(format!("`{shown}` failed: {said}{rights}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_network_or_a_host_and_nothing_else() {
        for (text, shown) in [
            ("203.0.113.0/24", "203.0.113.0/24"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("10.77.2.2", "10.77.2.2/32"),
            ("2001:db8::/48", "2001:db8::/48"),
            ("::/0", "::/0"),
            ("fd77:2::2", "fd77:2::2/128"),
        ] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), shown);
        }
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "example.org", "10.0.0.0/x", "10.0.0.0/-1"] {
            let message = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(message.contains("expected a network"), "{text}: {message}");
        }
        for text in ["10.0.0.1/24", "2001:db8::1/48", "128.0.0.0/0"] {
            let message = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(message.contains("bits set behind its prefix"), "{text}: {message}");
        }
    }
}
