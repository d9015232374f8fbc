//! TLS by the host. A plugin never sees keys, and no two grants share a configuration: neither a client's certificate
//! nor a resumed session of one sink can serve another.

use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustls::client::Resumption;
use rustls::{AlertDescription, ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use sha2::{Digest as _, Sha224, Sha256, Sha384, Sha512};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use x509_parser::asn1_rs::{Oid, oid};
use x509_parser::oid_registry as oids;
use x509_parser::signature_algorithm::RsaSsaPssParams;
use x509_parser::x509::AlgorithmIdentifier;

use super::address::Host;
use super::{Deadline, NetError};
use crate::grants::place::Trust;

/// Largest PEM file.
const MAX_PEM: u64 = 4 << 20;
/// Sessions of one grant that can be resumed.
const SESSIONS: usize = 32;

/// The TLS of one grant of one sink. Files are read when they are needed, and again after they were changed.
pub(crate) struct Client {
    trust: Trust,
    alpn: Vec<Vec<u8>>,
    made: Mutex<Option<(Stamp, Arc<ClientConfig>)>>,
}

/// What tells a changed file: device, inode, size, time of the last change.
type Stamp = Vec<Option<(u64, u64, u64, i64, i64)>>;

impl Client {
    pub(crate) fn new(trust: Trust, alpn: &[&[u8]]) -> Self {
        Self { trust, alpn: alpn.iter().map(|name| name.to_vec()).collect(), made: Mutex::default() }
    }

    /// Reads the files, or uses what was read if they are as they were.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, NetError> {
        let stamp = self.stamp();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, config)) = made.as_ref()
            && *of == stamp
        {
            return Ok(config.clone());
        }
        let alpn: Vec<&[u8]> = self.alpn.iter().map(Vec::as_slice).collect();
        let config = client_config(&self.trust, &alpn).map_err(|error| match (&*made, error) {
            // They could be used before: somebody is replacing them, or is told by the errors that come now.
            (Some(_), NetError::Trust { detail }) => NetError::TrustLost { detail },
            (_, error) => error,
        })?;
        *made = Some((stamp, config.clone()));
        Ok(config)
    }

    /// The name that `host`'s certificate must have.
    pub(crate) fn server_name(&self, host: &Host) -> Result<ServerName<'static>, NetError> {
        server_name(&self.trust, host)
    }

    fn stamp(&self) -> Stamp {
        let Trust { roots, client, .. } = &self.trust;
        let client = client.iter().flat_map(|(chain, key)| [chain, key]);
        let of = |path: &Path| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.dev(), meta.ino(), meta.size(), meta.ctime(), meta.ctime_nsec()))
        };
        roots.iter().chain(client).map(|path| of(path)).collect()
    }
}

/// Whom to trust and what to show, read from the files that `trust` names.
///
/// # Errors
/// [`NetError::Trust`] names the file, what is wrong with it and how to mend it.
pub(crate) fn client_config(trust: &Trust, alpn: &[&[u8]]) -> Result<Arc<ClientConfig>, NetError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let wrong = |detail: String| NetError::Trust { detail };
    let roots = match &trust.roots {
        Some(path) => Arc::new(roots_in(path)?),
        None => system_roots()?,
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(format!("TLS cannot be used: {error}")))?
        .with_root_certificates(roots);
    let mut config = match &trust.client {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            builder.with_client_auth_cert(certificates_in(chain)?, key_in(key)?).map_err(|error| {
                wrong(format!(
                    "the client certificate {} and the key {} do not go together: {error}",
                    chain.display(),
                    key.display()
                ))
            })?
        }
    };
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Ok(Arc::new(config))
}

/// The name that the certificate must have: the one in `trust`, or the host's.
pub(crate) fn server_name(trust: &Trust, host: &Host) -> Result<ServerName<'static>, NetError> {
    let wrong = |name: &str| NetError::Trust { detail: format!("`{name}` is no name that a certificate can have") };
    match (&trust.server_name, host) {
        (Some(name), _) => ServerName::try_from(name.clone()).map_err(|_| wrong(name)),
        (None, Host::Name(name)) => ServerName::try_from(name.clone()).map_err(|_| wrong(name)),
        (None, Host::Address(address)) => Ok(ServerName::from(*address)),
    }
}

