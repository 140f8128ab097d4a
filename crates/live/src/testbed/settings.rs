//! What a scheme sets on the hosts of a run, as data: it is applied, and the same is printed beside the results.

use std::fmt;

use skyhaul_sim::scenario::Dir;

use super::scheme::{Boxes, Buffers, Control, Far, Scheme, DEFAULT, TUNED};
use super::LabError;
use crate::emulate::Hosts;
use crate::netns::Namespace;

/// Parameters of the four hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The client host.
    pub client: Parameters,
    /// The server host.
    pub server: Parameters,
    /// The terminal's host, where TCP ends there.
    pub terminal: Parameters,
    /// The gateway's host, where TCP ends there.
    pub gateway: Parameters,
}

/// Parameters of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Keys and values below /proc/sys.
    pub sysctls: Vec<(&'static str, String)>,
    /// Attributes of the default route (ip-route(8)).
    pub route: Vec<(&'static str, String)>,
}

impl Settings {
    /// What `scheme` sets when the payload goes in the direction `data`.
    pub fn of(scheme: &Scheme, data: Dir) -> Settings {
        let both = |host: Parameters| Settings { client: host.clone(), server: host, ..Settings::default() };
        let at = |sender: Parameters, receiver: Parameters| match data {
            Dir::Forward => Settings { client: sender, server: receiver, ..Settings::default() },
            Dir::Back => Settings { client: receiver, server: sender, ..Settings::default() },
        };
        let stock = || Parameters::new(DEFAULT, Control::CUBIC);
        match scheme {
            Scheme::Direct(kernel) => both(Parameters::new(
                kernel.buffers(),
                Control::named(kernel.algorithm()).unwrap_or(Control::CUBIC),
            )),
            Scheme::Tuned => both(Parameters::tuned()),
            Scheme::KernelBoth(control) => both(Parameters::new(TUNED, *control)),
            Scheme::KernelOne(control, far) => at(Parameters::new(TUNED, *control), Parameters::far(*far)),
            Scheme::KernelFeedback => at(Parameters::new(TUNED, Control::CUBIC), Parameters::feedback()),
            // Room for the window only; what else the hosts have is their own.
            Scheme::FecTunnel(_) => both(Parameters::new(TUNED, Control::CUBIC)),
            Scheme::PepSplit(_, boxes) => {
                let (hosts, receiver) = match boxes {
                    Boxes::Sender(far) => (at(stock(), Parameters::far(*far)), false),
                    Boxes::Both => (both(stock()), true),
                };
                let (terminal, gateway) = match data {
                    Dir::Forward => (true, receiver),
                    Dir::Back => (receiver, true),
                };
                let splits = |yes: bool| if yes { Parameters::splitter() } else { Parameters::default() };
                Settings { terminal: splits(terminal), gateway: splits(gateway), ..hosts }
            }
            // The short connections on both sides are those of hosts that nobody has tuned.
            Scheme::Skyhaul(_) => both(stock()),
        }
    }

    /// Sets all of it.
    ///
    /// # Errors
    /// When the kernel lacks an algorithm or refuses a value.
    pub fn apply(&self, hosts: &Hosts) -> Result<(), LabError> {
        for (host, parameters, network) in [
            (&hosts.client, &self.client, Some(1)),
            (&hosts.server, &self.server, Some(2)),
            (&hosts.terminal, &self.terminal, None),
            (&hosts.gateway, &self.gateway, None),
        ] {
            parameters.apply(host, network)?;
        }
        Ok(())
    }
}

impl Parameters {
    /// Buffers and congestion control.
    fn new(buffers: Buffers, control: Control) -> Parameters {
        Parameters {
            sysctls: vec![
                ("net.ipv4.tcp_rmem", buffers.receive.to_owned()),
                ("net.ipv4.tcp_wmem", buffers.send.to_owned()),
            ],
            // By route: net.ipv4.tcp_congestion_control of a namespace takes only algorithms that the machine allows
            // to everybody, and which those are depends on how the kernel was built.
            route: vec![("congctl", control.algorithm().to_owned())],
        }
    }

    /// Scheme 1: everything that helps a long fat path and needs no other kernel. The paper names a larger initial
    /// window and a shorter timeout; its figure with the values is missing.
    fn tuned() -> Parameters {
        let mut tuned = Parameters::new(TUNED, Control::CUBIC);
        tuned.sysctls = vec![
            // The middle number is what a connection starts with: a window of several megabytes at once.
            ("net.ipv4.tcp_rmem", "4096 4194304 134217728".to_owned()),
            ("net.ipv4.tcp_wmem", "4096 4194304 134217728".to_owned()),
            ("net.ipv4.tcp_slow_start_after_idle", "0".to_owned()),
            ("net.ipv4.tcp_no_metrics_save", "1".to_owned()),
            ("net.ipv4.tcp_early_retrans", "3".to_owned()),
            ("net.ipv4.tcp_recovery", "1".to_owned()),
            ("net.ipv4.tcp_thin_linear_timeouts", "1".to_owned()),
            ("net.ipv4.tcp_comp_sack_nr", "0".to_owned()),
        ];
        tuned.route.extend([
            ("initcwnd", TUNED_WINDOW.to_string()),
            ("initrwnd", TUNED_ROOM.to_string()),
            ("rto_min", "50ms".to_owned()),
        ]);
        tuned
    }

    /// The far end of a one-sided scheme: its kernel is not touched.
    fn far(far: Far) -> Parameters {
        match far {
            Far::Roomy => Parameters::new(TUNED, Control::CUBIC),
            Far::Stock => Parameters::new(DEFAULT, Control::CUBIC),
        }
    }

    /// Scheme 3 at a receiver: an ACK for every segment, no SACK held back, and a window that is wide from the first
    /// segment on.
    fn feedback() -> Parameters {
        let mut feedback = Parameters::new(TUNED, Control::CUBIC);
        feedback.sysctls = vec![
            ("net.ipv4.tcp_rmem", "4096 4194304 134217728".to_owned()),
            ("net.ipv4.tcp_wmem", TUNED.send.to_owned()),
            ("net.ipv4.tcp_comp_sack_nr", "0".to_owned()),
        ];
        feedback.route.extend([("quickack", "1".to_owned()), ("initrwnd", TUNED_ROOM.to_string())]);
        feedback
    }

    /// A router that splits TCP. Its control is set by the splitter itself, on the link's side alone.
    fn splitter() -> Parameters {
        let mut sysctls = Parameters::new(TUNED, Control::CUBIC).sysctls;
        sysctls.push(("net.ipv4.tcp_slow_start_after_idle", "0".to_owned()));
        Parameters { sysctls, route: Vec::new() }
    }

    /// `network` is the host's own, behind whose router its default route leads.
    fn apply(&self, host: &Namespace, network: Option<u8>) -> Result<(), LabError> {
        for (key, value) in &self.sysctls {
            host.sysctl(key, value)?;
        }
        let Some(network) = network.filter(|_| !self.route.is_empty()) else { return Ok(()) };
        let attributes = words(&self.route, " ");
        for (family, router) in [("-4", format!("10.77.{network}.1")), ("-6", format!("fd77:{network}::1"))] {
            host.ip(&format!("{family} route replace default via {router} {attributes}")).map_err(
                |source| match self.route.iter().find(|(name, _)| *name == "congctl") {
                    Some((_, algorithm)) => LabError::NoAlgorithm { algorithm: algorithm.clone(), source },
                    None => LabError::Netns(source),
                },
            )?;
        }
        Ok(())
    }
}

fn words(pairs: &[(&'static str, String)], between: &str) -> String {
    let shown = |(name, value): &(&str, String)| match value.contains(' ') {
        true => format!("{name}{between}\"{value}\""),
        false => format!("{name}{between}{value}"),
    };
    pairs.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// `client, server: net.ipv4.tcp_rmem="4096 131072 134217728" ...; route congctl cubic`, hosts with the same together.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = [
            ("client", &self.client),
            ("server", &self.server),
            ("terminal", &self.terminal),
            ("gateway", &self.gateway),
        ];
        let mut shown: Vec<(Vec<&str>, &Parameters)> = Vec::new();
        for (name, parameters) in hosts.into_iter().filter(|(_, host)| **host != Parameters::default()) {
            match shown.iter_mut().find(|(_, known)| *known == parameters) {
                Some((names, _)) => names.push(name),
                None => shown.push((vec![name], parameters)),
            }
        }
        for (index, (names, parameters)) in shown.iter().enumerate() {
            let gap = if index > 0 { "; " } else { "" };
            write!(f, "{gap}{}: {}", names.join(", "), words(&parameters.sysctls, "="))?;
            if !parameters.route.is_empty() {
                write!(f, ", default route {}", words(&parameters.route, " "))?;
            }
        }
        Ok(())
    }
}

/// Segments in the first flight of scheme 1: 145 kB, 8 ms of 150 Mbit/s. Ten times the standard (RFC 6928).
const TUNED_WINDOW: u32 = 100;
/// Segments that may be under way to a receiver before it has said more.
const TUNED_ROOM: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(scheme: &str, data: Dir) -> Settings {
        Settings::of(&scheme.parse().unwrap(), data)
    }

    #[test]
    fn one_sided_schemes_leave_the_far_end_its_kernel() {
        for (data, near, far) in [(Dir::Forward, "client", "server"), (Dir::Back, "server", "client")] {
            let text = of("kernel-one:bbr/stock", data).to_string();
            let part = |host: &str| {
                let found = text.split("; ").find(|part| part.starts_with(host));
                found.unwrap_or_else(|| panic!("{host} in {text}")).to_owned()
            };
            assert!(part(near).contains("congctl bbr") && part(near).contains("134217728"), "{text}");
            assert!(part(far).contains("congctl cubic") && !part(far).contains("134217728"), "{text}");
        }
    }

    #[test]
    fn changed_feedback_is_set_where_the_payload_arrives() {
        let (up, down) = (of("kernel-one:feedback", Dir::Forward), of("kernel-one:feedback", Dir::Back));
        let quick = |host: &Parameters| host.route.contains(&("quickack", "1".to_owned()));
        assert!(quick(&up.server) && !quick(&up.client));
        assert!(quick(&down.client) && !quick(&down.server));
    }

    #[test]
    fn everything_that_is_set_is_told() {
        let text = of("tuned", Dir::Forward).to_string();
        for word in
            ["client, server: ", "initcwnd 100", "rto_min 50ms", "slow_start_after_idle=0", "congctl cubic"]
        {
            assert!(text.contains(word), "{word} in {text}");
        }
        assert_eq!(
            of("pep-split:bbr", Dir::Back).terminal,
            Parameters::default(),
            "the sender's side is the gateway"
        );
        assert!(of("pep-split:bbr", Dir::Back).to_string().contains("gateway: "));
    }

    #[test]
    fn direct_default_and_skyhaul_leave_both_hosts_as_fresh() {
        assert_eq!(of("direct:default", Dir::Forward), of("skyhaul:bbr", Dir::Forward));
        assert!(!of("direct:default", Dir::Forward).to_string().contains("134217728"));
    }
}
