//! Targets for fuzzing everything that parses. Each takes bytes from outside and holds the product to more than not to
//! panic: what is read is written again with the same meaning, a refusal has words and a place and changes nothing, and no
//! more is allocated than the input can account for.
//!
//! `cargo xtask fuzz` fuzzes them; `cargo test -p tidegate-fuzz` replays the corpora in `corpus/<target>`.

mod alloc;
mod answers;
mod archive;
mod columns;
mod component;
mod config;
mod files;
mod input;
mod log;
mod names;
mod records;
#[path = "../../../host/store/tests/store/wire.rs"]
#[expect(dead_code, reason = "the store's tests make more of it")]
mod wire;

pub use alloc::Counting;

/// What became of an input. A corpus has both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Met {
    /// It was taken for what it might be.
    Read,
    /// It was refused.
    Refused,
}

impl Met {
    fn of<T, E>(result: &Result<T, E>) -> Met {
        if result.is_ok() { Met::Read } else { Met::Refused }
    }
}

/// Something that parses.
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    run: fn(&[u8]) -> Met,
    /// Bytes that may be in use at one time beyond those before, whatever the input is.
    base: usize,
    /// And for each byte of input.
    each: usize,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    // Names are short: a target of their own would take as long as the others.
    // State is repeated up to 256 times, and is there three times: as it was, kept, and read again.
    Target { name: "records", run: records::run, base: 1 << 20, each: 4 * 256 },
    // Four files of up to 192 KiB, held by three disks, and read from each.
    Target { name: "log", run: log::run, base: 24 << 20, each: 512 },
    Target { name: "pipeline-file", run: config::run, base: 4 << 20, each: 4096 },
    Target { name: "schema", run: columns::schema, base: 4 << 20, each: 8192 },
    Target { name: "rows", run: columns::rows, base: 4 << 20, each: 4096 },
    Target { name: "files-sink", run: files::run, base: 4 << 20, each: 4096 },
    // Compiling takes what it takes; the runtime bounds the file's size.
    Target { name: "component", run: component::run, base: 256 << 20, each: 4096 },
    // Lists of one more than may be in them.
    Target { name: "answers", run: answers::run, base: 96 << 20, each: 1024 },
    Target { name: "archive", run: archive::run, base: 160 << 20, each: 4096 },
];

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// All names.
pub fn names() -> Vec<&'static str> {
    TARGETS.iter().map(|target| target.name).collect()
}

/// Runs a target, and holds it to its bound of memory if [`Counting`] is the program's allocator.
///
/// # Panics
/// The product broke a promise.
pub fn judge(target: &Target, input: &[u8]) -> Met {
    let before = alloc::begin();
    let met = (target.run)(input);
    let used = alloc::peak().saturating_sub(before);
    let most = target.base + target.each * input.len();
    assert!(used <= most, "{} bytes of input took {used} bytes of memory, at most {most} are due", input.len());
    met
}

/// A refusal's words: there are some, and they are not without bound.
fn words(error: &dyn std::fmt::Display) -> String {
    let words = error.to_string();
    assert!(words.len() > 5, "a refusal without words: `{words}`");
    words
}
