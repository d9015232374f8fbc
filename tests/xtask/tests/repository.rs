//! Rules of the repository, as ordinary tests. They read tracked files; without git, all files outside build folders.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the crate lies two folders below the root").to_owned()
}

/// Paths of all tracked files, relative to the root.
fn tracked() -> Vec<String> {
    let listed = Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output();
    let names = match listed {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            String::from_utf8(output.stdout).expect("names are UTF-8").split('\0').map(str::to_owned).collect()
        }
        _ => walk(),
    };
    let names: Vec<String> = names.into_iter().filter(|name| root().join(name).is_file()).collect();
    assert!(names.len() > 30, "only {} files were found: the rules would judge nothing", names.len());
    names
}

fn walk() -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the folder can be read") {
            let path = entry.expect("the entry can be read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !["target", ".git"].contains(&name.as_str()) {
                    folders.push(path);
                }
            } else {
                let relative = path.strip_prefix(root()).expect("the path lies below the root");
                names.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    names
}

/// Tracked text files with their contents.
fn texts() -> Vec<(String, String)> {
    let read = |name: String| std::fs::read_to_string(root().join(&name)).ok().map(|text| (name, text));
    tracked().into_iter().filter_map(read).collect()
}

fn none(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

fn packages(metadata: &Value) -> &Vec<Value> {
    metadata["packages"].as_array().expect("the workspace has packages")
}

fn name(package: &Value) -> &str {
    package["name"].as_str().expect("a package has a name")
}

/// Ordinary dependencies of each workspace package.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = metadata();
    packages(&metadata)
        .iter()
        .map(|package| {
            let all = package["dependencies"].as_array().expect("dependencies are a list");
            let ordinary = all.iter().filter(|dependency| dependency["kind"].is_null());
            (name(package).to_owned(), ordinary.map(|dependency| name(dependency).to_owned()).collect())
        })
        .collect()
}

#[test]
fn no_source_file_is_longer_than_a_thousand_lines() {
    let long = |(name, text): (String, String)| {
        let lines = text.lines().count();
        let written = [".rs", ".wit", ".sh", ".py", ".toml"].iter().any(|end| name.ends_with(end));
        (written && lines > 1000).then(|| format!("{name}: {lines} lines"))
    };
    none("longer than 1000 lines", &texts().into_iter().filter_map(long).collect::<Vec<_>>());
}

#[test]
fn crates_depend_in_one_direction_only() {
    // From ARCHITECTURE.md: what each crate may see of the workspace.
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("tidegate-protocol", &[][..]),
        ("tidegate-store", &["tidegate-protocol"][..]),
        ("tidegate-wasm", &["tidegate-protocol"][..]),
        ("tidegate-columns", &["tidegate-protocol"][..]),
        ("tidegate-pipeline", &["tidegate-protocol", "tidegate-store", "tidegate-columns"][..]),
        (
            "tidegate-server",
            &["tidegate-protocol", "tidegate-store", "tidegate-columns", "tidegate-pipeline", "tidegate-wasm"][..],
        ),
        (
            "tidegate-cli",
            &["tidegate-server", "tidegate-pipeline", "tidegate-protocol", "tidegate-wasm", "tidegate-store"][..],
        ),
        ("tidegate-sdk", &[][..]),
        ("tidegate-sink-files", &["tidegate-sdk"][..]),
        ("tidegate-e2e", &[][..]),
        ("xtask", &[][..]),
    ]);
    let dependencies = dependencies();
    let mut broken = Vec::new();
    for (package, may) in &allowed {
        let Some(uses) = dependencies.get(*package) else {
            broken.push(format!("{package} is not in the workspace"));
            continue;
        };
        let inner = uses.iter().filter(|name| dependencies.contains_key(*name) && !may.contains(&name.as_str()));
        broken.extend(inner.map(|name| format!("{package} depends on {name}")));
    }
    none("against the direction in ARCHITECTURE.md", &broken);
}

