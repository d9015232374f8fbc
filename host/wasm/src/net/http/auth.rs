//! Credentials that the host adds to requests. They are read for each request, so that a rotated secret counts from the
//! next one on, and the plugin never sees them.

use std::fmt;
use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings, UriPathNormalizationMode,
    sign,
};
use aws_sigv4::sign::v4;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use super::headers::Withheld;
use crate::grants::place::HttpAuth;
use crate::host::secrets::SecretRef;
use crate::text::Redactor;

/// Digest of the body, or a word for why there is none.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// What SigV4 adds itself.
const SIGNERS_OWN: [&str; 3] = ["x-amz-date", "x-amz-security-token", "x-amz-content-sha256"];

/// Why a request cannot be sent with the credentials of its grant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AuthError {
    /// The operator has to mend something. Says what, never the value.
    Unusable(String),
    /// The plugin has to say more.
    Unsigned(&'static str),
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthError::Unusable(detail) => f.write_str(detail),
            AuthError::Unsigned(detail) => f.write_str(detail),
        }
    }
}

impl std::error::Error for AuthError {}

/// A request as far as its signature goes.
pub(crate) struct ToSign<'a> {
    pub(crate) method: &'a http::Method,
    /// With scheme and the authority that is sent.
    pub(crate) url: &'a str,
    /// Nobody between here and the server can change it.
    pub(crate) secure: bool,
    /// It has no body, or an empty one.
    pub(crate) bodiless: bool,
    pub(crate) now: SystemTime,
}

/// Adds to `fields` what `auth` says, and answers what must not come back to the plugin. Whatever was read is hidden from
/// logs and messages too.
pub(crate) fn authorize(
    auth: &HttpAuth,
    request: &ToSign<'_>,
    fields: &mut HeaderMap,
    redactor: &Redactor,
) -> Result<Withheld, AuthError> {
    let mut withheld = Withheld::default();
    let mut read = |secret: &SecretRef| {
        let value = secret.read().map_err(AuthError::Unusable)?;
        if value.is_empty() {
            return Err(AuthError::Unusable(format!("{secret} is empty")));
        }
        redactor.hide_secret(&value, "of the host");
        withheld.add(&value);
        Ok(value)
    };
    match auth {
        HttpAuth::None => {}
        HttpAuth::Bearer(token) => {
            let value = read(token)?;
            fields.insert(AUTHORIZATION, secret_value(&format!("Bearer {value}"), token)?);
        }
        HttpAuth::Basic { user, password } => {
            let value = read(password)?;
            let pair = data_encoding::BASE64.encode(format!("{user}:{value}").as_bytes());
            fields.insert(AUTHORIZATION, secret_value(&format!("Basic {pair}"), password)?);
            redactor.hide_secret(&pair, "of the host");
            withheld.add(&pair);
        }
        HttpAuth::SigV4 { service, region, key_id, secret, session_token } => {
            let token = session_token.as_ref().map(&mut read).transpose()?;
            let keys = Credentials::new(read(key_id)?, read(secret)?, token, None, "granted");
            let signature = sign_v4(service, region, keys, request, fields)?;
            withheld.add(&signature);
        }
    }
    Ok(withheld)
}

fn secret_value(text: &str, place: &SecretRef) -> Result<HeaderValue, AuthError> {
    let unusable = || AuthError::Unusable(format!("{place} has characters that cannot be sent in a header"));
    let mut value = HeaderValue::from_str(text).map_err(|_| unusable())?;
    // Not to be kept in HTTP/2's tables, nor shown.
    value.set_sensitive(true);
    Ok(value)
}

/// Answers the signature.
fn sign_v4(
    service: &str,
    region: &str,
    keys: Credentials,
    request: &ToSign<'_>,
    fields: &mut HeaderMap,
) -> Result<String, AuthError> {
    let failed = |error: &dyn fmt::Display| AuthError::Unusable(format!("the request cannot be signed: {error}"));
    let digest = fields.remove(CONTENT_DIGEST);
    SIGNERS_OWN.iter().for_each(|name| drop(fields.remove(*name)));
    let body = payload(digest.as_ref(), request)?;
    let identity = keys.into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(service)
        .time(request.now)
        .settings(settings(service))
        .build()
        .map_err(|error| failed(&error))?;
    // A value that is no text is sent and not signed.
    let signed = fields.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let signable =
        SignableRequest::new(request.method.as_str(), request.url, signed, body).map_err(|error| failed(&error))?;
    let signed = sign(signable, &params.into()).map_err(|error| failed(&error))?;
    let signature = signed.signature().to_owned();
    let (made, _) = signed.into_parts().0.into_parts();
    for header in made {
        let mut value = HeaderValue::from_str(header.value()).map_err(|error| failed(&error))?;
        value.set_sensitive(header.sensitive() || header.name() == AUTHORIZATION.as_str());
        fields.insert(HeaderName::from_static(header.name()), value);
    }
    // S3 has the signer say it; other services read it where it is given.
    if let Some(digest) = digest
        && !fields.contains_key(CONTENT_DIGEST)
    {
        fields.insert(CONTENT_DIGEST, digest);
    }
    Ok(signature)
}

fn settings(service: &str) -> SigningSettings {
    let mut settings = SigningSettings::default();
    if matches!(service, "s3" | "s3-outposts" | "s3-object-lambda" | "s3express") {
        // Keys are taken as they are written.
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    }
    settings
}

