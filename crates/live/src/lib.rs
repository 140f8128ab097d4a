//! Sockets, namespaces, TUN emulator, terminal and gateway.

pub mod config;
pub mod netns;
pub mod testbed;
