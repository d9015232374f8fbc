//! TLS by the host.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tidegate_wasm::{TcpGrant, TlsStart, Trust};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;

use super::servers::{Authority, End, Identity, accept, listen, to_the_end};
use super::{Names, bind, bound_to, options, place, secured};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a plugin says that greets a server with this certificate under the name `db.example`.
async fn greet(acceptor: TlsAcceptor, grant: impl FnOnce(u16) -> TcpGrant) -> String {
    let (listener, port) = listen().await;
    let grant = grant(port);
    let mut options = options(grant.clone(), grant);
    options.resolver = Names::here(&["db.example"]);
    let bound = bind(options);
    let server = async {
        let stream = accept(&listener).await;
        if let Ok(mut stream) = acceptor.accept(stream).await {
            let _ = stream.write_all(b"hello").await;
            to_the_end(&mut stream).await;
        }
    };
    tokio::join!(bound.says(&["connect a", "read 5", "drop"]), server).0
}

#[tokio::test]
async fn a_connection_is_encrypted_from_the_start_and_bound_to_the_certificate() {
    let authority = Authority::new();
    let identity = authority.issue("db.example");
    let (listener, port) = listen().await;
    let grant = secured("db.example", port, authority.roots());
    let mut options = options(grant.clone(), grant);
    options.resolver = Names::here(&["db.example"]);
    let bound = bind(options);
    let server = async {
        let mut stream = identity.acceptor().accept(accept(&listener).await).await.unwrap();
        let mut read = [0; 5];
        stream.read_exact(&mut read).await.unwrap();
        stream.write_all(b"world").await.unwrap();
        to_the_end(&mut stream).await.1
    };
    let steps = ["connect a", "end-point", "write hello", "flush", "read 5", "start-tls", "drop"];
    let (said, end) = tokio::join!(bound.says(&steps), server);
    let end_point = hex(&Sha256::digest(&identity.certificate));
    assert!(said.starts_with(&format!("{end_point}; world; Denied tls-not-granted")), "{said}");
    assert_eq!(end, End::Clean);
}

#[tokio::test]
async fn tls_begins_in_mid_stream() {
    let authority = Authority::new();
    let identity = authority.issue("127.0.0.1");
    let (listener, port) = listen().await;
    let grant = TcpGrant { tls: TlsStart::WhenAsked, ..secured("127.0.0.1", port, authority.roots()) };
    let bound = bound_to(grant);
    let server = async {
        let mut stream = accept(&listener).await;
        let mut asked = [0; 8];
        stream.read_exact(&mut asked).await.unwrap();
        stream.write_all(b"yes").await.unwrap();
        let mut stream = identity.acceptor().accept(stream).await.unwrap();
        let (read, end) = to_the_end(&mut stream).await;
        (asked, read, end)
    };
    let steps = [
        "connect a",
        "end-point",
        "write STARTTLS",
        "flush",
        "read 3",
        "start-tls",
        "end-point",
        "write secret",
        "drop",
    ];
    let (said, (asked, read, end)) = tokio::join!(bound.says(&steps), server);
    assert_eq!(said, format!("none; yes; {}", hex(&Sha256::digest(&identity.certificate))));
    assert_eq!((&asked, read.as_slice(), end), (b"STARTTLS", &b"secret"[..], End::Clean));
}

#[tokio::test]
async fn words_from_before_tls_never_count_as_the_servers() {
    let authority = Authority::new();
    let identity = authority.issue("127.0.0.1");
    let (listener, port) = listen().await;
    let grant = TcpGrant { tls: TlsStart::WhenAsked, ..secured("127.0.0.1", port, authority.roots()) };
    let bound = bound_to(grant);
    let server = async {
        let mut stream = accept(&listener).await;
        stream.write_all(b"yes and more in the clear").await.unwrap();
        assert!(identity.acceptor().accept(stream).await.is_err(), "the client must not go on");
    };
    let (said, ()) = tokio::join!(bound.says(&["connect a", "read 3", "start-tls", "write secret"]), server);
    assert!(said.starts_with("yes; Denied spoken-before-tls") && said.contains("; lost: "), "{said}");
}

#[tokio::test]
async fn without_the_grant_there_is_no_tls() {
    let (listener, port) = listen().await;
    let bound = bound_to(place("127.0.0.1", port));
    let server = async { to_the_end(&mut accept(&listener).await).await };
    let (said, _) = tokio::join!(bound.says(&["connect a", "start-tls", "drop"]), server);
    assert!(said.starts_with("Denied tls-not-granted"), "{said}");
    assert_eq!(bound.tenant.denied().get("tcp"), Some(&1));
}

