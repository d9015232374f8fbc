//! Running the binary with a limit on its time.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// No process of a test takes longer; one that does hangs. Generous: machines are shared and slow at times.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that has ended.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// All of standard output.
    pub stdout: String,
    /// All of standard error.
    pub stderr: String,
}

impl Ended {
    /// The exit code; -1 when a signal ended it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// Both streams, for searching.
    pub fn said(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Checks the exit code, and shows what the process said if it is another one.
    ///
    /// # Panics
    /// The code differs.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "exit code; {self}");
        self
    }

    /// Checks that it said each of these, in any case of letters.
    ///
    /// # Panics
    /// A word is missing.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Self {
        let said = self.said().to_lowercase();
        for word in words {
            assert!(said.contains(&word.to_lowercase()), "`{word}` is missing; {self}");
        }
        self
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n--- stdout\n{}\n--- stderr\n{}", self.status, self.stdout, self.stderr)
    }
}

/// A process that runs. Killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    heard: Vec<String>,
    stdout: Receiver<String>,
    ended: Option<ExitStatus>,
}

impl Running {
    /// Starts a command.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        // A test's terminal is not the product's.
        command.env_remove("RUST_LOG").env_remove("RUST_BACKTRACE");
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let (sender, lines) = mpsc::channel();
        let stderr = child.stderr.take().expect("standard error was asked for");
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        let (sender, stdout) = mpsc::channel();
        let mut out = child.stdout.take().expect("standard output was asked for");
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = out.read_to_end(&mut bytes);
            let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
        });
        Self { child, lines, heard: Vec::new(), stdout, ended: None }
    }

    /// Waits for a line of standard error that starts so.
    ///
    /// # Panics
    /// The process ends, or time runs out, without it.
    #[track_caller]
    pub fn hear(&mut self, start: &str) {
        let end = Instant::now() + PATIENCE;
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            let found = line.starts_with(start);
            self.heard.push(line);
            if found {
                return;
            }
        }
        panic!("never said `{start}`; it said:\n{}", self.heard.join("\n"));
    }

    /// Whether it still runs.
    pub fn lives(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended.is_none()
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// The process is gone.
    #[track_caller]
    pub fn signal(&self, signal: i32) {
        let id = i32::try_from(self.child.id()).expect("process ids are small");
        // SAFETY: `kill` takes two integers and touches no memory of ours.
        let answer = unsafe { libc::kill(id, signal) };
        assert_eq!(answer, 0, "cannot signal: {}", std::io::Error::last_os_error());
    }

    /// SIGKILL, while it lives.
    ///
    /// # Panics
    /// It had ended before.
    #[track_caller]
    pub fn kill(mut self) {
        assert!(self.lives(), "it ended before it was killed");
        self.signal(libc::SIGKILL);
        let status = self.child.wait().expect("a child can be waited for");
        self.ended = Some(status);
        assert_eq!(status.signal(), Some(libc::SIGKILL), "it ended before it was killed");
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// It does not end in time.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        let end = Instant::now() + PATIENCE;
        while self.lives() {
            assert!(Instant::now() < end, "did not end; it said:\n{}", self.drained().join("\n"));
            pause();
        }
        let stderr = self.drained().join("\n");
        let stdout = self.stdout.recv_timeout(Duration::from_secs(20)).unwrap_or_default();
        Ended { status: self.ended.expect("it has ended"), stdout, stderr }
    }

    fn drained(&mut self) -> &[String] {
        // After the end of the process the last line is followed by the end of the stream, however long the thread that
        // reads it has to wait for a processor. It has no end only where somebody else holds the stream open.
        let patience = if self.lives() { Duration::from_millis(200) } else { Duration::from_secs(20) };
        while let Ok(line) = self.lines.recv_timeout(patience) {
            self.heard.push(line);
        }
        &self.heard
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.lives() {
            let group = i32::try_from(self.child.id()).unwrap_or(i32::MAX);
            // SAFETY: `kill` takes two integers and touches no memory of ours.
            unsafe { libc::kill(-group, libc::SIGKILL) };
            let _ = self.child.wait();
        }
    }
}

/// A short wait between two looks.
#[expect(clippy::disallowed_methods, reason = "a test that looks at other processes has no injected clock")]
pub fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

/// Looks again and again until it holds.
///
/// # Panics
/// It does not hold in time.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        pause();
    }
}
