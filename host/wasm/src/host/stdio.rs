//! Standard output and error of a plugin, as log lines. Bounded: no line is longer than a message may be, and after
//! the log budget is spent bytes are thrown away. Writes never wait, so empty ones leave nothing behind.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use super::log::{LogLevel, PluginLog};

const PERMIT: usize = 16 << 10;

/// Standard output or error of one instance. Clones write into the same line.
#[derive(Clone)]
pub(crate) struct LineStream {
    log: Arc<PluginLog>,
    level: LogLevel,
    line: Arc<Mutex<Vec<u8>>>,
}

impl LineStream {
    pub(crate) fn new(log: Arc<PluginLog>, level: LogLevel) -> Self {
        Self { log, level, line: Arc::default() }
    }

    fn take(&self, bytes: &[u8]) {
        if self.log.is_silenced() {
            return;
        }
        let longest = self.log.longest();
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let (text, ended) = piece.strip_suffix(b"\n").map_or((piece, false), |text| (text, true));
            for part in text.chunks(longest) {
                if line.len() + part.len() > longest {
                    self.emit(&mut line);
                }
                line.extend_from_slice(part);
            }
            if ended {
                self.emit(&mut line);
            }
        }
    }

    fn emit(&self, line: &mut Vec<u8>) {
        let text = String::from_utf8_lossy(line);
        let text = text.strip_suffix('\r').unwrap_or(&text);
        if !text.is_empty() {
            self.log.write(self.level, text, &[]);
        }
        line.clear();
    }

    /// Emits what has no newline yet: a line ends with the call, or with the instance.
    pub(crate) fn end(&self) {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        self.emit(&mut line);
    }
}

impl IsTerminal for LineStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for LineStream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for LineStream {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for LineStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.take(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PERMIT)
    }
}

impl AsyncWrite for LineStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.take(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