#[test]
fn the_protocol_knows_no_runtime_no_sandbox_and_no_io() {
    let forbidden =
        ["tokio", "wasmtime", "wasmtime-wasi", "rustix", "cap-std", "getrandom", "rand", "tempfile", "tracing", "libc"];
    let dependencies = dependencies();
    let broken: Vec<String> =
        dependencies["tidegate-protocol"].iter().filter(|name| forbidden.contains(&name.as_str())).cloned().collect();
    none("the protocol depends on", &broken);

    let words = ["std::fs", "std::net", "std::thread", "std::env", "std::process", "std::time", "HashMap", "HashSet"];
    let mut judged = 0;
    let mut broken = Vec::new();
    for (name, text) in texts() {
        if name.starts_with("host/protocol/src/") && !name.contains("test") {
            judged += 1;
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
            for (number, line) in lines {
                let word = words.iter().find(|word| line.contains(**word));
                broken.extend(word.map(|word| format!("{name}:{}: {word}", number + 1)));
            }
        }
    }
    assert!(judged > 3, "the protocol's sources were not found");
    none("the protocol does IO, reads a clock or iterates in no order", &broken);
}

#[test]
fn the_pipeline_knows_no_sandbox_and_plugins_need_no_arrow_and_no_c() {
    let dependencies = dependencies();
    let never = |package: &str, words: &[&str]| -> Vec<String> {
        let uses = dependencies[package].iter();
        uses.filter(|name| words.iter().any(|word| name.starts_with(word)))
            .map(|name| format!("{package}: {name}"))
            .collect()
    };
    let mut broken = never("tidegate-pipeline", &["wasmtime", "tidegate-wasm"]);
    broken.extend(never("tidegate-wasm", &["tidegate-store", "tidegate-pipeline"]));
    broken.extend(never("tidegate-sink-files", &["arrow", "cc", "zstd", "tokio"]));
    broken.extend(never("tidegate-sdk", &["arrow", "cc", "zstd", "tokio", "tidegate-protocol"]));
    none("a dependency that is absent on purpose", &broken);
}

#[test]
fn every_package_says_what_it_is_and_under_which_licence() {
    let metadata = metadata();
    let mut broken = Vec::new();
    for package in packages(&metadata) {
        if package["description"].as_str().unwrap_or_default().trim().len() < 10 {
            broken.push(format!("{} has no description", name(package)));
        }
        if package["license"] != "Apache-2.0" {
            broken.push(format!("{} has no licence", name(package)));
        }
    }
    none("in Cargo.toml", &broken);
}

#[test]
fn tracked_files_speak_of_the_project_alone() {
    // Spelled in pieces, so that this file keeps its own rule.
    let forbidden = [
        ["/wo", "rk/"].concat(),
        ["/ro", "ot/"].concat(),
        ["index.cra", "tes.io"].concat(),
        ["static.cra", "tes.io"].concat(),
        ["files.python", "hosted.org"].concat(),
        ["pypi.", "org"].concat(),
        ["registry.npm", "js.org"].concat(),
        ["deb.deb", "ian.org"].concat(),
        ["CONT", "RACT.md"].concat(),
        ["HELP", "ERS.md"].concat(),
    ];
    let mut broken = Vec::new();
    for (name, text) in texts() {
        for (number, line) in text.lines().enumerate() {
            // A lock file's sources name the registry by the index's public address; that is cargo's own.
            if name.ends_with("Cargo.lock") {
                continue;
            }
            let word = forbidden.iter().find(|word| line.contains(word.as_str()));
            broken.extend(word.map(|word| format!("{name}:{}: `{word}`", number + 1)));
        }
        if name != ".ci/run" && text.contains(["../sha", "red"].concat().as_str()) {
            broken.push(format!("{name}: only .ci/run may name the folder beside the clone"));
        }
    }
    none("a path or host of one machine", &broken);
}

#[test]
fn nothing_prebuilt_is_tracked() {
    let ends = [".wasm", ".cwasm", ".so", ".a", ".o", ".rlib", ".exe", ".pyc"];
    let prebuilt = |name: &String| ends.iter().any(|end| name.ends_with(end));
    none("prebuilt", &tracked().into_iter().filter(prebuilt).collect::<Vec<_>>());
}

#[test]
fn no_tracked_file_is_larger_than_a_mebibyte() {
    let large = |name: String| {
        let size = std::fs::metadata(root().join(&name)).ok()?.len();
        (size > 1 << 20).then(|| format!("{name}: {size} bytes"))
    };
    none("larger than a mebibyte", &tracked().into_iter().filter_map(large).collect::<Vec<_>>());
}

