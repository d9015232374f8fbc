//! `[sinks.NAME.tcp.NAME]`: places in the network that a plugin may connect to.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_wasm::{IpNet, TcpGrant, TlsStart, Trust};

use super::reader::Absent::{Default, Means, Required};
use super::reader::Shape::{self, OneOf, Path, Text, Texts};
use super::reader::{Entry, Key, Section, Table};
use super::tables::{DAY, key};

pub(super) const ROOTS: Key = key(
    "roots",
    Path,
    Means("the authorities that this machine trusts"),
    "PEM file with the only authorities to trust",
);
pub(super) const CLIENT_CERT: Key =
    key("client-cert", Path, Means("none is shown"), "PEM file with the certificate to show, and what it hangs on");
pub(super) const CLIENT_KEY: Key = key("client-key", Path, Means("none is shown"), "PEM file with its key");
pub(super) const SERVER_NAME: Key =
    key("server-name", Text, Means("the host is meant"), "the name that the server's certificate must have");
pub(super) const ALLOW: Key = key(
    "allow",
    Texts,
    Means("public addresses alone"),
    "special ranges (loopback, private, link-local, …) that the host may lie in, such as \"10.0.0.0/8\"; a metadata \
     service by its own address alone",
);
pub(super) const CONNECT_TIME: Key = key(
    "connect-time",
    Shape::Duration(1, DAY),
    Default("10s"),
    "longest time for lookup, connection and TLS together",
);

/// `[sinks.NAME.tcp.NAME]`.
pub(crate) const TCP: Table = Table {
    path: "sinks.NAME.tcp.NAME",
    about: "a place that the plugin may connect to, by the plugin's name for it; the host looks it up, dials it and speaks TLS",
    keys: &[
        key("address", Text, Required, "\"HOST:PORT\""),
        key(
            "tls",
            OneOf(&["at-once", "when-asked", "off"]),
            Required,
            "when TLS begins: before the plugin says anything, when it asks for it (as in STARTTLS), or never; with off, \
             sockets of the plugin's own language may connect there as well",
        ),
        ROOTS,
        CLIENT_CERT,
        CLIENT_KEY,
        SERVER_NAME,
        ALLOW,
        CONNECT_TIME,
    ],
};

/// A path with the text that it was written as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenPath {
    /// As written; goes into the seal.
    pub written: String,
    /// Where it is.
    pub path: PathBuf,
}

/// Whom TLS trusts, and what it shows.
#[derive(Debug, Clone, PartialEq, Eq, std::default::Default)]
pub struct TrustSection {
    /// The only roots to trust.
    pub roots: Option<WrittenPath>,
    /// Certificate and key to show.
    pub client: Option<(WrittenPath, WrittenPath)>,
    /// The name that the server's certificate must have.
    pub server_name: Option<String>,
}

impl TrustSection {
    /// For the sandbox.
    pub(crate) fn trust(&self) -> Trust {
        Trust {
            roots: self.roots.as_ref().map(|roots| roots.path.clone()),
            client: self.client.as_ref().map(|(chain, key)| (chain.path.clone(), key.path.clone())),
            server_name: self.server_name.clone(),
        }
    }
}

/// `[sinks.NAME.tcp.NAME]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSection {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// When TLS begins.
    pub tls: TlsStart,
    /// For TLS.
    pub trust: TrustSection,
    /// Special ranges that are granted.
    pub allow: Vec<IpNet>,
    /// For lookup, connection and TLS together.
    pub connect_time: Duration,
}

impl TcpSection {
    /// For the sandbox.
    pub(crate) fn grant(&self) -> TcpGrant {
        TcpGrant {
            host: self.host.clone(),
            port: self.port,
            tls: self.tls,
            trust: self.trust.trust(),
            allow: self.allow.clone(),
            connect_time: self.connect_time,
        }
    }
}

/// Reads all places of a sink. `resolve` makes paths independent of the working directory.
pub(super) fn places(sink: &Section<'_, '_>, resolve: &dyn Fn(&str) -> PathBuf) -> BTreeMap<String, TcpSection> {
    let read = |entry: Entry<'_, '_>| Some((entry.name.clone(), place(&entry.section(TCP)?, resolve)?));
    sink.entries("tcp").into_iter().filter_map(read).collect()
}

fn place(section: &Section<'_, '_>, resolve: &dyn Fn(&str) -> PathBuf) -> Option<TcpSection> {
    let address = section.text("address").and_then(|address| host_and_port(section, &address));
    let tls = section.word("tls").map(|word| match word.as_str() {
        "at-once" => TlsStart::AtOnce,
        "when-asked" => TlsStart::WhenAsked,
        _ => TlsStart::Off,
    });
    let trust = trust(section, resolve);
    if tls == Some(TlsStart::Off) {
        for name in ["roots", "client-cert", "client-key", "server-name"].into_iter().filter(|name| section.has(name)) {
            let message = format!("`{name}` in {} has no effect with tls = \"off\"", section.title());
            section.problem(name, message, &[&format!("remove `{name}`, or write tls = \"at-once\"")]);
        }
    }
    let (allow, connect_time) = (allow(section), section.duration("connect-time"));
    let (host, port) = address?;
    let place = TcpSection { host, port, tls: tls?, trust: trust?, allow: allow?, connect_time: connect_time? };
    if let Err(problem) = place.grant().check_host() {
        section.problem("address", format!("`address` in {}: {problem}", section.title()), &[]);
    }
    Some(place)
}

