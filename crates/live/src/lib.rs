//! Sockets, namespaces, TUN emulator, terminal and gateway.
