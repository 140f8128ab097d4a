//! The tunnel's part in the roll back: words outside QUIC, TCP connections that carry, and doing as each channel's
//! supervisor says.

use super::{batch, Batch, Event, Peer, PeerId, Tunnel, Way};
use crate::channel::Channel;
use crate::rollback::wire::{put_frame, ChannelName, Frames, Keys, Word, FRAME_MOST, WORD};
use crate::rollback::{Action, Carriage, Standing, Trouble, Watch};
use bytes::BytesMut;
use quinn_proto::{DatagramEvent, EcnCodepoint};
use skyhaul_cc::{Duration, PathHistory, Share, Time};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// A TCP connection that carries a channel, or may; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PipeId(u64);

/// What the tunnel knows of a TCP connection.
#[derive(Debug)]
pub(super) struct Pipe {
    /// Whose; unknown until a first word has come.
    peer: Option<PeerId>,
    frames: Frames,
    /// Words that wait to leave.
    words: VecDeque<Vec<u8>>,
    since: Time,
    /// The connection is made.
    open: bool,
    /// The system takes no more for now.
    full: bool,
    /// To be closed when what waits has left.
    ending: bool,
}

/// Connections of whom nothing is known yet, at most …
const STRANGERS: usize = 64;
/// … and how long each may take to say who it is.
const INTRODUCTION: Duration = Duration::from_secs(10);
/// Bytes given to a TCP connection at once.
const SERVING: usize = 64 * 1024;
/// Words that wait in one connection, at most.
const WORDS: usize = 16;
/// What a controller has learnt is believed the less the older it is, and no more after this time.
const FORGOTTEN: Duration = Duration::from_secs(600);

fn confidence(age: Duration) -> Share {
    let left = FORGOTTEN.saturating_sub(age);
    Share::new(left.as_secs_f64() / FORGOTTEN.as_secs_f64()).unwrap_or_default()
}

/// A channel's supervisor and what belongs to it.
#[derive(Default)]
pub(super) struct Rolling {
    watch: Option<Watch>,
    name: ChannelName,
    pipe: Option<PipeId>,
    /// What the controller had learnt of the path by UDP, and when it was taken away.
    learnt: Option<(Time, PathHistory)>,
    /// Since when nothing gets through.
    silent: Option<Time>,
}

impl Rolling {
    /// Both ends have said hello: begins to watch the path, if both want to.
    pub(super) fn begin(
        now: Time,
        channel: &Channel,
        settings: crate::rollback::Settings,
        client: bool,
    ) -> Self {
        let secret = if channel.rolls_back() { channel.rollback_secret() } else { None };
        let Some(secret) = secret else { return Rolling::default() };
        let keys = Keys::new(&secret, client);
        let name = keys.channel;
        let watch = Some(Watch::new(now, settings, client, keys, channel.full_datagram()));
        Rolling { watch, name, ..Rolling::default() }
    }

    pub(super) fn standing(&self) -> Standing {
        self.watch.as_ref().map_or(Standing::Up, Watch::standing)
    }

    pub(super) fn stats(&self) -> crate::rollback::RollbackStats {
        self.watch.as_ref().map(Watch::stats).unwrap_or_default()
    }

    pub(super) fn name(&self) -> Option<ChannelName> {
        self.watch.is_some().then_some(self.name)
    }

    pub(super) fn heard(&mut self, now: Time, by_tcp: bool) {
        if let Some(watch) = &mut self.watch {
            watch.heard_quic(now, by_tcp);
        }
    }

    fn next_wake(&self) -> Option<Time> {
        self.watch.as_ref().map(Watch::next_wake)
    }

    /// What was learnt of the path, with less confidence the older it is. An outage adds no age: nobody has used the
    /// path meanwhile.
    fn recall(&self, now: Time) -> Option<PathHistory> {
        let (at, learnt) = self.learnt?;
        let age = self.silent.unwrap_or(now) - at;
        Some(PathHistory { confidence: confidence(age), ..learnt })
    }
}

