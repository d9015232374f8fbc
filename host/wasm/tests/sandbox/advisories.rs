//! Classes of published advisories about the engine that a plugin can reach, where a plugin of Rust can reach them; the
//! table of all of them is host/cli/docs/advisories.md.

use tidegate_protocol::plugin::{Call, FaultKind};
use tidegate_wasm::{BindOptions, SecretRef};

use crate::support::{context, hostile};

async fn ask(word: &str) -> Result<String, tidegate_protocol::plugin::CallFault> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("token"), "a token").unwrap();
    let mut options = BindOptions::new("out");
    options.dirs.insert("output".to_owned(), dir.path().join("output").into());
    options.secrets.insert("token".to_owned(), SecretRef::File(dir.path().join("token")));
    let plugin = hostile().bind(options).unwrap();
    let position = plugin.committer().await?.observe(&context("out", 1, &format!(r#"{{"do":"{word}"}}"#))).await?;
    Ok(String::from_utf8(position.token.to_vec()).unwrap())
}

/// Each of these was compiled wrongly once, for this or another processor.
#[tokio::test]
async fn n01_instructions_that_were_miscompiled_come_to_what_they_should() {
    let expected = [
        "-2",
        "-2",
        "-1.5",
        "8090a0b0c0d0e0f",
        "20304050607",
        "f0e0d0c0b0a0908",
        "-4",
        "-4611686018427387904",
        "-2",
        "706050403020100",
        "-3",
    ];
    assert_eq!(ask("instructions").await.unwrap().split(' ').collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn n02_memory_ends_where_it_ends() {
    for word in ["beyond", "far-beyond"] {
        let fault = ask(word).await.unwrap_err();
        assert_eq!((fault.call, &fault.kind), (Call::Observe, &FaultKind::Trap), "{fault}");
        assert!(fault.message.contains("out of bounds"), "{fault}");
    }
}
