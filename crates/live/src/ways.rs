//! Which way a connection takes that comes in here: the channel, or plain TCP from this end to its destination.
//!
//! While the channel works it is the channel. While it is down or silent, or carried inside TCP, new connections are
//! made by plain TCP at once, unless `[[destination]]` says otherwise; running ones are the channel's affair.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use skyhaul_pep::auth::PublicKey;
use skyhaul_pep::frame::{Open, Refusal, Target};
use skyhaul_pep::{PeerId, Standing};
use tokio::net::TcpStream;
use tokio::time::{sleep_until, Instant};
use tracing::{debug, info, warn};

use crate::config::{Config, Preference};
use crate::driver::TunnelHandle;
use crate::egress::Exit;
use crate::ingress::{Arrival, Denial, Dialect, Entrance, Shown};
use crate::loops::Loops;
use crate::room::Rooms;

mod direct;

/// How the channel to a peer fares, as new connections see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// It works.
    Up,
    /// UDP does not get through and it is carried inside TCP.
    Carried,
    /// It is there and nothing gets through.
    Silent,
    /// There is none.
    Down,
}

/// What a new connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It goes through the channel.
    Channel,
    /// It is made by plain TCP from here.
    Direct,
    /// It is made by plain TCP from here, and goes through the channel if that fails.
    DirectFirst,
    /// It is refused.
    Nothing,
}

/// The way of a new connection. Without `rollback` (`[rollback] enabled`) whoever wants the channel waits for it as
/// long as it is there.
pub fn choose(health: Health, preference: Preference, rollback: bool) -> Way {
    match (preference, health) {
        (Preference::Never, _) => Way::Direct,
        (_, Health::Up) => Way::Channel,
        (Preference::Prefer, Health::Carried) if rollback => Way::DirectFirst,
        (Preference::Prefer, Health::Silent | Health::Down) if rollback => Way::Direct,
        (_, Health::Carried) => Way::Channel,
        (_, Health::Silent) if !rollback => Way::Channel,
        (_, Health::Silent | Health::Down) => Way::Nothing,
    }
}

impl From<Option<Standing>> for Health {
    fn from(standing: Option<Standing>) -> Self {
        match standing {
            None => Health::Down,
            Some(Standing::Up) => Health::Up,
            Some(Standing::Carried) => Health::Carried,
            Some(Standing::Silent) => Health::Silent,
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Health::Up => "up",
            Health::Carried => "carried inside TCP",
            Health::Silent => "silent",
            Health::Down => "down",
        })
    }
}

/// How many connections have taken which way since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// Through the channel, by UDP.
    pub channel: Cell<u64>,
    /// Through the channel while it was carried inside TCP.
    pub carriage: Cell<u64>,
    /// By plain TCP from here.
    pub direct: Cell<u64>,
    /// None: refused here, without asking the other end.
    pub refused: Cell<u64>,
}

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ways { channel, carriage, direct, refused } = self;
        write!(
            f,
            "{} connections by channel, {} by channel inside TCP, {} direct, {} refused",
            channel.get(),
            carriage.get(),
            direct.get(),
            refused.get()
        )
    }
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

/// Leads each connection that comes in here its way.
pub struct Switch {
    config: Rc<Config>,
    tunnel: TunnelHandle,
    exit: Exit,
    rooms: Rooms,
    loops: Rc<Loops>,
    ways: Ways,
    began: Instant,
    /// Peers whose channel was up at some time.
    met: RefCell<BTreeSet<PublicKey>>,
}

impl Switch {
    /// For the connections of one end.
    pub fn new(config: Rc<Config>, tunnel: TunnelHandle, loops: Rc<Loops>) -> Switch {
        let exit = Exit::direct(&config, Rc::clone(&loops));
        let (ways, met) = (Ways::default(), RefCell::default());
        let rooms = Rooms::Tunnel(tunnel.clone());
        Switch { config, tunnel, exit, rooms, loops, ways, began: Instant::now(), met }
    }

    /// What has been counted so far.
    pub fn ways(&self) -> &Ways {
        &self.ways
    }

