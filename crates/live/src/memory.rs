//! Path memory of a running end: what it knew of its paths when it started, what its channels learn, and when
//! that is written to the store on disk.
//!
//! Channels must not wait for a disk, so they are served from a copy in memory. [`Memory::tend`] looks at them
//! every second; if one has learnt something new, or somebody else has changed the store, a thread of its own
//! opens the store for a moment, writes, and reads everything back. The store is closed in between: other ends
//! of this host and `skyhaul paths` use the same one.

mod route;
mod store;

#[cfg(test)]
mod tests;

use crate::config::PathMemory;
use crate::driver::TunnelHandle;
use skyhaul_cc::{Duration, PathHistory};
use skyhaul_pep::auth::PublicKey;
use skyhaul_pep::memory::{recall, PathKey, Record, UnixTime};
use skyhaul_pep::Way;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};
use tracing::{debug, info, warn};

pub use store::{Cleared, Contents, Store, StoreError};

/// Where root's store is: the folder of state that systemd gives a service called skyhaul.
pub const SYSTEM_FILE: &str = "/var/lib/skyhaul/paths.redb";
/// How often channels are asked what they have learnt.
const LOOK: Duration = Duration::from_secs(1);
/// How often the store is opened at most.
const PAUSE: Duration = Duration::from_secs(5);

/// Where the store is if nothing is said: in the state folder that systemd gives (`$STATE_DIRECTORY`), in
/// /var/lib/skyhaul for root, else in the user's own (`$XDG_STATE_HOME`, `~/.local/state`). Nothing if there is
/// no such place.
pub fn default_file() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(given) = std::env::var("STATE_DIRECTORY").ok().filter(|value| !value.is_empty()) {
        // A service may have several.
        return given.split(':').next().map(|first| PathBuf::from(first).join("paths.redb"));
    }
    if nix::unistd::geteuid().is_root() {
        return Some(PathBuf::from(SYSTEM_FILE));
    }
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join("skyhaul/paths.redb"))
}

/// By the system's clock.
pub fn unix_now() -> UnixTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    UnixTime(since.map_or(0, |since| since.as_secs()))
}

/// What an end remembers. All that it does without a store or with a broken one is to know nothing.
#[derive(Debug)]
pub struct Memory {
    store: Option<Store>,
    state: Mutex<State>,
    /// The store has been complained about, and has not worked since.
    complained: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// The store's contents when it was last read.
    known: BTreeMap<PathKey, Record>,
    /// Paths of connections of this end.
    paths: BTreeMap<PathKey, Live>,
    opened: Option<Instant>,
    /// Damaged records that have been told of.
    refused: usize,
}

/// A path that a connection of this end uses.
#[derive(Clone, Copy, Debug, Default)]
struct Live {
    /// The record before this connection.
    before: Option<Record>,
    /// With what the connection has learnt.
    now: Option<Record>,
    /// As it was last written.
    written: Option<Record>,
}

impl Live {
    fn news(&self) -> Option<Record> {
        self.now.filter(|now| self.written.is_none_or(|written| now.is_news(&written)))
    }
}

