//! The accelerator without a socket or a clock: QUIC channel, sessions, credit, error correction.
//!
//! [`Tunnel`] is one end. Live it is driven by `skyhaul-live`, in virtual time by `skyhaul-sim`; both
//! run the same code, TLS included.

pub mod auth;
mod channel;
mod credit;
pub mod exceptions;
pub mod fec;
pub mod frame;
pub mod limits;
pub mod memory;
mod reassembly;
pub mod repair;
pub mod rollback;
mod session;
pub mod shim;
mod tunnel;

pub use channel::{ChannelStats, Epoch, Tuning};
pub use quinn_proto::EcnCodepoint;
pub use rollback::{Carriage, RollbackStats, Standing, Trouble};
pub use session::Read;
pub use tunnel::{
    Batch, Config, ControllerFactory, DownReason, Event, FlowId, Holdings, PeerId, PipeId, SetupError,
    Tunnel, Way,
};
