//! `[sinks.NAME.http.NAME]`: services that a plugin may send requests to.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_wasm::{HttpAuth, HttpGrant, IpNet};

use super::SecretSource;
use super::network::{self, TrustSection};
use super::reader::Absent::{Default, Means, Required};
use super::reader::Shape::{self, OneOf, Other, Size, Text};
use super::reader::{Entry, Section, Table};
use super::tables::{DAY, key};

/// Largest cap of a request or an answer.
const MOST_BYTES: u64 = 1 << 44;

/// `[sinks.NAME.http.NAME]`.
pub(crate) const HTTP: Table = Table {
    path: "sinks.NAME.http.NAME",
    about: "a service that the plugin may send requests to; the host looks it up, dials it, speaks TLS and adds credentials",
    keys: &[
        key(
            "url",
            Text,
            Required,
            "scheme, host, port and path; every request goes there or below, and redirects are not followed",
        ),
        key(
            "auth",
            Shape::Table,
            Means("none"),
            "credentials that the host adds and the plugin never sees: bearer, basic or sigv4",
        ),
        key(
            "http2",
            OneOf(&["auto", "only"]),
            Default("auto"),
            "auto: HTTP/2 where the server offers it over TLS; only: nothing but HTTP/2, without TLS as well",
        ),
        network::ROOTS,
        network::CLIENT_CERT,
        network::CLIENT_KEY,
        network::SERVER_NAME,
        network::ALLOW,
        network::CONNECT_TIME,
        key(
            "request-time",
            Shape::Duration(1, DAY),
            Default("60s"),
            "longest time from the lookup to the last byte of the answer",
        ),
        key("max-request", Size(0, MOST_BYTES), Default("1GiB"), "largest body of a request"),
        key(
            "max-response",
            Size(0, MOST_BYTES),
            Default("64MiB"),
            "largest body of an answer, as it is sent: nothing is decompressed",
        ),
    ],
};

const SECRET_SHAPE: Shape = Other("{ env = \"NAME\" } or { file = \"path\" }");

/// `auth` of a service.
pub(crate) const AUTH: Table = Table {
    path: "sinks.NAME.http.NAME.auth",
    about: "one of bearer, basic and sigv4",
    keys: &[
        key("bearer", SECRET_SHAPE, Means("see basic and sigv4"), "the token of `Authorization: Bearer`"),
        key("basic", Shape::Table, Means("see bearer and sigv4"), "user and password of `Authorization: Basic`"),
        key("sigv4", Shape::Table, Means("see bearer and basic"), "AWS Signature Version 4"),
    ],
};

/// `auth.basic` of a service.
pub(crate) const BASIC: Table = Table {
    path: "sinks.NAME.http.NAME.auth.basic",
    about: "user and password",
    keys: &[
        key("user", Text, Required, "the user, in the clear"),
        key("password", SECRET_SHAPE, Required, "the password"),
    ],
};

/// `auth.sigv4` of a service.
pub(crate) const SIGV4: Table = Table {
    path: "sinks.NAME.http.NAME.auth.sigv4",
    about: "AWS Signature Version 4; without TLS the plugin must give each body's digest as x-amz-content-sha256",
    keys: &[
        key("service", Text, Required, "such as \"s3\""),
        key("region", Text, Required, "such as \"eu-central-1\""),
        key("key-id", SECRET_SHAPE, Required, "the access key's id"),
        key("secret", SECRET_SHAPE, Required, "the secret access key"),
        key("session-token", SECRET_SHAPE, Means("none"), "the session token of temporary credentials"),
    ],
};

/// Credentials by reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthSection {
    /// None.
    None,
    /// A token.
    Bearer(SecretSource),
    /// User and password.
    Basic(String, SecretSource),
    /// A signature.
    SigV4 {
        /// The service's name.
        service: String,
        /// Where it is.
        region: String,
        /// Access key id.
        key_id: SecretSource,
        /// Secret access key.
        secret: SecretSource,
        /// Of temporary credentials.
        session_token: Option<SecretSource>,
    },
}

/// `[sinks.NAME.http.NAME]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSection {
    /// As written; goes into the seal.
    pub url: String,
    /// `https`.
    pub secure: bool,
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path of all requests.
    pub path: String,
    /// What the host adds.
    pub auth: AuthSection,
    /// For TLS.
    pub trust: TrustSection,
    /// Special ranges that are granted.
    pub allow: Vec<IpNet>,
    /// Nothing but HTTP/2.
    pub http2_only: bool,
    /// For lookup, connection and TLS together.
    pub connect_time: Duration,
    /// For everything together.
    pub request_time: Duration,
    /// Largest request.
    pub max_request: u64,
    /// Largest answer.
    pub max_response: u64,
}

