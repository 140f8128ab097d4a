//! TCP between the two ends of a [`Pair`], and what a network may do to datagrams.
//!
//! TCP is modelled as what it promises: bytes arrive in order and unharmed, at a rate and after the one-way delay of the
//! link. While the link is out, or TCP is filtered, attempts are repeated with doubling pauses (RFC 6298 §5.5).

use super::{Pair, GATEWAY, TERMINAL};
use crate::link::Link;
use skyhaul_cc::{Bytes, Duration, Rate, Time};
use skyhaul_pep::{PipeId, SetupError, Tunnel};

/// What the network does with a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Nothing.
    Pass,
    /// It is gone.
    Drop,
    /// It is gone, and ICMP says that nobody listens there.
    Reject,
    /// It arrives twice.
    Twice,
    /// One bit is turned over.
    Corrupt,
    /// It takes so much longer.
    Late(Duration),
}

/// Decides about each datagram: when, from which end (the sender of that direction) and its bytes.
pub type Filter = Box<dyn FnMut(Time, crate::scenario::Dir, &[u8]) -> Passage>;

/// How TCP fares between the ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpModel {
    /// What one connection reaches in each direction, payload counted.
    pub rates: [Rate; 2],
    /// What becomes of attempts to connect.
    pub answer: TcpAnswer,
}

/// What becomes of an attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpAnswer {
    /// It succeeds after a round trip.
    Accepts,
    /// Nobody listens there.
    Refuses,
    /// Nothing is ever heard.
    Swallows,
}

/// Something that TCP brings.
#[derive(Clone, Debug)]
pub(super) enum Segment {
    Syn,
    SynAck,
    Refused,
    Data(Vec<u8>),
    Fin,
    /// The sender has room again.
    Drained,
}

/// One connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Conn {
    pipes: [Option<PipeId>; 2],
    /// When what was sent last has left, and when it arrives.
    busy: [Time; 2],
    last: [Time; 2],
    /// When it was begun, and when the last attempt at it left.
    begun: Time,
    tried: Time,
}

/// What a sender's system keeps of bytes that have not left.
const SEND_BUFFER: Bytes = Bytes(128 * 1024);
/// First repetition of a SYN (RFC 6298 §2.1), and the longest pause.
const REPEAT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Attempts to connect are given up after so long.
const CONNECT: Duration = Duration::from_secs(5);

/// When an attempt at `now` gets on a link that may be out: the first repetition that does.
fn first_try(link: &Link, now: Time) -> Time {
    let (mut at, mut pause) = (now, REPEAT.0);
    while link.is_out(at) {
        at += pause;
        pause = (pause * 2).min(REPEAT.1);
    }
    at
}

impl Pair {
    /// Lets `filter` decide about datagrams from now on.
    pub fn filter(&mut self, filter: Filter) {
        self.filter = Some(filter);
    }

    /// TCP fares like this from now on; without, at nine tenths of the link's rates.
    pub fn set_tcp(&mut self, model: TcpModel) {
        self.tcp = model;
    }

    /// The program at the sender of that direction is gone from now on: its system answers for it.
    pub fn kill(&mut self, sender_of: crate::scenario::Dir) {
        let side = super::index(sender_of);
        self.ends[side].dead = true;
        for conn in 0..self.conns.len() {
            if self.conns[conn].pipes[side].take().is_some() {
                self.send_segment(side, conn, Segment::Fin);
            }
        }
    }

    /// The program at the sender of that direction is gone from now on, and its host says nothing about it, now or later:
    /// ICMP and what resets TCP connections is filtered.
    pub fn vanish(&mut self, sender_of: crate::scenario::Dir) {
        let end = &mut self.ends[super::index(sender_of)];
        (end.dead, end.mute) = (true, true);
    }

    /// A program that was gone is there again, with its keys and without its memory. A terminal does not connect.
    ///
    /// # Errors
    /// None that it did not have the first time.
    pub fn restart(&mut self, sender_of: crate::scenario::Dir) -> Result<(), SetupError> {
        let side = super::index(sender_of);
        let end = &mut self.ends[side];
        end.tunnel = Tunnel::new(self.configs[side].clone(), self.epoch, side == GATEWAY)?;
        (end.peer, end.up, end.down) = (None, None, None);
        (end.dead, end.rejected) = (false, None);
        end.flows.clear();
        self.conns.iter_mut().for_each(|conn| conn.pipes[side] = None);
        Ok(())
    }

    /// The terminal sends from another address from now on, as behind a NAT that has forgotten it; what is sent to
    /// the old one gets lost.
    pub fn rebind(&mut self, port: u16) {
        self.ends[TERMINAL].address.set_port(port);
    }

    pub(super) fn dial(&mut self, pipe: PipeId) {
        let (begun, tried) = (self.now, self.now);
        self.conns.push(Conn { pipes: [Some(pipe), None], begun, tried, ..Conn::default() });
        let conn = self.conns.len() - 1;
        let at = first_try(&self.links[TERMINAL], self.now);
        if self.tcp.answer == TcpAnswer::Swallows || at - self.now > CONNECT {
            return self.bring(self.now + CONNECT, TERMINAL, conn, Segment::Fin);
        }
        let there = at + self.links[TERMINAL].one_way(at);
        self.bring(there, GATEWAY, conn, Segment::Syn);
    }

