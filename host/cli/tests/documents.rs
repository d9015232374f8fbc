//! What is made from the code: the committed reference, completions, man pages; and paths that are no files.

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn tidegate(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).current_dir(dir).stdin(Stdio::null());
    command.env("TIDEGATE_CACHE_DIR", dir.join("cache")).env_remove("TIDEGATE_LOG").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_committed_references_are_what_the_code_says() {
    for (file, arguments) in [
        ("docs/config-reference.toml", &["config", "reference"][..]),
        ("docs/host-reference.toml", &["config", "reference", "--host"]),
    ] {
        let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let now = text(&tidegate(Path::new("."), arguments).stdout);
        let same = std::fs::read_to_string(&committed).is_ok_and(|committed| committed == now);
        let command = format!("cargo run -- {} > host/cli/{file}", arguments.join(" "));
        assert!(same, "{} is out of date; make it again with:\n  {command}", committed.display());
    }
}

#[test]
fn completions_know_the_commands_and_hide_what_is_for_tests() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = tidegate(Path::new("."), &["completions", shell]);
        let script = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0));
        assert!(script.contains("savepoint") && script.contains("accept"), "{shell}");
        assert!(!script.contains("hold-at") && !script.contains("lose-commit-answers"), "{shell}");
    }
    assert_eq!(tidegate(Path::new("."), &["completions", "dos"]).status.code(), Some(2));
}

#[test]
fn there_is_a_man_page_for_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let output = tidegate(dir.path(), &["man", "--out", "pages/man1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut all = String::new();
    for page in
        ["tidegate", "tidegate-run", "tidegate-savepoint-create", "tidegate-checkpoint-export", "tidegate-orphans"]
    {
        let page = dir.path().join(format!("pages/man1/{page}.1"));
        all += &std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    }
    let version = env!("CARGO_PKG_VERSION");
    assert!(all.contains(&format!(".TH tidegate-run 1  \"run {version}\"")), "each page is headed by the version");
    assert!(all.contains("exactly once") && !all.contains("hold\\-at") && !all.contains("hold-at"));
    std::fs::write(dir.path().join("file"), "").unwrap();
    assert_eq!(tidegate(dir.path(), &["man", "--out", "file/x"]).status.code(), Some(1));
}

#[test]
fn a_fifo_where_a_file_should_be_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0)
        .unwrap();
    let pipeline = |plugin: &str, secret: &str| {
        format!(
            "[pipeline]\nname = \"p\"\nstate = \"state\"\n[sources.made]\nkind = \"generate\"\nrows = 1\n[sinks.out]\n\
             plugin = \"{plugin}\"\ndirs = {{ output = \"out\" }}\n{secret}"
        )
    };
    std::fs::write(dir.path().join("plugin.toml"), pipeline("./fifo", "")).unwrap();
    std::fs::write(dir.path().join("good.toml"), pipeline("builtin:files", "")).unwrap();
    for arguments in [
        ["plugin", "inspect", "fifo"].as_slice(),
        &["validate", "fifo"],
        &["run", "plugin.toml"],
        &["checkpoint", "import", "good.toml", "--from", "fifo"],
        &["plugin", "inspect", "/dev/zero"],
    ] {
        let output = tidegate(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("not a file"), "{arguments:?}: {}", text(&output.stderr));
    }
}