impl HttpSection {
    /// For the sandbox.
    pub(crate) fn grant(&self) -> HttpGrant {
        HttpGrant {
            secure: self.secure,
            host: self.host.clone(),
            port: self.port,
            path: self.path.clone(),
            auth: self.auth.auth(),
            trust: self.trust.trust(),
            allow: self.allow.clone(),
            http2_only: self.http2_only,
            connect_time: self.connect_time,
            request_time: self.request_time,
            response_bytes: self.max_response,
            request_bytes: self.max_request,
        }
    }
}

impl AuthSection {
    fn auth(&self) -> HttpAuth {
        let secret = SecretSource::reference;
        match self {
            AuthSection::None => HttpAuth::None,
            AuthSection::Bearer(token) => HttpAuth::Bearer(secret(token)),
            AuthSection::Basic(user, password) => HttpAuth::Basic { user: user.clone(), password: secret(password) },
            AuthSection::SigV4 { service, region, key_id, secret: key, session_token } => HttpAuth::SigV4 {
                service: service.clone(),
                region: region.clone(),
                key_id: secret(key_id),
                secret: secret(key),
                session_token: session_token.as_ref().map(secret),
            },
        }
    }

    /// All secrets, with the key of each.
    pub(crate) fn secrets(&self) -> Vec<(&'static str, &SecretSource)> {
        match self {
            AuthSection::None => Vec::new(),
            AuthSection::Bearer(token) => vec![("bearer", token)],
            AuthSection::Basic(_, password) => vec![("password", password)],
            AuthSection::SigV4 { key_id, secret, session_token, .. } => {
                let always = [("key-id", key_id), ("secret", secret)];
                always.into_iter().chain(session_token.iter().map(|token| ("session-token", token))).collect()
            }
        }
    }
}

/// Reads all services of a sink. `resolve` makes paths independent of the working directory.
pub(super) fn services(sink: &Section<'_, '_>, resolve: &dyn Fn(&str) -> PathBuf) -> BTreeMap<String, HttpSection> {
    let read = |entry: Entry<'_, '_>| Some((entry.name.clone(), service(&entry.section(HTTP)?, resolve)?));
    sink.entries("http").into_iter().filter_map(read).collect()
}

fn service(section: &Section<'_, '_>, resolve: &dyn Fn(&str) -> PathBuf) -> Option<HttpSection> {
    let url = section.text("url").and_then(|written| Some((split(section, &written)?, written)));
    let auth = auth(section, resolve);
    let trust = network::trust(section, resolve);
    if matches!(url, Some(((false, ..), _))) {
        for name in ["roots", "client-cert", "client-key", "server-name"].into_iter().filter(|name| section.has(name)) {
            let message = format!("`{name}` in {} has no effect without TLS", section.title());
            section.problem(name, message, &[&format!("remove `{name}`, or write the URL with https")]);
        }
    }
    let (allow, http2) = (network::allow(section), section.word("http2"));
    let (connect_time, request_time) = (section.duration("connect-time"), section.duration("request-time"));
    let (max_request, max_response) = (section.size("max-request"), section.size("max-response"));
    let ((secure, host, port, path), url) = url?;
    let service = HttpSection {
        url,
        secure,
        host,
        port,
        path,
        auth: auth?,
        trust: trust?,
        allow: allow?,
        http2_only: http2? == "only",
        connect_time: connect_time?,
        request_time: request_time?,
        max_request: max_request?,
        max_response: max_response?,
    };
    if let Err(problem) = service.grant().check_place() {
        section.problem("url", format!("`url` in {}: {problem}", section.title()), &[]);
    }
    Some(service)
}

