//! What a tunnel tells its owner, and the names it uses.

use super::PipeId;
use crate::auth::PublicKey;
use crate::frame::{Open, Refusal};
use crate::rollback::{Standing, Trouble};
use crate::session::StreamNumber;
use std::fmt;
use std::net::SocketAddr;

/// A channel's name at this end; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub(super) u64);

/// A flow's name at this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    /// The channel it runs over.
    pub peer: PeerId,
    pub(super) stream: StreamNumber,
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.peer.0, self.stream)
    }
}

/// Why a channel ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// The other end closed it, and said why.
    ClosedByPeer(String),
    /// The other end has forgotten the connection: it was restarted.
    PeerRestarted,
    /// The same peer has connected anew.
    Replaced,
    /// The other end does not know our key, or its key is not the one we know.
    KeyRefused(String),
    /// The other end broke the protocol.
    Violation(&'static str),
    /// Closed here.
    Closed,
    /// The handshake or the transport failed.
    Failed(String),
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DownReason::ClosedByPeer(why) => write!(f, "closed by the other end: {why}"),
            DownReason::PeerRestarted => f.write_str("the other end was restarted"),
            DownReason::Replaced => f.write_str("the same peer has connected anew"),
            DownReason::KeyRefused(why) => write!(f, "keys do not match: {why}"),
            DownReason::Violation(what) => write!(f, "the other end broke the protocol: {what}"),
            DownReason::Closed => f.write_str("closed here"),
            DownReason::Failed(why) => write!(f, "{why}"),
        }
    }
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A channel is ready for flows.
    Up {
        /// Its name.
        peer: PeerId,
        /// Who is at the other end.
        key: PublicKey,
        /// Where.
        remote: SocketAddr,
    },
    /// A channel ended, or never came up. Its flows are gone; each was reported with
    /// [`Event::Reset`] before.
    Down {
        /// Its name.
        peer: PeerId,
        /// Where the other end was.
        remote: SocketAddr,
        /// Why.
        reason: DownReason,
    },
    /// A channel that is up fares better or worse than before.
    Standing {
        /// Its name.
        peer: PeerId,
        /// How it fares now.
        standing: Standing,
        /// Why that has changed.
        why: Trouble,
    },
    /// Open a TCP connection to the other end, to carry a channel: answer with
    /// [`Tunnel::pipe_open`](crate::Tunnel::pipe_open) or [`Tunnel::pipe_ended`](crate::Tunnel::pipe_ended).
    Dial {
        /// Its name.
        pipe: PipeId,
        /// Where to: the other end's address, port and all, but for TCP.
        remote: SocketAddr,
    },
    /// Close a TCP connection, when what was written to it has left, or give the attempt at it up. It is forgotten
    /// already.
    HangUp {
        /// Its name.
        pipe: PipeId,
    },
    /// The other end is somewhere else now, as behind a NAT that gave it another address; its channel goes on.
    Moved {
        /// Its name.
        peer: PeerId,
        /// Where it was.
        from: SocketAddr,
        /// Where it is.
        to: SocketAddr,
    },
    /// Marks of congestion do not arrive there as they are sent; from now on nothing is marked.
    EcnLost {
        /// The channel.
        peer: PeerId,
    },
    /// The other end says under which address it sees this one: when the channel comes up, and after changes.
    SeenAt {
        /// The channel.
        peer: PeerId,
        /// What it said before.
        before: Option<SocketAddr>,
        /// This end, as seen from there.
        address: SocketAddr,
    },
    /// Somebody offered a key we do not know.
    KeyRefused {
        /// The key, or what it was instead.
        offered: String,
    },
    /// The other end opened a flow: answer with [`Tunnel::accept`](crate::Tunnel::accept) or [`Tunnel::refuse`](crate::Tunnel::refuse).
    Opened {
        /// Its name.
        flow: FlowId,
        /// Where it wants to go.
        open: Open,
    },
    /// The destination of a flow opened here is connected.
    Accepted {
        /// The flow.
        flow: FlowId,
    },
    /// The destination of a flow opened here could not be reached; the flow is gone.
    Refused {
        /// The flow.
        flow: FlowId,
        /// Why.
        why: Refusal,
    },
    /// [`Tunnel::read`](crate::Tunnel::read) has something.
    Readable {
        /// The flow.
        flow: FlowId,
    },
    /// [`Tunnel::writable`](crate::Tunnel::writable) is above zero again.
    Writable {
        /// The flow.
        flow: FlowId,
    },
    /// The other end gave the flow up; it is gone. Reset the TCP connection.
    Reset {
        /// The flow.
        flow: FlowId,
    },
}
