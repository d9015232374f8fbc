//! Where a request goes, in the one form in which it is compared with a grant.

use http::Uri;

use crate::net::address::Host;

/// Scheme, host, port and path of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) secure: bool,
    pub(crate) host: Host,
    pub(crate) port: u16,
    /// As it is sent, without the query. Begins with `/`.
    pub(crate) path: String,
}

impl Destination {
    /// Reads what a plugin asked for. The error says what no request may have.
    pub(crate) fn of(uri: &Uri) -> Result<Self, &'static str> {
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("its scheme is neither https nor http"),
        };
        let authority = uri.authority().ok_or("it names no host")?;
        if authority.as_str().contains('@') {
            return Err("its authority names a user");
        }
        let host = Host::parse(authority.host()).map_err(|_| "its host is none")?;
        let port = match authority.port() {
            Some(port) => port.as_str().parse().map_err(|_| "its port is none")?,
            // What follows a colon and is no port.
            None if authority.as_str().len() != authority.host().len() => return Err("its port is none"),
            None if secure => 443,
            None => 80,
        };
        let path = uri.path();
        if !path.starts_with('/') {
            return Err("its path does not begin with /");
        }
        Ok(Self { secure, host, port, path: path.to_owned() })
    }
}

/// The path of a grant: what is it, or lies below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prefix(String);

impl Prefix {
    /// Reads the path of a grant. The error says what it must be.
    pub(crate) fn parse(path: &str) -> Result<Self, &'static str> {
        if !path.starts_with('/') {
            return Err("it must begin with /");
        }
        let prefix = path.strip_suffix('/').unwrap_or(path);
        let parsed = path.parse::<http::uri::PathAndQuery>();
        if parsed.is_err() || path.contains(['?', '#']) {
            return Err("it must be a path without query, with what is not ASCII percent-encoded");
        }
        if !prefix.is_empty() && !is_plain(prefix) {
            return Err("it must have no empty segments, no `.` and `..`, no backslash and no encoded slash");
        }
        Ok(Self(prefix.to_owned()))
    }

    /// Its length: of two that fit, the longer one is meant.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether `path` is the prefix or lies below it, whatever a server makes of the path. A path with two meanings lies
    /// nowhere. Without a prefix there is nothing to get out of, and every path will do.
    pub(crate) fn covers(&self, path: &str) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let below = path.strip_prefix(&self.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        below && is_plain(path)
    }
}

/// How often a server and those before it might decode a path, each thinking that it is the first.
const DECODED: usize = 3;

/// Whether a path has one meaning only: no `.` or `..`, no empty segments but the last, no backslash, no slash that shows
/// only after decoding; neither as it stands nor decoded.
fn is_plain(path: &str) -> bool {
    let mut bytes = path.as_bytes().to_vec();
    let slashes = count(&bytes, b'/');
    for _ in 0..=DECODED {
        let decoded = match decode(&bytes) {
            Some(decoded) => decoded,
            None => return false,
        };
        if !one_meaning(&bytes) || count(&bytes, b'/') != slashes {
            return false;
        }
        if decoded == bytes {
            return true;
        }
        bytes = decoded;
    }
    false
}

fn one_meaning(path: &[u8]) -> bool {
    if path.iter().any(|byte| *byte == b'\\' || byte.is_ascii_control()) {
        return false;
    }
    let mut segments = path.split(|byte| *byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        // Some servers cut parameters off before they look at dots.
        let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
        let is_last = segments.peek().is_none();
        if name == b"." || name == b".." || (name.is_empty() && !(is_last && segment.is_empty())) {
            return false;
        }
    }
    true
}

fn count(bytes: &[u8], byte: u8) -> usize {
    bytes.iter().filter(|b| **b == byte).count()
}

/// Percent-decoded once; `None` if a percent sign is not followed by two digits.
fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(*digit).to_digit(16));
                let (high, low) = (digit()?, digit()?);
                out.push(u8::try_from(high << 4 | low).ok()?);
            }
            other => out.push(*other),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(uri: &str) -> Result<Destination, String> {
        let uri: Uri = uri.parse().map_err(|e| format!("{e}"))?;
        Destination::of(&uri).map_err(str::to_owned)
    }

    #[test]
    fn h43_every_spelling_of_a_destination_has_one_form() {
        let plain = of("https://api.example/v1/x?q=1").unwrap();
        assert_eq!((plain.secure, plain.port, plain.path.as_str()), (true, 443, "/v1/x"));
        for spelling in ["https://API.Example/v1/x", "https://api.example.:443/v1/x", "https://api.example:0443/v1/x"] {
            assert_eq!(of(spelling).unwrap(), plain, "{spelling}");
        }
        let loopback = of("http://127.0.0.1/").unwrap();
        for spelling in ["http://2130706433/", "http://0x7f.1/", "http://[::ffff:127.0.0.1]/"] {
            assert_eq!(of(spelling).unwrap(), loopback, "{spelling}");
        }
    }

    #[test]
    fn h40_more_than_host_and_port_is_refused() {
        for uri in [
            "https://user@api.example/",
            "https://user:secret@api.example/",
            "https://api.example@evil.example/",
            "https://api.example:/",
            "https://api.example:99999/",
            "ftp://api.example/",
            "/v1/x",
            "https://%61pi.example/",
        ] {
            assert!(of(uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn a_prefix_ends_at_a_segment() {
        let prefix = Prefix::parse("/v1/").unwrap();
        assert_eq!(prefix, Prefix::parse("/v1").unwrap());
        for path in ["/v1", "/v1/", "/v1/a", "/v1/a/b/", "/v1/a%20b", "/v1/a;b", "/v1/...", "/v1/a.b", "/v1/%c3%a4"] {
            assert!(prefix.covers(path), "{path}");
        }
        for path in ["/", "/v", "/v10", "/v2", "/V1/a", "/v1x/a", "/%761/a"] {
            assert!(!prefix.covers(path), "{path}");
        }
    }

    #[test]
    fn h43_a_path_that_could_leave_the_prefix_is_not_below_it() {
        let prefix = Prefix::parse("/v1").unwrap();
        for path in [
            "/v1/../admin",
            "/v1/..",
            "/v1/./a",
            "/v1/%2e%2e/admin",
            "/v1/.%2E/admin",
            "/v1/%252e%252e/admin",
            "/v1/%25252e%25252e/admin",
            "/v1/..%2fadmin",
            "/v1/a%2fb",
            "/v1/%5c..%5cadmin",
            "/v1/..\\admin",
            "/v1//admin",
            "/v1//",
            "//v1/a",
            "/v1/..;/admin",
            "/v1/..;x=1/admin",
            "/v1/;/admin",
            "/v1/%00",
            "/v1/%0d%0ax",
            "/v1/%zz",
            "/v1/%2",
        ] {
            assert!(!prefix.covers(path), "{path}");
        }
        let everything = Prefix::parse("/").unwrap();
        assert!(everything.covers("/a//b/../c%2fd"), "nothing to get out of");
    }

    #[test]
    fn a_grants_path_is_a_plain_one() {
        for path in ["", "v1", "/a//b", "/a/../b", "/a?x", "/a#x", "/a\\b", "/a%2fb", "/%", "/a b"] {
            assert!(Prefix::parse(path).is_err(), "{path}");
        }
    }
}
