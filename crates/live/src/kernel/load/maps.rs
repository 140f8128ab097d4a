//! The maps that controllers share with us: learnt paths and events.

use super::super::paths::Learnt;
use super::super::pins::{installed, FOLDER};
use super::super::watch::Event;
use super::super::{KernelError, Law};
use super::{EVENTS, PATHS, WATCHED};
use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBufferBuilder};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

/// How long one request to hear events lasts, and how often it is made.
const WANTED: Duration = Duration::from_secs(3);
const RENEW: Duration = Duration::from_secs(1);

/// Whether a pinned map is what this version's controllers expect under its name.
pub fn has_our_layout(map: &MapHandle, name: &str) -> bool {
    match name {
        PATHS => (map.key_size(), map.value_size()) == (Learnt::KEY, Learnt::VALUE),
        _ => true,
    }
}

fn pinned(name: &str) -> Result<MapHandle, KernelError> {
    MapHandle::from_pinned_path(Path::new(FOLDER).join(name)).map_err(|_| {
        let installed: Vec<&str> = installed().into_iter().map(Law::name).collect();
        KernelError::Request(match installed.is_empty() {
            true => "no controller is installed; install them with: skyhaul kernel install".to_owned(),
            false => format!(
                "none of the installed controllers ({}) keeps {FOLDER}/{name}; install all with: skyhaul kernel install",
                installed.join(", ")
            ),
        })
    })
}

fn failed(name: &str, error: &libbpf_rs::Error) -> KernelError {
    KernelError::Request(format!("{FOLDER}/{name}: {error}"))
}

/// What is remembered of paths, in no order.
pub fn paths() -> Result<Vec<Learnt>, KernelError> {
    let map = pinned(PATHS)?;
    let mut paths = Vec::new();
    for key in map.keys() {
        // One that was dropped between the two calls has no value.
        if let Some(value) = map.lookup(&key, MapFlags::ANY).map_err(|error| failed(PATHS, &error))? {
            paths.extend(Learnt::read(&key, &value));
        }
    }
    Ok(paths)
}

/// Forgets the paths for which `forget` holds and returns how many.
pub fn clear(forget: &dyn Fn(&Learnt) -> bool) -> Result<usize, KernelError> {
    let map = pinned(PATHS)?;
    let keys: Vec<Vec<u8>> = map.keys().collect();
    let mut cleared = 0;
    for key in keys {
        let value = map.lookup(&key, MapFlags::ANY).map_err(|error| failed(PATHS, &error))?;
        if value.and_then(|value| Learnt::read(&key, &value)).is_some_and(|path| forget(&path)) {
            map.delete(&key).map_err(|error| failed(PATHS, &error))?;
            cleared += 1;
        }
    }
    Ok(cleared)
}

/// Hands over events as they come, until `take` breaks. After every pause of a second, and whenever some have come, `idle` is asked whether to go on.
pub fn watch(
    take: &mut dyn FnMut(Event) -> ControlFlow<()>,
    idle: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<(), KernelError> {
    let (events, watched) = (pinned(EVENTS)?, pinned(WATCHED)?);
    let begin = now_ns();
    let stopped = Cell::new(false);
    let mut builder = RingBufferBuilder::new();
    let hear = |bytes: &[u8]| {
        // What was left from an earlier watch is old.
        if let Some(event) = Event::read(bytes).filter(|event| event.at_ns >= begin) {
            stopped.set(take(event).is_break());
        }
        // A negative answer ends this round of reading.
        -i32::from(stopped.get())
    };
    builder.add(&events, hear).map_err(|error| failed(EVENTS, &error))?;
    let ring = builder.build().map_err(|error| failed(EVENTS, &error))?;
    loop {
        let until = now_ns() + u64::try_from(WANTED.as_nanos()).unwrap_or(u64::MAX);
        watched
            .update(&0u32.to_ne_bytes(), &until.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| failed(WATCHED, &error))?;
        ring.poll_raw(RENEW);
        if stopped.get() || idle().is_break() {
            return Ok(());
        }
    }
}

/// The clock of `bpf_ktime_get_ns`.
fn now_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map(Duration::from);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}
