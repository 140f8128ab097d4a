//! Short connection IDs: every full packet carries one, and four bytes more are 0.3 % of a file.

use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};
use ring::hmac;
use skyhaul_cc::Duration;

/// Bytes that are drawn: 16 million names, for at most some thousands at a time. quinn-proto draws again for one that is
/// taken.
const DRAWN: usize = 3;
/// And one that follows from them and the key, so that an end recognises what its former self has given out, and leaves
/// most of what is none of its business unanswered.
const LENGTH: usize = DRAWN + 1;

/// Draws connection IDs of four bytes.
pub(super) struct Names {
    key: hmac::Key,
    /// What is drawn follows from this and from how often it was done.
    luck: hmac::Key,
    drawn: u64,
}

impl Names {
    /// The same secret recognises the same names, also after a restart; the same `seed` draws the same ones.
    pub(super) fn new(secret: &hmac::Key, seed: &[u8; 32]) -> Self {
        let key = hmac::sign(secret, b"connection ids");
        Names {
            key: hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()),
            luck: hmac::Key::new(hmac::HMAC_SHA256, seed),
            drawn: 0,
        }
    }

    fn check(&self, drawn: &[u8]) -> u8 {
        hmac::sign(&self.key, drawn).as_ref()[0]
    }
}

impl ConnectionIdGenerator for Names {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut name = [0; LENGTH];
        let luck = hmac::sign(&self.luck, &self.drawn.to_be_bytes());
        self.drawn += 1;
        name[..DRAWN].copy_from_slice(&luck.as_ref()[..DRAWN]);
        name[DRAWN] = self.check(&name[..DRAWN]);
        ConnectionId::new(&name)
    }

    fn validate(&self, name: &ConnectionId) -> Result<(), InvalidCid> {
        match name.split_last() {
            Some((&check, drawn)) if drawn.len() == DRAWN && self.check(drawn) == check => Ok(()),
            _ => Err(InvalidCid),
        }
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(secret: &[u8], seed: u8) -> Names {
        Names::new(&hmac::Key::new(hmac::HMAC_SHA256, secret), &[seed; 32])
    }

    #[test]
    fn the_same_seed_draws_the_same_names_and_another_one_others() {
        let draw = |seed| names(b"a", seed).generate_cid();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn an_end_recognises_what_its_former_self_gave_out_and_hardly_anything_else() {
        let (mut before, after, other) = (names(b"a", 1), names(b"a", 2), names(b"b", 3));
        let given: Vec<ConnectionId> = (0..2_000).map(|_| before.generate_cid()).collect();
        assert!(given.iter().all(|name| name.len() == LENGTH && after.validate(name).is_ok()));
        let mistaken = given.iter().filter(|name| other.validate(name).is_ok()).count();
        assert!(mistaken < 40, "{mistaken} of 2000, 8 by chance");
        for length in [0, 3, 5, 8, 20] {
            assert!(after.validate(&ConnectionId::new(&[7; 20][..length])).is_err(), "{length} bytes");
        }
    }
}
