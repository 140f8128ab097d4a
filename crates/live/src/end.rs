//! A running terminal or gateway: config in, doors, tunnel and exit joined, until told to stop.
//!
//! Both ends are built alike. A terminal opens the channel and a gateway waits for it; in everything else either may
//! take connections in and let them out.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{getrlimit, setrlimit, Resource};
use skyhaul_cc::controller::Setup;
use skyhaul_cc::registry::{self, UnknownController};
use skyhaul_cc::units::{Bytes, Rate};
use skyhaul_pep::auth::{PublicKey, SecretKey};
use skyhaul_pep::frame::Refusal;
use skyhaul_pep::rollback::Settings;
use skyhaul_pep::Tuning;
use tokio::task::{JoinSet, LocalSet};
use tracing::{debug, info, warn};

use crate::config::{Channel, Config, ConfigError, Link, Peer, Prefix};
use crate::driver::{self, Driver, StartError, TunnelHandle};
use crate::egress::Exit;
use crate::ingress::{BindError, Ingress, Shown, TransparentPorts};
use crate::intercept::{Forwarding, InterceptError, Interception, Rules};
use crate::keys::{self, KeyFileError};
use crate::loops::{self, Loops};
use crate::memory::Memory;
use crate::relay::Incoming;
use crate::status;
use crate::ways::Switch;

/// A terminal or gateway that is ready to run.
pub struct End {
    config: Rc<Config>,
    secret: SecretKey,
}

/// Why an end cannot run.
#[derive(Debug)]
pub enum EndError {
    /// Its secret key.
    Key(KeyFileError),
    /// Its controller does not fit its link.
    Controller(UnknownController),
    /// It would lead traffic into itself, on this host.
    Loop(Box<ConfigError>),
    /// One of its listeners.
    Bind(BindError),
    /// The channel's socket, keys or name.
    Start(StartError),
    /// Firewall rules and routes.
    Intercept(InterceptError),
    /// The system, when already running.
    System(io::Error),
}

impl End {
    /// Reads the key that the config names and tries what can be tried without opening anything.
    ///
    /// # Errors
    /// When the key cannot be used or the controller does not fit the link.
    pub fn new(config: Config) -> Result<End, EndError> {
        let secret = keys::read(&config.secret_file).map_err(EndError::Key)?;
        registry::build(&config.link.controller, &setup(&config.link)).map_err(EndError::Controller)?;
        Ok(End { config: Rc::new(config), secret })
    }

    /// The public key that the other end must have in its config.
    pub fn public_key(&self) -> PublicKey {
        self.secret.public()
    }