impl Peer {
    /// When this peer wants to be woken.
    pub(super) fn next_wake(&mut self, pipes: &std::collections::BTreeMap<PipeId, Pipe>) -> Option<Time> {
        let handshake = (!self.up && !self.down).then_some(self.deadline);
        let waits = self.rolling.pipe.and_then(|pipe| pipes.get(&pipe)).is_none_or(|pipe| pipe.full);
        let channel = self.session.channel();
        let channel = match channel.carriage() {
            Carriage::Tcp if waits => channel.next_timer(),
            _ => channel.next_wake(),
        };
        let watch = if self.down { None } else { self.rolling.next_wake() };
        [channel, handshake, watch].into_iter().flatten().min()
    }
}

impl Tunnel {
    /// How a channel fares, while it is up.
    pub fn standing(&self, peer: PeerId) -> Option<Standing> {
        self.peers.get(&peer).filter(|entry| entry.up).map(|entry| entry.rolling.standing())
    }

    /// ICMP says, and not for the first time, that nobody listens where a channel's other end was. The channel ends
    /// unless there is another way to find out.
    pub fn unreachable(&mut self, now: Time, peer: PeerId) {
        match self.peers.get_mut(&peer).map(|entry| entry.rolling.watch.as_mut()) {
            Some(Some(watch)) => {
                watch.unreachable(now);
                self.obey(now, peer);
            }
            Some(None) => self.abandon(now, peer, Trouble::Refused.to_string()),
            None => {}
        }
    }

    /// A datagram that claims to be a word has come by UDP.
    pub(super) fn handle_word(&mut self, now: Time, from: SocketAddr, bytes: &[u8]) {
        let Some((word, _)) = Word::decode(bytes) else { return };
        let Some(&peer) = self.by_channel.get(&word.channel) else { return };
        let Some(watch) = self.peers.get_mut(&peer).and_then(|entry| entry.rolling.watch.as_mut()) else {
            return;
        };
        watch.hear(now, false, Some(from), bytes);
        self.obey(now, peer);
        self.unsettled.insert(peer);
    }

    /// Lets a channel's supervisor look, and does what it says.
    pub(super) fn watch_over(&mut self, now: Time, peer: PeerId) {
        let Some(entry) = self.peers.get_mut(&peer).filter(|entry| entry.up) else { return };
        let Some(watch) = &mut entry.rolling.watch else { return };
        watch.look(now, &entry.session.look());
        self.obey(now, peer);
    }

    fn obey(&mut self, now: Time, peer: PeerId) {
        while let Some(entry) = self.peers.get_mut(&peer).filter(|entry| entry.up) {
            let Some(action) = entry.rolling.watch.as_mut().and_then(Watch::poll) else { return };
            let remote = entry.session.channel().conn_ref().remote_address();
            match action {
                Action::Send { to, word } => {
                    // As many as answers to strangers, and as dispensable.
                    if self.words.len() < 256 {
                        self.words.push_back((to.unwrap_or(remote), word));
                    }
                }
                Action::Say { word } => {
                    let pipe = entry.rolling.pipe.and_then(|pipe| self.pipes.get_mut(&pipe));
                    if let Some(pipe) = pipe.filter(|pipe| pipe.words.len() < WORDS) {
                        pipe.words.push_back(word);
                    }
                }
                Action::Dial => {
                    let pipe = self.add_pipe(now, Some(peer));
                    if let Some(entry) = self.peers.get_mut(&peer) {
                        entry.rolling.pipe = Some(pipe);
                    }
                    self.events.push_back(Event::Dial { pipe, remote });
                }
                Action::HangUp => self.hang_up(peer),
                Action::Use(carriage) => self.change_carriage(now, peer, carriage),
                Action::Wake { after_silence } => {
                    entry.session.channel().wake(after_silence);
                    // To a controller that has lived through an outage, its length looks like delay, and a round of
                    // that length like a slow link. A new one begins with what was known before.
                    if let Some(history) = entry.rolling.recall(now).filter(|_| after_silence) {
                        let way = Way { peer: entry.key, remote: entry.remote, history: Some(history) };
                        let controller = (self.config.controller)(&way);
                        entry.session.channel().begin_anew(now, controller, history.min_rtt);
                    }
                    self.mark(peer);
                }
                Action::Tell(standing, why) => {
                    let silent = standing == Standing::Silent;
                    entry.rolling.silent = silent.then_some(now);
                    if let Some(learnt) = entry.session.history().filter(|_| silent) {
                        entry.rolling.learnt = Some((now, learnt));
                    }
                    self.events.push_back(Event::Standing { peer, standing, why });
                }
                Action::Knock => {
                    entry.session.channel().knock(now);
                    self.mark(peer);
                }
                Action::Gone(why) => return self.abandon(now, peer, why.to_string()),
                Action::GiveUp => {
                    let patience = self.config.tuning.rollback.give_up;
                    return self.abandon(now, peer, format!("nothing has got through for {patience:?}"));
                }
            }
        }
    }

