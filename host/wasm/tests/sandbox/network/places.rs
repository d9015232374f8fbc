//! Where a plugin gets, and where not.

use tidegate_protocol::ids::KeyRange;
use tidegate_protocol::plugin::{Batch, Encoding};
use tidegate_wasm::WasmError;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::servers::{End, accept, listen, nobody_came, to_the_end};
use super::{Names, bind, bound_to, options, place};
use crate::support::{Intents, caller, context, part};

#[tokio::test]
async fn a_granted_place_is_spoken_with() {
    let (listener, port) = listen().await;
    let server = async {
        let mut stream = accept(&listener).await;
        let mut read = [0; 5];
        stream.read_exact(&mut read).await.unwrap();
        stream.write_all(b"world").await.unwrap();
        (read, to_the_end(&mut stream).await)
    };
    let bound = bound_to(place("127.0.0.1", port));
    let steps = ["connect a", "write hello", "flush", "read 5", "drop"];
    let (said, (read, (rest, end))) = tokio::join!(bound.says(&steps), server);
    assert_eq!((said.as_str(), &read, rest.len(), end), ("world", b"hello", 0, End::Clean));
    assert_eq!(bound.tenant.held("connections"), 0);
}

#[tokio::test]
async fn what_is_not_granted_is_denied_and_counted() {
    let bound = bound_to(place("127.0.0.1", 1));
    let said = bound.says(&["connect elsewhere", "connect c"]).await;
    assert!(said.starts_with("Denied not-granted: no place named `elsewhere`"), "{said}");
    assert_eq!(bound.tenant.denied().get("tcp"), Some(&2));
}

#[tokio::test]
async fn h39_special_addresses_are_refused_however_they_are_written() {
    for host in [
        "127.0.0.1",
        "[::1]",
        "0.0.0.0",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "10.0.0.1",
        "100.64.0.1",
        "[fc00::1]",
        "[fe80::1]",
        "224.0.0.1",
        "[ff02::1]",
        "::ffff:169.254.169.254",
        "2130706433",
        "0x7f.1",
        "017700000001",
        "64:ff9b::169.254.169.254",
        "１２７。0。0。1",
    ] {
        let mut grant = place(host, 80);
        grant.allow.clear();
        let refused = caller().bind(options(grant.clone(), place("127.0.0.1", 1))).err();
        assert!(
            matches!(&refused, Some(WasmError::Grant { detail, .. }) if detail.contains("allow")),
            "{host}: {refused:?}"
        );
        assert!(grant.check().is_err_and(|error| error.contains("leads to")), "{host}");
    }
}

#[tokio::test]
async fn h39_a_name_that_leads_inside_is_refused_when_it_is_dialled() {
    for address in [
        "127.0.0.1",
        "::1",
        "0.0.0.0",
        "169.254.169.254",
        "fd00:ec2::254",
        "10.0.0.1",
        "100.64.0.1",
        "fc00::1",
        "fe80::1",
        "224.0.0.1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
    ] {
        let (listener, port) = listen().await;
        let mut grant = place("localhost.", port);
        grant.allow.clear();
        let mut options = options(grant.clone(), grant);
        options.resolver = Names::new(&[("localhost", &[&[address]])]);
        let bound = bind(options);
        let said = bound.says(&["connect a"]).await;
        assert!(said.starts_with("Denied destination-prohibited"), "{address}: {said}");
        assert!(!said.contains(address), "the plugin learns no addresses: {said}");
        assert_eq!(bound.tenant.denied().get("tcp"), Some(&1));
        let lines = bound.kept.lines.lock().unwrap().clone();
        assert!(lines.iter().any(|line| line.message.contains(address)), "the operator does: {lines:?}");
        assert!(nobody_came(&listener).await, "{address} was dialled");
    }
}

#[tokio::test]
async fn h40_a_host_with_more_in_it_is_refused() {
    for host in ["user@127.0.0.1", "127.0.0.1:80", "db.example/x", "", "a b", "%6cocalhost", "db.example\r\nx"] {
        let refused = caller().bind(options(place(host, 80), place("127.0.0.1", 1))).err();
        assert!(
            matches!(&refused, Some(WasmError::Grant { detail, .. }) if detail.contains("is not a host")),
            "{host:?}"
        );
    }
}

