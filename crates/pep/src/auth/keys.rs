//! Ed25519 keys: what an end proves to be (secret) and what its peer is told (public).

use std::fmt;
use std::str::FromStr;

use base64::prelude::{Engine, BASE64_STANDARD};
use ring::rand::SecureRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::PrivatePkcs8KeyDer;

/// An Ed25519 secret key: PKCS#8 in memory, a PEM `PRIVATE KEY` block in a file. Never printed by `Debug`.
#[derive(Clone)]
pub struct SecretKey {
    pkcs8: Vec<u8>,
    public: PublicKey,
}

/// An Ed25519 public key. Its text form is `skyhaul-ed25519:` followed by the 32 bytes in base64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

/// A key that could not be made or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The random number generator gave nothing.
    NoRandomness,
    /// No PEM block `PRIVATE KEY` in the text.
    NotPem,
    /// A PEM block, but not an Ed25519 key in PKCS#8 form (RFC 8410 §7).
    NotEd25519,
    /// A public key's text without the leading `skyhaul-ed25519:`.
    NoPrefix,
    /// A public key's text whose part after the prefix is not base64 of 32 bytes.
    NotBase64Of32Bytes,
}

impl SecretKey {
    /// Makes a new key from `random`.
    ///
    /// # Errors
    /// When `random` fails.
    pub fn generate(random: &dyn SecureRandom) -> Result<Self, KeyError> {
        let document = Ed25519KeyPair::generate_pkcs8(random).map_err(|_| KeyError::NoRandomness)?;
        SecretKey::from_pkcs8(document.as_ref())
    }

    /// Reads PKCS#8 DER, version 1 (as OpenSSL writes it) or 2 (with the public key inside).
    ///
    /// # Errors
    /// When it is not an Ed25519 key, or its public half does not belong to its secret half.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map_err(|_| KeyError::NotEd25519)?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| KeyError::NotEd25519)?;
        Ok(SecretKey { pkcs8: der.to_vec(), public: PublicKey(public) })
    }

    /// Reads the first `PRIVATE KEY` block of a PEM text; what stands around it is ignored.
    ///
    /// # Errors
    /// When there is no such block or it does not hold an Ed25519 key.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).map_err(|_| KeyError::NotPem)?;
        SecretKey::from_pkcs8(der.secret_pkcs8_der())
    }

    /// The key as a PEM text (RFC 7468), for a file that only its owner may read.
    pub fn to_pem(&self) -> String {
        let base64 = BASE64_STANDARD.encode(&self.pkcs8);
        let mut pem = String::from("-----BEGIN PRIVATE KEY-----\n");
        let mut rest = base64.as_str();
        while !rest.is_empty() {
            let (line, tail) = rest.split_at(rest.len().min(PEM_LINE));
            pem.push_str(line);
            pem.push('\n');
            rest = tail;
        }
        pem.push_str("-----END PRIVATE KEY-----\n");
        pem
    }

    /// PKCS#8 DER, as TLS libraries take it.
    pub fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        self.public
    }
}

impl PublicKey {
    /// A key from its 32 bytes (RFC 8032 §5.1.5).
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        PublicKey(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// SubjectPublicKeyInfo DER (RFC 8410 §4): what TLS raw public keys (RFC 7250) carry.
    pub fn to_spki(self) -> Vec<u8> {
        [&SPKI_PREFIX[..], &self.0].concat()
    }

    /// Reads SubjectPublicKeyInfo DER.
    ///
    /// # Errors
    /// When it is not an Ed25519 key.
    pub fn from_spki(der: &[u8]) -> Result<Self, KeyError> {
        let bytes = der.strip_prefix(&SPKI_PREFIX).ok_or(KeyError::NotEd25519)?;
        bytes.try_into().map(PublicKey).map_err(|_| KeyError::NotEd25519)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey(of {})", self.public)
    }
}
impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TEXT_PREFIX}{}", BASE64_STANDARD.encode(self.0))
    }
}
impl FromStr for PublicKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let base64 = text.trim().strip_prefix(TEXT_PREFIX).ok_or(KeyError::NoPrefix)?;
        let bytes = BASE64_STANDARD.decode(base64).map_err(|_| KeyError::NotBase64Of32Bytes)?;
        bytes.try_into().map(PublicKey).map_err(|_| KeyError::NotBase64Of32Bytes)
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyError::NoRandomness => "the system gave no random numbers",
            KeyError::NotPem => "found no block \"-----BEGIN PRIVATE KEY-----\", expected a PEM file",
            KeyError::NotEd25519 => "found another kind of key, expected an Ed25519 key in PKCS#8 form",
            KeyError::NoPrefix => "found no leading \"skyhaul-ed25519:\", expected skyhaul-ed25519:BASE64",
            KeyError::NotBase64Of32Bytes => {
                "found something else than 32 bytes in base64, expected skyhaul-ed25519:BASE64"
            }
        })
    }
}
impl std::error::Error for KeyError {}

