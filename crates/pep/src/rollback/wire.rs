//! What the two ends of a channel say to each other outside QUIC, and the frames of a TCP carriage.
//!
//! A word is authenticated with keys that only the two ends of this very connection have (TLS exporter, RFC 8446
//! §7.5), one for each direction and carriage, so that none can be forged, sent back, or moved from UDP to TCP.

use crate::frame::Malformed;
use ring::hmac;

/// Bytes of a [`Word`] without padding.
pub const WORD: usize = 48;
/// Longest datagram that a frame holds; the largest IP packets have 9,000 bytes.
pub const FRAME_MOST: usize = 0x3fff;
/// Bytes of a frame's head.
pub const FRAME_HEAD: usize = 2;

/// Bits 5 and 4 tell words from headers of the shim, the top bits from QUIC.
const KIND: u8 = 0x20;
const ANSWER: u8 = 8;
const FULL: u8 = 4;
const TCP: u8 = 2;
const DEAF: u8 = 1;
/// Where the tag begins.
const SIGNED: usize = 32;
/// Datagrams of a frame that were marked ECT(0) (RFC 3168 §5).
const MARKED: u16 = 0x8000;

/// The label of the keys (RFC 8446 §7.5), and how many bytes they are drawn from.
pub(crate) const EXPORTER: &[u8] = b"EXPORTER-skyhaul-rollback-1";
pub(crate) const SECRET: usize = 8 + 4 * 32;

/// Names a connection outside QUIC, the same at both ends.
pub type ChannelName = [u8; 8];

/// One end's probe, or its answer to one.
///
/// ```text
///  0 0 1 0 a f t d   answer, full size, the terminal uses TCP, the sender's full datagrams get no answer
///  channel           8 bytes
///  number            8 bytes: of all words of this sender
///  echo              8 bytes: the number answered; zero in a probe
///  turn              4 bytes: how often the terminal has changed the carriage
///  size              2 bytes: of the whole datagram
///  why               1 byte: the reason of the turn
///  tag               16 bytes: HMAC-SHA256 of all before it, cut
///  zeros             up to size
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Answers the probe `echo`.
    pub answer: bool,
    /// Padded to the largest datagram of the channel.
    pub full: bool,
    /// The carriage of turn `turn` is TCP.
    pub tcp: bool,
    /// The sender's own full datagrams get no answer.
    pub deaf: bool,
    /// Which connection.
    pub channel: ChannelName,
    /// The sender's count of words.
    pub number: u64,
    /// In an answer, the number of the probe.
    pub echo: u64,
    /// How often the terminal has changed the carriage.
    pub turn: u32,
    /// Bytes of the whole datagram.
    pub size: u16,
    /// The reason of the turn; those of later versions are read as [`Trouble::Silent`](super::Trouble).
    pub why: u8,
}

impl Word {
    /// Whether a datagram, or a frame, is a word, genuine or not.
    pub fn is_there(datagram: &[u8]) -> bool {
        datagram.first().is_some_and(|first| first & 0xf0 == KIND)
    }

    /// Reads a word without proof; nothing if it is too short or shorter than it says. The second part is its tag.
    pub fn decode(datagram: &[u8]) -> Option<(Word, [u8; 16])> {
        if !Self::is_there(datagram) {
            return None;
        }
        let bytes = datagram.first_chunk::<WORD>()?;
        let (first, rest) = bytes.split_first()?;
        let (channel, rest) = rest.split_first_chunk::<8>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let (echo, rest) = rest.split_first_chunk::<8>()?;
        let (turn, rest) = rest.split_first_chunk::<4>()?;
        let (size, rest) = rest.split_first_chunk::<2>()?;
        let (&why, tag) = rest.split_first()?;
        let size = u16::from_be_bytes(*size);
        if usize::from(size) != datagram.len() {
            return None;
        }
        let word = Word {
            answer: first & ANSWER != 0,
            full: first & FULL != 0,
            tcp: first & TCP != 0,
            deaf: first & DEAF != 0,
            channel: *channel,
            number: u64::from_be_bytes(*number),
            echo: u64::from_be_bytes(*echo),
            turn: u32::from_be_bytes(*turn),
            size,
            why,
        };
        Some((word, *tag.first_chunk::<16>()?))
    }

