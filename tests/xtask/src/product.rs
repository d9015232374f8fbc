//! The product as a process: building it, running it, stopping it, and what it cost.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Longest time that any single process of a check may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Answers with the binary to judge: the one given, or the release build, made now.
pub(crate) fn binary(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = given {
        return path.canonicalize().with_context(|| format!("no binary at `{}`", path.display()));
    }
    build()?;
    let path = target_directory()?.join("release/tidegate");
    ensure!(path.is_file(), "the release build left no `{}`", path.display());
    Ok(path)
}

/// Builds the product, and with it the program that benchmarks its sandbox: built apart, the two could ask for other
/// features of what they share, and the heaviest crates would be built twice.
fn build() -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "--quiet", "--package", "tidegate-cli", "--package", "tidegate-sinkbench"])
        .current_dir(crate::workspace())
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "the release build failed");
    Ok(())
}

/// Where cargo puts what it builds: two levels above this program.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let me = std::env::current_exe()?;
    let target = me.parent().and_then(Path::parent).context("this program lies in no target directory")?;
    Ok(target.to_owned())
}

/// What a finished process cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// User and system time of the process and all descendants that were waited for, in seconds.
    pub(crate) cpu_seconds: f64,
    /// Wall clock, in seconds.
    pub(crate) wall_seconds: f64,
    /// Largest resident sizes of the process and of each descendant that was seen, added up, in MiB. The kernel's own
    /// count for children would not do: it includes what was resident here when the child was made.
    pub(crate) peak_mib: f64,
}

/// A running process, in a process group of its own. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    started: Instant,
    lines: Receiver<String>,
    said: Vec<String>,
    reaped: bool,
}

impl Process {
    /// Starts a command; its standard error is read line by line, its standard output thrown away. It is killed when
    /// the thread ends that calls this.
    pub(crate) fn start(command: Command) -> Result<Self> {
        Self::start_into(command, Stdio::null())
    }