    /// Runs until `stop` completes; `started` hears a line of text once everything is open. Then open connections are
    /// reset, the other end is told, and rules and routes are removed.
    ///
    /// # Errors
    /// When something cannot be opened, or the channel's socket fails for good.
    pub async fn run(
        self,
        stop: impl Future<Output = ()>,
        started: impl FnOnce(String),
    ) -> Result<(), EndError> {
        raise_descriptor_limit();
        let config = self.config;
        loops::check_host(&config, gateway_address(&config).await).map_err(EndError::Loop)?;
        let ingress = Ingress::bind(&config).map_err(EndError::Bind)?;
        let names = config.peers.iter().map(|peer| (peer.key, peer.name.clone())).collect();
        let memory = Memory::open(&config.memory);
        let seed = keys::by_chance().map_err(EndError::System)?;
        let pep = pep_config(&config, &self.secret, &memory, seed);
        let (driver, tunnel) =
            Driver::start(role(&config.channel), pep, names).await.map_err(EndError::Start)?;
        let interception = if config.is_transparent() {
            let forwarding = Forwarding::here();
            if let Some(warning) = forwarding.warning().filter(|_| config.intercept.is_some()) {
                warn!("{warning}");
            }
            let rules = Rules::new(&config, ingress.transparent_ports()).on(forwarding);
            Some(Interception::start(&rules).map_err(EndError::Intercept)?)
        } else {
            None
        };
        started(summary(&config, &ingress, &self.secret.public()));

        let local = LocalSet::new();
        let mut drive = local.spawn_local(driver.run());
        let mut doors = ingress.addresses();
        doors.extend(config.doors());
        let loops = Rc::new(Loops::new(doors));
        let switch = Rc::new(Switch::new(Rc::clone(&config), tunnel.clone(), Rc::clone(&loops)));
        let ingress = ingress.noting(tunnel.exceptions());
        let outward = local.spawn_local(take_in(ingress, Rc::clone(&switch)));
        let inward =
            local.spawn_local(let_out(Peers { config: Rc::clone(&config), tunnel: tunnel.clone(), loops }));
        let telling = local.spawn_local(status::say_when_asked(tunnel.clone(), Rc::clone(&switch)));
        let remembering = local.spawn_local(Arc::clone(&memory).tend(tunnel.clone()));
        let outcome = local
            .run_until(async {
                tokio::select! {
                    () = stop => Ok(()),
                    failed = &mut drive => Err(EndError::System(failed.map_or_else(io::Error::other, |ended| {
                        ended.err().unwrap_or_else(|| io::Error::other("the channel's driver ended"))
                    }))),
                }
            })
            .await;
        // First the rules: new connections shall take their usual way at once. Then what is open is reset.
        drop(interception);
        outward.abort();
        inward.abort();
        remembering.abort();
        telling.abort();
        memory.close(&tunnel);
        if outcome.is_ok() {
            local.run_until(tunnel.shut_down()).await;
        }
        info!("{} stopped; {}", config.role(), switch.ways());
        outcome
    }
}

/// The configured peers and the channels to them.
#[derive(Clone)]
struct Peers {
    config: Rc<Config>,
    tunnel: TunnelHandle,
    loops: Rc<Loops>,
}

impl Peers {
    fn networks(&self, key: PublicKey) -> &[Prefix] {
        let peer: Option<&Peer> = self.config.peers.iter().find(|peer| peer.key == key);
        peer.map_or(&[], |peer| &peer.networks)
    }
}

/// Connections from here, each its way.
async fn take_in(ingress: Ingress, switch: Rc<Switch>) {
    let serve = ingress.serve({
        let switch = Rc::clone(&switch);
        move |arrival| {
            let switch = Rc::clone(&switch);
            async move { switch.lead(arrival).await }
        }
    });
    tokio::select! {
        () = serve => {}
        () = switch.watch() => {}
    }
}

/// Connections from the other end to here.
async fn let_out(peers: Peers) {
    let exit = Rc::new(Exit::new(&peers.config).without(Rc::clone(&peers.loops)));
    let mut flows = JoinSet::new();
    loop {
        let incoming = peers.tunnel.next_incoming().await;
        while flows.try_join_next().is_some() {}
        flows.spawn_local(let_one_out(incoming, Rc::clone(&exit), peers.clone()));
    }
}

async fn let_one_out(incoming: Incoming, exit: Rc<Exit>, peers: Peers) {
    if incoming.open.source.is_some_and(|source| peers.loops.is_present(source.ip())) {
        warn!(
            "{}: refused, it comes from a client of this side: the other end takes in what this one makes; name fewer \
             devices or networks in its [intercept]",
            Shown(&incoming.open.destination)
        );
        return incoming.refuse(Refusal::NotAllowed);
    }
    let outcome = tokio::select! {
        outcome = exit.connect(&incoming.open, peers.networks(incoming.peer)) => outcome,
        () = incoming.given_up() => return,
    };
    match outcome {
        Ok(server) => incoming.accept(server).await,
        Err(why) => {
            debug!("{}: {why}", Shown(&incoming.open.destination));
            incoming.refuse(why);
        }
    }
}

/// Where a terminal's gateway is, if its name can be looked up at once; the driver tries again and again.
async fn gateway_address(config: &Config) -> Option<SocketAddr> {
    let (Channel::Terminal { gateway, .. }, Some(_)) = (&config.channel, &config.intercept) else {
        return None;
    };
    let found = tokio::time::timeout(LOOK_UP_TIME, tokio::net::lookup_host(gateway.to_string())).await;
    found.ok()?.ok()?.next()
}

