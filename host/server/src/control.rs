//! Speaking to a running pipeline: a Unix socket in its state directory, one request per connection, JSON lines.
//!
//! Whoever holds the log's lock listens, nobody else. The socket is for the user that runs the pipeline alone. What
//! comes in is bounded in size, number and time; a client that is slow, silent or hostile costs one of a few places for
//! a few seconds, and the pipeline nothing.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream as Stream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use tidegate_pipeline::{Control, Waiting};
use tidegate_protocol::event::RequestRefused;
use tidegate_protocol::ids::{EpochRef, SinkId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use crate::quarantine::{Plugins, QuarantineView};

/// The socket's name in the state directory.
const NAME: &str = "control.sock";
/// Version of what is spoken.
const VERSION: u32 = 1;
/// Longest line, in bytes.
const LONGEST: usize = 4 << 10;
/// Longest answer, in bytes.
const LONGEST_ANSWER: usize = 256 << 10;
/// So many clients are heard at once.
const CLIENTS: usize = 8;
/// How long a client may take to say what it wants, and to take its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a client waits to be told whether its request was withdrawn in time.
const LAST_WORD: Duration = Duration::from_secs(1);
/// How long a request may wait for the pipeline before it is withdrawn, whatever the client wants.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub(crate) enum Ask {
    /// Make a savepoint now.
    SavepointCreate { name: String },
    /// Give a savepoint up.
    SavepointForget { name: String },
    /// Plugins in quarantine.
    QuarantineList,
    /// End the quarantine of this sink's plugin, or of all.
    QuarantineLift { sink: Option<SinkId> },
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub(crate) enum Said {
    /// Done and durable.
    Done { epoch: EpochRef },
    /// Plugins that are in quarantine, or were until now.
    Quarantine { plugins: Vec<QuarantineView> },
    /// Not done, and why.
    Refused { why: Why, message: String, epoch: Option<EpochRef> },
}

/// Why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Why {
    IllegalName,
    NameTaken,
    UnknownSavepoint,
    TooMany,
    Withdrawn,
    RunOver,
    /// Not understood: another version, or not a request at all.
    Request,
    /// Another user's process.
    User,
    /// Of a newer version.
    #[serde(other)]
    Other,
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    #[serde(flatten)]
    what: T,
}

/// The directory by its handle: a socket's path has at most 107 bytes, a state directory's may have more.
fn at(dir: &Path) -> io::Result<(OwnedFd, String)> {
    let dir = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let path = format!("/proc/self/fd/{}/{NAME}", dir.as_raw_fd());
    Ok((dir, path))
}

/// Listens while it lives.
pub(crate) struct Listening {
    dir: OwnedFd,
    serving: JoinHandle<()>,
}

impl Listening {
    /// Begins to listen. The caller holds the log's lock.
    ///
    /// # Errors
    /// Why nobody can speak to the pipeline; it can run all the same.
    pub(crate) fn begin(dir: &Path, control: Control, plugins: Plugins) -> io::Result<Listening> {
        let (dir, path) = at(dir)?;
        remove_stale(&dir)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // Before it has a name, so that nobody else can ever open it.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path.as_str())?)?;
        rustix::net::listen(&socket, CLIENTS as i32)?;
        let listener = UnixListener::from_std(std::os::unix::net::UnixListener::from(socket))?;
        Ok(Listening { dir, serving: tokio::spawn(serve(listener, control, plugins)) })
    }

    /// Stops listening, while the lock is still held.
    pub(crate) async fn end(self) {
        self.serving.abort();
        let _ = self.serving.await;
        // Nothing hangs on it: the next owner removes what is left.
        let _ = rustix::fs::unlinkat(&self.dir, NAME, AtFlags::empty());
    }
}