/// The plugin's own digest of the body counts. Without one the body is not signed, which needs TLS.
fn payload(digest: Option<&HeaderValue>, request: &ToSign<'_>) -> Result<SignableBody<'static>, AuthError> {
    let digest = digest.map(|value| value.to_str().unwrap_or_default());
    let is_sha256 = |text: &str| text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    match digest {
        Some(digest) if is_sha256(digest) => Ok(SignableBody::Precomputed(digest.to_owned())),
        Some(UNSIGNED) | None if request.bodiless => Ok(SignableBody::Bytes(&[])),
        Some(UNSIGNED) | None if request.secure => Ok(SignableBody::UnsignedPayload),
        Some(UNSIGNED) | None => Err(AuthError::Unsigned(
            "without TLS the body must be signed: set x-amz-content-sha256 to its SHA-256 in lower-case hex",
        )),
        Some(_) => Err(AuthError::Unsigned(
            "x-amz-content-sha256 must be the body's SHA-256 in lower-case hex, or UNSIGNED-PAYLOAD, or left out",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A secret in a file that lives as long as the test.
    fn secret(value: &str) -> SecretRef {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), value).unwrap();
        SecretRef::File(file.keep().unwrap().1)
    }

    fn to_sign<'a>(method: &'a http::Method, url: &'a str) -> ToSign<'a> {
        // 2013-05-24 00:00:00 UTC, the day of the published S3 examples.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600);
        ToSign { method, url, secure: true, bodiless: true, now }
    }

    fn s3() -> HttpAuth {
        HttpAuth::SigV4 {
            service: "s3".to_owned(),
            region: "us-east-1".to_owned(),
            key_id: secret("AKIAIOSFODNN7EXAMPLE"),
            secret: secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            session_token: None,
        }
    }

    fn authorization(auth: &HttpAuth, request: &ToSign<'_>, fields: &mut HeaderMap) -> Result<String, AuthError> {
        authorize(auth, request, fields, &Redactor::default())?;
        Ok(fields[AUTHORIZATION].to_str().unwrap().to_owned())
    }

    #[test]
    fn sigv4_agrees_with_the_published_examples() {
        // "GET Object" and "PUT Object" in the S3 documentation of authenticating with the Authorization header.
        let mut fields = HeaderMap::new();
        fields.insert("range", HeaderValue::from_static("bytes=0-9"));
        let get = to_sign(&http::Method::GET, "https://examplebucket.s3.amazonaws.com/test.txt");
        let said = authorization(&s3(), &get, &mut fields).unwrap();
        assert_eq!(
            said,
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, \
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let mut fields = HeaderMap::new();
        fields.insert("date", HeaderValue::from_static("Fri, 24 May 2013 00:00:00 GMT"));
        fields.insert("x-amz-storage-class", HeaderValue::from_static("REDUCED_REDUNDANCY"));
        let digest = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
        fields.insert(CONTENT_DIGEST, HeaderValue::from_static(digest));
        let put = to_sign(&http::Method::PUT, "https://examplebucket.s3.amazonaws.com/test%24file.text");
        let said = authorization(&s3(), &ToSign { bodiless: false, ..put }, &mut fields).unwrap();
        assert!(said.ends_with("Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"), "{said}");
        assert_eq!(fields[CONTENT_DIGEST], digest);
    }

    #[test]
    fn a_body_is_signed_or_goes_over_tls() {
        let body = |secure| ToSign { bodiless: false, secure, ..to_sign(&http::Method::PUT, "https://b.example/k") };
        let mut fields = HeaderMap::new();
        assert!(authorization(&s3(), &body(true), &mut fields).is_ok());
        assert_eq!(fields[CONTENT_DIGEST], UNSIGNED);
        let refused = authorization(&s3(), &body(false), &mut HeaderMap::new());
        assert!(matches!(refused, Err(AuthError::Unsigned(_))), "{refused:?}");
        for digest in ["STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "ABC", ""] {
            let mut fields = HeaderMap::new();
            fields.insert(CONTENT_DIGEST, HeaderValue::from_static(digest));
            assert!(matches!(authorization(&s3(), &body(true), &mut fields), Err(AuthError::Unsigned(_))), "{digest}");
        }
    }

    #[test]
    fn a_rotated_secret_counts_from_the_next_request_on() {
        let token = secret("first-token\n");
        let auth = HttpAuth::Bearer(token.clone());
        let get = to_sign(&http::Method::GET, "https://api.example/");
        assert_eq!(authorization(&auth, &get, &mut HeaderMap::new()).unwrap(), "Bearer first-token");
        let SecretRef::File(path) = token else { unreachable!("it was made as a file") };
        std::fs::write(path, "second-token").unwrap();
        assert_eq!(authorization(&auth, &get, &mut HeaderMap::new()).unwrap(), "Bearer second-token");
    }

    #[test]
    fn a_secret_that_cannot_be_sent_is_named_and_not_shown() {
        let get = to_sign(&http::Method::GET, "https://api.example/");
        for bad in ["two\nlines", "nul\0", ""] {
            let auth = HttpAuth::Bearer(secret(bad));
            let Err(AuthError::Unusable(said)) = authorization(&auth, &get, &mut HeaderMap::new()) else {
                panic!("{bad:?} was sent")
            };
            assert!(said.contains("file ") && !said.contains("lines"), "{said}");
        }
        let auth = HttpAuth::Basic { user: "me".to_owned(), password: secret("open sesame") };
        assert_eq!(authorization(&auth, &get, &mut HeaderMap::new()).unwrap(), "Basic bWU6b3BlbiBzZXNhbWU=");
    }
}
