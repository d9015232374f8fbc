//! The copy of the source in which bugs are planted: only what the checks are made from, built apart from the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::patch::Mutant;

/// What is copied of the source, and how it is built.
struct Pieces {
    /// Below the build's folder.
    folder: &'static str,
    members: &'static [&'static str],
    /// Further lines of the manifest.
    manifest: &'static str,
}

/// What bugs are planted in. Nothing of it needs wasmtime. Each bug costs a build, and a check only runs until it finds
/// it: what runs little is built as fast as can be.
const ALL: Pieces = Pieces { folder: "mutants", members: &MEMBERS, manifest: UNOPTIMISED };

/// What the model is made of. It is built for each of its rules, and then runs for a second or two.
const MODEL: Pieces = Pieces {
    folder: "rules",
    members: &["host/protocol", "tests/model"],
    manifest: "
[profile.proof.package.tidegate-protocol]
opt-level = 0
debug = false

[profile.proof.package.tidegate-model]
opt-level = 0
debug = false
",
};

const MEMBERS: [&str; 6] =
    ["host/protocol", "host/store", "host/columns", "host/pipeline", "tests/model", "tests/simulation"];
const BESIDES: [&str; 3] = ["Cargo.lock", "rust-toolchain.toml", "rustfmt.toml"];

const UNOPTIMISED: &str = "
[profile.proof.package.tidegate-columns]
opt-level = 0

[profile.proof.package.tidegate-pipeline]
opt-level = 1

[profile.proof.package.tidegate-simulation]
opt-level = 1
";

/// Files as they were before a bug was planted.
pub(crate) type Before = BTreeMap<PathBuf, Vec<u8>>;

pub(crate) struct Copy {
    source: PathBuf,
    target: PathBuf,
    /// Held for as long as bugs are planted here: of two at a time each would judge the bugs of the other. The system lets
    /// go of it when this process ends, however it does.
    _alone: File,
}

impl Copy {
    /// Brings the copy below `target` up to date with the tree. What is the same is left alone, so that only what changed
    /// since the last time is built again.
    pub(crate) fn of(tree: &Path, target: &Path) -> Result<Self> {
        Self::of_pieces(tree, target, &ALL)
    }

    /// The same of what the model is made of.
    pub(crate) fn of_model(tree: &Path, target: &Path) -> Result<Self> {
        Self::of_pieces(tree, target, &MODEL)
    }

    fn of_pieces(tree: &Path, target: &Path, pieces: &Pieces) -> Result<Self> {
        let folder = target.join(pieces.folder);
        let alone = alone(&folder)?;
        let copy = Self { source: folder.join("source"), target: folder.join("target"), _alone: alone };
        let mut wanted = BTreeSet::new();
        for member in pieces.members {
            files_below(tree, Path::new(member), &mut wanted)?;
        }
        wanted.extend(BESIDES.iter().map(PathBuf::from).filter(|path| tree.join(path).is_file()));
        ensure!(wanted.len() > 50, "only {} files were found to copy", wanted.len());
        for path in &wanted {
            write_if_new(&copy.source.join(path), &std::fs::read(tree.join(path))?)?;
        }
        let manifest = trimmed(&std::fs::read_to_string(tree.join("Cargo.toml"))?, pieces)?;
        write_if_new(&copy.source.join("Cargo.toml"), manifest.as_bytes())?;
        wanted.insert(PathBuf::from("Cargo.toml"));
        let mut there = BTreeSet::new();
        files_below(&copy.source, Path::new(""), &mut there)?;
        for stale in there.difference(&wanted) {
            std::fs::remove_file(copy.source.join(stale))?;
        }
        copy.adopt_dependencies(&target.join("proof"))?;
        Ok(copy)
    }