    /// Leads a connection its way and carries it until it ends.
    pub async fn lead(&self, arrival: Arrival) {
        let key = self.peer_for(&arrival);
        let Arrival { mut client, open, dialect, entrance, .. } = arrival;
        let shown = Shown(&open.destination);
        if matches!(open.destination, Target::Address(address) if self.loops.leads_here(address)) {
            info!("{shown}: refused, this end itself listens there");
            count(&self.ways.refused);
            return dialect.refuse(client, Denial::Loop).await;
        }
        let _present = self.loops.client(open.source);
        let mut preference = self.config.destinations.preference(&open.destination);
        if entrance == Entrance::Wire && self.is_from_other_end(&client) {
            // What the other end sends past the channel it does not want to get back through it.
            debug!("{shown}: made by the other end, passed on");
            preference = Preference::Never;
        }
        if preference != Preference::Never {
            self.first_channel(key).await;
        }
        // Each way once, the best first: what has changed while one was tried counts.
        let (mut tried_channel, mut tried_tcp) = (false, false);
        let mut why = Denial::NoChannel;
        loop {
            let way = match self.choose(key, preference) {
                Way::DirectFirst if tried_tcp => Way::Channel,
                way => way,
            };
            let outcome = match way {
                Way::Channel if !tried_channel => {
                    tried_channel = true;
                    self.by_channel(client, &open, dialect, key, preference, tried_tcp).await
                }
                Way::Direct | Way::DirectFirst if !tried_tcp => {
                    tried_tcp = true;
                    self.by_tcp(client, &open, dialect, key, preference, way).await
                }
                _ => break,
            };
            // Nothing was said to the client and nothing was taken from it: it can still go another way.
            let Err((back, refusal)) = outcome else { return };
            debug!("{shown}: {refusal}");
            (client, why) = (back, refusal.into());
        }
        if why == Denial::NoChannel {
            debug!("{shown}: {why}");
            count(&self.ways.refused);
        }
        dialect.refuse(client, why).await;
    }

    /// Logs whenever new connections begin to take another way.
    pub async fn watch(&self) {
        let mut known: BTreeMap<PublicKey, Health> = BTreeMap::new();
        let patience = self.began + self.patience();
        loop {
            let changed = self.tunnel.changed();
            for peer in &self.config.peers {
                let health = self.health(Some(peer.key));
                if health == Health::Up {
                    self.met.borrow_mut().insert(peer.key);
                }
                // At the start a channel needs a while.
                let is_news = match known.get(&peer.key) {
                    Some(&before) => before != health,
                    None => health != Health::Down || Instant::now() >= patience,
                };
                if !is_news {
                    continue;
                }
                let first = known.insert(peer.key, health).is_none();
                self.announce(&peer.name, health, first);
            }
            let first_word = async {
                if known.len() < self.config.peers.len() && Instant::now() < patience {
                    sleep_until(patience).await;
                } else {
                    pending::<()>().await;
                }
            };
            tokio::select! {
                () = changed => {}
                () = first_word => {}
            }
        }
    }

    fn announce(&self, name: &str, health: Health, first: bool) {
        let ways = &self.ways;
        let rollback = self.config.rollback.enabled;
        match choose(health, Preference::Prefer, rollback) {
            Way::Channel if first && health == Health::Up => {}
            Way::Channel => info!("the channel to {name} is {health}: new connections take it; {ways}"),
            Way::DirectFirst => {
                warn!("the channel to {name} is {health}: new connections take plain TCP where they can; {ways}");
            }
            Way::Direct => warn!("the channel to {name} is {health}: new connections take plain TCP; {ways}"),
            Way::Nothing => warn!("the channel to {name} is {health}: new connections are refused; {ways}"),
        }
    }

    /// Whose channel leads to a connection's destination.
    fn peer_for(&self, arrival: &Arrival) -> Option<PublicKey> {
        let config = &self.config;
        let named = arrival.peer.as_deref().and_then(|name| config.peer_named(name));
        let behind = match arrival.open.destination {
            Target::Address(address) => config.peer_around(address.ip()),
            Target::Name { .. } => None,
        };
        behind.or(named).or_else(|| config.only_peer()).map(|peer| peer.key)
    }

    fn channel_to(&self, key: PublicKey) -> Option<PeerId> {
        self.tunnel.peers().into_iter().find(|channel| channel.key == key).map(|channel| channel.id)
    }

    fn health(&self, key: Option<PublicKey>) -> Health {
        let peer = key.and_then(|key| self.channel_to(key));
        Health::from(peer.and_then(|peer| self.tunnel.standing(peer)))
    }

    fn choose(&self, key: Option<PublicKey>, preference: Preference) -> Way {
        choose(self.health(key), preference, self.config.rollback.enabled)
    }

    /// Whether an intercepted connection was made by the program at the other end of a channel.
    fn is_from_other_end(&self, client: &TcpStream) -> bool {
        let Ok(from) = client.peer_addr() else { return false };
        let from = from.ip().to_canonical();
        self.tunnel.peers().iter().any(|peer| peer.remote.ip().to_canonical() == from)
    }