    fn change_carriage(&mut self, now: Time, peer: PeerId, carriage: Carriage) {
        let Some(entry) = self.peers.get_mut(&peer) else { return };
        let (key, remote) = (entry.key, entry.remote);
        match carriage {
            Carriage::Tcp => {
                let history = entry.session.history();
                if let Some(history) = history {
                    entry.rolling.learnt = Some((now, history));
                }
                entry.session.channel().move_into_tcp(now);
            }
            Carriage::Udp => {
                let history = entry.rolling.recall(now);
                let controller = (self.config.controller)(&Way { peer: key, remote, history });
                entry.session.channel().move_to_udp(now, controller);
            }
        }
        self.mark(peer);
    }

    fn add_pipe(&mut self, now: Time, peer: Option<PeerId>) -> PipeId {
        let id = PipeId(self.next_pipe);
        self.next_pipe += 1;
        let (frames, words) = (Frames::default(), VecDeque::new());
        self.pipes
            .insert(id, Pipe { peer, frames, words, since: now, open: false, full: false, ending: false });
        id
    }

    /// Ends a channel's TCP connection, or the attempt at one.
    fn hang_up(&mut self, peer: PeerId) {
        let pipe = self.peers.get_mut(&peer).and_then(|entry| entry.rolling.pipe.take());
        if let Some(pipe) = pipe.filter(|pipe| self.pipes.remove(pipe).is_some()) {
            self.events.push_back(Event::HangUp { pipe });
        }
    }

    /// The channel is down: its last word leaves as the others did, then its TCP connection is closed.
    pub(super) fn end_pipe(&mut self, peer: PeerId) {
        let Some(entry) = self.peers.get_mut(&peer) else { return };
        if entry.session.channel().carriage() == Carriage::Udp {
            return self.hang_up(peer);
        }
        if let Some(pipe) = entry.rolling.pipe.and_then(|pipe| self.pipes.get_mut(&pipe)) {
            pipe.ending = true;
        }
    }

    /// The TCP connection asked for by [`Event::Dial`] is made.
    pub fn pipe_open(&mut self, now: Time, pipe: PipeId) {
        let Some(entry) = self.pipes.get_mut(&pipe) else { return };
        entry.open = true;
        let Some(peer) = entry.peer else { return };
        if let Some(watch) = self.peers.get_mut(&peer).and_then(|entry| entry.rolling.watch.as_mut()) {
            watch.line_open(now);
        }
        self.obey(now, peer);
    }

    /// Somebody has connected by TCP where this end listens; its name, or nothing if it must be closed.
    pub fn pipe_accepted(&mut self, now: Time) -> Option<PipeId> {
        let strangers = self.pipes.values().filter(|pipe| pipe.peer.is_none()).count();
        if strangers >= STRANGERS || self.by_channel.is_empty() {
            return None;
        }
        let pipe = self.add_pipe(now, None);
        if let Some(entry) = self.pipes.get_mut(&pipe) {
            entry.open = true;
        }
        Some(pipe)
    }