fn role(channel: &Channel) -> driver::Role {
    match channel {
        Channel::Terminal { gateway, bind } => {
            driver::Role::Connect { gateway: gateway.to_string(), bind: *bind }
        }
        Channel::Gateway { listen } => driver::Role::Listen(*listen),
    }
}

fn pep_config(
    config: &Config,
    secret: &SecretKey,
    memory: &Arc<Memory>,
    seed: [u8; 32],
) -> skyhaul_pep::Config {
    let (name, setup, memory) = (config.link.controller.clone(), setup(&config.link), Arc::clone(memory));
    skyhaul_pep::Config {
        secret: secret.clone(),
        peers: config.peers.iter().map(|peer| peer.key).collect(),
        controller: Arc::new(move |way| {
            let setup = Setup { history: way.history.or_else(|| memory.recall(way)), ..setup };
            registry::build(&name, &setup).expect("End::new has built the same controller before")
        }),
        tuning: Tuning {
            mtu: config.link.mtu.0 as u16,
            initial_rtt: config.link.rtt,
            send_window: send_window(&config.link, config.limits.memory),
            shim: config.wire.shim,
            repair: config.wire.repair,
            flows: config.limits.flows as u32,
            rollback: Settings {
                enabled: config.rollback.enabled,
                detect: config.rollback.detect,
                hold: config.rollback.hold,
                carriage: config.rollback.carriage,
                give_up: config.rollback.give_up,
            },
            give_up: config.rollback.give_up,
            ..Tuning::default()
        },
        memory: config.limits.memory,
        seed,
    }
}

fn setup(link: &Link) -> Setup {
    let initial_window = link.mtu * registry::first_flight(&link.controller);
    Setup {
        link_rate: link.send_rate,
        initial_rtt: link.rtt,
        initial_window,
        policy: link.policy,
        ..Setup::new(link.mtu)
    }
}

/// Four bandwidth-delay products, see [`Tuning::send_window`]; what is not known is guessed generously.
fn send_window(link: &Link, memory: Bytes) -> Bytes {
    let known = |rate: Rate| rate.bdp(link.rtt) * 4;
    link.send_rate
        .map_or(Tuning::default().send_window, known)
        .clamp(LEAST_SEND_WINDOW, memory.max(LEAST_SEND_WINDOW))
}

/// One line on what this end does and who it is.
fn summary(config: &Config, ingress: &Ingress, key: &PublicKey) -> String {
    let mut parts = vec![match &config.channel {
        Channel::Terminal { gateway, .. } => format!("channel to {gateway}"),
        Channel::Gateway { listen } => format!("channel on {listen}"),
    }];
    if let Some(intercept) = &config.intercept {
        let TransparentPorts { v6, .. } = ingress.transparent_ports();
        let families = if v6.is_some() { "" } else { " (IPv4 only)" };
        parts.push(format!("intercepts {}{families}", intercept.interfaces.join(", ")));
    }
    parts.extend(ingress.summary());
    format!("{} ready: {}; key {key}", config.role(), parts.join("; "))
}

/// Every connection takes a descriptor and the usual soft limit of 1024 is for programs that use select().
fn raise_descriptor_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_err() {
            debug!("file descriptors stay limited to {soft}");
        }
    }
}

impl fmt::Display for EndError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndError::Key(error) => error.fmt(f),
            EndError::Controller(error) => error.fmt(f),
            EndError::Loop(error) => error.fmt(f),
            EndError::Bind(error) => error.fmt(f),
            EndError::Start(error) => error.fmt(f),
            EndError::Intercept(error) => error.fmt(f),
            EndError::System(error) => error.fmt(f),
        }
    }
}
impl std::error::Error for EndError {}

/// Enough for a slow link whose rate was given too low.
const LEAST_SEND_WINDOW: Bytes = Bytes::mib(4);
/// For a name server that answers.
const LOOK_UP_TIME: Duration = Duration::from_secs(2);
