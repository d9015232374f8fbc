//! The commands. A path may begin with `other:` for the second granted directory. Answers are `ok`, what was asked for,
//! or WASI's name of the error.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tidegate_sdk::guest::bindings::wasi::filesystem::preopens::get_directories;
use tidegate_sdk::guest::bindings::wasi::filesystem::types::{
    Descriptor, DescriptorFlags, ErrorCode, NewTimestamp, OpenFlags, PathFlags, filesystem_error_code,
};
use tidegate_sdk::guest::bindings::wasi::io::streams::{OutputStream, StreamError};

type Answer = Result<String, String>;

thread_local! {
    /// What is open, by the path it was opened under.
    static OPEN: RefCell<BTreeMap<String, Descriptor>> = const { RefCell::new(BTreeMap::new()) };
}

/// Carries out one command.
pub(crate) fn run(command: &str) -> String {
    let words: Vec<&str> = command.split_whitespace().collect();
    let answer = match words[..] {
        ["mkdir", path] => at(path, |dir, path| dir.create_directory_at(path)),
        ["rmdir", path] => at(path, |dir, path| dir.remove_directory_at(path)),
        ["rm", path] => at(path, |dir, path| dir.unlink_file_at(path)),
        ["symlink", target, path] => at(path, |dir, path| dir.symlink_at(target, path)),
        ["readlink", path] => at(path, |dir, path| dir.readlink_at(path)),
        ["stat", path] => at(path, |dir, path| dir.stat_at(PathFlags::empty(), path).map(|stat| stat.size)),
        ["touch", path] => {
            at(path, |dir, path| dir.set_times_at(PathFlags::empty(), path, NewTimestamp::Now, NewTimestamp::Now))
        }
        ["rename", from, to] => two(from, to, |a, from, b, to| a.rename_at(from, b, to)),
        ["link", from, to] => two(from, to, |a, from, b, to| a.link_at(PathFlags::empty(), from, b, to)),
        ["create", path] => open(path, OpenFlags::CREATE | OpenFlags::EXCLUSIVE, DescriptorFlags::WRITE),
        ["open", path] => open(path, OpenFlags::empty(), DescriptorFlags::WRITE),
        ["truncate", path] => open(path, OpenFlags::TRUNCATE, DescriptorFlags::WRITE),
        ["truncate-unwritten", path] => open(path, OpenFlags::TRUNCATE, DescriptorFlags::READ),
        ["look", path] => open(path, OpenFlags::empty(), DescriptorFlags::READ),
        ["follow", path] => at(path, |dir, path| {
            dir.open_at(PathFlags::SYMLINK_FOLLOW, path, OpenFlags::empty(), DescriptorFlags::READ).map(|_| "ok")
        }),
        ["close", path] => Ok(OPEN.with_borrow_mut(|open| open.remove(path)).map_or("none", |_| "ok").to_owned()),
        ["cat", path] => {
            with(path, |file| file.read(1 << 16, 0).map(|(bytes, _)| String::from_utf8_lossy(&bytes).into_owned()))
        }
        ["put", path, text] => with(path, |file| file.write(text.as_bytes(), 0)),
        ["write", path, at, bytes] => with(path, |file| file.write(&vec![7; number(bytes)], long(at))),
        ["size", path, bytes] => with(path, |file| file.set_size(long(bytes))),
        ["sync", path, times] => with(path, |file| (0..number(times)).try_for_each(|_| file.sync_data())),
        ["stream", path, at, bytes] => stream(path, Some(long(at)), number(bytes)),
        ["append", path, bytes] => stream(path, None, number(bytes)),
        ["many", prefix, count] => many(prefix, number(count)),
        ["deep", count] => deep(number(count)),
        ["list", path] => list(path),
        _ => Err(format!("what?{command}")),
    };
    answer.unwrap_or_else(|error| error)
}

fn number(word: &str) -> usize {
    usize::try_from(long(word)).unwrap_or(usize::MAX)
}

/// Longer than this machine's own numbers.
fn long(word: &str) -> u64 {
    word.parse().unwrap_or(0)
}

/// What a call answers, as a word.
trait Word {
    fn word(self) -> String;
}

impl Word for () {
    fn word(self) -> String {
        "ok".to_owned()
    }
}

impl Word for u64 {
    fn word(self) -> String {
        self.to_string()
    }
}

