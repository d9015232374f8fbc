//! What a plugin may use up.

use tidegate_protocol::plugin::FaultKind;
use tidegate_wasm::Limits;
use tokio::net::TcpListener;

use super::servers::Server;
use super::{bind, options, service, to};
use crate::network::servers::{accept, listen};

fn counted(act: &str, count: usize) -> String {
    format!(r#"{{"do":"{act}","count":{count},"body":"x"}}"#)
}

/// How these steps end.
async fn fault(limits: Limits, steps: &[String]) -> FaultKind {
    let mut options = options(service("127.0.0.1", 9));
    options.limits = limits;
    bind(options).take(steps).await.unwrap_err().kind
}

#[tokio::test]
async fn h24_header_fields_are_bounded() {
    let headers = FaultKind::Budget("header bytes");
    assert_eq!(fault(Limits::default(), &[counted("append-many", 100_000)]).await, headers);
    assert_eq!(fault(Limits::default(), &[counted("big-value", 1 << 20)]).await, headers);
    assert_eq!(fault(Limits::default(), &[counted("fields-many", 4000)]).await, headers);
}

#[tokio::test]
async fn h23_sets_of_fields_are_handles() {
    assert_eq!(fault(Limits::default(), &[counted("fields-empty", 1_000_000)]).await, FaultKind::Budget("handles"));
}

/// The class of GHSA-f8mm: writes of nothing that the host remembers.
#[tokio::test]
async fn h27_a_million_empty_writes_are_one_byte() {
    for http2 in [false, true] {
        let server = if http2 { Server::http2().await } else { Server::plain().await };
        let mut grant = service("127.0.0.1", server.port);
        grant.http2_only = http2;
        let mut options = options(grant);
        options.limits = Limits { host_calls: 2_000_000, ..options.limits };
        let before = resident();
        let url = format!("http://127.0.0.1:{}/", server.port);
        assert_eq!(bind(options).says(to("empty-writes", &url, r#""count":1000000"#)).await, "200");
        assert_eq!(server.only().await.body, b"x");
        // Other tests run beside this one; a million kept chunks would be far more than this.
        assert!(resident().saturating_sub(before) < 300 << 20);
    }
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// A server that takes what comes, keeps every connection open and never answers.
async fn patient(listener: &TcpListener) {
    let mut open = Vec::new();
    loop {
        open.push(accept(listener).await);
    }
}

#[tokio::test]
async fn h47_requests_that_nobody_answers_are_bounded_by_connections() {
    let (listener, port) = listen().await;
    let bound = bind(options(service("127.0.0.1", port)));
    let url = format!("http://127.0.0.1:{port}/");
    let steps = [to("send-many", &url, r#""count":10000"#)];
    let fault = tokio::select! {
        fault = bound.take(&steps) => fault.unwrap_err(),
        () = patient(&listener) => unreachable!("it never ends"),
    };
    assert_eq!(fault.kind, FaultKind::Budget("connections"));
    assert_eq!(bound.tenant.held("connections"), 0);
}

#[tokio::test]
async fn h47_answers_that_nobody_reads_are_bounded_by_connections() {
    let server = Server::plain().await;
    let mut options = options(service("127.0.0.1", server.port));
    options.limits.connections = 8;
    let bound = bind(options);
    let url = format!("http://127.0.0.1:{}/", server.port);
    let unread = r#""count":100"#;
    let said = bound.take(&[to("hold-many", &url, unread)]).await;
    assert_eq!(said.unwrap_err().kind, FaultKind::Budget("connections"));
    assert_eq!(bound.tenant.held("connections"), 0);
}

#[tokio::test]
async fn h47_answers_that_are_dropped_leave_nothing_behind() {
    for http2 in [false, true] {
        let server = if http2 { Server::http2().await } else { Server::plain().await };
        let mut grant = service("127.0.0.1", server.port);
        grant.http2_only = http2;
        let bound = bind(options(grant));
        let url = format!("http://127.0.0.1:{}/", server.port);
        let mut committer = bound.plugin.committer().await.unwrap();
        let steps = [to("drop-futures", &url, r#""count":1000"#), to("send", &url, "")];
        assert_eq!(super::on(committer.as_mut(), &steps).await.unwrap(), "dropped; 200 ok");
        assert!(bound.tenant.held("connections") <= 2, "{}", bound.tenant.held("connections"));
    }
}

#[tokio::test]
async fn requests_and_bytes_are_counted() {
    let server = Server::plain().await;
    let of = async |limits: Limits, step: String, times: usize| {
        let mut options = options(service("127.0.0.1", server.port));
        options.limits = limits;
        bind(options).take(&vec![step; times]).await.unwrap_err().kind
    };
    let url = format!("http://127.0.0.1:{}/", server.port);
    let get = to("send", &url, "");
    assert_eq!(of(Limits { requests: 20, ..Limits::default() }, get.clone(), 21).await, FaultKind::Budget("requests"));
    let down = Limits { bytes_down: 1000, ..Limits::default() };
    assert_eq!(of(down, get, 30).await, FaultKind::Budget("bytes down"));
    let up = Limits { bytes_up: 1 << 20, ..Limits::default() };
    let upload = format!(r#"{{"do":"send","method":"PUT","url":"{url}","body":"{}"}}"#, "x".repeat(200_000));
    assert_eq!(of(up, upload, 6).await, FaultKind::Budget("bytes up"));
}

#[tokio::test]
async fn a_request_beyond_its_cap_breaks_off() {
    let server = Server::plain().await;
    let mut grant = service("127.0.0.1", server.port);
    grant.request_bytes = 1000;
    let bound = bind(options(grant));
    let url = format!("http://127.0.0.1:{}/", server.port);
    for (size, fits) in [(1000, true), (1001, false)] {
        let rest = format!(r#""method":"PUT","body":"{}""#, "x".repeat(size));
        let said = bound.says(to("send", &url, &rest)).await;
        assert_eq!(said.starts_with("200"), fits, "{said}");
        match fits {
            true => assert!(server.only().await.whole),
            false => server.saw_nothing_whole().await,
        }
    }
}