    /// Starts a command with its standard output going somewhere.
    pub(crate) fn start_into(mut command: Command, output: Stdio) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(output).stderr(Stdio::piped()).process_group(0);
        dies_with_this_thread(&mut command);
        let started = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let stderr = child.stderr.take().context("standard error was asked for")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || forward(stderr, &sender));
        Ok(Self { child, started, lines, said: Vec::new(), reaped: false })
    }

    /// Waits until a line of standard error starts with `start`; `false` when the process ended or time ran out first.
    pub(crate) fn wait_for_line(&mut self, start: &str, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let found = line.starts_with(start);
                    self.said.push(line);
                    if found {
                        return true;
                    }
                }
                Err(_) => return false,
            }
        }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Takes the next line of standard error, if one has come.
    pub(crate) fn take_line(&mut self) -> Option<String> {
        let line = self.lines.try_recv().ok()?;
        self.said.push(line.clone());
        Some(line)
    }

    /// Whether it still runs.
    pub(crate) fn lives(&mut self) -> bool {
        !self.reaped && !ended(self.child.id())
    }

    /// Bytes that it has handed to the kernel for writing so far.
    pub(crate) fn written(&self) -> Result<u64> {
        let path = format!("/proc/{}/io", self.child.id());
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read `{path}`"))?;
        let bytes = text.lines().find_map(|line| line.strip_prefix("wchar:")?.trim().parse().ok());
        bytes.with_context(|| format!("`{path}` counts no written bytes"))
    }

    /// Sends a signal to the whole group.
    pub(crate) fn signal(&self, signal: i32) -> Result<()> {
        let group = i32::try_from(self.child.id())?;
        // SAFETY: `kill` takes two integers and touches no memory of ours.
        let answer = unsafe { libc::kill(-group, signal) };
        ensure!(answer == 0, "cannot signal process {group}: {}", std::io::Error::last_os_error());
        Ok(())
    }

    /// SIGKILL. Answers whether the process lived until then: only such a kill counts.
    pub(crate) fn kill(mut self) -> Result<bool> {
        if !self.lives() {
            return Ok(false);
        }
        self.signal(libc::SIGKILL)?;
        let status = self.child.wait()?;
        self.reaped = true;
        Ok(status.signal() == Some(libc::SIGKILL))
    }

    /// Waits for the end; a process that outlasts `patience` is an error.
    pub(crate) fn finish(mut self, patience: Duration) -> Result<(ExitStatus, Cost, String)> {
        let id = i32::try_from(self.child.id())?;
        let end = self.started + patience;
        let mut peaks: BTreeMap<i32, f64> = BTreeMap::new();
        let (status, usage) = loop {
            if let Some(done) = reap(id)? {
                break done;
            }
            for member in tree(id) {
                let peak = peaks.entry(member).or_default();
                *peak = peak.max(resident_peak_mib(member));
            }
            if Instant::now() > end {
                let said = self.words();
                bail!("the process did not end within {} s; it said:\n{said}", patience.as_secs());
            }
            pause(Duration::from_millis(3));
        };
        self.reaped = true;
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        let cost = Cost {
            cpu_seconds: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            wall_seconds: self.started.elapsed().as_secs_f64(),
            peak_mib: peaks.values().sum(),
        };
        Ok((ExitStatus::from_raw(status), cost, self.words()))
    }

    /// All it said so far on standard error; waits for the rest when it has ended.
    fn words(&mut self) -> String {
        while let Ok(line) = self.lines.recv_timeout(Duration::from_millis(if self.reaped { 1000 } else { 1 })) {
            self.said.push(line);
        }
        self.said.join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.signal(libc::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// A process in a group of its own does not get the interrupt that a terminal sends to this one. So that none is left
/// behind, the kernel kills it when the thread that starts it is gone.
fn dies_with_this_thread(command: &mut Command) {
    let parent = std::process::id();
    let ask = move || {
        let signal = libc::SIGKILL as libc::c_ulong;
        // SAFETY: with this option `prctl` takes a number and touches no memory.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: `getppid` takes nothing and cannot fail. Who is gone already sends no signal.
        if unsafe { libc::getppid() }.unsigned_abs() == parent {
            Ok(())
        } else {
            Err(std::io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(ask) };
}

fn forward(stderr: impl Read, sender: &mpsc::Sender<String>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        if sender.send(line).is_err() {
            return;
        }
    }
}

/// Whether a child has ended. Its end is left for who asks what it cost.
fn ended(id: u32) -> bool {
    // SAFETY: an all-zero `siginfo_t` is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the pointer is to a live, writable `siginfo_t`.
    let answer = unsafe { libc::waitid(libc::P_PID, id, &mut info, options) };
    // SAFETY: `waitid` fills in this member, or leaves it zero while the child runs.
    answer != 0 || unsafe { info.si_pid() } != 0
}

/// Takes the end of a child and its resource usage; nothing while it runs.
fn reap(id: i32) -> Result<Option<(i32, libc::rusage)>> {
    let mut status = 0;
    // SAFETY: an all-zero `rusage` is a valid value: it holds only integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live, writable values of the right types.
    let answer = unsafe { libc::wait4(id, &mut status, libc::WNOHANG, &mut usage) };
    match answer {
        0 => Ok(None),
        -1 => Err(std::io::Error::last_os_error()).context("wait4"),
        _ => Ok(Some((status, usage))),
    }
}

/// The process and all its descendants.
fn tree(id: i32) -> Vec<i32> {
    let mut members = vec![id];
    let mut next = 0;
    while let Some(member) = members.get(next).copied() {
        next += 1;
        let Ok(threads) = std::fs::read_dir(format!("/proc/{member}/task")) else { continue };
        for thread in threads.flatten() {
            let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            members.extend(children.split_whitespace().filter_map(|child| child.parse::<i32>().ok()));
        }
    }
    members
}

/// The largest resident size so far; 0 when the process is gone.
fn resident_peak_mib(id: i32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.trim().parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// Waits. The checks judge real processes in real time.
#[expect(clippy::disallowed_methods, reason = "this program has no driver and no injected clock")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_ends_with_the_thread_that_started_it() {
        let started = std::thread::spawn(|| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo up >&2; exec sleep 1000"]);
            let mut process = Process::start(command).expect("there is a shell");
            assert!(process.wait_for_line("up", PATIENCE));
            process
        });
        let process = started.join().expect("it starts");
        let (status, ..) = process.finish(PATIENCE).expect("it ends");
        assert_eq!(status.signal(), Some(libc::SIGKILL));
    }
}
