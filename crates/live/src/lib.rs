//! Sockets, namespaces, TUN emulator, terminal and gateway.

pub mod config;
pub mod driver;
pub mod egress;
pub mod emulate;
pub mod end;
pub mod exceptions;
pub mod fec_tunnel;
pub mod ingress;
pub mod intercept;
pub mod kernel;
pub mod keys;
pub mod loops;
pub mod memory;
pub mod netns;
pub mod pair;
pub mod relay;
mod room;
pub mod split;
pub mod status;
pub mod tcp;
pub mod testbed;
pub mod ways;
