//! Memory for connections that no channel carries: what was read from one side and not yet taken by the other.
//!
//! An end's come out of the budget of its tunnel, a splitter's out of its own. Each connection has a place, with a floor
//! for either direction, from its beginning to its end; without a place there is no connection.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use skyhaul_cc::Bytes;
use skyhaul_pep::limits::{Bypass, Split};
use tokio::net::TcpStream;

use crate::driver::TunnelHandle;
use crate::relay::{try_read, write_all, READ};

/// Where the memory comes from; cheap to clone, for tasks of one thread.
#[derive(Clone)]
pub(crate) enum Rooms {
    /// An end's budget, beside its flows.
    Tunnel(TunnelHandle),
    /// One's own.
    Own(Rc<RefCell<(Split, Bypass)>>),
}

impl Rooms {
    /// All of `memory` for so many connections at once, or fewer if that is too little.
    pub(crate) fn own(memory: Bytes, connections: usize) -> Rooms {
        let split = Split::for_bypass(memory, connections);
        Rooms::Own(Rc::new(RefCell::new((split, Bypass::default()))))
    }

    /// A place for one connection more; none if there is no memory for it.
    pub(crate) fn enter(&self) -> Option<Place> {
        let admitted = match self {
            Rooms::Tunnel(tunnel) => tunnel.0.tunnel.borrow_mut().bypass_open(),
            Rooms::Own(own) => {
                let (split, bypass) = &mut *own.borrow_mut();
                bypass.open(split, 0)
            }
        };
        admitted.then(|| Place(self.clone()))
    }

    /// One line on what is held, of what may be.
    pub(crate) fn summary(&self) -> String {
        let (memory, most, bypass) = match self {
            Rooms::Tunnel(tunnel) => {
                let all = tunnel.holdings();
                (all.memory, all.most_flows, all.bypass)
            }
            Rooms::Own(own) => {
                let (split, bypass) = *own.borrow();
                (split.total(), split.flows, bypass)
            }
        };
        format!(
            "connections: {} of {most}, {} of {memory} read and not passed on; {} refused for want of memory",
            bypass.connections(),
            bypass.held(),
            bypass.refused()
        )
    }

    fn room(&self, most: Bytes) -> Bytes {
        match self {
            Rooms::Tunnel(tunnel) => tunnel.0.tunnel.borrow().bypass_room(most),
            Rooms::Own(own) => {
                let (split, bypass) = &*own.borrow();
                bypass.room(split, Bytes::ZERO, most)
            }
        }
    }

    fn take(&self, bytes: Bytes) {
        match self {
            Rooms::Tunnel(tunnel) => tunnel.0.tunnel.borrow_mut().bypass_take(bytes),
            Rooms::Own(own) => own.borrow_mut().1.take(bytes),
        }
    }

    fn release(&self, bytes: Bytes) {
        match self {
            Rooms::Tunnel(tunnel) => tunnel.0.tunnel.borrow_mut().bypass_release(bytes),
            Rooms::Own(own) => own.borrow_mut().1.release(bytes),
        }
    }
}

/// One connection's right to be carried, given back when dropped.
pub(crate) struct Place(Rooms);

impl Drop for Place {
    fn drop(&mut self) {
        match &self.0 {
            Rooms::Tunnel(tunnel) => tunnel.0.tunnel.borrow_mut().bypass_close(),
            Rooms::Own(own) => own.borrow_mut().1.close(),
        }
    }
}

/// Counts a piece until it is passed on, or thrown away.
struct Piece<'a>(&'a Rooms, Bytes);

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        self.0.release(self.1);
    }
}

impl Place {
    /// Carries one direction to its end, which is passed on. What was read is written before more is read: that is the
    /// back-pressure.
    pub(crate) async fn carry(&self, from: &TcpStream, to: &TcpStream) -> io::Result<()> {
        let mut pieces = std::collections::VecDeque::with_capacity(1);
        loop {
            from.readable().await?;
            match try_read(from, self.0.room(Bytes(READ as u64)).0 as usize) {
                Ok(bytes) if bytes.is_empty() => {
                    return socket2::SockRef::from(to).shutdown(std::net::Shutdown::Write);
                }
                Ok(bytes) => {
                    let size = Bytes(bytes.len() as u64);
                    self.0.take(size);
                    let _counted = Piece(&self.0, size);
                    pieces.push_back(bytes);
                    write_all(to, &mut pieces).await?;
                    // Two hosts on fast networks shall not keep this thread from the channel.
                    tokio::task::yield_now().await;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::tests::connected;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::task::{spawn_local, LocalSet};

    fn held(rooms: &Rooms) -> (usize, Bytes) {
        match rooms {
            Rooms::Own(own) => (own.borrow().1.connections(), own.borrow().1.held()),
            Rooms::Tunnel(_) => unreachable!("a splitter's"),
        }
    }

    #[tokio::test]
    async fn readers_that_stop_hold_little_newcomers_are_refused_and_everything_is_given_back() {
        let test = async {
            let rooms = Rooms::own(Bytes::mib(1), 8);
            let mut ends = Vec::new();
            let mut tasks = Vec::new();
            for _ in 0..8 {
                let ((client, near), (server, far)) = (connected().await, connected().await);
                let place = rooms.enter().unwrap();
                tasks.push(spawn_local(async move { place.carry(&near, &far).await.map(|()| (near, far)) }));
                ends.push((client, server));
            }
            assert!(rooms.enter().is_none(), "a ninth");
            // All write until nothing moves any more, and nobody reads.
            let block = vec![7; 65_536];
            let mut idle = 0;
            while idle < 20 {
                let before = held(&rooms);
                let mut wrote = 0;
                for (client, _) in &ends {
                    wrote += client.try_write(&block).unwrap_or(0);
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                idle = if wrote == 0 && before == held(&rooms) { idle + 1 } else { 0 };
                assert!(held(&rooms).1 <= Bytes::mib(1), "{:?}", held(&rooms));
            }
            println!("{:?} while nobody reads", held(&rooms));
            assert!(held(&rooms).1 >= Bytes::kib(4) * 8, "each has a piece that waits: {:?}", held(&rooms));
            for (mut client, mut server) in ends {
                spawn_local(async move { client.shutdown().await.map(|()| client) });
                server.read_to_end(&mut Vec::new()).await.unwrap();
            }
            for task in tasks {
                task.await.unwrap().unwrap();
            }
            assert_eq!(held(&rooms), (0, Bytes::ZERO));
            assert!(rooms.enter().is_some());
        };
        LocalSet::new().run_until(test).await;
    }
}