impl Memory {
    /// Reads the store that the config names. Whatever is wrong with it is logged, and the end starts cold.
    pub fn open(config: &PathMemory) -> Arc<Memory> {
        let file = config.enabled.then(|| config.file.clone().or_else(default_file)).flatten();
        if config.enabled && file.is_none() {
            warn!("path memory is off: no folder for it; name one with [memory] file = \"...\"");
        }
        let memory = Memory {
            store: file.map(Store::new),
            state: Mutex::default(),
            complained: AtomicBool::new(false),
        };
        memory.exchange();
        Arc::new(memory)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the way of a connection that begins now.
    pub fn recall(&self, way: &Way) -> Option<PathHistory> {
        let path = PathKey::new(way.peer?, route::interface_towards(way.remote), way.remote);
        let now = unix_now();
        let mut state = self.state();
        // The connection before this one may have learnt what is not written yet.
        let newest =
            state.paths.get(&path).and_then(|live| live.now).or_else(|| state.known.get(&path).copied());
        if let Some(record) = newest {
            state.known.insert(path.clone(), record);
        }
        let history = recall(&state.known, &path, now);
        if let Some(PathHistory { rate, min_rtt, confidence, .. }) = history {
            info!(
                "the path over {} to {} is known: {rate}, {:.1} ms, {:.0} % sure",
                path.interface.name(),
                way.remote,
                min_rtt.as_secs_f64() * 1e3,
                confidence.percent(),
            );
        }
        let written = state.paths.get(&path).and_then(|live| live.written);
        state.paths.insert(path, Live { before: newest, now: newest, written: written.or(newest) });
        history
    }

    /// A connection knows this of its path by now.
    pub fn learn(&self, peer: PublicKey, remote: SocketAddr, history: &PathHistory) {
        let now = unix_now();
        let mut state = self.state();
        let network = skyhaul_pep::memory::Network::of(remote.ip());
        // The interface is the one that led there when the connection began.
        let path = state.paths.iter_mut().find(|(key, _)| key.peer == peer && key.network == network);
        if let Some((_, live)) = path {
            live.now = match live.before {
                Some(before) => Some(before.merged(history, now)),
                None => Record::first(history, now),
            };
        }
    }

    fn has_news(&self) -> bool {
        self.state().paths.values().any(|live| live.news().is_some())
    }

    /// Writes what is new and reads everything back.
    pub fn exchange(&self) {
        let Some(store) = &self.store else { return };
        let news: Vec<(PathKey, Record)> = {
            let mut state = self.state();
            state.opened = Some(Instant::now());
            state.paths.iter().filter_map(|(key, live)| Some((key.clone(), live.news()?))).collect()
        };
        let contents = if news.is_empty() { store.read() } else { store.write(&news) };
        match contents {
            Ok(contents) => {
                self.complained.store(false, Ordering::Relaxed);
                let mut state = self.state();
                // Until something is written they stay in the file, and are read again.
                let before = std::mem::replace(&mut state.refused, contents.refused);
                if contents.refused > before {
                    let (file, refused) = (store.file().display(), contents.refused);
                    let (records, were) =
                        if refused == 1 { ("record is", "was") } else { ("records are", "were") };
                    warn!("{file}: {refused} {records} damaged and {were} left out");
                }
                for (key, live) in &mut state.paths {
                    live.written = contents.records.get(key).copied();
                    if live.written.is_none() {
                        // Cleared by somebody, or nothing to write yet: what comes now is the first of it.
                        *live = Live::default();
                    }
                }
                state.known = contents.records;
            }
            Err(error) => self.complain(store, &error),
        }
    }

    fn complain(&self, store: &Store, error: &StoreError) {
        if let StoreError::Damaged(..) = error {
            match store.set_aside() {
                Ok(aside) => warn!("{error}; it is now {}, and all paths start cold", aside.display()),
                Err(why) => warn!("{error}, and cannot be renamed ({why}); all paths start cold"),
            }
        } else if !self.complained.swap(true, Ordering::Relaxed) {
            warn!("{error}; what is learnt of paths is not kept until this changes");
        }
    }

    /// Asks the channels every second and keeps the store up to date, for ever.
    pub async fn tend(self: Arc<Self>, tunnel: TunnelHandle) {
        if self.store.is_none() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(LOOK).await;
            self.ask(&tunnel);
            let rested = self.state().opened.is_none_or(|opened| opened.elapsed() >= PAUSE);
            if rested && (self.has_news() || self.store.as_ref().is_some_and(Store::is_changed)) {
                let memory = Arc::clone(&self);
                // It ends by itself; whatever goes wrong in it, the end goes on.
                let _ = tokio::task::spawn_blocking(move || memory.exchange()).await;
            }
        }
    }

    /// The end stops: asks the channels a last time and writes what they say.
    pub fn close(&self, tunnel: &TunnelHandle) {
        self.ask(tunnel);
        if self.has_news() {
            self.exchange();
        }
    }

    fn ask(&self, tunnel: &TunnelHandle) {
        for peer in tunnel.peers() {
            if let Some(history) = tunnel.history(peer.id) {
                debug!("path to {}: {history:?}", peer.remote);
                self.learn(peer.key, peer.remote, &history);
            }
        }
    }
}
