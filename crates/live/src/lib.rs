//! Sockets, namespaces, TUN emulator, terminal and gateway.

pub mod netns;
pub mod testbed;