#[tokio::test]
async fn h49_certificates_that_prove_nothing_are_refused() {
    let authority = Authority::new();
    let grant = |port| secured("db.example", port, authority.roots());
    assert_eq!(greet(authority.issue("db.example").acceptor(), grant).await, "hello");

    let expired = authority.issue_with("db.example", |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let early = authority.issue_with("db.example", |params| params.not_before = rcgen::date_time_ymd(2200, 1, 1));
    for (what, identity) in [
        ("expired", expired),
        ("not yet valid", early),
        ("another name", authority.issue("other.example")),
        ("self-signed", Identity::self_signed("db.example")),
        ("another authority", Authority::new().issue("db.example")),
    ] {
        let said = greet(identity.acceptor(), grant).await;
        assert!(said.starts_with("Denied certificate-refused"), "{what}: {said}");
    }
    // Other names only where the operator says so.
    let named = |port| {
        let mut grant = grant(port);
        grant.trust.server_name = Some("other.example".to_owned());
        grant
    };
    assert_eq!(greet(authority.issue("other.example").acceptor(), named).await, "hello");
    assert!(greet(authority.issue("db.example").acceptor(), named).await.starts_with("Denied certificate-refused"));
}

#[tokio::test]
async fn h49_a_clients_certificate_serves_its_own_grant_alone() {
    let authority = Authority::new();
    let server = authority.issue("db.example");
    let files = authority.files(&authority.issue("client.example"));
    let shown = |port| {
        let mut grant = secured("db.example", port, authority.roots());
        grant.trust.client = Some(files.clone());
        grant
    };
    assert_eq!(greet(authority.demanding(&server), shown).await, "hello");
    // Another grant for the same server, in the same process, right after: neither certificate nor session is lent.
    let bare = greet(authority.demanding(&server), |port| secured("db.example", port, authority.roots())).await;
    assert!(bare.contains("lost: ") || bare.starts_with("Denied client-refused"), "{bare}");
    assert!(bare.contains("CertificateRequired"), "{bare}");
}

#[tokio::test]
async fn h45_a_server_that_never_comes_to_tls_costs_the_connect_time() {
    let authority = Authority::new();
    let (listener, port) = listen().await;
    let mut grant = secured("127.0.0.1", port, authority.roots());
    grant.connect_time = Duration::from_millis(300);
    let bound = bound_to(grant);
    let silent = async {
        let _open = accept(&listener).await;
        std::future::pending::<()>().await;
    };
    let said = tokio::select! {
        said = bound.says(&["connect a"]) => said,
        () = silent => unreachable!("it never ends"),
    };
    assert!(said.starts_with("Retryable connect-timed-out") && said.contains("300ms"), "{said}");
    // The first bytes of a handshake record, and then one every few milliseconds: each is progress, none is an end.
    let drip = async {
        let mut stream = accept(&listener).await;
        let _ = stream.write_all(&[22, 3, 3, 0x3f, 0xff]).await;
        loop {
            if stream.write_all(&[2]).await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let said = tokio::select! {
        said = bound.says(&["connect a"]) => said,
        () = drip => unreachable!("it never ends"),
    };
    assert!(said.starts_with("Retryable "), "{said}");
    assert_eq!(bound.tenant.held("connections"), 0);
}

#[test]
fn files_that_tls_cannot_use_are_told_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let roots = dir.path().join("roots.pem");
    let grant = secured("db.example", 5432, roots.clone());
    assert!(grant.check().unwrap_err().contains("roots.pem"));
    let authority = Authority::new();
    let (chain, key) = authority.files(&authority.issue("client.example"));
    let other = Authority::new();
    let (_, other_key) = other.files(&other.issue("client.example"));
    let with = |client| TcpGrant {
        trust: Trust { roots: Some(authority.roots()), client: Some(client), server_name: None },
        ..secured("db.example", 5432, authority.roots())
    };
    assert_eq!(with((chain.clone(), key)).check(), Ok(()));
    let error = with((chain.clone(), other_key)).check().unwrap_err();
    assert!(error.contains("do not go together"), "{error}");
    let error = with((chain.clone(), chain)).check().unwrap_err();
    assert!(error.contains("client.pem must be a PEM file with a private key"), "{error}");
}
