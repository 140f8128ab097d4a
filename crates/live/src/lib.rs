//! Sockets, namespaces, TUN emulator, terminal and gateway.

pub mod config;
pub mod emulate;
pub mod keys;
pub mod netns;
pub mod pair;
pub mod testbed;