/// Scheme (whether it is https), host, port, path.
fn split(section: &Section<'_, '_>, url: &str) -> Option<(bool, String, u16, String)> {
    let parts = || {
        let (secure, rest) = match url.split_once("://")? {
            ("https", rest) => (true, rest),
            ("http", rest) => (false, rest),
            _ => return None,
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let path = if path.is_empty() { "/" } else { path };
        let default = if secure { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            // The colons of an address in brackets are no port's.
            Some((_, after)) if after.ends_with(']') => (authority, default),
            Some((host, port)) => (host, port.parse::<u16>().ok().filter(|port| *port > 0)?),
            None => (authority, default),
        };
        (!host.is_empty()).then(|| (secure, host.to_owned(), port, path.to_owned()))
    };
    let split = parts();
    if split.is_none() {
        // A URL may hold a password, so it is not repeated.
        let message = format!("`url` in {} is no URL of http or https", section.title());
        let hint = "for example \"https://api.example/v1/\" or \"http://10.0.0.7:8123/\"";
        section.problem("url", message, &[hint]);
    }
    split
}

fn auth(section: &Section<'_, '_>, resolve: &dyn Fn(&str) -> PathBuf) -> Option<AuthSection> {
    if !section.has("auth") {
        return Some(AuthSection::None);
    }
    let auth = section.table("auth", AUTH)?;
    let given: Vec<_> = ["bearer", "basic", "sigv4"].into_iter().filter(|name| auth.has(name)).collect();
    match given.as_slice() {
        ["bearer"] => Some(AuthSection::Bearer(secret(&auth, "bearer", resolve)?)),
        ["basic"] => {
            let basic = auth.table("basic", BASIC)?;
            let (user, password) = (basic.text("user"), secret(&basic, "password", resolve));
            let user = user?;
            if user.contains(':') {
                basic.problem("user", format!("`user` in {} holds a colon", basic.title()), &[]);
                return None;
            }
            Some(AuthSection::Basic(user, password?))
        }
        ["sigv4"] => {
            let keys = auth.table("sigv4", SIGV4)?;
            let (service, region) = (keys.text("service"), keys.text("region"));
            let (key_id, key) = (secret(&keys, "key-id", resolve), secret(&keys, "secret", resolve));
            let session_token = match keys.has("session-token") {
                true => Some(secret(&keys, "session-token", resolve)?),
                false => None,
            };
            let (service, region) = (service?, region?);
            Some(AuthSection::SigV4 { service, region, key_id: key_id?, secret: key?, session_token })
        }
        _ => {
            let message = format!("`auth` in {} needs exactly one of bearer, basic and sigv4", section.title());
            section.problem("auth", message, &["for example auth = { bearer = { env = \"TOKEN\" } }"]);
            None
        }
    }
}

fn secret(section: &Section<'_, '_>, name: &str, resolve: &dyn Fn(&str) -> PathBuf) -> Option<SecretSource> {
    let hint = format!("write {name} = {{ env = \"NAME\" }} or {{ file = \"path\" }}");
    let Some(entry) = section.other(name) else {
        section.problem(name, format!("{} lacks `{name}`", section.title()), &[&hint]);
        return None;
    };
    super::sections::secret(&entry, &hint, resolve)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigError, PipelineFile, parse};

    fn file(service: &str) -> Result<PipelineFile, ConfigError> {
        let text = format!(
            "[pipeline]\nname = \"p\"\nstate = \"s\"\n[sources.g]\nkind = \"generate\"\n[sinks.out]\nplugin = \"x.wasm\"\n\
             [sinks.out.http.api]\n{service}\n"
        );
        parse(&text, "p.toml".as_ref(), "/base".as_ref())
    }

    fn service(text: &str) -> HttpSection {
        let file = file(text).unwrap_or_else(|error| panic!("{:#?}", error.problems));
        file.sinks.values().next().unwrap().http["api"].clone()
    }

    #[test]
    fn a_service_is_read_with_its_defaults() {
        let read =
            service("url = \"https://api.example/v1/\"\nauth = { bearer = { file = \"token\" } }\nhttp2 = \"only\"");
        assert_eq!(
            (read.secure, read.host.as_str(), read.port, read.path.as_str()),
            (true, "api.example", 443, "/v1/")
        );
        let token = SecretSource::File { written: "token".to_owned(), path: "/base/token".into() };
        assert_eq!(read.auth, AuthSection::Bearer(token));
        assert_eq!((read.http2_only, read.request_time), (true, Duration::from_secs(60)));
        assert_eq!((read.max_request, read.max_response), (1 << 30, 64 << 20));
        let plain = service("url = \"http://[2606:4700::1111]:8123\"");
        assert_eq!((plain.host.as_str(), plain.port, plain.path.as_str()), ("[2606:4700::1111]", 8123, "/"));
        let signed =
            "auth.sigv4 = { service = \"s3\", region = \"r\", key-id = { env = \"I\" }, secret = { env = \"K\" } }";
        let signed = service(&format!("url = \"https://b.example\"\n{signed}"));
        assert_eq!(signed.auth.secrets().len(), 2);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, line, words) in [
            ("url = \"api.example/v1\"", 9, "is no URL of http or https"),
            ("url = \"ftp://api.example/\"", 9, "is no URL of http or https"),
            ("url = \"https://api.example:0/\"", 9, "is no URL of http or https"),
            ("url = \"https://me@api.example/\"", 9, "is not a host"),
            ("url = \"https://api.example/a/../b\"", 9, "is not a path"),
            ("url = \"https://api.example/?q\"", 9, "is not a path"),
            ("url = \"http://127.0.0.1/\"", 9, "a loopback address; if that is meant, add it"),
            ("url = \"http://api.example/\"\nroots = \"r.pem\"", 10, "no effect without TLS"),
            ("url = \"https://api.example/\"\nauth = {}", 10, "exactly one of bearer, basic and sigv4"),
            ("url = \"https://api.example/\"\nauth = { bearer = \"s3cret\" }", 10, "holds a value"),
            ("url = \"https://api.example/\"\nauth = { basic = { user = \"me\" } }", 10, "lacks `password`"),
        ] {
            let problems = file(text).unwrap_err().problems;
            let told = problems.iter().find(|problem| problem.message.contains(words));
            assert!(told.is_some_and(|problem| problem.at.unwrap().0 == line), "{text}: {problems:#?}");
            assert!(!problems.iter().any(|problem| problem.message.contains("s3cret")));
        }
    }
}
