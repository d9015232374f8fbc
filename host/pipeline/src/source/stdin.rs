//! Standard input, or any other stream that comes once. It cannot go back: not replayable.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_columns::Schema;
use tidegate_protocol::plugin::{BoxFuture, Encoding};
use tidegate_protocol::record::SourceCut;
use tokio::sync::mpsc;

use super::header::Header;
use super::input::Input;
use super::rows::{Format, Rows, RowsError, Taken};
use super::window::Window;
use super::{
    ColumnsPlan, HandOut, Read, Reader, Source, SourceBatch, SourceContract, SourceError, check_encoding, no_columns,
};

/// Name of the one partition.
const PARTITION: &str = "stdin";
/// How long to wait for rows before `Idle`.
const PATIENCE: Duration = Duration::from_millis(50);
/// Rows read ahead, in batches.
const AHEAD: usize = 2;
/// Size of a batch. The asking side's wish is not known to the thread that reads ahead.
const BATCH: usize = 256 * 1024;

/// How to read the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StdinOptions {
    /// How rows are written.
    pub format: Format,
    /// Longest line, or CSV record, in bytes without its newline.
    pub max_line: usize,
}

/// The process's standard input. A thread of its own reads it, since a read from a terminal or pipe cannot be
/// cancelled; it ends with the input or with the process.
pub struct StdinSource {
    options: StdinOptions,
    input: Mutex<Option<Box<dyn io::Read + Send>>>,
}

impl StdinSource {
    /// Reads the process's standard input.
    ///
    /// # Errors
    /// An option is out of range; the message names the key.
    pub fn new(options: StdinOptions) -> Result<Self, SourceError> {
        Self::with_input(options, Box::new(io::stdin()))
    }

    /// Reads another stream.
    ///
    /// # Errors
    /// An option is out of range; the message names the key.
    pub fn with_input(options: StdinOptions, input: Box<dyn io::Read + Send>) -> Result<Self, SourceError> {
        if let Format::Csv(csv) = &options.format {
            csv.check()?;
        }
        if options.max_line == 0 || options.max_line > 1 << 30 {
            let expected = "must be from 1 byte to 1 GiB".to_owned();
            return Err(SourceError::Configuration { key: "max-line", expected });
        }
        Ok(Self { options, input: Mutex::new(Some(input)) })
    }
}

impl Source for StdinSource {
    fn contract(&self) -> SourceContract {
        SourceContract {
            replayable: false,
            bounded: true,
            encodings: self.options.format.encodings(),
            describe: format!("stdin as {}", self.options.format.name()),
        }
    }

    /// The stream can be opened once. Restored positions only tell what was read before; this is another stream.
    fn open(
        &self,
        encoding: Encoding,
        restored: Option<&SourceCut>,
        tasks: u32,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        check_encoding(&self.contract(), encoding)?;
        if let (Format::Csv(csv), Encoding::Csv) = (&self.options.format, encoding) {
            let header = Header::restored(csv, restored)?;
            let readers = self.open_as(&HandOut::Records(Arc::clone(&header)), tasks)?;
            return Ok(header.told_by(readers));
        }
        self.open_as(&HandOut::Encoded(encoding), tasks)
    }

    fn has_columns(&self) -> bool {
        self.options.format.has_columns()
    }

    fn sample_schema(&self) -> Result<Schema, SourceError> {
        let expected = "what comes on standard input cannot be looked at beforehand, so its columns cannot be inferred; \
                        declare them, such as schema = \"id BIGINT, name TEXT\"";
        Err(SourceError::Configuration { key: "schema", expected: expected.to_owned() })
    }

    fn open_columns(
        &self,
        plan: &ColumnsPlan,
        _restored: Option<&SourceCut>,
        tasks: u32,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        if !self.has_columns() {
            return Err(no_columns(&self.contract()));
        }
        self.open_as(&HandOut::Columns(plan.clone()), tasks)
    }
}

impl StdinSource {
    fn open_as(&self, hand_out: &HandOut, tasks: u32) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        let Some(input) = self.input.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            let problem = "the input was read already and cannot be read again".to_owned();
            return Err(SourceError::Position { partition: PARTITION.to_owned(), problem });
        };
        let window = Window::new(Input::Stream(input));
        let StdinOptions { format, max_line } = &self.options;
        let rows = Rows::new(window, Arc::from(PARTITION), format, hand_out, *max_line, None).map_err(failed)?;
        let (send, receive) = mpsc::channel(AHEAD);
        std::thread::Builder::new()
            .name("stdin".to_owned())
            .spawn(move || pump(rows, &send))
            .map_err(|error| SourceError::Io { path: PARTITION.into(), error })?;
        let mut readers: Vec<Box<dyn Reader>> = vec![Box::new(StdinReader::Stream(receive))];
        readers.resize_with(tasks.max(1) as usize, || Box::new(StdinReader::Ended));
        Ok(readers)
    }
}

fn failed(error: RowsError) -> SourceError {
    match error {
        RowsError::Io(error) => SourceError::Io { path: PARTITION.into(), error },
        RowsError::Malformed(line, expected) => {
            SourceError::Malformed { partition: PARTITION.to_owned(), line: Some(line), expected }
        }
    }
}

fn position(rows: &Rows) -> String {
    serde_json::json!({ "line": rows.window().lines() }).to_string()
}

/// A batch, or `None` for the end. A channel that closes without an end is a thread that died.
type Message = Result<Option<SourceBatch>, SourceError>;

/// Reads until the end, an error, or until nobody listens.
fn pump(mut rows: Rows, send: &mpsc::Sender<Message>) {
    loop {
        let message = match rows.next(BATCH, u64::MAX) {
            Ok(None) => Ok(None),
            Ok(Some(taken)) => {
                let positions = vec![(PARTITION.to_owned(), position(&rows))];
                let Taken { bytes, columns, rows, bad } = taken;
                Ok(Some(SourceBatch { bytes, columns, rows, bad, positions, watermark: None }))
            }
            Err(error) => Err(failed(error)),
        };
        let last = !matches!(message, Ok(Some(_)));
        if send.blocking_send(message).is_err() || last {
            return;
        }
    }
}

/// The first task has the stream, the others have nothing.
enum StdinReader {
    Stream(mpsc::Receiver<Message>),
    Ended,
    Failed,
}

impl Reader for StdinReader {
    fn next<'a>(&'a mut self, _max_bytes: usize) -> BoxFuture<'a, Result<Read, SourceError>> {
        Box::pin(async move {
            let message = match self {
                Self::Stream(receive) => tokio::time::timeout(PATIENCE, receive.recv()).await,
                Self::Ended => return Ok(Read::End),
                Self::Failed => return Err(SourceError::Interrupted("it failed before".to_owned())),
            };
            match message {
                Err(_) => Ok(Read::Idle),
                Ok(Some(Ok(Some(batch)))) => Ok(Read::Rows(batch)),
                Ok(Some(Ok(None))) => {
                    *self = Self::Ended;
                    Ok(Read::End)
                }
                Ok(Some(Err(error))) => {
                    *self = Self::Failed;
                    Err(error)
                }
                Ok(None) => {
                    *self = Self::Failed;
                    Err(SourceError::Interrupted("the thread that reads stdin died".to_owned()))
                }
            }
        })
    }

    fn initial_positions(&self) -> Vec<(String, String)> {
        if matches!(self, Self::Stream(_)) {
            vec![(PARTITION.to_owned(), r#"{"line":0}"#.to_owned())]
        } else {
            Vec::new()
        }
    }
}