    /// What was built of other people's crates for the proof is used here as well: it takes minutes to build and is never
    /// written to again. Our own crates are built apart.
    fn adopt_dependencies(&self, built: &Path) -> Result<()> {
        let into = self.target.join("proof");
        if into.is_dir() || !built.join("deps").is_dir() {
            return Ok(());
        }
        // Whole or not at all: half of it would be taken for all of it the next time.
        let unfinished = self.target.join("unfinished");
        if unfinished.is_dir() {
            std::fs::remove_dir_all(&unfinished)?;
        }
        for folder in ["deps", "build", ".fingerprint"] {
            link_all(&built.join(folder), &unfinished.join(folder), &is_ours)?;
        }
        std::fs::rename(&unfinished, &into).with_context(|| format!("cannot make `{}`", into.display()))
    }

    /// Plants a bug, and says what the files were before.
    pub(crate) fn plant(&self, mutant: &Mutant) -> Result<Before> {
        let mut before = Before::new();
        for (path, planted) in mutant.planted(&self.source)? {
            let at = self.source.join(path);
            before.insert(at.clone(), std::fs::read(&at)?);
            std::fs::write(at, planted)?;
        }
        Ok(before)
    }

    /// Takes the bug out again.
    pub(crate) fn clean(&self, before: &Before) -> Result<()> {
        for (path, content) in before {
            std::fs::write(path, content).with_context(|| format!("cannot write `{}`", path.display()))?;
        }
        Ok(())
    }

    /// Builds, and says where the program is.
    pub(crate) fn build(&self, what: &Build) -> Result<PathBuf> {
        match self.try_build(what) {
            // A compiler that was killed may have left pieces that do not fit: they are made anew.
            Err(error) if error.to_string().contains("error: linking with") => {
                self.forget_pieces()?;
                self.try_build(what)
            }
            built => built,
        }
    }