/// What a process that was killed has left. Only the lock's holder gets here, so nobody listens there.
fn remove_stale(dir: &OwnedFd) -> io::Result<()> {
    match rustix::fs::statat(dir, NAME, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Socket => {
            Ok(rustix::fs::unlinkat(dir, NAME, AtFlags::empty())?)
        }
        Ok(_) => Err(io::Error::other(format!("`{NAME}` in the state directory is not a socket; move it away"))),
        Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn serve(listener: UnixListener, control: Control, plugins: Plugins) {
    let places = Arc::new(Semaphore::new(CLIENTS));
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    // Nobody waits for a place: who gets none is told so by the closed connection.
                    if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
                        let (control, plugins) = (control.clone(), plugins.clone());
                        clients.spawn(async move {
                            let _place = place;
                            converse(stream, &control, &plugins).await;
                        });
                    }
                }
                // Too many open files, for example: no reason to turn round and round.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
            Some(_) = clients.join_next() => {}
        }
    }
}

/// One client, from its request to its answer.
async fn converse(mut stream: UnixStream, control: &Control, plugins: &Plugins) {
    let mine = rustix::process::geteuid().as_raw();
    let said = match stream.peer_cred() {
        Ok(peer) if peer.uid() == mine => match tokio::time::timeout(PATIENCE, read_request(&mut stream)).await {
            Ok(Ok(Request::Asked(ask))) => match still_wanted(&stream) {
                true => answer(&mut stream, control, plugins, &ask).await,
                false => None,
            },
            Ok(Ok(Request::Withdrawn)) => Some(refused(Why::Withdrawn, "withdrawn before it began")),
            Ok(Ok(Request::Unknown)) => Some(refused(Why::Request, "this pipeline does not understand the request")),
            // Silent for too long, or gone.
            Ok(Err(_)) | Err(_) => None,
        },
        _ => Some(refused(Why::User, "the pipeline is run by another user; ask as that user")),
    };
    if let Some(said) = said {
        // A client that does not take its answer has missed it.
        let _ = tokio::time::timeout(PATIENCE, stream.write_all(&line(said))).await;
    }
}

async fn answer(stream: &mut UnixStream, control: &Control, plugins: &Plugins, ask: &Ask) -> Option<Said> {
    match ask {
        Ask::SavepointCreate { name } => wait(stream, control.savepoint(name)).await,
        Ask::SavepointForget { name } => wait(stream, control.forget(name)).await,
        Ask::QuarantineList => Some(Said::Quarantine { plugins: plugins.list() }),
        Ask::QuarantineLift { sink } => Some(Said::Quarantine { plugins: plugins.lift(sink.as_ref()) }),
    }
}