    /// The TCP connection could not be made, or has ended. `refused`: the other end's system answered that nobody
    /// listens there.
    pub fn pipe_ended(&mut self, now: Time, pipe: PipeId, refused: bool) {
        let Some(Pipe { peer: Some(peer), .. }) = self.pipes.remove(&pipe) else { return };
        let Some(entry) = self.peers.get_mut(&peer).filter(|entry| entry.rolling.pipe == Some(pipe)) else {
            return;
        };
        entry.rolling.pipe = None;
        if let Some(watch) = &mut entry.rolling.watch {
            watch.line_lost(now, refused);
        }
        self.obey(now, peer);
    }

    /// Bytes came by a TCP connection. False if it is to be closed, and is forgotten here.
    pub fn pipe_input(&mut self, now: Time, pipe: PipeId, bytes: &[u8]) -> bool {
        self.now = self.now.max(now);
        let Some(entry) = self.pipes.get_mut(&pipe) else { return false };
        let mut frames = std::mem::take(&mut entry.frames);
        frames.push(bytes);
        let fine = self.read_frames(now, pipe, &mut frames);
        match self.pipes.get_mut(&pipe) {
            Some(entry) if fine => entry.frames = frames,
            _ => {
                self.pipe_ended(now, pipe, false);
                return false;
            }
        }
        true
    }

    fn read_frames(&mut self, now: Time, pipe: PipeId, frames: &mut Frames) -> bool {
        loop {
            let Some(peer) = self.pipes.get(&pipe).map(|entry| entry.peer) else { return false };
            // A stranger gets no more room than its first word takes.
            let most = if peer.is_some() { FRAME_MOST } else { WORD };
            let (frame, marked) = match frames.next(most) {
                Ok(Some(frame)) => frame,
                Ok(None) => return true,
                Err(_) => return false,
            };
            let fine = match peer {
                None => self.introduce(now, pipe, frame),
                Some(peer) if Word::is_there(frame) => self.hear_by_pipe(now, peer, frame),
                Some(peer) => {
                    self.handle_carried(now, peer, frame, marked);
                    true
                }
            };
            if !fine {
                return false;
            }
        }
    }

    /// The first word of a TCP connection: says which channel it belongs to.
    fn introduce(&mut self, now: Time, pipe: PipeId, frame: &[u8]) -> bool {
        let Some(&peer) = Word::decode(frame).and_then(|(word, _)| self.by_channel.get(&word.channel)) else {
            return false;
        };
        let opens = match self.peers.get_mut(&peer).filter(|entry| entry.up) {
            Some(Peer { rolling: Rolling { watch: Some(watch), .. }, .. }) => watch.opens_line(frame),
            _ => false,
        };
        if !opens {
            return false;
        }
        self.hang_up(peer);
        if let Some(entry) = self.pipes.get_mut(&pipe) {
            entry.peer = Some(peer);
        }
        if let Some(entry) = self.peers.get_mut(&peer) {
            entry.rolling.pipe = Some(pipe);
            if let Some(watch) = &mut entry.rolling.watch {
                watch.line_open(now);
            }
        }
        self.hear_by_pipe(now, peer, frame)
    }

    fn hear_by_pipe(&mut self, now: Time, peer: PeerId, frame: &[u8]) -> bool {
        let watch = self.peers.get_mut(&peer).and_then(|entry| entry.rolling.watch.as_mut());
        let genuine = watch.is_some_and(|watch| watch.hear(now, true, None, frame));
        self.obey(now, peer);
        genuine
    }