fn host_and_port(section: &Section<'_, '_>, address: &str) -> Option<(String, u16)> {
    let split = address.rsplit_once(':').and_then(|(host, port)| {
        let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
        // Of an IPv6 address only the brackets tell where it ends.
        let whole = !host.contains(':') || host.starts_with('[') && host.ends_with(']');
        (whole && !host.is_empty()).then(|| (host.to_owned(), port))
    });
    if split.is_none() {
        let message = format!("`address` in {} is \"{address}\", expected \"HOST:PORT\"", section.title());
        let hint = "for example \"db.example:5432\", \"10.0.0.7:5432\" or \"[fd00::7]:5432\"";
        section.problem("address", message, &[hint]);
    }
    split
}

/// What TLS needs to know; the same keys wherever there is TLS.
pub(super) fn trust(section: &Section<'_, '_>, resolve: &dyn Fn(&str) -> PathBuf) -> Option<TrustSection> {
    let path = |name: &str| {
        let written = section.text(name)?;
        Some(WrittenPath { path: resolve(&written), written })
    };
    let client = match (path("client-cert"), path("client-key")) {
        (Some(chain), Some(key)) => Some((chain, key)),
        (None, None) => None,
        (Some(_), None) => return lacks(section, "client-cert", "client-key"),
        (None, Some(_)) => return lacks(section, "client-key", "client-cert"),
    };
    Some(TrustSection { roots: path("roots"), client, server_name: section.text("server-name") })
}

fn lacks<T>(section: &Section<'_, '_>, there: &str, missing: &str) -> Option<T> {
    let message = format!("{} has `{there}`, but no `{missing}`", section.title());
    section.problem(there, message, &["a certificate and its key are shown together: name both, or none"]);
    None
}

/// Ranges of addresses, or single ones.
pub(super) fn allow(section: &Section<'_, '_>) -> Option<Vec<IpNet>> {
    if !section.has("allow") {
        return Some(Vec::new());
    }
    let parse = |text: &String| {
        let net = text.parse::<IpNet>().ok().or_else(|| text.parse::<std::net::IpAddr>().ok().map(IpNet::from));
        if net.is_none() {
            let message = format!("`allow` in {} has \"{text}\", expected a range of addresses", section.title());
            section.problem("allow", message, &["for example \"10.0.0.0/8\", \"127.0.0.1\" or \"fd00::/8\""]);
        }
        net
    };
    section.texts("allow")?.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigError, PipelineFile, parse};

    fn file(place: &str) -> Result<PipelineFile, ConfigError> {
        let text = format!(
            "[pipeline]\nname = \"p\"\nstate = \"s\"\n[sources.g]\nkind = \"generate\"\n[sinks.out]\nplugin = \"x.wasm\"\n\
             [sinks.out.tcp.server]\n{place}\n"
        );
        parse(&text, "p.toml".as_ref(), "/base".as_ref())
    }

    fn place(text: &str) -> TcpSection {
        let file = file(text).unwrap_or_else(|error| panic!("{:#?}", error.problems));
        file.sinks.values().next().unwrap().tcp["server"].clone()
    }

    /// Line and words of the only problem.
    fn problem(text: &str) -> (usize, String) {
        let problems = file(text).unwrap_err().problems;
        assert_eq!(problems.len(), 1, "{problems:#?}");
        (problems[0].at.unwrap().0, problems[0].message.clone())
    }

    #[test]
    fn a_place_is_read_with_its_defaults() {
        let place = place(
            "address = \"db.example:5432\"\ntls = \"when-asked\"\nroots = \"r.pem\"\nallow = [\"10.0.0.0/8\", \"::1\"]",
        );
        assert_eq!((place.host.as_str(), place.port, place.tls), ("db.example", 5432, TlsStart::WhenAsked));
        assert_eq!(place.trust.roots.unwrap().path, PathBuf::from("/base/r.pem"));
        assert_eq!(place.allow, ["10.0.0.0/8", "::1/128"].map(|net| net.parse().unwrap()));
        assert_eq!(place.connect_time, Duration::from_secs(10));
    }

    #[test]
    fn ipv6_addresses_stand_in_brackets() {
        let place = place("address = \"[2606:4700::1111]:443\"\ntls = \"off\"");
        assert_eq!((place.host.as_str(), place.port), ("[2606:4700::1111]", 443));
        assert!(problem("address = \"2606:4700::1111:443\"\ntls = \"off\"").1.contains("expected \"HOST:PORT\""));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, line, words) in [
            ("address = \"db.example\"\ntls = \"off\"", 9, "expected \"HOST:PORT\""),
            ("address = \"db.example:0\"\ntls = \"off\"", 9, "expected \"HOST:PORT\""),
            ("address = \"user@db.example:1\"\ntls = \"off\"", 9, "is not a host"),
            (
                "address = \"127.0.0.1:1\"\ntls = \"off\"",
                9,
                "a loopback address; if that is meant, add it or its range",
            ),
            ("address = \"2130706433:1\"\ntls = \"off\"", 9, "a loopback address"),
            ("address = \"10.0.0.1:1\"\ntls = \"off\"\nallow = [\"10.1.0.0/16\"]", 9, "a private address"),
            ("address = \"db.example:1\"\ntls = \"off\"\nallow = [\"local\"]", 11, "expected a range of addresses"),
            ("address = \"db.example:1\"\ntls = \"off\"\nroots = \"r.pem\"", 11, "no effect with tls = \"off\""),
            ("address = \"db.example:1\"\ntls = \"at-once\"\nclient-cert = \"c.pem\"", 11, "no `client-key`"),
            ("address = \"db.example:1\"", 8, "lacks `tls`"),
        ] {
            let (at, message) = problem(text);
            assert!(at == line && message.contains(words), "{at}: {message}");
        }
    }
}
