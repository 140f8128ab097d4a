//! Configs that would lead traffic into itself, as far as their text shows.

use std::net::SocketAddr;

use super::reader::{ConfigError, File, Place};
use super::{Channel, Config, Rollback};

/// Refuses forwards to this end's own listeners or to the channel itself. `forwards` are the places of the
/// `[[forward]]` sections.
///
/// # Errors
/// Names the first of them.
pub fn check(file: &File<'_>, config: &Config, forwards: &[Place]) -> Result<(), ConfigError> {
    let doors = config.doors();
    for (forward, place) in config.forward.iter().zip(forwards) {
        let literal = forward.to.literal();
        if literal.is_some_and(|to| doors.iter().any(|&door| is_at(door, to))) {
            let found = format!("a forward to {}, where this end itself listens", forward.to);
            return Err(file.error_at(place, found, ELSEWHERE));
        }
        if matches!(&config.channel, Channel::Terminal { gateway, .. } if *gateway == forward.to) {
            let found = format!("a forward to {}, which is the channel's own port", forward.to);
            return Err(file.error_at(place, found, BEHIND));
        }
    }
    Ok(())
}

/// Whether the channel, when it is carried inside TCP, would end at a listener for clients here: at a gateway its port
/// is taken by the channel, and a terminal's gateway is another host.
pub fn is_channels(listen: SocketAddr, channel: &Channel, rollback: &Rollback) -> bool {
    let is_carried = rollback.enabled && rollback.carriage;
    let at = match channel {
        Channel::Terminal { gateway, .. } => gateway.literal(),
        Channel::Gateway { listen } => Some(*listen),
    };
    is_carried
        && listen.port() != 0
        && at.is_some_and(|at| {
            is_at(listen, at) || is_at(at, listen) || at.port() == listen.port() && at.ip().is_unspecified()
        })
}

/// Whether a listener is at an address, as far as can be told without knowing the host's addresses.
fn is_at(door: SocketAddr, to: SocketAddr) -> bool {
    door.port() == to.port()
        && (door.ip().to_canonical() == to.ip().to_canonical()
            || door.ip().is_unspecified() && to.ip().to_canonical().is_loopback())
}

const ELSEWHERE: &str =
    "a destination that is none of this end's own listeners (\"localhost:PORT\" is the far end's own)";
const BEHIND: &str = "a destination behind the other end";
/// What to say where [`is_channels`] is true.
pub const NOT_THE_CHANNELS: &str =
    "another address or port than the channel's, which may be carried inside TCP";
