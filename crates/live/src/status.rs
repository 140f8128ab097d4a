//! What an end is doing, in a few lines: for the log, when somebody asks by signal.

use crate::driver::TunnelHandle;
use crate::exceptions::Exceptions;
use crate::room::Rooms;
use crate::ways::Switch;
use skyhaul_pep::{Holdings, Standing};
use std::rc::Rc;
use tokio::signal::unix::{signal, SignalKind};
use tracing::{info, warn};

impl TunnelHandle {
    /// What this end holds of its memory, and whom it has turned away.
    pub fn holdings(&self) -> Holdings {
        self.0.tunnel.borrow().holdings()
    }

    /// What was found wrong around this end.
    pub fn exceptions(&self) -> Exceptions {
        self.0.exceptions.clone()
    }
}

/// The lines: memory, every channel, every exception.
pub fn lines(tunnel: &TunnelHandle) -> Vec<String> {
    let Holdings { memory, received, queued, outstanding, retained, kept, .. } = tunnel.holdings();
    let holdings = tunnel.holdings();
    let mut lines = vec![
        format!(
            "memory: {memory} for data; {received} received and not passed on, {queued} not sent, {outstanding} \
             sent and not known to be passed on, {retained} and {kept} kept for repair"
        ),
        format!(
            "connections: {} of {}; {} refused for want of memory, {} channels refused, {} given up as silent",
            holdings.flows,
            holdings.most_flows,
            holdings.refused_flows,
            holdings.refused_channels,
            holdings.silent_channels
        ),
        format!(
            "plain TCP: {} connections from here, {} read and not passed on; {} refused for want of memory",
            holdings.bypass.connections(),
            holdings.bypass.held(),
            holdings.bypass.refused()
        ),
    ];
    for peer in tunnel.peers() {
        let Some(stats) = tunnel.stats(peer.id) else { continue };
        lines.push(format!(
            "channel to {} at {}: {}, round trip {:?}, {} of {} packets lost, pool {}, ECN {}",
            tunnel.0.name(&peer.key),
            peer.remote,
            tunnel.standing(peer.id).unwrap_or(Standing::Silent),
            stats.rtt.smoothed,
            stats.packets_lost,
            stats.packets_lost + stats.packets_acked,
            tunnel.0.tunnel.borrow().pool(peer.id),
            if tunnel.0.tunnel.borrow().marks(peer.id) { "on" } else { "off" },
        ));
    }
    lines.extend(tunnel.exceptions().lines());
    lines
}

/// Says what a splitter holds whenever the process gets SIGUSR1.
pub(crate) async fn split_when_asked(rooms: Rooms) {
    let mut asked = match signal(SignalKind::user_defined1()) {
        Ok(asked) => asked,
        Err(error) => return warn!("SIGUSR1 will not be heard: {error}"),
    };
    while asked.recv().await.is_some() {
        info!("{}", rooms.summary());
    }
}

/// Says the lines whenever the process gets SIGUSR1.
pub(crate) async fn say_when_asked(tunnel: TunnelHandle, switch: Rc<Switch>) {
    let mut asked = match signal(SignalKind::user_defined1()) {
        Ok(asked) => asked,
        Err(error) => return warn!("SIGUSR1 will not be heard: {error}"),
    };
    while asked.recv().await.is_some() {
        for line in lines(&tunnel) {
            info!("{line}");
        }
        info!("{}", switch.ways());
    }
}