impl Word for &str {
    fn word(self) -> String {
        self.to_owned()
    }
}

impl Word for String {
    fn word(self) -> String {
        self
    }
}

fn said<T: Word>(result: Result<T, ErrorCode>) -> Answer {
    result.map(T::word).map_err(|code| code.name().to_owned())
}

fn granted(path: &str) -> Result<(Descriptor, &str), String> {
    let (name, path) = path.split_once(':').unwrap_or(("output", path));
    let found = get_directories().into_iter().find(|(_, granted)| granted == name);
    found.map(|(dir, _)| (dir, path)).ok_or_else(|| "no-grant".to_owned())
}

fn at<T: Word>(path: &str, call: impl FnOnce(&Descriptor, &str) -> Result<T, ErrorCode>) -> Answer {
    let (dir, path) = granted(path)?;
    said(call(&dir, path))
}

fn two(
    from: &str,
    to: &str,
    call: impl FnOnce(&Descriptor, &str, &Descriptor, &str) -> Result<(), ErrorCode>,
) -> Answer {
    let ((from_dir, from), (to_dir, to)) = (granted(from)?, granted(to)?);
    said(call(&from_dir, from, &to_dir, to))
}

fn open(path: &str, how: OpenFlags, flags: DescriptorFlags) -> Answer {
    let (dir, below) = granted(path)?;
    let opened = dir.open_at(PathFlags::empty(), below, how, flags);
    said(opened.map(|file| drop(OPEN.with_borrow_mut(|open| open.insert(path.to_owned(), file)))))
}

fn with<T: Word>(path: &str, call: impl FnOnce(&Descriptor) -> Result<T, ErrorCode>) -> Answer {
    OPEN.with_borrow(|open| said(call(open.get(path).ok_or("not-open")?)))
}

fn stream(path: &str, at: Option<u64>, bytes: usize) -> Answer {
    OPEN.with_borrow(|open| {
        let file = open.get(path).ok_or("not-open")?;
        let stream = match at {
            Some(at) => file.write_via_stream(at),
            None => file.append_via_stream(),
        };
        written(&stream.map_err(|code| code.name().to_owned())?, bytes)
    })
}

/// Writes without waiting, as `check-write` allows.
fn written(stream: &OutputStream, bytes: usize) -> Answer {
    let mut left = bytes;
    let failed = |error| match error {
        StreamError::Closed => "closed".to_owned(),
        StreamError::LastOperationFailed(error) => {
            filesystem_error_code(&error).map_or("unknown", |code| code.name()).to_owned()
        }
    };
    while left > 0 {
        let step = left.min(stream.check_write().map_err(failed)? as usize);
        stream.write(&vec![7; step]).map_err(failed)?;
        left -= step;
    }
    stream.blocking_flush().map_err(failed)?;
    Ok("ok".to_owned())
}

fn many(prefix: &str, count: usize) -> Answer {
    for made in 0..count {
        let (dir, path) = granted(prefix)?;
        let flags = (OpenFlags::CREATE | OpenFlags::EXCLUSIVE, DescriptorFlags::WRITE);
        if let Err(code) = dir.open_at(PathFlags::empty(), &format!("{path}{made}"), flags.0, flags.1) {
            return Ok(format!("{made}:{}", code.name()));
        }
    }
    Ok(format!("{count}:ok"))
}

fn deep(count: usize) -> Answer {
    let (mut dir, _) = granted("")?;
    for made in 0..count {
        if let Err(code) = dir.create_directory_at("d") {
            return Ok(format!("{made}:{}", code.name()));
        }
        let below = dir.open_at(PathFlags::empty(), "d", OpenFlags::DIRECTORY, DescriptorFlags::READ);
        dir = below.map_err(|code| code.name().to_owned())?;
    }
    Ok(format!("{count}:ok"))
}

fn list(path: &str) -> Answer {
    let (dir, path) = granted(path)?;
    let opened = dir.open_at(PathFlags::empty(), path, OpenFlags::DIRECTORY, DescriptorFlags::READ);
    let entries = opened.and_then(|dir| dir.read_directory()).map_err(|code| code.name().to_owned())?;
    let mut names = Vec::new();
    while let Some(entry) = entries.read_directory_entry().map_err(|code| code.name().to_owned())? {
        names.push(entry.name);
    }
    names.sort();
    Ok(format!("[{}]", names.join(",")))
}