#[test]
fn links_between_the_documents_lead_somewhere() {
    let mut broken = Vec::new();
    let mut judged = 0;
    for (name, text) in texts().into_iter().filter(|(name, _)| name.ends_with(".md")) {
        let folder = root().join(&name).parent().map(Path::to_owned).unwrap_or_default();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            judged += 1;
            if !folder.join(path).exists() {
                broken.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(judged > 0, "no link was found");
    none("a link to nothing", &broken);
}

#[test]
fn nothing_is_left_to_be_done_in_the_code() {
    let words =
        [["to", "do!("].concat(), ["unimple", "mented!("].concat(), ["#[ig", "nore"].concat(), ["dbg", "!("].concat()];
    let mut broken = Vec::new();
    for (name, text) in texts().into_iter().filter(|(name, _)| name.ends_with(".rs")) {
        for (number, line) in text.lines().enumerate() {
            let word = words.iter().find(|word| line.contains(word.as_str()));
            broken.extend(word.map(|word| format!("{name}:{}: {word}", number + 1)));
        }
    }
    none("left for later", &broken);
}

/// Lists of exceptions from a rule, in the files that say them.
const WAIVERS: [&str; 7] = ["ignore", "exceptions", "skip", "skip-tree", "allow-git", "allow-org", "ignore-advisories"];

/// Entries of such lists that have no reason with a date (`2026-08-21`) in the comment above them or in themselves.
fn waivers_without_reason(name: &str, text: &str) -> Vec<String> {
    let dated = |text: &str| {
        let day = |word: &str| {
            let parts: Vec<_> = word.split('-').collect();
            let number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            parts.iter().map(|part| part.len()).eq([4, 2, 2]) && parts.iter().all(number)
        };
        let words: Vec<_> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
        // A reason has more words than its date.
        words.iter().any(|word| day(word)) && words.iter().filter(|word| word.len() > 2).count() >= 5
    };
    let (mut broken, mut about, mut inside) = (Vec::new(), String::new(), false);
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        let begun = trimmed.split_once('=').is_some_and(|(key, value)| {
            WAIVERS.contains(&key.trim().trim_matches('"')) && value.trim_start().starts_with('[')
        });
        let entries = if begun { trimmed.split_once('[').map_or("", |(_, rest)| rest) } else { trimmed };
        inside |= begun;
        let entry = inside && entries.contains(['"', '{']);
        if trimmed.starts_with('#') {
            about.push_str(trimmed);
        } else {
            if entry && !dated(&format!("{about} {line}")) {
                broken.push(format!("{name}:{}: {trimmed}", number + 1));
            }
            about.clear();
        }
        inside &= !entries.trim_end_matches(',').ends_with(']');
    }
    broken
}

#[test]
fn a_waiver_has_a_reason_and_a_date() {
    let mut broken = Vec::new();
    let mut judged = 0;
    for (name, text) in texts() {
        let file = name.rsplit('/').next().unwrap_or_default();
        if ["deny.toml", "audit.toml"].contains(&file) {
            judged += 1;
            broken.extend(waivers_without_reason(&name, &text));
        }
        // Who passes it on a command line says it where nobody looks.
        if name == ".ci/run" {
            let flags = text.lines().filter(|line| line.contains("--ignore") && line.contains("audit"));
            broken.extend(flags.map(|line| format!("{name}: {}", line.trim())));
        }
    }
    assert!(judged > 0, "deny.toml was not found");
    none("waivers without a reason and a date above them", &broken);
}

#[test]
fn a_waiver_without_reason_or_date_is_found() {
    let found = |text: &str| waivers_without_reason("x", text).len();
    let reason = "# No fix is out, and nothing here calls it; look again 2026-08-21.";
    assert_eq!(found("[advisories]\nignore = []\n"), 0);
    assert_eq!(found("[advisories]\nignore = [\"RUSTSEC-2026-0001\"]\n"), 1);
    assert_eq!(found("[advisories]\nignore = [\n  \"RUSTSEC-2026-0001\",\n]\n"), 1);
    assert_eq!(found(&format!("[advisories]\nignore = [\n  {reason}\n  \"RUSTSEC-2026-0001\",\n]\n")), 0);
    assert_eq!(found(&format!("[advisories]\n{reason}\nignore = [\"RUSTSEC-2026-0001\"]\n")), 0);
    assert_eq!(found(&format!("ignore = [\n  {reason}\n  \"A\",\n  \"B\",\n]\n")), 1, "each has its own");
    assert_eq!(found("ignore = [\n  # 2026-08-21\n  \"A\",\n]\n"), 1, "a date alone is no reason");
    assert_eq!(found("ignore = [\n  # Nothing here calls it, ever.\n  \"A\",\n]\n"), 1, "no date");
    assert_eq!(found("[licenses]\nallow = [\n  \"MIT\",\n]\n"), 0, "that is no waiver");
}
