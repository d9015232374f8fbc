//! Reading the output of `strace -f -y -xx`: one [`Call`] per system call that succeeded, with where in the trace it
//! began and ended.

use anyhow::{Context, Result, bail, ensure};

/// One system call that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    /// Its name.
    pub(crate) name: String,
    /// Its arguments as strace wrote them.
    pub(crate) args: Vec<String>,
    /// What it returned.
    pub(crate) returned: i64,
    /// Line of the trace on which it began.
    pub(crate) start: usize,
    /// Line on which it returned; larger than `start` when other threads came in between.
    pub(crate) end: usize,
}

/// Parses a whole trace. Failed calls are left out, except that every line must be understood.
pub(crate) fn parse(trace: &str) -> Result<Vec<Call>> {
    let mut unfinished: Vec<(&str, String, usize)> = Vec::new();
    let mut calls = Vec::new();
    for (number, line) in trace.lines().enumerate() {
        let (pid, rest) = line.split_once(' ').with_context(|| format!("line {}: no process id", number + 1))?;
        let rest = rest.trim_start();
        if rest.starts_with("+++") || rest.starts_with("---") {
            continue;
        }
        if let Some(begun) = rest.strip_suffix("<unfinished ...>") {
            unfinished.push((pid, begun.trim_end().to_owned(), number));
            continue;
        }
        let (text, start) = match rest.strip_prefix("<... ") {
            Some(resumed) => {
                let at = unfinished
                    .iter()
                    .position(|(of, ..)| *of == pid)
                    .with_context(|| format!("line {}: resumed without a beginning", number + 1))?;
                let (_, begun, start) = unfinished.swap_remove(at);
                let (_, tail) = resumed.split_once("resumed>").context("`resumed` without its bracket")?;
                (begun + tail, start)
            }
            None => (rest.to_owned(), number),
        };
        let call = parse_call(&text, start, number).with_context(|| format!("line {} of the trace", number + 1))?;
        calls.extend(call);
    }
    // Calls that never returned (the process was killed inside) may have had their effect.
    for (_, begun, start) in unfinished.into_iter().filter(|(_, begun, _)| !begun.starts_with(UNREADABLE)) {
        let text = format!("{begun}) = 0");
        if let Ok(Some(mut call)) = parse_call(&text, start, usize::MAX) {
            call.end = usize::MAX;
            calls.push(call);
        }
    }
    calls.sort_by_key(Call::order);
    Ok(calls)
}

/// What strace writes for a thread that ends with its process before it can be read which call it was about to make.
/// No call was carried out.
const UNREADABLE: &str = "???";

/// Calls that hand out a descriptor.
const OPENING: [&str; 8] = ["open", "creat", "openat", "openat2", "dup", "dup2", "dup3", "fcntl"];

fn parse_call(text: &str, start: usize, end: usize) -> Result<Option<Call>> {
    let (name, rest) = text.split_once('(').context("no opening bracket")?;
    let (args, rest) = split_args(rest)?;
    let (_, answer) = rest.split_once('=').context("no answer")?;
    let answer = answer.trim_start();
    if answer.starts_with('-') || answer.starts_with('?') {
        return Ok(None);
    }
    let digits: String = answer.chars().take_while(char::is_ascii_digit).collect();
    let returned = digits.parse().with_context(|| format!("`{answer}` is not an answer"))?;
    Ok(Some(Call { name: name.to_owned(), args, returned, start, end }))
}

/// Splits at commas of the outermost level; answers with the arguments and what follows the closing bracket.
fn split_args(text: &str) -> Result<(Vec<String>, &str)> {
    let mut args = Vec::new();
    let mut current = String::new();
    let (mut depth, mut quoted) = (0_i32, false);
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if quoted => {
                current.push(c);
                current.extend(chars.next().map(|(_, next)| next));
                continue;
            }
            '"' => quoted = !quoted,
            _ if quoted => {}
            '{' | '[' | '(' => depth += 1,
            ')' if depth == 0 => {
                if !current.trim().is_empty() {
                    args.push(current.trim().to_owned());
                }
                return Ok((args, &text[at + 1..]));
            }
            '}' | ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                args.push(current.trim().to_owned());
                current.clear();
                continue;
            }
            _ => {}
        }
        current.push(c);
    }
    bail!("the call's bracket is not closed")
}

impl Call {
    /// A descriptor is free for others as soon as its close begins, and taken only when the opening call returns.
    fn order(&self) -> usize {
        if OPENING.contains(&self.name.as_str()) { self.end } else { self.start }
    }

    /// The argument at `index`.
    pub(crate) fn arg(&self, index: usize) -> Result<&str> {
        self.args.get(index).map(String::as_str).with_context(|| format!("{}: no argument {index}", self.name))
    }

    /// The argument as a number; octal and hexadecimal as strace writes them.
    pub(crate) fn number(&self, index: usize) -> Result<u64> {
        let text = self.arg(index)?;
        let value = match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => text.parse(),
        };
        value.with_context(|| format!("{}: `{text}` is not a number", self.name))
    }

    /// The argument as an open file: its number and its path.
    pub(crate) fn descriptor(&self, index: usize) -> Result<(i64, String)> {
        descriptor(self.arg(index)?)
    }

    /// The argument as a string of bytes.
    pub(crate) fn bytes(&self, index: usize) -> Result<Vec<u8>> {
        bytes(self.arg(index)?)
    }

    /// All strings of an `iovec` argument, joined.
    pub(crate) fn vector(&self, index: usize) -> Result<Vec<u8>> {
        let mut joined = Vec::new();
        for piece in self.arg(index)?.split("iov_base=").skip(1) {
            let quoted = piece.split_inclusive('"').take(2).collect::<String>();
            ensure!(!piece[quoted.len()..].starts_with("..."), "a string was cut short: trace with a larger -s");
            joined.extend(bytes(&quoted)?);
        }
        Ok(joined)
    }

    /// The path that a directory argument and a name argument give together.
    pub(crate) fn path(&self, directory: usize, name: usize) -> Result<String> {
        let name = String::from_utf8(self.bytes(name)?).context("a path is not UTF-8")?;
        if name.starts_with('/') {
            return Ok(normal(&name));
        }
        let (_, directory) = self.descriptor(directory)?;
        Ok(normal(&format!("{directory}/{name}")))
    }

    /// The path of a call that takes no directory; relative ones are left out by answering with nothing.
    pub(crate) fn absolute(&self, index: usize) -> Result<Option<String>> {
        let name = String::from_utf8(self.bytes(index)?).context("a path is not UTF-8")?;
        Ok(name.starts_with('/').then(|| normal(&name)))
    }
}