    /// A datagram of QUIC came by TCP. To QUIC it looks like any other of this peer.
    fn handle_carried(&mut self, now: Time, peer: PeerId, datagram: &[u8], marked: bool) {
        let Some(entry) = self.peers.get_mut(&peer) else { return };
        let remote = entry.session.channel().conn_ref().remote_address();
        let ecn = marked.then_some(EcnCodepoint::Ect0);
        let (instant, mut response) = (self.epoch.instant(now), Vec::new());
        match self.endpoint.handle(instant, remote, None, ecn, BytesMut::from(datagram), &mut response) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) if handle == entry.handle => {
                entry.rolling.heard(now, true);
                entry.heard = now;
                entry.session.handle_event(now, event, None);
                self.unsettled.insert(peer);
            }
            // Only its own connection is carried.
            Some(DatagramEvent::NewConnection(incoming)) => self.endpoint.ignore(incoming),
            _ => {}
        }
    }

    /// Appends to `out` what shall leave by a TCP connection now: about 64 KiB at most, nothing if there is nothing.
    pub fn pipe_output(&mut self, now: Time, pipe: PipeId, out: &mut Vec<u8>) {
        self.settle();
        let Some(entry) = self.pipes.get_mut(&pipe).filter(|entry| entry.open) else { return };
        entry.full = false;
        while let Some(word) = entry.words.pop_front() {
            put_frame(&word, false, out);
        }
        let (Some(peer), ending) = (entry.peer, entry.ending) else { return };
        let mut datagram = Vec::new();
        while out.len() < SERVING {
            let entry = self.peers.get_mut(&peer).filter(|entry| entry.rolling.pipe == Some(pipe));
            let Some(entry) = entry.filter(|e| e.session.channel_ref().carriage() == Carriage::Tcp) else {
                break;
            };
            datagram.clear();
            let Some(transmit) = entry.session.poll_transmit(now, &mut datagram) else { break };
            put_frame(&datagram, transmit.ecn == Some(EcnCodepoint::Ect0), out);
        }
        self.session_events(now, peer);
        self.endpoint_events(peer);
        if ending && out.is_empty() {
            self.pipes.remove(&pipe);
            self.events.push_back(Event::HangUp { pipe });
        }
    }

    /// The system takes no more bytes for this TCP connection; until [`pipe_output`](Self::pipe_output) is called
    /// again, nothing need be woken for its sake.
    pub fn pipe_full(&mut self, pipe: PipeId) {
        if let Some(entry) = self.pipes.get_mut(&pipe) {
            entry.full = true;
        }
    }

    /// Closes TCP connections that do not say who they are.
    pub(super) fn dismiss_strangers(&mut self, now: Time) {
        let late = |pipe: &Pipe| pipe.peer.is_none() && now - pipe.since >= INTRODUCTION;
        let gone: Vec<PipeId> = self.pipes.iter().filter(|(_, pipe)| late(pipe)).map(|(&id, _)| id).collect();
        for pipe in gone {
            self.pipes.remove(&pipe);
            self.events.push_back(Event::HangUp { pipe });
        }
    }

    /// When the next stranger has been waited for long enough.
    pub(super) fn strangers_due(&self) -> Option<Time> {
        let strangers = self.pipes.values().filter(|pipe| pipe.peer.is_none());
        strangers.map(|pipe| pipe.since + INTRODUCTION).min()
    }

    /// A word that shall leave by UDP.
    pub(super) fn next_word(&mut self, out: &mut Vec<u8>) -> Option<Batch> {
        let (destination, word) = self.words.pop_front()?;
        out.extend_from_slice(&word);
        let size = word.len();
        Some(batch(&quinn_proto::Transmit { destination, ecn: None, size, segment_size: None, src_ip: None }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skyhaul_cc::Rate;

    #[test]
    fn what_was_learnt_is_believed_less_the_older_it_is_and_an_outage_adds_no_age() {
        let learnt = PathHistory::of(Rate::mbit(100), Duration::from_millis(540));
        let minutes = |n: u64| Time::from_secs(60 * n);
        let at = |silent: Option<u64>, now: u64| {
            let rolling = Rolling {
                learnt: Some((minutes(5), learnt)),
                silent: silent.map(minutes),
                ..Rolling::default()
            };
            rolling.recall(minutes(now)).map(|history| history.confidence.value())
        };
        assert_eq!((at(None, 5), at(None, 10), at(None, 16)), (Some(1.0), Some(0.5), Some(0.0)));
        // Learnt just before an outage of hours, and hours before one of a minute.
        assert_eq!((at(Some(5), 300), at(Some(299), 300)), (Some(1.0), Some(0.0)));
        assert_eq!(Rolling::default().recall(minutes(1)), None);
    }
}
