//! Servers, and authorities that make their certificates.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// How a connection ended, as its server sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// In order; with TLS, with its end mark.
    Clean,
    /// By a reset, or without the end mark.
    Broken,
}

/// Reads until the connection ends.
pub(crate) async fn to_the_end(stream: &mut (impl AsyncRead + Unpin)) -> (Vec<u8>, End) {
    let mut read = Vec::new();
    let end = match stream.read_to_end(&mut read).await {
        Ok(_) => End::Clean,
        Err(_) => End::Broken,
    };
    (read, end)
}

/// On a free port of this machine.
pub(crate) async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

pub(crate) async fn accept(listener: &TcpListener) -> TcpStream {
    listener.accept().await.unwrap().0
}

/// Whether nobody waits to be accepted.
pub(crate) async fn nobody_came(listener: &TcpListener) -> bool {
    let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    // They are accepted in the order in which they came.
    accept(listener).await.peer_addr().unwrap() == ours.local_addr().unwrap()
}

/// Makes certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    dir: tempfile::TempDir,
}

/// A certificate and its key.
pub(crate) struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    key: KeyPair,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("roots.pem"), certificate.pem()).unwrap();
        Self { issuer: Issuer::new(params, key), certificate: certificate.der().clone(), dir }
    }

    /// The file with its own certificate.
    pub(crate) fn roots(&self) -> PathBuf {
        self.dir.path().join("roots.pem")
    }

    pub(crate) fn issue(&self, name: &str) -> Identity {
        self.issue_with(name, |_| {})
    }

    pub(crate) fn issue_with(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity { certificate: certificate.der().clone(), pem: certificate.pem(), key }
    }

    /// Certificate and key as files, for a client.
    pub(crate) fn files(&self, identity: &Identity) -> (PathBuf, PathBuf) {
        let (chain, key) = (self.dir.path().join("client.pem"), self.dir.path().join("client.key"));
        std::fs::write(&chain, &identity.pem).unwrap();
        std::fs::write(&key, identity.key.serialize_pem()).unwrap();
        (chain, key)
    }

    /// A server that wants certificates of clients, made by this authority.
    pub(crate) fn demanding(&self, identity: &Identity) -> TlsAcceptor {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_client_cert_verifier(clients);
        TlsAcceptor::from(Arc::new(
            config.with_single_cert(vec![identity.certificate.clone()], identity.key()).unwrap(),
        ))
    }
}

impl Identity {
    pub(crate) fn self_signed(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
        Self { certificate: certificate.der().clone(), pem: certificate.pem(), key }
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }

    /// A server with this certificate.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor_for(Vec::new())
    }

    /// The same, which speaks these protocols.
    pub(crate) fn acceptor_for(&self, protocols: Vec<Vec<u8>>) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth();
        let mut config = config.with_single_cert(vec![self.certificate.clone()], self.key()).unwrap();
        config.alpn_protocols = protocols;
        TlsAcceptor::from(Arc::new(config))
    }
}
