//! Connections taken from the wire (tproxy): the socket's own addresses are those the client believes in.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

use super::{syn, BindError, BACKLOG};
use crate::egress::set_transparent;

/// Listeners on free ports of 127.0.0.1 and, on hosts with IPv6, ::1. On loopback no client reaches them but through
/// the firewall's tproxy rule.
pub fn listeners() -> Result<Vec<(SocketAddr, TcpListener)>, BindError> {
    let mut bound = Vec::new();
    for address in [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))] {
        match listener(address) {
            Ok(listener) => bound.push(listener),
            Err(error) if address.is_ipv6() && has_no_ipv6(&error) => {}
            Err(source) => return Err(BindError { section: "intercept", address, source }),
        }
    }
    Ok(bound)
}

/// The client's address and the destination it asked for.
///
/// # Errors
/// When the connection has gone, or was made to the listener itself and has no other destination.
pub fn ends(client: &TcpStream, listener: SocketAddr) -> io::Result<(SocketAddr, SocketAddr)> {
    let destination = client.local_addr()?;
    if destination == listener {
        return Err(io::Error::other("a connection to the listener itself, which leads nowhere"));
    }
    Ok((client.peer_addr()?, destination))
}

fn listener(address: SocketAddr) -> io::Result<(SocketAddr, TcpListener)> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    set_transparent(&socket, address.is_ipv4())?;
    // Without the kernel's help every client is of unknown mark.
    let _ = syn::keep(&socket);
    socket.bind(&address.into())?;
    socket.listen(BACKLOG as i32)?;
    let listener = TcpListener::from_std(socket.into())?;
    Ok((listener.local_addr()?, listener))
}

fn has_no_ipv6(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(nix::libc::EAFNOSUPPORT)
}
