//! TLS 1.3 with raw Ed25519 public keys (RFC 7250, RFC 8446) in place of certificates: each end knows
//! the other's key beforehand, so there is no authority, no name and no expiry to get wrong.

use super::{PublicKey, SecretKey};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Both ends must speak this protocol; the number rises when the meaning of the bytes changes.
pub(crate) const ALPN: &[u8] = b"skyhaul/1";
/// Keys decide who the peer is; the name only fills a mandatory field and is not sent.
pub(crate) const SERVER_NAME: &str = "skyhaul";

/// Keys that were offered to us and refused, for the log.
pub(crate) type RefusedKeys = Arc<Mutex<Vec<String>>>;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certified(secret: &SecretKey, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, Error> {
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(secret.pkcs8().to_vec()));
    let signing = provider.key_provider.load_private_key(der)?;
    let spki = CertificateDer::from(secret.public().to_spki());
    Ok(Arc::new(CertifiedKey::new(vec![spki], signing)))
}

/// Accepts the peers in the set and nobody else.
#[derive(Debug)]
struct KnownKeys {
    allowed: BTreeSet<PublicKey>,
    provider: Arc<CryptoProvider>,
    refused: RefusedKeys,
}

impl KnownKeys {
    fn check(&self, offered: &CertificateDer<'_>) -> Result<(), Error> {
        match PublicKey::from_spki(offered) {
            Ok(key) if self.allowed.contains(&key) => Ok(()),
            Ok(key) => self.refuse(key.to_string()),
            Err(_) => self.refuse("something that is no Ed25519 public key".to_owned()),
        }
    }

    fn refuse(&self, what: String) -> Result<(), Error> {
        let mut refused = self.refused.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Bounded: whoever floods us with keys must not fill our memory.
        if refused.len() < 64 {
            refused.push(what);
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }
}

/// What both kinds of verifier answer alike: TLS 1.3 alone, with Ed25519 and raw keys.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("TLS 1.2 is not spoken here".to_owned()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            key: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            rustls::crypto::verify_tls13_signature_with_raw_key(
                message,
                &SubjectPublicKeyInfoDer::from(key.as_ref()),
                signature,
                &self.provider.signature_verification_algorithms,
            )
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for KnownKeys {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }
    signatures!();
}

impl ClientCertVerifier for KnownKeys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }
    signatures!();
}

fn known(peers: &[PublicKey], provider: &Arc<CryptoProvider>, refused: &RefusedKeys) -> Arc<KnownKeys> {
    Arc::new(KnownKeys {
        allowed: peers.iter().copied().collect(),
        provider: provider.clone(),
        refused: refused.clone(),
    })
}

/// TLS for the end that listens; `peers` are the keys that may connect.
pub(crate) fn server(
    secret: &SecretKey,
    peers: &[PublicKey],
    refused: &RefusedKeys,
) -> Result<rustls::ServerConfig, Error> {
    let provider = provider();
    let own = certified(secret, &provider)?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(known(peers, &provider, refused))
        .with_cert_resolver(Arc::new(rustls::server::AlwaysResolvesServerRawPublicKeys::new(own)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    // A resumed session would skip the check of the peer's key.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// TLS for the end that connects; `peer` is the only key it accepts.
pub(crate) fn client(
    secret: &SecretKey,
    peer: PublicKey,
    refused: &RefusedKeys,
) -> Result<rustls::ClientConfig, Error> {
    let provider = provider();
    let own = certified(secret, &provider)?;
    let mut config = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(known(&[peer], &provider, refused))
        .with_client_cert_resolver(Arc::new(rustls::client::AlwaysResolvesClientRawPublicKeys::new(own)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}