/// Speaks TLS on a connection, and checks the server's certificate. Dropped, the connection is reset.
pub(crate) async fn handshake(
    place: &impl fmt::Display,
    stream: TcpStream,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    deadline: Deadline,
) -> Result<TlsStream<TcpStream>, NetError> {
    let handshake = async {
        TlsConnector::from(config).connect(name, stream).await.map_err(|error| failed(place.to_string(), &error))
    };
    deadline.within(place, "the TLS handshake", handshake).await
}

fn failed(place: String, error: &io::Error) -> NetError {
    use AlertDescription as Alert;
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(why)) => NetError::Certificate { place, detail: why.to_string() },
        Some(rustls::Error::NoCertificatesPresented) => {
            NetError::Certificate { place, detail: "it shows none".to_owned() }
        }
        Some(rustls::Error::AlertReceived(
            alert @ (Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::CertificateRequired
            | Alert::UnknownCA
            | Alert::AccessDenied),
        )) => NetError::ClientRefused { place, detail: format!("it answers {alert:?}") },
        Some(other) => NetError::Tls { place, detail: other.to_string() },
        None => NetError::Tls { place, detail: error.to_string() },
    }
}

/// Read once: they belong to the machine, not to a tenant.
fn system_roots() -> Result<Arc<RootCertStore>, NetError> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(roots.clone());
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable == 0 {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        let detail = format!(
            "this machine has no certificates of authorities to trust{why}; install them, or name a PEM file as `roots`"
        );
        return Err(NetError::Trust { detail });
    }
    Ok(ROOTS.get_or_init(|| Arc::new(roots)).clone())
}

fn roots_in(path: &Path) -> Result<RootCertStore, NetError> {
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates_in(path)?.into_iter().enumerate() {
        roots.add(certificate).map_err(|error| NetError::Trust {
            detail: format!("certificate {} in {} cannot be trusted: {error}", index + 1, path.display()),
        })?;
    }
    Ok(roots)
}

fn certificates_in(path: &Path) -> Result<Vec<CertificateDer<'static>>, NetError> {
    let text = read_pem(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(not_pem(path, "a certificate", "it has none")),
        Err(error) => Err(not_pem(path, "a certificate", &error.to_string())),
    }
}

fn key_in(path: &Path) -> Result<PrivateKeyDer<'static>, NetError> {
    // What is wrong with a key is said without showing any of it.
    PrivateKeyDer::from_pem_slice(&read_pem(path)?)
        .map_err(|_| not_pem(path, "a private key (PKCS #8, PKCS #1 or SEC 1, without a passphrase)", "it has none"))
}

fn not_pem(path: &Path, wanted: &str, why: &str) -> NetError {
    NetError::Trust { detail: format!("{} must be a PEM file with {wanted}: {why}", path.display()) }
}

fn read_pem(path: &Path) -> Result<Vec<u8>, NetError> {
    let cannot = |why: &dyn fmt::Display| NetError::Trust { detail: format!("cannot read {}: {why}", path.display()) };
    let mut text = Vec::new();
    let file = crate::open_file(path).map_err(|error| cannot(&error))?;
    file.take(MAX_PEM + 1).read_to_end(&mut text).map_err(|error| cannot(&error))?;
    match text.len() as u64 > MAX_PEM {
        true => Err(cannot(&format!("it has more than {MAX_PEM} bytes"))),
        false => Ok(text),
    }
}

/// What both sides know of this TLS connection and nobody in between can forge: `tls-server-end-point` (RFC 5929).
/// `None` if the certificate's signature has no hash that the RFC could mean, as with Ed25519.
pub(crate) fn server_end_point(stream: &TlsStream<TcpStream>) -> Option<Vec<u8>> {
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    end_point_of(certificate)
}

fn end_point_of(certificate: &[u8]) -> Option<Vec<u8>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    match signature_hash(&parsed.signature_algorithm)? {
        Hash::Sha224 => Some(Sha224::digest(certificate).to_vec()),
        Hash::Sha256 => Some(Sha256::digest(certificate).to_vec()),
        Hash::Sha384 => Some(Sha384::digest(certificate).to_vec()),
        Hash::Sha512 => Some(Sha512::digest(certificate).to_vec()),
    }
}

