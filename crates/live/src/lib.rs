//! Sockets, namespaces, TUN emulator, terminal and gateway.

pub mod netns;