/// `7<\x2f\x61>` as (7, "/a"); `AT_FDCWD<…>` has the number -100.
fn descriptor(text: &str) -> Result<(i64, String)> {
    let (number, path) = match text.split_once('<') {
        Some((number, path)) => (number, path.strip_suffix('>').unwrap_or(path)),
        None => (text, ""),
    };
    let number = if number == "AT_FDCWD" { -100 } else { number.parse().with_context(|| format!("`{text}`"))? };
    Ok((number, String::from_utf8_lossy(&unescape(path)?).into_owned()))
}

/// A quoted string.
fn bytes(text: &str) -> Result<Vec<u8>> {
    ensure!(!text.ends_with("..."), "a string was cut short: trace with a larger -s");
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    unescape(inner.with_context(|| format!("`{text}` is not a string"))?)
}

fn unescape(text: &str) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4);
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'\\' {
            ensure!(tail.first() == Some(&b'x') && tail.len() >= 3, "only hexadecimal escapes are expected: {text}");
            let digits = std::str::from_utf8(&tail[1..3])?;
            out.push(u8::from_str_radix(digits, 16)?);
            rest = &tail[3..];
        } else {
            out.push(first);
            rest = tail;
        }
    }
    Ok(out)
}

/// A path without `.`, `..` and doubled slashes, as far as the text tells.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_in_two_pieces_keeps_where_it_began_and_ended() {
        let trace = "7 write(3<\\x2f\\x61>, \"\\x68\\x69\", 2 <unfinished ...>\n\
                     8 fsync(4<\\x2f\\x62>) = 0\n\
                     7 <... write resumed>) = 2\n\
                     7 +++ exited with 0 +++\n";
        let calls = parse(trace).expect("the trace is whole");
        assert_eq!(calls.len(), 2);
        assert_eq!((calls[0].name.as_str(), calls[0].start, calls[0].end), ("write", 0, 2));
        assert_eq!(calls[0].descriptor(0).expect("an open file"), (3, "/a".to_owned()));
        assert_eq!(calls[0].bytes(1).expect("a string"), b"hi");
        assert_eq!((calls[1].name.as_str(), calls[1].returned), ("fsync", 0));
    }

    #[test]
    fn a_thread_that_ends_with_its_process_made_no_call() {
        let trace = "7 ???( <unfinished ...>\n\
                     8 ???()                             = ?\n\
                     7 +++ exited with 0 +++\n\
                     9 write(3<\\x2f\\x61>, \"\\x68\", 1 <unfinished ...>\n";
        let calls = parse(trace).expect("the trace is whole");
        assert_eq!(calls.len(), 1, "a call that was begun may have had its effect: {calls:?}");
        assert_eq!(calls[0].name, "write");
    }

    #[test]
    fn paths_join_directory_and_name() {
        let trace = "7 renameat2(3<\\x2f\\x61>, \"\\x78\", AT_FDCWD<\\x2f\\x62>, \"\\x2f\\x63\\x2f\\x2e\\x2e\\x2f\\x64\", 0) = 0\n";
        let call = &parse(trace).expect("the trace is whole")[0];
        assert_eq!(call.path(0, 1).expect("a path"), "/a/x");
        assert_eq!(call.path(2, 3).expect("a path"), "/d");
    }

    #[test]
    fn failed_calls_are_left_out_and_vectors_are_joined() {
        let trace = "7 mkdir(\"\\x2f\\x61\", 0777) = -1 EEXIST (File exists)\n\
                     7 writev(3<\\x2f\\x61>, [{iov_base=\"\\x61\", iov_len=1}, {iov_base=\"\\x62\\x63\", iov_len=2}], 2) = 3\n";
        let calls = parse(trace).expect("the trace is whole");
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].vector(1).expect("strings"), b"abc");
    }

    #[test]
    fn a_call_that_never_returned_may_have_happened() {
        let calls = parse("7 fsync(3<\\x2f\\x61> <unfinished ...>\n7 +++ killed by SIGKILL +++\n").expect("whole");
        assert_eq!((calls.len(), calls[0].end), (1, usize::MAX));
    }

    #[test]
    fn a_descriptor_closed_while_another_thread_opens_is_closed_first() {
        let trace = "1 openat(3<\\x2f\\x61>, \"\\x78\", O_RDONLY <unfinished ...>\n\
                     2 close(4<\\x2f\\x62>) = 0\n\
                     1 <... openat resumed>) = 4<\\x2f\\x61\\x2f\\x78>\n";
        let calls = parse(trace).expect("the trace is whole");
        assert_eq!(calls.iter().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["close", "openat"]);
    }

    #[test]
    fn a_string_cut_short_is_an_error() {
        let calls = parse("7 write(3<\\x2f\\x61>, \"\\x68\"..., 20) = 20\n").expect("the line is whole");
        assert!(calls[0].bytes(1).is_err());
    }
}
