//! Flows as the owner of the TCP connections uses them: opened, written, read, ended.

use super::{FlowId, PeerId, Tunnel};
use crate::frame::{Open, Refusal};
use crate::session::{Read, Session, StreamNumber};
use bytes::Bytes as Data;

impl Tunnel {
    /// Opens a flow to `open.destination` at the other end.
    ///
    /// # Errors
    /// [`Refusal::Unreachable`] while the channel is not up, [`Refusal::Busy`] when it carries all the
    /// flows it may, [`Refusal::NoSuchName`] for a name that cannot be one.
    pub fn open(&mut self, peer: PeerId, open: &Open) -> Result<FlowId, Refusal> {
        if !self.admits_flow() {
            return Err(Refusal::Busy);
        }
        let entry = self.peers.get_mut(&peer).filter(|entry| entry.up).ok_or(Refusal::Unreachable)?;
        let stream = entry.session.open(open)?;
        self.mark(peer);
        Ok(FlowId { peer, stream })
    }

    fn on<T>(&mut self, flow: FlowId, missing: T, act: impl FnOnce(&mut Session, StreamNumber) -> T) -> T {
        match self.peers.get_mut(&flow.peer) {
            Some(entry) if !entry.down => {
                let answer = act(&mut entry.session, flow.stream);
                self.mark(flow.peer);
                answer
            }
            _ => missing,
        }
    }

    /// The destination of a flow that the other end opened is connected.
    pub fn accept(&mut self, flow: FlowId) {
        self.on(flow, (), Session::accept);
    }

    /// The destination of a flow that the other end opened cannot be reached; the flow is over.
    pub fn refuse(&mut self, flow: FlowId, why: Refusal) {
        self.on(flow, (), |session, stream| session.refuse(stream, why));
    }

    /// Bytes that [`write`](Self::write) takes gladly; at zero an [`Event::Writable`](crate::Event::Writable) will follow.
    pub fn writable(&mut self, flow: FlowId) -> usize {
        let all = self.held().1 + self.bypass.held();
        let split = *self.budget.split();
        let room = self.on(flow, 0, |session, stream| session.writable(stream, all.0, &split));
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// Takes TCP data for the other end. False if the flow is gone, and the data with it.
    pub fn write(&mut self, flow: FlowId, bytes: Data) -> bool {
        self.on(flow, false, |session, stream| session.write(stream, bytes))
    }

    /// No more data will be written: a half-close.
    pub fn finish(&mut self, flow: FlowId) {
        self.on(flow, (), Session::finish);
    }

    /// The next TCP data from the other end, in order.
    pub fn read(&mut self, flow: FlowId) -> Read {
        self.on(flow, Read::Reset, Session::read)
    }

    /// So many of the bytes read are out of this end's memory; the other end may send as many more.
    pub fn consumed(&mut self, flow: FlowId, bytes: usize) {
        self.on(flow, (), |session, stream| session.consumed(stream, bytes as u64));
    }

    /// [`Read::End`] has been passed on.
    pub fn end_consumed(&mut self, flow: FlowId) {
        self.on(flow, (), Session::end_consumed);
    }

    /// Gives a flow up in both directions; the other end resets its TCP connection.
    pub fn reset(&mut self, flow: FlowId) {
        self.on(flow, (), Session::reset);
    }
}
