//! Plain sockets, as the standard library of a plugin's language has them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_protocol::plugin::FaultKind;
use tidegate_wasm::{Limits, TcpGrant, TlsStart};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::servers::{Authority, End, accept, listen, nobody_came, to_the_end};
use super::{Bound, Names, bind, options, place, secured};

/// Hears all, and says it again.
async fn echo(listener: &TcpListener) -> End {
    let mut stream = accept(listener).await;
    let (read, end) = to_the_end(&mut stream).await;
    // The client may have gone.
    let _ = stream.write_all(&read).await;
    end
}

/// A language's runtime looks for directories when it starts; that is counted too, and another matter.
fn denied_sockets(bound: &Bound) -> BTreeMap<&'static str, u64> {
    bound.tenant.denied().into_iter().filter(|(what, _)| what.starts_with("wasi:sockets/")).collect()
}

#[tokio::test]
async fn sockets_reach_a_granted_name_and_a_granted_address() {
    let (listener, port) = listen().await;
    let mut options = options(place("db.example", port), place("127.0.0.1", port));
    options.resolver = Names::here(&["db.example"]);
    let bound = bind(options);
    for host in ["db.example", "DB.example.", "127.0.0.1"] {
        let step = format!("std {host}:{port} hello");
        let steps = [step.as_str()];
        let (said, end) = tokio::join!(bound.says(&steps), echo(&listener));
        assert_eq!((said.as_str(), end), ("hello", End::Clean), "{host}");
    }
    assert_eq!(bound.tenant.held("connections"), 0);
    assert_eq!(denied_sockets(&bound), BTreeMap::new());
}

#[tokio::test]
async fn sockets_reach_nothing_else() {
    let (listener, port) = listen().await;
    let mut options = options(place("db.example", port), place("127.0.0.1", port));
    let resolver = Names::here(&["db.example", "other.example"]);
    options.resolver = resolver.clone();
    options.limits = Limits { call_time: Duration::from_secs(120), ..Limits::default() };
    let bound = bind(options);
    let elsewhere = if port == 1 { 2 } else { 1 };
    for step in [
        format!("std 127.0.0.2:{port} x"),
        format!("std db.example:{elsewhere} x"),
        format!("std other.example:{port} x"),
        format!("std [::1]:{port} x"),
        "raw-connect 169.254.169.254:80".to_owned(),
        "listen 127.0.0.1:0".to_owned(),
        "udp 127.0.0.1:0".to_owned(),
        "resolve localhost:80".to_owned(),
    ] {
        let said = bound.says(&[&step]).await;
        assert!(!said.contains(' ') && said.chars().all(char::is_alphanumeric), "an error's kind: {step}: {said}");
    }
    let denied = denied_sockets(&bound);
    assert_eq!(
        denied.keys().copied().collect::<Vec<_>>(),
        ["wasi:sockets/ip-name-lookup", "wasi:sockets/tcp", "wasi:sockets/udp"]
    );
    assert!(denied["wasi:sockets/tcp"] >= 4, "{denied:?}");
    assert_eq!(resolver.asked.load(Ordering::Relaxed), 1, "for the granted name alone");
    assert!(nobody_came(&listener).await);
}

#[tokio::test]
async fn h48_h50_names_that_are_not_granted_are_never_asked_for() {
    let mut options = options(place("db.example", 1), place("127.0.0.1", 1));
    let resolver = Names::here(&[]);
    options.resolver = resolver.clone();
    options.limits =
        Limits { call_time: Duration::from_secs(300), cpu_time: Duration::from_secs(300), ..Limits::default() };
    let bound = bind(options);
    assert_eq!(bound.says(&["resolve-many 100000"]).await, "100000 failed");
    assert_eq!(resolver.asked.load(Ordering::Relaxed), 0);
    assert_eq!(bound.tenant.denied()["wasi:sockets/ip-name-lookup"], 100_000);
}

#[tokio::test]
async fn granted_names_are_asked_for_within_the_budget() {
    let mut options = options(place("db.example", 1), place("127.0.0.1", 1));
    options.resolver = Names::here(&["db.example"]);
    options.limits = Limits { lookups: 5, ..Limits::default() };
    let fault = bind(options).take(&["resolve db.example:80"; 10]).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Budget("name lookups"));
}

#[tokio::test]
async fn h41_sockets_connect_to_checked_answers_of_the_last_lookup() {
    let (listener, port) = listen().await;
    let mut grant = place("db.example", port);
    grant.allow = vec!["127.0.0.1/32".parse().unwrap()];
    let mut options = options(grant.clone(), grant);
    options.resolver = Names::new(&[("db.example", &[&["127.0.0.1"], &["127.0.0.2"], &["127.0.0.1", "127.0.0.2"]])]);
    let bound = bind(options);
    let by_name = format!("std db.example:{port} hello");
    let by_address = format!("raw-connect 127.0.0.1:{port}");
    let steps = [by_name.as_str(), &by_name, &by_address, &by_name];
    let (said, _) = tokio::join!(bound.says(&steps), echo(&listener));
    let said: Vec<_> = said.split("; ").collect();
    assert_eq!(said[0], "hello");
    assert!(said[1..].iter().all(|said| *said != "hello" && *said != "connected"), "{said:?}");
    assert!(nobody_came(&listener).await, "only the first one came");
}

#[tokio::test]
async fn where_tls_is_granted_sockets_do_not_go_around_it() {
    let authority = Authority::new();
    let (_listener, port) = listen().await;
    let at_once = secured("127.0.0.1", port, authority.roots());
    let when_asked = TcpGrant { tls: TlsStart::WhenAsked, ..secured("db.example", port, authority.roots()) };
    let mut options = options(at_once, when_asked);
    options.resolver = Names::here(&["db.example"]);
    let bound = bind(options);
    for host in ["127.0.0.1", "db.example"] {
        let said = bound.says(&[&format!("std {host}:{port} x")]).await;
        assert!(said.chars().all(char::is_alphanumeric), "{said}");
    }
    assert!(bound.tenant.denied().contains_key("wasi:sockets/tcp"));
}

#[tokio::test]
async fn a_plugin_that_is_stopped_in_mid_stream_resets_its_sockets() {
    let (listener, port) = listen().await;
    let mut options = options(place("127.0.0.1", port), place("127.0.0.1", port));
    options.limits = Limits { cpu_time: Duration::from_millis(500), ..Limits::default() };
    let bound = bind(options);
    let server = async {
        let mut stream = accept(&listener).await;
        let mut first = [0; 5];
        stream.read_exact(&mut first).await.unwrap();
        stream.write_all(b"ok").await.unwrap();
        to_the_end(&mut stream).await.1
    };
    let step = format!("std-loop 127.0.0.1:{port}");
    let steps = [step.as_str()];
    let (fault, end) = tokio::join!(bound.take(&steps), server);
    assert_eq!((fault.unwrap_err().kind, end), (FaultKind::Budget("cpu time"), End::Broken));
    assert_eq!(bound.tenant.held("connections"), 0);
}
