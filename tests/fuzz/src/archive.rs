//! Archives of a state: any bytes, or any manifest and files whose digests fit.

use std::path::Path;

use sha2::{Digest as _, Sha256};
use tidegate_server::{State, config, import};

use crate::input::{Input, scratch};
use crate::{Met, words};

/// The pipeline whose archives the tests of the server write.
const PIPELINE: &str = include_str!("../../../host/server/tests/archive.toml");

pub(crate) fn run(bytes: &[u8]) -> Met {
    let mut input = Input(bytes);
    let archive = match input.byte() % 3 {
        0 => input.0.to_vec(),
        1 => packed(input, false),
        _ => packed(input, true),
    };
    let place = scratch();
    let path = place.path().join("archive.tar.zst");
    std::fs::write(&path, &archive).expect("it is new");
    let file = config::parse(PIPELINE, Path::new("p.toml"), place.path()).expect("a good file");
    let imported = import(&file, &path);
    let mut there: Vec<_> = std::fs::read_dir(place.path())
        .expect("it is there")
        .map(|entry| entry.expect("listing").file_name())
        .collect();
    there.sort();
    match &imported {
        Ok(_) => {
            assert_eq!(there, ["archive.tar.zst", "state"]);
            let state = State::read(&file).expect("what was imported is read").expect("it is there");
            assert_eq!(state.history.pipeline().map(|name| name.as_str()), Some("flights"));
        }
        Err(error) => {
            words(error);
            assert_eq!(there, ["archive.tar.zst"], "it was refused, and something is there: {error}");
        }
    }
    Met::of(&imported)
}

/// Pieces are the manifest, then names and contents of files in turn. With `mended` the manifest says what is there.
fn packed(mut input: Input<'_>, mended: bool) -> Vec<u8> {
    let text = input.piece().unwrap_or_default().to_vec();
    let mut files: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    while let (Some(name), Some(content)) = (input.piece(), input.piece()) {
        files.push((name.to_vec(), content.to_vec()));
    }
    let text = if mended { manifest(&files, &text) } else { text };
    let end = data_encoding::HEXLOWER.encode(&Sha256::digest(&text)).into_bytes();
    files.insert(0, (b"manifest.json".to_vec(), text));
    files.push((b"manifest.sha256".to_vec(), end));
    let mut tar = tar::Builder::new(zstd::Encoder::new(Vec::new(), 1).expect("a compressor"));
    for (name, content) in &files {
        let mut header = tar::Header::new_ustar();
        let name = &name[..name.len().min(99)];
        header.as_ustar_mut().expect("it is one").name[..name.len()].copy_from_slice(name);
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_cksum();
        tar.append(&header, content.as_slice()).expect("a vector takes it");
    }
    tar.into_inner().and_then(|zstd| zstd.finish()).expect("a vector takes it")
}

fn manifest(files: &[(Vec<u8>, Vec<u8>)], product: &[u8]) -> Vec<u8> {
    let files: Vec<_> = files
        .iter()
        .map(|(name, content)| {
            serde_json::json!({
                "path": String::from_utf8_lossy(name),
                "bytes": content.len(),
                "sha256": data_encoding::HEXLOWER.encode(&Sha256::digest(content)),
            })
        })
        .collect();
    let manifest = serde_json::json!({
        "format": 1, "pipeline": "flights", "product": String::from_utf8_lossy(product), "newest-epoch": null,
        "records": 1, "files": files,
    });
    manifest.to_string().into_bytes()
}