    /// The bytes before the tag.
    pub fn head(&self) -> [u8; SIGNED] {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let mut out = [0; SIGNED];
        out[0] = KIND
            | bit(self.answer, ANSWER)
            | bit(self.full, FULL)
            | bit(self.tcp, TCP)
            | bit(self.deaf, DEAF);
        out[1..9].copy_from_slice(&self.channel);
        out[9..17].copy_from_slice(&self.number.to_be_bytes());
        out[17..25].copy_from_slice(&self.echo.to_be_bytes());
        out[25..29].copy_from_slice(&self.turn.to_be_bytes());
        out[29..31].copy_from_slice(&self.size.to_be_bytes());
        out[31] = self.why;
        out
    }
}

/// The keys of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) channel: ChannelName,
    /// Ours and theirs, by UDP and by TCP.
    own: [hmac::Key; 2],
    theirs: [hmac::Key; 2],
}

impl Keys {
    /// Of the secret that both ends have; `terminal` is the end that connected.
    pub(crate) fn new(secret: &[u8; SECRET], terminal: bool) -> Self {
        let (channel, keys) = secret.split_at(8);
        let key = |n: usize| hmac::Key::new(hmac::HMAC_SHA256, &keys[32 * n..32 * (n + 1)]);
        let (own, theirs) = ([key(0), key(1)], [key(2), key(3)]);
        let (own, theirs) = if terminal { (own, theirs) } else { (theirs, own) };
        let mut name = [0; 8];
        name.copy_from_slice(channel);
        Keys { channel: name, own, theirs }
    }

    /// The whole word, padded to its size.
    pub(crate) fn sign(&self, by_tcp: bool, word: &Word) -> Vec<u8> {
        let head = word.head();
        let tag = hmac::sign(&self.own[usize::from(by_tcp)], &head);
        let mut out = head.to_vec();
        out.extend_from_slice(&tag.as_ref()[..16]);
        out.resize(usize::from(word.size).max(WORD), 0);
        out
    }

    /// The word, if the other end has said it.
    pub(crate) fn verify(&self, by_tcp: bool, datagram: &[u8]) -> Option<Word> {
        let (word, tag) = Word::decode(datagram)?;
        let expected = hmac::sign(&self.theirs[usize::from(by_tcp)], &word.head());
        // Not secret for long, but no reason to compare byte by byte either.
        let differs = expected.as_ref().iter().zip(tag).fold(0, |all, (a, b)| all | (a ^ b));
        (differs == 0 && word.channel == self.channel).then_some(word)
    }
}

/// Appends a frame; nothing for a datagram that none can hold. `marked`: it was to travel as ECT(0).
pub fn put_frame(datagram: &[u8], marked: bool, out: &mut Vec<u8>) {
    if datagram.is_empty() || datagram.len() > FRAME_MOST {
        return;
    }
    let head = datagram.len() as u16 | if marked { MARKED } else { 0 };
    out.extend_from_slice(&head.to_be_bytes());
    out.extend_from_slice(datagram);
}

/// Puts frames together from the pieces that TCP delivers.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    rest: Vec<u8>,
    /// Where the next frame begins.
    at: usize,
}

impl Frames {
    /// More bytes came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.rest.drain(..std::mem::take(&mut self.at));
        self.rest.extend_from_slice(bytes);
    }

    /// The next whole frame of at most `most` bytes and whether it was marked; nothing while bytes are missing.
    ///
    /// # Errors
    /// When a frame is empty or longer; nothing after it can be read.
    pub fn next(&mut self, most: usize) -> Result<Option<(&[u8], bool)>, Malformed> {
        let Some(head) = self.rest[self.at..].first_chunk::<FRAME_HEAD>() else { return Ok(None) };
        let head = u16::from_be_bytes(*head);
        let length = usize::from(head & !MARKED);
        if length == 0 || length > most.min(FRAME_MOST) {
            return Err(Malformed("frame of a TCP carriage: length"));
        }
        let begin = self.at + FRAME_HEAD;
        let Some(datagram) = self.rest.get(begin..begin + length) else { return Ok(None) };
        self.at = begin + length;
        Ok(Some((datagram, head & MARKED != 0)))
    }

    /// Bytes that wait for the rest of their frame.
    pub fn waiting(&self) -> usize {
        self.rest.len() - self.at
    }
}

