//! `skyhaul pair`: the keys and config files of both ends.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use skyhaul_cc::units::{Duration, Rate};
use skyhaul_pep::auth::{KeyError, PublicKey};

use crate::config::{
    Config, ConfigError, HostPort, PathMemory, Prefix, Role, DEFAULT_CONTROLLER, DEFAULT_RTT,
};
use crate::keys::{self, KeyFileError, Replace};

mod template;

/// What the two config files shall say.
#[derive(Clone, Debug)]
pub struct Plan {
    /// UDP address under which the terminal reaches the gateway.
    pub gateway: HostPort,
    /// Name of the terminal, for the gateway's messages.
    pub name: String,
    /// Networks behind the terminal.
    pub networks: Vec<Prefix>,
    /// Device of the terminal on which clients' packets arrive; interception is off without it.
    pub terminal_lan: Option<String>,
    /// Device of the gateway on which packets for the terminal's networks arrive.
    pub gateway_lan: Option<String>,
    /// Destinations see the client's own address instead of the proxy's.
    pub preserve_source: bool,
    /// Controller of both ends.
    pub controller: String,
    /// IP rate from the terminal to the gateway.
    pub terminal_rate: Option<Rate>,
    /// IP rate from the gateway to the terminal.
    pub gateway_rate: Option<Rate>,
    /// Round trip of the link.
    pub rtt: Duration,
    /// Where the terminal's SOCKS5 proxy listens.
    pub socks5: Option<SocketAddr>,
    /// Where the terminal's HTTP CONNECT proxy listens.
    pub http_connect: Option<SocketAddr>,
    /// Path memory of both ends.
    pub memory: PathMemory,
}

/// The files of a pair in their folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Config of the terminal.
    pub terminal: PathBuf,
    /// Secret key of the terminal.
    pub terminal_key: PathBuf,
    /// Config of the gateway.
    pub gateway: PathBuf,
    /// Secret key of the gateway.
    pub gateway_key: PathBuf,
}

/// Why no pair was made.
#[derive(Debug)]
pub enum PairError {
    /// A file of the pair is already there.
    Exists(PathBuf),
    /// A file could not be written.
    Write(PathBuf, io::Error),
    /// A key could not be made.
    Key(KeyError),
    /// A key could not be written.
    KeyFile(KeyFileError),
    /// The plan asks for something that an end would not accept.
    Config(ConfigError),
}

impl Plan {
    /// A pair without interception: the terminal has a SOCKS5 proxy on loopback, port 1080.
    pub fn new(gateway: HostPort) -> Plan {
        Plan {
            gateway,
            name: "terminal".to_owned(),
            networks: Vec::new(),
            terminal_lan: None,
            gateway_lan: None,
            preserve_source: false,
            controller: DEFAULT_CONTROLLER.to_owned(),
            terminal_rate: None,
            gateway_rate: None,
            rtt: DEFAULT_RTT,
            socks5: Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1080)),
            http_connect: None,
            memory: PathMemory::default(),
        }
    }

    /// Makes new keys for both ends and writes the four files into `folder`, which is made if it is missing.
    ///
    /// # Errors
    /// When a file exists (unless `replace` says otherwise), the plan asks for something that an end would not
    /// accept, or a file cannot be written. Only in the last case some files may be there.
    pub fn write(&self, folder: &Path, replace: Replace) -> Result<Pair, PairError> {
        let pair = Pair {
            terminal: folder.join("terminal.toml"),
            terminal_key: folder.join("terminal.key"),
            gateway: folder.join("gateway.toml"),
            gateway_key: folder.join("gateway.key"),
        };
        if replace == Replace::Never {
            let files = [&pair.terminal, &pair.terminal_key, &pair.gateway, &pair.gateway_key];
            if let Some(there) = files.into_iter().find(|file| file.symlink_metadata().is_ok()) {
                return Err(PairError::Exists(there.clone()));
            }
        }
        let terminal = keys::generate().map_err(PairError::Key)?;
        let gateway = keys::generate().map_err(PairError::Key)?;
        let terminal_text = self.terminal_config(gateway.public());
        let gateway_text = self.gateway_config(terminal.public());
        Config::parse(&terminal_text, &pair.terminal, Role::Terminal).map_err(PairError::Config)?;
        Config::parse(&gateway_text, &pair.gateway, Role::Gateway).map_err(PairError::Config)?;

        fs::create_dir_all(folder).map_err(|error| PairError::Write(folder.to_owned(), error))?;
        for (file, key) in [(&pair.terminal_key, terminal), (&pair.gateway_key, gateway)] {
            keys::write(file, &key, replace).map_err(PairError::KeyFile)?;
        }
        for (file, text) in [(&pair.terminal, terminal_text), (&pair.gateway, gateway_text)] {
            keys::write_private(file, text.as_bytes(), replace, 0o644)
                .map_err(|error| PairError::Write(file.clone(), error))?;
        }
        Ok(pair)
    }

    /// The terminal's config file, for a gateway with this key.
    pub fn terminal_config(&self, gateway: PublicKey) -> String {
        template::terminal(self, gateway)
    }

    /// The gateway's config file, for a terminal with this key.
    pub fn gateway_config(&self, terminal: PublicKey) -> String {
        template::gateway(self, terminal)
    }

    /// Where the gateway listens: on every address, IPv6 only when it was named by an IPv6 address.
    fn gateway_listen(&self) -> SocketAddr {
        let ip = match self.gateway.literal() {
            Some(SocketAddr::V6(_)) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        SocketAddr::new(ip, self.gateway.port)
    }
}