const TEXT_PREFIX: &str = "skyhaul-ed25519:";
/// RFC 7468 §2: 64 characters per line.
const PEM_LINE: usize = 64;
/// SEQUENCE { SEQUENCE { OID 1.3.101.112 }, BIT STRING of 33 bytes with no unused bits } (RFC 8410 §4, §10.1).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ring::rand::SystemRandom;

    #[test]
    fn a_secret_key_survives_its_file() {
        let key = SecretKey::generate(&SystemRandom::new()).unwrap();
        let read = SecretKey::from_pem(&key.to_pem()).unwrap();
        assert_eq!(read.pkcs8(), key.pkcs8());
        assert_eq!(read.public(), key.public());
        assert!(key.to_pem().lines().all(|line| line.len() <= 64));
    }

    #[test]
    fn a_key_made_by_openssl_is_read() {
        // The example of RFC 8410 §10.3, PKCS#8 version 1, with its public key from §10.1.
        let pem = "-----BEGIN PRIVATE KEY-----\n\
                   MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
                   -----END PRIVATE KEY-----\n";
        let public = SecretKey::from_pem(pem).unwrap().public();
        assert_eq!(public.to_string(), "skyhaul-ed25519:Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=");
        let spki = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";
        assert_eq!(public.to_spki(), BASE64_STANDARD.decode(spki).unwrap());
    }

    #[test]
    fn a_secret_key_never_shows_in_debug_output() {
        let key = SecretKey::generate(&SystemRandom::new()).unwrap();
        let shown = format!("{key:?}");
        assert_eq!(shown, format!("SecretKey(of {})", key.public()));
    }

    #[test]
    fn broken_keys_say_what_was_expected() {
        for (text, wanted) in [
            ("ssh-ed25519 AAAA", KeyError::NoPrefix),
            ("skyhaul-ed25519:!!!", KeyError::NotBase64Of32Bytes),
            ("skyhaul-ed25519:AAAA", KeyError::NotBase64Of32Bytes),
        ] {
            assert_eq!(text.parse::<PublicKey>(), Err(wanted), "{text}");
        }
        assert_eq!(SecretKey::from_pem("hello").unwrap_err(), KeyError::NotPem);
        let no_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert_eq!(SecretKey::from_pem(no_key).unwrap_err(), KeyError::NotEd25519);
    }

    proptest! {
        #[test]
        fn every_public_key_survives_its_text_and_its_der(bytes: [u8; 32]) {
            let key = PublicKey::from_bytes(bytes);
            prop_assert_eq!(key.to_string().parse::<PublicKey>(), Ok(key));
            prop_assert_eq!(PublicKey::from_spki(&key.to_spki()), Ok(key));
        }

        #[test]
        fn no_text_or_der_makes_a_key_reader_panic(text: String, der: Vec<u8>) {
            let _ = text.parse::<PublicKey>();
            let _ = SecretKey::from_pem(&text);
            let _ = SecretKey::from_pkcs8(&der);
            let _ = PublicKey::from_spki(&der);
        }
    }
}
