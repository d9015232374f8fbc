//! Credentials are the host's: the server sees them, the plugin does not.

use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use sha2::{Digest as _, Sha256};
use tidegate_wasm::{HttpAuth, SecretRef};

use super::servers::{Seen, Server};
use super::{bind, options, secured, service, to};
use crate::network::servers::Authority;

/// A file in `dir` with this secret.
fn secret(dir: &tempfile::TempDir, name: &str, value: &str) -> SecretRef {
    let path = dir.path().join(name);
    std::fs::write(&path, value).unwrap();
    SecretRef::File(path)
}

#[tokio::test]
async fn the_server_sees_credentials_and_the_plugin_does_not_even_if_they_are_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let token = secret(&dir, "token", "t0p-secret-token");
    let password = secret(&dir, "password", "open sesame");
    for http2 in [false, true] {
        let server = if http2 { Server::http2().await } else { Server::plain().await };
        for (auth, sent) in [
            (HttpAuth::Bearer(token.clone()), "Bearer t0p-secret-token"),
            (HttpAuth::Basic { user: "me".to_owned(), password: password.clone() }, "Basic bWU6b3BlbiBzZXNhbWU="),
        ] {
            let mut grant = service("127.0.0.1", server.port);
            grant.auth = auth;
            grant.http2_only = http2;
            let bound = bind(options(grant));
            let url = format!("http://127.0.0.1:{}/echo", server.port);
            let asked = r#""headers":[["te","trailers"]],"trailers":[["x-echo",""],["authorization",""]]"#;
            assert_eq!(bound.says(to("send", &url, asked)).await, "200 x-echo=<withheld> authorization= ok");
            assert_eq!(server.only().await.headers["authorization"], sent);
            let said = bound.says(to("trailers", &url, r#""method":"POST","headers":[["te","trailers"]]"#)).await;
            assert_eq!(said, "200 x-after=done,x-echo-after=<withheld>");
            server.only().await;
        }
    }
}

#[tokio::test]
async fn a_rotated_secret_is_used_from_the_next_request_on() {
    let dir = tempfile::tempdir().unwrap();
    let token = secret(&dir, "token", "first-token");
    let server = Server::plain().await;
    let mut grant = service("127.0.0.1", server.port);
    grant.auth = HttpAuth::Bearer(token);
    let bound = bind(options(grant));
    let url = format!("http://127.0.0.1:{}/", server.port);
    let mut committer = bound.plugin.committer().await.unwrap();
    for value in ["first-token", "second-token"] {
        secret(&dir, "token", value);
        super::on(committer.as_mut(), &[to("send", &url, "")]).await.unwrap();
        assert_eq!(server.only().await.headers["authorization"], format!("Bearer {value}").as_str());
    }
    std::fs::remove_file(dir.path().join("token")).unwrap();
    let said = super::on(committer.as_mut(), &[to("send", &url, "")]).await.unwrap();
    assert!(said.starts_with("BadConfig bad-grant") && !said.contains("token"), "{said}");
    assert!(bound.kept.lines.lock().unwrap().iter().any(|line| line.message.contains("cannot be read")));
}

const KEY: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

/// Checks a signature from what arrived alone, as the service does it: with its own copy of the key.
fn verify(seen: &Seen, path: &str, body_digest: &str) {
    let said = seen.headers["authorization"].to_str().unwrap();
    let part = |name: &str| said.split_once(name).unwrap().1.split(',').next().unwrap().trim().to_owned();
    let (scope, signed, signature) = (part("Credential="), part("SignedHeaders="), part("Signature="));
    let (id, scope) = scope.split_once('/').unwrap();
    let date = seen.headers["x-amz-date"].to_str().unwrap();
    assert_eq!((id, scope), ("AKIDEXAMPLE", format!("{}/eu-central-1/s3/aws4_request", &date[..8]).as_str()));
    for name in ["host", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"] {
        assert!(signed.split(';').any(|signed| signed == name), "{name} is not signed: {signed}");
    }
    let fields: String =
        signed.split(';').map(|name| format!("{name}:{}\n", seen.headers[name].to_str().unwrap())).collect();
    let canonical = format!("PUT\n{path}\n\n{fields}\n{signed}\n{body_digest}");
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(canonical));
    let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}");
    let day = time_of(date);
    let key = generate_signing_key(KEY, day, "eu-central-1", "s3");
    assert_eq!(calculate_signature(key, to_sign.as_bytes()), signature);
}

/// Noon of the day of `20130524T000000Z`.
fn time_of(date: &str) -> std::time::SystemTime {
    let number = |range: std::ops::Range<usize>| date[range].parse::<i64>().unwrap();
    let (year, month, day) = (number(0..4), number(4..6), number(6..8));
    // Days since 1970 of the Gregorian calendar, with March as the first month.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    std::time::UNIX_EPOCH + std::time::Duration::from_secs(u64::try_from(days).unwrap() * 86_400 + 43_200)
}

#[tokio::test]
async fn sigv4_satisfies_a_server_that_checks_it() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let tls = Server::tls(&authority.issue("127.0.0.1"), false).await;
    let plain = Server::plain().await;
    let auth = HttpAuth::SigV4 {
        service: "s3".to_owned(),
        region: "eu-central-1".to_owned(),
        key_id: secret(&dir, "id", "AKIDEXAMPLE"),
        secret: secret(&dir, "key", KEY),
        session_token: Some(secret(&dir, "session", "session-token")),
    };
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(b"hello"));
    let signed = format!(
        r#""method":"PUT","body":"hello","headers":[["x-amz-content-sha256","{digest}"],["x-amz-meta-a","b"]]"#
    );
    let unsigned = r#""method":"PUT","body":"hello""#;
    let mut grant = secured("127.0.0.1", tls.port, authority.roots());
    grant.auth = auth.clone();
    let bound = bind(options(grant));
    let url = format!("https://127.0.0.1:{}/bucket/a%20key", tls.port);
    assert_eq!(bound.says(to("send", &url, unsigned)).await, "200 ok");
    let seen = tls.only().await;
    assert_eq!(seen.headers["x-amz-security-token"], "session-token");
    verify(&seen, "/bucket/a%20key", "UNSIGNED-PAYLOAD");
    assert_eq!(bound.says(to("send", &url, &signed)).await, "200 ok");
    verify(&tls.only().await, "/bucket/a%20key", &digest);

    let mut grant = service("127.0.0.1", plain.port);
    grant.auth = auth;
    let bound = bind(options(grant));
    let url = format!("http://127.0.0.1:{}/bucket/key", plain.port);
    assert_eq!(bound.says(to("send", &url, &signed)).await, "200 ok");
    verify(&plain.only().await, "/bucket/key", &digest);
    let said = bound.says(to("send", &url, unsigned)).await;
    assert!(said.contains("without TLS the body must be signed"), "{said}");
}