impl fmt::Display for PairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PairError::Exists(file) => write!(
                f,
                "{}: there already; --force makes new keys, after which the old ones open no door",
                file.display()
            ),
            PairError::Write(file, error) => write!(f, "{}: {error}", file.display()),
            PairError::Key(error) => error.fmt(f),
            PairError::KeyFile(error) => error.fmt(f),
            PairError::Config(error) => error.fmt(f),
        }
    }
}
impl std::error::Error for PairError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Channel;

    fn full() -> Plan {
        Plan {
            name: "ship".to_owned(),
            networks: vec!["10.77.1.0/24".parse().unwrap(), "fd77:1::/64".parse().unwrap()],
            terminal_lan: Some("lan".to_owned()),
            gateway_lan: Some("eth1".to_owned()),
            preserve_source: true,
            controller: "rate".to_owned(),
            terminal_rate: Some(Rate::mbit(10)),
            gateway_rate: Some(Rate::mbit(150)),
            rtt: Duration::from_millis(540),
            http_connect: Some("127.0.0.1:8080".parse().unwrap()),
            ..Plan::new("gw.example.net:4433".parse().unwrap())
        }
    }

    #[test]
    fn a_pair_is_ready_to_use_and_each_end_knows_the_others_key() {
        let folder = tempfile::tempdir().unwrap();
        let pair = full().write(&folder.path().join("new"), Replace::Never).unwrap();
        let terminal = Config::load(&pair.terminal, Role::Terminal).unwrap();
        let gateway = Config::load(&pair.gateway, Role::Gateway).unwrap();
        let terminal_key = keys::read(&terminal.secret_file).unwrap();
        let gateway_key = keys::read(&gateway.secret_file).unwrap();
        assert_eq!(terminal.peers[0].key, gateway_key.public());
        assert_eq!(gateway.peers[0].key, terminal_key.public());
        assert_eq!(gateway.peers[0].name, "ship");
        assert_eq!(gateway.peers[0].networks, full().networks);
        assert_eq!(terminal.link.send_rate, Some(Rate::mbit(10)));
        assert_eq!(gateway.link.send_rate, Some(Rate::mbit(150)));
        assert_eq!((terminal.link.rtt, gateway.link.rtt), (full().rtt, full().rtt));
        assert_eq!(terminal.intercept.as_ref().unwrap().interfaces, ["lan"]);
        assert_eq!(gateway.intercept.as_ref().unwrap().interfaces, ["eth1"]);
        assert!(terminal.intercept.unwrap().preserve_source && gateway.egress.preserve_source);
        assert!(gateway.intercept.unwrap().preserve_source && terminal.egress.preserve_source);
        assert_eq!(terminal.socks5.len() + terminal.http_connect.len(), 2);
        assert_eq!(terminal.channel, Channel::Terminal { gateway: full().gateway, bind: None });
    }

    #[test]
    fn the_plainest_pair_is_ready_too() {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan::new("[fd77::2]:4433".parse().unwrap());
        let pair = plan.write(folder.path(), Replace::Never).unwrap();
        let terminal = Config::load(&pair.terminal, Role::Terminal).unwrap();
        let gateway = Config::load(&pair.gateway, Role::Gateway).unwrap();
        assert!(!terminal.is_transparent() && !gateway.is_transparent());
        assert_eq!(terminal.socks5.len(), 1);
        assert_eq!(gateway.channel, Channel::Gateway { listen: "[::]:4433".parse().unwrap() });
    }

    #[test]
    fn every_key_that_a_template_mentions_in_a_comment_is_a_key() {
        // Commented-out keys are switched on one at a time; the reader must know them and like their values.
        let key = keys::generate().unwrap().public();
        let plan = Plan::new("gw.example.net:4433".parse().unwrap());
        for (role, text) in
            [(Role::Terminal, plan.terminal_config(key)), (Role::Gateway, plan.gateway_config(key))]
        {
            let lines: Vec<&str> = text.lines().collect();
            let mut tried = 0;
            for (index, line) in lines.iter().enumerate() {
                let Some(setting) = line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')) else {
                    continue;
                };
                // A commented section is switched on together with its keys.
                let header = setting.starts_with('[');
                let on: Vec<&str> = lines
                    .iter()
                    .enumerate()
                    .map(|(other, line)| {
                        let of_section = header
                            && other > index
                            && lines[index..=other].iter().all(|line| !line.is_empty());
                        match line.strip_prefix('#') {
                            Some(rest) if other == index || of_section && !rest.starts_with(' ') => rest,
                            _ => line,
                        }
                    })
                    .collect();
                if !header && in_commented_section(&lines, index) {
                    continue;
                }
                tried += 1;
                let read = Config::parse(&on.join("\n"), Path::new("file.toml"), role);
                assert!(read.is_ok(), "{role}, line {}: {}", index + 1, read.unwrap_err());
            }
            assert!(tried > 8, "{role}: only {tried} settings tried");
        }
    }

    #[test]
    fn the_operators_guide_explains_every_key_of_both_files() {
        let guide = include_str!("../../../docs/operator.md");
        let key = keys::generate().unwrap().public();
        for text in [full().terminal_config(key), full().gateway_config(key)] {
            for line in text.lines().map(|line| line.trim_start_matches('#')) {
                let Some((name, _)) = line.split_once(" = ").filter(|(name, _)| !name.contains(' ')) else {
                    continue;
                };
                let explained = guide.contains(&format!("`{name}`")) || guide.contains(&format!(".{name}`"));
                assert!(explained, "docs/operator.md does not explain {name}");
            }
        }
    }

    fn in_commented_section(lines: &[&str], index: usize) -> bool {
        lines[..index].iter().rev().take_while(|line| !line.is_empty()).any(|line| line.starts_with("#["))
    }

    #[test]
    fn a_plan_that_no_end_would_accept_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan { gateway_rate: None, ..full() };
        let error = plan.write(folder.path(), Replace::Never).unwrap_err().to_string();
        assert!(error.contains("gateway.toml: line ") && error.contains("link.send_rate"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_pair_is_never_overwritten_unless_asked() {
        let folder = tempfile::tempdir().unwrap();
        let plan = full();
        let pair = plan.write(folder.path(), Replace::Never).unwrap();
        let before = keys::read(&pair.gateway_key).unwrap().public();
        fs::remove_file(&pair.terminal).unwrap();
        let error = plan.write(folder.path(), Replace::Never).unwrap_err().to_string();
        assert!(error.contains("terminal.key: there already; --force"), "{error}");
        assert!(!pair.terminal.exists(), "nothing is written when something is there");
        assert_eq!(keys::read(&pair.gateway_key).unwrap().public(), before);
        plan.write(folder.path(), Replace::Existing).unwrap();
        assert_ne!(keys::read(&pair.gateway_key).unwrap().public(), before);
    }
}
