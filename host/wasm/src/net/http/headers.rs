//! Which header fields a plugin may set and sees.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Bytes of all fields of a head, or of trailers, that a server may send.
pub(crate) const MAX_HEAD_BYTES: usize = 32 << 10;
/// Fields of a head that a server may send.
pub(crate) const MAX_HEAD_FIELDS: usize = 200;

/// What the host alone says: about the connection, and who is asking whom. A plugin can neither set these nor see them.
pub(crate) fn is_forbidden(name: &HeaderName) -> bool {
    const NAMES: [&str; 8] = [
        "host",
        "authorization",
        "connection",
        "keep-alive",
        "transfer-encoding",
        "upgrade",
        "expect",
        "http2-settings",
    ];
    NAMES.contains(&name.as_str()) || name.as_str().starts_with("proxy-")
}

/// What must be said before a body, not after it.
fn is_forbidden_in_trailers(name: &HeaderName) -> bool {
    const NAMES: [&str; 21] = [
        "age",
        "cache-control",
        "content-encoding",
        "content-length",
        "content-range",
        "content-type",
        "cookie",
        "date",
        "expires",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-unmodified-since",
        "location",
        "max-forwards",
        "pragma",
        "range",
        "retry-after",
        "set-cookie",
        "te",
        "trailer",
    ];
    is_forbidden(name) || name.as_str().starts_with("x-amz-security-") || NAMES.contains(&name.as_str())
}

/// Checks what a plugin set. The error names the field.
pub(crate) fn check_request(fields: &HeaderMap) -> Result<(), String> {
    if let Some(name) = fields.keys().find(|name| is_forbidden(name)) {
        return Err(name.to_string());
    }
    // Anything else would speak of codings that this host does not undo.
    match fields.get_all(header::TE).iter().all(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers")) {
        true => Ok(()),
        false => Err("te".to_owned()),
    }
}

/// Checks the trailers that a plugin set. The error names the field.
pub(crate) fn check_trailers(fields: &HeaderMap) -> Result<(), String> {
    fields.keys().find(|name| is_forbidden_in_trailers(name)).map_or(Ok(()), |name| Err(name.to_string()))
}

/// Takes out what concerned the connection, and hides what the host added to the request, should the server repeat it.
pub(crate) fn clean_answer(fields: &mut HeaderMap, withheld: &Withheld) {
    let named: Vec<HeaderName> = fields
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let hop = fields.keys().filter(|name| is_forbidden(name) || **name == header::TE).cloned();
    for name in hop.chain(named).collect::<Vec<_>>() {
        fields.remove(&name);
    }
    // A name cannot be hidden in part.
    let telling: Vec<_> = fields.keys().filter(|name| withheld.is_in(name.as_str().as_bytes())).cloned().collect();
    for name in telling {
        fields.remove(&name);
    }
    for value in fields.values_mut() {
        if withheld.is_in(value.as_bytes()) {
            *value = HeaderValue::from_static("<withheld>");
        }
    }
}

/// What the host added to a request and the plugin must not see.
#[derive(Clone, Default)]
pub(crate) struct Withheld(Vec<String>);

impl Withheld {
    /// Values of less than four bytes are not looked for: they stand in too much that is harmless.
    pub(crate) fn add(&mut self, value: &str) {
        if value.len() >= 4 {
            self.0.push(value.to_owned());
        }
    }

    fn is_in(&self, bytes: &[u8]) -> bool {
        let lower = bytes.to_ascii_lowercase();
        self.0.iter().any(|value| {
            let hidden = value.as_bytes();
            memchr::memmem::find(bytes, hidden).is_some()
                || memchr::memmem::find(&lower, &hidden.to_ascii_lowercase()).is_some()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(fields: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        map
    }

    #[test]
    fn h43_what_the_host_says_a_plugin_does_not() {
        for name in [
            "Host",
            "Authorization",
            "Proxy-Authorization",
            "Proxy-Connection",
            "Proxy-Anything",
            "Connection",
            "Keep-Alive",
            "Transfer-Encoding",
            "Upgrade",
            "Expect",
            "HTTP2-Settings",
        ] {
            assert!(check_request(&fields(&[(name, "x")])).is_err(), "{name}");
            assert!(check_trailers(&fields(&[(name, "x")])).is_err(), "{name} in trailers");
        }
        for name in ["Content-Length", "TE", "Trailer", "Set-Cookie", "Content-Type"] {
            assert!(check_trailers(&fields(&[(name, "x")])).is_err(), "{name} in trailers");
        }
        assert_eq!(check_request(&fields(&[("te", "trailers"), ("x-a", "b")])), Ok(()));
        assert!(check_request(&fields(&[("te", "trailers, gzip")])).is_err());
        assert_eq!(check_trailers(&fields(&[("x-checksum", "b"), ("grpc-status", "0")])), Ok(()));
    }

    #[test]
    fn an_answer_shows_neither_connection_nor_credentials() {
        let mut withheld = Withheld::default();
        withheld.add("t0psecret");
        let mut answer = fields(&[
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("keep-alive", "5"),
            ("authorization", "Bearer t0psecret"),
            ("x-echo", "you said Bearer t0psecret"),
            ("x-t0psecret", "1"),
            ("etag", "1"),
        ]);
        clean_answer(&mut answer, &withheld);
        let mut left: Vec<_> = answer.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        left.sort_unstable();
        assert_eq!(left, [("etag", "1"), ("x-echo", "<withheld>")]);
    }
}
