//! What a plugin may use up of the network.

use tidegate_protocol::plugin::FaultKind;
use tidegate_wasm::{Limits, Tenant, TenantLimits};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::servers::{accept, listen, to_the_end};
use super::{Names, bind, options, place};

/// A server that takes what comes and keeps every connection open.
async fn patient(listener: &TcpListener) {
    let mut open = Vec::new();
    loop {
        open.push(accept(listener).await);
    }
}

/// The budget that these steps overdraw.
async fn overdrawn(limits: Limits, steps: &[&str]) -> FaultKind {
    let (listener, port) = listen().await;
    let mut options = options(place("db.example", port), place("127.0.0.1", port));
    options.resolver = Names::here(&["db.example"]);
    options.limits = limits;
    let bound = bind(options);
    let fault = tokio::select! {
        fault = bound.take(steps) => fault.unwrap_err(),
        () = patient(&listener) => unreachable!("it never ends"),
    };
    assert_eq!(bound.tenant.held("connections"), 0, "{fault}");
    fault.kind
}

#[tokio::test]
async fn h47_connections_requests_and_lookups_are_counted() {
    let kind = overdrawn(Limits { connections: 8, ..Limits::default() }, &["connect-many a 10000"]).await;
    assert_eq!(kind, FaultKind::Budget("connections"));
    let many: Vec<_> = ["connect a", "connect b", "drop"].into_iter().cycle().take(300).collect();
    assert_eq!(overdrawn(Limits { requests: 20, ..Limits::default() }, &many).await, FaultKind::Budget("requests"));
    assert_eq!(overdrawn(Limits { lookups: 20, ..Limits::default() }, &many).await, FaultKind::Budget("name lookups"));
}

#[tokio::test]
async fn bytes_are_counted_both_ways() {
    let limits = Limits { bytes_up: 1 << 20, ..Limits::default() };
    assert_eq!(overdrawn(limits.clone(), &["connect a", "write-many 1100000"]).await, FaultKind::Budget("bytes up"));

    let (listener, port) = listen().await;
    let mut options = options(place("127.0.0.1", port), place("127.0.0.1", port));
    options.limits = Limits { bytes_down: 1 << 20, ..Limits::default() };
    let bound = bind(options);
    for (bytes, over) in [(1 << 20, false), ((1 << 20) + 1, true)] {
        let server = async {
            let mut stream = accept(&listener).await;
            // Refused when the plugin is ended meanwhile.
            let _ = stream.write_all(&vec![7; bytes]).await;
            let _ = stream.shutdown().await;
            to_the_end(&mut stream).await
        };
        let (said, _) = tokio::join!(bound.take(&["connect a", "read-all", "drop"]), server);
        match over {
            false => assert_eq!(said.unwrap(), "1048576 and an end"),
            true => assert_eq!(said.unwrap_err().kind, FaultKind::Budget("bytes down")),
        }
    }
}

#[tokio::test]
async fn a_tenants_connections_are_counted_over_its_instances_and_nobody_elses() {
    let (listener, port) = listen().await;
    let limits = TenantLimits { connections: 3, ..TenantLimits::default() };
    let of = |tenant: &Tenant| {
        let mut options = options(place("127.0.0.1", port), place("127.0.0.1", port));
        options.tenant = tenant.clone();
        bind(options)
    };
    let (small, other) = (Tenant::new("small", limits), Tenant::default());
    let (one, two, neighbour) = (of(&small), of(&small), of(&other));
    let test = async {
        let mut first = one.plugin.committer().await.unwrap();
        super::on(first.as_mut(), &["connect-many a 3"]).await.unwrap();
        let said = two.says(&["connect a"]).await;
        assert!(said.starts_with("Retryable too-many-connections"), "{said}");
        assert_eq!(neighbour.says(&["connect a"]).await, "");
        drop(first);
        while small.held("connections") > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(two.says(&["connect a"]).await, "");
    };
    tokio::select! {
        () = test => {}
        () = patient(&listener) => unreachable!("it never ends"),
    }
}

/// The class of GHSA-5m8g: writes of nothing that the host remembers.
#[tokio::test]
async fn empty_writes_do_nothing() {
    let (listener, port) = listen().await;
    let mut options = options(place("127.0.0.1", port), place("127.0.0.1", port));
    options.limits = Limits { host_calls: 2_000_000, ..options.limits };
    let bound = bind(options);
    let server = async { to_the_end(&mut accept(&listener).await).await.0 };
    let (said, read) = tokio::join!(bound.says(&["empty-writes a 1000000"]), server);
    assert_eq!((said.as_str(), read), ("written", b"x".to_vec()));
}