#[cfg(test)]
pub(crate) fn test_keys() -> (Keys, Keys) {
    let mut secret = [0; SECRET];
    (0..SECRET).for_each(|n| secret[n] = n as u8);
    (Keys::new(&secret, true), Keys::new(&secret, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::Header;
    use proptest::prelude::*;

    fn any_word() -> impl Strategy<Value = Word> {
        (any::<[bool; 4]>(), any::<u64>(), any::<u64>(), any::<u32>(), WORD as u16..9_000).prop_map(
            |([answer, full, tcp, deaf], number, echo, turn, size)| Word {
                answer,
                full,
                tcp,
                deaf,
                channel: test_keys().0.channel,
                number,
                echo,
                turn,
                size,
                why: number as u8,
            },
        )
    }

    proptest! {
        #[test]
        fn a_word_survives_the_wire_and_is_neither_quic_nor_a_header(word in any_word(), by_tcp: bool) {
            let (terminal, gateway) = test_keys();
            let bytes = terminal.sign(by_tcp, &word);
            prop_assert_eq!(bytes.len(), usize::from(word.size));
            prop_assert_eq!(gateway.verify(by_tcp, &bytes), Some(word));
            prop_assert_eq!(Header::decode(&bytes), None);
            prop_assert!(Word::is_there(&bytes) && bytes[0] & 0xc0 == 0);
        }

        #[test]
        fn a_word_that_was_changed_cut_sent_back_or_moved_is_none(
            word in any_word(),
            at in 0usize..WORD,
            bit in 0u32..8,
            cut in 0usize..9_000,
        ) {
            let (terminal, gateway) = test_keys();
            let bytes = terminal.sign(false, &word);
            prop_assert_eq!(gateway.verify(true, &bytes), None);
            prop_assert_eq!(terminal.verify(false, &bytes), None);
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            prop_assert_eq!(gateway.verify(false, &changed), None);
            prop_assert_eq!(gateway.verify(false, &bytes[..cut % bytes.len()]), None);
        }

        #[test]
        fn any_bytes_are_read_or_refused_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (terminal, _) = test_keys();
            prop_assert_eq!(terminal.verify(false, &bytes), None);
            if let Some((word, tag)) = Word::decode(&bytes) {
                prop_assert_eq!(&word.head()[..], &bytes[..SIGNED]);
                prop_assert_eq!(&tag[..], &bytes[SIGNED..WORD]);
            }
        }

        #[test]
        fn frames_come_out_as_they_went_in_however_tcp_cuts_them(
            datagrams in proptest::collection::vec(
                (proptest::collection::vec(any::<u8>(), 1..2_000), any::<bool>()), 0..20),
            cuts in proptest::collection::vec(1usize..3_000, 1..50),
        ) {
            let mut stream = Vec::new();
            datagrams.iter().for_each(|(datagram, marked)| put_frame(datagram, *marked, &mut stream));
            let (mut frames, mut found, mut at) = (Frames::default(), Vec::new(), 0);
            for cut in cuts.into_iter().cycle() {
                let end = (at + cut).min(stream.len());
                frames.push(&stream[at..end]);
                at = end;
                while let Some((datagram, marked)) = frames.next(FRAME_MOST).unwrap() {
                    found.push((datagram.to_vec(), marked));
                }
                if at == stream.len() {
                    break;
                }
            }
            prop_assert_eq!(found, datagrams);
            prop_assert_eq!(frames.waiting(), 0);
        }

        #[test]
        fn garbage_is_refused_before_more_than_one_frame_of_it_is_kept(
            bytes in proptest::collection::vec(any::<u8>(), 0..5_000),
        ) {
            let mut frames = Frames::default();
            for piece in bytes.chunks(100) {
                frames.push(piece);
                loop {
                    match frames.next(WORD) {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(_) => return Ok(()),
                    }
                }
                prop_assert!(frames.waiting() < FRAME_HEAD + WORD);
            }
        }
    }
}