    fn bring(&mut self, at: Time, side: usize, conn: usize, segment: Segment) {
        self.air.schedule(at, (side, super::Arrival::Tcp(conn, segment)));
    }

    /// Sends `segment` behind all that was sent before.
    fn send_segment(&mut self, side: usize, conn: usize, segment: Segment) {
        let size = if let Segment::Data(bytes) = &segment { bytes.len() as u64 } else { 1 };
        let entry = self.conns[conn];
        let begin = first_try(&self.links[side], self.now.max(entry.busy[side]));
        let left = begin + self.tcp.rates[side].time_for(Bytes(size));
        let at = (left + self.links[side].one_way(left)).max(entry.last[side]);
        self.conns[conn].busy[side] = left;
        self.conns[conn].last[side] = at;
        self.bring(at, 1 - side, conn, segment);
    }

    pub(super) fn tcp_arrived(&mut self, side: usize, conn: usize, segment: Segment) {
        let now = self.now;
        let pipe = self.conns[conn].pipes[side];
        match segment {
            Segment::Syn if self.ends[side].dead && self.ends[side].mute => self.try_again(conn),
            Segment::Syn if self.ends[side].dead || self.tcp.answer == TcpAnswer::Refuses => {
                self.send_segment(side, conn, Segment::Refused);
            }
            Segment::Syn => match self.ends[side].tunnel.pipe_accepted(now) {
                Some(pipe) => {
                    self.conns[conn].pipes[side] = Some(pipe);
                    self.send_segment(side, conn, Segment::SynAck);
                }
                None if self.ends[side].mute => self.send_segment(side, conn, Segment::SynAck),
                None => self.send_segment(side, conn, Segment::Fin),
            },
            Segment::SynAck => {
                if let Some(pipe) = pipe {
                    self.ends[side].tunnel.pipe_open(now, pipe);
                }
            }
            Segment::Data(bytes) => {
                if let Some(pipe) = pipe {
                    if !self.ends[side].tunnel.pipe_input(now, pipe, &bytes) {
                        self.conns[conn].pipes[side] = None;
                        if !self.ends[side].mute {
                            self.send_segment(side, conn, Segment::Fin);
                        }
                    }
                }
            }
            Segment::Fin | Segment::Refused => {
                if let Some(pipe) = self.conns[conn].pipes[side].take() {
                    let refused = matches!(segment, Segment::Refused);
                    self.ends[side].tunnel.pipe_ended(now, pipe, refused);
                }
            }
            Segment::Drained => {}
        }
    }

    /// Nobody has answered an attempt to connect: it is repeated, until it is given up.
    fn try_again(&mut self, conn: usize) {
        let Conn { begun, tried, .. } = self.conns[conn];
        let pause = if tried == begun { REPEAT.0 } else { (tried - begun + REPEAT.0).min(REPEAT.1) };
        let next = tried + pause;
        if next > begun + CONNECT {
            return self.bring(begun + CONNECT, TERMINAL, conn, Segment::Fin);
        }
        self.conns[conn].tried = next;
        self.bring(next + self.links[TERMINAL].one_way(next), GATEWAY, conn, Segment::Syn);
    }

    /// The tunnel gives a connection up.
    pub(super) fn hang_up(&mut self, side: usize, pipe: PipeId) {
        let Some(conn) = self.conns.iter().position(|conn| conn.pipes[side] == Some(pipe)) else { return };
        self.conns[conn].pipes[side] = None;
        self.send_segment(side, conn, Segment::Fin);
    }

    /// Gives TCP what the tunnel has for it, as far as there is room.
    pub(super) fn transmit_tcp(&mut self, side: usize) -> bool {
        let mut sent = false;
        for conn in 0..self.conns.len() {
            let Some(pipe) = self.conns[conn].pipes[side] else { continue };
            loop {
                let waiting = self.tcp.rates[side].bytes_in(self.conns[conn].busy[side] - self.now);
                if waiting >= SEND_BUFFER {
                    self.ends[side].tunnel.pipe_full(pipe);
                    let at = self.now + self.tcp.rates[side].time_for(waiting - SEND_BUFFER / 2);
                    self.bring(at, side, conn, Segment::Drained);
                    break;
                }
                let mut out = Vec::new();
                self.ends[side].tunnel.pipe_output(self.now, pipe, &mut out);
                if out.is_empty() {
                    break;
                }
                sent = true;
                self.carried[side] += out.len() as u64;
                self.send_segment(side, conn, Segment::Data(out));
            }
        }
        sent
    }

    /// Bytes that the sender of that direction has given to TCP.
    pub fn carried(&self, sender_of: crate::scenario::Dir) -> Bytes {
        Bytes(self.carried[super::index(sender_of)])
    }
}