    /// How long the channel may take before one goes without it.
    fn patience(&self) -> Duration {
        self.config.rollback.detect.max(self.config.link.rtt * 4)
    }

    /// Just after the start, waits for the channel to come up: a connection of hours shall not go without it for the
    /// sake of two round trips.
    async fn first_channel(&self, key: Option<PublicKey>) {
        let Some(key) = key.filter(|_| self.config.rollback.enabled) else { return };
        let deadline = self.began + self.patience();
        while Instant::now() < deadline && !self.met.borrow().contains(&key) {
            let changed = self.tunnel.changed();
            if self.health(Some(key)) != Health::Down {
                return;
            }
            tokio::select! {
                () = changed => {}
                () = sleep_until(deadline) => {}
            }
        }
    }

    /// Completes when a connection that waits for its destination should no longer wait for the channel.
    async fn better_without(&self, key: Option<PublicKey>, preference: Preference, tried_tcp: bool) {
        loop {
            let changed = self.tunnel.changed();
            if !tried_tcp && self.choose(key, preference) == Way::Direct {
                return;
            }
            changed.await;
        }
    }

    /// Carries a connection by the channel until it ends. Hands the client back when its destination cannot be
    /// reached, or when plain TCP has become better while it waited.
    async fn by_channel(
        &self,
        client: TcpStream,
        open: &Open,
        dialect: Dialect,
        key: Option<PublicKey>,
        preference: Preference,
        tried_tcp: bool,
    ) -> Result<(), (TcpStream, Refusal)> {
        let Some(peer) = key.and_then(|key| self.channel_to(key)) else {
            return Err((client, Refusal::Unreachable));
        };
        match self.health(key) {
            Health::Carried => count(&self.ways.carriage),
            _ => count(&self.ways.channel),
        }
        let greeting = match dialect {
            Dialect::Silent => None,
            Dialect::Socks5 | Dialect::HttpConnect => Some(dialect.accepted()),
        };
        let leave = self.better_without(key, preference, tried_tcp);
        self.tunnel.carry_unless(peer, open, client, greeting, leave).await
    }

    /// Makes a connection from here and carries it until it ends. Hands the client back when its destination cannot
    /// be reached.
    async fn by_tcp(
        &self,
        client: TcpStream,
        open: &Open,
        dialect: Dialect,
        key: Option<PublicKey>,
        preference: Preference,
        way: Way,
    ) -> Result<(), (TcpStream, Refusal)> {
        let limit = match way {
            // There is another way, which shall not come too late.
            Way::DirectFirst => self.patience().min(self.config.limits.connect_timeout),
            _ => self.config.limits.connect_timeout,
        };
        let Some(place) = self.rooms.enter() else { return Err((client, Refusal::Busy)) };
        let connect = async {
            tokio::time::timeout(limit, self.exit.connect(open, &[])).await.unwrap_or(Err(Refusal::TimedOut))
        };
        direct::carry(client, dialect.accepted(), connect, place, || {
            count(&self.ways.direct);
            let shown = Shown(&open.destination);
            match preference {
                Preference::Never => debug!("{shown}: by plain TCP, as for all connections there"),
                _ => info!("{shown}: by plain TCP, the channel is {}", self.health(key)),
            }
        })
        .await
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switch").field("ways", &self.ways).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_health_and_preference_has_its_way() {
        use Health::{Carried, Down, Silent, Up};
        use Preference::{Never, Prefer, Require};
        for (health, preference, rollback, no_rollback) in [
            (Up, Prefer, Way::Channel, Way::Channel),
            (Up, Require, Way::Channel, Way::Channel),
            (Up, Never, Way::Direct, Way::Direct),
            (Carried, Prefer, Way::DirectFirst, Way::Channel),
            (Carried, Require, Way::Channel, Way::Channel),
            (Carried, Never, Way::Direct, Way::Direct),
            (Silent, Prefer, Way::Direct, Way::Channel),
            (Silent, Require, Way::Nothing, Way::Channel),
            (Silent, Never, Way::Direct, Way::Direct),
            (Down, Prefer, Way::Direct, Way::Nothing),
            (Down, Require, Way::Nothing, Way::Nothing),
            (Down, Never, Way::Direct, Way::Direct),
        ] {
            assert_eq!(choose(health, preference, true), rollback, "{health}, {preference:?}");
            assert_eq!(choose(health, preference, false), no_rollback, "{health}, {preference:?}, off");
        }
    }
}
