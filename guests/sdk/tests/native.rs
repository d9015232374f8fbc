//! The SDK's own promises, natively: files stay inside, ids are read strictly, configuration errors name the key.

use std::sync::Arc;

use serde::Deserialize;
use tidegate_sdk::fs::ErrorKind as FsErrorKind;
use tidegate_sdk::native::{Host, Rows};
use tidegate_sdk::{Ctx, Encoding, Error, ErrorKind, External, Level, RunId};

fn run() -> RunId {
    "7-abcdefghijklmnop".parse().expect("a run")
}

fn ctx(dir: &std::path::Path, config: &str) -> (Arc<Host>, Ctx) {
    let host = Arc::new(Host::new().dir("output", dir).with_secret("token", "s3cret"));
    let ctx = host.ctx("out", "abcd2345", run(), config, 1);
    (host, ctx)
}

#[test]
fn a_run_is_written_and_read_the_same_way_and_nothing_else_is_taken_for_one() {
    assert_eq!(run().to_string(), "7-abcdefghijklmnop");
    assert_eq!(serde_json::to_string(&run()).expect("JSON"), "\"7-abcdefghijklmnop\"");
    for wrong in [
        "",
        "7",
        "7-",
        "7-abc",
        "x-abcdefghijklmnop",
        "7-ABCDEFGHIJKLMNOP",
        "7-abcdefghijklmno1",
        "-1-abcdefghijklmnop",
    ] {
        assert!(wrong.parse::<RunId>().is_err(), "{wrong}");
    }
}

#[test]
fn a_path_that_leads_out_of_the_grant_is_denied_by_every_call() {
    let dir = tempfile::tempdir().expect("a directory");
    let outside = dir.path().join("outside");
    std::fs::write(&outside, "x").expect("writes");
    std::fs::create_dir(dir.path().join("in")).expect("makes");
    let (_host, ctx) = ctx(&dir.path().join("in"), "{}");
    let granted = ctx.dir("output").expect("granted");
    for path in ["../outside", "/etc/passwd", "", ".", "a/../../outside"] {
        let kinds = [
            granted.create_new(path).err().map(|e| e.kind),
            granted.read(path, 10).err().map(|e| e.kind),
            granted.metadata(path).err().map(|e| e.kind),
            granted.remove_file(path).err().map(|e| e.kind),
            granted.create_dir(path).err().map(|e| e.kind),
            granted.open_dir(path).err().map(|e| e.kind),
            granted.rename("a", &granted, path).err().map(|e| e.kind),
            granted.hard_link("a", &granted, path).err().map(|e| e.kind),
        ];
        assert_eq!(kinds, [Some(FsErrorKind::Denied); 8], "{path:?}");
    }
    assert!(outside.exists());
}

#[test]
fn files_are_created_once_linked_once_and_read_up_to_a_limit() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_host, ctx) = ctx(dir.path(), "{}");
    let granted = ctx.dir("output").expect("granted");
    let file = granted.create_new("a").expect("creates");
    let mut stream = file.stream(0).expect("streams");
    let rows = Rows::lines(Encoding::Raw, "one\ntwo\n");
    assert_eq!(rows.batch().info().rows, 2);
    assert_eq!(rows.batch().write_to(&mut stream), Ok(8));
    stream.write_all(b"three\n").expect("writes behind");
    assert_eq!(file.bytes(), Ok(14));
    assert!(granted.create_new("a").is_err_and(|error| error.is_exists()));
    granted.hard_link("a", &granted, "b").expect("links");
    assert!(granted.hard_link("a", &granted, "b").is_err_and(|error| error.is_exists()));
    assert_eq!(granted.read("b", 14).expect("reads"), b"one\ntwo\nthree\n");
    assert_eq!(granted.read("b", 13).map_err(|error| error.kind), Err(FsErrorKind::TooLarge));
    assert_eq!(granted.remove_file("a"), Ok(true));
    assert_eq!(granted.remove_file("a"), Ok(false));
    assert_eq!(granted.metadata("a"), Ok(None));
    assert_eq!(granted.names(), Ok(vec!["b".to_owned()]));
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    #[allow(dead_code)]
    table: String,
}

#[test]
fn a_configuration_error_names_the_key_and_no_place_in_a_text_that_nobody_wrote() {
    let dir = tempfile::tempdir().expect("a directory");
    for (config, said) in [
        (r#"{"tabel":"x"}"#, "unknown field `tabel`, expected `table`"),
        ("{}", "missing field `table`"),
        ("", "missing field `table`"),
        (r#"{"table":1}"#, "invalid type: integer `1`, expected a string"),
    ] {
        let error = ctx(dir.path(), config).1.config::<Config>().expect_err("refused");
        assert_eq!(error, Error::bad_config("config", said));
    }
}

#[test]
fn what_was_not_granted_is_denied_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_host, ctx) = ctx(dir.path(), "{}");
    let missing = ctx.dir("input").err().expect("not granted");
    assert_eq!((missing.kind, missing.message.contains("`input`")), (ErrorKind::Denied, true));
    assert_eq!(ctx.secret("token").expect("granted").reveal(), "s3cret");
    assert!(ctx.secret("other").is_err_and(|error| error.kind == ErrorKind::Denied));
}

#[test]
fn a_test_sees_what_the_sink_announced_counted_and_logged_but_no_secret() {
    let dir = tempfile::tempdir().expect("a directory");
    let (host, ctx) = ctx(dir.path(), "{}");
    let table = External { kind: "table".into(), name: "stage".into(), expires_at: None };
    let intent = ctx.resource_intent(&table).expect("recorded");
    ctx.resource_bound(intent, "stage_7").expect("recorded");
    assert!(ctx.resource_bound(intent + 1, "x").is_err());
    assert_eq!(host.intents(), [(table, Some("stage_7".to_owned()))]);
    ctx.counter_add("rows", &[], 2);
    ctx.counter_add("rows", &[], 3);
    assert_eq!(host.counter("rows"), 5);
    ctx.log(Level::Warn, "slow", &[]);
    assert_eq!(host.log_lines()[0].message, "slow");
    assert!(!format!("{host:?}").contains("s3cret"));
}