#[tokio::test]
async fn h41_a_name_that_changes_its_address_is_checked_again() {
    let (listener, port) = listen().await;
    let mut grant = place("db.example", port);
    grant.allow = vec!["127.0.0.1/32".parse().unwrap()];
    let mut options = options(grant.clone(), grant);
    options.resolver =
        Names::new(&[("db.example", &[&["127.0.0.1"], &["127.0.0.2"], &["127.0.0.1", "127.0.0.2"], &["127.0.0.1"]])]);
    let bound = bind(options);
    let server = async {
        let mut ends = Vec::new();
        for _ in 0..2 {
            ends.push(to_the_end(&mut accept(&listener).await).await.0);
        }
        ends
    };
    let steps = ["connect a", "write one", "flush", "drop", "connect a", "connect a", "connect a", "write two", "drop"];
    let (said, ends) = tokio::join!(bound.says(&steps), server);
    assert_eq!(said.matches("Denied destination-prohibited").count(), 2, "{said}");
    assert_eq!(ends, [b"one".to_vec(), b"two".to_vec()]);
}

#[tokio::test]
async fn nobody_there_is_retryable() {
    let (listener, port) = listen().await;
    drop(listener);
    let said = bound_to(place("127.0.0.1", port)).says(&["connect a"]).await;
    assert!(said.starts_with("Retryable connect-failed"), "{said}");
    let mut options = options(place("db.example", port), place("127.0.0.1", port));
    options.resolver = Names::here(&[]);
    let said = bind(options).says(&["connect a"]).await;
    assert!(said.starts_with("Retryable name-not-resolved"), "{said}");
}

#[tokio::test]
async fn operator_and_plugin_must_mean_the_same_places() {
    let mut lacking = options(place("127.0.0.1", 1), place("127.0.0.1", 1));
    lacking.tcp.remove("b");
    let error = caller().bind(lacking).err().unwrap();
    assert!(error.to_string().contains("asks for the tcp `b`"), "{error}");
    let mut extra = options(place("127.0.0.1", 1), place("127.0.0.1", 1));
    extra.tcp.insert("c".to_owned(), place("127.0.0.1", 1));
    let error = caller().bind(extra).err().unwrap();
    assert!(error.to_string().contains("does not ask for a tcp `c`"), "{error}");
}

#[tokio::test]
async fn batches_pass_straight_into_the_connection() {
    let (listener, port) = listen().await;
    let bound = bound_to(place("127.0.0.1", port));
    let ctx = context("out", 1, "{}");
    let line = format!("{{\"row\":\"{}\"}}\n", "x".repeat(1000));
    let rows = line.repeat(8 << 10);
    let batch = Batch::new(rows.clone().into(), 8 << 10, Encoding::JsonLines);
    let (told, all_there) = tokio::sync::oneshot::channel();
    let client = async {
        let mut writer = bound.plugin.writer(std::sync::Arc::new(Intents::default())).await.unwrap();
        writer.open(&ctx, KeyRange::ALL, &[]).await.unwrap();
        writer.begin(&ctx, &part(&ctx, 1, 0)).await.unwrap();
        for _ in 0..2 {
            assert!(writer.write(&ctx, batch.clone()).await.unwrap().is_empty());
        }
        assert_eq!(writer.prepare(&ctx).await.unwrap().rows, 16 << 10);
        // Its instance ends while the connection is open.
        all_there.await.unwrap();
        drop(writer);
    };
    let server = async {
        let mut stream = accept(&listener).await;
        let mut read = vec![0; 2 * rows.len()];
        stream.read_exact(&mut read).await.unwrap();
        told.send(()).unwrap();
        (read, to_the_end(&mut stream).await)
    };
    let ((), (read, (rest, end))) = tokio::join!(client, server);
    assert!(rest.is_empty());
    assert!(read == rows.repeat(2).into_bytes(), "{} bytes came", read.len());
    assert_eq!(end, End::Broken, "nobody said that this was all");
}