#[derive(Clone, Copy)]
enum Hash {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// The hash of a signature algorithm. For the broken ones, MD5 and SHA-1, the RFC says SHA-256.
fn signature_hash(algorithm: &AlgorithmIdentifier<'_>) -> Option<Hash> {
    const ECDSA_WITH_SHA1: Oid<'static> = oid!(1.2.840.10045.4.1);
    let known: [(&Oid<'_>, Hash); 11] = [
        (&oids::OID_PKCS1_MD5WITHRSAENC, Hash::Sha256),
        (&oids::OID_PKCS1_SHA1WITHRSA, Hash::Sha256),
        (&ECDSA_WITH_SHA1, Hash::Sha256),
        (&oids::OID_PKCS1_SHA224WITHRSA, Hash::Sha224),
        (&oids::OID_SIG_ECDSA_WITH_SHA224, Hash::Sha224),
        (&oids::OID_PKCS1_SHA256WITHRSA, Hash::Sha256),
        (&oids::OID_SIG_ECDSA_WITH_SHA256, Hash::Sha256),
        (&oids::OID_PKCS1_SHA384WITHRSA, Hash::Sha384),
        (&oids::OID_SIG_ECDSA_WITH_SHA384, Hash::Sha384),
        (&oids::OID_PKCS1_SHA512WITHRSA, Hash::Sha512),
        (&oids::OID_SIG_ECDSA_WITH_SHA512, Hash::Sha512),
    ];
    let name = &algorithm.algorithm;
    if *name == oids::OID_PKCS1_RSASSAPSS {
        let parameters = RsaSsaPssParams::try_from(algorithm.parameters.as_ref()?).ok()?;
        return pss_hash(parameters.hash_algorithm_oid());
    }
    known.iter().find(|(known, _)| *known == name).map(|(_, hash)| *hash)
}

fn pss_hash(name: &Oid<'_>) -> Option<Hash> {
    let known: [(&Oid<'_>, Hash); 4] = [
        (&oids::OID_HASH_SHA1, Hash::Sha256),
        (&oids::OID_NIST_HASH_SHA256, Hash::Sha256),
        (&oids::OID_NIST_HASH_SHA384, Hash::Sha384),
        (&oids::OID_NIST_HASH_SHA512, Hash::Sha512),
    ];
    known.iter().find(|(known, _)| *known == name).map(|(_, hash)| *hash)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SignatureAlgorithm};

    use super::*;

    fn signed_with(algorithm: &'static SignatureAlgorithm) -> Vec<u8> {
        let key = KeyPair::generate_for(algorithm).unwrap();
        CertificateParams::new(vec!["db.example".to_owned()]).unwrap().self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_end_point_is_the_hash_that_the_signature_uses() {
        let sha256 = signed_with(&rcgen::PKCS_ECDSA_P256_SHA256);
        assert_eq!(end_point_of(&sha256).unwrap(), Sha256::digest(&sha256).to_vec());
        let sha384 = signed_with(&rcgen::PKCS_ECDSA_P384_SHA384);
        assert_eq!(end_point_of(&sha384).unwrap(), Sha384::digest(&sha384).to_vec());
        assert_eq!(end_point_of(&signed_with(&rcgen::PKCS_ED25519)), None);
        assert_eq!(end_point_of(b"no certificate"), None);
    }

    fn trust(roots: &Path) -> Trust {
        Trust { roots: Some(roots.to_owned()), ..Trust::default() }
    }

    #[test]
    fn a_pem_file_that_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("roots.pem");
        let error = client_config(&trust(&path), &[]).unwrap_err();
        assert!(error.to_string().contains("roots.pem"), "{error}");
        for text in ["", "nothing", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"] {
            std::fs::write(&path, text).unwrap();
            let error = client_config(&trust(&path), &[]).unwrap_err();
            assert!(error.to_string().contains("roots.pem must be a PEM file with a certificate"), "{error}");
            assert!(!error.for_plugin().contains("roots.pem"), "{}", error.for_plugin());
        }
    }

    #[test]
    fn changed_files_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("roots.pem");
        let write = || {
            let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
            let made = CertificateParams::new(vec!["db.example".to_owned()]).unwrap().self_signed(&key).unwrap();
            // Beside and moved there, as who rotates certificates does it.
            std::fs::write(dir.path().join("new"), made.pem()).unwrap();
            std::fs::rename(dir.path().join("new"), &path).unwrap();
        };
        write();
        let client = Client::new(trust(&path), &[]);
        let first = client.config().unwrap();
        assert!(Arc::ptr_eq(&first, &client.config().unwrap()));
        write();
        assert!(!Arc::ptr_eq(&first, &client.config().unwrap()));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(client.config().unwrap_err().remedy(), super::super::Remedy::Retry);
        write();
        assert!(client.config().is_ok());
    }
}