/// Whether the client is still there and silent. This process may have been stopped for longer than it waits.
fn still_wanted(stream: &UnixStream) -> bool {
    stream.try_read(&mut [0; 1]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

fn refused(why: Why, message: &str) -> Said {
    Said::Refused { why, message: message.to_owned(), epoch: None }
}

fn line<T: Serialize>(what: T) -> Vec<u8> {
    let mut line = serde_json::to_vec(&Versioned { version: VERSION, what }).unwrap_or_default();
    line.push(b'\n');
    line
}

/// What a client wants.
enum Request {
    Asked(Ask),
    /// Nothing any more: what came behind the request withdrew it.
    Withdrawn,
    /// It is no request of this version.
    Unknown,
}

/// One line, at most [`LONGEST`] bytes.
async fn read_request(stream: &mut UnixStream) -> io::Result<Request> {
    let mut text = Vec::new();
    let mut piece = [0; 512];
    loop {
        let read = stream.read(&mut piece).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        text.extend_from_slice(&piece[..read]);
        if let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let request: Option<Versioned<Ask>> = serde_json::from_slice(&text[..end]).ok();
            return Ok(match request.filter(|request| request.version == VERSION) {
                Some(_) if text.len() > end + 1 => Request::Withdrawn,
                Some(request) => Request::Asked(request.what),
                None => Request::Unknown,
            });
        }
        if text.len() > LONGEST {
            return Ok(Request::Unknown);
        }
    }
}

/// Waits for the pipeline. Anything more that the client says withdraws its request, and so does its going away.
async fn wait(stream: &mut UnixStream, mut waiting: Waiting) -> Option<Said> {
    let mut piece = [0; 64];
    let answer = tokio::select! {
        answer = waiting.answer() => answer,
        more = stream.read(&mut piece) => {
            waiting.withdraw();
            match more {
                Ok(read) if read > 0 => {}
                _ => return None,
            }
            waiting.answer().await
        }
        () = tokio::time::sleep(LONGEST_WAIT) => {
            waiting.withdraw();
            waiting.answer().await
        }
    };
    Some(match answer {
        Ok(epoch) => Said::Done { epoch },
        Err(RequestRefused::IllegalName(error)) => refused(Why::IllegalName, &error.to_string()),
        Err(RequestRefused::NameTaken(epoch)) => {
            Said::Refused { why: Why::NameTaken, message: "the name is taken".to_owned(), epoch }
        }
        Err(RequestRefused::UnknownSavepoint) => refused(Why::UnknownSavepoint, "there is no such savepoint"),
        Err(RequestRefused::TooMany) => refused(Why::TooMany, "too many requests wait for the pipeline"),
        Err(RequestRefused::Withdrawn) => refused(Why::Withdrawn, "withdrawn before it began"),
        Err(RequestRefused::RunOver) => refused(Why::RunOver, "the run ended before it was done"),
    })
}

/// What asking came to.
#[derive(Debug)]
pub(crate) enum Asked {
    /// The pipeline answered.
    Answered(Said),
    /// Nobody listens.
    Nobody,
    /// The connection was closed without an answer: the process ended, or too many speak to it.
    Lost,
    /// No answer in time. Whether it will still be done is not known.
    Silent,
}

/// Whether a running pipeline can be spoken to there.
pub(crate) fn listens(dir: &Path) -> bool {
    at(dir).is_ok_and(|(_dir, path)| Stream::connect(path).is_ok())
}

/// Asks a running pipeline and waits for its answer until `deadline`; then the request is withdrawn.
///
/// # Errors
/// The socket cannot be used.
pub(crate) fn ask(dir: &Path, ask: &Ask, deadline: Instant) -> io::Result<Asked> {
    use std::io::Write as _;
    let (_dir, path) = at(dir)?;
    let mut stream = match Stream::connect(&path) {
        Ok(stream) => stream,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock => {
                    Ok(Asked::Nobody)
                }
                _ => Err(error),
            };
        }
    };
    stream.set_write_timeout(Some(PATIENCE))?;
    if stream.write_all(&line(ask)).is_err() {
        return Ok(Asked::Lost);
    }
    match hear(&mut stream, deadline)? {
        Asked::Silent => {
            if stream.write_all(b"withdraw\n").is_err() {
                return Ok(Asked::Lost);
            }
            hear(&mut stream, Instant::now() + LAST_WORD)
        }
        asked => Ok(asked),
    }
}

fn hear(stream: &mut Stream, deadline: Instant) -> io::Result<Asked> {
    use std::io::Read as _;
    let mut text = Vec::new();
    let mut piece = [0; 512];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Asked::Silent);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => return Ok(Asked::Lost),
            Ok(read) => text.extend_from_slice(&piece[..read]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => continue,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Ok(Asked::Lost),
        }
        if let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            return match serde_json::from_slice::<Versioned<Said>>(&text[..end]) {
                Ok(said) => Ok(Asked::Answered(said.what)),
                Err(_) => Err(io::Error::other("the running pipeline answers in a way that is not understood here")),
            };
        }
        if text.len() > LONGEST_ANSWER {
            return Err(io::Error::other("the running pipeline answers without end"));
        }
    }
}

#[cfg(test)]
#[path = "control/tests.rs"]
mod tests;
