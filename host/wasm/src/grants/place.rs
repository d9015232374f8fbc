//! Granted places in the network.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::host::secrets::SecretRef;

/// One host and port that a plugin may connect to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpGrant {
    /// Name or address, as the operator wrote it.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether and when the host encrypts.
    pub tls: TlsStart,
    /// Whom to trust, and what to show.
    pub trust: Trust,
    /// Ranges that are refused otherwise (loopback, private, link-local, …) and granted here.
    #[serde(with = "nets")]
    pub allow: Vec<IpNet>,
    /// Longest time from the lookup of the name to the end of the TLS handshake.
    pub connect_time: Duration,
}

/// When TLS begins on a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsStart {
    /// Never.
    Off,
    /// Before the plugin sees the connection.
    AtOnce,
    /// When the plugin asks for it, after some words in the clear; until then nothing secret should be said.
    WhenAsked,
}

/// Whom a TLS client trusts, and the certificate that it shows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Trust {
    /// A PEM file with the only roots to trust; `None`: those of the system.
    pub roots: Option<PathBuf>,
    /// A PEM file with the client's certificate chain and one with its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate must have, where it is not the granted host.
    pub server_name: Option<String>,
}

/// Requests that a plugin may send: to one scheme, host and port, below one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpGrant {
    /// `https` or `http`.
    pub secure: bool,
    /// Name or address, as the operator wrote it.
    pub host: String,
    /// Port.
    pub port: u16,
    /// `/`, or a path that every request's path is or lies below. Begins with `/`.
    pub path: String,
    /// What the host adds to every request, unseen by the plugin.
    pub auth: HttpAuth,
    /// Whom to trust, and what to show.
    pub trust: Trust,
    /// Ranges that are refused otherwise and granted here.
    #[serde(with = "nets")]
    pub allow: Vec<IpNet>,
    /// Speak HTTP/2 only (`true`), or whatever both sides know (`false`; HTTP/1 without TLS).
    pub http2_only: bool,
    /// Longest time from the lookup of the name to the TLS handshake's end.
    pub connect_time: Duration,
    /// Longest time of one request, from the lookup of the name to the last byte of the answer.
    pub request_time: Duration,
    /// Largest answer, in bytes.
    pub response_bytes: u64,
    /// Largest request, in bytes.
    pub request_bytes: u64,
}

/// Credentials that the host adds to requests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum HttpAuth {
    /// None.
    #[default]
    None,
    /// `Authorization: Bearer …`
    Bearer(SecretRef),
    /// `Authorization: Basic …`
    Basic {
        /// In the clear in the configuration.
        user: String,
        /// The password.
        password: SecretRef,
    },
    /// AWS Signature Version 4.
    SigV4 {
        /// Such as `s3`.
        service: String,
        /// Such as `eu-central-1`.
        region: String,
        /// Access key id.
        key_id: SecretRef,
        /// Secret access key.
        secret: SecretRef,
        /// Of temporary credentials.
        session_token: Option<SecretRef>,
    },
}

/// Ranges as text, as people write them.
mod nets {
    use ipnet::IpNet;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    #[expect(clippy::ptr_arg, reason = "the field's type")]
    pub(super) fn serialize<S: Serializer>(nets: &Vec<IpNet>, serializer: S) -> Result<S::Ok, S::Error> {
        nets.iter().map(IpNet::to_string).collect::<Vec<_>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
        let nets = Vec::<String>::deserialize(deserializer)?;
        nets.iter().map(|net| net.parse().map_err(D::Error::custom)).collect()
    }
}