    fn forget_pieces(&self) -> Result<()> {
        let proof = self.target.join("proof");
        std::fs::remove_dir_all(proof.join("incremental"))?;
        for entry in std::fs::read_dir(proof.join(".fingerprint"))? {
            let entry = entry?;
            if is_ours(&entry.file_name().to_string_lossy()) {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    fn try_build(&self, what: &Build) -> Result<PathBuf> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(match what {
            Build::Program(_) => &["build"][..],
            Build::Test(..) => &["test", "--no-run"][..],
        });
        command.args(["--quiet", "--profile", "proof", "--message-format", "json-render-diagnostics", "--package"]);
        let name = match what {
            Build::Program(package) => {
                command.arg(package);
                package
            }
            Build::Test(package, test) => {
                command.args([package, "--test", test]);
                test
            }
        };
        let output = command
            .current_dir(&self.source)
            .env("CARGO_TARGET_DIR", &self.target)
            // Only what a bug changes is compiled again.
            .env("CARGO_INCREMENTAL", "1")
            .stdin(Stdio::null())
            .output()
            .context("cannot start cargo")?;
        if !output.status.success() {
            bail!("the copy does not build:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let messages = said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut made = messages.filter(|message| message["target"]["name"] == *name);
        let program = made.find_map(|message| message["executable"].as_str().map(PathBuf::from));
        program.with_context(|| format!("cargo did not say where `{name}` is"))
    }

    /// Where the programs run.
    pub(crate) fn folder(&self) -> &Path {
        &self.source
    }
}

/// What is built.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Build {
    /// The program of a package, which has its name.
    Program(&'static str),
    /// A test of a package.
    Test(&'static str, &'static str),
}

/// One process plants bugs in a copy at a time.
fn alone(folder: &Path) -> Result<File> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    let path = folder.join("lock");
    let lock = File::create(&path).with_context(|| format!("cannot make `{}`", path.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => bail!(
            "another `cargo xtask` plants bugs in `{}`: wait for it, or give this one a \
             CARGO_TARGET_DIR of its own",
            folder.display()
        ),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock `{}`", path.display())),
    }
}

fn is_ours(name: &str) -> bool {
    name.starts_with("tidegate") || name.starts_with("libtidegate")
}

fn files_below(root: &Path, folder: &Path, into: &mut BTreeSet<PathBuf>) -> Result<()> {
    let at = root.join(folder);
    for entry in std::fs::read_dir(&at).with_context(|| format!("cannot read `{}`", at.display()))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            files_below(root, &path, into)?;
        } else {
            into.insert(path);
        }
    }
    Ok(())
}

fn write_if_new(path: &Path, content: &[u8]) -> Result<()> {
    if std::fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, content).with_context(|| format!("cannot write `{}`", path.display()))
}

/// The workspace's manifest with the members that are copied, and nothing that runs by default.
fn trimmed(manifest: &str, pieces: &Pieces) -> Result<String> {
    let (before, rest) = manifest.split_once("\nmembers = [").context("Cargo.toml lists no members")?;
    let (_, after) = rest.split_once("\n]\n").context("the list of members has no end")?;
    let members: Vec<String> = pieces.members.iter().map(|member| format!("\"{member}\"")).collect();
    let after: Vec<&str> = after.lines().filter(|line| !line.starts_with("default-members")).collect();
    Ok(format!("{before}\nmembers = [{}]\n{}\n{}", members.join(", "), after.join("\n"), pieces.manifest))
}

fn link_all(from: &Path, into: &Path, skip: &dyn Fn(&str) -> bool) -> Result<()> {
    std::fs::create_dir_all(into)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if skip(&name.to_string_lossy()) {
            continue;
        }
        let (source, copy) = (entry.path(), into.join(&name));
        if entry.file_type()?.is_dir() {
            link_all(&source, &copy, skip)?;
        } else if std::fs::hard_link(&source, &copy).is_err() {
            std::fs::copy(&source, &copy)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that was killed leaves its bug behind: the next one must not judge it, nor what it was built into.
    #[test]
    fn a_bug_that_was_left_behind_is_taken_out_and_one_process_plants_at_a_time() {
        let target = std::env::temp_dir().join(format!("tidegate-copy-{}", std::process::id()));
        let tree = crate::workspace();
        let mutant = Mutant::all(&tree.join("tests/mutants")).expect("there are some").swap_remove(0);
        let copy = Copy::of(&tree, &target).expect("a copy");
        assert!(Copy::of(&tree, &target).is_err_and(|error| error.to_string().contains("another")));
        let before = copy.plant(&mutant).expect("it applies");
        let (path, clean) = before.first_key_value().expect("a file was changed");
        // The system's clock for files ticks every few milliseconds, and all this may be done within one.
        let planted = std::fs::metadata(path).and_then(|meta| meta.modified()).expect("it is there");
        let planted = planted - std::time::Duration::from_secs(60);
        File::options().write(true).open(path).and_then(|file| file.set_modified(planted)).expect("it is there");
        std::fs::write(copy.source.join("host/store/src/left-behind.rs"), "").expect("a file");
        // As if it was killed: nothing is taken back.
        drop(copy);
        let copy = Copy::of(&tree, &target).expect("a copy again");
        assert!(std::fs::read(path).expect("it is there") == *clean, "the bug is still in the copy");
        let mended = std::fs::metadata(path).and_then(|meta| meta.modified()).expect("it is there");
        assert!(mended > planted, "it would not be built again");
        assert!(!copy.source.join("host/store/src/left-behind.rs").exists());
        std::fs::remove_dir_all(&target).expect("our own folder");
    }

    #[test]
    fn the_manifest_keeps_everything_but_other_members() {
        let manifest = std::fs::read_to_string(crate::workspace().join("Cargo.toml")).expect("the manifest");
        let trimmed = trimmed(&manifest, &ALL).expect("members are listed");
        assert!(trimmed.contains("\"tests/simulation\"]") && !trimmed.contains("\"host/wasm\","));
        assert!(!trimmed.contains("default-members") && trimmed.contains("[profile.proof]"));
    }
}
